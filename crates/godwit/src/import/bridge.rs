//! Connections to other brokers there, as a `[[bridge]]` of ours.

use super::draft::{Draft, Missing, Setting, put, setting};
use super::row::{As, Said};
use super::tree::{Entry, Place};
use super::units;

pub(super) struct Bridge {
    pub(super) id: String,
    pub(super) place: Place,
    /// Its name here.
    pub(super) name: String,
    /// With or without a scheme, and what says so.
    pub(super) servers: Vec<(String, String)>,
    pub(super) has_tls: bool,
    pub(super) is_off: bool,
    /// How it knows its servers there, where that has no equal here; a file of CAs will do.
    pub(super) unproven: Option<String>,
    /// Both sides have one key there, which a bridge cannot have here.
    pub(super) lacks_key: bool,
    /// Nothing that goes out is retained there.
    pub(super) clears_retain: bool,
    pub(super) settings: Vec<Setting>,
    pub(super) outward: Vec<Topics>,
    pub(super) inward: Vec<Topics>,
}

/// Topics that go one way.
#[derive(Clone, Debug, Default)]
pub(super) struct Topics {
    /// What belongs together in the source.
    pub(super) id: String,
    pub(super) note: String,
    pub(super) filter: String,
    /// The name on the other side; empty leaves it.
    pub(super) topic: String,
    pub(super) prefix: String,
    pub(super) suffix: String,
    pub(super) qos: Option<u8>,
    pub(super) clears_retain: bool,
}

impl Topics {
    /// The name on the other side, in our words: a wildcard there stands for the wildcard here.
    pub(super) fn template(&self) -> String {
        if self.topic.is_empty() && self.prefix.is_empty() && self.suffix.is_empty() {
            return String::new();
        }
        let mut wildcards = 0;
        let levels = self.topic.split('/').map(|level| match level {
            "+" | "#" => {
                wildcards += 1;
                format!("${{{wildcards}}}")
            }
            level => level.replace("${", "$ {").replace("$ {topic}", "${topic}"),
        });
        let middle = match self.topic.as_str() {
            "" => "${topic}".to_string(),
            _ => levels.collect::<Vec<_>>().join("/"),
        };
        format!("{}{middle}{}", self.prefix, self.suffix)
    }
}

impl Draft {
    pub(super) fn bridge(&mut self, entry: &Entry<'_>) -> &mut Bridge {
        self.bridge_called(entry.name(), &entry.node.place)
    }

    pub(super) fn bridge_called(&mut self, id: &str, place: &Place) -> &mut Bridge {
        let at = self.bridges.iter().position(|bridge| bridge.id == id);
        let at = at.unwrap_or_else(|| {
            // mosquitto's have their line's number in front: two may have one name.
            let name = self.name_of_its_own(id.rsplit('#').next().unwrap_or(id));
            self.bridges.push(Bridge {
                id: id.to_string(),
                place: place.clone(),
                name,
                servers: Vec::new(),
                has_tls: false,
                is_off: false,
                unproven: None,
                lacks_key: false,
                clears_retain: false,
                settings: Vec::new(),
                outward: Vec::new(),
                inward: Vec::new(),
            });
            self.bridges.len() - 1
        });
        &mut self.bridges[at]
    }

    /// As a bridge's name has to be here.
    fn name_of_its_own(&self, id: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let mut name: String = id.chars().map(legal).take(48).collect();
        if name.is_empty() {
            name.push_str("bridge");
        }
        let taken = |name: &str| self.bridges.iter().any(|bridge| bridge.name == name);
        let numbered = (2..).map(|n| format!("{name}-{n}")).find(|name| !taken(name));
        if taken(&name) { numbered.unwrap_or(name) } else { name }
    }

    pub(super) fn of_bridge(
        &mut self,
        key: &'static str,
        by: As,
        entry: &Entry<'_>,
    ) -> Result<(), String> {
        let said = by(entry)?;
        self.bridge_option(key, said, entry);
        Ok(())
    }

    pub(super) fn bridge_option(&mut self, key: &'static str, said: Said, entry: &Entry<'_>) {
        match option(key, said, entry.note()) {
            Ok(setting) => put(&mut self.bridge(entry).settings, setting),
            Err(why) => self.miss(entry, why),
        }
    }

    pub(super) fn outward(&mut self, entry: &Entry<'_>) -> &mut Topics {
        topics(&mut self.bridge(entry).outward, entry)
    }

    pub(super) fn inward(&mut self, entry: &Entry<'_>) -> &mut Topics {
        topics(&mut self.bridge(entry).inward, entry)
    }
}

