//! `scenarios`, `show` and `run`.

use crate::flags::{Flag, Line, help, read};
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::remote;
use crate::report::Subject;
use crate::scenario::{self, BUILT_IN, Change, Scenario};
use crate::session::{self, Ending};
use crate::tally::{Count, Sampler};
use crate::target;
use crate::watch::Whom;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Lists what is built in.
pub(crate) fn list(arguments: &[String]) -> ExitCode {
    if let Err(code) = crate::words(arguments, 0, "scenarios") {
        return code;
    }
    for (name, text) in BUILT_IN {
        let title = scenario::read(text).map(|scenario| scenario.title).unwrap_or_default();
        crate::say(format_args!("{name:26} {title}"));
    }
    ExitCode::SUCCESS
}

/// Prints one scenario's file, to copy and change.
pub(crate) fn show(arguments: &[String]) -> ExitCode {
    let words = match crate::words(arguments, 1, "show NAME") {
        Ok(words) => words,
        Err(code) => return code,
    };
    match find(&words[0]) {
        Ok(text) => match session::put(Path::new("-"), &text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => crate::fail(&why),
        },
        Err(why) => crate::refuse(&[why]),
    }
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help") {
        crate::say(format_args!(
            "Usage: godwit-bench run SCENARIO|FILE.toml [FLAGS]\n\n{}",
            help(&[FLAGS])
        ));
        return ExitCode::SUCCESS;
    }
    let line = match read(&[FLAGS], arguments) {
        Ok(line) => line,
        Err(wrongs) => return crate::refuse(&wrongs),
    };
    let [name] = &line.words[..] else {
        return crate::refuse(&[
            "run needs one scenario; `godwit-bench scenarios` lists them".into()
        ]);
    };
    let chosen = match load(name) {
        Ok(chosen) => chosen,
        Err(wrongs) => return crate::refuse(&wrongs),
    };
    let order = match order(name, &chosen, &line) {
        Ok(order) => order,
        Err(why) => return crate::refuse(&[why]),
    };
    if let Err(why) = order.ending.try_out() {
        return crate::refuse(&[why]);
    }
    let result = match &order.agents {
        Some((agents, token)) => {
            remote::run(agents, token, &order.subject, &order.plan, &order.change)
        }
        None => here(&line, &order),
    };
    match result {
        Ok(report) => session::end(&report, &order.ending),
        Err(why) => crate::fail(&why),
    }
}

fn here(line: &Line, order: &Order) -> Result<Value, String> {
    let metrics = line.text("--metrics").map(Metrics::start).transpose()?;
    let plan = &order.plan;
    let mut progress = Progress {
        is_terminal: std::io::stderr().is_terminal(),
        began_ns: 0,
        spans_s: plan.clients() as f64 / plan.connects_per_s.max(0.001)
            + plan.warm_s
            + plan.measure_s.unwrap_or(0.0),
    };
    let result = session::run(order.plan.clone(), &order.subject, &mut |row, total| {
        progress.show(row);
        metrics.iter().for_each(|metrics| metrics.update(total));
    });
    progress.end();
    result
}

/// A scenario with everything that the command line says about it.
struct Order {
    plan: Plan,
    change: Change,
    subject: Subject,
    ending: Ending,
    /// Who sends the load, and the token that they want; none where it is this process.
    agents: Option<(Vec<String>, String)>,
}

fn order(name: &str, (text, chosen): &(String, Scenario), line: &Line) -> Result<Order, String> {
    let change = Change {
        scale: line.positive("--scale")?.unwrap_or(1.0),
        rate: line.positive("--rate")?.unwrap_or(1.0),
        measure_s: line.seconds("--duration")?,
        warm_s: line.seconds("--warm")?,
        connects_per_s: line.positive("--connrate")?,
        threads: line.number("--threads")?,
        seed: session::seed(),
        ..Change::default()
    };
    let targets = line.all("--target").map(target::from_url).collect::<Result<Vec<_>, _>>()?;
    let (mut plan, scaled) = chosen.plan(targets, &change)?;
    plan.local = line.text("--ifaddr").map_or(Ok(Vec::new()), target::local)?;
    let path = |name| line.text(name).map(Into::into);
    Ok(Order {
        agents: agents(line, &plan)?,
        plan,
        subject: Subject {
            scenario: name.into(),
            scenario_text: text.clone(),
            scale: change.scale,
            scaled,
            broker: line.text("--broker").unwrap_or_default().into(),
            broker_version: String::new(),
            configuration: file(line, "--broker-config")?,
            whom: whom(line)?,
            watched_by: watcher(line)?,
        },
        change,
        ending: Ending {
            json: path("--json"),
            markdown: path("--markdown"),
            csv: path("--csv"),
            jtl: path("--jtl"),
            html: path("--html"),
        },
    })
}

fn agents(line: &Line, plan: &Plan) -> Result<Option<(Vec<String>, String)>, String> {
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

fn file(line: &Line, flag: &str) -> Result<String, String> {
    let Some(path) = line.text(flag) else { return Ok(String::new()) };
    std::fs::read_to_string(path).map_err(|error| format!("{flag} {path}: {error}"))
}

/// A process by its id, or all of a container.
pub(crate) fn whom(line: &Line) -> Result<Option<Whom>, String> {
    let Some(container) = line.text("--container") else {
        return Ok(line.number("--pid")?.map(Whom::Process));
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
            return Ok(Some(Whom::Container(pid)));
        }
    }
    Err(format!("--container {container}: neither docker nor podman runs it"))
}

pub(crate) fn watcher(line: &Line) -> Result<Option<(String, String)>, String> {
    let Some(agent) = line.text("--host-metrics") else { return Ok(None) };
    Ok(Some((agent.into(), remote::token(line.text("--token-file"))?)))
}

