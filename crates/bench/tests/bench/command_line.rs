//! What the command line answers, without any broker.

use crate::program::{bench, scratch};

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
        (&["run"][..], "run needs one scenario"),
        (&["run", "no-such"], "no-such is no scenario and no file"),
        (&["run", "p2p-1k-1k-1k-1k", "--scale", "0"], "factors above 0"),
        (&["run", "emqx-bridge"], "needs 2 brokers"),
        (&["pub", "-h", "127.0.0.1"], "pub needs --topic"),
        (&["conn", "--quic", "true", "-h", "127.0.0.1"], "--quic: QUIC is not spoken yet"),
        (&["fly"], "fly is no subcommand"),
        (&["conn", "--nonsense"], "--nonsense is no flag"),
    ] {
        let run = bench(line);
        assert_eq!(run.code, Some(2), "{line:?}: {}", run.stderr);
        assert!(run.stderr.contains(says), "{line:?}: {}", run.stderr);
    }
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
}

#[test]
fn help_names_every_flag_with_its_default() {
    for subcommand in ["conn", "pub", "sub", "run"] {
        let help = bench(&[subcommand, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.stdout.contains("--ifaddr IPS"), "{}", help.stdout);
    }
    assert!(bench(&["pub", "--help"]).stdout.contains("-F, --inflight N"));
}
