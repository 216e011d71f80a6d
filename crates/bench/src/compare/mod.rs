//! `compare`: several brokers, the same scenarios, in interleaved rounds on this host. What is
//! printed are medians, and ratios to the first broker.

mod broker_process;
mod comparison_plan;

use crate::flags::{WORDS, parse_line};
use crate::report::{self, TestSubject, number};
use crate::scenario::ScenarioOverrides;
use crate::test_session;
use crate::watch::WatchTarget;
use broker_process::{BrokerEntry, BrokerProcess};
use command_line::{Command, FlagRow};
use comparison_plan::{ComparisonPlan, ComparisonTask};
use netem::ImpairedNetwork;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;

pub(crate) fn list_command() -> Command {
    command_line::command("brokers", "Lists brokers ready to compare", [])
}

/// Lists the ready entries.
pub(crate) fn list_brokers(arguments: &[OsString]) -> ExitCode {
    if let Err(code) = parse_line(list_command(), arguments) {
        return code;
    }
    for entry in comparison_plan::built_in_brokers() {
        crate::print_line(format_args!(
            "{:12} {}{}\n{:12} to get it: {}",
            entry.name, entry.command, entry.url, "", entry.install
        ));
    }
    ExitCode::SUCCESS
}

pub(crate) fn command() -> Command {
    let file = command_line::word(WORDS, "FILE.toml", "the plan of the comparison");
    command_line::command("compare", "Runs several brokers side by side", FLAGS)
        .arg(file)
        .after_help(EXAMPLE)
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let line = match parse_line(command(), arguments) {
        Ok(line) => line,
        Err(code) => return code,
    };
    let file = &line.word();
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let comparison = match text.and_then(|text| comparison_plan::read(&text)) {
        Ok(comparison) => comparison,
        Err(why) => return crate::refuse_arguments(&[format!("{file}: {why}")]),
    };
    let tried = test_session::check_forms_writable(&line, &FORMS);
    if let Err(why) = tried.and_then(|()| check_scenarios(&comparison)) {
        return crate::refuse_arguments(&[why]);
    }
    // The network namespace belongs to this thread, and to all processes and threads started by it.
    let between = comparison.line.map(|(weather, seed)| match netem::unavailable_reason() {
        None => ImpairedNetwork::open(weather, seed),
        Some(why) => Err(why),
    });
    let _between = match between.transpose() {
        Ok(between) => between,
        Err(why) => return crate::report_failure(&format!("line: {why}")),
    };
    let results = run_all(&comparison);
    let markdown = markdown(&comparison, &results);
    let rows = || results.iter().map(|result| result.row.clone()).collect::<Vec<Value>>();
    let forms: [&dyn Fn() -> String; 3] =
        [&|| markdown.clone(), &|| format!("{:#}\n", Value::Array(rows())), &|| {
            report::html(&rows())
        }];
    if let Err(why) = test_session::write_forms(&line, &FORMS, &forms, &markdown) {
        return crate::report_failure(&why);
    }
    let is_clean = results.iter().all(|result| result.row["faults"] == json!([]));
    if is_clean && !is_cut_short(&comparison, &results) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Loads every scenario before the first run, so that a wrong name is found at once, not after
/// hours.
fn check_scenarios(comparison: &ComparisonPlan) -> Result<(), String> {
    let names = comparison.tasks.iter().map(|task| &task.scenario);
    names
        .map(|name| crate::run::load_scenario(name))
        .try_for_each(|read| read.map(drop).map_err(|wrongs| wrongs.join("; ")))
}

/// A run of one broker with one `ComparisonTask`.
struct ComparisonRun {
    /// Index in `ComparisonPlan::tasks`: a scenario may occur there with several scales.
    task: usize,
    broker: String,
    row: Value,
}

/// Runs all rounds of all tasks and brokers. A signal ends the series; the finished runs are
/// returned.
fn run_all(comparison: &ComparisonPlan) -> Vec<ComparisonRun> {
    let stop = test_session::stop_flag();
    let mut results = Vec::new();
    for (at, task) in comparison.tasks.iter().enumerate() {
        let scenario = &task.scenario;
        for round in 1..=comparison.rounds {
            for entry in &comparison.brokers {
                crate::print_error(format_args!(
                    "{scenario}: round {round} of {}, {}",
                    comparison.rounds, entry.name
                ));
                let mut row =
                    run_quietest(comparison, || match run_once(comparison, task, entry) {
                        Ok(row) => row,
                        // A broker that fails to run gets a row with its error, and the other
                        // brokers still count.
                        Err(why) => json!({
                            "scenario": { "name": scenario },
                            "target": { "broker": entry.name },
                            "error": why,
                            "faults": [why],
                        }),
                    });
                let is_last = stop.load(SeqCst);
                if is_last && row["error"].is_string() {
                    // A signal from a terminal also stops the broker, so the error is an
                    // interruption.
                    row["interrupted"] = Value::Bool(true);
                }
                row["comparison"] = json!({ "task": at, "round": round });
                results.push(ComparisonRun { task: at, broker: entry.name.clone(), row });
                if is_last {
                    return results;
                }
            }
        }
    }
    results
}

impl ComparisonRun {
    fn is_complete(&self) -> bool {
        self.row["interrupted"] != Value::Bool(true)
    }
}

fn is_cut_short(comparison: &ComparisonPlan, results: &[ComparisonRun]) -> bool {
    results.iter().filter(|one| one.is_complete()).count() < comparison.runs()
}

/// Repeats a run up to `ComparisonPlan::tries` times and returns the run with the least steal time.
/// The choice depends on the host alone, not on a figure of the broker; the table shows the number
/// of runs.
fn run_quietest(comparison: &ComparisonPlan, mut run: impl FnMut() -> Value) -> Value {
    let mut best = run();
    best["tries"] = json!(1);
    let Some(max) = comparison.stolen_percent_max else { return best };
    for tries in 2..=comparison.tries {
        let stolen = stolen_percent(&best);
        if stolen.is_none_or(|stolen| stolen <= max) {
            break;
        }
        crate::print_error(format_args!(
            "the host gave others {:.1} % of its time: once more",
            stolen.unwrap_or(0.0)
        ));
        let next = run();
        let is_better = stolen_percent(&next).zip(stolen).is_some_and(|(next, best)| next < best);
        if next["interrupted"] == Value::Bool(true) {
            break;
        }
        if is_better {
            best = next;
        }
        best["tries"] = json!(tries);
    }
    best
}

fn stolen_percent(row: &Value) -> Option<f64> {
    Some(row.pointer("/target_use/host_stolen/mean")?.as_f64()? * 100.0)
}

fn run_once(
    comparison: &ComparisonPlan,
    task: &ComparisonTask,
    entry: &BrokerEntry,
) -> Result<Value, String> {
    let name = &task.scenario;
    let (text, scenario) = crate::run::load_scenario(name).map_err(|wrongs| wrongs.join("; "))?;
    let launched = launch_brokers(entry, scenario.broker_count(), comparison.line.is_some())?;
    let change = ScenarioOverrides {
        scale: task.scale,
        rate: task.rate,
        measure_s: comparison.duration_s,
        warm_s: comparison.warm_s,
        connects_per_s: comparison.connects_per_s,
        threads: comparison.threads,
        seed: test_session::random_seed(),
        ..ScenarioOverrides::default()
    };
    let targets = launched.iter().map(|one| crate::target::from_url(&one.url));
    let (mut plan, scaled) = scenario.plan(targets.collect::<Result<_, _>>()?, &change)?;
    plan.local_addresses = comparison.local_addresses.clone();
    let subject = TestSubject {
        scenario: name.clone(),
        scenario_text: text,
        scale: task.scale,
        scaled,
        broker: entry.name.clone(),
        broker_version: entry.query_version(),
        configuration: entry.content.clone(),
        watch_target: launched.first().and_then(BrokerProcess::id).map(WatchTarget::Process),
        watched_by: None,
    };
    test_session::run(plan, &subject, &mut |_, _| {})
}

/// Starts `brokers` processes, at most 2. The first is bridged to the second, which runs at the
/// other end of the impaired line if `is_beyond`.
fn launch_brokers(
    entry: &BrokerEntry,
    brokers: usize,
    is_beyond: bool,
) -> Result<Vec<BrokerProcess>, String> {
    if brokers == 1 {
        return Ok(vec![BrokerProcess::start(entry)?]);
    }
    if brokers > 2 || entry.bridge.is_empty() {
        return Err(format!("{}: no bridge is known, and this scenario needs one", entry.name));
    }
    let second = match is_beyond {
        true if !entry.supports_remote_host() => {
            let what = "a line needs {host} where it listens and {second_host} in its bridge";
            return Err(format!("{}: {what}", entry.name));
        }
        true => BrokerProcess::start_across(entry)?,
        false => BrokerProcess::start(entry)?,
    };
    let first = BrokerProcess::start(&entry.bridged_to(&second))?;
    Ok(vec![first, second])
}

fn markdown(comparison: &ComparisonPlan, results: &[ComparisonRun]) -> String {
    let rows: Vec<Value> = results.iter().map(|result| result.row.clone()).collect();
    let mut out = format!("# Comparison\n\n{}", report::conclusion(&rows));
    let first = &comparison.brokers[0].name;
    let _ = match comparison.rounds {
        1 => writeln!(out, "One round on one host. Ratios are to {first}.\n"),
        n => {
            writeln!(out, "Medians of {n} interleaved rounds on one host. Ratios are to {first}.\n")
        }
    };
    if is_cut_short(comparison, results) {
        let whole = results.iter().filter(|one| one.is_complete()).count();
        let _ = writeln!(
            out,
            "**Cut short by a signal**: {whole} of {} runs were made, and only they count.\n",
            comparison.runs()
        );
    }
    if let Some(max) = comparison.stolen_percent_max
        && comparison.tries > 1
    {
        let again: u64 = results.iter().map(|one| one.row["tries"].as_u64().unwrap_or(1) - 1).sum();
        let _ = writeln!(
            out,
            "A run during which the host gave others more than {max} % of its processors' time was \
             made again, {} times at most, and the run with the least counts: of {} runs {again} \
             were repetitions.\n",
            comparison.tries - 1,
            results.len() as u64 + again,
        );
    }
    for (at, ComparisonTask { scenario, scale, rate }) in comparison.tasks.iter().enumerate() {
        let _ = writeln!(out, "## {scenario}\n");
        if let Ok((_, known)) = crate::run::load_scenario(scenario) {
            let _ = writeln!(out, "{}.", known.title);
            if !known.reported.is_empty() {
                let _ = writeln!(out, "Reported elsewhere: {}.", known.reported);
            }
        }
        let _ = writeln!(out, "Scale {scale}, rate {rate}.\n");
        let own = results.iter().filter(|result| result.task == at);
        // The row of a broker that failed to run has no scale.
        let mut scaled = own.map(|result| report::text(&result.row, "/scenario/scaled"));
        if let Some(scaled) = scaled.find(|scaled| !scaled.is_empty()) {
            let _ = writeln!(out, "Scaled: {scaled}.\n");
        }
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let _ = writeln!(out, "| broker | {} | faults |", names.join(" | "));
        let _ = writeln!(out, "|---|{}---|", "--:|".repeat(COLUMNS.len()));
        let first = medians(results, at, &comparison.brokers[0].name);
        for entry in &comparison.brokers {
            let own = medians(results, at, &entry.name);
            let _ = write!(out, "| {} ", entry.name);
            for ((column, own), first) in COLUMNS.iter().zip(&own).zip(&first) {
                let _ = write!(out, "| {} ", cell(column, *own, *first));
            }
            let _ = writeln!(out, "| {} |", faults(results, at, &entry.name));
        }
        let _ = writeln!(out);
    }
    disclosure(comparison, results, &mut out);
    out
}

fn disclosure(comparison: &ComparisonPlan, results: &[ComparisonRun], out: &mut String) {
    let Some(row) = results.iter().map(|result| &result.row).find(|row| row["tool"].is_string())
    else {
        return;
    };
    let _ = writeln!(out, "## Disclosure\n");
    for line in report::host_lines(row) {
        let _ = writeln!(out, "* {line}");
    }
    for entry in &comparison.brokers {
        let version = entry.query_version();
        let place = if entry.command.is_empty() { &entry.url } else { &entry.command };
        let version = if version.is_empty() { version } else { format!(" ({version})") };
        let _ = writeln!(out, "* {}{version}: `{place}`", entry.name);
        if !entry.content.is_empty() {
            let _ =
                writeln!(out, "\n  ```\n  {}\n  ```\n", entry.content.trim().replace('\n', "\n  "));
        }
    }
}

fn runs_of<'a>(
    results: &'a [ComparisonRun],
    task: usize,
    broker: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let is =
        move |one: &&ComparisonRun| one.task == task && one.broker == broker && one.is_complete();
    results.iter().filter(is).map(|one| &one.row)
}

