//! One random run: clients with simulated connections, compared with the oracle. Clients connect,
//! disconnect, are cut or taken over, are slow or silent, publish and subscribe, on one to three
//! shards.

use crate::oracle::{FOREVER, Oracle, OracleMessage, OracleWill, RetainAction};
use crate::packet_line;
use crate::random_actions::{
    CLIENTS, ConnectRequest, FILTERS, GROUPS, RandomAction, STEADY, TOPICS,
};
use crate::rng::SimRng;
use crate::world::{SimWorld, WireId};
use broker::options::namespace_template::NamespaceTemplate;
use broker::{BrokerOptions, ListenerId};
use mqtt::{Packet, Property, ProtocolVersion, QoS};
use std::fmt::Write;
use std::sync::Arc;

/// A run of random actions against both the world and the oracle.
pub struct OracleRun {
    world: SimWorld,
    oracle: Oracle,
    clients: Vec<OracleRunClient>,
    /// Index in `NAMESPACES` for each client, which is also the listener it connects to.
    listeners: Vec<usize>,
    /// Number of the next publish, which is its payload.
    next: usize,
    pub log: String,
    rng: SimRng,
}

/// A client of the run, with the protocol state that a correct client keeps.
struct OracleRunClient {
    version: ProtocolVersion,
    wire: Option<WireId>,
    unread: Vec<u8>,
    silent: bool,
    stalled: bool,
    /// Acknowledgements that a silent client has not sent yet: see `send_held_acks`.
    held_acks: Vec<String>,
    /// Unfinished QoS 1 and 2 messages of this connection: packet id, sending, and whether the
    /// message came through a group. Their number must not exceed `window`.
    open: Vec<(u16, Option<(usize, bool)>)>,
    window: u16,
    expects_present: bool,
    /// Packet ids of QoS 2 messages from PUBLISH to PUBREL. A PUBLISH with such an id is a
    /// duplicate.
    received: Vec<u16>,
    pending: Vec<PendingPublish>,
    next_id: u16,
}

/// A publish whose acknowledgements are not complete.
struct PendingPublish {
    packet_id: u16,
    line: String,
    message: OracleMessage,
    /// Whether PUBREC was received.
    received: bool,
}

/// Namespaces by listener. One is equal to a topic, so that two clients can name the same topic
/// differently.
const NAMESPACES: [&str; 3] = ["", "n/", "a/"];

/// Bound of unsent bytes. Small, so that connections with slow readers are soon congested.
const WRITE_BYTES_MAX: u32 = 200;

impl OracleRun {
    pub fn new(seed: u64) -> OracleRun {
        let mut rng = SimRng::new(seed ^ 0x5eed);
        let mut options = BrokerOptions {
            sys_interval_s: 0,
            write_bytes_max: WRITE_BYTES_MAX,
            ..BrokerOptions::default()
        };
        let own = NAMESPACES.map(|namespace| {
            let namespace = NamespaceTemplate::parse(namespace.trim_end_matches('/'));
            let namespace = namespace.expect("a namespace of our own");
            Some(Arc::new(BrokerOptions { namespace, ..options.clone() }))
        });
        options.listeners = own.into();
        let shards = 1 + rng.below(3);
        let mut world = SimWorld::new(options, shards, seed, Some(SimRng::new(seed)));
        let disk = rng.one_in(2);
        if disk {
            world.enable_disk();
        }
        let clients = (0..CLIENTS).map(OracleRunClient::new).collect();
        let mixed = rng.one_in(2);
        let door = |_| if mixed { rng.below(NAMESPACES.len()) } else { 0 };
        let doors: Vec<usize> = (0..CLIENTS).map(door).collect();
        let oracle = Oracle::new(doors.iter().map(|door| NAMESPACES[*door]).collect());
        let log = format!("# shards: {shards}, disk: {disk}, by listeners {doors:?}\n");
        OracleRun { world, oracle, clients, listeners: doors, next: 0, log, rng }
    }

