//! Where clients connect: listener URLs, and the sockets that they become.

use engine::ListenerSocket;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// `tcp://host:port`, `tls://` and `quic://` alike, `ws://host:port/path`, `wss://` alike or
/// `unix:///path`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenUrl {
    /// Only of WebSocket has a path, and one without takes every path.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenScheme {
    Quic,
    Tcp,
    Tls,
    Ws,
    Wss,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenHost {
    Address(IpAddr),
    Name(String),
}

impl ListenScheme {
    fn name(self) -> &'static str {
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
    /// The error says what is wrong and what would be right.
    pub(crate) fn parse(text: &str) -> Result<ListenUrl, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("{text:?} is no URL, use one like tcp://127.0.0.1:1883"));
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
            _ => return Err(format!("{text:?}: there are no {scheme} listeners; use {KINDS}")),
        };
        let wrong = |why: String| format!("{text:?}: {why}");
        let (rest, path) = split_path(scheme, rest).map_err(wrong)?;
        let (host, port) = split_port(scheme, rest).map_err(wrong)?;
        let host = parse_host(host).map_err(wrong)?;
        Ok(ListenUrl::Network { scheme, host, port, path: path.to_string() })
    }

    pub(crate) fn is_tls(&self) -> bool {
        use ListenScheme::{Quic, Tls, Wss};
        matches!(self, ListenUrl::Network { scheme: Quic | Tls | Wss, .. })
    }

    pub(crate) fn is_quic(&self) -> bool {
        matches!(self, ListenUrl::Network { scheme: ListenScheme::Quic, .. })
    }

    /// The path of a WebSocket listener; empty is every path.
    pub(crate) fn web_path(&self) -> Option<&str> {
        match self {
            ListenUrl::Network { scheme, path, .. } if scheme.is_web() => Some(path),
            _ => None,
        }
    }

    /// Returns the scheme, the part before `://`.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            ListenUrl::Network { scheme, .. } => scheme.name(),
            ListenUrl::Unix { .. } => "unix",
        }
    }

    /// Whether only this host can reach it. A name counts only if it is `localhost`: what other
    /// names stand for is known when they are bound.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            ListenUrl::Network { host: ListenHost::Address(address), .. } => address.is_loopback(),
            ListenUrl::Network { host: ListenHost::Name(name), .. } => name == "localhost",
            ListenUrl::Unix { .. } => true,
        }
    }

    /// As it was asked for: 0 is any, and a unix socket has none.
    pub(crate) fn port(&self) -> Option<u16> {
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

/// A listener to bind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerSpec<'a> {
    pub(crate) url: &'a ListenUrl,
    /// Whether it may be reached from other hosts.
    pub(crate) open: bool,
    /// Permissions of a unix socket's file.
    pub(crate) mode: u32,
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct BoundListener {
    /// Index of the listener's settings: one name may have several addresses.
    pub(crate) spec_index: usize,
    pub(crate) socket: ListenerSocket,
    /// The URL by which it can be reached.
    pub(crate) shown: String,
    /// None of a unix socket.
    pub(crate) port: Option<u16>,
    pub(crate) file: Option<SocketFile>,
}

/// The file of a unix socket of ours, which goes with it.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Every socket of every wish, bound and listening. The errors, all of them, are sentences.
pub(crate) fn bind(wishes: &[ListenerSpec<'_>]) -> Result<Vec<BoundListener>, Vec<String>> {
    let (mut bound, mut wrongs) = (Vec::new(), Vec::new());
    for (at, wish) in wishes.iter().enumerate() {
        match wish.url {
            ListenUrl::Network { scheme, host, port, path } => {
                let v4 = ListenHost::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                // Beside a listener on every IPv4 address, [::] must leave IPv4 alone.
                let only_v6 = wishes.iter().any(|other| {
                    matches!(other.url, ListenUrl::Network { host, port: same, .. }
                        if *host == v4 && same == port)
                });
                let addresses = match resolve(host, *port) {
                    Ok(addresses) => addresses,
                    Err(error) => {
                        let url = wish.url;
                        wrongs.push(format!("{url}: the host name cannot be resolved: {error}"));
                        continue;
                    }
                };
                for address in addresses {
                    match bind_address(wish, *scheme, address, path, only_v6) {
                        Ok((socket, shown, port)) => {
                            let port = Some(port);
                            bound.push(BoundListener {
                                spec_index: at,
                                socket,
                                shown,
                                port,
                                file: None,
                            });
                        }
                        Err(why) => wrongs.push(why),
                    }
                }
            }
            ListenUrl::Unix { path } => match bind_path(path, wish.mode) {
                Ok((socket, file)) => {
                    let (shown, file) = (wish.url.to_string(), Some(file));
                    let socket = ListenerSocket::Unix(socket);
                    bound.push(BoundListener { spec_index: at, socket, shown, port: None, file });
                }
                Err(why) => wrongs.push(format!("{}: {why}", wish.url)),
            },
        }
    }
    if wrongs.is_empty() { Ok(bound) } else { Err(wrongs) }
}

fn resolve(host: &ListenHost, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        ListenHost::Address(address) => Ok(vec![SocketAddr::new(*address, port)]),
        ListenHost::Name(name) => Ok((name.as_str(), port).to_socket_addrs()?.collect()),
    }
}

fn bind_address(
    wish: &ListenerSpec<'_>,
    scheme: ListenScheme,
    address: SocketAddr,
    path: &str,
    only_v6: bool,
) -> Result<(ListenerSocket, String, u16), String> {
    if !wish.open && !address.ip().is_loopback() {
        return Err(crate::options::checks::describe_open_listener(&format!(
            "{} ({address})",
            wish.url
        )));
    }
    let listen = if scheme == ListenScheme::Quic { bind_udp } else { bind_tcp };
    let bound = listen(address, only_v6).and_then(|socket| {
        let own = socket.local_addr()?.as_socket().unwrap_or(address);
        let shown = format!("{}://{own}{path}", scheme.name());
        let socket = match scheme {
            ListenScheme::Quic => ListenerSocket::Udp(socket.into()),
            ListenScheme::Tcp | ListenScheme::Tls | ListenScheme::Ws | ListenScheme::Wss => {
                ListenerSocket::Tcp(socket.into())
            }
        };
        Ok((socket, shown, own.port()))
    });
    bound.map_err(|error| {
        format!("{}://{address}: {}", scheme.name(), explain_bind_error(&error, address))
    })
}

fn bind_tcp(address: SocketAddr, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the connections of the process before it.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Binds a UDP socket. All clients share its receive buffer, so the buffer is as large as the
/// kernel allows.
fn bind_udp(address: SocketAddr, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    let _ = socket.set_recv_buffer_size(DATAGRAM_BYTES);
    let _ = socket.set_send_buffer_size(DATAGRAM_BYTES);
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The file of a process that was killed stays behind: nobody answers there, and it is replaced.
pub(crate) fn bind_path(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), String> {
    let address = SockAddr::unix(path)
        .map_err(|_| "the path is too long for a socket, use at most 107 bytes".to_string())?;
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            return Err("a file that is no socket is there, use another path".to_string());
        }
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None);
        let answered = probe.and_then(|probe| probe.connect(&address));
        if answered.is_ok() {
            return Err(IN_USE_PATH.to_string());
        }
        fs::remove_file(path).map_err(|error| format!("an old socket is in the way: {error}"))?;
    }
    let bound = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&address)?;
        let file = SocketFile(path.into());
        // Before it listens nobody gets in whom the mode keeps out.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        socket.listen(BACKLOG)?;
        Ok((OwnedFd::from(socket).into(), file))
    };
    bound().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => IN_USE_PATH.to_string(),
        io::ErrorKind::NotFound => "its folder is not there, make it first".to_string(),
        io::ErrorKind::PermissionDenied => {
            "not permitted: use a folder that this user may write to".to_string()
        }
        _ => error.to_string(),
    })
}