/// Those with the number that the entry has in its place.
fn topics<'a>(all: &'a mut Vec<Topics>, entry: &Entry<'_>) -> &'a mut Topics {
    let id = entry.names.get(1).cloned().unwrap_or_default();
    let at = all.iter().position(|one| one.id == id).unwrap_or_else(|| {
        all.push(Topics { id, note: entry.note(), ..Topics::default() });
        all.len() - 1
    });
    &mut all[at]
}

#[cfg(feature = "bridge")]
fn option(key: &'static str, said: Said, note: String) -> Result<Setting, String> {
    use crate::links::bridge::settings::ROWS;
    use crate::links::rows::LIMIT_KEYS;
    use crate::options::links::find;
    match find(ROWS, key) {
        Some(row) => setting(key, row.kind, said, note),
        None if LIMIT_KEYS.contains(&key) => super::draft::option(key, said, note),
        None => Err(format!("this build of godwit has no {key} of a bridge")),
    }
}

#[cfg(not(feature = "bridge"))]
fn option(key: &'static str, _: Said, _: String) -> Result<Setting, String> {
    Err(format!("{key} needs a build with the feature bridge"))
}

pub(super) fn server(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let (text, note) = (entry.text()?.to_string(), entry.note());
    // A host's port is enough of a URL for others.
    draft
        .bridge(entry)
        .servers
        .extend(text.split_whitespace().map(|one| (one.into(), note.clone())));
    Ok(())
}

pub(super) fn enabled(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let is_off = !units::is_true(entry.text()?)?;
    draft.bridge(entry).is_off |= is_off;
    Ok(())
}

pub(super) fn tls(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let has_tls = units::is_true(entry.text()?)?;
    draft.bridge(entry).has_tls |= has_tls;
    Ok(())
}

pub(super) fn clean(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if units::is_true(entry.text()?)? {
        draft.bridge_option("session_expiry_s", Said::Text("0".into()), entry);
    }
    Ok(())
}

/// What waits for any bridge; which there are shows only at the end.
pub(super) fn cache(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    match units::count(entry)? {
        Said::Text(number) if number == "0" => {
            draft.miss(entry, "what goes out waits in any case; queue.* of each bridge bounds it");
        }
        said => draft.bridge_queue = Some((said, entry.note())),
    }
    Ok(())
}

pub(super) fn caches(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if !units::is_true(entry.text()?)? {
        draft.off.push("bridge.sqlite");
    }
    Ok(())
}

/// 3, 4, 5, v4, mqttv311 and the like.
pub(super) fn version(entry: &Entry<'_>) -> Result<Said, String> {
    match entry.text()? {
        "5" | "v5" | "mqttv50" | "mqttv5" => Ok(Said::Text("5.0".into())),
        "3" | "4" | "v3" | "v4" | "mqttv31" | "mqttv311" => Ok(Said::Text("3.1.1".into())),
        _ => Err("no version of MQTT, use 4 for 3.1.1 or 5".to_string()),
    }
}

pub(super) fn qos(entry: &Entry<'_>) -> Result<u8, String> {
    match entry.text()? {
        "0" => Ok(0),
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err("a QoS is 0, 1 or 2".to_string()),
    }
}

/// Theirs `mqtt-tcp://h:p`, `tls+mqtt-tcp://h:p`, `mqtt-quic://h:p` or `h:p`.
fn url(server: &str, has_tls: bool) -> String {
    let (scheme, rest) = server.split_once("://").unwrap_or(("", server));
    let scheme = match scheme {
        "tls+mqtt-tcp" | "mqtts" | "ssl" | "tls" => "tls",
        "mqtt-quic" | "quic" => "quic",
        "ws" | "wss" => scheme,
        _ if has_tls => "tls",
        _ => "tcp",
    };
    format!("{scheme}://{rest}")
}

