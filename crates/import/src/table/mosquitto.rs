//! mosquitto.conf(5), up to 2.1.

use super::super::bridge;
use super::super::config_tree::ConfigEntry;
use super::super::draft::ConfigDraft;
use super::super::listener::DraftTransport;
use super::super::row::{
    ImportRow, ImportValue, bridge_row, custom_row, global_row, listener_row, restriction_row,
    unsupported_row,
};
use super::super::units::{
    count_or_none, is_true, read_age, read_bytes, read_count, read_flag, read_list, read_single,
    read_text, seconds, seconds_or_none,
};
use super::{durability, log_level, mosquitto_access};

pub(crate) const ROWS: &[ImportRow] = &[
    unsupported_row(
        "allow_duplicate_messages",
        "overlapping subscriptions get one copy each, as MQTT 5.0 has it",
    ),
    unsupported_row(
        "auth_plugin_deny_special_chars",
        "names with + and # in them never match an allowing rule",
    ),
    unsupported_row("auto_id_prefix", "ids that the broker gives have no prefix"),
    unsupported_row(
        "autosave_interval",
        "what is acknowledged is on the disk; durability = \"lazy\" writes once a second",
    ),
    unsupported_row("autosave_on_changes", "what is acknowledged is on the disk"),
    restriction_row(
        "check_retain_source",
        "what was retained once was allowed once: a rule that changes takes nothing back, so clear \
         the topics that it was about",
    ),
    custom_row(
        "connection_messages",
        "`log.modules` for `conn`: off where it is false",
        connection_messages,
    ),
    unsupported_row("enable_control_api", "$CONTROL is not supported"),
    unsupported_row(
        "global_max_clients",
        "sessions are bound by memory.bytes_max and session.expiry_s_max",
    ),
    global_row("global_max_connections", "limits.connections_max", count_or_none),
    custom_row("include_dir", "read as well, file by file", |_, _| Ok(())),
    custom_row("log_dest", "`log.target`, `log.file`", log_dest),
    unsupported_row("log_facility", "syslog gets facility daemon"),
    unsupported_row("log_timestamp", "every line has its time"),
    unsupported_row("log_timestamp_format", "times are written as RFC 3339 has them"),
    custom_row("log_type", "`log.level`, the finest of all that are named", log_type),
    unsupported_row("max_inflight_bytes", "use session.inflight_max and queue.bytes_max"),
    global_row("max_inflight_messages", "session.inflight_max", count_or_none),
    global_row("max_keepalive", "connect.keep_alive_s_max", seconds_or_none),
    global_row("max_packet_size", "connection.packet_bytes_max", read_bytes),
    global_row("max_queued_bytes", "queue.bytes_max", read_bytes),
    global_row("max_queued_messages", "queue.messages_max", count_or_none),
    global_row("memory_limit", "memory.bytes_max", read_bytes),
    unsupported_row(
        "message_size_limit",
        "packets are bound, not payloads: connection.packet_bytes_max",
    ),
    custom_row("persistence", "`durability`: sync or memory", durability),
    unsupported_row(
        "persistence_file",
        "the store is a folder with files of its own; mosquitto.db is not read",
    ),
    custom_row("persistence_location", "`data`, a folder in it", location),
    global_row("persistent_client_expiration", "session.expiry_s_max", read_age),
    unsupported_row("pid_file", "it stays in the foreground, for systemd or a container"),
    global_row("queue_qos0_messages", "queue.qos0", read_flag),
    global_row("retain_available", "retain.available", read_flag),
    unsupported_row(
        "retain_expiry_interval",
        "retained messages end with their own Message Expiry Interval; message.expiry_s_max \
         bounds it for all messages",
    ),
    unsupported_row(
        "retry_interval",
        "messages are sent again when their client comes back, as MQTT 5.0 demands",
    ),
    unsupported_row("set_tcp_nodelay", "it is always so"),
    unsupported_row("store_clean_interval", "nothing has to be cleaned"),
    global_row("sys_interval", "sys.interval_s", seconds),
    unsupported_row("upgrade_outgoing_qos", "nobody gets a higher QoS than was published"),
    unsupported_row("user", "it changes no user: start it as the one it is to be"),
    unsupported_row("websockets_headers_size", "a request has at most 8 KiB"),
    unsupported_row("websockets_log_level", "WebSockets have no log of their own"),
    custom_row("websockets_origin", "`ws.origins`, one more", origin),
    custom_row(
        "accept_protocol_versions",
        "the listener is unresolved unless it names all: 3.1, 3.1.1 and 5.0 are spoken",
        mosquitto_access::protocol_versions,
    ),
    listener_row("enable_proxy_protocol", "proxy.protocol", proxy),
    unsupported_row("http_dir", "no files are served"),
    unsupported_row("http_api", "an HTTP API is still to come"),
    unsupported_row("listener_auto_id_prefix", "ids that the broker gives have no prefix"),
    listener_row("max_connections", "limits.connections_max", count_or_none),
    listener_row("max_qos", "message.qos_max", read_count),
    listener_row("max_topic_alias", "connection.topic_alias_max", read_count),
    global_row("max_topic_alias_broker", "connection.topic_alias_out_max", read_count),
    custom_row("protocol", "`ws://` or `wss://` for websockets", protocol),
    listener_row("cafile", "tls.client_ca", read_text),
    listener_row("certfile", "tls.certificate", read_single),
    listener_row("keyfile", "tls.key", read_single),
    listener_row("crlfile", "tls.crl", read_single),
    unsupported_row("ciphers", "only suites with forward secrecy are spoken, and all of them"),
    unsupported_row("ciphers_tls1.3", "all suites of TLS 1.3 are spoken"),
    unsupported_row("dhparamfile", "elliptic curves are spoken in the place of DHE"),
    unsupported_row(
        "disable_client_cert_date_checks",
        "an expired certificate is not a certificate",
    ),
    unsupported_row("tls_engine", "keys are files"),
    unsupported_row("tls_engine_kpass_sha1", "keys are files without a password"),
    unsupported_row("tls_keyform", "keys are PEM files"),
    listener_row("tls_version", "tls.version_min", tls_version),
];

