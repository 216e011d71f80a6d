//! EMQX 4: `emqx.conf` with lines of `NAME = VALUE`, and the files of its plugins.

use super::super::auth_databases;
use super::super::config_tree::ConfigEntry;
use super::super::draft::ConfigDraft;
use super::super::emqx;
use super::super::emqx_access;
use super::super::emqx_listeners;
use super::super::flapping;
use super::super::listener;
use super::super::row::{
    ImportRow, ValueReader, custom_row, global_row, listener_row, remainder_row, restriction_row,
    unsupported_row,
};
use super::super::shipped;
use super::super::units::{
    count_or_none, is_true, read_bytes, read_count, read_flag, read_single, read_text, seconds,
    seconds_in_ms,
};
use super::emqx::{ZONE_RIGHT, proxy, rate, versions};
use super::{allow_anonymous, log_level, log_target, no_match};

pub(crate) const ROWS: &[ImportRow] = &[
    custom_row("listener.*.*", "`[[listener]]`, its `url`", listener::read_bind),
    custom_row(
        "listener.*.*.access.*",
        "a listener that lets in some addresses only is left out",
        emqx::access_rules,
    ),
    listener_row("listener.*.*.max_connections", "limits.connections_max", count_or_none),
    listener_row("listener.*.*.max_conn_rate", "limits.connections_per_s", rate),
    unsupported_row("listener.*.*.zone", ZONES),
    listener_row("listener.*.*.proxy_address_header", "ws.address_header", read_text),
    listener_row("listener.*.*.proxy_protocol", "proxy.protocol", proxy),
    listener_row("listener.*.*.keyfile", "tls.key", read_single),
    listener_row("listener.*.*.certfile", "tls.certificate", read_single),
    listener_row("listener.*.*.cacertfile", "tls.client_ca", read_text),
    custom_row("listener.*.*.verify", "`tls.client_certificate`", listener::read_verify),
    custom_row(
        "listener.*.*.fail_if_no_peer_cert",
        "`tls.client_certificate`: required",
        listener::needs_certificate,
    ),
    listener_row("listener.*.*.tls_versions", "tls.version_min", tls_versions),
    custom_row("listener.*.*.mqtt_path", "the path of the `url`", listener::web_path),
    restriction_row("listener.*.*.peer_cert_as_username", NAMES),
    custom_row(
        "listener.*.*.peer_cert_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing",
        emqx::own_client_id,
    ),
    custom_row(
        "listener.*.*.ciphers",
        "nothing; where it names suites of keys (TLS-PSK) alone, the listener is unresolved",
        emqx_listeners::ciphers,
    ),
    custom_row(
        "listener.*.*.psk_ciphers",
        "the listener is unresolved: `tls.psk_file` has the keys",
        emqx_listeners::ciphers,
    ),
    custom_row(
        "listener.*.*.mountpoint",
        "unresolved: `namespace` of the `[[listener]]`",
        listener_mount_point,
    ),
    custom_row(
        "listener.*.*.depth",
        "below 10, a listener that verifies certificates is left out: chains have no limit here",
        emqx_listeners::chain_depth,
    ),
    custom_row(
        "listener.*.*.check_origin_enable",
        "the listener is unresolved where it is true: `ws.origins`",
        emqx_listeners::origins,
    ),
    remainder_row(
        "listener.*.*.**",
        &[
            "acceptors",
            "active_n",
            "backlog",
            "buffer",
            "compress",
            "deflate_opts",
            "dhfile",
            "fail_if_no_subprotocol",
            "handshake_timeout",
            "hibernate_after",
            "high_watermark",
            "honor_cipher_order",
            "idle_timeout",
            "max_frame_size",
            "mqtt_piggyback",
            "nodelay",
            "proxy_port_header",
            "proxy_protocol_timeout",
            "recbuf",
            "reuse_sessions",
            "reuseaddr",
            "secure_renegotiate",
            "send_timeout",
            "send_timeout_close",
            "sndbuf",
            "supported_subprotocols",
            "supported_protocols",
            "tune_buffer",
        ],
        "sockets, suites and what else a listener of EMQX has is not set here",
    ),
    global_row("zone.external.idle_timeout", "connect.timeout_ms", seconds_in_ms),
    global_row("zone.external.max_packet_size", "connection.packet_bytes_max", read_bytes),
    global_row("zone.external.max_clientid_len", "connect.client_id_bytes_max", read_count),
    global_row("zone.external.max_topic_levels", "topic.levels_max", count_or_none),
    custom_row(
        "zone.external.max_qos_allowed",
        "`message.qos_max`, the stricter where both have it",
        strictest_right,
    ),
    global_row("zone.external.max_topic_alias", "connection.topic_alias_max", read_count),
    custom_row(
        "zone.external.retain_available",
        "`retain.available`, the stricter where both have it",
        strictest_right,
    ),
    custom_row(
        "zone.external.wildcard_subscription",
        "`subscription.wildcard_available`, the stricter where both have it",
        strictest_right,
    ),
    custom_row(
        "zone.external.shared_subscription",
        "`shared.available`, the stricter where both have it",
        strictest_right,
    ),
    global_row("zone.external.server_keepalive", "connect.keep_alive_s_max", count_or_none),
    global_row("zone.external.max_subscriptions", "session.subscriptions_max", count_or_none),
    global_row("zone.external.max_inflight", "session.inflight_max", count_or_none),
    global_row("zone.external.max_awaiting_rel", "connection.receive_maximum", count_or_none),
    global_row("zone.external.session_expiry_interval", "session.expiry_s_default", seconds),
    global_row("zone.external.max_mqueue_len", "queue.messages_max", count_or_none),
    global_row("zone.external.mqueue_store_qos0", "queue.qos0", read_flag),
    custom_row(
        "zone.*.use_username_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing",
        own_client_id,
    ),
    custom_row(
        "zone.*.allow_anonymous",
        "`allow_anonymous` is false where any zone says so",
        zone_anonymous,
    ),
    custom_row("zone.*.acl_nomatch", "deny where any zone says so", no_match),
    custom_row(
        "zone.*.mountpoint",
        "unresolved: `namespace` of a `[[listener]]`",
        zone_mount_point,
    ),
    unsupported_row("zone.*.enable_acl", "rules go for all listeners"),
    unsupported_row(
        "zone.*.acl_deny_action",
        "what is denied is answered with 0x87, and the client stays",
    ),
    restriction_row(
        "zone.*.enable_ban",
        "whom EMQX has banned stands in its database, which is not read: name those clients in \
         bans.file, or take this out where there are none",
    ),
    custom_row(
        "zone.*.enable_flapping_detect",
        "`flapping.count_max` is off unless a zone says so",
        |draft, entry| flapping::read_switch(draft, entry, flapping::USUAL_COUNT_4),
    ),
    unsupported_row("zone.*.bypass_auth_plugins", "every client is asked who it is"),
    custom_row("zone.*.max_qos_allowed", ZONE_RIGHT, emqx::zone_right),
    custom_row("zone.*.retain_available", ZONE_RIGHT, emqx::zone_right),
    custom_row("zone.*.wildcard_subscription", ZONE_RIGHT, emqx::zone_right),
    custom_row("zone.*.shared_subscription", ZONE_RIGHT, emqx::zone_right),
    remainder_row("zone.*.**", ZONE_TUNING, ZONES),
    custom_row(
        "mqtt.max_packet_size",
        "`connection.packet_bytes_max`, unless zone external has it",
        usual_limit,
    ),
    custom_row(
        "mqtt.max_clientid_len",
        "`connect.client_id_bytes_max`, unless zone external has it",
        usual_limit,
    ),
    custom_row(
        "mqtt.max_topic_levels",
        "`topic.levels_max`, unless zone external has it",
        usual_limit,
    ),
    custom_row(
        "mqtt.max_qos_allowed",
        "`message.qos_max`, the stricter where both have it",
        strictest_right,
    ),
    custom_row(
        "mqtt.max_topic_alias",
        "`connection.topic_alias_max`, unless zone external has it",
        usual_limit,
    ),
    custom_row(
        "mqtt.retain_available",
        "`retain.available`, the stricter where both have it",
        strictest_right,
    ),
    custom_row(
        "mqtt.wildcard_subscription",
        "`subscription.wildcard_available`, the stricter where both have it",
        strictest_right,
    ),
    custom_row(
        "mqtt.shared_subscription",
        "`shared.available`, the stricter where both have it",
        strictest_right,
    ),
    unsupported_row("mqtt.ignore_loop_deliver", "clients of 5.0 ask for it (No Local)"),
    unsupported_row("mqtt.strict_mode", "every packet is checked in full"),
    custom_row("allow_anonymous", "`allow_anonymous`", allow_anonymous),
    custom_row("acl_nomatch", "the last rule of `acl.file`", no_match),
    custom_row("acl_file", "its rules are those of `acl.file`", acl_file),
    custom_row("acl_deny_action", "nothing where it is ignore", super::nanomq::deny_action),
    unsupported_row("enable_acl_cache", "rules cost nothing that would have to be kept"),
    unsupported_row("acl_cache_max_size", "rules cost nothing that would have to be kept"),
    unsupported_row("acl_cache_ttl", "rules cost nothing that would have to be kept"),
    custom_row(
        "flapping_detect_policy",
        "`flapping.count_max`, `flapping.window_s` and `flapping.ban_s`",
        flapping::read_policy,
    ),
    custom_row(
        "auth.**",
        "nobody comes in without proof; name the server in `auth.*` by hand",
        plugin,
    ),
    global_row("retainer.max_retained_messages", "retain.messages_max", count_or_none),
    unsupported_row(
        "retainer.**",
        "connection.packet_bytes_max and message.expiry_s_max bound all messages",
    ),
    global_row("broker.sys_interval", "sys.interval_s", seconds),
    unsupported_row("broker.**", "shared.strategy chooses members; there is nothing else to set"),
    custom_row("log.to", "`log.target`", log_target),
    global_row("log.level", "log.level", log_level),
    custom_row("log.dir", "`log.file`, the folder of it", super::nanomq::log_folder),
    custom_row("log.file", "`log.file`", super::nanomq::log_file),
    unsupported_row("log.**", "logrotate moves the file and sends SIGHUP, which opens it anew"),
    unsupported_row("node.**", "the node is a process; data says where it keeps things"),
    unsupported_row("cluster.**", "there is one node"),
    unsupported_row("rpc.**", "there is one node"),
    custom_row(
        "plugins.loaded_file",
        "the plugins that are loaded, where the file is there: one that may decide about access is \
         unresolved",
        shipped::loaded_file,
    ),
    unsupported_row(
        "plugins.**",
        "plugins are switched on elsewhere: their files are imported one by one",
    ),
    custom_row(
        "modules.loaded_file",
        "the modules, as plugins.loaded_file; without emqx_mod_acl_internal no rule of acl.conf \
         allows anything",
        shipped::loaded_file,
    ),
    unsupported_row("modules.**", "modules are switched on elsewhere"),
    restriction_row(
        "module.rewrite.**",
        "topics are rewritten there, by which clients may be kept apart: write each as a \
         [[rewrite]] (docs/topics.md)",
    ),
    unsupported_row(
        "module.**",
        "[[auto_subscribe]], [[rewrite]] and [[preset]] do what modules do there",
    ),
    unsupported_row("sysmon.**", "the system's own tools watch the process"),
    unsupported_row("os_mon.**", "the system's own tools watch the process"),
    unsupported_row("vm_mon.**", "the system's own tools watch the process"),
    unsupported_row("alarm.**", "what is wrong is logged"),
    unsupported_row("management.**", "an HTTP API is still to come"),
    unsupported_row("dashboard.**", "a dashboard is still to come"),
];

