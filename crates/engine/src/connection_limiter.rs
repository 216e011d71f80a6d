//! Connections counted against the limits of their listener and address, from when they are
//! accepted until their descriptor is closed, on whichever shard that is.

use crate::shard_driver::ShardDriver;
use crate::stream::SocketStream;
use broker::connection::admission::{Admission, AdmissionControl};
use broker::{BrokerOptions, ListenerId, MonotonicMs, PeerAddress, PeerInfo, PeerSource};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The one place where all shards count. Where there are no limits nobody comes here; else its lock
/// is taken when a connection comes and when it goes, for the look at two numbers.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimiter(Arc<Mutex<AdmissionControl>>);

/// A connection that is counted, for as long as this is there.
pub(crate) struct ConnectionSlot {
    limiter: ConnectionLimiter,
    listener: ListenerId,
    source: Option<PeerSource>,
    /// A proxy is to say whose it is.
    awaits_address: bool,
}

impl ConnectionLimiter {
    pub(crate) fn new(seed: u64) -> ConnectionLimiter {
        ConnectionLimiter(Arc::new(Mutex::new(AdmissionControl::new(seed))))
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionControl> {
        // Its numbers are whole between any two statements of ours.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time before which a listener accepts nothing because of its rate.
    pub(crate) fn accepts_again_at(
        &self,
        now: MonotonicMs,
        at: ListenerId,
        options: &BrokerOptions,
    ) -> Option<MonotonicMs> {
        self.lock().accepts_again_at(now, at, options)
    }

    /// A connection was accepted. `address` is none where a proxy is to say it.
    pub(crate) fn admit_connection(
        &self,
        now: MonotonicMs,
        at: ListenerId,
        address: Option<PeerAddress>,
        options: &BrokerOptions,
    ) -> (Admission, Option<Box<ConnectionSlot>>) {
        let entry = self.lock().admit_connection(now, at, address.map(PeerSource::from), options);
        let seat = match entry {
            Admission::Admitted(source) => {
                let (limiter, awaits_address) = (self.clone(), address.is_none());
                Some(ConnectionSlot { limiter, listener: at, source, awaits_address })
            }
            Admission::ClosedAtOnce(_) | Admission::RefusedAfterConnect(_) => None,
        };
        (entry, seat.map(Box::new))
    }
}

impl ConnectionSlot {
    /// The proxy has said whose connection it is.
    pub(crate) fn admit_address(
        &mut self,
        now: MonotonicMs,
        address: PeerAddress,
        options: &BrokerOptions,
    ) -> Admission {
        let entry = self.limiter.lock().admit_address(
            now,
            self.listener,
            PeerSource::from(address),
            options,
        );
        if let Admission::Admitted(source) = entry {
            self.source = source;
        }
        entry
    }
}

impl ShardDriver {
    /// When a listener that is above its rate may accept again.
    pub(crate) fn accepts_again_at(&self, at: usize) -> Option<MonotonicMs> {
        let (at, options) = (ListenerId(at as u8), self.shard.options());
        if options.limits_accept_rate(at) {
            self.limiter.accepts_again_at(self.now, at, options)
        } else {
            None
        }
    }

    /// A connection was accepted: it goes on, with what it will be told, or ends here.
    pub(crate) fn admit_accepted(&mut self, at: usize, stream: SocketStream, address: PeerAddress) {
        let listener = ListenerId(at as u8);
        // Of a proxy's client the address is not known yet.
        let known = (!self.transports[at].names_client_later()).then_some(address);
        if known.is_some() && self.shard.refuse_banned_address(self.now, address, &mut self.out) {
            return;
        }
        let mut peer = PeerInfo::new(address, listener);
        let options = self.shard.options();
        if !options.limits_connections(listener) {
            return self.start_connection(stream, peer, None);
        }
        let (entry, seat) = self.limiter.admit_connection(self.now, listener, known, options);
        match entry {
            Admission::Admitted(_) => self.start_connection(stream, peer, seat),
            // A handshake only to say no would cost what letting it in does.
            Admission::RefusedAfterConnect(refusal)
                if !self.transports[at].has_costly_handshake() =>
            {
                peer.refuse(refusal);
                self.start_connection(stream, peer, None);
            }
            Admission::ClosedAtOnce(refusal) | Admission::RefusedAfterConnect(refusal) => {
                self.shard.note_refused_connection(self.now, address, refusal, &mut self.out);
            }
        }
    }

    /// A connection has passed its door, and a proxy may have said whose it is.
    pub(crate) fn admit_proxied(&mut self, index: u32, peer: &mut PeerInfo) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let Some(seat) = socket.slot.as_mut().filter(|seat| seat.awaits_address) else { return };
        match seat.admit_address(self.now, peer.address, self.shard.options()) {
            Admission::Admitted(_) => {}
            Admission::ClosedAtOnce(refusal) | Admission::RefusedAfterConnect(refusal) => {
                peer.refuse(refusal)
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limiter.lock().release(self.listener, self.source);
    }
}

impl fmt::Debug for ConnectionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("listener", &self.listener).finish_non_exhaustive()
    }
}
