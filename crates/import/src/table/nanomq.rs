//! NanoMQ's nanomq.conf, in HOCON.

use super::super::auth_databases::{
    plain_user, read_headers, read_method, read_params, status_url,
};
use super::super::bridge;
use super::super::config_tree::{ConfigEntry, ConfigNode, ConfigTree};
use super::super::draft::{ConfigDraft, UnsupportedKey};
use super::super::listener;
use super::super::nanomq_rules;
use super::super::row::{
    ImportRow, ImportValue, bridge_row, custom_row, global_row, listener_row, restriction_row,
    unsupported_row,
};
use super::super::rules;
use super::super::units::{read_bytes, read_count, read_single, read_text, seconds, seconds_in_ms};
use super::{
    allow_anonymous, in_filter, in_prefix, in_qos, in_retain, in_suffix, in_topic, log_level,
    log_target, no_match, out_filter, out_prefix, out_qos, out_retain, out_suffix, out_topic,
};

/// Prepares the tree, so that one row matches all forms of a key: known keys in lower case, no
/// disabled parts of `auth`, bridges as `bridges.mqtt.NAME`, and a name for each listener.
pub(crate) fn arrange(mut root: ConfigNode, draft: &mut ConfigDraft) -> ConfigNode {
    lower_keys(&mut root);
    if let Some(auth) = root.field_mut("auth") {
        drop_disabled(auth, "auth", draft);
    }
    if let Some(bridges) = root.field_mut("bridges") {
        super::nanomq_nodes::arrange_bridges(bridges, draft);
    }
    let kinds = root.field_mut("listeners").and_then(ConfigNode::fields_mut);
    for (_, kind) in kinds.into_iter().flatten() {
        let place = kind.place.clone();
        let Some(fields) = kind.fields_mut() else { continue };
        let own = |(_, node): &(String, ConfigNode)| !matches!(node.tree, ConfigTree::Object(_));
        let (own, mut named): (Vec<_>, Vec<_>) = fields.drain(..).partition(own);
        if !own.is_empty() {
            named.insert(
                0,
                ("default".to_string(), ConfigNode { place, tree: ConfigTree::Object(own) }),
            );
        }
        *fields = named;
    }
    root
}

/// Converts known keys to lower case, since NanoMQ ignores case.
pub(crate) fn lower_keys(node: &mut ConfigNode) {
    const OF_RULES: &[&str] =
        &["action", "and", "clientid", "ipaddr", "ipaddrs", "or", "permit", "topic", "topics"];
    match &mut node.tree {
        ConfigTree::Object(fields) => {
            for (key, node) in fields {
                let lower = key.to_ascii_lowercase();
                let mut words = ROWS.iter().flat_map(|row| row.key.split('.'));
                if OF_RULES.contains(&lower.as_str()) || words.any(|word| word == lower) {
                    *key = lower;
                }
                // Names of users keep their case.
                if key != "password" {
                    lower_keys(node);
                }
            }
        }
        ConfigTree::List(nodes) => nodes.iter_mut().for_each(lower_keys),
        _ => {}
    }
}

/// Drops parts of `auth` with `enable = false`, a key that only older versions of NanoMQ read.
/// Rules remain, since a rule here can only restrict clients further; the use of a server is
/// unresolved.
fn drop_disabled(node: &mut ConfigNode, path: &str, draft: &mut ConfigDraft) {
    const PARTS: &[&str] = &["acl", "acl_req", "auth_req", "http_auth", "password", "super_req"];
    let ConfigTree::Object(fields) = &mut node.tree else { return };
    fields.retain_mut(|(key, part)| {
        if !PARTS.contains(&key.as_str()) {
            return true;
        }
        let path = format!("{path}.{key}");
        if !super::super::chain::is_enabled(part) {
            let place = part.place.clone();
            let why = match key.as_str() {
                "acl" => "NanoMQ reads enable in some versions only: its rules count here",
                "auth_req" | "acl_req" | "http_auth" => {
                    let why = "NanoMQ reads enable in some versions only and asks the server in \
                               the others: it is not asked here, write auth.http_url by hand, or \
                               take this out where it is not asked there";
                    draft.demands.unresolved.push(format!("{place} {path}: {why}"));
                    why
                }
                _ => "it is switched off there",
            };
            let (is_kept, why) = (key == "acl", why.to_string());
            draft.missing.push(UnsupportedKey { place, key: path.clone(), why });
            if !is_kept {
                return false;
            }
        }
        if let ConfigTree::Object(inside) = &mut part.tree {
            inside.retain(|(name, _)| name != "enable");
        }
        drop_disabled(part, &path, draft);
        true
    });
}

