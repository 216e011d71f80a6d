//! EMQX 5 and 6: emqx.conf, base.hocon and cluster.hocon.

use super::super::bridge;
use super::super::chain;
use super::super::draft::Draft;
use super::super::emqx;
use super::super::listener;
use super::super::row::{Row, Said, all, far, made, no, own};
use super::super::tables::{self, headers, map, method};
use super::super::tree::Entry;
use super::super::units::{
    alone, bytes, count, count_or_none, flag, is_true, list, milliseconds, seconds, seconds_in_ms,
    seconds_or_none, text,
};
use super::{
    durability, in_filter, in_qos, in_retain, in_topic, log_level, no_match, out_filter,
    out_retain, out_topic,
};

#[rustfmt::skip]
pub(in crate::import) const ROWS: &[Row] = &[
    all("mqtt.idle_timeout", "connect.timeout_ms", seconds_in_ms),
    all("mqtt.max_packet_size", "connection.packet_bytes_max", bytes),
    all("mqtt.max_clientid_len", "connect.client_id_bytes_max", count),
    all("mqtt.max_topic_levels", "topic.levels_max", count),
    all("mqtt.max_qos_allowed", "message.qos_max", count),
    all("mqtt.max_topic_alias", "connection.topic_alias_max", count),
    all("mqtt.retain_available", "retain.available", flag),
    all("mqtt.wildcard_subscription", "subscription.wildcard_available", flag),
    all("mqtt.shared_subscription", "shared.available", flag),
    all("mqtt.shared_subscription_strategy", "shared.strategy", strategy),
    all("mqtt.exclusive_subscription", "subscription.exclusive_available", flag),
    no("mqtt.ignore_loop_deliver", "clients of 5.0 ask for it (No Local)"),
    no("mqtt.strict_mode", "every packet is checked in full"),
    all("mqtt.response_information", "connect.response_information", text),
    all("mqtt.server_keepalive", "connect.keep_alive_s_max", count_or_none),
    no("mqtt.keepalive_multiplier", "one and a half times the keep-alive, as MQTT says"),
    no("mqtt.keepalive_check_interval", "a timer of its own fires when the time is over"),
    all("mqtt.max_subscriptions", "session.subscriptions_max", count),
    no("mqtt.upgrade_qos", "nobody gets a higher QoS than was published"),
    all("mqtt.max_inflight", "session.inflight_max", count),
    no("mqtt.retry_interval",
        "messages are sent again when their client comes back, as MQTT 5.0 demands"),
    all("mqtt.max_awaiting_rel", "connection.receive_maximum", count),
    no("mqtt.await_rel_timeout", "what waits for its PUBREL waits as long as its session"),
    all("mqtt.session_expiry_interval", "session.expiry_s_default", seconds),
    all("mqtt.max_session_expiry_interval", "session.expiry_s_max", seconds),
    all("mqtt.message_expiry_interval", "message.expiry_s_max", seconds_or_none),
    all("mqtt.max_mqueue_len", "queue.messages_max", count),
    no("mqtt.mqueue_priorities", "a queue keeps its order"),
    no("mqtt.mqueue_default_priority", "a queue keeps its order"),
    all("mqtt.mqueue_store_qos0", "queue.qos0", flag),
    made("mqtt.use_username_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing", emqx::own_client_id),
    all("mqtt.peer_cert_as_username", "auth.certificate", certificate),
    made("mqtt.peer_cert_as_clientid",
        "`auth.certificate_client_id`, where there is an `auth.certificate` as well",
        emqx::certificate_id),
    no("mqtt.client_attrs_init", "clients have no attributes; groups are nearest"),
    made("mqtt.clientid_override",
        "clients choose their ids: rules that go by the id allow nothing", emqx::own_client_id),
    made("listeners.*.*.enable", "a listener that is off is left out", listener::enabled),
    made("listeners.*.*.enabled", "a listener that is off is left out", listener::enabled),
    made("listeners.*.*.bind", "`[[listener]]`, its `url`", listener::bind),
    no("listeners.*.*.acceptors",
        "one thread accepts, as fast as limits.connections_per_s lets it"),
    own("listeners.*.*.max_connections", "limits.connections_max", count_or_none),
    own("listeners.*.*.max_conn_rate", "limits.connections_per_s", rate),
    own("listeners.*.*.messages_rate", "limits.messages_per_s", rate),
    own("listeners.*.*.bytes_rate", "limits.bytes_per_s", rate),
    no("listeners.*.*.max_conn_burst", "a second's worth may come at once"),
    no("listeners.*.*.messages_burst", "a second's worth may come at once"),
    no("listeners.*.*.bytes_burst", "a second's worth may come at once"),
    made("listeners.*.*.mountpoint",
        "`namespace`; without a slash at its end no listener is written", emqx::mount),
    no("listeners.*.*.zone", "what a listener has for itself stands in its [[listener]]"),
    made("listeners.*.*.enable_authn",
        "`allow_anonymous` of the `[[listener]]`", chain::enable_authn),
    made("listeners.*.*.authentication",
        "`auth.*` of the `[[listener]]`; it is left out where a part has no equal",
        chain::listener_chain),
    made("listeners.*.*.access_rules",
        "a listener that lets in some addresses only is left out", emqx::access_rules),
    own("listeners.*.*.proxy_protocol", "proxy.protocol", proxy),
    no("listeners.*.*.proxy_protocol_timeout",
        "connect.timeout_ms counts from the first byte to the end of CONNECT"),
    no("listeners.*.*.tcp_options.**",
        "connection.write_bytes_max bounds what is unsent; sockets have no options"),
    no("listeners.*.*.tcp_backend", "there is one way to drive sockets"),
    made("listeners.*.*.websocket.mqtt_path", "the path of the `url`", listener::web_path),
    own("listeners.*.*.websocket.check_origins", "ws.origins", list),
    no("listeners.*.*.websocket.**", "WebSockets are as RFC 6455 has them, without extensions"),
    own("listeners.*.*.ssl_options.cacertfile", "tls.client_ca", text),
    own("listeners.*.*.ssl_options.certfile", "tls.certificate", alone),
    own("listeners.*.*.ssl_options.keyfile", "tls.key", alone),
    made("listeners.*.*.ssl_options.verify", "`tls.client_certificate`", listener::verify),
    made("listeners.*.*.ssl_options.fail_if_no_peer_cert",
        "`tls.client_certificate`: required", listener::needs_certificate),
    own("listeners.*.*.ssl_options.versions", "tls.version_min", versions),
    made("listeners.*.*.ssl_options.enable_crl_check",
        "a listener with it that verifies certificates is left out: see `tls.crl`",
        emqx::verification),
    made("listeners.*.*.ssl_options.verify_peer_ext_key_usage",
        "a listener with it that verifies certificates is left out", emqx::verification),
    no("listeners.*.*.ssl_options.password", "keys are files without a password"),
    no("listeners.*.*.ssl_options.**",
        "only suites with forward secrecy are spoken; nothing of it has to be set"),
    own("listeners.*.*.idle_timeout", "quic.idle_timeout_ms", seconds_in_ms),
    own("listeners.*.*.idle_timeout_ms", "quic.idle_timeout_ms", milliseconds),
    own("listeners.*.*.peer_bidi_stream_count", "quic.streams_max", count),
    no("listeners.*.*.**", "the library behind QUIC finds it itself"),
    made("terms", "its rules are those of `acl.file`", emqx::terms),
    no("authentication.built_in_database.**", USERS),
    no("authentication.scram.**",
        "users of SCRAM are in EMQX's database, which is not read: godwit passwd --scram FILE \
         USER writes them anew"),
    all("authentication.http.url", "auth.http_url", server_url),
    made("authentication.http.method", "`auth.http_method`", method),
    made("authentication.http.headers", "`auth.http_headers`, `auth.http_method`", headers),
    all("authentication.http.body", "auth.http_params", map),
    all("authentication.http.request_timeout", "auth.backend_timeout_ms", seconds_in_ms),
    all("authentication.http.pool_size", "auth.backend_connections_max", count),
    no("authentication.http.**",
        "a server that is asked by HTTP has url, method, headers, body and a time"),
    all("authentication.jwt.endpoint", "auth.jwt_keys", text),
    made("authentication.jwt.public_key",
        "`auth.jwt_keys`; a key that stands there itself goes to a file", emqx::token_key),
    made("authentication.jwt.secret",
        "`auth.jwt_keys`, in a file of its own: 32 bytes at least", emqx::token_key),
    made("authentication.jwt.secret_base64_encoded",
        "how the secret is read", |_, _| Ok(())),
    all("authentication.jwt.refresh_interval", "auth.jwt_refresh_s", seconds),
    all("authentication.jwt.from", "auth.jwt_from", token_from),
    all("authentication.jwt.acl_claim_name", "auth.jwt_acl_claim", text),
    made("authentication.jwt.verify_claims",
        "`auth.jwt_issuer`, `auth.jwt_audience`", emqx::claims),
    no("authentication.jwt.**", "a key says of what kind it is, and exp and nbf always count"),
    no("authentication.ldap.**", NO_BACKEND),
    no("authentication.mongodb.**", NO_BACKEND),
    no("authentication.kerberos.**", NO_BACKEND),
    no("authentication.cinfo.**",
        "rules of acl.file say what a client may do; bans.file says who may not come in"),
    made("authentication.*.server",
        "the host of `auth.postgres_url`, `auth.mysql_url`, `auth.redis_url`", tables::server),
    made("authentication.*.database", "the database of that URL", tables::store),
    made("authentication.*.username", "the user of that URL", tables::user),
    made("authentication.*.password", "the password of that URL", tables::password),
    made("authentication.*.query", "`auth.postgres_user`, `auth.mysql_user`", tables::question),
    made("authentication.*.cmd", "`auth.redis_user`", tables::question),
    made("authentication.*.password_hash_algorithm.name", "`auth.password_form`", tables::form),
    made("authentication.*.password_hash_algorithm.mac_fun",
        "`auth.password_form`", tables::digest),
    all("authentication.*.password_hash_algorithm.iterations", "auth.password_rounds", count),
    all("authentication.*.password_hash_algorithm.salt_position",
        "auth.password_salt", tables::salt),
    no("authentication.*.password_hash_algorithm.**", "a hash says what else there is to know"),
    all("authentication.*.pool_size", "auth.backend_connections_max", count),
    made("authentication.*.ssl.enable",
        "`auth.postgres_tls`, `auth.mysql_tls`, `rediss://`", tables::tls),
    all("authentication.*.ssl.cacertfile", "auth.backend_ca", text),
    no("authentication.*.**",
        "a server has one address, a user and a question, and nothing else to set"),
    made("authorization.no_match", "the last rule of `acl.file`", no_match),
    made("authorization.deny_action", "nothing where it is ignore", super::nanomq::deny_action),
    no("authorization.cache.ttl",
        "rules cost nothing; acl.http_cache_s keeps a server's answers for 60 s"),
    no("authorization.node_cache.**", "rules cost nothing that would have to be kept"),
    no("authentication_settings.**", "auth.http_cache_s keeps a server's answers"),
    no("authorization.cache.**", "rules cost nothing that would have to be kept"),
    made("authorization.sources.file.path", "its rules are those of `acl.file`", emqx::rules_file),
    made("authorization.sources.file.rules", "its rules are those of `acl.file`", emqx::rules_text),
    all("authorization.sources.http.url", "acl.http_url", server_url),
    made("authorization.sources.http.method", "`acl.http_method`", method),
    made("authorization.sources.http.headers", "`acl.http_headers`, `acl.http_method`", headers),
    all("authorization.sources.http.body", "acl.http_params", map),
    no("authorization.sources.http.**",
        "a server that is asked by HTTP has url, method, headers and body; \
         auth.backend_timeout_ms bounds it"),
    made("authorization.sources.postgresql.query", "`auth.postgres_rules`", tables::question),
    made("authorization.sources.mysql.query", "`auth.mysql_rules`", tables::question),
    made("authorization.sources.redis.cmd", "`auth.redis_rules`", tables::question),
    no("authorization.sources.built_in_database.**",
        "its rules are in EMQX's database, which is not read: write them into acl.file"),
    no("authorization.sources.*.**",
        "rules come from the server that knows the users, from acl.file and from acl.http_url"),
    all("retainer.enable", "retain.available", flag),
    no("retainer.msg_expiry_interval",
        "retained messages end with their own Message Expiry Interval; message.expiry_s_max \
         bounds it for all messages"),
    no("retainer.max_payload_size", "connection.packet_bytes_max bounds every packet"),
    all("retainer.backend.max_retained_messages", "retain.messages_max", count_or_none),
    no("retainer.backend.storage_type", "durability and store.topics say what is kept how well"),
    no("retainer.**", "a new subscription is fed at the speed at which its client reads"),
    all("sys_topics.sys_msg_interval", "sys.interval_s", seconds),
    no("sys_topics.**",
        "$SYS/broker/ has the names that mosquitto has; docs/reference.md lists them"),
    made("durable_sessions.enable", "`durability`: sync or memory", durability),
    no("durable_sessions.**", "the store has nothing to size but store.*"),
    no("durable_storage.**", "the store has nothing to size but store.*"),
    made("flapping_detect.enable", "`flapping.count_max` is off where it is false", flapping),
    all("flapping_detect.max_count", "flapping.count_max", count),
    all("flapping_detect.window_time", "flapping.window_s", seconds),
    all("flapping_detect.ban_time", "flapping.ban_s", seconds),
    no("force_shutdown.**",
        "queue.*, connection.write_bytes_max and memory.bytes_max bound what a client can cost"),
    no("force_gc.**", "there is no garbage to collect"),
    made("log.console.enable", "`log.target`: stderr", emqx::log_console),
    all("log.console.level", "log.level", log_level),
    all("log.console.formatter", "log.format", format),
    made("log.file.enable", "`log.target`: file", emqx::log_file),
    all("log.file.level", "log.level", log_level),
    all("log.file.formatter", "log.format", format),
    all("log.file.path", "log.file", emqx::log_path),
    made("log.file.*.enable", "`log.target`: file", emqx::log_file),
    all("log.file.*.level", "log.level", log_level),
    all("log.file.*.formatter", "log.format", format),
    all("log.file.*.path", "log.file", emqx::log_path),
    no("log.**",
        "logrotate moves the file and sends SIGHUP, which opens it anew; times are RFC 3339's"),
    no("psk_authentication.enable", "tls.psk_file of a listener switches it on"),
    no("psk_authentication.init_file", "give a [[listener]] of tls tls.psk_file = FILE"),
    no("psk_authentication.**", "a line of tls.psk_file is IDENTITY:KEY"),
    made("bridges.mqtt.*.enable", "a bridge that is off is left out", bridge::enabled),
    made("bridges.mqtt.*.server", "`servers`", bridge::server),
    far("bridges.mqtt.*.proto_ver", "version", bridge::version),
    far("bridges.mqtt.*.clientid_prefix", "client_id", text),
    far("bridges.mqtt.*.username", "user_name", text),
    far("bridges.mqtt.*.password", "password", text),
    far("bridges.mqtt.*.keepalive", "keep_alive_s", seconds),
    made("bridges.mqtt.*.clean_start", "`session_expiry_s`: 0 where it is true", bridge::clean),
    far("bridges.mqtt.*.max_inflight", "session.inflight_max", count),
    made("bridges.mqtt.*.ssl.enable", "TLS for `servers`", bridge::tls),
    far("bridges.mqtt.*.ssl.cacertfile", "tls.ca", text),
    far("bridges.mqtt.*.ssl.certfile", "tls.certificate", text),
    far("bridges.mqtt.*.ssl.keyfile", "tls.key", text),
    far("bridges.mqtt.*.ssl.server_name_indication", "tls.server_name", text),
    made("bridges.mqtt.*.egress.local.topic", "`filter` of a `[[bridge.out]]`", out_filter),
    made("bridges.mqtt.*.egress.remote.topic", "`topic` of it", out_topic),
    made("bridges.mqtt.*.egress.remote.qos", "`qos` of it", emqx::out_qos),
    made("bridges.mqtt.*.egress.remote.retain",
        "`retain` of it: clear where it is false", out_retain),
    no("bridges.mqtt.*.egress.**", "a bridge carries messages as they are"),
    made("bridges.mqtt.*.ingress.remote.topic", "`filter` of a `[[bridge.in]]`", in_filter),
    made("bridges.mqtt.*.ingress.remote.qos", "`qos` of it", in_qos),
    made("bridges.mqtt.*.ingress.local.topic", "`topic` of it", in_topic),
    made("bridges.mqtt.*.ingress.local.retain",
        "`retain` of it: clear where it is false", in_retain),
    no("bridges.mqtt.*.ingress.**", "a bridge carries messages as they are"),
    no("bridges.mqtt.*.**", "a bridge has one connection and the queue of its session, queue.*"),
    no("bridges.*.**", SINKS),
    made("connectors.mqtt.*.enable", "a bridge that is off is left out", bridge::enabled),
    made("connectors.mqtt.*.server", "`servers`", bridge::server),
    far("connectors.mqtt.*.proto_ver", "version", bridge::version),
    far("connectors.mqtt.*.clientid_prefix", "client_id", text),
    far("connectors.mqtt.*.username", "user_name", text),
    far("connectors.mqtt.*.password", "password", text),
    far("connectors.mqtt.*.keepalive", "keep_alive_s", seconds),
    far("connectors.mqtt.*.connect_timeout", "connect_timeout_s", seconds),
    made("connectors.mqtt.*.clean_start", "`session_expiry_s`: 0 where it is true", bridge::clean),
    far("connectors.mqtt.*.max_inflight", "session.inflight_max", count),
    made("connectors.mqtt.*.ssl.enable", "TLS for `servers`", bridge::tls),
    far("connectors.mqtt.*.ssl.cacertfile", "tls.ca", text),
    far("connectors.mqtt.*.ssl.certfile", "tls.certificate", text),
    far("connectors.mqtt.*.ssl.keyfile", "tls.key", text),
    far("connectors.mqtt.*.ssl.server_name_indication", "tls.server_name", text),
    no("connectors.mqtt.*.**", "a bridge has one connection and the queue of its session, queue.*"),
    no("connectors.*.**", SINKS),
    made("actions.mqtt.*",
        "`[[bridge.out]]` of its connector, by the rules that name it", emqx::action),
    no("actions.*.**", SINKS),
    made("sources.mqtt.*",
        "`[[bridge.in]]` of its connector, by the rules that name it", emqx::source),
    no("sources.*.**",
        "messages come in from MQTT ([[bridge]]), ZeroMQ and nanomsg ([[gateway]]) only"),
    made("rule_engine.rules.*", "a rule that only carries messages over a bridge", emqx::rule),
    no("rule_engine.**", "write each rule as a [[rule]]: the SQL is the same (docs/rules.md)"),
    no("node.**", "the node is a process; data says where it keeps things"),
    no("rpc.**", CLUSTER),
    no("cluster.**", CLUSTER),
    no("broker.**", "shared.strategy chooses members; there is nothing else to set"),
    no("dashboard.**", "there is no dashboard yet"),
    no("api_key.**", "there is no HTTP API yet"),
    no("prometheus.**", "there is no exporter yet; $SYS/broker/ has the counters"),
    no("opentelemetry.**", "there is no exporter yet; $SYS/broker/ has the counters"),
    no("telemetry.**", "nothing is told to anybody"),
    no("delayed.**",
        "$delayed/ is always there, bounded by delayed.messages_max and delayed.bytes_max"),
    no("rewrite.**", "write each as a [[rewrite]]: action, source, regex, dest (docs/topics.md)"),
    no("auto_subscribe.**",
        "write each as an [[auto_subscribe]]: topic, qos and so on (docs/topics.md)"),
    no("topic_metrics.**", "counters are by shard and reason: $SYS/broker/"),
    no("slow_subs.**", "a slow subscriber's drops are counted by session: logs of module drop"),
    made("exhook.servers", "unresolved: such a server may refuse clients", emqx::hooks),
    no("exhook.**", "there are no hooks; auth.http_url and acl.http_url ask a server"),
    no("gateway.**",
        "a [[gateway]] speaks ZeroMQ or nanomsg (docs/gateways.md), and there is no other"),
    made("plugins.states", "unresolved: a plugin may refuse clients", emqx::hooks),
    no("plugins.**", "there are no plugins"),
    no("alarm.**", "what is wrong is logged"),
    no("sysmon.**", "the system's own tools watch the process"),
    no("conn_congestion.**", "a slow reader's messages wait in its queue; drops are logged"),
    no("stats.**", "counters are always there"),
    no("overload_protection.**", "memory.bytes_max does it, in three steps"),
    no("limiter.**", "limits.* of all or of a [[listener]]"),
    made("zones.*.mqtt.use_username_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing", emqx::own_client_id),
    made("zones.*.mqtt.clientid_override",
        "clients choose their ids: rules that go by the id allow nothing", emqx::own_client_id),
    made("zones.*.mqtt.peer_cert_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing", emqx::zone_certificate),
    made("zones.*.mqtt.peer_cert_as_username",
        "unresolved: `auth.certificate` of the `[[listener]]`", emqx::zone_certificate),
    no("zones.**", "what a listener or a group has for itself stands in [[listener]] or [[group]]"),
    no("license.**", "no licence is asked for"),
    no("file_transfer.**", "there is no transfer of files"),
    no("schema_registry.**", "payloads are not looked at, but for message.check_payload_format"),
    no("schema_validation.**", "payloads are not looked at, but for message.check_payload_format"),
    no("message_transformation.**",
        "payloads are not looked at, but for message.check_payload_format"),
    no("crl_cache.**", "tls.crl names lists that are files"),
    made("mt.allow_only_managed_namespaces",
        "unresolved where it is true", emqx::managed_tenants),
    no("mt.**", "namespace mounts the clients of a listener or a group"),
    no("trace.**", "trace.* logs packets by client, address or topic"),
];

