//! Two tenants on one real broker, separated by listener, by user and by certificate, and after a
//! kill.

use crate::broker::{TestProgram, godwit, run, scratch};
use crate::doors::{CertificateFolder, ListenerBroker};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A client of MQTT 3.1.1 that reads and writes bytes.
struct NamespaceClient(TcpStream);

impl NamespaceClient {
    /// Connects with a persistent session. Returns the client and the Session Present flag.
    fn connect(port: &str, client_id: &str) -> (NamespaceClient, bool) {
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
        let mut client = NamespaceClient(stream);
        let id = client_id.as_bytes();
        let head = [0x10, 12 + id.len() as u8];
        client.say(&[&head, &b"\0\x04MQTT\x04\0\0\0\0"[..], &[id.len() as u8], id].concat());
        let answer = client.hear(4);
        assert_eq!([answer[0], answer[1], answer[3]], [0x20, 2, 0]);
        (client, answer[2] == 1)
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it is open");
    }

    fn hear(&mut self, bytes: usize) -> Vec<u8> {
        let mut all = vec![0; bytes];
        self.0.read_exact(&mut all).expect("something comes");
        all
    }

    fn subscribe(&mut self, filter: &str) {
        let (len, filter) = (filter.len() as u8, filter.as_bytes());
        self.say(&[&[0x82, 5 + len, 0, 1, 0, len], filter, &[1]].concat());
        assert_eq!(self.hear(5), [0x90, 3, 0, 1, 1]);
    }

    /// Reads the next QoS 1 PUBLISH and acknowledges it. Returns topic and payload.
    fn message(&mut self) -> (String, String) {
        let head = self.hear(2);
        assert_eq!(head[0] & 0xf6, 0x32, "{head:?}");
        let body = self.hear(usize::from(head[1]));
        let end = 2 + usize::from(body[1]);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        self.say(&[&[0x40, 2], &body[end..end + 2]].concat());
        (text(&body[2..end]), text(&body[end + 2..]))
    }

    /// Checks by a PINGREQ that no packet arrives before PINGRESP.
    fn is_quiet(&mut self) {
        self.say(b"\xc0\0");
        assert_eq!(self.hear(2), b"\xd0\0");
    }
}

