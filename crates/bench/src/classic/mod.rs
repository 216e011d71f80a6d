//! `conn`, `pub` and `sub`: emqtt_bench's flags and output lines, so that scripts carry over, and
//! what its users miss: an end by duration or count, a summary, an exit code, JSON.

use crate::conduct::Row;
use crate::flags::{Flag, Line, help, read};
use crate::limits::{DRAIN_S_DEFAULT, PAYLOAD_BYTES_MAX, PUBLISHER_PER_S_MAX, WINDOW_DEFAULT};
use crate::metrics::Metrics;
use crate::plan::{Body, Field, Group, Pace, Plan, Publishing, Start, Target};
use crate::report::{self, Subject};
use crate::session::{self, Ending};
use crate::tally::{COUNTS, Sampler, Tally};
use crate::target;
use crate::watch::Whom;
use carrier::{Scheme, Trust};
use mqtt::{QoS, Version};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Conn,
    Pub,
    Sub,
}

pub(crate) fn conn(arguments: &[String]) -> ExitCode {
    run(Kind::Conn, arguments)
}

pub(crate) fn publish(arguments: &[String]) -> ExitCode {
    run(Kind::Pub, arguments)
}

pub(crate) fn subscribe(arguments: &[String]) -> ExitCode {
    run(Kind::Sub, arguments)
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Conn => "conn",
            Kind::Pub => "pub",
            Kind::Sub => "sub",
        }
    }

    fn tables(self) -> Vec<&'static [Flag]> {
        match self {
            Kind::Conn => vec![SHARED, OURS],
            Kind::Pub => vec![PUB, SHARED, OURS],
            Kind::Sub => vec![SUB, SHARED, OURS],
        }
    }
}

fn run(kind: Kind, arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help") {
        let name = kind.name();
        crate::say(format_args!("Usage: godwit-bench {name} [FLAGS]\n\n{}", help(&kind.tables())));
        return ExitCode::SUCCESS;
    }
    let order =
        read(&kind.tables(), arguments).and_then(|line| order(kind, line).map_err(|why| vec![why]));
    let Order { plan, subject, ending, line } = match order {
        Ok(order) => order,
        Err(wrongs) => return crate::refuse(&wrongs),
    };
    let metrics = match line.text("--restapi").filter(|place| *place != "disabled") {
        Some(place) => Metrics::start(place).map(Some),
        None => Ok(None),
    };
    let metrics = match metrics {
        Ok(metrics) => metrics,
        Err(why) => return crate::refuse(&[format!("--restapi {why}")]),
    };
    let workers = plan.threads;
    let interval = line.text("--interval").unwrap_or("0");
    let addresses = plan.local.len().max(1);
    let mut lines = Lines::new(ending.json.as_deref() == Some(Path::new("-")));
    lines.put(&format!(
        "Start with {workers} workers, addrs pool size: {addresses} and req interval: \
         {interval} ms\n\n"
    ));
    let mut see = |row: &Row, total: &Tally| {
        lines.print(row, total);
        metrics.iter().for_each(|metrics| metrics.update(total));
    };
    let report = match session::run(plan, &subject, &mut see) {
        Ok(report) => report,
        Err(why) => return crate::fail(&why),
    };
    let is_counted = line.number::<u64>("--limit").ok().flatten().is_some_and(|n| n > 0);
    if kind == Kind::Pub && is_counted && report["interrupted"] == Value::Bool(false) {
        lines.put("publish complete\n");
    }
    session::end(&report, &ending)
}

/// What a command line asks for.
struct Order {
    plan: Plan,
    subject: Subject,
    ending: Ending,
    line: Line,
}

fn order(kind: Kind, line: Line) -> Result<Order, String> {
    let plan = plan(kind, &line)?;
    let subject = Subject {
        scenario: kind.name().into(),
        scale: 1.0,
        whom: line.number("--pid")?.map(Whom::Process),
        ..Subject::default()
    };
    let ending = Ending { json: line.text("--json").map(Into::into), ..Ending::default() };
    ending.try_out()?;
    Ok(Order { plan, subject, ending, line })
}

