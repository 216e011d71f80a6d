//! EMQX's chains of authenticators and of rule sources, evaluated one after the other. The links
//! are read by kind; only the end of the import shows which links were carried over.
//!
//! Invariant: a link that is not carried over completely is left out completely, and clients that
//! it could have refused are not admitted by later links.

use super::auth_databases;
use super::config_tree::{ConfigEntry, ConfigFields, ConfigNode, ConfigTree, SourceLocation};
use super::draft::{ConfigDraft, DraftSetting, UnsupportedKey};
use super::emqx_access;
use super::row;
use super::units;

/// Every enabled link, in the order of the file.
#[derive(Default)]
pub(super) struct AuthChains {
    authenticators: Vec<ChainLink>,
    sources: Vec<ChainLink>,
    /// Whether the file has a key for authentication.
    pub(super) names_authentication: bool,
    /// Whether an authenticator is left out.
    is_incomplete: bool,
    /// Whether the file has a key for sources of rules.
    pub(super) names_sources: bool,
    /// Whether any source is enabled.
    pub(super) had_rules: bool,
}

impl AuthChains {
    /// Whether the file has a list of sources without an enabled source.
    pub(super) fn has_no_source(&self) -> bool {
        self.names_sources && self.sources.is_empty()
    }
}

struct ChainLink {
    place: SourceLocation,
    kind: String,
    /// Whether an earlier link has the same kind.
    is_second: bool,
    /// Hash of passwords in a database, with defaults filled in.
    password_hash: String,
    /// Range of the link's rules in `ConfigDraft::rules`.
    rules: std::ops::Range<usize>,
}

/// Turns each chain into an object with the kinds of its links as keys, so that a row can match a
/// link.
pub(super) fn arrange_chains(root: &mut ConfigNode, draft: &mut ConfigDraft) {
    if let Some(node) = root.field_mut("authentication") {
        draft.chains.names_authentication = true;
        draft.chains.authenticators =
            index_by_kind(node, authenticator_kind, draft, "authentication");
    }
    let authorization = root.field_mut("authorization");
    if let Some(node) = authorization.and_then(|node| node.field_mut("sources")) {
        draft.chains.names_sources = true;
        let kind = |node: &ConfigNode| node.field_text("type").map(str::to_string);
        draft.chains.sources = index_by_kind(node, kind, draft, "authorization.sources");
    }
}

fn authenticator_kind(node: &ConfigNode) -> Option<String> {
    let kind = match node.field_text("mechanism") {
        Some("jwt") => "jwt",
        Some("scram") => "scram",
        Some("gssapi") => "kerberos",
        Some("cinfo") => "cinfo",
        _ => node.field_text("backend")?,
    };
    Some(kind.to_string())
}

/// Returns the links of a chain in the order of evaluation.
fn chain_links(
    node: &ConfigNode,
    kind: &impl Fn(&ConfigNode) -> Option<String>,
) -> Vec<ConfigNode> {
    match &node.tree {
        ConfigTree::List(nodes) => nodes.clone(),
        ConfigTree::Object(_) if kind(node).is_some() => vec![node.clone()],
        // `authentication.1 { ... }`
        ConfigTree::Object(fields) => {
            let mut links: Vec<&(String, ConfigNode)> = fields.iter().collect();
            // The index in the key decides, not the position in the file.
            links.sort_by_key(|(index, _)| index.parse::<u64>().unwrap_or(u64::MAX));
            links.into_iter().map(|(_, node)| node.clone()).collect()
        }
        _ => Vec::new(),
    }
}

pub(super) fn is_enabled(link: &ConfigNode) -> bool {
    let word = link.field_text("enable").or(link.field_text("enabled"));
    word.is_none_or(|word| units::is_true(word).unwrap_or(true))
}

/// Whether any link of a listener's own chain is enabled.
pub(super) fn has_enabled_link(chain: &ConfigNode) -> bool {
    chain_links(chain, &authenticator_kind).iter().any(is_enabled)
}