    pub fn apply(&mut self, action: &RandomAction) -> Result<(), String> {
        match *action {
            RandomAction::Connect { client, ref greeting, takeover } => {
                if self.clients[client].wire.is_none() || takeover {
                    self.connect(client, greeting);
                }
            }
            RandomAction::Cut { client } => self.cut(client),
            RandomAction::Pass { s } => self.advance(s),
            RandomAction::Silence { client, silent } => {
                self.clients[client].silent = silent;
                self.send_held_acks(client);
            }
            RandomAction::Stall { client, stalled } => self.stall(client, stalled),
            RandomAction::Burst { client, .. }
            | RandomAction::Disconnect { client, .. }
            | RandomAction::Join { client, .. }
            | RandomAction::Publish { client, .. }
            | RandomAction::Subscribe { client, .. }
            | RandomAction::Unsubscribe { client, .. } => {
                if self.is_read(client, action) {
                    self.send_action(client, action);
                }
            }
        }
        self.world.run_until_quiet();
        self.read_until_quiet()
    }

    /// Sends the packets of a client's action to the broker, and the same events to the oracle.
    fn send_action(&mut self, client: usize, action: &RandomAction) {
        match *action {
            RandomAction::Burst { topic, qos, count, victim, back, .. } => {
                self.burst(client, TOPICS[topic], qos, count);
                match back && self.clients[victim].wire.is_some() {
                    true => self.connect(victim, &ConnectRequest::for_resume(u16::MAX)),
                    false => self.cut(victim),
                }
            }
            RandomAction::Disconnect { with_will, .. } => self.disconnect(client, with_will),
            RandomAction::Join { group, .. } => {
                let (name, filter, qos) = GROUPS[group];
                let id = self.clients[client].packet_id();
                let text = format!("\"$share/{name}/{filter}\" qos={qos} subscription_id={SHARED}");
                self.send(client, &format!("SUBSCRIBE {id} {text}"));
                self.oracle.join(client, name, filter, qos_of(qos));
            }
            RandomAction::Publish { topic, qos, keep, expiry_s, flaky, .. } => {
                // Only clients with a session that never expires send again.
                let known = &self.clients[client];
                let flaky = flaky && client >= STEADY && qos > 0 && known.pending.is_empty();
                let window = known.window;
                let message = OracleMessage {
                    retain: keep,
                    expiry_s: if known.version == ProtocolVersion::V5 { expiry_s } else { 0 },
                    certain: !flaky || qos == 2,
                    ..self.message(client, TOPICS[topic], qos)
                };
                self.publish(client, message);
                if flaky {
                    self.world.run_rounds(self.rng.below(4));
                    self.cut(client);
                    self.connect(client, &ConnectRequest::for_resume(window));
                }
            }
            RandomAction::Subscribe { filter, qos, .. } => {
                let (id, filter) = (self.clients[client].packet_id(), FILTERS[filter]);
                self.send(client, &format!("SUBSCRIBE {id} \"{filter}\" qos={qos}"));
                self.oracle.subscribe(client, filter, qos_of(qos));
            }
            RandomAction::Unsubscribe { filter, .. } => {
                let (id, filter) = (self.clients[client].packet_id(), FILTERS[filter]);
                self.send(client, &format!("UNSUBSCRIBE {id} \"{filter}\""));
                self.oracle.unsubscribe(client, filter);
            }
            _ => {}
        }
    }

    /// Whether the broker reads the client's packets: a congested connection is not read, and the
    /// burst of a stalled client could be read in part.
    fn is_read(&self, client: usize, action: &RandomAction) -> bool {
        let whole = !matches!(action, RandomAction::Burst { .. }) || !self.clients[client].stalled;

        whole && self.clients[client].wire.is_some_and(|wire| !self.world.is_congested(wire))
    }

    fn log_line(&mut self, line: &str) {
        self.log.push_str(line);
        self.log.push('\n');
    }

    fn advance(&mut self, s: u64) {
        self.log_line(&format!("+ {s}s"));
        let prompt = |client: &OracleRunClient| !client.silent && !client.stalled;
        let prompt: Vec<bool> = self.clients.iter().map(prompt).collect();
        self.world.advance(s * 1000);
        self.oracle.advance(self.world.now.0, &prompt);
    }

    fn stall(&mut self, client: usize, stalled: bool) {
        let Some(wire) = self.clients[client].wire else { return };
        let word = if stalled { "stall" } else { "resume" };
        self.log_line(&format!("c{client}! {word}"));
        self.clients[client].stalled = stalled;
        self.world.stall(wire, stalled);
        self.oracle.stall(client, stalled);
    }

