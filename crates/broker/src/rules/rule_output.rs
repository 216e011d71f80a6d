//! From a rule's row to a message: builds the message of a `PublishAction` and routes it.

use super::RuleOutput;
use crate::ids::MonotonicMs;
use crate::limits::LINK_IDS;
use crate::message::{IncomingPublish, NO_EXPIRY};
use crate::options::BrokerOptions;
use crate::options::rule::{PublishAction, Rule};
use mqtt::{Properties, PropertiesBuf, Property, QoS};
use rules::{Budget, RuleInput, RunError, ValueMap};

/// Reason why a row is not published: an entry of `FAILURES`, or an error of a template.
pub(super) enum RuleOutputError {
    Rejected(&'static str),
    Failed(RunError),
}

impl From<RunError> for RuleOutputError {
    fn from(failed: RunError) -> RuleOutputError {
        RuleOutputError::Failed(failed)
    }
}

/// Context of a row: its input, and the destination link, if any.
pub(super) struct OutputContext<'a> {
    pub(super) draft: &'a IncomingPublish<'a>,
    /// Topic of the message for a `PublishAction` without a topic.
    pub(super) name: &'a str,
    pub(super) link: Option<&'a str>,
}

/// Output of a row for `Rule::preview`, which tests a rule without publishing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePreview {
    /// Name of the link as rules spell it, without `LINK_IDS`.
    pub link: Option<Box<str>>,
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: QoS,
    pub retain: bool,
}

impl Rule {
    /// Returns the messages for a row. An error is one of `FAILURES`, or the text of the failure.
    pub fn preview(
        &self,
        row: &ValueMap<'_>,
        seen: &RuleInput<'_>,
        event: Option<&str>,
        options: &BrokerOptions,
    ) -> Vec<Result<RulePreview, String>> {
        let mut draft = IncomingPublish::new(seen.topic, seen.payload, MonotonicMs(0));
        draft.qos = QoS::from_bits(seen.qos).unwrap_or_default();
        (draft.retain, draft.properties) = (seen.retain, seen.properties.as_bytes());
        let name = match (seen.topic, event) {
            ("", event) => event.unwrap_or(&self.name),
            (topic, _) => topic,
        };
        let make = |(link, message): (Option<&str>, &PublishAction)| {
            let of = OutputContext { draft: &draft, name, link };
            match message.build_output(row, &of, options, &mut Budget::default()) {
                Ok(made) => Ok(RulePreview {
                    link: link.and_then(|link| link.strip_prefix(LINK_IDS)).map(Box::from),
                    topic: made.topic[made.link_len..].into(),
                    payload: made.payload,
                    qos: made.qos,
                    retain: made.retain,
                }),
                Err(RuleOutputError::Rejected(why)) => Err(why.to_string()),
                Err(RuleOutputError::Failed(failed)) => Err(failed.to_string()),
            }
        };
        self.actions.publish_actions().map(make).collect()
    }
}

impl PublishAction {
    /// Builds a message. The caller sets the fields `rule` and `depth`.
    pub(super) fn build_output(
        &self,
        row: &ValueMap<'_>,
        of: &OutputContext<'_>,
        options: &BrokerOptions,
        budget: &mut Budget,
    ) -> Result<RuleOutput, RuleOutputError> {
        budget.take(size_of::<RuleOutput>())?;
        let topic = self.build_topic(row, of.name, options, budget)?;
        let (topic, link_len) = match of.link {
            None => (topic, 0),
            Some(link) => (link_topic(link, &topic)?, link.len() + 1),
        };
        let draft = of.draft;
        let mut payload = Vec::new();
        self.payload.fill(row, budget, &mut payload)?;
        let expiry_s = match self.expiry_s {
            Some(own) => own.get(),
            None if self.keeps_properties => draft.expiry_s,
            None => NO_EXPIRY,
        };
        Ok(RuleOutput {
            topic,
            link_len,
            properties: self.build_properties(row, draft, &payload, budget)?,
            payload,
            qos: self.qos.unwrap_or(draft.qos),
            // A message for a link is never retained: later subscribers are not the link.
            retain: of.link.is_none() && self.retain.unwrap_or(draft.retain),
            expiry_s: expiry_s.min(options.message_expiry_s_max),
            rule: 0,
            depth: 0,
        })
    }

    /// Builds the topic. The result must pass `BrokerOptions::check_topic`, like a client's topic.
    fn build_topic(
        &self,
        row: &ValueMap<'_>,
        name: &str,
        options: &BrokerOptions,
        budget: &mut Budget,
    ) -> Result<String, RuleOutputError> {
        let mut topic = Vec::new();
        let has_all = match &self.topic {
            Some(template) => template.fill(row, budget, &mut topic)?,
            None => {
                budget.take(name.len())?;
                topic.extend_from_slice(name.as_bytes());
                true
            }
        };
        let topic = String::from_utf8(topic).ok().filter(|topic| {
            let is_topic = mqtt::topic::check_topic(topic).is_ok();
            has_all && is_topic && options.check_topic(topic).is_ok()
        });
        topic.ok_or(RuleOutputError::Rejected("topic"))
    }

    fn build_properties(
        &self,
        row: &ValueMap<'_>,
        draft: &IncomingPublish<'_>,
        payload: &[u8],
        budget: &mut Budget,
    ) -> Result<Vec<u8>, RuleOutputError> {
        let mut properties = PropertiesBuf::default();
        if self.keeps_properties {
            budget.take(draft.properties.len())?;
            for property in Properties::trusted(draft.properties).iter() {
                let is_text = property == Property::PayloadFormatIndicator(1);
                // [MQTT-3.3.2-4]: the indicator described the input payload.
                if !is_text || std::str::from_utf8(payload).is_ok() {
                    properties.push(property);
                }
            }
        }
        for (name, template) in &self.user_properties {
            let mut value = Vec::new();
            template.fill(row, budget, &mut value)?;
            // [MQTT-1.5.4-1] [MQTT-1.5.4-2]
            let value = String::from_utf8(value)
                .ok()
                .filter(|value| value.len() <= usize::from(u16::MAX) && !value.contains('\0'));
            let value = value.ok_or(RuleOutputError::Rejected("property"))?;
            properties.push(Property::UserProperty(name, &value));
        }
        Ok(properties.as_properties().as_bytes().to_vec())
    }
}

/// Returns the topic of a message to a link: `link`, a slash and `topic`.
fn link_topic(link: &str, topic: &str) -> Result<String, RuleOutputError> {
    debug_assert!(link.starts_with(LINK_IDS), "{link} is not a link");
    let whole = format!("{link}/{topic}");
    match mqtt::topic::check_topic(&whole) {
        Ok(()) => Ok(whole),
        Err(_) => Err(RuleOutputError::Rejected("topic")),
    }
}
