//! Import of other brokers' configurations: `check` accepts every written file, a wrong source
//! writes no file, and a broker runs with the result.

use crate::bridges::mosquitto;
use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::certs;
use crate::clients::{publish, subscriber, unused_port};
use std::fs;
use std::path::{Path, PathBuf};

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Copies the samples and the files to which they refer into a new folder, which replaces `/etc`
/// and `/var` in their texts.
fn samples(name: &str) -> PathBuf {
    let folder = scratch(name);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import");
    fs::create_dir(folder.join("conf.d")).expect("a file of the test's own");
    fs::create_dir(folder.join("certs")).expect("a file of the test's own");
    for file in FILES {
        let mut sample = fs::read_to_string(from.join(file)).expect("a file of the test's own");
        for theirs in ["/etc/mosquitto", "/etc/nanomq", "/etc/emqx"] {
            sample = sample.replace(theirs, text(&folder));
        }
        fs::write(folder.join(file), sample).expect("a file of the test's own");
    }
    certs::make(&folder.join("certs")).expect("a file of the test's own");
    let users = folder.join("users");
    assert_eq!(run(&["passwd", "-b", text(&users), "ann", "annsecret"]).0, Some(0));
    fs::write(folder.join("psk"), format!("sensor:{}\n", "5f".repeat(32)))
        .expect("a file of the test's own");
    folder
}

const FILES: &[&str] = &[
    "mosquitto.conf",
    "conf.d/more.conf",
    "acl",
    "nanomq.conf",
    "nanomq_pwd.conf",
    "nanomq_acl.conf",
    "nanomq_old.conf",
    "emqx.conf",
    "acl.conf",
    "emqx4.conf",
    "emqx4_acl.conf",
];

const SECRETS: &[&str] = &[
    "annsecret",
    "bobsecret",
    "cloudsecret",
    "labsecret",
    "insidesecret",
    "adminsecret",
    "pg%20secret",
    "pg secret",
    "headersecret",
    "tokensecret",
    "cookiesecret",
    "licencesecret",
];

#[test]
fn what_is_written_is_accepted_and_says_where_it_comes_from() {
    let folder = samples("import-samples");
    for (sample, comment) in [
        ("mosquitto.conf", "mosquitto.conf:20 max_inflight_messages\ninflight_max = 40\n"),
        ("nanomq.conf", "nanomq.conf:8 mqtt.max_packet_size\npacket_bytes_max = \"10MiB\"\n"),
        ("nanomq_old.conf", "nanomq_old.conf:8 max_packet_size\npacket_bytes_max = \"10MiB\"\n"),
        ("emqx.conf", "mqtt.shared_subscription_strategy\nstrategy = \"hash_client\"\n"),
        (
            "emqx4.conf",
            "emqx4.conf:31 zone.external.max_packet_size\npacket_bytes_max = \"64KiB\"\n",
        ),
    ] {
        let (source, out) = (folder.join(sample), folder.join(sample).with_extension("toml"));
        let (code, stdout, stderr) = run(&["import", text(&source), "--out", text(&out)]);
        assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
        let needs_hands = sample != "nanomq_old.conf";
        assert_eq!(stderr.contains("still to do"), needs_hands, "{stderr}");
        let written = fs::read_to_string(&out).unwrap();
        let unresolved = match sample {
            "mosquitto.conf" => "global_plugin: plugins are not supported",
            "nanomq.conf" => "plugin: a plugin may refuse clients",
            "emqx.conf" => "exhook.servers: it may refuse clients",
            "emqx4.conf" => "plugins: which of them EMQX 4 loads",
            _ => "",
        };
        let (code, checked, wrong) = match written.contains("\nunresolved = ") {
            // Somebody has to see to it first.
            true => {
                let (code, _, wrong) = run(&["check", "--config", text(&out)]);
                assert_eq!(code, Some(2), "{wrong}");
                assert!(wrong.contains(unresolved) && !unresolved.is_empty(), "{wrong}");
                let is_seen_to = |line: &&str| !line.starts_with("unresolved = ");
                let seen_to: Vec<&str> = written.lines().filter(is_seen_to).collect();
                fs::write(&out, seen_to.join("\n")).unwrap();
                run(&["check", "--config", text(&out)])
            }
            false => run(&["check", "--config", text(&out)]),
        };
        assert_eq!(code, Some(0), "{wrong}\n{written}");
        assert!(checked.contains(" = "), "{checked}");
        assert!(written.contains(comment), "{written}");
        as_expected(&folder, sample, &written);
        // What has no equal stands at the end and on stderr, and no secret is in either.
        let (_, list) = written.split_once("\n# no equal:\n").expect("a list");
        assert!(list.lines().count() > 20, "{list}");
        for line in list.lines() {
            let line = line.strip_prefix("# ").expect("a comment");
            assert!(stderr.contains(&format!("godwit: no equal: {line}\n")), "{line}");
        }
        for secret in SECRETS {
            assert!(!stderr.contains(secret) && !list.contains(secret), "{secret}");
        }
        let before = fs::read(&out).unwrap();
        let (code, _, stderr) = run(&["import", text(&source), "--out", text(&out)]);
        assert_eq!(code, Some(1));
        assert!(stderr.contains("nothing was written"), "{stderr}");
        assert_eq!(fs::read(&out).unwrap(), before);
    }
    // There a client needs its password and the server's consent.
    let users = fs::read_to_string(folder.join("nanomq.users")).unwrap();
    assert!(users.starts_with("# Nobody yet"), "{users}");
    let users = fs::read_to_string(folder.join("nanomq_old.users")).unwrap();
    assert!(users.starts_with("# Nobody yet"), "{users}");
    let rules = fs::read_to_string(folder.join("nanomq.rules.toml")).unwrap();
    assert!(rules.contains("nanomq_acl.conf:4 a rule\n[[rule]]\ndeny = \"subscribe\""), "{rules}");
}

