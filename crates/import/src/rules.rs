//! Access rules, written as `[[rule]]`: Erlang terms, as in `acl.conf` of NanoMQ and EMQX.
//! Importers of other formats add rules by the same [`add_rule`].
//!
//! Invariant: a written rule allows no more, and denies no less, than its original. A grant without
//! an exact equivalent is left out; a denial without one denies more.

use super::clients::{self, ClientCondition};
use super::config_tree::{ConfigNode, SourceLocation};
use super::draft::{ConfigDraft, DraftSetting, UnsupportedKey};
use super::erlang_terms::{ErlangTerm, TermReader};
use broker::access_rules::acl_rules::TopicPattern;
use config::value::quote;

/// The project whose language of rules applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AclLanguage {
    /// EMQX 4: topics contain the placeholders `%c` and `%u`, and texts are compared as Latin-1.
    Version4,
    /// EMQX 5 and 6: topics contain the placeholders `${clientid}` and `${username}`.
    Version5,
    /// NanoMQ: like `Version5`, with the names of actions of EMQX 4 and of EMQX 5.
    NanoMq,
}

/// A rule to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DraftRule {
    pub(super) note: String,
    pub(super) allows: bool,
    /// Action of the rule: `publish`, `subscribe` or `all`.
    pub(super) deed: &'static str,
    pub(super) who: ClientCondition,
    pub(super) anonymous: bool,
    pub(super) qos: Vec<String>,
    pub(super) retain: Option<bool>,
    /// Topic filters. If `topics` and `filters` are empty, the rule applies to every topic.
    pub(super) topics: Vec<String>,
    /// Subscriptions with exactly these filters.
    pub(super) filters: Vec<String>,
}

impl DraftRule {
    pub(super) fn write(&self, text: &mut String) {
        let word = if self.allows { "allow" } else { "deny" };
        text.push_str(&format!("\n# {}\n[[rule]]\n{word} = \"{}\"\n", self.note, self.deed));
        let lists = [
            ("user", &self.who.users),
            ("client_id", &self.who.client_ids),
            ("address", &self.who.addresses),
            ("topic", &self.topics),
            ("filter", &self.filters),
        ];
        for (key, names) in lists {
            if !names.is_empty() {
                let names: Vec<String> = names.iter().map(|name| quote(name)).collect();
                text.push_str(&format!("{key} = [{}]\n", names.join(", ")));
            }
        }
        if self.anonymous {
            text.push_str("anonymous = true\n");
        }
        if !self.qos.is_empty() {
            text.push_str(&format!("qos = [{}]\n", self.qos.join(", ")));
        }
        if let Some(retain) = self.retain {
            text.push_str(&format!("retain = {retain}\n"));
        }
    }

    /// Whether the rule applies to every client and to every topic, except possibly topics that
    /// begin with `$`.
    fn is_about_all(&self) -> bool {
        let all = self.topics.is_empty() && self.filters.is_empty() || self.topics == ["#"];
        self.who == ClientCondition::default() && !self.anonymous && self.qos.is_empty() && all
    }

    fn names_client_id(&self) -> bool {
        let topics = self.topics.iter().chain(&self.filters);
        !self.who.client_ids.is_empty() || topics.into_iter().any(|t| t.contains("${clientid}"))
    }
}

/// A rule as read from the source.
pub(super) struct SourceRule {
    pub(super) allows: bool,
    pub(super) who: Vec<ClientCondition>,
    pub(super) actions: Vec<ActionCondition>,
    /// `None` is every topic.
    pub(super) topics: Option<TopicCondition>,
}

pub(super) struct ActionCondition {
    deed: &'static str,
    qos: Vec<String>,
    retain: Option<bool>,
}

#[derive(Default)]
pub(super) struct TopicCondition {
    /// Whether the rule is for every topic, including topics that begin with `$`.
    pub(super) is_every: bool,
    /// A filter that in the original also denies topics that begin with `$`, and does not here.
    pub(super) misses_dollar: Option<String>,
    pub(super) topics: Vec<String>,
    pub(super) filters: Vec<String>,
    pub(super) left_out: Vec<String>,
}

