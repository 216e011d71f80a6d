//! NanoMQ's old nanomq.conf, `NAME=VALUE` by lines.

use super::super::auth_databases::{
    numbered_user, read_header, read_method, read_params, status_url,
};
use super::super::bridge;
use super::super::config_tree::ConfigEntry;
use super::super::draft::{ConfigDraft, DraftUser};
use super::super::hocon::{self, HoconDialect};
use super::super::listener;
use super::super::nanomq_rules;
use super::super::row::{
    ImportRow, bridge_row, custom_row, global_row, listener_row, unsupported_row,
};
use super::super::units::{
    is_true, kibibytes, read_count, read_single, read_text, seconds, seconds_in_ms,
};
use super::nanomq::{RULES, SEND_QUEUE, WEBHOOK, deny_action, log_file, log_folder};
use super::{
    allow_anonymous, in_filter, in_prefix, in_qos, in_retain, in_suffix, in_topic, log_level,
    log_target, no_match, out_filter, out_prefix, out_qos, out_retain, out_suffix, out_topic,
};

pub(crate) const ROWS: &[ImportRow] = &[
    custom_row("url", "`[[listener]]`, its `url`", listener::read_bind),
    unsupported_row("daemon", "it stays in the foreground, for systemd or a container"),
    unsupported_row("num_taskq_thread", THREADS),
    unsupported_row("max_taskq_thread", THREADS),
    unsupported_row("parallel", THREADS),
    unsupported_row("property_size", "connection.packet_bytes_max bounds properties too"),
    global_row("max_packet_size", "connection.packet_bytes_max", kibibytes),
    unsupported_row(
        "client_max_packet_size",
        "what a client takes it says itself (Maximum Packet Size)",
    ),
    global_row("msq_len", "queue.messages_max", read_count),
    unsupported_row(
        "qos_duration",
        "messages are sent again when their client comes back, as MQTT 5.0 demands",
    ),
    unsupported_row("keepalive_backoff", "one and a half times the keep-alive, as MQTT says"),
    custom_row("allow_anonymous", "`allow_anonymous`", allow_anonymous),
    unsupported_row(
        "enable_ipc_internal",
        "IPC is not supported; signals say what there is to say",
    ),
    custom_row("auth_enable", "without it no users are written", auth_enable),
    custom_row("acl_enable", "without it no rule is written", acl_enable),
    custom_row("acl_nomatch", "the last rule of `acl.file`", no_match),
    unsupported_row("enable_acl_cache", "rules cost nothing that would have to be kept"),
    unsupported_row("acl_cache_max_size", "rules cost nothing that would have to be kept"),
    unsupported_row("acl_cache_ttl", "rules cost nothing that would have to be kept"),
    custom_row("acl_deny_action", "nothing where it is ignore", deny_action),
    custom_row("acl.rule.*", "a rule of `acl.file`", rule),
    unsupported_row(
        "sqlite.**",
        "sessions and queues are on the disk as they come; store.* and queue.* bound them",
    ),
    custom_row("tls.enable", "a listener that is off is left out", tls_enable),
    custom_row("tls.url", "`[[listener]]`, its `url`", listener::read_bind),
    unsupported_row("tls.key_password", "keys are files without a password"),
    listener_row("tls.keyfile", "tls.key", read_single),
    listener_row("tls.certfile", "tls.certificate", read_single),
    listener_row("tls.cacertfile", "tls.client_ca", read_text),
    custom_row("tls.verify_peer", "`tls.client_certificate`", listener::read_verify),
    custom_row(
        "tls.fail_if_no_peer_cert",
        "`tls.client_certificate`: required",
        listener::needs_certificate,
    ),
    custom_row("websocket.enable", "listeners that are off are left out", web_enabled),
    custom_row("websocket.url", "`[[listener]]`, its `url`", listener::read_bind),
    custom_row("websocket.tls_url", "`[[listener]]`, its `url`", web_tls),
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
    custom_row("auth.http.enable", "without it nobody is asked", http_enable),
    custom_row("auth.http.auth_req.url", "`auth.http_url`, `auth.http_answer`", status_url),
    custom_row("auth.http.auth_req.method", "`auth.http_method`", read_method),
    custom_row(
        "auth.http.auth_req.headers.*",
        "`auth.http_headers`, `auth.http_method`",
        read_header,
    ),
    custom_row("auth.http.auth_req.params", "`auth.http_params`", read_params),
    unsupported_row(
        "auth.http.super_req.**",
        "the answer about a client says who is a superuser: is_superuser",
    ),
    custom_row("auth.http.acl_req.url", "`acl.http_url`, `acl.http_answer`", status_url),
    custom_row("auth.http.acl_req.method", "`acl.http_method`", read_method),
    custom_row("auth.http.acl_req.headers.*", "`acl.http_headers`, `acl.http_method`", read_header),
    custom_row("auth.http.acl_req.params", "`acl.http_params`", read_params),
    global_row("auth.http.timeout", "auth.backend_timeout_ms", seconds_in_ms),
    unsupported_row(
        "auth.http.connect_timeout",
        "auth.backend_timeout_ms counts from the question to the answer",
    ),
    global_row("auth.http.pool_size", "auth.backend_connections_max", read_count),
    custom_row("auth.*.login", "a line of `auth.users`, hashed", numbered_user),
    custom_row("auth.*.password", "a line of `auth.users`, hashed", numbered_user),
    unsupported_row("web.hook.**", WEBHOOK),
    unsupported_row(
        "bridge.mqtt.*.bridge_mode",
        "a bridge of 3.1.1 marks itself, and does without where that is refused",
    ),
    bridge_row("bridge.mqtt.*.backoff_max", "retry_max_s", seconds),
    unsupported_row(
        "bridge.mqtt.*.transparent",
        "name the topics in [[bridge.out]] and [[bridge.in]]",
    ),
    custom_row("bridge.mqtt.*.address", "`servers`", bridge::read_server),
    bridge_row("bridge.mqtt.*.proto_ver", "version", bridge::read_version),
    bridge_row("bridge.mqtt.*.clientid", "client_id", read_text),
    bridge_row("bridge.mqtt.*.keepalive", "keep_alive_s", seconds),
    custom_row(
        "bridge.mqtt.*.clean_start",
        "`session_expiry_s`: 0 where it is true",
        bridge::read_clean_start,
    ),
    bridge_row("bridge.mqtt.*.username", "user_name", read_text),
    bridge_row("bridge.mqtt.*.password", "password", read_text),
    custom_row("bridge.mqtt.*.tls.enable", "TLS for `servers`", bridge::read_tls),
    unsupported_row("bridge.mqtt.*.tls.key_password", "keys are files without a password"),
    bridge_row("bridge.mqtt.*.tls.keyfile", "tls.key", read_text),
    bridge_row("bridge.mqtt.*.tls.certfile", "tls.certificate", read_text),
    bridge_row("bridge.mqtt.*.tls.cacertfile", "tls.ca", read_text),
    custom_row(
        "bridge.mqtt.*.forwards.*.local_topic",
        "`filter` of a `[[bridge.out]]`",
        out_filter,
    ),
    custom_row("bridge.mqtt.*.forwards.*.remote_topic", "`topic` of a `[[bridge.out]]`", out_topic),
    custom_row("bridge.mqtt.*.forwards.*.qos", "`qos`", out_qos),
    custom_row("bridge.mqtt.*.forwards.*.retain", "`retain`: clear where it is 0", out_retain),
    custom_row("bridge.mqtt.*.forwards.*.prefix", "the beginning of `topic`", out_prefix),
    custom_row("bridge.mqtt.*.forwards.*.suffix", "the end of `topic`", out_suffix),
    custom_row("bridge.mqtt.*.forwards", "a `[[bridge.out]]` for each filter", forwards),
    unsupported_row(
        "bridge.mqtt.*.subscription.properties.**",
        "a bridge subscribes as it needs it",
    ),
    custom_row(
        "bridge.mqtt.*.subscription.*.remote_topic",
        "`filter` of a `[[bridge.in]]`",
        in_filter,
    ),
    custom_row(
        "bridge.mqtt.*.subscription.*.local_topic",
        "`topic` of a `[[bridge.in]]`",
        in_topic,
    ),
    custom_row("bridge.mqtt.*.subscription.*.topic", "`filter` of a `[[bridge.in]]`", in_filter),
    custom_row("bridge.mqtt.*.subscription.*.qos", "`qos`", in_qos),
    custom_row("bridge.mqtt.*.subscription.*.retain", "`retain`: clear where it is 0", in_retain),
    custom_row("bridge.mqtt.*.subscription.*.prefix", "the beginning of `topic`", in_prefix),
    custom_row("bridge.mqtt.*.subscription.*.suffix", "the end of `topic`", in_suffix),
    unsupported_row(
        "bridge.mqtt.*.subscription.*.retain_as_published",
        "it is always so; retain = \"clear\" takes RETAIN away",
    ),
    unsupported_row(
        "bridge.mqtt.*.subscription.*.retain_handling",
        "retained = \"once\", \"always\" or \"never\" says it",
    ),
    bridge_row(
        "bridge.mqtt.*.connect.properties.receive_maximum",
        "session.inflight_max",
        read_count,
    ),
    bridge_row(
        "bridge.mqtt.*.connect.properties.session_expiry_interval",
        "session_expiry_s",
        seconds,
    ),
    unsupported_row(
        "bridge.mqtt.*.connect.properties.**",
        "a bridge says what it needs of the other broker itself",
    ),
    bridge_row("bridge.mqtt.*.will.topic", "status_topic", read_text),
    unsupported_row(
        "bridge.mqtt.*.will.**",
        "status_topic gets 1 and, as the will, 0, both retained",
    ),
    unsupported_row("bridge.mqtt.*.parallel", THREADS),
    unsupported_row("bridge.mqtt.*.max_send_queue_len", SEND_QUEUE),
    unsupported_row(
        "bridge.mqtt.*.max_recv_queue_len",
        "what comes in waits with the other broker while we are slow",
    ),
    unsupported_row(
        "bridge.mqtt.*.hybrid_bridging",
        "name the servers over QUIC and TCP in servers, in their order",
    ),
    bridge_row("bridge.mqtt.*.quic_handshake_timeout", "connect_timeout_s", seconds),
    unsupported_row("bridge.mqtt.*.quic_keepalive", QUIC),
    unsupported_row("bridge.mqtt.*.quic_idle_timeout", QUIC),
    unsupported_row("bridge.mqtt.*.quic_discon_timeout", QUIC),
    unsupported_row("bridge.mqtt.*.quic_send_idle_timeout", QUIC),
    unsupported_row("bridge.mqtt.*.quic_initial_rtt_ms", QUIC),
    unsupported_row("bridge.mqtt.*.quic_max_ack_delay_ms", QUIC),
    unsupported_row("bridge.mqtt.*.quic_congestion_control", QUIC),
    unsupported_row("bridge.mqtt.*.quic_multi_stream", QUIC),
    unsupported_row("bridge.mqtt.*.quic_qos_priority", QUIC),
    unsupported_row("bridge.mqtt.*.quic_0rtt", QUIC),
    custom_row("bridge.sqlite.enable", "without it nothing is cached", bridge::read_queue_limits),
    custom_row(
        "bridge.sqlite.disk_cache_size",
        "`queue.messages_max` of each bridge",
        bridge::read_queue_limit,
    ),
    unsupported_row(
        "bridge.sqlite.**",
        "what goes out waits on the disk; queue.* of each bridge bounds it",
    ),
    unsupported_row(
        "aws.bridge.**",
        "a bridge with servers = [\"tls://...:443\"], tls.alpn = [\"x-amzn-mqtt-ca\"], \
         tls.certificate and tls.key reaches AWS IoT Core",
    ),
    unsupported_row("rule_option.**", RULES),
    unsupported_row("rule.**", RULES),
];

