//! The end of a connection for its session: takeover, will, and the end of the session.

use crate::broker_event::BrokerEvent;
use crate::connection::conn::Conn;
use crate::counters::DropReason;
use crate::ids::{MonotonicMs, SessionId};
use crate::interface::input::ShardMessage;
use crate::interface::outbox::{Effect, Outbox};
use crate::limits::NONE;
use crate::message::IncomingPublish;
use crate::peer::PeerAddress;
use crate::routing::publish::needs_durable_ack;
use crate::session::group_return::EXPIRY_NEVER;
use crate::session::send_gate::SendGate;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::ReasonCode;

impl Shard {
    /// Ends the older connection when the same client id connects again [MQTT-3.1.4-3]
    /// [3.1.1:MQTT-3.1.4-2].
    pub(crate) fn take_over(&mut self, id: SessionId, by: PeerAddress, out: &mut Outbox) {
        let session = self.sessions.get(id);
        let Some(conn) = session.conn() else { return };
        out.events.push(BrokerEvent::TakenOver { client_id: session.client_id.clone(), by });
        if self.rule_engine.rule_index.wants_events() {
            self.rule_engine.collect_events(&self.connections, &mut self.sessions, out);
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

    /// Publishes the will of a session after the end of the connection, or sets a timer for the
    /// Will Delay Interval. The will is published at the end of the delay or of the session,
    /// whichever is first [MQTT-3.1.2-8].
    pub(crate) fn arm_will(&mut self, id: SessionId, out: &mut Outbox) {
        let now = self.sessions.context.now;
        let session = self.sessions.get_mut(id);
        let (expiry_s, generation) = (session.expiry_s, session.generation);
        let Some(extras) = &mut session.extras else { return };
        let Some(will) = &extras.will else { return };
        if will.delay_s == 0 || expiry_s == 0 {
            return self.publish_will(id, out);
        }
        let at = MonotonicMs(now.0 + u64::from(will.delay_s) * 1000);
        extras.will_at = Some(at);
        self.sessions.context.timers.set(at, ShardTimer::Session { index: id.0, generation });
    }

    /// Publishes the will, if present, and removes it from the session [MQTT-3.1.2-10].
    pub(crate) fn publish_will(&mut self, id: SessionId, out: &mut Outbox) {
        let publisher = self.sessions.publisher_hash(id);
        let session = self.sessions.get_mut(id);
        let Some(extras) = &mut session.extras else { return };
        extras.will_at = None;
        let Some(will) = self.sessions.set_will(id, None) else { return };
        self.sessions.make_dirty(id);
        // The rules may have changed since CONNECT.
        let session = self.sessions.get(id);
        let has_rules = self.sessions.context.options.permissions_at(session.listener).is_some();
        if has_rules && session.permissions.is_some() {
            let manner = (will.qos as u8, will.retain);
            let said = self.sessions.get(id).strip_prefix(&will.topic);
            if !self.authorization.may_publish_will(id, said, manner, &mut self.sessions, out) {
                self.sessions.counters.drops[DropReason::Refused as usize] += 1;
                return;
            }
        }
        let mut draft = IncomingPublish::new(&will.topic, &will.payload, self.sessions.context.now);
        draft.properties = &will.properties;
        draft.qos = will.qos;
        draft.expiry_s = will.expiry_s.min(self.sessions.context.options.message_expiry_s_max);
        draft.publisher = publisher;
        draft.durability = self.sessions.durability_of(&will.topic);
        // The batch with the will also erases the will from the session's record.
        draft.exactly_once = needs_durable_ack(&draft) && self.sessions.waits_for_store(id);
        // [MQTT-3.1.2-14] [MQTT-3.1.2-15]: the will was accepted at CONNECT; without room to retain
        // it now, the message is sent and not retained.
        draft.retain = will.retain && self.routing.has_room_to_retain(&will.topic, &self.sessions);
        let mut ruled = self.rule_engine.run_message_rules(
            id,
            &draft,
            false,
            &self.connections,
            &mut self.sessions,
            out,
        );
        ruled.exactly_once = self.sessions.waits_for_store(id);
        self.retain_and_route(&ruled, None, &mut draft, out);
        self.publish_outputs(ruled, out);
    }
}
