//! Messages that stood once for several queues when the process ended before. Who still wants one
//! is counted by nobody: from time to time the queues are looked through, a piece a turn, and what
//! none of them names goes. New references to an old message are never made, so what was not seen
//! once is not wanted any more.

use crate::input::Now;
use crate::journal::{Number, Space, Stored};
use crate::lasting::Reading;
use crate::outbox::{Effect, Outbox};
use crate::records::{self, Body};
use crate::shard::Shard;
use crate::timer::Timer;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// One look through the store.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The next key.
    from: Vec<u8>,
    /// Old messages that a queue names.
    wanted: HashSet<u64, FixedState>,
    /// The queues are done.
    removes: bool,
    /// A queue could not be read, and may name anything: nothing is removed.
    is_blind: bool,
}

/// So many records a turn.
const PIECE: usize = 1024;
/// After the start, and after a search that had to leave something.
const FIRST_MS: u64 = 1_000;
const AGAIN_MS: u64 = 3_600_000;

impl Shard {
    /// One shard looks for all.
    pub(crate) fn plan_search(&mut self) {
        self.timers.set(Now(self.now.0 + FIRST_MS), Timer::Leftovers);
    }

    pub(crate) fn search(&mut self, out: &mut Outbox) {
        self.search = Some(Box::default());
        out.effects.push(Effect::Read { reading: Reading::Leftovers });
    }

    pub(crate) fn search_on(&mut self, stored: &dyn Stored, out: &mut Outbox) {
        let Some(mut search) = self.search.take() else { return };
        let done = match search.removes {
            false => search.look(stored, self.sessions.journal.own_from()),
            true => self.remove_unwanted(&mut search, stored),
        };
        match (done, search.removes) {
            _ if search.is_blind => return,
            (true, true) if search.wanted.is_empty() => return,
            (true, true) => {
                return self.timers.set(Now(self.now.0 + AGAIN_MS), Timer::Leftovers);
            }
            (true, false) => (search.removes, search.from) = (true, Vec::new()),
            (false, _) => {}
        }
        self.search = Some(search);
        out.effects.push(Effect::Read { reading: Reading::Leftovers });
    }

    /// Says whether there are no more.
    fn remove_unwanted(&mut self, search: &mut Search, stored: &dyn Stored) -> bool {
        let own_from = self.sessions.journal.own_from();
        let (mut seen, mut last) = (0, Vec::new());
        let journal = &mut self.sessions.journal;
        let scanned = stored.scan(Space::Messages, &[], &search.from, &mut |key, _| {
            seen += 1;
            last = [key, &[0]].concat();
            let number = key.try_into().map_or(u64::MAX, u64::from_be_bytes);
            if number < own_from.0 && !search.wanted.contains(&number) {
                journal.change(Space::Messages, key.to_vec(), None);
            }
            seen < PIECE && number < own_from.0
        });
        search.from = last;
        scanned.is_err() || seen < PIECE
    }
}

impl Search {
    /// Says whether there are no more.
    fn look(&mut self, stored: &dyn Stored, own_from: Number) -> bool {
        let (mut seen, mut last) = (0, Vec::new());
        let wanted = &mut self.wanted;
        let scanned = stored.scan(Space::Queues, &[], &self.from, &mut |key, value| {
            seen += 1;
            last = [key, &[0]].concat();
            if let Some((_, Body::Elsewhere(number))) = records::read_queue(value)
                && number < own_from
            {
                wanted.insert(number.0);
            }
            seen < PIECE
        });
        self.from = last;
        self.is_blind |= scanned.is_err();
        self.is_blind || seen < PIECE
    }
}