const ZONES: &str = "zone external counts for all listeners; what one has for itself stands in its \
                     [[listener]]";
const NAMES: &str = "a certificate gives clients their names there: auth.certificate does so here, \
                     and then it is proof enough";
/// Keys of a zone that limit its clients without denying access.
const ZONE_TUNING: &[&str] = &[
    "await_rel_timeout",
    "conn_congestion",
    "enable_stats",
    "force_gc_policy",
    "force_shutdown_policy",
    "idle_timeout",
    "ignore_loop_deliver",
    "keepalive_backoff",
    "max_awaiting_rel",
    "max_clientid_len",
    "max_inflight",
    "max_mqueue_len",
    "max_packet_size",
    "max_subscriptions",
    "max_topic_alias",
    "max_topic_levels",
    "mqueue_default_priority",
    "mqueue_priorities",
    "mqueue_store_qos0",
    "publish_limit",
    "quota",
    "rate_limit",
    "ratelimit",
    "response_information",
    "retry_interval",
    "server_keepalive",
    "session_expiry_interval",
    "strict_mode",
    "upgrade_qos",
];

fn tls_versions(entry: &ConfigEntry<'_>) -> Result<super::super::row::ImportValue, String> {
    let texts = super::super::config_tree::ConfigTree::List(
        entry
            .text()?
            .split(',')
            .map(|word| {
                super::super::config_tree::ConfigNode::text_at(&entry.node.place, word.trim())
            })
            .collect(),
    );
    let node =
        super::super::config_tree::ConfigNode { place: entry.node.place.clone(), tree: texts };
    versions(&ConfigEntry { key: entry.key.clone(), names: Vec::new(), node: &node })
}

