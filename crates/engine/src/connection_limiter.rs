//! Counts connections against the limits of their listener and address, from the accept until the
//! descriptor is closed, on any shard.

use crate::shard_driver::ShardDriver;
use crate::stream::SocketStream;
use broker::connection::admission::{Admission, AdmissionControl};
use broker::{BrokerOptions, ListenerId, MonotonicMs, PeerAddress, PeerInfo, PeerSource};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The shared counter of all shards. A listener without limits never locks the mutex; with limits
/// the lock is held at accept and at close, for a comparison of two numbers.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimiter(Arc<Mutex<AdmissionControl>>);

/// A counted connection; dropping the slot releases the count in [`AdmissionControl`].
pub(crate) struct ConnectionSlot {
    limiter: ConnectionLimiter,
    listener: ListenerId,
    source: Option<PeerSource>,
    /// The header of a proxy has not named the address yet, so only the listener is counted.
    awaits_address: bool,
}

impl ConnectionLimiter {
    pub(crate) fn new(seed: u64) -> ConnectionLimiter {
        ConnectionLimiter(Arc::new(Mutex::new(AdmissionControl::new(seed))))
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionControl> {
        // A panic elsewhere cannot leave the counters half changed, so poison is ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time before which the listener `at` accepts no connection because of its rate;
    /// `None` if the listener may accept now.
    pub(crate) fn accepts_again_at(
        &self,
        now: MonotonicMs,
        at: ListenerId,
        options: &BrokerOptions,
    ) -> Option<MonotonicMs> {
        self.lock().accepts_again_at(now, at, options)
    }

    /// Counts an accepted connection. `address` is `None` where a proxy header will name the
    /// client; [`ConnectionSlot::admit_address`] counts the address later.
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
    /// Counts the address named by the proxy header, in addition to the listener.
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
    /// Returns when the listener `at` may accept again, or `None` if its rate is not exceeded.
    pub(crate) fn accepts_again_at(&self, at: usize) -> Option<MonotonicMs> {
        let (at, options) = (ListenerId(at as u8), self.shard.options());
        if options.limits_accept_rate(at) {
            self.limiter.accepts_again_at(self.now, at, options)
        } else {
            None
        }
    }

    /// Decides on an accepted connection: starts its handshake, starts a handshake which ends in a
    /// refusal, or drops the stream at once.
    pub(crate) fn admit_accepted(&mut self, at: usize, stream: SocketStream, address: PeerAddress) {
        let listener = ListenerId(at as u8);
        // The address of a proxy's client is not known yet.
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
            // A TLS handshake only for a refusal would cost as much as admitting the client.
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

    /// Counts the address of a connection whose transport handshake is complete and whose proxy may
    /// have named the client. Above the limit the broker refuses the CONNECT.
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
