//! PostgreSQL servers with excessive, wrong or incomplete answers.

use super::*;
use crate::hostile_server::HostileAnswer::{Bytes, Endless};
use crate::hostile_server::{HostileAnswer, run_on_small_stack, serve};
use crate::sql::SqlDatabase;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &len, body].concat()
}

fn welcome() -> HostileAnswer {
    Bytes([message(b'R', &[0; 4]), message(b'Z', b"I")].concat())
}

/// Returns a response to a query with one column of the type `kind`; rows follow.
fn column(kind: u32) -> Vec<u8> {
    let mut body = b"\0\x01name\0\0\0\0\0\0\0".to_vec();
    body.extend(kind.to_be_bytes());
    body.extend([0, 8, 0xff, 0xff, 0xff, 0xff, 0, 1]);
    [message(b'1', b""), message(b'2', b""), message(b't', b"\0\0"), message(b'T', &body)].concat()
}

fn row(value: &[u8]) -> Vec<u8> {
    let len = (value.len() as u32).to_be_bytes();
    message(b'D', &[&[0, 1][..], &len, value].concat())
}

fn done() -> Vec<u8> {
    [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()
}

fn error(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mno\0\0").as_bytes())
}

fn database(port: u16) -> PostgresDatabase {
    let url = format!("postgres://ann:secret@127.0.0.1:{port}/db");
    PostgresDatabase::new(&ServerUrl::parse(&url, SCHEMES).unwrap(), None)
}

/// Returns the result of each query, until the connection is unusable.
fn ask(script: Vec<HostileAnswer>, count: usize) -> Vec<Result<String, String>> {
    let database = database(serve(script));
    run_on_small_stack(async move {
        let mut conn = match database.connect().await {
            Ok(conn) => conn,
            Err(why) => return vec![Err(why)],
        };
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(match database.query(&mut conn, "SELECT $1", &[b"x".to_vec()]).await {
                Ok(rows) => Ok(rows[0].text("name").unwrap_or("NULL").to_string()),
                Err(RemoteError::ErrorReply(why)) => Err(why),
                Err(error) => Err(format!("broken: {}", error.into_text())),
            });
        }
        all
    })
}

fn ask_once(script: Vec<HostileAnswer>) -> String {
    ask(script, 1).remove(0).expect_err("no answer")
}

const TOO_MUCH: &str = "broken: it answers with more than we read";

#[test]
fn an_answer_without_end_is_none() {
    let endless = |first: Vec<u8>, others: &[u8]| {
        ask_once(vec![welcome(), Endless(first, others.repeat(1000))])
    };
    let notice = message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mx\0\0");
    assert_eq!(endless(column(25), &row(b"x")), TOO_MUCH);
    assert_eq!(endless(Vec::new(), &notice), TOO_MUCH);
    // A message with the longest possible length.
    assert_eq!(endless(b"D\x7f\xff\xff\xff\0\x01".to_vec(), b"x"), TOO_MUCH);
    let why = ask_once(vec![Endless(message(b'R', &[0; 4]), notice)]);
    assert!(why.ends_with("it answers with more than we read"), "{why}");
    // The server sends column names once, but each value would store its name.
    let name = [&b"\0\x01"[..], &[b'n'; 200_000], b"\0\0\0\0\0\0\0\0\0\0\x19\0\x08\0\0\0\0\0\x01"];
    let rows = [message(b'T', &name.concat()), row(b"x").repeat(100), done()].concat();
    let answer = [message(b'1', b""), message(b't', b"\0\0"), rows].concat();
    assert_eq!(ask_once(vec![welcome(), Bytes(answer)]), TOO_MUCH);
}

#[test]
fn values_of_another_type_than_they_say_are_no_word() {
    let answer = |kind, value: &[u8]| Bytes([column(kind), row(value), done()].concat());
    let script =
        vec![welcome(), answer(20, b"123"), answer(25, b"\xff"), answer(23, &[0, 0, 0, 7])];
    let found = ask(script, 3);
    assert_eq!(found, [Ok("\0int8".into()), Ok("NULL".into()), Ok("7".into())]);
}

