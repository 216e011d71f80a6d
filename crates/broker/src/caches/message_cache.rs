//! The contents of one cache: the newest messages of each topic, and the order of last writes. One
//! shard holds all of it, so the bounds are exact.

use crate::ids::MonotonicMs;
use crate::interface::cache_message::{CacheMatches, CacheQuery};
use crate::limits::{CACHE_ANSWER_BYTES_MAX, CACHE_ANSWER_MESSAGES_MAX};
use crate::memory::cost;
use crate::message::Message;
use crate::options::cache_config::CacheConfig;
use crate::routing::topics::is_wildcard;
use mqtt::filter_matches;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The contents of one cache, on its owner shard.
#[derive(Debug)]
pub(super) struct MessageCache {
    pub(super) cache: CacheConfig,
    lines: BTreeMap<Arc<str>, CachedTopic>,
    /// Topics by the number of their newest message, for the eviction of the topic written least
    /// recently.
    written: BTreeMap<u64, Arc<str>>,
    /// Number of the newest message. Messages are numbered in the order of arrival.
    number: u64,
    messages: u64,
    pub(super) bytes: u64,
}

/// The messages of a topic, oldest first, at least one.
#[derive(Debug, Default)]
struct CachedTopic {
    messages: VecDeque<(u64, Message)>,
}

impl CachedTopic {
    fn last(&self) -> Option<&(u64, Message)> {
        self.messages.back()
    }
}

impl CacheMatches {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn message_bytes(message: &Message) -> u64 {
    message.bytes() as u64 + cost::CACHED
}

fn topic_bytes(topic: &str) -> u64 {
    topic.len() as u64 + cost::CACHED_TOPIC
}

fn is_older(message: &Message, age_s: u32, now: MonotonicMs) -> bool {
    message.view().is_older(age_s, now)
}

impl MessageCache {
    pub(crate) fn new(cache: CacheConfig) -> MessageCache {
        let (lines, written) = (BTreeMap::new(), BTreeMap::new());
        MessageCache { cache, lines, written, number: 0, messages: 0, bytes: 0 }
    }

    /// Adds a message. Beyond the bounds, the topics written least recently are removed. If
    /// `may_grow` is false, the cache must not exceed its present size.
    pub(crate) fn put(&mut self, message: Message, now: MonotonicMs, may_grow: bool) {
        let most = if may_grow { self.cache.bytes_max } else { self.bytes };
        let bytes_max = most.min(self.cache.bytes_max);
        // A message above the bounds evicts no other topic, but older messages of its topic are
        // outdated.
        if message_bytes(&message) + topic_bytes(message.topic()) > bytes_max {
            let before = self.messages;
            self.drop_topic(message.topic());
            self.cache.metrics.evicted.fetch_add(before - self.messages + 1, Relaxed);
            return self.update_metrics();
        }
        self.number += 1;
        let known = self.lines.get_mut(message.topic());
        let topic = match known.as_ref().and_then(|line| line.last()) {
            Some((last, _)) => self.written.remove(last),
            None => None,
        };
        let topic = topic.unwrap_or_else(|| message.topic().into());
        self.bytes += message_bytes(&message);
        self.messages += 1;
        match known {
            Some(line) => line.messages.push_back((self.number, message)),
            None => {
                self.bytes += topic_bytes(&topic);
                let mut line = CachedTopic { messages: VecDeque::with_capacity(1) };
                line.messages.push_back((self.number, message));
                self.lines.insert(topic.clone(), line);
            }
        }
        self.written.insert(self.number, topic.clone());
        self.trim_topic(&topic, now);
        self.evict(bytes_max);
        self.update_metrics();
    }

