//! Automatic subscriptions: made when a client connects, as if the client had sent a SUBSCRIBE,
//! permissions included.

use crate::authorization::placeholders::NameTemplate;
use crate::input::SessionId;
use crate::limits::LINK_IDS;
use crate::outbox::Outbox;
use crate::routing::rewrite::is_special;
use crate::session::subscribe::SubscribeOutcome;
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use mqtt::{SharedFilter, SubscribeOptions};

/// An `[[auto_subscribe]]` table of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoSubscription {
    filter: NameTemplate,
    options: SubscribeOptions,
}

impl AutoSubscription {
    /// Parses the values of a table. The error names the wrong value and shows a valid one.
    pub fn parse(filter: &str, options: SubscribeOptions) -> Result<AutoSubscription, String> {
        let filter = NameTemplate::parse(filter, 0).map_err(|why| format!("topic: {why}"))?;
        let example = filter.example();
        let share = SharedFilter::parse(&example).map_err(|_| NO_FILTER.to_string())?;
        let inner = share.map_or(&*example, |share| share.filter);
        if mqtt::topic::check_filter(inner).is_err() || is_special(inner) {
            return Err(NO_FILTER.to_string());
        }
        // [MQTT-3.8.3-4]
        if share.is_some() && options.no_local {
            return Err("no_local is not for shared subscriptions".to_string());
        }
        Ok(AutoSubscription { filter, options })
    }
}

const NO_FILTER: &str = "topic is not a topic filter, use one like \"clients/${clientid}/#\"";

impl Shard {
    /// Makes the automatic subscriptions of a client that has received CONNACK. Links are exempt.
    pub(crate) fn auto_subscribe(&mut self, id: SessionId, out: &mut Outbox) {
        if self.sessions.context.options.auto_subscriptions.is_empty() {
            return;
        }
        // Links make all subscriptions themselves.
        if self.sessions.get(id).client_id.starts_with(LINK_IDS) {
            return;
        }
        let autos = self.sessions.context.options.auto_subscriptions.clone();
        for AutoSubscription { filter, options } in autos.iter() {
            let Some(filter) =
                filter.fill(&self.connections.placeholder_values(id, &self.sessions), |_| "")
            else {
                continue;
            };
            let options = self.subscribed_options_or(id, &filter, *options);
            let granted = self.subscribe_filter(id, &filter, true, options.0, options.1, out);
            // No answer is due, so an invalid name, filled from the client's own values, is
            // skipped.
            let Ok(granted) = granted else { continue };
            let code = match granted {
                Ok(SubscribeOutcome::Own { known, qos, is_new }) => {
                    self.routing.start_retained_feed(
                        id,
                        known,
                        qos,
                        is_new,
                        options.0,
                        options.1,
                        &mut self.sessions,
                    );
                    qos as u8
                }
                Ok(SubscribeOutcome::Shared { qos, .. }) => qos as u8,
                Ok(SubscribeOutcome::Pending { .. }) => continue,
                Err(refusal) => refusal.reason().code(),
            };
            let client_id = self.sessions.get(id).client_id.clone();
            out.events.push(BrokerEvent::Subscribed { client_id, filter: filter.into(), code });
        }
        self.sessions.wake_cursors(id);
    }

    /// Returns the options and the Subscription Identifier of an existing subscription to the
    /// filter, so a resumed session keeps both; else `options` and 0.
    fn subscribed_options_or(
        &self,
        id: SessionId,
        filter: &str,
        options: SubscribeOptions,
    ) -> (SubscribeOptions, u32) {
        let session = self.sessions.get(id);
        let named = self.connections.rewrite_filter(id, filter, &self.sessions).unwrap_or_default();
        let known = session.add_filter_prefix(&named).unwrap_or_default();
        let handling = options.retain_handling;
        let shares = session.extras.as_ref().map_or(&[][..], |extras| &extras.shares);
        if let Some(share) = shares.iter().find(|share| *share.group == *known) {
            return (share.options, share.id);
        }
        let own = self.routing.topics.find(&known).and_then(|filter| {
            let at = session.subscription(filter)?;
            let place = session.subscriptions[at as usize].place;
            Some(&self.routing.topics.filter(filter).subscribers[place as usize])
        });
        own.map_or((options, 0), |own| {
            (SubscribeOptions { retain_handling: handling, ..own.options.options() }, own.id)
        })
    }
}
