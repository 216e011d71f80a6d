//! mosquitto.conf(5), up to 2.1.

use super::super::bridge;
use super::super::draft::Draft;
use super::super::listener::Carrier;
use super::super::row::{Row, Said, all, far, made, no, own};
use super::super::tree::Entry;
use super::super::units::{
    age, alone, bytes, count, count_or_none, flag, is_true, list, seconds, seconds_or_none, text,
};
use super::{durability, log_level, mosquitto_access};

#[rustfmt::skip]
pub(in crate::import) const ROWS: &[Row] = &[
    no("allow_duplicate_messages",
        "overlapping subscriptions get one copy each, as MQTT 5.0 has it"),
    no("auth_plugin_deny_special_chars", "names with + and # in them never match an allowing rule"),
    no("auto_id_prefix", "ids that the broker gives have no prefix"),
    no("autosave_interval",
        "what is acknowledged is on the disk; durability = \"lazy\" writes once a second"),
    no("autosave_on_changes", "what is acknowledged is on the disk"),
    no("check_retain_source",
        "what was retained once was allowed once; a rule that changes takes nothing back"),
    made("connection_messages",
        "`log.modules` for `conn`: off where it is false", connection_messages),
    no("enable_control_api", "there is no $CONTROL"),
    no("global_max_clients", "sessions are bound by memory.bytes_max and session.expiry_s_max"),
    all("global_max_connections", "limits.connections_max", count_or_none),
    made("include_dir", "read as well, file by file", |_, _| Ok(())),
    made("log_dest", "`log.target`, `log.file`", log_dest),
    no("log_facility", "syslog gets facility daemon"),
    no("log_timestamp", "every line has its time"),
    no("log_timestamp_format", "times are written as RFC 3339 has them"),
    made("log_type", "`log.level`, the finest of all that are named", log_type),
    no("max_inflight_bytes", "use session.inflight_max and queue.bytes_max"),
    all("max_inflight_messages", "session.inflight_max", count_or_none),
    all("max_keepalive", "connect.keep_alive_s_max", seconds_or_none),
    all("max_packet_size", "connection.packet_bytes_max", bytes),
    all("max_queued_bytes", "queue.bytes_max", bytes),
    all("max_queued_messages", "queue.messages_max", count_or_none),
    all("memory_limit", "memory.bytes_max", bytes),
    no("message_size_limit", "packets are bound, not payloads: connection.packet_bytes_max"),
    made("persistence", "`durability`: sync or memory", durability),
    no("persistence_file", "the store is a folder with files of its own; mosquitto.db is not read"),
    made("persistence_location", "`data`, a folder in it", location),
    all("persistent_client_expiration", "session.expiry_s_max", age),
    no("pid_file", "it stays in the foreground, for systemd or a container"),
    all("queue_qos0_messages", "queue.qos0", flag),
    all("retain_available", "retain.available", flag),
    no("retain_expiry_interval",
        "retained messages end with their own Message Expiry Interval; message.expiry_s_max \
         bounds it for all messages"),
    no("retry_interval",
        "messages are sent again when their client comes back, as MQTT 5.0 demands"),
    no("set_tcp_nodelay", "it is always so"),
    no("store_clean_interval", "nothing has to be cleaned"),
    all("sys_interval", "sys.interval_s", seconds),
    no("upgrade_outgoing_qos", "nobody gets a higher QoS than was published"),
    no("user", "it changes no user: start it as the one it is to be"),
    no("websockets_headers_size", "a request has at most 8 KiB"),
    no("websockets_log_level", "WebSockets have no log of their own"),
    made("websockets_origin", "`ws.origins`, one more", origin),
    no("accept_protocol_versions", "3.1, 3.1.1 and 5.0 are all spoken"),
    own("enable_proxy_protocol", "proxy.protocol", proxy),
    no("http_dir", "no files are served"),
    no("http_api", "there is no HTTP API yet"),
    no("listener_auto_id_prefix", "ids that the broker gives have no prefix"),
    own("max_connections", "limits.connections_max", count_or_none),
    own("max_qos", "message.qos_max", count),
    own("max_topic_alias", "connection.topic_alias_max", count),
    all("max_topic_alias_broker", "connection.topic_alias_out_max", count),
    made("protocol", "`ws://` or `wss://` for websockets", protocol),
    own("cafile", "tls.client_ca", text),
    own("certfile", "tls.certificate", alone),
    own("keyfile", "tls.key", alone),
    own("crlfile", "tls.crl", alone),
    no("ciphers", "only suites with forward secrecy are spoken, and all of them"),
    no("ciphers_tls1.3", "all suites of TLS 1.3 are spoken"),
    no("dhparamfile", "elliptic curves are spoken in the place of DHE"),
    no("disable_client_cert_date_checks", "an expired certificate is no certificate"),
    no("tls_engine", "keys are files"),
    no("tls_engine_kpass_sha1", "keys are files without a password"),
    no("tls_keyform", "keys are PEM files"),
    own("tls_version", "tls.version_min", tls_version),
];