pub(crate) const BRIDGES: &[ImportRow] = &[
    custom_row("connection", "`[[bridge]]`, its `name`", connection),
    custom_row("address", "`servers`", bridge::read_server),
    custom_row("addresses", "`servers`", bridge::read_server),
    custom_row("topic", "`[[bridge.out]]` and `[[bridge.in]]`", topic),
    unsupported_row("attempt_unsubscribe", FORGETS),
    unsupported_row("bridge_attempt_unsubscribe", FORGETS),
    unsupported_row("bridge_bind_address", "the system chooses the address"),
    bridge_row("bridge_max_packet_size", "packet_bytes_max", read_bytes),
    unsupported_row("bridge_max_topic_alias", "a bridge uses as many as the other broker allows"),
    custom_row("bridge_outgoing_retain", "`retain` of each `[[bridge.out]]`", outgoing_retain),
    bridge_row("bridge_protocol_version", "version", bridge::read_version),
    bridge_row("bridge_receive_maximum", "session.inflight_max", read_count),
    unsupported_row(
        "bridge_reload_type",
        "SIGHUP connects anew what has changed, and nothing else",
    ),
    bridge_row("bridge_session_expiry_interval", "session_expiry_s", seconds),
    unsupported_row("bridge_tcp_keepalive", "keep_alive_s and answer_timeout_s notice a dead line"),
    unsupported_row(
        "bridge_tcp_user_timeout",
        "keep_alive_s and answer_timeout_s notice a dead line",
    ),
    custom_row("cleansession", "`session_expiry_s`: 0 where it is true", bridge::read_clean_start),
    unsupported_row(
        "local_cleansession",
        "what goes out always waits while the other broker is away; queue.* bounds it",
    ),
    bridge_row("clientid", "client_id", read_text),
    bridge_row("remote_clientid", "client_id", read_text),
    unsupported_row("local_clientid", LOCAL),
    unsupported_row("local_username", LOCAL),
    unsupported_row("local_password", LOCAL),
    bridge_row("keepalive_interval", "keep_alive_s", seconds),
    unsupported_row("idle_timeout", "a bridge stays connected"),
    unsupported_row(
        "notifications",
        "$SYS/broker/bridge/ tells how each bridge is; status_topic tells the other broker",
    ),
    bridge_row("notification_topic", "status_topic", read_text),
    unsupported_row("notifications_local_only", "status_topic is there, $SYS/broker/bridge/ here"),
    bridge_row("remote_username", "user_name", read_text),
    bridge_row("username", "user_name", read_text),
    bridge_row("remote_password", "password", read_text),
    bridge_row("password", "password", read_text),
    custom_row(
        "restart_timeout",
        "`retry_max_s`; of two numbers the first is `retry_min_ms`",
        restart_timeout,
    ),
    custom_row("round_robin", "`return_s`: never where it is true", round_robin),
    custom_row("start_type", "nothing where it is automatic", start_type),
    unsupported_row("threshold", "a bridge stays connected"),
    custom_row("try_private", "nothing where it is true", try_private),
    custom_row("bridge_cafile", "`tls.ca`, and servers are spoken to by TLS", bridge_ca),
    custom_row(
        "bridge_capath",
        "TLS; without a bridge_cafile the bridge is left out: name the CAs in one file, `tls.ca`",
        bridge_ca_folder,
    ),
    bridge_row("bridge_certfile", "tls.certificate", read_text),
    bridge_row("bridge_keyfile", "tls.key", read_text),
    bridge_row("bridge_alpn", "tls.alpn", read_list),
    unsupported_row(
        "bridge_ciphers",
        "only suites with forward secrecy are spoken, and all of them",
    ),
    unsupported_row("bridge_ciphers_tls1.3", "all suites of TLS 1.3 are spoken"),
    custom_row(
        "bridge_identity",
        "the bridge is left out: it has no key (TLS-PSK) here",
        bridge_key,
    ),
    custom_row("bridge_psk", "the bridge is left out: it has no key (TLS-PSK) here", bridge_key),
    unsupported_row(
        "bridge_insecure",
        "the server's name is always checked: tls.server_name says another",
    ),
    custom_row(
        "bridge_require_ocsp",
        "the bridge is left out where it is true: no OCSP is asked for",
        bridge_status,
    ),
    custom_row("bridge_tls_use_os_certs", "TLS with those whom this host trusts", bridge::read_tls),
    unsupported_row("bridge_tls_version", "TLS 1.2 and 1.3 are spoken"),
];

