//! The data of a client for rules.

use crate::broker_event::BrokerEvent;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::SessionId;
use crate::interface::rule_event::{RuleClient, RuleEvent, host_text, snake_case_reason};
use crate::message::namespace::split_client_id;
use crate::message::will::DelayedPublisher;
use crate::session::session_table::SessionTable;
use mqtt::QoS;
use rules::{EVENTS, Value};

impl ConnectionTable {
    pub(crate) fn rule_event_of(
        &self,
        event: usize,
        broker_event: &BrokerEvent,
        sessions: &SessionTable,
    ) -> RuleEvent {
        let whole = broker_event.client_id().unwrap_or_default();
        let (namespace, said) = split_client_id(whole);
        let session = sessions.find(whole).filter(|_| !whole.is_empty());
        let mut who = session.map(|id| self.rule_client_of(id, sessions)).unwrap_or_default();
        who.client_id = said.into();
        let mut more = broker_event.fields();
        let now = sessions.context.time_of_day_ms(sessions.context.now.0);
        match broker_event {
            BrokerEvent::Connected { peer, .. } => {
                who.address = Some(host_text(*peer));
                let expiry_s = session.map_or(0, |id| sessions.get(id).expiry_s);
                more.push(("expiry_interval", Value::Int(expiry_s.into())));
                more.push(("connected_at", Value::Int(now)));
                more.push(("reason_code", Value::text("success")));
            }
            BrokerEvent::Refused { peer, refusal, user, .. } => {
                who.address = Some(host_text(*peer));
                who.user = who.user.or_else(|| user.clone());
                more.push(("reason_code", snake_case_reason(refusal.reason())));
                more.push(("result", Value::text("deny")));
            }
            BrokerEvent::Denied { .. } => more.push(("result", Value::text("deny"))),
            BrokerEvent::Subscribed { code, .. } => more.push(("qos", Value::Int((*code).into()))),
            _ => {}
        }
        if EVENTS[event].fields.contains(&"disconnected_at") {
            more.push(("disconnected_at", Value::Int(now)));
        }
        more.extend(namespace.map(|name| ("namespace", Value::Text(name.to_string().into()))));
        more.retain(|(name, _)| EVENTS[event].fields.contains(name));
        RuleEvent {
            event,
            client: who,
            extra_fields: more,
            message: None,
            qos: QoS::AtMostOnce,
            reported_client_id: None,
        }
    }

    /// Returns the publisher's data to store with a delayed message.
    pub(crate) fn delayed_publisher(
        &self,
        id: SessionId,
        sessions: &SessionTable,
    ) -> DelayedPublisher {
        let RuleClient { user, address, .. } = self.rule_client_of(id, sessions);
        let client_id = sessions.get(id).client_id.clone();
        DelayedPublisher { client_id, user, address: address.map(Into::into) }
    }

    /// Returns a session's client, with the client id from CONNECT.
    pub(crate) fn rule_client_of(&self, id: SessionId, sessions: &SessionTable) -> RuleClient {
        let session = sessions.get(id);
        let peer = session.conn().and_then(|conn| self.conn(conn)).map(|known| known.peer.address);
        RuleClient {
            client_id: session.own_client_id().into(),
            user: session.permissions.as_ref().and_then(|rights| rights.subject.user.clone()),
            address: peer.map(host_text),
            id: String::new(),
        }
    }
}
