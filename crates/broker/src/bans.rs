//! Who may not come in, whoever they can prove to be: a list from outside, and clients that came
//! and went too often (`flapping`). An address is turned away as it is accepted, before a byte of
//! it is read; a client id and a user name at CONNECT, before anybody is asked who it is.

use crate::conn::End;
use crate::input::{ConnId, Now};
use crate::mount::Admitted;
use crate::note::{Note, PeerLog};
use crate::outbox::Outbox;
use crate::peer::Address;
use crate::permissions::{Name, Network};
use crate::refusal::Refusal;
use crate::shard::Shard;
use mqtt::Connect;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Never changed: a reload brings another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bans {
    client_ids: Names,
    users: Names,
    addresses: BTreeMap<IpAddr, Term>,
    networks: Vec<(Network, Term)>,
    len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    pub whom: Whom,
    /// From the moment when shards are told of the list; none is for good.
    pub for_ms: Option<u64>,
    /// For the log.
    pub reason: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    Address(Network),
    ClientId(Name),
    User(Name),
}

/// Exact names are found, however many there are; the others are looked through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    exact: BTreeMap<Box<str>, Term>,
    starts: Vec<(Box<str>, Term)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    for_ms: Option<u64>,
    reason: Arc<str>,
}

/// One client, as far as it is known: what it says of itself, or what was found out.
#[derive(Clone, Copy, Debug, Default)]
struct Suspect<'a> {
    client_id: Option<&'a str>,
    user: Option<&'a str>,
    address: Option<IpAddr>,
}

/// A shard's part of it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Since when the list counts.
    since: Now,
    /// The next connection to be compared with a new list.
    next: Option<usize>,
    pub(crate) turned_away: PeerLog,
}

/// Connections that are compared with a new list in one tick.
const LOOKED_AT_PER_TICK: usize = 4096;

impl Names {
    fn insert(&mut self, name: Name, term: Term) {
        match name {
            Name::Exactly(name) => keep_longer(&mut self.exact, name, term),
            Name::StartingWith(start) => self.starts.push((start, term)),
        }
    }

    fn find(&self, name: &str, age_ms: u64) -> Option<&Term> {
        let starts = self.starts.iter().filter(|(start, _)| name.starts_with(&**start));
        let mut all = self.exact.get(name).into_iter().chain(starts.map(|(_, term)| term));
        all.find(|term| term.holds(age_ms))
    }
}

impl Term {
    fn holds(&self, age_ms: u64) -> bool {
        self.for_ms.is_none_or(|for_ms| age_ms < for_ms)
    }
}

/// Of two bans of the same one the longer.
fn keep_longer<K: Ord>(all: &mut BTreeMap<K, Term>, key: K, term: Term) {
    let length = |term: &Term| term.for_ms.unwrap_or(u64::MAX);
    let kept = all.entry(key).or_insert_with(|| term.clone());
    if length(&term) > length(kept) {
        *kept = term;
    }
}

