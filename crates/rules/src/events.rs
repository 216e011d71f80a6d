//! Events that a rule may look at, by the names that EMQX has for them: the newer ones, and the
//! older ones as the same.

/// What users see of an event.
#[derive(Debug)]
pub struct EventRow {
    /// Behind `$events/`.
    pub name: &'static str,
    /// What else it is called.
    pub older: &'static [&'static str],
    /// What the field `event` says.
    pub label: &'static str,
    pub says: &'static str,
    /// Whether it is about a message, so that it has the fields of one.
    pub has_message: bool,
    /// What it has beside `event`, `clientid`, `username`, `peerhost`, `node` and `timestamp`.
    pub fields: &'static [&'static str],
}

pub const EVENTS: &[EventRow] = &[
    EventRow {
        name: "client/connected",
        older: &["client_connected"],
        label: "client.connected",
        says: "a client came in",
        has_message: false,
        fields: &[
            "peername",
            "proto_ver",
            "keepalive",
            "session_present",
            "expiry_interval",
            "connected_at",
            "namespace",
        ],
    },
    EventRow {
        name: "client/disconnected",
        older: &["client_disconnected"],
        label: "client.disconnected",
        says: "its connection ended, by whom ever",
        has_message: false,
        fields: &["reason", "peername", "disconnected_at", "withheld", "namespace"],
    },
    EventRow {
        name: "client/connack",
        older: &["client_connack"],
        label: "client.connack",
        says: "a CONNECT was answered; `reason_code` is `success`, or why not",
        has_message: false,
        fields: &[
            "reason_code",
            "reason",
            "peername",
            "proto_ver",
            "keepalive",
            "session_present",
            "expiry_interval",
            "connected_at",
            "withheld",
            "namespace",
        ],
    },
    EventRow {
        name: "auth/check_authn_complete",
        older: &["client_check_authn_complete"],
        label: "client.check_authn_complete",
        says: "a client did not get in because of who it is; who gets in is no event of these",
        has_message: false,
        fields: &["reason_code", "reason", "result", "peername", "withheld", "namespace"],
    },
    EventRow {
        name: "auth/check_authz_complete",
        older: &["client_check_authz_complete"],
        label: "client.check_authz_complete",
        says: "a client was not let do something; what it may do is no event of these. At most \
               once a second a client, with the `count` since the last",
        has_message: false,
        fields: &["action", "topic", "result", "count", "namespace"],
    },
    EventRow {
        name: "session/subscribed",
        older: &["session_subscribed"],
        label: "session.subscribed",
        says: "a client has a subscription; `topic` is the filter as it says it",
        has_message: false,
        fields: &["topic", "qos", "reason_code", "namespace"],
    },
    EventRow {
        name: "session/unsubscribed",
        older: &["session_unsubscribed"],
        label: "session.unsubscribed",
        says: "a client gave a subscription up",
        has_message: false,
        fields: &["topic", "reason_code", "namespace"],
    },
    EventRow {
        name: "session/takenover",
        older: &["session_takenover"],
        label: "session.takenover",
        says: "its client came again, from `peername`, and the older connection ended",
        has_message: false,
        fields: &["peername", "namespace"],
    },
    EventRow {
        name: "session/expired",
        older: &["session_expired"],
        label: "session.expired",
        says: "a session ended because its client was away for so long",
        has_message: false,
        fields: &["reason", "namespace"],
    },
    EventRow {
        name: "session/terminated",
        older: &["session_terminated"],
        label: "session.terminated",
        says: "a session ended otherwise",
        has_message: false,
        fields: &["reason", "namespace"],
    },
    EventRow {
        name: "message/delivered",
        older: &["message_delivered"],
        label: "message.delivered",
        says: "a message was written to a subscriber, who is `clientid`",
        has_message: true,
        fields: &[],
    },
    EventRow {
        name: "message/acked",
        older: &["message_acked"],
        label: "message.acked",
        says: "a subscriber has acknowledged it, by PUBACK or PUBREC",
        has_message: true,
        fields: &[],
    },
    EventRow {
        name: "message/dropped",
        older: &["message_dropped"],
        label: "message.dropped",
        says: "what a client published went nowhere: `no_subscribers`, `refused`, \
               `out_of_memory`, `store_full`",
        has_message: true,
        fields: &["reason"],
    },
    EventRow {
        name: "message/delivery_dropped",
        older: &["delivery_dropped"],
        label: "delivery.dropped",
        says: "a message did not reach a subscriber, who is `clientid`: `expired`, `offline`, \
               `packet_too_large`, `queue_full`, `out_of_memory`",
        has_message: true,
        fields: &["reason"],
    },
    EventRow {
        name: "bridge/connected",
        older: &["bridge_connected"],
        label: "bridge.connected",
        says: "a bridge is connected to its other broker",
        has_message: false,
        fields: &["bridge", "server"],
    },
    EventRow {
        name: "bridge/disconnected",
        older: &["bridge_disconnected"],
        label: "bridge.disconnected",
        says: "a bridge is not connected any more",
        has_message: false,
        fields: &["bridge", "server", "reason"],
    },
];

/// The place in the table of an event, under whichever of its names, without `$events/`.
pub fn event(name: &str) -> Option<usize> {
    EVENTS.iter().position(|row| row.name == name || row.older.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_event() {
        let names = EVENTS.iter().flat_map(|row| row.older.iter().chain([&row.name]));
        for (at, row) in EVENTS.iter().enumerate() {
            for name in row.older.iter().chain([&row.name]) {
                assert_eq!(event(name), Some(at), "{name}");
            }
        }
        let mut all: Vec<_> = names.collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