const USERS: &str = "users are in EMQX's database, which is not read: godwit passwd FILE USER \
                     writes them anew, and auth.users names the file";
const NO_BACKEND: &str = "users come from files, certificates, tokens, HTTP, PostgreSQL, MySQL and \
                          Redis; a server of one's own behind auth.http_url asks any other";
const SINKS: &str = "write each as a [[sink]], with filters of its own or named by send.to of a \
                     [[rule]]; which kinds there are, docs/sinks.md says";
const CLUSTER: &str = "there is one node";

fn strategy(entry: &Entry<'_>) -> Result<Said, String> {
    Ok(match entry.text()? {
        "round_robin" | "round_robin_per_group" => Said::Text("round_robin".into()),
        "hash_clientid" => Said::Text("hash_client".into()),
        "local" => Said::Nothing("there is one node: every member is local"),
        word @ ("random" | "sticky" | "hash_topic") => Said::Text(word.into()),
        _ => return Err("no such strategy, use one like round_robin".to_string()),
    })
}

pub(in crate::import) fn certificate(entry: &Entry<'_>) -> Result<Said, String> {
    Ok(match entry.text()? {
        "disabled" => Said::Text("off".into()),
        "cn" => Said::Text("common_name".into()),
        "dn" => Said::Text("subject".into()),
        "crt" | "pem" | "md5" => {
            Said::Nothing("common name, subject and alternative name may be it")
        }
        _ => return Err("use disabled, cn or dn".to_string()),
    })
}