    fn connect(&mut self, client: usize, greeting: &ConnectRequest) {
        // 3.1.1 sessions end with the connection or never, and have no Receive Maximum and will
        // delay.
        let old = self.clients[client].version == ProtocolVersion::V311;
        let (expiry_s, window) = match (old, greeting.clean) {
            (true, true) => (0, u16::MAX),
            (true, false) => (FOREVER, u16::MAX),
            (false, _) => (greeting.expiry_s, greeting.window),
        };
        // Client ids are counted per namespace: each namespace has a c0.
        let before =
            self.listeners[..client].iter().filter(|door| **door == self.listeners[client]);
        let id = before.count();
        let mut line = format!("CONNECT id=c{id} clean={}", u8::from(greeting.clean));
        line += &match old {
            true => " v=311".into(),
            false => format!(" expiry={expiry_s} receive_maximum={window}"),
        };
        let will = greeting.will.map(|(qos, retain, delay_s)| {
            let retain = if retain { RetainAction::Keep } else { RetainAction::No };
            let topic = format!("w/{client}");
            // The order of a will and its client's publishes is not guaranteed.
            let message = OracleMessage { retain, ..self.message(CLIENTS + client, &topic, qos) };
            OracleWill { message, delay_s: if old { 0 } else { delay_s } }
        });
        if let Some(OracleWill { message, delay_s }) = &will {
            let (number, qos) = (message.number, message.qos as u8);
            let _ = write!(line, " will=\"w/{client}\" will_payload=\"m{number}\" will_qos={qos}");
            line += if message.retain == RetainAction::Keep { " will_retain" } else { "" };
            line += &if *delay_s > 0 { format!(" will_delay={delay_s}") } else { String::new() };
        }
        let present = self.oracle.connect(client, greeting.clean, expiry_s, will);
        let listener = ListenerId(self.listeners[client] as u8);
        let wire = self.world.open_at(listener, SimWorld::HERE);
        self.clients[client].reopen(wire, window, present);
        self.send(client, &line);
        self.send_again(client);
    }

    /// Sends messages with incomplete acknowledgements again. At QoS 1 this is a further sending to
    /// subscribers which already have the message.
    fn send_again(&mut self, client: usize) {
        let mut lines = Vec::new();
        for pending in &mut self.clients[client].pending {
            lines.push(pending.resend_line());
            if pending.message.qos == QoS::AtLeastOnce {
                pending.message.certain = true;
                self.oracle.publish(&pending.message);
            }
        }
        lines.iter().for_each(|line| self.send(client, line));
    }

    fn cut(&mut self, client: usize) {
        if let Some(wire) = self.clients[client].wire.take() {
            self.log_line(&format!("c{client}! cut"));
            self.clients[client].stalled = false;
            self.world.cut(wire);
            self.oracle.on_disconnected(client);
        }
    }

    fn disconnect(&mut self, client: usize, with_will: bool) {
        let with_will = with_will && self.clients[client].version == ProtocolVersion::V5;
        match with_will {
            true => self.oracle.on_disconnected(client),
            false => self.oracle.disconnect(client),
        }
        self.send(client, if with_will { "DISCONNECT 0x04" } else { "DISCONNECT" });
        self.world.run_until_quiet();
        (self.clients[client].wire, self.clients[client].stalled) = (None, false);
    }

    /// Publishes a series of messages, and runs only some rounds, so that part of it is in transit.
    fn burst(&mut self, client: usize, topic: &str, qos: u8, count: usize) {
        for _ in 0..count {
            let message = self.message(client, topic, qos);
            self.publish(client, message);
        }
        self.world.run_rounds(self.rng.below(6));
    }