/// What fits together only once all is known.
pub(super) fn finish(draft: &mut Draft) {
    let mut bridges = std::mem::take(&mut draft.bridges);
    let queue = draft.bridge_queue.take().filter(|_| !draft.off.contains(&"bridge.sqlite"));
    for bridge in &mut bridges {
        if let Some((said, note)) = &queue {
            match option("queue.messages_max", said.clone(), note.clone()) {
                Ok(setting) => put(&mut bridge.settings, setting),
                Err(why) => draft.missing.push(super::left_out(note, &why)),
            }
        }
        let version = "version";
        if !bridge.settings.iter().any(|setting| setting.key == version) {
            let note = format!("{} (what it is there without a word)", bridge.place);
            let said = Said::Text("3.1.1".into());
            bridge.settings.extend(option(version, said, note).ok());
        }
        let is_tls = |(server, _): &(String, String)| {
            let url = url(server, bridge.has_tls);
            ["tls:", "wss:", "quic:"].iter().any(|scheme| url.starts_with(scheme))
        };
        let any_tls = bridge.servers.iter().any(is_tls);
        let has = |key: &str| bridge.settings.iter().any(|setting| setting.key == key);
        let pair = has("tls.certificate") == has("tls.key");
        let (user, v5) = (has("user_name"), is_v5(bridge));
        bridge.settings.retain(|setting| {
            let why = match setting.key {
                key if key.starts_with("tls.") && !any_tls => "no server of it is spoken to by TLS",
                "tls.certificate" | "tls.key" if !pair => "certificate and key go together here",
                "password" if !v5 && !user => "3.1.1 has no password without a user name",
                "session_expiry_s" if !v5 => "3.1.1 has no expiry of sessions",
                _ => return true,
            };
            draft.missing.push(super::left_out(&setting.note, why));
            false
        });
        if bridge.clears_retain {
            bridge.outward.iter_mut().for_each(|one| one.clears_retain = true);
        }
        for topics in [&mut bridge.outward, &mut bridge.inward] {
            topics.retain(|one| fits(one, &bridge.name, draft));
        }
        let servers: Vec<String> =
            bridge.servers.iter().map(|(server, _)| url(server, bridge.has_tls)).collect();
        let note = bridge.servers.first().map(|(_, note)| note.clone()).unwrap_or_default();
        match option("servers", Said::List(servers), note) {
            Ok(setting) => bridge.settings.insert(0, setting),
            Err(why) => bridge.servers = vec![(why, String::new())],
        }
    }
    bridges.retain(|bridge| keep(bridge, draft));
    draft.bridges = bridges;
}

fn is_v5(bridge: &Bridge) -> bool {
    let is = |setting: &Setting| setting.key == "version" && setting.value.text() == "5.0";
    bridge.settings.iter().any(is)
}

#[cfg(feature = "bridge")]
fn fits(topics: &Topics, bridge: &str, draft: &mut Draft) -> bool {
    use crate::links::map::Map;
    let why = match Map::parse(&topics.filter, &topics.template(), ("bridge", bridge)) {
        Ok(_) => return true,
        Err(why) => why,
    };
    draft.missing.push(super::left_out(&topics.note, &why));
    false
}

#[cfg(not(feature = "bridge"))]
fn fits(_: &Topics, _: &str, _: &mut Draft) -> bool {
    true
}

/// Whether it can be written at all.
fn keep(bridge: &Bridge, draft: &mut Draft) -> bool {
    let has_servers = bridge.settings.iter().any(|setting| setting.key == "servers");
    let has_ca = bridge.settings.iter().any(|setting| setting.key == "tls.ca");
    let why = if bridge.is_off {
        "it is switched off there".to_string()
    } else if bridge.lacks_key {
        "the bridge is not written: both sides know each other by a key there (TLS-PSK), and here \
         it would connect without one: use certificates, tls.*"
            .to_string()
    } else if let Some(why) = bridge.unproven.as_ref().filter(|_| !has_ca) {
        why.clone()
    } else if bridge.servers.is_empty() {
        "it names no server".to_string()
    } else if !has_servers {
        bridge.servers.iter().map(|(why, _)| why.as_str()).collect()
    } else if bridge.outward.is_empty() && bridge.inward.is_empty() {
        "no topics that can be told here go over it: a bridge of ours has [[bridge.out]] or \
         [[bridge.in]]"
            .to_string()
    } else {
        return true;
    };
    let (place, key) = (bridge.place.clone(), format!("the connection {}", bridge.id));
    draft.missing.push(Missing { place, key, why });
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_other_side_are_templates() {
        let template = |filter: &str, topic: &str, prefix: &str, suffix: &str| {
            let (filter, topic) = (filter.to_string(), topic.to_string());
            let (prefix, suffix) = (prefix.to_string(), suffix.to_string());
            Topics { filter, topic, prefix, suffix, ..Topics::default() }.template()
        };
        assert_eq!(template("a/#", "", "", ""), "");
        assert_eq!(template("a/#", "", "up/", ""), "up/${topic}");
        assert_eq!(template("a/+/b/#", "x/+/y/#", "", ""), "x/${1}/y/${2}");
        assert_eq!(template("a", "b", "p/", "/s"), "p/b/s");
        assert_eq!(url("h:1", true), "tls://h:1");
        assert_eq!(url("mqtt-quic://h:1", false), "quic://h:1");
    }
}
