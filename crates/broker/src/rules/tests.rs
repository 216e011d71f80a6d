//! What the rules of a message may cost together, and what of an input is told.

use super::*;
use crate::options::Noted;
use crate::{Interest, Memory, Now, Options, ShardId};

fn shard(rules: &[String]) -> Shard {
    shard_of(rules, Fates::default())
}

fn shard_of(rules: &[String], fates: Fates) -> Shard {
    let rule = |sql: &String| {
        let plan = Arc::new(Plan::parse(sql).expect("it is a rule"));
        let (name, text) = ("r".into(), sql.as_str().into());
        Rule { name, text, plan, acts: Acts::default(), tally: Arc::default() }
    };
    let rules = rules.iter().map(rule).collect();
    let noted = Noted { fates, ..Noted::default() };
    let options = Arc::new(Options { rules, noted, sys_interval_s: 0, ..Options::default() });
    let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
    Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0))
}

fn counted(tally: &Tally, topic: &str) -> u64 {
    tally.values().find(|(name, _)| name == topic).map_or(0, |(_, count)| count)
}

#[test]
fn all_rules_of_a_message_together_have_a_bound() {
    // Each looks at 100 times 3,000 bytes, 18,700 steps.
    let look = vec!["payload LIKE '%y'"; 100].join(" OR ");
    let mut rules = vec![format!("SELECT * FROM \"t\" WHERE {look}"); 200];
    rules.push("SELECT * FROM \"t\"".to_string());
    let mut shard = shard(&rules);
    let payload = vec![b'x'; 3000];
    let draft = Draft::new("t", &payload, Now(0));
    let by = Publisher { client_id: "c".into(), user: None, address: None };
    shard.rule_late(&by, &draft, &mut Outbox::new(1));
    let all = shard.ruling.all.clone();
    let steps: u64 = all.iter().map(|rule| counted(&rule.tally, "steps")).sum();
    assert!((STEPS_OF_ALL - 40_000..=STEPS_OF_ALL).contains(&steps), "{steps}");
    let failed = all.iter().filter(|rule| counted(&rule.tally, "failed/steps") == 1).count();
    assert!((50..200).contains(&failed), "{failed}");
    assert_eq!(counted(&all[0].tally, "failed/steps"), 0);
}

#[test]
fn what_is_too_much_to_be_told_of_one_input_is_told_as_a_number() {
    for (fates, expected) in [
        (Fates::default(), Vec::new()),
        (
            Fates { delivered: true, acked: false },
            vec![Note::Untold { event: "message.delivered", count: 7 }],
        ),
    ] {
        let (mut shard, mut out) = (shard_of(&[], fates), Outbox::new(1));
        let counts = [("message/delivered", 7), ("message/acked", 3), ("message/dropped", 1)];
        for (event, count) in counts {
            let event = events::place(event).expect("it is in the table");
            shard.sessions.heard.unheard[event] = count;
        }
        shard.hear(&mut out);
        assert_eq!(out.notes, expected);
    }
}
