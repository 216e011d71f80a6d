//! `[[bridge]]` in a file, with `[[bridge.out]]` and `[[bridge.in]]` below it.

use super::file::Reader;
use super::links::{LinkGiven, Tables, name_misfit};
use super::{Plan, Wrong, overruled};
use crate::links::bridge::pipe::Rules;
use crate::links::bridge::settings::{BridgeSettings, ROWS, RULE_ROWS, RuleSettings, inflight_max};
use crate::links::near;
use crate::links::rows::{LIMIT_KEYS, check_retry};
use crate::options::settings::Settings;
use toml::de::DeTable;

pub(crate) type BridgeGiven = LinkGiven<BridgeSettings>;

const TABLES: Tables<BridgeSettings> = (ROWS, LIMIT_KEYS);

impl Reader<'_> {
    pub(super) fn bridge(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkGiven::new(self.origin(at), ROWS);
        let (mut outward, mut inward) = (Vec::new(), Vec::new());
        for (name, value) in table {
            let begin = name.span().start;
            match &**name.get_ref() {
                "out" => self.link_rules("bridge.out", RULE_ROWS, begin, value, &mut outward),
                "in" => self.link_rules("bridge.in", RULE_ROWS, begin, value, &mut inward),
                key => self.link_option(&mut own, TABLES, key, begin, value),
            }
        }
        let rules = |all: Vec<(usize, RuleSettings)>, reader: &mut Self| {
            let name = own.settings.name.clone();
            let made = all.into_iter().map(|(at, rule)| (at, rule.rule(&name)));
            made.filter_map(|(at, rule)| rule.map_err(|why| reader.wrong(at, why)).ok()).collect()
        };
        let rules = Rules { outward: rules(outward, self), inward: rules(inward, self) };
        own.settings.rules = rules.into();
        if let Some(why) = self.misfit(&own.settings) {
            return self.wrong(at, why);
        }
        self.plan.bridges.push(own);
    }

    /// What no row can see alone.
    fn misfit(&self, own: &BridgeSettings) -> Option<String> {
        let has_tls = own.servers.iter().any(|url| ["tls", "wss", "quic"].contains(&&*url.scheme));
        let others = self.plan.bridges.iter().map(|other| &*other.settings.name);
        if let Some(why) = name_misfit("bridge", &own.name, others) {
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

impl Plan {
    /// Every bridge with the limits of its session.
    pub(super) fn bridges(&self, settings: &Settings) -> Vec<BridgeSettings> {
        let bridge = |given: &BridgeGiven| {
            let mut own = overruled(settings, &given.limits).broker;
            if !given.limits.contains_key("session.inflight_max") {
                own.inflight_max = inflight_max(given.settings.version);
            }
            let takes_rows = self.is_sent_to(&given.settings.link_id());
            let limits = near::limits(&own).into();
            let has_neighbours = self.bridges.len() > 1;
            BridgeSettings { limits, takes_rows, has_neighbours, ..given.settings.clone() }
        };
        self.bridges.iter().map(bridge).collect()
    }

    /// What differs between the bridges of two plans makes them change.
    pub(super) fn bridges_differ(&self, next: &Plan) -> bool {
        let own = |plan: &Plan| plan.bridges.iter().map(LinkGiven::values).collect::<Vec<_>>();
        own(self) != own(next)
    }

    pub(super) fn check_bridges(&self, wrongs: &mut Vec<Wrong>) {
        let most = broker::limits::CLASSES_MAX.saturating_sub(self.groups.len());
        if let Some(beyond) = self.bridges.get(most) {
            let why = format!("with {} groups there is room for {most} bridges", self.groups.len());
            wrongs.push(Wrong { origin: beyond.origin.clone(), why });
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
                wrongs.push(Wrong { origin: given.origin.clone(), why });
            }
        }
    }
}
