//! Retained messages: an ordered trie by topic level. A cursor can stop at any topic and continue
//! later, even if the store has changed meanwhile. The cost of a lookup depends on its matches.
//!
//! Every shard holds the same messages: a retained publish is sent to all shards with a
//! `RetainStamp`, and the highest stamp wins on every shard, in any order of arrival. A cleared
//! topic therefore leaves a tombstone for `TOMBSTONE_MS`.

use crate::ids::{MonotonicMs, RetainStamp};
use crate::limits::NONE;
use crate::memory::cost;
use crate::message::Message;
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;
use crate::slab::Slab;
use crate::timer::ShardTimer;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// A level of a topic. `stored` is set if the topic which ends here has a message or tombstone.
#[derive(Debug)]
struct RetainedNode {
    parent: u32,
    name: Box<str>,
    children: BTreeMap<Box<str>, u32>,
    stored: Option<RetainedEntry>,
}

/// The newest change of a topic, with the stamp by which later changes are compared.
#[derive(Debug)]
struct RetainedEntry {
    stamp: RetainStamp,
    /// The message, or `None` for a tombstone.
    message: Option<Message>,
}

/// The retained messages of all topics. Every shard has a copy.
#[derive(Debug)]
pub(crate) struct Retained {
    nodes: Slab<RetainedNode>,
    root: u32,
    /// Number of nodes with children, which need more memory: see `cost::RETAINED_PARENT`.
    parents: u32,
    pub(crate) messages: u32,
    pub(crate) bytes: u64,
    /// Topics of the tombstones with the time of each clear, oldest first, once per topic.
    tombstones: VecDeque<(MonotonicMs, Box<str>)>,
    /// The nodes whose message expires, by the second of expiry.
    expiries: BTreeSet<(u64, u32)>,
}

/// Result of `Retained::next`.
#[derive(Debug)]
pub(crate) enum RetainedMatch<'a> {
    Message(&'a Message),
    /// The steps are used up. The search continues behind this topic.
    Pause(Box<str>),
    /// The search is complete.
    End,
}

/// Time for which a clear is remembered, against an older retained message that another shard still
/// has in transit.
const TOMBSTONE_MS: u64 = 10_000;

impl Retained {
    pub(crate) fn new() -> Retained {
        let mut nodes = Slab::default();
        let root =
            RetainedNode { parent: NONE, name: "".into(), children: BTreeMap::new(), stored: None };
        let root = nodes.insert(root);
        Retained {
            nodes,
            root,
            parents: 0,
            messages: 0,
            bytes: 0,
            tombstones: VecDeque::new(),
            expiries: BTreeSet::new(),
        }
    }