/// Returns the median of each column of `COLUMNS` over the rounds; `None` if a round lacks the
/// figure.
fn medians(results: &[ComparisonRun], task: usize, broker: &str) -> Vec<Option<f64>> {
    let column = |column: &ComparisonColumn| {
        let values = runs_of(results, task, broker).map(|row| (column.value)(row));
        let mut values: Vec<f64> = values.collect::<Option<_>>()?;
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            n if n % 2 == 1 => Some(values[middle]),
            _ => Some((values[middle - 1] + values[middle]) / 2.0),
        }
    };
    COLUMNS.iter().map(column).collect()
}

fn cell(column: &ComparisonColumn, own: Option<f64>, first: Option<f64>) -> String {
    let Some(own) = own else { return "-".into() };
    let value = format!("{own:.*}", column.digits);
    match first {
        Some(first) if column.has_ratio && first > 0.0 && own != first => {
            format!("{value} (x{:.2})", own / first)
        }
        _ => value,
    }
}

/// Returns the distinct faults of all rounds: two good rounds do not hide a bad round.
fn faults(results: &[ComparisonRun], task: usize, broker: &str) -> String {
    let mut all: Vec<&str> = runs_of(results, task, broker)
        .flat_map(|row| report::list(row, "/faults"))
        .filter_map(Value::as_str)
        .collect();
    all.dedup();
    all.join("; ")
}

