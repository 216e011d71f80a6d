//! EMQX 5 and 6: emqx.conf, base.hocon and cluster.hocon.

mod listeners;
mod values;

use super::super::auth_databases::{self, read_headers, read_map, read_method};
use super::super::row::{
    ImportRow, bridge_row, custom_row, global_row, remainder_row, restriction_row, unsupported_row,
};
use super::super::units::{
    count_or_none, read_bytes, read_count, read_flag, read_text, seconds, seconds_in_ms,
    seconds_or_none,
};
use super::super::{bridge, emqx, emqx_access, flapping};
use super::{
    durability, in_filter, in_qos, in_retain, in_topic, log_level, no_match, out_filter,
    out_retain, out_topic,
};

pub(crate) use listeners::LISTENERS;
pub(crate) use values::{
    certificate, format, proxy, rate, server_url, strategy, token_from, versions,
};

pub(crate) const ROWS: &[ImportRow] = &[
    global_row("mqtt.idle_timeout", "connect.timeout_ms", seconds_in_ms),
    global_row("mqtt.max_packet_size", "connection.packet_bytes_max", read_bytes),
    global_row("mqtt.max_clientid_len", "connect.client_id_bytes_max", read_count),
    global_row("mqtt.max_topic_levels", "topic.levels_max", read_count),
    global_row("mqtt.max_qos_allowed", "message.qos_max", read_count),
    global_row("mqtt.max_topic_alias", "connection.topic_alias_max", read_count),
    custom_row(
        "mqtt.retain_available",
        "`retain.available`, unless the retainer is off",
        emqx::retain_right,
    ),
    global_row("mqtt.wildcard_subscription", "subscription.wildcard_available", read_flag),
    global_row("mqtt.shared_subscription", "shared.available", read_flag),
    global_row("mqtt.shared_subscription_strategy", "shared.strategy", strategy),
    global_row("mqtt.exclusive_subscription", "subscription.exclusive_available", read_flag),
    unsupported_row("mqtt.ignore_loop_deliver", "clients of 5.0 ask for it (No Local)"),
    unsupported_row("mqtt.strict_mode", "every packet is checked in full"),
    global_row("mqtt.response_information", "connect.response_information", read_text),
    global_row("mqtt.server_keepalive", "connect.keep_alive_s_max", count_or_none),
    unsupported_row(
        "mqtt.keepalive_multiplier",
        "one and a half times the keep-alive, as MQTT says",
    ),
    unsupported_row(
        "mqtt.keepalive_check_interval",
        "a timer of its own fires when the time is over",
    ),
    global_row("mqtt.max_subscriptions", "session.subscriptions_max", read_count),
    unsupported_row("mqtt.upgrade_qos", "nobody gets a higher QoS than was published"),
    global_row("mqtt.max_inflight", "session.inflight_max", read_count),
    unsupported_row(
        "mqtt.retry_interval",
        "messages are sent again when their client comes back, as MQTT 5.0 demands",
    ),
    global_row("mqtt.max_awaiting_rel", "connection.receive_maximum", read_count),
    unsupported_row(
        "mqtt.await_rel_timeout",
        "what waits for its PUBREL waits as long as its session",
    ),
    global_row("mqtt.session_expiry_interval", "session.expiry_s_default", seconds),
    global_row("mqtt.max_session_expiry_interval", "session.expiry_s_max", seconds),
    global_row("mqtt.message_expiry_interval", "message.expiry_s_max", seconds_or_none),
    global_row("mqtt.max_mqueue_len", "queue.messages_max", read_count),
    unsupported_row("mqtt.mqueue_priorities", "a queue keeps its order"),
    unsupported_row("mqtt.mqueue_default_priority", "a queue keeps its order"),
    global_row("mqtt.mqueue_store_qos0", "queue.qos0", read_flag),
    custom_row(
        "mqtt.use_username_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing",
        emqx::own_client_id,
    ),
    custom_row("mqtt.peer_cert_as_username", "`auth.certificate`", emqx_access::certificate_name),
    custom_row(
        "mqtt.peer_cert_as_clientid",
        "`auth.certificate_client_id`, where there is an `auth.certificate` as well",
        emqx::certificate_id,
    ),
    unsupported_row("mqtt.client_attrs_init", "clients have no attributes; groups are nearest"),
    custom_row(
        "mqtt.clientid_override",
        "clients choose their ids: rules that go by the id allow nothing",
        emqx::own_client_id,
    ),
    restriction_row(
        "mqtt.namespace_as_mountpoint",
        "clients see the topics of their namespace alone there: give the [[listener]] a namespace",
    ),
    restriction_row(
        "mqtt.require_trusted_attributes",
        "clients without attributes that somebody vouches for are refused there",
    ),
    remainder_row("mqtt.**", &[], "it is not known here"),
    custom_row("terms", "its rules are those of `acl.file`", emqx::read_terms),
    unsupported_row("authentication.built_in_database.**", USERS),
    unsupported_row(
        "authentication.scram.**",
        "users of SCRAM are in EMQX's database, which is not read: godwit passwd --scram FILE \
         USER writes them anew",
    ),
    global_row("authentication.http.url", "auth.http_url", server_url),
    custom_row("authentication.http.method", "`auth.http_method`", read_method),
    custom_row(
        "authentication.http.headers",
        "`auth.http_headers`, `auth.http_method`",
        read_headers,
    ),
    global_row("authentication.http.body", "auth.http_params", read_map),
    global_row("authentication.http.request_timeout", "auth.backend_timeout_ms", seconds_in_ms),
    global_row("authentication.http.pool_size", "auth.backend_connections_max", read_count),
    custom_row("authentication.http.ssl.cacertfile", "`auth.backend_ca`", emqx_access::backend_ca),
    unsupported_row(
        "authentication.http.**",
        "a server that is asked by HTTP has url, method, headers, body and a time",
    ),
    global_row("authentication.jwt.endpoint", "auth.jwt_keys", read_text),
    custom_row(
        "authentication.jwt.public_key",
        "`auth.jwt_keys`; a key that stands there itself goes to a file",
        emqx::token_key,
    ),
    custom_row(
        "authentication.jwt.secret",
        "`auth.jwt_keys`, in a file of its own: 32 bytes at least",
        emqx::token_key,
    ),
    custom_row("authentication.jwt.secret_base64_encoded", "how the secret is read", |_, _| Ok(())),
    global_row("authentication.jwt.refresh_interval", "auth.jwt_refresh_s", seconds),
    global_row("authentication.jwt.from", "auth.jwt_from", token_from),
    global_row("authentication.jwt.acl_claim_name", "auth.jwt_acl_claim", read_text),
    custom_row(
        "authentication.jwt.verify_claims",
        "`auth.jwt_issuer`, `auth.jwt_audience`, claims of names, `auth.jwt_match`",
        emqx::read_claims,
    ),
    custom_row("authentication.jwt.headers", "nothing", emqx_access::note_headers),
    custom_row("authentication.redis.redis_type", "single alone", emqx_access::redis_type),
    custom_row("authentication.jwt.ssl.cacertfile", "`auth.backend_ca`", emqx_access::backend_ca),
    unsupported_row(
        "authentication.jwt.**",
        "a key says of what kind it is, and exp and nbf always count",
    ),
    unsupported_row("authentication.ldap.**", NO_BACKEND),
    unsupported_row("authentication.mongodb.**", NO_BACKEND),
    unsupported_row("authentication.kerberos.**", NO_BACKEND),
    unsupported_row(
        "authentication.cinfo.**",
        "rules of acl.file say what a client may do; bans.file says who may not come in",
    ),
    custom_row(
        "authentication.*.server",
        "the host of `auth.postgres_url`, `auth.mysql_url`, `auth.redis_url`",
        auth_databases::read_server,
    ),
    custom_row(
        "authentication.*.database",
        "the database of that URL",
        auth_databases::read_database,
    ),
    custom_row("authentication.*.username", "the user of that URL", auth_databases::read_user),
    custom_row(
        "authentication.*.password",
        "the password of that URL",
        auth_databases::read_password,
    ),
    custom_row(
        "authentication.*.query",
        "`auth.postgres_user`, `auth.mysql_user`",
        auth_databases::read_query,
    ),
    custom_row("authentication.*.cmd", "`auth.redis_user`", auth_databases::read_query),
    custom_row(
        "authentication.*.password_hash_algorithm.name",
        "`auth.password_form`",
        auth_databases::read_password_format,
    ),
    custom_row(
        "authentication.*.password_hash_algorithm.mac_fun",
        "`auth.password_form`",
        auth_databases::read_digest,
    ),
    global_row(
        "authentication.*.password_hash_algorithm.iterations",
        "auth.password_rounds",
        read_count,
    ),
    global_row(
        "authentication.*.password_hash_algorithm.salt_position",
        "auth.password_salt",
        auth_databases::read_salt,
    ),
    unsupported_row(
        "authentication.*.password_hash_algorithm.**",
        "a hash says what else there is to know",
    ),
    global_row("authentication.*.pool_size", "auth.backend_connections_max", read_count),
    custom_row(
        "authentication.*.ssl.enable",
        "`auth.postgres_tls`, `auth.mysql_tls`, `rediss://`",
        auth_databases::read_tls,
    ),
    custom_row("authentication.*.ssl.cacertfile", "`auth.backend_ca`", emqx_access::backend_ca),
    unsupported_row(
        "authentication.*.**",
        "a server has one address, a user and a question, and nothing else to set",
    ),
    custom_row("authorization.no_match", "the last rule of `acl.file`", no_match),
    custom_row(
        "authorization.deny_action",
        "nothing where it is ignore",
        super::nanomq::deny_action,
    ),
    custom_row(
        "authorization.cache.enable",
        "`acl.http_cache_s`: off where it is false",
        emqx_access::authz_cache,
    ),
    custom_row("authorization.cache.ttl", "`acl.http_cache_s`", emqx_access::authz_cache),
    custom_row(
        "authorization.cache.excludes",
        "`acl.http_cache_s`: off where it names any topic",
        emqx_access::authz_cache,
    ),
    unsupported_row("authorization.node_cache.**", "rules cost nothing that would have to be kept"),
    unsupported_row("authentication_settings.**", "auth.http_cache_s keeps a server's answers"),
    unsupported_row("authorization.cache.**", "rules cost nothing that would have to be kept"),
    custom_row(
        "authorization.sources.file.path",
        "its rules are those of `acl.file`",
        emqx::read_rules_file,
    ),
    custom_row(
        "authorization.sources.file.rules",
        "its rules are those of `acl.file`",
        emqx::read_rules_text,
    ),
    global_row("authorization.sources.http.url", "acl.http_url", server_url),
    custom_row("authorization.sources.http.method", "`acl.http_method`", read_method),
    custom_row(
        "authorization.sources.http.headers",
        "`acl.http_headers`, `acl.http_method`",
        read_headers,
    ),
    global_row("authorization.sources.http.body", "acl.http_params", read_map),
    custom_row(
        "authorization.sources.http.ssl.cacertfile",
        "`auth.backend_ca`",
        emqx_access::backend_ca,
    ),
    unsupported_row(
        "authorization.sources.http.**",
        "a server that is asked by HTTP has url, method, headers and body; \
         auth.backend_timeout_ms bounds it",
    ),
    custom_row(
        "authorization.sources.postgresql.query",
        "`auth.postgres_rules`",
        auth_databases::read_query,
    ),
    custom_row(
        "authorization.sources.mysql.query",
        "`auth.mysql_rules`",
        auth_databases::read_query,
    ),
    custom_row("authorization.sources.redis.cmd", "`auth.redis_rules`", auth_databases::read_query),
    unsupported_row(
        "authorization.sources.built_in_database.**",
        "its rules are in EMQX's database, which is not read: write them into acl.file",
    ),
    unsupported_row(
        "authorization.sources.*.**",
        "rules come from the server that knows the users, from acl.file and from acl.http_url",
    ),
    custom_row("banned.**", "unresolved: `bans.file` says who is turned away", emqx::banned),
    custom_row(
        "retainer.enable",
        "`retain.available`, unless the messages may not be retained",
        emqx::retain_right,
    ),
    unsupported_row(
        "retainer.msg_expiry_interval",
        "retained messages end with their own Message Expiry Interval; message.expiry_s_max \
         bounds it for all messages",
    ),
    unsupported_row("retainer.max_payload_size", "connection.packet_bytes_max bounds every packet"),
    global_row("retainer.backend.max_retained_messages", "retain.messages_max", count_or_none),
    unsupported_row(
        "retainer.backend.storage_type",
        "durability and store.topics say what is kept how well",
    ),
    unsupported_row(
        "retainer.**",
        "a new subscription is fed at the speed at which its client reads",
    ),
    global_row("sys_topics.sys_msg_interval", "sys.interval_s", seconds),
    unsupported_row(
        "sys_topics.**",
        "$SYS/broker/ has the names that mosquitto has; docs/reference.md lists them",
    ),
    custom_row("durable_sessions.enable", "`durability`: sync or memory", durability),
    unsupported_row("durable_sessions.**", "the store has nothing to size but store.*"),
    unsupported_row("durable_storage.**", "the store has nothing to size but store.*"),
    custom_row(
        "flapping_detect.enable",
        "`flapping.count_max` is off where it is false",
        |draft, entry| flapping::read_switch(draft, entry, flapping::USUAL_COUNT_5),
    ),
    global_row("flapping_detect.max_count", "flapping.count_max", read_count),
    global_row("flapping_detect.window_time", "flapping.window_s", seconds),
    global_row("flapping_detect.ban_time", "flapping.ban_s", seconds),
    unsupported_row(
        "force_shutdown.**",
        "queue.*, connection.write_bytes_max and memory.bytes_max bound what a client can cost",
    ),
    unsupported_row("force_gc.**", "nothing is to be collected"),
    custom_row("log.console.enable", "`log.target`: stderr", emqx::log_console),
    global_row("log.console.level", "log.level", log_level),
    global_row("log.console.formatter", "log.format", format),
    custom_row("log.file.enable", "`log.target`: file", emqx::log_file),
    global_row("log.file.level", "log.level", log_level),
    global_row("log.file.formatter", "log.format", format),
    global_row("log.file.path", "log.file", emqx::log_path),
    custom_row("log.file.*.enable", "`log.target`: file", emqx::log_file),
    global_row("log.file.*.level", "log.level", log_level),
    global_row("log.file.*.formatter", "log.format", format),
    global_row("log.file.*.path", "log.file", emqx::log_path),
    unsupported_row(
        "log.**",
        "logrotate moves the file and sends SIGHUP, which opens it anew; times are RFC 3339's",
    ),
    unsupported_row("psk_authentication.enable", "tls.psk_file of a listener switches it on"),
    unsupported_row(
        "psk_authentication.init_file",
        "give a [[listener]] of tls tls.psk_file = FILE",
    ),
    unsupported_row("psk_authentication.**", "a line of tls.psk_file is IDENTITY:KEY"),
    custom_row("bridges.mqtt.*.enable", "a bridge that is off is left out", bridge::read_enabled),
    custom_row("bridges.mqtt.*.server", "`servers`", bridge::read_server),
    bridge_row("bridges.mqtt.*.proto_ver", "version", bridge::read_version),
    bridge_row("bridges.mqtt.*.clientid_prefix", "client_id", read_text),
    bridge_row("bridges.mqtt.*.username", "user_name", read_text),
    bridge_row("bridges.mqtt.*.password", "password", read_text),
    bridge_row("bridges.mqtt.*.keepalive", "keep_alive_s", seconds),
    custom_row(
        "bridges.mqtt.*.clean_start",
        "`session_expiry_s`: 0 where it is true",
        bridge::read_clean_start,
    ),
    bridge_row("bridges.mqtt.*.max_inflight", "session.inflight_max", read_count),
    custom_row("bridges.mqtt.*.ssl.enable", "TLS for `servers`", bridge::read_tls),
    bridge_row("bridges.mqtt.*.ssl.cacertfile", "tls.ca", read_text),
    bridge_row("bridges.mqtt.*.ssl.certfile", "tls.certificate", read_text),
    bridge_row("bridges.mqtt.*.ssl.keyfile", "tls.key", read_text),
    bridge_row("bridges.mqtt.*.ssl.server_name_indication", "tls.server_name", read_text),
    custom_row("bridges.mqtt.*.egress.local.topic", "`filter` of a `[[bridge.out]]`", out_filter),
    custom_row("bridges.mqtt.*.egress.remote.topic", "`topic` of it", out_topic),
    custom_row("bridges.mqtt.*.egress.remote.qos", "`qos` of it", emqx::out_qos),
    custom_row(
        "bridges.mqtt.*.egress.remote.retain",
        "`retain` of it: clear where it is false",
        out_retain,
    ),
    unsupported_row("bridges.mqtt.*.egress.**", "a bridge carries messages as they are"),
    custom_row("bridges.mqtt.*.ingress.remote.topic", "`filter` of a `[[bridge.in]]`", in_filter),
    custom_row("bridges.mqtt.*.ingress.remote.qos", "`qos` of it", in_qos),
    custom_row("bridges.mqtt.*.ingress.local.topic", "`topic` of it", in_topic),
    custom_row(
        "bridges.mqtt.*.ingress.local.retain",
        "`retain` of it: clear where it is false",
        in_retain,
    ),
    unsupported_row("bridges.mqtt.*.ingress.**", "a bridge carries messages as they are"),
    unsupported_row(
        "bridges.mqtt.*.**",
        "a bridge has one connection and the queue of its session, queue.*",
    ),
    unsupported_row("bridges.*.**", SINKS),
    custom_row(
        "connectors.mqtt.*.enable",
        "a bridge that is off is left out",
        bridge::read_enabled,
    ),
    custom_row("connectors.mqtt.*.server", "`servers`", bridge::read_server),
    bridge_row("connectors.mqtt.*.proto_ver", "version", bridge::read_version),
    bridge_row("connectors.mqtt.*.clientid_prefix", "client_id", read_text),
    bridge_row("connectors.mqtt.*.username", "user_name", read_text),
    bridge_row("connectors.mqtt.*.password", "password", read_text),
    bridge_row("connectors.mqtt.*.keepalive", "keep_alive_s", seconds),
    bridge_row("connectors.mqtt.*.connect_timeout", "connect_timeout_s", seconds),
    custom_row(
        "connectors.mqtt.*.clean_start",
        "`session_expiry_s`: 0 where it is true",
        bridge::read_clean_start,
    ),
    bridge_row("connectors.mqtt.*.max_inflight", "session.inflight_max", read_count),
    custom_row("connectors.mqtt.*.ssl.enable", "TLS for `servers`", bridge::read_tls),
    bridge_row("connectors.mqtt.*.ssl.cacertfile", "tls.ca", read_text),
    bridge_row("connectors.mqtt.*.ssl.certfile", "tls.certificate", read_text),
    bridge_row("connectors.mqtt.*.ssl.keyfile", "tls.key", read_text),
    bridge_row("connectors.mqtt.*.ssl.server_name_indication", "tls.server_name", read_text),
    unsupported_row(
        "connectors.mqtt.*.**",
        "a bridge has one connection and the queue of its session, queue.*",
    ),
    unsupported_row("connectors.*.**", SINKS),
    custom_row(
        "actions.mqtt.*",
        "`[[bridge.out]]` of its connector, by the rules that name it",
        emqx::read_action,
    ),
    unsupported_row("actions.*.**", SINKS),
    custom_row(
        "sources.mqtt.*",
        "`[[bridge.in]]` of its connector, by the rules that name it",
        emqx::read_source,
    ),
    unsupported_row(
        "sources.*.**",
        "messages come in from MQTT ([[bridge]]), ZeroMQ and nanomsg ([[gateway]]) only",
    ),
    custom_row(
        "rule_engine.rules.*",
        "a rule that only carries messages over a bridge",
        emqx::read_rule,
    ),
    unsupported_row(
        "rule_engine.**",
        "write each rule as a [[rule]]: the SQL is the same (docs/rules.md)",
    ),
    unsupported_row("node.**", "the node is a process; data says where it keeps things"),
    unsupported_row("rpc.**", CLUSTER),
    unsupported_row("cluster.**", CLUSTER),
    unsupported_row("broker.**", "shared.strategy chooses members; there is nothing else to set"),
    unsupported_row("dashboard.**", "a dashboard is still to come"),
    unsupported_row("api_key.**", "an HTTP API is still to come"),
    unsupported_row("prometheus.**", "an exporter is still to come; $SYS/broker/ has the counters"),
    unsupported_row(
        "opentelemetry.**",
        "an exporter is still to come; $SYS/broker/ has the counters",
    ),
    unsupported_row("telemetry.**", "nothing is told to anybody"),
    custom_row(
        "delayed.enable",
        "`delayed.messages_max`: 0 where it is false",
        emqx_access::delayed,
    ),
    unsupported_row(
        "delayed.**",
        "$delayed/ is always there, bounded by delayed.messages_max and delayed.bytes_max",
    ),
    custom_row(
        "rewrite",
        "unresolved: write each as a `[[rewrite]]`: action, source, regex, dest (docs/topics.md)",
        emqx_access::rewrites,
    ),
    unsupported_row(
        "auto_subscribe.**",
        "write each as an [[auto_subscribe]]: topic, qos and so on (docs/topics.md)",
    ),
    unsupported_row("topic_metrics.**", "counters are by shard and reason: $SYS/broker/"),
    unsupported_row(
        "slow_subs.**",
        "a slow subscriber's drops are counted by session: logs of module drop",
    ),
    custom_row(
        "exhook.servers",
        "unresolved: such a server may refuse clients",
        emqx_access::hooks,
    ),
    unsupported_row(
        "exhook.**",
        "hooks are not supported; auth.http_url and acl.http_url ask a server",
    ),
    unsupported_row(
        "gateway.**",
        "a [[gateway]] speaks ZeroMQ or nanomsg (docs/gateways.md), and nothing else",
    ),
    custom_row("plugins.states", "unresolved: a plugin may refuse clients", emqx_access::hooks),
    unsupported_row("plugins.**", "plugins are not supported"),
    unsupported_row("alarm.**", "what is wrong is logged"),
    unsupported_row("sysmon.**", "the system's own tools watch the process"),
    unsupported_row("conn_congestion.**", "a slow reader's messages wait in its queue"),
    unsupported_row("stats.**", "counters are always there"),
    unsupported_row("overload_protection.**", "memory.bytes_max does it, in three steps"),
    unsupported_row("limiter.**", "limits.* of all or of a [[listener]]"),
    custom_row(
        "zones.*.mqtt.use_username_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing",
        emqx::own_client_id,
    ),
    custom_row(
        "zones.*.mqtt.clientid_override",
        "clients choose their ids: rules that go by the id allow nothing",
        emqx::own_client_id,
    ),
    custom_row(
        "zones.*.mqtt.peer_cert_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing",
        emqx::zone_certificate,
    ),
    custom_row(
        "zones.*.mqtt.peer_cert_as_username",
        "unresolved: `auth.certificate` of the `[[listener]]`",
        emqx::zone_certificate,
    ),
    custom_row(
        "zones.*.flapping_detect.**",
        "unresolved where it is on: `flapping.*` goes for all",
        flapping::read_zone,
    ),
    custom_row("zones.*.mqtt.max_qos_allowed", ZONE_RIGHT, emqx::zone_right),
    custom_row("zones.*.mqtt.retain_available", ZONE_RIGHT, emqx::zone_right),
    custom_row("zones.*.mqtt.wildcard_subscription", ZONE_RIGHT, emqx::zone_right),
    custom_row("zones.*.mqtt.shared_subscription", ZONE_RIGHT, emqx::zone_right),
    custom_row("zones.*.mqtt.exclusive_subscription", ZONE_RIGHT, emqx::zone_right),
    remainder_row("zones.*.mqtt.**", ZONE_TUNING, ZONES),
    remainder_row(
        "zones.*.**",
        &[
            "conn_congestion",
            "durable_sessions",
            "force_gc",
            "force_shutdown",
            "overload_protection",
            "stats",
        ],
        ZONES,
    ),
    unsupported_row("license.**", "no licence is asked for"),
    unsupported_row("file_transfer.**", "transfer of files is not supported"),
    unsupported_row(
        "schema_registry.**",
        "payloads are not looked at, but for message.check_payload_format",
    ),
    custom_row(
        "schema_validation.validations",
        "unresolved: payloads are not looked at, but for `message.check_payload_format`",
        emqx_access::hooks,
    ),
    custom_row(
        "message_transformation.transformations",
        "unresolved: payloads are not looked at, but for `message.check_payload_format`",
        emqx_access::hooks,
    ),
    unsupported_row("message_transformation.**", "payloads are not looked at"),
    unsupported_row("crl_cache.**", "tls.crl names lists that are files"),
    custom_row(
        "mt.allow_only_managed_namespaces",
        "unresolved where it is true",
        emqx::managed_tenants,
    ),
    unsupported_row("mt.**", "namespace mounts the clients of a listener or a group"),
    unsupported_row("trace.**", "trace.* logs packets by client, address or topic"),
];

