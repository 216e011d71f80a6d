//! Cached decisions of the authorization server for one session: valid for `cache_ms`, and in any
//! case for the packet that caused the request.

use crate::access_rules::acl_rules::AclAction;
use crate::ids::MonotonicMs;
use crate::options::client_groups::AuthzOptions;
use crate::permissions::access_check::AccessCheck;
use crate::permissions::client_permissions::TOPIC_BYTES_MAX;

#[derive(Debug, Default)]
pub(crate) struct AuthzCache {
    /// Decisions valid for `cache_ms`, sorted by topic.
    cached: Vec<AuthzCacheEntry>,
    /// Decisions for the packet to be read next, sorted by topic.
    for_packet: Vec<AuthzCacheEntry>,
    /// Whether the packet has been read, so `for_packet` is out of date.
    is_read: bool,
    /// Number of requests for the packet.
    question_count: usize,
    /// Bytes of all topics in both lists.
    topic_bytes: usize,
    /// Time at which the `ShardTimer::AuthzDeadline` of the connection fires.
    pub(crate) timer_at: Option<MonotonicMs>,
}

#[derive(Debug)]
struct AuthzCacheEntry {
    topic: Box<str>,
    until: MonotonicMs,
    /// The action, and QoS and RETAIN if the server's parameters use them.
    manner: u8,
    allows: bool,
}

/// Number of cached decisions per session; a gateway has some hundred topics. The decision with the
/// earliest end makes room.
const KEPT_MAX: usize = 1_024;

impl AuthzCache {
    pub(crate) fn bytes(&self) -> u64 {
        let lists =
            (self.cached.capacity() + self.for_packet.capacity()) * size_of::<AuthzCacheEntry>();
        (size_of::<AuthzCache>() + lists + self.topic_bytes) as u64
    }

    pub(crate) fn find(
        &self,
        wish: &AccessCheck<'_>,
        asks: AuthzOptions,
        now: MonotonicMs,
    ) -> Option<bool> {
        let manner = check_key(wish, asks);
        let kept = find_entry(&self.cached, wish.topic, manner).ok().map(|at| &self.cached[at]);
        let fresh =
            || find_entry(&self.for_packet, wish.topic, manner).ok().map(|at| &self.for_packet[at]);
        kept.filter(|said| now < said.until).or_else(fresh).map(|said| said.allows)
    }

    /// Stores a decision. With `keeps` false, or a topic above `TOPIC_BYTES_MAX`, the decision is
    /// valid for one packet only.
    pub(crate) fn store_decision(
        &mut self,
        wish: &AccessCheck<'_>,
        asks: AuthzOptions,
        now: MonotonicMs,
        allows: bool,
        keeps: bool,
    ) {
        let keeps = keeps && asks.cache_ms > 0 && wish.topic.len() <= TOPIC_BYTES_MAX;
        let until = MonotonicMs(now.0 + u64::from(asks.cache_ms));
        let manner = check_key(wish, asks);
        if keeps && self.cached.len() >= KEPT_MAX {
            self.make_room(now);
        }
        let list = if keeps { &mut self.cached } else { &mut self.for_packet };
        match find_entry(list, wish.topic, manner) {
            Ok(at) => (list[at].until, list[at].allows) = (until, allows),
            Err(at) => {
                list.insert(
                    at,
                    AuthzCacheEntry { topic: wish.topic.into(), until, manner, allows },
                );
                self.topic_bytes += wish.topic.len();
            }
        }
    }

    fn make_room(&mut self, now: MonotonicMs) {
        self.cached.retain(|said| now < said.until);
        if self.cached.len() >= KEPT_MAX
            && let Some(first) = (0..self.cached.len()).min_by_key(|at| self.cached[*at].until)
        {
            self.cached.remove(first);
        }
        self.recount_bytes();
    }

    /// Returns the number of requests made for the packet that is read next.
    pub(crate) fn question_count(&self) -> usize {
        self.question_count
    }

    /// Adds `count` requests.
    pub(crate) fn count_questions(&mut self, count: usize) {
        self.question_count += count;
    }

    /// Drops the decisions for the previous packet once that packet has been read.
    pub(crate) fn begin_packet(&mut self) {
        if self.is_read {
            (self.is_read, self.question_count) = (false, 0);
            if !self.for_packet.is_empty() {
                self.for_packet = Vec::new();
                self.recount_bytes();
            }
        }
    }

