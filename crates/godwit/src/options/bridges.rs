//! The tables `[[bridge]]` of a file, with `[[bridge.out]]` and `[[bridge.in]]`.

use super::file::OptionFileReader;
use super::links::{LinkOptions, LinkTables, check_name};
use super::{OptionError, OptionPlan, override_settings};
use crate::options::settings::ProgramSettings;
use config::row::OptionScope;
use connectors::bridge::relay::BridgeRules;
use connectors::bridge::settings::{
    BridgeRuleSettings, BridgeSettings, ROWS, RULE_ROWS, inflight_max,
};
use connectors::local_session;
use connectors::option_rows::check_retry;
use toml::de::DeTable;

pub(crate) type BridgeOptions = LinkOptions<BridgeSettings>;

const TABLES: LinkTables<BridgeSettings> =
    LinkTables { rows: ROWS, scope: Some(OptionScope::Link) };

impl OptionFileReader<'_> {
    pub(super) fn read_bridge(&mut self, at: usize, table: &DeTable<'_>) {
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
        let has_tls = own.servers.iter().any(|url| ["tls", "wss", "quic"].contains(&&*url.scheme));
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
        own.tls.check(has_tls, "servers of tls, wss and quic: none is").err()
    }
}

impl OptionPlan {
    /// Returns every `[[bridge]]` with session limits: `limits` over the options for all.
    pub(super) fn bridge_settings(&self, settings: &ProgramSettings) -> Vec<BridgeSettings> {
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
        self.bridges.iter().map(bridge).collect()
    }

    /// Whether the bridges of two plans differ, so that a reload must replace all.
    pub(super) fn bridges_differ(&self, next: &OptionPlan) -> bool {
        let own =
            |plan: &OptionPlan| plan.bridges.iter().map(LinkOptions::values).collect::<Vec<_>>();
        own(self) != own(next)
    }

    pub(super) fn check_bridges(&self, wrongs: &mut Vec<OptionError>) {
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