fn plan(kind: Kind, line: &Line) -> Result<Plan, String> {
    if let Some(word) = line.words.first() {
        return Err(format!("{word}: only flags are expected here"));
    }
    for (flag, why) in ABSENT {
        let is_wanted = line.text(flag).is_some_and(|value| !["false", "0"].contains(&value));
        if is_wanted {
            return Err(format!("{flag}: {why}"));
        }
    }
    let interval_ms = line.not_negative("--interval")?.unwrap_or(10.0);
    let per_s = match line.not_negative("--connrate")?.unwrap_or(0.0) {
        rate if rate > 0.0 => rate,
        _ => 1_000.0 / interval_ms.max(0.001),
    };
    let waits = kind == Kind::Pub && line.is_on("--wait-before-publishing");
    let mut plan = Plan {
        targets: targets(line)?,
        threads: line.number("--threads")?.unwrap_or(1).max(1),
        connects_per_s: per_s,
        local: line.text("--ifaddr").map_or(Ok(Vec::new()), target::local)?,
        start: if waits { Start::Together } else { Start::Each },
        warm_s: 0.0,
        measure_s: line.seconds("--duration")?,
        drain_s: DRAIN_S_DEFAULT,
        from_sending: false,
        window: line.number("--window")?.unwrap_or(WINDOW_DEFAULT),
        seed: session::seed(),
        share: Plan::default().share,
        groups: Vec::new(),
    };
    plan.groups.push(group(kind, line, plan.seed)?);
    if kind == Kind::Sub && line.text("--topic").is_none() {
        return Err("sub needs --topic".into());
    }
    Ok(plan)
}

fn targets(line: &Line) -> Result<Vec<Target>, String> {
    let port = line.number("--port")?.unwrap_or(1883);
    let hosts = line.text("--host").unwrap_or("localhost").split(',');
    let file = |flag| line.text(flag).map(str::to_string);
    let authorities = file("--cacertfile");
    let trust = Trust {
        // A load tester meets test servers, so without a CA anyone is taken, as in emqtt_bench.
        insecure: authorities.is_none(),
        authorities,
        certificate: file("--certfile"),
        key: file("--keyfile"),
    };
    let scheme = scheme(line)?;
    let carrier = target::carrier(scheme, &trust)?;
    hosts.map(|host| target::resolve(host.trim(), port, scheme, &carrier)).collect()
}

fn scheme(line: &Line) -> Result<Scheme, String> {
    let name = match (line.text("--quic"), line.is_on("--ws"), line.is_on("--ssl")) {
        (Some("true"), true, _) => return Err("--quic and --ws: use one of them".into()),
        (Some("true"), false, _) => "quic",
        (Some("false") | None, true, true) => "wss",
        (Some("false") | None, true, false) => "ws",
        (Some("false") | None, false, true) => "tls",
        (Some("false") | None, false, false) => "tcp",
        (Some(other), ..) => return Err(format!("--quic {other}: use true or false")),
    };
    Scheme::of(name).ok_or_else(|| format!("{name} is not spoken"))
}

fn group(kind: Kind, line: &Line, seed: u64) -> Result<Group, String> {
    let version = match line.text("--version") {
        Some("3") => Version::V31,
        Some("4") => Version::V311,
        Some("5") | None => Version::V5,
        Some(other) => return Err(format!("--version {other}: use 3, 4 or 5")),
    };
    let clean_start = line.is_on("--clean");
    let clients = line.number("--count")?.unwrap_or(200);
    if clients == 0 {
        return Err("--count 0: use a number above 0".into());
    }
    let mut group = Group {
        clients,
        number_first: line.number("--startnumber")?.unwrap_or(0) + 1,
        client_id: client_id(kind, line, seed),
        user_name: line.text("--username").map(str::to_string),
        password: line.text("--password").map(str::to_string),
        version,
        keep_alive_s: line.number("--keepalive")?.unwrap_or(300),
        clean_start,
        session_expiry_s: line.number("--session-expiry")?.unwrap_or(0),
        connect_retries: line.number("--num-retry-connect")?.unwrap_or(0),
        reconnects: line.number("--reconnect")?.unwrap_or(0),
        ..Group::default()
    };
    match kind {
        Kind::Conn => {}
        Kind::Sub => {
            group.subscribe = line.all("--topic").map(str::to_string).collect();
            group.subscribe_qos = qos(line)?;
            group.fields = fields(line)?;
        }
        Kind::Pub => group.publish = Some(publishing(line)?),
    }
    Ok(group)
}

