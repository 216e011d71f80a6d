//! Schemes of broker URLs, and their transports.

use std::sync::Arc;

/// A scheme of a broker's URL, with the default port and the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlScheme {
    pub name: &'static str,
    /// Other accepted names of the same scheme, for example `mqtts` for `tls`.
    aliases: &'static [&'static str],
    pub port: u16,
    pub is_tls: bool,
    pub is_websocket: bool,
    pub is_quic: bool,
}

impl UrlScheme {
    /// Returns the default request path of WebSocket, `/mqtt`, or `None` for other transports.
    pub fn websocket_path(self) -> Option<Arc<str>> {
        self.is_websocket.then(|| "/mqtt".into())
    }

    pub fn from_name(name: &str) -> Option<UrlScheme> {
        SCHEMES.iter().find(|one| one.name == name || one.aliases.contains(&name)).copied()
    }

    /// Returns the scheme of the same transport with TLS, or `self` if there is none.
    pub fn with_tls(self) -> UrlScheme {
        let is_same = |one: &&UrlScheme| {
            one.is_tls && one.is_websocket == self.is_websocket && one.is_quic == self.is_quic
        };
        SCHEMES.iter().find(is_same).copied().unwrap_or(self)
    }

    /// Returns the names of all schemes, for an error about an unknown scheme.
    pub fn names() -> String {
        SCHEMES.map(|one| one.name).join(", ")
    }
}

pub const TCP: UrlScheme = UrlScheme {
    name: "tcp",
    aliases: &["mqtt"],
    port: 1883,
    is_tls: false,
    is_websocket: false,
    is_quic: false,
};

const SCHEMES: [UrlScheme; 5] = [
    TCP,
    UrlScheme { name: "tls", aliases: &["mqtts", "ssl"], port: 8883, is_tls: true, ..TCP },
    UrlScheme { name: "ws", aliases: &[], port: 8083, is_websocket: true, ..TCP },
    UrlScheme { name: "wss", aliases: &[], port: 8084, is_tls: true, is_websocket: true, ..TCP },
    UrlScheme {
        name: "quic",
        aliases: &["mqtt-quic"],
        port: 14567,
        is_tls: true,
        is_quic: true,
        ..TCP
    },
];
