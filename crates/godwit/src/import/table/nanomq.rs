//! NanoMQ's nanomq.conf, in HOCON.

use super::super::bridge;
use super::super::draft::{Draft, Missing};
use super::super::listener;
use super::super::row::{Row, Said, all, far, made, no, own};
use super::super::rules;
use super::super::tables::{headers, map, method, plain_user, status_url};
use super::super::tree::{Entry, Node, Tree};
use super::super::units::{alone, bytes, count, seconds, seconds_in_ms, text};
use super::{
    allow_anonymous, in_filter, in_prefix, in_qos, in_retain, in_suffix, in_topic, log_level,
    log_target, no_match, out_filter, out_prefix, out_qos, out_retain, out_suffix, out_topic,
};

/// A listener without a name gets one, so that one row is about both.
pub(in crate::import) fn arrange(mut root: Node, draft: &mut Draft) -> Node {
    let Tree::Object(fields) = &mut root.tree else { return root };
    if let Some((_, auth)) = fields.iter_mut().find(|(key, _)| key == "auth") {
        drop_disabled(auth, "auth", draft);
    }
    let listeners = fields.iter_mut().find(|(key, _)| key == "listeners");
    let Some(Tree::Object(kinds)) = listeners.map(|(_, node)| &mut node.tree) else { return root };
    for (_, kind) in kinds {
        let place = kind.place.clone();
        let Tree::Object(fields) = &mut kind.tree else { continue };
        let own = |(_, node): &(String, Node)| !matches!(node.tree, Tree::Object(_));
        let (own, mut named): (Vec<_>, Vec<_>) = fields.drain(..).partition(own);
        if !own.is_empty() {
            named.insert(0, ("default".to_string(), Node { place, tree: Tree::Object(own) }));
        }
        *fields = named;
    }
    root
}

/// Parts of `auth` that a key of theirs switches off.
fn drop_disabled(node: &mut Node, path: &str, draft: &mut Draft) {
    const PARTS: &[&str] = &["acl", "acl_req", "auth_req", "http_auth", "password", "super_req"];
    let Tree::Object(fields) = &mut node.tree else { return };
    fields.retain_mut(|(key, part)| {
        if !PARTS.contains(&key.as_str()) {
            return true;
        }
        let path = format!("{path}.{key}");
        if !super::super::chain::is_enabled(part) {
            let (place, why) = (part.place.clone(), "it is switched off there".to_string());
            draft.missing.push(Missing { place, key: path, why });
            return false;
        }
        if let Tree::Object(inside) = &mut part.tree {
            inside.retain(|(name, _)| name != "enable");
        }
        drop_disabled(part, &path, draft);
        true
    });
}

/// A file of users and passwords alone.
pub(in crate::import) fn is_user_file(file: &str, root: &Node) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default().to_lowercase();
    let Tree::Object(fields) = &root.tree else { return false };
    let is_named = name.contains("pwd") || name.contains("passw");
    is_named && !fields.is_empty() && fields.iter().all(|(_, node)| node.text().is_some())
}

/// The same as a part of the main file.
pub(in crate::import) fn user_file(root: Node) -> Node {
    let place = root.place.clone();
    let inside = |key: &str, node: Node| Node {
        place: place.clone(),
        tree: Tree::Object(vec![(key.to_string(), node)]),
    };
    inside("auth", inside("password", root))
}