const FORGETS: &str = "a bridge knows what it is subscribed to and takes back the rest";
const LOCAL: &str =
    "a bridge is a session of the broker's own, $link/bridge/NAME, which no rule binds";

fn connection_messages(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        let off = vec![("conn".to_string(), "off".to_string())];
        draft.push_option("log.modules", ImportValue::Map(off), entry);
    }
    Ok(())
}

fn log_dest(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_file = draft.setting("log.target").is_some_and(|there| there.value.text() == "file");
    let (word, rest) = entry.text()?.split_once(' ').unwrap_or((entry.text()?, ""));
    let target = match word {
        "file" if rest.is_empty() => return Err("a file is missing, use file PATH".to_string()),
        "file" => {
            draft.push_option("log.file", ImportValue::Text(rest.trim().into()), entry);
            "file"
        }
        "syslog" => "syslog",
        "stdout" | "stderr" => "stderr",
        "none" => {
            draft.push_option("log.level", ImportValue::Text("off".into()), entry);
            return Ok(());
        }
        "topic" | "dlt" | "android" => {
            draft.report_unsupported(entry, "log lines go to stderr, a file or syslog");
            return Ok(());
        }
        _ => return Err("no such target, use file PATH, syslog, stdout or stderr".to_string()),
    };
    if is_file && target != "file" {
        draft.report_unsupported(entry, "one target at a time: the file was taken");
        return Ok(());
    }
    draft.push_option("log.target", ImportValue::Text(target.into()), entry);
    Ok(())
}

