//! What a bridge's options say of topics.

use crate::links::map::Map;
use mqtt::{QoS, SubscribeOptions};

/// Which topics go which way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) outward: Vec<Rule>,
    pub(crate) inward: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) map: Map,
    /// At most.
    pub(crate) qos: QoS,
    /// Whether RETAIN stays, or goes out.
    pub(crate) keeps_retain: bool,
    /// What becomes of messages that are retained already.
    pub(crate) retained: Retained,
}

impl Rule {
    /// How its filter is subscribed to, where a message may have so much QoS.
    pub(crate) fn options(&self, qos_max: QoS) -> SubscribeOptions {
        SubscribeOptions {
            qos: self.qos.min(qos_max),
            // What came from there does not go back. Of a shared one it would be an error
            // [MQTT-3.8.3-4].
            no_local: !self.map.is_shared(),
            retain_as_published: true,
            retain_handling: self.retained as u8,
        }
    }

    /// The same, before there is a connection: what goes out with every one is asked for then.
    pub(crate) fn first_options(&self, qos_max: QoS) -> SubscribeOptions {
        let options = self.options(qos_max);
        match self.retained {
            Retained::Always => SubscribeOptions { retain_handling: 2, ..options },
            _ => options,
        }
    }
}

/// Retain Handling, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Retained {
    Always = 0,
    #[default]
    Once = 1,
    Never = 2,
}

impl Retained {
    /// By its word in options.
    pub(crate) fn of(word: &str) -> Retained {
        match word {
            "always" => Retained::Always,
            "never" => Retained::Never,
            _ => Retained::Once,
        }
    }
}
