//! What one peer wants: beginnings of messages, each as often as it asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};

#[derive(Debug, Default)]
pub struct Topics {
    prefixes: BTreeMap<Vec<u8>, u32>,
    /// Those that begin with no other: one look tells whether a message is wanted, however many
    /// there are. Of two that begin alike the shorter is the one that counts.
    least: BTreeSet<Vec<u8>>,
}

/// Longer ones are refused: no topic that MQTT has begins so.
const PREFIX_BYTES_MAX: usize = 1024;

impl Topics {
    /// Says whether there was room.
    pub fn add(&mut self, prefix: Vec<u8>, most: usize) -> bool {
        if let Some(count) = self.prefixes.get_mut(&prefix) {
            *count = count.saturating_add(1);
            return true;
        }
        if self.prefixes.len() >= most || prefix.len() > PREFIX_BYTES_MAX {
            return false;
        }
        if !self.want(&prefix) {
            let longer = self.least.range::<[u8], _>((Included(&prefix[..]), Unbounded));
            let longer: Vec<Vec<u8>> =
                longer.take_while(|one| one.starts_with(&prefix)).cloned().collect();
            longer.iter().for_each(|one| _ = self.least.remove(one));
            self.least.insert(prefix.clone());
        }
        self.prefixes.insert(prefix, 1);
        true
    }

    pub fn remove(&mut self, prefix: &[u8]) {
        let Some(count) = self.prefixes.get_mut(prefix) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.prefixes.remove(prefix);
        if !self.least.remove(prefix) {
            return;
        }
        // Those that it stood for.
        let longer = self.prefixes.range::<[u8], _>((Included(prefix), Unbounded));
        let mut last: Option<&[u8]> = None;
        for (one, _) in longer.take_while(|(one, _)| one.starts_with(prefix)) {
            if last.is_none_or(|last| !one.starts_with(last)) {
                self.least.insert(one.clone());
                last = Some(one);
            }
        }
    }

    pub fn want(&self, first_frame: &[u8]) -> bool {
        // What lies between a beginning of it and it begins so too, and none of `least` does.
        let mut before = self.least.range::<[u8], _>((Unbounded, Included(first_frame)));
        before.next_back().is_some_and(|one| first_frame.starts_with(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gets_what_begins_as_it_asked_until_it_takes_all_of_that_back() {
        let mut topics = Topics::default();
        assert!(!topics.want(b"a"));
        for prefix in ["a/", "a/", "abc"] {
            assert!(topics.add(prefix.into(), 2));
        }
        assert!(!topics.add(b"x".to_vec(), 2), "there is no room");
        for (topic, is_wanted) in [("a/b", true), ("a", false), ("abcd", true), ("ab", false)] {
            assert_eq!(topics.want(topic.as_bytes()), is_wanted, "{topic}");
        }
        topics.remove(b"a/");
        assert!(topics.want(b"a/b"));
        topics.remove(b"a/");
        topics.remove(b"a/");
        assert!(!topics.want(b"a/b") && topics.want(b"abc"));
        assert!(topics.add(Vec::new(), 2) && topics.want(b"") && topics.want(b"zz"));
    }

    /// Against looking at each of them.
    #[test]
    fn it_is_what_looking_at_each_says() {
        let (mut topics, mut all, mut chance) = (Topics::default(), Vec::new(), 7_u32);
        let mut word = || {
            chance = chance.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let len = chance >> 16 & 3;
            (0..len).map(|at| b'a' + (chance >> (20 + at) & 1) as u8).collect::<Vec<u8>>()
        };
        for round in 0..5_000 {
            let one: Vec<u8> = word();
            if round % 3 == 0 {
                topics.remove(&one);
                if let Some(at) = all.iter().position(|known| *known == one) {
                    all.swap_remove(at);
                }
            } else if all.len() < 12 {
                assert!(topics.add(one.clone(), 100));
                all.push(one);
            }
            let name = [word(), word()].concat();
            let is_wanted = all.iter().any(|one: &Vec<u8>| name.starts_with(one));
            assert_eq!(topics.want(&name), is_wanted, "{name:?} of {all:?}");
        }
    }

    /// Prefixes of every length, none of which the message begins with.
    #[test]
    fn many_cost_no_more_than_few() {
        let mut topics = Topics::default();
        for len in 0..PREFIX_BYTES_MAX {
            for end in 0..20 {
                let prefix = [&vec![b'a'; len][..], &[b'A' + end]].concat();
                assert!(topics.add(prefix, usize::MAX));
            }
        }
        let (name, begun) = (vec![b'a'; 2 * PREFIX_BYTES_MAX], std::time::Instant::now());
        (0..10_000).for_each(|_| assert!(!topics.want(&name)));
        assert!(begun.elapsed().as_millis() < 1_000, "{:?}", begun.elapsed());
    }
}