struct ComparisonColumn {
    name: &'static str,
    value: fn(&Value) -> Option<f64>,
    digits: usize,
    has_ratio: bool,
}

fn sampler(row: &Value, name: &str, key: &str) -> Option<f64> {
    report::list(row, "/samplers").iter().find(|one| one["name"] == name)?[key].as_f64()
}

const COLUMNS: &[ComparisonColumn] = &[
    ComparisonColumn {
        name: "in a second",
        value: |row| row.pointer("/rates/published")?.as_f64(),
        digits: 0,
        has_ratio: false,
    },
    ComparisonColumn {
        name: "out a second",
        value: |row| row.pointer("/rates/received")?.as_f64(),
        digits: 0,
        has_ratio: true,
    },
    ComparisonColumn {
        name: "p50 ms",
        value: |row| sampler(row, "Sub", "p50"),
        digits: 3,
        has_ratio: true,
    },
    ComparisonColumn {
        name: "p99 ms",
        value: |row| sampler(row, "Sub", "p99"),
        digits: 3,
        has_ratio: true,
    },
    ComparisonColumn {
        name: "CPU us a delivery",
        value: |row| row.pointer("/target_use/cpu_us_per_delivery")?.as_f64(),
        digits: 2,
        has_ratio: true,
    },
    ComparisonColumn {
        name: "CPUs",
        value: |row| row.pointer("/target_use/cpu/mean")?.as_f64(),
        digits: 2,
        has_ratio: true,
    },
    ComparisonColumn {
        name: "memory MB",
        value: |row| Some(row.pointer("/target_use/memory_kb/max")?.as_f64()? / 1024.0),
        digits: 1,
        has_ratio: true,
    },
    ComparisonColumn {
        name: "connect p99 ms",
        value: |row| sampler(row, "Connect", "p99"),
        digits: 2,
        has_ratio: true,
    },
    ComparisonColumn {
        name: "lost",
        // Without expected deliveries a loss is unknown.
        value: |row| {
            let is_judged = number(row, "/messages/expected") > 0.0;
            is_judged.then(|| number(row, "/messages/lost"))
        },
        digits: 0,
        has_ratio: false,
    },
    ComparisonColumn {
        name: "tester CPU",
        value: |row| row.pointer("/own/thread_cpu_max")?.as_f64(),
        digits: 2,
        has_ratio: false,
    },
    ComparisonColumn {
        name: "connecting",
        value: |row| row.pointer("/own/thread_cpu_max_connecting")?.as_f64(),
        digits: 2,
        has_ratio: false,
    },
    ComparisonColumn { name: "stolen %", value: stolen_percent, digits: 1, has_ratio: false },
    ComparisonColumn {
        name: "others %",
        value: |row| Some(row.pointer("/target_use/host_others/mean")?.as_f64()? * 100.0),
        digits: 1,
        has_ratio: false,
    },
];

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--markdown"], &["FILE"], "the table, also printed"),
    FlagRow::new(&["--json"], &["FILE"], "every run's whole report"),
    FlagRow::new(&["--html"], &["FILE"], "who won, as one page with charts"),
];

