//! The will: a message published when a client's connection ends without DISCONNECT.

use crate::input::{MonotonicMs, SessionId};
use crate::memory::cost;
use crate::outbox::Outbox;
use crate::routing::message::{IncomingPublish, NO_EXPIRY};
use crate::routing::publish::needs_durable_ack;
use crate::session::session_table::Session;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::sys::DropReason;
use crate::timer::ShardTimer;
use mqtt::{Property, QoS};

#[derive(Clone, Debug)]
pub(crate) struct SessionWill {
    pub(crate) topic: Box<str>,
    pub(crate) payload: Box<[u8]>,
    /// Encoded properties for subscribers, in the client's order [MQTT-3.1.3-10].
    pub(crate) properties: Box<[u8]>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) delay_s: u32,
    pub(crate) expiry_s: u32,
}

impl SessionWill {
    /// Creates the will of a session's client, with the namespace prefix in the names.
    pub(crate) fn of(session: &Session, will: &mqtt::Will<'_>) -> SessionWill {
        let (mut delay_s, mut expiry_s, mut properties) = (0, NO_EXPIRY, Vec::new());
        for (property, bytes) in will.properties.iter_with_bytes() {
            match property {
                Property::WillDelayInterval(seconds) => delay_s = seconds,
                Property::MessageExpiryInterval(seconds) => expiry_s = seconds,
                other => _ = session.add_property_prefix(other, bytes, &mut properties),
            }
        }
        SessionWill {
            topic: session.add_prefix(will.topic).into(),
            payload: will.payload.into(),
            properties: properties.into(),
            qos: will.qos,
            retain: will.retain,
            delay_s,
            expiry_s,
        }
    }
}

impl SessionWill {
    pub(crate) fn bytes(&self) -> u64 {
        (self.topic.len() + self.payload.len() + self.properties.len()) as u64 + cost::KEPT * 2
    }
}

impl Shard {
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

impl SessionTable {
    /// Whether the will of a persistent session has a delay, which goes on while the process is
    /// down.
    pub(crate) fn has_delayed_will(&self, id: SessionId) -> bool {
        let session = self.get(id);
        let will = session.extras.as_ref().and_then(|extras| extras.will.as_ref());
        session.persistent.is_some() && will.is_some_and(|will| will.delay_s > 0)
    }
}