impl Bans {
    pub fn new(all: impl IntoIterator<Item = Ban>) -> Bans {
        let mut bans = Bans::default();
        for Ban { whom, for_ms, reason } in all {
            let term = Term { for_ms, reason };
            bans.len += 1;
            match whom {
                Whom::Address(network) => match network.only() {
                    Some(address) => keep_longer(&mut bans.addresses, address, term),
                    None => bans.networks.push((network, term)),
                },
                Whom::ClientId(name) => bans.client_ids.insert(name, term),
                Whom::User(name) => bans.users.insert(name, term),
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

    /// By what it is banned, and why.
    fn find(&self, suspect: Suspect<'_>, age_ms: u64) -> Option<(&'static str, &Arc<str>)> {
        let address = suspect.address.map(|address| address.to_canonical());
        let address = address.and_then(|address| {
            let exact = self.addresses.get(&address).filter(|term| term.holds(age_ms));
            let wide = || {
                let of = |(network, term): &&(Network, Term)| {
                    network.contains(address) && term.holds(age_ms)
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

impl Watch {
    pub(crate) fn starting(now: Now) -> Watch {
        Watch { since: now, ..Watch::default() }
    }
}

impl Shard {
    fn ban_of(&self, suspect: Suspect<'_>) -> Option<(&'static str, Arc<str>)> {
        let bans = self.options.bans.as_ref()?;
        let age_ms = self.now.0.saturating_sub(self.watch.since.0);
        bans.find(suspect, age_ms).map(|(by, reason)| (by, reason.clone()))
    }

    /// Whether a connection from this address ends as it is accepted.
    pub fn turns_away(&mut self, now: Now, address: Address, out: &mut Outbox) -> bool {
        if self.options.bans.is_none() {
            return false;
        }
        self.now = now;
        let Some((_, reason)) =
            self.ban_of(Suspect { address: address.ip(), ..Suspect::default() })
        else {
            return false;
        };
        let why = if reason.is_empty() { "the address is banned" } else { &*reason };
        self.count_turned_away(address, &format!("{why} (bans.file)"), out);
        true
    }

    /// A connection was closed as it was accepted.
    pub fn turned_away(&mut self, now: Now, peer: Address, refusal: Refusal, out: &mut Outbox) {
        self.now = now;
        let option = refusal.options().map(|options| format!(" ({options})"));
        let why = format!("{}{}", refusal.what(), option.unwrap_or_default());
        self.count_turned_away(peer, &why, out);
    }

    fn count_turned_away(&mut self, peer: Address, why: &str, out: &mut Outbox) {
        self.sessions.counters.connections_turned_away += 1;
        match self.watch.turned_away.count(self.now, peer, why) {
            Some((peer, why, count)) => out.notes.push(Note::TurnedAway { peer, why, count }),
            None => self.plan_notes(),
        }
    }

    /// What a CONNECT says, before anybody is asked whether it is true.
    pub(crate) fn check_claimed(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        // Who it is under another namespace is somebody else, who may not have flapped.
        let waits = self.options.mounts_users && self.judges_at(conn);
        let is_known = !waits || self.decided(conn).is_some();
        let namespace = if is_known { self.namespace_at(conn) } else { Ok("".into()) };
        // Whoever has none is told so later, in the words that are for that.
        let claimed = Admitted::new(&namespace.unwrap_or_default(), packet.client_id.into());
        match is_known {
            true => self.check_bans(conn, &claimed, packet.user_name, out),
            false => self.check_list(conn, &claimed, packet.user_name, out),
        }
    }

    /// Behind a proxy this is where the address is met for the first time.
    pub(crate) fn check_bans(
        &mut self,
        conn: ConnId,
        admitted: &Admitted,
        user: Option<&str>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if self.has_flapped(&admitted.key) {
            self.sessions.counters.denied_connects += 1;
            return Err(Refusal::Flapping);
        }
        self.check_list(conn, admitted, user, out)
    }

    fn check_list(
        &mut self,
        conn: ConnId,
        admitted: &Admitted,
        user: Option<&str>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let client_id = &*admitted.client_id;
        let Some(peer) = self.conn(conn).map(|known| known.peer.address) else { return Ok(()) };
        let suspect = Suspect { client_id: Some(client_id), user, address: peer.ip() };
        let Some((by, reason)) = self.ban_of(suspect) else { return Ok(()) };
        self.sessions.counters.denied_connects += 1;
        out.notes.push(Note::Banned { client_id: client_id.into(), peer, by, reason });
        Err(Refusal::Banned)
    }

    /// There is a new list, or time has passed that the last one does not know of: it counts from
    /// now on, and whoever is in is compared with it tick by tick.
    pub(crate) fn watch_anew(&mut self) {
        self.watch.since = self.now;
        self.watch.next = self.options.bans.is_some().then_some(0);
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.watch.next.is_some()
    }

    /// Goes on comparing. Connections that come meanwhile have met the new list at CONNECT.
    pub(crate) fn watch_on(&mut self, out: &mut Outbox) {
        let Some(first) = self.watch.next else { return };
        let end = self.conns.len().min(first + LOOKED_AT_PER_TICK);
        for index in first..end {
            if out.is_full() {
                self.watch.next = Some(index);
                return;
            }
            self.look_at(ConnId(index as u32), out);
        }
        self.watch.next = (end < self.conns.len()).then_some(end);
    }

    fn look_at(&mut self, conn: ConnId, out: &mut Outbox) {
        let Some(known) = self.conn(conn) else { return };
        let Some(id) = known.session() else { return };
        let (peer, session) = (known.peer.address, self.sessions.get(id));
        let suspect = Suspect {
            client_id: Some(session.said_id()),
            user: session.rights.as_ref().and_then(|rights| rights.who.user.as_deref()),
            address: peer.ip(),
        };
        if let Some((by, reason)) = self.ban_of(suspect) {
            let client_id = session.client_id.clone();
            out.notes.push(Note::Banned { client_id, peer, by, reason });
            self.end(conn, End::Refusal(Refusal::BannedMeanwhile), out);
        }
    }
}
