//! Where connections wait until they are accepted, as they do in a listener's backlog, and who of
//! them is in.

use crate::world::WireId;
use broker::arrivals::{Arrivals, Entry};
use broker::judge::Grant;
use broker::{Address, ListenerId, Now, Options, Peer, Source};
use std::collections::{HashMap, VecDeque};

#[derive(Debug)]
pub(crate) struct Kernel {
    arrivals: Arrivals,
    backlog: VecDeque<Knock>,
    seats: HashMap<WireId, (ListenerId, Option<Source>)>,
}

/// One connection that wants to come in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knock {
    pub(crate) wire: WireId,
    pub(crate) listener: ListenerId,
    pub(crate) address: Address,
}

impl Knock {
    /// What the broker opens itself is for whom `godwit` says: a link, which may do everything.
    pub(crate) fn peer(&self) -> Peer {
        match self.listener {
            ListenerId::NONE => {
                let grant = Grant { is_superuser: true, ..Grant::default() };
                Peer::own(self.address, grant)
            }
            listener => Peer::new(self.address, listener),
        }
    }
}

impl Kernel {
    pub(crate) fn new(seed: u64) -> Kernel {
        let (backlog, seats) = (VecDeque::new(), HashMap::new());
        Kernel { arrivals: Arrivals::new(seed), backlog, seats }
    }

    pub(crate) fn push(&mut self, wire: WireId, listener: ListenerId, address: Address) {
        self.backlog.push_back(Knock { wire, listener, address });
    }

    pub(crate) fn is_waiting(&self, wire: WireId) -> bool {
        self.backlog.iter().any(|waiting| waiting.wire == wire)
    }

    /// The next one that is accepted, and what becomes of it.
    pub(crate) fn accept(&mut self, now: Now, options: &Options) -> Option<(Knock, Entry)> {
        let next = self.next(now, options)?;
        let knock = self.backlog.remove(next)?;
        let Knock { wire, listener, address } = knock;
        if !options.counts_arrivals(listener) {
            return Some((knock, Entry::In(None)));
        }
        let entry = self.arrivals.knock(now, listener, Some(address.into()), options);
        if let Entry::In(source) = entry {
            self.seats.insert(wire, (listener, source));
        }
        Some((knock, entry))
    }

    /// The first whose listener need not wait: each has a backlog of its own.
    fn next(&mut self, now: Now, options: &Options) -> Option<usize> {
        let arrivals = &mut self.arrivals;
        let mut all = self.backlog.iter();
        all.position(|knock| arrivals.waits(now, knock.listener, options).is_none())
    }

    /// When the next one may be.
    pub(crate) fn due(&mut self, now: Now, options: &Options) -> Option<Now> {
        let arrivals = &mut self.arrivals;
        let due = |knock: &Knock| arrivals.waits(now, knock.listener, options);
        self.backlog.iter().filter_map(due).min()
    }

    pub(crate) fn leave(&mut self, wire: WireId) {
        self.backlog.retain(|waiting| waiting.wire != wire);
        if let Some((listener, source)) = self.seats.remove(&wire) {
            self.arrivals.leave(listener, source);
        }
    }
}
