//! Load from many hosts: one plan, one start time, merged histograms. The controller distributes
//! the clients by number, so agents do not communicate with each other.

mod agent;
mod link;
mod outcome_json;

pub(crate) use agent::{command as agent_command, run as agent};

use crate::clock::RunClock;
use crate::plan::{LoadPlan, PlanShare};
use crate::report::{self, TestSubject};
use crate::scenario::ScenarioOverrides;
use crate::test_driver::{ProcessOutcome, merge_outcomes};
use crate::test_session::{BrokerWatch, stop_flag};
use crate::watch::{ProcessSample, WatchTarget};
use link::{AgentLink, LinkSide};
use serde_json::{Value, json};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A message of an agent to the controller.
enum AgentMessage {
    Live,
    /// The agent's results and warnings.
    Done(Box<ProcessOutcome>, Value),
    Died(String),
}

/// Offset of an agent's clock from the controller's clock, and the round-trip time to the agent.
#[derive(Clone, Copy, Debug, Default)]
struct ClockSkew {
    offset_ns: i64,
    round_trip_ns: u64,
}

/// Reads the shared token from a file, or from `GODWIT_BENCH_TOKEN`; at least `TOKEN_BYTES_MIN`
/// characters.
pub(crate) fn token(file: Option<&str>) -> Result<String, String> {
    let token = match file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?,
        None => std::env::var("GODWIT_BENCH_TOKEN").unwrap_or_default(),
    };
    let token = token.trim().to_string();
    if token.len() < TOKEN_BYTES_MIN {
        return Err(format!(
            "agents want a token of at least {TOKEN_BYTES_MIN} characters, in --token-file or in \
             GODWIT_BENCH_TOKEN: head -c 24 /dev/urandom | base64"
        ));
    }
    Ok(token)
}

/// Runs a scenario on all agents. The failure of an agent is reported and the other agents
/// continue. A signal stops all agents, and the report covers the time until then.
pub(crate) fn run(
    agents: &[String],
    token: &str,
    subject: &TestSubject,
    plan: &LoadPlan,
    change: &ScenarioOverrides,
) -> Result<Value, String> {
    let stop = stop_flag();
    let (words, said) = channel();
    let mut orders = Vec::new();
    for (index, address) in agents.iter().enumerate() {
        let request = request(subject, plan, change, PlanShare { index, count: agents.len() });
        let (order, ordered) = channel();
        orders.push(order);
        let (address, token, words) = (address.to_string(), token.to_string(), words.clone());
        thread::spawn(move || {
            let mut skew = ClockSkew::default();
            let word = run_agent(&address, &token, request, &words, index, ordered, &mut skew);
            let word = word.unwrap_or_else(|error| AgentMessage::Died(error.to_string()));
            // The controller waits for a final message of every agent.
            let _ = words.send((index, skew, word));
        });
    }
    let watching = WatchThread::start(subject, plan)?;
    let (parts, rows) = collect_reports(agents, plan, &orders, &said, stop);
    let (subject, samples) = watching.end(subject);
    if parts.is_empty() {
        let why: Vec<&str> = rows.iter().map(|row| report::text(row, "/died")).collect();
        return Err(format!("no agent came to an end: {}", why.join("; ")));
    }
    let outcome = merge_outcomes(plan, parts);
    let mut report = report::build(&subject, plan, &outcome, &samples);
    add_agent_rows(&mut report, rows);
    Ok(report)
}

/// A thread that samples the broker on this host while agents send the load.
struct WatchThread {
    target: Option<WatchTarget>,
    is_over: Arc<AtomicBool>,
    samples: JoinHandle<Vec<(u64, ProcessSample)>>,
}

impl WatchThread {
    fn start(subject: &TestSubject, plan: &LoadPlan) -> Result<WatchThread, String> {
        let mut eyes = BrokerWatch::open(subject, plan)?;
        let (whom, is_over) = (eyes.target(), Arc::new(AtomicBool::new(false)));
        let watched = Arc::clone(&is_over);
        let clock = RunClock::start(0);
        let samples = thread::spawn(move || {
            let mut samples = Vec::new();
            while !watched.load(SeqCst) {
                let from_ns = clock.now_ns();
                thread::sleep(SAMPLE);
                samples.push((from_ns, eyes.sample()));
            }
            samples
        });
        Ok(WatchThread { target: whom, is_over, samples })
    }

    fn end(self, subject: &TestSubject) -> (TestSubject, Vec<(u64, ProcessSample)>) {
        self.is_over.store(true, SeqCst);
        let subject = TestSubject { watch_target: self.target, ..subject.clone() };
        (subject, self.samples.join().unwrap_or_default())
    }
}

/// A watch of a process and its host by the agent on that host.
#[derive(Debug)]
pub(crate) struct RemoteWatch {
    link: AgentLink,
    pub(crate) target: Option<WatchTarget>,
}