pub(crate) fn load(name: &str) -> Result<(String, Scenario), Vec<String>> {
    let text = find(name).map_err(|why| vec![why])?;
    let scenario = scenario::read(&text).map_err(|wrongs| {
        wrongs.iter().map(|wrong| format!("{name}: {wrong}")).collect::<Vec<_>>()
    })?;
    Ok((text, scenario))
}

/// A built-in name, or a file.
fn find(name: &str) -> Result<String, String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).into());
    }
    if name.contains(['/', '.']) {
        return std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"));
    }
    Err(format!("{name} is no scenario and no file; `godwit-bench scenarios` lists them"))
}

/// One line a second on stderr; on a terminal it is one line that changes.
struct Progress {
    is_terminal: bool,
    began_ns: u64,
    /// All phases but the last, whose length nobody knows.
    spans_s: f64,
}

impl Progress {
    fn show(&mut self, row: &crate::conduct::Row) {
        if self.began_ns == 0 {
            self.began_ns = row.from_ns;
        }
        let seconds = (row.until_ns - row.from_ns).max(1) as f64 / 1e9;
        let rate = |count| row.tally.count(count) as f64 / seconds;
        let times = row.tally.times(Sampler::Sub);
        let ms = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        let text = format!(
            "{:>5.0} s  clients {}  in {:.0}/s  out {:.0}/s  p50 {:.2} ms  p99 {:.2} ms",
            (row.until_ns - self.began_ns) as f64 / 1e9,
            row.live,
            rate(Count::Pub),
            rate(Count::Recv),
            ms(0.5),
            ms(0.99)
        );
        let mut err = std::io::stderr().lock();
        let _ = match self.is_terminal {
            true => {
                let elapsed = (row.until_ns - self.began_ns) as f64 / 1e9;
                write!(err, "\r{} {text:<78}", bar(elapsed / self.spans_s.max(0.001)))
            }
            false => writeln!(err, "{text}"),
        };
    }

    fn end(&self) {
        if self.is_terminal {
            crate::tell("");
        }
    }
}

/// How much of a test is over: `[#####.....]  50 %`.
fn bar(done: f64) -> String {
    let done = done.clamp(0.0, 1.0);
    let full = (done * BAR as f64).round() as usize;
    format!("[{}{}] {:>3.0} %", "#".repeat(full), ".".repeat(BAR - full), done * 100.0)
}

const BAR: usize = 20;

// Flags of every command that runs a scenario.

pub(crate) const IFADDR: Flag = Flag {
    names: &["--ifaddr"],
    value: "IPS",
    default: "",
    doc: "local addresses, comma list, taken in turn",
};

// Who watches the broker, for every command that lets it be watched.

pub(crate) const PID: Flag = Flag {
    names: &["--pid"],
    value: "PID",
    default: "",
    doc: "the broker's process; found by its port on this host",
};
pub(crate) const CONTAINER: Flag = Flag {
    names: &["--container"],
    value: "NAME",
    default: "",
    doc: "the broker's container (docker, podman)",
};
pub(crate) const HOST_METRICS: Flag = Flag {
    names: &["--host-metrics"],
    value: "HOST:PORT",
    default: "",
    doc: "agent on the broker's host that watches it",
};

const FLAGS: &[Flag] = &[
    Flag {
        names: &["--target"],
        value: "URL",
        default: "tcp://127.0.0.1:1883",
        doc: "broker; repeated where a scenario has several",
    },
    Flag {
        names: &["--scale"],
        value: "X",
        default: "1",
        doc: "factor on clients; stands in the report",
    },
    Flag {
        names: &["--rate"],
        value: "X",
        default: "1",
        doc: "factor on message rates; stands in the report",
    },
    Flag { names: &["--duration"], value: "SPAN", default: "", doc: "measured time: 20s, 5m" },
    Flag { names: &["--warm"], value: "SPAN", default: "", doc: "time before it" },
    Flag { names: &["-R", "--connrate"], value: "N", default: "", doc: "connections a second" },
    Flag { names: &["--threads"], value: "N", default: "", doc: "load threads" },
    IFADDR,
    PID,
    CONTAINER,
    HOST_METRICS,
    Flag {
        names: &["--broker"],
        value: "TEXT",
        default: "",
        doc: "the broker's name and version, for the report",
    },
    Flag {
        names: &["--broker-config"],
        value: "FILE",
        default: "",
        doc: "the broker's own file, for the report",
    },
    Flag { names: &["--json"], value: "FILE", default: "", doc: "the report, - for stdout" },
    Flag { names: &["--markdown"], value: "FILE", default: "", doc: "the report" },
    Flag { names: &["--html"], value: "FILE", default: "", doc: "the report as one page" },
    Flag {
        names: &["--metrics"],
        value: "PLACE",
        default: "",
        doc: "[IP:]PORT for Prometheus while it runs",
    },
    Flag {
        names: &["--agents"],
        value: "LIST",
        default: "",
        doc: "HOST:PORT, comma list: they send the load",
    },
    Flag {
        names: &["--token-file"],
        value: "FILE",
        default: "",
        doc: "what the agents want to be told",
    },
    Flag { names: &["--csv"], value: "FILE", default: "", doc: "its seconds" },
    Flag { names: &["--jtl"], value: "FILE", default: "", doc: "its seconds, for JMeter" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_and_never_overflows() {
        assert_eq!(bar(0.0), "[....................]   0 %");
        assert_eq!(bar(0.5), "[##########..........]  50 %");
        assert_eq!(bar(7.0), "[####################] 100 %");
    }
}
