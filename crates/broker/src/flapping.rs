//! Clients that come and go too often are kept out for a while: each of their connections costs
//! what a hundred messages do, whoever is wrong.
//!
//! A client id's home counts the ends of its connections. All shards hear of a ban, so that it is
//! known where the client greets, before anybody is asked who it is.

use crate::input::{Cross, Now, SessionId};
use crate::limits::LINK_IDS;
use crate::note::Note;
use crate::outbox::Outbox;
use crate::shard::Shard;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Clients are known by the hash of their id: it is keyed, and nobody can look for a second one
/// with the same.
#[derive(Debug, Default)]
pub(crate) struct Flapping {
    seen: HashMap<u64, Ends, FixedState>,
    /// Until when.
    banned: HashMap<u64, Now, FixedState>,
    /// When those that mean nothing any more were taken out last.
    swept: Now,
}

/// How often a client's connections ended since.
#[derive(Clone, Copy, Debug)]
struct Ends {
    count: u32,
    since: Now,
}

/// Clients that are counted at a time, and that are kept out at a time.
const CLIENTS_MAX: usize = 16 * 1024;
/// Between two looks for those that need no place any more, while there is none.
const SWEEP_MS: u64 = 1000;

impl Flapping {
    /// One more end of a client's connections, of which so many may be within a time. Whether that
    /// is one too many.
    fn count(&mut self, client: u64, now: Now, (max, window_ms): (u32, u64)) -> bool {
        if self.seen.len() >= CLIENTS_MAX && now.0 >= self.swept.0 + SWEEP_MS {
            self.swept = now;
            self.seen.retain(|_, ends| now.0 < ends.since.0 + window_ms);
        }
        if self.seen.len() >= CLIENTS_MAX && !self.seen.contains_key(&client) {
            return false;
        }
        let ends = self.seen.entry(client).or_insert(Ends { count: 0, since: now });
        if now.0 >= ends.since.0 + window_ms {
            *ends = Ends { count: 0, since: now };
        }
        ends.count += 1;
        let flaps = ends.count >= max;
        if flaps {
            self.seen.remove(&client);
        }
        flaps
    }

    fn ban(&mut self, client: u64, until: Now, now: Now) {
        if self.banned.len() >= CLIENTS_MAX {
            self.banned.retain(|_, until| now < *until);
        }
        if self.banned.len() < CLIENTS_MAX {
            self.banned.insert(client, until);
        }
    }

    fn is_banned(&self, client: u64, now: Now) -> bool {
        self.banned.get(&client).is_some_and(|until| now < *until)
    }
}

impl Shard {
    /// A connection of the client has ended.
    pub(crate) fn count_end(&mut self, id: SessionId, out: &mut Outbox) {
        let max = self.options.flapping_count_max;
        let is_link = self.sessions.get(id).client_id.starts_with(LINK_IDS);
        if max == 0 || is_link {
            return;
        }
        let client_id = self.sessions.get(id).client_id.clone();
        let window_ms = u64::from(self.options.flapping_window_s) * 1000;
        let client = self.client_hash(&client_id);
        if !self.flapping.count(client, self.now, (max, window_ms)) {
            return;
        }
        let ban_s = self.options.flapping_ban_s;
        let until = Now(self.now.0 + u64::from(ban_s) * 1000);
        self.sessions.counters.clients_flapped += 1;
        out.notes.push(Note::Flapped { client_id, count: max, ban_s });
        self.keep_out(client, until);
        let others = (0..self.shards).filter(|shard| *shard != usize::from(self.id.0));
        for shard in others {
            out.lanes[shard].push_back(Cross::Flapped { client, until });
        }
    }

    /// Here or on another shard a client was banned.
    pub(crate) fn keep_out(&mut self, client: u64, until: Now) {
        self.flapping.ban(client, until, self.now);
    }

    pub(crate) fn has_flapped(&self, client_id: &str) -> bool {
        !self.flapping.banned.is_empty()
            && self.flapping.is_banned(self.client_hash(client_id), self.now)
    }

    /// Without detection nobody is kept out any more.
    pub(crate) fn forgive(&mut self) {
        if self.options.flapping_count_max == 0 {
            self.flapping = Flapping::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_flaps_when_it_ends_too_often_within_the_window() {
        let (mut flapping, rule) = (Flapping::default(), (3, 1000));
        assert!(!flapping.count(1, Now(0), rule));
        assert!(!flapping.count(1, Now(500), rule));
        assert!(!flapping.count(2, Now(600), rule), "another client");
        assert!(!flapping.count(1, Now(1000), rule), "the window is over, another begins");
        assert!(!flapping.count(1, Now(1500), rule));
        assert!(flapping.count(1, Now(1999), rule));
        assert!(!flapping.count(1, Now(1999), rule), "it begins anew");
    }

    #[test]
    fn a_crowd_of_clients_is_bounded() {
        let (mut flapping, rule) = (Flapping::default(), (2, 1000));
        for client in 0..2 * CLIENTS_MAX as u64 {
            flapping.count(client, Now(0), rule);
            flapping.ban(client, Now(1000), Now(0));
        }
        assert_eq!((flapping.seen.len(), flapping.banned.len()), (CLIENTS_MAX, CLIENTS_MAX));
        flapping.count(u64::MAX, Now(2000), rule);
        flapping.ban(u64::MAX, Now(3000), Now(2000));
        assert_eq!((flapping.seen.len(), flapping.banned.len()), (1, 1));
    }
}
