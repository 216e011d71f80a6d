//! The functions of the fuzz targets. Each target is three lines, so that `cargo test` can replay
//! the corpora here without a fuzzer.

use crate::rng::SimRng;
use broker::options::QueuePolicy;
use broker::{
    BrokerOptions, ConnId, Effect, Interest, MonotonicMs, Outbox, PeerInfo, ProcessMemory, Shard,
    ShardId, ShardInput, ShardMessage,
};
use mqtt::{Packet, ProtocolVersion};
use std::collections::VecDeque;
use std::sync::Arc;

const VERSIONS: [ProtocolVersion; 3] =
    [ProtocolVersion::V31, ProtocolVersion::V311, ProtocolVersion::V5];

/// Decodes any bytes: decoding ends, and a decoded packet lies inside its bytes and can be printed.
pub fn decode(bytes: &[u8]) {
    for version in VERSIONS {
        let mut rest = bytes;
        while let Ok(Some(frame)) = mqtt::split_frame(rest, 1 << 20) {
            if let Ok(packet) = Packet::decode(frame, version) {
                assert!(!packet.to_string().is_empty());
            }
            rest = &rest[frame.len..];
        }
    }
}

/// Checks that a decoded packet, encoded again, decodes to the same packet.
pub fn roundtrip(bytes: &[u8]) {
    let Ok(Some(frame)) = mqtt::split_frame(bytes, u32::MAX) else { return };
    for version in VERSIONS {
        let Ok(packet) = Packet::decode(frame, version) else { continue };
        let version = match packet {
            Packet::Connect(connect) => connect.version,
            _ => version,
        };
        let mut encoded = Vec::new();
        packet.encode(version, &mut encoded);
        if encoded.is_empty() {
            // 3.x cannot encode every packet which it decodes.
            assert_ne!(version, ProtocolVersion::V5, "{packet}");
            continue;
        }
        let again = mqtt::split_frame(&encoded, u32::MAX).expect("what we write is well formed");
        let again = again.expect("what we write is whole");
        assert_eq!(Packet::decode(again, version), Ok(packet));
    }
}

/// Feeds the bytes to one connection of a broker, whole and in pieces. The broker must not panic.
pub fn conn_bytes(bytes: &[u8]) {
    for (shards, piece) in [(1, usize::MAX), (1, 7), (2, usize::MAX)] {
        // The `$SYS` tree costs more than all other work, and the bytes do not influence it.
        let mut table = FuzzHarness::new(
            shards,
            BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() },
        );
        table.open(0, 0);
        for piece in bytes.chunks(piece.min(bytes.len().max(1))) {
            table.read(0, 0, piece);
        }
        table.advance(20_000);
    }
}

/// Feeds shards with small limits a sequence of inputs which an engine could produce, at most
/// `STEPS_MAX`.
pub fn shard_inputs(bytes: &[u8]) {
    let mut reader = FuzzInput { bytes };
    let options = BrokerOptions {
        inflight_max: 3,
        queue_messages_max: 3,
        queue_bytes_max: 400,
        queue_policy: match reader.below(3) {
            0 => QueuePolicy::Disconnect,
            1 => QueuePolicy::DropNewest,
            _ => QueuePolicy::DropOldest,
        },
        queue_qos0: reader.below(2) == 0,
        retained_messages_max: 5,
        sys_interval_s: 30,
        topic_alias_out_max: 2,
        ..BrokerOptions::default()
    };
    let mut table = FuzzHarness::new(1 + reader.below(3), options);
    for _ in 0..STEPS_MAX {
        if reader.bytes.is_empty() {
            break;
        }
        table.step(&mut reader);
    }
    table.advance(100_000);
}

const STEPS_MAX: usize = 2000;
const CONNS: usize = 6;

/// Choices derived from the fuzzer's bytes. At the end of the bytes every choice is 0.
struct FuzzInput<'a> {
    bytes: &'a [u8],
}

impl<'a> FuzzInput<'a> {
    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % bound
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}

/// Shards with their connections and lanes, without disk, authenticator and authorizer.
struct FuzzHarness {
    now: MonotonicMs,
    shards: Vec<Shard>,
    outs: Vec<Outbox>,
    lanes: Vec<VecDeque<(ShardId, ShardMessage)>>,
    conns: Vec<Vec<Option<FuzzConn>>>,
}

/// The broker's end of one open connection: bytes not consumed, and whether `Effect::Hold` is in
/// force.
#[derive(Clone, Default)]
struct FuzzConn {
    unread: Vec<u8>,
    held: bool,
}

