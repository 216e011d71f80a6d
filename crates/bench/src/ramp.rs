//! `ramp`: raises a scenario's rate step by step, and says which load is recommended: the highest
//! within every limit whose processor use is nearest to the one asked for.

use crate::flags::{Flag, Line, help, read};
use crate::limits::{OTHERS_NOTED, STOLEN_NOTED};
use crate::plan::Target;
use crate::report::{self, Subject, number};
use crate::scenario::{Change, Scenario};
use crate::session;
use crate::target;
use crate::watch::Whom;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

/// One step: a row of the table.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    rate: f64,
    /// Messages in plus messages out, a second.
    load: f64,
    /// Of the whole host, in per cent: 100 less idle.
    cpu: f64,
    /// What of it neither the broker nor the tester had, in per cent, where that is known: time of
    /// other processes, and time that a hypervisor gave to others.
    others: Option<f64>,
    stolen: Option<f64>,
    /// Of the broker, where it can be watched.
    memory_mb: Option<f64>,
    mean_ms: f64,
    p99_ms: f64,
    lost: f64,
    /// What was published of what was meant to be.
    achieved: f64,
    broken: Option<String>,
}

struct Limits {
    cpu: f64,
    p99_ms: Option<f64>,
    lost: f64,
}

/// What the command line asks for.
struct Order {
    name: String,
    text: String,
    scenario: Scenario,
    targets: Vec<Target>,
    /// Of the first step; a later one has a rate of its own.
    change: Change,
    /// Addresses of this host to connect from.
    local: Vec<IpAddr>,
    to: f64,
    factor: f64,
    limits: Limits,
    whom: Option<Whom>,
    watched_by: Option<(String, String)>,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help") {
        crate::say(format_args!(
            "Usage: godwit-bench ramp SCENARIO|FILE.toml [FLAGS]\n\n{}",
            help(&[FLAGS])
        ));
        return ExitCode::SUCCESS;
    }
    let line = match read(&[FLAGS], arguments) {
        Ok(line) => line,
        Err(wrongs) => return crate::refuse(&wrongs),
    };
    let order = match order(&line) {
        Ok(order) => order,
        Err(wrongs) => return crate::refuse(&wrongs),
    };
    if let Err(why) = session::try_out_forms(&line, &FORMS) {
        return crate::refuse(&[why]);
    }
    let (steps, reports) = match climb(&order) {
        Ok(climbed) => climbed,
        Err(why) => return crate::fail(&why),
    };
    let markdown = markdown(&order, &steps, &reports);
    let json = || json(&order, &steps, &reports);
    let forms: [&dyn Fn() -> String; 2] = [&|| markdown.clone(), &json];
    if let Err(why) = session::put_forms(&line, &FORMS, &forms, &markdown) {
        return crate::fail(&why);
    }
    let was_interrupted = reports.iter().any(|report| report["interrupted"] == Value::Bool(true));
    match recommended(&steps, order.limits.cpu) {
        _ if was_interrupted => ExitCode::FAILURE,
        Some(_) => ExitCode::SUCCESS,
        None => crate::fail(&why_none(&steps)),
    }
}

/// What to do where no step can be recommended.
fn why_none(steps: &[Step]) -> String {
    let note = steps.first().and_then(Step::host_note);
    match note {
        Some(note) => format!(
            "no step was within the limits, and with the first one {note}: use a host that has \
             nothing else to do, or begin lower with --from"
        ),
        None => NONE.into(),
    }
}

fn order(line: &Line) -> Result<Order, Vec<String>> {
    let [name] = &line.words[..] else {
        return Err(vec!["ramp needs one scenario; `godwit-bench scenarios` lists them".into()]);
    };
    let one = |why: String| vec![why];
    let (text, scenario) = crate::run::load(name)?;
    if scenario.intended_per_s(&Change::default()) == 0.0 {
        return Err(vec![format!("{name} publishes at no rate that could be raised")]);
    }
    let positive = |flag: &str| {
        line.positive(flag).map_err(one).map(|number| number.expect("its flag has a default"))
    };
    let change = Change {
        scale: positive("--scale")?,
        rate: positive("--from")?,
        measure_s: line.seconds("--duration").map_err(one)?,
        warm_s: line.seconds("--warm").map_err(one)?,
        connects_per_s: line.positive("--connrate").map_err(one)?,
        threads: line.number("--threads").map_err(one)?,
        seed: session::seed(),
        ..Change::default()
    };
    let (to, factor) = (positive("--to")?, positive("--factor")?);
    if factor <= 1.0 {
        return Err(vec!["--factor: use a number above 1".into()]);
    }
    if to < change.rate {
        return Err(vec!["--to: use a number that is not below --from".into()]);
    }
    let limits = Limits {
        cpu: positive("--cpu")?,
        p99_ms: line.number("--p99").map_err(one)?,
        lost: line.number("--lost").map_err(one)?.unwrap_or(0.0),
    };
    let targets = line.all("--target").map(target::from_url).collect::<Result<Vec<_>, _>>();
    let targets = targets.map_err(one)?;
    scenario.plan(targets.clone(), &change).map_err(one)?;
    Ok(Order {
        name: name.clone(),
        text,
        scenario,
        targets,
        change,
        local: line.text("--ifaddr").map_or(Ok(Vec::new()), target::local).map_err(one)?,
        to,
        factor,
        limits,
        whom: crate::run::whom(line).map_err(one)?,
        watched_by: crate::run::watcher(line).map_err(one)?,
    })
}

