//! Windows of rules: the values under each key until the window closes. A key has one owner shard,
//! by `owner_of`; other shards send rows to the owner over the ring. The owner's timer closes
//! windows that end by time. With a store, changed windows are written once a second, and no
//! acknowledgement waits for that write.

use super::{DEPTH_MAX, RuleOutcome, RuleTrigger, STEPS_OF_ALL};
use crate::durability::records;
use crate::ids::MonotonicMs;
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use crate::interface::rule_event::{RuleClient, WindowRow};
use crate::interface::store_access::RecordSpace;
use crate::limits::{WINDOW_BYTES_MAX, WINDOW_KEYS_MAX};
use crate::message::IncomingPublish;
use crate::options::rule::Rule;
use crate::owner_shard;
use crate::rules::IndexedRule;
use crate::rules::rule_engine::RuleEngine;
use crate::session::session_table::SessionTable;
use crate::slab::Slab;
use crate::timer::ShardTimer;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use rules::{Budget, RuleInput, WindowState, WindowTime};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// All windows of a shard.
#[derive(Debug, Default)]
pub(crate) struct RuleWindows {
    kept: Slab<KeyedWindow>,
    by_rule: HashMap<Arc<str>, WindowKeys, FixedState>,
    /// Windows by closing time in milliseconds of `MonotonicMs`.
    pub(crate) due: BTreeSet<(u64, u32)>,
    timer_at: Option<MonotonicMs>,
    /// Whether more windows may be due than the last turn closed: see `check_windows`.
    pub(crate) is_behind: bool,
    /// Windows with an outdated record, until `write_windows`.
    dirty: Vec<u32>,
    bytes: u64,
}

/// The windows of a single rule by key, at most `WINDOW_KEYS_MAX`.
#[derive(Debug)]
struct WindowKeys {
    text: Arc<str>,
    /// Index of the rule in `RuleIndex::all`.
    at: u32,
    keys: HashMap<Box<str>, u32, FixedState>,
    bytes: usize,
}

/// State of a window under a key.
#[derive(Debug)]
struct KeyedWindow {
    rule: Arc<str>,
    key: Box<str>,
    gathering: WindowState,
    depth: u8,
    due: Option<u64>,
    is_dirty: bool,
    /// Whether the store has a record of the window.
    is_stored: bool,
}

/// Longest time for which a record may be out of date.
const WRITTEN_EVERY_MS: u64 = 1000;
/// Windows which close per turn. Remaining windows close in the next turn.
pub(crate) const CLOSED_MAX: usize = 4096;

impl RuleWindows {
    /// Makes an empty set. Clients choose the keys, so their hash depends on the secret `seed`.
    pub(crate) fn new(seed: u64) -> RuleWindows {
        let by_rule = HashMap::with_hasher(FixedState::with_seed(seed));
        RuleWindows { by_rule, ..RuleWindows::default() }
    }

