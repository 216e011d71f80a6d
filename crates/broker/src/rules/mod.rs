//! Rules: processing of messages and events in addition to delivery. All shards share an immutable
//! list, which a reload replaces; each shard has an index of the filters in its rules.
//!
//! A rule receives a message once, on the shard of the publisher, with the namespace in its topic,
//! before the message is stored or delivered. The rule's outputs follow the input message. All
//! rules except the one that made an output receive it, in chains of at most `DEPTH_MAX` rules.
//! Failures of rules do not affect the input message; only `RuleActions::drops_message` does.

use crate::broker_event::BrokerEvent;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{FilterId, SessionId};
use crate::interface::outbox::Outbox;
use crate::interface::rule_event::{RuleClient, event_index};
use crate::message::IncomingPublish;
use crate::message::namespace::split_client_id;
use crate::message::will::DelayedPublisher;
use crate::options::rule::Rule;
use crate::routing::ShardRouting;
use crate::routing::topics::FilterIndex;
use crate::rules::rule_engine::RuleEngine;
use crate::session::session_table::SessionTable;
use mqtt::{Properties, QoS};
use rules::{Budget, EVENTS, RuleInput, RunError, ValueMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) mod events;
mod prefix_filter;
pub(crate) mod rule_engine;
mod rule_output;
pub(crate) mod windows;

pub use crate::interface::rule_event::{LinkEvent, WindowRow};
pub use crate::options::rule::DeliveryEventOptions;
pub use crate::options::rule_metrics::{FAILURES, RULE_METRIC_ROWS, RuleMetricRow, RuleMetrics};
pub use rule_output::RulePreview;

use crate::interface::rule_event::{EventFilter, RuleEvent};
pub(crate) use events::EventCollector;
use prefix_filter::PrefixFilter;
use rule_output::{OutputContext, RuleOutputError};

/// Index of a shard from topics and events to the rules in `BrokerOptions::rules`.
#[derive(Debug)]
pub(crate) struct RuleIndex {
    pub(crate) all: Arc<[Rule]>,
    prefix_filter: PrefixFilter,
    topics: FilterIndex,
    /// Indexes of rules in `all`, by `FilterId`.
    rules_by_filter: Vec<Vec<u32>>,
    filters: Vec<FilterId>,
    runs: u64,
    /// Indexes of rules by event; `None` if no rule uses events.
    rules_by_event: Option<Box<[Vec<u32>; EVENTS.len()]>>,
}

