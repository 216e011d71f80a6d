//! Byte stream of a client, read by one thread and written by another.

use net::tunnel::TransportTunnel;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

pub(super) enum ClientStream {
    Tcp(TcpStream),
    /// TLS, WebSocket or QUIC.
    Tunnel(TransportTunnel),
    Unix(UnixStream),
}

impl ClientStream {
    pub(super) fn try_clone(&self) -> io::Result<ClientStream> {
        Ok(match self {
            ClientStream::Tcp(stream) => ClientStream::Tcp(stream.try_clone()?),
            ClientStream::Tunnel(tunnel) => ClientStream::Tunnel(tunnel.try_clone()?),
            ClientStream::Unix(stream) => ClientStream::Unix(stream.try_clone()?),
        })
    }

    /// Shuts down the writing direction.
    pub(super) fn shutdown_write(&mut self) {
        self.shutdown(Shutdown::Write);
    }

    pub(super) fn close(&self) {
        self.shutdown(Shutdown::Both);
    }

    fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            ClientStream::Tcp(stream) => stream.shutdown(how),
            ClientStream::Tunnel(TransportTunnel { local: stream, .. })
            | ClientStream::Unix(stream) => stream.shutdown(how),
        };
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            ClientStream::Tcp(stream) => stream.write_all(bytes),
            ClientStream::Tunnel(TransportTunnel { local: stream, .. })
            | ClientStream::Unix(stream) => stream.write_all(bytes),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientStream::Tcp(stream) => stream.read(into),
            ClientStream::Tunnel(tunnel) => tunnel.read(into),
            ClientStream::Unix(stream) => stream.read(into),
        }
    }
}
