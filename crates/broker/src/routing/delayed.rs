//! Delayed messages: `$delayed/{seconds}/{topic}`. A message waits on its publisher's shard, and
//! also in the store if its durability demands, until it is due. Then it is published as if it had
//! just arrived.
//!
//! The publisher's permission was checked on arrival, since its connection may have ended by then.

use crate::connection::refusal::Refusal;
use crate::durability::records::{self, kind};
use crate::durability::write_batch::{RecordNumber, RecordSpace};
use crate::input::{MonotonicMs, SessionId};
use crate::limits::{DELAY_S_MAX, DUE_PER_TICK};
use crate::memory::cost;
use crate::options::Durability;
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::message::{IncomingPublish, Message};
use crate::routing::publish::needs_durable_ack;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::timer::{ShardTimer, turn_of};
use mqtt::QoS;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const PREFIX: &str = "$delayed/";

/// Splits a name into the delay in seconds and the topic. The delay is 0 without the prefix
/// `$delayed/`.
pub(crate) fn split_delay(name: &str) -> Result<(u32, &str), Refusal> {
    let Some(rest) = name.strip_prefix(PREFIX) else { return Ok((0, name)) };
    let (seconds, topic) = rest.split_once('/').ok_or(Refusal::DelayInvalid)?;
    let is_number = seconds.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = seconds.parse().ok().filter(|_| is_number).unwrap_or_default();
    match (1..=DELAY_S_MAX).contains(&seconds) && !topic.is_empty() {
        true => Ok((seconds, topic)),
        false => Err(Refusal::DelayInvalid),
    }
}

/// The delayed messages of a shard.
#[derive(Debug, Default)]
pub(crate) struct DelayedMessages {
    /// Waiting messages, ordered by due time and then by arrival.
    waiting: BTreeMap<(MonotonicMs, u64), DelayedMessage>,
    came: u64,
    /// Number and bytes of each publisher's delayed messages.
    shares: BTreeMap<Box<str>, DelayedUsage>,
    /// Time of the timer in force. Earlier set timers are ignored: see `is_timer_current`.
    timer_at: Option<MonotonicMs>,
}

/// Use of the bounds of delayed messages by one publisher, compared with its share.
#[derive(Clone, Copy, Debug, Default)]
struct DelayedUsage {
    messages: u64,
    bytes: u64,
}

/// A delayed message with its publisher. `message` has the due time as its time of publication.
#[derive(Debug)]
struct DelayedMessage {
    by: DelayedPublisher,
    message: Message,
    /// Key of the record in the store: see `records::delayed_key`.
    key: Option<(u8, RecordNumber)>,
}

/// The publisher of a delayed message, for rules: its connection may have ended by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelayedPublisher {
    /// Client id with its namespace.
    pub(crate) client_id: Box<str>,
    pub(crate) user: Option<Arc<str>>,
    /// Address of the publisher when it sent the message.
    pub(crate) address: Option<Box<str>>,
}

impl DelayedPublisher {
    fn len(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.len());
        let address = self.address.as_ref().map_or(0, |address| address.len());
        self.client_id.len() + user + address
    }
}

impl DelayedMessage {
    fn bytes(&self) -> u64 {
        (self.by.len() + self.message.bytes()) as u64 + cost::DELAYED
    }
}

impl DelayedMessages {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_due(&self, now: MonotonicMs) -> bool {
        self.waiting.first_key_value().is_some_and(|((due, _), _)| *due <= now)
    }

    /// Whether a timer due in this turn is the one in force.
    pub(crate) fn is_timer_current(&self, turn: u64) -> bool {
        self.timer_at.is_some_and(|at| turn_of(at) == turn)
    }

    /// Whether the publisher's share, `percent` of both bounds `most`, has room for the message.
    fn has_room_for(&self, one: &DelayedMessage, most: (u64, u64), percent: u8) -> bool {
        let part = |whole: u64| (u128::from(whole) * u128::from(percent)).div_ceil(100) as u64;
        let own = self.shares.get(&one.by.client_id).copied().unwrap_or_default();
        own.messages < part(most.0) && own.bytes + one.bytes() <= part(most.1)
    }

    fn put(&mut self, due: MonotonicMs, one: DelayedMessage) {
        let own = self.shares.entry(one.by.client_id.clone()).or_default();
        own.messages += 1;
        own.bytes += one.bytes();
        self.came += 1;
        self.waiting.insert((due, self.came), one);
    }

    fn take_due(&mut self, now: MonotonicMs) -> Option<DelayedMessage> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        let one = first.remove();
        if let Some(own) = self.shares.get_mut(&one.by.client_id) {
            own.messages -= 1;
            own.bytes -= one.bytes();
            if own.messages == 0 {
                self.shares.remove(&one.by.client_id);
            }
        }
        Some(one)
    }
}

