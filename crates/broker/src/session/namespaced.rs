//! The namespace of a session: prefixes of topics, filters and properties.

use crate::message::NO_EXPIRY;
use crate::message::will::SessionWill;
use crate::session::session_table::Session;
use mqtt::{Property, SharedFilter};
use std::borrow::Cow;

impl Session {
    /// Returns the client id of CONNECT, without the namespace, for everything which clients see.
    pub(crate) fn own_client_id(&self) -> &str {
        &self.client_id[usize::from(self.prefix_len)..]
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.client_id[..usize::from(self.prefix_len).saturating_sub(1)]
    }

    /// Returns a topic or filter of the client with the namespace's prefix, for the use in the
    /// broker.
    pub(crate) fn add_prefix<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match self.prefix_len {
            0 => Cow::Borrowed(name),
            _ => Cow::Owned(format!("{}/{name}", self.namespace())),
        }
    }

    /// Adds the namespace to a topic or filter like `add_prefix`. For the path of every PUBLISH the
    /// result is in a reused buffer.
    #[inline]
    pub(crate) fn add_prefix_in<'a>(&self, name: &'a str, buffer: &'a mut String) -> &'a str {
        if self.prefix_len == 0 {
            return name;
        }
        buffer.clear();
        buffer.extend([self.namespace(), "/", name]);
        buffer
    }

    /// Adds the prefix to a filter, shared or not. Returns `None` if the result is too long.
    pub(crate) fn add_filter_prefix<'a>(&self, filter: &'a str) -> Option<Cow<'a, str>> {
        if self.prefix_len == 0 {
            return Some(Cow::Borrowed(filter));
        }
        let known = match SharedFilter::parse(filter).ok().flatten() {
            Some(SharedFilter { group, filter }) => {
                format!("\0{}\0$share/{group}/{}", self.prefix_len, self.add_prefix(filter)).into()
            }
            None => self.add_prefix(filter),
        };
        (known.len() <= usize::from(u16::MAX)).then_some(known)
    }

    /// Returns a topic or filter without the namespace's prefix, for a packet to the client.
    pub(crate) fn strip_prefix<'a>(&self, known: &'a str) -> &'a str {
        known.get(usize::from(self.prefix_len)..).unwrap_or_default()
    }

    /// Appends a property of a PUBLISH to `to`, with the prefix added to a Response Topic. Returns
    /// `false` if the Response Topic becomes too long.
    pub(crate) fn add_property_prefix(
        &self,
        property: Property<'_>,
        bytes: &[u8],
        to: &mut Vec<u8>,
    ) -> bool {
        match property {
            Property::ResponseTopic(name) if self.prefix_len > 0 => {
                let name = self.add_prefix(name);
                let fits = name.len() <= usize::from(u16::MAX);
                if fits {
                    Property::ResponseTopic(&name).encode(to);
                }
                fits
            }
            _ => {
                to.extend_from_slice(bytes);
                true
            }
        }
    }
}

impl SessionWill {
    /// Creates the will of a session's client, with the namespace prefix in the names.
    pub(crate) fn of(session: &Session, will: &mqtt::Will<'_>) -> SessionWill {
        let (mut delay_s, mut expiry_s, mut properties) = (0, NO_EXPIRY, Vec::new());
        for (property, bytes) in will.properties.iter_with_bytes() {
            match property {
                Property::WillDelayInterval(seconds) => delay_s = seconds,
                Property::MessageExpiryInterval(seconds) => expiry_s = seconds,
                other => _ = session.add_property_prefix(other, bytes, &mut properties),
            }
        }
        SessionWill {
            topic: session.add_prefix(will.topic).into(),
            payload: will.payload.into(),
            properties: properties.into(),
            qos: will.qos,
            retain: will.retain,
            delay_s,
            expiry_s,
        }
    }
}
