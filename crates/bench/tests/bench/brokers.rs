//! Real brokers: godwit, built from this workspace, and mosquitto if installed.

use crate::gateway;
use crate::installed::installed;
use crate::program::{TestBrokerProcess, bench, number, report, sampler, scratch};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Starts the `godwit` next to the program under test, and builds it if it is missing.
fn godwit() -> TestBrokerProcess {
    godwit_with(|_| Vec::new())
}

/// Starts `godwit` with additional arguments, which may depend on its port.
pub(crate) fn godwit_with(more: impl Fn(u16) -> Vec<String>) -> TestBrokerProcess {
    let own = Path::new(env!("CARGO_BIN_EXE_godwit-bench"));
    let godwit = own.with_file_name("godwit");
    if !godwit.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "--quiet", "-p", "godwit"]).status();
        assert!(built.expect("cargo can be run").success());
    }
    let arguments = |port| {
        let listen = format!("tcp://127.0.0.1:{port}");
        let plain = ["serve", "--memory", "--listen", &listen].map(String::from);
        plain.into_iter().chain(more(port)).collect()
    };
    TestBrokerProcess::start(&godwit, arguments).expect("it was built")
}

fn mosquitto() -> Option<TestBrokerProcess> {
    mosquitto_with("")
}

/// Starts mosquitto with additional lines for its listener. Returns `None` if mosquitto is not
/// installed.
fn mosquitto_with(lines: &str) -> Option<TestBrokerProcess> {
    let program = installed("mosquitto", "mosquitto")?;
    TestBrokerProcess::start(&program, |port| {
        let file = scratch().join(format!("mosquitto-{port}.conf"));
        // The user stays who runs the test, and may read the certificates.
        // Without the last line it drops what a slow subscriber has not taken yet.
        let options = format!(
            "user root\nlistener {port} 127.0.0.1\n{lines}allow_anonymous true\n\
             max_queued_messages 0\n"
        );
        std::fs::write(&file, options).expect("the scratch folder is ours");
        vec!["-c".into(), file.to_string_lossy().into_owned()]
    })
}

fn each(check: impl Fn(&TestBrokerProcess)) {
    check(&godwit());
    if let Some(mosquitto) = mosquitto() {
        check(&mosquitto);
    }
}

#[test]
fn every_qos_and_version_arrives_whole() {
    each(|broker| {
        for (qos, version) in [(0, 3), (1, 4), (2, 5)] {
            let scenario = format!(
                "connects_per_s = 1000\nwarm_s = 0.3\nmeasure_s = 0.7\n\
                 [[group]]\nname = \"sub\"\nclients = 20\nsubscribe = [\"t/%i\"]\nqos = {qos}\n\
                 version = {version}\n\
                 [[group]]\nname = \"pub\"\nclients = 20\npublish = \"t/%i\"\nqos = {qos}\n\
                 version = {version}\nper_s = 50\nsize = 128\n"
            );
            let (report, run) = report(&scenario, broker.address, &["--threads", "2"]);
            assert_eq!(run.code, Some(0), "QoS {qos}: {}", run.stderr);
            assert_eq!(number(&report, "/messages/expected"), 1_000.0);
            assert_eq!(number(&report, "/messages/received"), 1_000.0);
            // Only what was due in the measured part is timed.
            assert_eq!(sampler(&report, "Sub", "hits"), 700.0);
            assert_eq!(number(&report, "/target/pid"), f64::from(broker.id()));
            assert!(number(&report, "/target_use/memory_kb/max") > 500.0);
        }
    });
}

