//! What a client talks over: TCP, TLS or a unix socket, read by one thread and written by another.

use rustls::{ClientConnection, Connection};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(TlsStream),
    Unix(UnixStream),
}

/// The reader holds the state only while it decrypts, the writer only while it encrypts: neither
/// while it waits for the socket, so a broker that does not read cannot stop us from reading.
pub(super) struct TlsStream {
    socket: TcpStream,
    state: Arc<Mutex<Connection>>,
    /// Ciphertext that was read and does not fit into rustls yet.
    raw: Vec<u8>,
}

impl Stream {
    /// Shakes hands.
    pub(super) fn tls(mut socket: TcpStream, mut conn: ClientConnection) -> io::Result<Stream> {
        while conn.is_handshaking() {
            conn.complete_io(&mut socket)?;
        }
        conn.set_buffer_limit(None);
        let state = Arc::new(Mutex::new(Connection::Client(conn)));
        Ok(Stream::Tls(TlsStream { socket, state, raw: Vec::new() }))
    }

    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Tls(stream) => Stream::Tls(TlsStream {
                socket: stream.socket.try_clone()?,
                state: stream.state.clone(),
                raw: Vec::new(),
            }),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) | Stream::Tls(TlsStream { socket: stream, .. }) => {
                stream.set_nodelay(true)
            }
            Stream::Unix(_) => Ok(()),
        }
    }

    /// Says that nothing more comes from us.
    pub(super) fn end(&mut self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => {
                stream.state().send_close_notify();
                stream.write_out().and_then(|()| stream.socket.shutdown(Shutdown::Write))
            }
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    pub(super) fn close(&self) {
        let _ = match self {
            Stream::Tcp(stream) | Stream::Tls(TlsStream { socket: stream, .. }) => {
                stream.shutdown(Shutdown::Both)
            }
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => {
                stream.state().writer().write_all(bytes)?;
                stream.write_out()
            }
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }
}

impl TlsStream {
    fn state(&self) -> MutexGuard<'_, Connection> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// One thread alone writes, so what was encrypted first leaves first.
    fn write_out(&mut self) -> io::Result<()> {
        let mut sealed = Vec::new();
        let mut state = self.state();
        while state.wants_write() {
            state.write_tls(&mut sealed)?;
        }
        drop(state);
        self.socket.write_all(&sealed)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if let Some(read) = self.decrypted(into)? {
                return Ok(read);
            }
            // What the broker asks us to answer goes out with our next words.
            let read = self.socket.read(&mut chunk)?;
            if read == 0 {
                return Ok(0);
            }
            self.raw.extend_from_slice(&chunk[..read]);
        }
    }

    /// What is there without waiting; zero is the end.
    fn decrypted(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        loop {
            match state.reader().read(into) {
                Ok(read) => return Ok(Some(read)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.raw.is_empty() {
                return Ok(None);
            }
            let mut rest = &self.raw[..];
            let taken = state.read_tls(&mut rest)?;
            self.raw.drain(..taken);
            state.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

const CHUNK_BYTES: usize = 64 * 1024;