fn log_type(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    const FINER: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
    let level = match entry.text()? {
        "information" | "subscribe" | "unsubscribe" | "websockets" | "internal" => "info",
        "all" => "debug",
        _ => match log_level(entry)? {
            ImportValue::Text(level) => {
                FINER.iter().find(|word| **word == level).copied().unwrap_or("info")
            }
            _ => "info",
        },
    };
    let at = |level: &str| FINER.iter().position(|word| *word == level);
    let there = draft.setting("log.level").and_then(|there| at(there.value.text()));
    if there.is_none_or(|there| Some(there) < at(level)) {
        draft.push_option("log.level", ImportValue::Text(level.into()), entry);
    }
    Ok(())
}

/// Adds origins to `ws.origins`. A host stands for its pages over HTTP and HTTPS.
fn origin(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let there = draft.setting("ws.origins").map_or(Vec::new(), |there| there.value.list().to_vec());
    let more = entry.text()?.split([' ', ',', '\t']).filter(|one| !one.is_empty());
    let more = more.flat_map(|one| match one.contains("://") || one == "null" || one == "*" {
        true => vec![one.to_string()],
        false => vec![format!("http://{one}"), format!("https://{one}")],
    });
    let all = there.into_iter().chain(more).collect();
    draft.push_option("ws.origins", ImportValue::List(all), entry);
    Ok(())
}

fn location(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let folder = format!("{}/godwit-data", entry.text()?.trim_end_matches('/'));
    draft.push_option("data", ImportValue::Text(folder), entry);
    Ok(())
}

fn protocol(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()? {
        "mqtt" => {}
        "websockets" => draft.listener_of_entry(entry).kind = DraftTransport::Web,
        "http_api" => {
            draft.listener_of_entry(entry).is_off = true;
            draft.report_unsupported(entry, "an HTTP API is still to come");
        }
        _ => return Err("no such protocol, use mqtt or websockets".to_string()),
    }
    Ok(())
}

fn proxy(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    match entry.text()? {
        "1" => Ok(ImportValue::Text("v1".into())),
        "2" => Ok(ImportValue::Text("v2".into())),
        _ => Err("use 1 or 2, the version".to_string()),
    }
}

fn tls_version(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    match entry.text()? {
        "tlsv1.3" => Ok(ImportValue::Text("1.3".into())),
        "tlsv1.2" => Ok(ImportValue::Text("1.2".into())),
        "tlsv1.1" | "tlsv1" => Ok(ImportValue::Unsupported("older than 1.2 is not spoken")),
        _ => Err("no such version, use tlsv1.2 or tlsv1.3".to_string()),
    }
}

fn connection(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.bridge_of_entry(entry);
    Ok(())
}

/// Reads the bridge key `topic`: `PATTERN [[out|in|both] QOS [LOCAL_PREFIX [REMOTE_PREFIX]]]`.
fn topic(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    let mut words = text.split_whitespace().map(|word| if word == "\"\"" { "" } else { word });
    let pattern = words.next().unwrap_or_default();
    let way = words.next().unwrap_or("out");
    let qos = words.next().map_or(Ok(0), bridge_qos)?;
    let (local, remote) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !["in", "out", "both"].contains(&way) || words.next().is_some() {
        return Err("use topic PATTERN [in|out|both QOS [LOCAL_PREFIX [REMOTE_PREFIX]]]".into());
    }
    let one = |from: &str, to: &str| bridge::BridgeTopics {
        note: entry.note(),
        filter: format!("{from}{pattern}"),
        topic: match (from.is_empty(), to.is_empty()) {
            (true, _) => String::new(),
            (false, _) => format!("{to}{pattern}"),
        },
        prefix: if from.is_empty() { to.to_string() } else { String::new() },
        qos: Some(qos),
        ..bridge::BridgeTopics::default()
    };
    let bridge = draft.bridge_of_entry(entry);
    if way != "in" {
        bridge.outward.push(one(local, remote));
    }
    if way != "out" {
        bridge.inward.push(one(remote, local));
    }
    Ok(())
}

