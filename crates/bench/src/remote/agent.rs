//! The command `agent`: generates load for a controller that proves knowledge of the token, and
//! stops when the controller disconnects. Two controllers at once run two independent tests.

use super::link::{AgentLink, LinkReceiver, LinkSide};
use super::outcome_json;
use crate::clock::RunClock;
use crate::flags::parse_line;
use crate::host;
use crate::plan::{LoadPlan, PlanShare};
use crate::scenario::{self, ScenarioOverrides};
use crate::target;
use crate::test_driver::{ProcessOutcome, run_phases};
use crate::watch::{ProcessWatch, WatchTarget, listening_pid};
use command_line::{Command, FlagRow};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

pub(crate) fn command() -> Command {
    command_line::command("agent", "Sends load for a controller elsewhere", FLAGS)
        .after_help(super::TOKEN_HELP)
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let line = match parse_line(command(), arguments) {
        Ok(line) => line,
        Err(code) => return code,
    };
    let token = match super::token(line.text("--token-file")) {
        Ok(token) => token,
        Err(why) => return crate::refuse_arguments(&[why]),
    };
    let place = line.text("--listen").unwrap_or_default();
    let listener = match TcpListener::bind(place) {
        Ok(listener) => listener,
        Err(error) => return crate::report_failure(&format!("{place}: {error}")),
    };
    let address = listener.local_addr().map_or(place.to_string(), |address| address.to_string());
    crate::print_error(format_args!("godwit-bench agent: listening on {address}"));
    for stream in listener.incoming().map_while(Result::ok) {
        let from = stream.peer_addr().map_or_else(|_| "?".into(), |peer| peer.to_string());
        let token = token.clone();
        // A thread per connection, so that a host can be watched while it sends load.
        thread::spawn(move || match serve(stream, &token) {
            Ok(()) => crate::print_error(format_args!("godwit-bench agent: {from}: done")),
            Err(error) => crate::print_error(format_args!("godwit-bench agent: {from}: {error}")),
        });
    }
    ExitCode::SUCCESS
}

fn serve(stream: TcpStream, token: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(GREETING))?;
    let mut link = AgentLink::open(stream, token, LinkSide::Agent)?;
    loop {
        let ask = link.receive()?;
        match ask["ask"].as_str() {
            Some("clock") => link.send(&json!({ "now_ns": RunClock::start(0).now_ns() }))?,
            Some("run") => return serve_run(link, &ask),
            Some("watch") => return serve_watch(link, &ask),
            _ => return Err(io::Error::other("no such request")),
        }
    }
}