/// `HOST_bench_pub_RAND_N`; with a prefix `P_bench_pub_N`; short ones `N` or `PN`.
fn client_id(kind: Kind, line: &Line, seed: u64) -> String {
    match (line.text("--prefix"), line.is_on("--shortids")) {
        (None, true) => "%i".into(),
        (Some(prefix), true) => format!("{prefix}%i"),
        (Some(prefix), false) => format!("{prefix}_bench_{}_%i", kind.name()),
        (None, false) => {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            format!("{}_bench_{}_{}_%i", host.trim(), kind.name(), seed % 0xFFFF_FFFF)
        }
    }
}

fn publishing(line: &Line) -> Result<Publishing, String> {
    let topic = line.text("--topic").ok_or("pub needs --topic")?.to_string();
    let interval_ms = line.not_negative("--interval_of_msg")?.unwrap_or(1_000.0);
    let size = line.number("--size")?.unwrap_or(256);
    if interval_ms > 0.0 && 1_000.0 / interval_ms > PUBLISHER_PER_S_MAX {
        return Err(format!("--interval_of_msg {interval_ms}: 0 is as fast as it goes"));
    }
    if size > PAYLOAD_BYTES_MAX {
        return Err(format!("--size {size}: MQTT takes {PAYLOAD_BYTES_MAX} bytes at most"));
    }
    let fields = fields(line)?;
    let body = match line.text("--message") {
        Some(message) => match message.strip_prefix("template://") {
            None => Body::Literal(message.as_bytes().to_vec()),
            Some(file) => Body::Template(
                std::fs::read_to_string(file)
                    .map_err(|error| format!("--message {file}: {error}"))?,
            ),
        },
        None if !fields.is_empty() => Body::Fields(fields, size),
        None => Body::Sized(size),
    };
    let limit: u64 = line.number("--limit")?.unwrap_or(0);
    let wait = |name| line.number(name).map(Option::unwrap_or_default);
    Ok(Publishing {
        topic,
        qos: qos(line)?,
        retain: line.is_on("--retain"),
        body,
        pace: match interval_ms {
            interval if interval > 0.0 => Pace::EveryNs((interval * 1e6) as u64),
            _ => Pace::AsTaken,
        },
        inflight: line.number("--inflight")?.unwrap_or(1),
        messages_max: (limit > 0).then_some(limit),
        wait_ms: (wait("--min-random-wait")?, wait("--max-random-wait")?),
    })
}

fn qos(line: &Line) -> Result<QoS, String> {
    let level = line.number::<u8>("--qos")?.unwrap_or(0);
    QoS::from_bits(level).ok_or_else(|| format!("--qos {level}: use 0, 1 or 2"))
}

fn fields(line: &Line) -> Result<Vec<Field>, String> {
    let names = line.text("--payload-hdrs").unwrap_or_default();
    let names = names.split(',').filter(|name| !name.is_empty());
    names
        .map(|name| match name {
            "cnt64" => Ok(Field::Count),
            "ts" => Ok(Field::Milliseconds),
            other => Err(format!("--payload-hdrs {other}: use cnt64 and ts")),
        })
        .collect()
}

/// emqtt_bench's lines: each second those counters that changed.
#[derive(Debug)]
struct Lines {
    began_ns: u64,
    /// On stdout, unless the report is to be there.
    is_on_stderr: bool,
    is_terminal: bool,
}

impl Lines {
    fn new(is_on_stderr: bool) -> Lines {
        let is_terminal = match is_on_stderr {
            true => std::io::stderr().is_terminal(),
            false => std::io::stdout().is_terminal(),
        };
        Lines { began_ns: 0, is_on_stderr, is_terminal }
    }

    fn print(&mut self, row: &Row, total: &Tally) {
        if self.began_ns == 0 {
            self.began_ns = row.from_ns;
        }
        let elapsed = span((row.until_ns - self.began_ns) / 1_000_000_000);
        let seconds = (row.until_ns - row.from_ns).max(1) as f64 / 1e9;
        let start = if self.is_terminal { "\r" } else { "" };
        let mut text = String::new();
        for (count, name) in COUNTS {
            let n = row.tally.count(*count);
            if n == 0 || name.contains("bytes") {
                continue;
            }
            let (total, rate) = (total.count(*count), n as f64 / seconds);
            text += &format!("{start}{elapsed} {name} total={total} rate={rate:.2}/sec\n");
        }
        for (sampler, name) in [(Sampler::Pub, "publish_latency"), (Sampler::Sub, "e2e_latency")] {
            let times = row.tally.times(sampler);
            if !times.is_empty() {
                let mean = times.mean() / 1e3;
                let p99 = times.value_at_quantile(0.99) as f64 / 1e3;
                text += &format!("{start}{elapsed} {name} avg={mean:.3}ms p99={p99:.3}ms\n");
            }
        }
        self.put(&text);
    }

