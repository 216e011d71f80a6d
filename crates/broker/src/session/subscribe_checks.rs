//! Checks of filters and options in SUBSCRIBE, as the sessions of a shard need them.

use crate::ids::{FilterId, SessionId};
use crate::limits::LINK_IDS;
use crate::refusal::Refusal;
use crate::session::session_table::SessionTable;
use mqtt::{QoS, SubscribeOptions, varint_len};
use std::sync::Arc;

/// Returns the options that a bridge of MQTT 3.x would request if the protocol had them.
pub(crate) fn bridge_options(filter: &str, options: SubscribeOptions) -> SubscribeOptions {
    // No Local is an error for a shared subscription [MQTT-3.8.3-4].
    let no_local = !filter.starts_with("$share/");
    SubscribeOptions { no_local, retain_as_published: true, ..options }
}

/// Whether a link subscribes to topics below the link's own client id, to which rules publish.
pub(crate) fn is_own_link_topic(client_id: &str, filter: &str) -> bool {
    let rest = filter.strip_prefix(client_id).filter(|_| client_id.starts_with(LINK_IDS));
    rest.is_some_and(|rest| rest.starts_with('/'))
}

impl SessionTable {
    /// Checks the size of SUBACK or UNSUBACK, which have a byte per filter: no other answer can
    /// exceed the Maximum Packet Size of a client that received CONNACK [MQTT-3.1.2-24].
    pub(crate) fn check_ack_size(&self, id: SessionId, filters: usize) -> Result<(), Refusal> {
        // Packet id, no properties, codes.
        let remaining = 2 + 1 + filters;
        let len = 1 + varint_len(remaining as u32) + remaining;
        let fits = len <= self.get(id).packet_bytes_max as usize;
        if fits { Ok(()) } else { Err(Refusal::AnswerTooLarge) }
    }

    /// Returns the maximum QoS of the session's listener.
    pub(crate) fn qos_max_of(&self, id: SessionId) -> QoS {
        let own = self.context.options.options_of_session(self.get(id));
        QoS::from_bits(own.qos_max).unwrap_or(QoS::ExactlyOnce)
    }
}

pub(crate) enum SubscribeOutcome {
    Own {
        known: FilterId,
        qos: QoS,
        is_new: bool,
    },
    Shared {
        qos: QoS,
        awaited: Option<Arc<str>>,
    },
    /// Another shard decides whether the session may have the exclusive filter.
    Pending {
        filter: Arc<str>,
        options: SubscribeOptions,
    },
}
