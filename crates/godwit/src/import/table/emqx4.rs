//! EMQX 4: emqx.conf, `NAME = VALUE` by lines, and the files of its plugins.

use super::super::draft::Draft;
use super::super::emqx;
use super::super::listener;
use super::super::row::{Row, all, made, no, own};
use super::super::shipped;
use super::super::tables;
use super::super::tree::Entry;
use super::super::units::{
    alone, bytes, count, count_or_none, flag, is_true, seconds, seconds_in_ms, text,
};
use super::emqx::{proxy, rate, versions};
use super::{allow_anonymous, log_level, log_target, no_match};

#[rustfmt::skip]
pub(in crate::import) const ROWS: &[Row] = &[
    made("listener.*.*", "`[[listener]]`, its `url`", listener::bind),
    made("listener.*.*.access.*",
        "a listener that lets in some addresses only is left out", emqx::access_rules),
    own("listener.*.*.max_connections", "limits.connections_max", count_or_none),
    own("listener.*.*.max_conn_rate", "limits.connections_per_s", rate),
    no("listener.*.*.zone", ZONES),
    own("listener.*.*.proxy_protocol", "proxy.protocol", proxy),
    own("listener.*.*.keyfile", "tls.key", alone),
    own("listener.*.*.certfile", "tls.certificate", alone),
    own("listener.*.*.cacertfile", "tls.client_ca", text),
    made("listener.*.*.verify", "`tls.client_certificate`", listener::verify),
    made("listener.*.*.fail_if_no_peer_cert",
        "`tls.client_certificate`: required", listener::needs_certificate),
    own("listener.*.*.tls_versions", "tls.version_min", tls_versions),
    made("listener.*.*.mqtt_path", "the path of the `url`", listener::web_path),
    no("listener.*.*.peer_cert_as_username", NAMES),
    made("listener.*.*.peer_cert_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing", emqx::own_client_id),
    no("listener.*.*.**", "sockets, suites and what else a listener of EMQX has is not set here"),
    all("zone.external.idle_timeout", "connect.timeout_ms", seconds_in_ms),
    all("zone.external.max_packet_size", "connection.packet_bytes_max", bytes),
    all("zone.external.max_clientid_len", "connect.client_id_bytes_max", count),
    all("zone.external.max_topic_levels", "topic.levels_max", count_or_none),
    all("zone.external.max_qos_allowed", "message.qos_max", count),
    all("zone.external.max_topic_alias", "connection.topic_alias_max", count),
    all("zone.external.retain_available", "retain.available", flag),
    all("zone.external.wildcard_subscription", "subscription.wildcard_available", flag),
    all("zone.external.shared_subscription", "shared.available", flag),
    all("zone.external.server_keepalive", "connect.keep_alive_s_max", count_or_none),
    all("zone.external.max_subscriptions", "session.subscriptions_max", count_or_none),
    all("zone.external.max_inflight", "session.inflight_max", count_or_none),
    all("zone.external.max_awaiting_rel", "connection.receive_maximum", count_or_none),
    all("zone.external.session_expiry_interval", "session.expiry_s_default", seconds),
    all("zone.external.max_mqueue_len", "queue.messages_max", count_or_none),
    all("zone.external.mqueue_store_qos0", "queue.qos0", flag),
    made("zone.*.use_username_as_clientid",
        "clients choose their ids: rules that go by the id allow nothing", own_client_id),
    made("zone.*.allow_anonymous",
        "`allow_anonymous` is false where any zone says so", zone_anonymous),
    made("zone.*.acl_nomatch", "deny where any zone says so", no_match),
    made("zone.*.mountpoint", "unresolved: `namespace` of a `[[listener]]`", zone_mount_point),
    no("zone.*.enable_acl", "rules go for all listeners"),
    no("zone.*.acl_deny_action", "what is denied is answered with 0x87, and the client stays"),
    no("zone.*.enable_ban", "bans.file turns clients away, and flapping.* bans them for a time"),
    no("zone.*.bypass_auth_plugins", "every client is asked who it is"),
    no("zone.**", ZONES),
    all("mqtt.max_packet_size", "connection.packet_bytes_max", bytes),
    all("mqtt.max_clientid_len", "connect.client_id_bytes_max", count),
    all("mqtt.max_topic_levels", "topic.levels_max", count_or_none),
    all("mqtt.max_qos_allowed", "message.qos_max", count),
    all("mqtt.max_topic_alias", "connection.topic_alias_max", count),
    all("mqtt.retain_available", "retain.available", flag),
    all("mqtt.wildcard_subscription", "subscription.wildcard_available", flag),
    all("mqtt.shared_subscription", "shared.available", flag),
    no("mqtt.ignore_loop_deliver", "clients of 5.0 ask for it (No Local)"),
    no("mqtt.strict_mode", "every packet is checked in full"),
    made("allow_anonymous", "`allow_anonymous`", allow_anonymous),
    made("acl_nomatch", "the last rule of `acl.file`", no_match),
    made("acl_file", "its rules are those of `acl.file`", acl_file),
    made("acl_deny_action", "nothing where it is ignore", super::nanomq::deny_action),
    no("enable_acl_cache", "rules cost nothing that would have to be kept"),
    no("acl_cache_max_size", "rules cost nothing that would have to be kept"),
    no("acl_cache_ttl", "rules cost nothing that would have to be kept"),
    no("flapping_detect_policy", "flapping.count_max, flapping.window_s and flapping.ban_s"),
    made("auth.**",
        "nobody comes in without proof; name the server in `auth.*` by hand", plugin),
    all("retainer.max_retained_messages", "retain.messages_max", count_or_none),
    no("retainer.**", "connection.packet_bytes_max and message.expiry_s_max bound all messages"),
    all("broker.sys_interval", "sys.interval_s", seconds),
    no("broker.**", "shared.strategy chooses members; there is nothing else to set"),
    made("log.to", "`log.target`", log_target),
    all("log.level", "log.level", log_level),
    made("log.dir", "`log.file`, the folder of it", super::nanomq::log_folder),
    made("log.file", "`log.file`", super::nanomq::log_file),
    no("log.**", "logrotate moves the file and sends SIGHUP, which opens it anew"),
    no("node.**", "the node is a process; data says where it keeps things"),
    no("cluster.**", "there is one node"),
    no("rpc.**", "there is one node"),
    made("plugins.loaded_file",
        "the plugins that are loaded, where the file is there: one that may decide about access is \
         unresolved", shipped::loaded_file),
    no("plugins.**", "plugins are switched on elsewhere: their files are imported one by one"),
    made("modules.loaded_file", "the modules, as plugins.loaded_file", shipped::loaded_file),
    no("modules.**", "modules are switched on elsewhere"),
    no("module.**", "[[auto_subscribe]], [[rewrite]] and [[preset]] do what modules do there"),
    no("sysmon.**", "the system's own tools watch the process"),
    no("os_mon.**", "the system's own tools watch the process"),
    no("vm_mon.**", "the system's own tools watch the process"),
    no("alarm.**", "what is wrong is logged"),
    no("management.**", "there is no HTTP API yet"),
    no("dashboard.**", "there is no dashboard yet"),
];

