//! Client groups: groups of users with limits of their own, and the number of connections of each.
//!
//! Options of a group override options of the listener, which override the options of the broker. A
//! client in several groups has the options of the first group in the configuration.

use crate::authorization::client_permissions::ClientPermissions;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::leaky_bucket::LeakyBucket;
use crate::connection::peer::{ListenerId, PeerInfo};
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, MonotonicMs};
use crate::limits::LINK_IDS;
use crate::options::BrokerOptions;
use crate::session::session_table::Session;
use crate::session::session_table::SessionTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientGroup {
    /// Name of the group, as returned by the authentication backends.
    pub name: Arc<str>,
    pub options: Arc<BrokerOptions>,
    pub present: ClientGroupCounter,
}

/// Index of a group. Every listener has the same groups in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGroupId(u8);

/// Counts the connections of a group and the connection rate, for all shards of the process.
#[derive(Clone, Debug, Default)]
pub struct ClientGroupCounter(Arc<ClientGroupCounts>);

#[derive(Debug, Default)]
struct ClientGroupCounts {
    present: AtomicU32,
    /// State of a [`LeakyBucket`].
    paid_ns: AtomicU64,
}

/// Counts a connection of a group as present until dropped.
#[derive(Debug)]
pub(crate) struct ClientGroupGuard(ClientGroupCounter);

impl ClientGroupCounter {
    /// Counts a connection, unless the group already has `max` of them.
    fn admit(&self, max: u32) -> Option<ClientGroupGuard> {
        let one_more = |count: u32| (count < max).then_some(count + 1);
        self.0.present.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        Some(ClientGroupGuard(self.clone()))
    }

    /// Whether the rate allows one more connection now. If so, the connection is charged.
    fn admit_rate(&self, now: MonotonicMs, per_s: u32) -> bool {
        let one_more = |paid_ns| {
            let mut pace = LeakyBucket { paid_ns };
            pace.blocked_until(now, per_s).is_none().then(|| {
                pace.charge(now, 1, per_s);
                pace.paid_ns
            })
        };
        self.0.paid_ns.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }
}

impl PartialEq for ClientGroupCounter {
    fn eq(&self, other: &ClientGroupCounter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientGroupCounter {}

impl Drop for ClientGroupGuard {
    fn drop(&mut self) {
        self.0.0.present.fetch_sub(1, Relaxed);
    }
}

impl BrokerOptions {
    /// Returns the options of a client with this listener and group.
    #[inline]
    pub(crate) fn options_of_client(
        &self,
        at: ListenerId,
        class: Option<ClientGroupId>,
    ) -> &BrokerOptions {
        let own = self.options_of_listener(at);
        match class.and_then(|ClientGroupId(class)| own.client_groups.get(usize::from(class))) {
            Some(class) => &class.options,
            None => own,
        }
    }

    /// Returns the options of a session, by the listener and group of the last connection.
    #[inline]
    pub(crate) fn options_of_session(&self, session: &Session) -> &BrokerOptions {
        let own = self.options_of_listener(session.listener);
        // Without groups, the cache line of the permissions is not touched.
        if own.client_groups.is_empty() {
            return own;
        }
        let class = session.permissions.as_ref().and_then(|rights| rights.client_group);
        self.options_of_client(session.listener, class)
    }

    /// Returns the group of a client, by the groups from authentication and the members listed in
    /// the rules of the listener; `None` without a group.
    pub(crate) fn client_group_of(
        &self,
        at: ListenerId,
        user: Option<&str>,
        groups: &[Arc<str>],
    ) -> Option<ClientGroupId> {
        // A link that acts as another user keeps the limits of the link.
        if let Some(link) = groups.first().filter(|group| group.starts_with(LINK_IDS)) {
            return self.find_client_group(|class| class.name == *link);
        }
        let permissions = self.permissions_at(at);
        let members = permissions.map_or(&[][..], |permissions| permissions.groups_of(user));
        let is_in = |name: &Arc<str>| groups.contains(name) || members.contains(name);
        self.find_client_group(|class| is_in(&class.name))
    }

    fn find_client_group(&self, is_it: impl Fn(&ClientGroup) -> bool) -> Option<ClientGroupId> {
        let at = self.client_groups.iter().position(is_it)?;
        u8::try_from(at).ok().map(ClientGroupId)
    }

    /// Returns the options of a client before CONNACK, by the group if the `Principal` is known.
    pub(crate) fn options_of_peer(&self, peer: &PeerInfo) -> &BrokerOptions {
        let principal = peer.auth_outcome().and_then(|pass| pass.principal());
        let class = principal.and_then(|principal| {
            self.client_group_of(peer.listener, principal.user.as_deref(), &principal.groups)
        });
        self.options_of_client(peer.listener, class)
    }
}

impl ConnectionTable {
    pub(crate) fn limits_at<'a>(
        &'a self,
        conn: ConnId,
        sessions: &'a SessionTable,
    ) -> &'a BrokerOptions {
        self.conn(conn).map_or(&sessions.context.options, |known| {
            sessions.context.options.options_of_peer(&known.peer)
        })
    }

