//! The tables `[[bridge]]` of a file, with `[[bridge.out]]` and `[[bridge.in]]`.

use super::file::OptionFileReader;
use super::links::{LinkKindOptions, LinkOptions, LinkTables, check_name, replace_links};
use super::option_text::{own_limits, own_row, table_list};
use super::settings::ProgramSettings;
use super::{OptionError, OptionPlan, override_settings};
use crate::links::write_topics;
use config::row::OptionScope;
use connectors::bridge::relay::BridgeRules;
use connectors::bridge::settings::{
    BridgeRuleSettings, BridgeSettings, ROWS, RULE_ROWS, inflight_max,
};
use connectors::option_rows::check_retry;
use connectors::{LinkKind, LinkSettings, local_session};
use toml::de::DeTable;

pub(crate) type BridgeOptions = LinkOptions<BridgeSettings>;

const TABLES: LinkTables<BridgeSettings> =
    LinkTables { rows: ROWS, scope: Some(OptionScope::Link) };

pub(super) const KIND: LinkKindOptions = LinkKindOptions {
    name: "bridge",
    read: |reader, at, table| reader.read_bridge(at, table),
    names: |plan| plan.bridges.iter().map(|own| &*own.settings.name).collect(),
    check: |plan, _, wrongs| plan.check_bridges(wrongs),
    add_settings: |plan, settings| plan.add_bridges(settings),
    replace: |plan, next| replace_links(&mut plan.bridges, &next.bridges),
    write_list: |out| {
        table_list("bridge", ROWS, out);
        table_list("bridge.out]] and [[bridge.in", RULE_ROWS, out);
    },
    write_page,
    write_topics: |text| write_topics(LinkKind::Bridge, text),
};

impl OptionFileReader<'_> {
    fn read_bridge(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkOptions::new(self.origin(at), ROWS);
        let (mut outward, mut inward) = (Vec::new(), Vec::new());
        for (name, value) in table {
            let begin = name.span().start;
            match &**name.get_ref() {
                "out" => self.read_link_rules("bridge.out", RULE_ROWS, begin, value, &mut outward),
                "in" => self.read_link_rules("bridge.in", RULE_ROWS, begin, value, &mut inward),
                key => self.read_link_option(&mut own, &TABLES, key, begin, value),
            }
        }
        let rules = |all: Vec<(usize, BridgeRuleSettings)>, reader: &mut Self| {
            let name = own.settings.name.clone();
            let made = all.into_iter().map(|(at, rule)| (at, rule.build_rule(&name)));
            made.filter_map(|(at, rule)| rule.map_err(|why| reader.report_error(at, why)).ok())
                .collect()
        };
        let rules = BridgeRules { outward: rules(outward, self), inward: rules(inward, self) };
        own.settings.rules = rules.into();
        if let Some(why) = self.check_bridge(&own.settings) {
            return self.report_error(at, why);
        }
        self.plan.bridges.push(own);
    }

    /// Returns the first error in the name of a `[[bridge]]`, or in options that depend on each
    /// other.
    fn check_bridge(&self, own: &BridgeSettings) -> Option<String> {
        let others = self.plan.bridges.iter().map(|other| &*other.settings.name);
        if let Some(why) = check_name("bridge", &own.name, others) {
            return Some(why);
        }
        if own.servers.is_empty() {
            return Some("a bridge needs servers = [\"tls://HOST:8883\"]".to_string());
        }
        if let Some(rule) = own.rules.outward.iter().find(|rule| rule.map.is_shared()) {
            return Some(format!(
                "{} goes out, and a shared filter is for what comes in: use the filter in it",
                rule.map
            ));
        }
        if let Err(why) = check_retry(own.retry_min_ms, own.retry_max_s) {
            return Some(why);
        }
        if !own.version.is_v5() && own.user_name.is_empty() && !own.password.0.is_empty() {
            return Some("3.1.1 has no password without a user_name".to_string());
        }
        own.tls.check(own.uses_tls(), "servers of tls, wss and quic: none is").err()
    }
}

impl OptionPlan {
    /// Adds every `[[bridge]]` with session limits: `limits` over the options for all.
    fn add_bridges(&self, settings: &mut ProgramSettings) {
        let bridge = |given: &BridgeOptions| {
            let mut own = override_settings(settings, &given.limits).broker;
            if !given.limits.contains_key("session.inflight_max") {
                own.inflight_max = inflight_max(given.settings.version);
            }
            let takes_rows = self.is_sent_to(&given.settings.link_id());
            let limits = local_session::session_limits(&own).into();
            let has_neighbours = self.bridges.len() > 1;
            BridgeSettings { limits, takes_rows, has_neighbours, ..given.settings.clone() }
        };
        let bridges: Vec<_> = self.bridges.iter().map(bridge).collect();
        settings.broker.event_options.bridge_path = bridges.iter().any(|own| own.detects_loops);
        settings.add_links(bridges);
    }

    fn check_bridges(&self, wrongs: &mut Vec<OptionError>) {
        let most = broker::limits::CLIENT_GROUPS_MAX.saturating_sub(self.groups.len());
        if let Some(beyond) = self.bridges.get(most) {
            let why = format!("with {} groups there is room for {most} bridges", self.groups.len());
            wrongs.push(OptionError { origin: beyond.origin.clone(), why });
        }
        for given in &self.bridges {
            let (own, rules) = (&given.settings, &given.settings.rules);
            let has_some = !rules.outward.is_empty() || !rules.inward.is_empty();
            if !has_some && !self.is_sent_to(&own.link_id()) {
                let name = &own.name;
                let why = format!(
                    "a bridge needs a rule: [[bridge.out]], [[bridge.in]], or a [[rule]] with \
                     send.to = [\"bridge/{name}\"]"
                );
                wrongs.push(OptionError { origin: given.origin.clone(), why });
            }
        }
    }
}

fn write_page(page: &mut String) {
    page.push_str(PAGE_HEAD);
    ROWS.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str(&own_limits(OptionScope::Link));
    page.push_str("\n### Rules\n\nOptions of `[[bridge.out]]` and `[[bridge.in]]`.\n");
    RULE_ROWS.iter().for_each(|row| page.push_str(&own_row(row)));
}

const PAGE_HEAD: &str = "
## Bridges

Every `[[bridge]]` of the file connects the broker to another one. Its rules say what goes out and
what comes in:

```toml
[[bridge]]
name = \"cloud\"
servers = [\"tls://broker.example:8883\", \"tls://backup.example:8883\"]
user_name = \"gateway-7\"
password = \"...\"
queue.bytes_max = \"1GiB\"
queue.messages_max = 1000000

[[bridge.out]]
filter = \"sensors/#\"
topic = \"sites/7/${topic}\"

[[bridge.in]]
filter = \"sites/7/commands/+\"
topic = \"commands/${1}\"
```

What goes out waits in a session of this broker, under its `queue` options and as durable as any
other session, while the other broker is away or slow. The other broker keeps what comes in while we
are. QoS 1 and 2 hold from end to end: neither broker hears that a message arrived before the other
one has it. SIGHUP applies what has changed: other bridges do not notice, and one whose options
changed connects anew, with its queue. `$SYS/broker/bridge/` tells how each is, see reference.md.
";