const QUIC: &str = "the library behind QUIC finds these itself; keep_alive_s and answer_timeout_s \
                    notice a dead line";
const THREADS: &str = "shards says how many threads there are; there is nothing else to size";

fn auth_enable(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.off.push("users");
    }
    Ok(())
}

/// Reads comma-separated filters that are forwarded without a change of topic.
fn forwards(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let filters: Vec<String> = entry.text()?.split(',').map(|one| one.trim().to_string()).collect();
    for (at, filter) in filters.into_iter().enumerate() {
        let names = vec![entry.first_wildcard().to_string(), format!("list {at}")];
        let own = ConfigEntry { key: entry.key.clone(), names, node: entry.node };
        draft.outbound_topics(&own).filter = filter;
    }
    Ok(())
}

fn acl_enable(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.off.push("acl");
    }
    Ok(())
}

/// Reads a truth value; other words for true do not count in NanoMQ.
fn tls_enable(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()?.to_ascii_lowercase().as_str() {
        "true" => {}
        "false" => draft.listener_of_entry(entry).is_off = true,
        _ => return Err("no truth value there, use true or false".to_string()),
    }
    Ok(())
}

/// Reads a rule written as an object of JSON.
fn rule(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let (place, text) = (&entry.node.place, entry.text()?);
    let dialect = HoconDialect::NanoMq;
    let parsed = hocon::read(&format!("rule = {text}"), dialect, place.file.clone(), &draft.folder);
    let parsed = parsed.map_err(|wrongs| {
        let why =
            wrongs.first().and_then(|wrong| wrong.split_once(": ")).map_or("", |(_, why)| why);
        let right = "use {\"permit\": \"allow\", \"action\": \"publish\"}";
        format!("no object of JSON ({why}), {right}")
    })?;
    let mut node = parsed.field("rule").cloned().ok_or("the rule is empty")?;
    node.place = place.clone();
    let rest = nanomq_rules::after_json(text);
    if rest.is_some_and(|rest| !rest.trim().is_empty()) {
        return Err("NanoMQ reads nothing behind the first object, leave it out".to_string());
    }
    super::nanomq::lower_keys(&mut node);
    if node.has_unclear_text() {
        return Err("versions read its escapes in different ways, use none".to_string());
    }
    let is_numbered = entry.first_wildcard().parse::<u32>().is_ok();
    if node.field_text("permit") == Some("allow") && (rest.is_none() || !is_numbered) {
        let why = "NanoMQ ignores a rule without a number right before its equal sign, or that is \
                   not JSON: nobody is allowed anything by it";
        draft.report_unsupported(entry, why);
        return Ok(());
    }
    nanomq_rules::read_object(draft, &node, &entry.key);
    Ok(())
}

