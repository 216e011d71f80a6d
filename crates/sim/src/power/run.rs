//! One run: clients on wires, a broker on a disk that forgets, and the judge.

use super::client::{Asked, Client, Pending};
use super::judge::{DELAYED, Judge, qos_of};
use super::{
    Act, Action, CLIENTS, Cut, DELAYS_S, FILTERS, FOREVER, GROUPS, Greeting, Keep, TOPICS,
};
use crate::chance::Chance;
use crate::disk::{Disk, Syncs};
use crate::line;
use crate::world::World;
use broker::mount::Namespace;
use broker::{ListenerId, Options, Space};
use mqtt::{Packet, Property, QoS, Reason, Version};
use std::fmt::Write;
use std::sync::Arc;

pub(crate) struct Run {
    world: World,
    listener: ListenerId,
    clients: Vec<Client>,
    judge: Judge,
    shards_max: usize,
    /// The cut to come.
    cut: Option<Cut>,
    cut_at: u64,
    /// How many batches were not synced when the power went first.
    pub(crate) pending_at_cut: Option<usize>,
    pub(crate) log: String,
}

/// Subscription Identifiers of groups begin here.
const SHARED: u32 = 100;
/// Times are not judged closer than this.
const SLACK_MS: u64 = 1000;

impl Run {
    pub(crate) fn new(seed: u64, shards_max: usize) -> Run {
        let mut chance = Chance::new(seed ^ 0xb10c);
        let mut options = Options {
            sys_interval_s: 0,
            write_bytes_max: [200, 1024 * 1024][chance.below(2)],
            inflight_max: [3, 1024][chance.below(2)],
            ..Options::default()
        };
        let namespace = Namespace::parse("n/s").expect("a namespace of our own");
        let mounted = Options { namespace, ..options.clone() };
        options.listeners = vec![None, Some(Arc::new(mounted))];
        let shards = 1 + chance.below(shards_max);
        let mut world = World::new(options, shards, seed, Some(Chance::new(seed)));
        world.keep();
        world.disk().expect("it is kept").refuses = chance.one_in(3);
        // Everyone is in the same one or in none, which nobody notices.
        let listener = ListenerId(u8::from(chance.one_in(2)));
        Run {
            world,
            listener,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            shards_max,
            judge: Judge::new(),
            cut: None,
            cut_at: 0,
            pending_at_cut: None,
            log: format!("# shards: {shards}, {listener:?}\n"),
        }
    }

    /// The power will go with the so many-th batch from here.
    pub(crate) fn arm(&mut self, cut: Cut) {
        if let Some(disk) = self.world.disk() {
            disk.stop_after(cut.batches);
        }
        self.cut = Some(cut);
    }

    pub(crate) fn act(&mut self, action: &Action) -> Result<(), String> {
        match action.act {
            Act::Connect { client, ref greeting } => self.connect(client, greeting),
            Act::Cut { client } => self.hang_up(client),
            Act::Disconnect { client } => {
                if self.clients[client].is_heard() {
                    self.send(client, "DISCONNECT");
                    self.world.settle();
                    self.leave(client);
                }
            }
            Act::Hold { holds } => {
                self.note(if holds { "! disk holds" } else { "! disk syncs" });
                self.hold_disk(holds);
            }
            Act::Pass { s } => {
                self.note(&format!("+ {s}s"));
                self.world.pass(s * 1000);
            }
            Act::Power(cut) => {
                self.note(&format!("# power goes after {} batches", cut.batches));
                self.arm(cut);
            }
            Act::Silence { client, silent } => {
                self.clients[client].silent = silent;
                self.pay(client);
            }
            _ => self.speak(&action.act),
        }
        match action.rounds {
            Some(rounds) => {
                self.world.some_rounds(rounds);
                self.read_all()?;
            }
            None => self.rest()?,
        }
        self.black_out_if_stopped()
    }

