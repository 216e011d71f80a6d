//! Options of the program: where it listens and stores, its memory, its logs, what it traces.

use super::{BrokerTables, ProgramOption};
use crate::logs::MODULES;
use crate::options::settings::{LogFormat, LogTarget};
use auth::settings::AnonymousAccess;
use broker::limits;
use config::listen_url::ListenUrl;
use config::nearest::nearest_word;
use config::row::{ANY, OptionRow, OptionScope, PATH, count};
use config::value::{OptionKind, one_of};
use std::net::IpAddr;
use tracing::level_filters::LevelFilter;

/// The keys without a section: a TOML file has them before its first `[section]`.
pub(super) const TOP: &[ProgramOption] = &[
    OptionRow {
        key: "listen",
        kind: OptionKind::List { of: "URLs", check: |url| ListenUrl::parse(url).map(drop) },
        default: "tcp://127.0.0.1:1883",
        live: false,
        also_for: &[],
        short: "where clients connect: tcp://ADDRESS:PORT, tls://... or unix:///PATH, several too",
        long: "The address is an IPv4 address, an IPv6 address in brackets or a host name; \
               0.0.0.0 and [::] stand for every interface. Port 0 takes any free one, and no port \
               is 1883 for tcp and 8883 for tls. The default stands only where there is no \
               `[[listener]]` either.",
        source: "MQTT 5.0, 4.2",
        set: |settings, value| {
            let urls = value.list().iter().map(|url| ListenUrl::parse(url));
            settings.listen = urls.map(|url| url.expect("the row has checked it")).collect();
        },
    },
    BrokerTables::NAMESPACE,
    OptionRow {
        key: "shards",
        kind: count(0, limits::SHARDS_MAX as u64, "threads"),
        default: "0",
        live: false,
        also_for: &[],
        short: "threads that serve clients; 0 is one a core",
        long: "One is right for a gateway.",
        source: "",
        set: |settings, value| settings.shards = usize::from(value.u16()),
    },
    OptionRow {
        key: "io_uring",
        kind: OptionKind::Bool,
        default: "true",
        live: false,
        also_for: &[],
        short: "whether the kernel does many writes of one turn in one call",
        long: "Where four connections or more are written to at once that costs less, and the \
               last of them wait less. Where the kernel is older than 5.19, or a sandbox does not \
               let us, each write is a call as without it.",
        source: "io_uring(7)",
        set: |settings, value| settings.io_uring = value.bool(),
    },
    OptionRow {
        key: "data",
        kind: ANY,
        default: "godwit-data",
        live: false,
        also_for: &[],
        short: "folder for what outlives the process",
        long: "Made if it is not there; one process at a time may use it. With `durability = \
               \"memory\"` it is not touched.",
        source: "",
        set: |settings, value| settings.data = value.text().to_string(),
    },
    BrokerTables::DURABILITY,
    OptionRow {
        key: "allow_anonymous",
        kind: OptionKind::Choice(&["loopback", "true", "false"]),
        default: "loopback",
        live: true,
        also_for: &[OptionScope::Listener],
        short: "whether clients may connect without authentication",
        long: "`loopback` lets them in where only this host can reach us, and refuses to start on \
               any other address. `true` lets everyone in. With authentication (`auth.users` and \
               the others) clients that bring no proof come in only where it is `true`, and \
               nobody does with a wrong one.",
        source: "MQTT 5.0, 5.4.1",
        set: |settings, value| {
            settings.allow_anonymous = match value.text() {
                "true" => AnonymousAccess::Always,
                "false" => AnonymousAccess::Never,
                _ => AnonymousAccess::Loopback,
            }
        },
    },
];

