//! Rules over events and windows, and the messages that rules publish.

use crate::interface::outbox::Outbox;
use crate::interface::rule_event::{RuleClient, WindowRow};
use crate::message::IncomingPublish;
use crate::options::rule::Rule;
use crate::routing::publish::needs_durable_ack;
use crate::rules::events::STEPS_OF_EVENT;
use crate::rules::windows::CLOSED_MAX;
use crate::rules::{DEPTH_MAX, RuleOutcome, RuleOutput, RuleTrigger, STEPS_OF_ALL};
use crate::shard::Shard;
use rules::Budget;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

impl Shard {
    /// Runs the rules for the events since the last call, and for the events which their outputs
    /// cause, up to `DEPTH_MAX` rounds. All rules share `STEPS_OF_ALL`, since the cause is a single
    /// input.
    #[cold]
    pub(crate) fn emit_events(&mut self, out: &mut Outbox) {
        let mut steps = STEPS_OF_ALL;
        for round in 0_u8.. {
            self.rule_engine.collect_events(&self.connections, &mut self.sessions, out);
            let happened = std::mem::take(&mut self.sessions.event_queue.events);
            if happened.is_empty() {
                break;
            }
            let depth = round.min(DEPTH_MAX);
            for one in &happened {
                out.events.extend(one.delivery_event());
                let least = steps.max(STEPS_OF_EVENT);
                let mut left = least;
                let ruled = self.rule_engine.run_event_rules(
                    one,
                    depth,
                    &mut left,
                    &mut self.sessions,
                    out,
                );
                self.publish_outputs_within(ruled, &mut left, out);
                steps = steps.saturating_sub(least - left);
            }
            self.finish_input(out);
            if depth == DEPTH_MAX {
                break;
            }
        }
        self.rule_engine.count_overflow(&mut self.sessions, out);
        self.sessions.durability.pending_acks.clear_requests();
    }

    /// Publishes the outputs of rules, and the further outputs which rules have for them.
    pub(crate) fn publish_outputs(&mut self, ruled: RuleOutcome, out: &mut Outbox) {
        self.publish_outputs_within(ruled, &mut Budget::default().steps, out);
    }

    /// Publishes outputs. `steps` bounds all rules which run for the outputs.
    pub(super) fn publish_outputs_within(
        &mut self,
        ruled: RuleOutcome,
        steps: &mut u64,
        out: &mut Outbox,
    ) {
        let (once, publisher) = (ruled.exactly_once, ruled.publisher);
        let (mut waiting, mut budget) = (VecDeque::from(ruled.outputs), ruled.budget);
        budget.steps = *steps;
        while let Some(one) = waiting.pop_front() {
            let mut draft =
                IncomingPublish::new(&one.topic, &one.payload, self.sessions.context.now);
            draft.properties = &one.properties;
            (draft.qos, draft.expiry_s) = (one.qos, one.expiry_s);
            draft.retain = one.retain
                && self.sessions.context.options.retain_available
                && self.routing.has_room_to_retain(&one.topic, &self.sessions);
            draft.durability = self.sessions.durability_of(&one.topic[one.link_len..]);
            draft.exactly_once = once && needs_durable_ack(&draft);
            draft.publisher = publisher;
            draft.by_rule = true;
            if self.sessions.durability.store_is_full
                && self.routing.rule_output_needs_store(&draft, &self.sessions)
            {
                self.rule_engine.rule_index.all[one.rule as usize].metrics.count_failure("store");
                continue;
            }
            if one.link_len > 0 {
                self.send_to_link(&one, &mut draft, out);
                continue;
            }
            let mut ruled = RuleOutcome { budget, ..RuleOutcome::default() };
            let mut found = self.rule_engine.rule_index.rules_of_topic(&one.topic);
            found.retain(|at| *at != one.rule);
            if !found.is_empty() {
                let (draft, who, depth) = (&draft, &RuleClient::default(), one.depth);
                let looked = RuleTrigger { draft, client: who, is_dup: false, depth, event: None };
                self.rule_engine.run_rules(&found, &looked, &mut ruled, &mut self.sessions, out);
            }
            budget = ruled.budget;
            self.retain_and_route(&ruled, None, &mut draft, out);
            waiting.extend(ruled.outputs);
        }
        *steps = budget.steps;
    }

    /// Sends a message to its link. Rules do not receive messages for links.
    fn send_to_link(
        &mut self,
        one: &RuleOutput,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let is_taken = self.routing.route_message(None, draft, &mut self.sessions, out);
        let metrics = &self.rule_engine.rule_index.all[one.rule as usize].metrics;
        match is_taken {
            true => _ = metrics.sent.fetch_add(1, Relaxed),
            // The link's session does not exist yet, or has ended.
            false => metrics.count_failure("link"),
        }
    }

    /// Sets the source of nanoseconds for the time which rules take.
    pub fn time_rules(&mut self, stopwatch: fn() -> u64) {
        self.rule_engine.event_collector.stopwatch = stopwatch;
    }

    /// Adds a row from another shard. A row is ignored if its rule was removed or changed
    /// meanwhile.
    pub(crate) fn on_window_row(&mut self, row: WindowRow, out: &mut Outbox) {
        self.sessions.ledger.crossing -= row.bytes() as i64;
        let is_it = |rule: &Rule| rule.name == row.rule && rule.text == row.text;
        let Some(at) = self.rule_engine.rule_index.all.iter().position(is_it) else { return };
        let mut ruled = RuleOutcome::default();
        self.rule_engine.add_window_row(at as u32, row, &mut ruled, &mut self.sessions, out);
        self.publish_outputs(ruled, out);
        self.sessions.durability.pending_acks.clear_requests();
    }

    /// Closes due windows and writes changed windows. Many windows may end at the same time, so the
    /// cost is bounded by `STEPS_OF_ALL`. Remaining windows close in the next turn, which follows
    /// at once.
    pub(crate) fn check_windows(&mut self, out: &mut Outbox) {
        let (mut steps, mut room, run) = (STEPS_OF_ALL, CLOSED_MAX, Budget::default().steps);
        self.rule_engine.windows.is_behind = false;
        while let Some((due, slot)) = self.rule_engine.windows.due.first().copied()
            && due <= self.sessions.context.now.0
        {
            if steps < run || room == 0 || out.is_full() {
                self.rule_engine.windows.is_behind = true;
                break;
            }
            room -= 1;
            let (mut ruled, mut left) = (RuleOutcome::default(), run);
            self.rule_engine.close_due_window(
                slot,
                &mut ruled,
                &mut steps,
                &mut self.sessions,
                out,
            );
            self.publish_outputs_within(ruled, &mut left, out);
            steps = steps.saturating_sub(run - left);
        }
        self.sessions.durability.pending_acks.clear_requests();
        self.rule_engine.write_windows(&mut self.sessions);
        self.rule_engine.set_window_timer(&mut self.sessions);
    }
}