#[test]
fn nonsense_breaks_the_connection() {
    let two = message(b'D', b"\0\x02\xff\xff\xff\xff\xff\xff\xff\xff");
    let beyond = message(b'D', b"\0\x01\0\0\x10\0x");
    for rows in [two, beyond, message(b'?', b""), message(b'D', b""), b"D\0\0\0\x03".to_vec()] {
        let answer = [column(25), rows, done()].concat();
        let why = ask_once(vec![welcome(), Bytes(answer)]);
        assert!(why.starts_with("broken: "), "{why}");
    }
    for greeting in [message(b'R', &[0, 0, 0, 99]), message(b'R', b""), b"HTTP/1.1".to_vec()] {
        assert!(ask_once(vec![Bytes(greeting)]).starts_with("127.0.0.1:"));
    }
}

#[test]
fn a_server_that_closes_in_the_middle_has_not_answered() {
    let whole = [column(25), row(b"x"), done()].concat();
    for len in [0, 3, 30, 60, whole.len() - 1] {
        let why = ask_once(vec![welcome(), Bytes(whole[..len].to_vec())]);
        assert!(why.starts_with("broken: "), "{len}: {why}");
    }
    assert_eq!(ask(vec![welcome(), Bytes(whole)], 1), [Ok("x".into())]);
    assert!(ask_once(vec![Bytes(Vec::new())]).starts_with("127.0.0.1:"));
}

#[test]
fn after_an_error_the_connection_is_good_unless_the_server_closes_it() {
    let wrong = Bytes([error("ERROR", "42P01"), message(b'Z', b"I")].concat());
    let right = Bytes([column(25), row(b"x"), done()].concat());
    let found = ask(vec![welcome(), wrong, right], 2);
    assert_eq!(found, [Err("no (42P01)".into()), Ok("x".into())]);
    let why = ask_once(vec![welcome(), Bytes(error("FATAL", "57P01"))]);
    assert!(why.starts_with("broken: "), "{why}");
}

#[test]
fn a_password_is_not_told_without_tls() {
    let plain = ask_once(vec![Bytes(message(b'R', &[0, 0, 0, 3]))]);
    assert!(plain.ends_with("it wants the password in plain text, which needs TLS"), "{plain}");
    let hashed = ask_once(vec![Bytes(message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]))]);
    assert!(hashed.ends_with("it wants a proof by MD5, which needs TLS"), "{hashed}");
}

#[test]
fn a_server_without_tls_is_not_spoken_to() {
    let port = serve(vec![Bytes(b"N".to_vec())]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.unwrap().with_root_certificates(rustls::RootCertStore::empty());
    let tls = Some(Arc::new(tls.with_no_client_auth()));
    let url = format!("postgres://127.0.0.1:{port}");
    let database = PostgresDatabase::new(&ServerUrl::parse(&url, SCHEMES).unwrap(), tls);
    let why = run_on_small_stack(async move { database.connect().await.err() });
    assert_eq!(why, Some(format!("127.0.0.1:{port}: it does not speak TLS")));
}

/// The library queries the parts of an unknown type, and the parts of these.
#[test]
fn types_in_types_without_end_end() {
    let described = |columns: &[(&str, u32)]| {
        let mut body = (columns.len() as u16).to_be_bytes().to_vec();
        for (name, kind) in columns {
            body.extend([name.as_bytes(), &[0; 7], &kind.to_be_bytes()].concat());
            body.extend([0, 8, 0, 0, 0, 0, 0, 0]);
        }
        let prepared = [message(b'1', b""), message(b't', b"\0\x01\0\0\0\x1a")].concat();
        [prepared, message(b'T', &body), message(b'Z', b"I")].concat()
    };
    let parts = [("n", 19), ("t", 18), ("e", 26), ("r", 26), ("b", 26), ("s", 19), ("c", 26)];
    let data = |values: &[&[u8]]| {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            body.extend((value.len() as u32).to_be_bytes());
            body.extend(*value);
        }
        [message(b'2', b""), message(b'D', &body), done()].concat()
    };
    // Domains of domains: the library sends a query for each.
    let first = [column(70_000), done()].concat();
    let mut script = vec![welcome(), Bytes(first), Bytes(described(&parts))];
    for base in 70_001_u32..71_000 {
        let (base, zero): (_, &[u8]) = (base.to_be_bytes(), &[0; 4]);
        script.push(Bytes(data(&[b"n", b"d", zero, zero, &base, b"s", zero])));
    }
    let why = ask_once(script);
    assert_eq!(why, "broken: its answer needs more questions than we ask");
}
