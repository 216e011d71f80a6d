//! SUBACK once all its filters are decided, by this shard or by others.

use crate::connection::conn::{ConnState, PendingSubAck};
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{ConnId, SessionId, SessionRef};
use crate::interface::outbox::{Effect, Outbox};
use crate::reason_string::encode_with_reason;
use crate::routing::exclusive::ExclusiveClaim;
use crate::session::session_table::SessionTable;
use mqtt::SubAck;

impl ConnectionTable {
    /// Takes the pending claims of a session to this filter out of its SUBACK.
    pub(crate) fn take_claims(
        &mut self,
        id: SessionId,
        filter: &str,
        sessions: &SessionTable,
    ) -> Vec<ExclusiveClaim> {
        let conn = sessions.get(id).conn().and_then(|conn| self.conn_mut(conn));
        let Some(ConnState::AwaitingSubAck { suback, .. }) = conn.map(|known| &mut known.state)
        else {
            return Vec::new();
        };
        let (answered, open) = suback
            .claims
            .drain(..)
            .partition(|exclusive_claim: &ExclusiveClaim| *exclusive_claim.filter == *filter);
        suback.claims = open;
        answered
    }

    /// Sends the SUBACK once no group or claim is pending.
    pub(crate) fn send_ready_suback(
        &mut self,
        id: SessionId,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(conn) = sessions.get(id).conn() else { return };
        let Some(known) = self.conn_mut(conn) else { return };
        let ConnState::AwaitingSubAck { session, suback } = &known.state else { return };
        let session = *session;
        if !suback.groups.is_empty() || !suback.claims.is_empty() {
            return;
        }
        let suback = std::mem::replace(&mut known.state, ConnState::Live { session });
        if let ConnState::AwaitingSubAck { suback, .. } = suback {
            self.send_suback(conn, session, &suback, sessions, out);
        }
        out.effects.push(Effect::Resume { conn });
    }

    /// Sends SUBACK, once the subscriptions are durable [MQTT-3.8.4-1] [MQTT-3.8.4-2]
    /// [MQTT-2.2.1-6].
    pub(crate) fn send_suback(
        &mut self,
        conn: ConnId,
        id: SessionId,
        held: &PendingSubAck,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let session = sessions.get(id);
        let what = held.what.filter(|_| session.wants_reason_strings());
        let bytes = encode_with_reason(what, session.packet_bytes_max, |properties, bytes| {
            let ack = SubAck { packet_id: held.packet_id, properties, codes: &held.codes };
            ack.encode(session.version, bytes);
        });
        let waits = sessions.waits_for_store(id);
        self.send_when_durable(conn, &bytes, waits, sessions, out);
        sessions.wake_cursors(id);
    }

    /// Handles `ShardMessage::GroupJoined`: the owner of a shared group has added a member of this
    /// shard.
    pub(crate) fn on_group_joined(
        &mut self,
        group: &str,
        member: SessionRef,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if !sessions.is_current(member.session, member.generation) {
            return;
        }
        let Some(conn) = sessions.get(member.session).conn() else { return };
        let Some(known) = self.conn_mut(conn) else { return };
        let ConnState::AwaitingSubAck { suback, .. } = &mut known.state else { return };
        suback.groups.retain(|awaited| **awaited != *group);
        self.send_ready_suback(member.session, sessions, out);
    }
}
