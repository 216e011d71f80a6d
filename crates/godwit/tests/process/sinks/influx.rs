//! Sinks to a real InfluxDB 1.x.

use super::contract::{OURS, SinkPlace, SinkRig, SinkRow, sink, stands, wait_for};
use super::relay::TcpRelay;
use crate::installed::is_installed;
use crate::ports::free_port;
use crate::servers::{ServerProcess, folder};
use crate::stub::{TestWebServer, WebResponse};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

struct InfluxPlace {
    folder: PathBuf,
    port: u16,
    relay: TcpRelay,
    started: Option<ServerProcess>,
}

const WHO: &str = "godwit:it%27s";

impl InfluxPlace {
    fn new(name: &str) -> InfluxPlace {
        let (folder, port) = (folder(name, "root"), free_port());
        let mut influx = InfluxPlace { folder, port, relay: TcpRelay::to(port), started: None };
        influx.start();
        influx.ask("CREATE USER godwit WITH PASSWORD 'it\\'s' WITH ALL PRIVILEGES");
        influx.ask("CREATE DATABASE plant");
        influx
    }

    fn ask(&self, statement: &str) -> Value {
        let mut encoded = String::new();
        statement.bytes().for_each(|byte| encoded.push_str(&format!("%{byte:02X}")));
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return Value::Null;
        };
        let target = format!("/query?db=plant&u=godwit&p=it%27s&q={encoded}");
        let method = if statement.starts_with("SELECT") { "GET" } else { "POST" };
        write!(stream, "{method} {target} HTTP/1.0\r\n\r\n").expect(OURS);
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        let (_, body) = said.split_once("\r\n\r\n").unwrap_or_default();
        serde_json::from_str(body).unwrap_or_default()
    }

    /// Returns the values of a column, ordered by time.
    fn values(&self, column: &str) -> Vec<Value> {
        let said = self.ask(&format!("SELECT {column} FROM m"));
        let values = said["results"][0]["series"][0]["values"].as_array().cloned();
        values.unwrap_or_default().into_iter().map(|row| row[1].clone()).collect()
    }
}

impl SinkPlace for InfluxPlace {
    const NAME: &'static str = "influx";

    fn options(&self) -> String {
        format!(
            "influx.url = \"http://{WHO}@127.0.0.1:{}/write?db=plant\"\n\
             influx.measurement = \"m\"\ninflux.tags = [\"at=${{topic}}\"]\n\
             influx.fields = ['topic=\"${{topic}}\"', 'payload=\"${{payload}}\"']\n",
            self.port
        )
    }

    fn rows(&self) -> Vec<SinkRow> {
        let said = self.ask("SELECT topic, payload FROM m");
        let rows = said["results"][0]["series"][0]["values"].as_array().cloned();
        let text = |value: &Value| value.as_str().expect("a string").to_string();
        rows.unwrap_or_default().iter().map(|row| (text(&row[1]), text(&row[2]))).collect()
    }

    fn stop(&mut self) {
        self.started = None;
    }

    fn start(&mut self) {
        let InfluxPlace { folder, port, .. } = self;
        let (folder, backups) = (folder.display(), free_port());
        let options = format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:{backups}\"\n\
             [meta]\ndir = \"{folder}/meta\"\n[data]\ndir = \"{folder}/data\"\n\
             wal-dir = \"{folder}/wal\"\n[monitor]\nstore-enabled = false\n\
             [http]\nbind-address = \"127.0.0.1:{port}\"\nauth-enabled = true\n\
             log-enabled = false\n"
        );
        let file = self.folder.join("influxdb.conf");
        fs::write(&file, options).expect(OURS);
        let file = file.display().to_string();
        let command = ["influxd", "-config", &file];
        self.started = Some(ServerProcess::new(&command, "root", "TERM", "Listening for signals"));
    }

    fn clear(&mut self) {
        self.ask("DROP MEASUREMENT m");
    }

    fn relay(&self) -> Option<&TcpRelay> {
        Some(&self.relay)
    }
}

