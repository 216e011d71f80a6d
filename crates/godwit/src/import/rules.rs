//! Rules of who may do what: Erlang's terms, as NanoMQ and EMQX have them in `acl.conf`, and
//! NanoMQ's objects, as `[[rule]]` of ours. A denial that has no equal is said so: who was
//! forbidden something there may do it here.

use super::draft::{Draft, Missing};
use super::tree::{Node, Place, Tree};
use crate::options::value::quote;
use broker::permissions::{Network, Pattern};

/// One rule, as it will be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DraftRule {
    pub(super) note: String,
    pub(super) allows: bool,
    /// `publish`, `subscribe` or `all`.
    pub(super) deed: &'static str,
    /// Conditions as they stand in the file: `user`, and the text behind `=`.
    pub(super) conditions: Vec<(&'static str, String)>,
    /// None is every topic.
    pub(super) topics: Vec<String>,
}

impl DraftRule {
    pub(super) fn write(&self, text: &mut String) {
        let word = if self.allows { "allow" } else { "deny" };
        text.push_str(&format!("\n# {}\n[[rule]]\n{word} = \"{}\"\n", self.note, self.deed));
        for (key, value) in &self.conditions {
            text.push_str(&format!("{key} = {value}\n"));
        }
        if !self.topics.is_empty() {
            text.push_str(&format!("topic = {}\n", quoted(&self.topics)));
        }
    }
}

fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A rule that is not understood whole.
enum Odd {
    /// It breaks the language.
    Wrong(String),
    /// It says what our rules cannot.
    NoEqual(String),
}

/// Takes a rule in, or says that it has no equal.
fn add(draft: &mut Draft, place: &Place, key: &str, allows: bool, read: Result<DraftRule, Odd>) {
    match read {
        Ok(rule) => draft.rules.push(rule),
        Err(Odd::Wrong(why)) => draft.wrongs.push(format!("{place}: {key}: {why}")),
        Err(Odd::NoEqual(why)) => {
            let (place, key) = (place.clone(), key.to_string());
            let wider = "; what it denies is NOT denied by what was written";
            let why = if allows { why } else { why + wider };
            draft.missing.push(Missing { place, key, why });
        }
    }
}

/// A value of Erlang's.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Atom(String),
    List(Vec<Term>),
    Text(String),
    Tuple(Vec<Term>),
}