    /// What only a client that is heard can do.
    fn speak(&mut self, act: &Act) {
        match *act {
            Act::Publish { client, topic, qos, keep, delay_s }
                if self.clients[client].is_heard() =>
            {
                self.publish(client, TOPICS[topic], qos, keep, delay_s);
            }
            Act::Subscribe { client, filter, qos } if self.clients[client].is_heard() => {
                let filter = FILTERS[filter];
                self.judge.subscribe(client, filter);
                let text = format!("\"{filter}\" qos={qos}");
                self.ask(client, "SUBSCRIBE", &text, Asked::Filter(filter));
            }
            Act::Unsubscribe { client, filter } if self.clients[client].is_heard() => {
                let filter = FILTERS[filter];
                self.judge.unsubscribe(client, filter);
                self.clients[client].forget_asked(|asked| asked == Asked::Filter(filter));
                self.ask(client, "UNSUBSCRIBE", &format!("\"{filter}\""), Asked::Nothing);
            }
            Act::Join { client, group } if self.clients[client].is_heard() => {
                let (name, filter, qos) = GROUPS[group];
                self.judge.join(client, group);
                let id = SHARED + group as u32;
                let text = format!("\"$share/{name}/{filter}\" qos={qos} subscription_id={id}");
                self.ask(client, "SUBSCRIBE", &text, Asked::Group(group));
            }
            Act::Leave { client, group } if self.clients[client].is_heard() => {
                let (name, filter, _) = GROUPS[group];
                self.judge.leave(client, group);
                self.clients[client].forget_asked(|asked| asked == Asked::Group(group));
                let text = format!("\"$share/{name}/{filter}\"");
                self.ask(client, "UNSUBSCRIBE", &text, Asked::Nothing);
            }
            _ => {}
        }
    }

    fn ask(&mut self, client: usize, kind: &str, text: &str, asked: Asked) {
        let id = self.clients[client].packet_id();
        self.clients[client].asked.push((id, asked));
        self.send(client, &format!("{kind} {id} {text}"));
    }

    fn publish(&mut self, client: usize, topic: &str, qos: u8, keep: Keep, delay_s: u64) {
        let (publisher, prefix) = match delay_s {
            0 => (client, String::new()),
            _ => (DELAYED + client, format!("$delayed/{delay_s}/")),
        };
        let number = self.judge.publish(publisher, topic, qos_of(qos), keep);
        let packet_id = self.clients[client].packet_id();
        let id = if qos > 0 { format!("{packet_id} ") } else { String::new() };
        let flag = if keep == Keep::No || qos == 0 { "" } else { " retain" };
        let payload = match keep {
            Keep::Clear if qos > 0 => String::new(),
            Keep::Clear | Keep::No | Keep::Retain => format!("m{number}"),
        };
        // A clear has no payload to carry its number.
        let name = format!("content_type=\"m{number}\"");
        let line = format!("PUBLISH {id}\"{prefix}{topic}\" qos={qos}{flag} \"{payload}\" {name}");
        self.send(client, &line);
        if qos > 0 {
            let pending = Pending { packet_id, number, line, received: false };
            self.clients[client].pending.push(pending);
        }
    }

    fn note(&mut self, line: &str) {
        self.log.push_str(line);
        self.log.push('\n');
    }

    fn send(&mut self, client: usize, line: &str) {
        let Some(wire) = self.clients[client].wire else { return };
        self.note(&format!("c{client}> {line}"));
        let bytes = line::encode(line, Version::V5).expect("a line of our own");
        self.world.write(wire, &bytes);
    }

    /// A client that is not sure of its session begins a new one.
    fn connect(&mut self, client: usize, greeting: &Greeting) {
        if self.clients[client].wire.is_some() {
            return;
        }
        let known = &mut self.clients[client];
        let clean = greeting.clean || !known.certain;
        (known.clean, known.expiry_s, known.window) = (clean, greeting.expiry_s, greeting.window);
        let (low, high) = known.expiries_s;
        known.knocked_at = self.world.now.0;
        // A session that this CONNECT may find over, and begin anew, is not known by Session
        // Present if CONNACK gets lost.
        known.is_doubtful |= known.knocked_at + SLACK_MS >= known.away_from + expiry_ms(low);
        known.expiries_s = (low.min(greeting.expiry_s), high.max(greeting.expiry_s));
        let (expiry_s, window) = (greeting.expiry_s, greeting.window);
        let mut line = format!(
            "CONNECT id=c{client} clean={} expiry={expiry_s} receive_maximum={window}",
            u8::from(clean)
        );
        if let Some((qos, retain, delay_s)) = greeting.will {
            let topic = format!("w/{client}");
            let number = self.judge.publish(CLIENTS + client, &topic, qos_of(qos), Keep::No);
            let _ = write!(line, " will=\"{topic}\" will_payload=\"m{number}\" will_qos={qos}");
            line += if retain { " will_retain" } else { "" };
            line += &if delay_s > 0 { format!(" will_delay={delay_s}") } else { String::new() };
        }
        if clean {
            self.end(client);
        }
        let wire = self.world.open_by(self.listener, World::HERE);
        self.clients[client].reopen(wire);
        self.send(client, &line);
    }

