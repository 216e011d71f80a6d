//! Events for rules, by the names used by EMQX: the newer names, and the older ones as aliases.

/// A row of [`EVENTS`], with its documentation.
#[derive(Debug)]
pub struct EventRow {
    /// Name in FROM, after `$events/`.
    pub name: &'static str,
    /// Older names of the event in FROM.
    pub aliases: &'static [&'static str],
    /// Value of the field `event`.
    pub label: &'static str,
    pub description: &'static str,
    /// Whether the event is about a message, and so has the fields of a message.
    pub has_message: bool,
    /// Fields in addition to `event`, `clientid`, `username`, `peerhost`, `node` and `timestamp`.
    pub fields: &'static [&'static str],
}

pub const EVENTS: &[EventRow] = &[
    EventRow {
        name: "client/connected",
        aliases: &["client_connected"],
        label: "client.connected",
        description: "a client came in",
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
        aliases: &["client_disconnected"],
        label: "client.disconnected",
        description: "its connection ended, by whom ever",
        has_message: false,
        fields: &["reason", "peername", "disconnected_at", "withheld", "namespace"],
    },
    EventRow {
        name: "client/connack",
        aliases: &["client_connack"],
        label: "client.connack",
        description: "a CONNECT was answered; `reason_code` is `success`, or why not",
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
        aliases: &["client_check_authn_complete"],
        label: "client.check_authn_complete",
        description: "a client did not get in because of who it is; who gets in is not an event of \
                      these",
        has_message: false,
        fields: &["reason_code", "reason", "result", "peername", "withheld", "namespace"],
    },
    EventRow {
        name: "auth/check_authz_complete",
        aliases: &["client_check_authz_complete"],
        label: "client.check_authz_complete",
        description: "a client was not let do something; what it may do is not an event. At \
                      most once a second a client, with the `count` since the last",
        has_message: false,
        fields: &["action", "topic", "result", "count", "namespace"],
    },
    EventRow {
        name: "session/subscribed",
        aliases: &["session_subscribed"],
        label: "session.subscribed",
        description: "a client has a subscription; `topic` is the filter as it says it",
        has_message: false,
        fields: &["topic", "qos", "reason_code", "namespace"],
    },
    EventRow {
        name: "session/unsubscribed",
        aliases: &["session_unsubscribed"],
        label: "session.unsubscribed",
        description: "a client gave a subscription up",
        has_message: false,
        fields: &["topic", "reason_code", "namespace"],
    },
    EventRow {
        name: "session/takenover",
        aliases: &["session_takenover"],
        label: "session.takenover",
        description: "its client came again, from `peername`, and the older connection ended",
        has_message: false,
        fields: &["peername", "namespace"],
    },
    EventRow {
        name: "session/expired",
        aliases: &["session_expired"],
        label: "session.expired",
        description: "a session ended because its client was away for so long",
        has_message: false,
        fields: &["reason", "namespace"],
    },
    EventRow {
        name: "session/terminated",
        aliases: &["session_terminated"],
        label: "session.terminated",
        description: "a session ended otherwise",
        has_message: false,
        fields: &["reason", "namespace"],
    },
    EventRow {
        name: "message/delivered",
        aliases: &["message_delivered"],
        label: "message.delivered",
        description: "a message was written to a subscriber, who is `clientid`",
        has_message: true,
        fields: &[],
    },
    EventRow {
        name: "message/acked",
        aliases: &["message_acked"],
        label: "message.acked",
        description: "a subscriber has acknowledged it, by PUBACK or PUBREC",
        has_message: true,
        fields: &[],
    },
    EventRow {
        name: "message/dropped",
        aliases: &["message_dropped"],
        label: "message.dropped",
        description: "what a client published went nowhere: `no_subscribers`, `refused`, \
               `out_of_memory`, `store_full`",
        has_message: true,
        fields: &["reason"],
    },
    EventRow {
        name: "message/delivery_dropped",
        aliases: &["delivery_dropped"],
        label: "delivery.dropped",
        description: "a message did not reach a subscriber, who is `clientid`: `expired`, \
                      `offline`, `packet_too_large`, `queue_full`, `out_of_memory`",
        has_message: true,
        fields: &["reason"],
    },
    EventRow {
        name: "bridge/connected",
        aliases: &["bridge_connected"],
        label: "bridge.connected",
        description: "a bridge is connected to its other broker",
        has_message: false,
        fields: &["bridge", "server"],
    },
    EventRow {
        name: "bridge/disconnected",
        aliases: &["bridge_disconnected"],
        label: "bridge.disconnected",
        description: "a bridge is not connected any more",
        has_message: false,
        fields: &["bridge", "server", "reason"],
    },
];

/// Returns the index in [`EVENTS`] of a name or alias, given without `$events/`.
pub fn event_index(name: &str) -> Option<usize> {
    EVENTS.iter().position(|row| row.name == name || row.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_event() {
        let names = EVENTS.iter().flat_map(|row| row.aliases.iter().chain([&row.name]));
        for (at, row) in EVENTS.iter().enumerate() {
            for name in row.aliases.iter().chain([&row.name]) {
                assert_eq!(event_index(name), Some(at), "{name}");
            }
        }
        let mut all: Vec<_> = names.collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