    /// Returns the memory of the tree without its messages, which `bytes` counts.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.nodes.len() as u64 * cost::RETAINED_NODE
            + u64::from(self.parents) * cost::RETAINED_PARENT
    }

    /// Whether the topic's message or clear has a higher stamp than `than`.
    pub(crate) fn is_later(&self, topic: &str, than: RetainStamp) -> bool {
        self.newest(topic).is_some_and(|(stamp, _)| stamp > than)
    }

    fn node_of(&self, topic: &str) -> Option<u32> {
        let mut at = self.root;
        for level in topic.split('/') {
            at = *self.nodes[at].children.get(level)?;
        }
        Some(at)
    }

    fn make_node(&mut self, topic: &str) -> u32 {
        let mut at = self.root;
        for level in topic.split('/') {
            at = match self.nodes[at].children.get(level) {
                Some(&child) => child,
                None => {
                    let child = self.nodes.insert(RetainedNode {
                        parent: at,
                        name: level.into(),
                        children: BTreeMap::new(),
                        stored: None,
                    });
                    let children = &mut self.nodes[at].children;
                    self.parents += u32::from(children.is_empty());
                    children.insert(level.into(), child);
                    child
                }
            };
        }
        at
    }

    /// Stores a message, or clears the topic where the payload is empty [MQTT-3.3.1-5]
    /// [MQTT-3.3.1-6] [MQTT-3.3.1-7]. An older stamp than the stored one changes nothing.
    pub(crate) fn set(
        &mut self,
        message: Message,
        stamp: RetainStamp,
        now: MonotonicMs,
        tombstones: bool,
    ) {
        let topic: Box<str> = message.topic().into();
        let clears = message.payload().is_empty();
        if clears && !tombstones && self.node_of(&topic).is_none() {
            return;
        }
        let at = self.make_node(&topic);
        let node = &mut self.nodes[at];
        if node.stored.as_ref().is_some_and(|stored| stored.stamp > stamp) {
            return;
        }
        let new = if clears { None } else { Some(message.clone()) };
        // Whatever its QoS [3.1.1:MQTT-3.3.1-7].
        let old = node.stored.replace(RetainedEntry { stamp, message: new });
        let is_tombstone = old.as_ref().is_some_and(|stored| stored.message.is_none());
        if let Some(old) = old.and_then(|stored| stored.message) {
            self.uncount(at, &old);
        }
        if !clears {
            self.messages += 1;
            self.bytes += message.bytes() as u64;
            if let Some(second) = expiry_second(&message) {
                self.expiries.insert((second, at));
            }
        } else if !tombstones {
            self.prune_node(at);
        } else if !is_tombstone {
            self.tombstones.push_back((now, topic));
        }
    }

    /// Subtracts a message which a node held from the counters.
    fn uncount(&mut self, at: u32, old: &Message) {
        self.messages -= 1;
        self.bytes -= old.bytes() as u64;
        if let Some(second) = expiry_second(old) {
            self.expiries.remove(&(second, at));
        }
    }

    /// Removes a node without message, and its parents up to the first with a message or children.
    fn prune_node(&mut self, mut at: u32) {
        self.nodes[at].stored = None;
        while at != self.root {
            let node = &self.nodes[at];
            if node.stored.is_some() || !node.children.is_empty() {
                return;
            }
            let parent = node.parent;
            if let Some(node) = self.nodes.remove(at) {
                let children = &mut self.nodes[parent].children;
                children.remove(&node.name);
                self.parents -= u32::from(children.is_empty());
            }
            at = parent;
        }
    }

    /// Removes expired messages and old tombstones. Returns the topics of both.
    pub(crate) fn sweep(&mut self, now: MonotonicMs) -> Vec<Box<str>> {
        let mut gone = Vec::new();
        while let Some((at, _)) = self.tombstones.front()
            && now.0 >= at.0 + TOMBSTONE_MS
        {
            let Some((_, topic)) = self.tombstones.pop_front() else { return gone };
            let Some(at) = self.node_of(&topic) else { continue };
            let tombstone = self.nodes[at].stored.as_ref().filter(|it| it.message.is_none());
            let Some(cleared_at) = tombstone.map(|stored| stored.stamp.at) else { continue };
            if now.0 >= cleared_at + TOMBSTONE_MS {
                self.prune_node(at);
                gone.push(topic);
            } else {
                // Cleared again meanwhile: the last clear counts.
                self.tombstones.push_back((MonotonicMs(cleared_at), topic));
            }
        }
        while let Some(&(second, at)) = self.expiries.first()
            && now.0 / 1000 >= second
        {
            let old = self.nodes[at].stored.take().and_then(|stored| stored.message);
            if let Some(old) = old {
                self.uncount(at, &old);
                gone.push(old.topic().into());
            }
            self.prune_node(at);
        }
        gone
    }

    /// Time of the next `sweep` with an effect, or `None`.
    pub(crate) fn next_sweep(&self) -> Option<MonotonicMs> {
        let tombstone = self.tombstones.front().map(|(at, _)| at.0 + TOMBSTONE_MS);
        let expiry = self.expiries.first().map(|(second, _)| second * 1000);
        tombstone.into_iter().chain(expiry).min().map(MonotonicMs)
    }

    pub(crate) fn get(&self, topic: &str) -> Option<&Message> {
        self.newest(topic)?.1
    }

    /// Returns the newest known change of a topic; without a message it is a clear.
    pub(crate) fn newest(&self, topic: &str) -> Option<(RetainStamp, Option<&Message>)> {
        let stored = self.nodes[self.node_of(topic)?].stored.as_ref()?;
        Some((stored.stamp, stored.message.as_ref()))
    }

    /// Returns the next message which matches `filter`, in the order of topics, behind the topic
    /// `after`. Visits at most `steps` nodes, not counting the path to `after`, and subtracts the
    /// visited nodes from `steps`.
    pub(crate) fn next(
        &self,
        filter: &str,
        after: Option<&str>,
        now: MonotonicMs,
        steps: &mut u32,
    ) -> RetainedMatch<'_> {
        let levels: Vec<&str> = filter.split('/').collect();
        let behind: Option<Vec<&str>> = after.map(|topic| topic.split('/').collect());
        let search =
            RetainedSearch { retained: self, now, steps: Cell::new(*steps), last: Cell::new(NONE) };
        let halt = search.search_below(self.root, &levels, behind.as_deref(), true);
        *steps = search.steps.get();
        match (halt, search.last.get(), after) {
            (Some(RetainedSearchStop::Message(message)), ..) => RetainedMatch::Message(message),
            (None, ..) => RetainedMatch::End,
            (Some(RetainedSearchStop::OutOfSteps), NONE, after) => {
                RetainedMatch::Pause(after.unwrap_or_default().into())
            }
            (Some(RetainedSearchStop::OutOfSteps), last, _) => {
                RetainedMatch::Pause(self.topic_of(last))
            }
        }
    }

    fn topic_of(&self, mut at: u32) -> Box<str> {
        let mut levels = Vec::new();
        while at != self.root {
            levels.push(&*self.nodes[at].name);
            at = self.nodes[at].parent;
        }
        levels.reverse();
        levels.join("/").into()
    }
}