    /// The client's session is no more.
    fn end(&mut self, client: usize) {
        self.judge.end(client);
        for number in self.clients[client].forget() {
            self.judge.given_up(number);
        }
    }

    fn hang_up(&mut self, client: usize) {
        if let Some(wire) = self.clients[client].wire {
            self.note(&format!("c{client}! cut"));
            self.world.cut(wire);
            self.leave(client);
        }
    }

    fn leave(&mut self, client: usize) {
        let known = &mut self.clients[client];
        known.wire = None;
        known.certain &= !known.is_doubtful;
        // CONNACK does not say that the disk has seen CONNECT.
        known.away_upto = self.world.now.0;
        if known.is_on_disk {
            known.away_from = self.world.now.0;
        }
    }

    /// Sends the acknowledgements that a client owes, unless it keeps silent.
    fn pay(&mut self, client: usize) {
        let known = &mut self.clients[client];
        if known.silent || known.wire.is_none() {
            return;
        }
        for line in std::mem::take(&mut known.owed) {
            if let Some(id) = line.strip_prefix("PUBACK ") {
                let id: u16 = id.parse().unwrap_or_default();
                self.clients[client].open.remove(&id);
            }
            self.send(client, &line);
        }
    }

    /// Runs, and lets everybody read and answer, until nothing comes any more.
    fn rest(&mut self) -> Result<(), String> {
        loop {
            self.world.settle();
            if !self.read_all()? {
                return Ok(());
            }
        }
    }

    /// Everybody reads and answers once. Says whether anything came.
    fn read_all(&mut self) -> Result<bool, String> {
        let mut any = false;
        for client in 0..CLIENTS {
            let Some(wire) = self.clients[client].wire else { continue };
            let bytes = self.world.read(wire);
            any |= !bytes.is_empty();
            self.clients[client].unread.extend(bytes);
            self.take_packets(client)?;
            self.pay(client);
            if self.world.is_closed(wire) && !self.world.is_stopped() {
                return Err(format!("the broker closed c{client}"));
            }
        }
        Ok(any)
    }

    fn take_packets(&mut self, client: usize) -> Result<(), String> {
        let bytes = std::mem::take(&mut self.clients[client].unread);
        let mut rest = &bytes[..];
        while let Ok(Some(frame)) = mqtt::cut(rest, u32::MAX) {
            rest = &rest[frame.len..];
            let packet = Packet::decode(frame, Version::V5);
            let packet =
                packet.map_err(|why| format!("c{client} got what is no packet: {why:?}"))?;
            self.note(&format!("c{client}< {packet}"));
            self.take(client, &packet)?;
        }
        self.clients[client].unread = rest.to_vec();
        Ok(())
    }

    fn take(&mut self, client: usize, packet: &Packet<'_>) -> Result<(), String> {
        match packet {
            Packet::ConnAck(ack) => return self.greeted(client, ack.session_present),
            Packet::PubAck(ack) => {
                self.finished(client, ack.packet_id.get(), ack.reason.is_error())?
            }
            Packet::PubComp(ack) => self.finished(client, ack.packet_id.get(), false)?,
            Packet::PubRec(ack) => {
                if ack.reason.is_error() {
                    return Err(format!("c{client} was refused a message"));
                }
                let id = ack.packet_id.get();
                let known = &mut self.clients[client];
                known.be_certain();
                if let Some(pending) = known.pending.iter_mut().find(|one| one.packet_id == id) {
                    pending.received = true;
                    self.judge.acknowledged(pending.number);
                    self.send(client, &format!("PUBREL {id}"));
                }
            }
            Packet::PubRel(ack) => {
                let id = ack.packet_id.get();
                self.clients[client].received.remove(&id);
                self.clients[client].owed.push(format!("PUBCOMP {id}"));
            }
            Packet::Publish(publish) => return self.take_publish(client, publish),
            Packet::SubAck(ack) => self.answered(client, ack.packet_id.get(), true),
            Packet::UnsubAck(ack) => {
                // Where there was nothing to forget, nothing waits for the disk.
                let found = ack.codes.contains(&Reason::Success.code());
                self.answered(client, ack.packet_id.get(), found);
            }
            Packet::Disconnect(packet) => return Err(format!("c{client} got {:?}", packet.reason)),
            _ => {}
        }
        Ok(())
    }

