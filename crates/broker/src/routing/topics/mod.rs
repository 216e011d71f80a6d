//! The filters of one shard and the subscribers of each filter.
//!
//! One hash lookup of the whole topic finds a filter without wildcards. Filters with wildcards are
//! in a trie whose edges are in one hash table keyed by (parent, level). The cost of matching
//! depends on the matching filters and not on the number of subscriptions. The subscribers of a
//! filter are stored contiguously, a single subscriber inside the filter.

mod trie;

use crate::ids::{FilterId, SessionId, SubscriptionFlags};
use crate::memory::cost;
use crate::slab::Slab;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::hash::BuildHasher;
use trie::FilterTrie;

/// Subscription of one session to one filter, as the filter refers to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterSubscriber {
    pub(in crate::routing) session: SessionId,
    /// Index in the session's own list of subscriptions.
    pub(in crate::routing) entry: u32,
    /// Subscription Identifier, 0 for none.
    pub(crate) id: u32,
    pub(crate) options: SubscriptionFlags,
}

/// A filter with its subscribers. A short text and a single subscriber are stored inline, so that a
/// message to one device touches one or two cache lines here.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) text: SmolStr,
    pub(crate) subscribers: SmallVec<[FilterSubscriber; 1]>,
    #[expect(clippy::box_collection, reason = "a word here, since few filters have any")]
    groups: Option<Box<Vec<u32>>>,
}

const _: () = assert!(size_of::<Option<Filter>>() <= 56);

impl Filter {
    /// Shared groups which subscribe to this filter and are owned by this shard.
    pub(crate) fn groups(&self) -> &[u32] {
        self.groups.as_ref().map_or(&[], |groups| groups)
    }

    /// Adds a group and returns its index in `groups`.
    pub(crate) fn add_group(&mut self, at: u32) -> u32 {
        let groups = self.groups.get_or_insert_default();
        groups.push(at);
        groups.len() as u32 - 1
    }

    /// Removes the group at `place`. The last group moves to `place` and is returned, so that the
    /// caller can update its index.
    pub(crate) fn remove_group(&mut self, place: u32) -> Option<u32> {
        let groups = self.groups.as_mut()?;
        groups.swap_remove(place as usize);
        let moved = groups.get(place as usize).copied();
        if groups.is_empty() {
            self.groups = None;
        }
        moved
    }
}

/// All filters of a shard: exact filters in a hash table, wildcard filters in a `FilterTrie`.
#[derive(Debug)]
pub(crate) struct FilterIndex {
    filters: Slab<Filter>,
    exact: HashTable<u32>,
    trie: FilterTrie,
    hasher: FixedState,
    pub(crate) subscriptions: u64,
    /// Bytes of the texts of all filters, counted in `memory_bytes`.
    text_bytes: u64,
}

impl FilterIndex {
    pub(crate) fn new(seed: u64) -> FilterIndex {
        FilterIndex {
            filters: Slab::default(),
            exact: HashTable::new(),
            trie: FilterTrie::new(seed),
            hasher: FixedState::with_seed(seed),
            subscriptions: 0,
            text_bytes: 0,
        }
    }

    #[inline]
    pub(crate) fn filter(&self, id: FilterId) -> &Filter {
        &self.filters[id.0]
    }

    pub(crate) fn filter_mut(&mut self, id: FilterId) -> &mut Filter {
        &mut self.filters[id.0]
    }

    /// Returns the filter, and whether it is new.
    pub(crate) fn find_or_insert(&mut self, text: &str) -> (FilterId, bool) {
        if let Some(id) = self.find(text) {
            return (id, false);
        }
        self.text_bytes += text.len() as u64;
        let id = self.filters.insert(Filter {
            text: text.into(),
            subscribers: SmallVec::new(),
            groups: None,
        });
        if is_wildcard(text) {
            self.trie.insert(text, id);
        } else {
            let (hasher, filters) = (&self.hasher, &self.filters);
            let hash = hasher.hash_one(text);
            self.exact.insert_unique(hash, id, |&id| hasher.hash_one(&*filters[id].text));
        }
        (FilterId(id), true)
    }

    pub(crate) fn find(&self, text: &str) -> Option<FilterId> {
        if is_wildcard(text) {
            return self.trie.find(text).map(FilterId);
        }
        let hash = self.hasher.hash_one(text);
        self.exact.find(hash, |&id| &*self.filters[id].text == text).map(|&id| FilterId(id))
    }

    /// Removes a filter without subscribers and groups. Returns whether it was removed.
    pub(crate) fn remove_if_unused(&mut self, id: FilterId) -> bool {
        let filter = &self.filters[id.0];
        if !filter.subscribers.is_empty() || filter.groups.is_some() {
            return false;
        }
        let text = self.filters.remove(id.0).map(|filter| filter.text).unwrap_or_default();
        self.text_bytes -= text.len() as u64;
        if is_wildcard(&text) {
            self.trie.remove(&text);
        } else {
            let hash = self.hasher.hash_one(&*text);
            if let Ok(entry) = self.exact.find_entry(hash, |&other| other == id.0) {
                entry.remove();
            }
            if self.exact.is_empty() {
                self.exact = HashTable::new();
            }
        }
        true
    }

    /// Writes every filter which matches the topic to `into`, each once.
    #[inline]
    pub(crate) fn matching(&mut self, topic: &str, into: &mut Vec<FilterId>) {
        into.clear();
        let hash = self.hasher.hash_one(topic);
        if let Some(&id) = self.exact.find(hash, |&id| &*self.filters[id].text == topic) {
            into.push(FilterId(id));
        }
        if !self.trie.is_empty() {
            self.trie.matching(topic, into);
        }
    }

    pub(crate) fn add_subscriber(&mut self, id: FilterId, subscriber: FilterSubscriber) -> u32 {
        let subscribers = &mut self.filters[id.0].subscribers;
        subscribers.push(subscriber);
        self.subscriptions += 1;
        subscribers.len() as u32 - 1
    }

    /// Removes the subscriber at `place`. The last subscriber moves to `place` and is returned, so
    /// that the caller can update its session.
    pub(crate) fn remove_subscriber(
        &mut self,
        id: FilterId,
        place: u32,
    ) -> Option<FilterSubscriber> {
        let subscribers = &mut self.filters[id.0].subscribers;
        subscribers.swap_remove(place as usize);
        self.subscriptions -= 1;
        if subscribers.len() <= 1 || subscribers.len() * 4 < subscribers.capacity() {
            subscribers.shrink_to_fit();
        }
        subscribers.get(place as usize).copied()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        // A trie holds the text a second time, level by level.
        self.filters.len() as u64 * cost::FILTER
            + 2 * self.text_bytes
            + self.trie.nodes() as u64 * cost::FILTER_NODE
            + self.subscriptions * cost::SUBSCRIPTION
    }

    /// Total number of trie nodes which all matches so far have visited.
    pub(crate) fn visited(&self) -> u64 {
        self.trie.visited()
    }

    pub(crate) fn text(&self, filter: FilterId) -> &str {
        &self.filters[filter.0].text
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().map(|(_, filter)| &*filter.text)
    }
}

pub(crate) fn is_wildcard(filter: &str) -> bool {
    filter.bytes().any(|byte| byte == b'+' || byte == b'#')
}