    /// Whether `check_windows` must continue in the next turn.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Bytes of all windows and their keys.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    fn keys_of_rule(&mut self, at: u32, rule: &Rule) -> &mut WindowKeys {
        let hasher = self.by_rule.hasher().clone();
        self.by_rule.entry(rule.name.clone()).or_insert_with(|| WindowKeys {
            text: rule.text.clone(),
            at,
            keys: HashMap::with_hasher(hasher),
            bytes: 0,
        })
    }

    fn insert(&mut self, at: u32, rule: &Rule, key: Box<str>) -> u32 {
        let gathering = WindowState::default();
        let bytes = gathering.bytes() + key.len();
        let slot = self.kept.insert(KeyedWindow {
            rule: rule.name.clone(),
            key: key.clone(),
            gathering,
            depth: 0,
            due: None,
            is_dirty: false,
            is_stored: false,
        });
        let of = self.keys_of_rule(at, rule);
        of.keys.insert(key, slot);
        of.bytes += bytes;
        self.bytes += bytes as u64;
        slot
    }

    /// Removes a window. Returns the key of the record if the store has a record.
    fn remove(&mut self, slot: u32) -> Option<Vec<u8>> {
        let kept = self.kept.remove(slot)?;
        if let Some(due) = kept.due {
            self.due.remove(&(due, slot));
        }
        let bytes = kept.gathering.bytes() + kept.key.len();
        self.bytes -= bytes as u64;
        if let Some(of) = self.by_rule.get_mut(&kept.rule) {
            of.keys.remove(&kept.key);
            of.bytes -= bytes;
            if of.keys.is_empty() {
                self.by_rule.remove(&kept.rule);
            }
        }
        kept.is_stored.then(|| records::window_key(&kept.rule, &kept.key))
    }

    /// Changes a window's state by `change`, and updates the due time, the byte counts and the list
    /// of dirty windows. Returns the result of `change`; `None` if the window does not exist.
    fn change<T>(
        &mut self,
        slot: u32,
        rule: &Rule,
        change: impl FnOnce(&mut WindowState) -> T,
    ) -> Option<T> {
        let kept = self.kept.get_mut(slot)?;
        let before = kept.gathering.bytes();
        let done = change(&mut kept.gathering);
        let (after, due) = (kept.gathering.bytes(), kept.gathering.due(&rule.plan));
        if due != kept.due {
            if let Some(due) = kept.due {
                self.due.remove(&(due, slot));
            }
            self.due.extend(due.map(|due| (due, slot)));
            kept.due = due;
        }
        if !kept.is_dirty {
            kept.is_dirty = true;
            self.dirty.push(slot);
        }
        self.bytes = self.bytes + after as u64 - before as u64;
        if let Some(of) = self.by_rule.get_mut(&rule.name) {
            of.bytes = of.bytes + after - before;
        }
        Some(done)
    }
}

impl RuleEngine {
    /// Sends the row of a message to the owner of its key.
    pub(crate) fn offer_to_window(
        &mut self,
        indexed: IndexedRule<'_>,
        seen: &RuleInput<'_>,
        depth: u8,
        ruled: &mut RuleOutcome,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let IndexedRule { index, rule } = indexed;
        let before = ruled.budget.steps;
        let offer = rule.plan.offer(seen, &mut ruled.budget);
        rule.metrics.steps.fetch_add(before - ruled.budget.steps, Relaxed);
        let offer = match offer {
            Err(failed) => return self.note_rule_failure(rule, &failed, sessions, out),
            Ok(None) => return,
            Ok(Some(_)) if depth >= DEPTH_MAX => return rule.metrics.count_failure("loop"),
            Ok(Some(offer)) => offer,
        };
        rule.metrics.passed.fetch_add(1, Relaxed);
        ruled.passed = true;
        let (name, text) = (rule.name.clone(), rule.text.clone());
        let row = WindowRow { rule: name, text, key: offer.key, values: offer.values, depth };
        let home = sessions.context.owner_of(&format!("{}\0{}", row.rule, row.key));
        if home == sessions.context.id {
            return self.add_window_row(index, row, ruled, sessions, out);
        }
        if sessions.is_pressure_critical() {
            return rule.metrics.count_failure("memory");
        }
        sessions.ledger.crossing += row.bytes() as i64;
        out.lanes[usize::from(home.0)].push_back(ShardMessage::WindowRow(Box::new(row)));
    }