    /// Removes the messages of a topic beyond `messages_max` and `age_s_max`, except the newest.
    fn trim_topic(&mut self, topic: &str, now: MonotonicMs) {
        let Some(line) = self.lines.get_mut(topic) else { return };
        let (most, age_s) = (self.cache.messages_max as usize, self.cache.age_s_max);
        let is_too_old = |line: &CachedTopic| {
            let first = line.messages.front().filter(|_| line.messages.len() > 1);
            first.is_some_and(|(_, message)| is_older(message, age_s, now))
        };
        while line.messages.len() > most || is_too_old(line) {
            let Some((_, message)) = line.messages.pop_front() else { return };
            self.bytes -= message_bytes(&message);
            self.messages -= 1;
        }
    }

    fn evict(&mut self, bytes_max: u64) {
        let mut evicted = 0;
        let topics_max = self.cache.topics_max as usize;
        while self.lines.len() > topics_max || self.bytes > bytes_max {
            let before = self.messages;
            // The only topic of a cache makes room with its own older messages.
            let alone = self.lines.len() == 1;
            let line = self
                .lines
                .first_entry()
                .filter(|first| alone && topics_max > 0 && first.get().messages.len() > 1);
            match line {
                Some(mut line) => {
                    if let Some((_, message)) = line.get_mut().messages.pop_front() {
                        self.bytes -= message_bytes(&message);
                        self.messages -= 1;
                    }
                }
                None => self.drop_oldest_topic(),
            }
            evicted += before - self.messages;
        }
        self.cache.metrics.evicted.fetch_add(evicted, Relaxed);
    }

    /// Removes the topic written least recently.
    fn drop_oldest_topic(&mut self) {
        if let Some((_, topic)) = self.written.pop_first() {
            self.drop_topic(&topic);
        }
    }

    fn drop_topic(&mut self, topic: &str) {
        let Some(line) = self.lines.remove(topic) else { return };
        if let Some((last, _)) = line.last() {
            self.written.remove(last);
        }
        self.messages -= line.messages.len() as u64;
        let bytes = line.messages.iter().map(|(_, message)| message_bytes(message)).sum::<u64>();
        self.bytes -= bytes + topic_bytes(topic);
    }

    /// Removes topics whose newest message exceeds `age_s_max`, at most `most` topics.
    pub(super) fn drop_aged(&mut self, now: MonotonicMs, most: usize) {
        let age_s = self.cache.age_s_max;
        for _ in 0..most {
            let first = self.written.first_key_value().and_then(|(_, topic)| self.lines.get(topic));
            let newest = first.and_then(|line| line.last());
            if !newest.is_some_and(|(_, message)| is_older(message, age_s, now)) {
                break;
            }
            self.drop_oldest_topic();
        }
        self.update_metrics();
    }

    /// Whether `age_s_max` applies to a stored message.
    pub(super) fn expires_messages(&self) -> bool {
        self.cache.age_s_max != u32::MAX && !self.lines.is_empty()
    }

    /// Applies new bounds and filters of the cache after a reload.
    pub(super) fn reconfigure(&mut self, cache: &CacheConfig, now: MonotonicMs) {
        let others = self.cache.filters != cache.filters;
        self.cache = cache.clone();
        let topics: Vec<Arc<str>> = self.lines.keys().cloned().collect();
        for topic in topics {
            match others && !self.cache.matches_topic(&topic) {
                true => self.drop_topic(&topic),
                false => self.trim_topic(&topic, now),
            }
        }
        self.evict(self.cache.bytes_max);
        self.update_metrics();
    }

    fn update_metrics(&self) {
        let metrics = &self.cache.metrics;
        metrics.topics.store(self.lines.len() as u64, Relaxed);
        metrics.messages.store(self.messages, Relaxed);
        metrics.bytes.store(self.bytes, Relaxed);
    }