/// Adds a rule as far as it has an equivalent, and reports the rest.
pub(super) fn add_rule(
    draft: &mut ConfigDraft,
    place: &SourceLocation,
    key: &str,
    read: Result<SourceRule, String>,
) {
    let source = match read {
        Ok(source) => source,
        Err(why) => return draft.wrongs.push(format!("{place}: {key}: {why}")),
    };
    let mut whys = Vec::new();
    if source.actions.is_empty() {
        whys.push("it names no QoS, so it matches nothing there either".to_string());
    }
    for who in &source.who {
        if let Some(why) = &who.left_out {
            whys.push(match source.allows {
                true => format!("{why}: nobody is allowed anything by it here, write it by hand"),
                false => format!("{why}: it is denied to more clients here than there"),
            });
            if source.allows {
                continue;
            }
        }
        for action in &source.actions {
            let mut rule = DraftRule {
                note: format!("{place} {key}"),
                allows: source.allows,
                deed: action.deed,
                who: ClientCondition { left_out: None, ..who.clone() },
                qos: action.qos.clone(),
                retain: action.retain,
                ..DraftRule::default()
            };
            if let Some(topics) = source.topics.as_ref().filter(|topics| !topics.is_every) {
                (rule.topics, rule.filters) = (topics.topics.clone(), topics.filters.clone());
                if rule.topics.is_empty() && rule.filters.is_empty() {
                    continue;
                }
            }
            draft.rules.push(rule);
        }
    }
    if let Some(text) = source.topics.as_ref().and_then(|topics| topics.misses_dollar.as_ref()) {
        let why = format!(
            "{place} {key}: {text:?} denies topics that begin with $ there, and does not here: \
             deny those of them that matter, and take this out"
        );
        draft.notes.push(why.clone());
        draft.demands.unresolved.push(why);
    }
    whys.extend(source.topics.into_iter().flat_map(|topics| topics.left_out));
    whys.dedup();
    for why in whys {
        let (place, key) = (place.clone(), key.to_string());
        draft.missing.push(UnsupportedKey { place, key, why });
    }
}

/// Reads all rules of a file of Erlang terms.
pub(super) fn read_terms(draft: &mut ConfigDraft, node: &ConfigNode) {
    let text = node.text().unwrap_or_default();
    if let Some(at) = text.find(char::REPLACEMENT_CHARACTER) {
        let line = node.place.line - 1 + config::source::line_at(text.as_bytes(), at);
        let place = SourceLocation { file: node.place.file.clone(), line };
        let why = "not UTF-8 text, without which none of these rules is in force: save it as UTF-8";
        return draft.wrongs.push(format!("{place}: {why}"));
    }
    let mut reader = TermReader::new(text, node.place.line);
    while let Some((line, term)) = reader.next_term() {
        let place = SourceLocation { file: node.place.file.clone(), line };
        match term {
            Ok(ErlangTerm::Tuple(parts)) => {
                let read = rule_of_terms(&parts, draft.acl_language);
                add_rule(draft, &place, "a rule", read);
            }
            Ok(_) => return draft.wrongs.push(format!("{place}: a rule is {{allow, WHO}}.")),
            Err(why) => return draft.wrongs.push(format!("{place}: {why}")),
        }
    }
}

/// Reads a rule in a form that the original accepts. An invalid rule is an error, since the
/// original then ignores all rules.
fn rule_of_terms(parts: &[ErlangTerm], language: AclLanguage) -> Result<SourceRule, String> {
    let allows = match parts.first() {
        Some(word) if word.is_atom("allow") => true,
        Some(word) if word.is_atom("deny") => false,
        _ => return Err("a rule begins with allow or deny".into()),
    };
    let [_, who, action, topics] = parts else {
        let is_about_all = matches!(parts, [_, all] if all.is_atom("all"));
        if !is_about_all {
            return Err("a rule is {allow, all}, or {allow, WHO, DEED, [TOPICS]}".into());
        }
        // In the original `#` also matches topics that begin with `$`.
        let topics = allows.then(|| TopicCondition::of_topic("#"));
        let actions = actions("all", Vec::new(), None);
        return Ok(SourceRule { allows, who: vec![ClientCondition::default()], actions, topics });
    };
    if language == AclLanguage::Version4 && parts.iter().any(|part| !part.is_ascii()) {
        return Err(
            "EMQX 4 compares text beyond ASCII byte by byte: write this rule by hand".into()
        );
    }
    let who = clients::conditions_of_term(who, language)?;
    let actions = actions_of_term(action, allows, language)?;
    let ErlangTerm::List(all) = topics else { return Err("topics stand in [brackets]".into()) };
    let mut topics = TopicCondition::default();
    for topic in all {
        let right = "a topic is \"a/b\" or {eq, \"a/b\"}";
        let (text, is_exact) = match topic {
            ErlangTerm::Text(text) => (text, false),
            ErlangTerm::Tuple(pair) => match &pair[..] {
                [eq, ErlangTerm::Text(text)] if eq.is_atom("eq") => (text, true),
                _ => return Err(right.into()),
            },
            _ => return Err(right.into()),
        };
        topics.add(text, is_exact, allows, language);
    }
    Ok(SourceRule { allows, who, actions, topics: Some(topics) })
}

