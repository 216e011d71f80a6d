//! Databases with users in the original: PostgreSQL, MySQL, Redis. Host, user, password and
//! database become the URL of one option.

use super::config_tree::{ConfigEntry, ConfigNode, ConfigTree, SourceLocation};
use super::draft::{ConfigDraft, DraftUser, UnsupportedKey};
use super::row::ImportValue;
use super::units;

/// Databases found so far, by their names in the original.
#[derive(Default)]
pub(super) struct AuthDatabases {
    servers: Vec<(&'static str, DatabaseParts)>,
}

#[derive(Default)]
struct DatabaseParts {
    at: Option<SourceLocation>,
    host: String,
    store: String,
    user: String,
    password: String,
    secret: bool,
    /// Whether the database authenticates clients, or only holds rules.
    knows_users: bool,
}

/// A database's name in the original, and the options here: URL, TLS, query for a user, query for
/// rules.
struct DatabaseKind {
    name: &'static str,
    scheme: &'static str,
    url: &'static str,
    tls: &'static str,
    user: &'static str,
    rules: &'static str,
}

const KINDS: &[DatabaseKind] = &[
    DatabaseKind {
        name: "postgresql",
        scheme: "postgres",
        url: "auth.postgres_url",
        tls: "auth.postgres_tls",
        user: "auth.postgres_user",
        rules: "auth.postgres_rules",
    },
    DatabaseKind {
        name: "mysql",
        scheme: "mysql",
        url: "auth.mysql_url",
        tls: "auth.mysql_tls",
        user: "auth.mysql_user",
        rules: "auth.mysql_rules",
    },
    DatabaseKind {
        name: "redis",
        scheme: "redis",
        url: "auth.redis_url",
        tls: "",
        user: "auth.redis_user",
        rules: "auth.redis_rules",
    },
];

fn database_kind(entry: &ConfigEntry<'_>) -> Result<&'static DatabaseKind, String> {
    let found = entry.key.split('.').find_map(|word| KINDS.iter().find(|kind| kind.name == word));
    found.ok_or_else(|| "this is for postgresql, mysql and redis, leave it out".to_string())
}

fn database_parts<'a>(
    draft: &'a mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<&'a mut DatabaseParts, String> {
    let name = database_kind(entry)?.name;
    let servers = &mut draft.tables.servers;
    let at = servers.iter().position(|(there, _)| *there == name).unwrap_or_else(|| {
        servers.push((name, DatabaseParts::default()));
        servers.len() - 1
    });
    let parts = &mut servers[at].1;
    parts.knows_users |= entry.key.starts_with("authentication.");
    parts.at.get_or_insert_with(|| entry.node.place.clone());
    Ok(parts)
}

pub(super) fn read_server(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let host = entry.text()?.to_string();
    database_parts(draft, entry)?.host = host;
    Ok(())
}

pub(super) fn read_database(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let store = entry.text()?.to_string();
    database_parts(draft, entry)?.store = store;
    Ok(())
}

pub(super) fn read_user(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let user = entry.text()?.to_string();
    database_parts(draft, entry)?.user = user;
    Ok(())
}

pub(super) fn read_password(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let password = entry.text()?.to_string();
    database_parts(draft, entry)?.password = password;
    Ok(())
}

pub(super) fn read_tls(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let secret = units::is_true(entry.text()?)?;
    database_parts(draft, entry)?.secret |= secret;
    Ok(())
}

/// Reads the key `query` or `cmd` of a database: the query for users, or the one for rules.
pub(super) fn read_query(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.trim().trim_end_matches(';').to_string();
    database_parts(draft, entry)?;
    let kind = database_kind(entry)?;
    let is_users = entry.key.starts_with("authentication.");
    let key = if is_users { kind.user } else { kind.rules };
    let text = match kind.name {
        "redis" => text,
        _ => unquote_placeholders(&text),
    };
    draft.push_option(key, ImportValue::Text(convert_placeholders(&text)), entry);
    Ok(())
}

/// Removes the double quotes around placeholders of an SQL query, as EMQX does. Placeholders in
/// single quotes stay: there EMQX would use the text of the placeholder itself, and the query is
/// refused here.
fn unquote_placeholders(text: &str) -> String {
    let (mut unquoted, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("\"${") {
        let (before, quoted) = rest.split_at(at);
        unquoted.push_str(before);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
        let name = quoted[3..].find(|c| !is_part(c)).unwrap_or(quoted.len() - 3) + 3;
        let ends = quoted[name..].starts_with("}\"");
        unquoted.push_str(if ends { &quoted[1..=name] } else { &quoted[..name] });
        rest = &quoted[if ends { name + 2 } else { name }..];
    }
    unquoted + rest
}

/// Replaces EMQX's names of placeholders by the names of this broker.
pub(super) fn convert_placeholders(text: &str) -> String {
    text.replace("${cert_common_name}", "${cert_cn}")
}

/// Reads the key `password_hash_algorithm.name`.
pub(super) fn read_password_format(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let said = match entry.text()? {
        "bcrypt" => ImportValue::Text("tagged".into()),
        "pbkdf2" => ImportValue::Text("pbkdf2_sha256".into()),
        sha @ ("sha256" | "sha512") => ImportValue::Text(sha.into()),
        "plain" | "md5" | "sha" => ImportValue::Unsupported(
            "plain text, MD5 and SHA-1 are not read here: hash the passwords anew",
        ),
        _ => return Err("no such algorithm, use one like bcrypt or sha256".to_string()),
    };
    draft.push_option("auth.password_form", said, entry);
    Ok(())
}

/// Reads the key `mac_fun` of the algorithm pbkdf2.
pub(super) fn read_digest(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let said = match entry.text()? {
        "sha256" => ImportValue::Text("pbkdf2_sha256".into()),
        "sha512" => ImportValue::Text("pbkdf2_sha512".into()),
        _ => ImportValue::Unsupported("of PBKDF2 sha256 and sha512 are read here"),
    };
    draft.push_option("auth.password_form", said, entry);
    Ok(())
}

pub(super) fn read_salt(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    match entry.text()? {
        "disable" => Ok(ImportValue::Text("none".into())),
        word @ ("prefix" | "suffix") => Ok(ImportValue::Text(word.into())),
        _ => Err("use prefix, suffix or disable".to_string()),
    }
}

/// Writes the URL of each database that authenticates clients; the other databases are reported.
pub(super) fn finish_databases(draft: &mut ConfigDraft) {
    for (name, parts) in std::mem::take(&mut draft.tables).servers {
        let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else { continue };
        let Some(place) = parts.at else { continue };
        if !parts.knows_users || parts.host.is_empty() {
            draft.settings.retain(|setting| ![kind.rules, kind.user].contains(&setting.key));
            let why = "rules are read here where the users are known: name the server's users too";
            let key = name.to_string();
            draft.missing.push(UnsupportedKey { place, key, why: why.to_string() });
            continue;
        }
        let secret = if parts.secret && kind.tls.is_empty() { "s" } else { "" };
        let who = match (parts.user.is_empty(), parts.password.is_empty()) {
            (true, true) => String::new(),
            (_, true) => format!("{}@", percent_encode(&parts.user)),
            _ => format!("{}:{}@", percent_encode(&parts.user), percent_encode(&parts.password)),
        };
        let slash = if parts.store.is_empty() { "" } else { "/" };
        let url = format!(
            "{}{secret}://{who}{}{slash}{}",
            kind.scheme,
            parts.host,
            percent_encode(&parts.store)
        );
        let node = ConfigNode { place, tree: ConfigTree::Text(String::new()) };
        let key = format!("authentication.{name}");
        let entry = ConfigEntry { key, names: Vec::new(), node: &node };
        draft.push_option(kind.url, ImportValue::Text(url), &entry);
        if parts.secret && !kind.tls.is_empty() {
            draft.push_option(kind.tls, ImportValue::Text("true".into()), &entry);
        }
    }
}

fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// Reads a map of headers or parameters for an HTTP server, with placeholders converted.
pub(super) fn read_map(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    let ConfigTree::Object(fields) = &entry.node.tree else {
        return Err("use { NAME = VALUE }".to_string());
    };
    let pair = |(name, node): &(String, ConfigNode)| {
        Some((name.clone(), convert_placeholders(node.text()?)))
    };
    let pairs: Option<Vec<_>> = fields.iter().map(pair).collect();
    Ok(pairs.map_or(
        ImportValue::Unsupported("parameters have no parts of their own here, each is a text"),
        ImportValue::Map,
    ))
}

/// Reads the parameters of NanoMQ's HTTP requests for authentication or access. `%m`, which the
/// file in NanoMQ's packages has, is a mount point there and always empty.
pub(super) fn read_params(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let mut said = match entry.node.text() {
        Some(_) => read_pairs(entry)?,
        None => read_map(entry)?,
    };
    if let ImportValue::Map(pairs) = &mut said {
        pairs.retain(|(name, value)| {
            let is_sent = value != "%m";
            if !is_sent {
                let why = "clients there have no mount point: it is not sent";
                draft.notes.push(format!("{}.{name}: {why}", entry.note()));
            }
            is_sent
        });
    }
    let key = match entry.key.contains("acl_req") {
        true => "acl.http_params",
        false => "auth.http_params",
    };
    draft.push_option(key, said, entry);
    Ok(())
}

/// Reads parameters in the form `a=%u,b=%c`.
fn read_pairs(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    let pair = |pair: &str| {
        let pair = pair.trim().split_once('=');
        pair.map(|(name, value)| (name.to_string(), value.to_string()))
    };
    let pairs: Option<Vec<_>> = entry.text()?.split(',').map(pair).collect();
    pairs.map(ImportValue::Map).ok_or_else(|| "use NAME=VALUE,NAME=VALUE".to_string())
}

/// Returns the prefix of the options for a request: `auth` or `acl`.
fn http_option_prefixes(entry: &ConfigEntry<'_>) -> [&'static str; 2] {
    match entry.key.contains("acl_req") || entry.key.starts_with("authorization") {
        true => ["acl.http_method", "acl.http_headers"],
        false => ["auth.http_method", "auth.http_headers"],
    }
}

/// Reads a URL of NanoMQ, where status 200 with any body allows and every other status denies.
pub(super) fn status_url(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let [url, answer] = match entry.key.contains("acl_req") {
        true => ["acl.http_url", "acl.http_answer"],
        false => ["auth.http_url", "auth.http_answer"],
    };
    draft.push_option(url, ImportValue::Text(entry.text()?.to_string()), entry);
    draft.push_option(answer, ImportValue::Text("status".into()), entry);
    Ok(())
}

/// Reads `get` or `post`; the content type decides the form of a POST.
pub(super) fn read_method(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let [key, _] = http_option_prefixes(entry);
    let is_form = draft.setting(key).is_some_and(|setting| setting.value.text() == "post_form");
    let word = match entry.text()?.to_ascii_lowercase().as_str() {
        "get" => "get",
        "post" if is_form => "post_form",
        "post" if entry.key.contains("_req") => "post_form",
        "post" => "post_json",
        _ => return Err("no such method, use get or post".to_string()),
    };
    draft.push_option(key, ImportValue::Text(word.into()), entry);
    Ok(())
}

pub(super) fn read_headers(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let ImportValue::Map(mut pairs) = read_map(entry)? else {
        draft.report_unsupported(entry, "a header is a text");
        return Ok(());
    };
    if pairs.iter().any(|(_, value)| value.contains("${")) {
        let why = "names of the client in headers are not filled in here: send them in the body";
        draft.report_unsupported(entry, why);
        return Ok(());
    }
    for (name, value) in &pairs {
        if name.eq_ignore_ascii_case("content-type") {
            read_content_type(draft, entry, value)?;
        }
    }
    let [_, key] = http_option_prefixes(entry);
    pairs.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
    if !pairs.is_empty() {
        draft.push_option(key, ImportValue::Map(pairs), entry);
    }
    Ok(())
}

/// Reads a header of NanoMQ's old file, whose name is part of the key.
pub(super) fn read_header(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let name = entry.names.last().cloned().unwrap_or_default();
    let value = entry.text()?.to_string();
    if name.eq_ignore_ascii_case("content-type") {
        return read_content_type(draft, entry, &value);
    }
    let [_, key] = http_option_prefixes(entry);
    let mut pairs = draft.setting(key).map_or(Vec::new(), |there| there.value.map().to_vec());
    pairs.push((name, value));
    draft.push_option(key, ImportValue::Map(pairs), entry);
    Ok(())
}

fn read_content_type(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
    value: &str,
) -> Result<(), String> {
    let [key, _] = http_option_prefixes(entry);
    let is_get = draft.setting(key).is_some_and(|setting| setting.value.text() == "get");
    let word = match value {
        _ if is_get => return Ok(()),
        "application/x-www-form-urlencoded" => "post_form",
        "application/json" => "post_json",
        _ => return Err("no such content type, use application/json".to_string()),
    };
    draft.push_option(key, ImportValue::Text(word.into()), entry);
    Ok(())
}

/// Reads a user with a password in plain text: `NAME = PASSWORD`.
pub(super) fn plain_user(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let (name, password) = (entry.first_wildcard().to_string(), entry.text()?.to_string());
    (draft.catalog.check_user_name)(&name)?;
    draft.users.push(DraftUser { at: name.clone(), name, password });
    Ok(())
}

/// Reads a user from two lines with the same number: `auth.1.login` and `auth.1.password`.
pub(super) fn numbered_user(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let text = entry.text()?.to_string();
    let is_name = entry.key.ends_with("login");
    if is_name {
        (draft.catalog.check_user_name)(&text)?;
    }
    let at = draft.users.iter().position(|user| user.at == entry.first_wildcard()).unwrap_or_else(
        || {
            draft
                .users
                .push(DraftUser { at: entry.first_wildcard().to_string(), ..DraftUser::default() });
            draft.users.len() - 1
        },
    );
    let user = &mut draft.users[at];
    if is_name {
        user.name = text
    } else {
        user.password = text
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::unquote_placeholders;

    #[test]
    fn double_quotes_around_placeholders_fall_away() {
        for (there, here) in [
            ("u = \"${username}\" and c = ${clientid}", "u = ${username} and c = ${clientid}"),
            ("u = '${username}'", "u = '${username}'"),
            ("u = \"${username}x\"", "u = \"${username}x\""),
            ("\"${a}\"\"${b.c}\"", "${a}${b.c}"),
            ("\"${", "\"${"),
            ("\"${\u{fc}}\"", "\"${\u{fc}}\""),
        ] {
            assert_eq!(unquote_placeholders(there), here);
        }
    }
}
