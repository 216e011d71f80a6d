//! Parts of EMQX's configuration that span several places: chains of authentication, actions and
//! the rules that name them.

use super::bridge::BridgeTopics;
use super::chain;
use super::config_tree::{ConfigEntry, ConfigNode, ConfigTree, SourceLocation};
use super::draft::{ConfigDraft, build_option, put_setting};
use super::emqx_access;
use super::emqx_listeners;
use super::listener::DraftListener;
use super::row::ImportValue;
use super::rules;
use super::shipped;
use super::table::emqx::certificate;
use super::table::mount_point;
use super::units;
use base64ct::{Base64, Base64Unpadded, Encoding as _};

/// Rules, actions and sources read so far, joined when all are known.
#[derive(Default)]
pub(super) struct EmqxDataFlows {
    actions: Vec<EmqxMqttAction>,
    sources: Vec<EmqxMqttAction>,
    rules: Vec<EmqxEngineRule>,
}

/// An action or a source of type mqtt.
struct EmqxMqttAction {
    place: SourceLocation,
    key: String,
    name: String,
    connector: String,
    topic: String,
    qos: Option<u8>,
    clears_retain: bool,
}

/// A rule of EMQX's rule engine.
struct EmqxEngineRule {
    place: SourceLocation,
    key: String,
    sql: String,
    /// Names of actions of type mqtt.
    actions: Vec<String>,
    /// The topic of a local republish action.
    republish: Option<String>,
    is_simple: bool,
}

/// Prepares the tree: chains become objects with the kinds of links as keys, and deleted listeners
/// and unusable bridge parts are left out.
pub(super) fn arrange_tree(mut root: ConfigNode, draft: &mut ConfigDraft) -> ConfigNode {
    emqx_access::arrange_source_servers(&mut root);
    chain::arrange_chains(&mut root, draft);
    emqx_listeners::arrange_listeners(&mut root, draft);
    emqx_access::arrange_ingress(&mut root, draft);
    root
}

fn node_entry(node: &ConfigNode, key: String) -> ConfigEntry<'_> {
    ConfigEntry { key, names: Vec::new(), node }
}

pub(super) fn read_claims(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    // Pairs as an object, or as a list of objects with `name` and `value`.
    let pairs: Vec<(String, ConfigNode)> = match &entry.node.tree {
        ConfigTree::Object(fields) => fields.clone(),
        ConfigTree::List(nodes) => {
            let pair = |node: &ConfigNode| {
                let name = node.field_text("name").or(node.field_text("claim"))?;
                Some((name.to_string(), node.field("value")?.clone()))
            };
            nodes.iter().filter_map(pair).collect()
        }
        _ => return Err("use { CLAIM = VALUE }".to_string()),
    };
    let mut keys = Vec::new();
    for (claim, value) in pairs {
        let text = value.text().unwrap_or_default().to_string();
        let key = match claim.as_str() {
            _ if text == "${username}" => "auth.jwt_user_claim",
            _ if text == "${clientid}" => "auth.jwt_client_id_claim",
            "iss" if !text.contains("${") => "auth.jwt_issuer",
            "aud" if !text.contains("${") => "auth.jwt_audience",
            _ => {
                draft.report_unsupported(
                    entry,
                    format!("of claims iss, aud, a name and an id count, not {claim}"),
                );
                continue;
            }
        };
        let is_name = key.ends_with("_claim");
        if keys.contains(&key) || text.is_empty() {
            let why = "every claim there has to be equal, and of several for one thing, or of an \
                       empty one, none or one alone is compared here";
            draft.leave_unresolved(entry, why);
        }
        keys.push(key);
        draft.push_option(key, ImportValue::Text(if is_name { claim } else { text }), entry);
    }
    let has = |key: &str| keys.contains(&key);
    let matched = match (has("auth.jwt_user_claim"), has("auth.jwt_client_id_claim")) {
        (true, true) => "both",
        (true, false) => "user_name",
        (false, true) => "client_id",
        (false, false) => return Ok(()),
    };
    draft.push_option("auth.jwt_match", ImportValue::Text(matched.into()), entry);
    Ok(())
}

/// Reads one of the two keys that decide whether messages are retained. The stricter of the two
/// counts.
pub(super) fn retain_right(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.push_strictest("retain.available", units::read_flag(entry)?, entry);
    Ok(())
}

