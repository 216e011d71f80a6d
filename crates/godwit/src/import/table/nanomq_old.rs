//! NanoMQ's old nanomq.conf, `NAME=VALUE` by lines.

use super::super::bridge;
use super::super::draft::Draft;
use super::super::hocon;
use super::super::listener;
use super::super::row::{Row, all, far, made, no, own};
use super::super::rules;
use super::super::tables::{header, method, numbered_user, pairs, status_url};
use super::super::tree::Entry;
use super::super::units::{alone, count, is_true, kibibytes, seconds, seconds_in_ms, text};
use super::nanomq::{RULES, SEND_QUEUE, WEBHOOK, deny_action, log_file, log_folder};
use super::{
    allow_anonymous, in_filter, in_prefix, in_qos, in_retain, in_suffix, in_topic, log_level,
    log_target, no_match, out_filter, out_prefix, out_qos, out_retain, out_suffix, out_topic,
};

#[rustfmt::skip]
pub(in crate::import) const ROWS: &[Row] = &[
    made("url", "`[[listener]]`, its `url`", listener::bind),
    no("daemon", "it stays in the foreground, for systemd or a container"),
    no("num_taskq_thread", THREADS),
    no("max_taskq_thread", THREADS),
    no("parallel", THREADS),
    no("property_size", "connection.packet_bytes_max bounds properties too"),
    all("max_packet_size", "connection.packet_bytes_max", kibibytes),
    no("client_max_packet_size", "what a client takes it says itself (Maximum Packet Size)"),
    all("msq_len", "queue.messages_max", count),
    no("qos_duration", "messages are sent again when their client comes back, as MQTT 5.0 demands"),
    no("keepalive_backoff", "one and a half times the keep-alive, as MQTT says"),
    made("allow_anonymous", "`allow_anonymous`", allow_anonymous),
    no("enable_ipc_internal", "there is no IPC; signals say what there is to say"),
    made("auth_enable", "without it no users are written", auth_enable),
    made("acl_enable", "without it no rule is written", acl_enable),
    made("acl_nomatch", "the last rule of `acl.file`", no_match),
    no("enable_acl_cache", "rules cost nothing that would have to be kept"),
    no("acl_cache_max_size", "rules cost nothing that would have to be kept"),
    no("acl_cache_ttl", "rules cost nothing that would have to be kept"),
    made("acl_deny_action", "nothing where it is ignore", deny_action),
    made("acl.rule.*", "a rule of `acl.file`", rule),
    no("sqlite.**",
        "sessions and queues are on the disk as they come; store.* and queue.* bound them"),
    made("tls.enable", "a listener that is off is left out", listener::enabled),
    made("tls.url", "`[[listener]]`, its `url`", listener::bind),
    no("tls.key_password", "keys are files without a password"),
    own("tls.keyfile", "tls.key", alone),
    own("tls.certfile", "tls.certificate", alone),
    own("tls.cacertfile", "tls.client_ca", text),
    made("tls.verify_peer", "`tls.client_certificate`", listener::verify),
    made("tls.fail_if_no_peer_cert",
        "`tls.client_certificate`: required", listener::needs_certificate),
    made("websocket.enable", "listeners that are off are left out", web_enabled),
    made("websocket.url", "`[[listener]]`, its `url`", listener::bind),
    made("websocket.tls_url", "`[[listener]]`, its `url`", web_tls),
    no("http_server.**", "there is no HTTP API yet; $SYS/broker/ has the counters"),
    made("log.to", "`log.target`", log_target),
    all("log.level", "log.level", log_level),
    made("log.dir", "`log.file`, the folder of it", log_folder),
    made("log.file", "`log.file`", log_file),
    no("log.rotation.**", "logrotate moves the file and sends SIGHUP, which opens it anew"),
    made("auth.http.enable", "without it nobody is asked", http_enable),
    made("auth.http.auth_req.url", "`auth.http_url`, `auth.http_answer`", status_url),
    made("auth.http.auth_req.method", "`auth.http_method`", method),
    made("auth.http.auth_req.headers.*", "`auth.http_headers`, `auth.http_method`", header),
    all("auth.http.auth_req.params", "auth.http_params", pairs),
    no("auth.http.super_req.**", "the answer about a client says who is a superuser: is_superuser"),
    made("auth.http.acl_req.url", "`acl.http_url`, `acl.http_answer`", status_url),
    made("auth.http.acl_req.method", "`acl.http_method`", method),
    made("auth.http.acl_req.headers.*", "`acl.http_headers`, `acl.http_method`", header),
    all("auth.http.acl_req.params", "acl.http_params", pairs),
    all("auth.http.timeout", "auth.backend_timeout_ms", seconds_in_ms),
    no("auth.http.connect_timeout",
        "auth.backend_timeout_ms counts from the question to the answer"),
    all("auth.http.pool_size", "auth.backend_connections_max", count),
    made("auth.*.login", "a line of `auth.users`, hashed", numbered_user),
    made("auth.*.password", "a line of `auth.users`, hashed", numbered_user),
    no("web.hook.**", WEBHOOK),
    no("bridge.mqtt.*.bridge_mode",
        "a bridge of 3.1.1 marks itself, and does without where that is refused"),
    far("bridge.mqtt.*.backoff_max", "retry_max_s", seconds),
    no("bridge.mqtt.*.transparent", "name the topics in [[bridge.out]] and [[bridge.in]]"),
    made("bridge.mqtt.*.address", "`servers`", bridge::server),
    far("bridge.mqtt.*.proto_ver", "version", bridge::version),
    far("bridge.mqtt.*.clientid", "client_id", text),
    far("bridge.mqtt.*.keepalive", "keep_alive_s", seconds),
    made("bridge.mqtt.*.clean_start", "`session_expiry_s`: 0 where it is true", bridge::clean),
    far("bridge.mqtt.*.username", "user_name", text),
    far("bridge.mqtt.*.password", "password", text),
    made("bridge.mqtt.*.tls.enable", "TLS for `servers`", bridge::tls),
    no("bridge.mqtt.*.tls.key_password", "keys are files without a password"),
    far("bridge.mqtt.*.tls.keyfile", "tls.key", text),
    far("bridge.mqtt.*.tls.certfile", "tls.certificate", text),
    far("bridge.mqtt.*.tls.cacertfile", "tls.ca", text),
    made("bridge.mqtt.*.forwards.*.local_topic", "`filter` of a `[[bridge.out]]`", out_filter),
    made("bridge.mqtt.*.forwards.*.remote_topic", "`topic` of a `[[bridge.out]]`", out_topic),
    made("bridge.mqtt.*.forwards.*.qos", "`qos`", out_qos),
    made("bridge.mqtt.*.forwards.*.retain", "`retain`: clear where it is 0", out_retain),
    made("bridge.mqtt.*.forwards.*.prefix", "the beginning of `topic`", out_prefix),
    made("bridge.mqtt.*.forwards.*.suffix", "the end of `topic`", out_suffix),
    made("bridge.mqtt.*.forwards", "a `[[bridge.out]]` for each filter", forwards),
    no("bridge.mqtt.*.subscription.properties.**", "a bridge subscribes as it needs it"),
    made("bridge.mqtt.*.subscription.*.remote_topic", "`filter` of a `[[bridge.in]]`", in_filter),
    made("bridge.mqtt.*.subscription.*.local_topic", "`topic` of a `[[bridge.in]]`", in_topic),
    made("bridge.mqtt.*.subscription.*.topic", "`filter` of a `[[bridge.in]]`", in_filter),
    made("bridge.mqtt.*.subscription.*.qos", "`qos`", in_qos),
    made("bridge.mqtt.*.subscription.*.retain", "`retain`: clear where it is 0", in_retain),
    made("bridge.mqtt.*.subscription.*.prefix", "the beginning of `topic`", in_prefix),
    made("bridge.mqtt.*.subscription.*.suffix", "the end of `topic`", in_suffix),
    no("bridge.mqtt.*.subscription.*.retain_as_published",
        "it is always so; retain = \"clear\" takes RETAIN away"),
    no("bridge.mqtt.*.subscription.*.retain_handling",
        "retained = \"once\", \"always\" or \"never\" says it"),
    far("bridge.mqtt.*.connect.properties.receive_maximum", "session.inflight_max", count),
    far("bridge.mqtt.*.connect.properties.session_expiry_interval", "session_expiry_s", seconds),
    no("bridge.mqtt.*.connect.properties.**",
        "a bridge says what it needs of the other broker itself"),
    far("bridge.mqtt.*.will.topic", "status_topic", text),
    no("bridge.mqtt.*.will.**", "status_topic gets 1 and, as the will, 0, both retained"),
    no("bridge.mqtt.*.parallel", THREADS),
    no("bridge.mqtt.*.max_send_queue_len", SEND_QUEUE),
    no("bridge.mqtt.*.max_recv_queue_len",
        "what comes in waits with the other broker while we are slow"),
    no("bridge.mqtt.*.hybrid_bridging",
        "name the servers over QUIC and TCP in servers, in their order"),
    far("bridge.mqtt.*.quic_handshake_timeout", "connect_timeout_s", seconds),
    no("bridge.mqtt.*.quic_keepalive", QUIC),
    no("bridge.mqtt.*.quic_idle_timeout", QUIC),
    no("bridge.mqtt.*.quic_discon_timeout", QUIC),
    no("bridge.mqtt.*.quic_send_idle_timeout", QUIC),
    no("bridge.mqtt.*.quic_initial_rtt_ms", QUIC),
    no("bridge.mqtt.*.quic_max_ack_delay_ms", QUIC),
    no("bridge.mqtt.*.quic_congestion_control", QUIC),
    no("bridge.mqtt.*.quic_multi_stream", QUIC),
    no("bridge.mqtt.*.quic_qos_priority", QUIC),
    no("bridge.mqtt.*.quic_0rtt", QUIC),
    made("bridge.sqlite.enable", "without it there is no cache", bridge::caches),
    made("bridge.sqlite.disk_cache_size", "`queue.messages_max` of each bridge", bridge::cache),
    no("bridge.sqlite.**", "what goes out waits on the disk; queue.* of each bridge bounds it"),
    no("aws.bridge.**",
        "a bridge with servers = [\"tls://...:443\"], tls.alpn = [\"x-amzn-mqtt-ca\"], \
         tls.certificate and tls.key reaches AWS IoT Core"),
    no("rule_option.**", RULES),
    no("rule.**", RULES),
];