/// Reads a QoS as mosquitto does: the leading digits, and 0 for a word without digits or `""`.
fn bridge_qos(word: &str) -> Result<u8, String> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    match word[..digits].trim_start_matches('0') {
        "" => Ok(0),
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err("a QoS is 0, 1 or 2".to_string()),
    }
}

/// Stores the retain setting until all topics are known, since it may precede them.
fn outgoing_retain(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let clears = !is_true(entry.text()?)?;
    draft.bridge_of_entry(entry).clears_retain = clears;
    Ok(())
}

/// Reads the bridge key `restart_timeout`, in seconds: `SECONDS`, or `BASE CAP`.
fn restart_timeout(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let numbers = entry.text()?.split_whitespace().map(str::parse::<u64>);
    let numbers: Result<Vec<u64>, _> = numbers.collect();
    let (base, cap) = match numbers.as_deref() {
        Ok([cap]) => (None, *cap),
        Ok([base, cap]) if base <= cap => (Some(*base), *cap),
        _ => return Err("use SECONDS, or BASE CAP, of which CAP is at least as large".to_string()),
    };
    let said = |number: u64| ImportValue::Text(number.to_string());
    if let Some(base) = base {
        draft.push_bridge_option("retry_min_ms", said(base.saturating_mul(1000)), entry);
    }
    draft.push_bridge_option("retry_max_s", said(cap), entry);
    Ok(())
}

fn round_robin(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        draft.push_bridge_option("return_s", ImportValue::Text("never".into()), entry);
    }
    Ok(())
}

fn start_type(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()? {
        "automatic" => {}
        "lazy" | "once" | "manual" => {
            draft.report_unsupported(entry, "a bridge connects at the start and stays")
        }
        _ => return Err("no such start, use automatic, lazy or once".to_string()),
    }
    Ok(())
}

fn try_private(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.report_unsupported(
            entry,
            "a bridge of 3.1.1 marks itself, and does without where that is refused",
        );
    }
    Ok(())
}

fn bridge_ca(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.bridge_of_entry(entry).has_tls = true;
    draft.push_bridge_option("tls.ca", ImportValue::Text(entry.text()?.to_string()), entry);
    Ok(())
}

/// Leaves a bridge out that has a folder of CAs: the host's default CAs would accept more servers.
fn bridge_ca_folder(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let bridge = draft.bridge_of_entry(entry);
    bridge.has_tls = true;
    bridge.unproven.get_or_insert_with(|| {
        "the bridge is not written: the folder of bridge_capath has no equal, and without it any \
         server that this host trusts would do: name the CAs in one file, tls.ca"
            .to_string()
    });
    draft.report_unsupported(entry, "name the CAs in one file: tls.ca");
    Ok(())
}

fn bridge_key(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.bridge_of_entry(entry).refusal = Some(
        "both sides know each other by a key there (TLS-PSK), and here it would connect without \
         one: use certificates, tls.*",
    );
    draft.report_unsupported(
        entry,
        "a bridge proves itself by a password or a certificate, not by a key (TLS-PSK)",
    );
    Ok(())
}

/// Leaves a bridge out whose server must prove by OCSP that its certificate is not revoked.
fn bridge_status(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        let why = "no OCSP is asked for, and a revoked certificate would count";
        draft.bridge_of_entry(entry).refusal = Some(why);
        draft.report_unsupported(entry, why);
    }
    Ok(())
}

/// Adds mosquitto's defaults that differ from the defaults here.
pub(crate) fn imply(draft: &mut ConfigDraft) {
    mosquitto_access::finish(draft);
    draft.imply_once("delayed.messages_max", "0", super::NO_DELAYED);
    let target = draft.setting("log.target").map(|there| there.value.text() == "file");
    if target == Some(true) && draft.setting("log.file").is_none() {
        draft.add_implied("log.target", "stderr", "what it is there without a word");
    }
}
