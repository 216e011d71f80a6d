//! Topic aliases towards one client: the topics sent most often get the alias numbers that the
//! client allows. Only clients that announced a Topic Alias Maximum have an [`OutboundAliases`].

use crate::limits::NONE;
use hashbrown::HashMap;

#[derive(Debug)]
pub(crate) struct OutboundAliases {
    /// Assigned topics: alias `n` is at index `n - 1`.
    topics: Vec<AssignedAlias>,
    by_topic: HashMap<Box<str>, u32, foldhash::fast::FixedState>,
    /// Counts of recent topics without an alias: a cache in which the rarer topic is overwritten on
    /// a collision.
    candidates: [AliasCandidate; CANDIDATES],
    max: u16,
    sent: u32,
    topic_bytes: usize,
    counted: i64,
}

#[derive(Debug)]
struct AssignedAlias {
    topic: Box<str>,
    hits: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct AliasCandidate {
    hash: u32,
    hits: u32,
}

const CANDIDATES: usize = 64;
/// Number of messages after which all counts are halved, so recent messages weigh more.
const DECAY_EVERY: u32 = 4096;

/// Encoding of a topic in an outgoing PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasChoice {
    Known(u16),
    /// The alias is sent in addition to the topic, for use in later messages.
    New(u16),
    None,
}

impl OutboundAliases {
    pub(crate) fn new(max: u16) -> OutboundAliases {
        OutboundAliases {
            topics: Vec::new(),
            by_topic: HashMap::default(),
            candidates: [AliasCandidate::default(); CANDIDATES],
            max,
            sent: 0,
            topic_bytes: 0,
            counted: 0,
        }
    }

    /// Returns by how many bytes the table has grown since the last call; negative if the table has
    /// shrunk.
    pub(crate) fn growth(&mut self) -> i64 {
        let known = self.topics.len() * size_of::<AssignedAlias>() * 4;
        let bytes = size_of::<OutboundAliases>() + known + 2 * self.topic_bytes;
        bytes as i64 - std::mem::replace(&mut self.counted, bytes as i64)
    }

    /// Returns the sum of all values that [`growth`](Self::growth) has returned.
    pub(crate) fn counted(&self) -> i64 {
        self.counted
    }

    /// Frees the table. Aliases already sent stay valid for the client but are not used again.
    pub(crate) fn retire(&mut self) {
        self.topics = Vec::new();
        self.by_topic = HashMap::default();
        (self.topic_bytes, self.max) = (0, 0);
    }

    /// Chooses the encoding of the topic of the next message [MQTT-3.3.2-11]. With `may_learn`
    /// false no new alias is assigned. A topic needs two hits for a free number, and more hits than
    /// the rarest assigned topic to replace a topic.
    pub(crate) fn choose(&mut self, topic: &str, may_learn: bool) -> AliasChoice {
        self.decay_counts();
        if let Some(&at) = self.by_topic.get(topic) {
            self.topics[at as usize].hits += 1;
            return AliasChoice::Known(at as u16 + 1);
        }
        // An alias replaces topic bytes by three bytes of property.
        if topic.len() <= 3 || !may_learn {
            return AliasChoice::None;
        }
        let hits = self.count_candidate(topic);
        if hits < 2 || self.max == 0 {
            return AliasChoice::None;
        }
        // [MQTT-3.1.2-26]
        if self.topics.len() < usize::from(self.max) {
            self.topics.push(AssignedAlias { topic: topic.into(), hits });
            self.topic_bytes += topic.len();
            let at = self.topics.len() as u32 - 1;
            self.by_topic.insert(topic.into(), at);
            return AliasChoice::New(at as u16 + 1);
        }
        let rarest = self.topics.iter().enumerate().min_by_key(|(_, known)| known.hits);
        let (at, least) = rarest.map_or((NONE, u32::MAX), |(at, known)| (at as u32, known.hits));
        if hits <= least {
            return AliasChoice::None;
        }
        let gone = std::mem::replace(
            &mut self.topics[at as usize],
            AssignedAlias { topic: topic.into(), hits },
        );
        self.topic_bytes = self.topic_bytes + topic.len() - gone.topic.len();
        self.by_topic.remove(&gone.topic);
        self.by_topic.insert(topic.into(), at);
        AliasChoice::New(at as u16 + 1)
    }

    /// Counts a topic without alias. Returns the number of recent messages with the topic.
    fn count_candidate(&mut self, topic: &str) -> u32 {
        use std::hash::BuildHasher;
        let hash = self.by_topic.hasher().hash_one(topic) as u32;
        // Each topic has two places, because alternating topics in a single place would evict each
        // other.
        let (one, two) = (hash as usize % CANDIDATES, (hash >> 16) as usize % CANDIDATES);
        let at_one = self.candidates[one];
        let stays = at_one.hash == hash
            || (self.candidates[two].hash != hash && at_one.hits <= self.candidates[two].hits);
        let place = &mut self.candidates[if stays { one } else { two }];
        if place.hash != hash {
            *place = AliasCandidate { hash, hits: 0 };
        }
        place.hits += 1;
        place.hits
    }

    fn decay_counts(&mut self) {
        self.sent += 1;
        if self.sent == DECAY_EVERY {
            self.sent = 0;
            self.topics.iter_mut().for_each(|known| known.hits /= 2);
            self.candidates.iter_mut().for_each(|candidate| candidate.hits /= 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_gets_its_alias_the_second_time_and_is_replaced_by_a_more_frequent_one() {
        let mut aliases = OutboundAliases::new(1);
        assert_eq!(aliases.choose("first/topic", true), AliasChoice::None);
        assert_eq!(aliases.choose("first/topic", true), AliasChoice::New(1));
        assert_eq!(aliases.choose("first/topic", true), AliasChoice::Known(1));
        for _ in 0..3 {
            assert_eq!(aliases.choose("second/topic", true), AliasChoice::None);
        }
        assert_eq!(aliases.choose("second/topic", true), AliasChoice::New(1));
        assert_eq!(aliases.choose("first/topic", true), AliasChoice::None);
    }

    #[test]
    fn no_alias_is_above_the_maximum() {
        let mut aliases = OutboundAliases::new(4);
        for round in 0..20_000_u32 {
            let topic = format!("topic/number/{}", round * round % 37);
            if let AliasChoice::Known(alias) | AliasChoice::New(alias) =
                aliases.choose(&topic, true)
            {
                assert!((1..=4).contains(&alias));
            }
        }
    }

    #[test]
    fn few_topics_in_turn_all_get_their_alias() {
        let mut missed = 0;
        for round in 0..200 {
            let mut aliases = OutboundAliases::new(3);
            let topics: Vec<String> = (0..3).map(|at| format!("turn/{round}/{at}")).collect();
            for topic in topics.iter().cycle().take(9) {
                aliases.choose(topic, true);
            }
            let known = |topic: &&String| aliases.by_topic.contains_key(topic.as_str());
            missed += 3 - topics.iter().filter(known).count();
        }
        // With one place per topic about twenty topics would miss.
        assert!(missed < 10, "{missed} of 600");
    }
}
