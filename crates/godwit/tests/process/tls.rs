//! TLS listeners, tested with openssl, mosquitto's clients and the clients of this program.

use crate::broker::{TestProgram, godwit, run};
use crate::doors::{CONNACK, CertificateFolder, ListenerBroker, refs, s_client, subject};
use crate::installed::is_installed;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const TLS: &[&str] = &["--listen", "tls://127.0.0.1:0"];

fn serve(certs: &CertificateFolder, more: &[&str]) -> ListenerBroker {
    ListenerBroker::start(&refs(&certs.serve(&[TLS, more].concat())))
}

#[test]
fn both_versions_are_spoken_and_older_ones_are_not() {
    let certs = CertificateFolder::new("tls-versions");
    let (ca, broker) = (certs.path("ca.pem"), serve(&certs, &[]));
    let port = broker.port(0);
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let (welcomed, said) = s_client(&port, &[version, "-CAfile", &ca, "-verify_return_error"]);
        assert!(welcomed && said.contains(name), "{said}");
    }
    let (welcomed, said) = s_client(&port, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]);
    assert!(!welcomed, "{said}");
    let broker = serve(&certs, &["--set", "tls.version_min=1.3"]);
    assert!(!s_client(&broker.port(0), &["-tls1_2"]).0);
    assert!(s_client(&broker.port(0), &["-tls1_3"]).0);
}

#[test]
fn a_session_is_resumed_by_its_ticket() {
    let certs = CertificateFolder::new("tls-tickets");
    let broker = serve(&certs, &[]);
    for version in ["-tls1_2", "-tls1_3"] {
        let file = certs.path("session");
        let (welcomed, said) = s_client(&broker.port(0), &[version, "-sess_out", &file]);
        assert!(welcomed && said.contains("New, TLS"), "{said}");
        let (welcomed, said) = s_client(&broker.port(0), &[version, "-sess_in", &file]);
        assert!(welcomed && said.contains("Reused, TLS"), "{said}");
    }
}

#[test]
fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    let certs = CertificateFolder::new("tls-names");
    let mut arguments = certs
        .set(&[("tls.certificate", "server.pem,other.pem"), ("tls.key", "server.key,other.key")]);
    arguments.extend(TLS.iter().map(ToString::to_string));
    let broker = ListenerBroker::start(&refs(&arguments));
    for (asked, given) in [
        ("localhost", "CN = localhost"),
        ("other.example", "CN = other.example"),
        ("a.wild.example", "CN = other.example"),
        ("a.b.wild.example", "CN = localhost"),
        ("nobody.example", "CN = localhost"),
    ] {
        let (welcomed, said) = s_client(&broker.port(0), &["-servername", asked]);
        assert!(welcomed, "{said}");
        assert_eq!(subject(&said).replace("CN=", "CN = "), given, "{asked}");
    }
    let (_, said) = s_client(&broker.port(0), &["-noservername"]);
    assert_eq!(subject(&said).replace("CN=", "CN = "), "CN = localhost");
}

#[test]
fn clients_show_a_certificate_that_is_good_or_stay_outside() {
    let certs = CertificateFolder::new("tls-clients");
    let files = certs.set(&[("tls.client_ca", "ca.pem"), ("tls.crl", "crl.pem")]);
    // Each shard notes one a second.
    let required = ["--set", "tls.client_certificate=required", "--shards", "1"];
    let mut broker = serve(&certs, &[&refs(&files)[..], &required].concat());
    let port = broker.port(0);
    let show = |name: &str, version: &str| {
        let (own, key) = (certs.path(&format!("{name}.pem")), certs.path(&format!("{name}.key")));
        s_client(&port, &[version, "-cert", &own, "-key", &key])
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let (welcomed, said) = show("client", version);
        assert!(welcomed, "{said}");
        for (name, why) in [
            ("expired", "Expired"),
            ("stranger", "UnknownIssuer"),
            ("server", "does not allow extended key usage for client"),
            ("revoked", "Revoked"),
        ] {
            let (welcomed, said) = show(name, version);
            assert!(!welcomed && said.contains("alert"), "{name}: {said}");
            let line = broker.program.wait_for("connections ended before CONNECT");
            std::thread::sleep(Duration::from_millis(1050));
            let plain = why.to_lowercase().replace(' ', "");
            let line = line.to_lowercase().replace(' ', "");
            assert!(line.contains(&plain), "{name}: {line}");
        }
        assert!(!s_client(&port, &[version]).0, "none is not enough");
        let line = broker.program.wait_for("connections ended before CONNECT");
        assert!(line.contains("peer sent no certificates"), "{line}");
        std::thread::sleep(Duration::from_millis(1050));
    }
}