fn expiry_second(message: &Message) -> Option<u64> {
    message.expires_at().map(|at| at.0 / 1000 + 1)
}

/// State of a search for one call of `Retained::next`.
struct RetainedSearch<'a> {
    retained: &'a Retained,
    now: MonotonicMs,
    /// Nodes which the search may still visit.
    steps: Cell<u32>,
    /// The node visited last. All nodes before it, in the order of topics, are done.
    last: Cell<u32>,
}

/// Reason for which a search returns before its end.
enum RetainedSearchStop<'a> {
    Message(&'a Message),
    OutOfSteps,
}

impl<'a> RetainedSearch<'a> {
    fn message_at(&self, at: u32) -> Option<RetainedSearchStop<'a>> {
        let message = self.retained.nodes[at].stored.as_ref()?.message.as_ref()?;
        (!message.is_expired(self.now)).then_some(RetainedSearchStop::Message(message))
    }

    /// Counts a step of the search. Returns `false` if there are none left.
    fn take_step(&self, at: u32) -> bool {
        let Some(left) = self.steps.get().checked_sub(1) else { return false };
        self.steps.set(left);
        self.last.set(at);
        true
    }

    /// Searches below a node for the rest of the filter. `after` holds the levels, below this node,
    /// of the topic where the search continues; an empty slice is this node.
    fn search_below(
        &self,
        at: u32,
        filter: &[&str],
        after: Option<&[&str]>,
        root: bool,
    ) -> Option<RetainedSearchStop<'a>> {
        let Some((level, rest)) = filter.split_first() else {
            return if after.is_none() { self.message_at(at) } else { None };
        };
        let children = &self.retained.nodes[at].children;
        let bound = after.and_then(|after| after.first().copied());
        if *level != "+" && *level != "#" {
            let after = match after {
                Some([first, ..]) if *first > *level => return None,
                Some([first, below @ ..]) if first == level => Some(below),
                _ => None,
            };
            let child = *children.get(*level)?;
            if after.is_none() && !self.take_step(child) {
                return Some(RetainedSearchStop::OutOfSteps);
            }
            return self.search_below(child, rest, after, false);
        }
        let everything = *level == "#";
        // `a/#` matches `a` too [MQTT-4.7.1-1]; the topic itself comes before the topics below it.
        if everything
            && after.is_none()
            && !root
            && let Some(halt) = self.message_at(at)
        {
            return Some(halt);
        }
        let from = bound.map_or(Bound::Unbounded, Bound::Included);
        for (name, &child) in children.range::<str, _>((from, Bound::Unbounded)) {
            let after = after.filter(|_| bound == Some(name)).map(|after| &after[1..]);
            if after.is_none() && !self.take_step(child) {
                return Some(RetainedSearchStop::OutOfSteps);
            }
            // [MQTT-4.7.2-1]
            if root && name.starts_with('$') {
                continue;
            }
            let filter = if everything { filter } else { rest };
            if let Some(halt) = self.search_below(child, filter, after, false) {
                return Some(halt);
            }
        }
        None
    }
}

