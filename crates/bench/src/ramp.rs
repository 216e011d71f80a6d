//! `ramp`: raises a scenario's rate step by step, and says which load is recommended: the highest
//! within every limit whose processor use is nearest to the one asked for.

use crate::flags::{ParsedFlags, parse_line};
use crate::limits::{OTHERS_NOTED, STOLEN_NOTED, THREADS_MAX};
use crate::plan::BrokerTarget;
use crate::report::{self, TestSubject, number};
use crate::scenario::{Scenario, ScenarioOverrides};
use crate::target;
use crate::test_session;
use crate::watch::WatchTarget;
use command_line::{Command, FlagRow};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

/// A step, which is a row of the table.
#[derive(Clone, Debug, PartialEq)]
struct RampStep {
    rate: f64,
    /// Messages received plus messages sent, per second.
    load: f64,
    /// Load of the whole host in percent: 100 minus idle.
    cpu: f64,
    /// Part of `cpu` used by other processes, in percent; `None` if unknown.
    others: Option<f64>,
    stolen: Option<f64>,
    /// Memory of the broker; `None` if the broker cannot be watched.
    memory_mb: Option<f64>,
    mean_ms: f64,
    p99_ms: f64,
    lost: f64,
    /// Published share of the intended messages.
    achieved: f64,
    broken: Option<String>,
}

struct RampLimits {
    cpu: f64,
    p99_ms: Option<f64>,
    lost: f64,
}

/// Options of the command line.
struct RampOptions {
    name: String,
    text: String,
    scenario: Scenario,
    targets: Vec<BrokerTarget>,
    /// Overrides of the first step; later steps have their own rates.
    change: ScenarioOverrides,
    /// Addresses of this host to connect from.
    local: Vec<IpAddr>,
    rate_max: f64,
    factor: f64,
    limits: RampLimits,
    watch_target: Option<WatchTarget>,
    watched_by: Option<(String, String)>,
}

pub(crate) fn command() -> Command {
    let about = "Raises the load to the recommended one";
    command_line::command("ramp", about, FLAGS).arg(crate::run::scenario_word())
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let line = match parse_line(command(), arguments) {
        Ok(line) => line,
        Err(code) => return code,
    };
    let order = match parse_options(&line) {
        Ok(order) => order,
        Err(wrongs) => return crate::refuse_arguments(&wrongs),
    };
    if let Err(why) = test_session::check_forms_writable(&line, &FORMS) {
        return crate::refuse_arguments(&[why]);
    }
    let (steps, reports) = match run_steps(&order) {
        Ok(climbed) => climbed,
        Err(why) => return crate::report_failure(&why),
    };
    let markdown = markdown(&order, &steps, &reports);
    let json = || json(&order, &steps, &reports);
    let forms: [&dyn Fn() -> String; 2] = [&|| markdown.clone(), &json];
    if let Err(why) = test_session::write_forms(&line, &FORMS, &forms, &markdown) {
        return crate::report_failure(&why);
    }
    let was_interrupted = reports.iter().any(|report| report["interrupted"] == Value::Bool(true));
    match recommended(&steps, order.limits.cpu) {
        _ if was_interrupted => ExitCode::FAILURE,
        Some(_) => ExitCode::SUCCESS,
        None => crate::report_failure(&no_recommendation(&steps)),
    }
}

/// Returns advice for the case that no step can be recommended.
fn no_recommendation(steps: &[RampStep]) -> String {
    let note = steps.first().and_then(RampStep::host_note);
    match note {
        Some(note) => format!(
            "no step was within the limits, and with the first one {note}: use a host that has \
             nothing else to do, or begin lower with --from"
        ),
        None => NO_STEP_WITHIN_LIMITS.into(),
    }
}

