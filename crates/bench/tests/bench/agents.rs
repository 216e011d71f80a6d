//! Load from several agent processes with one controller.

use crate::bad_broker::{BadBroker, InjectedFault};
use crate::program::{BenchRun, number, sampler, scratch};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const TOKEN: &str = "a token of the tests";

pub(crate) struct AgentProcess {
    child: Child,
    pub(crate) address: String,
}

impl AgentProcess {
    pub(crate) fn start() -> AgentProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
        command.args(["agent", "--listen", "127.0.0.1:0"]).env("GODWIT_BENCH_TOKEN", TOKEN);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("godwit-bench can be run");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says where it listens");
        let address = line.trim().rsplit(' ').next().expect("an address").to_string();
        thread::spawn(move || lines.lines().for_each(drop));
        AgentProcess { child, address }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn control(
    agents: &[&AgentProcess],
    broker: &BadBroker,
    token: &str,
    scenario: &str,
    more: &[&str],
) -> BenchRun {
    let file = scratch().join(format!("agents-{}.toml", broker.address.port()));
    std::fs::write(&file, scenario).expect("the scratch folder is ours");
    let agents: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
    command.arg("run").arg(&file).args(["--agents", &agents.join(","), "--json", "-"]);
    command.args(["--target", &broker.address.to_string()]).env("GODWIT_BENCH_TOKEN", token);
    let output = command.args(more).stdin(Stdio::null()).output().expect("godwit-bench can be run");
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    BenchRun {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Returns a scenario whose subscribers and publishers are on different agents: clients are
/// assigned to agents in turn.
fn scenario(seconds: u32) -> String {
    format!(
        "connects_per_s = 1000\nmeasure_s = {seconds}\ndrain_s = 0.5\n\
         [[group]]\nname = \"sub\"\nclients = 3\nsubscribe = [\"t/#\"]\nqos = 1\n\
         [[group]]\nname = \"pub\"\nclients = 4\npublish = \"t/%i\"\nqos = 1\nper_s = 50\n"
    )
}

#[test]
fn two_agents_are_one_test() {
    let (a, b) = (AgentProcess::start(), AgentProcess::start());
    for (fault, lost) in [(InjectedFault::None, 0), (InjectedFault::DropEvery(10), 60)] {
        let broker = BadBroker::start(fault);
        let run = control(&[&a, &b], &broker, TOKEN, &scenario(1), &["--ifaddr", "127.0.0.5"]);
        let report: Value = serde_json::from_str(&run.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", run.stderr));
        assert_eq!(number(&report, "/messages/sent"), 200.0);
        assert_eq!(number(&report, "/messages/expected"), 600.0);
        assert_eq!(number(&report, "/messages/lost"), f64::from(lost), "{}", run.stderr);
        assert_eq!(number(&report, "/messages/lost"), broker.injected() as f64);
        assert_eq!(sampler(&report, "Connect", "hits"), 7.0);
        assert_eq!(sampler(&report, "Sub", "hits"), f64::from(600 - lost));
        let clients: u64 =
            [0, 1].map(|at| report["agents"][at]["clients"].as_u64()).iter().flatten().sum();
        assert_eq!(clients, 7);
        assert_eq!(broker.peers(), ["127.0.0.5"]);
        // The controller watches the broker, which lives in this process.
        assert_eq!(number(&report, "/target/pid"), f64::from(std::process::id()));
        assert!(number(&report, "/target_use/memory_kb/max") > 500.0);
        assert_eq!(run.code, Some(i32::from(lost > 0)), "{}", run.stderr);
    }
}

#[test]
fn an_agent_sends_nothing_for_a_stranger() {
    let agent = AgentProcess::start();
    let broker = BadBroker::start(InjectedFault::None);
    let run = control(&[&agent], &broker, "a token of somebody else", &scenario(1), &[]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("no agent came to an end"), "{}", run.stderr);
    assert_eq!(broker.deliveries(), 0);
    // The stranger has not kept the agent from its own controller.
    let run = control(&[&agent], &broker, TOKEN, &scenario(1), &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

#[test]
fn an_agent_that_has_sent_load_ends_with_a_signal() {
    let mut agent = AgentProcess::start();
    let broker = BadBroker::start(InjectedFault::None);
    let run = control(&[&agent], &broker, TOKEN, &scenario(1), &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let killed = Command::new("kill").arg(agent.child.id().to_string()).status();
    assert!(killed.expect("kill can be run").success());
    let begun = Instant::now();
    while agent.child.try_wait().expect("it is ours").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(5), "it goes on");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_death_of_an_agent_is_in_the_report() {
    let (a, mut b) = (AgentProcess::start(), AgentProcess::start());
    let broker = BadBroker::start(InjectedFault::None);
    let address = b.address.clone();
    let run = thread::scope(|scope| {
        let run = scope.spawn(|| {
            let agents = [&a.address, &address].map(String::as_str);
            let file = scratch().join("agent-dies.toml");
            std::fs::write(&file, scenario(3)).expect("the scratch folder is ours");
            let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
            command.arg("run").arg(&file).args(["--agents", &agents.join(","), "--json", "-"]);
            command.args(["--target", &broker.address.to_string()]);
            let output = command.env("GODWIT_BENCH_TOKEN", TOKEN).output();
            output.expect("godwit-bench can be run")
        });
        thread::sleep(Duration::from_millis(2_000));
        b.child.kill().expect("it runs");
        run.join().expect("it ran")
    });
    assert_eq!(run.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let faults = report["faults"].to_string();
    assert!(faults.contains(&format!("agent {address} died")), "{faults}");
    assert!(number(&report, "/counts/pub") > 100.0, "the other one went on");
}

#[test]
fn an_agent_watches_the_host_of_the_broker() {
    let agent = AgentProcess::start();
    let broker = BadBroker::start(InjectedFault::None);
    let file = scratch().join("watched.toml");
    std::fs::write(&file, scenario(2)).expect("the scratch folder is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
    command.arg("run").arg(&file).args(["--host-metrics", &agent.address, "--json", "-"]);
    command.args(["--target", &broker.address.to_string()]).env("GODWIT_BENCH_TOKEN", TOKEN);
    let output = command.output().expect("godwit-bench can be run");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // The bad broker lives in this process.
    assert_eq!(number(&report, "/target/pid"), f64::from(std::process::id()));
    assert!(number(&report, "/target_use/memory_kb/max") > 500.0);
    assert!(number(&report, "/target_use/host_cpu/max") > 0.0);
}