    fn namespace(&self, client: usize) -> &'static str {
        NAMESPACES[self.listeners[client]]
    }

    /// Returns a message of `publisher` with the next number, not retained and without expiry.
    fn message(&mut self, publisher: usize, topic: &str, qos: u8) -> OracleMessage {
        self.next += 1;
        OracleMessage {
            number: self.next - 1,
            publisher,
            topic: format!("{}{topic}", self.namespace(publisher % CLIENTS)),
            qos: qos_of(qos),
            retain: RetainAction::No,
            expiry_s: 0,
            certain: true,
        }
    }

    fn publish(&mut self, client: usize, message: OracleMessage) {
        let namespace = self.namespace(client);
        let known = &mut self.clients[client];
        let (qos, topic) = (message.qos as u8, &message.topic[namespace.len()..]);
        let id = if qos > 0 { format!("{} ", known.packet_id()) } else { String::new() };
        let flag = if message.retain == RetainAction::No { "" } else { " retain" };
        let payload = match message.retain {
            RetainAction::Clear => String::new(),
            RetainAction::Keep | RetainAction::No => format!("m{}", message.number),
        };
        let mut line = format!("PUBLISH {id}\"{topic}\" qos={qos}{flag} \"{payload}\"");
        if message.expiry_s > 0 {
            let _ = write!(line, " expiry={}", message.expiry_s);
        }
        self.oracle.publish(&message);
        if qos > 0 {
            let packet_id = known.next_id - 1;
            let line = line.clone();
            known.pending.push(PendingPublish { packet_id, line, message, received: false });
        }
        self.send(client, &line);
    }

    fn send(&mut self, client: usize, line: &str) {
        self.log_line(&format!("c{client}> {line}"));
        let known = &self.clients[client];
        let Some(wire) = known.wire else { return };
        let bytes = packet_line::encode(line, known.version).expect("a line of our own");
        self.world.write(wire, &bytes);
    }

    /// Sends the pending acknowledgements of a client, unless it is silent.
    fn send_held_acks(&mut self, client: usize) {
        let known = &mut self.clients[client];
        if known.silent || known.wire.is_none() {
            return;
        }
        for line in std::mem::take(&mut self.clients[client].held_acks) {
            let (kind, id) = line.split_once(' ').unwrap_or_default();
            if kind != "PUBREC" {
                let id = id.parse().unwrap_or(0);
                let known = &mut self.clients[client];
                let done = known.open.iter().position(|(open, _)| *open == id);
                let done = done.map(|at| known.open.remove(at));
                // The connection of a stalled client may be congested, and is then not read.
                if let Some((_, Some((sending, shared)))) = done.filter(|_| !known.stalled) {
                    self.oracle.on_ack(client, sending, shared);
                }
            }
            self.send(client, &line);
        }
    }

    /// Lets all clients read and answer until no more packets arrive. Fails if a check of the
    /// oracle fails.
    fn read_until_quiet(&mut self) -> Result<(), String> {
        loop {
            let mut quiet = true;
            for client in 0..CLIENTS {
                let Some(wire) = self.clients[client].wire else { continue };
                let bytes = self.world.read(wire);
                quiet &= bytes.is_empty();
                self.clients[client].unread.extend(bytes);
                self.take_packets(client)?;
                self.send_held_acks(client);
                if self.world.is_closed(wire) && !self.clients[client].stalled {
                    return Err(format!("the broker closed c{client}"));
                }
            }
            self.world.run_until_quiet();
            if quiet {
                return Ok(());
            }
        }
    }

    fn take_packets(&mut self, client: usize) -> Result<(), String> {
        let bytes = std::mem::take(&mut self.clients[client].unread);
        let mut rest = &bytes[..];
        while let Ok(Some(frame)) = mqtt::split_frame(rest, u32::MAX) {
            rest = &rest[frame.len..];
            let packet = Packet::decode(frame, self.clients[client].version);
            let packet =
                packet.map_err(|why| format!("c{client} got what is not a packet: {why:?}"))?;
            self.log_line(&format!("c{client}< {packet}"));
            self.on_packet(client, &packet)?;
        }
        self.clients[client].unread = rest.to_vec();
        Ok(())
    }

    fn on_packet(&mut self, client: usize, packet: &Packet<'_>) -> Result<(), String> {
        let known = &mut self.clients[client];
        match packet {
            Packet::ConnAck(ack) if ack.session_present != known.expects_present => {
                let told = ack.session_present;
                return Err(format!("c{client} was told that its session is present: {told}"));
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                known.pending.retain(|pending| pending.packet_id != ack.packet_id.get());
            }
            Packet::PubRec(ack) => {
                let id = ack.packet_id.get();
                let pending = known.pending.iter_mut().filter(|pending| pending.packet_id == id);
                pending.for_each(|pending| pending.received = true);
                self.send(client, &format!("PUBREL {id}"));
            }
            Packet::PubRel(ack) => {
                let id = ack.packet_id.get();
                known.received.retain(|received| *received != id);
                known.held_acks.push(format!("PUBCOMP {id}"));
            }
            Packet::Publish(publish) => return self.on_publish(client, publish),
            Packet::Disconnect(packet) => return Err(format!("c{client} got {:?}", packet.reason)),
            _ => {}
        }
        Ok(())
    }

    fn on_publish(&mut self, client: usize, packet: &mqtt::Publish<'_>) -> Result<(), String> {
        let known = &mut self.clients[client];
        let id = packet.packet_id.map(|id| id.get());
        if let Some(id) = id {
            if !known.open.iter().any(|(open, _)| *open == id) {
                known.open.push((id, None));
            }
            if known.open.len() > usize::from(known.window) {
                return Err(format!("c{client} got more than its window of {}", known.window));
            }
            let twice = packet.qos == QoS::ExactlyOnce;
            known.held_acks.push(format!("{} {id}", if twice { "PUBREC" } else { "PUBACK" }));
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
        // Retained messages for a new subscription are checked at the end, by `compare_retained`.
        if packet.retain {
            return Ok(());
        }
        let shared = Property::SubscriptionIdentifier(SHARED);
        let shared = packet.properties.iter().any(|property| property == shared);
        let what = (number, packet.topic);
        let sending =
            self.oracle.on_delivery(client, what.0, what.1, packet.qos, packet.dup, shared)?;
        let mut open = self.clients[client].open.iter_mut();
        if let Some(open) = open.find(|(open, _)| Some(*open) == id) {
            open.1 = Some((sending, shared));
        }
        Ok(())
    }

    /// Reconnects every client with a session, reads and acknowledges all messages, then checks for
    /// missing messages.
    pub fn finish(&mut self) -> Result<(), String> {
        for client in 0..CLIENTS {
            self.clients[client].silent = false;
            self.stall(client, false);
            self.world.run_until_quiet();
            self.read_until_quiet()?;
            if self.clients[client].wire.is_none() && self.oracle.has_session(client) {
                self.connect(client, &ConnectRequest::for_resume(100));
            }
            self.send_held_acks(client);
            self.world.run_until_quiet();
            self.read_until_quiet()?;
        }
        self.oracle.check_missing()?;
        self.compare_retained()
    }

    fn compare_retained(&mut self) -> Result<(), String> {
        let wire = self.world.open();
        for line in ["CONNECT id=judge", "SUBSCRIBE 1 \"#\" qos=0"] {
            let bytes = packet_line::encode(line, ProtocolVersion::V5).expect("a line of our own");
            self.world.write(wire, &bytes);
        }
        self.world.run_until_quiet();
        let bytes = self.world.read(wire);
        let (mut rest, mut came) = (&bytes[..], Vec::new());
        while let Ok(Some(frame)) = mqtt::split_frame(rest, u32::MAX) {
            rest = &rest[frame.len..];
            if let Ok(Packet::Publish(publish)) = Packet::decode(frame, ProtocolVersion::V5) {
                let payload = String::from_utf8_lossy(publish.payload).into_owned();
                came.push((publish.topic.to_string(), payload));
            }
        }
        came.sort();
        let kept = self.oracle.expected_retained();
        if came != kept {
            return Err(format!("retained are {came:?}, not {kept:?}"));
        }
        Ok(())
    }
}