fn parse_options(line: &ParsedFlags) -> Result<RampOptions, Vec<String>> {
    let name = &line.word();
    let one = |why: String| vec![why];
    let (text, scenario) = crate::run::load_scenario(name)?;
    if scenario.intended_per_s(&ScenarioOverrides::default()) == 0.0 {
        return Err(vec![format!("{name} publishes at no rate that could be raised")]);
    }
    let positive = |flag: &str| {
        line.positive(flag).map_err(one).map(|number| number.expect("its flag has a default"))
    };
    let change = ScenarioOverrides {
        scale: positive("--scale")?,
        rate: positive("--from")?,
        measure_s: line.seconds("--duration").map_err(one)?,
        warm_s: line.seconds("--warm").map_err(one)?,
        connects_per_s: line.positive("--connrate").map_err(one)?,
        threads: line.number_in("--threads", 0..=THREADS_MAX).map_err(one)?,
        seed: test_session::random_seed(),
        ..ScenarioOverrides::default()
    };
    let (to, factor) = (positive("--to")?, positive("--factor")?);
    if factor <= 1.0 {
        return Err(vec!["--factor: use a number above 1".into()]);
    }
    if to < change.rate {
        return Err(vec!["--to: use a number that is not below --from".into()]);
    }
    let limits = RampLimits {
        cpu: positive("--cpu")?,
        p99_ms: line.positive("--p99").map_err(one)?,
        lost: line.not_negative("--lost").map_err(one)?.unwrap_or(0.0),
    };
    let targets = line.all("--target").map(target::from_url).collect::<Result<Vec<_>, _>>();
    let targets = targets.map_err(one)?;
    scenario.plan(targets.clone(), &change).map_err(one)?;
    Ok(RampOptions {
        name: name.clone(),
        text,
        scenario,
        targets,
        change,
        local: line
            .text("--ifaddr")
            .map_or(Ok(Vec::new()), target::parse_local_addresses)
            .map_err(one)?,
        rate_max: to,
        factor,
        limits,
        watch_target: crate::run::watch_target(line).map_err(one)?,
        watched_by: crate::run::watch_agent(line).map_err(one)?,
    })
}

/// Runs all steps up to `rate_max` and returns each step with its complete report.
fn run_steps(order: &RampOptions) -> Result<(Vec<RampStep>, Vec<Value>), String> {
    let (mut steps, mut reports) = (Vec::new(), Vec::new());
    let mut rate = order.change.rate;
    while rate <= order.rate_max * 1.000_001 {
        let change =
            ScenarioOverrides { rate, seed: test_session::random_seed(), ..order.change.clone() };
        let (mut plan, scaled) = order.scenario.plan(order.targets.clone(), &change)?;
        plan.local_addresses = order.local.clone();
        let subject = TestSubject {
            scenario: order.name.clone(),
            scenario_text: order.text.clone(),
            scale: change.scale,
            scaled,
            watch_target: order.watch_target,
            watched_by: order.watched_by.clone(),
            ..TestSubject::default()
        };
        let report = test_session::run(plan, &subject, &mut |_, _| {})?;
        let was_interrupted = report["interrupted"] == Value::Bool(true);
        if steps.is_empty() && !was_interrupted && number(&report, "/counts/connect_succ") == 0.0 {
            let failures = report::list(&report, "/failures").iter();
            let why: Vec<&str> = failures.map(|failure| report::text(failure, "/what")).collect();
            return Err(format!("no client was connected: {}", why.join("; ")));
        }
        let intended = order.scenario.intended_per_s(&change);
        let mut step = RampStep::new(rate, intended, &report, &order.limits);
        if was_interrupted {
            step.broken = Some(CUT_SHORT.into());
        }
        crate::print_error(format_args!("{}", table_row(&step)));
        let ends = step.broken.is_some() || step.cpu > order.limits.cpu + OVERSHOOT;
        steps.push(step);
        reports.push(report);
        if ends {
            break;
        }
        rate *= order.factor;
    }
    Ok((steps, reports))
}