#[rustfmt::skip]
pub(in crate::import) const ROWS: &[Row] = &[
    no("system.**", "shards says how many threads there are; there is nothing else to size"),
    all("mqtt.max_packet_size", "connection.packet_bytes_max", bytes),
    no("mqtt.client_max_packet_size", "what a client takes it says itself (Maximum Packet Size)"),
    all("mqtt.max_mqueue_len", "queue.messages_max", count),
    all("mqtt.max_inflight_window", "session.inflight_max", count),
    no("mqtt.max_awaiting_rel",
        "connection.receive_maximum bounds what waits for its PUBREL, by number"),
    no("mqtt.await_rel_timeout", "what waits for its PUBREL waits as long as its session"),
    no("mqtt.retry_interval",
        "messages are sent again when their client comes back, as MQTT 5.0 demands"),
    no("mqtt.batch_resend", "what waits is sent as fast as the client takes it"),
    no("mqtt.keepalive_multiplier", "one and a half times the keep-alive, as MQTT says"),
    no("mqtt.property_size", "connection.packet_bytes_max bounds properties too"),
    all("mqtt.max_topic_alias", "connection.topic_alias_max", count),
    no("mqtt.connector.**", GATEWAYS),
    made("listeners.*.*.bind", "`[[listener]]`, its `url`", listener::bind),
    made("listeners.*.*.url", "`[[listener]]`, its `url`", listener::bind),
    made("listeners.*.*.enable", "a listener that is off is left out", listener::enabled),
    no("listeners.*.*.key_password", "keys are files without a password"),
    own("listeners.*.*.keyfile", "tls.key", alone),
    own("listeners.*.*.certfile", "tls.certificate", alone),
    own("listeners.*.*.cacertfile", "tls.client_ca", text),
    made("listeners.*.*.verify_peer", "`tls.client_certificate`", listener::verify),
    made("listeners.*.*.fail_if_no_peer_cert",
        "`tls.client_certificate`: required", listener::needs_certificate),
    made("sqlite.mounted_file_path", "`data`, a folder in it", folder),
    no("sqlite.**",
        "sessions and queues are on the disk as they come; store.* and queue.* bound them"),
    no("http_server.**", "there is no HTTP API yet; $SYS/broker/ has the counters"),
    made("log.to", "`log.target`", log_target),
    all("log.level", "log.level", log_level),
    made("log.dir", "`log.file`, the folder of it", log_folder),
    made("log.file", "`log.file`", log_file),
    no("log.rotation.**", "logrotate moves the file and sends SIGHUP, which opens it anew"),
    no("webhook.**", WEBHOOK),
    made("auth.allow_anonymous", "`allow_anonymous`", allow_anonymous),
    made("auth.no_match", "the last rule of `acl.file`", no_match),
    made("auth.deny_action", "nothing where it is ignore", deny_action),
    no("auth.cache.max_size", "rules cost nothing that would have to be kept"),
    no("auth.cache.ttl", "of servers' answers acl.http_cache_s says how long they are kept"),
    made("auth.password.*", "a line of `auth.users`, hashed", plain_user),
    made("terms", "rules of `acl.file`", super::super::emqx::terms),
    made("auth.acl.terms",
        "rules of `acl.file`", |draft, entry| { rules::terms(draft, entry.node); Ok(()) }),
    made("auth.acl.rules", "rules of `acl.file`", objects),
    made("auth.http_auth.auth_req.url", "`auth.http_url`, `auth.http_answer`", status_url),
    made("auth.http_auth.auth_req.method", "`auth.http_method`", method),
    made("auth.http_auth.auth_req.headers", "`auth.http_headers`, `auth.http_method`", headers),
    all("auth.http_auth.auth_req.params", "auth.http_params", map),
    no("auth.http_auth.super_req.**",
        "the answer about a client says who is a superuser: is_superuser"),
    made("auth.http_auth.acl_req.url", "`acl.http_url`, `acl.http_answer`", status_url),
    made("auth.http_auth.acl_req.method", "`acl.http_method`", method),
    made("auth.http_auth.acl_req.headers", "`acl.http_headers`, `acl.http_method`", headers),
    all("auth.http_auth.acl_req.params", "acl.http_params", map),
    all("auth.http_auth.cache_ttl", "auth.http_cache_s", seconds),
    all("auth.http_auth.timeout", "auth.backend_timeout_ms", seconds_in_ms),
    no("auth.http_auth.connect_timeout",
        "auth.backend_timeout_ms counts from the question to the answer"),
    all("auth.http_auth.pool_size", "auth.backend_connections_max", count),
    made("bridges.mqtt.cache.disk_cache_size",
        "`queue.messages_max` of each bridge", bridge::cache),
    no("bridges.mqtt.cache.**",
        "what goes out waits on the disk; queue.* of each bridge bounds it"),
    made("bridges.mqtt.*.enable", "a bridge that is off is left out", bridge::enabled),
    made("bridges.mqtt.*.server", "`servers`", bridge::server),
    far("bridges.mqtt.*.proto_ver", "version", bridge::version),
    far("bridges.mqtt.*.clientid", "client_id", text),
    far("bridges.mqtt.*.keepalive", "keep_alive_s", seconds),
    far("bridges.mqtt.*.backoff_max", "retry_max_s", seconds),
    made("bridges.mqtt.*.clean_start", "`session_expiry_s`: 0 where it is true", bridge::clean),
    far("bridges.mqtt.*.username", "user_name", text),
    far("bridges.mqtt.*.password", "password", text),
    no("bridges.mqtt.*.retry_interval", "messages are sent again when the connection comes back"),
    no("bridges.mqtt.*.password_encrypted", "a password stands in the file as it is"),
    no("bridges.mqtt.*.transparent", "name the topics in [[bridge.out]] and [[bridge.in]]"),
    far("bridges.mqtt.*.conn_properties.receive_maximum", "session.inflight_max", count),
    far("bridges.mqtt.*.conn_properties.session_expiry_interval", "session_expiry_s", seconds),
    no("bridges.mqtt.*.conn_properties.**",
        "a bridge says what it needs of the other broker itself"),
    far("bridges.mqtt.*.will.topic", "status_topic", text),
    no("bridges.mqtt.*.will.**", "status_topic gets 1 and, as the will, 0, both retained"),
    made("bridges.mqtt.*.ssl.enable", "TLS for `servers`", bridge::tls),
    no("bridges.mqtt.*.ssl.key_password", "keys are files without a password"),
    far("bridges.mqtt.*.ssl.keyfile", "tls.key", text),
    far("bridges.mqtt.*.ssl.certfile", "tls.certificate", text),
    far("bridges.mqtt.*.ssl.cacertfile", "tls.ca", text),
    far("bridges.mqtt.*.ssl.sni", "tls.server_name", text),
    made("bridges.mqtt.*.forwards.*.local_topic", "`filter` of a `[[bridge.out]]`", out_filter),
    made("bridges.mqtt.*.forwards.*.remote_topic", "`topic` of a `[[bridge.out]]`", out_topic),
    made("bridges.mqtt.*.forwards.*.prefix", "the beginning of `topic`", out_prefix),
    made("bridges.mqtt.*.forwards.*.suffix", "the end of `topic`", out_suffix),
    made("bridges.mqtt.*.forwards.*.qos", "`qos`", out_qos),
    made("bridges.mqtt.*.forwards.*.retain", "`retain`: clear where it is 0", out_retain),
    made("bridges.mqtt.*.subscription.*.remote_topic", "`filter` of a `[[bridge.in]]`", in_filter),
    made("bridges.mqtt.*.subscription.*.local_topic", "`topic` of a `[[bridge.in]]`", in_topic),
    made("bridges.mqtt.*.subscription.*.prefix", "the beginning of `topic`", in_prefix),
    made("bridges.mqtt.*.subscription.*.suffix", "the end of `topic`", in_suffix),
    made("bridges.mqtt.*.subscription.*.qos", "`qos`", in_qos),
    made("bridges.mqtt.*.subscription.*.retain", "`retain`: clear where it is 0", in_retain),
    no("bridges.mqtt.*.subscription.*.retain_as_published",
        "it is always so; retain = \"clear\" takes RETAIN away"),
    no("bridges.mqtt.*.subscription.*.retain_handling",
        "retained = \"once\", \"always\" or \"never\" says it"),
    no("bridges.mqtt.*.sub_properties.**", "a bridge subscribes as it needs it"),
    no("bridges.mqtt.*.hybrid_bridging",
        "name the servers over QUIC and TCP in servers, in their order"),
    made("bridges.mqtt.*.hybrid_servers", "`servers`, behind the first", servers),
    no("bridges.mqtt.*.resend_interval", "messages are sent again when the connection comes back"),
    no("bridges.mqtt.*.resend_wait", "messages are sent again when the connection comes back"),
    no("bridges.mqtt.*.cancel_timeout",
        "answer_timeout_s notices a dead line, and nothing is lost by it"),
    far("bridges.mqtt.*.connect_timeout", "connect_timeout_s", seconds),
    no("bridges.mqtt.*.retry_qos_0",
        "queue.qos0 of the bridge says whether QoS 0 waits while the other broker is away"),
    no("bridges.mqtt.*.max_parallel_processes", "nothing to size"),
    no("bridges.mqtt.*.max_send_queue_len", SEND_QUEUE),
    no("bridges.mqtt.*.max_recv_queue_len",
        "what comes in waits with the other broker while we are slow"),
    no("bridges.mqtt.*.tcp.**",
        "the system chooses the address; keep_alive_s and answer_timeout_s notice a dead line"),
    no("bridges.mqtt.*.quic_idle_timeout", QUIC),
    no("bridges.mqtt.*.quic_keepalive", QUIC),
    no("bridges.mqtt.*.quic_discon_timeout", QUIC),
    no("bridges.mqtt.*.quic_handshake_timeout", "connect_timeout_s counts it too"),
    no("bridges.mqtt.*.quic_send_idle_timeout", QUIC),
    no("bridges.mqtt.*.quic_initial_rtt_ms", QUIC),
    no("bridges.mqtt.*.quic_max_ack_delay_ms", QUIC),
    no("bridges.mqtt.*.quic_congestion_control", QUIC),
    no("bridges.mqtt.*.quic_multi_stream", "a bridge has one stream, which keeps the order"),
    no("bridges.mqtt.*.quic_qos_priority", "a bridge has one stream, which keeps the order"),
    no("bridges.mqtt.*.quic_0rtt", "a bridge says nothing in its first datagram"),
    no("bridges.mqtt.*.ssl.cert_encrypted", "certificates and keys stand in files as they are"),
    no("bridges.aws.**",
        "a bridge with servers = [\"tls://...:443\"], tls.alpn = [\"x-amzn-mqtt-ca\"], \
         tls.certificate and tls.key reaches AWS IoT Core"),
    no("bridges.nng.**",
        "[[gateway]] with protocol = \"sp\" has nanomsg's sockets: docs/gateways.md"),
    no("rules.**", RULES),
    no("preset.**", "write each as a [[preset]]: client_id, subscriptions (docs/topics.md)"),
    no("exchange_client.**", "there are no streams yet"),
    no("parquet.**", "a [[sink]] with file.format = \"parquet\" writes them (docs/sinks.md)"),
    no("blf.**", "there are no files of BLF"),
    no("gateway.mqtt.**", GATEWAYS),
    no("gateway.zmq.**", GATEWAYS),
    no("gateway.vsomeip.**", GATEWAYS),
    no("forward_rules.**", GATEWAYS),
    no("dds.**", GATEWAYS),
    no("plugin.**", "there are no plugins"),
    no("license.**", "no licence is asked for"),
];