impl ShardRouting {
    pub(crate) fn plan_sweep(&mut self, sessions: &mut SessionTable) {
        if self.sweep_at.is_none()
            && let Some(at) = self.retained.next_sweep()
        {
            self.sweep_at = Some(at);
            sessions.context.timers.set(at, ShardTimer::RetainedSweep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::IncomingPublish;

    fn store(topics: &[&str]) -> Retained {
        let mut retained = Retained::new();
        for topic in topics {
            let message = Message::new(&IncomingPublish::new(topic, b"x", MonotonicMs(0)));
            retained.set(message, RetainStamp::default(), MonotonicMs(0), false);
        }
        retained
    }

    /// Topics of all matches in order, with `steps` steps per call of `next`.
    fn walk(retained: &Retained, filter: &str, steps: u32) -> Vec<String> {
        let (mut found, mut after): (Vec<String>, Option<Box<str>>) = (Vec::new(), None);
        loop {
            match retained.next(filter, after.as_deref(), MonotonicMs(0), &mut steps.clone()) {
                RetainedMatch::Message(message) => {
                    after = Some(message.topic().into());
                    found.push(message.topic().to_owned());
                }
                RetainedMatch::Pause(topic) => after = Some(topic),
                RetainedMatch::End => return found,
            }
        }
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
            let mut found = walk(&retained, filter, u32::MAX);
            for steps in 1..5 {
                assert_eq!(walk(&retained, filter, steps), found, "{filter} by {steps} steps");
            }
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
    fn a_search_looks_at_no_more_nodes_than_it_may() {
        let topics: Vec<String> = (0..10_000).map(|at| format!("{at}/y")).collect();
        let retained = store(&topics.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut after, mut turns) = (None, 0);
        loop {
            let mut steps = 100;
            match retained.next("+/x", after.as_deref(), MonotonicMs(0), &mut steps) {
                RetainedMatch::Message(message) => panic!("{} matches +/x", message.topic()),
                RetainedMatch::Pause(topic) => after = Some(topic),
                RetainedMatch::End => break,
            }
            turns += 1;
        }
        assert_eq!(turns, 10_000 / 100 - 1, "the last turn finds the end");
    }

    #[test]
    fn a_topic_that_is_set_or_cleared_again_and_again_is_remembered_once() {
        let stamp = |at| RetainStamp { at, ..RetainStamp::default() };
        let mut retained = Retained::new();
        for at in 0..1000 {
            let draft = IncomingPublish {
                expiry_s: 1_000_000,
                ..IncomingPublish::new("t", b"x", MonotonicMs(at))
            };
            retained.set(Message::new(&draft), stamp(at), MonotonicMs(at), true);
        }
        assert_eq!(retained.expiries.len(), 1);
        for at in 1000..2000 {
            let clear = Message::new(&IncomingPublish::new("t", b"", MonotonicMs(at)));
            retained.set(clear, stamp(at), MonotonicMs(at), true);
        }
        assert_eq!((retained.expiries.len(), retained.tombstones.len()), (0, 1));
        retained.sweep(MonotonicMs(1000 + TOMBSTONE_MS));
        assert_eq!(retained.nodes.len(), 2, "the last clear counts");
        retained.sweep(MonotonicMs(1000 + 2 * TOMBSTONE_MS));
        assert_eq!(retained.nodes.len(), 1);
    }

    #[test]
    fn clearing_gives_every_node_back() {
        let mut retained = store(&["a/b/c", "a/b", "d"]);
        for topic in ["a/b/c", "d", "a/b"] {
            let clear = Message::new(&IncomingPublish::new(topic, b"", MonotonicMs(0)));
            retained.set(clear, RetainStamp::default(), MonotonicMs(0), false);
        }
        assert_eq!((retained.messages, retained.bytes, retained.nodes.len()), (0, 0, 1));
    }

    #[test]
    fn an_older_stamp_never_wins_over_a_newer_one_or_its_tombstone() {
        let stamp = |at| RetainStamp { at, ..RetainStamp::default() };
        let set =
            |text: &'static [u8]| Message::new(&IncomingPublish::new("t", text, MonotonicMs(0)));
        let mut retained = Retained::new();
        retained.set(set(b"new"), stamp(2), MonotonicMs(0), true);
        retained.set(set(b"old"), stamp(1), MonotonicMs(0), true);
        assert_eq!(retained.get("t").map(Message::payload), Some(&b"new"[..]));
        retained.set(set(b""), stamp(4), MonotonicMs(0), true);
        retained.set(set(b"late"), stamp(3), MonotonicMs(0), true);
        assert!(retained.get("t").is_none());
        retained.sweep(MonotonicMs(4 + TOMBSTONE_MS));
        assert_eq!(retained.nodes.len(), 1);
    }
}