/// Sets a permission of all clients. In EMQX a zone overrides `mqtt.*` for its clients, and a
/// listener may use another zone, so the stricter of two values counts here.
fn strictest_right(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let (key, read): (&'static str, ValueReader) = match entry.last_word() {
        "max_qos_allowed" => ("message.qos_max", read_count),
        "retain_available" => ("retain.available", read_flag),
        "shared_subscription" => ("shared.available", read_flag),
        _ => ("subscription.wildcard_available", read_flag),
    };
    draft.push_strictest(key, read(entry)?, entry);
    Ok(())
}

/// Sets a limit that `zone.external` overrides, in any order of the lines.
fn usual_limit(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let (key, read): (&'static str, ValueReader) = match entry.last_word() {
        "max_clientid_len" => ("connect.client_id_bytes_max", read_count),
        "max_packet_size" => ("connection.packet_bytes_max", read_bytes),
        "max_topic_alias" => ("connection.topic_alias_max", read_count),
        _ => ("topic.levels_max", count_or_none),
    };
    let value = read(entry)?;
    match draft.setting(key).filter(|there| there.note.contains(" zone.external.")) {
        Some(there) => {
            let why = format!("{} goes before it", there.note);
            draft.report_unsupported(entry, why);
        }
        None => draft.push_option(key, value, entry),
    }
    Ok(())
}

