//! Authentication, rules and anonymous access of a single listener: its own options, the options
//! for all listeners, and changes by SIGHUP.

use crate::broker::{TestProgram, godwit, run, scratch};
use crate::clients::unused_port;
use crate::import_access::AccessTestConn;
use std::fs;
use std::net::SocketAddr;

fn at(port: &str) -> SocketAddr {
    format!("127.0.0.1:{port}").parse().expect("an address")
}

fn enters(port: &str, client: &str) -> bool {
    AccessTestConn::open(at(port), client).is_some()
}

fn publishes(port: &str, client: &str, topic: &str) -> bool {
    AccessTestConn::open(at(port), client).is_some_and(|mut conn| conn.publish(topic))
}

#[test]
fn each_listener_lets_in_whom_its_own_options_say_and_a_reload_changes_that() {
    let folder = scratch("listener-access");
    let path = |name: &str| folder.join(name).display().to_string();
    for (file, user, password) in [("users", "ann", "x"), ("others", "eve", "y")] {
        assert_eq!(run(&["passwd", "-b", &path(file), user, password]).0, Some(0));
    }
    fs::write(folder.join("rules"), "topic write panel/#\nuser eve\ntopic write eve/#\n").unwrap();
    let (first, second, third) = (unused_port(), unused_port(), unused_port());
    let config = |first_more: &str, second_more: &str| {
        format!(
            "durability = \"memory\"\nallow_anonymous = \"false\"\nauth.users = \"{}\"\n\
             [[listener]]\nurl = \"tcp://127.0.0.1:{first}\"\n{first_more}\n\
             [[listener]]\nurl = \"tcp://127.0.0.1:{second}\"\n{second_more}\n\
             [[listener]]\nurl = \"tcp://127.0.0.1:{third}\"\nauth.users = \"{}\"\n",
            path("users"),
            path("others")
        )
    };
    let open = format!("allow_anonymous = \"true\"\nacl.file = \"{}\"", path("rules"));
    fs::write(folder.join("godwit.toml"), config("", &open)).unwrap();
    let mut broker = TestProgram::start(godwit(&["serve", "--config", &path("godwit.toml")]));
    broker.wait_for("started");
    assert!(!enters(&first, "-") && enters(&first, "ann:x") && !enters(&first, "eve:y"));
    assert!(publishes(&first, "ann:x", "anything"));
    assert!(enters(&second, "-") && enters(&second, "ann:x") && !enters(&second, "ann:bad"));
    assert!(publishes(&second, "-", "panel/1") && !publishes(&second, "-", "anything"));
    assert!(!publishes(&second, "ann:x", "panel/1"));
    assert!(!enters(&third, "-") && !enters(&third, "ann:x") && enters(&third, "eve:y"));
    // A session of ann's is hers, also against nobody in particular at the open listener.
    let mut hers = AccessTestConn::open(at(&first), "ann:x#s").unwrap();
    assert!(hers.subscribe("secret/#"));
    fs::write(folder.join("godwit.toml"), config(&open, "")).unwrap();
    broker.signal("HUP");
    broker.wait_for("options read again");
    assert!(enters(&first, "-") && !publishes(&first, "-", "anything"));
    assert!(publishes(&first, "-", "panel/1"));
    assert!(!enters(&second, "-") && publishes(&second, "ann:x", "anything"));
    // One that would open the last listener to nobody in particular changes nothing.
    fs::write(folder.join("godwit.toml"), config("allow_anonymous = \"perhaps\"", "")).unwrap();
    broker.signal("HUP");
    broker.wait_for("not reloaded");
    assert!(!enters(&third, "-") && enters(&first, "-"));
}