/// Returns the parts of `password_hash_algorithm` that decide how a password is checked.
fn password_hash(link: &ConfigNode) -> String {
    let hash = link.field("password_hash_algorithm");
    let part = |key: &str, default: &str| {
        hash.and_then(|hash| hash.field_text(key)).unwrap_or(default).to_string()
    };
    let parts = [
        part("name", "sha256"),
        part("salt_position", "prefix"),
        part("mac_fun", ""),
        part("iterations", ""),
        part("dk_length", ""),
    ];
    parts.join(" ")
}

const SAYS_KIND: &[&str] = &["backend", "mechanism", "type", "enable", "enabled"];

fn index_by_kind(
    node: &mut ConfigNode,
    kind: impl Fn(&ConfigNode) -> Option<String>,
    draft: &mut ConfigDraft,
    key: &str,
) -> Vec<ChainLink> {
    let (mut fields, mut found) = (ConfigFields::new(), Vec::<ChainLink>::new());
    if !matches!(node.tree, ConfigTree::List(_) | ConfigTree::Object(_)) {
        let why = format!("{}: {key}: no list, use [{{ ... }}], or [] for none", node.place);
        draft.wrongs.push(why);
    }
    for mut link in chain_links(node, &kind) {
        let Some(kind) = kind(&link) else {
            let why = "it says neither backend nor type, name one like http";
            draft.wrongs.push(format!("{}: {key}: {why}", link.place));
            continue;
        };
        if !is_enabled(&link) {
            let place = link.place.clone();
            let why = "it is switched off there".to_string();
            draft.missing.push(UnsupportedKey { place, key: format!("{key} {kind}"), why });
            continue;
        }
        let is_second = found.iter().any(|there| there.kind == kind);
        let place = link.place.clone();
        let password_hash = password_hash(&link);
        found.push(ChainLink { place, kind: kind.clone(), is_second, password_hash, rules: 0..0 });
        if is_second {
            continue;
        }
        if kind == "file" && link.field("path").is_some() && link.field("rules").is_some() {
            let why = "path and rules stand in one source, of which one counts: leave one out";
            draft.demands.unresolved.push(format!("{} {key}: {why}", link.place));
        }
        if link.field_text("secret_base64_encoded") == Some("true") {
            draft.off.push("secret_base64_encoded");
        }
        if let ConfigTree::Object(inside) = &mut link.tree {
            inside.retain(|(name, _)| !SAYS_KIND.contains(&name.as_str()));
        }
        fields.push((kind, link));
    }
    node.tree = ConfigTree::Object(fields);
    found
}

/// Assigns the rules from index `from` on to the link of kind `file`.
pub(super) fn note_rules(draft: &mut ConfigDraft, from: usize) {
    let to = draft.rules.len();
    if let Some(link) = draft.chains.sources.iter_mut().find(|link| link.kind == "file") {
        link.rules = from..to;
    }
}

/// Options that a kind of link is written as.
struct ChainOptions {
    kind: &'static str,
    /// Options that must all be set for the link to count as carried over.
    needs: &'static [&'static str],
    /// Common prefix of the link's options.
    prefix: &'static str,
}

/// Kinds of authenticators, in the order in which this broker asks its backends.
const AUTHENTICATORS: &[ChainOptions] = &[
    ChainOptions { kind: "jwt", needs: &["auth.jwt_keys"], prefix: "auth.jwt_" },
    ChainOptions { kind: "http", needs: &["auth.http_url"], prefix: "auth.http_" },
    ChainOptions {
        kind: "postgresql",
        needs: &["auth.postgres_url", "auth.postgres_user"],
        prefix: "auth.postgres_",
    },
    ChainOptions {
        kind: "mysql",
        needs: &["auth.mysql_url", "auth.mysql_user"],
        prefix: "auth.mysql_",
    },
    ChainOptions {
        kind: "redis",
        needs: &["auth.redis_url", "auth.redis_user"],
        prefix: "auth.redis_",
    },
];

/// Keys of a link about the connection to its server, not about its decisions.
const HOW_IT_IS_REACHED: &[&str] = &[
    "algorithm",
    "auto_reconnect",
    "connect_timeout",
    "connection_timeout",
    "disable_prepared_statements",
    "disconnect_after_expire",
    "enable_pipelining",
    "health_check",
    "max_inactive",
    "max_retries",
    "pool",
    "pool_size",
    "query_timeout",
    "refresh_interval",
    "request_timeout",
    "resource_opts",
    "retry_interval",
    "secret_base64_encoded",
    "ssl",
    "use_jwks",
    "user_group",
];

