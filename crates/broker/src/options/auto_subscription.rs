//! Automatic subscriptions: made when a client connects, as if the client had sent a SUBSCRIBE,
//! permissions included.

use crate::access_rules::placeholders::NameTemplate;
use crate::options::rewrite::is_special;
use mqtt::{SharedFilter, SubscribeOptions};

/// An `[[auto_subscribe]]` table of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoSubscription {
    pub(crate) filter: NameTemplate,
    pub(crate) options: SubscribeOptions,
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
