//! What one peer wants: beginnings of messages, each as often as it asked for it.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Topics {
    prefixes: BTreeMap<Vec<u8>, u32>,
    /// The lengths that there are: so many looks tell whether a message is wanted.
    lens: BTreeMap<usize, u32>,
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
        *self.lens.entry(prefix.len()).or_default() += 1;
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
        if let Some(lens) = self.lens.get_mut(&prefix.len()) {
            *lens -= 1;
            if *lens == 0 {
                self.lens.remove(&prefix.len());
            }
        }
    }

    pub fn want(&self, first_frame: &[u8]) -> bool {
        let lens = self.lens.range(..=first_frame.len());
        lens.into_iter().any(|(len, _)| self.prefixes.contains_key(&first_frame[..*len]))
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
}
