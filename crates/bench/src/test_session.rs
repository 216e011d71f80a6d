//! A test from its plan to its report: resources of this host, signals, the watch of the broker,
//! and the output.

use crate::clock::RunClock;
use crate::flags::ParsedFlags;
use crate::host;
use crate::load_stats::LoadStats;
use crate::plan::LoadPlan;
use crate::remote::RemoteWatch;
use crate::report::{self, TestSubject};
use crate::test_driver::{SecondRow, merge_outcomes, run_phases, start_at_once};
use crate::watch::{ProcessSample, ProcessWatch, WatchTarget, listening_pid};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Runs a plan and returns the report. `see` is called every second.
pub(crate) fn run(
    plan: LoadPlan,
    subject: &TestSubject,
    see: &mut dyn FnMut(&SecondRow, &LoadStats),
) -> Result<Value, String> {
    host::reserve_resources(&plan)?;
    let mut eyes = BrokerWatch::open(subject, &plan)?;
    let subject = TestSubject { watch_target: eyes.target(), ..subject.clone() };
    let mut samples: Vec<(u64, ProcessSample)> = Vec::new();
    let plan = Arc::new(plan);
    let clock = RunClock::start(0);
    let gathered =
        run_phases(&plan, clock, stop_flag(), &mut start_at_once(clock), &mut |row, total| {
            samples.push((row.from_ns, eyes.sample()));
            see(row, total);
        });
    let gathered = gathered.map_err(|error| format!("the load could not be started: {error}"))?;
    let outcome = merge_outcomes(&plan, vec![gathered]);
    let mut report = report::build(&subject, &plan, &outcome, &samples);
    if let Some(warnings) = report["warnings"].as_array_mut() {
        warnings.extend(host::ports_warning(&plan).map(Value::from));
    }
    Ok(report)
}

/// Watches the broker: by this process, or by an agent on the broker's host.
pub(crate) enum BrokerWatch {
    Local(ProcessWatch, Option<WatchTarget>),
    Remote(Box<RemoteWatch>),
}

impl BrokerWatch {
    pub(crate) fn open(subject: &TestSubject, plan: &LoadPlan) -> Result<BrokerWatch, String> {
        let Some((agent, token)) = &subject.watched_by else {
            if let Some(pid) = subject.watch_target.map(WatchTarget::pid)
                && !Path::new(&format!("/proc/{pid}")).exists()
            {
                return Err(format!("no process has the id {pid} on this host to watch"));
            }
            let whom =
                subject.watch_target.or_else(|| local_broker_pid(plan).map(WatchTarget::Process));
            return Ok(BrokerWatch::Local(ProcessWatch::new(whom), whom));
        };
        let port = plan.targets.first().map_or(0, |target| target.address.port());
        let far = RemoteWatch::start(agent, token, subject.watch_target, port);
        far.map(|far| BrokerWatch::Remote(Box::new(far)))
            .map_err(|error| format!("agent {agent}: {error}"))
    }

    pub(crate) fn target(&self) -> Option<WatchTarget> {
        match self {
            BrokerWatch::Local(_, whom) => *whom,
            BrokerWatch::Remote(far) => far.target,
        }
    }

    pub(crate) fn sample(&mut self) -> ProcessSample {
        match self {
            BrokerWatch::Local(watch, _) => watch.sample(),
            BrokerWatch::Remote(far) => far.sample(),
        }
    }
}

/// Returns the flag that the first SIGINT or SIGTERM sets, for an orderly end; a second signal
/// exits at once with code 130.
pub(crate) fn stop_flag() -> &'static AtomicBool {
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

/// Returns the broker's process if the first target is on loopback and the process is visible.
fn local_broker_pid(plan: &LoadPlan) -> Option<u32> {
    let target = plan.targets.first()?;
    let is_near = target.address.ip().is_loopback();
    is_near.then(|| listening_pid(target.address.port(), target.is_quic())).flatten()
}

/// Returns a seed that differs from run to run, so that client identifiers and streams of two tests
/// do not collide.
pub(crate) fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos() as u64);
    (now ^ u64::from(std::process::id()) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
}

/// Output files for the forms of the report.
#[derive(Debug, Default)]
pub(crate) struct ReportOutputs {
    pub(crate) json: Option<PathBuf>,
    pub(crate) markdown: Option<PathBuf>,
    pub(crate) csv: Option<PathBuf>,
    pub(crate) jtl: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
}

impl ReportOutputs {
    /// Refuses outputs that cannot be written, before the test runs.
    pub(crate) fn check_writable(&self) -> Result<(), String> {
        let all = [&self.json, &self.markdown, &self.csv, &self.jtl, &self.html];
        all.into_iter().flatten().try_for_each(|path| check_writable(path))
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
            path.as_deref().map_or(Ok(()), |path| write_text(path, &form()))?;
        }
        Ok(())
    }
}

/// Refuses a path that cannot be written. An existing file is left unchanged.
pub(crate) fn check_writable(path: &Path) -> Result<(), String> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a text to a file, or to stdout for `-`. A closed pipe is not an error.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), String> {
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

/// Checks the paths of `flags` as `check_writable` does.
pub(crate) fn check_forms_writable(line: &ParsedFlags, flags: &[&str]) -> Result<(), String> {
    let places = flags.iter().filter_map(|flag| line.text(flag));
    places.map(Path::new).try_for_each(check_writable)
}

/// Writes the form of each flag that the command line has. The table is printed to stdout, unless a
/// form goes there.
pub(crate) fn write_forms(
    line: &ParsedFlags,
    flags: &[&str],
    forms: &[&dyn Fn() -> String],
    table: &str,
) -> Result<(), String> {
    let places = || flags.iter().map(|flag| line.text(flag));
    for (place, form) in places().zip(forms) {
        place.map_or(Ok(()), |place| write_text(Path::new(place), &form()))?;
    }
    if places().any(|place| place == Some("-")) {
        Ok(())
    } else {
        write_text(Path::new("-"), table)
    }
}

/// Prints the summary to stderr, writes the forms, and returns the exit code.
pub(crate) fn finish_report(report: &Value, ending: &ReportOutputs) -> ExitCode {
    if let Err(why) = ending.write(report) {
        return crate::report_failure(&why);
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
    summary.lines().for_each(crate::print_error);
    let is_clean = report::list(report, "/faults").is_empty();
    let ran = report::number(report, "/counts/connect_succ") > 0.0;
    match (ran, is_clean) {
        (false, _) => ExitCode::from(crate::EXIT_NOT_RUN),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    }
}
