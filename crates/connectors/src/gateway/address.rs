//! Addresses of sockets: `tcp://host:port`, `ipc:///path`, `tls+tcp://`, `ws://host:port/path` and
//! `wss://`.

use net::endpoint::ServerEndpoint;
use net::server_url::ServerUrl;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// Address on which a gateway listens or to which it connects. Parsed by [`SocketAddress::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    Ipc(PathBuf),
    Net {
        scheme: &'static str,
        host: String,
        port: u16,
        /// Request path of WebSocket, "/" by default; empty for other schemes.
        path: String,
    },
}

const SCHEMES: [&str; 4] = ["tcp", "tls+tcp", "ws", "wss"];
const PATH_BYTES_MAX: usize = 107;

impl SocketAddress {
    pub fn parse(text: &str) -> Result<SocketAddress, String> {
        if let Some(path) = text.strip_prefix("ipc://") {
            let is_right = path.starts_with('/') && !path.ends_with('/');
            if !is_right || path.len() > PATH_BYTES_MAX {
                return Err(format!(
                    "ipc has a whole path of at most {PATH_BYTES_MAX} bytes: ipc:///run/name"
                ));
            }
            return Ok(SocketAddress::Ipc(path.into()));
        }
        // ZeroMQ writes a star for all addresses of a host.
        let url = ServerUrl::parse(&text.replacen("://*:", "://0.0.0.0:", 1), &SCHEMES);
        let url = url.map_err(|why| format!("{why} or ipc:///PATH"))?;
        if url.user.is_some() || url.password.is_some() {
            return Err("user names have their own options: user_name and password".to_string());
        }
        let scheme = SCHEMES.iter().find(|one| **one == url.scheme).expect("it was one of them");
        let Some(port) = url.port else {
            return Err(format!("it needs a port: {scheme}://{}:5555", url.host));
        };
        let is_web = scheme.starts_with("ws");
        if !is_web && !url.path.is_empty() {
            return Err(format!("only ws and wss have a path: {scheme}://{}:{port}", url.host));
        }
        let path = if is_web && url.path.is_empty() { "/".into() } else { url.path };
        Ok(SocketAddress::Net { scheme, host: url.host, port, path })
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, SocketAddress::Net { scheme: "tls+tcp" | "wss", .. })
    }

    /// Returns the request path of WebSocket, or `None` for other schemes.
    pub fn web_path(&self) -> Option<&str> {
        match self {
            SocketAddress::Net { scheme: "ws" | "wss", path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether the address uses neither TLS nor WebSocket.
    pub fn is_plain(&self) -> bool {
        matches!(self, SocketAddress::Ipc(_) | SocketAddress::Net { scheme: "tcp", .. })
    }

    /// Whether two listeners cannot have both addresses. Host names are compared as text, since
    /// names are resolved only when a listener binds.
    pub fn conflicts_with(&self, other: &SocketAddress) -> bool {
        match (self, other) {
            (SocketAddress::Ipc(own), SocketAddress::Ipc(other)) => own == other,
            (
                SocketAddress::Net { host: own, port, .. },
                SocketAddress::Net { host, port: other, .. },
            ) => port == other && hosts_conflict(own, host),
            _ => false,
        }
    }

    /// Whether only processes on this host can connect.
    pub fn is_local(&self) -> bool {
        match self {
            SocketAddress::Ipc(_) => true,
            SocketAddress::Net { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
            }
        }
    }
}

/// Whether listeners on both hosts would need the same port of an interface.
fn hosts_conflict(one: &str, other: &str) -> bool {
    let address = |host: &str| host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let (Some(one), Some(other)) = (address(one), address(other)) else {
        return one.eq_ignore_ascii_case(other);
    };
    // The address `[::]` also accepts IPv4.
    let has = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one == other || has(one, other) || has(other, one)
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketAddress::Ipc(path) => write!(f, "ipc://{}", path.display()),
            SocketAddress::Net { scheme, host, port, path } => {
                let endpoint = ServerEndpoint { host: host.clone(), port: *port, tls: None };
                write!(f, "{scheme}://{endpoint}{path}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_say_how_and_where() {
        for (text, shown) in [
            ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
            ("tcp://*:5555", "tcp://0.0.0.0:5555"),
            ("tls+tcp://[::1]:1", "tls+tcp://[::1]:1"),
            ("ws://h:80", "ws://h:80/"),
            ("wss://h:80/a?b", "wss://h:80/a?b"),
            ("ipc:///run/x.ipc", "ipc:///run/x.ipc"),
        ] {
            assert_eq!(SocketAddress::parse(text).unwrap().to_string(), shown);
        }
        for (text, is_local) in
            [("tcp://*:1", false), ("tcp://localhost:1", true), ("ipc:///x", true)]
        {
            assert_eq!(SocketAddress::parse(text).unwrap().is_local(), is_local, "{text}");
        }
    }

    #[test]
    fn what_is_no_place_says_what_would_be() {
        for (text, why) in [
            ("udp://h:1", "use tcp://HOST"),
            ("tcp://h", "needs a port"),
            ("tcp://h:1/path", "only ws and wss"),
            ("tcp://ann:secret@h:1", "options: user_name"),
            ("ipc://relative", "whole path"),
            ("inproc://x", "or ipc:///PATH"),
        ] {
            let found = SocketAddress::parse(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }
}
