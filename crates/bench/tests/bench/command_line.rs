//! The command line without a real broker.

use crate::bad_broker::{BadBroker, InjectedFault};
use crate::program::{bench, number, scratch};
use std::process::{Command, Stdio};

#[test]
fn scenarios_are_listed_shown_and_can_be_copied() {
    let list = bench(&["scenarios"]);
    assert_eq!(list.code, Some(0));
    assert_eq!(list.stdout.lines().count(), 46);
    let show = bench(&["show", "p2p-1k-1k-1k-1k"]);
    assert!(show.stdout.contains("publish = \"p2p/%i\""), "{}", show.stdout);
    let copy = scratch().join("copy.toml");
    std::fs::write(&copy, show.stdout.replace("qos = 1", "qos = 9")).expect("a file of ours");
    let run = bench(&["run", copy.to_str().expect("text")]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("copy.toml: line 11: qos: use 0, 1 or 2"), "{}", run.stderr);
}

#[test]
fn what_is_wrong_is_said_before_anything_is_sent() {
    for (line, says) in [
        (&["run"][..], "Usage: godwit-bench run <SCENARIO|FILE.toml>"),
        (&["run", "no-such"], "no-such is not a scenario and not a file"),
        (&["run", "p2p-1k-1k-1k-1k", "--scale", "0"], "--scale 0: use a number above 0"),
        (&["run", "p2p-1k-1k-1k-1k", "--scale", "inf"], "--scale inf: use a number above 0"),
        (&["run", "p2p-1k-1k-1k-1k", "--rate", "1e12"], "1000000 are the most"),
        (&["pub", "-h", "127.0.0.1", "-t", "a", "-I", "-5"], "-5: use a number from 0 on"),
        (
            &["pub", "-h", "127.0.0.1", "-t", "a", "-r=perhaps"],
            "'perhaps' for '--retain [<BOOL>]': use true or false",
        ),
        (&["run", "emqx-bridge"], "needs 2 brokers"),
        (&["pub", "-h", "127.0.0.1"], "pub needs --topic"),
        (&["conn", "--quic", "o.eterm", "-h", "127.0.0.1"], "--quic o.eterm: use true or false"),
        (&["conn", "--quic", "true", "--ws"], "--quic and --ws: use one of them"),
        (&["run", "p2p-1k-1k-1k-1k", "--target", "http://127.0.0.1"], "http is not spoken here"),
        (&["conn", "--load-qst", "tickets"], "--load-qst tickets: leave it out"),
        (&["conn", "--qoelog", "q.csv"], "--qoelog q.csv: use --json FILE"),
        (&["conn", "-Q", "dump"], "--qoe dump: use --json FILE"),
        (&["conn", "--ssl-version", "tlsv1.1"], "--ssl-version tlsv1.1: use tlsv1.2 or tlsv1.3"),
        (&["conn", "--ciphers", "a"], "--ciphers a: leave it out"),
        (&["pub", "-t", "a", "--topics-payload", "p.json"], "p.json: write a scenario with a"),
        (&["pub", "-t", "a", "--retry-interval", "5"], "--retry-interval 5: leave it out"),
        (&["pub", "-t", "a", "--keep-connected", "true"], "--keep-connected true: leave it out"),
        (&["pub", "mqtt://127.0.0.1", "-t", "a"], "write -h mqtt://127.0.0.1"),
        (
            &["conn", "-h", "127.0.0.1", "-i", "10d"],
            "--interval 10d: use a number from 0 on, milliseconds",
        ),
        (&["run", "p2p-1k-1k-1k-1k", "--connrate", "0"], "--connrate 0: use a number above 0"),
        (&["run", "p2p-1k-1k-1k-1k", "--json", "no-such/r.json"], "no-such/r.json: No such file"),
        (&["conn", "-h", "127.0.0.1", "--json", "no-such/r.json"], "no-such/r.json: No such file"),
        (&["ramp", "p2p-1k-1k-1k-1k", "--ifaddr", "eth0"], "eth0 is not an IP address"),
        (&["conn", "-h", "127.0.0.1", "-c", "0"], "--count 0: use a whole number from 1 to"),
        (
            &["conn", "-h", "127.0.0.1", "--pid", "me"],
            "--pid me: use a whole number from 0 to 4294967295",
        ),
        (&["conn", "-h", "127.0.0.1", "-c", "-1"], "--count -1: use a whole number from 1 to"),
        (&["conn", "-p", "70000"], "--port 70000: use a whole number from 1 to 65535"),
        (&["conn", "-h", ""], "\"\" is not an address: use HOST, HOST:PORT"),
        (&["conn", "-h", "127.0.0.1", "-n", "18446744073709551615"], "--startnumber 184467"),
        (&["conn", "-h", "127.0.0.1", "--threads", "9999"], "use a whole number from 0 to 1024"),
        (&["conn", "-h", "127.0.0.1", "-k", "70000"], "use whole seconds from 0 to 65535"),
        (&["pub", "-h", "127.0.0.1", "-t", "a", "-q", "x"], "--qos x: use 0, 1 or 2"),
        (&["pub", "-h", "127.0.0.1", "-t", "a", "-F", "65536"], "from 0 to 65535"),
        (
            &["pub", "-h", "127.0.0.1", "-t", "a/#"],
            "--topic \"a/#\" has a wildcard (+ or #), which",
        ),
        (&["pub", "-h", "127.0.0.1", "-t", ""], "--topic \"\" is empty"),
        (&["sub", "-h", "127.0.0.1", "-t", "a/#/b"], "--topic \"a/#/b\" has a # that is not the"),
        (&["sub", "-h", "127.0.0.1", "-t", "$share/g"], "\"$share/g\" is not $share/GROUP/FILTER"),
        (&["run", "p2p-1k-1k-1k-1k", "--scale", "1e300"], "clients, 1000000000 are the most"),
        (&["run", "p2p-1k-1k-1k-1k", "--duration", "1e400"], "--duration 1e400: use 90s"),
        (&["ramp", "p2p-1k-1k-1k-1k", "--p99", "nan"], "--p99 nan: use a number above 0"),
        (&["agent"], "agents want a token"),
        (&["run", "p2p-1k-1k-1k-1k", "--agents", "127.0.0.1:1"], "agents want a token"),
        (&["run", "p2p-1k-1k-1k-1k", "--host-metrics", "127.0.0.1:1"], "agents want a token"),
        (&["run", "p2p-1k-1k-1k-1k", "--agents", "127.0.0.1:1", "--metrics", "1"], "--metrics: "),
        (&["run", "p2p-1k-1k-1k-1k", "--container", "x", "--host-metrics", "h:1"], "--container: "),
        (&["ramp", "p2p-1k-1k-1k-1k", "--json", "no-such/r.json"], "no-such/r.json: No such file"),
        (&["ramp", "p2p-1k-1k-1k-1k", "--container", "no-such"], "neither docker nor podman runs"),
        (&["ramp", "p2p-1k-1k-1k-1k", "--host-metrics", "127.0.0.1:1"], "agents want a token"),
        (&["ramp", "emqx-bridge"], "needs 2 brokers"),
        (&["scenarios", "fanout"], "Usage: godwit-bench scenarios"),
        (&["brokers", "all"], "Usage: godwit-bench brokers"),
        (&["show"], "Usage: godwit-bench show <NAME>"),
        (&["compare"], "Usage: godwit-bench compare <FILE.toml>"),
        (&["compare", "x.toml", "--html"], "a value is required for '--html <FILE>'"),
        (&["report", "no-such.json"], "no-such.json: No such file"),
        (&["fly"], "unrecognized subcommand 'fly'"),
        (&["conn", "--nonsense"], "unexpected argument '--nonsense' found"),
        (&["conn", "--intervall", "1"], "a similar argument exists: '--interval'"),
    ] {
        let run = bench(line);
        assert_eq!(run.code, Some(2), "{line:?}: {}", run.stderr);
        assert!(run.stderr.contains(says), "{line:?}: {}", run.stderr);
    }
}