    pub(crate) fn add_window_row(
        &mut self,
        at: u32,
        row: WindowRow,
        ruled: &mut RuleOutcome,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let rule = &self.rule_index.all.clone()[at as usize];
        // A window whose time has ended closes before the row is added.
        let mut steps = STEPS_OF_ALL;
        while let Some(slot) = self.find_window(&row)
            && let Some(kept) = self.windows.kept.get(slot)
            && kept.due.is_some_and(|due| due <= sessions.context.now.0)
        {
            if steps < Budget::default().steps {
                return rule.metrics.count_failure("steps");
            }
            self.close_due_window(slot, ruled, &mut steps, sessions, out);
        }
        let slot = match self.find_window(&row) {
            Some(slot) => slot,
            None => {
                let of = self.windows.keys_of_rule(at, rule);
                if of.keys.len() >= WINDOW_KEYS_MAX {
                    return rule.metrics.count_failure("keys");
                }
                self.windows.insert(at, rule, row.key.clone())
            }
        };
        let bytes = self.windows.keys_of_rule(at, rule).bytes;
        if bytes >= WINDOW_BYTES_MAX || sessions.is_pressure_critical() {
            self.remove_empty_window(slot, sessions);
            return rule.metrics.count_failure("memory");
        }
        if let Some(kept) = self.windows.kept.get_mut(slot) {
            kept.depth = kept.depth.max(row.depth);
        }
        let (values, now, before) = (row.values, sessions.context.now.0, ruled.budget.steps);
        let added = self.windows.change(slot, rule, |gathering| {
            gathering.add(&rule.plan, values, now, &mut ruled.budget)
        });
        rule.metrics.steps.fetch_add(before - ruled.budget.steps, Relaxed);
        match added {
            Some(Ok(true)) => self.close_window(slot, ruled, sessions, out),
            Some(Err(failed)) => {
                self.note_rule_failure(rule, &failed, sessions, out);
                self.remove_empty_window(slot, sessions);
            }
            _ => {}
        }
        self.set_window_timer(sessions);
    }

    fn find_window(&self, row: &WindowRow) -> Option<u32> {
        self.windows.by_rule.get(&row.rule)?.keys.get(&row.key).copied()
    }

    /// Closes a window whose time has ended, with the budget of one rule run, and subtracts the
    /// used steps from `steps`.
    pub(crate) fn close_due_window(
        &mut self,
        slot: u32,
        ruled: &mut RuleOutcome,
        steps: &mut u64,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let whole = Budget::default();
        let of_message = std::mem::replace(&mut ruled.budget, whole);
        self.close_window(slot, ruled, sessions, out);
        *steps = steps.saturating_sub(whole.steps - ruled.budget.steps);
        ruled.budget = of_message;
    }

    /// Closes a window: runs the rule's actions for its rows.
    fn close_window(
        &mut self,
        slot: u32,
        ruled: &mut RuleOutcome,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(kept) = self.windows.kept.get(slot) else { return };
        let (depth, Some(of)) = (kept.depth, self.windows.by_rule.get(&kept.rule)) else { return };
        let (at, all, now) = (of.at, self.rule_index.all.clone(), sessions.context.now);
        let Some(rule) = all.get(at as usize) else { return };
        let (mut rows, before) = (Vec::new(), ruled.budget.steps);
        let time = WindowTime {
            now: now.0,
            time_of_day_offset_ms: sessions.context.time_of_day_offset_ms,
        };
        let closed = self.windows.change(slot, rule, |gathering| {
            gathering.close_at(&rule.plan, time, &mut ruled.budget, &mut rows)
        });
        rule.metrics.steps.fetch_add(before - ruled.budget.steps, Relaxed);
        if let Some(Err(failed)) = closed {
            self.note_rule_failure(rule, &failed, sessions, out);
        }
        // The output has no input message to take a QoS from.
        let (draft, who) = (&IncomingPublish::new("", b"", now), &RuleClient::default());
        let looked = RuleTrigger { draft, client: who, is_dup: false, depth, event: None };
        let rule = IndexedRule { index: at, rule };
        self.run_actions(rule, &rows, &looked, ruled, sessions, out);
        self.remove_empty_window(slot, sessions);
    }

    fn remove_empty_window(&mut self, slot: u32, sessions: &mut SessionTable) {
        if self.windows.kept.get(slot).is_some_and(|kept| kept.gathering.is_empty()) {
            let stored = self.windows.remove(slot);
            sessions.erase_window(stored);
        }
    }

    /// Sets a timer for the next due window or the next write, at most a second ahead. Timers are
    /// not cancelled, so late windows would otherwise fill the wheel with outdated timers.
    pub(crate) fn set_window_timer(&mut self, sessions: &mut SessionTable) {
        let windows = &mut self.windows;
        let due = windows.due.first().map(|(due, _)| *due);
        let writes = sessions.write_batch.has_store && !windows.dirty.is_empty();
        let soon = sessions.context.now.0 + WRITTEN_EVERY_MS;
        let Some(at) = due.or(writes.then_some(soon)).map(|at| MonotonicMs(at.min(soon))) else {
            return;
        };
        if windows.timer_at.is_none_or(|set| at < set) {
            windows.timer_at = Some(at);
            sessions.context.timers.set(at, ShardTimer::Windows);
        }
    }