/// `1000/s`, `60000/m`: what a second is of it.
pub(super) fn rate(entry: &Entry<'_>) -> Result<Said, String> {
    let text = entry.text()?;
    if ["infinity", "0"].contains(&text) {
        return Ok(Said::Endless);
    }
    let wrong = || "not a rate, use one like 1000/s".to_string();
    let (amount, unit) = text.split_once('/').unwrap_or((text, "s"));
    let digits = unit.bytes().take_while(u8::is_ascii_digit).count();
    let many: u64 = if digits == 0 { 1 } else { unit[..digits].parse().map_err(|_| wrong())? };
    let seconds = match &unit[digits..] {
        "s" => many,
        "m" => many.saturating_mul(60),
        "h" => many.saturating_mul(3600),
        "d" => many.saturating_mul(86_400),
        _ => return Err(wrong()),
    };
    let node = super::super::tree::Node::text_at(&entry.node.place, amount.trim());
    let amount = Entry { key: entry.key.clone(), names: Vec::new(), node: &node };
    let Said::Text(amount) = bytes(&amount).map_err(|_| wrong())? else { return Ok(Said::Endless) };
    let amount: u64 = amount.parse().map_err(|_| wrong())?;
    let a_second = amount.checked_div(seconds).ok_or_else(wrong)?.max(1);
    Ok(Said::Text(a_second.to_string()))
}

