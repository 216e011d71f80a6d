//! Flapping: clients that connect and disconnect too often are banned for a while, because each
//! connection costs as much as a hundred messages.
//!
//! The shard that owns the client id counts the disconnects. A ban goes to all shards, so the shard
//! that reads CONNECT can refuse the client before any authentication.

use crate::broker_event::BrokerEvent;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{MonotonicMs, SessionId};
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use crate::limits::LINK_IDS;
use crate::session::session_table::SessionTable;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Disconnect counts and bans by hash of the client id. The hash is keyed, so an attacker cannot
/// construct a second client id with the same hash. Both maps are bounded by `CLIENTS_MAX`.
#[derive(Debug, Default)]
pub(crate) struct FlappingDetector {
    seen: HashMap<u64, DisconnectCount, FixedState>,
    /// End of the ban, by hash of the client id.
    banned: HashMap<u64, MonotonicMs, FixedState>,
    /// Time of the last removal of counts with an expired window.
    swept: MonotonicMs,
}

/// Number of disconnects of a client since a point in time.
#[derive(Clone, Copy, Debug)]
struct DisconnectCount {
    count: u32,
    since: MonotonicMs,
}

/// Largest number of counted clients, and of banned clients, per shard.
const CLIENTS_MAX: usize = 16 * 1024;
/// Shortest time in milliseconds between two sweeps of `FlappingDetector::seen` while the map is
/// full.
const SWEEP_MS: u64 = 1000;

impl FlappingDetector {
    /// Counts a disconnect of a client. Returns whether the count has reached `max` within
    /// `window_ms`. A client without room in the map is not counted.
    fn count(&mut self, client: u64, now: MonotonicMs, max: u32, window_ms: u64) -> bool {
        if self.seen.len() >= CLIENTS_MAX && now.0 >= self.swept.0 + SWEEP_MS {
            self.swept = now;
            self.seen.retain(|_, ends| now.0 < ends.since.0 + window_ms);
        }
        if self.seen.len() >= CLIENTS_MAX && !self.seen.contains_key(&client) {
            return false;
        }
        let ends = self.seen.entry(client).or_insert(DisconnectCount { count: 0, since: now });
        if now.0 >= ends.since.0 + window_ms {
            *ends = DisconnectCount { count: 0, since: now };
        }
        ends.count += 1;
        let flaps = ends.count >= max;
        if flaps {
            self.seen.remove(&client);
        }
        flaps
    }

    fn ban(&mut self, client: u64, until: MonotonicMs, now: MonotonicMs) {
        if self.banned.len() >= CLIENTS_MAX {
            self.banned.retain(|_, until| now < *until);
        }
        if self.banned.len() < CLIENTS_MAX {
            self.banned.insert(client, until);
        }
    }

    fn is_banned(&self, client: u64, now: MonotonicMs) -> bool {
        self.banned.get(&client).is_some_and(|until| now < *until)
    }
}

impl ConnectionTable {
    /// Counts the end of a connection, and bans the client on all shards once `flapping_count_max`
    /// is reached. Sessions of links are exempt.
    pub(crate) fn count_disconnect(
        &mut self,
        id: SessionId,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let max = sessions.context.options.flapping_count_max;
        let is_link = sessions.get(id).client_id.starts_with(LINK_IDS);
        if max == 0 || is_link {
            return;
        }
        let client_id = sessions.get(id).client_id.clone();
        let window_ms = u64::from(sessions.context.options.flapping_window_s) * 1000;
        let client = sessions.context.client_hash(&client_id);
        if !self.flapping.count(client, sessions.context.now, max, window_ms) {
            return;
        }
        let ban_s = sessions.context.options.flapping_ban_s;
        let until = MonotonicMs(sessions.context.now.0 + u64::from(ban_s) * 1000);
        sessions.counters.clients_flapped += 1;
        out.events.push(BrokerEvent::Flapped { client_id, count: max, ban_s });
        self.ban_flapping(client, until, sessions);
        let others = (0..sessions.context.shards)
            .filter(|shard| *shard != usize::from(sessions.context.id.0));
        for shard in others {
            out.lanes[shard].push_back(ShardMessage::BanFlapping { client, until });
        }
    }

    /// Stores a ban from this shard or, by `ShardMessage::BanFlapping`, from another shard.
    pub(crate) fn ban_flapping(
        &mut self,
        client: u64,
        until: MonotonicMs,
        sessions: &SessionTable,
    ) {
        self.flapping.ban(client, until, sessions.context.now);
    }

    pub(crate) fn has_flapped(&self, client_id: &str, sessions: &SessionTable) -> bool {
        !self.flapping.banned.is_empty()
            && self
                .flapping
                .is_banned(sessions.context.client_hash(client_id), sessions.context.now)
    }

    /// Lifts all bans if the options have turned the detection off.
    pub(crate) fn clear_flapping_bans(&mut self, sessions: &SessionTable) {
        if sessions.context.options.flapping_count_max == 0 {
            self.flapping = FlappingDetector::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_flaps_when_it_ends_too_often_within_the_window() {
        let (mut flapping, rule) = (FlappingDetector::default(), (3, 1000));
        assert!(!flapping.count(1, MonotonicMs(0), rule.0, rule.1));
        assert!(!flapping.count(1, MonotonicMs(500), rule.0, rule.1));
        assert!(!flapping.count(2, MonotonicMs(600), rule.0, rule.1), "another client");
        assert!(
            !flapping.count(1, MonotonicMs(1000), rule.0, rule.1),
            "the window is over, another begins"
        );
        assert!(!flapping.count(1, MonotonicMs(1500), rule.0, rule.1));
        assert!(flapping.count(1, MonotonicMs(1999), rule.0, rule.1));
        assert!(!flapping.count(1, MonotonicMs(1999), rule.0, rule.1), "it begins anew");
    }

    #[test]
    fn a_crowd_of_clients_is_bounded() {
        let (mut flapping, rule) = (FlappingDetector::default(), (2, 1000));
        for client in 0..2 * CLIENTS_MAX as u64 {
            flapping.count(client, MonotonicMs(0), rule.0, rule.1);
            flapping.ban(client, MonotonicMs(1000), MonotonicMs(0));
        }
        assert_eq!((flapping.seen.len(), flapping.banned.len()), (CLIENTS_MAX, CLIENTS_MAX));
        flapping.count(u64::MAX, MonotonicMs(2000), rule.0, rule.1);
        flapping.ban(u64::MAX, MonotonicMs(3000), MonotonicMs(2000));
        assert_eq!((flapping.seen.len(), flapping.banned.len()), (1, 1));
    }
}