/// Sends samples of the broker's process and of this host whenever the controller asks.
fn serve_watch(mut link: AgentLink, ask: &Value) -> io::Result<()> {
    let port = ask["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let pid = ask["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid.or_else(|| {
        port.and_then(|port| listening_pid(port, false).or_else(|| listening_pid(port, true)))
    });
    let mut watch = ProcessWatch::new(pid.map(WatchTarget::Process));
    link.send(&json!({ "pid": pid }))?;
    loop {
        match link.receive() {
            Ok(_) => link.send(&watch.sample().to_json())?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn serve_run(mut link: AgentLink, ask: &Value) -> io::Result<()> {
    let plan =
        match requested_plan(ask).and_then(|plan| host::reserve_resources(&plan).map(|()| plan)) {
            Ok(plan) => Arc::new(plan),
            Err(why) => return link.send(&json!({ "error": why })),
        };
    let clock = RunClock::start(ask["shift_ns"].as_i64().unwrap_or(0));
    // A controller may be silent for a while.
    link.stream().set_read_timeout(None)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (from, to) = link.halves();
    let (starts, to) = (listen_for_orders(from, Arc::clone(&stop)), RefCell::new(to));
    let mut gate = |live: u64| {
        to.borrow_mut().send(&json!({ "live": live })).ok()?;
        starts.recv_timeout(START_MAX).ok()
    };
    let gathered = run_phases(&plan, clock, &stop, &mut gate, &mut |row, _| {
        let word = json!({ "live_now": row.live });
        if to.borrow_mut().send(&word).is_err() {
            stop.store(true, SeqCst);
        }
    })?;
    to.borrow_mut().send(&final_report(&plan, &gathered))
}

/// Reads orders while the load runs: start times go to the returned channel, and any other order,
/// or the end of the connection, sets `stop`.
fn listen_for_orders(mut from: LinkReceiver, stop: Arc<AtomicBool>) -> mpsc::Receiver<u64> {
    let (start, starts) = mpsc::channel();
    thread::spawn(move || {
        while let Ok(word) = from.receive()
            && let Some(start_ns) = word["start_ns"].as_u64()
        {
            // A finished load does not need the start time.
            let _ = start.send(start_ns);
        }
        // The controller sent a stop order or has closed the connection.
        stop.store(true, SeqCst);
    });
    starts
}

/// Returns the results as JSON, with warnings about this host that the controller cannot check.
fn final_report(plan: &LoadPlan, gathered: &ProcessOutcome) -> Value {
    let warnings: Vec<&str> = host::ports_warning(plan).into_iter().collect();
    json!({ "gathered": outcome_json::write(gathered), "warnings": warnings })
}

fn requested_plan(ask: &Value) -> Result<LoadPlan, String> {
    let scenario = ask["scenario"].as_str().ok_or("no scenario")?;
    let scenario = scenario::read(scenario).map_err(|wrongs| wrongs.join("; "))?;
    let targets = ask["targets"].as_array().ok_or("no targets")?.iter();
    let targets = targets.filter_map(Value::as_str).map(target::from_url);
    let whole = |key: &str| ask[key].as_u64().ok_or_else(|| format!("no {key}"));
    let change = ScenarioOverrides {
        scale: ask["scale"].as_f64().ok_or("no scale")?,
        rate: ask["rate"].as_f64().ok_or("no rate")?,
        measure_s: ask["measure_s"].as_f64(),
        warm_s: ask["warm_s"].as_f64(),
        connects_per_s: ask["connects_per_s"].as_f64(),
        threads: ask["threads"].as_u64().map(|threads| threads as usize),
        seed: whole("seed")?,
        share: PlanShare { index: whole("index")? as usize, count: whole("of")?.max(1) as usize },
    };
    if change.share.index >= change.share.count || change.scale <= 0.0 || change.rate <= 0.0 {
        return Err("no part of a plan".into());
    }
    let mut plan = scenario.plan(targets.collect::<Result<_, _>>()?, &change)?.0;
    let local = ask["local"].as_array().into_iter().flatten().filter_map(Value::as_str);
    plan.local_addresses = local.filter_map(|address| address.parse().ok()).collect();
    Ok(plan)
}

const GREETING: Duration = Duration::from_secs(10);
const START_MAX: Duration = Duration::from_secs(600);

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--listen"], &["IP:PORT"], "where controllers reach it")
        .with_default("127.0.0.1:7300"),
    FlagRow::new(&["--token-file"], &["FILE"], "what controllers must know"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_stats::LoadStats;
    use crate::plan::PlanGroup;
    use crate::test_driver::TestPhases;

    fn gathered() -> ProcessOutcome {
        ProcessOutcome {
            phases: TestPhases::default(),
            total: LoadStats::new(),
            measured: LoadStats::new(),
            rows: Vec::new(),
            ends: Vec::new(),
            live_at_start: 0,
            was_interrupted: false,
        }
    }

    /// The ports belong to the agent's host, so only the agent can check.
    #[test]
    fn an_agent_tells_that_it_looked_for_ports() {
        let target = target::from_url("127.0.0.1").expect("an address");
        // More than half of all possible ports, distributed over the agents.
        let plan = |of| LoadPlan {
            targets: vec![target.clone()],
            groups: vec![PlanGroup { clients: 40_000, ..PlanGroup::default() }],
            share: PlanShare { index: 0, count: of },
            ..LoadPlan::default()
        };
        let warnings = |of| final_report(&plan(of), &gathered())["warnings"].to_string();
        assert!(warnings(1).contains("More than half of the local ports"), "{}", warnings(1));
        assert_eq!(warnings(1_000), "[]");
    }
}