#[test]
fn an_optional_certificate_may_be_missing_but_not_wrong() {
    let certs = CertificateFolder::new("tls-optional");
    let files = certs.set(&[("tls.client_ca", "ca.pem")]);
    let optional = ["--set", "tls.client_certificate=optional"];
    let broker = serve(&certs, &[&refs(&files)[..], &optional].concat());
    assert!(s_client(&broker.port(0), &[]).0);
    for (name, good) in [("client", true), ("stranger", false)] {
        let (own, key) = (certs.path(&format!("{name}.pem")), certs.path(&format!("{name}.key")));
        let (welcomed, said) = s_client(&broker.port(0), &["-cert", &own, "-key", &key]);
        assert_eq!(welcomed, good, "{said}");
    }
}

#[test]
fn renegotiation_is_declined_and_key_updates_are_followed() {
    let certs = CertificateFolder::new("tls-renegotiation");
    let broker = serve(&certs, &[]);
    // Lines that begin with R and K are commands to s_client as long as it is interactive.
    let ask = |version: &str, command: &str| {
        let address = format!("127.0.0.1:{}", broker.port(0));
        let script = format!(
            "(sleep 0.3; printf '{command}\\n'; sleep 0.5; printf 'Q\\n') | \
             timeout 10 openssl s_client -connect {address} {version} 2>&1"
        );
        let output = Command::new("sh").args(["-c", &script]).output().expect("sh runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = ask("-tls1_2", "R");
    assert!(said.contains("no renegotiation") || said.contains("RENEGOTIATING"), "{said}");
    let said = ask("-tls1_3", "K");
    assert!(said.contains("KEYUPDATE"), "{said}");
    assert!(s_client(&broker.port(0), &[]).0, "others are served as before");
}

#[test]
fn whoever_does_not_speak_tls_hears_why_while_it_still_talks() {
    let certs = CertificateFolder::new("tls-plain");
    let broker = serve(&certs, &[]);
    let address = format!("127.0.0.1:{}", broker.port(0));
    let mut stream = TcpStream::connect(address).expect("it listens");
    // More bytes than one read accepts, so that some are unread when the broker closes.
    let written = stream.write_all(&b"\x30\x7f\0\x01t and so on".repeat(20_000));
    let mut heard = Vec::new();
    let read = stream.read_to_end(&mut heard);
    assert!(heard.starts_with(&[21, 3]), "no alert but {heard:?}, {written:?}, {read:?}");
}

#[test]
fn files_are_read_again_and_nobody_is_dropped() {
    let certs = CertificateFolder::new("tls-reload");
    let (old_ca, mut broker) = (certs.path("old-ca.pem"), serve(&certs, &[]));
    std::fs::copy(certs.path("ca.pem"), &old_ca).expect("it is there");
    let port = broker.port(0);
    let sub = ["sub", "-p", &port, "--cafile", &old_ca, "-t", "a", "-d", "-C", "1"];
    let mut sub = TestProgram::start(godwit(&sub));
    sub.wait_for("SUBACK");
    crate::certs::renew(&certs.folder).expect("certificates can be made");
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
    let ca = certs.path("ca.pem");
    let publish = |ca: &str| {
        run(&["pub", "-p", &port, "--cafile", ca, "-t", "a", "-m", "still here", "-q", "1"])
    };
    let (code, _, why) = publish(&old_ca);
    assert_eq!(code, Some(1), "the new certificate is of the new CA");
    assert!(why.contains("TLS: "), "{why}");
    assert_eq!(publish(&ca).0, Some(0));
    assert_eq!(sub.finish(), (Some(0), "still here\n".to_string()));

    // A file that cannot be used changes nothing.
    std::fs::copy(certs.path("other.key"), certs.path("server.key")).expect("it is there");
    broker.program.signal("HUP");
    let line = broker.program.wait_for("not reloaded");
    assert!(line.contains("server.key: this is not the key of "), "{line}");
    assert_eq!(publish(&ca).0, Some(0));
}

#[test]
fn wrong_files_are_named_with_what_would_be_right() {
    let certs = CertificateFolder::new("tls-files");
    std::fs::write(certs.path("empty.pem"), "").expect("it can be written");
    std::fs::write(
        certs.path("locked.key"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .expect("it can be written");
    let refused = |pairs: &[(&str, &str)]| {
        let (code, _, why) = run(&[&refs(&certs.set(pairs))[..], TLS].concat());
        assert!(code == Some(1) || code == Some(2), "{why}");
        why
    };
    let both = |certificate, key| refused(&[("tls.certificate", certificate), ("tls.key", key)]);
    let (none, why) = (
        both("none.pem", "server.key"),
        "none.pem: the file of certificates cannot be read: No such",
    );
    assert!(none.contains(why), "{none}");
    assert!(both("empty.pem", "server.key").contains("empty.pem: it has no certificate"));
    assert!(both("server.pem", "ca.pem").contains("ca.pem: it has no private key"));
    assert!(both("server.pem", "locked.key").contains("locked with a password"));
    assert!(both("server.pem", "other.key").contains("other.key: this is not the key of "));
    assert!(refused(&[]).contains("a tls listener needs tls.certificate and tls.key"));
    let keys = both("server.pem,other.pem", "server.key");
    assert!(keys.contains("tls.certificate has 2 paths and tls.key 1"), "{keys}");
    let ca = refused(&[
        ("tls.certificate", "server.pem"),
        ("tls.key", "server.key"),
        ("tls.client_ca", "ca.pem"),
    ]);
    assert!(ca.contains("do nothing with tls.client_certificate = \"off\""), "{ca}");
}

#[test]
fn mosquittos_clients_are_served() {
    if !is_installed("mosquitto_pub", "mosquitto_pub") {
        return;
    }
    let certs = CertificateFolder::new("tls-mosquitto");
    let (ca, broker) = (certs.path("ca.pem"), serve(&certs, &[]));
    let port = broker.port(0);
    let at = ["-h", "localhost", "-p", &port, "--cafile", &ca, "-V", "5"];
    let mut publisher = Command::new("mosquitto_pub");
    publisher.args(at).args(["-t", "m", "-m", "from them", "-r", "-q", "2"]);
    assert!(publisher.status().expect("it runs").success());
    let mut subscriber = Command::new("mosquitto_sub");
    let output = subscriber.args(at).args(["-t", "m", "-C", "1", "-W", "10"]).output();
    assert_eq!(output.expect("it runs").stdout, b"from them\n");
}

#[test]
fn large_messages_and_slow_readers_pass_through_tls_whole() {
    let certs = CertificateFolder::new("tls-large");
    let (ca, broker) = (certs.path("ca.pem"), serve(&certs, &["--shards", "2"]));
    let port = broker.port(0);
    let file = certs.path("payload");
    let payload: Vec<u8> = (0..1_900_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(&file, &payload).expect("it can be written");
    // Read one by one, each answered, so that the broker has to wait for room again and again.
    let sub = ["sub", "-p", &port, "--cafile", &ca, "-t", "l", "-q", "1", "-d", "-C", "8", "-N"];
    let mut sub = TestProgram::start(godwit(&sub));
    sub.wait_for("SUBACK");
    let publish = ["pub", "-p", &port, "--cafile", &ca, "-t", "l", "-q", "1", "-f", &file];
    let (code, _, why) = run(&[&publish[..], &["--repeat", "8"]].concat());
    assert_eq!(code, Some(0), "{why}");
    let (code, printed) = sub.finish_bytes();
    assert_eq!(code, Some(0));
    assert_eq!(printed.len(), 8 * payload.len());
    assert!(printed.chunks(payload.len()).all(|chunk| chunk == payload));
}

/// [MQTT-3.1.2-22] ends the connection of a silent client. A client whose single packet takes
/// longer than the keep-alive is not silent.
#[test]
fn a_large_packet_on_a_slow_line_is_not_silence() {
    let certs = CertificateFolder::new("tls-slow");
    let listen = ["--listen", "tcp://127.0.0.1:0", "--listen", "tls://127.0.0.1:0"];
    let broker = ListenerBroker::start(&refs(&certs.serve(&listen)));
    let (tcp, tls) = (broker.port(0), format!("127.0.0.1:{}", broker.port(1)));
    // Keep Alive is one second; PUBLISH of 100,002 bytes with QoS 1 to `a`, packet id 1.
    let connect = |id: u8| [&b"\x10\x0d\0\x04MQTT\x04\x02\0\x01\0\x01"[..], &[id]].concat();
    let publish = [&b"\x32\xa5\x8d\x06\0\x01a\0\x01"[..], &[b'x'; 100_000]].concat();
    let slowly = |id: u8, stream: &mut dyn Write| {
        stream.write_all(&connect(id)).expect("it is open");
        for part in publish.chunks(publish.len().div_ceil(20)) {
            std::thread::sleep(Duration::from_millis(200));
            // An end shows itself by what is not answered.
            let _ = (stream.write_all(part), stream.flush());
        }
        let _ = stream.write_all(b"\xe0\0");
    };
    let answers = [CONNACK, b"\x40\x02\0\x01"].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = TcpStream::connect(format!("127.0.0.1:{tcp}")).expect("it listens");
            slowly(b'a', &mut stream);
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            assert_eq!(said, answers, "over tcp");
        });
        let mut client = Command::new("openssl");
        client.args(["s_client", "-quiet", "-connect", &tls]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().expect("openssl can be run");
        slowly(b'b', &mut client.stdin.take().expect("stdin is piped"));
        let said = client.wait_with_output().expect("it ends").stdout;
        assert_eq!(said, answers, "over tls");
    });
}
