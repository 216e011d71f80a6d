//! What a bridge does with packets, sans I/O: those of the session here go to the other broker and
//! its answers come back, and the same the other way.
//!
//! ```text
//!   session here                     pipe                     session there
//!   PUBLISH 7 "t"     ---->    name, QoS, properties   ---->  PUBLISH 7 "site/t"
//!   PUBACK 7          <----                            <----  PUBACK 7
//! ```
//!
//! Packet ids stay what they are, so the pipe keeps nothing that anybody would miss: both sessions
//! know what is unfinished, and after a lost connection they repeat it to each other
//! [MQTT-4.4.0-1]. What was acknowledged was acknowledged by the broker that has it. Where the
//! next connection may be to another one, see `past`.

mod echoes;
mod inward;
mod loops;
mod past;
mod properties;
mod requests;
mod rules;
mod suspect;

use self::echoes::MARK;
pub(crate) use self::loops::LoopDetection;
use self::loops::{Direction, LoopFound, PATH, PassingMessage};
use self::past::Completed;
pub(crate) use self::past::Past;
use self::properties::carry;
use self::requests::Request;
pub(crate) use self::rules::{Retained, Rule, Rules};
pub(crate) use self::suspect::{Suspects, Suspicion};
use crate::links::near::{NearTerms, acknowledge, name_of_row};
use crate::links::tally::{Loss, Tally};
use mqtt::{
    Ack, Frame, Packet, PacketId, PacketType, Properties, PropertiesBuf, Property, Publish, QoS,
    Reason, Version,
};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// What the other broker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) version: Version,
    pub(crate) qos_max: QoS,
    pub(crate) takes_retain: bool,
    pub(crate) packet_bytes_max: u32,
    pub(crate) topic_alias_max: u16,
    /// It does not send us back what came from us.
    pub(crate) spares_own: bool,
}

/// Whose it is that a bridge cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Here,
    There,
    /// Nobody answers.
    Between,
}

/// Why a pipe ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The session here was closed: the process stops, or options have changed.
    Closed(Reason),
    Far(String),
    /// One of the two has no room, and is asked again later: nothing was acknowledged.
    NoRoom(Side),
}

impl End {
    pub(crate) fn side(&self) -> Side {
        match self {
            End::Closed(_) => Side::Here,
            End::Far(_) => Side::There,
            End::NoRoom(side) => *side,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed(reason) => write!(f, "this broker closed the session: {reason}"),
            End::Far(why) => f.write_str(why),
            End::NoRoom(Side::Here) => f.write_str("this broker has no room for what comes in"),
            End::NoRoom(_) => f.write_str("the other broker has no room"),
        }
    }
}

pub(crate) struct Pipe {
    name: Arc<str>,
    rules: Arc<Rules>,
    terms: Terms,
    near: NearTerms,
    tally: Arc<Tally>,
    pub(crate) to_near: Vec<u8>,
    pub(crate) to_far: Vec<u8>,
    /// Requests of ours that are not answered: until then nothing is published there.
    asked: Vec<(PacketId, Request)>,
    /// When it last answered one, or began.
    pub(crate) answered: Instant,
    /// What the session here remembers of ids that are to be released there.
    left: Option<String>,
    next_id: PacketId,
    /// QoS 2 for one side and less for the other, by their id.
    lowered: HashSet<PacketId>,
    /// What came from there and goes nowhere, until it is released.
    unwanted: HashSet<PacketId>,
    /// Released here for a session there that is no more: nobody there waits for the answer.
    closed: HashSet<PacketId>,
    aliases_out: HashMap<String, u16>,
    /// What they stand for: topics, or what is to be logged of names that are none.
    aliases_in: HashMap<u16, Result<String, String>>,
    past: Past,
    suspects: Suspects,
    /// Unless options switch it off.
    pub(crate) loops: Option<LoopDetection>,
    /// It takes nothing more from the session here.
    is_ending: bool,
    /// As late as whoever carries says that it is.
    pub(crate) now: Instant,
    properties: PropertiesBuf,
}

/// Aliases that the other broker may use towards us.
pub(crate) const ALIASES_IN_MAX: u16 = 64;
/// And that we use towards it: further topics are named in full.
const ALIASES_OUT_MAX: u16 = 1024;

