//! The load tester over QUIC, with godwit as the broker.

use crate::brokers::{CERTIFICATES, godwit_with};
use crate::program::{
    BenchRun, TestBrokerProcess, bench, failure, number, report, sampler, scratch,
};
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// Starts a godwit with a QUIC and a TCP listener on the same port.
fn secured() -> TestBrokerProcess {
    godwit_with(|port| {
        let set = |key: &str, file: &str| format!("tls.{key}={CERTIFICATES}/{file}");
        vec![
            "--listen".into(),
            format!("quic://127.0.0.1:{port}"),
            "--set".into(),
            set("certificate", "server.pem"),
            "--set".into(),
            set("key", "server.key"),
        ]
    })
}

fn conn(port: u16, more: &[&str]) -> (Value, BenchRun) {
    let port = port.to_string();
    let line = ["conn", "-h", "127.0.0.1", "-p", &port, "--quic", "true", "-c", "3", "-R", "1000"];
    let run = bench(&[&line[..], &["--duration", "500ms", "--json", "-"], more].concat());
    (serde_json::from_str(&run.stdout).expect("JSON"), run)
}

#[test]
fn quic_carries_the_same_messages() {
    let broker = secured();
    let target = format!("quic://{}", broker.address);
    for (qos, version) in [(0, 3), (1, 4), (2, 5)] {
        let scenario = format!(
            "connects_per_s = 1000\nwarm_s = 0.3\nmeasure_s = 0.7\n\
             [[group]]\nname = \"sub\"\nclients = 20\nsubscribe = [\"t/%i\"]\nqos = {qos}\n\
             version = {version}\n\
             [[group]]\nname = \"pub\"\nclients = 20\npublish = \"t/%i\"\nqos = {qos}\n\
             version = {version}\nper_s = 50\nsize = 128\n"
        );
        let file = scratch().join(format!("quic-{qos}.toml"));
        std::fs::write(&file, scenario).expect("the scratch folder is ours");
        let file = file.to_str().expect("the path is text");
        let line = ["run", file, "--target", &target, "--json", "-", "--threads", "2"];
        let run = bench(&line);
        let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(run.code, Some(0), "QoS {qos}: {}", run.stderr);
        assert_eq!(number(&report, "/messages/received"), 1_000.0);
        assert_eq!(sampler(&report, "Sub", "hits"), 700.0);
        // The process is found by its UDP port.
        assert_eq!(number(&report, "/target/pid"), f64::from(broker.id()));
    }
}

#[test]
fn a_closed_loop_of_large_messages_arrives_whole() {
    let broker = secured();
    let target = format!("quic://{}", broker.address);
    let file = scratch().join("quic-closed.toml");
    let scenario = "connects_per_s = 1000\nmeasure_s = 1\ndrain_s = 5\nwindow = 100\n\
         [[group]]\nname = \"sub\"\nclients = 4\nsubscribe = [\"t/#\"]\n\
         [[group]]\nname = \"pub\"\nclients = 4\npublish = \"t/%i\"\nas_taken = true\n\
         size = 100000\n";
    std::fs::write(&file, scenario).expect("the scratch folder is ours");
    let file = file.to_str().expect("the path is text");
    let local = ["--ifaddr", "127.0.0.2,127.0.0.3"];
    let line = ["run", file, "--target", &target, "--json", "-"];
    let run = bench(&[&line[..], &local].concat());
    let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let sent = number(&report, "/messages/sent");
    assert!(sent > 50.0, "{sent}");
    assert_eq!(number(&report, "/messages/received"), 4.0 * sent);
}

#[test]
fn a_server_of_quic_is_verified_where_a_ca_is_given() {
    let broker = secured();
    let port = broker.address.port();
    assert_eq!(conn(port, &[]).1.code, Some(0));
    assert_eq!(conn(port, &["--cacertfile", &format!("{CERTIFICATES}/ca.pem")]).1.code, Some(0));
    let (report, run) = conn(port, &["--cacertfile", &format!("{CERTIFICATES}/other-ca.pem")]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert_eq!(failure(&report, "invalid peer certificate"), 3, "{:#}", report["failures"]);
}

#[test]
fn a_port_where_nobody_speaks_quic_refuses() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has a port");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    let (report, run) = conn(port, &[]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert_eq!(failure(&report, "connection_refused"), 3, "{:#}", report["failures"]);
}

#[test]
fn the_death_of_a_broker_is_seen_over_quic_by_all_its_clients() {
    let broker = secured();
    let (scenario, target) = (scratch().join("quic-death.toml"), broker.address);
    let text = "connects_per_s = 1000\nmeasure_s = 3\ndrain_s = 1\nthreads = 2\n\
         [[group]]\nname = \"sub\"\nclients = 10\nsubscribe = [\"t/#\"]\n\
         [[group]]\nname = \"pub\"\nclients = 2\npublish = \"t/%i\"\nper_s = 50\nqos = 1\n";
    std::fs::write(&scenario, text).expect("the scratch folder is ours");
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(1_500));
        drop(broker);
    });
    let scenario = scenario.to_str().expect("the path is text");
    let target = format!("quic://{target}");
    let run = bench(&["run", scenario, "--target", &target, "--json", "-"]);
    killer.join().expect("it ends");
    let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_ne!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(failure(&report, "connection_refused"), 12, "{:#}", report["failures"]);
    assert!(number(&report, "/messages/sent") > 50.0);
}

#[test]
fn brokers_are_compared_over_quic() {
    drop(secured());
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_godwit-bench")).with_file_name("godwit");
    let file = scratch().join("quic-comparison.toml");
    let text = format!(
        "scenarios = [\"p2p-1k-1k-1k-1k\"]\nrounds = 1\nscale = 0.01\nrate = 20\nwarm = \"0s\"\n\
         duration = \"1s\"\n[[broker]]\nname = \"godwit\"\nurl = \"quic://127.0.0.1:{{port}}\"\n\
         command = \"{} serve --memory --listen quic://127.0.0.1:{{port}} \
         --set tls.certificate={CERTIFICATES}/server.pem \
         --set tls.key={CERTIFICATES}/server.key\"\n",
        own.display()
    );
    std::fs::write(&file, text).expect("the scratch folder is ours");
    let begun = Instant::now();
    let run = bench(&["compare", file.to_str().expect("text"), "--json", "-"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let rows: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(number(&rows[0], "/messages/received"), 200.0);
}

/// A scenario with a TCP target and a QUIC target delivers all messages.
#[test]
fn a_scenario_may_have_targets_of_both_kinds() {
    let broker = secured();
    let scenario = "connects_per_s = 1000\nmeasure_s = 1\n\
         [[group]]\nname = \"sub\"\nclients = 5\ntarget = 2\nsubscribe = [\"t/%i\"]\n\
         [[group]]\nname = \"pub\"\nclients = 5\ntarget = 1\npublish = \"t/%i\"\nper_s = 20\n";
    let second = format!("quic://{}", broker.address);
    let (report, run) = report(scenario, broker.address, &["--target", &second]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(number(&report, "/messages/received"), 100.0);
}
