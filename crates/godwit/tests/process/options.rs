//! Command lines, files and options: wrong ones are refused with an error text, and valid ones are
//! accepted.

use crate::broker::{TestBroker, godwit, run, scratch};
use std::net::TcpListener;
use std::path::Path;

fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(stdout, "");
    (code, stderr)
}

#[test]
fn a_wrong_file_is_refused_with_every_line_and_exit_code_2() {
    let file = scratch("wrong-file").join("godwit.toml");
    std::fs::write(&file, "shards = 100\n\n[queue]\npolcy = \"drop_oldest\"\n").unwrap();
    let file = file.to_str().unwrap();
    for subcommand in ["serve", "check"] {
        let (code, stderr) = refusal(&[subcommand, "--config", file, "--set", "x=1"]);
        assert_eq!(code, Some(2));
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(lines.len(), 3, "{stderr}");
        let polcy =
            format!("godwit: {file}:4: queue.polcy is not an option, did you mean queue.policy?");
        let shards = format!("godwit: {file}:1: shards = 100: out of range, use 0 to 64 threads");
        assert!(lines.contains(&polcy.as_str()), "{stderr}");
        assert!(lines.contains(&shards.as_str()), "{stderr}");
        assert!(stderr.contains("godwit: --set x: x is not an option"), "{stderr}");
    }
}

