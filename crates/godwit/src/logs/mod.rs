//! Structured logs: one line per event, as text or JSON, to stderr, a file or syslog. The level of
//! each module may change while the program runs.
//!
//! Only events are supported, since the program opens no spans. tracing-subscriber, with spans,
//! made a bare program 56 KB larger, and its memory 40 KB larger when idle.

mod line;
mod writer;

use crate::options::settings::LogSettings;
use line::LogLine;
use net::timestamp::UnixTimestamp;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use writer::LogOutput;

/// Modules for `log.modules`: the last part of each target `godwit::{module}`.
pub(crate) const MODULES: &[&str] = &[
    "auth",
    "conn",
    "drop",
    "gateway",
    "permission",
    "serve",
    "session",
    "store",
    "subscription",
    "trace",
];

/// Handle to the subscriber's state, by which a reload calls `configure`.
#[derive(Clone)]
pub(crate) struct LogSubscriber {
    shared: Arc<LogState>,
}

struct LogState {
    filters: RwLock<LogFilters>,
    sink: Mutex<LogOutput>,
}

struct LogFilters {
    level: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

impl LogSubscriber {
    /// Installs the subscriber as the process's log. Earlier events are lost.
    pub(crate) fn start(settings: &LogSettings) -> Result<LogSubscriber, String> {
        let logs = LogSubscriber::new(settings)?;
        let subscriber = tracing::subscriber::set_global_default(logs.clone());
        subscriber.map_err(|_| "the log was started twice".to_string())?;
        Ok(logs)
    }

    /// Changes level, format and target; an error leaves all unchanged. A file is always reopened,
    /// also with the same name, for log rotation.
    pub(crate) fn configure(&self, settings: &LogSettings) -> Result<(), String> {
        let sink = LogOutput::open(settings)?;
        *self.shared.sink.lock().unwrap_or_else(PoisonError::into_inner) = sink;
        *self.shared.filters.write().unwrap_or_else(PoisonError::into_inner) =
            LogFilters::from_settings(settings);
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    }

    fn new(settings: &LogSettings) -> Result<LogSubscriber, String> {
        let (filters, sink) = (LogFilters::from_settings(settings), LogOutput::open(settings)?);
        let shared = LogState { filters: RwLock::new(filters), sink: Mutex::new(sink) };
        Ok(LogSubscriber { shared: Arc::new(shared) })
    }
}

impl Subscriber for LogSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let filters = self.shared.filters.read().unwrap_or_else(PoisonError::into_inner);
        metadata.is_event() && *metadata.level() <= filters.level_of(metadata.target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let filters = self.shared.filters.read().unwrap_or_else(PoisonError::into_inner);
        let levels = filters.modules.iter().map(|(_, level)| *level);
        levels.chain([filters.level]).max()
    }

    fn event(&self, event: &Event<'_>) {
        let mut sink = self.shared.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let line = LogLine::of(event, UnixTimestamp::now());
        sink.write(*event.metadata().level(), &line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl LogFilters {
    fn from_settings(settings: &LogSettings) -> LogFilters {
        LogFilters { level: settings.level, modules: settings.modules.clone() }
    }

    fn level_of(&self, target: &str) -> LevelFilter {
        let module = module(target);
        let named = self.modules.iter().find(|(name, _)| name == module);
        named.map_or(self.level, |(_, level)| *level)
    }
}

/// Returns `conn` for `godwit::conn`; for other targets the first part.
fn module(target: &str) -> &str {
    let target = target.strip_prefix("godwit::").unwrap_or(target);
    target.split_once("::").map_or(target, |(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::settings::{LogFormat, LogTarget};
    use std::path::{Path, PathBuf};

    fn settings(file: &Path, format: LogFormat) -> LogSettings {
        LogSettings { file: file.into(), format, target: LogTarget::File, ..Default::default() }
    }

    fn scratch(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("godwit-logs-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Returns the lines of a log file without their timestamps.
    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split_once('Z').unwrap().1.to_string()).collect()
    }

    #[test]
    fn a_line_has_level_module_message_and_fields_on_one_line() {
        let file = scratch("text").join("log");
        let logs = LogSubscriber::new(&settings(&file, LogFormat::Text)).unwrap();
        tracing::subscriber::with_default(logs, || {
            tracing::info!(target: "godwit::conn", client_id = "a", peer = %"1.2.3.4:5", "in");
            tracing::warn!(target: "godwit::drop", client_id = "two\nlines \"x\"", n = 3, "out");
            tracing::debug!(target: "godwit::conn", "unseen");
        });
        assert_eq!(
            lines(&file),
            [
                " INFO  godwit::conn in client_id=a peer=1.2.3.4:5",
                " WARN  godwit::drop out client_id=\"two\\nlines \\\"x\\\"\" n=3",
            ]
        );
    }

    #[test]
    fn json_lines_are_objects() {
        let file = scratch("json").join("log");
        let logs = LogSubscriber::new(&settings(&file, LogFormat::Json)).unwrap();
        tracing::subscriber::with_default(logs, || {
            tracing::info!(target: "godwit::conn", client_id = "a\"\u{1}", n = 3, ok = true, "in");
        });
        assert_eq!(
            lines(&file),
            ["\",\"level\":\"INFO\",\"module\":\"godwit::conn\",\"message\":\"in\",\
              \"client_id\":\"a\\\"\\u0001\",\"n\":3,\"ok\":true}"]
        );
    }

    #[test]
    fn a_module_has_its_own_level_and_changes_live() {
        let file = scratch("levels").join("log");
        let mut given = settings(&file, LogFormat::Text);
        given.level = LevelFilter::ERROR;
        given.modules = vec![("conn".to_string(), LevelFilter::DEBUG)];
        let logs = LogSubscriber::new(&given).unwrap();
        tracing::subscriber::with_default(logs.clone(), || {
            for _ in 0..2 {
                tracing::debug!(target: "godwit::conn", "conn");
                tracing::warn!(target: "godwit::serve", "serve");
                given.modules.clear();
                given.level = LevelFilter::WARN;
                logs.configure(&given).unwrap();
            }
        });
        assert_eq!(lines(&file), [" DEBUG godwit::conn conn", " WARN  godwit::serve serve"]);
    }

    #[test]
    fn a_rotated_file_is_opened_anew() {
        let folder = scratch("rotate");
        let (file, old) = (folder.join("log"), folder.join("log.1"));
        let given = settings(&file, LogFormat::Text);
        let logs = LogSubscriber::new(&given).unwrap();
        tracing::subscriber::with_default(logs.clone(), || {
            tracing::info!(target: "godwit::serve", "first");
            std::fs::rename(&file, &old).unwrap();
            logs.configure(&given).unwrap();
            tracing::info!(target: "godwit::serve", "second");
        });
        assert_eq!(lines(&old), [" INFO  godwit::serve first"]);
        assert_eq!(lines(&file), [" INFO  godwit::serve second"]);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_and_changes_nothing() {
        let file = scratch("missing").join("log");
        let logs = LogSubscriber::new(&settings(&file, LogFormat::Text)).unwrap();
        let why = logs.configure(&settings(Path::new("/nowhere/log"), LogFormat::Text));
        let why = why.unwrap_err();
        let told = "/nowhere/log: the log file (log.file) cannot be opened: ";
        assert!(why.starts_with(told), "{why}");
        tracing::subscriber::with_default(logs, || {
            tracing::info!(target: "godwit::serve", "still here");
        });
        assert_eq!(lines(&file), [" INFO  godwit::serve still here"]);
    }
}
