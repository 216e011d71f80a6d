//! `conn`, `pub` and `sub`: emqtt_bench's flags and output lines, so that scripts carry over. In
//! addition: an end by duration or count, a summary, an exit code and JSON.

mod console;
mod flags;

use self::console::ConsolePrinter;
use self::flags::{OURS, PUB, SHARED, SUB, check_refused};
use crate::flags::{ParsedFlags, report_line_error};
use crate::limits::{
    CLIENTS_MAX, DRAIN_S_DEFAULT, PAYLOAD_BYTES_MAX, PUBLISHER_PER_S_MAX, START_NUMBER_MAX,
    THREADS_MAX, WINDOW_DEFAULT,
};
use crate::load_stats::LoadStats;
use crate::metrics::MetricsServer;
use crate::plan::{
    BrokerTarget, LoadPlan, PayloadField, PayloadKind, PlanGroup, PublishPace, PublishPlan,
    StartMode,
};
use crate::report::{self, TestSubject};
use crate::target::{self, UrlParts};
use crate::template::{check_filter_template, check_topic_template};
use crate::test_driver::SecondRow;
use crate::test_session::{self, ReportOutputs};
use crate::watch::WatchTarget;
use command_line::{Command, Error, FlagRow};
use mqtt::{ProtocolVersion, QoS};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use transport::{TCP, TlsClientOptions, UrlScheme};

/// The three commands of emqtt_bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassicCommand {
    Conn,
    Pub,
    Sub,
}

pub(crate) fn conn_command() -> Command {
    ClassicCommand::Conn.command()
}

pub(crate) fn publish_command() -> Command {
    ClassicCommand::Pub.command()
}

pub(crate) fn subscribe_command() -> Command {
    ClassicCommand::Sub.command()
}

pub(crate) fn conn(arguments: &[OsString]) -> ExitCode {
    run(ClassicCommand::Conn, arguments)
}

pub(crate) fn publish(arguments: &[OsString]) -> ExitCode {
    run(ClassicCommand::Pub, arguments)
}

pub(crate) fn subscribe(arguments: &[OsString]) -> ExitCode {
    run(ClassicCommand::Sub, arguments)
}

impl ClassicCommand {
    fn name(self) -> &'static str {
        match self {
            ClassicCommand::Conn => "conn",
            ClassicCommand::Pub => "pub",
            ClassicCommand::Sub => "sub",
        }
    }

    fn command(self) -> Command {
        let (own, about): (&[FlagRow], _) = match self {
            ClassicCommand::Conn => (&[], "Holds connections"),
            ClassicCommand::Pub => (PUB, "Publishes"),
            ClassicCommand::Sub => (SUB, "Subscribes"),
        };
        command_line::command(self.name(), about, own.iter().chain(SHARED).chain(OURS))
    }

    /// Parses the command's line. A URL alone is answered with the flag that takes it.
    fn parse_line(self, arguments: &[OsString]) -> Result<ParsedFlags, Error> {
        let parsed = command_line::parse(crate::PROGRAM, self.command(), arguments);
        parsed.map(ParsedFlags::new).map_err(|error| match command_line::unknown_argument(&error) {
            Some(word) if word.contains("://") => {
                command_line::with_tip(error, &word, format!("write -h {word}"))
            }
            _ => error,
        })
    }
}

fn run(kind: ClassicCommand, arguments: &[OsString]) -> ExitCode {
    let line = match kind.parse_line(arguments) {
        Ok(line) => line,
        Err(error) => return report_line_error(&error),
    };
    let ClassicOptions { plan, subject, ending, line } = match parse_options(kind, line) {
        Ok(order) => order,
        Err(why) => return crate::refuse_arguments(&[why]),
    };
    let metrics = match line.text("--restapi").filter(|place| *place != "disabled") {
        Some(place) => MetricsServer::start(place).map(Some),
        None => Ok(None),
    };
    let metrics = match metrics {
        Ok(metrics) => metrics,
        Err(why) => return crate::refuse_arguments(&[format!("--restapi {why}")]),
    };
    let workers = plan.threads;
    let interval_ms = 1_000.0 / plan.connects_per_s;
    let addresses = plan.local_addresses.len().max(1);
    let is_silent = line.text("--log_to") == Some("null");
    let mut lines = ConsolePrinter::new(ending.json.as_deref() == Some(Path::new("-")), is_silent);
    lines.write(&format!(
        "Start with {workers} workers, addrs pool size: {addresses} and req interval: \
         {interval_ms} ms\n\n"
    ));
    let mut see = |row: &SecondRow, total: &LoadStats| {
        lines.print(row, total);
        metrics.iter().for_each(|metrics| metrics.update(total));
    };
    let report = match test_session::run(plan, &subject, &mut see) {
        Ok(report) => report,
        Err(why) => return crate::report_failure(&why),
    };
    if let Some(limit) = line.number::<u64>("--limit").ok().flatten().filter(|n| *n > 0) {
        lines.write(&completion(&report, limit));
    }
    test_session::finish_report(&report, &ending)
}