#[rustfmt::skip]
pub(in crate::import) const BRIDGES: &[Row] = &[
    made("connection", "`[[bridge]]`, its `name`", connection),
    made("address", "`servers`", bridge::server),
    made("addresses", "`servers`", bridge::server),
    made("topic", "`[[bridge.out]]` and `[[bridge.in]]`", topic),
    no("attempt_unsubscribe", FORGETS),
    no("bridge_attempt_unsubscribe", FORGETS),
    no("bridge_bind_address", "the system chooses the address"),
    far("bridge_max_packet_size", "packet_bytes_max", bytes),
    no("bridge_max_topic_alias", "a bridge uses as many as the other broker allows"),
    made("bridge_outgoing_retain", "`retain` of each `[[bridge.out]]`", outgoing_retain),
    far("bridge_protocol_version", "version", bridge::version),
    far("bridge_receive_maximum", "session.inflight_max", count),
    no("bridge_reload_type", "SIGHUP connects anew what has changed, and nothing else"),
    far("bridge_session_expiry_interval", "session_expiry_s", seconds),
    no("bridge_tcp_keepalive", "keep_alive_s and answer_timeout_s notice a dead line"),
    no("bridge_tcp_user_timeout", "keep_alive_s and answer_timeout_s notice a dead line"),
    made("cleansession", "`session_expiry_s`: 0 where it is true", bridge::clean),
    no("local_cleansession",
        "what goes out always waits while the other broker is away; queue.* bounds it"),
    far("clientid", "client_id", text),
    far("remote_clientid", "client_id", text),
    no("local_clientid", LOCAL),
    no("local_username", LOCAL),
    no("local_password", LOCAL),
    far("keepalive_interval", "keep_alive_s", seconds),
    no("idle_timeout", "a bridge stays connected"),
    no("notifications",
        "$SYS/broker/bridge/ tells how each bridge is; status_topic tells the other broker"),
    far("notification_topic", "status_topic", text),
    no("notifications_local_only", "status_topic is there, $SYS/broker/bridge/ here"),
    far("remote_username", "user_name", text),
    far("username", "user_name", text),
    far("remote_password", "password", text),
    far("password", "password", text),
    made("restart_timeout",
        "`retry_max_s`; of two numbers the first is `retry_min_ms`", restart_timeout),
    made("round_robin", "`return_s`: never where it is true", round_robin),
    made("start_type", "nothing where it is automatic", start_type),
    no("threshold", "a bridge stays connected"),
    made("try_private", "nothing where it is true", try_private),
    made("bridge_cafile", "`tls.ca`, and servers are spoken to by TLS", bridge_ca),
    made("bridge_capath",
        "TLS; without a bridge_cafile the bridge is left out: name the CAs in one file, `tls.ca`",
        bridge_ca_folder),
    far("bridge_certfile", "tls.certificate", text),
    far("bridge_keyfile", "tls.key", text),
    far("bridge_alpn", "tls.alpn", list),
    no("bridge_ciphers", "only suites with forward secrecy are spoken, and all of them"),
    no("bridge_ciphers_tls1.3", "all suites of TLS 1.3 are spoken"),
    made("bridge_identity", "the bridge is left out: it has no key (TLS-PSK) here", bridge_key),
    made("bridge_psk", "the bridge is left out: it has no key (TLS-PSK) here", bridge_key),
    no("bridge_insecure", "the server's name is always checked: tls.server_name says another"),
    no("bridge_require_ocsp", "no OCSP is asked for"),
    made("bridge_tls_use_os_certs", "TLS with those whom this host trusts", bridge::tls),
    no("bridge_tls_version", "TLS 1.2 and 1.3 are spoken"),
];

