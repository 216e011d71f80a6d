//! Where clients connect: listener URLs, and the sockets that they become.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};

use socket2::{Domain, Protocol, Socket, Type};

/// `tcp://host:port`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenUrl {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

impl ListenUrl {
    /// The error says what is wrong and what would be right.
    pub(crate) fn parse(text: &str) -> Result<ListenUrl, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("{text:?} is no URL, use one like tcp://127.0.0.1:1883"));
        };
        match scheme {
            "tcp" => {}
            "mqtt" => return Err(format!("{text:?}: use tcp://{rest}")),
            "tls" | "mqtts" | "ws" | "wss" | "quic" | "unix" => {
                return Err(format!(
                    "{text:?}: {scheme} listeners are not supported in this version; use tcp://ADDRESS:PORT"
                ));
            }
            _ => {
                return Err(format!(
                    "{text:?}: there are no {scheme} listeners; use tcp://ADDRESS:PORT"
                ));
            }
        }
        let (host, port) = split_port(rest).map_err(|why| format!("{text:?}: {why}"))?;
        let host = parse_host(host).map_err(|why| format!("{text:?}: {why}"))?;
        Ok(ListenUrl { host, port })
    }

    /// Whether only this host can reach it. A name counts only if it is `localhost`: what other
    /// names stand for is known when they are bound.
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Address(address) => address.is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }

    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.host {
            Host::Address(address) => Ok(vec![SocketAddr::new(*address, self.port)]),
            Host::Name(name) => Ok((name.as_str(), self.port).to_socket_addrs()?.collect()),
        }
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => write!(f, "tcp://{}", SocketAddr::new(*address, self.port)),
            Host::Name(name) => write!(f, "tcp://{name}:{}", self.port),
        }
    }
}

/// Every socket of every URL, bound and listening. `open` allows addresses beyond loopback. The
/// errors, all of them, are sentences.
pub(crate) fn bind(urls: &[ListenUrl], open: bool) -> Result<Vec<TcpListener>, Vec<String>> {
    let mut listeners = Vec::new();
    let mut wrongs = Vec::new();
    for url in urls {
        let addresses = match url.resolve() {
            Ok(addresses) => addresses,
            Err(error) => {
                wrongs.push(format!("{url}: the host name cannot be resolved: {error}"));
                continue;
            }
        };
        for address in addresses {
            if !open && !address.ip().is_loopback() {
                wrongs.push(crate::options::checks::open_to_all(&format!("{url} ({address})")));
                continue;
            }
            // Beside a listener on every IPv4 address, [::] must leave IPv4 alone.
            let only_v6 = urls.iter().any(|other| {
                other.port == url.port
                    && other.host == Host::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
            });
            match bind_one(address, only_v6) {
                Ok(listener) => listeners.push(listener),
                Err(error) => wrongs.push(format!("tcp://{address}: {}", explain(&error, address))),
            }
        }
    }
    if wrongs.is_empty() { Ok(listeners) } else { Err(wrongs) }
}

fn bind_one(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the connections of the process before it.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn explain(error: &io::Error, address: SocketAddr) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the address is in use: another broker is running, or use another port".to_string()
        }
        io::ErrorKind::AddrNotAvailable => format!(
            "this host has no address {}: use one of its own, 127.0.0.1 or 0.0.0.0",
            address.ip()
        ),
        io::ErrorKind::PermissionDenied => format!(
            "not permitted: port {} needs privileges (CAP_NET_BIND_SERVICE), use one above 1023",
            address.port()
        ),
        _ => error.to_string(),
    }
}

fn split_port(rest: &str) -> Result<(&str, u16), String> {
    if let Some(at) = rest.find('/') {
        return Err(format!("a tcp listener has no path, leave out {:?}", &rest[at..]));
    }
    // The colons of a bare IPv6 address would be taken for the port's.
    let after_bracket = rest.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match rest[after_bracket..].rfind(':') {
        Some(colon) => {
            let colon = after_bracket + colon;
            let port = &rest[colon + 1..];
            let number = port.parse::<u16>();
            let why = || format!("{port:?} is no port, use a number from 0 to 65535");
            (&rest[..colon], number.map_err(|_| why())?)
        }
        None => (rest, PORT_DEFAULT),
    };
    if host.contains(':') && !host.starts_with('[') {
        return Err(format!("an IPv6 address stands in brackets: tcp://[{rest}]:{PORT_DEFAULT}"));
    }
    Ok((host, port))
}

fn parse_host(host: &str) -> Result<Host, String> {
    if let Some(inside) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address = inside.parse().map(|address| Host::Address(IpAddr::V6(address)));
        return address.map_err(|_| format!("{inside:?} is no IPv6 address"));
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    if host.is_empty() || host == "*" {
        return Err("it has no address, use 0.0.0.0 or [::] for every interface".to_string());
    }
    let digits = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if digits || !host.bytes().all(legal) {
        return Err(format!("{host:?} is neither an address nor a host name"));
    }
    Ok(Host::Name(host.to_string()))
}

const PORT_DEFAULT: u16 = 1883;
/// Connections that wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;

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
        ];
        for (text, shown, loopback) in right {
            let url = ListenUrl::parse(text).unwrap();
            assert_eq!((url.to_string().as_str(), url.is_loopback()), (shown, loopback));
        }
    }

    #[test]
    fn wrong_urls_say_what_would_be_right() {
        let wrong = [
            ("1883", "\"1883\" is no URL, use one like tcp://127.0.0.1:1883"),
            ("mqtt://a:1", "\"mqtt://a:1\": use tcp://a:1"),
            (
                "tls://a:1",
                "\"tls://a:1\": tls listeners are not supported in this version; use tcp://ADDRESS:PORT",
            ),
            ("htp://a", "\"htp://a\": there are no htp listeners; use tcp://ADDRESS:PORT"),
            (
                "tcp://a:70000",
                "\"tcp://a:70000\": \"70000\" is no port, use a number from 0 to 65535",
            ),
            ("tcp://a:", "\"tcp://a:\": \"\" is no port, use a number from 0 to 65535"),
            (
                "tcp://:1",
                "\"tcp://:1\": it has no address, use 0.0.0.0 or [::] for every interface",
            ),
            ("tcp://[::g]", "\"tcp://[::g]\": \"::g\" is no IPv6 address"),
            ("tcp://a/b", "\"tcp://a/b\": a tcp listener has no path, leave out \"/b\""),
            (
                "tcp://300.1.1.1",
                "\"tcp://300.1.1.1\": \"300.1.1.1\" is neither an address nor a host name",
            ),
            ("tcp://a b", "\"tcp://a b\": \"a b\" is neither an address nor a host name"),
        ];
        for (text, why) in wrong {
            assert_eq!(ListenUrl::parse(text).unwrap_err(), why);
        }
        assert!(ListenUrl::parse("tcp://fe80::1").unwrap_err().contains("brackets"));
    }

    #[test]
    fn an_address_in_use_is_named() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let url = ListenUrl::parse(&format!("tcp://{address}")).unwrap();
        assert_eq!(
            bind(&[url], false).unwrap_err(),
            [format!(
                "tcp://{address}: the address is in use: another broker is running, or use another port"
            )]
        );
    }

    #[test]
    fn a_host_name_that_is_not_loopback_is_refused_when_bound() {
        let url = ListenUrl::parse("tcp://0.0.0.0:0").unwrap();
        assert!(bind(&[url], false).unwrap_err()[0].contains("can be reached from other hosts"));
    }
}