impl FuzzHarness {
    fn new(shards: usize, options: BrokerOptions) -> FuzzHarness {
        let options = Arc::new(options);
        let interest = Arc::new(Interest::new(1, shards));
        let memory = Arc::new(ProcessMemory::default());
        let shard = |at: usize| {
            let (options, interest, memory) = (options.clone(), interest.clone(), memory.clone());
            Shard::new(
                ShardId(at as u8),
                shards,
                options,
                interest,
                memory,
                1,
                at as u64 + 1,
                MonotonicMs(0),
            )
        };
        FuzzHarness {
            now: MonotonicMs(0),
            shards: (0..shards).map(shard).collect(),
            outs: (0..shards).map(|_| Outbox::new(shards)).collect(),
            lanes: (0..shards).map(|_| VecDeque::new()).collect(),
            conns: (0..shards).map(|_| vec![None; CONNS]).collect(),
        }
    }

    fn step(&mut self, reader: &mut FuzzInput<'_>) {
        let (at, conn) = (reader.below(self.shards.len()), reader.below(CONNS));
        match reader.below(12) {
            0 => self.open(at, conn),
            1 => self.close(at, conn),
            2 => self.give_input(at, ShardInput::Congested { conn: ConnId(conn as u32) }),
            3 => self.give_input(at, ShardInput::Writable { conn: ConnId(conn as u32) }),
            4 => self.advance(reader.below(256) as u64 * 50),
            5 => {
                self.deliver_shard_message(at);
            }
            6 => {
                let len = reader.below(64);
                let bytes = reader.take(len);
                self.read(at, conn, bytes);
            }
            _ => {
                let bytes = packet(reader);
                self.read(at, conn, &bytes);
            }
        }
    }

    fn give_input(&mut self, at: usize, input: ShardInput<'_>) {
        self.shards[at].handle(self.now, input, &mut self.outs[at]);
        self.perform_outbox(at);
    }

    fn open(&mut self, at: usize, conn: usize) {
        if self.conns[at][conn].is_none() {
            self.attach(at, conn, Vec::new(), false);
        }
    }

    fn attach(&mut self, at: usize, conn: usize, unread: Vec<u8>, moved: bool) {
        self.conns[at][conn] = Some(FuzzConn::default());
        let peer = PeerInfo::from_address(([127, 0, 0, 1], 1).into());
        let conn_id = ConnId(conn as u32);
        self.give_input(at, ShardInput::Opened { conn: conn_id, peer, since: self.now, moved });
        self.read(at, conn, &unread);
    }

    fn close(&mut self, at: usize, conn: usize) {
        if self.conns[at][conn].take().is_some() {
            self.give_input(at, ShardInput::Closed { conn: ConnId(conn as u32) });
        }
    }

    fn read(&mut self, at: usize, conn: usize, bytes: &[u8]) {
        if let Some(end) = &mut self.conns[at][conn] {
            end.unread.extend_from_slice(bytes);
            self.give_bytes(at, conn);
        }
    }

    fn give_bytes(&mut self, at: usize, conn: usize) {
        loop {
            let Some(FuzzConn { unread, held: false }) = &mut self.conns[at][conn] else { return };
            let input = ShardInput::Bytes { conn: ConnId(conn as u32), bytes: unread };
            self.shards[at].handle(self.now, input, &mut self.outs[at]);
            let (consumed, full) = (self.outs[at].consumed, self.outs[at].is_full());
            assert!(consumed <= unread.len(), "no more than was given");
            unread.drain(..consumed);
            self.perform_outbox(at);
            if !full {
                return;
            }
        }
    }

    /// Gives a shard the oldest message from another shard. Returns `false` if there is none.
    fn deliver_shard_message(&mut self, at: usize) -> bool {
        let Some((from, cross)) = self.lanes[at].pop_front() else { return false };
        self.give_input(at, ShardInput::ShardMessage { from, cross });
        true
    }

    fn perform_outbox(&mut self, at: usize) {
        let mut writes = 0;
        for write in self.outs[at].writes() {
            writes += write.slices(&self.outs[at].arena).map(<[u8]>::len).sum::<usize>();
        }
        assert!(writes < 1 << 28, "what is written is bounded");
        for to in 0..self.shards.len() {
            let said: Vec<ShardMessage> = self.outs[at].lanes[to].drain(..).collect();
            self.lanes[to].extend(said.into_iter().map(|cross| (ShardId(at as u8), cross)));
        }
        let effects = std::mem::take(&mut self.outs[at].effects);
        self.outs[at].clear();
        for effect in effects {
            self.perform_effect(at, effect);
        }
    }

