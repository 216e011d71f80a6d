//! Random life against the oracle: clients that come, go, are cut, taken over, slow or silent,
//! publish and subscribe, on one to three shards, all from one seed. A failing life is made
//! shorter, action by action, as long as it fails.

use crate::line;
use crate::oracle::{FOREVER, Oracle, Published};
use crate::world::{Chance, WireId, World};
use broker::Options;
use mqtt::{Packet, Property, QoS, Version};
use std::fmt::Write;

const CLIENTS: usize = 6;
/// These have sessions that never end, and only they join groups.
const STEADY: usize = 4;
const TOPICS: [&str; 5] = ["a", "a/b", "a/b/c", "b", "long/topic/name"];
const FILTERS: [&str; 8] = ["a", "a/#", "+/b", "#", "b", "long/+/name", "a/+/c", "+"];
const GROUPS: [(&str, &str, u8); 2] = [("g", "a/#", 1), ("h", "b", 2)];
const ACTIONS: usize = 120;

#[derive(Clone, Debug)]
pub enum Action {
    Connect {
        client: usize,
        clean: bool,
        expiry_s: u32,
        window: u16,
        old: bool,
    },
    Cut {
        client: usize,
    },
    Disconnect {
        client: usize,
    },
    Join {
        client: usize,
        group: usize,
    },
    Pass {
        s: u64,
    },
    Publish {
        client: usize,
        topic: usize,
        qos: u8,
        retain: u8,
        expiry_s: u64,
        flaky: bool,
    },
    /// The client acknowledges, or holds back.
    Silence {
        client: usize,
        silent: bool,
    },
    Stall {
        client: usize,
        stalled: bool,
    },
    Subscribe {
        client: usize,
        filter: usize,
        qos: u8,
    },
    Unsubscribe {
        client: usize,
        filter: usize,
    },
}

/// What went wrong and what had happened.
#[derive(Clone, Debug)]
pub struct Failure {
    pub why: String,
    pub log: String,
    pub actions: usize,
}

/// Lives through one seed. The failure is as short as it could be made.
pub fn check_seed(seed: u64) -> Result<(), Failure> {
    let mut actions = actions(seed);
    let Err(mut failure) = run(seed, &actions) else { return Ok(()) };
    let mut chunk = actions.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < actions.len() {
            let mut fewer = actions.clone();
            fewer.drain(at..(at + chunk).min(actions.len()));
            match run(seed, &fewer) {
                Err(shorter) => (actions, failure) = (fewer, shorter),
                Ok(()) => at += chunk,
            }
        }
        chunk /= 2;
    }
    Err(failure)
}

fn actions(seed: u64) -> Vec<Action> {
    let mut chance = Chance::new(seed);
    (0..ACTIONS).map(|_| action(&mut chance)).collect()
}

fn action(chance: &mut Chance) -> Action {
    let client = chance.below(CLIENTS);
    match chance.below(24) {
        0..4 => {
            let steady = client >= STEADY;
            Action::Connect {
                client,
                clean: !steady && chance.one_in(4),
                expiry_s: if steady { FOREVER } else { [0, 31, FOREVER][chance.below(3)] },
                window: [1, 2, 5, 100][chance.below(4)],
                old: chance.one_in(3),
            }
        }
        4 | 5 => Action::Cut { client },
        6 => Action::Disconnect { client },
        7 => Action::Join {
            client: STEADY + chance.below(CLIENTS - STEADY),
            group: chance.below(GROUPS.len()),
        },
        8 => Action::Pass { s: [7, 20][chance.below(2)] },
        9 | 10 => Action::Silence { client, silent: chance.one_in(2) },
        11 => Action::Stall { client, stalled: chance.one_in(2) },
        12..15 => Action::Subscribe {
            client,
            filter: chance.below(FILTERS.len()),
            qos: chance.below(3) as u8,
        },
        15 => Action::Unsubscribe { client, filter: chance.below(FILTERS.len()) },
        _ => Action::Publish {
            client,
            topic: chance.below(TOPICS.len()),
            qos: chance.below(3) as u8,
            retain: [0, 0, 1, 2][chance.below(4)],
            expiry_s: [0, 0, 0, 11][chance.below(4)],
            flaky: chance.one_in(6),
        },
    }
}

fn run(seed: u64, actions: &[Action]) -> Result<(), Failure> {
    let mut life = Life::new(seed);
    let mut outcome = Ok(());
    for action in actions {
        outcome = outcome.and_then(|()| life.act(action));
    }
    outcome = outcome.and_then(|()| life.finish());
    outcome.map_err(|why| Failure { why, log: life.log, actions: actions.len() })
}