pub(super) const WEBHOOK: &str = "write it as a [[sink]] with http.url, and with events and \
                                  filters for what it is told (docs/sinks.md)";
pub(super) const RULES: &str = "write each as a [[rule]], in the same SQL: it publishes, or names \
                                in send.to a [[sink]] or a [[bridge]] (docs/rules.md)";
const GATEWAYS: &str = "a [[gateway]] of this broker speaks ZeroMQ or nanomsg, with topics of its \
                        own (docs/gateways.md); there is none to DDS or SOME/IP";
/// It is what passes from one thread to another there.
pub(super) const SEND_QUEUE: &str = "queue.messages_max of the bridge bounds all that waits, and \
                                     session.inflight_max what is under way";
const QUIC: &str = "the library behind QUIC finds these itself; keep_alive_s and answer_timeout_s \
                    notice a dead line";

fn folder(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let folder = format!("{}/godwit-data", entry.text()?.trim_end_matches('/'));
    draft.say("data", Said::Text(folder), entry);
    Ok(())
}

/// The folder and the name of the log come in any order.
pub(super) fn log_folder(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let folder = entry.text()?.trim_end_matches('/');
    let name = draft.setting("log.file").map_or("nanomq.log", |there| there.value.text());
    let path = format!("{folder}/{name}");
    draft.say("log.file", Said::Text(path), entry);
    Ok(())
}