impl RemoteWatch {
    /// Starts to watch the broker's process on the agent's host, given by process id or by its
    /// port.
    pub(crate) fn start(
        address: &str,
        token: &str,
        whom: Option<WatchTarget>,
        port: u16,
    ) -> io::Result<RemoteWatch> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(FAR_SAMPLE_MAX))?;
        let mut link = AgentLink::open(stream, token, LinkSide::Controller)?;
        let pid = whom.map(WatchTarget::pid);
        link.send(&json!({ "ask": "watch", "pid": pid, "port": port }))?;
        let whom = link.receive()?["pid"].as_u64().map(|pid| WatchTarget::Process(pid as u32));
        Ok(RemoteWatch { link, target: whom })
    }

    /// Returns a sample, or an empty sample if the agent does not answer: the test continues.
    pub(crate) fn sample(&mut self) -> ProcessSample {
        let ask = self.link.send(&json!({ "ask": "sample" }));
        let answer = ask.and_then(|()| self.link.receive());
        answer.map_or_else(|_| ProcessSample::default(), |value| ProcessSample::from_json(&value))
    }
}

fn request(
    subject: &TestSubject,
    plan: &LoadPlan,
    change: &ScenarioOverrides,
    share: PlanShare,
) -> Value {
    let urls: Vec<&str> = plan.targets.iter().map(|target| target.url.as_str()).collect();
    let local: Vec<String> = plan.local_addresses.iter().map(ToString::to_string).collect();
    json!({
        "ask": "run",
        "scenario": subject.scenario_text,
        "targets": urls,
        "local": local,
        "scale": change.scale,
        "rate": change.rate,
        "measure_s": change.measure_s,
        "warm_s": change.warm_s,
        "connects_per_s": change.connects_per_s,
        "threads": change.threads,
        "seed": change.seed,
        "index": share.index,
        "of": share.count,
    })
}

/// Serves one agent from its greeting to its report.
fn run_agent(
    address: &str,
    token: &str,
    mut request: Value,
    words: &Sender<(usize, ClockSkew, AgentMessage)>,
    index: usize,
    ordered: Receiver<Value>,
    skew: &mut ClockSkew,
) -> io::Result<AgentMessage> {
    let stream = TcpStream::connect(address)?;
    // An agent sends a line every second; silence means a lost agent.
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut link = AgentLink::open(stream, token, LinkSide::Controller)?;
    *skew = measure_skew(&mut link)?;
    request["shift_ns"] = (-skew.offset_ns).into();
    link.send(&request)?;
    let (mut from, mut to) = link.halves();
    // A thread of its own, since a stop order may come while this thread waits for the agent.
    thread::spawn(move || while ordered.recv().is_ok_and(|order| to.send(&order).is_ok()) {});
    loop {
        let word = from.receive()?;
        if let Some(why) = word["error"].as_str() {
            return Ok(AgentMessage::Died(why.into()));
        }
        if word["live"].is_u64() {
            let _ = words.send((index, *skew, AgentMessage::Live));
        }
        if let Some(gathered) = word.get("gathered") {
            let torn = || io::Error::other("a report that cannot be read");
            let gathered = Box::new(outcome_json::read(gathered).ok_or_else(torn)?);
            return Ok(AgentMessage::Done(gathered, word["warnings"].clone()));
        }
    }
}

/// Measures the clock offset `CLOCK_ASKS` times and keeps the answer with the shortest round trip.
fn measure_skew(link: &mut AgentLink) -> io::Result<ClockSkew> {
    let clock = RunClock::start(0);
    let mut best = ClockSkew { offset_ns: 0, round_trip_ns: u64::MAX };
    for _ in 0..CLOCK_ASKS {
        let asked = clock.now_ns();
        link.send(&json!({ "ask": "clock" }))?;
        let theirs = link.receive()?["now_ns"].as_u64().unwrap_or(0);
        let round_trip_ns = clock.now_ns() - asked;
        if round_trip_ns < best.round_trip_ns {
            let middle = asked + round_trip_ns / 2;
            best = ClockSkew { offset_ns: theirs.wrapping_sub(middle) as i64, round_trip_ns };
        }
    }
    Ok(best)
}