/// Says whether all `limit` planned messages were published, by `/counts/pub` of the report.
fn completion(report: &Value, limit: u64) -> String {
    let published = report::number(report, "/counts/pub") as u64;
    match published {
        n if n >= limit => "publish complete\n".into(),
        n => format!("publish not complete: {n} of {limit} messages were published\n"),
    }
}

/// A parsed command line of `conn`, `pub` or `sub`.
struct ClassicOptions {
    plan: LoadPlan,
    subject: TestSubject,
    ending: ReportOutputs,
    line: ParsedFlags,
}

fn parse_options(kind: ClassicCommand, line: ParsedFlags) -> Result<ClassicOptions, String> {
    let plan = build_plan(kind, &line)?;
    let subject = TestSubject {
        scenario: kind.name().into(),
        scale: 1.0,
        watch_target: line.number("--pid")?.map(WatchTarget::Process),
        ..TestSubject::default()
    };
    let ending =
        ReportOutputs { json: line.text("--json").map(Into::into), ..ReportOutputs::default() };
    ending.check_writable()?;
    Ok(ClassicOptions { plan, subject, ending, line })
}

fn build_plan(kind: ClassicCommand, line: &ParsedFlags) -> Result<LoadPlan, String> {
    check_refused(line)?;
    let interval_ms = line.milliseconds("--interval")?.unwrap_or(10.0);
    let per_s = match line.not_negative("--connrate")?.unwrap_or(0.0) {
        rate if rate > 0.0 => rate,
        _ => 1_000.0 / interval_ms.max(0.001),
    };
    let waits = kind == ClassicCommand::Pub && line.is_on("--wait-before-publishing");
    let mut plan = LoadPlan {
        targets: targets(line)?,
        threads: line.number_in("--threads", 0..=THREADS_MAX)?.unwrap_or(1).max(1),
        connects_per_s: per_s,
        local_addresses: line
            .text("--ifaddr")
            .map_or(Ok(Vec::new()), target::parse_local_addresses)?,
        start: if waits { StartMode::Together } else { StartMode::Each },
        warm_s: 0.0,
        measure_s: line.seconds("--duration")?,
        drain_s: DRAIN_S_DEFAULT,
        from_sending: false,
        window: line.number("--window")?.unwrap_or(WINDOW_DEFAULT),
        seed: test_session::random_seed(),
        share: LoadPlan::default().share,
        groups: Vec::new(),
    };
    plan.groups.push(plan_group(kind, line, plan.seed)?);
    if kind == ClassicCommand::Sub && line.text("--topic").is_none() {
        return Err("sub needs --topic".into());
    }
    Ok(plan)
}

fn targets(line: &ParsedFlags) -> Result<Vec<BrokerTarget>, String> {
    let port: u16 = line.number_in("--port", 1..=65_535)?.unwrap_or(TCP.port);
    let file = |flag| line.text(flag).map(str::to_string);
    let authorities = file("--cacertfile");
    let trust = TlsClientOptions {
        // Load tests usually run against test servers, so without a CA every certificate is
        // accepted, as in emqtt_bench.
        insecure: authorities.is_none(),
        authorities,
        certificate: file("--certfile"),
        key: file("--keyfile"),
    };
    let versions = tls_versions(line)?;
    let hosts = line.text("--host").unwrap_or("localhost").split(',');
    let one = |host: &str| {
        let place = UrlParts::read(host)?;
        let scheme = chosen_scheme(line, &place)?;
        let carrier = target::transport_for(scheme, &trust, versions)?;
        let port = place.port.unwrap_or(match place.scheme {
            Some(scheme) if !line.is_given("--port") => scheme.port,
            _ => port,
        });
        target::resolve(place.host, port, scheme, &carrier)
    };
    hosts.map(|host| one(host.trim())).collect()
}

