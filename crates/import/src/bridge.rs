//! Connections of the original to other brokers, written as `[[bridge]]`.

use super::config_tree::{ConfigEntry, SourceLocation};
use super::draft::{ConfigDraft, DraftSetting, UnsupportedKey, build_setting, put_setting};
use super::row::{ImportValue, ValueReader};
use super::units;
use config::catalog::OptionCatalog;

pub(super) struct DraftBridge {
    pub(super) id: String,
    pub(super) place: SourceLocation,
    /// Name of the bridge in the written file.
    pub(super) name: String,
    /// Servers, with or without a scheme, each with the source of the entry.
    pub(super) servers: Vec<(String, String)>,
    pub(super) has_tls: bool,
    pub(super) is_off: bool,
    /// Server verification of the original without an equivalent here; `tls.ca` replaces it.
    pub(super) unproven: Option<String>,
    /// Why the bridge is not written: a requirement of the original that has no equivalent here.
    pub(super) refusal: Option<&'static str>,
    /// Whether the original clears the retain flag of outgoing messages.
    pub(super) clears_retain: bool,
    pub(super) settings: Vec<DraftSetting>,
    pub(super) outward: Vec<BridgeTopics>,
    pub(super) inward: Vec<BridgeTopics>,
}

/// Topics of a bridge in one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct BridgeTopics {
    /// Name that connects the entries of one bridge in the source.
    pub(super) id: String,
    pub(super) note: String,
    pub(super) filter: String,
    /// The topic on the other side; empty keeps the topic.
    pub(super) topic: String,
    pub(super) prefix: String,
    pub(super) suffix: String,
    pub(super) qos: Option<u8>,
    pub(super) clears_retain: bool,
}

impl BridgeTopics {
    /// Returns the topic on the other side as a template: the n-th wildcard there becomes `${n}`.
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

impl ConfigDraft {
    pub(super) fn bridge_of_entry(&mut self, entry: &ConfigEntry<'_>) -> &mut DraftBridge {
        self.bridge_by_id(entry.first_wildcard(), &entry.node.place)
    }

    pub(super) fn bridge_by_id(&mut self, id: &str, place: &SourceLocation) -> &mut DraftBridge {
        let at = self.bridges.iter().position(|bridge| bridge.id == id);
        let at = at.unwrap_or_else(|| {
            // mosquitto's identifiers start with a line number, since two bridges may have the same
            // name.
            let name = self.unique_bridge_name(id.rsplit('#').next().unwrap_or(id));
            self.bridges.push(DraftBridge {
                id: id.to_string(),
                place: place.clone(),
                name,
                servers: Vec::new(),
                has_tls: false,
                is_off: false,
                unproven: None,
                refusal: None,
                clears_retain: false,
                settings: Vec::new(),
                outward: Vec::new(),
                inward: Vec::new(),
            });
            self.bridges.len() - 1
        });
        &mut self.bridges[at]
    }

    /// Turns `id` into a valid bridge name that no other bridge has.
    fn unique_bridge_name(&self, id: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let mut name: String = id.chars().map(legal).take(48).collect();
        if name.is_empty() {
            name.push_str("bridge");
        }
        let taken = |name: &str| self.bridges.iter().any(|bridge| bridge.name == name);
        let numbered = (2..).map(|n| format!("{name}-{n}")).find(|name| !taken(name));
        if taken(&name) { numbered.unwrap_or(name) } else { name }
    }

    pub(super) fn set_bridge_option(
        &mut self,
        key: &'static str,
        by: ValueReader,
        entry: &ConfigEntry<'_>,
    ) -> Result<(), String> {
        let said = by(entry)?;
        self.push_bridge_option(key, said, entry);
        Ok(())
    }

    pub(super) fn push_bridge_option(
        &mut self,
        key: &'static str,
        said: ImportValue,
        entry: &ConfigEntry<'_>,
    ) {
        match bridge_setting(self.catalog, key, said, entry.note()) {
            Ok(setting) => put_setting(&mut self.bridge_of_entry(entry).settings, setting),
            Err(why) => self.report_unsupported(entry, why),
        }
    }