/// Whether a file has only users and passwords.
pub(crate) fn is_user_file(file: &str, root: &ConfigNode) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default().to_lowercase();
    let ConfigTree::Object(fields) = &root.tree else { return false };
    let is_named = name.contains("pwd") || name.contains("passw");
    is_named && !fields.is_empty() && fields.iter().all(|(_, node)| node.text().is_some())
}

/// Wraps a file of users as `auth.password` of a main file.
pub(crate) fn user_file(root: ConfigNode) -> ConfigNode {
    let place = root.place.clone();
    let inside = |key: &str, node: ConfigNode| ConfigNode {
        place: place.clone(),
        tree: ConfigTree::Object(vec![(key.to_string(), node)]),
    };
    inside("auth", inside("password", root))
}

pub(crate) const ROWS: &[ImportRow] = &[
    unsupported_row(
        "system.**",
        "shards says how many threads there are; there is nothing else to size",
    ),
    global_row("mqtt.max_packet_size", "connection.packet_bytes_max", read_bytes),
    unsupported_row(
        "mqtt.client_max_packet_size",
        "what a client takes it says itself (Maximum Packet Size)",
    ),
    global_row("mqtt.max_mqueue_len", "queue.messages_max", read_count),
    global_row("mqtt.max_inflight_window", "session.inflight_max", read_count),
    unsupported_row(
        "mqtt.max_awaiting_rel",
        "connection.receive_maximum bounds what waits for its PUBREL, by number",
    ),
    unsupported_row(
        "mqtt.await_rel_timeout",
        "what waits for its PUBREL waits as long as its session",
    ),
    unsupported_row(
        "mqtt.retry_interval",
        "messages are sent again when their client comes back, as MQTT 5.0 demands",
    ),
    unsupported_row("mqtt.batch_resend", "what waits is sent as fast as the client takes it"),
    unsupported_row(
        "mqtt.keepalive_multiplier",
        "one and a half times the keep-alive, as MQTT says",
    ),
    unsupported_row("mqtt.property_size", "connection.packet_bytes_max bounds properties too"),
    global_row("mqtt.max_topic_alias", "connection.topic_alias_max", read_count),
    unsupported_row("mqtt.connector.**", GATEWAYS),
    custom_row("listeners.*.*.bind", "`[[listener]]`, its `url`", listener::read_bind),
    custom_row("listeners.*.*.url", "`[[listener]]`, its `url`", listener::read_bind),
    custom_row(
        "listeners.*.*.enable",
        "a listener that is off is left out",
        listener::read_enabled,
    ),
    unsupported_row("listeners.*.*.key_password", "keys are files without a password"),
    listener_row("listeners.*.*.keyfile", "tls.key", read_single),
    listener_row("listeners.*.*.certfile", "tls.certificate", read_single),
    listener_row("listeners.*.*.cacertfile", "tls.client_ca", read_text),
    custom_row("listeners.*.*.verify_peer", "`tls.client_certificate`", listener::read_verify),
    custom_row(
        "listeners.*.*.fail_if_no_peer_cert",
        "`tls.client_certificate`: required",
        listener::needs_certificate,
    ),
    custom_row("sqlite.mounted_file_path", "`data`, a folder in it", folder),
    unsupported_row(
        "sqlite.**",
        "sessions and queues are on the disk as they come; store.* and queue.* bound them",
    ),
    unsupported_row(
        "http_server.**",
        "an HTTP API is still to come; $SYS/broker/ has the counters",
    ),
    custom_row("log.to", "`log.target`", log_target),
    global_row("log.level", "log.level", log_level),
    custom_row("log.dir", "`log.file`, the folder of it", log_folder),
    custom_row("log.file", "`log.file`", log_file),
    unsupported_row(
        "log.rotation.**",
        "logrotate moves the file and sends SIGHUP, which opens it anew",
    ),
    unsupported_row("webhook.**", WEBHOOK),
    unsupported_row("auth.enable", "nobody reads it there, and what else auth says counts"),
    custom_row("auth.allow_anonymous", "`allow_anonymous`", allow_anonymous),
    custom_row("auth.no_match", "the last rule of `acl.file`", no_match),
    custom_row("auth.deny_action", "nothing where it is ignore", deny_action),
    unsupported_row("auth.cache.max_size", "rules cost nothing that would have to be kept"),
    unsupported_row("auth.cache.duration", "rules cost nothing that would have to be kept"),
    unsupported_row(
        "auth.cache.ttl",
        "of servers' answers acl.http_cache_s says how long they are kept",
    ),
    custom_row("auth.password.*", "a line of `auth.users`, hashed", user),
    custom_row("terms", "rules of `acl.file`", super::super::emqx::read_terms),
    custom_row("auth.acl.terms", "rules of `acl.file`", |draft, entry| {
        rules::read_terms(draft, entry.node);
        Ok(())
    }),
    custom_row("auth.acl.rules", "rules of `acl.file`", objects),
    custom_row("auth.http_auth.auth_req.url", "`auth.http_url`, `auth.http_answer`", status_url),
    custom_row("auth.http_auth.auth_req.method", "`auth.http_method`", read_method),
    custom_row(
        "auth.http_auth.auth_req.headers",
        "`auth.http_headers`, `auth.http_method`",
        read_headers,
    ),
    custom_row("auth.http_auth.auth_req.params", "`auth.http_params`", read_params),
    unsupported_row(
        "auth.http_auth.super_req.**",
        "the answer about a client says who is a superuser: is_superuser",
    ),
    custom_row("auth.http_auth.acl_req.url", "`acl.http_url`, `acl.http_answer`", status_url),
    custom_row("auth.http_auth.acl_req.method", "`acl.http_method`", read_method),
    custom_row(
        "auth.http_auth.acl_req.headers",
        "`acl.http_headers`, `acl.http_method`",
        read_headers,
    ),
    custom_row("auth.http_auth.acl_req.params", "`acl.http_params`", read_params),
    global_row("auth.http_auth.cache_ttl", "auth.http_cache_s", seconds),
    global_row("auth.http_auth.timeout", "auth.backend_timeout_ms", seconds_in_ms),
    unsupported_row(
        "auth.http_auth.connect_timeout",
        "auth.backend_timeout_ms counts from the question to the answer",
    ),
    global_row("auth.http_auth.pool_size", "auth.backend_connections_max", read_count),
    custom_row(
        "bridges.mqtt.cache.disk_cache_size",
        "`queue.messages_max` of each bridge",
        bridge::read_queue_limit,
    ),
    unsupported_row(
        "bridges.mqtt.cache.**",
        "what goes out waits on the disk; queue.* of each bridge bounds it",
    ),
    custom_row("bridges.mqtt.*.enable", "a bridge that is off is left out", bridge::read_enabled),
    custom_row("bridges.mqtt.*.server", "`servers`", bridge::read_server),
    bridge_row("bridges.mqtt.*.proto_ver", "version", bridge::read_version),
    bridge_row("bridges.mqtt.*.clientid", "client_id", read_text),
    bridge_row("bridges.mqtt.*.keepalive", "keep_alive_s", seconds),
    bridge_row("bridges.mqtt.*.backoff_max", "retry_max_s", seconds),
    custom_row(
        "bridges.mqtt.*.clean_start",
        "`session_expiry_s`: 0 where it is true",
        bridge::read_clean_start,
    ),
    bridge_row("bridges.mqtt.*.username", "user_name", read_text),
    bridge_row("bridges.mqtt.*.password", "password", read_text),
    unsupported_row(
        "bridges.mqtt.*.retry_interval",
        "messages are sent again when the connection comes back",
    ),
    unsupported_row("bridges.mqtt.*.password_encrypted", "a password stands in the file as it is"),
    unsupported_row(
        "bridges.mqtt.*.transparent",
        "name the topics in [[bridge.out]] and [[bridge.in]]",
    ),
    bridge_row(
        "bridges.mqtt.*.conn_properties.receive_maximum",
        "session.inflight_max",
        read_count,
    ),
    bridge_row(
        "bridges.mqtt.*.conn_properties.session_expiry_interval",
        "session_expiry_s",
        seconds,
    ),
    unsupported_row(
        "bridges.mqtt.*.conn_properties.**",
        "a bridge says what it needs of the other broker itself",
    ),
    bridge_row("bridges.mqtt.*.will.topic", "status_topic", read_text),
    unsupported_row(
        "bridges.mqtt.*.will.**",
        "status_topic gets 1 and, as the will, 0, both retained",
    ),
    custom_row("bridges.mqtt.*.ssl.enable", "TLS for `servers`", bridge::read_tls),
    unsupported_row("bridges.mqtt.*.ssl.key_password", "keys are files without a password"),
    bridge_row("bridges.mqtt.*.ssl.keyfile", "tls.key", read_text),
    bridge_row("bridges.mqtt.*.ssl.certfile", "tls.certificate", read_text),
    bridge_row("bridges.mqtt.*.ssl.cacertfile", "tls.ca", read_text),
    bridge_row("bridges.mqtt.*.ssl.sni", "tls.server_name", read_text),
    custom_row(
        "bridges.mqtt.*.forwards.*.local_topic",
        "`filter` of a `[[bridge.out]]`",
        out_filter,
    ),
    custom_row(
        "bridges.mqtt.*.forwards.*.remote_topic",
        "`topic` of a `[[bridge.out]]`",
        out_topic,
    ),
    custom_row("bridges.mqtt.*.forwards.*.prefix", "the beginning of `topic`", out_prefix),
    custom_row("bridges.mqtt.*.forwards.*.suffix", "the end of `topic`", out_suffix),
    custom_row("bridges.mqtt.*.forwards.*.qos", "`qos`", out_qos),
    custom_row("bridges.mqtt.*.forwards.*.retain", "`retain`: clear where it is 0", out_retain),
    custom_row(
        "bridges.mqtt.*.subscription.*.remote_topic",
        "`filter` of a `[[bridge.in]]`",
        in_filter,
    ),
    custom_row(
        "bridges.mqtt.*.subscription.*.local_topic",
        "`topic` of a `[[bridge.in]]`",
        in_topic,
    ),
    custom_row("bridges.mqtt.*.subscription.*.prefix", "the beginning of `topic`", in_prefix),
    custom_row("bridges.mqtt.*.subscription.*.suffix", "the end of `topic`", in_suffix),
    custom_row("bridges.mqtt.*.subscription.*.qos", "`qos`", in_qos),
    custom_row("bridges.mqtt.*.subscription.*.retain", "`retain`: clear where it is 0", in_retain),
    unsupported_row(
        "bridges.mqtt.*.subscription.*.retain_as_published",
        "it is always so; retain = \"clear\" takes RETAIN away",
    ),
    unsupported_row(
        "bridges.mqtt.*.subscription.*.retain_handling",
        "retained = \"once\", \"always\" or \"never\" says it",
    ),
    unsupported_row("bridges.mqtt.*.sub_properties.**", "a bridge subscribes as it needs it"),
    unsupported_row(
        "bridges.mqtt.*.hybrid_bridging",
        "name the servers over QUIC and TCP in servers, in their order",
    ),
    custom_row("bridges.mqtt.*.hybrid_servers", "`servers`, behind the first", servers),
    unsupported_row(
        "bridges.mqtt.*.resend_interval",
        "messages are sent again when the connection comes back",
    ),
    unsupported_row(
        "bridges.mqtt.*.resend_wait",
        "messages are sent again when the connection comes back",
    ),
    unsupported_row(
        "bridges.mqtt.*.cancel_timeout",
        "answer_timeout_s notices a dead line, and nothing is lost by it",
    ),
    bridge_row("bridges.mqtt.*.connect_timeout", "connect_timeout_s", seconds),
    unsupported_row(
        "bridges.mqtt.*.retry_qos_0",
        "queue.qos0 of the bridge says whether QoS 0 waits while the other broker is away",
    ),
    unsupported_row("bridges.mqtt.*.max_parallel_processes", "nothing to size"),
    unsupported_row("bridges.mqtt.*.max_send_queue_len", SEND_QUEUE),
    unsupported_row(
        "bridges.mqtt.*.max_recv_queue_len",
        "what comes in waits with the other broker while we are slow",
    ),
    unsupported_row(
        "bridges.mqtt.*.tcp.**",
        "the system chooses the address; keep_alive_s and answer_timeout_s notice a dead line",
    ),
    unsupported_row("bridges.mqtt.*.quic_idle_timeout", QUIC),
    unsupported_row("bridges.mqtt.*.quic_keepalive", QUIC),
    unsupported_row("bridges.mqtt.*.quic_discon_timeout", QUIC),
    unsupported_row("bridges.mqtt.*.quic_handshake_timeout", "connect_timeout_s counts it too"),
    unsupported_row("bridges.mqtt.*.quic_send_idle_timeout", QUIC),
    unsupported_row("bridges.mqtt.*.quic_initial_rtt_ms", QUIC),
    unsupported_row("bridges.mqtt.*.quic_max_ack_delay_ms", QUIC),
    unsupported_row("bridges.mqtt.*.quic_congestion_control", QUIC),
    unsupported_row(
        "bridges.mqtt.*.quic_multi_stream",
        "a bridge has one stream, which keeps the order",
    ),
    unsupported_row(
        "bridges.mqtt.*.quic_qos_priority",
        "a bridge has one stream, which keeps the order",
    ),
    unsupported_row("bridges.mqtt.*.quic_0rtt", "a bridge says nothing in its first datagram"),
    unsupported_row(
        "bridges.mqtt.*.ssl.cert_encrypted",
        "certificates and keys stand in files as they are",
    ),
    unsupported_row(
        "bridges.aws.**",
        "a bridge with servers = [\"tls://...:443\"], tls.alpn = [\"x-amzn-mqtt-ca\"], \
         tls.certificate and tls.key reaches AWS IoT Core",
    ),
    unsupported_row(
        "bridges.nng.**",
        "[[gateway]] with protocol = \"sp\" has nanomsg's sockets: docs/gateways.md",
    ),
    unsupported_row("rules.**", RULES),
    unsupported_row(
        "preset.**",
        "write each as a [[preset]]: client_id, subscriptions (docs/topics.md)",
    ),
    unsupported_row("exchange_client.**", "streams are still to come"),
    unsupported_row("stream_plugin.**", "streams are still to come"),
    unsupported_row(
        "parquet.**",
        "a [[sink]] with file.format = \"parquet\" writes them (docs/sinks.md)",
    ),
    unsupported_row("blf.**", "files of BLF are not supported"),
    unsupported_row("gateway.mqtt.**", GATEWAYS),
    unsupported_row("gateway.zmq.**", GATEWAYS),
    unsupported_row("gateway.vsomeip.**", GATEWAYS),
    unsupported_row("forward_rules.**", GATEWAYS),
    unsupported_row("dds.**", GATEWAYS),
    restriction_row("plugin.**", "a plugin may refuse clients there, and there are none here"),
    unsupported_row("license.**", "no licence is asked for"),
];

