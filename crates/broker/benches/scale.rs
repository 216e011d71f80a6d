//! Time and memory that many subscriptions, sessions, retained and cached messages cost:
//! `cargo bench -p broker -- [topics|sessions|retained|cached]`. Results are in
//! docs/benchmarks.md.

#[path = "../tests/scale/crowd.rs"]
mod crowd;

use broker::options::cache_config::CacheConfig;
use broker::{BrokerOptions, ConnId};
use crowd::{MATCHING, SubscriberCrowd, TOPIC, encode_publish, encode_subscribe, other};
use std::process::Command;
use std::time::{Duration, Instant};

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [name, many] = &asked[..]
        && let Ok(many) = many.parse()
    {
        let (_, run, _) = RUNS.iter().find(|run| run.0 == name).expect("a run of that name");
        return run(many);
    }
    for (name, _, sizes) in RUNS {
        if !asked.is_empty() && !asked.iter().any(|asked| asked == name) {
            continue;
        }
        // Each in a process of its own: memory that another one left would hide what this takes.
        for many in *sizes {
            let program = std::env::current_exe().expect("this program");
            let status = Command::new(program).args([name, &*many.to_string()]).status();
            assert!(status.expect("it runs").success());
        }
    }
}

type ScaleRun = (&'static str, fn(usize), &'static [usize]);

const RUNS: &[ScaleRun] = &[
    ("topics", topics, &[0, 10_000, 100_000, 1_000_000, 10_000_000]),
    ("sessions", sessions, &[10_000, 100_000, 1_000_000]),
    ("retained", retained, &[10_000, 100_000, 1_000_000]),
    ("cached", cached, &[0, 10_000, 100_000, 1_000_000]),
];

/// Measures ten matching subscriptions among `others` that do not match.
fn topics(others: usize) {
    let mut crowd = SubscriberCrowd::new();
    for (at, filter) in MATCHING.iter().enumerate() {
        let conn = crowd.connect(&format!("matching{at}"));
        crowd.subscribe(conn, &[(*filter).to_string()]);
    }
    let before = resident();
    let began = Instant::now();
    for first in (0..others).step_by(100_000) {
        let conn = crowd.connect(&format!("others{first}"));
        for first in (first..others.min(first + 100_000)).step_by(500) {
            let filters: Vec<String> = (first..others.min(first + 500)).map(other).collect();
            crowd.subscribe(conn, &filters);
        }
    }
    let (took, bytes) = (began.elapsed(), resident() - before);
    let publisher = crowd.connect("publisher");
    let nodes = crowd.shard.nodes_visited();
    let same = publish_all(&mut crowd, publisher, &[encode_publish(TOPIC)]);
    let nodes = (crowd.shard.nodes_visited() - nodes) as f64 / (ROUNDS * PUBLISHES) as f64;
    // Topics that have one exact filter of the others each: their nodes are not in any cache.
    let many: Vec<Vec<u8>> = (0..PUBLISHES)
        .map(|at| at * 7919 % (others / 6).max(1))
        .map(|at| encode_publish(&format!("plant/{at}/line/speed")))
        .collect();
    let spread = publish_all(&mut crowd, publisher, &many);
    println!(
        "topics   {others:>9} others: {same:>7.0} ns to ten matching ({nodes} nodes), \
         {spread:>6.0} ns to topics all over, {:>5.0} bytes and {:>5.0} ns a subscription",
        per(bytes as f64, others),
        per(took.as_nanos() as f64, others),
    );
}

