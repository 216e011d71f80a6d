//! A simulated engine: shards, a virtual clock, connections which can be cut, slow or split at any
//! byte, and ordered lanes between shards. Inputs and effects are handled as in the engine, so
//! results of the simulator hold there. With a random generator the order of events is random,
//! otherwise fixed.

mod effects;

use crate::authorizer::TestAuthorizer;
use crate::backlog::{AcceptBacklog, BacklogConnection};
use crate::disk::{SimDisk, SyncMode};
use crate::rng::SimRng;
use crate::store_client::SimStoreClient;
use crate::users::TestUsers;
use broker::connection::admission::Admission;
use broker::{
    BrokerOptions, ConnId, Interest, ListenerId, MonotonicMs, Outbox, PeerAddress, PeerInfo,
    ProcessMemory, Shard, ShardCommand, ShardId, ShardInput, ShardMessage,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Identifies a client's connection for the whole run. Numbers are never reused, unlike [`ConnId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireId(pub usize);

/// Shards with their connections, disk, users and clock. Every random choice comes from `rng`.
#[derive(Debug)]
pub struct SimWorld {
    pub now: MonotonicMs,
    shards: Vec<SimShard>,
    wires: Vec<SimWire>,
    rng: Option<SimRng>,
    options: Arc<BrokerOptions>,
    seed: u64,
    disk: Option<SimDisk>,
    users: TestUsers,
    authorizer: TestAuthorizer,
    backlog: AcceptBacklog,
    write_bytes_max: usize,
}

/// A shard with the state that the engine keeps for it: outbox, store client and connections.
#[derive(Debug)]
struct SimShard {
    shard: Shard,
    out: Outbox,
    store: SimStoreClient,
    conns: Vec<Option<WireId>>,
    /// Messages from other shards, one queue per sender, in the order of sending.
    lanes: Vec<VecDeque<ShardMessage>>,
}

/// A client's connection, with the bytes in transit in both directions.
#[derive(Debug)]
struct SimWire {
    /// The broker's end; `None` once it is closed.
    end: Option<(usize, ConnId)>,
    to_broker: Vec<u8>,
    /// Whether the shard has to look at `to_broker`: unseen bytes, or bytes left by a full outbox.
    ready: bool,
    held: bool,
    /// Bytes written by the broker and not yet taken by the network, in the engine's write buffer.
    unsent: VecDeque<u8>,
    /// Bytes which arrived at the client and are not yet read: its socket's receive buffer.
    to_client: VecDeque<u8>,
    /// Whether the client does not read: its socket takes `room` more bytes.
    stalled: bool,
    room: usize,
    congested: bool,
    /// Whether the client's connection was cut without DISCONNECT.
    cut: bool,
}

/// Size of a client's receive buffer, which fills while the client does not read.
const STALLED_ROOM: usize = 1024;
/// Rounds after which a world that is still busy counts as an endless loop.
const ROUNDS_MAX: usize = 100_000;
/// Time after which the disk syncs batches that no client waits for.
const LAZY_MS: u64 = 1000;

impl SimWorld {
    /// Default address of clients: 127.0.0.1.
    pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Creates a world with `shards` shards. `rng`, if given, determines the order of events;
    /// otherwise the order is fixed.
    pub fn new(options: BrokerOptions, shards: usize, seed: u64, rng: Option<SimRng>) -> SimWorld {
        let write_bytes_max = options.write_bytes_max as usize;
        let options = Arc::new(options);
        let mut world = SimWorld {
            now: MonotonicMs(0),
            shards: Vec::new(),
            wires: Vec::new(),
            rng,
            options,
            seed,
            disk: None,
            users: TestUsers::default(),
            authorizer: TestAuthorizer::default(),
            backlog: AcceptBacklog::new(seed),
            write_bytes_max,
        };
        world.start(shards);
        world
    }

    /// Returns the users. Requests reach them only if `BrokerOptions::authenticates` is set.
    pub fn users(&mut self) -> &mut TestUsers {
        &mut self.users
    }

    /// Returns the authorizer. Requests reach it only if `BrokerOptions::authz` is set.
    pub fn authorizer(&mut self) -> &mut TestAuthorizer {
        &mut self.authorizer
    }

    /// Answers the first `count` pending authorization requests.
    pub fn answer_authz(&mut self, count: usize) {
        let count = count.min(self.authorizer.pending.len());
        let told: Vec<_> = self.authorizer.pending.drain(..count).collect();
        for (at, request_id, question) in told {
            let answer = self.authorizer.decide(&question);
            self.give_input(at, ShardInput::AuthzAnswered { request_id, answer });
        }
    }

    /// Answers all pending authentication requests, by `TestUsers::decide`.
    pub fn answer_auth(&mut self) {
        for (at, conn, case, request) in std::mem::take(&mut self.users.pending) {
            let verdict = self.users.decide(&request);
            self.give_input(at, ShardInput::AuthDecided { conn, case, verdict });
        }
    }

    /// Adds a disk. From here on stored data survive `cut_power`.
    pub fn enable_disk(&mut self) {
        self.disk = Some(SimDisk::default());
        self.start(self.shards.len());
    }

    pub fn disk(&mut self) -> Option<&mut SimDisk> {
        self.disk.as_mut()
    }

    /// Whether the power has failed: no event happens before `cut_power`.
    pub fn is_stopped(&self) -> bool {
        self.disk.as_ref().is_some_and(SimDisk::is_stopped)
    }

    /// Restarts the broker with `shards` shards, without unsynced data and without connections.
    pub fn cut_power(&mut self, shards: usize) {
        if let Some(disk) = &mut self.disk {
            disk.lose_unsynced();
            disk.sync_mode = SyncMode::Everything;
        }
        for wire in &mut self.wires {
            wire.end = None;
            wire.to_broker.clear();
            wire.unsent.clear();
        }
        self.backlog = AcceptBacklog::new(self.seed);
        // A new process has new hash keys.
        self.seed = self.seed.wrapping_mul(31).wrapping_add(7);
        self.start(shards);
    }

    fn start(&mut self, shards: usize) {
        let (seed, now) = (self.seed, self.now);
        let interest = Arc::new(Interest::new(seed, shards));
        let memory = Arc::new(ProcessMemory::default());
        let shard = |at| {
            let id = ShardId(at as u8);
            let own_chance = seed ^ (at as u64 + 1) << 32;
            let (interest, memory) = (interest.clone(), memory.clone());
            let options = self.options.clone();
            Shard::new(id, shards, options, interest, memory, seed, own_chance, now)
        };
        let mut all: Vec<Shard> = (0..shards).map(shard).collect();
        if let Some(disk) = &mut self.disk {
            let restored = broker::restore(&mut all, disk, now);
            let (_, changes) = restored.expect("this disk can be read");
            let seq = disk.commit(changes, true);
            all.iter_mut().for_each(|shard| shard.set_initial_commit(seq));
        }
        all.iter_mut().for_each(Shard::make_presets);
        let place = |shard| {
            let lanes = (0..shards).map(|_| VecDeque::new()).collect();
            let store_client = SimStoreClient::default();
            SimShard {
                shard,
                out: Outbox::new(shards),
                store: store_client,
                conns: Vec::new(),
                lanes,
            }
        };
        self.shards = all.into_iter().map(place).collect();
    }

    /// Opens a connection. The first shard rotates, so that every shard greets and moves
    /// connections.
    pub fn open(&mut self) -> WireId {
        self.open_at(ListenerId(0), SimWorld::HERE)
    }

    /// Opens a connection at a listener. The broker may close it as soon as it is accepted.
    pub fn open_at(&mut self, listener: ListenerId, address: IpAddr) -> WireId {
        let wire = WireId(self.wires.len());
        self.wires.push(SimWire {
            end: None,
            to_broker: Vec::new(),
            ready: false,
            held: false,
            unsent: VecDeque::new(),
            to_client: VecDeque::new(),
            stalled: false,
            room: 0,
            congested: false,
            cut: false,
        });
        let address = (address, 10_000 + wire.0 as u16).into();
        self.backlog.push(wire, listener, PeerAddress::Network(address));
        self.accept();
        wire
    }

    /// Accepts waiting connections, as far as the limits of `AdmissionControl` and the bans allow.
    fn accept(&mut self) {
        while let Some((knock, entry)) = self.backlog.accept(self.now, &self.options) {
            let mut peer = knock.peer();
            let BacklogConnection { wire, address, .. } = knock;
            let at = wire.0 % self.shards.len();
            let place = &mut self.shards[at];
            match entry {
                _ if place.shard.refuse_banned_address(self.now, address, &mut place.out) => {
                    self.backlog.release(wire);
                    continue;
                }
                Admission::Admitted(_) => {}
                Admission::RefusedAfterConnect(refusal) => peer.refuse(refusal),
                Admission::ClosedAtOnce(_) => continue,
            }
            self.attach(wire, at, peer, false);
        }
    }

    fn attach(&mut self, wire: WireId, at: usize, peer: PeerInfo, moved: bool) {
        let place = &mut self.shards[at];
        let free = place.conns.iter().position(Option::is_none);
        let index = free.unwrap_or(place.conns.len());
        if index == place.conns.len() {
            place.conns.push(None);
        }
        place.conns[index] = Some(wire);
        let conn = ConnId(index as u32);
        self.wires[wire.0].end = Some((at, conn));
        self.wires[wire.0].ready = !self.wires[wire.0].to_broker.is_empty();
        let input = ShardInput::Opened { conn, peer, since: self.now, moved };
        place.shard.handle(self.now, input, &mut place.out);
    }

    /// Adds bytes which the client sends. Bytes on a closed connection are lost.
    pub fn write(&mut self, wire: WireId, bytes: &[u8]) {
        let waits = self.backlog.is_waiting(wire);
        let wire = &mut self.wires[wire.0];
        if (wire.end.is_some() || waits) && !bytes.is_empty() {
            wire.to_broker.extend_from_slice(bytes);
            wire.ready = true;
        }
    }

    /// Returns the bytes that have arrived at the client since it last read.
    pub fn read(&mut self, wire: WireId) -> Vec<u8> {
        let wire = &mut self.wires[wire.0];
        if wire.stalled { Vec::new() } else { wire.to_client.drain(..).collect() }
    }

    /// Whether the broker has closed the connection and all its bytes have arrived.
    pub fn is_closed(&self, wire: WireId) -> bool {
        let waits = self.backlog.is_waiting(wire);
        let wire = &self.wires[wire.0];
        wire.end.is_none() && wire.unsent.is_empty() && !waits
    }

    /// Whether more than `write_bytes_max` bytes wait to be written: messages then wait in the
    /// queue.
    pub fn is_congested(&self, wire: WireId) -> bool {
        self.wires[wire.0].congested
    }

    /// Cuts the connection without DISCONNECT; bytes in transit are lost.
    pub fn cut(&mut self, wire: WireId) {
        self.backlog.release(wire);
        let wire = &mut self.wires[wire.0];
        wire.cut = true;
        wire.to_broker.clear();
        wire.unsent.clear();
        wire.to_client.clear();
        let Some((at, conn)) = wire.end.take() else { return };
        self.shards[at].conns[conn.0 as usize] = None;
        self.give_input(at, ShardInput::Closed { conn });
    }

    /// Makes the client stop or resume reading. A stalled client's socket takes `STALLED_ROOM`
    /// bytes more.
    pub fn stall(&mut self, wire: WireId, stalled: bool) {
        let wire = &mut self.wires[wire.0];
        (wire.stalled, wire.room) = (stalled, STALLED_ROOM);
    }

    pub fn command(&mut self, command: &ShardCommand) {
        if let ShardCommand::Reload(options) = command {
            self.write_bytes_max = options.write_bytes_max as usize;
            self.options = options.clone();
        }
        for at in 0..self.shards.len() {
            self.give_input(at, ShardInput::Command(command.clone()));
        }
    }

    /// Gives a shard an input, and performs the resulting outbox.
    fn give_input(&mut self, at: usize, input: ShardInput<'_>) {
        let place = &mut self.shards[at];
        place.shard.handle(self.now, input, &mut place.out);
        self.perform_outbox(at);
    }

    /// Sets on all shards whether the store is backlogged.
    pub fn set_store_backlogged(&mut self, is_crowded: bool) {
        for at in 0..self.shards.len() {
            let place = &mut self.shards[at];
            place.shard.set_store_backlogged(self.now, is_crowded, &mut place.out);
            self.perform_outbox(at);
        }
    }

    /// Sets on all shards whether the store is full.
    pub fn set_store_full(&mut self, is_full: bool) {
        self.shards.iter_mut().for_each(|place| place.shard.set_store_full(is_full));
    }

    /// Runs rounds until no work is left at this time. Panics after `ROUNDS_MAX`, which shows an
    /// endless loop.
    pub fn run_until_quiet(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.run_round() {
                return;
            }
        }
        panic!("the world does not come to rest at {:?}", self.now);
    }

    /// Runs `rounds` rounds, and leaves further work unfinished.
    pub fn run_rounds(&mut self, rounds: usize) {
        (0..rounds).for_each(|_| {
            self.run_round();
        });
    }

    /// Advances the time, with every tick that becomes due meanwhile.
    pub fn advance(&mut self, ms: u64) {
        self.run_until_quiet();
        let until = MonotonicMs(self.now.0 + ms);
        while !self.is_stopped() {
            let due = self.shards.iter().filter_map(|place| place.shard.next_tick());
            let due = due.chain(self.backlog.next_accept_at(self.now, &self.options)).min();
            let Some(due) = due.filter(|due| *due <= until) else { break };
            self.now = due.max(self.now);
            self.accept();
            self.run_until_quiet();
        }
        self.now = self.now.max(until);
        if let Some(disk) = self.disk.as_mut().filter(|_| ms >= LAZY_MS) {
            disk.mark_all_urgent();
            self.run_until_quiet();
        }
    }

    /// Takes one turn: every shard, then the disk, then the network. Returns whether anything
    /// happened.
    fn run_round(&mut self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let mut busy = false;
        for at in self.draw_order(self.shards.len()) {
            busy |= self.run_shard(at);
        }
        busy |= self.sync();
        busy |= self.move_bytes();
        busy
    }

    /// Syncs all pending batches of the disk, or a random number of them, and reports `Durable` to
    /// the shards.
    fn sync(&mut self) -> bool {
        let Some(disk) = &mut self.disk else { return false };
        let unsynced = disk.unsynced();
        if unsynced == 0 {
            return false;
        }
        let rng = self.rng.as_mut();
        disk.sync(rng.map_or(unsynced, |rng| rng.below(unsynced + 1)));
        let seq = disk.durable();
        for at in 0..self.shards.len() {
            if self.shards[at].shard.waits_for_disk() && !self.is_stopped() {
                self.give_input(at, ShardInput::Durable { seq });
            }
        }
        true
    }

    fn draw_order(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        if let Some(rng) = &mut self.rng {
            for at in (1..len).rev() {
                order.swap(at, rng.below(at + 1));
            }
        }
        order
    }

    fn run_shard(&mut self, at: usize) -> bool {
        if self.is_stopped() {
            return false;
        }
        let mut busy = false;
        for from in self.draw_order(self.shards.len()) {
            let len = self.shards[at].lanes[from].len();
            let take = self.rng.as_mut().map_or(len, |rng| rng.below(len + 1).max(1));
            for _ in 0..take.min(len) {
                let place = &mut self.shards[at];
                let Some(cross) = place.lanes[from].pop_front() else { break };
                let from = ShardId(from as u8);
                place.shard.handle(
                    self.now,
                    ShardInput::ShardMessage { from, cross },
                    &mut place.out,
                );
                busy = true;
            }
        }
        // Rings come before sockets: messages of shards are handled before the next packet of a
        // client.
        if self.shards[at].lanes.iter().all(VecDeque::is_empty) {
            for index in self.draw_order(self.shards[at].conns.len()) {
                busy |= self.give_bytes(at, ConnId(index as u32));
            }
        }
        let place = &mut self.shards[at];
        if place.shard.next_tick().is_some_and(|due| due <= self.now) {
            place.shard.handle(self.now, ShardInput::Tick, &mut place.out);
            busy = true;
        }
        let was_full = place.store.has_refused();
        self.perform_outbox(at);
        let is_full = self.shards[at].store.has_refused();
        // With a random generator the disk accepts the changes sooner or later.
        busy | (is_full && self.rng.is_some()) | (was_full && !is_full)
    }

    /// Gives the shard the bytes which one connection's client has sent, or a random part.
    fn give_bytes(&mut self, at: usize, conn: ConnId) -> bool {
        let place = &mut self.shards[at];
        let Some(id) = place.conns[conn.0 as usize] else { return false };
        let wire = &mut self.wires[id.0];
        if wire.held || !wire.ready {
            return false;
        }
        let len = wire.to_broker.len();
        let len = self
            .rng
            .as_mut()
            .map_or(len, |rng| if rng.one_in(4) { 1 + rng.below(len) } else { len });
        let bytes = &wire.to_broker[..len];
        place.shard.handle(self.now, ShardInput::Bytes { conn, bytes }, &mut place.out);
        let consumed = place.out.consumed;
        assert!(consumed <= len, "no more than was given");
        let unseen = wire.to_broker.len() > len;
        wire.to_broker.drain(..consumed);
        // Seen bytes which were not consumed are an incomplete packet, or the connection is held:
        // only more bytes or `Effect::Resume` change that.
        wire.ready = (unseen || place.out.is_full()) && !wire.to_broker.is_empty();
        true
    }

    /// Moves bytes to the clients as far as their sockets have room, and reports congestion.
    fn move_bytes(&mut self) -> bool {
        let mut busy = false;
        for wire in &mut self.wires {
            let len = wire.unsent.len();
            let mut take = if wire.stalled { wire.room.min(len) } else { len };
            if let Some(rng) = &mut self.rng
                && rng.one_in(4)
            {
                take = rng.below(take + 1).max(take.min(1));
            }
            busy |= take > 0;
            wire.room = wire.room.saturating_sub(take);
            wire.to_client.extend(wire.unsent.drain(..take));
            let congested = match wire.congested {
                false => wire.unsent.len() > self.write_bytes_max,
                true => !wire.unsent.is_empty(),
            };
            let Some((at, conn)) = wire.end.filter(|_| congested != wire.congested) else {
                continue;
            };
            wire.congested = congested;
            let input = match congested {
                true => ShardInput::Congested { conn },
                false => ShardInput::Writable { conn },
            };
            let place = &mut self.shards[at];
            place.shard.handle(self.now, input, &mut place.out);
            busy = true;
        }
        busy
    }
}
