//! Cached decisions of the rules on the topics to which one client publishes, so the rules are
//! evaluated once per topic and not once per message.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

#[derive(Debug, Default)]
pub(crate) struct AclDecisionCache {
    young: AclDecisionMap,
    /// Previous generation, dropped when `young` is full. A hit moves the entry to `young`.
    old: AclDecisionMap,
    /// Bytes of all cached topics.
    topic_bytes: usize,
}

type AclDecisionMap = HashMap<Box<str>, AclDecisionBits, FixedState>;

/// Decisions on one topic: a bit for each QoS and RETAIN if any rule uses them, else bit 0.
#[derive(Clone, Copy, Debug, Default)]
struct AclDecisionBits {
    asked: u8,
    allowed: u8,
}

/// Number of entries per generation. A gateway has some hundred topics.
const YOUNG_MAX: usize = 256;

impl AclDecisionCache {
    pub(crate) fn bytes(&self) -> u64 {
        let places = self.young.capacity() + self.old.capacity();
        // Hash tables are at most 7/8 full, and have one control byte per place.
        let place = (size_of::<(Box<str>, AclDecisionBits)>() + 1) * 8 / 7;
        (size_of::<AclDecisionCache>() + places * place + self.topic_bytes) as u64
    }

    #[inline]
    pub(crate) fn find(&mut self, topic: &str, manner: u8) -> Option<bool> {
        let said = |known: &AclDecisionBits| {
            (known.asked >> manner & 1 == 1).then_some(known.allowed >> manner & 1 == 1)
        };
        if let Some(known) = self.young.get(topic) {
            return said(known);
        }
        let (topic, known) = self.old.remove_entry(topic)?;
        self.make_room();
        self.young.insert(topic, known);
        said(&known)
    }

    pub(crate) fn insert(&mut self, topic: &str, manner: u8, allows: bool) {
        let known = match self.young.get_mut(topic) {
            Some(known) => known,
            None => {
                self.make_room();
                self.topic_bytes += topic.len();
                self.young.entry(topic.into()).or_default()
            }
        };
        known.asked |= 1 << manner;
        known.allowed |= u8::from(allows) << manner;
    }

    fn make_room(&mut self) {
        if self.young.len() >= YOUNG_MAX {
            self.topic_bytes -= self.old.keys().map(|topic| topic.len()).sum::<usize>();
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_publishes_to_is_known_and_no_flood_is_remembered() {
        let mut decisions = AclDecisionCache::default();
        for at in 0..10_000 {
            decisions.insert(&format!("t/{at}"), 0, at % 2 == 0);
            assert_eq!(decisions.find("t/0", 0), Some(true), "who is asked for stays: {at}");
        }
        let known: Vec<_> =
            (0..10_000).filter(|at| decisions.find(&format!("t/{at}"), 0).is_some()).collect();
        assert!(known.len() >= YOUNG_MAX && known.len() <= 2 * YOUNG_MAX, "{}", known.len());
        assert!(known.contains(&0) && known.contains(&9_999));
        let topics = || decisions.young.keys().chain(decisions.old.keys());
        assert_eq!(decisions.topic_bytes, topics().map(|topic| topic.len()).sum::<usize>());
        assert_eq!(topics().count(), known.len(), "none is there twice");
    }

    #[test]
    fn each_manner_is_its_own() {
        let mut decisions = AclDecisionCache::default();
        decisions.insert("a", 0, true);
        decisions.insert("a", 5, false);
        let says = [0, 1, 5].map(|manner| decisions.find("a", manner));
        assert_eq!(says, [Some(true), None, Some(false)]);
    }
}