impl RampStep {
    fn new(rate: f64, intended: f64, report: &Value, limits: &RampLimits) -> RampStep {
        let sub = report::list(report, "/samplers").iter().find(|one| one["name"] == "Sub");
        let of = |key| sub.and_then(|sub| sub[key].as_f64()).unwrap_or(0.0);
        let published = number(report, "/rates/published");
        let mut step = RampStep {
            rate,
            load: published + number(report, "/rates/received"),
            cpu: number(report, "/target_use/host_cpu/mean") * 100.0,
            others: percent(report, "/target_use/host_others/mean"),
            stolen: percent(report, "/target_use/host_stolen/mean"),
            memory_mb: report
                .pointer("/target_use/memory_kb/max")
                .and_then(Value::as_f64)
                .map(|kilobytes| kilobytes / 1024.0),
            mean_ms: of("mean"),
            p99_ms: of("p99"),
            lost: number(report, "/messages/lost"),
            achieved: published / intended.max(1e-9),
            broken: None,
        };
        step.broken = step.limit_broken(limits);
        step
    }

    /// Returns the limit that a step exceeded, with `host_note` if the host was busy otherwise.
    fn limit_broken(&self, limits: &RampLimits) -> Option<String> {
        let achieved = self.achieved * 100.0;
        let max = limits.p99_ms.filter(|max| self.p99_ms > *max);
        let why = match max {
            _ if self.lost > limits.lost => format!("{:.0} deliveries lost", self.lost),
            Some(max) => format!("p99 above {max} ms"),
            None if achieved < ACHIEVED_MIN => {
                format!("only {achieved:.0} % of the rate was reached")
            }
            None => return self.foreign_load_reason(limits),
        };
        Some(match self.host_note() {
            Some(note) => format!("{why}, and {note}"),
            None => why,
        })
    }

    /// Returns a reason if the host is above the CPU limit only because of other processes or
    /// steal.
    fn foreign_load_reason(&self, limits: &RampLimits) -> Option<String> {
        let max = limits.cpu + OVERSHOOT;
        let is_foreign = self.cpu > max && self.cpu - self.foreign_percent() <= max;
        let note = self.host_note().filter(|_| is_foreign)?;
        Some(format!("the host, not the load, was busy: {note}"))
    }

    /// Percentage of the processors' time used by processes other than the broker and the tester,
    /// or taken by a hypervisor.
    fn foreign_percent(&self) -> f64 {
        self.others.unwrap_or(0.0) + self.stolen.unwrap_or(0.0)
    }

    /// Returns a note on other processes or steal above `OTHERS_NOTED` or `STOLEN_NOTED`; `None` if
    /// both are below.
    fn host_note(&self) -> Option<String> {
        let others = self.others.filter(|others| *others > OTHERS_NOTED * 100.0);
        let others = others.map(|others| format!("other processes used {others:.0} %"));
        let stolen = self.stolen.filter(|stolen| *stolen > STOLEN_NOTED * 100.0);
        let stolen = stolen.map(|stolen| format!("the host gave others {stolen:.1} % (steal)"));
        let all: Vec<String> = others.into_iter().chain(stolen).collect();
        (!all.is_empty()).then(|| format!("{} of the processors' time", all.join(", and ")))
    }
}

fn percent(report: &Value, path: &str) -> Option<f64> {
    report.pointer(path).and_then(Value::as_f64).map(|share| share * 100.0)
}