/// Compares the written options and rules of a sample, without comments, with the file in
/// `expected`. `UPDATE_EXPECT=1` rewrites that file.
fn as_expected(folder: &Path, sample: &str, written: &str) {
    let (options, _) = written.split_once("\n# no equal:\n").expect("a list");
    let rules = folder.join(sample).with_extension("rules.toml");
    let rules = fs::read_to_string(rules).unwrap_or_default();
    let all = format!("{options}\n{rules}").replace(text(folder), "FOLDER");
    // Only a build with that feature has keys of its own.
    let is_meant =
        |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.contains("psk");
    let all: String = all.lines().filter(is_meant).map(|line| format!("{line}\n")).collect();
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/expected");
    let expected = expected.join(sample).with_extension("toml");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&expected, &all).expect("the sources can be written");
    }
    let wanted = fs::read_to_string(&expected).expect("it is there");
    let differ = all.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert_eq!(all, wanted, "{sample}: {differ:?}");
}

#[test]
fn what_is_wrong_has_its_line_and_nothing_is_written() {
    let folder = samples("import-wrong");
    let out = folder.join("out.toml");
    for (sample, wrong, why) in [
        ("mosquitto.conf", "password_fil x\n", "password_fil is not known here, did"),
        ("mosquitto.conf", "include_dir ../elsewhere\n", "is not in the folder of the first file"),
        ("nanomq.conf", "mqtt { max_packet_size = much\n", "this brace is never closed, use }"),
        ("nanomq_old.conf", "msq_len=many\n", "msq_len: not a number, use one like 100"),
        ("emqx.conf", "mqtt.max_inflight = ${nothing}\n", "is not a key of the file"),
    ] {
        let file = folder.join(sample);
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{before}{wrong}")).unwrap();
        let (code, stdout, stderr) = run(&["import", text(&file), "--out", text(&out)]);
        fs::write(&file, &before).unwrap();
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        let line = format!("{}:{}: ", text(&file), before.lines().count() + 1);
        assert!(stderr.contains(&line) && stderr.contains(why), "{line}{why}: {stderr}");
        assert!(!out.exists());
    }
    let (code, _, stderr) = run(&["import", text(&folder.join("emqx.conf"))]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("rules go to a file of their own, use --out"), "{stderr}");
    let users = folder.join("out.users");
    fs::write(&users, "kept").unwrap();
    let file = folder.join("nanomq.conf");
    assert_eq!(run(&["import", text(&file), "--out", text(&out)]).0, Some(1));
    assert!(!out.exists() && !folder.join("out.rules.toml").exists(), "all or nothing");
    assert_eq!(fs::read_to_string(&users).unwrap(), "kept");
    for (arguments, why) in [
        (&["import", "--from", "rabbit", "x"][..], "unknown kind, use \"mosquitto\""),
        (&["import", "--out", "x"], "the file is missing, use godwit import [--from KIND]"),
        (&["import", "a", "b"], "2 files are given, use godwit import [--from KIND]"),
        (&["import", "not-there.conf"], "not-there.conf: cannot be read"),
    ] {
        let (code, _, stderr) = run(arguments);
        assert_eq!(code, Some(2));
        assert!(stderr.contains(why), "{stderr}");
    }
}