/// Returns the TLS versions of `--ssl-version`, in emqtt_bench's names; rustls' defaults without
/// the flag.
fn tls_versions(
    line: &ParsedFlags,
) -> Result<&'static [&'static SupportedProtocolVersion], String> {
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

/// Returns the scheme of the URL, or of `--quic`, `--ws` and `--ssl`. A URL and flags that disagree
/// are an error.
fn chosen_scheme(line: &ParsedFlags, place: &UrlParts<'_>) -> Result<UrlScheme, String> {
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
    let said = UrlScheme::from_name(name).ok_or_else(|| format!("{name} is not spoken"))?;
    if name == "quic" && line.text("--ssl-version") == Some("tlsv1.2") {
        return Err("--ssl-version tlsv1.2: QUIC has TLS 1.3 alone".into());
    }
    match place.scheme {
        None => Ok(said),
        Some(own) if name == "tcp" || own == said => Ok(own),
        // --ssl upgrades a URL without TLS.
        Some(own) if name == "tls" && !own.is_quic => Ok(own.with_tls()),
        Some(own) => Err(format!(
            "{}: the URL says {} and the flags say {name}: use one of them",
            place.host, own.name
        )),
    }
}

fn plan_group(kind: ClassicCommand, line: &ParsedFlags, seed: u64) -> Result<PlanGroup, String> {
    let version = match line.text("--version") {
        Some("3") => ProtocolVersion::V31,
        Some("4") => ProtocolVersion::V311,
        Some("5") | None => ProtocolVersion::V5,
        Some(other) => return Err(format!("--version {other}: use 3, 4 or 5")),
    };
    let clean_start = line.is_on("--clean");
    let clients = line.number_in("--count", 1..=CLIENTS_MAX)?.unwrap_or(200);
    let start_number: Option<u64> = line.number_in("--startnumber", 0..=START_NUMBER_MAX)?;
    let mut group = PlanGroup {
        clients,
        number_first: start_number.unwrap_or(0) + 1,
        client_id: client_id(kind, line, seed),
        user_name: line.text("--username").map(str::to_string),
        password: line.text("--password").map(str::to_string),
        version,
        keep_alive_s: line.whole_seconds("--keepalive")?.unwrap_or(300),
        clean_start,
        session_expiry_s: line.whole_seconds("--session-expiry")?.unwrap_or(0),
        connect_retries: line.number("--num-retry-connect")?.unwrap_or(0),
        reconnects: line.number("--reconnect")?.unwrap_or(0),
        ..PlanGroup::default()
    };
    match kind {
        ClassicCommand::Conn => {}
        ClassicCommand::Sub => {
            group.subscribe = line.all("--topic").map(str::to_string).collect();
            for filter in &group.subscribe {
                check_filter_template(filter).map_err(|why| format!("--topic {why}"))?;
            }
            group.subscribe_qos = qos(line)?;
            group.fields = payload_fields(line)?;
        }
        ClassicCommand::Pub => group.publish = Some(publish_plan(line)?),
    }
    Ok(group)
}

/// Returns the template of client identifiers: `HOST_bench_pub_RAND_N`, `P_bench_pub_N` with
/// `--prefix`, and `N` or `PN` with `--shortids`.
fn client_id(kind: ClassicCommand, line: &ParsedFlags, seed: u64) -> String {
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

fn publish_plan(line: &ParsedFlags) -> Result<PublishPlan, String> {
    let topic = line.text("--topic").ok_or("pub needs --topic")?.to_string();
    check_topic_template(&topic).map_err(|why| format!("--topic {why}"))?;
    let interval_ms = line.milliseconds("--interval_of_msg")?.unwrap_or(1_000.0);
    let size = line.number_in("--size", 0..=PAYLOAD_BYTES_MAX as u64)?.unwrap_or(256);
    if interval_ms > 0.0 && 1_000.0 / interval_ms > PUBLISHER_PER_S_MAX {
        let least = 1_000.0 / PUBLISHER_PER_S_MAX;
        let given = line.text("--interval_of_msg").unwrap_or_default();
        return Err(format!(
            "--interval_of_msg {given}: use at least {least} ms, or 0 for as fast as it goes"
        ));
    }
    let fields = payload_fields(line)?;
    let body = match line.text("--message") {
        Some(message) => match message.strip_prefix("template://") {
            None => PayloadKind::Literal(message.as_bytes().to_vec()),
            Some(file) => PayloadKind::Template(
                std::fs::read_to_string(file)
                    .map_err(|error| format!("--message {file}: {error}"))?,
                size,
            ),
        },
        None if !fields.is_empty() => PayloadKind::Fields(fields, size),
        None => PayloadKind::Sized(size),
    };
    let limit: u64 = line.number("--limit")?.unwrap_or(0);
    let wait = |name| line.milliseconds(name).map(|ms| ms.unwrap_or_default() as u64);
    Ok(PublishPlan {
        topic,
        qos: qos(line)?,
        retain: line.is_on("--retain"),
        body,
        pace: match interval_ms {
            interval if interval > 0.0 => PublishPace::EveryNs((interval * 1e6) as u64),
            _ => PublishPace::AsTaken,
        },
        inflight: line.number("--inflight")?.unwrap_or(1),
        messages_max: (limit > 0).then_some(limit),
        wait_ms: (wait("--min-random-wait")?, wait("--max-random-wait")?),
    })
}

fn qos(line: &ParsedFlags) -> Result<QoS, String> {
    let level = line.text("--qos").unwrap_or("0");
    let qos = level.parse().ok().and_then(QoS::from_bits);
    qos.ok_or_else(|| format!("--qos {level}: use 0, 1 or 2"))
}

fn payload_fields(line: &ParsedFlags) -> Result<Vec<PayloadField>, String> {
    let names = line.text("--payload-hdrs").unwrap_or_default();
    let names = names.split(',').filter(|name| !name.is_empty());
    names
        .map(|name| match name {
            "cnt64" => Ok(PayloadField::Count),
            "ts" => Ok(PayloadField::Milliseconds),
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