/// Measures `many` connected sessions, and a publish to one of them.
fn sessions(many: usize) {
    let mut crowd = SubscriberCrowd::new();
    let before = resident();
    let began = Instant::now();
    let conns: Vec<ConnId> = (0..many).map(|at| crowd.connect(&format!("client-{at}"))).collect();
    let (connected, plain) = (began.elapsed(), resident() - before);
    for (at, conn) in conns.into_iter().enumerate() {
        crowd.subscribe(conn, &[format!("device/{at}/+")]);
    }
    let subscribed = resident() - before;
    let publisher = crowd.connect("publisher");
    let one = publish_all(&mut crowd, publisher, &[encode_publish("device/7/command")]);
    let all: Vec<Vec<u8>> = (0..PUBLISHES)
        .map(|at| encode_publish(&format!("device/{}/command", at * 7919 % many)))
        .collect();
    let spread = publish_all(&mut crowd, publisher, &all);
    println!(
        "sessions {many:>9}: {:>5.0} bytes each, {:>5.0} with a subscription, {:>5.0} ns to \
         connect, {one:>6.0} ns to one of them, {spread:>6.0} ns to all in turn",
        per(plain as f64, many),
        per(subscribed as f64, many),
        per(connected.as_nanos() as f64, many),
    );
}

/// Measures `many` retained topics, and subscriptions that match ten, one, and none of them.
fn retained(many: usize) {
    let mut crowd = SubscriberCrowd::new();
    let publisher = crowd.connect("publisher");
    let before = resident();
    let began = Instant::now();
    for at in 0..many {
        crowd.retain(publisher, &format!("room/{}/{}", at / 10, at % 10));
    }
    let (took, bytes) = (began.elapsed(), resident() - before);
    let subscriber = crowd.connect("subscriber");
    let mut time = |filter: String, messages: usize| {
        let bytes = encode_subscribe(&[filter]);
        let mut times: Vec<Duration> = (0..100)
            .map(|_| {
                crowd.out.clear();
                let began = Instant::now();
                crowd.give(subscriber, &bytes);
                let took = began.elapsed();
                assert_eq!(crowd.out.deliveries, messages);
                took
            })
            .collect();
        times.sort_unstable();
        times[50].as_nanos() as f64 / 1000.0
    };
    let ten = time(format!("room/{}/+", many / 20), 10);
    let plus = time(format!("+/{}/7", many / 20), 1);
    let one = time(format!("room/{}/3", many / 20), 1);
    println!(
        "retained {many:>9} topics: {ten:>5.1} us for a + that matches ten, {plus:>5.1} us for \
         a + that matches one, {one:>4.1} us for an exact one, {:>4.0} bytes and {:>5.0} ns a \
         topic",
        per(bytes as f64, many),
        per(took.as_nanos() as f64, many),
    );
}

/// Measures `many` topics in a cache; 0 measures a broker without caches.
fn cached(many: usize) {
    let filters = ["device/#".to_string()];
    let cache = CacheConfig::parse("c", &filters, 1, u32::MAX, u64::MAX, u32::MAX);
    let cache = cache.expect("it is a cache");
    let caches = if many == 0 { [].into() } else { [cache.clone()].into() };
    let mut crowd = SubscriberCrowd::with(BrokerOptions { caches, ..BrokerOptions::default() });
    let publisher = crowd.connect("publisher");
    let before = resident();
    for at in 0..many {
        crowd.give(publisher, &encode_publish(&format!("device/{at}/command")));
    }
    let bytes = resident() - before;
    let counted = cache.metrics.bytes();
    let all: Vec<Vec<u8>> = (0..PUBLISHES)
        .map(|at| encode_publish(&format!("device/{}/command", at * 7919 % many.max(1))))
        .collect();
    let spread = publish_all(&mut crowd, publisher, &all);
    println!(
        "cached {many:>9} topics: {:>4.0} bytes a topic, {:>4.0} counted, {spread:>6.0} ns to all \
         in turn",
        per(bytes as f64, many),
        per(counted as f64, many),
    );
}

const PUBLISHES: usize = 10_000;
const ROUNDS: usize = 5;

/// Returns the nanoseconds per publish, in the fastest of several rounds.
fn publish_all(crowd: &mut SubscriberCrowd, publisher: ConnId, packets: &[Vec<u8>]) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for at in 0..PUBLISHES {
            crowd.give(publisher, &packets[at % packets.len()]);
            if crowd.out.is_full() || at % 64 == 0 {
                crowd.out.clear();
            }
        }
        best = best.min(began.elapsed());
    }
    best.as_nanos() as f64 / PUBLISHES as f64
}

fn per(sum: f64, many: usize) -> f64 {
    sum / many.max(1) as f64
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4096
}
