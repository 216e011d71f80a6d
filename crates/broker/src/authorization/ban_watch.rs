//! Bans: refusal of addresses and clients, and the comparison of live connections with a new list.

use crate::authorization::ShardAuthorization;
use crate::broker_event::BrokerEvent;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::ConnId;
use crate::interface::outbox::Outbox;
use crate::message::namespace::NamespacedClientId;
use crate::options::bans::BanSubject;
use crate::peer::PeerAddress;
use crate::refusal::Refusal;
use crate::session::session_table::SessionTable;
use mqtt::Connect;
use std::sync::Arc;

impl ShardAuthorization {
    pub(crate) fn find_ban(
        &self,
        suspect: BanSubject<'_>,
        sessions: &SessionTable,
    ) -> Option<(&'static str, Arc<str>)> {
        let bans = sessions.context.options.bans.as_ref()?;
        let age_ms = sessions.context.now.0.saturating_sub(self.ban_watch.since.0);
        bans.find(suspect, age_ms).map(|(by, reason)| (by, reason.clone()))
    }

    pub(crate) fn count_turned_away(
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
        &self,
        conn: ConnId,
        packet: &Connect<'_>,
        connections: &ConnectionTable,
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
        &self,
        conn: ConnId,
        admitted: &NamespacedClientId,
        user: Option<&str>,
        connections: &ConnectionTable,
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
        &self,
        conn: ConnId,
        admitted: &NamespacedClientId,
        user: Option<&str>,
        connections: &ConnectionTable,
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
    pub(crate) fn restart_ban_watch(&mut self, sessions: &SessionTable) {
        self.ban_watch.since = sessions.context.now;
        self.ban_watch.next = sessions.context.options.bans.is_some().then_some(0);
    }

    pub(crate) fn is_comparing_bans(&self) -> bool {
        self.ban_watch.next.is_some()
    }
}