    fn put(&self, text: &str) {
        // Whoever closed it has seen enough; the exit code still tells.
        let _ = match self.is_on_stderr {
            true => std::io::stderr().write_all(text.as_bytes()),
            false => std::io::stdout().write_all(text.as_bytes()),
        };
    }
}

/// `1h2m3s`
fn span(seconds: u64) -> String {
    let (h, m, s) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, _) => format!("{m}m{s}s"),
        _ => format!("{h}h{m}m{s}s"),
    }
}

pub(crate) fn summary(report: &Value) -> String {
    let mut text = String::new();
    for sampler in report::list(report, "/samplers") {
        let of = |path| report::number(sampler, path);
        text += &format!(
            "{:9} {:>10.0}  mean {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}  max {:.3} ms\n",
            report::text(sampler, "/name"),
            of("/hits"),
            of("/mean"),
            of("/p50"),
            of("/p90"),
            of("/p99"),
            of("/max"),
        );
    }
    text
}

const SHARED: &[Flag] = &[
    Flag {
        names: &["-h", "--host"],
        value: "HOSTS",
        default: "localhost",
        doc: "comma list, taken in turn",
    },
    Flag { names: &["-p", "--port"], value: "PORT", default: "1883", doc: "" },
    Flag { names: &["-V", "--version"], value: "V", default: "5", doc: "3, 4 (3.1.1) or 5" },
    Flag { names: &["-c", "--count"], value: "N", default: "200", doc: "clients" },
    Flag {
        names: &["-R", "--connrate"],
        value: "N",
        default: "0",
        doc: "connections a second; 0: see -i",
    },
    Flag { names: &["-i", "--interval"], value: "MS", default: "10", doc: "between connections" },
    crate::run::IFADDR,
    Flag { names: &["--prefix"], value: "TEXT", default: "", doc: "of client ids" },
    Flag {
        names: &["--shortids"],
        value: "",
        default: "false",
        doc: "client ids are prefix and number",
    },
    Flag {
        names: &["-n", "--startnumber"],
        value: "N",
        default: "0",
        doc: "first client's number less one",
    },
    Flag {
        names: &["--num-retry-connect"],
        value: "N",
        default: "0",
        doc: "for clients that were never connected",
    },
    Flag {
        names: &["--reconnect"],
        value: "N",
        default: "0",
        doc: "for clients that lost their connection",
    },
    Flag { names: &["-u", "--username"], value: "NAME", default: "", doc: "with %i and %rand_N" },
    Flag { names: &["-P", "--password"], value: "TEXT", default: "", doc: "" },
    Flag { names: &["-k", "--keepalive"], value: "S", default: "300", doc: "" },
    Flag { names: &["-C", "--clean"], value: "BOOL", default: "true", doc: "" },
    Flag { names: &["-x", "--session-expiry"], value: "S", default: "0", doc: "MQTT 5" },
    Flag { names: &["-S", "--ssl"], value: "", default: "false", doc: "" },
    Flag {
        names: &["--cacertfile"],
        value: "FILE",
        default: "",
        doc: "verify the server; else anyone is taken",
    },
    Flag { names: &["--certfile"], value: "FILE", default: "", doc: "our own certificate" },
    Flag { names: &["--keyfile"], value: "FILE", default: "", doc: "its key" },
    Flag { names: &["--ws"], value: "", default: "false", doc: "" },
    Flag {
        names: &["--quic"],
        value: "HOW",
        default: "false",
        doc: "true or false; TLS's files are its",
    },
    Flag {
        names: &["--restapi"],
        value: "PLACE",
        default: "",
        doc: "[IP:]PORT that serves /metrics to Prometheus",
    },
    Flag { names: &["--prometheus"], value: "", default: "", doc: "taken; --restapi says where" },
    Flag { names: &["-l", "--lowmem"], value: "", default: "", doc: "taken and not needed" },
    Flag { names: &["-d", "--dist"], value: "", default: "", doc: "taken and not needed" },
    Flag {
        names: &["--force-major-gc-interval"],
        value: "N",
        default: "",
        doc: "taken and not needed",
    },
    Flag {
        names: &["-Q", "--qoe"],
        value: "HOW",
        default: "",
        doc: "taken: the summary always has the latencies",
    },
    Flag { names: &["--qoelog"], value: "FILE", default: "", doc: "refused: see --json" },
    Flag { names: &["--load-qst"], value: "FILE", default: "", doc: "refused: there is no 0-RTT" },
    Flag {
        names: &["--ssl-version"],
        value: "V",
        default: "",
        doc: "refused: the newest that both know is taken",
    },
    Flag { names: &["--ciphers"], value: "LIST", default: "", doc: "refused" },
    Flag { names: &["--signature-algs"], value: "LIST", default: "", doc: "refused" },
    Flag { names: &["--keyex-algs"], value: "LIST", default: "", doc: "refused" },
    Flag { names: &["--log_to"], value: "WHERE", default: "", doc: "taken and not needed" },
];