    /// Handles the timer: `check_windows` runs in this turn.
    pub(crate) fn mark_windows_due(&mut self) {
        self.windows.timer_at = None;
        self.windows.is_behind = true;
    }

    pub(crate) fn write_windows(&mut self, sessions: &mut SessionTable) {
        if sessions.durability.store_is_full {
            return;
        }
        for slot in std::mem::take(&mut self.windows.dirty) {
            let Some(kept) = self.windows.kept.get_mut(slot) else { continue };
            if !std::mem::take(&mut kept.is_dirty) || !sessions.write_batch.has_store {
                continue;
            }
            kept.is_stored = true;
            let Some(of) = self.windows.by_rule.get(&kept.rule) else { continue };
            let key = records::window_key(&kept.rule, &kept.key);
            let value = records::window_value(
                owner_shard::stable_hash(&of.text),
                kept.depth,
                &kept.gathering,
            );
            sessions.write_batch.push_change(RecordSpace::Sessions, key, Some(value));
        }
    }

    /// Applies a reload: removes the windows of rules which were removed or whose text changed.
    pub(crate) fn reload_windows(&mut self, sessions: &mut SessionTable) {
        let all = self.rule_index.all.clone();
        let mut gone = Vec::new();
        for (name, of) in &mut self.windows.by_rule {
            match all.iter().position(|rule| rule.name == *name && rule.text == of.text) {
                Some(at) => of.at = at as u32,
                None => gone.extend(of.keys.values().copied()),
            }
        }
        for slot in gone {
            let stored = self.windows.remove(slot);
            sessions.erase_window(stored);
        }
    }