impl Shard {
    /// Stores a message to publish after `delay_s` seconds. Refuses with `DelayedFull` beyond the
    /// bounds of messages or bytes, of the process or of one client.
    pub(crate) fn delay_message(
        &mut self,
        id: SessionId,
        draft: &mut IncomingPublish<'_>,
        delay_s: u32,
    ) -> Result<(), Refusal> {
        let due = MonotonicMs(self.sessions.context.now.0 + u64::from(delay_s) * 1000);
        draft.at = due;
        let message = draft.message().clone();
        let mut one = DelayedMessage {
            by: self.connections.delayed_publisher(id, &self.sessions),
            message,
            key: None,
        };
        let is_kept = draft.durability != Durability::Memory && draft.qos != QoS::AtMostOnce;
        if is_kept && self.sessions.durability.store_is_full {
            return Err(Refusal::StoreFull);
        }
        let bytes = one.bytes();
        let options = &self.sessions.context.options;
        let most = (u64::from(options.delayed_messages_max), options.delayed_bytes_max);
        if self.sessions.would_elevate_pressure(bytes) {
            return Err(Refusal::QuotaExceeded);
        }
        let has_part =
            self.routing.delayed.has_room_for(&one, most, options.delayed_client_percent_max);
        if !has_part || !self.sessions.ledger.add_delayed(bytes, most) {
            return Err(Refusal::DelayedFull);
        }
        if is_kept {
            one.key = Some(self.sessions.write_delayed(&one, draft.durability));
        }
        self.routing.delayed.put(due, one);
        self.routing.set_delayed_timer(&mut self.sessions);
        Ok(())
    }

    /// Publishes due messages, at most `DUE_PER_TICK` and while the outbox has room.
    pub(crate) fn publish_due(&mut self, out: &mut Outbox) {
        let mut room = DUE_PER_TICK;
        while room > 0
            && !out.is_full()
            && let Some(one) = self.routing.delayed.take_due(self.sessions.context.now)
        {
            room -= 1;
            self.sessions.ledger.remove_delayed(one.bytes());
            self.publish_delayed(&one, out);
        }
        self.routing.set_delayed_timer(&mut self.sessions);
    }

    /// Publishes a message and removes its record in the same batch, so that a power cut leaves
    /// either the record or the published message.
    fn publish_delayed(&mut self, one: &DelayedMessage, out: &mut Outbox) {
        if let Some(key) = one.key {
            let key = records::delayed_key(key.0, key.1);
            self.sessions.write_batch.push_change(RecordSpace::Sessions, key, None);
        }
        let mut draft = one.message.view().draft();
        // The Message Expiry Interval starts at publication.
        draft.at = self.sessions.context.now;
        draft.retain = draft.retain
            && self.sessions.context.options.retain_available
            && self.routing.has_room_to_retain(draft.topic, &self.sessions);
        draft.durability = self.sessions.durability_of(draft.topic);
        draft.exactly_once = needs_durable_ack(&draft);
        let mut ruled =
            self.rule_engine.run_delayed_rules(&one.by, &draft, &mut self.sessions, out);
        ruled.exactly_once = draft.exactly_once;
        // [MQTT-3.8.3-3]: No Local applies if the publisher's session is on this shard.
        let from = self.sessions.find(&one.by.client_id);
        self.retain_and_route(&ruled, from, &mut draft, out);
        self.publish_outputs(ruled, out);
    }
}

impl SessionTable {
    fn write_delayed(
        &mut self,
        one: &DelayedMessage,
        durability: Durability,
    ) -> (u8, RecordNumber) {
        let journal = &mut self.write_batch;
        let key = (kind::DELAYED_WITH_PUBLISHER, journal.allocate_number());
        let value = records::delayed_value(&one.by, one.message.view().as_bytes());
        journal.push_change(RecordSpace::Sessions, records::delayed_key(key.0, key.1), Some(value));
        if durability == Durability::Sync {
            journal.mark_urgent();
            journal.stores_routed = true;
        }
        key
    }
}

impl ShardRouting {
    /// Restores a delayed message from the store. The message was acknowledged, so no bound
    /// applies.
    pub(crate) fn restore_delayed(
        &mut self,
        by: DelayedPublisher,
        message: Message,
        key: (u8, RecordNumber),
        sessions: &mut SessionTable,
    ) {
        let due = message.view().at();
        let one = DelayedMessage { by, message, key: Some(key) };
        sessions.ledger.add_delayed(one.bytes(), (u64::MAX, u64::MAX));
        self.delayed.put(due, one);
        self.set_delayed_timer(sessions);
    }

    fn set_delayed_timer(&mut self, sessions: &mut SessionTable) {
        let Some(((due, _), _)) = self.delayed.waiting.first_key_value() else { return };
        if self.delayed.timer_at.is_none_or(|at| *due < at || at <= sessions.context.now) {
            self.delayed.timer_at = Some(*due);
            sessions.context.timers.set(*due, ShardTimer::Delayed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_a_number_of_seconds_in_front_of_a_topic() {
        assert_eq!(split_delay("$delayed/5/a/b"), Ok((5, "a/b")));
        assert_eq!(split_delay("$delayed/4294967//"), Ok((4_294_967, "/")));
        assert_eq!(split_delay("a/$delayed/5/b"), Ok((0, "a/$delayed/5/b")));
        assert_eq!(split_delay("$delayed"), Ok((0, "$delayed")));
        for wrong in ["", "5", "5/", "0/a", "4294968/a", "-1/a", "+1/a", "x/a", "/a", "1.5/a"] {
            assert_eq!(
                split_delay(&format!("{PREFIX}{wrong}")),
                Err(Refusal::DelayInvalid),
                "{wrong}"
            );
        }
        assert_eq!(split_delay("$delayed/99999999999999999999/a"), Err(Refusal::DelayInvalid));
    }
}