/// All rules of a file of terms.
pub(super) fn terms(draft: &mut Draft, node: &Node) {
    let text = node.text().unwrap_or_default();
    let mut reader = Reader { rest: text, line: node.place.line, depth: 0 };
    loop {
        reader.gap();
        if reader.rest.is_empty() {
            return;
        }
        let place = Place { file: node.place.file.clone(), line: reader.line };
        match reader.term().and_then(|term| reader.end().map(|()| term)) {
            Ok(Term::Tuple(parts)) => {
                let note = format!("{place} a rule");
                let allows = parts.first() == Some(&Term::Atom("allow".into()));
                add(draft, &place, "a rule", allows, of_terms(&parts, note));
            }
            Ok(_) => return draft.wrongs.push(format!("{place}: a rule is {{allow, WHO}}.")),
            Err(why) => return draft.wrongs.push(format!("{place}: {why}")),
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    depth: usize,
}

impl Reader<'_> {
    fn skip(&mut self, bytes: usize) {
        self.line += self.rest[..bytes].matches('\n').count();
        self.rest = &self.rest[bytes..];
    }

    fn gap(&mut self) {
        loop {
            self.skip(self.rest.len() - self.rest.trim_start().len());
            if !self.rest.starts_with('%') {
                return;
            }
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.gap();
        match self.rest.starts_with('.') {
            true => self.skip(1),
            false => return Err("a rule ends with a point, as {allow, all}.".to_string()),
        }
        Ok(())
    }

    fn term(&mut self) -> Result<Term, String> {
        self.gap();
        match self.rest.chars().next() {
            Some('{') => self.many('}').map(Term::Tuple),
            Some('[') => self.many(']').map(Term::List),
            Some(quote @ ('"' | '\'')) => {
                let inside = &self.rest[1..];
                let end = inside.find(quote).ok_or("a quote is never closed")?;
                let text = inside[..end].to_string();
                self.skip(end + 2);
                Ok(if quote == '"' { Term::Text(text) } else { Term::Atom(text) })
            }
            _ => {
                let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '@';
                let len = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
                if len == 0 {
                    return Err("no value begins so, use {allow, WHO, DEED, [TOPICS]}.".into());
                }
                let word = self.rest[..len].to_string();
                self.skip(len);
                Ok(Term::Atom(word))
            }
        }
    }

    fn many(&mut self, end: char) -> Result<Vec<Term>, String> {
        self.skip(1);
        self.depth += 1;
        if self.depth > 16 {
            return Err("deeper than 16 braces, use fewer".to_string());
        }
        let mut terms = Vec::new();
        loop {
            self.gap();
            if self.rest.starts_with(end) {
                self.skip(1);
                self.depth -= 1;
                return Ok(terms);
            }
            if !terms.is_empty() {
                if !self.rest.starts_with(',') {
                    return Err(format!("use a comma, or {end} where it ends"));
                }
                self.skip(1);
            }
            terms.push(self.term()?);
        }
    }
}

fn of_terms(parts: &[Term], note: String) -> Result<DraftRule, Odd> {
    let word = |term: &Term| match term {
        Term::Atom(word) => word.clone(),
        _ => String::new(),
    };
    let allows = match parts.first().map(word).as_deref() {
        Some("allow") => true,
        Some("deny") => false,
        _ => return Err(Odd::Wrong("a rule begins with allow or deny".into())),
    };
    let mut rule = DraftRule { note, allows, deed: "all", ..DraftRule::default() };
    if let Some(who) = parts.get(1) {
        who_of_term(who, &mut rule)?;
    }
    rule.deed = match parts.get(2) {
        None => "all",
        Some(Term::Atom(word)) => deed(word)?,
        Some(_) => {
            return Err(Odd::NoEqual("conditions on QoS and RETAIN: write it by hand".into()));
        }
    };
    match parts.get(3) {
        None => {}
        Some(Term::Atom(all)) if all == "all" => {}
        Some(Term::List(topics)) => {
            for topic in topics {
                let (text, is_literal) = match topic {
                    Term::Text(text) => (text, false),
                    Term::Tuple(pair) => match &pair[..] {
                        [Term::Atom(eq), Term::Text(text)] if eq == "eq" => (text, true),
                        _ => return Err(Odd::Wrong("a topic is \"a/b\" or {eq, \"a/b\"}".into())),
                    },
                    _ => return Err(Odd::Wrong("a topic is \"a/b\" or {eq, \"a/b\"}".into())),
                };
                topic_of(text, is_literal, &mut rule)?;
            }
        }
        Some(_) => return Err(Odd::Wrong("topics stand in [brackets]".into())),
    }
    Ok(rule)
}

fn deed(word: &str) -> Result<&'static str, Odd> {
    match word {
        "publish" | "pub" => Ok("publish"),
        "subscribe" | "sub" => Ok("subscribe"),
        "all" | "pubsub" => Ok("all"),
        _ => Err(Odd::Wrong("no such deed, use publish, subscribe, pubsub or all".into())),
    }
}

/// A literal with wildcards is a subscription with this very filter, which is not the same as all
/// that it could bring.
fn topic_of(text: &str, is_literal: bool, rule: &mut DraftRule) -> Result<(), Odd> {
    let (text, is_literal) = match text.strip_prefix("eq ").or(text.strip_prefix('@')) {
        Some(rest) => (rest, true),
        None => (text, is_literal),
    };
    if is_literal && text.split('/').any(|level| level == "+" || level == "#") {
        let why =
            format!("it is about the filter {text:?} itself, and a rule here is about topics");
        return Err(Odd::NoEqual(why));
    }
    let named =
        [("%c", "${clientid}"), ("%u", "${username}"), ("${cert_common_name}", "${cert_cn}")];
    let level = |level: &str| {
        let found = named.iter().find(|(theirs, _)| *theirs == level);
        found.map_or(level, |(_, ours)| ours).to_string()
    };
    let text = text.split('/').map(level).collect::<Vec<_>>().join("/");
    match Pattern::parse(&text) {
        Ok(_) => rule.topics.push(text),
        Err(why) => return Err(Odd::NoEqual(why)),
    }
    Ok(())
}

fn who_of_term(who: &Term, rule: &mut DraftRule) -> Result<(), Odd> {
    let unknown = || Odd::NoEqual("who it is about cannot be told here: write it by hand".into());
    let parts = match who {
        Term::Atom(all) if all == "all" => return Ok(()),
        Term::Tuple(parts) => parts,
        _ => return Err(unknown()),
    };
    match &parts[..] {
        [Term::Atom(and), Term::List(all)] if and == "and" => {
            all.iter().try_for_each(|who| who_of_term(who, rule))
        }
        [Term::Atom(kind), Term::Text(name)] => condition(kind, std::slice::from_ref(name), rule),
        [Term::Atom(kind), Term::List(names)] => {
            let names = names.iter().map(|name| match name {
                Term::Text(text) => Ok(text.clone()),
                _ => Err(unknown()),
            });
            condition(kind, &names.collect::<Result<Vec<_>, Odd>>()?, rule)
        }
        [Term::Atom(kind), Term::Tuple(pair)] => match &pair[..] {
            [Term::Atom(re), Term::Text(text)] if re == "re" => {
                condition(kind, &[exactly(text).ok_or_else(unknown)?], rule)
            }
            _ => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

/// The only name that a regular expression takes: `^name$`.
fn exactly(expression: &str) -> Option<String> {
    let name = expression.strip_prefix('^')?.strip_suffix('$')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_@: ".contains(c);
    name.chars().all(is_plain).then(|| name.to_string())
}

fn condition(kind: &str, names: &[String], rule: &mut DraftRule) -> Result<(), Odd> {
    let key = match kind {
        "user" | "username" => "user",
        "client" | "clientid" => "client_id",
        "ipaddr" | "ipaddrs" => "address",
        _ => return Err(Odd::NoEqual(format!("{kind:?} is no condition here: write it by hand"))),
    };
    if key != "address" && names.iter().any(|name| name == "#") {
        // Everyone, in NanoMQ's old file.
        return Ok(());
    }
    if names.iter().any(|name| name.is_empty() || key != "address" && name.contains('*')) {
        return Err(Odd::NoEqual("a name that is no name here: write it by hand".into()));
    }
    if key == "address" && names.iter().any(|name| Network::parse(name).is_none()) {
        return Err(Odd::Wrong("no address, use one like \"10.0.0.0/8\"".into()));
    }
    if rule.conditions.iter().any(|(there, _)| *there == key) {
        return Err(Odd::NoEqual("two conditions of one kind: write it by hand".into()));
    }
    rule.conditions.push((key, quoted(names)));
    Ok(())
}

/// One of NanoMQ's: `{"permit": "allow", "username": "ann", "action": "subscribe", "topics": []}`.
pub(super) fn object(draft: &mut Draft, node: &Node, key: &str) {
    let allows = node.field_text("permit") == Some("allow");
    let note = format!("{} {key}", node.place);
    add(draft, &node.place, key, allows, of_object(node, note));
}

fn of_object(node: &Node, note: String) -> Result<DraftRule, Odd> {
    let wrong = |why: &str| Odd::Wrong(why.to_string());
    let Tree::Object(fields) = &node.tree else {
        return Err(wrong("a rule stands in braces, with permit, action and topics"));
    };
    let mut rule = DraftRule { note, deed: "all", ..DraftRule::default() };
    rule.allows = match node.field_text("permit") {
        Some("allow") => true,
        Some("deny") => false,
        _ => return Err(wrong("permit is allow or deny")),
    };
    for (name, value) in fields {
        match name.as_str() {
            "permit" => {}
            "action" => rule.deed = deed(value.text().unwrap_or_default())?,
            "topics" => {
                let topics = value.texts().ok_or_else(|| wrong("topics is a list of filters"))?;
                topics.iter().try_for_each(|topic| topic_of(topic, false, &mut rule))?;
            }
            "and" => {
                let Tree::Object(all) = &value.tree else {
                    return Err(wrong("and has conditions in braces"));
                };
                for (name, value) in all {
                    condition_of(name, value, &mut rule)?;
                }
            }
            name => condition_of(name, value, &mut rule)?,
        }
    }
    Ok(rule)
}

fn condition_of(name: &str, value: &Node, rule: &mut DraftRule) -> Result<(), Odd> {
    let names = value.texts().ok_or_else(|| Odd::Wrong(format!("{name} is a name")))?;
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    condition(name, &names, rule)
}

/// What counts where no rule says anything.
pub(super) fn finish(draft: &mut Draft, by_default: bool) {
    const ASKED_AFTER: &[&str] =
        &["acl.http_url", "auth.postgres_rules", "auth.mysql_rules", "auth.redis_rules"];
    let asks = draft.settings.iter().any(|setting| ASKED_AFTER.contains(&setting.key));
    let said = draft.no_match.clone();
    if draft.rules.is_empty() && !said.as_ref().is_some_and(|(allows, _)| !allows && !asks) {
        return;
    }
    let (allows, note) = said.unwrap_or_else(|| {
        (by_default, "what counts there where no rule says anything, without a word".to_string())
    });
    if allows || draft.rules.is_empty() {
        draft.rules.push(DraftRule { note, allows, deed: "all", ..DraftRule::default() });
    }
    if asks {
        // Rules are looked at before a server is asked: it would never be.
        let is_all = |rule: &DraftRule| rule.conditions.is_empty() && rule.topics.is_empty();
        draft.rules.retain(|rule| {
            let keeps = !rule.allows || !is_all(rule);
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

#[cfg(test)]
mod tests {
    use super::super::tree::Folder;
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
        let mut draft = Draft::new(Folder::of(Path::new("nowhere/x")));
        let place = Place { file: "acl.conf".into(), line: 1 };
        terms(&mut draft, &Node::text_at(&place, text));
        let rules = draft.rules.iter().map(|rule| {
            let mut text = String::new();
            rule.write(&mut text);
            text.lines().skip(2).collect::<Vec<_>>().join(" ")
        });
        let missing = draft.missing.iter().map(|one| format!("{}: {}", one.place, one.why));
        (rules.collect(), missing.collect(), draft.wrongs)
    }

    #[test]
    fn terms_become_rules() {
        let (rules, missing, wrongs) = read(
            "%% who looks\n{allow, {username, {re, \"^dashboard$\"}}, subscribe, [\"$SYS/#\"]}.\n\
             {allow, {ipaddr, \"127.0.0.1\"}, all, [\"$SYS/#\", \"a/%c\"]}.\n\
             {deny, {'and', [{user, \"a\"}, {client, \"b\"}]}, pubsub, [{eq, \"x/y\"}]}.\n\
             {allow, all}.",
        );
        assert_eq!(
            rules,
            [
                "[[rule]] allow = \"subscribe\" user = [\"dashboard\"] topic = [\"$SYS/#\"]",
                "[[rule]] allow = \"all\" address = [\"127.0.0.1\"] topic = [\"$SYS/#\", \
                 \"a/${clientid}\"]",
                "[[rule]] deny = \"all\" user = [\"a\"] client_id = [\"b\"] topic = [\"x/y\"]",
                "[[rule]] allow = \"all\"",
            ]
        );
        assert_eq!((missing.len(), wrongs.len()), (0, 0), "{missing:?} {wrongs:?}");
    }

    #[test]
    fn a_denial_that_cannot_be_told_is_loud() {
        let (rules, missing, wrongs) = read(
            "{deny, all, subscribe, [{eq, \"#\"}]}.\n{allow, {zone, \"x\"}, all, [\"a\"]}.\n\
             {deny, {user, {re, \"^a.*\"}}}.",
        );
        assert_eq!((rules.len(), wrongs.len()), (0, 0), "{wrongs:?}");
        assert!(missing[0].starts_with("acl.conf:1: it is about the filter \"#\""), "{missing:?}");
        assert!(missing[0].ends_with("NOT denied by what was written"), "{missing:?}");
        assert!(missing[1].starts_with("acl.conf:2: \"zone\" is no condition"), "{missing:?}");
        assert!(!missing[1].contains("NOT denied"), "{missing:?}");
        assert!(missing[2].contains("NOT denied"), "{missing:?}");
    }

    #[test]
    fn broken_terms_have_their_line() {
        for (text, why) in [
            ("{allow, all}", "acl.conf:1: a rule ends with a point"),
            ("\n{allow, all, fly}.", "acl.conf:2: a rule: no such deed"),
            ("{allow, all", "acl.conf:1: use a comma, or }"),
            ("{maybe, all}.", "acl.conf:1: a rule: a rule begins with allow or deny"),
            ("{allow, {ipaddr, \"x\"}}.", "acl.conf:1: a rule: no address"),
        ] {
            let wrongs = read(text).2;
            assert!(wrongs[0].starts_with(why), "{text}: {wrongs:?}");
        }
        assert!(!read(&"{".repeat(10_000)).2.is_empty());
    }
}