pub(super) fn read_rules_file(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let (file, text) = draft.folder.read(entry.text()?)?;
    let (place, before) = (SourceLocation { file, line: 1 }, draft.rules.len());
    rules::read_terms(draft, &ConfigNode::text_at(&place, &text));
    chain::note_rules(draft, before);
    Ok(())
}

/// Reads the rules of an `acl.conf`.
pub(super) fn read_terms(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    rules::read_terms(draft, entry.node);
    Ok(())
}

/// Reads rules written in the configuration itself.
pub(super) fn read_rules_text(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let (text, before) = (entry.text()?.to_string(), draft.rules.len());
    rules::read_terms(draft, &ConfigNode::text_at(&entry.node.place, &text));
    chain::note_rules(draft, before);
    Ok(())
}

pub(super) fn log_console(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_file = draft.setting("log.target").is_some_and(|there| there.value.text() == "file");
    if units::is_true(entry.text()?)? && !is_file {
        draft.push_option("log.target", ImportValue::Text("stderr".into()), entry);
    }
    Ok(())
}

pub(super) fn log_file(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if units::is_true(entry.text()?)? {
        draft.push_option("log.target", ImportValue::Text("file".into()), entry);
    }
    Ok(())
}

pub(super) fn log_path(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    Ok(ImportValue::Text(entry.text()?.replace("${EMQX_LOG_DIR}", "/var/log/emqx")))
}

/// Reads the QoS of outgoing messages: the template `${qos}` or a number.
pub(super) fn out_qos(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()? {
        "${qos}" => {}
        _ => {
            let qos = super::bridge::read_qos(entry)?;
            draft.outbound_topics(entry).qos = Some(qos);
        }
    }
    Ok(())
}

fn read_mqtt_action(entry: &ConfigEntry<'_>) -> Result<Option<EmqxMqttAction>, String> {
    let node = entry.node;
    if node.field_text("enable") == Some("false") {
        return Ok(None);
    }
    let connector = node.field_text("connector").ok_or("it names no connector")?;
    let parameters = node.field("parameters").ok_or("it has no parameters")?;
    let qos = parameters.field_text("qos").and_then(|qos| qos.parse().ok());
    Ok(Some(EmqxMqttAction {
        place: node.place.clone(),
        key: entry.key.clone(),
        name: entry.first_wildcard().to_string(),
        connector: connector.to_string(),
        topic: parameters.field_text("topic").unwrap_or_default().to_string(),
        qos: qos.filter(|qos| *qos <= 2),
        clears_retain: parameters.field_text("retain") == Some("false"),
    }))
}

pub(super) fn read_action(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match read_mqtt_action(entry)? {
        Some(wire) => draft.wires.actions.push(wire),
        None => draft.report_unsupported(entry, "it is switched off there"),
    }
    Ok(())
}

pub(super) fn read_source(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match read_mqtt_action(entry)? {
        Some(wire) => draft.wires.sources.push(wire),
        None => draft.report_unsupported(entry, "it is switched off there"),
    }
    Ok(())
}

pub(super) fn read_rule(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let node = entry.node;
    if node.field_text("enable") == Some("false") {
        draft.report_unsupported(entry, "it is switched off there");
        return Ok(());
    }
    let sql = node.field_text("sql").ok_or("a rule has sql and actions")?.to_string();
    let mut carrying = EmqxEngineRule {
        place: node.place.clone(),
        key: entry.key.clone(),
        sql,
        actions: Vec::new(),
        republish: None,
        is_simple: true,
    };
    let all = match node.field("actions").map(|node| &node.tree) {
        Some(ConfigTree::List(all)) => all.as_slice(),
        _ => &[],
    };
    for one in all {
        let named = one.text().and_then(|text| text.strip_prefix("mqtt:"));
        let republishes = one.field_text("function") == Some("republish");
        let topic = one.field("args").and_then(|args| args.field_text("topic"));
        match (named, republishes.then_some(topic).flatten()) {
            (Some(name), _) => carrying.actions.push(name.to_string()),
            (None, Some(topic)) => carrying.republish = Some(topic.to_string()),
            _ => carrying.is_simple = false,
        }
    }
    draft.wires.rules.push(carrying);
    Ok(())
}

