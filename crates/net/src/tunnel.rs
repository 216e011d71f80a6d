//! TLS, WebSocket or QUIC for a blocking client: a thread relays bytes between the transport and
//! one end of a socket pair, in both directions independently, so that a broker that does not read
//! cannot stop the client's reads. The client uses the other end as an ordinary socket.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use transport::{QuicClientEndpoint, QuicConnectionHandle, TcpTransport};

#[derive(Debug)]
pub struct TransportTunnel {
    pub local: UnixStream,
    /// Why `relay_bytes` failed; empty after an orderly end.
    pub failure: Arc<OnceLock<String>>,
}

/// The remote side of a tunnel.
#[derive(Debug)]
pub enum TunnelTransport {
    Stream(TcpTransport),
    Quic(Box<QuicClientEndpoint>, QuicConnectionHandle),
}

/// Bytes to relay in one direction; `from` is the first unsent byte.
#[derive(Default)]
struct TunnelBuffer {
    bytes: Vec<u8>,
    from: usize,
}

impl TransportTunnel {
    /// Waits until MQTT may begin, at most until `deadline`, and starts the relay thread.
    pub fn open(mut transport: TunnelTransport, deadline: Instant) -> io::Result<TransportTunnel> {
        loop {
            transport.drive()?;
            if transport.is_open()? {
                break;
            }
            transport.drive()?;
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            let mut all = [PollFd::from_borrowed_fd(transport.socket(), transport.interest(true))];
            poll_until(
                &mut all,
                Some(transport.next_at().map_or(deadline, |next| next.min(deadline))),
            )?;
        }
        let (near, inner) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        let fate = Arc::new(OnceLock::new());
        let told = fate.clone();
        thread::Builder::new().name("tunnel".into()).spawn(move || {
            let carried = relay_bytes(&mut transport, &inner);
            transport.close();
            if let Err(error) = carried {
                let _ = told.set(error.to_string());
            }
            // Dropping the inner socket tells the client that the tunnel has ended.
            drop(inner);
        })?;
        Ok(TransportTunnel { local: near, failure: fate })
    }

    pub fn try_clone(&self) -> io::Result<TransportTunnel> {
        Ok(TransportTunnel { local: self.local.try_clone()?, failure: self.failure.clone() })
    }

    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.local.read(into) {
            // Unread bytes at the inner end reset the client's socket.
            Ok(0) | Err(_) if self.failure.get().is_some() => {
                Err(io::Error::other(self.failure.get().cloned().unwrap_or_default()))
            }
            read => read,
        }
    }
}

/// Relays bytes until either side is closed.
fn relay_bytes(transport: &mut TunnelTransport, mut near: &UnixStream) -> io::Result<()> {
    let (mut inward, mut outward) = (TunnelBuffer::default(), TunnelBuffer::default());
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut said_all = false;
    let mut gone: Option<Instant> = None;
    loop {
        transport.drive()?;
        loop {
            if inward.is_empty() {
                match transport.read(&mut chunk)? {
                    None => break,
                    Some(0) => return Ok(()),
                    Some(read) => inward.push(&chunk[..read]),
                }
            }
            match near.write(inward.unsent()) {
                Ok(written) => inward.consume(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client has closed its end.
                Err(_) => return Ok(()),
            }
        }
        loop {
            if outward.is_empty() {
                match near.read(&mut chunk) {
                    _ if said_all => break,
                    Ok(0) => {
                        said_all = true;
                        transport.shutdown_write()?;
                    }
                    Ok(read) => outward.push(&chunk[..read]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return Ok(()),
                }
                continue;
            }
            match transport.write(outward.unsent())? {
                None => break,
                Some(written) => outward.consume(written),
            }
        }
        transport.drive()?;
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, outward.is_empty() && !said_all);
        wanted.set(PollFlags::OUT, !inward.is_empty());
        let mut beyond = transport.interest(inward.is_empty());
        if matches!(transport, TunnelTransport::Stream(_)) && !outward.is_empty() {
            beyond |= PollFlags::OUT;
        }
        let mut all =
            [PollFd::new(&near, wanted), PollFd::from_borrowed_fd(transport.socket(), beyond)];
        // A closed client socket would be reported by every `poll`.
        let from = usize::from(gone.is_some());
        let upto = if beyond.is_empty() { 1 } else { 2 };
        let until = gone.map(|at| at + CLOSE_TIMEOUT);
        poll_until(
            &mut all[from.min(upto)..upto],
            transport.next_at().into_iter().chain(until).min(),
        )?;
        if all[0].revents().contains(PollFlags::HUP) {
            gone = gone.or(Some(Instant::now()));
        }
        if gone.is_some_and(|at| said_all && outward.is_empty() || at.elapsed() >= CLOSE_TIMEOUT) {
            return Ok(());
        }
    }
}

fn poll_until(all: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Rounded up, or the loop would spin until the deadline.
    let left = left.map(|left| left + Duration::from_micros(100));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(all, left.as_ref()) {
        Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl TunnelTransport {
    /// Handles arrived data and due timers, and sends pending output.
    fn drive(&mut self) -> io::Result<()> {
        match self {
            TunnelTransport::Stream(wire) => wire.flush(),
            TunnelTransport::Quic(outlet, _) => {
                // The single owner checks everything anyway.
                let mut woken = Vec::new();
                while outlet.poll(&mut woken)? {}
                outlet.send_pending();
                Ok(())
            }
        }
    }

    fn is_open(&mut self) -> io::Result<bool> {
        match self {
            TunnelTransport::Stream(wire) => wire.poll_open(),
            TunnelTransport::Quic(outlet, connection) => outlet.poll_open(*connection),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            TunnelTransport::Stream(wire) => wire.read(into),
            TunnelTransport::Quic(outlet, connection) => outlet.read(*connection, into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self {
            TunnelTransport::Stream(wire) => wire.write(bytes),
            TunnelTransport::Quic(outlet, connection) => outlet.write(*connection, bytes),
        }
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            TunnelTransport::Stream(wire) => wire.shut_down(),
            TunnelTransport::Quic(outlet, connection) => {
                outlet.finish_stream(*connection);
                Ok(())
            }
        }
    }

    /// Closes a QUIC connection; a TCP socket is closed on drop.
    fn close(&mut self) {
        if let TunnelTransport::Quic(outlet, connection) = self {
            outlet.close(*connection);
            outlet.send_pending();
        }
    }

    fn next_at(&self) -> Option<Instant> {
        match self {
            TunnelTransport::Stream(_) => None,
            TunnelTransport::Quic(outlet, _) => Some(outlet.next_poll_at()),
        }
    }

    /// Returns the events to poll for at the transport's socket.
    fn interest(&self, is_read: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        match self {
            TunnelTransport::Stream(wire) => {
                flags.set(PollFlags::IN, is_read);
                flags.set(PollFlags::OUT, wire.has_pending());
            }
            // Datagrams also carry acknowledgements of our data, so input is always polled.
            TunnelTransport::Quic(..) => flags = PollFlags::IN,
        }
        flags
    }

    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            TunnelTransport::Stream(wire) => wire.as_fd(),
            TunnelTransport::Quic(outlet, _) => outlet.as_fd(),
        }
    }
}

impl TunnelBuffer {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn unsent(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn consume(&mut self, len: usize) {
        self.from += len;
        if self.from == self.bytes.len() {
            self.bytes.clear();
            self.from = 0;
        }
    }
}

const CHUNK_BYTES: usize = 64 * 1024;
/// Time for the last bytes after the client has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