    pub(super) fn outbound_topics(&mut self, entry: &ConfigEntry<'_>) -> &mut BridgeTopics {
        topics_by_number(&mut self.bridge_of_entry(entry).outward, entry)
    }

    pub(super) fn inbound_topics(&mut self, entry: &ConfigEntry<'_>) -> &mut BridgeTopics {
        topics_by_number(&mut self.bridge_of_entry(entry).inward, entry)
    }
}

/// Returns the topics with the number in the entry's key, added if absent.
fn topics_by_number<'a>(
    all: &'a mut Vec<BridgeTopics>,
    entry: &ConfigEntry<'_>,
) -> &'a mut BridgeTopics {
    let id = entry.names.get(1).cloned().unwrap_or_default();
    let at = all.iter().position(|one| one.id == id).unwrap_or_else(|| {
        all.push(BridgeTopics { id, note: entry.note(), ..BridgeTopics::default() });
        all.len() - 1
    });
    &mut all[at]
}

fn bridge_setting(
    catalog: &OptionCatalog,
    key: &'static str,
    said: ImportValue,
    note: String,
) -> Result<DraftSetting, String> {
    let option = catalog.find_bridge_option(key);
    let option = option.ok_or_else(|| format!("this build of godwit has no {key} of a bridge"))?;
    build_setting(key, option.kind, said, note)
}

pub(super) fn read_server(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let (text, note) = (entry.text()?.to_string(), entry.note());
    // `HOST:PORT` without a scheme is enough for the other projects.
    draft
        .bridge_of_entry(entry)
        .servers
        .extend(text.split_whitespace().map(|one| (one.into(), note.clone())));
    Ok(())
}

pub(super) fn read_enabled(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_off = !units::is_true(entry.text()?)?;
    draft.bridge_of_entry(entry).is_off |= is_off;
    Ok(())
}

pub(super) fn read_tls(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let has_tls = units::is_true(entry.text()?)?;
    draft.bridge_of_entry(entry).has_tls |= has_tls;
    Ok(())
}

pub(super) fn read_clean_start(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    if units::is_true(entry.text()?)? {
        draft.push_bridge_option("session_expiry_s", ImportValue::Text("0".into()), entry);
    }
    Ok(())
}

/// Reads the bound of every bridge's queue into `bridge_queue`; the bridges are known only at the
/// end.
pub(super) fn read_queue_limit(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    match units::read_count(entry)? {
        ImportValue::Text(number) if number == "0" => {
            draft.report_unsupported(
                entry,
                "what goes out waits in any case; queue.* of each bridge bounds it",
            );
        }
        said => draft.bridge_queue = Some((said, entry.note())),
    }
    Ok(())
}

pub(super) fn read_queue_limits(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    if !units::is_true(entry.text()?)? {
        draft.off.push("bridge.sqlite");
    }
    Ok(())
}

/// Reads a version of MQTT: 3, 4, 5, v4, mqttv311 and similar.
pub(super) fn read_version(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    match entry.text()? {
        "5" | "v5" | "mqttv50" | "mqttv5" => Ok(ImportValue::Text("5.0".into())),
        "3" | "4" | "v3" | "v4" | "mqttv3" | "mqttv31" | "mqttv311" | "mqttv4" => {
            Ok(ImportValue::Text("3.1.1".into()))
        }
        _ => Err("no version of MQTT, use 4 for 3.1.1 or 5".to_string()),
    }
}

pub(super) fn read_qos(entry: &ConfigEntry<'_>) -> Result<u8, String> {
    match entry.text()? {
        "0" => Ok(0),
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err("a QoS is 0, 1 or 2".to_string()),
    }
}