fn explain_bind_error(error: &io::Error, address: SocketAddr) -> String {
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
    // What a request's line could not hold would never be asked for.
    let legal = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    if !path.bytes().all(legal) {
        return Err(format!("{path:?} is no path, use visible ASCII without ? and #"));
    }
    Ok((before, path))
}

fn split_port(scheme: ListenScheme, rest: &str) -> Result<(&str, u16), String> {
    let (name, port_default) = (scheme.name(), scheme.port_default());
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
        return address.map_err(|_| format!("{inside:?} is no IPv6 address"));
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
const IN_USE_PATH: &str = "the socket is in use: another broker is running, or use another path";
/// Connections that wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;
/// Asked for; the kernel lowers it to its own limit (net.core.rmem_max and wmem_max).
const DATAGRAM_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn bind_one(text: &str, open: bool) -> Result<Vec<BoundListener>, Vec<String>> {
        let url = ListenUrl::parse(text).unwrap();
        bind(&[ListenerSpec { url: &url, open, mode: 0o600 }])
    }

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
            ("1883", "\"1883\" is no URL, use one like tcp://127.0.0.1:1883"),
            ("mqtt://a:1", "\"mqtt://a:1\": use tcp://a:1"),
            ("mqtts://a:1", "\"mqtts://a:1\": use tls://a:1"),
            ("quic://a/b", "\"quic://a/b\": a quic listener has no path, leave out \"/b\""),
            ("http://a:1/b", "\"http://a:1/b\": use ws://a:1/b"),
            ("https://a:1", "\"https://a:1\": use wss://a:1"),
            (
                "ws://a/b c",
                "\"ws://a/b c\": \"/b c\" is no path, use visible ASCII without ? and #",
            ),
            (
                "ws://a/b?c",
                "\"ws://a/b?c\": \"/b?c\" is no path, use visible ASCII without ? and #",
            ),
            (
                "htp://a",
                "\"htp://a\": there are no htp listeners; use tcp://ADDRESS:PORT, \
                 tls://ADDRESS:PORT, quic://ADDRESS:PORT, ws://ADDRESS:PORT/PATH, \
                 wss://ADDRESS:PORT/PATH or unix:///PATH",
            ),
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

    #[test]
    fn an_address_in_use_is_named() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        assert_eq!(
            bind_one(&format!("tls://{address}"), false).unwrap_err(),
            [format!(
                "tls://{address}: the address is in use: another broker is running, or use another port"
            )]
        );
    }

    #[test]
    fn a_host_name_that_is_not_loopback_is_refused_when_bound() {
        let wrongs = bind_one("tcp://0.0.0.0:0", false).unwrap_err();
        assert!(wrongs[0].contains("can be reached from other hosts"));
    }

    #[test]
    fn a_socket_file_that_nobody_serves_is_replaced_and_nothing_else_is() {
        let folder = std::env::temp_dir().join(format!("godwit-listen-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let url = format!("unix://{}", path.display());
        let first = bind_one(&url, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let why = bind_one(&url, false).unwrap_err();
        assert!(why[0].ends_with(IN_USE_PATH), "{why:?}");
        drop(first);
        assert!(!path.exists());
        // A killed process leaves its file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(bind_one(&url, false).unwrap());
        fs::write(&path, "a letter").unwrap();
        assert!(bind_one(&url, false).unwrap_err()[0].contains("no socket is there"));
        let nowhere = bind_one("unix:///nowhere/at/all", false).unwrap_err();
        assert!(nowhere[0].ends_with("its folder is not there, make it first"), "{nowhere:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