fn web_enabled(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_off = !is_true(entry.text()?)?;
    for id in ["websocket", "wss"] {
        draft.listener_by_id(id, &entry.node.place).is_off |= is_off;
    }
    Ok(())
}

fn web_tls(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    // This listener is separate from that of `websocket.url`.
    let own =
        ConfigEntry { key: entry.key.clone(), names: vec!["wss".to_string()], node: entry.node };
    listener::bind_at("wss", draft, &own)
}

fn http_enable(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.off.push("http");
    }
    Ok(())
}

/// Drops disabled parts, and adds NanoMQ's defaults.
pub(crate) fn imply(draft: &mut ConfigDraft) {
    if draft.off.contains(&"http") {
        draft.settings.retain(|setting| {
            let key = setting.key;
            !key.starts_with("auth.http_")
                && !key.starts_with("acl.http_")
                && !key.starts_with("auth.backend_")
        });
    }
    if draft.off.contains(&"users") && !draft.users.is_empty() {
        draft.users.clear();
        draft.notes.push("auth_enable: its users are switched off there".to_string());
    }
    if draft.off.contains(&"acl") {
        draft.rules.clear();
        draft.no_match = None;
    }
    if !draft.hit.contains("tls.enable") {
        let of_tls = draft.listeners.iter_mut().filter(|one| one.id == "tls");
        of_tls.for_each(|listener| listener.is_off = true);
    }
    drop_unnumbered_users(draft);
    super::nanomq::imply(draft);
}

/// Drops users after a gap: NanoMQ reads the users 1, 2, 3 and so on up to the first missing
/// number.
fn drop_unnumbered_users(draft: &mut ConfigDraft) {
    let in_order = |(number, user): (u32, &DraftUser)| user.at == number.to_string();
    let count = (1..).zip(&draft.users).take_while(|pair| in_order(*pair)).count();
    for user in draft.users.drain(count..) {
        draft.notes.push(format!(
            "auth.{}: NanoMQ finds users numbered 1, 2, 3 in this order alone: it comes in by no \
             password there, and not here",
            user.at
        ));
    }
}
