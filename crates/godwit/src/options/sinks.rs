//! `[[sink]]` in a file.

use super::file::Reader;
use super::links::{LinkGiven, Tables, name_misfit};
use super::{Plan, Wrong, overruled};
use crate::links::near;
use crate::links::rows::QUEUE_KEYS;
use crate::links::sink::settings::{ROWS, SinkSettings};
use crate::options::settings::Settings;
use broker::Options;
use toml::de::DeTable;

pub(crate) type SinkGiven = LinkGiven<SinkSettings>;

const TABLES: Tables<SinkSettings> = (ROWS, QUEUE_KEYS);

impl Reader<'_> {
    pub(super) fn sink(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkGiven::new(self.origin(at), ROWS);
        for (name, value) in table {
            self.link_option(&mut own, TABLES, name.get_ref(), name.span().start, value);
        }
        match self.sink_misfit(&mut own.settings) {
            Some(why) => self.wrong(at, why),
            None => self.plan.sinks.push(own),
        }
    }

    /// What no row can see alone.
    fn sink_misfit(&self, own: &mut SinkSettings) -> Option<String> {
        let others = self.plan.sinks.iter().map(|other| &*other.settings.name);
        if let Some(why) = name_misfit("sink", &own.name, others) {
            return Some(why);
        }
        let whose = "https, rediss, tls:// of NATS, kafka.tls = true and sql.tls = true: it is \
                     none of these";
        own.finish().and_then(|()| own.tls.check(own.speaks_tls(), whose)).err()
    }
}

impl Plan {
    /// Every sink with the limits of its session.
    pub(super) fn sinks(&self, settings: &Settings) -> Vec<SinkSettings> {
        let sink = |given: &SinkGiven| {
            let own = near::limits(&overruled(settings, &given.limits).broker);
            let limits = Options { inflight_max: given.settings.inflight_max(), ..own };
            let mut sink = given.settings.clone();
            sink.limits = limits.into();
            sink.takes_rows = self.is_sent_to(&sink.link_id());
            sink
        };
        self.sinks.iter().map(sink).collect()
    }

    /// What differs between the sinks of two plans makes them change.
    pub(super) fn sinks_differ(&self, next: &Plan) -> bool {
        let own = |plan: &Plan| plan.sinks.iter().map(LinkGiven::values).collect::<Vec<_>>();
        own(self) != own(next)
    }

    pub(super) fn check_sinks(&self, wrongs: &mut Vec<Wrong>) {
        let others = self.groups.len() + self.bridges.len();
        let most = broker::limits::CLASSES_MAX.saturating_sub(others);
        if let Some(beyond) = self.sinks.get(most) {
            let why = format!("with {others} groups and bridges there is room for {most} sinks");
            wrongs.push(Wrong { origin: beyond.origin.clone(), why });
        }
        for (at, given) in self.sinks.iter().enumerate() {
            let own = &given.settings;
            if let Some(why) = same_files(own, &self.sinks[..at]) {
                wrongs.push(Wrong { origin: given.origin.clone(), why });
            }
            let has_some = !own.filters.is_empty() || !own.events.is_empty();
            if !has_some && !self.is_sent_to(&own.link_id()) {
                let name = &own.name;
                let why = format!(
                    "a sink needs filters = [\"sensors/#\"], or events, or a [[rule]] with \
                     send.to = [\"sink/{name}\"]"
                );
                wrongs.push(Wrong { origin: given.origin.clone(), why });
            }
        }
    }
}

/// Each of two would take the other's lines for what a crash left, and rename its file.
fn same_files(own: &SinkSettings, others: &[SinkGiven]) -> Option<String> {
    let path = own.file_path()?;
    let other = others.iter().find(|other| other.settings.file_path().as_ref() == Some(&path))?;
    let (name, other) = (&own.name, &other.settings.name);
    Some(format!("file.path of sink {name} is that of sink {other}, too: give each its own file"))
}
