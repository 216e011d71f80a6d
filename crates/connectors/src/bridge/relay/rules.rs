//! What a bridge's options say of topics.

use crate::topic_map::TopicMap;
use mqtt::{QoS, SubscribeOptions};

/// Rules of a bridge: which topics go which way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeRules {
    pub outward: Vec<BridgeRule>,
    pub inward: Vec<BridgeRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeRule {
    pub map: TopicMap,
    /// At most.
    pub qos: QoS,
    /// Whether RETAIN stays, or goes out.
    pub keeps_retain: bool,
    /// Handling of messages that are retained already.
    pub retained: RetainedPolicy,
}

impl BridgeRule {
    /// Returns the subscription options of the rule, with the largest QoS of a message.
    pub fn subscribe_options(&self, qos_max: QoS) -> SubscribeOptions {
        SubscribeOptions {
            qos: self.qos.min(qos_max),
            // What came from there does not go back. Of a shared one it would be an error
            // [MQTT-3.8.3-4].
            no_local: !self.map.is_shared(),
            retain_as_published: true,
            retain_handling: self.retained as u8,
        }
    }

    /// Returns the subscription options before the first connection: retained messages for each
    /// connection are requested later.
    pub fn initial_subscribe_options(&self, qos_max: QoS) -> SubscribeOptions {
        let options = self.subscribe_options(qos_max);
        match self.retained {
            RetainedPolicy::Always => SubscribeOptions { retain_handling: 2, ..options },
            _ => options,
        }
    }
}

/// Subscription options for messages of clients here that a bridge counts and does not carry.
pub const WATCH_OPTIONS: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtMostOnce,
    // The messages that the bridge itself brings are counted where they come in.
    no_local: true,
    retain_as_published: true,
    retain_handling: RetainedPolicy::Never as u8,
};

/// Retain Handling, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RetainedPolicy {
    Always = 0,
    #[default]
    Once = 1,
    Never = 2,
}

impl RetainedPolicy {
    /// By its word in options.
    pub fn from_word(word: &str) -> RetainedPolicy {
        match word {
            "always" => RetainedPolicy::Always,
            "never" => RetainedPolicy::Never,
            _ => RetainedPolicy::Once,
        }
    }
}
