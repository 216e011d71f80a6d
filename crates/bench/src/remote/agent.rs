//! `agent`: sends load for whoever proves that he knows the token, and stops when the controller is
//! gone. Two controllers at once get two tests side by side.

use super::form;
use super::link::{Link, Receiver, Side};
use crate::clock::Clock;
use crate::conduct::{Gathered, conduct};
use crate::flags::{Flag, help, read as read_flags};
use crate::host;
use crate::plan::{Plan, Share};
use crate::scenario::{self, Change};
use crate::target;
use crate::watch::{Watch, Whom, listener};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help") {
        crate::say(format_args!(
            "Usage: godwit-bench agent [FLAGS]\n\n{}{}",
            help(&[FLAGS]),
            super::TOKEN_HELP
        ));
        return ExitCode::SUCCESS;
    }
    let line = match read_flags(&[FLAGS], arguments) {
        Ok(line) => line,
        Err(wrongs) => return crate::refuse(&wrongs),
    };
    let token = match super::token(line.text("--token-file")) {
        Ok(token) => token,
        Err(why) => return crate::refuse(&[why]),
    };
    let place = line.text("--listen").unwrap_or_default();
    let listener = match TcpListener::bind(place) {
        Ok(listener) => listener,
        Err(error) => return crate::fail(&format!("{place}: {error}")),
    };
    let address = listener.local_addr().map_or(place.to_string(), |address| address.to_string());
    crate::tell(format_args!("godwit-bench agent: listening on {address}"));
    for stream in listener.incoming().map_while(Result::ok) {
        let from = stream.peer_addr().map_or_else(|_| "?".into(), |peer| peer.to_string());
        let token = token.clone();
        // Apart, so that a host may be watched while it sends load.
        thread::spawn(move || match serve(stream, &token) {
            Ok(()) => crate::tell(format_args!("godwit-bench agent: {from}: done")),
            Err(error) => crate::tell(format_args!("godwit-bench agent: {from}: {error}")),
        });
    }
    ExitCode::SUCCESS
}

fn serve(stream: TcpStream, token: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(GREETING))?;
    let mut link = Link::open(stream, token, Side::Agent)?;
    loop {
        let ask = link.receive()?;
        match ask["ask"].as_str() {
            Some("clock") => link.send(&json!({ "now_ns": Clock::start(0).now_ns() }))?,
            Some("run") => return test(link, &ask),
            Some("watch") => return show(link, &ask),
            _ => return Err(io::Error::other("no such request")),
        }
    }
}