    /// Continues a query, by at most `steps` topics and messages. Returns whether the query is
    /// complete.
    pub(super) fn collect_matches(
        &self,
        wanted: &CacheQuery,
        gathered: &mut CacheMatches,
        now: MonotonicMs,
        steps: &mut u32,
    ) -> bool {
        let range = TopicRange::of_filter(&wanted.filter);
        let start = match (&gathered.after, &wanted.from) {
            (Some(after), _) => Bound::Excluded(&**after),
            (None, Some((_, topic))) if **topic > *range.first => Bound::Included(&**topic),
            (None, _) => Bound::Included(range.first),
        };
        for (topic, line) in self.lines.range::<str, _>((start, Bound::Unbounded)) {
            if !range.includes(topic) {
                break;
            }
            let Some(left) = steps.checked_sub(1) else { return false };
            *steps = left;
            gathered.after = Some(topic.clone());
            if !wanted.matches_topic(topic) {
                continue;
            }
            let (looked, has_room) = self.collect_topic(wanted, gathered, topic, line, now);
            *steps = steps.saturating_sub(looked);
            if !has_room {
                break;
            }
        }
        true
    }

    /// Collects matches of a topic. Returns how many messages were examined, and whether the answer
    /// has room for more.
    fn collect_topic(
        &self,
        wanted: &CacheQuery,
        gathered: &mut CacheMatches,
        topic: &Arc<str>,
        line: &CachedTopic,
        now: MonotonicMs,
    ) -> (u32, bool) {
        let mut looked = 0;
        let fits = |(_, message): &&(u64, Message)| {
            looked += 1;
            let at = message.view().at().0;
            wanted.after_ms.is_none_or(|after| at > after)
                && wanted.before_ms.is_none_or(|before| at < before)
                && !message.is_expired(now)
                && !is_older(message, self.cache.age_s_max, now)
        };
        let newest = line.messages.iter().rev().filter(fits).take(wanted.messages_max as usize);
        let mut found: Vec<&(u64, Message)> = newest.collect();
        if let Some((number, from)) = &wanted.from
            && **from == **topic
        {
            found.retain(|(own, _)| own > number);
        }
        for (number, message) in found.into_iter().rev() {
            let bytes = gathered.bytes + message.bytes();
            let is_first = gathered.messages.is_empty();
            if !is_first
                && (gathered.messages.len() == CACHE_ANSWER_MESSAGES_MAX
                    || bytes > CACHE_ANSWER_BYTES_MAX)
            {
                gathered.next = gathered.last.take();
                return (looked, false);
            }
            gathered.bytes = bytes;
            gathered.last = Some((*number, (&**topic).into()));
            gathered.messages.push(message.clone());
        }
        (looked, true)
    }
}

impl CacheQuery {
    /// Whether a topic matches. The topic equal to the namespace's own name is outside of the
    /// namespace, and its clients do not receive topics which begin with `$` there: see
    /// `SessionTable::switch_namespace`.
    pub(crate) fn matches_topic(&self, topic: &str) -> bool {
        let said = topic.as_bytes().get(usize::from(self.prefix_len));
        let is_theirs = self.prefix_len == 0 || said.is_some_and(|first| *first != b'$');
        is_theirs && filter_matches(&self.filter, topic)
    }
}

/// Range of topics, in order, which contains all topics a filter can match.
struct TopicRange<'a> {
    first: &'a str,
    /// Common prefix of the topics, except for the first.
    front: &'a str,
}