/// Returns a key of the link that was not carried over and may decide about access.
fn uncarried_key(draft: &ConfigDraft, prefix: &str) -> Option<String> {
    let decides = |missing: &&UnsupportedKey| {
        let inside = missing.key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
        inside.is_some_and(|inside| {
            let mut words = inside.split('.');
            let first = words.next().unwrap_or_default();
            let is_hash = first == "password_hash_algorithm"
                && !["name", "mac_fun", "salt_position"].contains(&words.next().unwrap_or("name"));
            !HOW_IT_IS_REACHED.contains(&first) && !is_hash
        })
    };
    let found = draft.missing.iter().find(decides)?;
    Some(format!("{} has no equal", found.key))
}

fn why_not_carried(
    link: &ChainLink,
    draft: &ConfigDraft,
    written: &[ChainOptions],
    prefix: &str,
) -> Option<String> {
    if link.is_second {
        return Some("one of each kind is asked here, and this is the second".to_string());
    }
    let Some(own) = written.iter().find(|own| own.kind == link.kind) else {
        return Some("there is nothing like it here".to_string());
    };
    if !own.needs.iter().all(|key| draft.setting(key).is_some()) {
        return Some("what it needs here is not said there".to_string());
    }
    uncarried_key(draft, &format!("{prefix}.{}", link.kind))
}

/// Returns the position of a link in the order of this broker's backends.
fn rank(link: &ChainLink) -> usize {
    AUTHENTICATORS.iter().position(|own| own.kind == link.kind).unwrap_or(AUTHENTICATORS.len())
}

/// Leaves databases with different password hashes unresolved: `auth.password_form` applies to all.
fn check_password_hashes(links: &[ChainLink], draft: &mut ConfigDraft) {
    let is_database = |link: &&ChainLink| ["postgresql", "mysql", "redis"].contains(&&*link.kind);
    let mut databases = links.iter().filter(is_database);
    let Some(first) = databases.next() else { return };
    for link in databases.filter(|link| link.password_hash != first.password_hash) {
        let why = format!(
            "{} authentication: {} hashes passwords in another way than {}, and \
             auth.password_form is one for all",
            link.place, link.kind, first.kind
        );
        draft.demands.unresolved.push(why);
        draft.chains.is_incomplete = true;
    }
}

/// Decides which authenticators are carried over. Links after an omitted link that may refuse their
/// clients are left out or unresolved.
pub(super) fn finish_authentication(draft: &mut ConfigDraft) {
    let links = std::mem::take(&mut draft.chains.authenticators);
    check_password_hashes(&links, draft);
    let (mut refuses, mut last): (Option<String>, Option<&ChainLink>) = (None, None);
    // An omitted link with users of its own, whose passwords the original checks.
    let mut left_out: Option<&ChainLink> = None;
    for link in &links {
        let why = match &refuses {
            Some(before) => Some(format!(
                "{before} comes before it there and may refuse its clients, which it cannot here"
            )),
            None if last.is_some_and(|last| rank(link) < rank(last)) => {
                let before = last.map_or("another", |last| last.kind.as_str());
                Some(format!("{before} is asked before it there, and after it here"))
            }
            None => why_not_carried(link, draft, AUTHENTICATORS, "authentication"),
        };
        let Some(why) = why else {
            last = Some(link);
            if let Some(before) = left_out.take() {
                let why = format!(
                    "{} authentication: {} comes before {} there and turns away whom it knows by \
                     another password, and here {} alone decides",
                    before.place, before.kind, link.kind, link.kind
                );
                draft.demands.unresolved.push(why);
            }
            continue;
        };
        // A client selects SCRAM or Kerberos by the authentication method of its CONNECT.
        if !["scram", "kerberos"].contains(&link.kind.as_str()) {
            left_out = left_out.or(Some(link));
        }
        draft.chains.is_incomplete = true;
        let own = AUTHENTICATORS.iter().find(|own| own.kind == link.kind);
        if let Some(own) = own.filter(|_| !link.is_second) {
            draft.settings.retain(|setting| !setting.key.starts_with(own.prefix));
            if own.kind == "jwt" {
                // The key would admit tokens if written to its file.
                draft.token_key = None;
            }
        }
        // `cinfo` and `http` refuse clients regardless of the password.
        if ["cinfo", "http"].contains(&link.kind.as_str()) {
            refuses.get_or_insert(link.kind.clone());
        }
        let why = format!("{why}: nobody is let in by it");
        let (place, key) = (link.place.clone(), format!("authentication {}", link.kind));
        draft.missing.push(UnsupportedKey { place, key, why });
    }
    if !links.is_empty() {
        let names = links.iter().map(|link| link.kind.as_str()).collect::<Vec<_>>().join(", ");
        draft.ask_for_credentials(&format!("{} authentication: {names}", links[0].place));
    }
    let is_from_name = |one: &&DraftSetting| one.value.text() == "user_name";
    let from_name = draft.setting("auth.jwt_from").filter(is_from_name);
    let same_name = draft.setting("auth.jwt_user_claim");
    if let Some((from, claim)) = from_name.zip(same_name) {
        let why = format!(
            "{}: the token stands in the user name there, which {} compares with a claim of it: \
             nobody comes in by that there",
            from.note, claim.note
        );
        draft.demands.unresolved.push(why);
    }
    if draft.setting("auth.jwt_keys").is_some() {
        draft.imply_once("auth.jwt_acl_claim", "acl", "what it is there without a word");
    }
    imply_password_format(draft);
}