fn recommended(steps: &[RampStep], cpu: f64) -> Option<&RampStep> {
    let distance = |step: &RampStep| (step.cpu - cpu).abs();
    let is_within = |step: &&RampStep| step.broken.is_none() && step.cpu <= cpu + OVERSHOOT;
    let within = steps.iter().filter(is_within);
    within.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Returns the reports of all steps as JSON, each with the step's figures as `ramp`.
fn json(order: &RampOptions, steps: &[RampStep], reports: &[Value]) -> String {
    let recommended = recommended(steps, order.limits.cpu);
    let rows = reports.iter().zip(steps).map(|(report, step)| {
        let mut report = report.clone();
        report["ramp"] = json!({
            "rate": step.rate,
            "load": step.load,
            "achieved": step.achieved,
            "broken": step.broken,
            "is_recommended": recommended == Some(step),
            "host_note": step.host_note(),
        });
        report
    });
    format!("{:#}\n", rows.collect::<Value>())
}

fn markdown(order: &RampOptions, steps: &[RampStep], reports: &[Value]) -> String {
    let mut out = format!("# Ramp of {}\n\n{}.\n", order.name, order.scenario.title);
    if !order.scenario.reported.is_empty() {
        let _ = writeln!(out, "Reported elsewhere: {}.", order.scenario.reported);
    }
    let RampLimits { cpu, p99_ms, lost } = order.limits;
    let _ = write!(
        out,
        "Scale {}. The rate grows by a factor of {} a step until more than {:.0} % CPU are used, \
         a step reaches less than {ACHIEVED_MIN} % of its rate, or more than {lost} deliveries are \
         lost",
        order.change.scale,
        order.factor,
        cpu + OVERSHOOT,
    );
    let _ = match p99_ms {
        Some(p99_ms) => writeln!(out, ", or p99 is above {p99_ms} ms.\n"),
        None => writeln!(out, ".\n"),
    };
    let _ = writeln!(out, "{}", table(steps));
    let _ = match recommended(steps, cpu) {
        Some(step) => writeln!(
            out,
            "Recommended load: {:.0} msg/s in and out (rate {:.3}) at {:.0} % CPU, {:.2} ms mean, \
             {:.2} ms p99. It is the step nearest to {cpu} %.{}",
            step.load,
            step.rate,
            step.cpu,
            step.mean_ms,
            step.p99_ms,
            step.host_note().map_or(String::new(), |note| format!(
                " The host was not free for it: {note}. The load may be higher on a free host."
            ))
        ),
        None => writeln!(out, "No load is recommended: {}.", no_recommendation(steps)),
    };
    if let Some(report) = reports.last() {
        let _ = writeln!(out, "\nWhat follows is of the last step.\n");
        report::disclosure(report, &mut out);
    }
    out
}

fn table(steps: &[RampStep]) -> String {
    let mut table = String::from(
        "| rate | load, msg/s in and out | CPU, % (1 - idle) | of it other processes, % | of it \
         stolen, % | memory, MB | mean, ms | p99, ms | |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for step in steps {
        table += &table_row(step);
        table.push('\n');
    }
    table
}

fn table_row(step: &RampStep) -> String {
    let known = |figure: Option<f64>| figure.map_or("-".into(), |figure| format!("{figure:.1}"));
    format!(
        "| {:.3} | {:.0} | {:.1} | {} | {} | {} | {:.2} | {:.2} | {} |",
        step.rate,
        step.load,
        step.cpu,
        known(step.others),
        known(step.stolen),
        known(step.memory_mb),
        step.mean_ms,
        step.p99_ms,
        step.broken.as_deref().unwrap_or("")
    )
}

/// Percentage points. A step whose processor use exceeds the wanted use by more ends the ramp and
/// is not recommended.
const OVERSHOOT: f64 = 10.0;
const ACHIEVED_MIN: f64 = 95.0;

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--target"], &["URL"], "broker").with_default("tcp://127.0.0.1:1883"),
    FlagRow::new(&["--from"], &["X"], "factor on the scenario's rate to begin with")
        .with_default("0.1"),
    FlagRow::new(&["--to"], &["X"], "where to end at last").with_default("100"),
    FlagRow::new(&["--factor"], &["X"], "from step to step").with_default("1.5"),
    FlagRow::new(&["--cpu"], &["PERCENT"], "wanted use of the host").with_default("75"),
    FlagRow::new(&["--p99"], &["MS"], "end where latency is above"),
    FlagRow::new(&["--lost"], &["N"], "end where more is lost").with_default("0"),
    FlagRow::new(&["--scale"], &["X"], "factor on clients").with_default("1"),
    FlagRow::new(&["--duration"], &["SPAN"], "measured time of a step").with_default("20s"),
    FlagRow::new(&["--warm"], &["SPAN"], "time before it").with_default("2s"),
    FlagRow::new(&["-R", "--connrate"], &["N"], "connections a second"),
    FlagRow::new(&["--threads"], &["N"], "load threads"),
    crate::run::IFADDR,
    crate::run::PID,
    crate::run::CONTAINER,
    crate::run::HOST_METRICS,
    FlagRow::new(&["--token-file"], &["FILE"], "what the agent wants to be told"),
    FlagRow::new(&["--markdown"], &["FILE"], "the table, also printed"),
    FlagRow::new(&["--json"], &["FILE"], "every step's whole report"),
];