/// Joins rules with their actions and sources, and reports rules that are not bridges.
pub(super) fn finish_rules(draft: &mut ConfigDraft) {
    let wires = std::mem::take(&mut draft.wires);
    let (mut used, mut unused) = (Vec::new(), Vec::new());
    for rule in &wires.rules {
        let carried = convert_rule(rule, &wires, draft, &mut used);
        let node = ConfigNode::text_at(&rule.place, "");
        if !carried || !rule.is_simple {
            draft.report_unsupported(
                &node_entry(&node, rule.key.clone()),
                "write it as a [[rule]]: the SQL is the same (docs/rules.md); only SELECT * FROM \
                 \"FILTER\" with an action of type mqtt is a bridge's",
            );
        }
    }
    for wire in wires.actions.iter().chain(&wires.sources) {
        if !used.contains(&wire.key) {
            unused.push((wire.place.clone(), wire.key.clone()));
        }
    }
    for (place, key) in unused {
        let node = ConfigNode::text_at(&place, "");
        draft.report_unsupported(&node_entry(&node, key), "no rule that can be told here names it");
    }
}

/// Converts a rule to topics of a bridge. Returns whether a bridge was found.
fn convert_rule(
    rule: &EmqxEngineRule,
    wires: &EmqxDataFlows,
    draft: &mut ConfigDraft,
    used: &mut Vec<String>,
) -> bool {
    let Some(filters) = filters_of_sql(&rule.sql) else { return false };
    let mut carried = false;
    for filter in filters {
        let source =
            filter.strip_prefix("$bridges/mqtt:").or(filter.strip_prefix("$sources/mqtt:"));
        if let Some(name) = source {
            let Some(wire) = wires.sources.iter().find(|wire| wire.name == name) else { continue };
            let Some(topic) = &rule.republish else { continue };
            let topic = if topic == "${topic}" { "" } else { topic };
            let rule = bridge_topics(&wire.topic, topic, wire, &rule.place, &rule.key);
            draft.bridge_by_id(&wire.connector, &wire.place).inward.push(rule);
            used.push(wire.key.clone());
            carried = true;
            continue;
        }
        for name in &rule.actions {
            let Some(wire) = wires.actions.iter().find(|wire| wire.name == *name) else { continue };
            let topic = if wire.topic == "${topic}" { "" } else { &wire.topic };
            let rule = bridge_topics(&filter, topic, wire, &rule.place, &rule.key);
            draft.bridge_by_id(&wire.connector, &wire.place).outward.push(rule);
            used.push(wire.key.clone());
            carried = true;
        }
    }
    carried
}

fn bridge_topics(
    filter: &str,
    topic: &str,
    wire: &EmqxMqttAction,
    place: &SourceLocation,
    key: &str,
) -> BridgeTopics {
    BridgeTopics {
        note: format!("{place} {key}, {}", wire.key),
        filter: filter.to_string(),
        topic: topic.to_string(),
        qos: wire.qos,
        clears_retain: wire.clears_retain,
        ..BridgeTopics::default()
    }
}

/// Returns the filters of `SELECT * FROM "a/#", "b"`; `None` for any other statement.
fn filters_of_sql(sql: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = sql.split_whitespace().collect();
    let (head, rest) = words.split_at_checked(3)?;
    let is = |at: usize, word: &str| head[at].eq_ignore_ascii_case(word);
    if !is(0, "select") || !is(1, "*") || !is(2, "from") {
        return None;
    }
    let rest = rest.join(" ");
    let one = |text: &str| {
        let text = text.trim();
        let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'))?;
        (!text.contains(['"', ' '])).then(|| text.to_string())
    };
    rest.split(',').map(one).collect()
}

