//! The context of a shard, which every part needs: its number, the time of the input, the options,
//! timers, hashers and random numbers.

use crate::access_rules::acl_rules::AclAction;
use crate::access_rules::placeholders::PlaceholderValues;
use crate::ids::{MonotonicMs, SessionId, ShardId};
use crate::limits::RULES_PER_TICK;
use crate::log_rate_limiter::LOG_PERIOD_MS;
use crate::options::BrokerOptions;
use crate::options::rewrite::is_special;
use crate::owner_shard::ShardHasher;
use crate::process_pause::ProcessPause;
use crate::refusal::Refusal;
use crate::timer::{ShardTimer, TimerWheel};
use foldhash::fast::FixedState;
use mqtt::QoS;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Number, time, options, timers and random numbers of a shard.
#[derive(Debug)]
pub(crate) struct ShardContext {
    pub(crate) id: ShardId,
    pub(crate) shards: usize,
    /// Time of the present input.
    pub(crate) now: MonotonicMs,
    pub(crate) options: Arc<BrokerOptions>,
    pub(crate) timers: TimerWheel,
    pub(crate) shard_hasher: ShardHasher,
    /// Hasher of client ids, for uses where a collision is harmless.
    pub(crate) clients: FixedState,
    pub(crate) random: u64,
    /// Difference between the time of day and `now` in milliseconds.
    pub(crate) time_of_day_offset_ms: i64,
    /// The value of `now` at the start, for the uptime.
    pub(crate) started: MonotonicMs,
    /// The last pause of the process (suspend, stopped container), which timeouts disregard.
    pub(crate) pause: ProcessPause,
    /// When withheld log events are reported next.
    pub(crate) event_flush_at: Option<MonotonicMs>,
}

impl ShardContext {
    /// `seed` is the same for all shards of a process; `chance` (random choices) differs.
    pub(crate) fn new(
        id: ShardId,
        shards: usize,
        options: Arc<BrokerOptions>,
        seed: u64,
        chance: u64,
        now: MonotonicMs,
    ) -> ShardContext {
        ShardContext {
            id,
            shards,
            now,
            options,
            timers: TimerWheel::new(now),
            shard_hasher: ShardHasher { key: seed.rotate_left(17), shards: shards as u8 },
            clients: FixedState::with_seed(seed.rotate_left(17)),
            random: chance | 1,
            time_of_day_offset_ms: 0,
            started: now,
            pause: ProcessPause::default(),
            event_flush_at: None,
        }
    }

    pub(crate) fn owner_of(&self, name: &str) -> ShardId {
        self.shard_hasher.owner_of(name)
    }

    pub(crate) fn client_hash(&self, client_id: &str) -> u64 {
        self.clients.hash_one(client_id)
    }

    /// Returns a random number (xorshift64*): sufficient for a choice between equal members, and
    /// repeatable from a seed.
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns how many filters may be compared with the rules in one tick: `RULES_PER_TICK`
    /// divided by the number of rules.
    pub(crate) fn filters_per_tick(&self) -> usize {
        let own = self.options.access.own.iter().flatten().map(|own| &own.permissions);
        let all = own.chain([&self.options.permissions]).flatten();
        let most = all.map(|rules| rules.len()).max();
        RULES_PER_TICK / most.unwrap_or(0).max(1)
    }

    /// Returns the rewritten topic or filter, or `None` if no rule applies. A result which is not a
    /// valid name is refused.
    pub(crate) fn rewrite_name(
        &self,
        action: AclAction,
        name: &str,
        whom: &PlaceholderValues<'_>,
    ) -> Result<Option<String>, Refusal> {
        let mut rewrites = self.options.rewrites.iter();
        let Some(text) = rewrites.find_map(|one| one.rewrite(action, name, whom)) else {
            return Ok(None);
        };
        let text = text.filter(|text| text.len() <= usize::from(u16::MAX) && !is_special(text));
        let (text, refusal) = match action {
            AclAction::Publish => {
                let is_fit = |text: &String| mqtt::topic::check_topic(text).is_ok();
                (text.filter(is_fit), Refusal::TopicNameInvalid)
            }
            AclAction::Subscribe => {
                let is_fit = |text: &String| mqtt::topic::check_filter(text).is_ok();
                (text.filter(is_fit), Refusal::TopicFilterInvalid)
            }
        };
        text.map(Some).ok_or(refusal)
    }

    pub(crate) fn permit_exclusive(&self, filter: &str) -> Result<(), Refusal> {
        if !self.options.exclusive_available {
            return Err(Refusal::ExclusiveUnsupported);
        }
        match mqtt::topic::check_filter(filter).is_err() || is_special(filter) {
            true => Err(Refusal::TopicFilterInvalid),
            false => Ok(()),
        }
    }

    /// Whether a name needs no resolution: no `$` prefix, and no rewrites are configured.
    #[inline]
    pub(crate) fn is_plain_topic(&self, name: &str) -> bool {
        !name.starts_with('$') && self.options.rewrites.is_empty()
    }

    /// Schedules `flush_withheld_events` in a second, for the case that no further event is
    /// reported.
    pub(crate) fn plan_event_flush(&mut self) {
        if self.event_flush_at.is_none() {
            let at = MonotonicMs(self.now.0 + LOG_PERIOD_MS);
            self.event_flush_at = Some(at);
            self.timers.set(at, ShardTimer::EventFlush);
        }
    }

    pub(crate) fn is_tracing(&self) -> bool {
        self.options.event_options.trace.is_some()
    }

    /// Converts a time of `MonotonicMs` to milliseconds since 1970, for people and other systems.
    pub(crate) fn time_of_day_ms(&self, at_ms: u64) -> i64 {
        i64::try_from(at_ms).unwrap_or(i64::MAX).saturating_add(self.time_of_day_offset_ms).max(0)
    }

    pub(crate) fn qos_max(&self) -> QoS {
        QoS::from_bits(self.options.qos_max).unwrap_or(QoS::ExactlyOnce)
    }

    /// Extends the deadline of a request to the authorization server by the last pause, within
    /// `BrokerOptions::verdict_timeout_ms`.
    pub(crate) fn extend_authz_deadline(&self, deadline: MonotonicMs) -> MonotonicMs {
        self.pause.extend(deadline, self.options.verdict_timeout_ms)
    }

    /// Extends the due time of a connection's timer by the last pause. With a session the time is
    /// unchanged, because `check_conn_timer` extends the keep-alive separately.
    pub(crate) fn extend_conn_deadline(
        &self,
        due: MonotonicMs,
        session: Option<SessionId>,
    ) -> MonotonicMs {
        match session {
            // Keep-alive is extended separately from expiry, the second reason for this timer.
            Some(_) => due,
            None => {
                let options = &self.options;
                self.pause.extend(due, options.verdict_timeout_ms.max(options.connect_timeout_ms))
            }
        }
    }

    pub(crate) fn random_shard(&mut self) -> ShardId {
        ShardId((self.next_random() % self.shards as u64) as u8)
    }
}