#[test]
fn only_a_report_is_taken_for_one() {
    let file = scratch().join("no-report.json");
    let path = file.to_str().expect("text");
    for text in ["{}", "[]", "7", "[{}]", r#"{"tool":"jmeter"}"#] {
        std::fs::write(&file, text).expect("the scratch folder is ours");
        let run = bench(&["report", path]);
        assert_eq!(run.code, Some(2), "{text}: {}", run.stdout);
        let says =
            format!("{path}: this is not a report of godwit-bench: the file is JSON without");
        assert!(run.stderr.contains(&says), "{text}: {}", run.stderr);
    }
    for (text, report, compare) in [
        (
            "<!doctype html>",
            "the file is HTML, such as --html writes; use the JSON",
            "this is HTML",
        ),
        ("# a heading\n\ntext", "the file is Markdown", "this is Markdown"),
        ("rounds = 3", "the file is TOML", "a comparison needs scenarios"),
        ("\n", "the file is empty", "a comparison needs scenarios"),
        (r#"{"tool":"#, "not JSON: EOF while", "line 1: not TOML: "),
        (r#"{"tool":"godwit-bench"}"#, "", "this is JSON with a report, and not the plan"),
        ("\u{FEFF}{\"tool\":\"godwit-bench\"}", "", "this is JSON with a report"),
        (r#"[{"error":"no"}]"#, "", "this is JSON with the reports of a comparison, and not"),
    ] {
        std::fs::write(&file, text).expect("the scratch folder is ours");
        for (subcommand, says) in [("report", report), ("compare", compare)] {
            let run = bench(&[subcommand, path]);
            assert!(run.stderr.contains(says), "{subcommand} {text}: {}", run.stderr);
            assert_eq!(run.code, Some(if says.is_empty() { 0 } else { 2 }), "{text}");
            assert_eq!(run.stderr.lines().count(), usize::from(!says.is_empty()), "{}", run.stderr);
        }
    }
    let row = r#"[{"scenario":{"name":"x"},"error":"not installed","faults":["not installed"]}]"#;
    std::fs::write(&file, row).expect("the scratch folder is ours");
    let run = bench(&["report", path]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("* not installed"), "{}", run.stdout);
}

#[test]
fn a_closed_loop_is_not_dealt_out_to_agents() {
    let file = scratch().join("closed-loop.toml");
    let text = "[[group]]\nname = \"pub\"\nclients = 1\npublish = \"t\"\nas_taken = true\n";
    std::fs::write(&file, text).expect("the scratch folder is ours");
    let run = bench(&["run", file.to_str().expect("text"), "--agents", "127.0.0.1:1"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("a closed loop cannot be shared by agents"), "{}", run.stderr);
}

#[test]
fn a_test_that_cannot_fit_names_the_command_that_makes_room() {
    let line = ["run", "conn-tcp-1m-5k", "--target", "127.0.0.1:1"];
    let run = bench(&line);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let says = run.stderr.contains("ulimit -n 1000") || run.stderr.contains("--ifaddr 127.0.0.1,");
    assert!(says, "{}", run.stderr);
}

#[test]
fn nobody_at_home_is_no_result() {
    let run = bench(&["run", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--target", "127.0.0.1:1"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("failure: connection_refused: 20"), "{}", run.stderr);
    let run = bench(&["ramp", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--target", "127.0.0.1:1"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("no client was connected: connection_refused"), "{}", run.stderr);
    assert_eq!(run.stdout, "");
}

/// A test without published messages reports no success: neither in a line, nor in the report, nor
/// by the exit code.
#[test]
fn nothing_published_is_not_complete() {
    let at = ["-h", "127.0.0.1", "-p", "1", "-c", "3", "-t", "a", "-I", "10"];
    let run = bench(&[&["pub"][..], &at, &["-L", "20"]].concat());
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(!run.stdout.contains("publish complete"), "{}", run.stdout);
    let says = "publish not complete: 0 of 20 messages were published";
    assert!(run.stdout.contains(says), "{}", run.stdout);
    assert!(run.stderr.contains("FAULT: nothing was published"), "{}", run.stderr);
    // The first is never acknowledged, and so the others wait until the time is up.
    let broker = BadBroker::start(InjectedFault::ForgetAckEvery(1));
    let port = broker.address.port().to_string();
    let line = ["pub", "-h", "127.0.0.1", "-p", &port, "-c", "1", "-t", "a", "-q", "1", "-I", "10"];
    let run = bench(&[&line[..], &["-L", "20", "--duration", "500ms"]].concat());
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let says = "publish not complete: 1 of 20 messages were published";
    assert!(run.stdout.contains(says), "{}", run.stdout);
}

/// `--log_to null` disables the output lines, as in emqtt_bench.
#[test]
fn lines_can_be_left_out() {
    let broker = BadBroker::start(InjectedFault::None);
    let port = broker.address.port().to_string();
    let line = ["pub", "-h", "127.0.0.1", "-p", &port, "-c", "1", "-t", "a", "-I", "10", "-L", "3"];
    let run = bench(&[&line[..], &["--log_to", "null"]].concat());
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
}

/// A test without a time limit ends if all clients failed to connect, because no client tries
/// again.
#[test]
fn a_test_without_an_end_ends_where_no_client_came_in() {
    let run = bench(&["conn", "-h", "127.0.0.1", "-p", "1", "-c", "3"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("failure: connection_refused: 3"), "{}", run.stderr);
}

#[test]
fn a_process_that_is_not_there_is_not_watched_in_silence() {
    let line = ["run", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--target", "127.0.0.1:1"];
    let run = bench(&[&line[..], &["--pid", "4294967295"]].concat());
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("no process has the id 4294967295 on this host"), "{}", run.stderr);
}

#[test]
fn a_comparison_is_read_to_its_end_before_anything_is_run() {
    let file = scratch().join("no-scenario.toml");
    let text = "scenarios = [\"p2p-1k-1k-1k-1k\", \"p2p-1k\"]\nuse = [\"godwit\"]\n";
    std::fs::write(&file, text).expect("the scratch folder is ours");
    let file = file.to_str().expect("text");
    let run = bench(&["compare", file]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("p2p-1k is not a scenario and not a file"), "{}", run.stderr);
    assert!(!run.stderr.contains("round 1"), "{}", run.stderr);
}

/// A closed pipe, as in `godwit-bench scenarios | head -1`, ends the program without a failure.
#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let broker = BadBroker::start(InjectedFault::None);
    let (target, port) = (broker.address.to_string(), broker.address.port().to_string());
    let run = ["run", "p2p-1k-1k-1k-1k", "--scale", "0.001", "--duration", "100ms", "--warm", "0s"];
    let publish = ["pub", "-h", "127.0.0.1", "-p", &port, "-t", "a", "-c", "1", "-I", "1"];
    for (line, code) in [
        (&["scenarios"][..], 0),
        (&["show", "composite"], 0),
        (&["--help"], 0),
        (&["brokers"], 0),
        (&["run", "no-such"], 2),
        (&[&run[..], &["--target", &target, "--json", "-"]].concat(), 0),
        (&[&publish[..], &["-L", "5"]].concat(), 0),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
        let writer = || std::io::pipe().expect("a descriptor is left").1;
        command.args(line).stdin(Stdio::null()).stdout(writer()).stderr(writer());
        let status = command.status().expect("godwit-bench can be run");
        assert_eq!(status.code(), Some(code), "{line:?}");
    }
}

#[test]
fn stdout_is_the_report_alone_where_the_report_is_wanted_there() {
    let broker = BadBroker::start(InjectedFault::None);
    let port = broker.address.port().to_string();
    let line = ["pub", "-h", "127.0.0.1", "-p", &port, "-c", "1", "-t", "a", "-I", "10", "-L", "3"];
    let run = bench(&[&line[..], &["--json", "-"]].concat());
    let report = serde_json::from_str(&run.stdout).expect("JSON and nothing else");
    assert_eq!(number(&report, "/counts/pub"), 3.0);
    assert!(run.stderr.starts_with("Start with 1 workers"), "{}", run.stderr);
    assert!(run.stderr.contains(" pub total=3 "), "{}", run.stderr);
}

#[test]
fn help_is_an_answer_and_no_mistake() {
    let all = ["conn", "pub", "sub", "scenarios", "show", "run", "report", "ramp", "compare"];
    for subcommand in all.iter().chain(&["agent", "brokers"]) {
        let run = bench(&[subcommand, "--help"]);
        assert_eq!(run.code, Some(0), "{subcommand}");
        let usage = format!("Usage: godwit-bench {subcommand}");
        assert!(run.stdout.contains(&usage), "{subcommand}: {}", run.stdout);
    }
    for arguments in [&["-h"][..], &["help"], &[]] {
        let run = bench(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}");
        assert!(run.stdout.contains("Usage: godwit-bench <COMMAND>"), "{}", run.stdout);
    }
}

#[test]
fn completions_and_man_pages_have_the_flags() {
    for shell in ["bash", "fish", "zsh"] {
        let run = bench(&["completions", shell]);
        assert_eq!(run.code, Some(0), "{shell}: {}", run.stderr);
        assert!(run.stdout.contains("interval_of_msg"), "{shell}: {}", run.stdout);
        let file = scratch().join(shell);
        std::fs::write(&file, run.stdout).expect("the scratch folder is ours");
        // Where the host has the shell.
        if let Ok(read) = Command::new(shell).arg("-n").arg(&file).output() {
            let why = String::from_utf8_lossy(&read.stderr);
            assert!(read.status.success() && why.is_empty(), "{shell}: {why}");
        }
    }
    let folder = scratch().join("man");
    let written = bench(&["man", "--out", folder.to_str().expect("text")]);
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{}", written.stderr);
    let page = std::fs::read_to_string(folder.join("godwit-bench-pub.1")).expect("it is written");
    assert!(page.contains("\\-\\-interval_of_msg"), "{page}");
    assert_eq!(page, bench(&["man", "pub"]).stdout);
    assert_eq!(bench(&["man", "--out", "/dev/null/man"]).code, Some(3));
}

#[test]
fn help_names_every_flag_with_its_default() {
    for subcommand in ["conn", "pub", "sub", "run"] {
        let help = bench(&[subcommand, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.stdout.contains("--ifaddr <IPS>"), "{}", help.stdout);
    }
    assert!(bench(&["pub", "--help"]).stdout.contains("-F, --inflight <N>"));
}

/// The options of emqtt_bench about clients appear in their CONNECTs.
#[test]
fn flags_about_clients_are_in_their_connects() {
    let broker = BadBroker::start(InjectedFault::None);
    let port = broker.address.port().to_string();
    let line = ["conn", "-h", "127.0.0.1,127.0.0.1", "-p", &port, "-c", "3", "-i", "5", "-n", "6"];
    let more = ["--prefix", "p", "-V", "5", "-C", "false", "-x", "60", "-k", "77", "-u", "u%i"];
    let end = ["-P", "secret", "--ifaddr", "127.0.0.2,127.0.0.3", "--duration", "500ms"];
    let run = bench(&[&line[..], &more[..], &end[..]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let mut greetings = broker.greetings();
    greetings.sort();
    let expected = [7, 8, 9]
        .map(|n| format!("V5 p_bench_conn_{n} u{n}:secret clean=false keep_alive=77 expiry=60"));
    assert_eq!(greetings, expected);
    assert_eq!(broker.peers(), ["127.0.0.2", "127.0.0.3"]);
    let line = ["conn", "-h", "127.0.0.1", "-p", &port, "-c", "1", "-V", "3", "--shortids"];
    let run = bench(&[&line[..], &["--duration", "300ms"]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let last = broker.greetings().pop();
    assert_eq!(last.as_deref(), Some("V31 1 : clean=true keep_alive=300 expiry=0"));
}

/// 192.0.2.1 is reserved for documentation (RFC 5737), so no host has this address.
#[test]
fn an_address_that_is_not_ours_is_told_before_anything_is_sent() {
    let broker = BadBroker::start(InjectedFault::None);
    let port = broker.address.port().to_string();
    let run = bench(&["conn", "-h", "127.0.0.1", "-p", &port, "-c", "1", "--ifaddr", "192.0.2.1"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("192.0.2.1 is not an address of this host"), "{}", run.stderr);
    assert_eq!(broker.greetings().len(), 0);
}

#[test]
fn clients_take_the_targets_in_turn_and_connect_at_their_rate() {
    let brokers = [BadBroker::start(InjectedFault::None), BadBroker::start(InjectedFault::None)];
    let targets = brokers.each_ref().map(|broker| broker.address.to_string());
    let line = ["run", "conn-tcp-10k-100", "--scale", "0.002", "--duration", "100ms"];
    let more = ["-R", "20", "--json", "-", "--target", &targets[0], "--target", &targets[1]];
    let run = bench(&[&line[..], &more].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(brokers.each_ref().map(|broker| broker.greetings().len()), [10, 10]);
    let report = serde_json::from_str(&run.stdout).expect("JSON");
    // The last of twenty comes 19 intervals of 50 ms after the first.
    let connecting_s = number(&report, "/phases_s/connect");
    assert!((0.95..3.0).contains(&connecting_s), "{connecting_s} s");
}

/// Ten clients connect within half a second and publish every 10 ms, with and without `-w`.
#[test]
fn who_waits_before_publishing_waits_for_all() {
    for (flags, all_were_there) in [(&["-w"][..], true), (&[], false)] {
        let broker = BadBroker::start(InjectedFault::None);
        let port = broker.address.port().to_string();
        let line = ["pub", "-h", "127.0.0.1", "-p", &port, "-c", "10", "-R", "20", "-t", "a"];
        let run = bench(&[&line[..], &["-I", "10", "-L", "100"], flags].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(broker.greeted_first() == 10, all_were_there, "{}", broker.greeted_first());
    }
}

#[test]
fn unacknowledged_messages_are_bounded_as_their_flag_says() {
    for (inflight, sent) in [("1", 1), ("3", 3), ("0", 20)] {
        let broker = BadBroker::start(InjectedFault::ForgetAckEvery(1));
        let port = broker.address.port().to_string();
        let line = ["pub", "-h", "127.0.0.1", "-p", &port, "-c", "1", "-t", "a", "-q", "1"];
        let more = ["-I", "10", "-L", "20", "--duration", "1s", "-F", inflight];
        let run = bench(&[&line[..], &more].concat());
        assert_eq!(broker.messages().len(), sent, "-F {inflight}: {}", run.stderr);
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        let says = format!("FAULT: {sent} messages were never acknowledged");
        assert!(run.stderr.contains(&says), "{}", run.stderr);
    }
}

/// The broker refuses the second connection, and accepts a further attempt.
#[test]
fn a_first_connection_is_tried_as_often_as_its_flag_says() {
    for (retries, connected) in [("0", 1.0), ("1", 2.0)] {
        let broker = BadBroker::start(InjectedFault::RefuseEvery(2));
        let port = broker.address.port().to_string();
        let line = ["conn", "-h", "127.0.0.1", "-p", &port, "-c", "2", "-i", "1", "--json", "-"];
        let more = ["--duration", "1500ms", "--num-retry-connect", retries];
        let run = bench(&[&line[..], &more].concat());
        let report = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(number(&report, "/counts/connect_succ"), connected, "{}", run.stderr);
        assert_eq!(number(&report, "/counts/connect_fail"), 1.0, "{}", run.stderr);
        assert_eq!(number(&report, "/counts/connect_retried"), connected - 1.0);
    }
}

#[test]
fn a_message_is_what_its_flags_say() {
    let file = scratch().join("message.txt");
    std::fs::write(&file, "of a file").expect("the scratch folder is ours");
    let template = format!("template://{}", file.display());
    for (flags, topic, payload) in [
        (&["-t", "d", "-m", &template][..], "d", "of a file"),
        (&["-t", "a/%c/%i/%u/x%s", "-u", "me", "-m", "text"], "a/p1/1/me/x0", "text"),
        (&["-t", "b", "-s", "3"], "b", "xxx"),
        (&["-t", "c", "--payload-hdrs", "cnt64", "-s", "1"], "c", "\0\0\0\0\0\0\0\0x"),
    ] {
        let broker = BadBroker::start(InjectedFault::None);
        let port = broker.address.port().to_string();
        let line = ["pub", "-h", "127.0.0.1", "-p", &port, "-c", "1", "-I", "10", "-L", "1"];
        let more = ["--prefix", "p", "--shortids", "-q", "1", "-r", "true", "-w"];
        let run = bench(&[&line[..], &more[..], flags].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(broker.messages(), [format!("{topic} qos=1 retain=true {payload}")]);
    }
}