const FORMS: [&str; 2] = ["--markdown", "--json"];
const CUT_SHORT: &str = "cut short by a signal";
const NO_STEP_WITHIN_LIMITS: &str = "no step was within the limits: begin lower with --from";

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rate: f64, cpu: f64, lost: f64, achieved: f64) -> RampStep {
        RampStep {
            rate,
            load: rate * 1_000.0,
            cpu,
            others: None,
            stolen: None,
            memory_mb: Some(1.0),
            mean_ms: 1.0,
            p99_ms: 2.0,
            lost,
            achieved,
            broken: None,
        }
    }

    #[test]
    fn the_step_nearest_to_the_wanted_use_is_recommended_unless_it_broke() {
        let mut steps = [40.0, 70.0, 78.0, 90.0].map(|cpu| step(cpu, cpu, 0.0, 1.0)).to_vec();
        assert_eq!(recommended(&steps, 75.0).map(|step| step.cpu), Some(78.0));
        steps[2].broken = Some("x".into());
        assert_eq!(recommended(&steps, 75.0).map(|step| step.cpu), Some(70.0));
        assert_eq!(recommended(&[], 75.0), None);
        // A host that is busy from the first step has no recommended load.
        assert_eq!(recommended(&[step(1.0, 99.0, 0.0, 1.0)], 75.0), None);
    }

    #[test]
    fn each_limit_breaks_a_step() {
        let limits = RampLimits { cpu: 75.0, p99_ms: Some(5.0), lost: 0.0 };
        assert_eq!(step(1.0, 50.0, 0.0, 1.0).limit_broken(&limits), None);
        assert!(step(1.0, 50.0, 1.0, 1.0).limit_broken(&limits).is_some());
        assert!(step(1.0, 50.0, 0.0, 0.9).limit_broken(&limits).is_some());
        let tight = RampLimits { p99_ms: Some(1.0), ..limits };
        assert!(step(1.0, 50.0, 0.0, 1.0).limit_broken(&tight).is_some());
    }

    /// Each row: CPU, other processes, steal, achieved share, and the expected reason.
    #[test]
    fn a_busy_host_is_told_from_a_busy_load() {
        let limits = RampLimits { cpu: 75.0, p99_ms: None, lost: 0.0 };
        let (others, stolen) = ("other processes used 60 %", "the host gave others 25.0 % (steal)");
        for (cpu, other, steal, achieved, says) in [
            (95.0, None, None, 1.0, None),
            (95.0, Some(5.0), Some(0.5), 1.0, None),
            (
                95.0,
                Some(60.0),
                None,
                1.0,
                Some(format!("the host, not the load, was busy: {others}")),
            ),
            (
                95.0,
                None,
                Some(25.0),
                1.0,
                Some(format!("the host, not the load, was busy: {stolen}")),
            ),
            (99.0, Some(12.0), None, 1.0, None),
            (70.0, Some(60.0), None, 1.0, None),
            (
                70.0,
                Some(60.0),
                None,
                0.5,
                Some(format!("only 50 % of the rate was reached, and {others}")),
            ),
            (99.0, None, None, 0.5, Some("only 50 % of the rate was reached".to_string())),
        ] {
            let one = RampStep { others: other, stolen: steal, ..step(1.0, cpu, 0.0, achieved) };
            let found = one.limit_broken(&limits);
            match says {
                None => assert_eq!(found, None, "{one:?}"),
                Some(says) => {
                    let found = found.expect("it is broken");
                    assert!(found.starts_with(&says), "{found}");
                }
            }
        }
        let busy = RampStep { others: Some(60.0), ..step(1.0, 95.0, 0.0, 1.0) };
        assert!(no_recommendation(&[busy]).contains("nothing else to do"));
        assert_eq!(no_recommendation(&[step(1.0, 95.0, 0.0, 1.0)]), NO_STEP_WITHIN_LIMITS);
    }
}