impl Pipe {
    /// `seed` makes ids of requests that are unlikely to be in use.
    pub(crate) fn new(
        name: Arc<str>,
        rules: Arc<Rules>,
        (terms, near): (Terms, NearTerms),
        tally: Arc<Tally>,
        past: Past,
        seed: u16,
    ) -> Pipe {
        let now = Instant::now();
        Pipe {
            name,
            rules,
            terms,
            near,
            tally,
            to_near: Vec::new(),
            to_far: Vec::new(),
            asked: Vec::new(),
            answered: now,
            left: None,
            next_id: PacketId::new(seed).unwrap_or(PacketId::MAX),
            lowered: HashSet::new(),
            unwanted: HashSet::new(),
            closed: HashSet::new(),
            aliases_out: HashMap::new(),
            aliases_in: HashMap::new(),
            past,
            suspects: Suspects::default(),
            loops: None,
            is_ending: false,
            now,
            properties: PropertiesBuf::default(),
        }
    }

    /// Whether the bridge is connected, for those there.
    pub(crate) fn say_status(&mut self, topic: &str, is_up: bool) {
        if topic.is_empty() {
            return;
        }
        let packet = Publish {
            dup: false,
            // Nobody repeats it: the next connection says it anew, and the will says the other.
            qos: QoS::AtMostOnce,
            retain: self.terms.takes_retain,
            topic,
            packet_id: None,
            properties: Properties::default(),
            payload: if is_up { b"1" } else { b"0" },
        };
        packet.encode(self.terms.version, &mut self.to_far);
    }

    /// What the session here says: how many bytes of it were taken.
    pub(crate) fn hear_near(&mut self, bytes: &[u8]) -> Result<usize, End> {
        let mut taken = 0;
        while let Some(frame) = cut(&bytes[taken..])? {
            let kind = PacketType::from_byte(frame.first);
            let waits = match kind {
                Some(PacketType::Publish) => !self.is_ready(),
                // What has begun comes to its end.
                Some(PacketType::PubRel) => !self.is_answered(),
                _ => false,
            };
            if waits {
                break;
            }
            taken += frame.len;
            match decode(frame, Version::V5)? {
                Packet::Publish(publish) => self.publish_out(&publish),
                Packet::PubRel(ack) if self.is_lower(ack.packet_id) => {
                    self.answer_near(PacketType::PubComp, Ack { reason: Reason::Success, ..ack });
                }
                Packet::PubRel(ack) => self.answer_far(PacketType::PubRel, ack),
                Packet::PubAck(ack) | Packet::PubRec(ack) if is_full(ack) => {
                    return Err(End::NoRoom(Side::Here));
                }
                Packet::PubAck(ack) => self.took_in(PacketType::PubAck, ack),
                Packet::PubRec(ack) => self.took_in(PacketType::PubRec, ack),
                Packet::PubComp(ack) if self.closed.remove(&ack.packet_id) => {}
                Packet::PubComp(ack) => self.answer_far(PacketType::PubComp, ack),
                Packet::Disconnect(goodbye) => return Err(End::Closed(goodbye.reason)),
                _ => {}
            }
        }
        Ok(taken)
    }

    fn publish_out(&mut self, publish: &Publish<'_>) {
        let Outward { name, qos, keeps_retain } = match self.outward(publish.topic) {
            Ok(outward) => outward,
            Err(loss) => return self.lose_out(publish, loss),
        };
        let qos = publish.qos.min(qos).min(self.terms.qos_max);
        let comes_back = self.comes_back(&name);
        let is_v5 = self.terms.version.is_v5();
        let path = match self.path_of(Direction::Out, publish.topic, publish) {
            Ok(path) => path,
            Err(found) => return self.lose_out_looping(publish, &found),
        };
        if self.is_there(publish, qos) {
            return self.expect_echo(comes_back && !is_v5, &name, publish);
        }
        let retain = publish.retain && keeps_retain && self.terms.takes_retain;
        let rules = self.rules.clone();
        let mut properties = std::mem::take(&mut self.properties);
        properties.clear();
        // The answer comes back by a rule inward: it has to be said where that takes it from.
        let response = |topic: &str| rules.inward.iter().find_map(|rule| rule.map.invert(topic));
        carry(publish.properties, &mut properties, response);
        if comes_back && is_v5 {
            let mark = echoes::mark(&name, publish.payload);
            properties.push(Property::UserProperty(MARK, &mark));
        }
        if let Some(path) = &path {
            properties.push(Property::UserProperty(PATH, path));
        }
        let alias = self.alias_for(&name, &mut properties);
        let before = self.to_far.len();
        let packet_id = publish.packet_id.filter(|_| qos > QoS::AtMostOnce);
        let packet = Publish {
            dup: publish.dup && qos > QoS::AtMostOnce,
            qos,
            retain,
            topic: if alias == Alias::Known { "" } else { &name },
            packet_id,
            properties: properties.as_properties(),
            payload: publish.payload,
        };
        packet.encode(self.terms.version, &mut self.to_far);
        self.properties = properties;
        let bytes = self.to_far.len() - before;
        if bytes > self.terms.packet_bytes_max as usize {
            self.to_far.truncate(before);
            if alias == Alias::New {
                self.aliases_out.remove(&name);
            }
            return self.lose_out(publish, Loss::TooLarge);
        }
        if let Some(id) = packet_id {
            self.suspects.send(id, &name, bytes);
        }
        self.tally.count_out(publish.payload.len());
        self.expect_echo(comes_back && !is_v5, &name, publish);
        self.lower(publish, qos);
    }

