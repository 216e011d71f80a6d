//! Sinks to streams of a real Redis.

use super::contract::{OURS, SinkPlace, SinkRig, SinkRow, stands, wait_for};
use super::places::row_of;
use super::relay::TcpRelay;
use super::tls::certificates;
use crate::installed::is_installed;
use crate::ports::free_port;
use crate::servers::{ServerProcess, folder, give};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

struct RedisStreamPlace {
    folder: PathBuf,
    plain: u16,
    relay: TcpRelay,
    tls: u16,
    started: Option<ServerProcess>,
}

const USER: &str = "redis";
const WHO: &str = "godwit:it%27s%20secret";

impl RedisStreamPlace {
    fn new(name: &str) -> RedisStreamPlace {
        let folder = folder(name, USER);
        let certificates = certificates(&format!("{name}-tls"));
        for name in ["server.pem", "server.key", "ca.pem", "stranger-ca.pem"] {
            fs::copy(certificates.join(name), folder.join(name)).expect(OURS);
            give(&folder.join(name), USER);
        }
        let _ = fs::remove_dir_all(certificates);
        let (plain, tls) = (free_port(), free_port());
        let mut redis =
            RedisStreamPlace { folder, plain, relay: TcpRelay::to(plain), tls, started: None };
        redis.start();
        redis
    }

    /// Returns the reply to a command as JSON.
    fn ask(&self, words: &[&str]) -> serde_json::Value {
        let mut cli = Command::new("redis-cli");
        cli.args(["-3", "--json", "-p", &self.plain.to_string(), "--user", "godwit"]);
        cli.args(["-n", "2", "--no-auth-warning"]).args(words);
        let output = cli.env("REDISCLI_AUTH", "it's secret").output().expect("redis-cli");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn rows_of(&self, key: &str) -> Vec<SinkRow> {
        let all = self.ask(&["XRANGE", key, "-", "+"]);
        let row = |entry: &serde_json::Value| {
            let words = entry[1].as_array().expect("an entry's fields");
            let pairs = words
                .chunks(2)
                .map(|pair| (pair[0].as_str().expect("a name").to_string(), pair[1].clone()));
            row_of(&serde_json::Value::Object(pairs.collect()))
        };
        all.as_array().map_or_else(Vec::new, |all| all.iter().map(row).collect())
    }
}

impl SinkPlace for RedisStreamPlace {
    const NAME: &'static str = "redis";

    fn options(&self) -> String {
        format!("redis.url = \"redis://{WHO}@127.0.0.1:{}/2\"\nredis.key = \"rows\"\n", self.plain)
    }

    fn rows(&self) -> Vec<SinkRow> {
        self.rows_of("rows")
    }

    fn stop(&mut self) {
        self.started = None;
    }

    fn start(&mut self) {
        let RedisStreamPlace { folder, plain, tls, .. } = self;
        let folder = folder.display();
        let options = format!(
            "bind 127.0.0.1\nport {plain}\ntls-port {tls}\ndir {folder}\n\
             save \"\"\nappendonly yes\nappendfsync no\ntls-auth-clients no\n\
             tls-cert-file {folder}/server.pem\ntls-key-file {folder}/server.key\n\
             user default off\nuser godwit on \">it's secret\" ~* &* +@all\n"
        );
        let file = self.folder.join("redis.conf");
        fs::write(&file, options).expect(OURS);
        give(&file, USER);
        // It tells on stdout that it is ready.
        let file = file.display().to_string();
        let command = ["sh", "-c", "exec redis-server \"$0\" >&2", &file];
        self.started =
            Some(ServerProcess::new(&command, USER, "TERM", "Ready to accept connections"));
    }

    fn clear(&mut self) {
        self.ask(&["FLUSHALL"]);
    }

    fn relay(&self) -> Option<&TcpRelay> {
        Some(&self.relay)
    }
}

impl Drop for RedisStreamPlace {
    fn drop(&mut self) {
        self.started = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn redis_stands_the_contract() {
    if is_installed("Redis", "redis-server") {
        stands(&mut RedisStreamPlace::new("sink-redis"));
    }
}

#[test]
fn streams_of_redis_wait_for_room_and_pass_over_what_is_no_stream() {
    if !is_installed("Redis", "redis-server") {
        return;
    }
    let redis = RedisStreamPlace::new("sink-redis-own-server");
    let options = |authority: &str| {
        format!(
            "[[sink]]\nname = \"s\"\nfilters = [\"a/#\"]\nretry_min_ms = 50\n\
             retry_max_s = 1\nrefused_tries = 2\nbatch.wait_ms = 300\n\
             redis.url = \"rediss://{WHO}@localhost:{}/2\"\n\
             redis.key = \"of:${{topic[2]}}\"\nredis.entries_max = 9\n\
             tls.ca = \"{}/{authority}\"\n",
            redis.tls,
            redis.folder.display()
        )
    };
    let mut edge = SinkRig::start("sink-redis-own", &options("stranger-ca.pem"), &[]);
    edge.wait_for_value("last_error", |value| value.contains("certificate"));
    edge.reload(&options("ca.pem"));
    edge.wait_for_value("state", |value| value == "1");

    // One key is no stream: what goes elsewhere is there, and once.
    redis.ask(&["SET", "of:text", "no stream"]);
    for (topic, payload) in [("a/x", "1"), ("a/text", "2"), ("a/x", "3"), ("a/x", "4")] {
        edge.publish(&["-t", topic, "-m", payload, "-q", "1"]);
    }
    let line = edge.broker.program.wait_for("not passed on");
    assert!(line.contains("WRONGTYPE") && line.contains("a/text"), "{line}");
    let row = |payload: &str| ("a/x".to_string(), payload.to_string());
    edge.wait_for_value("out/messages", |value| value == "3");
    assert_eq!(redis.rows_of("of:x"), ["1", "3", "4"].map(row));
    edge.wait_for_value("dropped/refused", |value| value == "1");

    // No room, and one that may not write: neither is a refusal.
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    edge.publish(&["-t", "a/x", "-m", "5", "-q", "1"]);
    edge.wait_for_value("last_error", |value| value.contains("OOM"));
    redis.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    edge.wait_for_value("last_error", |value| value.contains("READONLY"));
    redis.ask(&["REPLICAOF", "NO", "ONE"]);
    let until = |rows: &[SinkRow]| rows == ["1", "3", "4", "5"].map(row);
    wait_for(&redis, "room again", |_| until(&redis.rows_of("of:x")));
    edge.wait_for_value("dropped/refused", |value| value == "1");

    // Bytes that are no text, and the bound of a stream.
    edge.publish(&["-t", "a/y", "-m", "\u{fffd}", "-q", "1"]);
    edge.count("a/z", "1", 0..1000);
    edge.wait_until_done();
    let left = redis.ask(&["XLEN", "of:z"]).as_u64().expect("a number");
    assert!((9..500).contains(&left), "{left}");
}
