//! The commands `scenarios`, `show` and `run`.

use crate::flags::{ParsedFlags, WORDS, parse_line};
use crate::limits::THREADS_MAX;
use crate::load_stats::{LatencySampler, LoadCounter};
use crate::metrics::MetricsServer;
use crate::plan::LoadPlan;
use crate::remote;
use crate::report::TestSubject;
use crate::scenario::{self, BUILT_IN, Scenario, ScenarioOverrides};
use crate::target;
use crate::test_session::{self, ReportOutputs};
use crate::watch::WatchTarget;
use command_line::{Command, FlagRow};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn list_command() -> Command {
    command_line::command("scenarios", "Lists what can be run", [])
}

/// Lists what is built in.
pub(crate) fn list_scenarios(arguments: &[OsString]) -> ExitCode {
    if let Err(code) = parse_line(list_command(), arguments) {
        return code;
    }
    for (name, text) in BUILT_IN {
        let title = scenario::read(text).map(|scenario| scenario.title).unwrap_or_default();
        crate::print_line(format_args!("{name:26} {title}"));
    }
    ExitCode::SUCCESS
}

pub(crate) fn show_command() -> Command {
    let name = command_line::word(WORDS, "NAME", "a name that `godwit-bench scenarios` lists");
    command_line::command("show", "Prints a scenario's file", []).arg(name)
}

/// Prints one scenario's file, to copy and change.
pub(crate) fn print_scenario(arguments: &[OsString]) -> ExitCode {
    let line = match parse_line(show_command(), arguments) {
        Ok(line) => line,
        Err(code) => return code,
    };
    match find_scenario_text(&line.word()) {
        Ok(text) => match test_session::write_text(Path::new("-"), &text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => crate::report_failure(&why),
        },
        Err(why) => crate::refuse_arguments(&[why]),
    }
}

/// Returns the positional argument of commands that require a scenario.
pub(crate) fn scenario_word() -> command_line::Arg {
    command_line::word(
        WORDS,
        "SCENARIO|FILE.toml",
        "a scenario that `godwit-bench scenarios` lists, or a file of one",
    )
}

pub(crate) fn command() -> Command {
    command_line::command("run", "Runs a scenario and reports", FLAGS).arg(scenario_word())
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let line = match parse_line(command(), arguments) {
        Ok(line) => line,
        Err(code) => return code,
    };
    let name = &line.word();
    let (text, scenario) = match load_scenario(name) {
        Ok(chosen) => chosen,
        Err(wrongs) => return crate::refuse_arguments(&wrongs),
    };
    let order = match parse_options(name, &text, &scenario, &line) {
        Ok(order) => order,
        Err(why) => return crate::refuse_arguments(&[why]),
    };
    if let Err(why) = order.ending.check_writable() {
        return crate::refuse_arguments(&[why]);
    }
    let result = match &order.agents {
        Some((agents, token)) => {
            remote::run(agents, token, &order.subject, &order.plan, &order.change)
        }
        None => run_here(&line, &order),
    };
    match result {
        Ok(report) => test_session::finish_report(&report, &order.ending),
        Err(why) => crate::report_failure(&why),
    }
}

fn run_here(line: &ParsedFlags, order: &RunOptions) -> Result<Value, String> {
    let metrics = line.text("--metrics").map(MetricsServer::start).transpose()?;
    let plan = &order.plan;
    let mut progress = ProgressLine {
        is_terminal: std::io::stderr().is_terminal(),
        began_ns: 0,
        spans_s: plan.clients() as f64 / plan.connects_per_s.max(0.001)
            + plan.warm_s
            + plan.measure_s.unwrap_or(0.0),
    };
    let result = test_session::run(order.plan.clone(), &order.subject, &mut |row, total| {
        progress.show(row);
        metrics.iter().for_each(|metrics| metrics.update(total));
    });
    progress.end();
    result
}

/// A scenario with the options of the command line.
struct RunOptions {
    plan: LoadPlan,
    change: ScenarioOverrides,
    subject: TestSubject,
    ending: ReportOutputs,
    /// Addresses of the agents that send the load, and their token; `None` if this process sends
    /// the load.
    agents: Option<(Vec<String>, String)>,
}