/// Converts NanoMQ's and mosquitto's forms of a server: `mqtt-tcp://h:p`, `tls+mqtt-tcp://h:p`,
/// `mqtt-quic://h:p` or `h:p`.
fn server_url(server: &str, has_tls: bool) -> String {
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

/// Completes the bridges after all entries are known.
pub(super) fn finish_bridges(draft: &mut ConfigDraft) {
    let mut bridges = std::mem::take(&mut draft.bridges);
    let queue = draft.bridge_queue.take().filter(|_| !draft.off.contains(&"bridge.sqlite"));
    for bridge in &mut bridges {
        if let Some((said, note)) = &queue {
            match bridge_setting(draft.catalog, "queue.messages_max", said.clone(), note.clone()) {
                Ok(setting) => put_setting(&mut bridge.settings, setting),
                Err(why) => draft.missing.push(super::unsupported_of_note(note, &why)),
            }
        }
        let version = "version";
        if !bridge.settings.iter().any(|setting| setting.key == version) {
            let note = format!("{} (what it is there without a word)", bridge.place);
            let said = ImportValue::Text("3.1.1".into());
            bridge.settings.extend(bridge_setting(draft.catalog, version, said, note).ok());
        }
        let is_tls = |(server, _): &(String, String)| {
            let url = server_url(server, bridge.has_tls);
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
            draft.missing.push(super::unsupported_of_note(&setting.note, why));
            false
        });
        if bridge.clears_retain {
            bridge.outward.iter_mut().for_each(|one| one.clears_retain = true);
        }
        for topics in [&mut bridge.outward, &mut bridge.inward] {
            topics.retain(|one| check_topics(one, &bridge.name, draft));
        }
        let servers: Vec<String> =
            bridge.servers.iter().map(|(server, _)| server_url(server, bridge.has_tls)).collect();
        let note = bridge.servers.first().map(|(_, note)| note.clone()).unwrap_or_default();
        match bridge_setting(draft.catalog, "servers", ImportValue::List(servers), note) {
            Ok(setting) => bridge.settings.insert(0, setting),
            Err(why) => bridge.servers = vec![(why, String::new())],
        }
    }
    bridges.retain(|bridge| is_writable(bridge, draft));
    draft.bridges = bridges;
}

fn is_v5(bridge: &DraftBridge) -> bool {
    let is = |setting: &DraftSetting| setting.key == "version" && setting.value.text() == "5.0";
    bridge.settings.iter().any(is)
}

fn check_topics(topics: &BridgeTopics, bridge: &str, draft: &mut ConfigDraft) -> bool {
    let checked = (draft.catalog.check_bridge_topic)(&topics.filter, &topics.template(), bridge);
    let Err(why) = checked else { return true };
    draft.missing.push(super::unsupported_of_note(&topics.note, &why));
    false
}

/// Whether a bridge can be written; otherwise the reason is reported.
fn is_writable(bridge: &DraftBridge, draft: &mut ConfigDraft) -> bool {
    let has_servers = bridge.settings.iter().any(|setting| setting.key == "servers");
    let has_ca = bridge.settings.iter().any(|setting| setting.key == "tls.ca");
    let why = if bridge.is_off {
        "it is switched off there".to_string()
    } else if let Some(why) = bridge.refusal {
        format!("the bridge is not written: {why}")
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
    draft.missing.push(UnsupportedKey { place, key, why });
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
            BridgeTopics { filter, topic, prefix, suffix, ..BridgeTopics::default() }.template()
        };
        assert_eq!(template("a/#", "", "", ""), "");
        assert_eq!(template("a/#", "", "up/", ""), "up/${topic}");
        assert_eq!(template("a/+/b/#", "x/+/y/#", "", ""), "x/${1}/y/${2}");
        assert_eq!(template("a", "b", "p/", "/s"), "p/b/s");
        assert_eq!(server_url("h:1", true), "tls://h:1");
        assert_eq!(server_url("mqtt-quic://h:1", false), "quic://h:1");
    }
}