fn publish(port: &str, more: &[&str]) {
    let (code, _, stderr) = run(&[&["pub", "-p", port, "-q", "1"], more].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

/// Listeners: one without a namespace, and one for each of two tenants.
const TENANTS: &str = "[[listener]]\nurl = \"tcp://127.0.0.1:0\"\n\
                       [[listener]]\nurl = \"tcp://127.0.0.1:0\"\nnamespace = \"acme\"\n\
                       [[listener]]\nurl = \"tcp://127.0.0.1:0\"\nnamespace = \"globex\"\n";

#[test]
fn two_tenants_say_the_same_and_do_not_hear_each_other() {
    let file = scratch("namespaces-two").join("godwit.toml");
    std::fs::write(&file, TENANTS).expect("it can be written");
    let mut broker = ListenerBroker::start(&["--config", text(&file), "--shards", "2"]);
    let ports = [0, 1, 2].map(|at| broker.port(at));
    let subs = [("3", 0), ("1", 1), ("1", 2)].map(|(count, at): (&str, usize)| {
        let arguments = ["sub", "-p", &ports[at], "-i", "x", "-d", "-t", "#", "-v", "-C", count];
        let mut sub = TestProgram::start(godwit(&arguments));
        sub.wait_for("SUBACK");
        sub
    });
    let line = broker.program.wait_for("namespace=acme");
    assert!(line.contains("client connected") && line.contains("client_id=x "), "{line}");
    publish(&ports[1], &["-t", "t", "-m", "a"]);
    publish(&ports[2], &["-t", "t", "-m", "g"]);
    publish(&ports[0], &["-t", "t", "-m", "all"]);
    let came = subs.map(|sub| sub.finish());
    assert_eq!(came[0], (Some(0), "acme/t a\nglobex/t g\nt all\n".to_string()));
    assert_eq!(came[1], (Some(0), "t a\n".to_string()));
    assert_eq!(came[2], (Some(0), "t g\n".to_string()));
}

#[test]
fn what_is_kept_of_a_tenant_is_its_own_after_a_kill() {
    let folder = scratch("namespaces-kill");
    let (file, data) = (folder.join("godwit.toml"), folder.join("data"));
    std::fs::write(&file, TENANTS).expect("it can be written");
    let start = |shards| {
        ListenerBroker::start(&["--config", text(&file), "--data", text(&data), "--shards", shards])
    };
    let mut broker = start("2");
    let ports = [1, 2].map(|at| broker.port(at));
    let clients = [0, 1].map(|at| {
        let (mut client, present) = NamespaceClient::connect(&ports[at], "x");
        assert!(!present);
        client.subscribe("t");
        client.subscribe("$share/g/s");
        client
    });
    drop(clients);
    publish(&ports[0], &["-t", "t", "-m", "a1", "-r"]);
    publish(&ports[0], &["-t", "s", "-m", "a2"]);
    publish(&ports[1], &["-t", "s", "-m", "g1"]);
    broker.program.signal("KILL");
    broker.program.exit_code();
    drop(broker);
    // Another number of shards has the sessions at home elsewhere.
    let broker = start("3");
    let (mut acme, was_there) = NamespaceClient::connect(&broker.port(1), "x");
    let mut came = [acme.message(), acme.message()];
    came.sort();
    let pair = |topic: &str, payload: &str| (topic.to_string(), payload.to_string());
    assert!(was_there);
    assert_eq!(came, [pair("s", "a2"), pair("t", "a1")]);
    let (mut globex, was_there) = NamespaceClient::connect(&broker.port(2), "x");
    assert!(was_there);
    assert_eq!(globex.message(), pair("s", "g1"));
    globex.subscribe("#");
    globex.is_quiet();
    assert!(!NamespaceClient::connect(&broker.port(0), "x").1);
    let all = run(&["sub", "-p", &broker.port(0), "-t", "#", "-v", "-C", "1"]);
    assert_eq!((all.0, all.1.as_str()), (Some(0), "acme/t a1\n"));
    acme.is_quiet();
}

#[test]
fn a_user_is_in_the_namespace_of_its_group_and_else_in_its_own() {
    let folder = scratch("namespaces-users");
    let (users, rules, file) =
        (folder.join("users"), folder.join("acl.toml"), folder.join("godwit.toml"));
    for user in ["ann", "bob", "root"] {
        assert_eq!(run(&["passwd", "-b", text(&users), user, "secret"]).0, Some(0));
    }
    std::fs::write(
        &rules,
        "[groups]\nacme = [\"ann\"]\nadmins = [\"root\"]\n\
         [[rule]]\nallow = \"all\"\ngroup = \"admins\"\n\
         [[rule]]\nallow = \"all\"\ntopic = \"t\"\n",
    )
    .expect("it can be written");
    let config = format!(
        "listen = [\"tcp://127.0.0.1:0\"]\nauth.users = \"{}\"\nacl.file = \"{}\"\n\
         namespace = \"users/${{username}}\"\n\
         [[group]]\nname = \"acme\"\nnamespace = \"acme\"\n\
         [[group]]\nname = \"admins\"\nnamespace = \"\"\n",
        text(&users),
        text(&rules)
    );
    std::fs::write(&file, config).expect("it can be written");
    let broker = ListenerBroker::start(&["--config", text(&file)]);
    let port = broker.port(0);
    let who = |user| ["-u", user, "-P", "secret", "-V", "5"];
    let sub = ["sub", "-p", &port, "-d", "-t", "#", "-v", "-C", "2"];
    let mut sub = TestProgram::start(godwit(&[&sub[..], &who("root")].concat()));
    sub.wait_for("SUBACK");
    publish(&port, &[&who("ann")[..], &["-t", "t", "-m", "a"]].concat());
    publish(&port, &[&who("bob")[..], &["-t", "t", "-m", "b"]].concat());
    assert_eq!(sub.finish(), (Some(0), "acme/t a\nusers/bob/t b\n".to_string()));
    // The rules are about the names that a client uses.
    let whole = ["pub", "-p", &port, "-q", "1", "-t", "acme/t", "-m", "x"];
    assert_eq!(run(&[&whole[..], &who("ann")].concat()).0, Some(135));
}

#[test]
fn a_certificates_name_may_be_the_namespace() {
    let certs = CertificateFolder::new("namespaces-certificate");
    let file = certs.folder.join("godwit.toml");
    let path = |name: &str| certs.path(name);
    let config = format!(
        "[[listener]]\nurl = \"tls://127.0.0.1:0\"\nnamespace = \"certs/${{cert_cn}}\"\n\
         tls.certificate = [\"{}\"]\ntls.key = [\"{}\"]\n\
         tls.client_certificate = \"required\"\ntls.client_ca = \"{}\"\n\
         [[listener]]\nurl = \"tcp://127.0.0.1:0\"\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    std::fs::write(&file, config).expect("it can be written");
    let broker = ListenerBroker::start(&["--config", text(&file)]);
    let sub = ["sub", "-p", &broker.port(1), "-d", "-t", "#", "-v", "-C", "1"];
    let mut sub = TestProgram::start(godwit(&sub));
    sub.wait_for("SUBACK");
    let [ca, own, key] = ["ca.pem", "client.pem", "client.key"].map(path);
    let proof = ["--cafile", &ca, "--cert", &own, "--key", &key, "-t", "t", "-m", "x"];
    publish(&broker.port(0), &proof);
    let (code, came) = sub.finish();
    assert_eq!((code, came.as_str()), (Some(0), "certs/sensor-7/t x\n"));
}

#[test]
fn a_namespace_that_lets_nobody_in_is_refused() {
    for (namespace, why) in [
        ("users/${username}", "nobody is asked who it is"),
        ("a/${user}", "${user} is an unknown variable, use ${username} or ${cert_cn}"),
        ("a/#", "no namespace, use one like \"tenant\""),
    ] {
        let set = format!("namespace={namespace}");
        let (code, _, stderr) = run(&["check", "--memory", "--set", &set]);
        assert_eq!(code, Some(2));
        assert!(stderr.contains(why), "{stderr}");
    }
}
