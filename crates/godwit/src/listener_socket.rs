//! Listening sockets for the URLs of listeners.

use config::listen_url::{ListenHost, ListenScheme, ListenUrl};
use engine::ListenerSocket;
use net::unix_socket::{SocketFile, bind_path};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// A listener to [`bind`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerSpec<'a> {
    pub(crate) url: &'a ListenUrl,
    /// Whether remote clients may connect; without it a name must resolve to loopback.
    pub(crate) open: bool,
    /// Permissions of a unix socket's file.
    pub(crate) mode: u32,
}

/// A listening socket of a [`ListenerSpec`].
#[derive(Debug)]
pub(crate) struct BoundListener {
    /// Index of the listener's settings: a name may resolve to several addresses.
    pub(crate) spec_index: usize,
    pub(crate) socket: ListenerSocket,
    /// The URL for clients.
    pub(crate) shown: String,
    /// `None` for a unix socket.
    pub(crate) port: Option<u16>,
    pub(crate) file: Option<SocketFile>,
}

/// Binds all sockets of all listeners and starts to listen, or returns every error.
pub(crate) fn bind(wishes: &[ListenerSpec<'_>]) -> Result<Vec<BoundListener>, Vec<String>> {
    let (mut bound, mut wrongs) = (Vec::new(), Vec::new());
    for (at, wish) in wishes.iter().enumerate() {
        match wish.url {
            ListenUrl::Network { scheme, host, port, path } => {
                let v4 = ListenHost::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                // With a listener on all IPv4 addresses of the same port, [::] must not accept
                // IPv4.
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
    // A restart must not wait for connections of the previous process.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Binds a UDP socket. All clients share the receive buffer, so the buffer is as large as the
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

/// Connections that wait for `accept`; the kernel reduces the number to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Requested size of both buffers; the kernel reduces the size to `net.core.rmem_max` and
/// `wmem_max`.
const DATAGRAM_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use net::unix_socket::IN_USE_PATH;
    use std::fs;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;

    fn bind_one(text: &str, open: bool) -> Result<Vec<BoundListener>, Vec<String>> {
        let url = ListenUrl::parse(text).unwrap();
        bind(&[ListenerSpec { url: &url, open, mode: 0o600 }])
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
        assert!(bind_one(&url, false).unwrap_err()[0].contains("not a socket is there"));
        let nowhere = bind_one("unix:///nowhere/at/all", false).unwrap_err();
        assert!(nowhere[0].ends_with("its folder is not there, make it first"), "{nowhere:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