#[test]
fn a_closed_loop_and_a_shared_subscription_arrive_whole() {
    each(|broker| {
        let scenario = "connects_per_s = 1000\nmeasure_s = 1\ndrain_s = 3\nwindow = 500\n\
             threads = 2\n\
             [[group]]\nname = \"sub\"\nclients = 4\nsubscribe = [\"$share/g/t/#\"]\nqos = 1\n\
             version = 5\n\
             [[group]]\nname = \"pub\"\nclients = 10\npublish = \"t/%i\"\nqos = 1\n\
             version = 5\nas_taken = true\n";
        let (report, run) = report(scenario, broker.address, &[]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let sent = number(&report, "/messages/sent");
        assert!(sent > 100.0);
        assert_eq!(number(&report, "/messages/received"), sent);
    });
}

#[test]
fn built_in_scenarios_run_by_name() {
    let broker = godwit();
    let target = broker.address.to_string();
    for (name, scale) in [
        ("fanout-5-1000-5-250k", "0.02"),
        ("emqx-fanin", "0.05"),
        ("emqx-10m-broadcast-q0", "0.00001"),
        ("conn-tcp-10k-100", "0.005"),
    ] {
        let line = ["run", name, "--scale", scale, "--duration", "1s", "--warm", "0s"];
        let run = bench(&[&line[..], &["--target", &target, "--markdown", "-"]].concat());
        assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
        assert!(run.stdout.contains("**Passed**"), "{}", run.stdout);
        assert!(run.stdout.contains("* Scaled: "), "{}", run.stdout);
    }
}

#[test]
fn pub_and_sub_print_the_lines_of_emqtt_bench() {
    let broker = godwit();
    let port = broker.address.port().to_string();
    let at = ["-h", "127.0.0.1", "-p", &port];
    let sub = std::thread::spawn({
        let port = port.clone();
        move || {
            let at = ["-h", "127.0.0.1", "-p", &port];
            bench(
                &[&["sub"], &at[..], &["-t", "b/#", "-c", "5", "-R", "100", "--duration", "3s"]]
                    .concat(),
            )
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    let line = ["-t", "b/%i", "-c", "10", "-R", "100", "-I", "50", "-q", "1", "-L", "200"];
    let run = bench(&[&["pub"], &at[..], &line[..]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        run.stdout.starts_with("Start with 1 workers, addrs pool size: 1 and req interval: 10 ms")
    );
    assert!(run.stdout.contains(" pub_succ total=200 rate="), "{}", run.stdout);
    assert!(run.stdout.contains("publish complete"), "{}", run.stdout);
    let sub = sub.join().expect("it ran");
    assert_eq!(sub.code, Some(0), "{}", sub.stderr);
    assert!(sub.stdout.contains(" recv total=1000 rate="), "{}", sub.stdout);
    // Two processes of one host: the latency is known across them.
    assert!(sub.stdout.contains("e2e_latency avg="), "{}", sub.stdout);
}

#[test]
fn brokers_are_compared_in_interleaved_rounds() {
    godwit();
    let own = Path::new(env!("CARGO_BIN_EXE_godwit-bench")).with_file_name("godwit");
    let file = scratch().join("comparison.toml");
    let text = format!(
        "scenarios = [\"p2p-1k-1k-1k-1k\"]\nrounds = 2\nscale = 0.01\nrate = 20\nwarm = \"0s\"\n\
         duration = \"500ms\"\n[[broker]]\nname = \"godwit\"\n\
         command = \"{} serve --memory --listen tcp://127.0.0.1:{{port}}\"\n\
         [[broker]]\nname = \"absent\"\ncommand = \"no-such-broker\"\ninstall = \"nowhere\"\n",
        own.display()
    );
    std::fs::write(&file, text).expect("the scratch folder is ours");
    let run = bench(&["compare", file.to_str().expect("text")]);
    let rounds: Vec<&str> = run.stderr.lines().filter(|line| line.contains("round")).collect();
    let expected = ["1 of 2, godwit", "1 of 2, absent", "2 of 2, godwit", "2 of 2, absent"];
    let expected = expected.map(|round| format!("p2p-1k-1k-1k-1k: round {round}"));
    assert_eq!(rounds, expected);
    let godwit = run.stdout.lines().find(|line| line.starts_with("| godwit |"));
    let is_whole = godwit.is_some_and(|row| !row.contains("| - |") && row.ends_with("|  |"));
    assert!(is_whole, "{}", run.stdout);
    assert!(run.stdout.contains("| absent | - | - |"), "{}", run.stdout);
    assert!(run.stdout.contains("to get it: nowhere"), "{}", run.stdout);
    assert_eq!(run.code, Some(1), "a broker that is not there is a fault");
}

/// Starts two mosquittos, the first bridged to the second. A broker whose entry has no bridge is
/// reported as such.
#[test]
fn a_scenario_of_two_brokers_bridges_them() {
    if mosquitto().is_none() {
        return;
    }
    let file = scratch().join("bridge.toml");
    let text = "rounds = 1\nduration = \"1s\"\nwarm = \"1s\"\nuse = [\"mosquitto\", \"rumqttd\"]\n\
                [[run]]\nscenario = \"emqx-bridge\"\nscale = 0.02\nrate = 2\n";
    std::fs::write(&file, text).expect("the scratch folder is ours");
    let json = scratch().join("bridge.json");
    let path = format!("/usr/sbin:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
    command.arg("compare").arg(&file).arg("--json").arg(&json).env("PATH", path);
    let output = command.output().expect("godwit-bench can be run");
    let table = String::from_utf8_lossy(&output.stdout);
    let reports = std::fs::read_to_string(&json).expect("it was written");
    let reports: serde_json::Value = serde_json::from_str(&reports).expect("JSON");
    // 10 bridged publishers and 10 pairs, 30 messages a second each, for two seconds.
    let expected = number(&reports[0], "/messages/expected");
    assert!(expected >= 1_200.0, "{table}");
    assert_eq!(number(&reports[0], "/messages/received"), expected, "{table}");
    assert!(table.contains("rumqttd: no bridge is known, and this scenario needs one"), "{table}");
    assert!(table.contains("mosquitto (mosquitto version"), "{table}");
}

#[test]
fn a_ramp_climbs_until_a_limit_and_recommends_a_load() {
    let broker = godwit();
    let target = broker.address.to_string();
    let line = ["ramp", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--from", "10", "--to", "40"];
    let more = ["--factor", "2", "--duration", "500ms", "--warm", "0s", "--cpu", "100"];
    let files = ["ramp.md", "ramp.json", "ramp.html"].map(|name| scratch().join(name));
    let [table, reports, page] = files.each_ref().map(|file| file.to_str().expect("text"));
    let forms = ["--markdown", table, "--json", reports];
    let run = bench(&[&line[..], &more[..], &forms, &["--target", &target]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let table = std::fs::read_to_string(table).expect("it was written");
    assert_eq!(table, run.stdout);
    let steps = ["| 10.000 | ", "| 20.000 | ", "| 40.000 | "];
    for part in steps.iter().chain(&["Recommended load: ", "* Command: `", "clients = 1000"]) {
        assert!(table.contains(part), "{part}: {table}");
    }
    let text = std::fs::read_to_string(reports).expect("it was written");
    let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rates = [0, 1, 2].map(|at| number(&list[at], "/ramp/rate"));
    assert_eq!(rates, [10.0, 20.0, 40.0]);
    assert_eq!(number(&list[1], "/messages/lost"), 0.0);
    assert!(number(&list[1], "/target_use/memory_kb/max") > 500.0);
    let recommended = |at: &usize| list[*at]["ramp"]["is_recommended"] == true;
    assert_eq!([0, 1, 2].iter().filter(|at| recommended(at)).count(), 1);
    // Every step's report can take the other forms.
    assert_eq!(bench(&["report", reports, "--html", page]).code, Some(0));
    let run = bench(
        &[
            &line[..2],
            &["--from", "1", "--to", "1", "--scale", "0.01"],
            &more[2..],
            &["--json", "-", "--target", &target],
        ]
        .concat(),
    );
    let list: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON and nothing else");
    assert_eq!(list.as_array().map(Vec::len), Some(1));
}

/// More busy processes than processors run beside the ramp, which must report that the host was
/// busy.
#[test]
fn a_ramp_says_that_the_host_was_busy_with_something_else() {
    let broker = godwit();
    let target = broker.address.to_string();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let others: Vec<BusyProcess> = (0..processors + 2).map(|_| BusyProcess::start()).collect();
    let line = ["ramp", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--from", "1", "--to", "1"];
    let more = ["--duration", "2s", "--warm", "0s", "--cpu", "50", "--target", &target];
    let json = scratch().join("busy.json");
    let page = scratch().join("busy.html");
    let paths = [&json, &page].map(|path| path.to_str().expect("text"));
    let run = bench(&[&line[..], &more, &["--json", paths[0]]].concat());
    drop(others);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let says = "the host, not the load, was busy: ";
    assert!(run.stdout.contains(says), "{}", run.stdout);
    assert!(run.stdout.contains("of the processors' time"), "{}", run.stdout);
    assert!(run.stderr.contains("use a host that has nothing else to do"), "{}", run.stderr);
    assert_eq!(bench(&["report", paths[0], "--html", paths[1]]).code, Some(0));
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains("No load of p2p-1k-1k-1k-1k is recommended."), "{page}");
    assert!(page.contains(says), "{page}");
}

/// A process that keeps a processor busy until it is dropped.
struct BusyProcess(std::process::Child);

impl BusyProcess {
    fn start() -> BusyProcess {
        let mut shell = Command::new("sh");
        BusyProcess(shell.args(["-c", "while :; do :; done"]).spawn().expect("there is a shell"))
    }
}

impl Drop for BusyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_test_without_an_end_ends_with_its_broker() {
    let broker = godwit();
    let port = broker.address.port().to_string();
    let line = ["pub", "-h", "127.0.0.1", "-p", &port, "-c", "3", "-t", "x", "-I", "50", "-i", "1"];
    let run = std::thread::scope(|scope| {
        let run = scope.spawn(|| bench(&line));
        std::thread::sleep(Duration::from_secs(2));
        drop(broker);
        run.join().expect("it ran")
    });
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stdout.contains(" connection_lost total=3 "), "{}", run.stdout);
}

/// Stands in for docker: the container is a pid namespace with two processes, and `docker` is a
/// script with docker's answers.
#[test]
fn a_container_is_watched_with_all_its_processes() {
    let file = scratch().join("contained.conf");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    let options = format!("user root\nlistener {port} 127.0.0.1\nallow_anonymous true\n");
    std::fs::write(&file, options).expect("the scratch folder is ours");
    let inside = format!("sleep 60 & exec mosquitto -c {}", file.display());
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--kill-child", "sh", "-c", &inside]);
    let path = format!("/usr/sbin:{}", std::env::var("PATH").unwrap_or_default());
    let mut container = container.env("PATH", path).spawn().expect("unshare can be run");
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begun.elapsed() > Duration::from_secs(5) {
            let _ = (container.kill(), container.wait());
            return eprintln!("no pid namespace or no mosquitto here: left out");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    let main = std::fs::read_to_string(children).expect("unshare has a child");
    let folder = scratch().join("docker");
    std::fs::create_dir_all(&folder).expect("the scratch folder is ours");
    let script = "#!/bin/sh\n[ \"$1 $4\" = \"inspect my-broker\" ] && echo ";
    let docker = folder.join("docker");
    std::fs::write(&docker, format!("{script}{main}")).expect("the scratch folder is ours");
    let made = Command::new("chmod").arg("755").arg(&docker).status();
    assert!(made.expect("chmod can be run").success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
    command.args([
        "run",
        "conn-tcp-10k-100",
        "--scale",
        "0.001",
        "--duration",
        "1s",
        "--json",
        "-",
    ]);
    command.args(["--container", "my-broker", "--target", &format!("127.0.0.1:{port}")]);
    let output = command.env("PATH", &folder).output().expect("godwit-bench can be run");
    let _ = (container.kill(), container.wait());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(number(&report, "/target/pid").to_string(), main.trim());
    assert_eq!(number(&report, "/target_use/threads/max"), 2.0, "mosquitto and sleep");
    let run = bench(&["run", "conn-tcp-10k-100", "--container", "no-such-container"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("neither docker nor podman runs it"), "{}", run.stderr);
}

/// A running container, and the command line of an engine that works on this host. Debian's podman
/// needs runc on a host with cgroups v1.
struct TestContainer {
    engine: Vec<&'static str>,
    name: String,
}

impl TestContainer {
    /// Runs a command of the engine. Returns its stderr as the error.
    fn run_engine(&self, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new(self.engine[0]).args(&self.engine[1..]).args(arguments).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or_else(said)
    }
}

impl Drop for TestContainer {
    fn drop(&mut self) {
        for remains in ["rm", "rmi"] {
            let _ = self.run_engine(&[remains, "-f", &self.name]);
        }
    }
}

fn contained(image: &str, port: u16, more: &[&str]) -> Option<TestContainer> {
    let listen = format!("tcp://127.0.0.1:{port}");
    let name = format!("godwit-bench-test-{port}");
    for engine in [&["docker"][..], &["podman"], &["podman", "--runtime", "runc"]] {
        let container = TestContainer { engine: engine.to_vec(), name: name.clone() };
        // Limits above those of whoever starts it are refused in a container of a container.
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
        let head = ["run", "-d", "--name", &name, "--network", "host"];
        let tail = [&name, "/godwit", "serve", "--memory", "--listen", &listen];
        if container.run_engine(&["import", image, &name]).is_ok()
            && container.run_engine(&[&head[..], &limits[..], more, &tail[..]].concat()).is_ok()
        {
            return Some(container);
        }
    }
    None
}

/// Returns the number of threads of the process whose command line ends with `words`.
fn threads_of(words: &str) -> u64 {
    let is = |process: &std::fs::DirEntry| {
        let line = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        line.replace('\0', " ").trim_end().ends_with(words)
    };
    let begun = Instant::now();
    loop {
        let mut processes = std::fs::read_dir("/proc").expect("it is there").flatten();
        if let Some(found) = processes.find(is) {
            return std::fs::read_dir(found.path().join("task")).expect("it is ours").count()
                as u64;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no process of {words} runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a free port below the ephemeral ports of the kernel (`ip_local_port_range`). No other
/// test can get the port before the broker listens, and no connection to the port can connect to
/// itself.
fn free_port() -> u16 {
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let of_process = std::process::id() as u16 % 1_000 * 10;
    for _ in 0..1_000 {
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let port = 20_000 + (of_process + next) % 10_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port of a thousand is free");
}

fn wait_until_it_listens(port: u16) {
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody listens on {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The statically linked godwit is a complete image. A second process in the container is watched
/// as well, with the pids of the container or of the host.
#[test]
fn a_container_of_a_real_engine_is_watched() {
    drop(godwit());
    let own = Path::new(env!("CARGO_BIN_EXE_godwit-bench"));
    let image = scratch().join("image.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(own.parent().expect("it is in a folder")).arg("-cf").arg(&image);
    assert!(tar.arg("godwit").status().is_ok_and(|status| status.success()), "tar can be run");
    for pids in [&[][..], &["--pid=host"]] {
        let (port, second) = (free_port(), free_port());
        let Some(container) = contained(image.to_str().expect("text"), port, pids) else {
            return eprintln!("neither docker nor podman can run a container here: left out");
        };
        let name = &container.name;
        wait_until_it_listens(port);
        let listen = format!("tcp://127.0.0.1:{second}");
        let second_one = ["exec", "-d", name, "/godwit", "serve", "--memory", "--listen", &listen];
        assert_eq!(container.run_engine(&second_one), Ok(()), "{:?}", container.engine);
        wait_until_it_listens(second);
        let threads = [port, second].map(|port| threads_of(&format!("tcp://127.0.0.1:{port}")));
        // Enough of them that its processor time is some of the 10 ms that the kernel counts in.
        let target = format!("127.0.0.1:{port}");
        let line = ["run", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--rate", "1000", "--warm", "0s"];
        let more = ["--duration", "2s", "--json", "-", "--target", &target, "--container", name];
        let run = bench(&[&line[..], &more[..]].concat());
        let ramp = ["ramp", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--from", "5", "--to", "5"];
        let ramp = bench(&[&ramp[..], &line[6..], &more[..]].concat());
        assert_eq!(
            container.run_engine(&["stop", "-t", "10", name]),
            Ok(()),
            "{:?}",
            container.engine
        );
        let stopped = bench(&[&line[..], &more[..]].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        let command = report["target"]["command"].as_str().unwrap_or_default();
        assert!(command.starts_with("/godwit serve"), "{command}");
        for figure in ["cpu/mean", "memory_kb/max", "net_in_per_s/mean"] {
            assert!(number(&report, &format!("/target_use/{figure}")) > 0.0, "{figure}");
        }
        let watched = number(&report, "/target_use/threads/max");
        assert_eq!(watched, threads.iter().sum::<u64>() as f64, "{pids:?}");
        let steps: serde_json::Value = serde_json::from_str(&ramp.stdout).expect("JSON");
        assert_eq!(number(&steps[0], "/target_use/threads/max"), watched, "{}", ramp.stderr);
        assert_eq!(stopped.code, Some(2), "{}", stopped.stderr);
        let says = "neither docker nor podman runs it";
        assert!(stopped.stderr.contains(says), "{}", stopped.stderr);
    }
}

pub(crate) const CERTIFICATES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/certificates");

#[test]
fn tls_and_websocket_carry_the_same_messages() {
    let tls = format!("certfile {CERTIFICATES}/server.pem\nkeyfile {CERTIFICATES}/server.key\n");
    let (secured, plain) = (mosquitto_with(&tls), godwit());
    let websocket = gateway::start(plain.address);
    let files = ["server.pem", "server.key"].map(|file| format!("{CERTIFICATES}/{file}"));
    let both = gateway::secured(websocket, &files[0], &files[1]);
    let mut targets = vec![format!("ws://{websocket}"), format!("wss://{both}")];
    targets.extend(secured.iter().map(|broker| format!("tls://{}", broker.address)));
    for target in targets {
        let line = ["run", "p2p-1k-1k-1k-1k", "--scale", "0.02", "--rate", "50", "--warm", "0s"];
        let more = ["--duration", "1s", "--target", &target, "--json", "-"];
        let run = bench(&[&line[..], &more[..]].concat());
        assert_eq!(run.code, Some(0), "{target}: {}", run.stderr);
        let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(number(&report, "/messages/received"), 1_000.0, "{target}");
    }
}

#[test]
fn a_server_is_verified_where_a_ca_is_given() {
    let tls = format!("certfile {CERTIFICATES}/server.pem\nkeyfile {CERTIFICATES}/server.key\n");
    let Some(broker) = mosquitto_with(&tls) else {
        return;
    };
    let port = broker.address.port().to_string();
    let conn = |more: &[&str]| {
        let line = ["conn", "-h", "127.0.0.1", "-p", &port, "-c", "3", "-S", "--duration", "500ms"];
        bench(&[&line[..], more].concat())
    };
    assert_eq!(conn(&[]).code, Some(0));
    let ca = format!("{CERTIFICATES}/ca.pem");
    assert_eq!(conn(&["--cacertfile", &ca]).code, Some(0));
    let other = format!("{CERTIFICATES}/other-ca.pem");
    let run = conn(&["--cacertfile", &other]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
}

#[test]
fn prometheus_reads_counters_while_a_test_runs() {
    let broker = godwit();
    let port = broker.address.port().to_string();
    let target = broker.address.to_string();
    let conn = ["conn", "-h", "127.0.0.1", "-p", &port, "-c", "7", "-R", "100", "--restapi"];
    let run = ["run", "conn-tcp-10k-100", "--scale", "0.0007", "--target", &target, "--metrics"];
    for line in [&conn[..], &run[..]] {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let place = free.local_addr().expect("it is bound").to_string();
        drop(free);
        let read = || -> Option<String> {
            let mut stream = std::net::TcpStream::connect(&place).ok()?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        };
        std::thread::scope(|scope| {
            let more = [&place, "--duration", "3s"];
            let run = scope.spawn(move || bench(&[line, &more[..]].concat()));
            let begun = Instant::now();
            while !read().is_some_and(|text| text.contains("\nconnect_succ 7\n")) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", read());
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(run.join().expect("it ran").code, Some(0));
        });
    }
}
