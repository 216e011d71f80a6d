//! One connection's bytes, whatever carries them: a socket of its own, or of QUIC a trunk of an
//! outlet that the thread's clients share.

use crate::plan::{Carrier, Target};
use carrier::{Outlet, TrunkId};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) enum Wire {
    Own(carrier::Wire),
    Trunk(u16, TrunkId),
}

/// A thread's outlets: one for each address that it connects to and from.
#[derive(Debug, Default)]
pub(crate) struct Outlets(Vec<Placed>);

#[derive(Debug)]
struct Placed {
    to: SocketAddr,
    from: Option<IpAddr>,
    outlet: Outlet,
    /// It may have more to read, of which no event tells.
    is_busy: bool,
}

impl Wire {
    /// Begins to connect; an event tells when that is done.
    pub(crate) fn open(
        target: &Target,
        from: Option<IpAddr>,
        owner: u32,
        outlets: &mut Outlets,
        registry: &Registry,
    ) -> io::Result<Wire> {
        match &target.carrier {
            Carrier::Own(layers) => {
                let wire = carrier::Wire::open(target.address, from, &target.host, layers)?;
                let both = Interest::READABLE | Interest::WRITABLE;
                let descriptor = wire.as_fd().as_raw_fd();
                registry.register(&mut SourceFd(&descriptor), Token(owner as usize), both)?;
                Ok(Wire::Own(wire))
            }
            Carrier::Quic(manner) => {
                let at = outlets.to(target.address, from, registry)?;
                let trunk = outlets.0[usize::from(at)].outlet.open(manner, &target.host, owner)?;
                Ok(Wire::Trunk(at, trunk))
            }
        }
    }

    /// Whether MQTT may begin. Asked again with every event until it is so.
    pub(crate) fn is_open(&mut self, outlets: &mut Outlets) -> io::Result<bool> {
        match self {
            Wire::Own(wire) => wire.is_open(),
            Wire::Trunk(at, trunk) => outlets.0[usize::from(*at)].outlet.is_open(*trunk),
        }
    }

    /// `None` where there is nothing to read now; zero is the end.
    #[inline]
    pub(crate) fn read(
        &mut self,
        into: &mut [u8],
        outlets: &mut Outlets,
    ) -> io::Result<Option<usize>> {
        match self {
            Wire::Own(wire) => wire.read(into),
            Wire::Trunk(at, trunk) => outlets.0[usize::from(*at)].outlet.read(*trunk, into),
        }
    }

    /// `None` where nothing can be written now.
    #[inline]
    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        outlets: &mut Outlets,
    ) -> io::Result<Option<usize>> {
        match self {
            Wire::Own(wire) => wire.write(bytes),
            Wire::Trunk(at, trunk) => outlets.0[usize::from(*at)].outlet.write(*trunk, bytes),
        }
    }

    /// Writes what a layer has taken and not yet passed on.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        match self {
            Wire::Own(wire) if wire.has_layers() => wire.push(),
            _ => Ok(()),
        }
    }

    pub(crate) fn close(self, outlets: &mut Outlets) {
        if let Wire::Trunk(at, trunk) = self {
            outlets.0[usize::from(at)].outlet.close(trunk);
        }
    }

    /// Whether a read that did not fill its buffer took everything: then the poller tells of more
    /// (epoll(7), question 9).
    #[inline]
    pub(crate) fn short_read_is_all(&self) -> bool {
        matches!(self, Wire::Own(wire) if !wire.has_layers())
    }
}

impl Outlets {
    fn to(&mut self, to: SocketAddr, from: Option<IpAddr>, registry: &Registry) -> io::Result<u16> {
        let known = self.0.iter().position(|one| (one.to, one.from) == (to, from));
        let at = match known {
            Some(at) => at,
            None => {
                let at = self.0.len();
                let outlet = Outlet::new(to, from, PINGS_EVERY)?;
                let both = Interest::READABLE | Interest::WRITABLE;
                let descriptor = outlet.as_fd().as_raw_fd();
                registry.register(&mut SourceFd(&descriptor), Token(FIRST.0 - at), both)?;
                self.0.push(Placed { to, from, outlet, is_busy: false });
                at
            }
        };
        u16::try_from(at).map_err(io::Error::other)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Which outlet a token of the poller is.
    pub(crate) fn of(&self, token: Token) -> Option<usize> {
        FIRST.0.checked_sub(token.0).filter(|at| *at < self.0.len())
    }

    pub(crate) fn set_busy(&mut self, at: usize, is_busy: bool) {
        self.0[at].is_busy = is_busy;
    }

    /// Which outlet has something to do by itself.
    pub(crate) fn due(&self, from: usize, now: Instant) -> Option<usize> {
        let is_due = |one: &Placed| one.is_busy || one.outlet.next_at() <= now;
        let due = self.0.iter().skip(from).position(is_due);
        due.map(|nth| from + nth)
    }

    /// How long nobody has anything to do by itself.
    pub(crate) fn rest(&self) -> Duration {
        let now = Instant::now();
        let rest = |one: &Placed| match one.is_busy {
            true => Duration::ZERO,
            false => one.outlet.next_at().saturating_duration_since(now),
        };
        self.0.iter().map(rest).min().unwrap_or(Duration::MAX)
    }

    /// Takes what has come, and names the clients that should look.
    pub(crate) fn turn(&mut self, at: usize, woken: &mut Vec<u32>) -> io::Result<bool> {
        self.0[at].outlet.turn(woken)
    }

    /// Lets out what trunks have to say.
    #[inline]
    pub(crate) fn send(&mut self) {
        for one in &mut self.0 {
            one.outlet.send();
        }
    }

    /// Trunks that are not closed.
    pub(crate) fn trunks(&self) -> usize {
        self.0.iter().map(|one| one.outlet.trunks()).sum()
    }
}

/// The token of the first outlet; those of others go down from it, as those of clients go up.
const FIRST: Token = Token(usize::MAX - 2);
/// How soon a broker that is gone without a word is missed.
const PINGS_EVERY: Duration = Duration::from_secs(1);
