//! The effect of an authentication decision on a CONNECT.

use crate::authorization::ShardAuthorization;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::ConnId;
use crate::interface::outbox::Outbox;
use crate::message::namespace::NamespacedClientId;
use crate::refusal::Refusal;
use crate::session::session_table::SessionTable;
use mqtt::Connect;

impl ShardAuthorization {
    /// Applies the decision to a CONNECT with an admitted client id. Returns the client id of the
    /// [`Principal`] if present, or an assigned id, after a check of length, reserved prefix and
    /// bans.
    pub(crate) fn apply_auth_decision(
        &self,
        conn: ConnId,
        packet: &Connect<'_>,
        admitted: NamespacedClientId,
        connections: &ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<NamespacedClientId, Refusal> {
        let (client_id, user) = match connections.auth_decision(conn) {
            None => return Ok(admitted),
            Some(Err(refusal)) => {
                let refusal = *refusal;
                let is_about_who = !matches!(refusal, Refusal::QuotaExceeded | Refusal::TooFast);
                sessions.counters.denied_connects += u64::from(is_about_who);
                return Err(refusal);
            }
            Some(Ok(principal)) => (principal.client_id.clone(), principal.user.clone()),
        };
        let namespace = connections.namespace_at(conn, sessions)?;
        let client_id = match client_id {
            Some(id) if id.len() > usize::from(sessions.context.options.client_id_bytes_max) => {
                return Err(Refusal::ClientIdTooLong);
            }
            Some(id) if !id.is_empty() => {
                connections.check_reserved(conn, &id)?;
                id
            }
            _ if packet.client_id.is_empty() => sessions.assign_client_id(&namespace),
            _ => admitted.client_id,
        };
        let admitted = NamespacedClientId::new(&namespace, client_id);
        self.check_bans(conn, &admitted, user.as_deref(), connections, sessions, out)?;
        Ok(admitted)
    }
}
