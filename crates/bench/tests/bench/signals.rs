//! Ctrl-C (SIGINT): the results so far are reported, and marked as incomplete.

use crate::agents::{AgentProcess, TOKEN};
use crate::bad_broker::{BadBroker, InjectedFault};
use crate::program::{number, scratch};
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Returns a scenario that measures longer than any test waits, and drains for two seconds.
fn scenario(name: &str, connects_per_s: u32) -> String {
    let file = scratch().join(format!("signals-{name}.toml"));
    let text = format!(
        "connects_per_s = {connects_per_s}\nmeasure_s = 600\ndrain_s = 2\n\
         [[group]]\nname = \"sub\"\nclients = 3\nsubscribe = [\"t/#\"]\nqos = 1\n\
         [[group]]\nname = \"pub\"\nclients = 4\npublish = \"t/%i\"\nqos = 1\nper_s = 50\n"
    );
    std::fs::write(&file, text).expect("the scratch folder is ours");
    file.into_os_string().into_string().expect("the path is text")
}

fn start(line: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
    command.args(line).env("GODWIT_BENCH_TOKEN", TOKEN).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("godwit-bench can be run")
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn interrupt(child: &Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill can be run").success());
}

/// Sends SIGINT. Returns the output of the program at its end.
fn interrupted(child: Child) -> Output {
    let begun = Instant::now();
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert!(begun.elapsed() < Duration::from_secs(20), "it went on for {:?}", begun.elapsed());
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

#[test]
fn a_run_that_is_interrupted_reports_what_it_measured() {
    let (a, b) = (AgentProcess::start(), AgentProcess::start());
    let agents = [a.address.as_str(), b.address.as_str()].join(",");
    for (name, more) in [("run", &[][..]), ("agents", &["--agents", &agents])] {
        let broker = BadBroker::start(InjectedFault::None);
        let (file, target) = (scenario(name, 1_000), broker.address.to_string());
        let line = ["run", &file, "--target", &target, "--json", "-"];
        let child = start(&[&line[..], more].concat());
        until("messages arrive", || broker.deliveries() > 200);
        let output = interrupted(child);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output.stderr));
        let report = report(&output);
        assert_eq!(report["interrupted"], true, "{name}");
        let faults = report["faults"].as_array().expect("a list");
        let is_marked = faults[0].as_str().is_some_and(|fault| {
            fault.starts_with("cut short by a signal: ")
                && fault.ends_with(" of 600 s were measured")
        });
        // What was on its way when the signal came is no loss.
        assert!(is_marked && faults.len() == 1, "{name}: {faults:?}");
        let sent = number(&report, "/messages/sent");
        assert_eq!(number(&report, "/messages/received"), 3.0 * sent, "{name}");
        assert!(sent > 60.0, "{name}: {sent}");
        assert!(!report["seconds"].as_array().expect("a list").is_empty(), "{name}");
    }
}

#[test]
fn agents_that_still_connect_are_stopped_too() {
    let (a, b) = (AgentProcess::start(), AgentProcess::start());
    let agents = [a.address.as_str(), b.address.as_str()].join(",");
    let broker = BadBroker::start(InjectedFault::None);
    let (file, target) = (scenario("connecting", 1), broker.address.to_string());
    let child = start(&["run", &file, "--target", &target, "--json", "-", "--agents", &agents]);
    until("clients connect", || broker.greetings().len() >= 2);
    let output = interrupted(child);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = report(&output);
    assert_eq!(report["faults"][0], "cut short by a signal: 0.0 s of 600 s were measured");
    assert_eq!(number(&report, "/messages/sent"), 0.0);
}

#[test]
fn a_second_signal_ends_at_once() {
    // What never arrives is waited for, for as long as the drain may take.
    let broker = BadBroker::start(InjectedFault::DropEvery(2));
    let (file, target) = (scenario("twice", 1_000), broker.address.to_string());
    let text = std::fs::read_to_string(&file).expect("it was written");
    let long = text.replace("drain_s = 2", "drain_s = 600");
    std::fs::write(&file, long).expect("the scratch folder is ours");
    let mut child = start(&["run", &file, "--target", &target, "--json", "-"]);
    until("messages arrive", || broker.deliveries() > 200);
    interrupt(&child);
    thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("it is ours").is_none(), "it waits for what is under way");
    let output = interrupted(child);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
}

#[test]
fn a_ramp_ends_with_the_steps_that_it_has() {
    let broker = BadBroker::start(InjectedFault::None);
    let (file, target) = (scenario("ramp", 1_000), broker.address.to_string());
    // Steps of a second, the third of which nobody waits for.
    let line = ["ramp", &file, "--target", &target, "--from", "1", "--factor", "1.1"];
    let more = ["--duration", "1s", "--warm", "0s", "--cpu", "1000"];
    let child = start(&[&line[..], &more].concat());
    until("a second step runs", || broker.deliveries() > 750);
    let output = interrupted(child);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| 1.")).collect();
    assert!(rows.len() >= 2, "{table}");
    assert!(rows[rows.len() - 1].ends_with("| cut short by a signal |"), "{table}");
    assert!(table.contains("Recommended load: ") && table.contains("(rate 1.0"), "{table}");
}

#[test]
fn a_comparison_ends_with_the_runs_that_it_has() {
    let broker = BadBroker::start(InjectedFault::None);
    let scenario = scenario("compared", 1_000);
    let file = scratch().join("signals-comparison.toml");
    let json = scratch().join("signals-comparison.json");
    let entry =
        |name| format!("[[broker]]\nname = \"{name}\"\nurl = \"tcp://{}\"\n", broker.address);
    let comparison = format!(
        "scenarios = [\"{scenario}\"]\nrounds = 3\nduration = \"1s\"\nwarm = \"0s\"\n{}{}",
        entry("first"),
        entry("second")
    );
    std::fs::write(&file, comparison).expect("the scratch folder is ours");
    let [file, json] = [&file, &json].map(|path| path.to_str().expect("the path is text"));
    let child = start(&["compare", file, "--json", json]);
    until("the second run goes on", || broker.deliveries() > 750);
    let output = interrupted(child);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("**Cut short by a signal**: 1 of 6 runs were made"), "{table}");
    assert!(table.contains("| first | 200 |"), "{table}");
    assert!(table.contains("| second | - |"), "{table}");
    let runs = std::fs::read_to_string(json).expect("it was written");
    let runs: Value = serde_json::from_str(&runs).expect("JSON");
    assert_eq!([&runs[0]["interrupted"], &runs[1]["interrupted"]], [false, true]);
}