/// A name in the user files of two listeners denotes two users, and a session belongs to one of
/// them. Listeners with the same file have the same users, also after a restart.
#[test]
fn a_kept_session_is_of_a_user_as_its_listener_knows_users() {
    let folder = scratch("listener-access-users");
    let path = |name: &str| folder.join(name).display().to_string();
    for (file, password) in [("users", "x"), ("others", "y")] {
        assert_eq!(run(&["passwd", "-b", &path(file), "ann", password]).0, Some(0));
    }
    let (first, second, third) = (unused_port(), unused_port(), unused_port());
    let config = format!(
        "data = \"{}\"\nallow_anonymous = \"false\"\nauth.users = \"{}\"\n\
         [[listener]]\nurl = \"tcp://127.0.0.1:{first}\"\n\
         [[listener]]\nurl = \"tcp://127.0.0.1:{second}\"\nauth.users = \"{}\"\n\
         [[listener]]\nurl = \"tcp://127.0.0.1:{third}\"\nauth.users = \"{}\"\n",
        path("data"),
        path("users"),
        path("others"),
        path("others")
    );
    fs::write(folder.join("godwit.toml"), config).unwrap();
    let start = || {
        let mut broker = TestProgram::start(godwit(&["serve", "--config", &path("godwit.toml")]));
        broker.wait_for("started");
        broker
    };
    let waits = |port: &str, password: &str| {
        let own = ["sub", "-p", port, "-i", "s", "-u", "ann", "-P", password, "-q", "1", "-c"];
        run(&[&own[..], &["-V", "5", "-x", "300", "-t", "t", "-C", "1", "-W", "2"][..]].concat()).1
    };
    let publish = |port: &str, password: &str, word: &str| {
        let own = ["pub", "-p", port, "-u", "ann", "-P", password, "-q", "1", "-t", "t"];
        assert_eq!(run(&[&own[..], &["-m", word]].concat()).0, Some(0));
    };
    let broker = start();
    assert_eq!(waits(&second, "y"), "");
    publish(&second, "y", "one");
    assert_eq!(waits(&third, "y").trim(), "one", "the same people");
    publish(&second, "y", "two");
    broker.signal("TERM");
    drop(broker);
    let _broker = start();
    assert_eq!(waits(&second, "y").trim(), "two");
    publish(&second, "y", "three");
    assert_eq!(waits(&first, "x"), "", "another ann");
    assert_eq!(waits(&second, "y"), "", "it ended with that");
}

#[test]
fn a_listener_for_other_hosts_needs_authentication_of_its_own_or_for_all() {
    let folder = scratch("listener-access-wide");
    let path = |name: &str| folder.join(name).display().to_string();
    assert_eq!(run(&["passwd", "-b", &path("users"), "ann", "x"]).0, Some(0));
    let users = format!("auth.users = \"{}\"\n", path("users"));
    const WIDE: &str = "[[listener]]\nurl = \"tcp://0.0.0.0:1884\"\n";
    const LOCAL: &str = "[[listener]]\nurl = \"tcp://127.0.0.1:1883\"\n";
    for (config, code, why) in [
        (format!("{WIDE}{users}"), 0, ""),
        (format!("{users}{WIDE}"), 0, ""),
        (format!("{LOCAL}{users}{WIDE}"), 2, ":4: tcp://0.0.0.0:1884 can be reached from other"),
        (format!("{users}{WIDE}auth.users = \"\"\n"), 2, ":2: tcp://0.0.0.0:1884 can be reached"),
        (format!("{LOCAL}{WIDE}allow_anonymous = \"true\"\n"), 0, ""),
        (format!("allow_anonymous = \"true\"\n{WIDE}allow_anonymous = \"loopback\"\n"), 2, ":2: "),
        (format!("{users}{LOCAL}auth.users = \"\"\nallow_anonymous = \"false\"\n"), 2, ":5: allow"),
        (format!("{LOCAL}auth.threads = 2\n"), 2, ":3: auth.threads goes for all"),
        (format!("{LOCAL}auth.certificate_client_id = \"subject\"\n"), 2, ":3: auth.certificate_c"),
    ] {
        fs::write(folder.join("godwit.toml"), &config).unwrap();
        let (found, _, stderr) = run(&["check", "--config", &path("godwit.toml")]);
        assert_eq!(found, Some(code), "{config}\n{stderr}");
        assert!(stderr.contains(why), "{config}\n{stderr}");
    }
}