/// Adds defaults of EMQX 5 and 6 that differ from the defaults here.
pub(super) fn add_defaults(draft: &mut ConfigDraft) {
    emqx_listeners::add_usual_ports(draft);
    emqx_listeners::add_usual_web(draft);
    chain::finish_authentication(draft);
    emqx_access::imply_answers(draft);
    if !draft.chains.names_sources {
        let elsewhere = "EMQX keeps what was set while it ran in data/configs/cluster.hocon";
        shipped::take_rules(draft, shipped::RULES, "authorization.sources", elsewhere);
    }
    if draft.chains.has_no_source() && draft.no_match.is_none() {
        draft.no_match = Some((false, "what EMQX 6 does without sources and no_match".to_string()));
    }
    chain::finish_sources(draft);
    emqx_access::close_delayed(draft);
    if draft.credentials_note.is_some() {
        certificates_are_no_proof(draft);
    } else {
        draft.imply_once("allow_anonymous", "true", "what it is there without authentication");
        free_certificate_ids(draft);
    }
    if draft.listeners.is_empty() {
        let note = "listeners: EMQX listens on 0.0.0.0, ports 1883, 8883, 8083 and 8084, without a \
                    word: write each as a [[listener]], or this listens on 127.0.0.1:1883 alone";
        draft.notes.push(note.to_string());
    }
    let is_own = |one: &DraftListener| one.own_chain.is_some() || one.asks_nobody.is_some();
    let each_has_its_own = !draft.listeners.is_empty() && draft.listeners.iter().all(is_own);
    if !draft.chains.names_authentication && !each_has_its_own {
        let why = "authentication: the file says nothing of it, and EMQX keeps what was set while \
                   it ran in data/configs/cluster.hocon: include that file in this one, or write \
                   authentication = [] where there is none";
        draft.demands.unresolved.push(why.to_string());
        draft.notes.push(why.to_string());
    }
    let is_file = draft.setting("log.target").is_some_and(|there| there.value.text() == "file");
    if is_file && draft.setting("log.file").is_none() {
        draft.add_implied("log.file", "/var/log/emqx/emqx.log", "what it is there without a word");
    }
}

/// Leaves out certificate options if clients must also pass authentication: there a certificate
/// gives only a name, and here it would authenticate as well.
fn certificates_are_no_proof(draft: &mut ConfigDraft) {
    let mut left_out = Vec::new();
    draft.settings.retain(|setting| {
        let keeps = !setting.key.starts_with("auth.certificate");
        let is_on = !keeps && setting.value.text() != "off";
        left_out.extend(is_on.then(|| (setting.key, setting.note.clone())));
        keeps
    });
    for (key, note) in left_out {
        if key == "auth.certificate_client_id" {
            draft.free_client_ids = Some(note.clone());
        }
        let why = "clients have to pass authentication as well there, and here a certificate \
                   that gives a name is enough: rules may use ${cert_cn}";
        draft.demands.unresolved.push(format!("{note}: {why}"));
        draft.missing.push(super::unsupported_of_note(&note, why));
    }
}

/// Records that clients choose their identifiers if identifiers come from certificates and names do
/// not.
fn free_certificate_ids(draft: &mut ConfigDraft) {
    let is_on = |draft: &ConfigDraft, key: &str| {
        draft.setting(key).filter(|there| there.value.text() != "off").map(|one| one.note.clone())
    };
    let note = is_on(draft, "auth.certificate_client_id");
    if let Some(note) = note.filter(|_| is_on(draft, "auth.certificate").is_none()) {
        draft.free_client_ids = Some(note);
    }
}

/// Reads which part of a certificate is the client identifier. Without an equivalent the client
/// chooses its identifier.
pub(super) fn certificate_id(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    match certificate(entry)? {
        ImportValue::Unsupported(_) => own_client_id(draft, entry)?,
        said => draft.push_option("auth.certificate_client_id", said, entry),
    }
    Ok(())
}

/// Reads the use of certificates in a zone, which does not apply to all clients.
pub(super) fn zone_certificate(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    if entry.text()? == "disabled" {
        return Ok(());
    }
    if entry.last_word() == "peer_cert_as_clientid" {
        return own_client_id(draft, entry);
    }
    draft
        .leave_unresolved(entry, "a zone is none here: auth.certificate of its [[listener]] is it");
    Ok(())
}

/// Reads a permission of a zone's clients. A restriction stays unresolved, since there are no zones
/// here.
pub(super) fn zone_right(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if !["true", "on", "2"].contains(&entry.text()?) {
        let why = "clients of the zone may not do it there: say it in the [[listener]] or the \
                   [[group]], or for all";
        draft.leave_unresolved(entry, why);
    }
    Ok(())
}

/// Reads whether EMQX refuses clients of namespaces that are not registered.
pub(super) fn managed_tenants(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    if units::is_true(entry.text()?)? {
        draft.leave_unresolved(entry, "clients of a namespace that nobody has named are refused");
    }
    Ok(())
}

