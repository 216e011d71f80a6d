//! The trie of filters with wildcards, one node per level. Named children of all nodes are entries
//! of one hash table; `+` and `#` are fields of the node, since every match checks both.

use crate::ids::FilterId;
use crate::limits::NONE;
use crate::slab::Slab;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// A level of one or more filters.
#[derive(Debug)]
struct FilterTrieNode {
    parent: u32,
    level: Box<str>,
    /// Number of named children, to find out when the node is empty.
    children: u32,
    plus: u32,
    /// The filter which ends at this node, or `NONE`.
    filter: u32,
    /// The filter which ends here with `/#`, or `NONE`.
    hash: u32,
}

/// The wildcard filters of a shard. From a node, `matching` continues with the named child and `+`.
#[derive(Debug)]
pub(super) struct FilterTrie {
    nodes: Slab<FilterTrieNode>,
    edges: HashTable<u32>,
    hasher: FixedState,
    root: u32,
    filters: usize,
    /// Total number of nodes which all matches so far have visited.
    visited: u64,
    /// Nodes still to visit, each with the number of levels matched before it. A field only to
    /// reuse the allocation.
    stack: Vec<(u32, u32)>,
    levels: Vec<(u32, u32)>,
}

impl FilterTrieNode {
    pub(crate) fn new(parent: u32, level: &str) -> FilterTrieNode {
        FilterTrieNode {
            parent,
            level: level.into(),
            children: 0,
            plus: NONE,
            filter: NONE,
            hash: NONE,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.children == 0 && self.plus == NONE && self.filter == NONE && self.hash == NONE
    }
}

impl FilterTrie {
    pub(crate) fn new(seed: u64) -> FilterTrie {
        let mut nodes = Slab::default();
        let root = nodes.insert(FilterTrieNode::new(NONE, ""));
        FilterTrie {
            nodes,
            edges: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            root,
            filters: 0,
            visited: 0,
            stack: Vec::new(),
            levels: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filters == 0
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn visited(&self) -> u64 {
        self.visited
    }

    fn child(&self, parent: u32, level: &str) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, level));
        let same = |&id: &u32| {
            let node = &self.nodes[id];
            node.parent == parent && &*node.level == level
        };
        self.edges.find(hash, same).copied()
    }

    pub(super) fn insert(&mut self, text: &str, filter: u32) {
        let mut at = self.root;
        self.filters += 1;
        for level in text.split('/') {
            if level == "#" {
                self.nodes[at].hash = filter;
                return;
            }
            at = if level == "+" { self.plus_of(at) } else { self.child_of(at, level) };
        }
        self.nodes[at].filter = filter;
    }

    fn plus_of(&mut self, parent: u32) -> u32 {
        if self.nodes[parent].plus == NONE {
            let plus = self.nodes.insert(FilterTrieNode::new(parent, "+"));
            self.nodes[parent].plus = plus;
        }
        self.nodes[parent].plus
    }

    fn child_of(&mut self, parent: u32, level: &str) -> u32 {
        if let Some(child) = self.child(parent, level) {
            return child;
        }
        let child = self.nodes.insert(FilterTrieNode::new(parent, level));
        self.nodes[parent].children += 1;
        let (hasher, nodes) = (&self.hasher, &self.nodes);
        let hash = hasher.hash_one((parent, level));
        self.edges.insert_unique(hash, child, |&id| {
            let node = &nodes[id];
            hasher.hash_one((node.parent, &*node.level))
        });
        child
    }

    fn node_of(&self, text: &str) -> Option<u32> {
        let mut at = self.root;
        for level in text.split('/') {
            at = match level {
                "#" => return Some(at),
                "+" => Some(self.nodes[at].plus).filter(|&plus| plus != NONE)?,
                _ => self.child(at, level)?,
            };
        }
        Some(at)
    }

    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        let node = &self.nodes[self.node_of(text)?];
        let filter = if text.ends_with('#') { node.hash } else { node.filter };
        (filter != NONE).then_some(filter)
    }

    pub(super) fn remove(&mut self, text: &str) {
        let Some(mut at) = self.node_of(text) else { return };
        let node = &mut self.nodes[at];
        let ends = if text.ends_with('#') { &mut node.hash } else { &mut node.filter };
        *ends = NONE;
        self.filters -= 1;
        while at != self.root && self.nodes[at].is_empty() {
            at = self.prune(at);
        }
    }

    /// Removes an empty node and returns its parent.
    fn prune(&mut self, id: u32) -> u32 {
        let parent = self.nodes[id].parent;
        if self.nodes[parent].plus == id {
            self.nodes[parent].plus = NONE;
        } else {
            let hash = self.hasher.hash_one((parent, &*self.nodes[id].level));
            if let Ok(entry) = self.edges.find_entry(hash, |&other| other == id) {
                entry.remove();
            }
            if self.edges.is_empty() {
                self.edges = HashTable::new();
            }
            self.nodes[parent].children -= 1;
        }
        self.nodes.remove(id);
        parent
    }

    /// Appends every filter which matches the topic.
    pub(super) fn matching(&mut self, topic: &str, into: &mut Vec<FilterId>) {
        let (mut stack, mut levels) =
            (std::mem::take(&mut self.stack), std::mem::take(&mut self.levels));
        stack.clear();
        split_levels(topic, &mut levels);
        stack.push((self.root, 0));
        while let Some((id, behind)) = stack.pop() {
            self.visited += 1;
            let node = &self.nodes[id];
            // [MQTT-4.7.2-1]
            let hidden = behind == 0 && topic.starts_with('$');
            if node.hash != NONE && !hidden {
                into.push(FilterId(node.hash));
            }
            let Some(&(start, end)) = levels.get(behind as usize) else {
                if node.filter != NONE {
                    into.push(FilterId(node.filter));
                }
                continue;
            };
            if node.plus != NONE && !hidden {
                stack.push((node.plus, behind + 1));
            }
            if node.children > 0
                && let Some(child) = self.child(id, &topic[start as usize..end as usize])
            {
                stack.push((child, behind + 1));
            }
        }
        (self.stack, self.levels) = (stack, levels);
    }
}

/// Splits a topic into its levels: start and end of each.
fn split_levels(topic: &str, into: &mut Vec<(u32, u32)>) {
    into.clear();
    let mut start = 0;
    for (at, byte) in topic.bytes().enumerate() {
        if byte == b'/' {
            into.push((start, at as u32));
            start = at as u32 + 1;
        }
    }
    into.push((start, topic.len() as u32));
}