#[test]
fn what_is_not_supported_yet_is_refused() {
    let cases = [
        (["--data", ""], "data is empty, use the path of a folder"),
        (["--listen", "quic://127.0.0.1"], "a quic listener needs tls.certificate and tls.key"),
        (["--set", "durability=disk"], "no such choice, use \"lazy\", \"memory\" or \"sync\""),
        (["--set", "allow_anonymous=false"], "nobody could connect"),
    ];
    for (arguments, why) in cases {
        let (code, stderr) = refusal(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(stderr.contains(why), "{stderr}");
    }
}

#[test]
fn beyond_loopback_nobody_may_come_unless_everybody_may() {
    let (code, stderr) = refusal(&["--listen", "tcp://0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("allow_anonymous = true"), "{stderr}");
    let open = ["--listen", "tcp://[::]:0", "--set", "allow_anonymous=true"];
    let mut broker = TestBroker::start(&open);
    broker.program.signal("TERM");
    assert_eq!(broker.program.exit_code(), Some(0));
}

#[test]
fn an_address_in_use_is_a_sentence_and_exit_code_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", taken.local_addr().unwrap());
    assert_eq!(
        refusal(&["--listen", &url]),
        (
            Some(1),
            format!(
                "godwit: {url}: the address is in use: another broker is running, or use another \
                 port\n"
            )
        )
    );
}

#[test]
fn wrong_command_lines_are_refused() {
    for (arguments, wrong, tip) in [
        (&["serv"][..], "unrecognized subcommand 'serv'", "subcommand exists: 'serve'"),
        (&["--confg", "x"], "unexpected argument '--confg' found", "argument exists: '--config'"),
        (&["serve", "--config"], "a value is required for '--config <FILE>'", "try '--help'"),
        (&["serve", "--memory=1"], "unexpected value '1' for '--memory'", "Usage: godwit serve"),
        (&["check", "x"], "unexpected argument 'x' found", "Usage: godwit check"),
    ] {
        let (code, stderr) = refusal(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with(&format!("godwit: {wrong}")), "{arguments:?}: {stderr}");
        assert!(stderr.contains(tip), "{arguments:?}: {stderr}");
    }
    assert_eq!(refusal(&["pub", "-t", "a"]).0, Some(1));
}

#[test]
fn every_option_is_a_flag_and_mistakes_are_answered_with_the_right_one() {
    for (arguments, says) in [
        (&["--log-file", "x"][..], "a similar argument exists: '--log.file'"),
        (&["--log.levl=debug"], "a similar argument exists: '--log.level'"),
        (&["--allow-anonymous=true"], "a similar argument exists: '--allow_anonymous'"),
        (&["--shard=2"], "a similar argument exists: '--shards'"),
        (&["--zebra=2"], "unexpected argument '--zebra' found"),
        (&["--log.file"], "a value is required for '--log.file <PATH>'"),
        (&["-log.file=x"], "an option is given as --log.file=x"),
        (&["log.file=x"], "an option is given as --log.file=x"),
        (&["log.file=a b"], "an option is given as '--log.file=a b'"),
        (&["auth.http_url=hush"], "an option is given as --auth.http_url=VALUE"),
        (&["-auth.http_url=hush"], "an option is given as --auth.http_url=VALUE"),
        (&["--auth.htp_url=hush"], "a similar argument exists: '--auth.http_url'"),
        (&["--queue.messages_max=x"], "--queue.messages_max: queue.messages_max = \"x\": not a"),
        (&["--durability", "disk"], "use \"lazy\", \"memory\" or \"sync\""),
    ] {
        for subcommand in ["serve", "check"] {
            let (code, stderr) = refusal(&[&[subcommand], arguments].concat());
            assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
            let errors = stderr.lines().filter(|line| line.starts_with("godwit: "));
            assert_eq!(errors.count(), 1, "{arguments:?}: {stderr}");
            assert!(!stderr.contains("hush"), "{arguments:?}: {stderr}");
            assert!(stderr.contains(says), "{arguments:?}: {stderr}");
        }
    }
    let line = ["check", "--queue.messages_max", "7", "--set", "shards=3", "--shards=2"];
    let lists = ["-l", "tcp://127.0.0.1:1", "--listen=tcp://127.0.0.1:2", "--log.level", "warn"];
    assert_eq!(
        run(&[&line[..], &lists].concat()).1,
        "listen = [\"tcp://127.0.0.1:1\", \"tcp://127.0.0.1:2\"]  # --listen, not \
         [\"tcp://127.0.0.1:1883\"]\n\
         shards = 2  # --shards, not 0\n\
         queue.messages_max = 7  # --queue.messages_max, not \"auto\"\n\
         log.level = \"warn\"  # --log.level, not \"info\"\n"
    );
}

#[test]
fn check_prints_what_differs_and_where_it_comes_from() {
    let file = scratch("check").join("godwit.toml");
    std::fs::write(&file, "shards = 1\n[log]\nlevel = \"warn\"\n").unwrap();
    let file = file.to_str().unwrap();
    let output = godwit(&["check", "--shards", "2"])
        .env("GODWIT_CONFIG", file)
        .env("GODWIT_QUEUE__QOS0", "true")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!(
            "shards = 2  # --shards, not 0\n\
             queue.qos0 = true  # environment GODWIT_QUEUE__QOS0, not false\n\
             log.level = \"warn\"  # {file}:3, not \"info\"\n"
        )
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_sample_file_is_a_valid_file() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/godwit.toml");
    let (code, stdout, _) = run(&["check", "--config", sample.to_str().unwrap()]);
    assert_eq!((code, stdout.as_str()), (Some(0), "# every option for all has its default\n"));
}

#[test]
fn tables_with_options_of_their_own_are_counted() {
    let file = scratch("check-tables").join("godwit.toml");
    let sink = |name: &str| {
        format!("[[sink]]\nname = \"{name}\"\nfilters = [\"a\"]\nfile.path = \"/nowhere/{name}\"\n")
    };
    let rule = "[[rule]]\nname = \"r\"\nsql = 'SELECT * FROM \"a\"'\nsend.to = [\"sink/s\"]\n";
    std::fs::write(&file, sink("s") + &sink("t") + rule).unwrap();
    let (code, stdout, _) = run(&["check", "--config", file.to_str().unwrap()]);
    let said = "# every option for all has its default\n# beside them: 1 [[rule]], 2 [[sink]]\n";
    assert_eq!((code, stdout.as_str()), (Some(0), said));
}

/// The files that they name are those of a test, under their names.
#[test]
fn examples_of_documents_are_right_as_they_stand() {
    let folder = scratch("check-documents");
    crate::certs::make(&folder).unwrap();
    for (ours, theirs) in [
        ("ca.pem", "AmazonRootCA1.pem"),
        ("client.pem", "gateway-7.pem"),
        ("client.key", "gateway-7.key"),
    ] {
        std::fs::rename(folder.join(ours), folder.join(theirs)).unwrap();
    }
    for (page, least) in [("bridges", 3), ("gateways", 3), ("sinks", 7)] {
        let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let text = std::fs::read_to_string(documents.join(format!("{page}.md"))).unwrap();
        let examples: Vec<&str> = text.split("```toml\n").skip(1).collect();
        assert!(examples.len() >= least, "{page}: {}", examples.len());
        for example in examples {
            let (example, _) = example.split_once("```").unwrap();
            std::fs::write(folder.join("godwit.toml"), example).unwrap();
            let mut check = godwit(&["check", "--config", "godwit.toml"]);
            let output = check.current_dir(&folder).output().unwrap();
            let why = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{page}.md: {why}\n{example}");
        }
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    for arguments in [
        &["--help"][..],
        &["serve", "--help"],
        &["check", "-h"],
        &["options", "--help"],
        &["pub", "--help"],
        &["sub", "--help"],
        &["--version"],
    ] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(!stdout.is_empty());
    }
    assert!(run(&["--help"]).1.contains("queue.messages_max"));
}
