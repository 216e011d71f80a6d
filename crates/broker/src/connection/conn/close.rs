//! The end of a connection: by the broker, by a deadline, or by the transport.

use super::*;
use crate::connection::authentication::AuthDecision;
use crate::connection::end_detail::describe_violation;
use crate::connection::refusal::Refusal;
use crate::input::ConnId;
use crate::outbox::{Effect, Outbox};
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use crate::timer::ShardTimer;
use mqtt::Violation;

impl Shard {
    /// Ends a connection: reports an event, sends the reason if the version has a packet for the
    /// purpose, and closes the transport [MQTT-4.13.1-1] [MQTT-4.13.2-1] [MQTT-3.2.2-7]
    /// [MQTT-3.14.4-2].
    pub(crate) fn end_connection(&mut self, conn: ConnId, end: CloseReason, out: &mut Outbox) {
        let detail = std::mem::take(&mut self.violation_detail);
        let Some(known) = self.conn(conn) else { return };
        let (peer, session, welcomed) =
            (known.peer.address, known.session(), known.connacked_session());
        let client_id: Box<str> =
            session.map(|id| self.sessions.get(id).client_id.clone()).unwrap_or_default();
        let refused = self.event_collector.refused.take();
        let event = match end {
            CloseReason::ClientDisconnect(reason) => {
                Some(BrokerEvent::Disconnected { client_id, conn, reason })
            }
            CloseReason::Violation(violation) => {
                self.sessions.counters.violations += 1;
                let detail = describe_violation(violation, detail);
                let told = self.count_end_event();
                told.map(|withheld| BrokerEvent::Violated {
                    client_id,
                    conn,
                    peer,
                    violation,
                    detail,
                    withheld,
                })
            }
            CloseReason::Refusal(refusal) => {
                let told = self.count_end_event();
                let (client_id, user) = match session {
                    Some(_) => (client_id, None),
                    None => refused.unwrap_or_default(),
                };
                told.map(|withheld| BrokerEvent::Refused {
                    client_id,
                    user,
                    conn,
                    peer,
                    refusal,
                    was_in: welcomed.is_some(),
                    withheld,
                })
            }
        };
        out.events.extend(event);
        if self.rule_index.wants_events() {
            self.collect_events(out);
        }
        let said = match end {
            CloseReason::ClientDisconnect(_) => None,
            CloseReason::Violation(violation) => {
                Some((violation.reason(), violation.description()))
            }
            CloseReason::Refusal(refusal) => Some((refusal.reason(), refusal.description())),
        };
        // Before CONNACK no DISCONNECT may be sent [MQTT-3.14.0-1].
        if let (Some(id), Some((reason, what))) = (welcomed, said) {
            self.sessions.send_disconnect(id, reason, Some(what), out);
        }
        out.effects.push(Effect::Close { conn });
        self.forget_conn(conn, out);
    }

    /// Handles the timer of a connection: the connect timeout, the deadline of a decision, then
    /// keep-alive and the expiry of credentials. The timer is not moved by activity; when it fires,
    /// the handler compares `last_activity` and sets the timer anew.
    pub(crate) fn check_conn_timer(&mut self, index: u32, generation: u32, out: &mut Outbox) {
        let (now, conn) = (self.now, ConnId(index));
        let Some(known) = self.conn_mut(conn) else { return };
        if known.generation != generation || now < known.timer_at {
            return;
        }
        let (timer_at, session) = (known.timer_at, known.session());
        let due = self.extend_conn_deadline(timer_at, session);
        let pause = self.pause;
        let Some(known) = self.conn_mut(conn) else { return };
        if now < due {
            known.timer_at = due;
            return self.timers.set(due, ShardTimer::Conn { index, generation });
        }
        if matches!(known.state, ConnState::Authenticating | ConnState::Challenged) {
            let case = known.generation;
            return self.on_auth_decision(conn, case, AuthDecision::Deny(Refusal::NoVerdict), out);
        }
        let Some(session) = known.session() else {
            if matches!(known.state, ConnState::AuthorizingWill { .. }) {
                return self.resume_after_authz(conn, out);
            }
            let ms = self.options.connect_timeout_ms;
            self.violation_detail =
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
        let Some(known) = self.conn_mut(conn) else { return };
        known.timer_at = due;
        self.timers.set(due, ShardTimer::Conn { index, generation });
        self.sessions.get_mut(session).free_idle_flight();
    }

    /// Handles the end of the transport without a DISCONNECT.
    pub(crate) fn on_closed(&mut self, conn: ConnId, out: &mut Outbox) {
        let Some(known) = self.conn(conn) else { return };
        if let Some(id) = known.session() {
            let session = self.sessions.get(id);
            if !session.is_data_stream {
                let client_id = session.client_id.clone();
                out.events.push(BrokerEvent::Lost { client_id, conn });
                if self.rule_index.wants_events() {
                    self.collect_events(out);
                }
            }
        }
        self.forget_conn(conn, out);
    }

    pub(super) fn forget_conn(&mut self, conn: ConnId, out: &mut Outbox) {
        let session = self.take_conn(conn).and_then(|known| known.session());
        match session {
            Some(id) if self.sessions.get(id).is_data_stream => self.end_data_stream(id, out),
            Some(id) => self.detach_session(id, out),
            None => {}
        }
    }
}
