//! Tests of the bounds which all rules of a message share, and of the events reported per input.

use super::*;
use crate::ids::{MonotonicMs, ShardId};
use crate::interface::rule_event::event_index;
use crate::options::EventOptions;
use crate::options::rule::{Rule, RuleActions};
use crate::shard::Shard;
use crate::{BrokerOptions, Interest, ProcessMemory};
use rules::RulePlan;

fn shard(rules: &[String]) -> Shard {
    shard_of(rules, DeliveryEventOptions::default())
}

fn shard_of(rules: &[String], fates: DeliveryEventOptions) -> Shard {
    let rule = |sql: &String| {
        let plan = Arc::new(RulePlan::parse(sql).expect("it is a rule"));
        let (name, text) = ("r".into(), sql.as_str().into());
        Rule { name, text, plan, actions: RuleActions::default(), metrics: Arc::default() }
    };
    let rules = rules.iter().map(rule).collect();
    let noted = EventOptions { delivery: fates, ..EventOptions::default() };
    let options = Arc::new(BrokerOptions {
        rules,
        event_options: noted,
        sys_interval_s: 0,
        ..BrokerOptions::default()
    });
    let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
    Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0))
}

fn counted(metrics: &RuleMetrics, topic: &str) -> u64 {
    metrics.values().find(|(name, _)| name == topic).map_or(0, |(_, count)| count)
}

#[test]
fn all_rules_of_a_message_together_have_a_bound() {
    // Each rule examines 100 times 3,000 bytes, 18,700 steps.
    let look = vec!["payload LIKE '%y'"; 100].join(" OR ");
    let mut rules = vec![format!("SELECT * FROM \"t\" WHERE {look}"); 200];
    rules.push("SELECT * FROM \"t\"".to_string());
    let mut shard = shard(&rules);
    let payload = vec![b'x'; 3000];
    let draft = IncomingPublish::new("t", &payload, MonotonicMs(0));
    let by = DelayedPublisher { client_id: "c".into(), user: None, address: None };
    shard.rule_engine.run_delayed_rules(&by, &draft, &mut shard.sessions, &mut Outbox::new(1));
    let all = shard.rule_engine.rule_index.all.clone();
    let steps: u64 = all.iter().map(|rule| counted(&rule.metrics, "steps")).sum();
    assert!((STEPS_OF_ALL - 40_000..=STEPS_OF_ALL).contains(&steps), "{steps}");
    let failed = all.iter().filter(|rule| counted(&rule.metrics, "failed/steps") == 1).count();
    assert!((50..200).contains(&failed), "{failed}");
    assert_eq!(counted(&all[0].metrics, "failed/steps"), 0);
}

#[test]
fn what_is_too_much_to_be_told_of_one_input_is_told_as_a_number() {
    for (fates, expected) in [
        (DeliveryEventOptions::default(), Vec::new()),
        (
            DeliveryEventOptions { delivered: true, acked: false },
            vec![BrokerEvent::DeliveriesSkipped { event: "message.delivered", count: 7 }],
        ),
    ] {
        let (mut shard, mut out) = (shard_of(&[], fates), Outbox::new(1));
        let counts = [("message/delivered", 7), ("message/acked", 3), ("message/dropped", 1)];
        for (event, count) in counts {
            let event = event_index(event).expect("it is in the table");
            shard.sessions.event_queue.overflow_counts[event] = count;
        }
        shard.emit_events(&mut out);
        assert_eq!(out.events, expected);
    }
}
