//! Topics of messages without an acknowledgement, so the log of a refusal names the topic. An
//! acknowledgement carries only the packet id.

use mqtt::{PacketId, Property, PublishAck, TextExcerpt};
use std::collections::HashMap;

/// Topics of one direction by packet id. The receiver's Receive Maximum bounds their number.
#[derive(Debug, Default)]
pub(super) struct InflightTopics(HashMap<PacketId, String>);

impl InflightTopics {
    pub(super) fn record_sent(&mut self, id: Option<PacketId>, topic: String) {
        if let Some(id) = id {
            self.0.insert(id, topic);
        }
    }

    /// Removes an acknowledged message. Returns the text for the log if the receiver refused the
    /// message.
    pub(super) fn record_ack(&mut self, ack: PublishAck<'_>) -> Option<String> {
        let topic = self.0.remove(&ack.packet_id);
        if !ack.reason.is_error() {
            return None;
        }
        let said = ack.properties.iter().find_map(|property| match property {
            Property::ReasonString(said) => Some(format!(": {}", TextExcerpt(said.as_bytes()))),
            _ => None,
        });
        // Messages of an earlier connection have no topic here.
        let topic = topic.map(|topic| format!("{}: ", TextExcerpt(topic.as_bytes())));
        let [topic, said] = [topic, said].map(Option::unwrap_or_default);
        Some(format!("{topic}{}{said}", ack.reason.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt::{PropertiesBuf, ReasonCode};

    #[test]
    fn a_refused_message_is_named_with_topic_and_reason() {
        let mut topics = InflightTopics::default();
        let [first, second] = [1, 2].map(|id| PacketId::new(id).expect("a number"));
        topics.record_sent(Some(first), "x/t".into());
        topics.record_sent(None, "t".into());
        let mut properties = PropertiesBuf::default();
        properties.push(Property::ReasonString("it has too many levels"));
        let properties = properties.as_properties();
        let reason = ReasonCode::TopicNameInvalid;
        let refusal = |packet_id| PublishAck { packet_id, reason, properties };
        let about = topics.record_ack(refusal(first)).expect("it is refused");
        assert_eq!(about, "x/t: Topic Name invalid: it has too many levels");
        let about = topics.record_ack(refusal(second)).expect("it is refused");
        assert_eq!(about, "Topic Name invalid: it has too many levels");
        let accepted = PublishAck { reason: ReasonCode::Success, ..refusal(first) };
        topics.record_sent(Some(first), "x/t".into());
        assert_eq!(topics.record_ack(accepted), None);
        assert!(topics.0.is_empty());
    }

    #[test]
    fn a_long_topic_is_cut() {
        let mut topics = InflightTopics::default();
        let packet_id = PacketId::new(1).expect("a number");
        topics.record_sent(Some(packet_id), "x/".repeat(10_000));
        let (reason, properties) = (ReasonCode::NotAuthorized, mqtt::Properties::default());
        let about = topics.record_ack(PublishAck { packet_id, reason, properties });
        assert!(about.is_some_and(|about| about.len() < 300));
    }
}