fn parse_options(
    name: &str,
    text: &str,
    scenario: &Scenario,
    line: &ParsedFlags,
) -> Result<RunOptions, String> {
    let change = ScenarioOverrides {
        scale: line.positive("--scale")?.unwrap_or(1.0),
        rate: line.positive("--rate")?.unwrap_or(1.0),
        measure_s: line.seconds("--duration")?,
        warm_s: line.seconds("--warm")?,
        connects_per_s: line.positive("--connrate")?,
        threads: line.number_in("--threads", 0..=THREADS_MAX)?,
        seed: test_session::random_seed(),
        ..ScenarioOverrides::default()
    };
    let targets = line.all("--target").map(target::from_url).collect::<Result<Vec<_>, _>>()?;
    let (mut plan, scaled) = scenario.plan(targets, &change)?;
    plan.local_addresses =
        line.text("--ifaddr").map_or(Ok(Vec::new()), target::parse_local_addresses)?;
    let path = |name| line.text(name).map(Into::into);
    Ok(RunOptions {
        agents: agents(line, &plan)?,
        plan,
        subject: TestSubject {
            scenario: name.into(),
            scenario_text: text.to_string(),
            scale: change.scale,
            scaled,
            broker: line.text("--broker").unwrap_or_default().into(),
            broker_version: String::new(),
            configuration: read_file_flag(line, "--broker-config")?,
            watch_target: watch_target(line)?,
            watched_by: watch_agent(line)?,
        },
        change,
        ending: ReportOutputs {
            json: path("--json"),
            markdown: path("--markdown"),
            csv: path("--csv"),
            jtl: path("--jtl"),
            html: path("--html"),
        },
    })
}

fn agents(line: &ParsedFlags, plan: &LoadPlan) -> Result<Option<(Vec<String>, String)>, String> {
    let Some(agents) = line.text("--agents") else { return Ok(None) };
    if line.has("--metrics") {
        return Err("--metrics: agents send their figures at the end, not while they run".into());
    }
    if plan.is_closed_loop() {
        return Err("--agents: a closed loop cannot be shared by agents: give a rate".into());
    }
    let token = remote::token(line.text("--token-file"))?;
    Ok(Some((agents.split(',').map(Into::into).collect(), token)))
}

fn read_file_flag(line: &ParsedFlags, flag: &str) -> Result<String, String> {
    let Some(path) = line.text(flag) else { return Ok(String::new()) };
    std::fs::read_to_string(path).map_err(|error| format!("{flag} {path}: {error}"))
}

/// Returns the process of `--pid`, or the whole container of `--container`, found by docker or
/// podman.
pub(crate) fn watch_target(line: &ParsedFlags) -> Result<Option<WatchTarget>, String> {
    let Some(container) = line.text("--container") else {
        return Ok(line.number("--pid")?.map(WatchTarget::Process));
    };
    if line.has("--host-metrics") {
        return Err("--container: on another host the agent finds the broker by its port or by \
                    --pid, with all of a container that has pids of its own"
            .into());
    }
    for engine in ["docker", "podman"] {
        let mut command = std::process::Command::new(engine);
        command.args(["inspect", "--format", "{{.State.Pid}}", container]);
        let Ok(output) = command.output() else { continue };
        let pid = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
        if let Some(pid) = pid.filter(|pid| *pid > 0) {
            return Ok(Some(WatchTarget::Container(pid)));
        }
    }
    Err(format!("--container {container}: neither docker nor podman runs it"))
}

pub(crate) fn watch_agent(line: &ParsedFlags) -> Result<Option<(String, String)>, String> {
    let Some(agent) = line.text("--host-metrics") else { return Ok(None) };
    Ok(Some((agent.into(), remote::token(line.text("--token-file"))?)))
}

pub(crate) fn load_scenario(name: &str) -> Result<(String, Scenario), Vec<String>> {
    let text = find_scenario_text(name).map_err(|why| vec![why])?;
    let scenario = scenario::read(&text).map_err(|wrongs| {
        wrongs.iter().map(|wrong| format!("{name}: {wrong}")).collect::<Vec<_>>()
    })?;
    Ok((text, scenario))
}

/// Returns the text of a built-in scenario or of a file.
fn find_scenario_text(name: &str) -> Result<String, String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).into());
    }
    if name.contains(['/', '.']) || Path::new(name).exists() {
        return std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"));
    }
    Err(format!("{name} is not a scenario and not a file; `godwit-bench scenarios` lists them"))
}

/// Progress on stderr, one line per second; a terminal's line is rewritten.
struct ProgressLine {
    is_terminal: bool,
    began_ns: u64,
    /// Length in seconds of all phases except the drain, whose length is unknown.
    spans_s: f64,
}

