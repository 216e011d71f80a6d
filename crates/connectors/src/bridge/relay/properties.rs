//! Properties of forwarded messages.

use super::loop_guard::MARK;
use super::loops::PATH;
use mqtt::{Properties, PropertiesBuf, Property};

/// Copies the properties with the same meaning on both sides. `named` maps the Response Topic;
/// without a result the topic stays unchanged.
pub(super) fn copy_properties(
    from: Properties<'_>,
    to: &mut PropertiesBuf,
    named: impl Fn(&str) -> Option<String>,
) {
    for property in from.iter() {
        match property {
            // These properties belong to the connection of the incoming message.
            Property::SubscriptionIdentifier(_) | Property::TopicAlias(_) => {}
            // The mark belongs to the bridge which sent the message.
            Property::UserProperty(MARK, _) => {}
            // The caller adds the new path.
            Property::UserProperty(PATH, _) => {}
            Property::ResponseTopic(topic) => {
                let name = named(topic);
                to.push(Property::ResponseTopic(name.as_deref().unwrap_or(topic)));
            }
            other => _ = to.push(other),
        }
    }
}
