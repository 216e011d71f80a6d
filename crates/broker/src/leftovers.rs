//! Messages that stand once for several queues, where nobody counts who still wants them: those of
//! an earlier process, and those that joined queues which only the store has. From time to time the
//! queues are looked through, a piece a turn, and what none of them names goes. All references to a
//! message are made with it, so what was not seen once is not wanted any more.

use crate::input::{Now, ShardId};
use crate::journal::{Number, Space, Stored};
use crate::outbox::{Effect, Outbox};
use crate::records::{self, Body};
use crate::shard::Shard;
use crate::timer::Timer;
use crate::unread::Reading;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// One look through the store.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The next key.
    from: Vec<u8>,
    /// Messages of this shard from here on are too new.
    upto: Number,
    /// Messages that a queue names.
    wanted: HashSet<u64, FixedState>,
    /// The queues are done.
    removes: bool,
    /// A queue could not be read, and may name anything: nothing is removed.
    is_blind: bool,
}

/// So many records a turn.
const PIECE: usize = 1024;
/// After the start, and from then on.
const FIRST_MS: u64 = 1_000;
const AGAIN_MS: u64 = 3_600_000;

impl Shard {
    /// Every shard looks for what it made itself, and the first for what earlier processes left.
    pub(crate) fn plan_search(&mut self) {
        self.sessions.journal.uncounted = u64::from(self.id == ShardId(0));
        self.timers.set(Now(self.now.0 + FIRST_MS), Timer::Leftovers);
    }

    pub(crate) fn search(&mut self, out: &mut Outbox) {
        self.timers.set(Now(self.now.0 + AGAIN_MS), Timer::Leftovers);
        let journal = &mut self.sessions.journal;
        if self.search.is_some() || std::mem::take(&mut journal.uncounted) == 0 {
            return;
        }
        self.search = Some(Box::new(Search { upto: journal.next_number(), ..Search::default() }));
        out.effects.push(Effect::Read { reading: Reading::Leftovers });
    }

    pub(crate) fn search_on(&mut self, stored: &dyn Stored, out: &mut Outbox) {
        let Some(mut search) = self.search.take() else { return };
        if self.store_is_full {
            // What has moved here is still there in the store, and removals pass that by.
            return self.sessions.journal.uncounted += 1;
        }
        let done = match search.removes {
            false => search.look(stored),
            true => self.remove_unwanted(&mut search, stored),
        };
        match (done, search.removes) {
            _ if search.is_blind => return self.sessions.journal.uncounted += 1,
            // What is still wanted is looked for again.
            (true, true) => return self.sessions.journal.uncounted += search.wanted.len() as u64,
            (true, false) => (search.removes, search.from) = (true, Vec::new()),
            (false, _) => {}
        }
        self.search = Some(search);
        out.effects.push(Effect::Read { reading: Reading::Leftovers });
    }

    /// Says whether there are no more.
    fn remove_unwanted(&mut self, search: &mut Search, stored: &dyn Stored) -> bool {
        let (mut seen, mut last) = (0, Vec::new());
        let (is_first, journal) = (self.id == ShardId(0), &mut self.sessions.journal);
        let scanned = stored.scan(Space::Messages, &[], &search.from, &mut |key, _| {
            seen += 1;
            last = [key, &[0]].concat();
            let number = key.try_into().map_or(u64::MAX, u64::from_be_bytes);
            let number = Number(number);
            let own = journal.is_own(number) && number < search.upto;
            let old = is_first && journal.is_old(number);
            if (own || old) && !search.wanted.contains(&number.0) {
                journal.change(Space::Messages, key.to_vec(), None);
            }
            seen < PIECE
        });
        search.from = last;
        scanned.is_err() || seen < PIECE
    }
}

impl Search {
    /// Says whether there are no more.
    fn look(&mut self, stored: &dyn Stored) -> bool {
        let (mut seen, mut last) = (0, Vec::new());
        let wanted = &mut self.wanted;
        let scanned = stored.scan(Space::Queues, &[], &self.from, &mut |key, value| {
            seen += 1;
            last = [key, &[0]].concat();
            if let Some((_, Body::Elsewhere(number))) = records::read_queue(value) {
                wanted.insert(number.0);
            }
            seen < PIECE
        });
        self.from = last;
        self.is_blind |= scanned.is_err();
        self.is_blind || seen < PIECE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, Unreadable};
    use crate::{Interest, Memory, Options};
    use std::sync::Arc;

    /// A message that no queue names any more.
    #[derive(Debug)]
    struct OneMessage;

    impl Stored for OneMessage {
        fn get(&self, _: Space, _: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
            Ok(None)
        }

        fn scan(
            &self,
            space: Space,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), Unreadable> {
            if space == Space::Messages {
                visit(&records::number_key(Number(7)), b"");
            }
            Ok(())
        }
    }

    #[test]
    fn nothing_is_removed_while_the_store_refuses_what_moved_it() {
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        shard.sessions.journal = Journal::open(2, 0);
        let mut out = Outbox::new(1);
        for (is_full, is_removed) in [(true, false), (false, true)] {
            shard.set_store_full(false);
            shard.plan_search();
            shard.search(&mut out);
            shard.search_on(&OneMessage, &mut out);
            shard.set_store_full(is_full);
            shard.search_on(&OneMessage, &mut out);
            assert_eq!(!shard.sessions.journal.is_empty(), is_removed);
            assert!(shard.search.is_none(), "another hour");
        }
    }
}
