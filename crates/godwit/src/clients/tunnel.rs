//! What has to be driven, for a client that blocks: a thread of its own carries bytes between one
//! end of a pair of sockets and TLS, WebSocket or QUIC, both ways independently, so that a broker
//! that does not read cannot stop us from reading. The client has the other end, which is a socket
//! like any other.

use carrier::{Outlet, TrunkId, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) near: UnixStream,
    /// Why it ended, where that was no farewell.
    pub(crate) fate: Arc<OnceLock<String>>,
}

/// Its other side.
#[derive(Debug)]
pub(crate) enum Far {
    Wire(Wire),
    Trunk(Box<Outlet>, TrunkId),
}

/// Bytes on their way through.
#[derive(Default)]
struct Load {
    bytes: Vec<u8>,
    from: usize,
}

impl Tunnel {
    /// Waits until MQTT may begin, and opens.
    pub(crate) fn open(mut far: Far, deadline: Instant) -> io::Result<Tunnel> {
        loop {
            far.turn()?;
            if far.is_open()? {
                break;
            }
            far.turn()?;
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            let mut all = [PollFd::from_borrowed_fd(far.socket(), far.interest(true))];
            wait(&mut all, Some(far.next_at().map_or(deadline, |next| next.min(deadline))))?;
        }
        let (near, inner) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        let fate = Arc::new(OnceLock::new());
        let told = fate.clone();
        thread::Builder::new().name("tunnel".into()).spawn(move || {
            let carried = carry(&mut far, &inner);
            far.close();
            if let Err(error) = carried {
                let _ = told.set(error.to_string());
            }
            // Now the client hears that it is over.
            drop(inner);
        })?;
        Ok(Tunnel { near, fate })
    }

    pub(super) fn try_clone(&self) -> io::Result<Tunnel> {
        Ok(Tunnel { near: self.near.try_clone()?, fate: self.fate.clone() })
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.near.read(into) {
            // What is unread at the inner end resets ours.
            Ok(0) | Err(_) if self.fate.get().is_some() => {
                Err(io::Error::other(self.fate.get().cloned().unwrap_or_default()))
            }
            read => read,
        }
    }
}

/// Until either side is done.
fn carry(far: &mut Far, mut near: &UnixStream) -> io::Result<()> {
    let (mut inward, mut outward) = (Load::default(), Load::default());
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut said_all = false;
    let mut gone: Option<Instant> = None;
    loop {
        far.turn()?;
        loop {
            if inward.is_empty() {
                match far.read(&mut chunk)? {
                    None => break,
                    Some(0) => return Ok(()),
                    Some(read) => inward.put(&chunk[..read]),
                }
            }
            match near.write(inward.rest()) {
                Ok(written) => inward.pass(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client is gone.
                Err(_) => return Ok(()),
            }
        }
        loop {
            if outward.is_empty() {
                match near.read(&mut chunk) {
                    _ if said_all => break,
                    Ok(0) => {
                        said_all = true;
                        far.end()?;
                    }
                    Ok(read) => outward.put(&chunk[..read]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return Ok(()),
                }
                continue;
            }
            match far.write(outward.rest())? {
                None => break,
                Some(written) => outward.pass(written),
            }
        }
        far.turn()?;
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, outward.is_empty() && !said_all);
        wanted.set(PollFlags::OUT, !inward.is_empty());
        let mut beyond = far.interest(inward.is_empty());
        if matches!(far, Far::Wire(_)) && !outward.is_empty() {
            beyond |= PollFlags::OUT;
        }
        let mut all = [PollFd::new(&near, wanted), PollFd::from_borrowed_fd(far.socket(), beyond)];
        // The client's end that is closed says so all the time.
        let from = usize::from(gone.is_some());
        let upto = if beyond.is_empty() { 1 } else { 2 };
        let until = gone.map(|at| at + FAREWELL);
        wait(&mut all[from.min(upto)..upto], far.next_at().into_iter().chain(until).min())?;
        if all[0].revents().contains(PollFlags::HUP) {
            gone = gone.or(Some(Instant::now()));
        }
        if gone.is_some_and(|at| said_all && outward.is_empty() || at.elapsed() >= FAREWELL) {
            return Ok(());
        }
    }
}

fn wait(all: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Not a moment too early, or it would be waited for in a circle.
    let left = left.map(|left| left + Duration::from_micros(100));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(all, left.as_ref()) {
        Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Far {
    /// Takes what has come and lets out what is due.
    fn turn(&mut self) -> io::Result<()> {
        match self {
            Far::Wire(wire) => wire.push(),
            Far::Trunk(outlet, _) => {
                // There is one owner, who looks at everything anyway.
                let mut woken = Vec::new();
                while outlet.turn(&mut woken)? {}
                outlet.send();
                Ok(())
            }
        }
    }

    fn is_open(&mut self) -> io::Result<bool> {
        match self {
            Far::Wire(wire) => wire.is_open(),
            Far::Trunk(outlet, trunk) => outlet.is_open(*trunk),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Far::Wire(wire) => wire.read(into),
            Far::Trunk(outlet, trunk) => outlet.read(*trunk, into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self {
            Far::Wire(wire) => wire.write(bytes),
            Far::Trunk(outlet, trunk) => outlet.write(*trunk, bytes),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        match self {
            Far::Wire(wire) => wire.end(),
            Far::Trunk(outlet, trunk) => {
                outlet.end(*trunk);
                Ok(())
            }
        }
    }

    /// A socket of TCP is closed with its owner.
    fn close(&mut self) {
        if let Far::Trunk(outlet, trunk) = self {
            outlet.close(*trunk);
            outlet.send();
        }
    }

    fn next_at(&self) -> Option<Instant> {
        match self {
            Far::Wire(_) => None,
            Far::Trunk(outlet, _) => Some(outlet.next_at()),
        }
    }

    /// What to wait for at its socket, where somebody would read.
    fn interest(&self, is_read: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        match self {
            Far::Wire(wire) => {
                flags.set(PollFlags::IN, is_read);
                flags.set(PollFlags::OUT, wire.is_stuck());
            }
            // Whatever is read of it, datagrams also say what has arrived of ours.
            Far::Trunk(..) => flags = PollFlags::IN,
        }
        flags
    }

    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Far::Wire(wire) => wire.as_fd(),
            Far::Trunk(outlet, _) => outlet.as_fd(),
        }
    }
}

impl Load {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn pass(&mut self, len: usize) {
        self.from += len;
        if self.from == self.bytes.len() {
            self.bytes.clear();
            self.from = 0;
        }
    }
}

const CHUNK_BYTES: usize = 64 * 1024;
/// How long the last words of a client that is gone may take.
const FAREWELL: Duration = Duration::from_secs(2);