    /// Marks the packet as read.
    pub(crate) fn end_packet(&mut self) {
        self.is_read = true;
    }

    pub(crate) fn clear(&mut self) {
        *self = AuthzCache { timer_at: self.timer_at, ..AuthzCache::default() };
    }

    fn recount_bytes(&mut self) {
        self.topic_bytes =
            self.cached.iter().chain(&self.for_packet).map(|said| said.topic.len()).sum();
    }
}

fn find_entry(list: &[AuthzCacheEntry], topic: &str, manner: u8) -> Result<usize, usize> {
    list.binary_search_by(|said| (&*said.topic, said.manner).cmp(&(topic, manner)))
}

/// Returns the key of a check within a topic. QoS and RETAIN count only if parameters use them.
fn check_key(wish: &AccessCheck<'_>, asks: AuthzOptions) -> u8 {
    let manner = match asks.uses_qos_or_retain {
        true => wish.qos | u8::from(wish.retain) << 2,
        false => 0,
    };
    manner | u8::from(wish.action == AclAction::Subscribe) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: AuthzOptions = AuthzOptions { cache_ms: 1_000, uses_qos_or_retain: false };

    fn take(answers: &mut AuthzCache, topic: &str, now: u64, keeps: bool) {
        answers.store_decision(
            &AccessCheck::publish(topic, 0, false),
            ASKS,
            MonotonicMs(now),
            true,
            keeps,
        );
    }

    fn knows(answers: &AuthzCache, topic: &str, now: u64) -> bool {
        answers.find(&AccessCheck::publish(topic, 0, false), ASKS, MonotonicMs(now)).is_some()
    }

    #[test]
    fn a_gateway_keeps_the_answers_of_its_topics_and_no_flood_keeps_more() {
        let mut answers = AuthzCache::default();
        for at in 0..10_000 {
            take(&mut answers, &format!("t/{at}"), 10 + at / 100, true);
            assert!(knows(&answers, &format!("t/{at}"), 500), "{at}");
        }
        assert_eq!(answers.cached.len(), KEPT_MAX);
        let known = (0..10_000).filter(|at| knows(&answers, &format!("t/{at}"), 500));
        assert!(known.eq(10_000 - KEPT_MAX as u64..10_000), "the newest stay");
        let topics: usize = answers.cached.iter().map(|said| said.topic.len()).sum();
        assert_eq!(answers.topic_bytes, topics);
        // Expired entries make room for several new ones at once.
        take(&mut answers, "x", 2_000, true);
        assert_eq!((answers.cached.len(), answers.topic_bytes), (1, 1));
        assert!(!knows(&answers, "x", 3_000) && knows(&answers, "x", 2_999));
    }

    #[test]
    fn what_was_not_kept_is_for_one_packet() {
        let mut answers = AuthzCache::default();
        take(&mut answers, "a", 0, false);
        answers.begin_packet();
        assert!(knows(&answers, "a", 100_000), "however long it was held");
        answers.end_packet();
        answers.begin_packet();
        assert!(!knows(&answers, "a", 0));
        assert_eq!(answers.topic_bytes, 0);
        take(&mut answers, &"long/".repeat(100), 0, true);
        assert_eq!((answers.cached.len(), answers.for_packet.len()), (0, 1));
    }

    #[test]
    fn an_answer_is_for_what_was_asked() {
        let particular = AuthzOptions { uses_qos_or_retain: true, ..ASKS };
        for (asks, other_qos) in [(ASKS, true), (particular, false)] {
            let mut answers = AuthzCache::default();
            answers.store_decision(
                &AccessCheck::publish("a", 0, false),
                asks,
                MonotonicMs(0),
                true,
                true,
            );
            let find = |wish: AccessCheck<'_>| answers.find(&wish, asks, MonotonicMs(1)).is_some();
            assert!(find(AccessCheck::publish("a", 0, false)));
            assert_eq!(find(AccessCheck::publish("a", 1, false)), other_qos);
            assert_eq!(find(AccessCheck::publish("a", 0, true)), other_qos);
            assert!(
                !find(AccessCheck::subscribe("a", 0))
                    && !find(AccessCheck::publish("a/b", 0, false))
            );
        }
    }
}
