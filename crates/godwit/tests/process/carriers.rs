//! `godwit pub` and `godwit sub` over every transport of MQTT, and their errors when a transport
//! fails.

use crate::broker::{TestProgram, godwit, run};
use crate::doors::{CertificateFolder, ListenerBroker, refs};
use std::time::{Duration, Instant};

const ALL: &[&str] = &[
    "--listen",
    "tcp://127.0.0.1:0",
    "--listen",
    "tls://127.0.0.1:0",
    "--listen",
    "ws://127.0.0.1:0/mqtt",
    "--listen",
    "wss://127.0.0.1:0/mqtt",
    "--listen",
    "quic://127.0.0.1:0",
];
const QUIC: &[&str] = &["--listen", "quic://127.0.0.1:0"];

fn serve(certs: &CertificateFolder, more: &[&str]) -> ListenerBroker {
    ListenerBroker::start(&refs(&certs.serve(more)))
}

/// Returns the arguments that connect to `url`: `-h`, and the CA file for a transport with TLS.
fn at<'a>(url: &'a str, ca: &'a str) -> Vec<&'a str> {
    let is_plain = url.starts_with("tcp") || url.starts_with("ws:");
    if is_plain { vec!["-h", url] } else { vec!["-h", url, "--cafile", ca] }
}

#[test]
fn every_carrier_brings_messages_to_every_other() {
    let certs = CertificateFolder::new("carriers-all");
    let (ca, broker) = (certs.path("ca.pem"), serve(&certs, &[ALL, &["--shards", "2"]].concat()));
    let urls: Vec<String> =
        broker.urls.iter().map(|url| url.replace("127.0.0.1", "localhost")).collect();
    assert_eq!(urls.len(), 5);
    let count = (3 * urls.len()).to_string();
    let subs: Vec<TestProgram> = urls
        .iter()
        .map(|url| {
            let filter = ["sub", "-t", "c", "-q", "2", "-d", "-C", &count];
            let mut sub = TestProgram::start(godwit(&[&filter[..], &at(url, &ca)].concat()));
            sub.wait_for("SUBACK");
            sub
        })
        .collect();
    let mut expected = String::new();
    for url in &urls {
        for qos in ["0", "1", "2"] {
            let text = format!("{qos} by {url}");
            let line = ["pub", "-t", "c", "-m", &text, "-q", qos];
            let (code, _, why) = run(&[&line[..], &at(url, &ca)].concat());
            assert_eq!(code, Some(0), "{url}: {why}");
            expected += &format!("{text}\n");
        }
    }
    for (sub, url) in subs.into_iter().zip(&urls) {
        let (code, printed) = sub.finish();
        // What different clients said has no order.
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        assert_eq!((code, sorted(&printed)), (Some(0), sorted(&expected)), "{url}");
    }
}

#[test]
fn everything_listens_on_ipv6_too() {
    let certs = CertificateFolder::new("carriers-6");
    let six: Vec<String> = ALL.iter().map(|text| text.replace("127.0.0.1", "[::1]")).collect();
    let (ca, broker) = (certs.path("ca.pem"), serve(&certs, &refs(&six)));
    assert_eq!(broker.urls.len(), 5);
    for url in &broker.urls {
        assert!(url.contains("://[::1]:"), "{url}");
        let filter = ["sub", "-t", "six", "-q", "1", "-d", "-C", "1"];
        let mut sub = TestProgram::start(godwit(&[&filter[..], &at(url, &ca)].concat()));
        sub.wait_for("SUBACK");
        let line = ["pub", "-t", "six", "-m", "x", "-q", "1"];
        let (code, _, why) = run(&[&line[..], &at(url, &ca)].concat());
        assert_eq!(code, Some(0), "{url}: {why}");
        assert_eq!(sub.finish(), (Some(0), "x\n".to_string()), "{url}");
    }
}

