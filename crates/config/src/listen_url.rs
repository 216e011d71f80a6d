//! URLs of listeners: the addresses to which clients connect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// A checked URL of a listener: `tcp://host:port`, `tls://`, `quic://`, `ws://host:port/path`,
/// `wss://` or `unix:///path`. Ports have defaults, see [`ListenUrl::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenUrl {
    /// A listener on TCP or UDP. Only WebSocket schemes have a `path`; an empty `path` accepts
    /// every request path.
    Network {
        scheme: ListenScheme,
        host: ListenHost,
        port: u16,
        path: String,
    },
    Unix {
        path: PathBuf,
    },
}

/// Scheme of a network listener. `port_default` gives the port of a URL without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenScheme {
    Quic,
    Tcp,
    Tls,
    Ws,
    Wss,
}

/// Address to bind: an IP address, or a host name which the program resolves when it binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenHost {
    Address(IpAddr),
    Name(String),
}

impl ListenScheme {
    pub fn name(self) -> &'static str {
        match self {
            ListenScheme::Quic => "quic",
            ListenScheme::Tcp => "tcp",
            ListenScheme::Tls => "tls",
            ListenScheme::Ws => "ws",
            ListenScheme::Wss => "wss",
        }
    }

    fn port_default(self) -> u16 {
        match self {
            ListenScheme::Quic => 14567,
            ListenScheme::Tcp => 1883,
            ListenScheme::Tls => 8883,
            ListenScheme::Ws => 8083,
            ListenScheme::Wss => 8084,
        }
    }

    fn is_web(self) -> bool {
        matches!(self, ListenScheme::Ws | ListenScheme::Wss)
    }
}

impl ListenUrl {
    /// Parses and checks a URL. An error names the mistake and a correct form, for example `tcp://`
    /// for `mqtt://`.
    pub fn parse(text: &str) -> Result<ListenUrl, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("{text:?} is not a URL, use one like tcp://127.0.0.1:1883"));
        };
        let scheme = match scheme {
            "quic" => ListenScheme::Quic,
            "tcp" => ListenScheme::Tcp,
            "tls" => ListenScheme::Tls,
            "ws" => ListenScheme::Ws,
            "wss" => ListenScheme::Wss,
            "unix" => return parse_path(rest).map_err(|why| format!("{text:?}: {why}")),
            "mqtt" => return Err(format!("{text:?}: use tcp://{rest}")),
            "mqtts" | "ssl" => return Err(format!("{text:?}: use tls://{rest}")),
            "http" | "https" => {
                return Err(format!("{text:?}: use ws{}://{rest}", &scheme[4..]));
            }
            _ => return Err(format!("{text:?}: {scheme} listeners do not exist; use {KINDS}")),
        };
        let wrong = |why: String| format!("{text:?}: {why}");
        let (rest, path) = split_path(scheme, rest).map_err(wrong)?;
        let (host, port) = split_port(scheme, rest).map_err(wrong)?;
        let host = parse_host(host).map_err(wrong)?;
        Ok(ListenUrl::Network { scheme, host, port, path: path.to_string() })
    }

    /// Whether the transport uses TLS. QUIC always does.
    pub fn is_tls(&self) -> bool {
        use ListenScheme::{Quic, Tls, Wss};
        matches!(self, ListenUrl::Network { scheme: Quic | Tls | Wss, .. })
    }

    pub fn is_quic(&self) -> bool {
        matches!(self, ListenUrl::Network { scheme: ListenScheme::Quic, .. })
    }

    /// Returns the request path of a WebSocket listener, or `None` for other transports. An empty
    /// path accepts every request path.
    pub fn web_path(&self) -> Option<&str> {
        match self {
            ListenUrl::Network { scheme, path, .. } if scheme.is_web() => Some(path),
            _ => None,
        }
    }

    /// Returns the scheme, the part before `://`.
    pub fn scheme(&self) -> &'static str {
        match self {
            ListenUrl::Network { scheme, .. } => scheme.name(),
            ListenUrl::Unix { .. } => "unix",
        }
    }

    /// Whether only clients on this host can connect. Of host names, only `localhost` counts, since
    /// other names are resolved when the listener binds.
    pub fn is_loopback(&self) -> bool {
        match self {
            ListenUrl::Network { host: ListenHost::Address(address), .. } => address.is_loopback(),
            ListenUrl::Network { host: ListenHost::Name(name), .. } => name == "localhost",
            ListenUrl::Unix { .. } => true,
        }
    }

    /// Returns the port in the URL. Port 0 lets the kernel choose a port; a Unix socket has none.
    pub fn port(&self) -> Option<u16> {
        match self {
            ListenUrl::Network { port, .. } => Some(*port),
            ListenUrl::Unix { .. } => None,
        }
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenUrl::Network { scheme, host: ListenHost::Address(address), port, path } => {
                write!(f, "{}://{}{path}", scheme.name(), SocketAddr::new(*address, *port))
            }
            ListenUrl::Network { scheme, host: ListenHost::Name(name), port, path } => {
                write!(f, "{}://{name}:{port}{path}", scheme.name())
            }
            ListenUrl::Unix { path } => write!(f, "unix://{}", path.display()),
        }
    }
}