    fn greeted(&mut self, client: usize, present: bool) -> Result<(), String> {
        let (now, cut_at) = (self.world.now.0, self.cut_at);
        let known = &mut self.clients[client];
        known.greeted = true;
        known.is_doubtful = false;
        let (low, high) = known.expiries_s;
        let is_over = now + SLACK_MS >= known.away_from + expiry_ms(low);
        let latest = known.away_upto.max(cut_at) + expiry_ms(high);
        let must_be_over = known.knocked_at > latest + SLACK_MS;
        match (present, known.clean) {
            (true, true) => return Err(format!("c{client} asked for a clean session")),
            (true, false) if must_be_over => {
                return Err(format!("the session of c{client} outlived its expiry"));
            }
            (false, false) if !is_over => return Err(format!("the session of c{client} is lost")),
            (false, false) => self.end(client),
            // It may have ended and come back with a cut, without what came meanwhile.
            (true, false) if is_over => self.judge.missed(client),
            (true, false) | (false, true) => {}
        }
        let again: Vec<String> = self.clients[client].pending.iter().map(Pending::again).collect();
        again.iter().for_each(|line| self.send(client, line));
        Ok(())
    }

    fn finished(&mut self, client: usize, id: u16, is_error: bool) -> Result<(), String> {
        let known = &mut self.clients[client];
        let at = known.pending.iter().position(|one| one.packet_id == id);
        let Some(at) = at else { return Ok(()) };
        if is_error {
            return Err(format!("c{client} was refused a message"));
        }
        let pending = known.pending.remove(at);
        self.judge.acknowledged(pending.number);
        Ok(())
    }

    fn answered(&mut self, client: usize, id: u16, waited: bool) {
        let known = &mut self.clients[client];
        if waited {
            known.be_certain();
        }
        let at = known.asked.iter().position(|(asked, _)| *asked == id);
        match at.map(|at| known.asked.remove(at).1) {
            Some(Asked::Filter(filter)) => self.judge.subscribed(client, filter),
            Some(Asked::Group(group)) => self.judge.joined(client, group),
            Some(Asked::Nothing) | None => {}
        }
    }

    fn take_publish(&mut self, client: usize, packet: &mqtt::Publish<'_>) -> Result<(), String> {
        let groups = 0..GROUPS.len();
        let shared = |group: &usize| {
            let id = Property::SubscriptionIdentifier(SHARED + *group as u32);
            packet.properties.iter().any(|property| property == id)
        };
        let group = groups.into_iter().find(shared);
        let payload = String::from_utf8_lossy(packet.payload).into_owned();
        let named = packet.properties.iter().find_map(|property| match property {
            Property::ContentType(name) => Some(name.to_string()),
            _ => None,
        });
        let name = named.unwrap_or(payload);
        let what = format!("{name} on {} for {group:?}", packet.topic);
        let known = &mut self.clients[client];
        if let Some(id) = packet.packet_id.map(|id| id.get()) {
            let one = packet.qos == QoS::AtLeastOnce;
            known.owed.push(format!("{} {id}", if one { "PUBACK" } else { "PUBREC" }));
            let other = [known.open.get(&id), known.received.get(&id)];
            if let Some(other) = other.into_iter().flatten().find(|other| **other != what) {
                return Err(format!("id {id} of c{client} is {what} and also {other}"));
            }
            match one {
                true => _ = known.open.insert(id, what),
                false if known.received.insert(id, what).is_some() => return Ok(()),
                false => {}
            }
            if known.open.len() > usize::from(known.window) {
                return Err(format!("c{client} got more than its window of {}", known.window));
            }
        }
        // Retained messages that a subscription asked for are no arrivals.
        let number = name.strip_prefix('m').and_then(|number| number.parse().ok());
        match number.filter(|_| !packet.retain) {
            Some(number) => self.judge.arrived(client, number, packet.qos, group),
            None => Ok(()),
        }
    }

