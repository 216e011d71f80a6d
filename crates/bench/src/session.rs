//! One test from a plan to its report: room on this host, signals, watching, and the end.

use crate::clock::Clock;
use crate::conduct::{Row, at_once, conduct, merge};
use crate::flags::Line;
use crate::host;
use crate::plan::Plan;
use crate::remote::FarWatch;
use crate::report::{self, Subject};
use crate::tally::Tally;
use crate::watch::{Sample, Watch, Whom, listener};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Runs it all. `see` gets every second.
pub(crate) fn run(
    plan: Plan,
    subject: &Subject,
    see: &mut dyn FnMut(&Row, &Tally),
) -> Result<Value, String> {
    host::make_room(&plan)?;
    let mut eyes = Eyes::open(subject, &plan)?;
    let subject = Subject { whom: eyes.whom(), ..subject.clone() };
    let mut samples: Vec<(u64, Sample)> = Vec::new();
    let plan = Arc::new(plan);
    let clock = Clock::start(0);
    let gathered = conduct(&plan, clock, stop(), &mut at_once(clock), &mut |row, total| {
        samples.push((row.from_ns, eyes.sample()));
        see(row, total);
    });
    let gathered = gathered.map_err(|error| format!("the load could not be started: {error}"))?;
    let outcome = merge(&plan, vec![gathered]);
    let mut report = report::build(&subject, &plan, &outcome, &samples);
    if let Some(warnings) = report["warnings"].as_array_mut() {
        warnings.extend(host::ports_warning(&plan).map(Value::from));
    }
    Ok(report)
}

/// What watches the broker: this process, or an agent on the broker's host.
pub(crate) enum Eyes {
    Near(Watch, Option<Whom>),
    Far(Box<FarWatch>),
}

impl Eyes {
    pub(crate) fn open(subject: &Subject, plan: &Plan) -> Result<Eyes, String> {
        let Some((agent, token)) = &subject.watched_by else {
            if let Some(pid) = subject.whom.map(Whom::pid)
                && !Path::new(&format!("/proc/{pid}")).exists()
            {
                return Err(format!("there is no process {pid} on this host to watch"));
            }
            let whom = subject.whom.or_else(|| nearby(plan).map(Whom::Process));
            return Ok(Eyes::Near(Watch::new(whom), whom));
        };
        let port = plan.targets.first().map_or(0, |target| target.address.port());
        let far = FarWatch::start(agent, token, subject.whom, port);
        far.map(|far| Eyes::Far(Box::new(far))).map_err(|error| format!("agent {agent}: {error}"))
    }

    pub(crate) fn whom(&self) -> Option<Whom> {
        match self {
            Eyes::Near(_, whom) => *whom,
            Eyes::Far(far) => far.whom,
        }
    }

    pub(crate) fn sample(&mut self) -> Sample {
        match self {
            Eyes::Near(watch, _) => watch.sample(),
            Eyes::Far(far) => far.sample(),
        }
    }
}

/// Set by the first signal, which ends the test in order; a second one ends it at once.
pub(crate) fn stop() -> &'static AtomicBool {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    STOP.get_or_init(|| {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let set = Arc::clone(&stop);
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, set);
            let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
        }
        stop
    })
}

/// The broker's process, where it is on this host and may be seen.
fn nearby(plan: &Plan) -> Option<u32> {
    let target = plan.targets.first()?;
    let is_near = target.address.ip().is_loopback();
    is_near.then(|| listener(target.address.port(), target.is_quic())).flatten()
}

/// A number that differs from run to run: client ids and streams of two tests do not meet.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos() as u64);
    (now ^ u64::from(std::process::id()) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
}

/// Which forms of the report to write where.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) json: Option<PathBuf>,
    pub(crate) markdown: Option<PathBuf>,
    pub(crate) csv: Option<PathBuf>,
    pub(crate) jtl: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
}

impl Ending {
    /// Refuses a place where nothing can be written, before hours of work end there.
    pub(crate) fn try_out(&self) -> Result<(), String> {
        let all = [&self.json, &self.markdown, &self.csv, &self.jtl, &self.html];
        all.into_iter().flatten().try_for_each(|path| try_out(path))
    }

    pub(crate) fn write(&self, report: &Value) -> Result<(), String> {
        let forms: [(&Option<PathBuf>, &dyn Fn() -> String); 5] = [
            (&self.json, &|| format!("{report:#}\n")),
            (&self.markdown, &|| report::markdown(report)),
            (&self.csv, &|| report::csv(report)),
            (&self.jtl, &|| report::jtl(report)),
            (&self.html, &|| report::html(std::slice::from_ref(report))),
        ];
        for (path, form) in forms {
            path.as_deref().map_or(Ok(()), |path| put(path, &form()))?;
        }
        Ok(())
    }
}

/// Whether a file can be written there. One that is there stays as it is.
pub(crate) fn try_out(path: &Path) -> Result<(), String> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a text where it is wanted; `-` is stdout, of which a reader may close the rest.
pub(crate) fn put(path: &Path, text: &str) -> Result<(), String> {
    let written = if path.as_os_str() == "-" {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    } else {
        std::fs::write(path, text)
    };
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Refuses flags whose places take no file, as `try_out` does.
pub(crate) fn try_out_forms(line: &Line, flags: &[&str]) -> Result<(), String> {
    let places = flags.iter().filter_map(|flag| line.text(flag));
    places.map(Path::new).try_for_each(try_out)
}

/// Writes the form of each flag where the line wants it. The table is printed too, unless a form
/// has stdout for itself.
pub(crate) fn put_forms(
    line: &Line,
    flags: &[&str],
    forms: &[&dyn Fn() -> String],
    table: &str,
) -> Result<(), String> {
    let places = || flags.iter().map(|flag| line.text(flag));
    for (place, form) in places().zip(forms) {
        place.map_or(Ok(()), |place| put(Path::new(place), &form()))?;
    }
    if places().any(|place| place == Some("-")) { Ok(()) } else { put(Path::new("-"), table) }
}

/// The summary on stderr, the forms asked for, and the exit code.
pub(crate) fn end(report: &Value, ending: &Ending) -> ExitCode {
    if let Err(why) = ending.write(report) {
        return crate::fail(&why);
    }
    let mut summary = crate::classic::summary(report);
    for failure in report::list(report, "/failures") {
        let (what, count) = (report::text(failure, "/what"), report::number(failure, "/count"));
        summary += &format!("failure: {what}: {count}\n");
    }
    for (name, path) in [("warning", "/warnings"), ("FAULT", "/faults")] {
        for line in report::list(report, path).iter().filter_map(Value::as_str) {
            summary += &format!("{name}: {line}\n");
        }
    }
    summary.lines().for_each(crate::tell);
    let is_clean = report::list(report, "/faults").is_empty();
    let ran = report::number(report, "/counts/connect_succ") > 0.0;
    match (ran, is_clean) {
        (false, _) => ExitCode::from(crate::EXIT_NOT_RUN),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    }
}
