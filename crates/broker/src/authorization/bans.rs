//! Bans: clients refused regardless of authentication, by a list from outside or for flapping
//! (`flapping`). An address is refused at accept, before any byte is read; a client id and a user
//! name at CONNECT, before authentication.

use crate::authorization::ShardAuthorization;
use crate::authorization::acl_rules::{IpNetwork, NamePattern};
use crate::connection::conn::CloseReason;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::peer::PeerAddress;
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, MonotonicMs};
use crate::outbox::Outbox;
use crate::routing::namespace::NamespacedClientId;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::broker_event::{BrokerEvent, PeerLog};
use mqtt::Connect;
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
struct BanSubject<'a> {
    client_id: Option<&'a str>,
    user: Option<&'a str>,
    address: Option<IpAddr>,
}

/// State of a shard for the current [`BanList`].
#[derive(Debug, Default)]
pub(crate) struct BanWatch {
    /// Time from which the durations of the list count.
    since: MonotonicMs,
    /// Index of the next connection to be compared with a new list; `None` when done.
    next: Option<usize>,
    pub(crate) turned_away: PeerLog,
}

/// Connections compared with a new list in one tick.
const LOOKED_AT_PER_TICK: usize = 4096;

impl BannedNames {
    fn insert(&mut self, name: NamePattern, term: BanTerm) {
        match name {
            NamePattern::Exactly(name) => insert_longer(&mut self.exact, name, term),
            NamePattern::StartingWith(start) => self.starts.push((start, term)),
        }
    }

