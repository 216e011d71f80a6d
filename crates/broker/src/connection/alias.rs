//! Topic aliases towards one client: the topics sent to it most often get the numbers that it
//! allows. Only clients that announced Topic Alias Maximum have one of these.

use crate::limits::NONE;
use hashbrown::HashMap;

#[derive(Debug)]
pub(crate) struct OutboundAliases {
    /// Alias `n` stands at `n - 1`.
    topics: Vec<AssignedAlias>,
    by_topic: HashMap<Box<str>, u32, foldhash::fast::FixedState>,
    /// Topics without an alias, with how often they were sent lately: a small cache that
    /// collisions overwrite, the rarer one first.
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
/// After this many messages all counts are halved, so that old habits fade.
const DECAY_EVERY: u32 = 4096;

/// Encoding of a topic in an outgoing PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasChoice {
    Known(u16),
    /// Sent beside the topic, for the next time.
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

    /// Returns by how many bytes the table has grown since the last call; negative if it has
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

    /// Gives up the numbers: what the client knows already stays good, we only use it no more.
    pub(crate) fn retire(&mut self) {
        self.topics = Vec::new();
        self.by_topic = HashMap::default();
        (self.topic_bytes, self.max) = (0, 0);
    }

    /// Decides for the message that is sent now [MQTT-3.3.2-11]. A new alias only where it may be
    /// remembered.
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

    /// Counts a topic without alias and says how often it was seen.
    fn count_candidate(&mut self, topic: &str) -> u32 {
        use std::hash::BuildHasher;
        let hash = self.by_topic.hasher().hash_one(topic) as u32;
        // Two places each: topics that take turns in one would push each other out for ever.
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
        // With one place each about twenty would be.
        assert!(missed < 10, "{missed} of 600");
    }
}