fn parse_path(rest: &str) -> Result<ListenUrl, String> {
    if !rest.starts_with('/') {
        return Err(format!("a unix listener has a whole path: unix:///run/{rest}"));
    }
    if rest.ends_with('/') {
        return Err("the path of a socket ends with its name".to_string());
    }
    Ok(ListenUrl::Unix { path: rest.into() })
}

fn split_path(scheme: ListenScheme, rest: &str) -> Result<(&str, &str), String> {
    let Some(at) = rest.find('/') else { return Ok((rest, "")) };
    let (before, path) = rest.split_at(at);
    if !scheme.is_web() {
        return Err(format!("a {} listener has no path, leave out {path:?}", scheme.name()));
    }
    // A request line cannot contain other bytes, so no client could ask for the path.
    let legal = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    if !path.bytes().all(legal) {
        return Err(format!("{path:?} is not a path, use visible ASCII without ? and #"));
    }
    Ok((before, path))
}

fn split_port(scheme: ListenScheme, rest: &str) -> Result<(&str, u16), String> {
    let (name, port_default) = (scheme.name(), scheme.port_default());
    // The colons of an IPv6 address in brackets are not the colon of the port.
    let after_bracket = rest.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match rest[after_bracket..].rfind(':') {
        Some(colon) => {
            let colon = after_bracket + colon;
            let port = &rest[colon + 1..];
            let number = port.parse::<u16>();
            let why = || format!("{port:?} is not a port, use a number from 0 to 65535");
            (&rest[..colon], number.map_err(|_| why())?)
        }
        None => (rest, port_default),
    };
    if host.contains(':') && !host.starts_with('[') {
        return Err(format!(
            "an IPv6 address stands in brackets: {name}://[{rest}]:{port_default}"
        ));
    }
    Ok((host, port))
}

fn parse_host(host: &str) -> Result<ListenHost, String> {
    if let Some(inside) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address = inside.parse().map(|address| ListenHost::Address(IpAddr::V6(address)));
        return address.map_err(|_| format!("{inside:?} is not an IPv6 address"));
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(ListenHost::Address(IpAddr::V4(address)));
    }
    if host.is_empty() || host == "*" {
        return Err("it has no address, use 0.0.0.0 or [::] for every interface".to_string());
    }
    let digits = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if digits || !host.bytes().all(legal) {
        return Err(format!("{host:?} is neither an address nor a host name"));
    }
    Ok(ListenHost::Name(host.to_string()))
}