impl TopicRange<'_> {
    fn of_filter(filter: &str) -> TopicRange<'_> {
        if !is_wildcard(filter) {
            return TopicRange { first: filter, front: filter };
        }
        let front = filter.split(['+', '#']).next().unwrap_or_default();
        // `a/#` matches `a` too [MQTT-4.7.1-1].
        TopicRange { first: front.strip_suffix('/').unwrap_or(front), front }
    }

    fn includes(&self, topic: &str) -> bool {
        topic < self.front || topic.starts_with(self.front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::cache_message::{CacheMatches, CacheQuery};
    use crate::message::IncomingPublish;

    fn kept(messages_max: u32, topics_max: u32, bytes_max: u64) -> MessageCache {
        let made =
            CacheConfig::parse("c", &["#".to_string()], messages_max, topics_max, bytes_max, 60);
        MessageCache::new(made.expect("it is a cache"))
    }

    pub(crate) fn put(kept: &mut MessageCache, topic: &str, payload: &str, at: u64) {
        let message =
            Message::new(&IncomingPublish::new(topic, payload.as_bytes(), MonotonicMs(at)));
        kept.put(message, MonotonicMs(at), true);
    }

    fn wanted(filter: &str) -> CacheQuery {
        let filter = filter.into();
        let (after_ms, before_ms, from) = (None, None, None);
        CacheQuery { filter, prefix_len: 0, messages_max: 1000, after_ms, before_ms, from }
    }

    /// Topics and payloads of all answers to a query, with `steps` steps per call of
    /// `collect_matches`.
    fn read(kept: &MessageCache, wanted: &CacheQuery, steps: u32) -> Vec<String> {
        let (mut all, mut wanted) = (Vec::new(), wanted.clone());
        loop {
            let mut gathered = CacheMatches::default();
            while !kept.collect_matches(&wanted, &mut gathered, MonotonicMs(0), &mut steps.clone())
            {
            }
            let text = |message: &Message| {
                format!("{} {}", message.topic(), String::from_utf8_lossy(message.payload()))
            };
            all.extend(gathered.messages.iter().map(text));
            match gathered.next {
                Some(next) => wanted.from = Some(next),
                None => return all,
            }
        }
    }

    fn check(kept: &MessageCache) {
        let messages = kept.lines.values().map(|line| line.messages.len() as u64).sum::<u64>();
        let line = |(topic, line): (&Arc<str>, &CachedTopic)| {
            let own = line.messages.iter().map(|(_, message)| message_bytes(message)).sum::<u64>();
            assert!(!line.messages.is_empty(), "{topic} is empty");
            own + topic_bytes(topic)
        };
        assert_eq!((kept.messages, kept.bytes), (messages, kept.lines.iter().map(line).sum()));
        assert_eq!(kept.written.len(), kept.lines.len());
        for (number, topic) in &kept.written {
            assert_eq!(kept.lines[topic].last().map(|(last, _)| last), Some(number));
        }
    }

    #[test]
    fn a_filter_finds_what_it_matches_in_the_order_of_topics() {
        let topics = ["a", "a!", "a/b", "a/b/c", "a-1", "ab", "b/", "/", "b//", "x/y/z", "a/c"];
        let mut kept = kept(1, 100, 1 << 20);
        topics.iter().for_each(|topic| put(&mut kept, topic, "x", 0));
        check(&kept);
        for filter in ["#", "+", "a/#", "a/+", "+/b", "+/b/#", "a", "/", "/+", "b/+", "+/+/+", "q"]
        {
            let mut expected: Vec<String> = topics
                .iter()
                .filter(|topic| filter_matches(filter, topic))
                .map(|topic| format!("{topic} x"))
                .collect();
            expected.sort_unstable();
            for steps in [1, 2, 3, 1000] {
                assert_eq!(read(&kept, &wanted(filter), steps), expected, "{filter}, {steps}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_into_one_answer_comes_in_the_next() {
        let mut kept = kept(700, 100, 1 << 22);
        let mut expected = Vec::new();
        for topic in ["a", "b", "c"] {
            for at in 0..700 {
                put(&mut kept, topic, &at.to_string(), at);
                expected.push(format!("{topic} {at}"));
            }
        }
        let mut gathered = CacheMatches::default();
        assert!(kept.collect_matches(&wanted("#"), &mut gathered, MonotonicMs(0), &mut 2000));
        assert_eq!(gathered.messages.len(), CACHE_ANSWER_MESSAGES_MAX);
        assert_eq!(gathered.next, Some((700 + 300, "b".into())));
        assert_eq!(read(&kept, &wanted("#"), 1000), expected);
        let large = "x".repeat(CACHE_ANSWER_BYTES_MAX);
        put(&mut kept, "large/1", &large, 0);
        assert!(!read(&kept, &wanted("large/#"), 1000).is_empty(), "one always fits");
    }

    #[test]
    fn a_message_that_is_looked_at_is_a_step_as_a_topic_is() {
        let mut kept = kept(100, 100, 1 << 22);
        for topic in 0..20 {
            (0..100).for_each(|at| put(&mut kept, &topic.to_string(), "x", at));
        }
        let steps_of = |wanted: &CacheQuery| {
            let (mut gathered, mut rounds, mut left) = (CacheMatches::default(), 0, 500);
            while !kept.collect_matches(wanted, &mut gathered, MonotonicMs(0), &mut left) {
                (rounds, left) = (rounds + 1, 500);
            }
            (gathered.messages.len(), rounds, left)
        };
        // Five topics per round, each with all of its messages.
        let late = CacheQuery { after_ms: Some(1000), ..wanted("#") };
        assert_eq!(steps_of(&late), (0, 3, 0));
        let newest = CacheQuery { messages_max: 1, ..wanted("#") };
        assert_eq!(steps_of(&newest), (20, 0, 500 - 2 * 20));
    }

    #[test]
    fn the_topic_that_was_written_longest_ago_goes_first() {
        let mut kept = kept(2, 3, 1 << 20);
        for (at, topic) in ["a", "b", "c", "a", "d"].iter().enumerate() {
            put(&mut kept, topic, &at.to_string(), 0);
            check(&kept);
        }
        assert_eq!(read(&kept, &wanted("#"), 9), ["a 0", "a 3", "c 2", "d 4"]);
        let evicted = || kept.cache.metrics.evicted.load(Relaxed);
        assert_eq!(evicted(), 1);
    }

    #[test]
    fn bytes_are_bounded_and_a_topic_that_is_alone_gives_up_its_own() {
        let one =
            message_bytes(&Message::new(&IncomingPublish::new("a", &[0; 1000], MonotonicMs(0))));
        let mut kept = kept(10, 10, 3 * one + topic_bytes("a"));
        let payload = "x".repeat(1000);
        (0..5).for_each(|at| put(&mut kept, "a", &payload, at));
        check(&kept);
        assert_eq!((kept.messages, kept.cache.metrics.evicted.load(Relaxed)), (3, 2));
        put(&mut kept, "b", "small", 9);
        check(&kept);
        assert_eq!(read(&kept, &wanted("#"), 9), ["b small"]);
        // A message above the bounds is not stored, and removes the older messages of its topic.
        put(&mut kept, "c", "other", 9);
        put(&mut kept, "b", &"x".repeat(10_000), 9);
        check(&kept);
        assert_eq!(read(&kept, &wanted("#"), 9), ["c other"]);
    }

    #[test]
    fn what_is_too_old_is_freed() {
        let mut kept = kept(2, 100, 1 << 20);
        for (topic, at) in [("a", 0), ("b", 1_000), ("c", 2_000), ("a", 60_500)] {
            put(&mut kept, topic, "x", at);
            check(&kept);
        }
        assert_eq!(
            (kept.messages, kept.expires_messages()),
            (3, true),
            "the first of a went with the second"
        );
        kept.drop_aged(MonotonicMs(62_000), 1);
        assert_eq!(kept.messages, 2, "no more at a time than that");
        kept.drop_aged(MonotonicMs(62_000), 9);
        check(&kept);
        assert_eq!(read(&kept, &wanted("#"), 9), ["a x"]);
        kept.drop_aged(MonotonicMs(120_500), 9);
        assert_eq!((kept.messages, kept.bytes, kept.expires_messages()), (0, 0, false));
    }

    #[test]
    fn while_memory_is_scarce_it_does_not_grow() {
        let mut kept = kept(1, 100, 1 << 20);
        ["a", "b", "c"].iter().for_each(|topic| put(&mut kept, topic, "1", 0));
        let before = kept.bytes;
        kept.put(
            Message::new(&IncomingPublish::new("d", b"2", MonotonicMs(0))),
            MonotonicMs(0),
            false,
        );
        check(&kept);
        assert_eq!(kept.bytes, before);
        assert_eq!(read(&kept, &wanted("#"), 9), ["b 1", "c 1", "d 2"]);
    }
}
