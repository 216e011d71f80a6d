//! Values of EMQX's configuration, converted to values of the options here.

use super::super::super::auth_databases::{self};
use super::super::super::config_tree::ConfigEntry;
use super::super::super::row::ImportValue;
use super::super::super::units::{is_true, read_bytes};

pub(crate) fn strategy(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    Ok(match entry.text()? {
        "round_robin" | "round_robin_per_group" => ImportValue::Text("round_robin".into()),
        "hash_clientid" => ImportValue::Text("hash_client".into()),
        "local" => ImportValue::Unsupported("there is one node: every member is local"),
        word @ ("random" | "sticky" | "hash_topic") => ImportValue::Text(word.into()),
        _ => return Err("no such strategy, use one like round_robin".to_string()),
    })
}

pub(crate) fn certificate(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    Ok(match entry.text()? {
        "disabled" => ImportValue::Text("off".into()),
        "cn" => ImportValue::Text("common_name".into()),
        "dn" => ImportValue::Text("subject".into()),
        "crt" | "pem" | "md5" => {
            ImportValue::Unsupported("common name, subject and alternative name may be it")
        }
        _ => return Err("use disabled, cn or dn".to_string()),
    })
}

/// Reads a rate such as `1000/s` or `60000/m`, converted to a number per second.
pub(crate) fn rate(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    let text = entry.text()?;
    if ["infinity", "0"].contains(&text) {
        return Ok(ImportValue::Unlimited);
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
    let node =
        super::super::super::config_tree::ConfigNode::text_at(&entry.node.place, amount.trim());
    let amount = ConfigEntry { key: entry.key.clone(), names: Vec::new(), node: &node };
    let ImportValue::Text(amount) = read_bytes(&amount).map_err(|_| wrong())? else {
        return Ok(ImportValue::Unlimited);
    };
    let amount: u64 = amount.parse().map_err(|_| wrong())?;
    let a_second = amount.checked_div(seconds).ok_or_else(wrong)?.max(1);
    Ok(ImportValue::Text(a_second.to_string()))
}

pub(crate) fn proxy(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    let word = if is_true(entry.text()?)? { "auto" } else { "off" };
    Ok(ImportValue::Text(word.into()))
}

pub(crate) fn versions(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    let texts = entry.node.texts().ok_or("use a list like [\"tlsv1.3\", \"tlsv1.2\"]")?;
    match texts.contains(&"tlsv1.2") {
        true => Ok(ImportValue::Text("1.2".into())),
        false if texts.contains(&"tlsv1.3") => Ok(ImportValue::Text("1.3".into())),
        false => Ok(ImportValue::Unsupported("1.2 and 1.3 are spoken")),
    }
}

/// Reads a URL, with the placeholders of its path and query converted.
pub(crate) fn server_url(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    Ok(ImportValue::Text(auth_databases::convert_placeholders(entry.text()?)))
}

pub(crate) fn token_from(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    match entry.text()? {
        "password" => Ok(ImportValue::Text("password".into())),
        "username" => Ok(ImportValue::Text("user_name".into())),
        _ => Err("use password or username".to_string()),
    }
}

pub(crate) fn format(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    match entry.text()? {
        word @ ("text" | "json") => Ok(ImportValue::Text(word.into())),
        _ => Err("use text or json".to_string()),
    }
}
