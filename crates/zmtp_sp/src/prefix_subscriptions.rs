//! The subscriptions of one peer: prefixes of messages, each with the number of its subscriptions.
//!
//! A radix tree with counts: adding, removing and matching cost time by the length of the prefix or
//! message, independent of the number of prefixes. Invariant: except for the root, a node without
//! subscriptions has at least two children.
//!
//! ```text
//!   "sensors/" x1, "sensors/a" x2, "status" x1
//!
//!   "" 0 --- "s" 0 --+-- "ensors/" 1 --- "a" 2
//!                    +-- "tatus" 1
//! ```

#[derive(Debug, Default)]
pub struct PrefixSubscriptions {
    root: PrefixNode,
    prefixes: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct PrefixNode {
    /// Bytes on the edge from the parent node.
    part: Box<[u8]>,
    /// Number of subscriptions whose prefix ends at this node.
    count: u32,
    /// Children in the order of their first bytes, which are distinct.
    next: Vec<PrefixNode>,
}

/// Longest prefix in bytes; a longer prefix is refused by [`PrefixSubscriptions::add`].
const PREFIX_BYTES_MAX: usize = 1024;
/// Upper bound of the memory of a prefix in addition to its bytes: its node, and the node where its
/// edge splits another edge.
const NODES_BYTES: usize = 256;

impl PrefixSubscriptions {
    /// Adds a subscription. Returns false if `most` prefixes exist already, or the prefix is too
    /// long.
    pub fn add(&mut self, prefix: &[u8], most: usize) -> bool {
        let is_new = self.root.count_of(prefix) == 0;
        if is_new && (self.prefixes >= most || prefix.len() > PREFIX_BYTES_MAX) {
            return false;
        }
        let count = self.root.insert(prefix);
        *count = count.saturating_add(1);
        if is_new {
            self.prefixes += 1;
            self.bytes += cost(prefix);
        }
        true
    }

    pub fn remove(&mut self, prefix: &[u8]) {
        if self.root.count_of(prefix) > 0 && self.root.remove(prefix) {
            self.prefixes -= 1;
            self.bytes -= cost(prefix);
        }
    }

    pub fn matches(&self, first_frame: &[u8]) -> bool {
        let (mut node, mut rest) = (&self.root, first_frame);
        while node.count == 0 {
            let Some((at, left)) = node.descend(rest) else { return false };
            (node, rest) = (&node.next[at], left);
        }
        true
    }

    /// Returns an upper bound of the memory of all prefixes in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Drops the nodes in a loop: the default recursion over a deep tree takes more stack than a thread
/// may have.
impl Drop for PrefixSubscriptions {
    fn drop(&mut self) {
        let mut all = std::mem::take(&mut self.root.next);
        while let Some(mut node) = all.pop() {
            all.append(&mut node.next);
        }
    }
}

fn cost(prefix: &[u8]) -> usize {
    prefix.len() + NODES_BYTES
}

impl PrefixNode {
    /// Returns the index of the child on the path of `rest`, and the part of `rest` behind the
    /// child's edge; `None` without such a child.
    fn descend<'r>(&self, rest: &'r [u8]) -> Option<(usize, &'r [u8])> {
        let at = self.child_index(*rest.first()?).ok()?;
        Some((at, rest.strip_prefix(&*self.next[at].part)?))
    }

    fn child_index(&self, first: u8) -> Result<usize, usize> {
        self.next.binary_search_by_key(&first, |node| node.part[0])
    }

    fn count_of(&self, prefix: &[u8]) -> u32 {
        let (mut node, mut rest) = (self, prefix);
        while !rest.is_empty() {
            let Some((at, left)) = node.descend(rest) else { return 0 };
            (node, rest) = (&node.next[at], left);
        }
        node.count
    }

    /// Returns the count of the node at `prefix`, creating the node if missing.
    fn insert(&mut self, prefix: &[u8]) -> &mut u32 {
        let (mut node, mut rest) = (self, prefix);
        while let Some(first) = rest.first() {
            let at = match node.child_index(*first) {
                Ok(at) => at,
                Err(at) => {
                    node.next.insert(at, PrefixNode { part: rest.into(), ..PrefixNode::default() });
                    at
                }
            };
            node = &mut node.next[at];
            let same = node.part.iter().zip(rest).take_while(|(own, other)| own == other).count();
            node.split(same);
            rest = &rest[same..];
        }
        &mut node.count
    }

    /// Removes a subscription to `prefix`, which must exist. Returns whether no subscription to
    /// `prefix` is left.
    fn remove(&mut self, prefix: &[u8]) -> bool {
        let (mut node, mut rest) = (self, prefix);
        while let Some((at, left)) = node.descend(rest) {
            if left.is_empty() {
                return node.release_child(at);
            }
            (node, rest) = (&mut node.next[at], left);
        }
        node.count -= 1;
        node.count == 0
    }

    /// Removes a subscription at the child `at`. Returns whether no subscription is left there.
    fn release_child(&mut self, at: usize) -> bool {
        let next = &mut self.next[at];
        next.count -= 1;
        if next.count > 0 {
            return false;
        }
        if next.next.is_empty() {
            self.next.remove(at);
            if self.next.len() < self.next.capacity() / 4 {
                self.next.shrink_to_fit();
            }
            self.merge_only_child();
        } else {
            next.merge_only_child();
        }
        true
    }

    fn split(&mut self, at: usize) {
        if at == self.part.len() {
            return;
        }
        let (part, end) = self.part.split_at(at);
        let (part, end): (Box<[u8]>, Box<[u8]>) = (part.into(), end.into());
        let below = PrefixNode { part: end, ..std::mem::take(self) };
        *self = PrefixNode { part, count: 0, next: vec![below] };
    }

