//! Reads the tables `[[sink]]` of a configuration file.

use super::file::OptionFileReader;
use super::links::{LinkOptions, LinkTables, check_name};
use super::{OptionError, OptionPlan, override_settings};
use crate::options::settings::ProgramSettings;
use broker::BrokerOptions;
use config::row::OptionScope;
use connectors::local_session;
use connectors::sink::settings::{ROWS, SinkSettings};
use toml::de::DeTable;

pub(crate) type SinkOptions = LinkOptions<SinkSettings>;

const TABLES: LinkTables<SinkSettings> = LinkTables { rows: ROWS, scope: Some(OptionScope::Sink) };

impl OptionFileReader<'_> {
    pub(super) fn read_sink(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkOptions::new(self.origin(at), ROWS);
        for (name, value) in table {
            self.read_link_option(&mut own, &TABLES, name.get_ref(), name.span().start, value);
        }
        match self.check_sink(&mut own.settings) {
            Some(why) => self.report_error(at, why),
            None => self.plan.sinks.push(own),
        }
    }

    /// Returns the first error in the name of a `[[sink]]`, or in options that depend on each
    /// other.
    fn check_sink(&self, own: &mut SinkSettings) -> Option<String> {
        let others = self.plan.sinks.iter().map(|other| &*other.settings.name);
        if let Some(why) = check_name("sink", &own.name, others) {
            return Some(why);
        }
        let whose = "https, rediss, tls:// of NATS, kafka.tls = true and sql.tls = true: it is \
                     none of these";
        own.resolve_options().and_then(|()| own.tls.check(own.uses_tls(), whose)).err()
    }
}

impl OptionPlan {
    /// Returns every `[[sink]]` with session limits: `limits` over the options for all.
    pub(super) fn sink_settings(&self, settings: &ProgramSettings) -> Vec<SinkSettings> {
        let sink = |given: &SinkOptions| {
            let own =
                local_session::session_limits(&override_settings(settings, &given.limits).broker);
            let limits = BrokerOptions { inflight_max: given.settings.inflight_max(), ..own };
            let mut sink = given.settings.clone();
            sink.limits = limits.into();
            sink.takes_rows = self.is_sent_to(&sink.link_id());
            sink
        };
        self.sinks.iter().map(sink).collect()
    }

    /// Whether the sinks of two plans differ, so that a reload must replace all.
    pub(super) fn sinks_differ(&self, next: &OptionPlan) -> bool {
        let own =
            |plan: &OptionPlan| plan.sinks.iter().map(LinkOptions::values).collect::<Vec<_>>();
        own(self) != own(next)
    }

    pub(super) fn check_sinks(&self, wrongs: &mut Vec<OptionError>) {
        let others = self.groups.len() + self.bridges.len();
        let most = broker::limits::CLIENT_GROUPS_MAX.saturating_sub(others);
        if let Some(beyond) = self.sinks.get(most) {
            let why = format!("with {others} groups and bridges there is room for {most} sinks");
            wrongs.push(OptionError { origin: beyond.origin.clone(), why });
        }
        for (at, given) in self.sinks.iter().enumerate() {
            let own = &given.settings;
            if let Some(why) = same_files(own, &self.sinks[..at]) {
                wrongs.push(OptionError { origin: given.origin.clone(), why });
            }
            let has_some = !own.filters.is_empty() || !own.events.is_empty();
            if !has_some && !self.is_sent_to(&own.link_id()) {
                let name = &own.name;
                let why = format!(
                    "a sink needs filters = [\"sensors/#\"], or events, or a [[rule]] with \
                     send.to = [\"sink/{name}\"]"
                );
                wrongs.push(OptionError { origin: given.origin.clone(), why });
            }
        }
    }
}

/// Returns the error for a `file.path` of two sinks: each would treat the other's lines as remains
/// of a crash, and rename the file.
fn same_files(own: &SinkSettings, others: &[SinkOptions]) -> Option<String> {
    let path = own.file_path()?;
    let other = others.iter().find(|other| other.settings.file_path().as_ref() == Some(&path))?;
    let (name, other) = (&own.name, &other.settings.name);
    Some(format!("file.path of sink {name} is that of sink {other}, too: give each its own file"))
}