impl RuleIndex {
    pub(crate) fn new(seed: u64, all: Arc<[Rule]>) -> RuleIndex {
        let (mut topics, mut wanted) = (FilterIndex::new(seed), Vec::new());
        let mut events: Option<Box<[Vec<u32>; EVENTS.len()]>> = None;
        for (at, rule) in all.iter().enumerate() {
            for event in rule.plan.events() {
                let own = &mut events.get_or_insert_default()[event];
                if own.last() != Some(&(at as u32)) {
                    own.push(at as u32);
                }
            }
            for filter in rule.plan.topics() {
                let (FilterId(id), _) = topics.find_or_insert(filter);
                let id = id as usize;
                wanted.resize_with(wanted.len().max(id + 1), Vec::new);
                wanted[id].push(at as u32);
            }
        }
        let filters: Vec<&str> = all.iter().flat_map(|rule| rule.plan.topics()).collect();
        let heads = PrefixFilter::new(&filters);
        RuleIndex {
            all,
            prefix_filter: heads,
            topics,
            rules_by_filter: wanted,
            filters: Vec::new(),
            runs: 0,
            rules_by_event: events,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any rule uses events.
    pub(crate) fn wants_events(&self) -> bool {
        self.rules_by_event.is_some()
    }

    /// Returns the rules for an event, in their order.
    fn rules_of_event(&self, event: usize) -> &[u32] {
        self.rules_by_event.as_ref().map_or(&[], |events| &events[event])
    }

    /// Returns the events which a shard has to record, for rules and for sinks (`told`).
    pub(crate) fn event_filter(&self, told: DeliveryEventOptions) -> EventFilter {
        let wants =
            |name: &str| event_index(name).is_some_and(|at| !self.rules_of_event(at).is_empty());
        EventFilter {
            any: self.wants_events() || told != DeliveryEventOptions::default(),
            delivery_options: told,
            delivered: told.delivered || wants("message/delivered"),
            acked: told.acked || wants("message/acked"),
            dropped: wants("message/dropped"),
            delivery_dropped: wants("message/delivery_dropped"),
        }
    }

    /// Returns the indexes of the rules whose filters match a topic, each once, in order.
    #[inline]
    pub(crate) fn rules_of_topic(&mut self, topic: &str) -> Vec<u32> {
        match self.prefix_filter.may_match(topic) {
            true => self.match_topic(topic),
            false => Vec::new(),
        }
    }

    fn match_topic(&mut self, topic: &str) -> Vec<u32> {
        self.topics.matching(topic, &mut self.filters);
        let wanted =
            self.filters.iter().flat_map(|&FilterId(id)| &self.rules_by_filter[id as usize]);
        let mut found: Vec<u32> = wanted.copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Outcome of the rules for a message.
#[derive(Debug, Default)]
pub(crate) struct RuleOutcome {
    pub(crate) drops_message: bool,
    /// Whether a rule had a row for the message or added one to a window. The acknowledgement then
    /// does not say No Matching Subscribers.
    pub(crate) passed: bool,
    pub(crate) outputs: Vec<RuleOutput>,
    /// Budget shared by all rules of the message, at first `STEPS_OF_ALL`.
    pub(crate) budget: Budget,
    /// Whether the outputs, like the message, must survive a power cut: see
    /// `IncomingPublish::exactly_once`.
    pub(crate) exactly_once: bool,
    /// Hash of the publisher's client id, as in `IncomingPublish::publisher`.
    pub(crate) publisher: u32,
}

impl RuleOutcome {
    #[inline]
    pub(crate) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }
}

/// A message which a rule publishes.
#[derive(Debug)]
pub(crate) struct RuleOutput {
    pub(crate) topic: String,
    /// Start of the client's topic behind the link's prefix; 0 for a message to all subscribers.
    pub(crate) link_len: usize,
    pub(crate) payload: Vec<u8>,
    pub(crate) properties: Vec<u8>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) expiry_s: u32,
    pub(crate) rule: u32,
    /// Number of rules before this rule in the chain, at most `DEPTH_MAX`.
    pub(crate) depth: u8,
}

/// Input of the rules: a message or an event.
pub(crate) struct RuleTrigger<'a> {
    /// The message. Topic and payload are empty for an event without a message.
    pub(crate) draft: &'a IncomingPublish<'a>,
    pub(crate) client: &'a RuleClient,
    pub(crate) is_dup: bool,
    /// Number of rules before this rule in the chain, at most `DEPTH_MAX`.
    pub(crate) depth: u8,
    pub(crate) event: Option<&'a RuleEvent>,
}

impl<'a> RuleTrigger<'a> {
    /// Returns the topic for a row without a topic template: the topic of the message, the name of
    /// the event, or the rule's name for a window.
    fn default_topic(&self, rule: &'a Rule) -> &'a str {
        match (self.draft.topic, self.event) {
            ("", Some(happened)) => EVENTS[happened.event].name,
            ("", None) => &rule.name,
            (topic, _) => topic,
        }
    }

    /// Returns the trigger as fields.
    fn rule_input(
        &self,
        more: &'a [(&'a str, rules::Value<'a>)],
        sessions: &SessionTable,
    ) -> RuleInput<'a> {
        let RuleTrigger { draft, client: who, .. } = *self;
        let event = self.event.map(|happened| &EVENTS[happened.event]);
        RuleInput {
            event: event.map_or(RuleInput::default().event, |event| event.label),
            has_message: event.is_none_or(|event| event.has_message),
            topic: draft.topic,
            payload: draft.payload,
            qos: draft.qos as u8,
            retain: draft.retain,
            dup: self.is_dup,
            clientid: &who.client_id,
            username: who.user.as_deref(),
            peerhost: who.address.as_deref(),
            properties: Properties::trusted(draft.properties),
            id: &who.id,
            timestamp_ms: sessions.context.time_of_day_ms(sessions.context.now.0),
            now_ms: sessions.context.time_of_day_ms(sessions.context.now.0),
            extra_fields: more,
            ..RuleInput::default()
        }
    }
}

/// Longest chain of rules in which each rule receives the output of the rule before it.
pub(crate) const DEPTH_MAX: u8 = 8;

/// Steps shared by all rules for a message, or for the events of an input: eight times the `Budget`
/// of a single rule, about ten milliseconds.
pub(crate) const STEPS_OF_ALL: u64 = 1_600_000;

/// Number of runs per timed run.
const RUNS_PER_SAMPLE: u64 = 16;

/// A rule with its index in `RuleIndex::all`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedRule<'a> {
    pub(in crate::rules) index: u32,
    pub(in crate::rules) rule: &'a Rule,
}

