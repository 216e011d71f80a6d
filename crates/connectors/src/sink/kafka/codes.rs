//! Error codes of Kafka, and their meaning for a sink.

/// Reaction of the sink to an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KafkaErrorClass {
    Success,
    /// The error passes, or an operator has to fix it.
    Transient,
    /// The broker would refuse the record again.
    Rejected,
    /// The batch is too large; a smaller batch may succeed.
    TooLarge,
}

/// Classifies an error code. `has_key` tells whether the option `kafka.key` is set: INVALID_RECORD
/// (87) then refuses the record for good. Without keys the topic may be compacted and require keys,
/// so an operator has to fix the options.
pub(super) fn classify_error(code: i16, has_key: bool) -> KafkaErrorClass {
    match code {
        0 => KafkaErrorClass::Success,
        10 | 18 => KafkaErrorClass::TooLarge,
        17 | 32 => KafkaErrorClass::Rejected,
        87 if has_key => KafkaErrorClass::Rejected,
        _ => KafkaErrorClass::Transient,
    }
}

/// Returns the name of an error code, as in Kafka's documentation.
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
