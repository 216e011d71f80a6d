//! Users, passwords and access rules with the real program: authentication, authorization, the
//! effect of a reload, and no secrets in any output.

use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::doors::{CertificateFolder, ListenerBroker, refs};
use crate::installed::is_installed;
use std::path::{Path, PathBuf};
use std::process::Command;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Creates a user file with the user ann and the password "secret".
fn users(name: &str) -> PathBuf {
    let file = scratch(name).join("users");
    let (code, stdout, stderr) = run(&["passwd", "-b", text(&file), "ann", "secret"]);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
    file
}

fn auth(file: &Path) -> String {
    format!("auth.users={}", text(file))
}

/// Publishes at QoS 1. Returns the exit code, which is the reason code of a refused publish.
fn publish(broker: &TestBroker, arguments: &[&str]) -> Option<i32> {
    let port = broker.port();
    run(&[&["pub", "-p", &port, "-q", "1"], arguments].concat()).0
}

#[test]
fn only_a_right_password_comes_in() {
    let file = users("security-in");
    let mut broker = TestBroker::start(&["--set", &auth(&file)]);
    let hello = ["-t", "t", "-m", "hello"];
    let with = |user: &str, password: &str, version: &str| {
        let who = ["-u", user, "-P", password, "-V", version];
        publish(&broker, &[&who[..], &hello].concat())
    };
    assert_eq!(with("ann", "secret", "5"), Some(0));
    assert_eq!(with("ann", "secret", "311"), Some(0));
    assert_eq!(with("ann", "Secret", "5"), Some(134));
    assert_eq!(with("bob", "secret", "5"), Some(134));
    assert_eq!(with("ann", "Secret", "311"), Some(4));
    assert_eq!(publish(&broker, &[&["-V", "5"][..], &hello].concat()), Some(135));
    assert_eq!(publish(&broker, &hello), Some(5));
    // The log says who, and nobody's password.
    broker.program.signal("TERM");
    let line = broker.program.wait_for("stopped");
    assert!(line.contains("stopped"));
    let all = broker.program.seen().join("\n");
    assert!(all.contains("not let in") && all.contains("user=bob"), "{all}");
    assert!(!all.to_lowercase().contains("secret") && !all.contains("$argon2id"), "{all}");
}

#[test]
fn an_address_that_guesses_is_refused_for_a_while() {
    let file = users("security-guess");
    let broker = TestBroker::start(&["--set", &auth(&file), "--set", "auth.failures_max=3"]);
    let with = |password: &str| {
        publish(&broker, &["-u", "ann", "-P", password, "-V", "5", "-t", "t", "-m", "x"])
    };
    assert_eq!([with("1"), with("2"), with("3")], [Some(134); 3]);
    assert_eq!(with("secret"), Some(159), "whoever it is");
}

