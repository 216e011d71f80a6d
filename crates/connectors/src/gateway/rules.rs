//! Topic rules of a gateway in both directions, made from the options.

use super::formats::GatewayFormat;
use crate::bridge::relay::RetainedPolicy;
use crate::topic_map::TopicMap;
use mqtt::{QoS, SubscribeOptions};

/// Rules of a gateway by direction. The first matching rule counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayRules {
    pub outward: Vec<OutboundRule>,
    pub inward: Vec<InboundRule>,
}

/// Rule for messages to sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundRule {
    pub map: TopicMap,
    pub qos: QoS,
    pub retained: RetainedPolicy,
}

/// Rule for messages from sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundRule {
    pub map: TopicMap,
    /// Number of levels of the filter. If the delimiter is also the separator, a topic has so many
    /// levels.
    pub levels: usize,
    /// Prefix of the topics which can match, in the form of sockets; sub and xsub subscribe to this
    /// prefix.
    pub prefix: String,
    /// Whether the template begins with "$", so topics of the rule may.
    pub is_dollar: bool,
    pub qos: QoS,
    pub retain: bool,
}

/// Options of a rule, before the checks of `GatewayRules`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayRuleSettings {
    pub(super) filter: String,
    pub(super) topic: String,
    pub(super) qos: u8,
    pub(super) retain: bool,
    pub(super) retained: RetainedPolicy,
}

/// Topic of messages of the form `raw`, which have no topic.
pub(super) const NO_TOPIC: &str = "message";

impl GatewayRules {
    pub(super) fn new(
        out: &[GatewayRuleSettings],
        inward: &[GatewayRuleSettings],
        own: (&str, &str),
        form: &GatewayFormat,
        separator: &str,
    ) -> Result<GatewayRules, String> {
        let out = out.iter().map(|given| given.outward(own));
        let inward = inward.iter().map(|given| given.inward(own, form, separator));
        Ok(GatewayRules {
            outward: out.collect::<Result<_, _>>()?,
            inward: inward.collect::<Result<_, _>>()?,
        })
    }
}

impl OutboundRule {
    pub fn subscribe_options(&self, qos_max: QoS) -> SubscribeOptions {
        SubscribeOptions {
            qos: self.qos.min(qos_max),
            // Messages of a gateway's own sockets are not sent back to sockets.
            no_local: true,
            retain_as_published: true,
            retain_handling: self.retained as u8,
        }
    }
}

impl GatewayRuleSettings {
    fn qos(&self) -> QoS {
        QoS::from_bits(self.qos).unwrap_or_default()
    }

    fn outward(&self, own: (&str, &str)) -> Result<OutboundRule, String> {
        if self.filter.is_empty() {
            return Err("[[gateway.out]] needs filter = \"...\", topics of this broker".to_string());
        }
        let map = TopicMap::parse(&self.filter, &self.topic, own)?;
        check_not_shared(&map)?;
        Ok(OutboundRule { map, qos: self.qos(), retained: self.retained })
    }

    fn inward(
        &self,
        own: (&str, &str),
        form: &GatewayFormat,
        separator: &str,
    ) -> Result<InboundRule, String> {
        let filter = match (form, self.filter.as_str()) {
            (GatewayFormat::Raw, "")
                if self.topic.is_empty() || self.topic.contains("${topic}") =>
            {
                return Err("what is raw has no topic: [[gateway.in]] needs topic = \"...\", a \
                            name without ${topic}"
                    .to_string());
            }
            (GatewayFormat::Raw, "") => NO_TOPIC,
            (GatewayFormat::Raw, filter) => {
                return Err(format!("{filter:?}: what is raw has no topic, leave the filter out"));
            }
            (_, "") => {
                return Err("[[gateway.in]] needs filter = \"...\", topics of sockets".to_string());
            }
            (GatewayFormat::Delimited(delimiter), filter)
                if delimiter == separator && filter.contains('#') =>
            {
                return Err(format!(
                    "{filter:?}: a topic ends at the delimiter {delimiter:?}, which also stands \
                     within: use + or another delimiter"
                ));
            }
            (_, filter) => filter,
        };
        let map = TopicMap::parse(filter, &self.topic, own)?;
        check_not_shared(&map)?;
        let levels = filter.split('/').count();
        let plain = filter.split(['+', '#']).next().unwrap_or_default();
        // `a/#` also matches `a`.
        let plain = if filter.ends_with("/#") { plain.trim_end_matches('/') } else { plain };
        let prefix = match form {
            GatewayFormat::Frames | GatewayFormat::Delimited(_) => plain.replace('/', separator),
            GatewayFormat::Json | GatewayFormat::Raw => String::new(),
        };
        let is_dollar = self.topic.starts_with('$') && !self.topic.starts_with("${");
        Ok(InboundRule { map, levels, prefix, is_dollar, qos: self.qos(), retain: self.retain })
    }
}

fn check_not_shared(map: &TopicMap) -> Result<(), String> {
    match map.is_shared() {
        true => Err(format!("{map} is shared, and a gateway takes all: use the filter in it")),
        false => Ok(()),
    }
}