impl RuleEngine {
    /// Replaces the index after a reload if `BrokerOptions::rules` changed.
    pub(crate) fn reload_rules(&mut self, sessions: &mut SessionTable) {
        if !Arc::ptr_eq(&self.rule_index.all, &sessions.context.options.rules) {
            self.rule_index = RuleIndex::new(
                sessions.context.next_random(),
                sessions.context.options.rules.clone(),
            );
            self.reload_windows(sessions);
        }
        self.reload_event_filter(sessions);
    }

    pub(crate) fn reload_event_filter(&self, sessions: &mut SessionTable) {
        sessions.event_queue.filter =
            self.rule_index.event_filter(sessions.context.options.event_options.delivery);
    }

    /// Applies the rules to a PUBLISH or a will of a session.
    pub(crate) fn run_message_rules(
        &mut self,
        from: SessionId,
        draft: &IncomingPublish<'_>,
        is_dup: bool,
        connections: &ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> RuleOutcome {
        let who = |engine: &RuleEngine, sessions: &mut SessionTable, found: &[u32]| {
            engine.rule_client_for(from, found, connections, sessions)
        };
        self.run_topic_rules(draft, is_dup, who, sessions, out)
    }

    /// Runs the rules for a delayed message. `by` replaces the session, which may have ended.
    pub(crate) fn run_delayed_rules(
        &mut self,
        by: &DelayedPublisher,
        draft: &IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> RuleOutcome {
        let who = |_: &RuleEngine, sessions: &mut SessionTable, _: &[u32]| RuleClient {
            client_id: split_client_id(&by.client_id).1.into(),
            user: by.user.clone(),
            address: by.address.as_deref().map(Into::into),
            id: format!("{:016x}", sessions.context.next_random()),
        };
        self.run_topic_rules(draft, false, who, sessions, out)
    }

    fn run_topic_rules(
        &mut self,
        draft: &IncomingPublish<'_>,
        is_dup: bool,
        who: impl FnOnce(&RuleEngine, &mut SessionTable, &[u32]) -> RuleClient,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> RuleOutcome {
        let mut ruled = RuleOutcome { publisher: draft.publisher, ..RuleOutcome::default() };
        ruled.budget.steps = STEPS_OF_ALL;
        let found = self.rule_index.rules_of_topic(draft.topic);
        if !found.is_empty() {
            let who = &who(self, sessions, &found);
            let looked = RuleTrigger { draft, client: who, is_dup, depth: 0, event: None };
            self.run_rules(&found, &looked, &mut ruled, sessions, out);
        }
        ruled
    }

    pub(crate) fn run_rules(
        &mut self,
        found: &[u32],
        looked: &RuleTrigger<'_>,
        ruled: &mut RuleOutcome,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let all = self.rule_index.all.clone();
        let more = looked.event.map(RuleEvent::fields).unwrap_or_default();
        let mut rows = Vec::new();
        for &at in found {
            let rule = &all[at as usize];
            let chance = if rule.plan.reads().chance { sessions.context.next_random() } else { 0 };
            let seen = RuleInput { chance, ..looked.rule_input(&more, sessions) };
            rows.clear();
            rule.metrics.matched.fetch_add(1, Relaxed);
            // A bound per rule, so that a slow rule leaves steps for the rules behind it.
            let of_all = ruled.budget.steps;
            ruled.budget.steps = of_all.min(Budget::default().steps);
            let (before, began) = (ruled.budget.steps, self.start_sample());
            let done = match rule.plan.window() {
                None => {
                    let done = rule.plan.run(&seen, &mut ruled.budget, &mut rows);
                    rule.metrics.steps.fetch_add(before - ruled.budget.steps, Relaxed);
                    done
                }
                Some(_) => {
                    let rule = IndexedRule { index: at, rule };
                    self.offer_to_window(rule, &seen, looked.depth, ruled, sessions, out);
                    Ok(())
                }
            };
            match done {
                Err(failed) => self.note_rule_failure(rule, &failed, sessions, out),
                Ok(()) if rows.is_empty() => {}
                // The chain has reached its longest allowed depth.
                Ok(()) if looked.depth >= DEPTH_MAX => rule.metrics.count_failure("loop"),
                Ok(()) => {
                    rule.metrics.passed.fetch_add(1, Relaxed);
                    ruled.passed = true;
                    let rule = IndexedRule { index: at, rule };
                    self.run_actions(rule, &rows, looked, ruled, sessions, out);
                }
            }
            ruled.budget.steps = of_all - (before - ruled.budget.steps);
            if let Some(began) = began {
                let took = (self.event_collector.stopwatch)().saturating_sub(began);
                rule.metrics.ns.fetch_add(took * RUNS_PER_SAMPLE, Relaxed);
            }
        }
    }

    /// Reads the stopwatch if this run is timed. Not every run is, since two readings take as long
    /// as some runs.
    fn start_sample(&mut self) -> Option<u64> {
        self.rule_index.runs = self.rule_index.runs.wrapping_add(1);
        self.rule_index.runs.is_multiple_of(RUNS_PER_SAMPLE).then(self.event_collector.stopwatch)
    }

    /// Whether an output of a rule may need a record in the store.
    #[cold]
    pub(crate) fn rules_need_store(
        &mut self,
        topic: &str,
        qos: QoS,
        retain: bool,
        routing: &ShardRouting,
        sessions: &SessionTable,
    ) -> bool {
        let own = sessions.durability.lasting_sessions > 0;
        let lasts = own
            || (0..sessions.context.shards as u8)
                .any(|shard| routing.interest.has_persistent(shard));
        let found = self.rule_index.rules_of_topic(topic);
        found.iter().any(|&at| {
            let rule = &self.rule_index.all[at as usize];
            // The output of a window comes later.
            let mut makes = rule.actions.publish_actions().filter(|_| rule.plan.window().is_none());
            makes.any(|(link, made)| {
                let waits = made.qos.unwrap_or(qos) != QoS::AtMostOnce;
                (link.is_none() && made.retain.unwrap_or(retain)) || (waits && lasts)
            })
        })
    }

    pub(crate) fn run_actions(
        &mut self,
        indexed: IndexedRule<'_>,
        rows: &[ValueMap<'_>],
        looked: &RuleTrigger<'_>,
        ruled: &mut RuleOutcome,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let IndexedRule { index, rule } = indexed;
        ruled.drops_message |= rule.actions.drops_message;
        for row in rows {
            if rule.actions.logs_rows
                && let Some(withheld) = self.count_rule_event(sessions)
            {
                let (rule, row) = (rule.name.clone(), row.to_string().into());
                out.events.push(BrokerEvent::RulePrinted { rule, row, withheld });
            }
            for (link, publishing) in rule.actions.publish_actions() {
                if sessions.is_pressure_critical() {
                    rule.metrics.count_failure("memory");
                    continue;
                }
                let of =
                    OutputContext { draft: looked.draft, name: looked.default_topic(rule), link };
                match publishing.build_output(
                    row,
                    &of,
                    &sessions.context.options,
                    &mut ruled.budget,
                ) {
                    Ok(made) => {
                        if link.is_none() {
                            rule.metrics.published.fetch_add(1, Relaxed);
                        }
                        ruled.outputs.push(RuleOutput {
                            rule: index,
                            depth: looked.depth + 1,
                            ..made
                        });
                    }
                    Err(RuleOutputError::Failed(failed)) => {
                        return self.note_rule_failure(rule, &failed, sessions, out);
                    }
                    Err(RuleOutputError::Rejected(why)) => rule.metrics.count_failure(why),
                }
            }
        }
    }

    /// Counts a log event of rules. If the event may be reported, returns the number of events
    /// withheld since the last report.
    fn count_rule_event(&mut self, sessions: &mut SessionTable) -> Option<u64> {
        let count = self.rule_log_limiter.count(1, sessions.context.now);
        if count.is_none() {
            sessions.context.plan_event_flush();
        }
        count.map(|count| count - 1)
    }

    pub(crate) fn note_rule_failure(
        &mut self,
        rule: &Rule,
        failed: &RunError,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        rule.metrics.count_failure(failed.reason());
        if let Some(withheld) = self.count_rule_event(sessions) {
            let (rule, why) = (rule.name.clone(), failed.to_string().into());
            out.events.push(BrokerEvent::RuleFailed { rule, why, withheld });
        }
    }

    /// Returns the publisher's data. User, address and message id are only looked up if a rule in
    /// `found` reads them.
    fn rule_client_for(
        &self,
        id: SessionId,
        found: &[u32],
        connections: &ConnectionTable,
        sessions: &mut SessionTable,
    ) -> RuleClient {
        let all = self.rule_index.all.clone();
        let reads = found.iter().any(|&at| all[at as usize].plan.reads().publisher);
        if !reads {
            let client_id = sessions.get(id).own_client_id().into();
            return RuleClient { client_id, ..RuleClient::default() };
        }
        let id_of_message = format!("{:016x}", sessions.context.next_random());
        RuleClient { id: id_of_message, ..connections.rule_client_of(id, sessions) }
    }
}

#[cfg(test)]
mod tests;