pub(super) const WEBHOOK: &str = "write it as a [[sink]] with http.url, and with events and \
                                  filters for what it is told (docs/sinks.md)";
pub(super) const RULES: &str = "write each as a [[rule]], in the same SQL: it publishes, or names \
                                in send.to a [[sink]] or a [[bridge]] (docs/rules.md)";
const GATEWAYS: &str = "a [[gateway]] of this broker speaks ZeroMQ or nanomsg, with topics of its \
                        own (docs/gateways.md); there is none to DDS or SOME/IP";
/// Reason for keys about NanoMQ's queues between threads.
pub(super) const SEND_QUEUE: &str = "queue.messages_max of the bridge bounds all that waits, and \
                                     session.inflight_max what is under way";
const QUIC: &str = "the library behind QUIC finds these itself; keep_alive_s and answer_timeout_s \
                    notice a dead line";

fn folder(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let folder = format!("{}/godwit-data", entry.text()?.trim_end_matches('/'));
    draft.push_option("data", ImportValue::Text(folder), entry);
    Ok(())
}

/// Reads the folder of the log, which may precede or follow the name.
pub(super) fn log_folder(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let folder = entry.text()?.trim_end_matches('/');
    let name = draft.setting("log.file").map_or("nanomq.log", |there| there.value.text());
    let path = format!("{folder}/{name}");
    draft.push_option("log.file", ImportValue::Text(path), entry);
    Ok(())
}

