//! The timer of a connection: the connect timeout, keep-alive and the expiry of credentials.

use super::*;
use crate::connection::authentication::AuthDecision;
use crate::connection::refusal::Refusal;
use crate::input::ConnId;
use crate::outbox::Outbox;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::Violation;

impl Shard {
    /// Handles the timer of a connection: the connect timeout, the deadline of a decision, then
    /// keep-alive and the expiry of credentials. The timer is not moved by activity; when it fires,
    /// the handler compares `last_activity` and sets the timer anew.
    pub(crate) fn check_conn_timer(&mut self, index: u32, generation: u32, out: &mut Outbox) {
        let (now, conn) = (self.sessions.context.now, ConnId(index));
        let Some(known) = self.connections.conn_mut(conn) else { return };
        if known.generation != generation || now < known.timer_at {
            return;
        }
        let (timer_at, session) = (known.timer_at, known.session());
        let due = self.sessions.context.extend_conn_deadline(timer_at, session);
        let pause = self.sessions.context.pause;
        let Some(known) = self.connections.conn_mut(conn) else { return };
        if now < due {
            known.timer_at = due;
            return self.sessions.context.timers.set(due, ShardTimer::Conn { index, generation });
        }
        if matches!(known.state, ConnState::Authenticating | ConnState::Challenged) {
            let case = known.generation;
            return self.on_auth_decision(conn, case, AuthDecision::Deny(Refusal::NoVerdict), out);
        }
        let Some(session) = known.session() else {
            if matches!(known.state, ConnState::AuthorizingWill { .. }) {
                return self.authorization.resume_after_authz(
                    conn,
                    &mut self.connections,
                    &mut self.sessions,
                    out,
                );
            }
            let ms = self.sessions.context.options.connect_timeout_ms;
            self.connections.violation_detail =
                format!("no CONNECT came in time: connect.timeout_ms = {ms}").into();
            return self.end_connection(
                conn,
                CloseReason::Violation(Violation::ConnectExpected),
                out,
            );
        };
        if known.is_read_blocked() {
            // The broker has stopped reading, so the silence does not count.
            known.last_activity = now;
        }
        let silent_at =
            known.keep_alive_deadline().map(|at| pause.extend(at, known.silence_ms_max));
        let expires = self.sessions.get(session).expires();
        if expires.is_some_and(|at| now >= at) {
            return self.end_connection(conn, CloseReason::Refusal(Refusal::Expired), out);
        }
        if silent_at.is_some_and(|at| now >= at) {
            // [MQTT-3.1.2-22]
            return self.end_connection(
                conn,
                CloseReason::Violation(Violation::KeepAliveTimeout),
                out,
            );
        }
        let Some(due) = silent_at.into_iter().chain(expires).min() else { return };
        let Some(known) = self.connections.conn_mut(conn) else { return };
        known.timer_at = due;
        self.sessions.context.timers.set(due, ShardTimer::Conn { index, generation });
        self.sessions.get_mut(session).free_idle_flight();
    }
}