    /// Restores a window from its record. Returns `false` if no rule has its name and text.
    pub(crate) fn restore_window(
        &mut self,
        name: &str,
        key: &str,
        value: &[u8],
        sessions: &mut SessionTable,
    ) -> bool {
        let all = self.rule_index.all.clone();
        let Some((hash, depth, bytes)) = records::read_window(value) else { return false };
        let is_it =
            |rule: &Rule| *rule.name == *name && owner_shard::stable_hash(&rule.text) == hash;
        let Some(at) = all.iter().position(is_it) else { return false };
        let rule = &all[at];
        let Some(gathering) = WindowState::decode(&rule.plan, bytes) else { return false };
        let slot = self.windows.insert(at as u32, rule, key.into());
        self.windows.change(slot, rule, |own| *own = gathering);
        if let Some(kept) = self.windows.kept.get_mut(slot) {
            (kept.depth, kept.is_stored) = (depth, true);
        }
        self.set_window_timer(sessions);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;
    use crate::interface::rule_event::WindowRow;
    use crate::options::rule::{PublishAction, RuleActions};
    use crate::options::rule_metrics::RuleMetrics;
    use crate::shard::Shard;
    use crate::{BrokerOptions, Interest, ProcessMemory};
    use rules::{RowTemplate, RulePlan, Value};

    fn shard(sql: &str) -> (Shard, Arc<RuleMetrics>) {
        let plan = Arc::new(RulePlan::parse(sql).expect("it is a rule"));
        let metrics = Arc::new(RuleMetrics::default());
        let publishes = PublishAction {
            topic: RowTemplate::parse("made").ok(),
            payload: RowTemplate::parse("${.}").expect("it is a template"),
            qos: None,
            retain: None,
            keeps_properties: false,
            expiry_s: None,
            user_properties: Vec::new(),
        };
        let acts = RuleActions { publish: Some(publishes), ..RuleActions::default() };
        let (name, text) = ("r".into(), sql.into());
        let rule = Rule { name, text, plan, actions: acts, metrics: metrics.clone() };
        let (rules, sys_interval_s) = (Arc::new([rule]), 0);
        let options = Arc::new(BrokerOptions { rules, sys_interval_s, ..BrokerOptions::default() });
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        (Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0)), metrics)
    }

    fn take(shard: &mut Shard, key: &str, value: &str) {
        let rule = shard.rule_engine.rule_index.all[0].clone();
        let values = vec![Value::Text(value.to_string().into())];
        let row = WindowRow { rule: rule.name, text: rule.text, key: key.into(), values, depth: 0 };
        shard.on_window_row(row, &mut Outbox::new(1));
    }

    fn counted(metrics: &RuleMetrics, topic: &str) -> u64 {
        metrics.values().find(|(name, _)| *name == topic).map_or(0, |(_, count)| count)
    }

    fn failed(metrics: &RuleMetrics, why: &str) -> u64 {
        counted(metrics, &format!("failed/{why}"))
    }

    #[test]
    fn keys_and_bytes_beyond_the_bounds_are_counted_and_all_comes_back() {
        let sql = "SELECT collect(payload) AS p FROM \"#\" GROUP BY topic, TUMBLINGWINDOW(ss, 1)";
        let (mut shard, metrics) = shard(sql);
        for key in 0..=WINDOW_KEYS_MAX {
            take(&mut shard, &key.to_string(), "x");
        }
        assert_eq!(
            (failed(&metrics, "keys"), shard.rule_engine.windows.kept.len()),
            (1, WINDOW_KEYS_MAX)
        );
        let large = "x".repeat(WINDOW_BYTES_MAX / 8);
        for _ in 0..10 {
            take(&mut shard, "1", &large);
        }
        assert!(failed(&metrics, "memory") >= 2, "{metrics:?}");
        assert!(shard.rule_engine.windows.memory_bytes() > WINDOW_BYTES_MAX as u64);
        for now in 1..10 {
            shard.handle(MonotonicMs(now * 1000), crate::ShardInput::Tick, &mut Outbox::new(1));
        }
        assert_eq!(
            (shard.rule_engine.windows.memory_bytes(), shard.rule_engine.windows.kept.len()),
            (0, 0)
        );
        assert!(
            shard.rule_engine.windows.due.is_empty()
                && shard.rule_engine.windows.by_rule.is_empty()
        );
    }

    #[test]
    fn windows_that_end_together_share_the_steps_of_a_turn() {
        const KEYS: u64 = 50;
        let sql =
            "SELECT length(range(1, 60000)) AS l FROM \"#\" GROUP BY topic, TUMBLINGWINDOW(ss, 1)";
        let (mut shard, metrics) = shard(sql);
        for key in 0..KEYS {
            take(&mut shard, &key.to_string(), "x");
        }
        let (mut steps, mut turns) = (counted(&metrics, "steps"), 0);
        while shard.rule_engine.windows.kept.len() > 0 {
            shard.handle(MonotonicMs(1000), crate::ShardInput::Tick, &mut Outbox::new(1));
            let all = counted(&metrics, "steps");
            assert!(all - steps <= STEPS_OF_ALL, "{} steps in one turn", all - steps);
            assert!(all > steps, "a turn closes some");
            // Clients are served after one turn, and the remaining windows do not wait for a timer.
            assert!(
                shard.rule_engine.windows.kept.len() == 0
                    || shard.next_tick() == Some(MonotonicMs(1000))
            );
            (steps, turns) = (all, turns + 1);
        }
        assert!(turns > 1 && failed(&metrics, "steps") == 0);
        assert_eq!(counted(&metrics, "published"), KEYS);
        // A row for a window whose time has ended, and which is not yet closed, belongs to the
        // next.
        for key in 0..KEYS {
            take(&mut shard, &key.to_string(), "x");
        }
        shard.handle(MonotonicMs(2000), crate::ShardInput::Tick, &mut Outbox::new(1));
        for key in 0..KEYS {
            take(&mut shard, &key.to_string(), "x");
        }
        assert_eq!((counted(&metrics, "published"), failed(&metrics, "steps")), (2 * KEYS, 0));
        assert_eq!(shard.rule_engine.windows.kept.len() as u64, KEYS);
    }
}
