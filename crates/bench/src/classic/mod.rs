//! `conn`, `pub` and `sub`: emqtt_bench's flags and output lines, so that scripts carry over, and
//! what its users miss: an end by duration or count, a summary, an exit code, JSON.

mod flags;
mod lines;

use self::flags::{OURS, PUB, SHARED, SUB, check_refused};
use self::lines::Lines;
use crate::conduct::Row;
use crate::flags::{Flag, Line, help, read};
use crate::limits::{DRAIN_S_DEFAULT, PAYLOAD_BYTES_MAX, PUBLISHER_PER_S_MAX, WINDOW_DEFAULT};
use crate::metrics::Metrics;
use crate::plan::{Body, Field, Group, Pace, Plan, Publishing, Start, Target};
use crate::report::{self, Subject};
use crate::session::{self, Ending};
use crate::tally::Tally;
use crate::target::{self, Place};
use crate::watch::Whom;
use carrier::{Scheme, TCP, Trust};
use mqtt::{QoS, Version};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::Value;
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
    let interval_ms = 1_000.0 / plan.connects_per_s;
    let addresses = plan.local.len().max(1);
    let is_silent = line.text("--log_to") == Some("null");
    let mut lines = Lines::new(ending.json.as_deref() == Some(Path::new("-")), is_silent);
    lines.put(&format!(
        "Start with {workers} workers, addrs pool size: {addresses} and req interval: \
         {interval_ms} ms\n\n"
    ));
    let mut see = |row: &Row, total: &Tally| {
        lines.print(row, total);
        metrics.iter().for_each(|metrics| metrics.update(total));
    };
    let report = match session::run(plan, &subject, &mut see) {
        Ok(report) => report,
        Err(why) => return crate::fail(&why),
    };
    if let Some(limit) = line.number::<u64>("--limit").ok().flatten().filter(|n| *n > 0) {
        lines.put(&completion(&report, limit));
    }
    session::end(&report, &ending)
}

/// What became of a planned number of messages.
fn completion(report: &Value, limit: u64) -> String {
    let published = report::number(report, "/counts/pub") as u64;
    match published {
        n if n >= limit => "publish complete\n".into(),
        n => format!("publish not complete: {n} of {limit} messages were published\n"),
    }
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
        let instead = match word.contains("://") {
            true => format!("write -h {word}"),
            false => {
                format!("only flags are expected here, see `godwit-bench {} --help`", kind.name())
            }
        };
        return Err(format!("{word}: {instead}"));
    }
    check_refused(line)?;
    let interval_ms = line.milliseconds("--interval")?.unwrap_or(10.0);
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
    let port: u16 = line.number("--port")?.unwrap_or(TCP.port);
    let file = |flag| line.text(flag).map(str::to_string);
    let authorities = file("--cacertfile");
    let trust = Trust {
        // A load tester meets test servers, so without a CA anyone is taken, as in emqtt_bench.
        insecure: authorities.is_none(),
        authorities,
        certificate: file("--certfile"),
        key: file("--keyfile"),
    };
    let versions = tls_versions(line)?;
    let hosts = line.text("--host").unwrap_or("localhost").split(',');
    let one = |host: &str| {
        let place = Place::read(host)?;
        let scheme = scheme(line, &place)?;
        let carrier = target::carrier(scheme, &trust, versions)?;
        let port = place.port.unwrap_or(match place.scheme {
            Some(scheme) if !line.is_given("--port") => scheme.port,
            _ => port,
        });
        target::resolve(place.host, port, scheme, &carrier)
    };
    hosts.map(|host| one(host.trim())).collect()
}

/// The versions of TLS that are offered, in emqtt_bench's names.
fn tls_versions(line: &Line) -> Result<&'static [&'static SupportedProtocolVersion], String> {
    match line.text("--ssl-version") {
        None => Ok(rustls::DEFAULT_VERSIONS),
        Some("tlsv1.2") => Ok(TLS12_ALONE),
        Some("tlsv1.3") if line.text("--quic") != Some("true") => Ok(TLS13_ALONE),
        Some("tlsv1.3") => Ok(rustls::DEFAULT_VERSIONS),
        Some(other) => Err(format!(
            "--ssl-version {other}: use tlsv1.2 or tlsv1.3; older ones, and tlsv1.3 without its \
             compatibility mode, are not spoken here"
        )),
    }
}

static TLS12_ALONE: &[&SupportedProtocolVersion] = &[&TLS12];
static TLS13_ALONE: &[&SupportedProtocolVersion] = &[&TLS13];

/// What a URL says, or the flags; both where they agree.
fn scheme(line: &Line, place: &Place<'_>) -> Result<Scheme, String> {
    let is_tls = line.is_on("--ssl") || line.has("--ssl-version");
    let name = match (line.text("--quic"), line.is_on("--ws"), is_tls) {
        (Some("true"), true, _) => return Err("--quic and --ws: use one of them".into()),
        (Some("true"), false, _) => "quic",
        (Some("false") | None, true, true) => "wss",
        (Some("false") | None, true, false) => "ws",
        (Some("false") | None, false, true) => "tls",
        (Some("false") | None, false, false) => "tcp",
        (Some(other), ..) => return Err(format!("--quic {other}: use true or false")),
    };
    let said = Scheme::of(name).ok_or_else(|| format!("{name} is not spoken"))?;
    if name == "quic" && line.text("--ssl-version") == Some("tlsv1.2") {
        return Err("--ssl-version tlsv1.2: QUIC has TLS 1.3 alone".into());
    }
    match place.scheme {
        None => Ok(said),
        Some(own) if name == "tcp" || own == said => Ok(own),
        // A plain URL with --ssl is the same with TLS.
        Some(own) if name == "tls" && !own.is_quic => Ok(own.secured()),
        Some(own) => Err(format!(
            "{}: the URL says {} and the flags say {name}: use one of them",
            place.host, own.name
        )),
    }
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
        keep_alive_s: line.whole_seconds("--keepalive")?.unwrap_or(300),
        clean_start,
        session_expiry_s: line.whole_seconds("--session-expiry")?.unwrap_or(0),
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
    let interval_ms = line.milliseconds("--interval_of_msg")?.unwrap_or(1_000.0);
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
                size,
            ),
        },
        None if !fields.is_empty() => Body::Fields(fields, size),
        None => Body::Sized(size),
    };
    let limit: u64 = line.number("--limit")?.unwrap_or(0);
    let wait = |name| line.milliseconds(name).map(|ms| ms.unwrap_or_default() as u64);
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

#[cfg(test)]
mod tests;
