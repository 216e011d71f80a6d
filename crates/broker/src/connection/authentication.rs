//! The authentication of a connection: the request for a decision, and the decision until CONNACK.

use crate::connection::auth_exchange::AuthExchange;
use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{ConnId, MonotonicMs};
use crate::interface::outbox::{Effect, Outbox};
use crate::peer::authentication::{AuthOutcome, AuthRequest, AuthStep, Principal, SecretBytes};
use crate::permissions::client_permissions::ClientPermissions;
use crate::refusal::Refusal;
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use mqtt::{Connect, Property};

impl ConnectionTable {
    /// Moves the result of authentication from the connection to the permissions of the new
    /// session. `None` as for [`ClientPermissions::of_peer`].
    pub(crate) fn take_permissions(
        &mut self,
        conn: ConnId,
        sessions: &SessionTable,
    ) -> Option<Box<ClientPermissions>> {
        let rights = ClientPermissions::of_peer(&self.conn(conn)?.peer, &sessions.context.options);
        self.conn_mut(conn)?.peer.clear_auth_outcome();
        rights
    }

    pub(crate) fn will_decision(&self, conn: ConnId) -> Option<bool> {
        match self.conn(conn)?.state {
            ConnState::WillAuthorized { is_allowed } => Some(is_allowed),
            _ => None,
        }
    }

    /// Returns the decision about the client, and `None` before there is one.
    pub(crate) fn auth_decision(&self, conn: ConnId) -> Option<&Result<Box<Principal>, Refusal>> {
        self.conn(conn)?.peer.auth_outcome().map(|pass| &pass.decision)
    }

    /// Requests a decision from the backend by `Effect::Authenticate` and stops reading from the
    /// client. The deadline is `BrokerOptions::verdict_timeout_ms` from now.
    pub(crate) fn request_authentication(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        step: Option<AuthStep>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let deadline = MonotonicMs(
            sessions.context.now.0 + u64::from(sessions.context.options.verdict_timeout_ms),
        );
        let Some(known) = self.conn_mut(conn) else { return };
        if let Some(step) = step.as_ref().filter(|step| step.memory.is_none()) {
            let max = packet.properties.iter().find_map(|property| match property {
                Property::MaximumPacketSize(max) => Some(max),
                _ => None,
            });
            let exchange = AuthExchange::new(&step.method, max.unwrap_or(u32::MAX));
            known.exchange = Some(Box::new(exchange));
        }
        let request = AuthRequest {
            peer: known.peer.address,
            version: packet.version,
            client_id: packet.client_id.into(),
            user_name: packet.user_name.map(Into::into),
            password: packet.password.map(|password| SecretBytes(password.into())),
            listener: known.peer.listener,
            certificate: known.peer.certificate().cloned(),
            step,
        };
        let case = known.generation;
        known.state = ConnState::Authenticating;
        known.timer_at = deadline;
        sessions.context.timers.set(deadline, ShardTimer::Conn { index: conn.0, generation: case });
        out.effects.push(Effect::Hold { conn });
        out.effects.push(Effect::Authenticate { conn, case, request: Box::new(request) });
    }

    /// Whether the decision replaced the client id of CONNECT.
    pub(crate) fn has_other_client_id(&self, conn: ConnId) -> bool {
        let grant = self
            .conn(conn)
            .and_then(|known| known.peer.auth_outcome())
            .and_then(AuthOutcome::principal);
        let given = grant.and_then(|grant| grant.client_id.as_ref());
        given.is_some_and(|id| !id.is_empty())
    }
}
