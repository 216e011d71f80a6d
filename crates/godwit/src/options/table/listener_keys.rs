//! Options that a `[[listener]]` or a `[[group]]` may have for itself.

/// The sections whose options a `[[listener]]` may have.
pub(crate) const SECTIONS: &[&str] = &["tls", "proxy", "quic", "unix", "ws", "limits"];

/// Keys of other sections that a listener may have, ...
pub(crate) const KEYS: &[&str] = &[
    "connection.packet_bytes_max",
    "connection.receive_maximum",
    "namespace",
    "queue.age_s_max",
    "queue.bytes_max",
    "queue.messages_max",
    "queue.policy",
    "queue.qos0",
    "session.inflight_max",
    "session.subscriptions_max",
    "topic.bytes_max",
    "topic.levels_max",
];

/// ... of which a `[[group]]` has nothing ...
const OWN_KEYS: &[&str] = &["allow_anonymous", "connection.topic_alias_max", "message.qos_max"];

/// Keys for the threads that all listeners share.
const SHARED_KEYS: &[&str] = &[
    "auth.failures_max",
    "auth.password_cache_s",
    "auth.queue_max",
    "auth.threads",
    "auth.timeout_ms",
];

/// Whether a key about access belongs to the listener itself.
pub(super) fn is_own(key: &str) -> bool {
    let is_access = key.starts_with("acl.") || key.starts_with("auth.");
    OWN_KEYS.contains(&key) || (is_access && !SHARED_KEYS.contains(&key))
}

/// ... and those that a `[[group]]` may have beside the same.
pub(crate) const GROUP_KEYS: &[&str] = &[
    "limits.bytes_out_per_s",
    "limits.bytes_per_s",
    "limits.connections_max",
    "limits.connections_per_s",
    "limits.messages_out_per_s",
    "limits.messages_per_s",
];