impl ProgressLine {
    fn show(&mut self, row: &crate::test_driver::SecondRow) {
        if self.began_ns == 0 {
            self.began_ns = row.from_ns;
        }
        let seconds = (row.until_ns - row.from_ns).max(1) as f64 / 1e9;
        let rate = |count| row.stats.count(count) as f64 / seconds;
        let times = row.stats.times(LatencySampler::Sub);
        let ms = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        let text = format!(
            "{:>5.0} s  clients {}  in {:.0}/s  out {:.0}/s  p50 {:.2} ms  p99 {:.2} ms",
            (row.until_ns - self.began_ns) as f64 / 1e9,
            row.live,
            rate(LoadCounter::Pub),
            rate(LoadCounter::Recv),
            ms(0.5),
            ms(0.99)
        );
        let mut err = std::io::stderr().lock();
        let _ = match self.is_terminal {
            true => {
                let elapsed = (row.until_ns - self.began_ns) as f64 / 1e9;
                write!(err, "\r{} {text:<78}", progress_bar(elapsed / self.spans_s.max(0.001)))
            }
            false => writeln!(err, "{text}"),
        };
    }

    fn end(&self) {
        if self.is_terminal {
            crate::print_error("");
        }
    }
}

/// Returns a progress bar: `[#####.....]  50 %`.
fn progress_bar(done: f64) -> String {
    let done = done.clamp(0.0, 1.0);
    let full = (done * BAR as f64).round() as usize;
    format!("[{}{}] {:>3.0} %", "#".repeat(full), ".".repeat(BAR - full), done * 100.0)
}

const BAR: usize = 20;

// Flags of every command that runs a scenario.

pub(crate) const IFADDR: FlagRow =
    FlagRow::new(&["--ifaddr"], &["IPS"], "local addresses, comma list, taken in turn");

// Flags of the broker's watch, for every command that can watch.

pub(crate) const PID: FlagRow =
    FlagRow::new(&["--pid"], &["PID"], "the broker's process; found by its port on this host");
pub(crate) const CONTAINER: FlagRow =
    FlagRow::new(&["--container"], &["NAME"], "the broker's container (docker, podman)");
pub(crate) const HOST_METRICS: FlagRow =
    FlagRow::new(&["--host-metrics"], &["HOST:PORT"], "agent on the broker's host that watches it");

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--target"], &["URL"], "broker; repeated where a scenario has several")
        .with_default("tcp://127.0.0.1:1883"),
    FlagRow::new(&["--scale"], &["X"], "factor on clients; stands in the report").with_default("1"),
    FlagRow::new(&["--rate"], &["X"], "factor on message rates; stands in the report")
        .with_default("1"),
    FlagRow::new(&["--duration"], &["SPAN"], "measured time: 20s, 5m"),
    FlagRow::new(&["--warm"], &["SPAN"], "time before it"),
    FlagRow::new(&["-R", "--connrate"], &["N"], "connections a second"),
    FlagRow::new(&["--threads"], &["N"], "load threads"),
    IFADDR,
    PID,
    CONTAINER,
    HOST_METRICS,
    FlagRow::new(&["--broker"], &["TEXT"], "the broker's name and version, for the report"),
    FlagRow::new(&["--broker-config"], &["FILE"], "the broker's own file, for the report"),
    FlagRow::new(&["--json"], &["FILE"], "the report, - for stdout"),
    FlagRow::new(&["--markdown"], &["FILE"], "the report"),
    FlagRow::new(&["--html"], &["FILE"], "the report as one page"),
    FlagRow::new(&["--metrics"], &["PLACE"], "[IP:]PORT for Prometheus while it runs"),
    FlagRow::new(&["--agents"], &["LIST"], "HOST:PORT, comma list: they send the load"),
    FlagRow::new(&["--token-file"], &["FILE"], "what the agents want to be told"),
    FlagRow::new(&["--csv"], &["FILE"], "its seconds"),
    FlagRow::new(&["--jtl"], &["FILE"], "its seconds, for JMeter"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_and_never_overflows() {
        assert_eq!(progress_bar(0.0), "[....................]   0 %");
        assert_eq!(progress_bar(0.5), "[##########..........]  50 %");
        assert_eq!(progress_bar(7.0), "[####################] 100 %");
    }
}