impl Drop for InfluxPlace {
    fn drop(&mut self) {
        self.started = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn influxdb_stands_the_contract() {
    if is_installed("InfluxDB", "influxd") {
        stands(&mut InfluxPlace::new("sink-influx"));
    }
}

#[test]
fn influxdb_gets_values_with_their_types_and_one_bad_line_keeps_no_other_back() {
    if !is_installed("InfluxDB", "influxd") {
        return;
    }
    let influx = InfluxPlace::new("sink-influx-own-server");
    let fields = "influx.fields = ['v=${payload.v}', 'n=${payload.n}i', 'is=${payload.is}']";
    let options = sink(&influx, "\"a/#\"", "refused_tries = 1\n");
    let text: Vec<&str> = options
        .lines()
        .map(|line| if line.starts_with("influx.fields") { fields } else { line })
        .collect();
    let text = text.join("\n").replace("batch.wait_ms = 20", "batch.wait_ms = 700");
    let edge = SinkRig::start("sink-influx-own", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    let tag = "a/x,at=b c\\";
    for payload in [
        r#"{"v": 1, "n": 3, "is": true}"#,
        r#"{"v": "a text where numbers are"}"#,
        r#"{"w": "no field"}"#,
        r#"{"v": 2.5, "n": 4}"#,
    ] {
        edge.publish(&["-t", tag, "-m", payload, "-q", "1"]);
    }
    edge.wait_for_value("dropped/refused", |value| value == "2");
    edge.wait_until_done();
    wait_for(&influx, "types", |_| influx.values("v").len() == 2);
    let numbers: Vec<f64> = influx.values("v").iter().filter_map(Value::as_f64).collect();
    assert_eq!(numbers, [1.0, 2.5]);
    assert_eq!(influx.values("n"), [3, 4].map(Value::from).to_vec());
    assert_eq!(influx.values("\"is\"")[0], Value::from(true));
    let tags = influx.ask("SHOW TAG VALUES WITH KEY = at");
    let expected = "a/x,at=b c%5C";
    assert_eq!(tags["results"][0]["series"][0]["values"][0][1], expected);
}

#[test]
fn influxdb_of_2_is_asked_as_it_wants() {
    let web = TestWebServer::start(0, None, |_| WebResponse::Json(204, String::new()));
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\ninflux.token = \"it's secret\"\n\
         influx.url = \"{}/api/v2/write?org=o&bucket=b\"\ninflux.measurement = \"m\"\n\
         influx.fields = [\"v=${{payload}}\"]\n",
        web.url().trim_end_matches('/')
    );
    let edge = SinkRig::start("sink-influx-2", &text, &[]);
    // Its session has to be there, for what comes before goes past it.
    edge.wait_for_value("state", |value| value == "1");
    edge.publish(&["-t", "a", "-m", "21.5", "-q", "1"]);
    edge.wait_for_value("out/messages", |value| value == "1");
    let asked = web.asked();
    assert_eq!(asked[0].line, "POST /api/v2/write?org=o&bucket=b HTTP/1.1");
    let line: Vec<&str> = asked[0].body.split(' ').collect();
    assert_eq!(line[..2], ["m", "v=21.5"]);
    assert!(line[2].trim_end().parse::<u64>().is_ok_and(|ns| ns > 1_700_000_000_000_000_000));
    let token = "authorization: token it's secret";
    let headers: Vec<String> = asked[0].headers.iter().map(|one| one.to_lowercase()).collect();
    assert!(headers.iter().any(|header| header == token), "{headers:?}");
}

/// Lines that the server receives: the fields which the message has, the time from the message, and
/// no line for a message without any field. Such a message is not retried.
#[test]
fn a_line_has_what_the_message_has_and_its_own_time() {
    let web = TestWebServer::start(0, None, |_| WebResponse::Json(204, String::new()));
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"s/#\"]\nrefused_tries = 10\nretry_min_ms = 10000\n\
         influx.url = \"{}/write?db=x\"\ninflux.measurement = \"m\"\n\
         influx.tags = [\"d=${{topic[2]}}\", \"unit=in ${{payload.unit}}\"]\n\
         influx.fields = ['t=${{payload.t}}', 's=\"${{payload.s}}\"', 'n=${{payload.n}}i']\n\
         influx.time = \"${{payload.at}}\"\ninflux.time_unit = \"s\"\n",
        web.url().trim_end_matches('/')
    );
    let edge = SinkRig::start("sink-influx-lines", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    for (topic, payload) in [
        ("s/a", r#"{"t":21,"at":1700000000}"#),
        ("s/b", "no json"),
        ("s/c", r#"{"at":1700000000}"#),
        ("s/d", r#"{"t":null,"s":"","at":"2023-11-14T22:13:20.5Z","unit":"K"}"#),
        ("s/e", r#"{"t":1,"at":"yesterday"}"#),
        ("s/f", r#"{"n":7,"s":"x","at":1700000000.25}"#),
    ] {
        edge.publish(&["-t", topic, "-m", payload, "-q", "1"]);
    }
    edge.wait_for_value("out/messages", |value| value == "3");
    edge.wait_for_value("dropped/refused", |value| value == "3");
    let bodies: String = web.asked().iter().map(|asked| asked.body.clone()).collect();
    let expected = [
        "m,d=a t=21 1700000000000000000",
        "m,d=d,unit=in\\ K s=\"\" 1700000000500000000",
        "m,d=f s=\"x\",n=7i 1700000000250000000",
    ];
    assert_eq!(bodies.lines().collect::<Vec<_>>(), expected);
}