pub(super) fn log_file(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let name = entry.text()?;
    let folder = draft.setting("log.file").and_then(|there| there.value.text().rsplit_once('/'));
    let path = match folder {
        Some((folder, _)) if !name.contains('/') => format!("{folder}/{name}"),
        _ => name.to_string(),
    };
    draft.say("log.file", Said::Text(path), entry);
    Ok(())
}

pub(super) fn deny_action(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    match entry.text()? {
        "ignore" => {}
        "disconnect" => {
            draft.miss(entry, "what is denied is answered with 0x87, and the client stays")
        }
        _ => return Err("use ignore or disconnect".to_string()),
    }
    Ok(())
}

fn objects(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let Tree::List(nodes) = &entry.node.tree else {
        return Err("rules stand in [brackets]".to_string());
    };
    nodes.iter().for_each(|node| rules::object(draft, node, &entry.key));
    Ok(())
}

fn servers(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let texts = entry.node.texts().ok_or("use a list of servers")?;
    let all: Vec<_> = texts.iter().map(|text| (text.to_string(), entry.note())).collect();
    draft.bridge(entry).servers.extend(all);
    Ok(())
}

/// Without a word everyone may come in, and do what no rule forbids.
pub(in crate::import) fn imply(draft: &mut Draft) {
    let note = "what it is there without a word";
    let is_closed =
        draft.setting("allow_anonymous").is_some_and(|there| there.value.text() == "false");
    draft.imply_once("allow_anonymous", "true", note);
    ask_the_server(is_closed, draft);
    close_lost_rules(draft);
    let target = draft.setting("log.target").map(|there| there.value.text() == "file");
    if target == Some(true) {
        draft.imply_once("log.file", "nanomq.log", note);
    }
}

/// A server is asked about every client there, those without a name included, and only after the
/// file of users has let them pass.
fn ask_the_server(is_closed: bool, draft: &mut Draft) {
    let decides = |missing: &&Missing| {
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
            draft.missing.push(super::super::left_out(&note, why));
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
            draft.missing.push(super::super::left_out(&note, why));
        }
    }
}

/// Rules that are not there allow nothing.
pub(super) fn close_lost_rules(draft: &mut Draft) {
    if draft.lost.iter().any(|lost| lost.ends_with("acl")) {
        draft.rules.clear();
        draft.no_match = Some((false, "the file of rules is not there".to_string()));
    }
}