/// Orders the start once every agent is ready or lost, orders the stop after a signal, and collects
/// all reports.
fn collect_reports(
    agents: &[String],
    plan: &LoadPlan,
    orders: &[Sender<Value>],
    said: &Receiver<(usize, ClockSkew, AgentMessage)>,
    stop: &AtomicBool,
) -> (Vec<ProcessOutcome>, Vec<Value>) {
    let clock = RunClock::start(0);
    let (mut parts, mut rows) = (Vec::new(), vec![Value::Null; agents.len()]);
    let (mut waiting, mut open, mut is_ordered) = (agents.len(), agents.len(), false);
    // A lost agent needs no order.
    let order = |word: Value| orders.iter().for_each(|one| drop(one.send(word.clone())));
    let mut is_stopped = false;
    while open > 0 {
        if !is_stopped && stop.load(SeqCst) {
            (is_stopped, is_ordered) = (true, true);
            order(json!({ "stop": true }));
        }
        let (index, skew, word) = match said.recv_timeout(POLL_INTERVAL) {
            Ok(word) => word,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let mut row = json!({
            "agent": agents[index],
            "clock_offset_ms": skew.offset_ns as f64 / 1e6,
            "round_trip_ms": skew.round_trip_ns as f64 / 1e6,
        });
        match word {
            AgentMessage::Live => waiting -= 1,
            AgentMessage::Died(why) => {
                crate::print_error(format_args!("{}: {why}", agents[index]));
                waiting -= usize::from(!is_ordered);
                open -= 1;
                row["died"] = why.into();
            }
            AgentMessage::Done(gathered, warnings) => {
                open -= 1;
                row["clients"] = gathered.live_at_start.into();
                row["of"] = plan.clients().into();
                row["warnings"] = warnings;
                parts.push(*gathered);
            }
        }
        rows[index] = row;
        if waiting == 0 && !is_ordered {
            is_ordered = true;
            order(json!({ "start_ns": clock.now_ns() + START_NS }));
        }
    }
    (parts, rows)
}

fn add_agent_rows(report: &mut Value, rows: Vec<Value>) {
    let mut faults: Vec<Value> = Vec::new();
    let mut warnings: Vec<Value> = Vec::new();
    for row in &rows {
        let name = report::text(row, "/agent");
        if let Some(why) = row["died"].as_str() {
            faults.push(format!("agent {name} died, its part is missing: {why}").into());
        }
        let (offset, round_trip) =
            (report::number(row, "/clock_offset_ms"), report::number(row, "/round_trip_ms"));
        for warning in report::list(row, "/warnings").iter().filter_map(Value::as_str) {
            warnings.push(format!("Agent {name}: {warning}").into());
        }
        if round_trip > ROUND_TRIP_MS_MAX {
            warnings.push(
                format!(
                    "Agent {name} answers in {round_trip:.1} ms, so its clock (off by \
                     {offset:.1} ms, corrected) is known no better than by half of that."
                )
                .into(),
            );
        }
    }
    for (key, more) in [("faults", faults), ("warnings", warnings)] {
        if let Some(list) = report[key].as_array_mut() {
            list.extend(more);
        }
    }
    report["agents"] = rows.into();
}

const TOKEN_BYTES_MIN: usize = 16;
const SILENCE_MAX: Duration = Duration::from_secs(20);
const FAR_SAMPLE_MAX: Duration = Duration::from_secs(2);
const CLOCK_ASKS: usize = 9;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const SAMPLE: Duration = Duration::from_secs(1);
const START_NS: u64 = 500_000_000;
const ROUND_TRIP_MS_MAX: f64 = 2.0;
const TOKEN_HELP: &str = "\
The token is read from the file or from GODWIT_BENCH_TOKEN; agents and controller share it.
Run with `godwit-bench run SCENARIO --agents HOST:PORT,HOST:PORT --token-file FILE`.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SECRET: &str = "a token of the tests";

    /// An agent whose clock is an hour ahead.
    #[test]
    fn a_clock_that_is_off_is_found_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let ahead_ns = 3_600_000_000_000;
        let agent = thread::spawn(move || -> io::Result<()> {
            let (stream, _) = listener.accept()?;
            let mut link = AgentLink::open(stream, SECRET, LinkSide::Agent)?;
            let clock = RunClock::start(ahead_ns);
            for _ in 0..CLOCK_ASKS {
                link.receive()?;
                link.send(&json!({ "now_ns": clock.now_ns() }))?;
            }
            Ok(())
        });
        let stream = TcpStream::connect(address).expect("it listens");
        let mut link =
            AgentLink::open(stream, SECRET, LinkSide::Controller).expect("nonces are open");
        let skew = measure_skew(&mut link).expect("it answers");
        assert!(agent.join().expect("it came to an end").is_ok());
        let wrong_by = skew.offset_ns.abs_diff(ahead_ns);
        assert!(wrong_by <= skew.round_trip_ns, "{skew:?}");
        // With the offset removed both clocks agree, so ages of messages are right.
        let (ours, theirs) = (RunClock::start(0), RunClock::start(ahead_ns - skew.offset_ns));
        assert!(ours.now_ns().abs_diff(theirs.now_ns()) < skew.round_trip_ns + 50_000_000);
    }

    #[test]
    fn what_agents_warn_of_and_clocks_not_known_well_are_warnings_and_a_death_a_fault() {
        let mut report = json!({ "faults": [], "warnings": [] });
        let row = |agent: &str, round_trip: f64| {
            let (name, offset) = (agent, -7.0);
            json!({ "agent": name, "clock_offset_ms": offset, "round_trip_ms": round_trip })
        };
        let mut dead = row("dead:1", 0.1);
        dead["died"] = "it was pulled".into();
        let mut crowded = row("crowded:1", 0.1);
        crowded["warnings"] = json!(["Few ports are left."]);
        add_agent_rows(&mut report, vec![row("near:1", 0.3), row("far:1", 40.0), dead, crowded]);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("Agent far:1 answers in 40.0 ms") && !warnings.contains("near"));
        assert!(report["faults"].to_string().contains("agent dead:1 died, its part is missing"));
        assert!(warnings.contains("Agent crowded:1: Few ports are left."), "{warnings}");
        assert_eq!(report["agents"].as_array().map(Vec::len), Some(4));
    }
}
