//! Connections counted against the limits of their listener and address, from when they are
//! accepted until their descriptor is closed, on whichever shard that is.

use crate::body::Body;
use crate::stream::Stream;
use broker::arrivals::{Arrivals, Entry};
use broker::{Address, ListenerId, Now, Options, Peer, Source};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The one place where all shards count. Where there are no limits nobody comes here; else its lock
/// is taken when a connection comes and when it goes, for the look at two numbers.
#[derive(Clone, Debug)]
pub(crate) struct Hall(Arc<Mutex<Arrivals>>);

/// A connection that is counted, for as long as this is there.
pub(crate) struct Seat {
    hall: Hall,
    listener: ListenerId,
    source: Option<Source>,
    /// A proxy is to say whose it is.
    awaits_address: bool,
}

impl Hall {
    pub(crate) fn new(seed: u64) -> Hall {
        Hall(Arc::new(Mutex::new(Arrivals::new(seed))))
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        // Its numbers are whole between any two statements of ours.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when nothing is to be accepted at a listener.
    pub(crate) fn waits(&self, now: Now, at: ListenerId, options: &Options) -> Option<Now> {
        self.arrivals().waits(now, at, options)
    }

    /// A connection was accepted. `address` is none where a proxy is to say it.
    pub(crate) fn knock(
        &self,
        now: Now,
        at: ListenerId,
        address: Option<Address>,
        options: &Options,
    ) -> (Entry, Option<Box<Seat>>) {
        let entry = self.arrivals().knock(now, at, address.map(Source::from), options);
        let seat = match entry {
            Entry::In(source) => {
                let (hall, awaits_address) = (self.clone(), address.is_none());
                Some(Seat { hall, listener: at, source, awaits_address })
            }
            Entry::Closed(_) | Entry::Told(_) => None,
        };
        (entry, seat.map(Box::new))
    }
}

impl Seat {
    /// The proxy has said whose connection it is.
    pub(crate) fn meet(&mut self, now: Now, address: Address, options: &Options) -> Entry {
        let entry = self.hall.arrivals().meet(now, self.listener, Source::from(address), options);
        if let Entry::In(source) = entry {
            self.source = source;
        }
        entry
    }
}

impl Body {
    /// When a listener that is above its rate may accept again.
    pub(crate) fn waits_at(&self, at: usize) -> Option<Now> {
        let (at, options) = (ListenerId(at as u8), self.shard.options());
        if options.paces_arrivals(at) { self.hall.waits(self.now, at, options) } else { None }
    }

    /// A connection was accepted: it goes on, with what it will be told, or ends here.
    pub(crate) fn let_in(&mut self, at: usize, stream: Stream, address: Address) {
        let listener = ListenerId(at as u8);
        // Of a proxy's client the address is not known yet.
        let known = self.doors[at].proxy.is_none().then_some(address);
        if known.is_some() && self.shard.turns_away(self.now, address, &mut self.out) {
            return;
        }
        let mut peer = Peer::new(address, listener);
        let options = self.shard.options();
        if !options.counts_arrivals(listener) {
            return self.admit(stream, peer, None);
        }
        let (entry, seat) = self.hall.knock(self.now, listener, known, options);
        match entry {
            Entry::In(_) => self.admit(stream, peer, seat),
            // A handshake only to say no would cost what letting it in does.
            Entry::Told(refusal) if !self.doors[at].is_work() => {
                peer.turn_down(refusal);
                self.admit(stream, peer, None);
            }
            Entry::Closed(refusal) | Entry::Told(refusal) => {
                self.shard.turned_away(self.now, address, refusal, &mut self.out);
            }
        }
    }

    /// A connection has passed its door, and a proxy may have said whose it is.
    pub(crate) fn meet(&mut self, index: u32, peer: &mut Peer) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let Some(seat) = socket.seat.as_mut().filter(|seat| seat.awaits_address) else { return };
        match seat.meet(self.now, peer.address, self.shard.options()) {
            Entry::In(_) => {}
            Entry::Closed(refusal) | Entry::Told(refusal) => peer.turn_down(refusal),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hall.arrivals().leave(self.listener, self.source);
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("listener", &self.listener).finish_non_exhaustive()
    }
}