    /// Merges a node without subscriptions into its only child; leaves all remaining nodes as they
    /// are.
    fn merge_only_child(&mut self) {
        let is_root = self.part.is_empty();
        if is_root || self.count > 0 || self.next.len() != 1 {
            return;
        }
        if let Some(below) = self.next.pop() {
            let part = [&*self.part, &*below.part].concat().into();
            *self = PrefixNode { part, ..below };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    #[test]
    fn a_peer_gets_what_begins_as_it_asked_until_it_takes_all_of_that_back() {
        let mut topics = PrefixSubscriptions::default();
        assert!(!topics.matches(b"a"));
        for prefix in ["a/", "a/", "abc"] {
            assert!(topics.add(prefix.as_bytes(), 2));
        }
        assert!(!topics.add(b"x", 2), "no room is left");
        for (topic, is_wanted) in [("a/b", true), ("a", false), ("abcd", true), ("ab", false)] {
            assert_eq!(topics.matches(topic.as_bytes()), is_wanted, "{topic}");
        }
        topics.remove(b"a/");
        assert!(topics.matches(b"a/b"));
        topics.remove(b"a/");
        topics.remove(b"a/");
        assert!(!topics.matches(b"a/b") && topics.matches(b"abc"));
        assert!(topics.add(b"", 2) && topics.matches(b"") && topics.matches(b"zz"));
    }

    /// Compares random operations with a linear search over all prefixes.
    #[test]
    fn it_is_what_looking_at_each_says() {
        let (mut topics, mut all) = (PrefixSubscriptions::default(), Vec::new());
        let mut rng = fastrand::Rng::with_seed(7);
        let mut draw = |below: u32| rng.u32(..below);
        let mut word = || (0..draw(7)).map(|_| b'a' + draw(2) as u8).collect::<Vec<u8>>();
        for round in 0..20_000 {
            let one: Vec<u8> = word();
            if round % 3 == 0 || all.len() == 40 {
                topics.remove(&one);
                if let Some(at) = all.iter().position(|known| *known == one) {
                    all.swap_remove(at);
                }
            } else {
                assert!(topics.add(&one, 100));
                all.push(one);
            }
            let name = [word(), word()].concat();
            let is_wanted = all.iter().any(|one: &Vec<u8>| name.starts_with(one));
            assert_eq!(topics.matches(&name), is_wanted, "{name:?} of {all:?}");
            check(&topics, &all);
        }
        all.drain(..).for_each(|one| topics.remove(&one));
        check(&topics, &all);
        assert!(topics.root.next.is_empty() && topics.bytes() == 0);
    }

    /// Checks the counts, and that no node is superfluous.
    fn check(topics: &PrefixSubscriptions, all: &[Vec<u8>]) {
        let own: BTreeSet<&Vec<u8>> = all.iter().collect();
        let bytes: usize = own.iter().map(|prefix| cost(prefix)).sum();
        assert_eq!((topics.prefixes, topics.bytes()), (own.len(), bytes));
        let mut counts = topics.root.count as usize;
        let mut nodes: Vec<&PrefixNode> = topics.root.next.iter().collect();
        while let Some(node) = nodes.pop() {
            assert!(node.count > 0 || node.next.len() > 1, "{topics:?}");
            counts += node.count as usize;
            nodes.extend(&node.next);
        }
        assert_eq!(counts, all.len());
    }

    /// Measures adding and removing prefixes which all the rest share, alone and among 20,000.
    #[test]
    fn churn_costs_no_more_among_many() {
        let churn = |topics: &mut PrefixSubscriptions| {
            let begun = Instant::now();
            for _ in 0..2_000 {
                for prefix in [&b""[..], b"a", b"aaaa"] {
                    assert!(topics.add(prefix, usize::MAX));
                    topics.remove(prefix);
                }
            }
            begun.elapsed()
        };
        let mut topics = PrefixSubscriptions::default();
        let alone = churn(&mut topics);
        for at in 0..20_000 {
            assert!(topics.add(format!("aaaaa/{at}/b").as_bytes(), usize::MAX));
        }
        let among = churn(&mut topics);
        assert!(among < 20 * alone + Duration::from_millis(20), "{alone:?} alone, {among:?} not");
    }

    #[test]
    fn a_deep_one_goes_without_much_of_a_stack() {
        let fill = || {
            let mut topics = PrefixSubscriptions::default();
            for len in 0..=PREFIX_BYTES_MAX {
                assert!(topics.add(&vec![b'a'; len], usize::MAX));
            }
            assert!(!topics.add(&[b'a'; PREFIX_BYTES_MAX + 1], usize::MAX));
        };
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(fill);
        thread.expect("there is room for a thread").join().expect("it has stack enough");
    }

    /// Prefixes of every length, none of which is a prefix of the message.
    #[test]
    fn many_cost_no_more_than_few() {
        let look = |ends: u8| {
            let mut topics = PrefixSubscriptions::default();
            for len in 0..PREFIX_BYTES_MAX {
                for end in 0..ends {
                    let prefix = [&vec![b'a'; len][..], &[b'A' + end]].concat();
                    assert!(topics.add(&prefix, usize::MAX));
                }
            }
            let (name, begun) = (vec![b'a'; 2 * PREFIX_BYTES_MAX], Instant::now());
            (0..1_000).for_each(|_| assert!(!topics.matches(&name)));
            begun.elapsed()
        };
        let (few, many) = (look(1), look(20));
        assert!(many < 10 * few + Duration::from_millis(20), "{few:?} for few, {many:?} for many");
    }
}