const USERS: &str = "users are in EMQX's database, which is not read: godwit passwd FILE USER \
                     writes them anew, and auth.users names the file";
const NO_BACKEND: &str = "users come from files, certificates, tokens, HTTP, PostgreSQL, MySQL and \
                          Redis; a server of one's own behind auth.http_url asks any other";
const SINKS: &str = "write each as a [[sink]], with filters of its own or named by send.to of a \
                     [[rule]]; which kinds there are, docs/sinks.md says";
const ZONES: &str = "what a listener or a group has for itself stands in [[listener]] or [[group]]";
pub(super) const ZONE_RIGHT: &str = "unresolved where clients of the zone may not: a listener or a \
                                     group has it for itself";
/// Keys of a zone that limit its clients without denying access.
const ZONE_TUNING: &[&str] = &[
    "await_rel_timeout",
    "client_attrs_init",
    "idle_timeout",
    "ignore_loop_deliver",
    "keepalive_check_interval",
    "keepalive_multiplier",
    "max_awaiting_rel",
    "max_clientid_len",
    "max_inflight",
    "max_mqueue_len",
    "max_packet_size",
    "max_subscriptions",
    "max_topic_alias",
    "max_topic_levels",
    "message_expiry_interval",
    "mqueue_default_priority",
    "mqueue_priorities",
    "mqueue_store_qos0",
    "response_information",
    "retry_interval",
    "server_keepalive",
    "session_expiry_interval",
    "shared_subscription_initial_sticky_pick",
    "shared_subscription_strategy",
    "strict_mode",
    "upgrade_qos",
];
const CLUSTER: &str = "there is one node";