    /// Whether the other broker has it, and only waits for its release.
    fn is_there(&mut self, publish: &Publish<'_>, qos: QoS) -> bool {
        let Some(id) = publish.packet_id.filter(|_| qos == QoS::ExactlyOnce) else { return false };
        let is_there = self.past.send(id, publish.dup);
        if is_there {
            self.say_far(PacketType::PubRel, id);
        }
        is_there
    }

    fn expect_echo(&mut self, is_needed: bool, name: &str, publish: &Publish<'_>) {
        if is_needed {
            self.past.echoes().remember(name, publish.payload, publish.dup, self.now);
        }
    }

    /// What a rule of the broker sends has its name already; everything else has it by a map.
    fn outward(&self, topic: &str) -> Result<Outward, Loss> {
        if let Some(name) = name_of_row(topic) {
            let qos = QoS::ExactlyOnce;
            return Ok(Outward { name: name.into(), qos, keeps_retain: true });
        }
        let matching = self.rules.outward.iter().find(|rule| rule.map.matches(topic));
        let rule = matching.ok_or(Loss::NoRule)?;
        let name = rule.map.apply(topic).ok_or(Loss::NoName)?;
        Ok(Outward { name, qos: rule.qos, keeps_retain: rule.keeps_retain })
    }

    /// Whether the other broker will send this back to us. Of a shared subscription nothing can be
    /// spared.
    fn comes_back(&self, name: &str) -> bool {
        let sends = |rule: &Rule| !self.terms.spares_own || rule.map.is_shared();
        self.rules.inward.iter().any(|rule| sends(rule) && rule.map.matches(name))
    }

    /// What goes out with less than the QoS that the session here gave it.
    fn lower(&mut self, publish: &Publish<'_>, qos: QoS) {
        let Some(packet_id) = publish.packet_id else { return };
        match (publish.qos, qos) {
            (QoS::AtLeastOnce, QoS::AtMostOnce) => {
                acknowledge(PacketType::PubAck, packet_id, Reason::Success, &mut self.to_near);
            }
            (QoS::ExactlyOnce, QoS::AtMostOnce) => {
                self.lowered.insert(packet_id);
                self.done(PacketType::PubRec, packet_id, Reason::Success);
            }
            (QoS::ExactlyOnce, QoS::AtLeastOnce) => _ = self.lowered.insert(packet_id),
            _ => {}
        }
    }

    /// Whether it has less than QoS 2 there, in this connection or by what it is no more.
    fn is_lower(&mut self, packet_id: PacketId) -> bool {
        self.lowered.remove(&packet_id) || self.terms.qos_max < QoS::ExactlyOnce
    }

    /// The path that a message has behind this bridge, by its topic here. Rows of rules have none.
    fn path_of(
        &mut self,
        direction: Direction,
        topic: &str,
        publish: &Publish<'_>,
    ) -> Result<Option<String>, LoopFound> {
        let Some(loops) = self.loops.as_ref().filter(|_| name_of_row(topic).is_none()) else {
            return Ok(None);
        };
        let Publish { payload, qos, dup, properties, .. } = *publish;
        let (is_v5, now) = (self.terms.version.is_v5(), self.now);
        let message =
            PassingMessage { direction, is_v5, topic, payload, qos, dup, properties, now };
        loops.pass(&message, &mut self.past.carried)
    }

    fn count_loop(&self, topic: &str, LoopFound(names): &LoopFound) {
        self.tally.lose(&self.name, Loss::Loop, &format!("{topic}: it came round by {names}"));
    }

    fn lose_out_looping(&mut self, publish: &Publish<'_>, found: &LoopFound) {
        self.count_loop(publish.topic, found);
        self.let_out_go(publish);
    }

    /// The session here need not keep it any longer.
    fn lose_out(&mut self, publish: &Publish<'_>, loss: Loss) {
        self.tally.lose(&self.name, loss, publish.topic);
        self.let_out_go(publish);
    }

    fn let_out_go(&mut self, publish: &Publish<'_>) {
        let Some(packet_id) = publish.packet_id else { return };
        let reason = Reason::ImplementationSpecificError;
        let kind = match publish.qos {
            QoS::ExactlyOnce => PacketType::PubRec,
            _ => PacketType::PubAck,
        };
        self.done(kind, packet_id, reason);
    }