/// Sets EMQX's default password hash if databases are used without a hash option.
fn imply_password_format(draft: &mut ConfigDraft) {
    let users = ["auth.postgres_user", "auth.mysql_user", "auth.redis_user"];
    let has_database = users.iter().any(|key| draft.setting(key).is_some());
    if has_database && draft.setting("auth.password_form").is_none() {
        let note = "password_hash_algorithm, what it is there without a word";
        draft.imply_once("auth.password_form", "sha256", note);
        draft.imply_once("auth.password_salt", "prefix", note);
    }
}

const SOURCES: &[ChainOptions] = &[
    ChainOptions {
        kind: "postgresql",
        needs: &["auth.postgres_rules"],
        prefix: "auth.postgres_rules",
    },
    ChainOptions { kind: "mysql", needs: &["auth.mysql_rules"], prefix: "auth.mysql_rules" },
    ChainOptions { kind: "redis", needs: &["auth.redis_rules"], prefix: "auth.redis_rules" },
    ChainOptions { kind: "http", needs: &["acl.http_url"], prefix: "acl.http_" },
];

/// Returns the position of a source in this broker's order: tables, the rules of the file, HTTP.
fn source_rank(kind: &str) -> u8 {
    match kind {
        "file" => 1,
        "http" => 2,
        _ => 0,
    }
}

/// Keeps the rules of sources as far as this broker evaluates the sources in the same order.
pub(super) fn finish_sources(draft: &mut ConfigDraft) {
    let links = std::mem::take(&mut draft.chains.sources);
    draft.chains.had_rules = !links.is_empty();
    let is_by_one_table = |kind: &str, draft: &ConfigDraft| {
        let asked: Vec<&str> = AUTHENTICATORS
            .iter()
            .filter(|own| own.needs.iter().all(|key| draft.setting(key).is_some()))
            .map(|own| own.kind)
            .collect();
        asked == [kind]
    };
    let (mut before, mut last_rank): (Option<String>, u8) = (None, 0);
    for link in &links {
        let has_denials = |draft: &ConfigDraft| {
            draft.rules.get(link.rules.clone()).is_some_and(|all| all.iter().any(|one| !one.allows))
        };
        let out_of_order = before.clone().or_else(|| {
            (source_rank(&link.kind) < last_rank)
                .then(|| "a source that is asked later here".to_string())
        });
        if link.kind == "file" && !link.is_second {
            if let Some(earlier) = out_of_order {
                drop_grants(draft, link, &earlier);
            } else if has_denials(draft) {
                last_rank = 1;
            }
            continue;
        }
        let why = match out_of_order {
            Some(earlier) => Some(format!("{earlier} comes before it there")),
            None if source_rank(&link.kind) == 0 && !is_by_one_table(&link.kind, draft) => {
                Some("its rules are read here where it alone knows the users".to_string())
            }
            None => why_not_carried(link, draft, SOURCES, "authorization.sources"),
        };
        let Some(why) = why else {
            last_rank = last_rank.max(source_rank(&link.kind));
            continue;
        };
        let own = SOURCES.iter().find(|own| own.kind == link.kind);
        if let Some(own) = own.filter(|_| !link.is_second) {
            draft.settings.retain(|setting| !setting.key.starts_with(own.prefix));
        }
        before.get_or_insert(link.kind.clone());
        let why =
            format!("{why}: nobody is allowed anything by it, and what no rule allows is denied");
        let (place, key) = (link.place.clone(), format!("authorization.sources {}", link.kind));
        draft.no_match = Some((false, format!("{place} {key}, which is not carried over")));
        draft.missing.push(UnsupportedKey { place, key, why });
    }
    if draft.setting("auth.jwt_acl_claim").is_some() {
        add_default_allow(draft);
    }
}