fn actions_of_term(
    action: &ErlangTerm,
    allows: bool,
    language: AclLanguage,
) -> Result<Vec<ActionCondition>, String> {
    let word_for_both = if language == AclLanguage::Version4 { "pubsub" } else { "all" };
    let deed = |word: &str| match word {
        "publish" => Ok("publish"),
        "subscribe" => Ok("subscribe"),
        word if word == word_for_both => Ok("all"),
        "pubsub" if language == AclLanguage::NanoMq => Ok("all"),
        "pubsub" => Err("pubsub is a word of EMQX 4, use --from emqx4, or all".to_string()),
        _ => Err(format!("no such deed there, use publish, subscribe or {word_for_both}")),
    };
    match action {
        ErlangTerm::Atom(word) => Ok(actions(deed(word)?, Vec::new(), None)),
        ErlangTerm::Tuple(pair) if language != AclLanguage::Version4 => match &pair[..] {
            [ErlangTerm::Atom(word), ErlangTerm::List(conditions)] => {
                let found = publish_conditions(conditions, allows)?;
                let deed = deed(word)?;
                Ok(found.map_or(Vec::new(), |(qos, retain)| actions(deed, qos, retain)))
            }
            _ => Err("an action is publish or {publish, [{qos, 1}]}".into()),
        },
        _ => Err("an action is publish, or with conditions {publish, [{qos, 1}]}".into()),
    }
}

pub(super) fn action_name(word: &str) -> Result<&'static str, String> {
    match word {
        "publish" | "pub" => Ok("publish"),
        "subscribe" | "sub" => Ok("subscribe"),
        "all" | "pubsub" => Ok("all"),
        _ => Err("no such deed, use publish, subscribe, pubsub or all".into()),
    }
}

type PublishConditions = (Vec<String>, Option<bool>);

/// Reads `[{qos, [0, 1]}, {retain, false}]`. Of two conditions of a kind the first counts; a denial
/// covers both. `None` is a rule without any QoS, which never applies.
fn publish_conditions(
    terms: &[ErlangTerm],
    allows: bool,
) -> Result<Option<PublishConditions>, String> {
    let (mut qos, mut retain): (Option<Vec<String>>, Option<Option<bool>>) = (None, None);
    let right = || "conditions are {qos, 0}, 1 or 2, and {retain, true}, false or all".to_string();
    for term in terms {
        let ErlangTerm::Tuple(pair) = term else { return Err(right()) };
        let level = |term: &ErlangTerm| match term {
            ErlangTerm::Atom(word) if ["0", "1", "2"].contains(&word.as_str()) => Ok(word.clone()),
            _ => Err(right()),
        };
        let (levels, flag) = match &pair[..] {
            [name, ErlangTerm::List(levels)] if name.is_atom("qos") => {
                (Some(levels.iter().map(level).collect::<Result<Vec<_>, String>>()?), None)
            }
            [name, one] if name.is_atom("qos") => (Some(vec![level(one)?]), None),
            [name, ErlangTerm::Atom(word)] if name.is_atom("retain") => match word.as_str() {
                "true" => (None, Some(Some(true))),
                "false" => (None, Some(Some(false))),
                "all" => (None, Some(None)),
                _ => return Err(right()),
            },
            _ => return Err(right()),
        };
        qos = match (qos, levels) {
            (Some(there), Some(more)) if !allows => Some([there, more].concat()),
            (there, more) => there.or(more),
        };
        retain = match (retain, flag) {
            (Some(there), Some(other)) if !allows && there != other => Some(None),
            (there, other) => there.or(other),
        };
    }
    let never = qos.as_ref().is_some_and(Vec::is_empty);
    Ok((!never).then(|| (qos.unwrap_or_default(), retain.flatten())))
}

