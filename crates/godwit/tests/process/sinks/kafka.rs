//! Sinks to topics of a real Kafka, whose jars `cargo x test` downloads.

use super::contract::{OURS, SinkPlace, SinkRig, SinkRow, stands};
use super::log::{KafkaLogClient, StoredRecord};
use super::relay::TcpRelay;
use super::tls::certificates;
use crate::broker::PATIENCE;
use crate::installed::is_installed;
use crate::ports::free_port;
use crate::servers::{ServerProcess, folder, run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A Kafka cluster of one or two nodes. Node 0 is also the controller; partitions are on both.
struct KafkaPlace {
    folder: PathBuf,
    nodes: Vec<KafkaNode>,
    controller: u16,
    /// Offset in the topic from which rows are read.
    from: i64,
}

struct KafkaNode {
    plain: u16,
    /// Relay to the advertised listener of the node.
    relay: TcpRelay,
    tls: u16,
    started: Option<ServerProcess>,
}

const TOPIC: &str = "rows";
const SECRET: &str = "it's secret";
/// Command of a Java process with the first compiler stage only, which is enough for a test and
/// starts fast.
const JAVA: &[&str] = &["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp"];
const LOGS: &str = "Configuration:
  Appenders:
    Console: {name: err, target: SYSTEM_ERR, PatternLayout: {pattern: \"%p %m%n\"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: err}}
    Logger: [{name: kafka.server.KafkaRaftServer, level: INFO}]
";

fn jars() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    target.join("clients/kafka")
}

fn has_kafka() -> bool {
    is_installed("Java", "java") && is_installed("Kafka", jars())
}

impl KafkaPlace {
    fn new(name: &str, nodes: usize) -> KafkaPlace {
        let folder = folder(name, "root");
        let certificates = certificates(&format!("{name}-tls"));
        for name in ["ca.pem", "stranger-ca.pem"] {
            fs::copy(certificates.join(name), folder.join(name)).expect(OURS);
        }
        let part = |name: &str| fs::read_to_string(certificates.join(name)).expect(OURS);
        let both = part("server.key") + &part("server.pem");
        fs::write(folder.join("server.pem"), both).expect(OURS);
        let _ = fs::remove_dir_all(certificates);
        fs::write(folder.join("log4j2.yaml"), LOGS).expect(OURS);
        let node = |_| {
            let plain = free_port();
            KafkaNode { plain, relay: TcpRelay::to(plain), tls: free_port(), started: None }
        };
        let nodes: Vec<KafkaNode> = (0..nodes).map(node).collect();
        let mut kafka = KafkaPlace { folder, nodes, controller: free_port(), from: 0 };
        for at in 0..kafka.nodes.len() {
            let file = kafka.write_options(at);
            let user = format!("[name=godwit,password=\"{SECRET}\"]");
            let users = [256, 512].map(|bits| format!("SCRAM-SHA-{bits}={user}"));
            let cluster = "4L6g3nShT-eMCtK--X86sw";
            let mut format = Command::new(JAVA[0]);
            format.args(&JAVA[1..]).arg(jars().join("*")).arg("kafka.tools.StorageTool");
            format.args(["format", "-t", cluster, "-c", &file]);
            users.iter().for_each(|user| _ = format.args(["--add-scram", user]));
            run(format, "");
            kafka.start_node(at);
        }
        kafka
    }

    /// Writes the configuration of the node with the index `at`.
    fn write_options(&self, at: usize) -> String {
        let (folder, controller) = (self.folder.display(), self.controller);
        let KafkaNode { plain, relay, tls, .. } = &self.nodes[at];
        let here = format!("PLAINTEXT://127.0.0.1:{plain},SASL_SSL://localhost:{tls}");
        let said = relay.instead(&here);
        let (roles, more) = match at {
            0 => ("broker,controller", format!(",CONTROLLER://127.0.0.1:{controller}")),
            _ => ("broker", String::new()),
        };
        let login = "org.apache.kafka.common.security";
        let options = format!(
            "process.roles={roles}\nnode.id={}\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\nlisteners={here}{more}\n\
             advertised.listeners={said}\nlog.dirs={folder}/{at}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,\
             SASL_SSL:SASL_SSL\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.sasl_ssl.plain.sasl.jaas.config={login}.plain.PlainLoginModule \
             required user_godwit=\"{SECRET}\";\n\
             listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
             {login}.scram.ScramLoginModule required;\n\
             listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
             {login}.scram.ScramLoginModule required;\n\
             ssl.keystore.type=PEM\nssl.keystore.location={folder}/server.pem\n\
             message.max.bytes=8388608\nauto.create.topics.enable=false\n\
             num.network.threads=1\nnum.io.threads=2\n\
             broker.session.timeout.ms=400\nbroker.heartbeat.interval.ms=50\n",
            at + 1
        );
        let file = self.folder.join(format!("{at}.properties"));
        fs::write(&file, options).expect(OURS);
        file.display().to_string()
    }

    fn start_node(&mut self, at: usize) {
        let file = self.folder.join(format!("{at}.properties")).display().to_string();
        let logs =
            format!("-Dlog4j2.configurationFile={}", self.folder.join("log4j2.yaml").display());
        let jars = jars().join("*").display().to_string();
        let (first, rest) = (&JAVA[..1], &JAVA[1..]);
        let command = [first, &[&logs], rest, &[&jars, "kafka.Kafka", &file]].concat();
        let started = ServerProcess::new(&command, "root", "KILL", "Kafka Server started");
        self.nodes[at].started = Some(started);
    }

    fn log(&self, at: usize) -> Option<KafkaLogClient> {
        KafkaLogClient::connect(self.nodes[at].plain)
    }

    fn make(&self, topic: &str, leaders: &[i32], largest: &str) {
        self.log(0).expect("it is there").make(topic, leaders, largest);
    }
}

impl SinkPlace for KafkaPlace {
    const NAME: &'static str = "kafka";

    fn options(&self) -> String {
        let port = self.nodes[0].plain;
        format!("kafka.servers = [\"127.0.0.1:{port}\"]\nkafka.topic = \"{TOPIC}\"\n")
    }

    fn rows(&self) -> Vec<SinkRow> {
        let Some(mut log) = self.log(0) else { return Vec::new() };
        log.read(TOPIC, 0, self.from).iter().map(StoredRecord::row).collect()
    }

    fn stop(&mut self) {
        self.nodes[0].started = None;
    }

    fn start(&mut self) {
        self.start_node(0);
    }

    fn clear(&mut self) {
        self.from = self.log(0).expect("it is there").end(TOPIC, 0);
    }

    fn relay(&self) -> Option<&TcpRelay> {
        Some(&self.nodes[0].relay)
    }
}

impl Drop for KafkaPlace {
    fn drop(&mut self) {
        self.nodes.clear();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn kafka_stands_the_contract() {
    if has_kafka() {
        let mut kafka = KafkaPlace::new("sink-kafka", 1);
        kafka.make(TOPIC, &[1], "8388608");
        stands(&mut kafka);
    }
}

/// Returns the values of each key in order, with the partition of the key.
fn of_keys(
    kafka: &KafkaPlace,
    topic: &str,
    leaders: &[i32],
) -> BTreeMap<String, (i32, Vec<String>)> {
    let mut keys = BTreeMap::new();
    for (partition, leader) in leaders.iter().enumerate() {
        let Some(mut log) = kafka.log(*leader as usize - 1) else { continue };
        for stored in log.read(topic, partition as i32, 0) {
            let key = stored.key.clone().expect("each has a key");
            let (known, values) = keys.entry(key).or_insert((partition as i32, Vec::new()));
            assert_eq!(*known, partition as i32, "a key is in one partition");
            values.push(stored.value);
        }
    }
    keys
}

#[test]
fn keys_of_kafka_keep_their_order_whoever_leads_them() {
    if !has_kafka() {
        return;
    }
    let mut kafka = KafkaPlace::new("sink-kafka-own-server", 2);
    let options = |kafka: &KafkaPlace, sasl: &str, password: &str, authority: &str| {
        format!(
            "[[sink]]\nname = \"s\"\nfilters = [\"a/#\"]\nretry_min_ms = 50\nretry_max_s = 1\n\
             refused_tries = 2\nbatch.wait_ms = 300\n\
             kafka.servers = [\"localhost:1\", \"localhost:{}\"]\n\
             kafka.topic = \"of.${{topic[2]}}\"\nkafka.key = \"${{topic[3]}}\"\n\
             kafka.tls = true\nkafka.sasl = \"{sasl}\"\nkafka.user = \"godwit\"\n\
             kafka.password = \"{password}\"\ntls.ca = \"{}/{authority}\"\n",
            kafka.nodes[0].tls,
            kafka.folder.display(),
        )
    };
    let (scram, plain) = ("scram-sha-256", "plain");
    let text = options(&kafka, scram, SECRET, "stranger-ca.pem");
    let mut edge = SinkRig::start("sink-kafka-own", &text, &[]);
    edge.wait_for_value("last_error", |value| value.contains("certificate"));
    edge.reload(&options(&kafka, scram, "wrong", "ca.pem"));
    edge.wait_for_value("last_error", |value| value.contains("SASL_AUTHENTICATION_FAILED"));
    edge.reload(&options(&kafka, scram, SECRET, "ca.pem"));
    edge.wait_for_value("state", |value| value == "1");
    let publish = |edge: &SinkRig, topic: &str, payload: &str| {
        edge.publish(&["-t", topic, "-m", payload, "-q", "1"]);
    };

    // A topic that is not there, whose partitions two brokers lead.
    publish(&edge, "a/x/foobar", "first");
    edge.wait_for_value("last_error", |value| value.contains("UNKNOWN_TOPIC"));
    let leaders = [1, 2, 1, 2];
    kafka.make("of.x", &leaders, "20000");
    edge.wait_for_value("out/messages", |value| value == "1");
    let first = of_keys(&kafka, "of.x", &leaders);
    // murmur2("foobar") is -790332482.
    assert_eq!(first["foobar"], (2, vec!["first".to_string()]));

    // More than the topic takes at once, and one that is too large by itself.
    let names = ["foobar", "21", "abc", "b", "c"];
    let text = |name: &str, at: usize| format!("{at:02} of {name} {}", "x".repeat(4000));
    for name in names {
        (0..20).for_each(|at| publish(&edge, &format!("a/x/{name}"), &text(name, at)));
    }
    edge.wait_for_value("out/messages", |value| value == "101");
    publish(&edge, "a/x/abc", &"x".repeat(30_000));
    edge.wait_for_value("last_error", |value| value.contains("MESSAGE_TOO_LARGE"));
    publish(&edge, "a/\u{e9}/x", "no such topic");
    publish(&edge, "a", "no topic at all");
    edge.wait_for_value("last_error", |value| value.contains("UNKNOWN_TOPIC"));
    kafka.make("of._", &[1], "20000");
    kafka.make("of.", &[1], "20000");
    edge.wait_for_value("out/messages", |value| value == "103");
    edge.wait_for_value("dropped/refused", |value| value == "1");
    let keys = of_keys(&kafka, "of.x", &leaders);
    for name in names {
        let wanted: Vec<String> = (0..20).map(|at| text(name, at)).collect();
        let (_, values) = &keys[name];
        let from = usize::from(name == "foobar");
        assert_eq!(values[from..], wanted, "{name}");
    }
    let nodes: BTreeSet<i32> = keys.values().map(|(at, _)| leaders[*at as usize]).collect();
    assert_eq!(nodes.len(), 2, "both lead some of them");

    // One of the two goes: what the other leads is there, and once.
    kafka.nodes[1].started = None;
    let last = |keys: &BTreeMap<String, (i32, Vec<String>)>, name: &str| {
        keys.get(name).map(|(_, values)| values.last().cloned().unwrap_or_default())
    };
    let led_by = |leader: i32| {
        let is_its = |name: &&&str| leaders[keys[**name].0 as usize] == leader;
        names.iter().filter(is_its).copied().collect::<Vec<&str>>()
    };
    let (here, gone) = (led_by(1), led_by(2));
    for name in gone.iter().chain(&here) {
        publish(&edge, &format!("a/x/{name}"), "last");
    }
    wait_until_last(&kafka, &leaders, &here);
    edge.wait_for_value("state", |value| value == "0");
    kafka.start_node(1);
    edge.wait_for_value("out/messages", |value| value == "108");
    let keys = of_keys(&kafka, "of.x", &leaders);
    for name in &here {
        let times = keys[*name].1.iter().filter(|value| *value == "last").count();
        assert_eq!(times, 1, "{name}");
    }
    assert!(gone.iter().all(|name| last(&keys, name).as_deref() == Some("last")));

    edge.reload(&options(&kafka, plain, SECRET, "ca.pem"));
    publish(&edge, "a/x/abc", "plain");
    edge.wait_for_value("out/messages", |value| value == "109");
    let longer = "scram-sha-512";
    edge.reload(&options(&kafka, longer, "wrong", "ca.pem"));
    edge.wait_for_value("last_error", |value| value.contains("SASL_AUTHENTICATION_FAILED"));
    edge.reload(&options(&kafka, longer, SECRET, "ca.pem"));
    publish(&edge, "a/x/abc", longer);
    edge.wait_for_value("out/messages", |value| value == "110");
}

fn wait_until_last(kafka: &KafkaPlace, leaders: &[i32], names: &[&str]) {
    let until = Instant::now() + PATIENCE;
    loop {
        let keys = of_keys(kafka, "of.x", leaders);
        let is_last = |name: &&str| keys[*name].1.last().is_some_and(|value| value == "last");
        if names.iter().all(is_last) {
            return;
        }
        assert!(Instant::now() < until, "what the other one leads is not there");
        thread::sleep(Duration::from_millis(50));
    }
}