const FORMS: [&str; 3] = ["--markdown", "--json", "--html"];

const EXAMPLE: &str = r#"A file:
  scenarios = ["fanout-5-1000-5-250k", "p2p-1k-1k-1k-1k"]
  rounds = 3
  scale = 0.1           # factor on clients
  duration = "20s"
  ifaddr = "127.0.0.2,127.0.0.3"    # where one has too few ports
  stolen_percent_max = 3    # on a virtual machine: above it a run is made again,
  tries = 3                 # until so many were made; the quietest counts
  line.delay = "100ms"      # between two brokers, each way; as root
  line.loss_percent = 2     # and late_percent, late_by, bytes_per_s, seed
  use = ["mosquitto"]   # `godwit-bench brokers` lists what is ready
  [[run]]               # instead of scenarios, or besides them
  scenario = "p2p-50k-50k-50k-50k"
  scale = 0.02
  [[broker]]
  name = "mine"
  command = "target/release/godwit serve --memory --listen tcp://127.0.0.1:{port}"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stolen: f64) -> Value {
        json!({ "target_use": { "host_stolen": { "mean": stolen / 100.0 } } })
    }

    fn chosen(stolen: &[f64], max: Option<f64>) -> (f64, u64, usize) {
        let comparison =
            ComparisonPlan { stolen_percent_max: max, tries: 3, ..ComparisonPlan::default() };
        let mut runs = stolen.iter();
        let chosen =
            run_quietest(&comparison, || row(*runs.next().expect("no more tries than allowed")));
        let tries = chosen["tries"].as_u64().expect("it is counted");
        (stolen_percent(&chosen).expect("it has one").round(), tries, runs.len())
    }

    #[test]
    fn the_run_that_the_host_disturbed_least_counts() {
        assert_eq!(chosen(&[9.0], None), (9.0, 1, 0), "nobody asked for more");
        assert_eq!(chosen(&[2.0, 1.0], Some(3.0)), (2.0, 1, 1), "quiet enough");
        assert_eq!(chosen(&[9.0, 3.0, 1.0], Some(3.0)), (3.0, 2, 1));
        assert_eq!(chosen(&[9.0, 5.0, 7.0], Some(3.0)), (5.0, 3, 0));
    }

    #[test]
    fn a_host_that_does_not_say_is_measured_once() {
        let comparison =
            ComparisonPlan { stolen_percent_max: Some(0.0), tries: 3, ..ComparisonPlan::default() };
        let mut runs = 0;
        let chosen = run_quietest(&comparison, || {
            runs += 1;
            json!({ "error": "not installed" })
        });
        assert_eq!((runs, &chosen["tries"]), (1, &json!(1)));
    }

    /// The first broker of the second table cannot be run, and the table still gives the scale.
    #[test]
    fn a_scenario_at_two_scales_has_two_tables_of_its_own() {
        let brokers =
            ["a", "b"].map(|name| BrokerEntry { name: name.into(), ..BrokerEntry::default() });
        let scenario = "p2p-1k-1k-1k-1k".to_string();
        let tasks =
            [0.1, 0.2].map(|scale| ComparisonTask { scenario: scenario.clone(), scale, rate: 1.0 });
        let (tasks, brokers) = (tasks.to_vec(), brokers.to_vec());
        let comparison = ComparisonPlan { tasks, brokers, rounds: 1, ..ComparisonPlan::default() };
        let run = |task, broker: &str, row| ComparisonRun { task, broker: broker.into(), row };
        let row = |received: u64, scaled: &str| {
            let scenario = json!({ "scaled": scaled });
            json!({ "rates": { "received": received }, "scenario": scenario })
        };
        let results = [
            run(0, "a", row(100, "to 100")),
            run(0, "b", row(110, "to 100")),
            run(1, "a", json!({ "error": "no", "faults": ["no"] })),
            run(1, "b", row(210, "to 200")),
        ];
        let table = markdown(&comparison, &results);
        let lines: Vec<&str> = table.lines().collect();
        let starts = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        assert_eq!(
            [starts("| a | - | 100 |"), starts("| b | - | 110 (x1.10) |")],
            [1, 1],
            "{table}"
        );
        assert_eq!([starts("| a | - | - |"), starts("| b | - | 210 |")], [1, 1], "{table}");
        assert_eq!([starts("Scaled: to 100."), starts("Scaled: to 200.")], [1, 1], "{table}");
    }

    #[test]
    fn repetitions_are_told_of_where_there_can_be_any() {
        let says = |tries| {
            let brokers = vec![BrokerEntry { name: "mine".into(), ..BrokerEntry::default() }];
            let stolen_percent_max = Some(3.0);
            let comparison =
                ComparisonPlan { stolen_percent_max, tries, brokers, ..ComparisonPlan::default() };
            markdown(&comparison, &[]).contains("was made again")
        };
        assert_eq!([1, 2].map(says), [false, true]);
    }
}