const QUIC: &str = "the library behind QUIC finds these itself; keep_alive_s and answer_timeout_s \
                    notice a dead line";
const THREADS: &str = "shards says how many threads there are; there is nothing else to size";

fn auth_enable(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.off.push("users");
    }
    Ok(())
}

/// Filters with commas between them, which keep their topics.
fn forwards(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let filters: Vec<String> = entry.text()?.split(',').map(|one| one.trim().to_string()).collect();
    for (at, filter) in filters.into_iter().enumerate() {
        let names = vec![entry.name().to_string(), format!("list {at}")];
        let own = Entry { key: entry.key.clone(), names, node: entry.node };
        draft.outward(&own).filter = filter;
    }
    Ok(())
}

fn acl_enable(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.off.push("acl");
    }
    Ok(())
}

/// A rule as an object of JSON.
fn rule(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let place = &entry.node.place;
    let parsed =
        hocon::read(&format!("rule = {}", entry.text()?), place.file.clone(), &draft.folder);
    let parsed = parsed.map_err(|_| {
        "no object of JSON, use {\"permit\": \"allow\", \"action\": \"publish\"}".to_string()
    })?;
    let mut node = parsed.field("rule").cloned().ok_or("the rule is empty")?;
    node.place = place.clone();
    rules::object(draft, &node, &entry.key);
    Ok(())
}

fn web_enabled(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let is_off = !is_true(entry.text()?)?;
    for id in ["websocket", "wss"] {
        draft.listener_called(id, &entry.node.place).is_off |= is_off;
    }
    Ok(())
}

fn web_tls(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    // It is another listener than the one of `websocket.url`.
    let own = Entry { key: entry.key.clone(), names: vec!["wss".to_string()], node: entry.node };
    listener::bind_at("wss", draft, &own)
}

fn http_enable(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.off.push("http");
    }
    Ok(())
}

/// What is switched off goes, and what there is without a word comes.
pub(in crate::import) fn imply(draft: &mut Draft) {
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
    super::nanomq::imply(draft);
}