const FORGETS: &str = "a bridge knows what it is subscribed to and takes back the rest";
const LOCAL: &str =
    "a bridge is a session of the broker's own, $link/bridge/NAME, which no rule binds";

fn connection_messages(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        let off = vec![("conn".to_string(), "off".to_string())];
        draft.say("log.modules", Said::Map(off), entry);
    }
    Ok(())
}

fn log_dest(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let is_file = draft.setting("log.target").is_some_and(|there| there.value.text() == "file");
    let (word, rest) = entry.text()?.split_once(' ').unwrap_or((entry.text()?, ""));
    let target = match word {
        "file" if rest.is_empty() => return Err("a file is missing, use file PATH".to_string()),
        "file" => {
            draft.say("log.file", Said::Text(rest.trim().into()), entry);
            "file"
        }
        "syslog" => "syslog",
        "stdout" | "stderr" => "stderr",
        "none" => {
            draft.say("log.level", Said::Text("off".into()), entry);
            return Ok(());
        }
        "topic" | "dlt" | "android" => {
            draft.miss(entry, "log lines go to stderr, a file or syslog");
            return Ok(());
        }
        _ => return Err("no such target, use file PATH, syslog, stdout or stderr".to_string()),
    };
    if is_file && target != "file" {
        draft.miss(entry, "one target at a time: the file was taken");
        return Ok(());
    }
    draft.say("log.target", Said::Text(target.into()), entry);
    Ok(())
}

fn log_type(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    const FINER: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
    let level = match entry.text()? {
        "information" | "subscribe" | "unsubscribe" | "websockets" | "internal" => "info",
        "all" => "debug",
        _ => match log_level(entry)? {
            Said::Text(level) => {
                FINER.iter().find(|word| **word == level).copied().unwrap_or("info")
            }
            _ => "info",
        },
    };
    let at = |level: &str| FINER.iter().position(|word| *word == level);
    let there = draft.setting("log.level").and_then(|there| at(there.value.text()));
    if there.is_none_or(|there| Some(there) < at(level)) {
        draft.say("log.level", Said::Text(level.into()), entry);
    }
    Ok(())
}

/// A host stands for its pages over HTTP and HTTPS. Several in a line, or a line each.
fn origin(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let there = draft.setting("ws.origins").map_or(Vec::new(), |there| there.value.list().to_vec());
    let more = entry.text()?.split([' ', ',', '\t']).filter(|one| !one.is_empty());
    let more = more.flat_map(|one| match one.contains("://") || one == "null" || one == "*" {
        true => vec![one.to_string()],
        false => vec![format!("http://{one}"), format!("https://{one}")],
    });
    let all = there.into_iter().chain(more).collect();
    draft.say("ws.origins", Said::List(all), entry);
    Ok(())
}

fn location(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let folder = format!("{}/godwit-data", entry.text()?.trim_end_matches('/'));
    draft.say("data", Said::Text(folder), entry);
    Ok(())
}

fn protocol(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    match entry.text()? {
        "mqtt" => {}
        "websockets" => draft.listener(entry).kind = Carrier::Web,
        "http_api" => {
            draft.listener(entry).is_off = true;
            draft.miss(entry, "there is no HTTP API yet");
        }
        _ => return Err("no such protocol, use mqtt or websockets".to_string()),
    }
    Ok(())
}

fn proxy(entry: &Entry<'_>) -> Result<Said, String> {
    match entry.text()? {
        "1" => Ok(Said::Text("v1".into())),
        "2" => Ok(Said::Text("v2".into())),
        _ => Err("use 1 or 2, the version".to_string()),
    }
}

fn tls_version(entry: &Entry<'_>) -> Result<Said, String> {
    match entry.text()? {
        "tlsv1.3" => Ok(Said::Text("1.3".into())),
        "tlsv1.2" => Ok(Said::Text("1.2".into())),
        "tlsv1.1" | "tlsv1" => Ok(Said::Nothing("older than 1.2 is not spoken")),
        _ => Err("no such version, use tlsv1.2 or tlsv1.3".to_string()),
    }
}

fn connection(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    draft.bridge(entry);
    Ok(())
}