    fn find(&self, name: &str, age_ms: u64) -> Option<&BanTerm> {
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
    fn find(&self, suspect: BanSubject<'_>, age_ms: u64) -> Option<(&'static str, &Arc<str>)> {
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

impl ShardAuthorization {
    fn find_ban(
        &self,
        suspect: BanSubject<'_>,
        sessions: &SessionTable,
    ) -> Option<(&'static str, Arc<str>)> {
        let bans = sessions.context.options.bans.as_ref()?;
        let age_ms = sessions.context.now.0.saturating_sub(self.ban_watch.since.0);
        bans.find(suspect, age_ms).map(|(by, reason)| (by, reason.clone()))
    }

    fn count_turned_away(
        &mut self,
        peer: PeerAddress,
        why: &str,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        sessions.counters.connections_turned_away += 1;
        match self.ban_watch.turned_away.count(sessions.context.now, peer, why) {
            Some((peer, why, count)) => {
                out.events.push(BrokerEvent::TurnedAway { peer, why, count })
            }
            None => sessions.context.plan_event_flush(),
        }
    }

    /// Checks client id, user name and address of a CONNECT against the bans, before
    /// authentication.
    pub(crate) fn check_connect_bans(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        // Under another namespace the client id means another client, which may not have flapped.
        let waits = sessions.context.options.namespace_needs_user
            && connections.authenticates_at(conn, sessions);
        let is_known = !waits || connections.auth_decision(conn).is_some();
        let namespace =
            if is_known { connections.namespace_at(conn, sessions) } else { Ok("".into()) };
        // A later check refuses a client without a namespace, with a refusal for the purpose.
        let claimed =
            NamespacedClientId::new(&namespace.unwrap_or_default(), packet.client_id.into());
        match is_known {
            true => self.check_bans(conn, &claimed, packet.user_name, connections, sessions, out),
            false => {
                self.check_ban_list(conn, &claimed, packet.user_name, connections, sessions, out)
            }
        }
    }

    /// Checks a client against flapping and the ban list. The address is included, since behind a
    /// proxy CONNECT is the first check with the real address.
    pub(crate) fn check_bans(
        &mut self,
        conn: ConnId,
        admitted: &NamespacedClientId,
        user: Option<&str>,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if connections.has_flapped(&admitted.key, sessions) {
            sessions.counters.denied_connects += 1;
            return Err(Refusal::Flapping);
        }
        self.check_ban_list(conn, admitted, user, connections, sessions, out)
    }

    fn check_ban_list(
        &mut self,
        conn: ConnId,
        admitted: &NamespacedClientId,
        user: Option<&str>,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let client_id = &*admitted.client_id;
        let Some(peer) = connections.conn(conn).map(|known| known.peer.address) else {
            return Ok(());
        };
        let suspect = BanSubject { client_id: Some(client_id), user, address: peer.ip() };
        let Some((by, reason)) = self.find_ban(suspect, sessions) else { return Ok(()) };
        sessions.counters.denied_connects += 1;
        out.events.push(BrokerEvent::Banned { client_id: client_id.into(), peer, by, reason });
        Err(Refusal::Banned)
    }

    /// Starts the durations of the ban list, after a new list or an unmeasured time, and the
    /// comparison of present connections with the list, `LOOKED_AT_PER_TICK` a tick.
    pub(crate) fn restart_ban_watch(&mut self, sessions: &mut SessionTable) {
        self.ban_watch.since = sessions.context.now;
        self.ban_watch.next = sessions.context.options.bans.is_some().then_some(0);
    }

    pub(crate) fn is_comparing_bans(&self) -> bool {
        self.ban_watch.next.is_some()
    }
}

impl Shard {
    /// Whether an accepted connection from this address is refused by a ban. If so, counts the
    /// connection.
    pub fn refuse_banned_address(
        &mut self,
        now: MonotonicMs,
        address: PeerAddress,
        out: &mut Outbox,
    ) -> bool {
        if self.sessions.context.options.bans.is_none() {
            return false;
        }
        self.sessions.context.now = now;
        let Some((_, reason)) = self.authorization.find_ban(
            BanSubject { address: address.ip(), ..BanSubject::default() },
            &self.sessions,
        ) else {
            return false;
        };
        let why = if reason.is_empty() { "the address is banned" } else { &*reason };
        self.authorization.count_turned_away(
            address,
            &format!("{why} (bans.file)"),
            &mut self.sessions,
            out,
        );
        true
    }

    /// Counts a connection refused at accept, by `AdmissionControl`.
    pub fn note_refused_connection(
        &mut self,
        now: MonotonicMs,
        peer: PeerAddress,
        refusal: Refusal,
        out: &mut Outbox,
    ) {
        self.sessions.context.now = now;
        let option = refusal.options().map(|options| format!(" ({options})"));
        let why = format!("{}{}", refusal.description(), option.unwrap_or_default());
        self.authorization.count_turned_away(peer, &why, &mut self.sessions, out);
    }

    /// Compares further connections with the list. New connections are checked at CONNECT.
    pub(crate) fn continue_ban_watch(&mut self, out: &mut Outbox) {
        let Some(first) = self.authorization.ban_watch.next else { return };
        let end = self.connections.conns.len().min(first + LOOKED_AT_PER_TICK);
        for index in first..end {
            if out.is_full() {
                self.authorization.ban_watch.next = Some(index);
                return;
            }
            self.compare_with_bans(ConnId(index as u32), out);
        }
        self.authorization.ban_watch.next = (end < self.connections.conns.len()).then_some(end);
    }

    fn compare_with_bans(&mut self, conn: ConnId, out: &mut Outbox) {
        let Some(known) = self.connections.conn(conn) else { return };
        let Some(id) = known.session() else { return };
        let (peer, session) = (known.peer.address, self.sessions.get(id));
        let suspect = BanSubject {
            client_id: Some(session.own_client_id()),
            user: session.permissions.as_ref().and_then(|rights| rights.subject.user.as_deref()),
            address: peer.ip(),
        };
        if let Some((by, reason)) = self.authorization.find_ban(suspect, &self.sessions) {
            let client_id = session.client_id.clone();
            out.events.push(BrokerEvent::Banned { client_id, peer, by, reason });
            self.end_connection(conn, CloseReason::Refusal(Refusal::BannedMeanwhile), out);
        }
    }
}
