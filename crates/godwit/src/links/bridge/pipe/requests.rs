//! What a pipe asks both brokers for at its beginning.

use super::{Pipe, Retained, Rule};
use crate::links::near::{subscribe, unsubscribe};
use mqtt::{PacketId, PacketType, Reason, SubscribeOptions, Version};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Subscribe(Vec<(String, SubscribeOptions)>),
    Unsubscribe,
}

/// In one SUBSCRIBE. AWS IoT Core hangs up on more (its quotas of the message broker).
const FILTERS_MAX: usize = 8;

/// Messages pass under the other broker's ids, and this broker takes a request under an id that one
/// of them has.
const OF_REQUESTS_HERE: PacketId = PacketId::MIN;

impl Pipe {
    /// Asks the other broker for what comes in, and no longer for what a change left behind.
    /// `left` is the note that it was left, which goes once nothing of that time is there.
    pub(crate) fn begin(&mut self, gone: &[String], left: Option<String>) {
        self.left = left;
        for id in self.past.stale().clone() {
            self.say_far(PacketType::PubRel, id);
        }
        self.release_left();
        self.ask_retained();
        let options = |rule: &Rule| rule.options(self.near.qos_max);
        let wanted = self.rules.inward.iter();
        let wanted = wanted.map(|rule| (rule.map.filter.clone(), options(rule)));
        let wanted: Vec<_> = wanted.collect();
        for part in wanted.chunks(FILTERS_MAX) {
            self.ask_subscribe(part.to_vec());
        }
        for part in gone.chunks(FILTERS_MAX) {
            let packet_id = self.give_id();
            unsubscribe(packet_id, part, self.terms.version, &mut self.to_far);
            self.asked.push((packet_id, Request::Unsubscribe));
        }
    }

    /// What is retained here goes out once more, where a rule says so.
    fn ask_retained(&mut self) {
        let options = |rule: &Rule| rule.options(self.near.qos_max);
        let outward = self.rules.outward.iter();
        let wanted = outward.filter(|rule| rule.retained == Retained::Always);
        let mut wanted = wanted.map(|rule| (&*rule.map.filter, options(rule))).peekable();
        if wanted.peek().is_some() {
            subscribe(OF_REQUESTS_HERE, wanted, Version::V5, &mut self.to_near);
        }
    }

    /// One of the ids that were to be released has been.
    pub(super) fn released(&mut self) {
        self.answered = self.now;
        self.release_left();
    }

    /// What goes out from now on is taken there for what it is.
    fn release_left(&mut self) {
        if self.past.stale().is_empty()
            && let Some(left) = self.left.take()
        {
            unsubscribe(OF_REQUESTS_HERE, &[left], Version::V5, &mut self.to_near);
        }
    }

    fn ask_subscribe(&mut self, wanted: Vec<(String, SubscribeOptions)>) {
        let packet_id = self.give_id();
        let filters = wanted.iter().map(|(filter, options)| (&**filter, *options));
        subscribe(packet_id, filters, self.terms.version, &mut self.to_far);
        self.asked.push((packet_id, Request::Subscribe(wanted)));
    }

    fn give_id(&mut self) -> PacketId {
        let id = self.next_id;
        self.next_id = id.checked_add(1).unwrap_or(PacketId::MIN);
        id
    }

    /// Only what is done counts as answered: else words that lead nowhere would hold us for ever.
    pub(super) fn unsubscribed(&mut self, packet_id: PacketId) {
        let before = self.asked.len();
        self.asked.retain(|(id, _)| *id != packet_id);
        if self.asked.len() < before {
            self.answered = self.now;
        }
    }

    pub(super) fn subscribed(&mut self, packet_id: PacketId, codes: &[u8]) {
        let Some(at) = self.asked.iter().position(|(id, _)| *id == packet_id) else { return };
        let (_, Request::Subscribe(wanted)) = self.asked.swap_remove(at) else { return };
        if codes.first() == Some(&Reason::PacketIdentifierInUse.code()) {
            return self.ask_subscribe(wanted);
        }
        self.answered = self.now;
        for ((filter, _), code) in wanted.iter().zip(codes).filter(|(_, code)| **code >= 0x80) {
            let why = Reason::from_byte(*code).map_or("", Reason::name);
            self.tally.fail(&self.name, format!("it does not let us subscribe to {filter}: {why}"));
        }
    }
}
