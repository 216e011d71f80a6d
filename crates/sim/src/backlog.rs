//! The connections which wait to be accepted, as in a listener's backlog, and the accepted ones
//! that count towards `connections_max`.

use crate::world::WireId;
use broker::connection::admission::{Admission, AdmissionControl};
use broker::peer::authentication::Principal;
use broker::{BrokerOptions, ListenerId, MonotonicMs, PeerAddress, PeerInfo, PeerSource};
use std::collections::{HashMap, VecDeque};

/// The backlog of all listeners, with the limits of [`AdmissionControl`].
#[derive(Debug)]
pub(crate) struct AcceptBacklog {
    arrivals: AdmissionControl,
    backlog: VecDeque<BacklogConnection>,
    admitted: HashMap<WireId, (ListenerId, Option<PeerSource>)>,
}

/// A connection in the backlog. `listener` decides by which limits it is accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BacklogConnection {
    pub(crate) wire: WireId,
    pub(crate) listener: ListenerId,
    pub(crate) address: PeerAddress,
}

impl BacklogConnection {
    /// Returns the peer. `ListenerId::NONE` stands for a connection which the broker opens for a
    /// link, with the rights of a superuser.
    pub(crate) fn peer(&self) -> PeerInfo {
        match self.listener {
            ListenerId::NONE => {
                let principal = Principal { is_superuser: true, ..Principal::default() };
                PeerInfo::internal(self.address, principal)
            }
            listener => PeerInfo::new(self.address, listener),
        }
    }
}

impl AcceptBacklog {
    pub(crate) fn new(seed: u64) -> AcceptBacklog {
        let (backlog, seats) = (VecDeque::new(), HashMap::new());
        AcceptBacklog { arrivals: AdmissionControl::new(seed), backlog, admitted: seats }
    }

    pub(crate) fn push(&mut self, wire: WireId, listener: ListenerId, address: PeerAddress) {
        self.backlog.push_back(BacklogConnection { wire, listener, address });
    }

    pub(crate) fn is_waiting(&self, wire: WireId) -> bool {
        self.backlog.iter().any(|waiting| waiting.wire == wire)
    }

    /// Accepts the next connection. Returns the connection with the result of
    /// `AdmissionControl::admit_connection`; `None` if no connection may be accepted now.
    pub(crate) fn accept(
        &mut self,
        now: MonotonicMs,
        options: &BrokerOptions,
    ) -> Option<(BacklogConnection, Admission)> {
        let next = self.next_acceptable(now, options)?;
        let knock = self.backlog.remove(next)?;
        let BacklogConnection { wire, listener, address } = knock;
        if !options.limits_connections(listener) {
            return Some((knock, Admission::Admitted(None)));
        }
        let entry = self.arrivals.admit_connection(now, listener, Some(address.into()), options);
        if let Admission::Admitted(source) = entry {
            self.admitted.insert(wire, (listener, source));
        }
        Some((knock, entry))
    }

    /// Returns the index of the first connection whose listener may accept now. A listener at its
    /// rate limit does not delay the connections of another listener.
    fn next_acceptable(&mut self, now: MonotonicMs, options: &BrokerOptions) -> Option<usize> {
        let arrivals = &mut self.arrivals;
        let mut all = self.backlog.iter();
        all.position(|knock| arrivals.accepts_again_at(now, knock.listener, options).is_none())
    }

    /// Returns when the next connection may be accepted, for the clock of `SimWorld::advance`.
    pub(crate) fn next_accept_at(
        &mut self,
        now: MonotonicMs,
        options: &BrokerOptions,
    ) -> Option<MonotonicMs> {
        let arrivals = &mut self.arrivals;
        let due =
            |knock: &BacklogConnection| arrivals.accepts_again_at(now, knock.listener, options);
        self.backlog.iter().filter_map(due).min()
    }

    pub(crate) fn release(&mut self, wire: WireId) {
        self.backlog.retain(|waiting| waiting.wire != wire);
        if let Some((listener, source)) = self.admitted.remove(&wire) {
            self.arrivals.release(listener, source);
        }
    }
}