const OURS: &[Flag] = &[
    Flag { names: &["--duration"], value: "SPAN", default: "", doc: "end after 90s, 5m, 1h" },
    Flag { names: &["--threads"], value: "N", default: "1", doc: "load threads" },
    Flag { names: &["--window"], value: "N", default: "", doc: "deliveries under way with -I 0" },
    Flag { names: &["--pid"], value: "PID", default: "", doc: "the broker's process, to watch" },
    Flag {
        names: &["--json"],
        value: "FILE",
        default: "",
        doc: "write the whole report, - for stdout",
    },
];

const PUB: &[Flag] = &[
    Flag {
        names: &["-t", "--topic"],
        value: "TOPIC",
        default: "",
        doc: "with %u %c %i %s %rand_N anywhere",
    },
    Flag {
        names: &["-I", "--interval_of_msg"],
        value: "MS",
        default: "1000",
        doc: "a client; 0: as fast as taken",
    },
    Flag {
        names: &["-s", "--size"],
        value: "BYTES",
        default: "256",
        doc: "payload; from 16 on it is stamped",
    },
    Flag {
        names: &["-m", "--message"],
        value: "TEXT",
        default: "",
        doc: "payload, or template://FILE",
    },
    Flag { names: &["-q", "--qos"], value: "QOS", default: "0", doc: "" },
    Flag { names: &["-r", "--retain"], value: "BOOL", default: "false", doc: "" },
    Flag {
        names: &["-L", "--limit"],
        value: "N",
        default: "0",
        doc: "messages of all clients together",
    },
    Flag {
        names: &["-F", "--inflight"],
        value: "N",
        default: "1",
        doc: "unacknowledged a client; 0: no bound",
    },
    Flag {
        names: &["-w", "--wait-before-publishing"],
        value: "",
        default: "false",
        doc: "until all are connected",
    },
    Flag {
        names: &["--min-random-wait"],
        value: "MS",
        default: "0",
        doc: "before the first message",
    },
    Flag { names: &["--retry-interval"], value: "S", default: "", doc: "refused unless 0" },
    Flag { names: &["--keep-connected"], value: "BOOL", default: "", doc: "refused unless false" },
    Flag {
        names: &["--topics-payload"],
        value: "FILE",
        default: "",
        doc: "refused: write a scenario and run it",
    },
    Flag { names: &["--max-random-wait"], value: "MS", default: "0", doc: "" },
    Flag { names: &["--payload-hdrs"], value: "LIST", default: "", doc: "cnt64,ts" },
];

const SUB: &[Flag] = &[
    Flag {
        names: &["-t", "--topic"],
        value: "FILTER",
        default: "",
        doc: "may be repeated; with %u %c %i",
    },
    Flag { names: &["-q", "--qos"], value: "QOS", default: "0", doc: "" },
    Flag {
        names: &["--payload-hdrs"],
        value: "LIST",
        default: "",
        doc: "cnt64,ts: read the latency from ts",
    },
];