/// `PATTERN [[out|in|both] QOS [LOCAL_PREFIX [REMOTE_PREFIX]]]`
fn topic(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    let mut words = text.split_whitespace().map(|word| if word == "\"\"" { "" } else { word });
    let pattern = words.next().unwrap_or_default();
    let way = words.next().unwrap_or("out");
    let qos = match words.next() {
        None | Some("0") => 0,
        Some("1") => 1,
        Some("2") => 2,
        Some(_) => return Err("a QoS is 0, 1 or 2".to_string()),
    };
    let (local, remote) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !["in", "out", "both"].contains(&way) || words.next().is_some() {
        return Err("use topic PATTERN [in|out|both QOS [LOCAL_PREFIX [REMOTE_PREFIX]]]".into());
    }
    let one = |from: &str, to: &str| bridge::Topics {
        note: entry.note(),
        filter: format!("{from}{pattern}"),
        topic: match (from.is_empty(), to.is_empty()) {
            (true, _) => String::new(),
            (false, _) => format!("{to}{pattern}"),
        },
        prefix: if from.is_empty() { to.to_string() } else { String::new() },
        qos: Some(qos),
        ..bridge::Topics::default()
    };
    let bridge = draft.bridge(entry);
    if way != "in" {
        bridge.outward.push(one(local, remote));
    }
    if way != "out" {
        bridge.inward.push(one(remote, local));
    }
    Ok(())
}

/// It may stand before the topics, so it is kept until all are there.
fn outgoing_retain(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let clears = !is_true(entry.text()?)?;
    draft.bridge(entry).clears_retain = clears;
    Ok(())
}

/// `SECONDS`, or `BASE CAP`.
fn restart_timeout(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let numbers = entry.text()?.split_whitespace().map(str::parse::<u64>);
    let numbers: Result<Vec<u64>, _> = numbers.collect();
    let (base, cap) = match numbers.as_deref() {
        Ok([cap]) => (None, *cap),
        Ok([base, cap]) if base <= cap => (Some(*base), *cap),
        _ => return Err("use SECONDS, or BASE CAP, of which CAP is no less".to_string()),
    };
    let said = |number: u64| Said::Text(number.to_string());
    if let Some(base) = base {
        draft.bridge_option("retry_min_ms", said(base.saturating_mul(1000)), entry);
    }
    draft.bridge_option("retry_max_s", said(cap), entry);
    Ok(())
}

fn round_robin(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        draft.bridge_option("return_s", Said::Text("never".into()), entry);
    }
    Ok(())
}

fn start_type(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    match entry.text()? {
        "automatic" => {}
        "lazy" | "once" | "manual" => draft.miss(entry, "a bridge connects at the start and stays"),
        _ => return Err("no such start, use automatic, lazy or once".to_string()),
    }
    Ok(())
}

fn try_private(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        draft.miss(entry, "a bridge of 3.1.1 marks itself, and does without where that is refused");
    }
    Ok(())
}

fn bridge_ca(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    draft.bridge(entry).has_tls = true;
    draft.bridge_option("tls.ca", Said::Text(entry.text()?.to_string()), entry);
    Ok(())
}

/// Any other authority would be more open than those of the folder.
fn bridge_ca_folder(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    let bridge = draft.bridge(entry);
    bridge.has_tls = true;
    bridge.unproven.get_or_insert_with(|| {
        "the bridge is not written: the folder of bridge_capath has no equal, and without it any \
         server that this host trusts would do: name the CAs in one file, tls.ca"
            .to_string()
    });
    draft.miss(entry, "name the CAs in one file: tls.ca");
    Ok(())
}

fn bridge_key(draft: &mut Draft, entry: &Entry<'_>) -> Result<(), String> {
    draft.bridge(entry).lacks_key = true;
    draft.miss(
        entry,
        "a bridge proves itself by a password or a certificate, not by a key (TLS-PSK)",
    );
    Ok(())
}

/// What nothing in the file says.
pub(in crate::import) fn imply(draft: &mut Draft) {
    mosquitto_access::finish(draft);
    let target = draft.setting("log.target").map(|there| there.value.text() == "file");
    if target == Some(true) && draft.setting("log.file").is_none() {
        draft.imply("log.target", "stderr", "what it is there without a word");
    }
}
