//! Tests of servers which break the protocol: the sink must not wait longer than its timeout, nor
//! use memory without bound.

use super::subject::NatsSubject;
use super::{NatsSettings, NatsSink};
use crate::sink::columns::SinkColumns;
use crate::sink::message::SinkMessage;
use net::server_url::ServerUrl;
use rustls::{ClientConfig, RootCertStore};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::timeout;

const INFO: &str = "INFO {\"headers\":true,\"max_payload\":1024}\r\n";
const LONG: usize = 64 * 1024 * 1024;

/// Starts a server which sends `greeting`, and `answer` to the first message. `INBOX` in `answer`
/// is replaced by the inbox of the acknowledgement.
fn server(greeting: String, answer: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = serve(stream, &greeting, &answer);
        }
    });
    port
}

fn serve(stream: TcpStream, greeting: &str, answer: &str) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    writer.write_all(greeting.as_bytes())?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line.starts_with("PING") {
            writer.write_all(b"PONG\r\n")?;
        }
        if let Some(words) = line.strip_prefix("HPUB ") {
            let inbox = words.split(' ').nth(1).unwrap_or_default();
            return writer.write_all(answer.replace("INBOX", inbox).as_bytes());
        }
    }
    Ok(())
}

/// Returns the reason for a failed delivery, or `None` if the sink ran into its timeout.
fn failure(scheme: &str, greeting: &str, answer: &str) -> Option<String> {
    let port = server(greeting.into(), answer.into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.unwrap().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let url = format!("{scheme}://127.0.0.1:{port}");
    let settings = NatsSettings {
        servers: vec![ServerUrl::parse(&url, super::protocol::SCHEMES).unwrap()],
        subject: NatsSubject::parse("mqtt.x").unwrap(),
        headers: SinkColumns::default(),
    };
    let mut sink = NatsSink::new(&settings, Arc::new(Mutex::new(Some(Arc::new(tls)))));
    let batch = [Arc::new(SinkMessage::default())];
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let delivered = timeout(Duration::from_millis(500), sink.deliver(&batch)).await;
        delivered.ok().map(|delivered| format!("{:?}", delivered.expect_err("nobody has it")))
    })
}

#[test]
fn answers_that_are_none_end_the_connection() {
    let endless = "x".repeat(LONG);
    for (greeting, answer, why) in [
        (format!("INFO {endless}"), String::new(), "makes no sense"),
        ("220 somebody else\r\n".into(), String::new(), "does not greet"),
        ("INFO {}\r\n".into(), String::new(), "knows no headers"),
        (format!("{INFO}PONG\r\n"), String::new(), "makes no sense"),
        (INFO.into(), endless.clone(), "makes no sense"),
        (INFO.into(), format!("MSG INBOX 1 {}\r\n{endless}", usize::MAX), "makes no sense"),
        (INFO.into(), format!("MSG INBOX 1 {LONG}\r\n{endless}"), "makes no sense"),
        (INFO.into(), "HMSG INBOX 1 9 4\r\nNATS\r\n".into(), "makes no sense"),
        (INFO.into(), "MSG elsewhere 1 2\r\n{}\r\n".into(), "makes no sense"),
        (INFO.into(), "MSG INBOX 1 2\r\n{}\r\n".into(), "is not a stream"),
        // The server closes the connection within a message.
        (INFO.into(), "MSG INBOX 1 20\r\n{".into(), ""),
    ] {
        let said = failure("nats", &greeting, &answer);
        let start = &greeting[..greeting.len().min(40)];
        assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{start}: {said:?}");
    }
}

#[test]
fn an_answer_to_a_message_that_was_not_sent_is_none() {
    let (known, stream) = ("{\"stream\":\"s\",\"seq\":1}", "MSG INBOX9 1 22\r\n");
    let said = failure("nats", INFO, &format!("{stream}{known}\r\n"));
    assert!(said.is_some_and(|said| said.contains("closed")), "it waits for the right one");
}

#[test]
fn a_server_without_tls_is_not_spoken_to_where_tls_is_wanted() {
    let said = failure("tls", INFO, "").expect("at once");
    assert!(said.contains("it has no TLS: use nats://"), "{said}");
    let lying = "INFO {\"headers\":true,\"tls_required\":true}\r\n";
    let said = failure("tls", &format!("{lying}PONG\r\n"), "").expect("at once");
    assert!(said.contains("makes no sense"), "{said}");
    let said = failure("nats", lying, "").expect("at once");
    assert!(said.contains("it wants TLS: use tls://"), "{said}");
}