/// The steps, and the whole report of each.
fn climb(order: &Order) -> Result<(Vec<Step>, Vec<Value>), String> {
    let (mut steps, mut reports) = (Vec::new(), Vec::new());
    let mut rate = order.change.rate;
    while rate <= order.to * 1.000_001 {
        let change = Change { rate, seed: session::seed(), ..order.change.clone() };
        let (mut plan, scaled) = order.scenario.plan(order.targets.clone(), &change)?;
        plan.local = order.local.clone();
        let subject = Subject {
            scenario: order.name.clone(),
            scenario_text: order.text.clone(),
            scale: change.scale,
            scaled,
            whom: order.whom,
            watched_by: order.watched_by.clone(),
            ..Subject::default()
        };
        let report = session::run(plan, &subject, &mut |_, _| {})?;
        let was_interrupted = report["interrupted"] == Value::Bool(true);
        if steps.is_empty() && !was_interrupted && number(&report, "/counts/connect_succ") == 0.0 {
            let failures = report::list(&report, "/failures").iter();
            let why: Vec<&str> = failures.map(|failure| report::text(failure, "/what")).collect();
            return Err(format!("no client was connected: {}", why.join("; ")));
        }
        let intended = order.scenario.intended_per_s(&change);
        let mut step = Step::new(rate, intended, &report, &order.limits);
        if was_interrupted {
            step.broken = Some(CUT_SHORT.into());
        }
        crate::tell(format_args!("{}", row(&step)));
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

impl Step {
    fn new(rate: f64, intended: f64, report: &Value, limits: &Limits) -> Step {
        let sub = report::list(report, "/samplers").iter().find(|one| one["name"] == "Sub");
        let of = |key| sub.and_then(|sub| sub[key].as_f64()).unwrap_or(0.0);
        let published = number(report, "/rates/published");
        let mut step = Step {
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
        step.broken = step.why_broken(limits);
        step
    }

    /// Where the host was busy with something else, that is said beside what went wrong.
    fn why_broken(&self, limits: &Limits) -> Option<String> {
        let achieved = self.achieved * 100.0;
        let max = limits.p99_ms.filter(|max| self.p99_ms > *max);
        let why = match max {
            _ if self.lost > limits.lost => format!("{:.0} deliveries lost", self.lost),
            Some(max) => format!("p99 above {max} ms"),
            None if achieved < ACHIEVED_MIN => {
                format!("only {achieved:.0} % of the rate was reached")
            }
            None => return self.why_host_ends_it(limits),
        };
        Some(match self.host_note() {
            Some(note) => format!("{why}, and {note}"),
            None => why,
        })
    }

    /// The host is above the limit, and would not be with the broker and the tester alone.
    fn why_host_ends_it(&self, limits: &Limits) -> Option<String> {
        let max = limits.cpu + OVERSHOOT;
        let is_foreign = self.cpu > max && self.cpu - self.foreign() <= max;
        let note = self.host_note().filter(|_| is_foreign)?;
        Some(format!("the host, not the load, was busy: {note}"))
    }

    /// Per cent of the processors' time that neither the broker nor the tester had.
    fn foreign(&self) -> f64 {
        self.others.unwrap_or(0.0) + self.stolen.unwrap_or(0.0)
    }

    /// What else the host was busy with, where that is enough to change figures.
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

fn recommended(steps: &[Step], cpu: f64) -> Option<&Step> {
    let distance = |step: &Step| (step.cpu - cpu).abs();
    let is_within = |step: &&Step| step.broken.is_none() && step.cpu <= cpu + OVERSHOOT;
    let within = steps.iter().filter(is_within);
    within.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Every step's report, with what the step was.
fn json(order: &Order, steps: &[Step], reports: &[Value]) -> String {
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

fn markdown(order: &Order, steps: &[Step], reports: &[Value]) -> String {
    let mut out = format!("# Ramp of {}\n\n{}.\n", order.name, order.scenario.title);
    if !order.scenario.reported.is_empty() {
        let _ = writeln!(out, "Reported elsewhere: {}.", order.scenario.reported);
    }
    let Limits { cpu, p99_ms, lost } = order.limits;
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
        None => writeln!(out, "No load is recommended: {}.", why_none(steps)),
    };
    if let Some(report) = reports.last() {
        let _ = writeln!(out, "\nWhat follows is of the last step.\n");
        report::disclosure(report, &mut out);
    }
    out
}

fn table(steps: &[Step]) -> String {
    let mut table = String::from(
        "| rate | load, msg/s in and out | CPU, % (1 - idle) | of it other processes, % | of it \
         stolen, % | memory, MB | mean, ms | p99, ms | |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for step in steps {
        table += &row(step);
        table.push('\n');
    }
    table
}

fn row(step: &Step) -> String {
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

/// Per cent. A step above the wanted use by more than this ends the climb and is not recommended.
const OVERSHOOT: f64 = 10.0;
const ACHIEVED_MIN: f64 = 95.0;

const FLAGS: &[Flag] = &[
    Flag { names: &["--target"], value: "URL", default: "tcp://127.0.0.1:1883", doc: "broker" },
    Flag {
        names: &["--from"],
        value: "X",
        default: "0.1",
        doc: "factor on the scenario's rate to begin with",
    },
    Flag { names: &["--to"], value: "X", default: "100", doc: "where to end at last" },
    Flag { names: &["--factor"], value: "X", default: "1.5", doc: "from step to step" },
    Flag { names: &["--cpu"], value: "PERCENT", default: "75", doc: "wanted use of the host" },
    Flag { names: &["--p99"], value: "MS", default: "", doc: "end where latency is above" },
    Flag { names: &["--lost"], value: "N", default: "0", doc: "end where more is lost" },
    Flag { names: &["--scale"], value: "X", default: "1", doc: "factor on clients" },
    Flag { names: &["--duration"], value: "SPAN", default: "20s", doc: "measured time of a step" },
    Flag { names: &["--warm"], value: "SPAN", default: "2s", doc: "time before it" },
    Flag { names: &["-R", "--connrate"], value: "N", default: "", doc: "connections a second" },
    Flag { names: &["--threads"], value: "N", default: "", doc: "load threads" },
    crate::run::IFADDR,
    crate::run::PID,
    crate::run::CONTAINER,
    crate::run::HOST_METRICS,
    Flag {
        names: &["--token-file"],
        value: "FILE",
        default: "",
        doc: "what the agent wants to be told",
    },
    Flag { names: &["--markdown"], value: "FILE", default: "", doc: "the table, also printed" },
    Flag { names: &["--json"], value: "FILE", default: "", doc: "every step's whole report" },
];

const FORMS: [&str; 2] = ["--markdown", "--json"];
const CUT_SHORT: &str = "cut short by a signal";
const NONE: &str = "no step was within the limits: begin lower with --from";

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rate: f64, cpu: f64, lost: f64, achieved: f64) -> Step {
        Step {
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
        // A host that is busy from the first step on has no load to recommend.
        assert_eq!(recommended(&[step(1.0, 99.0, 0.0, 1.0)], 75.0), None);
    }

    #[test]
    fn each_limit_breaks_a_step() {
        let limits = Limits { cpu: 75.0, p99_ms: Some(5.0), lost: 0.0 };
        assert_eq!(step(1.0, 50.0, 0.0, 1.0).why_broken(&limits), None);
        assert!(step(1.0, 50.0, 1.0, 1.0).why_broken(&limits).is_some());
        assert!(step(1.0, 50.0, 0.0, 0.9).why_broken(&limits).is_some());
        let tight = Limits { p99_ms: Some(1.0), ..limits };
        assert!(step(1.0, 50.0, 0.0, 1.0).why_broken(&tight).is_some());
    }

    /// Each row: CPU, other processes, steal, what was reached, and what is said.
    #[test]
    fn a_busy_host_is_told_from_a_busy_load() {
        let limits = Limits { cpu: 75.0, p99_ms: None, lost: 0.0 };
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
            let one = Step { others: other, stolen: steal, ..step(1.0, cpu, 0.0, achieved) };
            let found = one.why_broken(&limits);
            match says {
                None => assert_eq!(found, None, "{one:?}"),
                Some(says) => {
                    let found = found.expect("it is broken");
                    assert!(found.starts_with(&says), "{found}");
                }
            }
        }
        let busy = Step { others: Some(60.0), ..step(1.0, 95.0, 0.0, 1.0) };
        assert!(why_none(&[busy]).contains("nothing else to do"));
        assert_eq!(why_none(&[step(1.0, 95.0, 0.0, 1.0)]), NONE);
    }
}
