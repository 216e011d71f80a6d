//! Reads the tables `[[sink]]` of a configuration file.

use super::file::OptionFileReader;
use super::links::{LinkKindOptions, LinkOptions, LinkTables, check_name, replace_links};
use super::option_text::{own_limits, own_row, table_list, wrap};
use super::settings::ProgramSettings;
use super::{OptionError, OptionPlan, override_settings};
use crate::links::write_topics;
use broker::BrokerOptions;
use config::row::OptionScope;
use connectors::events::{NAMES, needed_delivery_events};
use connectors::sink::settings::{ROWS, SinkSettings};
use connectors::{LinkKind, LinkSettings, local_session};
use toml::de::DeTable;

pub(crate) type SinkOptions = LinkOptions<SinkSettings>;

const TABLES: LinkTables<SinkSettings> = LinkTables { rows: ROWS, scope: Some(OptionScope::Sink) };

pub(super) const KIND: LinkKindOptions = LinkKindOptions {
    name: "sink",
    read: |reader, at, table| reader.read_sink(at, table),
    names: |plan| plan.sinks.iter().map(|own| &*own.settings.name).collect(),
    check: |plan, _, wrongs| plan.check_sinks(wrongs),
    add_settings: |plan, settings| plan.add_sinks(settings),
    replace: |plan, next| replace_links(&mut plan.sinks, &next.sinks),
    write_list: |out| table_list("sink", ROWS, out),
    write_page,
    write_topics: |text| write_topics(LinkKind::Sink, text),
};

impl OptionFileReader<'_> {
    fn read_sink(&mut self, at: usize, table: &DeTable<'_>) {
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
    /// Adds every `[[sink]]` with session limits: `limits` over the options for all.
    fn add_sinks(&self, settings: &mut ProgramSettings) {
        let sink = |given: &SinkOptions| {
            let own =
                local_session::session_limits(&override_settings(settings, &given.limits).broker);
            let limits = BrokerOptions { inflight_max: given.settings.inflight_max(), ..own };
            let mut sink = given.settings.clone();
            sink.limits = limits.into();
            sink.takes_rows = self.is_sent_to(&sink.link_id());
            sink
        };
        let sinks: Vec<_> = self.sinks.iter().map(sink).collect();
        let events: Vec<_> = sinks.iter().flat_map(|sink| sink.events.iter().cloned()).collect();
        settings.broker.event_options.delivery = needed_delivery_events(&events);
        settings.add_links(sinks);
    }

    fn check_sinks(&self, wrongs: &mut Vec<OptionError>) {
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

fn write_page(page: &mut String) {
    page.push_str(PAGE_HEAD);
    let events: Vec<String> = NAMES.iter().map(|name| format!("`{name}`")).collect();
    page.push_str(&wrap(&format!("\nEvents are {}.", events.join(", ")), ""));
    ROWS.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str(&own_limits(OptionScope::Sink));
}

const PAGE_HEAD: &str = "
## Sinks

Every `[[sink]]` of the file hands messages, and events, on to what is no broker: files, an HTTP
server, a database. `sinks.md` says how to use them and what they promise:

```toml
[[sink]]
name = \"archive\"
filters = [\"sensors/#\"]
file.path = \"/var/lib/godwit/archive/${topic[2]}.jsonl\"

[[sink]]
name = \"hook\"
filters = [\"alarms/#\"]
events = [\"client.connected\", \"client.disconnected\"]
http.url = \"https://example/hook\"

[[sink]]
name = \"rows\"
filters = [\"sensors/+/temperature\"]
sql.url = \"postgres://godwit:...@localhost/plant\"
sql.statement = \"INSERT INTO t (sensor, v) VALUES (${topic[2]}, ${payload.value})\"
```
";

#[cfg(test)]
mod tests {
    use crate::options::tests::{file_complaints, scratch};
    use crate::options::{OptionPlan, OptionSources};

    #[test]
    fn two_sinks_cannot_write_one_file() {
        let sink = |name: &str, path: &str| {
            format!("[[sink]]\nname = \"{name}\"\nfilters = [\"a\"]\nfile.path = \"{path}\"\n")
        };
        let first = sink("a", "lines/a.csv") + &sink("b", "lines/${topic[1]}.csv");
        let apart = first.clone() + &sink("c", "lines/c.csv");
        let path = scratch("apart.toml", &apart);
        assert!(
            OptionPlan::read(&OptionSources { config: Some(path), ..OptionSources::default() })
                .is_ok()
        );
        for (path, other, more) in [
            ("lines/a.csv", "a", ""),
            ("./lines//a.csv", "a", "file.format = \"csv\"\n"),
            ("lines/a.csv", "a", "file.format = \"parquet\"\n"),
            ("lines/${topic[1]}.csv", "b", ""),
        ] {
            let why = file_complaints("same-file.toml", &(first.clone() + &sink("c", path) + more));
            let expected = format!(
                "same-file.toml:9: file.path of sink c is that of sink {other}, too: give each its \
                 own file"
            );
            assert_eq!(why.trim_end(), expected, "{path}");
        }
    }
}