struct Life {
    world: World,
    oracle: Oracle,
    clients: Vec<Client>,
    /// Payload number of the next publish.
    next: usize,
    log: String,
    chance: Chance,
}

struct Client {
    id: String,
    version: Version,
    wire: Option<WireId>,
    unread: Vec<u8>,
    silent: bool,
    stalled: bool,
    /// Acknowledgements held back.
    owed: Vec<String>,
    /// QoS 1 and 2 messages of this connection that are not finished: within the window.
    open: Vec<u16>,
    window: u16,
    expects_present: bool,
    /// QoS 2 ids that came and were not released.
    received: Vec<u16>,
    /// Publishes that were not finished: packet id, line, whether PUBREC came.
    pending: Vec<(u16, String, bool)>,
    next_id: u16,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut chance = Chance::new(seed ^ 0x5eed);
        let options = Options { sys_interval_s: 0, write_bytes_max: 200, ..Options::default() };
        let shards = 1 + chance.below(3);
        let world = World::new(options, shards, seed, Some(Chance::new(seed)));
        let client = |at: usize| Client {
            id: format!("c{at}"),
            version: if at < STEADY && at % 2 == 1 { Version::V311 } else { Version::V5 },
            wire: None,
            unread: Vec::new(),
            silent: false,
            stalled: false,
            owed: Vec::new(),
            open: Vec::new(),
            window: u16::MAX,
            expects_present: false,
            received: Vec::new(),
            pending: Vec::new(),
            next_id: 1,
        };
        let clients = (0..CLIENTS).map(client).collect();
        let log = format!("# shards: {shards}\n");
        Life { world, oracle: Oracle::new(CLIENTS), clients, next: 0, log, chance }
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match *action {
            Action::Connect { client, clean, expiry_s, window, old } => {
                if self.clients[client].wire.is_none() || old {
                    self.connect(client, clean, expiry_s, window);
                }
            }
            Action::Cut { client } => self.cut(client),
            Action::Disconnect { client } => {
                if self.is_live(client) {
                    self.send(client, "DISCONNECT");
                    self.clients[client].stalled = false;
                    self.oracle.leave(client, None);
                    self.world.settle();
                    self.clients[client].wire = None;
                }
            }
            Action::Join { client, group } => {
                if self.is_live(client) {
                    let (name, filter, qos) = GROUPS[group];
                    let id = self.clients[client].packet_id();
                    let ids = self.clients[client].v5(" subscription_id=100");
                    let line = format!("SUBSCRIBE {id} \"$share/{name}/{filter}\" qos={qos}{ids}");
                    self.send(client, &line);
                    self.oracle.join(client, name, filter, qos_of(qos));
                }
            }
            Action::Pass { s } => {
                let _ = writeln!(self.log, "+ {s}s");
                self.world.pass(s * 1000);
                self.hear()?;
                self.oracle.pass(self.world.now.0);
            }
            Action::Publish { client, topic, qos, retain, expiry_s, flaky } => {
                if self.is_live(client) {
                    self.publish(client, TOPICS[topic], qos, retain, expiry_s, flaky)?;
                }
            }
            Action::Silence { client, silent } => {
                self.clients[client].silent = silent;
                self.pay(client);
            }
            Action::Stall { client, stalled } => self.stall(client, stalled),
            Action::Subscribe { client, filter, qos } => {
                if self.is_live(client) {
                    let id = self.clients[client].packet_id();
                    let filter = FILTERS[filter];
                    self.send(client, &format!("SUBSCRIBE {id} \"{filter}\" qos={qos}"));
                    self.oracle.subscribe(client, filter, qos_of(qos));
                }
            }
            Action::Unsubscribe { client, filter } => {
                if self.is_live(client) {
                    let id = self.clients[client].packet_id();
                    let filter = FILTERS[filter];
                    self.send(client, &format!("UNSUBSCRIBE {id} \"{filter}\""));
                    self.oracle.unsubscribe(client, filter);
                }
            }
        }
        self.world.settle();
        self.hear()
    }

    fn is_live(&self, client: usize) -> bool {
        self.clients[client].wire.is_some()
    }

    fn stall(&mut self, client: usize, stalled: bool) {
        let Some(wire) = self.clients[client].wire else { return };
        let word = if stalled { "stall" } else { "resume" };
        let _ = writeln!(self.log, "c{client}! {word}");
        self.clients[client].stalled = stalled;
        self.world.stall(wire, stalled);
        self.oracle.shake(client, stalled);
    }

    fn connect(&mut self, client: usize, clean: bool, expiry_s: u32, window: u16) {
        let known = &mut self.clients[client];
        // 3.1.1 sessions end with their connection or never, and know no window.
        let old = known.version == Version::V311;
        let expiry_s = if old && !clean {
            FOREVER
        } else if old {
            0
        } else {
            expiry_s
        };
        let window = if old { u16::MAX } else { window };
        let (id, clean_flag) = (&known.id, u8::from(clean));
        let line = match old {
            true => format!("CONNECT id={id} clean={clean_flag} v=311"),
            false => format!(
                "CONNECT id={id} clean={clean_flag} expiry={expiry_s} receive_maximum={window}"
            ),
        };
        let wire = self.world.open();
        known.wire = Some(wire);
        (known.window, known.stalled) = (window, false);
        known.unread.clear();
        known.owed.clear();
        known.open.clear();
        known.expects_present = self.oracle.connect(client, clean, expiry_s);
        if !known.expects_present {
            known.received.clear();
            known.pending.clear();
        }
        self.send(client, &line);
        let again: Vec<String> = self.clients[client].pending.iter().map(again).collect();
        for line in again {
            self.send(client, &line);
        }
    }

    fn cut(&mut self, client: usize) {
        if let Some(wire) = self.clients[client].wire.take() {
            let _ = writeln!(self.log, "c{client}! cut");
            self.world.cut(wire);
            self.oracle.leave(client, None);
        }
    }

    fn publish(
        &mut self,
        client: usize,
        topic: &str,
        qos: u8,
        retain: u8,
        expiry_s: u64,
        flaky: bool,
    ) -> Result<(), String> {
        let number = self.next;
        self.next += 1;
        let known = &mut self.clients[client];
        let expiry_s = if known.version == Version::V5 { expiry_s } else { 0 };
        // A cut publisher comes back at once and sends again: what it had is certain to arrive.
        let flaky = flaky && client >= STEADY && qos > 0 && known.pending.is_empty();
        let message = Published {
            number,
            publisher: client,
            topic: topic.into(),
            qos: qos_of(qos),
            expires_at: (expiry_s > 0).then(|| self.world.now.0 + expiry_s * 1000),
            doubtful: flaky && qos == 1,
        };
        let id = if qos > 0 { format!("{} ", known.packet_id()) } else { String::new() };
        let flag = if retain > 0 { " retain" } else { "" };
        let payload = if retain == 2 { String::new() } else { format!("m{number}") };
        let expiry = if expiry_s > 0 { format!(" expiry={expiry_s}") } else { String::new() };
        let line = format!("PUBLISH {id}\"{topic}\" qos={qos}{flag} \"{payload}\"{expiry}");
        if qos > 0 {
            known.pending.push((known.next_id - 1, line.clone(), false));
        }
        if retain != 2 {
            self.oracle.publish(&message, retain > 0);
        } else {
            self.oracle.clear(topic);
        }
        self.send(client, &line);
        if flaky {
            self.world.some_rounds(self.chance.below(4));
            let window = self.clients[client].window;
            self.cut(client);
            self.connect(client, false, FOREVER, window);
        }
        Ok(())
    }

    fn send(&mut self, client: usize, line: &str) {
        let known = &self.clients[client];
        let Some(wire) = known.wire else { return };
        let _ = writeln!(self.log, "c{client}> {line}");
        let bytes = line::encode(line, known.version).expect("a line of our own");
        self.world.write(wire, &bytes);
    }

    /// Sends the acknowledgements that a client owes, unless it keeps silent.
    fn pay(&mut self, client: usize) {
        if self.clients[client].silent || !self.is_live(client) {
            return;
        }
        for line in std::mem::take(&mut self.clients[client].owed) {
            let (kind, id) = line.split_once(' ').unwrap_or_default();
            if kind != "PUBREC" {
                let id = id.parse().unwrap_or(0);
                self.clients[client].open.retain(|open| *open != id);
            }
            self.send(client, &line);
        }
    }

    /// Everybody reads and answers until nothing comes any more.
    fn hear(&mut self) -> Result<(), String> {
        loop {
            let mut quiet = true;
            for client in 0..CLIENTS {
                let Some(wire) = self.clients[client].wire else { continue };
                let bytes = self.world.read(wire);
                quiet &= bytes.is_empty();
                self.clients[client].unread.extend(bytes);
                self.take_packets(client)?;
                self.pay(client);
                if self.world.is_closed(wire) && !self.clients[client].stalled {
                    return Err(format!("the broker closed c{client}"));
                }
            }
            self.world.settle();
            if quiet {
                return Ok(());
            }
        }
    }

    fn take_packets(&mut self, client: usize) -> Result<(), String> {
        let bytes = std::mem::take(&mut self.clients[client].unread);
        let mut rest = &bytes[..];
        while let Ok(Some(frame)) = mqtt::cut(rest, u32::MAX) {
            rest = &rest[frame.len..];
            let packet = Packet::decode(frame, self.clients[client].version);
            let packet =
                packet.map_err(|why| format!("c{client} got what is no packet: {why:?}"))?;
            let _ = writeln!(self.log, "c{client}< {packet}");
            self.take(client, &packet)?;
        }
        self.clients[client].unread = rest.to_vec();
        Ok(())
    }

    fn take(&mut self, client: usize, packet: &Packet<'_>) -> Result<(), String> {
        let known = &mut self.clients[client];
        match packet {
            Packet::ConnAck(ack) if ack.session_present != known.expects_present => {
                let told = ack.session_present;
                return Err(format!("c{client} was told that its session is present: {told}"));
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                known.pending.retain(|(id, ..)| *id != ack.packet_id.get());
            }
            Packet::PubRec(ack) => {
                let id = ack.packet_id.get();
                for pending in known.pending.iter_mut().filter(|pending| pending.0 == id) {
                    pending.2 = true;
                }
                self.send(client, &format!("PUBREL {id}"));
            }
            Packet::PubRel(ack) => {
                let id = ack.packet_id.get();
                known.received.retain(|received| *received != id);
                known.owed.push(format!("PUBCOMP {id}"));
            }
            Packet::Publish(publish) => return self.take_publish(client, publish),
            Packet::Disconnect(packet) => return Err(format!("c{client} got {:?}", packet.reason)),
            _ => {}
        }
        Ok(())
    }

    fn take_publish(&mut self, client: usize, packet: &mqtt::Publish<'_>) -> Result<(), String> {
        let known = &mut self.clients[client];
        if let Some(id) = packet.packet_id.map(|id| id.get()) {
            if !known.open.contains(&id) {
                known.open.push(id);
            }
            if known.open.len() > usize::from(known.window) {
                return Err(format!("c{client} got more than its window of {}", known.window));
            }
            let twice = packet.qos == QoS::ExactlyOnce;
            known.owed.push(format!("{} {id}", if twice { "PUBREC" } else { "PUBACK" }));
            if twice && known.received.contains(&id) {
                return Ok(());
            }
            if twice {
                known.received.push(id);
            }
        }
        let payload = std::str::from_utf8(packet.payload).unwrap_or_default();
        let Some(number) = payload.strip_prefix('m').and_then(|number| number.parse().ok()) else {
            return Ok(());
        };
        // Retained messages that a subscription asked for are judged at the end, by one who asks.
        if packet.retain {
            return Ok(());
        }
        let shared = packet
            .properties
            .iter()
            .any(|property| property == Property::SubscriptionIdentifier(100));
        self.oracle.arrived(client, number, packet.qos, packet.dup, shared)
    }

    /// Everyone with a session comes back, reads and acknowledges; then nothing may be missing.
    fn finish(&mut self) -> Result<(), String> {
        for client in 0..CLIENTS {
            self.clients[client].silent = false;
            self.stall(client, false);
            self.world.settle();
            self.hear()?;
            if self.clients[client].wire.is_none() && self.oracle.exists(client) {
                self.connect(client, false, FOREVER, 100);
            }
            self.pay(client);
            self.world.settle();
            self.hear()?;
        }
        self.oracle.missing()?;
        self.compare_retained()
    }

    fn compare_retained(&mut self) -> Result<(), String> {
        let wire = self.world.open();
        for line in ["CONNECT id=judge", "SUBSCRIBE 1 \"#\" qos=0"] {
            let bytes = line::encode(line, Version::V5).expect("a line of our own");
            self.world.write(wire, &bytes);
        }
        self.world.settle();
        let bytes = self.world.read(wire);
        let (mut rest, mut came) = (&bytes[..], Vec::new());
        while let Ok(Some(frame)) = mqtt::cut(rest, u32::MAX) {
            rest = &rest[frame.len..];
            if let Ok(Packet::Publish(publish)) = Packet::decode(frame, Version::V5) {
                let payload = String::from_utf8_lossy(publish.payload).into_owned();
                came.push((publish.topic.to_string(), payload));
            }
        }
        came.sort();
        let kept = self.oracle.retained();
        if came != kept {
            return Err(format!("retained are {came:?}, not {kept:?}"));
        }
        Ok(())
    }
}

impl Client {
    fn packet_id(&mut self) -> u16 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn v5<'a>(&self, text: &'a str) -> &'a str {
        if self.version == Version::V5 { text } else { "" }
    }
}

/// What a publisher sends again after it was cut.
fn again((id, line, received): &(u16, String, bool)) -> String {
    match received {
        true => format!("PUBREL {id}"),
        false => line.replacen("qos=1", "qos=1 dup", 1).replacen("qos=2", "qos=2 dup", 1),
    }
}

fn qos_of(qos: u8) -> QoS {
    QoS::from_bits(qos).unwrap_or_default()
}
