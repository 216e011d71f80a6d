//! What a client talks over, read by one thread and written by another.

use super::tunnel::Tunnel;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

pub(super) enum Stream {
    Tcp(TcpStream),
    /// To TLS, WebSocket or QUIC.
    Tunnel(Tunnel),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Tunnel(tunnel) => Stream::Tunnel(tunnel.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    /// Says that nothing more comes from us.
    pub(super) fn end(&mut self) {
        self.shutdown(Shutdown::Write);
    }

    pub(super) fn close(&self) {
        self.shutdown(Shutdown::Both);
    }

    fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Tunnel(Tunnel { near: stream, .. }) | Stream::Unix(stream) => {
                stream.shutdown(how)
            }
        };
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Tunnel(Tunnel { near: stream, .. }) | Stream::Unix(stream) => {
                stream.write_all(bytes)
            }
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Tunnel(tunnel) => tunnel.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }
}
