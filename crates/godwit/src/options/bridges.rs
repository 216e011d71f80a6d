//! `[[bridge]]` in a file, with `[[bridge.out]]` and `[[bridge.in]]` below it.

use super::file::Reader;
use super::table::Row;
use super::value::Misfit;
use super::{Given, Origin, Plan, Wrong, nearest, overruled};
use crate::links::bridge::pipe::Rules;
use crate::links::bridge::settings::{
    BridgeSettings, LIMIT_KEYS, ROWS, RULE_ROWS, RuleSettings, defaults, find,
};
use crate::links::near;
use crate::options::settings::Settings;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A `[[bridge]]` as it stands in the file.
#[derive(Clone, Debug)]
pub(crate) struct BridgeGiven {
    pub(crate) origin: Origin,
    /// Without its limits.
    settings: BridgeSettings,
    limits: BTreeMap<&'static str, Given>,
}

impl Reader<'_> {
    pub(super) fn bridges(&mut self, at: usize, value: &Spanned<DeValue<'_>>) {
        let DeValue::Array(all) = value.get_ref() else {
            return self.wrong(at, "a bridge stands under [[bridge]]".to_string());
        };
        for one in all.iter() {
            match one.get_ref() {
                DeValue::Table(table) => self.bridge(one.span().start, table),
                _ => self.wrong(one.span().start, "use [[bridge]] and name = ...".to_string()),
            }
        }
    }

    fn bridge(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = BridgeGiven {
            origin: self.origin(at),
            settings: defaults(ROWS),
            limits: BTreeMap::new(),
        };
        let (mut outward, mut inward) = (Vec::new(), Vec::new());
        for (name, value) in table {
            match (&**name.get_ref(), value.get_ref()) {
                ("out", _) => self.rules(name.span().start, value, &mut outward),
                ("in", _) => self.rules(name.span().start, value, &mut inward),
                (key, _) if find(ROWS, key).is_some() => {
                    self.own_row(&mut own.settings, ROWS, key, name.span().start, value);
                }
                (section, DeValue::Table(options)) => {
                    for (name, value) in options {
                        let key = format!("{section}.{}", name.get_ref());
                        self.bridge_option(&mut own, &key, name.span().start, value);
                    }
                }
                (key, _) => self.bridge_option(&mut own, key, name.span().start, value),
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

    fn rules(
        &mut self,
        at: usize,
        value: &Spanned<DeValue<'_>>,
        rules: &mut Vec<(usize, RuleSettings)>,
    ) {
        let DeValue::Array(all) = value.get_ref() else {
            let why = "a rule stands under [[bridge.out]] or [[bridge.in]]";
            return self.wrong(at, why.to_string());
        };
        for one in all.iter() {
            let at = one.span().start;
            let DeValue::Table(table) = one.get_ref() else {
                self.wrong(at, "use [[bridge.out]] and filter = ...".to_string());
                continue;
            };
            let mut rule: RuleSettings = defaults(RULE_ROWS);
            for (name, value) in table {
                self.own_row(&mut rule, RULE_ROWS, name.get_ref(), name.span().start, value);
            }
            rules.push((at, rule));
        }
    }

    fn bridge_option(
        &mut self,
        own: &mut BridgeGiven,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        match LIMIT_KEYS.contains(&key) {
            true => self.own_option(&mut own.limits, key, at, value),
            false => self.own_row(&mut own.settings, ROWS, key, at, value),
        }
    }

    /// Sets what a row of another table than that of all options says.
    fn own_row<S>(
        &mut self,
        settings: &mut S,
        rows: &'static [Row<S>],
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        let Some(row) = find(rows, key) else {
            let names = rows.iter().map(|row| row.key).chain(LIMIT_KEYS.iter().copied());
            let why = match nearest::nearest(key, names.clone()) {
                Some(meant) => format!("{key} is no option of it, did you mean {meant}?"),
                None => {
                    let names: Vec<&str> = rows.iter().map(|row| row.key).collect();
                    format!("{key} is no option of it, it has {}", names.join(", "))
                }
            };
            return self.wrong(at, why);
        };
        match row.kind.read_toml(value) {
            Ok(value) => (row.set)(settings, &value),
            Err(Misfit { at, why }) => self.wrong(at, format!("{key}: {why}")),
        }
    }

    /// What no row can see alone.
    fn misfit(&self, own: &BridgeSettings) -> Option<String> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = &*own.name;
        let is_taken = self.plan.bridges.iter().any(|other| other.settings.name == own.name);
        let has_tls = own.servers.iter().any(|url| ["tls", "wss", "quic"].contains(&&*url.scheme));
        let tls = &own.tls;
        let (certificate, key) = (&tls.certificate, &tls.key);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(legal) || is_taken {
            return Some(format!(
                "a bridge needs a name of its own, of at most {NAME_BYTES_MAX} letters, digits, \
                 \"-\", \"_\" and \".\""
            ));
        }
        if own.servers.is_empty() {
            return Some("a bridge needs servers = [\"tls://HOST:8883\"]".to_string());
        }
        if own.rules.outward.is_empty() && own.rules.inward.is_empty() {
            return Some("a bridge needs a rule: [[bridge.out]] or [[bridge.in]]".to_string());
        }
        if let Some(rule) = own.rules.outward.iter().find(|rule| rule.map.is_shared()) {
            return Some(format!(
                "{} goes out, and a shared filter is for what comes in: use the filter in it",
                rule.map
            ));
        }
        if u64::from(own.retry_min_ms) > u64::from(own.retry_max_s) * 1000 {
            return Some("retry_min_ms is more than retry_max_s".to_string());
        }
        if !own.version.is_v5() && own.user_name.is_empty() && !own.password.0.is_empty() {
            return Some("3.1.1 has no password without a user_name".to_string());
        }
        if certificate.as_os_str().is_empty() != key.as_os_str().is_empty() {
            return Some("tls.certificate and tls.key go together".to_string());
        }
        let wants_tls = !tls.authorities.as_os_str().is_empty() || !key.as_os_str().is_empty();
        (wants_tls && !has_tls)
            .then(|| "tls options are for servers of tls, wss and quic: none is".to_string())
    }
}

const NAME_BYTES_MAX: usize = 64;

impl Plan {
    /// Every bridge with the limits of its session.
    pub(super) fn bridges(&self, settings: &Settings) -> Vec<BridgeSettings> {
        let bridge = |given: &BridgeGiven| {
            let own = overruled(settings, &given.limits).broker;
            BridgeSettings { limits: near::limits(&own).into(), ..given.settings.clone() }
        };
        self.bridges.iter().map(bridge).collect()
    }

    /// What differs between the bridges of two plans makes them change.
    pub(super) fn bridges_differ(&self, next: &Plan) -> bool {
        let values = |given: &BTreeMap<&'static str, Given>| -> Vec<_> {
            given.iter().map(|(key, given)| (*key, given.value.clone())).collect()
        };
        let own = |plan: &Plan| -> Vec<_> {
            plan.bridges.iter().map(|one| (one.settings.clone(), values(&one.limits))).collect()
        };
        own(self) != own(next)
    }

    pub(super) fn check_bridges(&self, wrongs: &mut Vec<Wrong>) {
        let most = broker::limits::CLASSES_MAX.saturating_sub(self.groups.len());
        if let Some(beyond) = self.bridges.get(most) {
            let why = format!("with {} groups there is room for {most} bridges", self.groups.len());
            wrongs.push(Wrong { origin: beyond.origin.clone(), why });
        }
    }
}