    fn alias_for(&mut self, name: &str, properties: &mut PropertiesBuf) -> Alias {
        let known = self.aliases_out.get(name).copied();
        let most = self.terms.topic_alias_max.min(ALIASES_OUT_MAX);
        let next = self.aliases_out.len() as u16 + 1;
        let room = next <= most;
        let (alias, number) = match known {
            Some(number) => (Alias::Known, number),
            None if room => {
                self.aliases_out.insert(name.into(), next);
                (Alias::New, next)
            }
            None => return Alias::None,
        };
        properties.push(Property::TopicAlias(number));
        alias
    }

    /// The other broker has answered for a message of ours.
    fn took_out(&mut self, kind: PacketType, ack: Ack<'_>) {
        if ack.reason.is_error() {
            self.tally.lose(&self.name, Loss::Refused, ack.reason.name());
        }
        let is_taken = kind == PacketType::PubRec && !ack.reason.is_error();
        if is_taken && self.past.take(ack.packet_id) {
            return match self.past.has_several() {
                true => self.say_far(PacketType::PubRel, ack.packet_id),
                false => self.answer_near(PacketType::PubRec, ack),
            };
        }
        let is_lowered = self.lowered.contains(&ack.packet_id);
        if is_lowered && ack.reason.is_error() {
            self.lowered.remove(&ack.packet_id);
        }
        let kind = if is_lowered { PacketType::PubRec } else { kind };
        self.done(kind, ack.packet_id, ack.reason);
    }

    /// The other broker has released a message of ours.
    fn completed(&mut self, ack: Ack<'_>) {
        match self.past.complete(ack.packet_id) {
            Completed::Stale => self.released(),
            Completed::Whole => {
                self.lowered.insert(ack.packet_id);
                self.done(PacketType::PubRec, ack.packet_id, Reason::Success);
            }
            Completed::Release => self.answer_near(PacketType::PubComp, ack),
        }
    }

    /// The session here need not keep it.
    fn done(&mut self, kind: PacketType, packet_id: PacketId, reason: Reason) {
        self.past.done(packet_id);
        acknowledge(kind, packet_id, reason, &mut self.to_near);
    }

    fn answer_near(&mut self, kind: PacketType, ack: Ack<'_>) {
        acknowledge(kind, ack.packet_id, ack.reason, &mut self.to_near);
    }

    fn say_far(&mut self, kind: PacketType, packet_id: PacketId) {
        let (reason, properties) = (Reason::Success, Properties::default());
        self.answer_far(kind, Ack { packet_id, reason, properties });
    }

    fn answer_far(&mut self, kind: PacketType, ack: Ack<'_>) {
        let ack = Ack { properties: Properties::default(), ..ack };
        ack.encode(kind, self.terms.version, &mut self.to_far);
    }

    /// What the session here took from a session there that is no more: nothing releases it now,
    /// and what comes under the same ids is something else.
    pub(crate) fn release(&mut self, received: &[PacketId]) {
        for id in received {
            acknowledge(PacketType::PubRel, *id, Reason::Success, &mut self.to_near);
        }
        self.closed.extend(received);
    }

    /// For the next one.
    pub(crate) fn into_past(self) -> Past {
        self.past
    }

    /// What may have made the other broker hang up.
    pub(crate) fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Whether what the session here says can go on.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_answered() && !self.is_ending
    }

    /// Whether the other broker has answered what it was asked.
    pub(crate) fn is_answered(&self) -> bool {
        self.asked.is_empty() && self.past.stale().is_empty()
    }

    /// Takes nothing more, and says whether everything that was taken has come to its end.
    pub(crate) fn end(&mut self) -> bool {
        self.is_ending = true;
        !self.past.is_half_way() && self.to_near.is_empty()
    }
}

/// What a message that goes out is over there.
struct Outward {
    name: String,
    /// At most.
    qos: QoS,
    keeps_retain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alias {
    None,
    New,
    Known,
}

fn is_full(ack: Ack<'_>) -> bool {
    ack.reason == Reason::QuotaExceeded
}

fn cut(bytes: &[u8]) -> Result<Option<Frame<'_>>, End> {
    mqtt::cut(bytes, u32::MAX).map_err(|violation| End::Far(violation.what().into()))
}

fn decode(frame: Frame<'_>, version: Version) -> Result<Packet<'_>, End> {
    Packet::decode(frame, version).map_err(|violation| End::Far(violation.what().into()))
}

#[cfg(test)]
mod invalid_tests;
#[cfg(test)]
mod tests;