pub(super) fn log_file(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let name = entry.text()?;
    let folder = draft.setting("log.file").and_then(|there| there.value.text().rsplit_once('/'));
    let path = match folder {
        Some((folder, _)) if !name.contains('/') => format!("{folder}/{name}"),
        _ => name.to_string(),
    };
    draft.push_option("log.file", ImportValue::Text(path), entry);
    Ok(())
}

pub(super) fn deny_action(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()? {
        "ignore" => {}
        "disconnect" => draft.report_unsupported(
            entry,
            "what is denied is answered with 0x87, and the client stays",
        ),
        _ => return Err("use ignore or disconnect".to_string()),
    }
    Ok(())
}

/// Reads a user, unless some version of NanoMQ has no such user or another password.
fn user(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let why = if entry.text().is_ok_and(nanomq_rules::is_bare_word) {
        "a number or a truth value is not a password there"
    } else if entry.first_wildcard().contains('.') {
        "some versions split a name at its points"
    } else {
        return plain_user(draft, entry);
    };
    draft.report_unsupported(entry, format!("{why}: add the user with godwit passwd FILE USER"));
    draft.lost.push("auth.password");
    Ok(())
}

fn objects(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let ConfigTree::List(nodes) = &entry.node.tree else {
        return Err("rules stand in [brackets]".to_string());
    };
    nodes.iter().for_each(|node| nanomq_rules::read_object(draft, node, &entry.key));
    Ok(())
}