/// Reads a mount point. Without its namespace the listener would show all topics to all clients, so
/// an error closes the listener.
pub(super) fn mount(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if entry.text()?.is_empty() {
        return Ok(());
    }
    let refused = match mount_point(entry)? {
        ImportValue::Unsupported(why) => Err(why.to_string()),
        said => build_option(draft.catalog, "namespace", said, entry.note()),
    };
    match refused {
        Ok(setting) => put_setting(&mut draft.listener_of_entry(entry).settings, setting),
        Err(why) => draft.listener_of_entry(entry).refusals.push(format!("mountpoint: {why}")),
    }
    Ok(())
}

/// Whether a switch is off, written as `false` or as `disabled`.
fn is_disabled(entry: &ConfigEntry<'_>) -> bool {
    let ConfigTree::Text(text) = &entry.node.tree else { return false };
    ["false", "disabled"].contains(&&**text)
}

/// Reports that EMQX assigns client identifiers, while clients choose them here.
pub(super) fn own_client_id(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    if is_disabled(entry) {
        return Ok(());
    }
    draft.free_client_ids = Some(entry.note());
    draft.report_unsupported(
        entry,
        "clients choose their ids here: bind ids to users by rules with ${username}, or by \
         auth.certificate_client_id and auth.jwt_client_id_claim",
    );
    Ok(())
}

/// Reads the addresses that a listener accepts; a first rule other than `allow all` closes the
/// listener.
pub(super) fn access_rules(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let rules = entry.node.texts().ok_or("use a list like [\"allow all\"]")?;
    let first = rules.first().map(|rule| rule.trim());
    if first.is_none_or(|rule| rule == "allow all") {
        return Ok(());
    }
    let why = "it lets in some addresses only, which a listener here cannot: bans.file turns \
               addresses away, a rule may name an address, or listen on another address";
    let closed = format!("{}: {why}", entry.note());
    draft.listener_of_entry(entry).closed = Some(closed);
    Ok(())
}

/// Reads banned clients, in a file or in EMQX's database.
pub(super) fn banned(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_empty = |(_, node): &(String, ConfigNode)| node.text() == Some("");
    if !matches!(&entry.node.tree, ConfigTree::Object(fields) if fields.iter().all(is_empty)) {
        let why = "clients are turned away there: bans.file says who is";
        draft.leave_unresolved(entry, why);
    }
    Ok(())
}

/// Reads certificate revocation and further requirements of client certificates.
pub(super) fn verification(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if is_disabled(entry) {
        return Ok(());
    }
    let note = entry.note();
    draft.listener_of_entry(entry).unverified = Some(note);
    Ok(())
}

/// Decodes base64 with or without padding (RFC 4648, 4).
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    match text.ends_with('=') {
        true => Base64::decode_vec(text).ok(),
        false => Base64Unpadded::decode_vec(text).ok(),
    }
}

/// Reads a token secret or a public key from the configuration itself, for a file of its own. A
/// secret of less than 32 bytes is reported.
pub(super) fn token_key(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?;
    let is_public = text.contains("-----BEGIN");
    if entry.last_word() == "public_key" && !is_public {
        draft.push_option("auth.jwt_keys", ImportValue::Text(text.to_string()), entry);
        return Ok(());
    }
    let is_encoded = !is_public && draft.off.contains(&"secret_base64_encoded");
    let bytes = match is_encoded {
        true => decode_base64(text).ok_or("not base64, which it is said to be")?,
        false => text.as_bytes().to_vec(),
    };
    let odd = bytes.first().is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b'{');
    if !is_public && (bytes.len() < 32 || odd) {
        draft.report_unsupported(
            entry,
            "a secret here has at least 32 bytes and begins like none of the others: \
                           choose another one, write it into a file and name it in auth.jwt_keys",
        );
    } else if !draft.has_out {
        draft.report_unsupported(entry, "it goes to a file of its own: use --out");
    } else {
        draft.token_key = Some(bytes);
        draft.push_option("auth.jwt_keys", ImportValue::Text("key".into()), entry);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rule_that_takes_all_is_a_bridges() {
        assert_eq!(filters_of_sql("SELECT * FROM \"a/#\""), Some(vec!["a/#".to_string()]));
        assert_eq!(filters_of_sql("select *\nfrom \"a\", \"b\"").map(|all| all.len()), Some(2));
        assert_eq!(filters_of_sql("SELECT * FROM \"a\" WHERE qos = 1"), None);
        assert_eq!(filters_of_sql("SELECT payload FROM \"a\""), None);
        assert_eq!(filters_of_sql("SELECT *"), None);
    }
}
