//! What a message brings beside its payload.

use super::loop_guard::MARK;
use super::loops::PATH;
use mqtt::{Properties, PropertiesBuf, Property};

/// Properties that mean the same on both sides. A response topic has another name there.
pub(super) fn copy_properties(
    from: Properties<'_>,
    to: &mut PropertiesBuf,
    named: impl Fn(&str) -> Option<String>,
) {
    for property in from.iter() {
        match property {
            // Of the connection that it came by.
            Property::SubscriptionIdentifier(_) | Property::TopicAlias(_) => {}
            // Of the bridge that sent it.
            Property::UserProperty(MARK, _) => {}
            // It has one more hop now, or none.
            Property::UserProperty(PATH, _) => {}
            Property::ResponseTopic(topic) => {
                let name = named(topic);
                to.push(Property::ResponseTopic(name.as_deref().unwrap_or(topic)));
            }
            other => _ = to.push(other),
        }
    }
}
