//! Rules of a bridge about topics, made from the options.

use crate::topic_map::TopicMap;
use mqtt::{QoS, SubscribeOptions};

/// Rules of a bridge by direction. The first matching rule counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeRules {
    pub outward: Vec<BridgeRule>,
    pub inward: Vec<BridgeRule>,
}

/// A topic rule of a bridge, made by `BridgeRuleSettings::build_rule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeRule {
    pub map: TopicMap,
    /// Largest QoS on the other side.
    pub qos: QoS,
    /// Whether the message keeps RETAIN; otherwise RETAIN is cleared.
    pub keeps_retain: bool,
    /// Whether messages which are already retained are requested.
    pub retained: RetainedPolicy,
}

impl BridgeRule {
    /// Returns the subscription options of the rule. `qos_max` is the broker's Maximum QoS.
    pub fn subscribe_options(&self, qos_max: QoS) -> SubscribeOptions {
        SubscribeOptions {
            qos: self.qos.min(qos_max),
            // No Local prevents an echo. With a shared subscription it would be an error
            // [MQTT-3.8.3-4].
            no_local: !self.map.is_shared(),
            retain_as_published: true,
            retain_handling: self.retained as u8,
        }
    }

    /// Returns the subscription options before the first connection. With
    /// [`RetainedPolicy::Always`] each connection requests retained messages later, so this
    /// subscription does not.
    pub fn initial_subscribe_options(&self, qos_max: QoS) -> SubscribeOptions {
        let options = self.subscribe_options(qos_max);
        match self.retained {
            RetainedPolicy::Always => SubscribeOptions { retain_handling: 2, ..options },
            _ => options,
        }
    }
}

/// Subscription options for messages of local clients which a bridge counts for loop detection and
/// does not forward.
pub const WATCH_OPTIONS: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtMostOnce,
    // Messages from the bridge itself are counted when they come in.
    no_local: true,
    retain_as_published: true,
    retain_handling: RetainedPolicy::Never as u8,
};

/// Retain Handling by name [MQTT 5.0, 3.8.3.1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RetainedPolicy {
    Always = 0,
    #[default]
    Once = 1,
    Never = 2,
}

impl RetainedPolicy {
    /// Parses the word of the option `retained`; other words mean `Once`.
    pub fn from_word(word: &str) -> RetainedPolicy {
        match word {
            "always" => RetainedPolicy::Always,
            "never" => RetainedPolicy::Never,
            _ => RetainedPolicy::Once,
        }
    }
}
