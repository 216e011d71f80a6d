//! Events of deliveries and drops, for rules and the log.

use crate::counters::DropReason;
use crate::ids::SessionId;
use crate::interface::outbox::Outbox;
use crate::interface::rule_event::{EVENTS_PER_INPUT_MAX, RuleClient, RuleEvent, event_index};
use crate::limits::LINK_IDS;
use crate::message::IncomingPublish;
use crate::session::deliver::Delivery;
use crate::session::flight::granted_qos;
use crate::session::session_table::SessionTable;
use mqtt::{Publish, QoS};
use rules::Value;

impl SessionTable {
    /// Reports `message/dropped` for a published message without a receiver.
    #[cold]
    pub(crate) fn on_message_dropped(
        &mut self,
        id: SessionId,
        draft: &mut IncomingPublish<'_>,
        why: &'static str,
    ) {
        if self.event_queue.filter.dropped {
            self.on_event(id, "message/dropped", draft.qos, Some(why), draft);
        }
    }

    /// Reports `message/dropped` for a PUBLISH which was refused before it became a message.
    #[cold]
    pub(crate) fn on_publish_refused(
        &mut self,
        id: SessionId,
        packet: &Publish<'_>,
        drop: DropReason,
    ) {
        let mut draft = IncomingPublish::new(packet.topic, packet.payload, self.context.now);
        (draft.qos, draft.retain) = (packet.qos, packet.retain);
        self.on_message_dropped(id, &mut draft, drop.name());
    }

    /// Delivers a message and reports the outcome to rules. The outcome is read from counters, so
    /// that `deliver` does no work for events.
    pub(crate) fn deliver_with_events(
        &mut self,
        hit: Delivery,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let before = self.sent_counts();
        self.deliver(hit, draft, out);
        self.on_delivered(hit.session, granted_qos(draft.qos, hit.options), before, draft);
    }

    /// Returns the number of messages written to clients, and of messages above Maximum Packet
    /// Size.
    pub(crate) fn sent_counts(&self) -> (u64, u64) {
        (self.counters.publish_sent, self.counters.drops[DropReason::PacketTooLarge as usize])
    }

    /// Reports deliveries since the counts `before`.
    pub(crate) fn on_delivered(
        &mut self,
        id: SessionId,
        qos: QoS,
        before: (u64, u64),
        draft: &mut IncomingPublish<'_>,
    ) {
        if !self.event_queue.filter.wants_deliveries() {
            return;
        }
        let (sent, too_large) = self.sent_counts();
        if sent > before.0 && self.event_queue.filter.delivered {
            self.on_event(id, "message/delivered", qos, None, draft);
        }
        if too_large > before.1 {
            self.on_delivery_dropped(id, DropReason::PacketTooLarge, draft);
        }
    }

    /// Reports `message/acked`: the client has acknowledged a message.
    #[cold]
    pub(crate) fn on_message_acked(&mut self, id: SessionId, draft: &mut IncomingPublish<'_>) {
        self.on_event(id, "message/acked", draft.qos, None, draft);
    }

    /// Reports `message/delivery_dropped`: a message does not reach a client.
    #[cold]
    pub(crate) fn on_delivery_dropped(
        &mut self,
        id: SessionId,
        drop: DropReason,
        draft: &mut IncomingPublish<'_>,
    ) {
        if self.event_queue.filter.delivery_dropped {
            let why = Some(drop.name());
            self.on_event(id, "message/delivery_dropped", draft.qos, why, draft);
        }
    }

    fn on_event(
        &mut self,
        id: SessionId,
        event: &str,
        qos: QoS,
        why: Option<&'static str>,
        draft: &mut IncomingPublish<'_>,
    ) {
        let session = self.get(id);
        let told =
            self.event_queue.filter.delivery_options.has(event).then(|| session.client_id.clone());
        let Some(event) = event_index(event) else { return };
        if session.own_client_id().starts_with(LINK_IDS) || draft.topic.starts_with("$SYS/") {
            return;
        }
        if self.event_queue.events.len() >= EVENTS_PER_INPUT_MAX {
            self.event_queue.overflow_counts[event] += 1;
            return;
        }
        let who = RuleClient {
            client_id: session.own_client_id().into(),
            user: session.permissions.as_ref().and_then(|rights| rights.subject.user.clone()),
            ..RuleClient::default()
        };
        let more = why.map(|why| ("reason", Value::text(why))).into_iter().collect();
        let message = Some(draft.message().clone());
        self.event_queue.events.push(RuleEvent {
            event,
            client: who,
            extra_fields: more,
            message,
            qos,
            reported_client_id: told,
        });
    }
}