/// What the broker's process and this host do, whenever the controller asks.
fn show(mut link: Link, ask: &Value) -> io::Result<()> {
    let port = ask["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let pid = ask["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid
        .or_else(|| port.and_then(|port| listener(port, false).or_else(|| listener(port, true))));
    let mut watch = Watch::new(pid.map(Whom::Process));
    link.send(&json!({ "pid": pid }))?;
    loop {
        match link.receive() {
            Ok(_) => link.send(&watch.sample().to_json())?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn test(mut link: Link, ask: &Value) -> io::Result<()> {
    let plan = match plan(ask).and_then(|plan| host::make_room(&plan).map(|()| plan)) {
        Ok(plan) => Arc::new(plan),
        Err(why) => return link.send(&json!({ "error": why })),
    };
    let clock = Clock::start(ask["shift_ns"].as_i64().unwrap_or(0));
    // A controller says nothing for a while.
    link.stream().set_read_timeout(None)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (from, to) = link.halves();
    let (starts, to) = (obey(from, Arc::clone(&stop)), RefCell::new(to));
    let mut gate = |live: u64| {
        to.borrow_mut().send(&json!({ "live": live })).ok()?;
        starts.recv_timeout(START_MAX).ok()
    };
    let gathered = conduct(&plan, clock, &stop, &mut gate, &mut |row, _| {
        let word = json!({ "live_now": row.live });
        if to.borrow_mut().send(&word).is_err() {
            stop.store(true, SeqCst);
        }
    })?;
    to.borrow_mut().send(&last_word(&plan, &gathered))
}

/// Listens while the load runs: what it is told to start at comes out again.
fn obey(mut from: Receiver, stop: Arc<AtomicBool>) -> mpsc::Receiver<u64> {
    let (start, starts) = mpsc::channel();
    thread::spawn(move || {
        while let Ok(word) = from.receive()
            && let Some(start_ns) = word["start_ns"].as_u64()
        {
            // Whoever has ended does not wait for it.
            let _ = start.send(start_ns);
        }
        // It was told to stop, or nobody wants this load any more.
        stop.store(true, SeqCst);
    });
    starts
}

/// What was gathered, and what of this host the controller cannot see.
fn last_word(plan: &Plan, gathered: &Gathered) -> Value {
    let warnings: Vec<&str> = host::ports_warning(plan).into_iter().collect();
    json!({ "gathered": form::write(gathered), "warnings": warnings })
}

fn plan(ask: &Value) -> Result<Plan, String> {
    let scenario = ask["scenario"].as_str().ok_or("no scenario")?;
    let scenario = scenario::read(scenario).map_err(|wrongs| wrongs.join("; "))?;
    let targets = ask["targets"].as_array().ok_or("no targets")?.iter();
    let targets = targets.filter_map(Value::as_str).map(target::from_url);
    let whole = |key: &str| ask[key].as_u64().ok_or_else(|| format!("no {key}"));
    let change = Change {
        scale: ask["scale"].as_f64().ok_or("no scale")?,
        rate: ask["rate"].as_f64().ok_or("no rate")?,
        measure_s: ask["measure_s"].as_f64(),
        warm_s: ask["warm_s"].as_f64(),
        connects_per_s: ask["connects_per_s"].as_f64(),
        threads: ask["threads"].as_u64().map(|threads| threads as usize),
        seed: whole("seed")?,
        share: Share { index: whole("index")? as usize, of: whole("of")?.max(1) as usize },
    };
    if change.share.index >= change.share.of || change.scale <= 0.0 || change.rate <= 0.0 {
        return Err("no part of a plan".into());
    }
    let mut plan = scenario.plan(targets.collect::<Result<_, _>>()?, &change)?.0;
    let local = ask["local"].as_array().into_iter().flatten().filter_map(Value::as_str);
    plan.local = local.filter_map(|address| address.parse().ok()).collect();
    Ok(plan)
}

const GREETING: Duration = Duration::from_secs(10);
const START_MAX: Duration = Duration::from_secs(600);

const FLAGS: &[Flag] = &[
    Flag {
        names: &["--listen"],
        value: "IP:PORT",
        default: "127.0.0.1:7300",
        doc: "where controllers reach it",
    },
    Flag {
        names: &["--token-file"],
        value: "FILE",
        default: "",
        doc: "what controllers must know",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduct::Phases;
    use crate::plan::Group;
    use crate::tally::Tally;

    fn gathered() -> Gathered {
        Gathered {
            phases: Phases::default(),
            total: Tally::new(),
            measured: Tally::new(),
            rows: Vec::new(),
            ends: Vec::new(),
            live_at_start: 0,
            was_interrupted: false,
        }
    }

    /// The ports are the agent's, so nobody else can know.
    #[test]
    fn an_agent_tells_that_it_looked_for_ports() {
        let target = target::from_url("127.0.0.1").expect("an address");
        // More than half of all ports that there can be, dealt out to so many agents.
        let plan = |of| Plan {
            targets: vec![target.clone()],
            groups: vec![Group { clients: 40_000, ..Group::default() }],
            share: Share { index: 0, of },
            ..Plan::default()
        };
        let warnings = |of| last_word(&plan(of), &gathered())["warnings"].to_string();
        assert!(warnings(1).contains("More than half of the local ports"), "{}", warnings(1));
        assert_eq!(warnings(1_000), "[]");
    }
}