    /// Counts a client in the group, if the group has a limit. `Refusal::QuotaExceeded` above
    /// `connections_max`, `Refusal::TooFast` above `connections_per_s`. An earlier connection of
    /// the same session passes its guard on.
    pub(crate) fn join_client_group(
        &mut self,
        conn: ConnId,
        client_id: &str,
        rights: Option<&mut ClientPermissions>,
        sessions: &mut SessionTable,
    ) -> Result<(), Refusal> {
        let Some(rights) = rights else { return Ok(()) };
        let Some(ClientGroupId(class)) = rights.client_group else { return Ok(()) };
        let limits = self.limits_at_client_group(conn, rights.client_group, sessions);
        let (max, per_s) = (limits.connections_max, limits.connections_per_s);
        let options = sessions.context.options.clone();
        let Some(class) = options.client_groups.get(usize::from(class)) else { return Ok(()) };
        let (present, now) = (&class.present, sessions.context.now);
        let kept = match sessions.find(client_id) {
            Some(id) => Some(sessions.get_mut(id)),
            None => None,
        };
        let before = kept.and_then(|session| session.permissions.as_mut());
        let before = before.map(|rights| &mut rights.group_guard);
        let before = before.filter(|own| own.as_ref().is_some_and(|own| own.0 == *present));
        let is_new = max > 0 && before.is_none();
        let place =
            if is_new { Some(present.admit(max).ok_or(Refusal::QuotaExceeded)?) } else { None };
        // A client refused for lack of room does not use up the rate.
        if per_s > 0 && !present.admit_rate(now, per_s) {
            return Err(Refusal::TooFast);
        }
        if max > 0 {
            rights.group_guard = place.or_else(|| before.and_then(Option::take));
        }
        Ok(())
    }

    fn limits_at_client_group<'a>(
        &self,
        conn: ConnId,
        class: Option<ClientGroupId>,
        sessions: &'a SessionTable,
    ) -> &'a BrokerOptions {
        let listener = self.conn(conn).map(|known| known.peer.listener);
        sessions.context.options.options_of_client(listener.unwrap_or_default(), class)
    }
}

impl SessionTable {
    /// Assigns the groups of all sessions again, after a change of the options.
    pub(crate) fn reassign_client_groups(&mut self) {
        let options = self.context.options.clone();
        self.each_mut(|session| {
            if let Some(rights) = &mut session.permissions {
                let who = &rights.subject;
                rights.client_group =
                    options.client_group_of(who.listener, who.user.as_deref(), &who.groups);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_counts_up_to_its_limit_and_who_goes_makes_room() {
        let present = ClientGroupCounter::default();
        let (one, two) = (present.admit(2), present.admit(2));
        assert!(one.is_some() && two.is_some() && present.admit(2).is_none());
        drop(one);
        assert!(present.admit(2).is_some());
    }

    #[test]
    fn the_more_particular_limit_wins() {
        let with = |inflight_max| BrokerOptions { inflight_max, ..BrokerOptions::default() };
        let class = |inflight_max| ClientGroup {
            name: "slow".into(),
            options: Arc::new(with(inflight_max)),
            present: ClientGroupCounter::default(),
        };
        let own = BrokerOptions { client_groups: vec![class(4)], ..with(3) };
        let listeners = vec![None, Some(Arc::new(own))];
        let all = BrokerOptions { client_groups: vec![class(2)], listeners, ..with(1) };
        let slow = all.client_group_of(ListenerId(0), None, &["fast".into(), "slow".into()]);
        let limit = |at, class| all.options_of_client(ListenerId(at), class).inflight_max;
        assert_eq!([limit(0, None), limit(0, slow), limit(1, None), limit(1, slow)], [1, 2, 3, 4]);
        assert_eq!(all.client_group_of(ListenerId(0), None, &["fast".into()]), None);
    }
}