pub(super) fn proxy(entry: &Entry<'_>) -> Result<Said, String> {
    let word = if is_true(entry.text()?)? { "auto" } else { "off" };
    Ok(Said::Text(word.into()))
}

pub(super) fn versions(entry: &Entry<'_>) -> Result<Said, String> {
    let texts = entry.node.texts().ok_or("use a list like [\"tlsv1.3\", \"tlsv1.2\"]")?;
    match texts.contains(&"tlsv1.2") {
        true => Ok(Said::Text("1.2".into())),
        false if texts.contains(&"tlsv1.3") => Ok(Said::Text("1.3".into())),
        false => Ok(Said::Nothing("1.2 and 1.3 are spoken")),
    }
}

/// Placeholders in a URL are in its path and query.
fn server_url(entry: &Entry<'_>) -> Result<Said, String> {
    Ok(Said::Text(tables::ours(entry.text()?)))
}

fn token_from(entry: &Entry<'_>) -> Result<Said, String> {
    match entry.text()? {
        "password" => Ok(Said::Text("password".into())),
        "username" => Ok(Said::Text("user_name".into())),
        _ => Err("use password or username".to_string()),
    }
}

fn format(entry: &Entry<'_>) -> Result<Said, String> {
    match entry.text()? {
        word @ ("text" | "json") => Ok(Said::Text(word.into())),
        _ => Err("use text or json".to_string()),
    }
}

fn flapping(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.off.push("flapping");
    }
    Ok(())
}