    /// The power goes, if it was to go with a batch that came.
    fn black_out_if_stopped(&mut self) -> Result<(), String> {
        if !self.world.is_stopped() {
            return Ok(());
        }
        let cut = self.cut.take();
        let Cut { kept, shards, down_s, holds, .. } = cut.expect("the disk stops at the cut");
        let shards = 1 + shards % self.shards_max;
        let disk = self.world.disk().expect("there is one");
        let pending = disk.pending();
        let kept = kept.min(pending);
        disk.sync(kept);
        self.pending_at_cut.get_or_insert(pending);
        self.note(&format!("! power, {kept} of {pending} batches kept, {shards} shards come back"));
        // What had arrived by then is read.
        self.read_all()?;
        self.world.power(shards);
        self.hold_disk(holds);
        for client in 0..CLIENTS {
            if self.clients[client].wire.is_some() {
                self.leave(client);
            }
        }
        self.world.now.0 += down_s * 1000;
        self.cut_at = self.world.now.0;
        self.rest()
    }

    fn hold_disk(&mut self, holds: bool) {
        let syncs = if holds { Syncs::Nothing } else { Syncs::Everything };
        self.world.disk().into_iter().for_each(|disk| disk.syncs = syncs);
    }

    /// Everybody comes back, reads and acknowledges; then nothing may be missing. Sessions end,
    /// and nothing of them may stay.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.note("# everybody comes back");
        self.hold_disk(false);
        self.cut.iter_mut().for_each(|cut| cut.holds = false);
        self.rest()?;
        self.black_out_if_stopped()?;
        for client in 0..CLIENTS {
            self.clients[client].silent = false;
            self.pay(client);
            self.rest()?;
            self.black_out_if_stopped()?;
        }
        // A cut may still be to come: whoever was there then comes again.
        while self.clients.iter().any(|client| client.wire.is_none()) {
            for client in 0..CLIENTS {
                let greeting =
                    Greeting { clean: false, expiry_s: FOREVER, window: 100, will: None };
                self.connect(client, &greeting);
                self.rest()?;
                self.black_out_if_stopped()?;
            }
        }
        if self.cut.is_some() {
            self.cut = None;
            self.world.disk().into_iter().for_each(Disk::stop_never);
        }
        // What was sent again is delayed again.
        self.world.pass(DELAYS_S[1] * 1000 + SLACK_MS);
        self.rest()?;
        self.judge.missing()?;
        self.end_all()?;
        let retained = self.compare_retained()?;
        self.look_for_leaks(retained)
    }

    /// How many messages are retained, once they are those that may be.
    fn compare_retained(&mut self) -> Result<usize, String> {
        let wire = self.world.open_by(self.listener, World::HERE);
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
        self.note(&format!("# retained: {came:?}"));
        for topic in TOPICS {
            let value = came.iter().find(|(known, _)| known == topic);
            let number = value.and_then(|(_, payload)| payload.strip_prefix('m')?.parse().ok());
            self.judge.retained(topic, number)?;
        }
        Ok(came.len())
    }

    fn end_all(&mut self) -> Result<(), String> {
        self.note("# every session ends");
        for client in 0..CLIENTS {
            self.hang_up(client);
            self.clients[client].certain = false;
            let greeting = Greeting { clean: true, expiry_s: 0, window: 100, will: None };
            self.connect(client, &greeting);
            self.rest()?;
            self.send(client, "DISCONNECT");
            self.world.settle();
            self.clients[client].wire = None;
        }
        self.world.pass(100_000);
        Ok(())
    }

    fn look_for_leaks(&mut self, retained: usize) -> Result<(), String> {
        let disk = self.world.disk().expect("there is one");
        let left = |space| disk.keys(space).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (sessions, queues) = (left(Space::Sessions), left(Space::Queues));
        let mut bodies = left(Space::Messages);
        // Bodies that queues of an earlier start name, or queues that nobody has read since one,
        // are for a sweep that is still to be written: nobody in memory counts who wants them.
        if self.pending_at_cut.is_some() {
            bodies.clear();
        }
        let kept = left(Space::Retained).len();
        if sessions.len() != 1 {
            let text: Vec<_> = sessions.iter().map(|key| String::from_utf8_lossy(key)).collect();
            return Err(format!("sessions leave {text:?}"));
        }
        if !queues.is_empty() {
            return Err(format!("queues leave {queues:?}"));
        }
        if !bodies.is_empty() {
            return Err(format!("messages leave {bodies:?}"));
        }
        if kept != retained {
            return Err(format!("{kept} messages are stored as retained, and {retained} are"));
        }
        Ok(())
    }
}

fn expiry_ms(expiry_s: u32) -> u64 {
    if expiry_s == FOREVER { u64::MAX / 2 } else { u64::from(expiry_s) * 1000 }
}