#[test]
fn large_messages_pass_whole_both_ways_at_once() {
    let certs = CertificateFolder::new("carriers-large");
    let (ca, broker) = (certs.path("ca.pem"), serve(&certs, &ALL[4..]));
    let file = certs.path("payload");
    let payload: Vec<u8> = (0..1_900_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(&file, &payload).expect("it can be written");
    for url in &broker.urls {
        let url = url.replace("127.0.0.1", "localhost");
        let filter = ["sub", "-t", "l", "-q", "1", "-d", "-C", "4", "-N"];
        let mut sub = TestProgram::start(godwit(&[&filter[..], &at(&url, &ca)].concat()));
        sub.wait_for("SUBACK");
        let line = ["pub", "-t", "l", "-q", "1", "-f", &file, "--repeat", "4"];
        let (code, _, why) = run(&[&line[..], &at(&url, &ca)].concat());
        assert_eq!(code, Some(0), "{url}: {why}");
        let (code, printed) = sub.finish_bytes();
        assert_eq!((code, printed.len()), (Some(0), 4 * payload.len()), "{url}");
        assert!(printed.chunks(payload.len()).all(|chunk| chunk == payload), "{url}");
    }
}

#[test]
fn over_quic_too_the_broker_has_to_be_who_it_says() {
    let certs = CertificateFolder::new("carriers-trust");
    let broker = serve(&certs, QUIC);
    let url = broker.urls[0].replace("127.0.0.1", "localhost");
    let publish = |more: &[&str]| run(&[&["pub", "-h", &url, "-t", "a", "-m", "x"], more].concat());
    let (code, _, why) = publish(&["--cafile", &certs.path("other.pem")]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("QUIC: ") && why.contains("invalid peer certificate"), "{why}");
    assert_eq!(publish(&["--cafile", &certs.path("ca.pem")]).0, Some(0));
    assert_eq!(publish(&["--insecure"]).0, Some(0));
    let (code, _, why) = publish(&["--insecure", "--cert", &certs.path("client.pem")]);
    assert_eq!(code, Some(1));
    assert!(why.contains("a certificate and its private key go together"), "{why}");
}

#[test]
fn a_certificate_is_shown_over_quic() {
    let certs = CertificateFolder::new("carriers-certificate");
    let files = certs.set(&[("tls.client_ca", "ca.pem")]);
    let required = ["--set", "tls.client_certificate=required"];
    let broker = serve(&certs, &[QUIC, &refs(&files), &required].concat());
    let (url, ca) = (broker.urls[0].replace("127.0.0.1", "localhost"), certs.path("ca.pem"));
    let show = |name: &str| {
        let (own, key) = (certs.path(&format!("{name}.pem")), certs.path(&format!("{name}.key")));
        let line = ["pub", "-h", &url, "-t", "a", "-m", "x", "-q", "1", "--cafile", &ca];
        run(&[&line[..], &["--cert", &own, "--key", &key]].concat())
    };
    assert_eq!(show("client").0, Some(0));
    let (code, _, why) = show("stranger");
    assert!(code != Some(0) && why.contains("QUIC: aborted by peer"), "{code:?} {why}");
}

#[test]
fn nobody_there_is_said_at_once() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has a port");
    let url = format!("quic://{}", free.local_addr().expect("it is bound"));
    drop(free);
    let begun = Instant::now();
    let (code, _, why) = run(&["pub", "-h", &url, "--insecure", "-t", "a", "-m", "x"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("connection refused"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_broker_that_is_killed_is_missed_by_who_only_listens() {
    let certs = CertificateFolder::new("carriers-killed");
    let broker = serve(&certs, QUIC);
    let line = ["sub", "-h", &broker.urls[0], "--insecure", "-t", "a", "-d"];
    let mut sub = TestProgram::start(godwit(&line));
    sub.wait_for("SUBACK");
    broker.program.signal("KILL");
    let why = sub.wait_for("connecting again");
    assert!(why.contains("the connection was lost: connection refused"), "{why}");
}

#[test]
fn who_speaks_no_websocket_is_told_apart() {
    let certs = CertificateFolder::new("carriers-no-web");
    let broker = serve(&certs, &ALL[..6]);
    let url = broker.urls[0].replace("tcp://", "ws://");
    let (code, _, why) = run(&["pub", "-h", &url, "-t", "a", "-m", "x"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("WebSocket: "), "{why}");
}