#[test]
fn a_reload_takes_users_and_rules_from_who_is_there() {
    let folder = scratch("security-reload");
    let (file, rules) = (users("security-reload-users"), folder.join("acl.toml"));
    let night = "[[rule]]\nallow = \"all\"\ngroup = \"night\"\n";
    std::fs::write(&rules, format!("[groups]\nnight = [\"ann\"]\n{night}")).unwrap();
    let acl = format!("acl.file={}", text(&rules));
    let mut broker = TestBroker::start(&["--set", &auth(&file), "--set", &acl]);
    let port = broker.port();
    let who = ["-u", "ann", "-P", "secret", "-V", "5"];
    let sub = ["sub", "-p", &port, "-d", "-t", "a/#", "-t", "b", "-C", "2", "-v"];
    let mut sub = TestProgram::start(godwit(&[&sub[..], &who].concat()));
    sub.wait_for("SUBACK");
    let say = |topic: &str| publish(&broker, &[&who[..], &["-t", topic, "-m", "x"]].concat());
    assert_eq!(say("a/1"), Some(0));
    // Whoever is in the group no longer has no more of what it had.
    let narrow = format!(
        "[groups]\nnight = [\"bob\"]\n{night}[[rule]]\nallow = \"publish\"\ntopic = \"b\"\n\
         [[rule]]\nallow = \"all\"\ntopic = \"a/#\"\n"
    );
    std::fs::write(&rules, &narrow).unwrap();
    broker.program.signal("HUP");
    broker.program.wait_for("not permitted");
    let say = |topic: &str| publish(&broker, &[&who[..], &["-t", topic, "-m", "x"]].concat());
    assert_eq!(say("b"), Some(0));
    assert_eq!(say("c"), Some(135));
    assert_eq!(say("a/2"), Some(0));
    assert_eq!(sub.finish(), (Some(0), "a/1 x\na/2 x\n".to_string()));
    // A file that is wrong changes nothing.
    std::fs::write(&rules, "[[rule]]\nallow = \"everything\"\n").unwrap();
    broker.program.signal("HUP");
    let line = broker.program.wait_for("not reloaded");
    assert!(line.contains("acl.toml:2: no such deed"), "{line}");
    let (code, _, stderr) = run(&["passwd", "-D", text(&file), "ann"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    std::fs::write(&rules, &narrow).unwrap();
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
    let gone = publish(&broker, &[&who[..], &["-t", "a/2", "-m", "x"]].concat());
    assert_eq!(gone, Some(134));
}

#[test]
fn files_of_mosquitto_are_read() {
    let folder = scratch("security-mosquitto");
    let (file, rules) = (folder.join("passwords"), folder.join("acl"));
    std::fs::write(&file, include_str!("../../../auth/src/vectors/mosquitto_7.txt")).unwrap();
    let list = "topic read news\nuser ann\ntopic write own/ann\npattern readwrite dev/%c\n";
    std::fs::write(&rules, list).unwrap();
    let acl = format!("acl.file={}", text(&rules));
    let set = ["--set", &auth(&file), "--set", &acl, "--set", "allow_anonymous=true"];
    let broker = TestBroker::start(&set);
    let ann = ["-u", "ann", "-P", "secret", "-V", "5", "-i", "x", "-m", "x"];
    let say = |who: &[&str], topic: &str| publish(&broker, &[who, &["-t", topic]].concat());
    assert_eq!(say(&ann, "own/ann"), Some(0));
    assert_eq!(say(&ann, "dev/x"), Some(0));
    assert_eq!(say(&ann, "dev/y"), Some(135));
    let nobody = ["-V", "5", "-m", "x"];
    assert_eq!(say(&nobody, "news"), Some(135));
}

#[test]
fn a_certificate_is_a_name_that_rules_know_on_every_shard() {
    let certs = CertificateFolder::new("security-certificate");
    let rule = "[[rule]]\nallow = \"publish\"\nuser = \"sensor-7\"\n\
                client_id = \"sensor-7.example\"\ntopic = \"own/${cert_cn}/#\"\n";
    std::fs::write(certs.folder.join("acl.toml"), rule).unwrap();
    let mut arguments = certs.serve(&["--listen", "tls://127.0.0.1:0", "--shards", "2"]);
    arguments.extend(certs.set(&[("tls.client_ca", "ca.pem"), ("acl.file", "acl.toml")]));
    for option in [
        "tls.client_certificate=optional",
        "auth.certificate=common_name",
        "auth.certificate_client_id=alternative_name",
    ] {
        arguments.extend(["--set".to_string(), option.to_string()]);
    }
    let broker = ListenerBroker::start(&refs(&arguments));
    let (port, ca) = (broker.port(0), certs.path("ca.pem"));
    let (own, key) = (certs.path("client.pem"), certs.path("client.key"));
    let say = |proof: &[&str], topic: &str| {
        let what = ["-V", "5", "-q", "1", "-m", "x", "-t", topic];
        run(&[&["pub", "-p", &port, "--cafile", &ca][..], &what, proof].concat()).0
    };
    let shown = ["--cert", &own, "--key", &key];
    // Handshakes are dealt round: half of these connections move home.
    for _ in 0..4 {
        assert_eq!(say(&shown, "own/sensor-7/a"), Some(0));
    }
    assert_eq!(say(&shown, "own/sensor-8/a"), Some(135));
    assert_eq!(say(&[], "own/sensor-7/a"), Some(135), "it shows nothing");
}

#[test]
fn beyond_loopback_users_are_enough() {
    let file = users("security-open");
    let broker = TestBroker::start(&["--listen", "tcp://[::]:0", "--set", &auth(&file)]);
    drop(broker);
}

#[test]
fn a_file_that_is_wrong_is_told_by_line_and_nothing_starts() {
    let file = scratch("security-wrong").join("users");
    std::fs::write(&file, "# users\nann:hunter2\n").unwrap();
    for subcommand in ["serve", "check"] {
        let set = ["--set", &auth(&file), "--listen", "tcp://127.0.0.1:0", "--memory"];
        let (code, _, stderr) = run(&[&[subcommand], &set[..]].concat());
        assert!(matches!(code, Some(1 | 2)), "{code:?}");
        assert!(stderr.contains("users:2: no hash that we know"), "{stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}

#[test]
fn passwd_writes_what_mosquitto_passwd_would_and_never_shows_it() {
    use std::os::unix::fs::PermissionsExt;
    let file = scratch("security-passwd").join("users");
    let path = text(&file);
    let mut asked = TestProgram::start(godwit(&["passwd", path, "ann"]));
    asked.write("secret\n");
    assert_eq!(asked.finish(), (Some(0), String::new()));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(run(&["passwd", "-b", path, "bob", "other"]).0, Some(0));
    let lines = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split(':').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(lines(path), ["ann", "bob"]);
    assert_eq!(run(&["passwd", "-b", path, "ann", "again"]).0, Some(0));
    assert_eq!(lines(path), ["bob", "ann"]);
    assert_eq!(run(&["passwd", "-D", path, "bob"]).0, Some(0));
    assert_eq!(run(&["passwd", "-c", "-b", path, "eve", "x"]).0, Some(0));
    assert_eq!(lines(path), ["eve"]);
    for (arguments, why) in [
        (&["-D", path, "bob"][..], "no user is named \"bob\""),
        (&["-b", path, "a:b", "x"], "a user name has no colon"),
        (&["-b", path, "ann", ""], "the password is empty"),
        (&[path], "use godwit passwd FILE USER"),
        (&["-D", "-c", path, "x"], "-D stands alone"),
    ] {
        let (code, stdout, stderr) = run(&[&["passwd"], arguments].concat());
        assert!(code != Some(0) && stdout.is_empty() && stderr.contains(why), "{stderr}");
    }
    assert_eq!(lines(path), ["eve"]);
}

#[test]
fn mosquittos_clients_prove_who_they_are() {
    if !is_installed("mosquitto_pub", "mosquitto_pub") {
        return;
    }
    let broker = TestBroker::start(&["--set", &auth(&users("security-clients"))]);
    for (version, password, code) in [
        ("mqttv5", "secret", 0),
        ("mqttv311", "secret", 0),
        ("mqttv31", "x", 4),
        ("mqttv5", "x", 134),
    ] {
        let port = broker.port();
        let arguments = ["-p", &port, "-u", "ann", "-P", password, "-t", "t", "-m", "x", "-q", "1"];
        let status = Command::new("mosquitto_pub").args(arguments).args(["-V", version]).output();
        assert_eq!(status.unwrap().status.code(), Some(code), "{version} {password}");
    }
}
