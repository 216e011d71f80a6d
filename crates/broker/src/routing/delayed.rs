//! Delayed messages: `$delayed/{seconds}/{topic}`. A message waits on its publisher's shard, and
//! also in the store if its durability demands, until it is due. Then it is published as if it had
//! just arrived.
//!
//! The publisher's permission was checked on arrival, since its connection may have ended by then.

use crate::ids::{MonotonicMs, RecordNumber};
use crate::limits::DELAY_S_MAX;
use crate::message::Message;
use crate::message::will::{DelayedMessage, DelayedPublisher};
use crate::refusal::Refusal;
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;
use crate::special_topics::DELAYED_PREFIX;
use crate::timer::{ShardTimer, turn_of};
use std::collections::BTreeMap;

/// Splits a name into the delay in seconds and the topic. The delay is 0 without the prefix
/// `$delayed/`.
pub(crate) fn split_delay(name: &str) -> Result<(u32, &str), Refusal> {
    let Some(rest) = name.strip_prefix(DELAYED_PREFIX) else { return Ok((0, name)) };
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

impl DelayedPublisher {
    pub(crate) fn len(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.len());
        let address = self.address.as_ref().map_or(0, |address| address.len());
        self.client_id.len() + user + address
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
    pub(crate) fn has_room_for(&self, one: &DelayedMessage, most: (u64, u64), percent: u8) -> bool {
        let part = |whole: u64| (u128::from(whole) * u128::from(percent)).div_ceil(100) as u64;
        let own = self.shares.get(&one.by.client_id).copied().unwrap_or_default();
        own.messages < part(most.0) && own.bytes + one.bytes() <= part(most.1)
    }

    pub(crate) fn put(&mut self, due: MonotonicMs, one: DelayedMessage) {
        let own = self.shares.entry(one.by.client_id.clone()).or_default();
        own.messages += 1;
        own.bytes += one.bytes();
        self.came += 1;
        self.waiting.insert((due, self.came), one);
    }

    pub(crate) fn take_due(&mut self, now: MonotonicMs) -> Option<DelayedMessage> {
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

    pub(crate) fn set_delayed_timer(&mut self, sessions: &mut SessionTable) {
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
    use crate::special_topics::DELAYED_PREFIX;

    #[test]
    fn a_delay_is_a_number_of_seconds_in_front_of_a_topic() {
        assert_eq!(split_delay("$delayed/5/a/b"), Ok((5, "a/b")));
        assert_eq!(split_delay("$delayed/4294967//"), Ok((4_294_967, "/")));
        assert_eq!(split_delay("a/$delayed/5/b"), Ok((0, "a/$delayed/5/b")));
        assert_eq!(split_delay("$delayed"), Ok((0, "$delayed")));
        for wrong in ["", "5", "5/", "0/a", "4294968/a", "-1/a", "+1/a", "x/a", "/a", "1.5/a"] {
            assert_eq!(
                split_delay(&format!("{DELAYED_PREFIX}{wrong}")),
                Err(Refusal::DelayInvalid),
                "{wrong}"
            );
        }
        assert_eq!(split_delay("$delayed/99999999999999999999/a"), Err(Refusal::DelayInvalid));
    }
}
