//! Retained messages: a trie by topic level, ordered, so that a cursor can stop anywhere and go on
//! later although the store has changed meanwhile. A lookup costs what it matches.
//!
//! Every shard holds the same: a retained publish travels to all of them with a stamp, and the
//! highest stamp wins everywhere, whatever the order of arrival. A cleared topic therefore leaves
//! a tombstone for a while.

use crate::input::{Now, Stamp};
use crate::limits::NONE;
use crate::message::Message;
use crate::slab::Slab;
use crate::topics::Packed;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

#[derive(Debug)]
struct Node {
    parent: u32,
    name: Box<str>,
    children: BTreeMap<Box<str>, u32>,
    stored: Option<Stored>,
}

#[derive(Debug)]
struct Stored {
    stamp: Stamp,
    /// None is a tombstone.
    message: Option<Message>,
}

#[derive(Debug)]
pub(crate) struct Retained {
    nodes: Slab<Node>,
    root: u32,
    pub(crate) messages: u32,
    pub(crate) bytes: u64,
    /// Tombstones, oldest first.
    tombstones: VecDeque<(Now, Box<str>)>,
    /// Topics by the second in which their message expires.
    expiries: BTreeMap<u64, Vec<Box<str>>>,
}

/// A subscription that is being fed: what it asks for and the last topic it got.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) filter: Box<str>,
    pub(crate) after: Option<Box<str>>,
    pub(crate) options: Packed,
    pub(crate) id: u32,
}

/// How long a clear is remembered against an older set that is still on its way.
const TOMBSTONE_MS: u64 = 10_000;

impl Retained {
    pub(crate) fn new() -> Retained {
        let mut nodes = Slab::default();
        let root = Node { parent: NONE, name: "".into(), children: BTreeMap::new(), stored: None };
        let root = nodes.insert(root);
        Retained {
            nodes,
            root,
            messages: 0,
            bytes: 0,
            tombstones: VecDeque::new(),
            expiries: BTreeMap::new(),
        }
    }

    fn node_of(&self, topic: &str) -> Option<u32> {
        let mut at = self.root;
        for level in topic.split('/') {
            at = *self.nodes[at].children.get(level)?;
        }
        Some(at)
    }

    fn make(&mut self, topic: &str) -> u32 {
        let mut at = self.root;
        for level in topic.split('/') {
            at = match self.nodes[at].children.get(level) {
                Some(&child) => child,
                None => {
                    let child = self.nodes.insert(Node {
                        parent: at,
                        name: level.into(),
                        children: BTreeMap::new(),
                        stored: None,
                    });
                    self.nodes[at].children.insert(level.into(), child);
                    child
                }
            };
        }
        at
    }

    /// Stores a message, or clears the topic where the payload is empty [MQTT-3.3.1-5]
    /// [MQTT-3.3.1-6] [MQTT-3.3.1-7]. An older stamp than the stored one changes nothing.
    pub(crate) fn set(&mut self, message: Message, stamp: Stamp, now: Now, tombstones: bool) {
        let topic: Box<str> = message.topic().into();
        let clears = message.payload().is_empty();
        if clears && !tombstones && self.node_of(&topic).is_none() {
            return;
        }
        let at = self.make(&topic);
        let node = &mut self.nodes[at];
        if node.stored.as_ref().is_some_and(|stored| stored.stamp > stamp) {
            return;
        }
        let new = if clears { None } else { Some(message.clone()) };
        // Whatever its QoS [3.1.1:MQTT-3.3.1-7].
        let old = node.stored.replace(Stored { stamp, message: new });
        if let Some(old) = old.and_then(|stored| stored.message) {
            self.messages -= 1;
            self.bytes -= old.bytes() as u64;
        }
        if !clears {
            self.messages += 1;
            self.bytes += message.bytes() as u64;
            if let Some(at) = message.expires_at() {
                self.expiries.entry(at.0 / 1000 + 1).or_default().push(topic);
            }
        } else if tombstones {
            self.tombstones.push_back((now, topic));
        } else {
            self.bury(at);
        }
    }

    /// Removes a node without message, and its parents as far as they serve nothing else.
    fn bury(&mut self, mut at: u32) {
        self.nodes[at].stored = None;
        while at != self.root {
            let node = &self.nodes[at];
            if node.stored.is_some() || !node.children.is_empty() {
                return;
            }
            let parent = node.parent;
            if let Some(node) = self.nodes.remove(at) {
                self.nodes[parent].children.remove(&node.name);
            }
            at = parent;
        }
    }

    /// Forgets what expired and tombstones that are old enough.
    pub(crate) fn sweep(&mut self, now: Now) {
        while let Some((at, _)) = self.tombstones.front()
            && now.0 >= at.0 + TOMBSTONE_MS
        {
            let Some((_, topic)) = self.tombstones.pop_front() else { return };
            if let Some(at) = self.node_of(&topic)
                && self.nodes[at].stored.as_ref().is_some_and(|stored| stored.message.is_none())
            {
                self.bury(at);
            }
        }
        let later = self.expiries.split_off(&(now.0 / 1000 + 1));
        for topic in std::mem::replace(&mut self.expiries, later).into_values().flatten() {
            let Some(at) = self.node_of(&topic) else { continue };
            let message = self.nodes[at].stored.as_ref().and_then(|stored| stored.message.as_ref());
            if let Some(message) = message.filter(|message| message.is_expired(now)) {
                self.messages -= 1;
                self.bytes -= message.bytes() as u64;
                self.bury(at);
            }
        }
    }