const KINDS: &str = "tcp://ADDRESS:PORT, tls://ADDRESS:PORT, quic://ADDRESS:PORT, \
                     ws://ADDRESS:PORT/PATH, wss://ADDRESS:PORT/PATH or unix:///PATH";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_an_address_or_a_host_and_a_port() {
        let right = [
            ("tcp://127.0.0.1:1883", "tcp://127.0.0.1:1883", true),
            ("tcp://127.0.0.1", "tcp://127.0.0.1:1883", true),
            ("tcp://[::1]:0", "tcp://[::1]:0", true),
            ("tcp://[::]", "tcp://[::]:1883", false),
            ("tcp://localhost:99", "tcp://localhost:99", true),
            ("tcp://broker.example.org", "tcp://broker.example.org:1883", false),
            ("tls://0.0.0.0", "tls://0.0.0.0:8883", false),
            ("tls://[::1]", "tls://[::1]:8883", true),
            ("quic://0.0.0.0", "quic://0.0.0.0:14567", false),
            ("ws://127.0.0.1", "ws://127.0.0.1:8083", true),
            ("ws://0.0.0.0:0/", "ws://0.0.0.0:0/", false),
            ("wss://[::1]/mqtt/a~b", "wss://[::1]:8084/mqtt/a~b", true),
            ("wss://localhost:9/mqtt", "wss://localhost:9/mqtt", true),
            ("unix:///run/godwit.sock", "unix:///run/godwit.sock", true),
        ];
        for (text, shown, loopback) in right {
            let url = ListenUrl::parse(text).unwrap();
            assert_eq!((url.to_string().as_str(), url.is_loopback()), (shown, loopback));
        }
    }

    #[test]
    fn wrong_urls_say_what_would_be_right() {
        let wrong = [
            ("1883", "\"1883\" is not a URL, use one like tcp://127.0.0.1:1883"),
            ("mqtt://a:1", "\"mqtt://a:1\": use tcp://a:1"),
            ("mqtts://a:1", "\"mqtts://a:1\": use tls://a:1"),
            ("quic://a/b", "\"quic://a/b\": a quic listener has no path, leave out \"/b\""),
            ("http://a:1/b", "\"http://a:1/b\": use ws://a:1/b"),
            ("https://a:1", "\"https://a:1\": use wss://a:1"),
            (
                "ws://a/b c",
                "\"ws://a/b c\": \"/b c\" is not a path, use visible ASCII without ? and #",
            ),
            (
                "ws://a/b?c",
                "\"ws://a/b?c\": \"/b?c\" is not a path, use visible ASCII without ? and #",
            ),
            (
                "htp://a",
                "\"htp://a\": htp listeners do not exist; use tcp://ADDRESS:PORT, \
                 tls://ADDRESS:PORT, quic://ADDRESS:PORT, ws://ADDRESS:PORT/PATH, \
                 wss://ADDRESS:PORT/PATH or unix:///PATH",
            ),
            (
                "tcp://a:70000",
                "\"tcp://a:70000\": \"70000\" is not a port, use a number from 0 to 65535",
            ),
            ("tcp://a:", "\"tcp://a:\": \"\" is not a port, use a number from 0 to 65535"),
            (
                "tcp://:1",
                "\"tcp://:1\": it has no address, use 0.0.0.0 or [::] for every interface",
            ),
            ("tcp://[::g]", "\"tcp://[::g]\": \"::g\" is not an IPv6 address"),
            ("tls://a/b", "\"tls://a/b\": a tls listener has no path, leave out \"/b\""),
            (
                "tcp://300.1.1.1",
                "\"tcp://300.1.1.1\": \"300.1.1.1\" is neither an address nor a host name",
            ),
            ("tcp://a b", "\"tcp://a b\": \"a b\" is neither an address nor a host name"),
            (
                "unix://a.sock",
                "\"unix://a.sock\": a unix listener has a whole path: unix:///run/a.sock",
            ),
            ("unix:///run/", "\"unix:///run/\": the path of a socket ends with its name"),
        ];
        for (text, why) in wrong {
            assert_eq!(ListenUrl::parse(text).unwrap_err(), why);
        }
        assert!(ListenUrl::parse("tcp://fe80::1").unwrap_err().contains("brackets"));
    }
}