impl OracleRunClient {
    fn new(at: usize) -> OracleRunClient {
        OracleRunClient {
            version: if at < STEADY && at % 2 == 1 {
                ProtocolVersion::V311
            } else {
                ProtocolVersion::V5
            },
            wire: None,
            unread: Vec::new(),
            silent: false,
            stalled: false,
            held_acks: Vec::new(),
            open: Vec::new(),
            window: u16::MAX,
            expects_present: false,
            received: Vec::new(),
            pending: Vec::new(),
            next_id: 1,
        }
    }

    fn reopen(&mut self, wire: WireId, window: u16, present: bool) {
        (self.wire, self.window, self.stalled) = (Some(wire), window, false);
        self.unread.clear();
        self.held_acks.clear();
        self.open.clear();
        self.expects_present = present;
        if !present {
            self.received.clear();
            self.pending.clear();
        }
    }

    fn packet_id(&mut self) -> u16 {
        self.next_id += 1;
        self.next_id - 1
    }
}

impl PendingPublish {
    /// Returns the packet that a publisher sends again after a cut.
    fn resend_line(&self) -> String {
        match self.received {
            true => format!("PUBREL {}", self.packet_id),
            false => {
                self.line.replacen(" qos=1", " qos=1 dup", 1).replacen(" qos=2", " qos=2 dup", 1)
            }
        }
    }
}

impl ConnectRequest {
    /// Returns the CONNECT options of a client that resumes its session.
    fn for_resume(window: u16) -> ConnectRequest {
        ConnectRequest { clean: false, expiry_s: FOREVER, window, will: None }
    }
}

/// Subscription Identifier of subscriptions to groups, by which a client recognizes their messages.
const SHARED: u32 = 100;

fn qos_of(qos: u8) -> QoS {
    QoS::from_bits(qos).unwrap_or_default()
}