const ZONES: &str = "zone external counts for all listeners; what one has for itself stands in its \
                     [[listener]]";
const NAMES: &str = "a certificate gives no name here unless auth.certificate says so, and then it \
                     is proof enough";

fn tls_versions(entry: &Entry<'_>) -> Result<super::super::row::Said, String> {
    let texts = super::super::tree::Tree::List(
        entry
            .text()?
            .split(',')
            .map(|word| super::super::tree::Node::text_at(&entry.node.place, word.trim()))
            .collect(),
    );
    let node = super::super::tree::Node { place: entry.node.place.clone(), tree: texts };
    versions(&Entry { key: entry.key.clone(), names: Vec::new(), node: &node })
}

fn own_client_id(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        emqx::own_client_id(draft, entry)?;
    }
    Ok(())
}

fn zone_anonymous(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    match is_true(entry.text()?)? {
        true => draft.miss(entry, "allow_anonymous counts for all listeners"),
        false => draft.ask_for_credentials(&entry.note()),
    }
    Ok(())
}

fn zone_mount_point(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let why = "the listeners of the zone show their clients the topics of a mount point alone: \
               give each of them a namespace";
    draft.leave_unresolved(entry, why);
    Ok(())
}

/// Without its file nothing is known of the rules, and so nothing is allowed.
fn acl_file(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let named = entry.text()?;
    match draft.folder.find(named) {
        Ok(_) => emqx::rules_file(draft, entry),
        Err(why) => {
            draft.miss(entry, format!("{why}: nothing is allowed without its rules"));
            draft.lost.push("acl");
            Ok(())
        }
    }
}

/// A plugin that asks clients who they are, or what they may do.
fn plugin(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    draft.ask_for_credentials(&entry.note());
    let why = "plugins that ask who a client is are not read: write auth.* by hand";
    draft.miss(entry, why);
    Ok(())
}

/// Without a word nobody comes in, and what no rule allows is denied.
pub(in crate::import) fn imply(draft: &mut Draft) {
    tables::finish(draft);
    draft.imply_once("allow_anonymous", "false", "what it is there without a word");
    if !draft.hit.contains("acl_file") {
        let elsewhere = "others may have been in force";
        shipped::take_rules(draft, shipped::RULES_4, "acl_file", elsewhere);
    }
    if draft.no_match.is_none() {
        draft.no_match = Some((false, "what it is there without acl_nomatch".to_string()));
    }
    shipped::close_unknown_plugins(draft);
    super::nanomq::close_lost_rules(draft);
    let is_file = draft.setting("log.target").is_some_and(|there| there.value.text() == "file");
    if is_file {
        draft.imply_once("log.file", "/var/log/emqx/emqx.log", "what it is there without a word");
    }
}
