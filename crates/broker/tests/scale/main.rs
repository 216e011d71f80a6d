//! The cost of a publish does not grow with subscriptions that do not match. The cost is counted in
//! visited nodes, which are equal on every host; `cargo bench -p broker` measures times.

mod crowd;

use crowd::{MATCHING, SubscriberCrowd, TOPIC, encode_publish, encode_subscribe, other};

/// Returns the number of nodes that a publish visits, and the number of its deliveries.
fn cost(crowd: &mut SubscriberCrowd, topic: &str) -> (u64, usize) {
    let publisher = crowd.connect("publisher");
    let before = crowd.shard.nodes_visited();
    crowd.out.clear();
    crowd.give(publisher, &encode_publish(topic));
    (crowd.shard.nodes_visited() - before, crowd.out.deliveries)
}

#[test]
fn a_match_looks_at_no_more_nodes_however_many_filters_do_not_match() {
    let mut costs = Vec::new();
    for others in [0, 1_000, 10_000, 100_000] {
        let mut crowd = SubscriberCrowd::new();
        for (at, filter) in MATCHING.iter().enumerate() {
            let conn = crowd.connect(&format!("matching{at}"));
            crowd.subscribe(conn, &[(*filter).to_string()]);
        }
        let rest = crowd.connect("others");
        let all: Vec<String> = (0..others).map(other).collect();
        crowd.subscribe(rest, &all);
        costs.push(cost(&mut crowd, TOPIC));
    }
    assert!(costs.iter().all(|(_, deliveries)| *deliveries == MATCHING.len()), "{costs:?}");
    // `home/+x/...` and `plant/+` add no node to the way of this topic.
    assert!(costs.iter().all(|(nodes, _)| *nodes == costs[0].0), "{costs:?}");
    assert!(costs[0].0 < 25, "{costs:?}");
}

#[test]
fn a_publish_to_one_of_many_sessions_looks_at_one_filter() {
    let mut crowd = SubscriberCrowd::new();
    for at in 0..100_000 {
        let conn = crowd.connect(&format!("client-{at}"));
        crowd.subscribe(conn, &[format!("device/{at}/+")]);
    }
    assert_eq!(cost(&mut crowd, "device/77777/command"), (4, 1));
}

#[test]
fn a_subscription_looks_at_the_retained_messages_that_it_matches() {
    let mut crowd = SubscriberCrowd::new();
    let publisher = crowd.connect("retainer");
    for at in 0..100_000 {
        crowd.retain(publisher, &format!("room/{}/{}", at / 10, at % 10));
    }
    let subscriber = crowd.connect("subscriber");
    crowd.out.clear();
    crowd.give(subscriber, &encode_subscribe(&["room/7777/+".to_string()]));
    assert_eq!(crowd.out.deliveries, 10);
    // One search a message and a last one, each a few levels deep.
    assert!(crowd.out.cursor_steps < 40, "{} nodes", crowd.out.cursor_steps);
}
