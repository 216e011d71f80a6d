//! Loop detection for rules which change topics: each turn in a ring makes another topic, so
//! messages of two turns are not equal.
//!
//! A rule which wraps a topic sends `t` as `x/t`. When the message returns, perhaps with levels
//! added by other bridges, its topic still contains `x/t` at whole levels, and the rule makes
//! `x/x/t` of it. [`RewrittenTopics`] remembers each topic made by a rule, with payload and QoS,
//! and counts how many times a topic was made of an earlier result. Clients which publish the same
//! payload to many topics never form such a chain.

use super::loops::PassingMessage;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Times which a topic may be made of an earlier result of this bridge. One more is a loop.
pub(super) const REMADE_MAX: u16 = 3;
const WINDOW: Duration = Duration::from_secs(10);
const SLOTS: usize = 2048;
/// Levels which other bridges of a ring may add in one turn, at both ends of a topic together.
const ADDED_LEVELS_MAX: usize = 8;
/// Longer topics are not searched: a growing topic was shorter in an earlier turn.
const SEARCHED_BYTES_MAX: usize = 1024;

/// Recent topics made by the rules of a bridge, by hash.
#[derive(Debug, Default)]
pub(super) struct RewrittenTopics {
    /// Keyed hasher, so a client cannot construct colliding messages.
    hasher: RandomState,
    /// Allocated for the first message whose topic changes.
    slots: Vec<RewrittenSlot>,
}

#[derive(Clone, Copy, Debug)]
struct RewrittenSlot {
    hash: u64,
    since: Option<Instant>,
    count: u16,
}

/// History of a message whose topic a rule changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RewriteCounts {
    /// Messages with this payload which passed in one direction with a changed topic, including
    /// this message.
    pub(super) equal_payloads: u16,
    /// Times which the topic was made of an earlier result of this bridge.
    pub(super) remade: u16,
}

impl RewrittenTopics {
    /// Counts a message whose topic changes. `body` is the hash of payload and QoS.
    pub(super) fn record(&mut self, message: &PassingMessage<'_>, body: u64) -> RewriteCounts {
        let (from, to) = message.topics();
        if from == to {
            return RewriteCounts::default();
        }
        if self.slots.is_empty() {
            self.slots = vec![RewrittenSlot { hash: 0, since: None, count: 0 }; SLOTS];
        }
        let PassingMessage { direction, now, .. } = *message;
        let body = self.hasher.hash_one((direction as u8, body));
        let key = |topic: &str| self.hasher.hash_one((body, topic));
        // A rule which removes levels does not make a topic grow: its result is a part of each
        // input, however often a client publishes.
        let mut remade = 0;
        if cut_topics(from).all(|topic| topic != to) {
            let made_of = cut_topics(from).filter_map(|topic| self.count(key(topic), now)).max();
            remade = made_of.map_or(0, |count| count.saturating_add(1));
            let made = key(to);
            self.set(made, now, remade);
        }
        let equal_payloads = self.count(body, now).unwrap_or(0).saturating_add(1);
        // Each message renews the time, so a steady flow never expires.
        self.set(body, now, equal_payloads);
        RewriteCounts { equal_payloads, remade }
    }

    fn count(&self, hash: u64, now: Instant) -> Option<u16> {
        let slot = &self.slots[hash as usize % SLOTS];
        let is_recent = |since: Instant| now.saturating_duration_since(since) < WINDOW;
        (slot.hash == hash && slot.since.is_some_and(is_recent)).then_some(slot.count)
    }

    fn set(&mut self, hash: u64, now: Instant, count: u16) {
        self.slots[hash as usize % SLOTS] = RewrittenSlot { hash, since: Some(now), count };
    }
}

/// Returns the topic, and the topic without up to [`ADDED_LEVELS_MAX`] levels at both ends.
fn cut_topics(topic: &str) -> impl Iterator<Item = &str> {
    let topic = Some(topic).filter(|topic| topic.len() <= SEARCHED_BYTES_MAX);
    let heads = std::iter::successors(topic, |rest| Some(rest.split_once('/')?.1));
    heads.take(ADDED_LEVELS_MAX + 1).enumerate().flat_map(|(cut, head)| {
        let tails = std::iter::successors(Some(head), |rest| Some(rest.rsplit_once('/')?.0));
        tails.take(ADDED_LEVELS_MAX + 1 - cut)
    })
}

#[cfg(test)]
mod tests {
    use super::super::loops::BridgeDirection;
    use super::*;
    use mqtt::{Properties, QoS};

    fn message<'a>(from: &'a str, to: &'a str, payload: &'a str) -> PassingMessage<'a> {
        PassingMessage {
            direction: BridgeDirection::Out,
            is_v5: false,
            topic: from,
            remote_topic: to,
            payload: payload.as_bytes(),
            qos: QoS::AtMostOnce,
            dup: false,
            properties: Properties::default(),
            now: Instant::now(),
        }
    }

    fn record(rewritten: &mut RewrittenTopics, message: &PassingMessage<'_>) -> RewriteCounts {
        let body = rewritten.hasher.hash_one(message.payload);
        rewritten.record(message, body)
    }

    #[test]
    fn topics_that_grow_at_either_end_are_counted() {
        type Turn = fn(&str) -> String;
        let turns: [Turn; 4] = [
            |topic| format!("x/{topic}"),
            |topic| format!("{topic}/x"),
            |topic| format!("a/b/{topic}/c"),
            |topic| format!("x/{topic}/y/z"),
        ];
        for other_bridge in turns {
            for rule in turns {
                let mut rewritten = RewrittenTopics::default();
                let mut topic = "site/t".to_string();
                for turn in 0..5 {
                    let made = rule(&topic);
                    let counts = record(&mut rewritten, &message(&topic, &made, "hi"));
                    assert_eq!((counts.remade, counts.equal_payloads), (turn, turn + 1), "{made}");
                    topic = other_bridge(&made);
                }
            }
        }
    }

    #[test]
    fn equal_payloads_of_other_topics_are_no_turns() {
        let mut rewritten = RewrittenTopics::default();
        for lamp in 0..1_000 {
            let topic = format!("lamp{lamp}/state");
            let counts = record(&mut rewritten, &message(&topic, &format!("site/{topic}"), "on"));
            assert_eq!(counts.remade, 0);
        }
        assert_eq!(record(&mut rewritten, &message("t", "t", "on")), RewriteCounts::default());
    }

    #[test]
    fn a_rule_that_takes_levels_away_stops_no_repeated_message() {
        let mut rewritten = RewrittenTopics::default();
        for _ in 0..100 {
            assert_eq!(record(&mut rewritten, &message("site/down/x", "down/x", "x")).remade, 0);
            assert_eq!(record(&mut rewritten, &message("up/x", "site/up/x", "x")).remade, 0);
        }
    }

    #[test]
    fn an_equal_topic_with_another_payload_is_no_turn() {
        let mut rewritten = RewrittenTopics::default();
        record(&mut rewritten, &message("t", "x/t", "1"));
        assert_eq!(record(&mut rewritten, &message("x/t", "x/x/t", "2")).remade, 0);
    }

    #[test]
    fn a_long_topic_is_not_searched() {
        assert_eq!(cut_topics(&"/".repeat(SEARCHED_BYTES_MAX)).count(), 45);
        assert_eq!(cut_topics(&"/".repeat(SEARCHED_BYTES_MAX + 1)).count(), 0);
        assert_eq!(cut_topics("t").collect::<Vec<_>>(), ["t"]);
    }
}
