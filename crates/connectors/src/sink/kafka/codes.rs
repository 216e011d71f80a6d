//! What Kafka says when it does not take something, by its numbers.

/// Reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KafkaErrorClass {
    Success,
    /// The error passes, or an operator mends it.
    Transient,
    /// The record would be refused again.
    Rejected,
    /// Refused as it is, but perhaps not in a smaller batch.
    TooLarge,
}

/// `has_key` is of the record: a topic that keeps the last record of each key wants one.
pub(super) fn classify_error(code: i16, has_key: bool) -> KafkaErrorClass {
    match code {
        0 => KafkaErrorClass::Success,
        10 | 18 => KafkaErrorClass::TooLarge,
        17 | 32 => KafkaErrorClass::Rejected,
        87 if has_key => KafkaErrorClass::Rejected,
        _ => KafkaErrorClass::Transient,
    }
}

/// As Kafka's documents call it.
pub(super) fn error_name(code: i16) -> String {
    match NAMES.iter().find(|(known, _)| *known == code) {
        Some((_, name)) => (*name).to_string(),
        None => format!("error {code}"),
    }
}

const NAMES: &[(i16, &str)] = &[
    (-1, "UNKNOWN_SERVER_ERROR"),
    (2, "CORRUPT_MESSAGE"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION"),
    (5, "LEADER_NOT_AVAILABLE"),
    (6, "NOT_LEADER_OR_FOLLOWER"),
    (7, "REQUEST_TIMED_OUT"),
    (8, "BROKER_NOT_AVAILABLE"),
    (9, "REPLICA_NOT_AVAILABLE"),
    (10, "MESSAGE_TOO_LARGE"),
    (13, "NETWORK_EXCEPTION"),
    (17, "INVALID_TOPIC_EXCEPTION"),
    (18, "RECORD_LIST_TOO_LARGE"),
    (19, "NOT_ENOUGH_REPLICAS"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    (29, "TOPIC_AUTHORIZATION_FAILED"),
    (31, "CLUSTER_AUTHORIZATION_FAILED"),
    (32, "INVALID_TIMESTAMP"),
    (33, "UNSUPPORTED_SASL_MECHANISM"),
    (34, "ILLEGAL_SASL_STATE"),
    (35, "UNSUPPORTED_VERSION"),
    (44, "POLICY_VIOLATION"),
    (56, "KAFKA_STORAGE_ERROR"),
    (58, "SASL_AUTHENTICATION_FAILED"),
    (74, "FENCED_LEADER_EPOCH"),
    (87, "INVALID_RECORD"),
    (89, "THROTTLING_QUOTA_EXCEEDED"),
];