pub(super) const ROWS: &[ProgramOption] = &[
    OptionRow {
        key: "log.file",
        kind: PATH,
        default: "",
        live: true,
        also_for: &[],
        short: "file that `log.target = \"file\"` writes",
        long: "Lines are appended. SIGHUP opens it anew, for log rotation.",
        source: "",
        set: |settings, value| settings.log.file = value.text().into(),
    },
    OptionRow {
        key: "log.format",
        kind: OptionKind::Choice(&["json", "text"]),
        default: "text",
        live: true,
        also_for: &[],
        short: "how a log line is written",
        long: "`json` writes one object a line.",
        source: "",
        set: |settings, value| {
            let json = value.text() == "json";
            settings.log.format = if json { LogFormat::Json } else { LogFormat::Text };
        },
    },
    OptionRow {
        key: "log.level",
        kind: OptionKind::Choice(LEVELS),
        default: "info",
        live: true,
        also_for: &[],
        short: "what is logged: this and everything graver",
        long: "",
        source: "",
        set: |settings, value| settings.log.level = level(value.text()),
    },
    OptionRow {
        key: "log.modules",
        kind: OptionKind::Map { of: "MODULE", value: "LEVEL", check: check_module },
        default: "",
        live: true,
        also_for: &[],
        short: "levels of single modules, over `log.level`",
        long: "Modules: `auth` (who is let in), `conn` (connections), `permission` (what rules \
               forbid), `session`, `subscription`, `drop` (messages that were dropped), \
               `gateway` (sockets that come and go), `trace` (packets, see `trace`), `serve` \
               (start, stop, options).",
        source: "",
        set: |settings, value| {
            let pair = |(module, name): &(String, String)| (module.clone(), level(name));
            settings.log.modules = value.map().iter().map(pair).collect();
        },
    },
    OptionRow {
        key: "log.target",
        kind: OptionKind::Choice(&["file", "stderr", "syslog"]),
        default: "stderr",
        live: true,
        also_for: &[],
        short: "where log lines go",
        long: "`file` needs `log.file`. `syslog` writes to /dev/log as `godwit`, facility daemon.",
        source: "",
        set: |settings, value| {
            settings.log.target = match value.text() {
                "file" => LogTarget::File,
                "syslog" => LogTarget::Syslog,
                _ => LogTarget::Stderr,
            }
        },
    },
    BrokerTables::MEMORY_BYTES_MAX,
    BrokerTables::SYS_INTERVAL_S,
    OptionRow {
        key: "trace.address",
        kind: OptionKind::Text { of: "an IP address", check: check_address },
        default: "",
        live: true,
        also_for: &[],
        short: "logs every packet of clients from this IP address",
        long: "All conditions under `trace` that are given must hold. Lines have the module \
               `trace`, level info.",
        source: "",
        set: |settings, value| {
            if let Ok(address) = value.text().parse() {
                settings.trace().address = Some(address);
            }
        },
    },
    OptionRow {
        key: "trace.client_id",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "logs every packet of the client with this id",
        long: "",
        source: "",
        set: |settings, value| {
            if !value.text().is_empty() {
                settings.trace().client_id = Some(value.text().to_string());
            }
        },
    },
    OptionRow {
        key: "trace.topic",
        kind: OptionKind::Text { of: "a topic filter", check: check_filter },
        default: "",
        live: true,
        also_for: &[],
        short: "logs every PUBLISH with a topic that this filter matches",
        long: "Behind an alias, too; and no other packets.",
        source: "",
        set: |settings, value| {
            if !value.text().is_empty() {
                settings.trace().topic = Some(value.text().to_string());
            }
        },
    },
];

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Returns the level of a checked name.
fn level(name: &str) -> LevelFilter {
    name.parse().unwrap_or(LevelFilter::INFO)
}

fn check_module(module: &str, level: &str) -> Result<(), String> {
    if !MODULES.contains(&module) {
        let hint = nearest_word(module, MODULES.iter().copied());
        let hint = hint.map_or(String::new(), |module| format!(", did you mean \"{module}\"?"));
        return Err(format!("no module is named {module:?}, use {}{hint}", one_of(MODULES)));
    }
    let known = LEVELS.contains(&level);
    if known { Ok(()) } else { Err(format!("no such level, use {}", one_of(LEVELS))) }
}

fn check_address(text: &str) -> Result<(), String> {
    match text.parse::<IpAddr>() {
        Err(_) if !text.is_empty() => {
            Err("not an IP address, use one like 192.0.2.7 or 2001:db8::7".to_string())
        }
        _ => Ok(()),
    }
}

fn check_filter(text: &str) -> Result<(), String> {
    match mqtt::topic::check_filter(text) {
        Err(_) if !text.is_empty() => {
            Err("not a topic filter, use one like \"a/+/c\" or \"a/#\"".to_string())
        }
        _ => Ok(()),
    }
}