#[test]
fn a_folder_or_kind_in_the_place_of_the_file_is_answered_with_what_is_right() {
    let folder = samples("import-folder");
    let whole = text(&folder);
    let files = format!(
        "{whole}: this is a folder: use a file, such as {whole}/mosquitto.conf or \
         {whole}/nanomq.conf or {whole}/emqx.conf"
    );
    let empty = format!("{whole}/certs");
    for (arguments, says) in [
        (&[whole][..], files.as_str()),
        (&[&empty], "this is a folder: use a file, such as mosquitto.conf, nanomq.conf"),
        (&["mosquitto", "m.conf"], "use godwit import m.conf --from mosquitto"),
    ] {
        let (code, _, stderr) = run(&[&["import"], arguments].concat());
        assert_eq!((code, stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
}

/// Imports a configuration text, and starts a broker with the result.
fn start(folder: &Path, source: &str) -> TestBroker {
    let (file, out) = (folder.join("small.conf"), folder.join("small.toml"));
    fs::write(&file, source).expect("a file of the test's own");
    let (code, _, stderr) = run(&["import", text(&file), "--out", text(&out)]);
    assert_eq!(code, Some(0), "{stderr}");
    TestBroker::announced(TestProgram::start(godwit(&[
        "serve",
        "--config",
        text(&out),
        "--memory",
    ])))
}

/// Checks authentication and rules of a broker on which the user ann may publish and subscribe
/// below `plant`.
fn passes_messages(broker: &TestBroker) {
    let port = broker.port();
    let mut reader = godwit(&["sub", "-p", &port, "-u", "ann", "-P", "annsecret", "-q", "1"]);
    reader.args(["-t", "plant/#", "-C", "1", "-W", "20", "-d"]);
    let mut reader = TestProgram::start(reader);
    reader.wait_for("SUBACK");
    let publish = |password: &str, topic: &str| {
        let who = ["pub", "-V", "5", "-p", &port, "-u", "ann", "-P", password, "-q", "1"];
        run(&[&who[..], &["-t", topic, "-m", "hello"]].concat()).0
    };
    assert_eq!(publish("wrong", "plant/1"), Some(134));
    assert_eq!(publish("annsecret", "office/1"), Some(135));
    assert_eq!(publish("annsecret", "plant/1"), Some(0));
    assert_eq!(reader.finish(), (Some(0), "hello\n".to_string()));
}

#[test]
fn a_broker_runs_on_what_came_from_mosquitto() {
    let folder = samples("import-mosquitto");
    let source = format!(
        "listener {} 127.0.0.1\npassword_file {folder}/users\nacl_file {folder}/acl\n\
         max_queued_messages 50\n",
        unused_port(),
        folder = text(&folder),
    );
    passes_messages(&start(&folder, &source));
}

#[test]
fn a_broker_runs_on_what_came_from_nanomq() {
    let folder = samples("import-nanomq");
    let source = format!(
        "listeners.tcp.bind = \"127.0.0.1:{}\"\nauth {{\n allow_anonymous = false\n \
         no_match = deny\n password {{ include \"nanomq_pwd.conf\" }}\n acl.rules = [\n \
         {{permit = allow, username = ann, action = pubsub, topics = [\"plant/#\"]}} ]\n}}\n",
        unused_port(),
    );
    passes_messages(&start(&folder, &source));
}

/// The bridge of an imported mosquitto.conf forwards messages to a real mosquitto.
#[test]
fn a_bridge_that_came_from_mosquitto_carries_messages_to_mosquitto() {
    let Some((_far, far)) = mosquitto("import-bridge-far") else { return };
    let folder = samples("import-bridge");
    let source = format!(
        "listener {} 127.0.0.1\nallow_anonymous true\nconnection cloud\n\
         address 127.0.0.1:{far}\nremote_clientid gateway-7\ncleansession false\n\
         topic sensors/# out 1 plant/ sites/7/\ntopic commands/+/set in 2\n\
         topic state both 0 \"\" mirror/\nbridge_protocol_version mqttv50\n\
         bridge_outgoing_retain false\nrestart_timeout 1 2\n",
        unused_port(),
    );
    let mut near = start(&folder, &source);
    near.program.wait_for("godwit::bridge connected");
    let (far, near) = (far.to_string(), near.port());
    for (from, topic, to, name, qos) in [
        (&near, "plant/sensors/a/b", &far, "sites/7/sensors/a/b", "1"),
        (&far, "commands/x/set", &near, "commands/x/set", "2"),
        (&near, "state", &far, "mirror/state", "0"),
        (&far, "mirror/state", &near, "state", "0"),
    ] {
        let wants = ["-t", name, "-q", "2", "-C", "1", "-W", "20", "-F", "%t %p %q"];
        let sub = subscriber(to, &wants);
        publish(from, &["-t", topic, "-m", "x", "-q", "2"]);
        assert_eq!(sub.finish(), (Some(0), format!("{name} x {qos}\n")), "{topic}");
    }
    publish(&near, &["-t", "plant/sensors/kept", "-m", "x", "-q", "1", "-r"]);
    publish(&near, &["-t", "plant/sensors/last", "-m", "x", "-q", "1"]);
    let (_, kept, _) = run(&["sub", "-p", &far, "-t", "sites/#", "-W", "2", "-F", "%t %r"]);
    assert!(!kept.contains("/kept 1"), "{kept}");
}