    /// When `sweep` has something to do.
    pub(crate) fn next_sweep(&self) -> Option<Now> {
        let tombstone = self.tombstones.front().map(|(at, _)| at.0 + TOMBSTONE_MS);
        let expiry = self.expiries.keys().next().map(|second| second * 1000);
        tombstone.into_iter().chain(expiry).min().map(Now)
    }

    pub(crate) fn get(&self, topic: &str) -> Option<&Message> {
        self.nodes[self.node_of(topic)?].stored.as_ref()?.message.as_ref()
    }

    /// The next message, in the order of topics, that matches the filter and comes after a topic.
    pub(crate) fn next(&self, filter: &str, after: Option<&str>, now: Now) -> Option<&Message> {
        let filter: Vec<&str> = filter.split('/').collect();
        let after: Option<Vec<&str>> = after.map(|topic| topic.split('/').collect());
        let search = Search { retained: self, now };
        search.below(self.root, &filter, after.as_deref(), true)
    }
}

struct Search<'a> {
    retained: &'a Retained,
    now: Now,
}

impl<'a> Search<'a> {
    fn here(&self, at: u32) -> Option<&'a Message> {
        let message = self.retained.nodes[at].stored.as_ref()?.message.as_ref()?;
        (!message.is_expired(self.now)).then_some(message)
    }

    /// Looks below a node for the rest of the filter. `after` holds the levels of the topic that
    /// was sent last as far as it lies below this node; an empty slice is this node itself.
    fn below(
        &self,
        at: u32,
        filter: &[&str],
        after: Option<&[&str]>,
        root: bool,
    ) -> Option<&'a Message> {
        let Some((level, rest)) = filter.split_first() else {
            return if after.is_none() { self.here(at) } else { None };
        };
        let children = &self.retained.nodes[at].children;
        let bound = after.and_then(|after| after.first().copied());
        if *level != "+" && *level != "#" {
            let after = match after {
                Some([first, ..]) if *first > *level => return None,
                Some([first, below @ ..]) if first == level => Some(below),
                _ => None,
            };
            return self.below(*children.get(*level)?, rest, after, false);
        }
        let everything = *level == "#";
        // `a/#` takes `a` too [MQTT-4.7.1-1]; the topic itself comes before what lies below it.
        if everything
            && after.is_none()
            && !root
            && let Some(message) = self.here(at)
        {
            return Some(message);
        }
        let from = bound.map_or(Bound::Unbounded, Bound::Included);
        for (name, &child) in children.range::<str, _>((from, Bound::Unbounded)) {
            // [MQTT-4.7.2-1]
            if root && name.starts_with('$') {
                continue;
            }
            let after = after.filter(|_| bound == Some(name)).map(|after| &after[1..]);
            let filter = if everything { filter } else { rest };
            if let Some(message) = self.below(child, filter, after, false) {
                return Some(message);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Draft;

    fn store(topics: &[&str]) -> Retained {
        let mut retained = Retained::new();
        for topic in topics {
            let message = Message::new(&Draft::new(topic, b"x", Now(0)));
            retained.set(message, Stamp::default(), Now(0), false);
        }
        retained
    }

    fn walk(retained: &Retained, filter: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        while let Some(next) = retained.next(filter, found.last().map(|s| &**s), Now(0)) {
            found.push(next.topic().to_owned());
        }
        found
    }

    #[test]
    fn a_cursor_meets_each_matching_topic_once() {
        let topics =
            ["a", "a/b", "a/b/c", "a/c", "b", "b/", "b//", "/", "", "$SYS/a", "a/b/d", "x/y/z"];
        let topics = &topics[..].iter().filter(|topic| !topic.is_empty()).copied();
        let topics: Vec<&str> = topics.clone().collect();
        let retained = store(&topics);
        for filter in [
            "#",
            "+",
            "a/#",
            "a/+",
            "+/b",
            "+/b/#",
            "/+",
            "/",
            "b/+",
            "$SYS/#",
            "a/b",
            "+/+/+",
            "#",
            "nothing/#",
            "b/#",
            "+/#",
        ] {
            let mut found = walk(&retained, filter);
            found.sort();
            let mut expected: Vec<&str> = topics
                .iter()
                .copied()
                .filter(|topic| mqtt::filter_matches(filter, topic))
                .collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "{filter}");
        }
    }

    #[test]
    fn clearing_gives_every_node_back() {
        let mut retained = store(&["a/b/c", "a/b", "d"]);
        for topic in ["a/b/c", "d", "a/b"] {
            let clear = Message::new(&Draft::new(topic, b"", Now(0)));
            retained.set(clear, Stamp::default(), Now(0), false);
        }
        assert_eq!((retained.messages, retained.bytes, retained.nodes.len()), (0, 0, 1));
    }

    #[test]
    fn an_older_stamp_never_wins_over_a_newer_one_or_its_tombstone() {
        let stamp = |at| Stamp { at, ..Stamp::default() };
        let set = |text: &'static [u8]| Message::new(&Draft::new("t", text, Now(0)));
        let mut retained = Retained::new();
        retained.set(set(b"new"), stamp(2), Now(0), true);
        retained.set(set(b"old"), stamp(1), Now(0), true);
        assert_eq!(retained.get("t").map(Message::payload), Some(&b"new"[..]));
        retained.set(set(b""), stamp(4), Now(0), true);
        retained.set(set(b"late"), stamp(3), Now(0), true);
        assert!(retained.get("t").is_none());
        retained.sweep(Now(TOMBSTONE_MS));
        assert_eq!(retained.nodes.len(), 1);
    }
}
