//! Unix sockets, PROXY headers, and listeners of all kinds in one broker.

use crate::broker::{GODWIT, TestProgram, godwit, run, scratch};
use crate::doors::{CONNACK, CONNECT, CertificateFolder, ListenerBroker, refs};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

fn proxied(version: &str) -> ListenerBroker {
    let version = format!("proxy.protocol={version}");
    ListenerBroker::start(&["--listen", "tcp://127.0.0.1:0", "--set", &version])
}

/// Sends the parts with pauses. Returns the response up to CONNACK, or up to the end of the
/// connection.
fn knock(port: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    for part in parts {
        if stream.write_all(part).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    let mut heard = Vec::new();
    let mut buffer = [0; 64];
    while heard.len() < CONNACK.len() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => heard.extend_from_slice(&buffer[..read]),
            Err(fault) if fault.kind() == ErrorKind::ConnectionReset => break,
            Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
            Err(fault) => panic!("nothing came: {fault}"),
        }
    }
    heard
}

const V1: &[u8] = b"PROXY TCP4 192.0.2.44 198.51.100.7 56324 1883\r\n";
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x2d\xc6\x33\x64\x07\xdc\x04\x07\x5b";

#[test]
fn the_proxys_client_is_who_is_named() {
    let mut broker = proxied("auto");
    let port = broker.port(0);
    for (header, address) in [(V1, "peer=192.0.2.44:56324"), (V2, "peer=192.0.2.45:56324")] {
        assert_eq!(knock(&port, &[header, CONNECT]), CONNACK);
        let line = broker.program.wait_for("client connected");
        assert!(line.contains(address), "{line}");
        // In one piece, and byte by byte.
        assert_eq!(knock(&port, &[&[header, CONNECT].concat()]), CONNACK);
        let bytes: Vec<&[u8]> = header.chunks(1).chain([CONNECT]).collect();
        assert_eq!(knock(&port, &bytes), CONNACK);
        broker.program.wait_for(address);
        broker.program.wait_for(address);
    }
    // A proxy that checks the health of the broker.
    assert_eq!(knock(&port, &[b"PROXY UNKNOWN\r\n", CONNECT]), CONNACK);
    let line = broker.program.wait_for("client connected");
    assert!(line.contains("peer=127.0.0.1:"), "{line}");
}

#[test]
fn without_the_header_that_must_come_nobody_is_heard() {
    for (version, wrong, why) in [
        ("auto", CONNECT, "the PROXY header is missing"),
        ("v1", V2, "of a version that this listener does not take"),
        ("v2", V1, "of a version that this listener does not take"),
        ("auto", b"PROXY TCP4 192.0.2.44 x 56324 1883\r\n", "has a wrong address"),
        ("v1", &[b'P'; 200], "the PROXY header is missing"),
        ("v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", "is too long"),
    ] {
        let mut broker = proxied(version);
        assert_eq!(knock(&broker.port(0), &[wrong, CONNECT]), b"", "{why}");
        let line = broker.program.wait_for("connections ended before CONNECT");
        assert!(line.contains(why) && line.contains("count=1"), "{line}");
    }
}