/// emqtt_bench's flags that are refused rather than ignored: the test would not be what it says.
const ABSENT: &[(&str, &str)] = &[
    ("--load-qst", "tickets of 0-RTT are not kept here"),
    ("--qoelog", "see --json, which has every second"),
    ("--ssl-version", "the newest that both know is taken"),
    ("--ciphers", CIPHERS),
    ("--signature-algs", CIPHERS),
    ("--keyex-algs", CIPHERS),
    ("--topics-payload", "write a scenario and run it: godwit-bench show NAME prints one"),
    ("--retry-interval", "nothing is sent twice here: what is not acknowledged is counted"),
    ("--keep-connected", "publishers leave with the test; use conn for idle connections"),
];
const CIPHERS: &str = "the strongest that both know are taken";

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(kind: Kind, text: &str) -> Result<Plan, String> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        let line = read(&kind.tables(), &arguments).map_err(|wrongs| wrongs.join("; "))?;
        plan(kind, &line)
    }

    #[test]
    fn defaults_are_those_of_emqtt_bench() {
        let plan = plan_of(Kind::Pub, "-h 127.0.0.1 -t a/%i").expect("a good line");
        let group = &plan.groups[0];
        let publishing = group.publish.as_ref().expect("it publishes");
        assert_eq!((group.clients, group.keep_alive_s, group.version), (200, 300, Version::V5));
        assert_eq!(publishing.pace, Pace::EveryNs(1_000_000_000));
        assert_eq!((publishing.inflight, &publishing.body), (1, &Body::Sized(256)));
        assert_eq!((plan.connects_per_s, plan.start, plan.measure_s), (100.0, Start::Each, None));
    }

    #[test]
    fn flags_say_what_is_done() {
        let line = "-h 127.0.0.1,127.0.0.2 -p 1884 -V 4 -c 5 -R 50 -n 10 --prefix p --shortids \
                    -t x -I 0 -q 2 -L 7 -F 0 -w --payload-hdrs cnt64,ts -s 4 --ifaddr 127.0.0.9 \
                    --num-retry-connect 3 --reconnect 4 --min-random-wait 5 --max-random-wait 6 -r";
        let plan = plan_of(Kind::Pub, line).expect("a good line");
        let urls: Vec<&str> = plan.targets.iter().map(|target| target.url.as_str()).collect();
        assert_eq!(urls, ["tcp://127.0.0.1:1884", "tcp://127.0.0.2:1884"]);
        let group = &plan.groups[0];
        assert_eq!((group.client_id.as_str(), group.number_first), ("p%i", 11));
        assert_eq!((group.connect_retries, group.reconnects), (3, 4));
        let publishing = group.publish.as_ref().expect("it publishes");
        assert_eq!(publishing.pace, Pace::AsTaken);
        assert_eq!((publishing.messages_max, publishing.inflight), (Some(7), 0));
        assert_eq!((publishing.wait_ms, publishing.retain), ((5, 6), true));
        assert_eq!(publishing.body, Body::Fields(vec![Field::Count, Field::Milliseconds], 4));
        assert_eq!((plan.start, plan.local.len(), plan.connects_per_s), (Start::Together, 1, 50.0));
    }

    #[test]
    fn what_is_not_done_is_refused() {
        for (kind, line) in [
            (Kind::Pub, "-t x -S --certfile a"),
            (Kind::Pub, "-t x -q 3"),
            (Kind::Pub, ""),
            (Kind::Sub, ""),
            (Kind::Conn, "--quic options.eterm"),
            (Kind::Conn, "--quic true --ws"),
            (Kind::Conn, "--ifaddr eth0"),
            (Kind::Conn, "-V 6"),
            (Kind::Conn, "now"),
            (Kind::Conn, "-i -1"),
            (Kind::Conn, "-R -1"),
            (Kind::Conn, "-C perhaps"),
            (Kind::Pub, "-t x -I -5"),
            (Kind::Pub, "-t x -I 0.000001"),
            (Kind::Pub, "-t x -s 999999999999"),
        ] {
            let line = format!("-h 127.0.0.1 {line}");
            assert!(plan_of(kind, &line).is_err(), "{line}");
        }
        assert!(plan_of(Kind::Conn, "-h 127.0.0.1 --quic false").is_ok());
    }

    #[test]
    fn time_is_written_as_emqtt_bench_writes_it() {
        assert_eq!([5, 62, 3_723].map(span), ["5s", "1m2s", "1h2m3s"]);
    }
}
