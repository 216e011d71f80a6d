//! The end of a connection, by the broker or by the transport; deadlines stand in `timer`.

use super::*;
use crate::connection::end_detail::describe_violation;
use crate::input::ConnId;
use crate::outbox::{Effect, Outbox};
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;

impl Shard {
    /// Ends a connection: reports an event, sends the reason if the version has a packet for the
    /// purpose, and closes the transport [MQTT-4.13.1-1] [MQTT-4.13.2-1] [MQTT-3.2.2-7]
    /// [MQTT-3.14.4-2].
    pub(crate) fn end_connection(&mut self, conn: ConnId, end: CloseReason, out: &mut Outbox) {
        let detail = std::mem::take(&mut self.connections.violation_detail);
        let Some(known) = self.connections.conn(conn) else { return };
        let (peer, session, welcomed) =
            (known.peer.address, known.session(), known.connacked_session());
        let client_id: Box<str> =
            session.map(|id| self.sessions.get(id).client_id.clone()).unwrap_or_default();
        let refused = self.rule_engine.event_collector.refused.take();
        let event = match end {
            CloseReason::ClientDisconnect(reason) => {
                Some(BrokerEvent::Disconnected { client_id, conn, reason })
            }
            CloseReason::Violation(violation) => {
                self.sessions.counters.violations += 1;
                let detail = describe_violation(violation, detail);
                let told = self.connections.count_end_event(&mut self.sessions);
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
                let told = self.connections.count_end_event(&mut self.sessions);
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
        if self.rule_engine.rule_index.wants_events() {
            self.rule_engine.collect_events(&mut self.connections, &mut self.sessions, out);
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

    /// Handles the end of the transport without a DISCONNECT.
    pub(crate) fn on_closed(&mut self, conn: ConnId, out: &mut Outbox) {
        let Some(known) = self.connections.conn(conn) else { return };
        if let Some(id) = known.session() {
            let session = self.sessions.get(id);
            if !session.is_data_stream {
                let client_id = session.client_id.clone();
                out.events.push(BrokerEvent::Lost { client_id, conn });
                if self.rule_engine.rule_index.wants_events() {
                    self.rule_engine.collect_events(&mut self.connections, &mut self.sessions, out);
                }
            }
        }
        self.forget_conn(conn, out);
    }

    pub(super) fn forget_conn(&mut self, conn: ConnId, out: &mut Outbox) {
        let session =
            self.connections.take_conn(conn, &mut self.sessions).and_then(|known| known.session());
        match session {
            Some(id) if self.sessions.get(id).is_data_stream => self.end_data_stream(id, out),
            Some(id) => self.detach_session(id, out),
            None => {}
        }
    }
}
