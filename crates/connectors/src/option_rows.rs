//! Option rows which bridges, gateways and sinks share, and checks of their values. Texts which
//! differ between the kinds of links are parameters.

use config::row::{OptionRow, PATH, count};
use config::value::OptionValue;
use std::path::PathBuf;

/// TLS options of a link, as paths and names; `LinkDefinition` holds the configuration made from
/// the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkTlsSettings {
    pub authorities: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub alpn: Vec<String>,
    pub server_name: String,
}

/// Stores the value of a row in the settings `S`.
type RowSetter<S> = fn(&mut S, &OptionValue);

impl LinkTlsSettings {
    /// Checks that certificate and key are both set or both empty. `is_spoken`: whether any server
    /// uses TLS; if none does, TLS files are an error, which names `whose` servers need them.
    pub fn check(&self, is_spoken: bool, whose: &str) -> Result<(), String> {
        let is_empty = |path: &PathBuf| path.as_os_str().is_empty();
        if is_empty(&self.certificate) != is_empty(&self.key) {
            return Err("tls.certificate and tls.key go together".to_string());
        }
        if is_spoken || (is_empty(&self.authorities) && is_empty(&self.key)) {
            return Ok(());
        }
        Err(format!("tls options are for {whose}"))
    }
}

/// Checks that the first pause between two attempts is not longer than the longest pause.
pub fn check_retry(min_ms: u32, max_s: u32) -> Result<(), String> {
    match u64::from(min_ms) > u64::from(max_s) * 1000 {
        true => Err("retry_min_ms is more than retry_max_s".to_string()),
        false => Ok(()),
    }
}

pub const fn retry_min_ms<S>(short: &'static str, set: RowSetter<S>) -> OptionRow<S> {
    OptionRow {
        key: "retry_min_ms",
        kind: count(10, 3_600_000, "milliseconds"),
        default: "500",
        live: true,
        also_for: &[],
        short,
        long: "Each further one is twice as long, by a random part shorter, up to `retry_max_s`.",
        source: "",
        set,
    }
}

pub const fn retry_max_s<S>(
    short: &'static str,
    long: &'static str,
    set: RowSetter<S>,
) -> OptionRow<S> {
    let kind = count(1, 86_400, "seconds");
    OptionRow {
        key: "retry_max_s",
        kind,
        default: "30",
        live: true,
        also_for: &[],
        short,
        long,
        source: "",
        set,
    }
}

const fn file<S>(
    key: &'static str,
    short: &'static str,
    long: &'static str,
    set: RowSetter<S>,
) -> OptionRow<S> {
    OptionRow {
        key,
        kind: PATH,
        default: "",
        live: true,
        also_for: &[],
        short,
        long,
        source: "",
        set,
    }
}

pub const fn tls_ca<S>(short: &'static str, long: &'static str, set: RowSetter<S>) -> OptionRow<S> {
    file("tls.ca", short, long, set)
}

pub const fn tls_certificate<S>(set: RowSetter<S>) -> OptionRow<S> {
    let short = "our own certificate, PEM, with the chain below it; needs tls.key";
    file("tls.certificate", short, "", set)
}

pub const fn tls_key<S>(set: RowSetter<S>) -> OptionRow<S> {
    file("tls.key", "its private key, PEM", "", set)
}

/// Default text of options which name trusted CAs.
pub const HOST_CAS: &str =
    "Empty are those that this host trusts. Trust in everyone is not possible.";
