//! Replays every transcript that is possible over TCP against the real program, with one shard and
//! with two. Each replay has its own process and options.

use crate::broker::{TestBroker, run};
use sim::parsed_transcript::ParsedTranscript;
use sim::replay::{ReplayOptions, replay};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Longest total of waits in a transcript, in milliseconds; longer ones run in virtual time only.
const WAIT_MS_MAX: u64 = 1200;
/// Number of concurrent replays, more than cores because replays mostly wait.
const THREADS: usize = 8;
/// Least number of transcripts to replay, so that a lost transcript is noticed.
const REPLAYS_MIN: usize = 390;

/// Attempts of a replay, each with more time: a host may be busy, and messages of clients on two
/// shards have no order in real time. Too many replays with several attempts are an error of the
/// broker; see `REPEATED_MAX`.
const TRIES: u32 = 4;
const REPEATED_MAX: usize = 20;

struct TranscriptReplay {
    name: String,
    script: ParsedTranscript,
    arguments: Vec<String>,
}

#[derive(Default)]
struct ReplayTally {
    replayed: usize,
    repeated: Vec<String>,
    failed: Vec<String>,
}

#[test]
fn transcripts_hold_on_the_wire() {
    replay_all(1, |arguments| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let broker = TestBroker::start(&arguments);
        let address = broker.address;
        (broker, address)
    });
}

/// Replays every n-th transcript (`every`). `start` starts a broker with the given arguments, and
/// returns the broker and its address.
pub(crate) fn replay_all<B>(every: usize, start: impl Fn(&[String]) -> (B, SocketAddr) + Sync) {
    let (mut replays, left_out) = replays();
    assert!(replays.len() >= REPLAYS_MIN, "only {} replays, {left_out:?}", replays.len());
    replays = replays.into_iter().step_by(every).collect();
    let (todo, tally) = (Mutex::new(replays.into_iter()), Mutex::new(ReplayTally::default()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // The lock must not be held while the replay runs.
                let next = || todo.lock().expect("no replay panics").next();
                while let Some(replay) = next() {
                    attempt(&replay, &start, &tally);
                }
            });
        }
    });
    let ReplayTally { replayed, repeated, failed } = tally.into_inner().expect("no replay panics");
    println!("{replayed} replayed; repeated: {repeated:?}");
    println!("transcripts left out: {left_out:?}");
    assert!(repeated.len() <= REPEATED_MAX, "{} repeated: {repeated:?}", repeated.len());
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

fn attempt<B>(
    todo: &TranscriptReplay,
    start: impl Fn(&[String]) -> (B, SocketAddr),
    tally: &Mutex<ReplayTally>,
) {
    let mut outcome = Ok(());
    for at in 0..TRIES {
        let pause = Duration::from_millis(25 << at.min(4));
        let patience = Duration::from_secs(2 + u64::from(at));
        let manner = ReplayOptions { timeout: patience, pause, ..ReplayOptions::default() };
        let (broker, address) = start(&todo.arguments);
        outcome = replay(&todo.script, address, manner);
        drop(broker);
        if outcome.is_ok() {
            break;
        }
        tally.lock().expect("no replay panics").repeated.push(todo.name.clone());
    }
    let mut tally = tally.lock().expect("no replay panics");
    tally.replayed += 1;
    let failure = outcome.err().map(|why| format!("--- {}\n{why}\n", todo.name));
    tally.failed.extend(failure);
}

/// Returns the transcripts to replay, and the number of excluded transcripts by reason.
fn replays() -> (Vec<TranscriptReplay>, BTreeMap<&'static str, usize>) {
    let (mut replays, mut left_out) = (Vec::new(), BTreeMap::new());
    for transcript in sim::transcripts() {
        let script = ParsedTranscript::parse(transcript.text).expect("the simulator reads it, too");
        let reason = match script.waits_ms() > WAIT_MS_MAX {
            _ if !script.is_replayable() => "only the simulator does it",
            true => "it waits too long",
            false if !is_allowed(&script) => "the program allows no such options",
            false => {
                let chapter = transcript.chapter.rsplit("::").next().unwrap_or_default();
                let shards = script.shards.map_or(vec![1, 2], |shards| vec![shards]);
                replays.extend(shards.into_iter().map(|shards| TranscriptReplay {
                    name: format!("{chapter}::{} with {shards} shards", transcript.name),
                    arguments: arguments(&script, shards),
                    script: script.clone(),
                }));
                continue;
            }
        };
        *left_out.entry(reason).or_default() += 1;
    }
    (replays, left_out)
}

/// Returns whether the program accepts the options of a transcript; the simulator permits smaller
/// limits.
fn is_allowed(script: &ParsedTranscript) -> bool {
    let arguments = arguments(script, 1);
    let check = ["check"].into_iter().chain(arguments.iter().map(String::as_str));
    script.settings.is_empty() || run(&check.collect::<Vec<_>>()).0 == Some(0)
}

fn arguments(script: &ParsedTranscript, shards: usize) -> Vec<String> {
    let mut arguments = vec![format!("--shards={shards}"), "--set=sys.interval_s=0".into()];
    arguments.extend(script.settings.iter().map(|(key, value)| format!("--set={key}={value}")));
    arguments
}