/// Drops the grants of a link's rules: the omitted `earlier` source might have denied the same
/// access.
fn drop_grants(draft: &mut ConfigDraft, link: &ChainLink, earlier: &str) {
    let (mut at, range) = (0, link.rules.clone());
    let notes = &mut draft.notes;
    draft.rules.retain(|rule| {
        let drops = range.contains(&at) && rule.allows;
        at += 1;
        if drops {
            notes
                .push(format!("{}: {earlier} comes before it there: it allows nothing", rule.note));
        }
        !drops
    });
}

/// Allows everything if the original does so without a matching rule and only tokens carry rules.
fn add_default_allow(draft: &mut ConfigDraft) {
    let allows = draft.no_match.as_ref().is_some_and(|(allows, _)| *allows);
    if allows && draft.rules.is_empty() && draft.has_out {
        draft.allow_all("rules there are those of tokens only");
    }
}

/// Reads the key `enable_authn` of a listener.
pub(super) fn enable_authn(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()? {
        "quick_deny_anonymous" => {
            draft.listener_of_entry(entry).refuses_nameless = Some(entry.note())
        }
        text if !units::is_true(text)? => {
            draft.listener_of_entry(entry).asks_nobody = Some(entry.note())
        }
        _ => {}
    }
    Ok(())
}

/// Reads a listener's own chain, which replaces the chain of all listeners.
pub(super) fn listener_chain(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let has_links = match &entry.node.tree {
        ConfigTree::List(nodes) => !nodes.is_empty(),
        ConfigTree::Object(fields) => !fields.is_empty(),
        _ => return Err("use a list of authenticators".to_string()),
    };
    if !has_links {
        return Ok(());
    }
    let note = entry.note();
    if !has_enabled_link(entry.node) {
        draft.listener_of_entry(entry).asks_nobody = Some(note);
        return Ok(());
    }
    let carried = carry_own_chain(draft, entry);
    let listener = draft.listener_of_entry(entry);
    listener.own_chain = Some(note);
    listener.own_backends = carried;
    Ok(())
}

/// Returns the options of a listener's own chain; `None` if an authenticator is not carried over.
fn carry_own_chain(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Option<Vec<DraftSetting>> {
    let place = entry.node.place.clone();
    let fields = vec![("authentication".to_string(), entry.node.clone())];
    let mut root = ConfigNode { place, tree: ConfigTree::Object(fields) };
    let mut own = ConfigDraft::new(draft.catalog, draft.folder.clone());
    // A key in the configuration itself would be written to a file shared by all listeners.
    own.has_out = false;
    arrange_chains(&mut root, &mut own);
    row::apply_rows(&[super::table::emqx::ROWS], &root, &mut own);
    auth_databases::finish_databases(&mut own);
    finish_authentication(&mut own);
    emqx_access::imply_answers(&mut own);
    draft.wrongs.append(&mut own.wrongs);
    draft.notes.append(&mut own.notes);
    draft.listener_of_entry(entry).demands.unresolved.append(&mut own.demands.unresolved);
    for missing in own.missing {
        let inside = missing.key.strip_prefix("authentication").unwrap_or(&missing.key);
        let key = format!("{}{inside}", entry.key);
        draft.missing.push(UnsupportedKey { key, ..missing });
    }
    (!own.chains.is_incomplete).then_some(own.settings)
}