/// Returns the conditions for an action. `retain` restricts publishing only.
pub(super) fn actions(
    deed: &'static str,
    qos: Vec<String>,
    retain: Option<bool>,
) -> Vec<ActionCondition> {
    match (deed, retain) {
        ("all", Some(_)) => vec![
            ActionCondition { deed: "publish", qos: qos.clone(), retain },
            ActionCondition { deed: "subscribe", qos, retain: None },
        ],
        ("subscribe", _) => vec![ActionCondition { deed, qos, retain: None }],
        _ => vec![ActionCondition { deed, qos, retain }],
    }
}

impl TopicCondition {
    fn of_topic(topic: &str) -> TopicCondition {
        TopicCondition { topics: vec![topic.to_string()], ..TopicCondition::default() }
    }

    fn add(&mut self, text: &str, is_exact: bool, allows: bool, language: AclLanguage) {
        let exactly = text.strip_prefix("eq ");
        match exactly {
            // EMQX 4 knows only `{eq, "a"}`, so the whole text is the topic. A denial covers both
            // meanings.
            Some(own) if language == AclLanguage::Version4 => {
                self.add_filter(text, is_exact, allows, language);
                if !allows {
                    self.add_filter(own, true, allows, language);
                }
            }
            Some(own) => self.add_filter(own, true, allows, language),
            None => self.add_filter(text, is_exact, allows, language),
        }
    }

    fn add_filter(&mut self, text: &str, is_exact: bool, allows: bool, language: AclLanguage) {
        let mut levels: Vec<String> = Vec::new();
        let mut is_known = true;
        for level in text.split('/') {
            let own = match is_exact {
                true => literal_level(level),
                false => pattern_level(level, allows, language),
            };
            is_known = own.is_some();
            levels.push(own.unwrap_or_else(|| "#".to_string()));
            if !is_known {
                break;
            }
        }
        // In the original these wildcards also match topics that begin with `$`.
        match levels[0].as_str() {
            "#" if !allows && !is_exact => self.is_every = true,
            "+" if !allows && !is_exact => self.misses_dollar = Some(text.to_string()),
            _ => {}
        }
        let own = levels.join("/");
        let fits = TopicPattern::parse(&own);
        match fits {
            Ok(_) if is_known && is_exact => self.filters.push(own),
            Ok(_) if is_known => self.topics.push(own),
            Ok(_) if allows => self.left_out.push(format!(
                "{text:?} names something of a client that is not known here: nobody is allowed \
                 it, write it by hand"
            )),
            Ok(_) => {
                self.left_out.push(format!(
                    "{text:?} names something of a client that is not known here: {own:?} is \
                     denied"
                ));
                self.topics.push(own);
            }
            // An invalid filter matches nothing there either.
            Err(why) => self.left_out.push(why),
        }
    }
}

/// Returns a level that is literal there; `None` if it would be a placeholder here.
fn literal_level(level: &str) -> Option<String> {
    (!level.contains("${")).then(|| level.to_string())
}

/// Returns a level with placeholders of the client; `None` for a placeholder that some versions
/// read literally.
fn pattern_level(level: &str, allows: bool, language: AclLanguage) -> Option<String> {
    match (language, level) {
        (AclLanguage::Version4, "%c") => Some("${clientid}".to_string()),
        (AclLanguage::Version4, "%u") => Some("${username}".to_string()),
        (AclLanguage::Version4, _) => literal_level(level),
        // The author may have meant a name, though this version reads the level literally.
        (_, "%c" | "%u") if !allows => Some("+".to_string()),
        _ => {
            let plain = level.replace("${clientid}", "").replace("${username}", "");
            literal_level(&plain).map(|_| level.to_string())
        }
    }
}

/// Options by which a server decides about access, after the rules of the file.
const RULES_OF_SERVERS: &[&str] =
    &["acl.http_url", "auth.mysql_rules", "auth.postgres_rules", "auth.redis_rules"];

/// Whether an option lets a server or a token decide about access.
pub(super) fn brings_rules(key: &str) -> bool {
    RULES_OF_SERVERS.contains(&key) || key == "auth.jwt_acl_claim"
}