    fn perform_effect(&mut self, at: usize, effect: Effect) {
        match effect {
            // The harness has no store.
            Effect::ReadStore { .. } => {}
            // The harness has no authenticator and no authorizer.
            Effect::Authorize { .. } | Effect::Authenticate { .. } => {}
            Effect::Close { conn } => self.conns[at][conn.0 as usize] = None,
            Effect::Hold { conn } | Effect::Resume { conn } => {
                let held = matches!(effect, Effect::Hold { .. });
                if let Some(known) = &mut self.conns[at][conn.0 as usize] {
                    known.held = held;
                }
                if !held {
                    self.give_bytes(at, conn.0 as usize);
                }
            }
            Effect::Move { conn, shard, .. } => {
                let known = self.conns[at][conn.0 as usize].take();
                let to = usize::from(shard.0);
                let free = self.conns[to].iter().position(Option::is_none);
                if let (Some(end), Some(free)) = (known, free) {
                    self.attach(to, free, end.unread, true);
                }
            }
        }
    }

    fn advance(&mut self, ms: u64) {
        let until = MonotonicMs(self.now.0 + ms);
        for _ in 0..TICKS_MAX {
            while (0..self.shards.len()).any(|at| self.deliver_shard_message(at)) {}
            let due = self.shards.iter().filter_map(Shard::next_tick).min();
            let Some(due) = due.filter(|due| *due <= until) else { break };
            self.now = due.max(self.now);
            for at in 0..self.shards.len() {
                self.give_input(at, ShardInput::Tick);
            }
        }
        self.now = until;
    }
}

const TICKS_MAX: usize = 5000;

/// Builds a packet from a line of the transcript language, valid with high probability. Few topics
/// and client ids make sessions interact.
fn packet(reader: &mut FuzzInput<'_>) -> Vec<u8> {
    const TOPICS: [&str; 6] = ["a", "a/b", "b/long/topic", "$SYS/x", "", "a/b/c"];
    const FILTERS: [&str; 9] =
        ["a", "a/#", "+/b", "#", "$share/g/a/#", "$share/h/+", "$SYS/#", "b/long/topic", "a/#/b"];
    let version =
        [ProtocolVersion::V5, ProtocolVersion::V5, ProtocolVersion::V311][reader.below(3)];
    let (id, qos) = (1 + reader.below(4), reader.below(3));
    let line = match reader.below(12) {
        0 | 1 => {
            let v = if version == ProtocolVersion::V5 { "" } else { " v=311" };
            let options = [
                "",
                " clean=0 expiry=5",
                " clean=0 expiry=4294967295 receive_maximum=1",
                " clean=0 expiry=60 maximum_packet_size=40 topic_alias_maximum=3",
                " will=\"a\" will_payload=\"w\" will_qos=1 will_retain expiry=5 will_delay=2",
                " keep_alive=1 receive_maximum=2",
                " request_problem=0 clean=0",
            ][reader.below(7)];
            format!("CONNECT id=c{id}{v}{options}")
        }
        2 | 3 => {
            let filter = FILTERS[reader.below(9)];
            let options =
                ["", " no_local", " retain_as_published", " retain_handling=1"][reader.below(4)];
            let ids = ["", " subscription_id=7"][reader.below(2)];
            format!("SUBSCRIBE {id} \"{filter}\" qos={qos}{options}{ids}")
        }
        4 => format!("UNSUBSCRIBE {id} \"{}\"", FILTERS[reader.below(9)]),
        5 => format!("PUBACK {id}"),
        6 => format!("PUBREC {id}{}", ["", " 0x97"][reader.below(2)]),
        7 => format!("PUBREL {id}"),
        8 => format!("PUBCOMP {id}"),
        9 => ["DISCONNECT", "DISCONNECT 0x04", "DISCONNECT expiry=0"][reader.below(3)].into(),
        _ => {
            let topic = TOPICS[reader.below(6)];
            let flags = ["", " retain", " dup", " retain expiry=1"][reader.below(4)];
            let alias = ["", "", " alias=1", " user=\"a\":\"b\""][reader.below(4)];
            let payload = ["\"\"", "\"x\"", "\"y\"*100", "\"z\"*300"][reader.below(4)];
            format!("PUBLISH {id} \"{topic}\" qos={qos}{flags} {payload}{alias}")
        }
    };
    crate::packet_line::encode(&line, version).unwrap_or_default()
}

/// Returns random inputs of a seed, as a first corpus.
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = SimRng::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}
