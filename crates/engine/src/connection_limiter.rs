//! Counts connections against the limits of their listener and address, from the accept until the
//! descriptor is closed, on any shard.

use broker::connection::admission::{Admission, AdmissionControl};
use broker::{BrokerOptions, ListenerId, MonotonicMs, PeerAddress, PeerSource};
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

    /// Returns when the listener `at` may accept again, or `None` if its rate is not exceeded.
    pub(crate) fn accepts_again_at(
        &self,
        now: MonotonicMs,
        at: ListenerId,
        options: &BrokerOptions,
    ) -> Option<MonotonicMs> {
        if options.limits_accept_rate(at) {
            self.lock().accepts_again_at(now, at, options)
        } else {
            None
        }
    }

    /// Counts an accepted connection. `address` is `None` where a proxy header will name the
    /// client; [`ConnectionSlot::admit_named_address`] counts the address later.
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
    /// Counts the address named by the proxy header, in addition to the listener. `None` where the
    /// address was known from the start.
    pub(crate) fn admit_named_address(
        &mut self,
        now: MonotonicMs,
        address: PeerAddress,
        options: &BrokerOptions,
    ) -> Option<Admission> {
        if !self.awaits_address {
            return None;
        }
        let entry = self.limiter.lock().admit_address(
            now,
            self.listener,
            PeerSource::from(address),
            options,
        );
        if let Admission::Admitted(source) = entry {
            self.source = source;
        }
        Some(entry)
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