/// Adds the decision where no rule applies.
pub(super) fn finish_rules(draft: &mut ConfigDraft, by_default: bool) {
    let asks = draft.settings.iter().any(|setting| RULES_OF_SERVERS.contains(&setting.key));
    narrow_rules(draft);
    let said = draft.no_match.clone();
    let had_sources = draft.chains.had_rules && !by_default;
    let denies = said.as_ref().map_or(had_sources, |(allows, _)| !allows);
    if draft.rules.is_empty() && (!denies || asks) {
        return;
    }
    let (allows, note) = said.unwrap_or_else(|| {
        (by_default, "what counts there where no rule says anything, without a word".to_string())
    });
    if allows || draft.rules.is_empty() {
        draft.rules.push(DraftRule { note, allows, deed: "all", ..DraftRule::default() });
    }
    if asks {
        // Rules precede the server, which a rule for everything would make unreachable.
        draft.rules.retain(|rule| {
            let keeps = !rule.allows || !rule.is_about_all();
            if !keeps {
                draft.notes.push(format!(
                    "{}: everything is allowed there, which is left out: rules are looked at \
                     before a server is asked here, which would never be",
                    rule.note
                ));
            }
            keeps
        });
    }
}

/// Returns the topic with `+` in the place of levels with a variable.
fn topic_of_any(topic: &str, variable: &str) -> String {
    let level = |level: &str| match level.contains(variable) {
        true => "+".to_string(),
        false => level.to_string(),
    };
    topic.split('/').map(level).collect::<Vec<_>>().join("/")
}

/// Leaves backends unresolved that use client identifiers, while clients choose their identifiers
/// here.
fn leave_chosen_ids_unresolved(draft: &mut ConfigDraft, note: &str) {
    let goes_by_id =
        |setting: &&DraftSetting| brings_rules(setting.key) || setting.toml.contains("${clientid}");
    let of_listeners = draft.listeners.iter().flat_map(|listener| &listener.settings);
    let found = draft.settings.iter().chain(of_listeners).find(goes_by_id);
    if let Some(setting) = found {
        let why = format!(
            "{note}: it gives clients their ids there, and {} may go by them: here clients choose \
             their ids",
            setting.key
        );
        draft.demands.unresolved.push(why);
    }
}

/// Drops grants by names that clients may choose themselves here, and widens denials that such
/// names would escape.
fn narrow_rules(draft: &mut ConfigDraft) {
    if let Some(note) = draft.free_client_ids.clone() {
        draft.rules.retain(|rule| {
            let keeps = !rule.allows || !rule.names_client_id();
            if !keeps {
                draft.notes.push(format!(
                    "{}: it goes by the client id, which {note} gives there and the client \
                     chooses here: nobody is allowed anything by it",
                    rule.note
                ));
            }
            keeps
        });
        let notes = &mut draft.notes;
        for rule in draft.rules.iter_mut().filter(|rule| rule.names_client_id()) {
            notes.push(format!(
                "{}: it goes by the client id, which {note} gives there and the client chooses \
                 here: it is denied to every client",
                rule.note
            ));
            rule.who.client_ids.clear();
            let (named, filters): (Vec<String>, Vec<String>) =
                rule.filters.iter().cloned().partition(|filter| filter.contains("${clientid}"));
            let topics = rule.topics.iter().chain(&named);
            rule.topics = topics.map(|topic| topic_of_any(topic, "${clientid}")).collect();
            rule.filters = filters;
        }
        leave_chosen_ids_unresolved(draft, &note);
    }
    if draft.requires_authentication() {
        return;
    }
    // A user name without a password does not count here, and in the original is the name in
    // CONNECT.
    let mut rules = Vec::new();
    for rule in std::mem::take(&mut draft.rules) {
        let topics = [&rule.topics[..], &rule.filters[..]].concat();
        let names_user = topics.iter().any(|topic| topic.contains("${username}"));
        let is_about_users = !rule.who.users.is_empty() || names_user;
        let nameless = (is_about_users && !rule.allows).then(|| {
            draft.notes.push(format!(
                "{}: nobody is asked who it is, so it is denied to every client",
                rule.note
            ));
            let (named, filters): (Vec<String>, Vec<String>) =
                rule.filters.iter().cloned().partition(|filter| filter.contains("${username}"));
            let topics = rule
                .topics
                .iter()
                .chain(&named)
                .map(|topic| topic_of_any(topic, "${username}"))
                .collect();
            let who = ClientCondition { users: Vec::new(), ..rule.who.clone() };
            DraftRule { who, filters, topics, anonymous: true, ..rule.clone() }
        });
        rules.push(rule);
        rules.extend(nameless);
    }
    draft.rules = rules;
}

#[cfg(test)]
mod tests;
