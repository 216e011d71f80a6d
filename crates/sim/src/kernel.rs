//! Where connections wait until they are accepted, as they do in a listener's backlog, and who of
//! them is in.

use crate::world::WireId;
use broker::arrivals::{Arrivals, Entry};
use broker::{Address, ListenerId, Now, Options, Source};
use std::collections::{HashMap, VecDeque};

#[derive(Debug)]
pub(crate) struct Kernel {
    arrivals: Arrivals,
    backlog: VecDeque<(WireId, Address)>,
    seats: HashMap<WireId, Option<Source>>,
}

/// Everyone comes in by the same.
const LISTENER: ListenerId = ListenerId(0);

impl Kernel {
    pub(crate) fn new(seed: u64) -> Kernel {
        let (backlog, seats) = (VecDeque::new(), HashMap::new());
        Kernel { arrivals: Arrivals::new(seed), backlog, seats }
    }

    pub(crate) fn push(&mut self, wire: WireId, address: Address) {
        self.backlog.push_back((wire, address));
    }

    pub(crate) fn is_waiting(&self, wire: WireId) -> bool {
        self.backlog.iter().any(|(waiting, _)| *waiting == wire)
    }

    /// The next one that is accepted, and what becomes of it.
    pub(crate) fn accept(
        &mut self,
        now: Now,
        options: &Options,
    ) -> Option<(WireId, Address, Entry)> {
        if self.arrivals.waits(now, LISTENER, options).is_some() {
            return None;
        }
        let (wire, address) = self.backlog.pop_front()?;
        if !options.counts_arrivals(LISTENER) {
            return Some((wire, address, Entry::In(None)));
        }
        let entry = self.arrivals.knock(now, LISTENER, Some(address.into()), options);
        if let Entry::In(source) = entry {
            self.seats.insert(wire, source);
        }
        Some((wire, address, entry))
    }

    /// When the next one may be.
    pub(crate) fn due(&mut self, now: Now, options: &Options) -> Option<Now> {
        let waits = !self.backlog.is_empty();
        waits.then(|| self.arrivals.waits(now, LISTENER, options)).flatten()
    }

    pub(crate) fn leave(&mut self, wire: WireId) {
        self.backlog.retain(|(waiting, _)| *waiting != wire);
        if let Some(source) = self.seats.remove(&wire) {
            self.arrivals.leave(LISTENER, source);
        }
    }
}