fn servers(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let texts = entry.node.texts().ok_or("use a list of servers")?;
    let all: Vec<_> = texts.iter().map(|text| (text.to_string(), entry.note())).collect();
    draft.bridge_of_entry(entry).servers.extend(all);
    Ok(())
}

/// Adds NanoMQ's defaults: anonymous clients are accepted, and access without a rule is allowed.
pub(crate) fn imply(draft: &mut ConfigDraft) {
    let note = "what it is there without a word";
    let is_closed =
        draft.setting("allow_anonymous").is_some_and(|there| there.value.text() == "false");
    draft.imply_once("allow_anonymous", "true", note);
    draft.imply_once("delayed.messages_max", "0", super::NO_DELAYED);
    ask_the_server(is_closed, draft);
    close_lost_rules(draft);
    note_usual_listener(draft);
    let target = draft.setting("log.target").map(|there| there.value.text() == "file");
    if target == Some(true) {
        draft.imply_once("log.file", "nanomq.log", note);
    }
}

/// Says what a file without any listener, or with none for TCP that can be written, does there.
pub(super) fn note_usual_listener(draft: &mut ConfigDraft) {
    let note = match draft.listeners.iter().any(|one| !one.is_off) {
        true => return,
        false if draft.listeners.is_empty() => {
            "listeners: NanoMQ listens on 0.0.0.0:1883 without a word: write it as a [[listener]], \
             or this listens on 127.0.0.1:1883 alone"
        }
        false => {
            "listeners: each that is named is off, and versions of NanoMQ differ in whether they \
             listen on 0.0.0.0:1883 then: write that as a [[listener]] where it does"
        }
    };
    draft.notes.push(note.to_string());
}

