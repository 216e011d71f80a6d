//! `[[rule]]`: a rule with its actions.

use crate::options::rule_metrics::RuleMetrics;
use mqtt::QoS;
use rules::{RowTemplate, RulePlan};
use std::num::NonZeroU32;
use std::sync::Arc;

/// A rule with its actions.
#[derive(Clone, Debug)]
pub struct Rule {
    pub name: Arc<str>,
    /// The SQL text of the rule, from which `plan` was compiled.
    pub text: Arc<str>,
    pub plan: Arc<RulePlan>,
    pub actions: RuleActions,
    /// Metrics by the rule's name, kept across reloads.
    pub metrics: Arc<RuleMetrics>,
}

/// Actions for the rows of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleActions {
    /// Drop the input message if the rule has a row for it.
    pub drops_message: bool,
    /// Write each row to the log.
    pub logs_rows: bool,
    pub publish: Option<PublishAction>,
    pub send: Option<SendAction>,
}

/// The message which a rule publishes for each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishAction {
    /// Topic of the message; by default see `RuleTrigger::default_topic`.
    pub topic: Option<RowTemplate>,
    pub payload: RowTemplate,
    /// QoS of the output; `None` takes the QoS of the input message.
    pub qos: Option<QoS>,
    pub retain: Option<bool>,
    /// Whether to copy the properties of the input message, Message Expiry Interval included.
    pub keeps_properties: bool,
    /// Message Expiry Interval of the output; `None` takes the input's if `keeps_properties`.
    pub expiry_s: Option<NonZeroU32>,
    pub user_properties: Vec<(Box<str>, RowTemplate)>,
}

/// A message for links only, in addition to `RuleActions::publish`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendAction {
    /// Links by the client ids of their sessions.
    pub to: Vec<Box<str>>,
    pub message: PublishAction,
}

impl RuleActions {
    /// Returns the publish actions: `None` for subscribers, and `Some` with the link of a
    /// `SendAction`.
    pub(crate) fn publish_actions(&self) -> impl Iterator<Item = (Option<&str>, &PublishAction)> {
        let sends = self.send.iter();
        let sends = sends.flat_map(|sends| sends.to.iter().map(|to| (Some(&**to), &sends.message)));
        self.publish.iter().map(|publishes| (None, publishes)).chain(sends)
    }
}

/// Rules with the same text and actions are equal; `metrics` do not count.
impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        (&self.name, &self.text, &self.actions) == (&other.name, &other.text, &other.actions)
    }
}

impl Eq for Rule {}

/// Delivery events which sinks want: see `BrokerEvent::Delivery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryEventOptions {
    pub delivered: bool,
    pub acked: bool,
}
