//! The ways a connection leaves a session: takeover by a new connection, disconnect, and the end of
//! the session.

use crate::connection::conn::Conn;
use crate::connection::peer::PeerAddress;
use crate::connection::send_gate::SendGate;
use crate::input::{MonotonicMs, SessionId, ShardMessage};
use crate::limits::NONE;
use crate::outbox::{Effect, Outbox};
use crate::session::flight::SlotMarks;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use crate::timer::ShardTimer;
use mqtt::{QoS, ReasonCode};

/// Session Expiry Interval of a session that never expires (MQTT 5.0, 3.1.2.11.2).
const EXPIRY_NEVER: u32 = u32::MAX;

impl Shard {
    /// Ends the older connection when the same client id connects again [MQTT-3.1.4-3]
    /// [3.1.1:MQTT-3.1.4-2].
    pub(crate) fn take_over(&mut self, id: SessionId, by: PeerAddress, out: &mut Outbox) {
        let session = self.sessions.get(id);
        let Some(conn) = session.conn() else { return };
        out.events.push(BrokerEvent::TakenOver { client_id: session.client_id.clone(), by });
        if self.rule_engine.rule_index.wants_events() {
            self.rule_engine.collect_events(&mut self.connections, &mut self.sessions, out);
        }
        if self.connections.conn(conn).and_then(Conn::connacked_session).is_some() {
            self.sessions.send_disconnect(id, ReasonCode::SessionTakenOver, None, out);
        }
        out.effects.push(Effect::Close { conn });
        self.connections.take_conn(conn, &mut self.sessions);
        self.detach_session(id, out);
    }

    /// Detaches a session from a connection that has ended: publishes or arms the will, then ends
    /// the session or sets the timer of the Session Expiry Interval.
    pub(crate) fn detach_session(&mut self, id: SessionId, out: &mut Outbox) {
        self.sessions.online -= 1;
        let now = self.sessions.context.now;
        let session = self.sessions.get_mut(id);
        session.conn = NONE;
        session.gate = SendGate::default();
        if let Some(rights) = &mut session.permissions {
            rights.group_guard = None;
            let before = rights.bytes();
            rights.clear_acl_cache();
            let after = rights.bytes();
            self.sessions.count_permissions(before, after);
        }
        let session = self.sessions.get_mut(id);
        if let Some(extras) = &mut session.extras {
            extras.meter = None;
        }
        self.sessions.set_aliases(id, None);
        self.publish_presence(id, false, out);
        self.arm_will(id, out);
        self.sessions.note_away(id);
        self.connections.count_disconnect(id, &mut self.sessions, out);
        let session = self.sessions.get_mut(id);
        let (expiry_s, generation) = (session.expiry_s, session.generation);
        // [MQTT-3.1.2-23] [MQTT-4.1.0-1]
        if expiry_s == 0 {
            return self.end_session(id, false, out);
        }
        if expiry_s != EXPIRY_NEVER {
            let at = MonotonicMs(now.0 + u64::from(expiry_s) * 1000);
            session.extras().ends_at = Some(at);
            self.sessions.context.timers.set(at, ShardTimer::Session { index: id.0, generation });
        }
        self.sessions.return_group_messages(id);
        self.sessions.watch_age(id);
        let session = self.sessions.get_mut(id);
        session.free_idle_flight();
        if session.is_member {
            self.sessions.room_changes.push(id);
        }
    }

    /// Handles a timer of an offline session: publishes the will if the delay has passed, and ends
    /// the session if the expiry has.
    pub(crate) fn check_away_timers(&mut self, id: SessionId, out: &mut Outbox) {
        let now = self.sessions.context.now;
        let Some(extras) = &self.sessions.get(id).extras else { return };
        let (will_at, ends_at) = (extras.will_at, extras.ends_at);
        if will_at.is_some_and(|at| now >= at) {
            self.publish_will(id, out);
        }
        // [MQTT-4.1.0-2]
        if ends_at.is_some_and(|at| now >= at) {
            self.sessions.counters.sessions_expired += 1;
            self.end_session(id, true, out);
        }
    }

    /// Ends a session: publishes a waiting will and removes subscriptions and messages. Retained
    /// messages are not part of the session [3.1.1:MQTT-3.1.2-7].
    pub(crate) fn end_session(&mut self, id: SessionId, expired: bool, out: &mut Outbox) {
        self.publish_will(id, out);
        while let Some(last) = self.sessions.get(id).subscriptions.len().checked_sub(1) {
            let filter = self.sessions.get(id).subscriptions[last].filter;
            let text = self.routing.topics.filter(filter).text.clone();
            self.sessions.erase_filter(id, &text);
            self.routing.drop_subscription(id, last as u32, &mut self.sessions);
        }
        let member = self.sessions.session_ref(id);
        let extras = self.sessions.get_mut(id).extras.as_mut();
        let groups: Vec<_> = extras
            .map(|extras| extras.shares.iter().map(|share| share.group.clone()).collect())
            .unwrap_or_default();
        for group in groups {
            self.sessions.erase_filter(id, &group);
            let owner = self.sessions.context.owner_of(&group);
            if owner == self.sessions.context.id {
                self.routing.leave_group(&group, member, &mut self.sessions);
            } else {
                out.lanes[usize::from(owner.0)]
                    .push_back(ShardMessage::LeaveGroup { group, member });
            }
        }
        self.routing.release_exclusives(id, &mut self.sessions);
        self.routing.forget_persistent(id, &mut self.sessions);
        if let Some(session) = self.sessions.remove(id).filter(|own| !own.is_data_stream) {
            out.events.push(BrokerEvent::SessionEnded { client_id: session.client_id, expired });
        }
    }
}

impl SessionTable {
    /// Returns queued messages of shared groups to the group when a member goes offline, for
    /// another member. Messages that were sent stay with the member [MQTT-4.8.2-4].
    fn return_group_messages(&mut self, id: SessionId) {
        let Some(flight) = &mut self.get_mut(id).flight else { return };
        if flight.waiting.iter().all(|slot| slot.group == NONE) {
            return;
        }
        let waiting = std::mem::take(&mut flight.waiting);
        flight.waiting_bytes = 0;
        flight.waiting_qos0 = 0;
        let persistent = self.get_mut(id).persistent.take();
        for slot in waiting {
            if slot.group != NONE && slot.may_move(false) {
                self.abandon_slot(persistent.as_deref(), slot, true);
                continue;
            }
            let released = slot.marks.has(SlotMarks::RELEASED);
            let bytes = if released { 0 } else { self.messages.get(slot.message).bytes() as u64 };
            let flight = self.get_mut(id).flight();
            flight.waiting_bytes += bytes;
            flight.waiting_qos0 += u32::from(slot.qos == QoS::AtMostOnce);
            flight.waiting.push_back(slot);
        }
        self.get_mut(id).persistent = persistent;
    }
}