fn own_client_id(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        emqx::own_client_id(draft, entry)?;
    }
    Ok(())
}

fn zone_anonymous(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match is_true(entry.text()?)? {
        true => draft.report_unsupported(entry, "allow_anonymous counts for all listeners"),
        false => draft.ask_for_credentials(&entry.note()),
    }
    Ok(())
}

fn zone_mount_point(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let why = "the listeners of the zone show their clients the topics of a mount point alone: \
               give each of them a namespace";
    if !entry.text()?.is_empty() {
        draft.leave_unresolved(entry, why);
    }
    Ok(())
}

/// Reads the mount point of a listener, a key of versions before 4.
fn listener_mount_point(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let why = "the listener shows its clients the topics of a mount point alone: give it a \
               namespace";
    if !entry.text()?.is_empty() {
        draft.leave_unresolved(entry, why);
    }
    Ok(())
}

/// Reads the file of rules. Without the file its rules are unknown, and everything is denied.
fn acl_file(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let named = entry.text()?;
    match draft.folder.find(named) {
        Ok(_) => emqx::read_rules_file(draft, entry),
        Err(why) => {
            draft.report_unsupported(entry, format!("{why}: nothing is allowed without its rules"));
            draft.lost.push("acl");
            Ok(())
        }
    }
}

/// Reports a plugin that authenticates clients or decides about access.
fn plugin(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.ask_for_credentials(&entry.note());
    let why = "plugins that ask who a client is are not read: write auth.* by hand";
    draft.report_unsupported(entry, why);
    Ok(())
}

/// Adds the defaults of EMQX 4: anonymous clients are refused, and access without a rule is denied.
pub(crate) fn imply(draft: &mut ConfigDraft) {
    auth_databases::finish_databases(draft);
    draft.imply_once("allow_anonymous", "false", "what it is there without a word");
    emqx_listeners::add_usual_web(draft);
    if !draft.hit.contains("acl_file") {
        let elsewhere = "others may have been in force";
        shipped::take_rules(draft, shipped::RULES_4, "acl_file", elsewhere);
    }
    if draft.no_match.is_none() {
        draft.no_match = Some((false, "what it is there without acl_nomatch".to_string()));
    }
    shipped::close_unknown_plugins(draft);
    emqx_access::close_delayed(draft);
    super::nanomq::close_lost_rules(draft);
    let is_file = draft.setting("log.target").is_some_and(|there| there.value.text() == "file");
    if is_file {
        draft.imply_once("log.file", "/var/log/emqx/emqx.log", "what it is there without a word");
    }
}
