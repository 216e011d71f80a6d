//! Bans: clients refused regardless of authentication, by a list from outside or for flapping
//! (`flapping`). An address is refused at accept, before any byte is read; a client id and a user
//! name at CONNECT, before authentication.

use crate::access_rules::acl_rules::{IpNetwork, NamePattern};
use crate::broker_event::PeerLog;
use crate::ids::MonotonicMs;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A list of bans. Immutable: a reload creates another list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BanList {
    client_ids: BannedNames,
    users: BannedNames,
    addresses: BTreeMap<IpAddr, BanTerm>,
    networks: Vec<(IpNetwork, BanTerm)>,
    len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    pub whom: BanTarget,
    /// Duration in milliseconds from the time at which the shards receive the list; `None` for a
    /// permanent ban.
    pub for_ms: Option<u64>,
    /// Reason, for the log.
    pub reason: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BanTarget {
    Address(IpNetwork),
    ClientId(NamePattern),
    User(NamePattern),
}

/// Banned names. Exact names are looked up in a map, prefixes are compared one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BannedNames {
    exact: BTreeMap<Box<str>, BanTerm>,
    starts: Vec<(Box<str>, BanTerm)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BanTerm {
    for_ms: Option<u64>,
    reason: Arc<str>,
}

/// Properties of a client compared with the bans: of the CONNECT, or after authentication.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BanSubject<'a> {
    pub(crate) client_id: Option<&'a str>,
    pub(crate) user: Option<&'a str>,
    pub(crate) address: Option<IpAddr>,
}

/// State of a shard for the current [`BanList`].
#[derive(Debug, Default)]
pub(crate) struct BanWatch {
    /// Time from which the durations of the list count.
    pub(crate) since: MonotonicMs,
    /// Index of the next connection to be compared with a new list; `None` when done.
    pub(crate) next: Option<usize>,
    pub(crate) turned_away: PeerLog,
}

/// Connections compared with a new list in one tick.
pub(crate) const LOOKED_AT_PER_TICK: usize = 4096;

impl BannedNames {
    fn insert(&mut self, name: NamePattern, term: BanTerm) {
        match name {
            NamePattern::Exactly(name) => insert_longer(&mut self.exact, name, term),
            NamePattern::StartingWith(start) => self.starts.push((start, term)),
        }
    }

    pub(crate) fn find(&self, name: &str, age_ms: u64) -> Option<&BanTerm> {
        let starts = self.starts.iter().filter(|(start, _)| name.starts_with(&**start));
        let mut all = self.exact.get(name).into_iter().chain(starts.map(|(_, term)| term));
        all.find(|term| term.is_active(age_ms))
    }
}

impl BanTerm {
    fn is_active(&self, age_ms: u64) -> bool {
        self.for_ms.is_none_or(|for_ms| age_ms < for_ms)
    }
}

/// Inserts a ban, unless there is a longer one for the same key.
fn insert_longer<K: Ord>(all: &mut BTreeMap<K, BanTerm>, key: K, term: BanTerm) {
    let length = |term: &BanTerm| term.for_ms.unwrap_or(u64::MAX);
    let kept = all.entry(key).or_insert_with(|| term.clone());
    if length(&term) > length(kept) {
        *kept = term;
    }
}

impl BanList {
    pub fn new(all: impl IntoIterator<Item = Ban>) -> BanList {
        let mut bans = BanList::default();
        for Ban { whom, for_ms, reason } in all {
            let term = BanTerm { for_ms, reason };
            bans.len += 1;
            match whom {
                BanTarget::Address(network) => match network.single_address() {
                    Some(address) => insert_longer(&mut bans.addresses, address, term),
                    None => bans.networks.push((network, term)),
                },
                BanTarget::ClientId(name) => bans.client_ids.insert(name, term),
                BanTarget::User(name) => bans.users.insert(name, term),
            }
        }
        bans
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the property by which the client is banned, and the reason.
    pub(crate) fn find(
        &self,
        suspect: BanSubject<'_>,
        age_ms: u64,
    ) -> Option<(&'static str, &Arc<str>)> {
        let address = suspect.address.map(|address| address.to_canonical());
        let address = address.and_then(|address| {
            let exact = self.addresses.get(&address).filter(|term| term.is_active(age_ms));
            let wide = || {
                let of = |(network, term): &&(IpNetwork, BanTerm)| {
                    network.contains(address) && term.is_active(age_ms)
                };
                self.networks.iter().find(of).map(|(_, term)| term)
            };
            exact.or_else(wide)
        });
        let client_id = || suspect.client_id.and_then(|id| self.client_ids.find(id, age_ms));
        let user = || suspect.user.and_then(|user| self.users.find(user, age_ms));
        address
            .map(|term| ("address", &term.reason))
            .or_else(|| client_id().map(|term| ("client id", &term.reason)))
            .or_else(|| user().map(|term| ("user", &term.reason)))
    }
}

impl BanWatch {
    pub(crate) fn starting_at(now: MonotonicMs) -> BanWatch {
        BanWatch { since: now, ..BanWatch::default() }
    }
}