/// Limits access if an HTTP server decides. NanoMQ asks the server about every client, including
/// clients without a name, and only after the file of users has admitted the client; here one of
/// the two suffices. Rules that allow are dropped, since NanoMQ asks the server in addition to the
/// rules.
fn ask_the_server(is_closed: bool, draft: &mut ConfigDraft) {
    let decides = |missing: &&UnsupportedKey| {
        [".auth_req.", ".acl_req."].iter().any(|part| missing.key.contains(part))
            && missing.key.contains("http")
            && ![".tls", ".ssl"].iter().any(|part| missing.key.contains(part))
    };
    let odd = draft.missing.iter().find(decides).map(|one| format!("{} {}", one.place, one.key));
    let asked = draft.setting("auth.http_url").map(|there| there.note.clone());
    let is_odd = odd.as_ref().is_some_and(|odd| odd.contains(".auth_req."));
    let has_users = !draft.users.is_empty() || draft.lost.contains(&"auth.password");
    if asked.is_some() || is_odd {
        let note = asked.or(odd.clone()).unwrap_or_default();
        draft.ask_for_credentials(&note);
        let both = is_closed && has_users;
        if is_odd || both {
            draft.settings.retain(|setting| !setting.key.starts_with("auth.http_"));
            let why = match both {
                true => {
                    "a client needs its password and the server's consent there, and one of \
                         them is enough here: nobody is let in"
                }
                false => "the server is not asked in the same words: nobody is let in",
            };
            draft.missing.push(super::super::unsupported_of_note(&note, why));
        }
        if has_users {
            draft.users.clear();
            draft.notes.push("auth.password: its users are let in by the server only".to_string());
        }
    }
    let asks_for_topics = draft.setting("acl.http_url").map(|there| there.note.clone());
    if let Some(odd) = odd.filter(|odd| odd.contains(".acl_req.")) {
        draft.settings.retain(|setting| !setting.key.starts_with("acl.http_"));
        draft.rules.retain(|rule| !rule.allows);
        draft.no_match = Some((false, odd));
    } else if let Some(note) = asks_for_topics {
        let before = draft.rules.len();
        draft.rules.retain(|rule| !rule.allows);
        if draft.rules.len() < before {
            let why = "the server is asked beside the rules there, and only after them here: they \
                       allow nothing, and deny what they deny";
            draft.missing.push(super::super::unsupported_of_note(&note, why));
        }
    }
}

/// Denies everything if a file of rules is missing.
pub(super) fn close_lost_rules(draft: &mut ConfigDraft) {
    if draft.lost.iter().any(|lost| lost.ends_with("acl")) {
        draft.rules.clear();
        draft.no_match = Some((false, "the file of rules is not there".to_string()));
    }
}