#[test]
fn a_slow_header_ends_with_the_time_for_connect() {
    let timeout = ["--set", "connect.timeout_ms=300", "--set", "proxy.protocol=v1"];
    let listen = ["--listen", "tcp://127.0.0.1:0"];
    let mut broker = ListenerBroker::start(&[&listen[..], &timeout].concat());
    let port = broker.port(0);
    assert_eq!(knock(&port, &[b"PROXY TCP4 "]), b"");
    let line = broker.program.wait_for("connections ended before CONNECT");
    assert!(line.contains("not done in time"), "{line}");
    // The header does not buy more time.
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    thread::sleep(Duration::from_millis(200));
    stream.write_all(V1).expect("it reads");
    let began = std::time::Instant::now();
    assert_eq!(stream.read(&mut [0; 8]).ok(), Some(0));
    assert!(began.elapsed() < Duration::from_millis(280), "{:?}", began.elapsed());
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

#[test]
fn a_unix_socket_serves_and_goes_with_the_broker() {
    let folder = scratch("unix");
    let path = folder.join("mqtt.sock").to_str().expect("text").to_string();
    let url = format!("unix://{path}");
    let mut broker = ListenerBroker::start(&["--listen", &url, "--set", "unix.mode=600"]);
    assert_eq!(broker.urls, std::slice::from_ref(&url));
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream.write_all(CONNECT).expect("it reads");
    let mut heard = [0; 4];
    stream.read_exact(&mut heard).expect("it answers");
    assert_eq!(heard, CONNACK);
    let line = broker.program.wait_for("client connected");
    assert!(line.contains(&format!("process={}", std::process::id())), "{line}");
    let sub = ["sub", "-h", &url, "-t", "a", "-C", "1", "-d", "-q", "2"];
    let mut sub = TestProgram::start(godwit(&sub));
    sub.wait_for("SUBACK");
    assert_eq!(run(&["pub", "-h", &url, "-t", "a", "-m", "local", "-q", "2"]).0, Some(0));
    assert_eq!(sub.finish(), (Some(0), "local\n".to_string()));
    broker.program.signal("TERM");
    assert_eq!(broker.program.exit_code(), Some(0));
    assert!(!exists(&path));

    // One that is killed leaves the file, and the next one takes its place.
    let mut broker = ListenerBroker::start(&["--listen", &url]);
    let (code, _, why) = run(&["--memory", "--listen", &url]);
    assert_eq!(code, Some(1));
    assert!(why.contains("the socket is in use: another broker is running"), "{why}");
    broker.program.signal("KILL");
    broker.program.exit_code();
    assert!(exists(&path));
    let broker = ListenerBroker::start(&["--listen", &url]);
    assert_eq!(run(&["pub", "-h", &url, "-t", "a", "-m", "b"]).0, Some(0));
    drop(broker);
}

#[test]
fn a_start_that_fails_leaves_no_socket_behind() {
    let folder = scratch("unix-failed");
    let path = |name| folder.join(name).to_str().expect("text").to_string();
    let (socket, rules) = (path("mqtt.sock"), path("nowhere.toml"));
    let url = format!("unix://{socket}");
    let (code, _, why) =
        run(&["--memory", "--listen", &url, "--set", &format!("acl.file={rules}")]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains(&rules), "{why}");
    assert!(!exists(&socket));
    // A listener beside it cannot be bound.
    let (code, _, why) = run(&["--memory", "--listen", &url, "--listen", "unix:///nowhere/at/all"]);
    assert_eq!(code, Some(1), "{why}");
    assert!(!exists(&socket));
}

#[test]
fn listeners_of_every_kind_serve_the_same_topics() {
    let certs = CertificateFolder::new("mixed");
    let (ca, socket) = (certs.path("ca.pem"), certs.path("socket"));
    let (cert, key) = (certs.path("client.pem"), certs.path("client.key"));
    let file = certs.path("godwit.toml");
    let text = format!(
        "shards = 2\nlisten = [\"tcp://127.0.0.1:0\", \"tls://[::1]:0\", \"unix://{socket}\"]\n\
         [tls]\ncertificate = [\"{}\"]\nkey = [\"{}\"]\n\
         [[listener]]\nurl = \"tls://127.0.0.1:0\"\ntls.client_certificate = \"required\"\n\
         tls.client_ca = \"{ca}\"\nproxy.protocol = \"off\"\n\
         [[listener]]\nurl = \"tcp://127.0.0.1:0\"\nproxy.protocol = \"v2\"\n",
        certs.path("server.pem"),
        certs.path("server.key"),
    );
    std::fs::write(&file, text).expect("it can be written");
    let broker = ListenerBroker::start(&["--config", &file]);
    assert_eq!(broker.urls.len(), 5, "{:?}", broker.urls);
    let doors: [&[&str]; 4] = [
        &["-h", "127.0.0.1", "-p", &broker.port(0)],
        &["-h", "::1", "-p", &broker.port(1), "--cafile", &ca],
        &["-h", &format!("unix://{socket}")],
        &[
            "-h",
            "127.0.0.1",
            "-p",
            &broker.port(3),
            "--cafile",
            &ca,
            "--cert",
            &cert,
            "--key",
            &key,
        ],
    ];
    // Enough names that some are at home on each shard.
    for (at, door) in doors.iter().enumerate() {
        let subs: Vec<TestProgram> = (0..4)
            .map(|id| {
                let id = format!("sub-{at}-{id}");
                let sub = ["sub", "-t", "mixed", "-q", "1", "-d", "-C", "4", "-i", &id];
                let mut sub = TestProgram::start(godwit(&[&sub[..], door].concat()));
                sub.wait_for("SUBACK");
                sub
            })
            .collect();
        for (from, door) in doors.iter().enumerate() {
            let message = format!("from {from}");
            let publish = ["pub", "-t", "mixed", "-q", "1", "-m", &message];
            let (code, _, why) = run(&[&publish[..], door].concat());
            assert_eq!(code, Some(0), "{why}");
        }
        for sub in subs {
            assert_eq!(sub.finish(), (Some(0), "from 0\nfrom 1\nfrom 2\nfrom 3\n".to_string()));
        }
    }
    assert_eq!(knock(&broker.port(4), &[V2, CONNECT]), CONNACK);
    let without = ["pub", "-h", "127.0.0.1", "-p", &broker.port(3), "--cafile", &ca];
    assert_ne!(run(&[&without[..], &["-t", "a", "-m", "b", "-q", "1"]].concat()).0, Some(0));
}

#[test]
fn a_required_certificate_opens_to_other_hosts_and_nothing_else_does() {
    let certs = CertificateFolder::new("open");
    let listen = ["--listen", "tls://0.0.0.0:0"];
    let (code, _, why) = run(&refs(&certs.serve(&listen)));
    assert_eq!(code, Some(2));
    assert!(why.contains("allow_anonymous = true"), "{why}");
    let mut arguments = certs.serve(&listen);
    arguments.extend(certs.set(&[("tls.client_ca", "ca.pem")]));
    arguments.extend(["--set".to_string(), "tls.client_certificate=required".to_string()]);
    let broker = ListenerBroker::start(&refs(&arguments));
    assert!(broker.urls[0].starts_with("tls://0.0.0.0:"));
}

#[test]
fn wrong_listeners_in_a_file_are_named_with_their_line() {
    let file = scratch("listeners").join("godwit.toml");
    let text = "\n[[listener]]\nurl = \"tls://127.0.0.1:0\"\n\n[[listener]]\nurl = \"htp://a\"\n\n\
                [[listener]]\nurl = \"tcp://127.0.0.1:0\"\nretain.available = true\n\
                tls.version_min = \"1.1\"\ntls.certifcate = []\n";
    std::fs::write(&file, text).expect("it can be written");
    let output = Command::new(GODWIT).args(["check", "--config"]).arg(&file).output();
    let why = String::from_utf8(output.expect("it runs").stderr).expect("text");
    for (line, said) in [
        (6, "url: \"htp://a\": htp listeners do not exist"),
        (10, "retain.available goes for all, a listener has none of its own"),
        (11, "tls.version_min: no such choice, use \"1.2\" or \"1.3\""),
        (12, "tls.certifcate is not an option, did you mean tls.certificate?"),
    ] {
        assert!(why.contains(&format!("godwit.toml:{line}: {said}")), "{line} {said}\n{why}");
    }
    std::fs::write(
        &file,
        &text[..text.find("\n\n[[listener]]\nurl = \"htp").expect("it is there")],
    )
    .expect("it can be written");
    let output = Command::new(GODWIT).args(["check", "--config"]).arg(&file).output();
    let why = String::from_utf8(output.expect("it runs").stderr).expect("text");
    assert!(why.contains("godwit.toml:2: tls://127.0.0.1:0: a tls listener needs"), "{why}");
}
