//! Clients to which a rule of another broker applies, as alternatives of conditions for rules here.
//! Conditions without an equivalent make an alternative inexact: it then covers more clients, never
//! fewer.

use super::erlang_terms::ErlangTerm;
use super::rules::AclLanguage;
use broker::access_rules::acl_rules::IpNetwork;
use std::net::Ipv6Addr;

/// An alternative of a condition. An empty list has no requirement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientCondition {
    pub(super) users: Vec<String>,
    pub(super) client_ids: Vec<String>,
    pub(super) addresses: Vec<String>,
    /// Part of the original that the alternative leaves out; `Some` makes it inexact.
    pub(super) left_out: Option<String>,
}

/// Bound of alternatives, above any realistic rule.
const ALTERNATIVES_MAX: usize = 64;

impl ClientCondition {
    pub(super) fn inexact(why: impl Into<String>) -> ClientCondition {
        ClientCondition { left_out: Some(why.into()), ..ClientCondition::default() }
    }

    /// Returns the conjunction of two conditions. Of two lists of names only common names remain;
    /// `None` if there is no common name.
    fn intersect(&self, other: &ClientCondition) -> Option<ClientCondition> {
        let mut left_out = self.left_out.clone().or_else(|| other.left_out.clone());
        let mut common = |own: &[String], other: &[String]| {
            if own.is_empty() || other.is_empty() {
                return Some([own, other].concat());
            }
            if [own, other].concat().iter().any(|name| name.ends_with('*') || name.contains('/')) {
                left_out = left_out.take().or(Some("two conditions of one kind".to_string()));
                return Some(own.to_vec());
            }
            let both = own.iter().filter(|name| other.contains(name)).cloned();
            let both: Vec<String> = both.collect();
            (!both.is_empty()).then_some(both)
        };
        let users = common(&self.users, &other.users)?;
        let client_ids = common(&self.client_ids, &other.client_ids)?;
        let mut addresses = [&self.addresses[..], &other.addresses[..]].concat();
        // A network has several spellings, and may be part of another network.
        if !self.addresses.is_empty() && !other.addresses.is_empty() {
            left_out = left_out.take().or(Some("two conditions of one kind".to_string()));
            addresses.truncate(self.addresses.len());
        }
        Some(ClientCondition { users, client_ids, addresses, left_out })
    }
}

/// Reads the client part of an Erlang rule. An error is a violation of `language` and says what is
/// right.
pub(super) fn conditions_of_term(who: &ErlangTerm, language: AclLanguage) -> ClientAlternatives {
    if language == AclLanguage::Version4 {
        check_version_4(who)?;
    }
    let unknown = || vec![ClientCondition::inexact("who it is about is not a condition here")];
    let ErlangTerm::Tuple(parts) = who else {
        return Ok(if who.is_atom("all") { vec![ClientCondition::default()] } else { unknown() });
    };
    let text = |term: &ErlangTerm| match term {
        ErlangTerm::Text(text) => Some(text.clone()),
        _ => None,
    };
    match &parts[..] {
        [op, ErlangTerm::List(all)] if op.is_atom("and") => {
            intersect_all(all.iter().map(|who| conditions_of_term(who, language)))
        }
        [op, ErlangTerm::List(all)] if op.is_atom("or") => {
            union_all(all.iter().map(|who| conditions_of_term(who, language)))
        }
        [ErlangTerm::Atom(kind), ErlangTerm::Text(name)] => {
            conditions_of_names(kind, std::slice::from_ref(name))
        }
        // `all` as an atom means everyone, not a client with the name `all`.
        [ErlangTerm::Atom(kind), ErlangTerm::Atom(all)]
            if all == "all" && ["client", "user"].contains(&kind.as_str()) =>
        {
            Ok(vec![ClientCondition::default()])
        }
        // A list of names is joined to a single name in the original.
        [ErlangTerm::Atom(kind), ErlangTerm::List(names)] if kind == "ipaddrs" => {
            match names.iter().map(text).collect::<Option<Vec<_>>>() {
                Some(names) => conditions_of_names(kind, &names),
                None => Ok(unknown()),
            }
        }
        [ErlangTerm::Atom(kind), ErlangTerm::Tuple(pair)] => match &pair[..] {
            [re, ErlangTerm::Text(expression)] if re.is_atom("re") => {
                conditions_of_regex(kind, expression)
            }
            _ => Ok(unknown()),
        },
        [ErlangTerm::Atom(kind), ..] => {
            Ok(vec![ClientCondition::inexact(format!("{kind:?} is not a condition here"))])
        }
        _ => Ok(unknown()),
    }
}

/// Checks a condition for EMQX 4, which ignores all rules if one has an unknown condition.
fn check_version_4(who: &ErlangTerm) -> Result<(), String> {
    let is_known = match who {
        ErlangTerm::Atom(word) => word == "all",
        ErlangTerm::Tuple(pair) => match &pair[..] {
            [ErlangTerm::Atom(kind), ErlangTerm::Text(_)] => {
                ["client", "user", "ipaddr"].contains(&kind.as_str())
            }
            [ErlangTerm::Atom(kind), ErlangTerm::Atom(all)] => {
                all == "all" && ["client", "user"].contains(&kind.as_str())
            }
            [ErlangTerm::Atom(kind), ErlangTerm::List(_)] => {
                ["and", "or", "ipaddrs"].contains(&kind.as_str())
            }
            _ => false,
        },
        _ => false,
    };
    match is_known {
        true => Ok(()),
        false => Err("EMQX 4 has no such condition, use all, {client, \"x\"}, {user, \"x\"}, \
                      {ipaddr, \"x\"}, {'and', [...]} or {'or', [...]}"
            .to_string()),
    }
}

type ClientAlternatives = Result<Vec<ClientCondition>, String>;

pub(super) fn intersect_all(parts: impl Iterator<Item = ClientAlternatives>) -> ClientAlternatives {
    let mut all = vec![ClientCondition::default()];
    for part in parts {
        let part = part?;
        if all.len() * part.len() > ALTERNATIVES_MAX {
            return Ok(vec![ClientCondition::inexact("it has too many alternatives")]);
        }
        let pairs = all.iter().flat_map(|one| part.iter().map(move |other| one.intersect(other)));
        all = pairs.flatten().collect();
    }
    Ok(all)
}

pub(super) fn union_all(parts: impl Iterator<Item = ClientAlternatives>) -> ClientAlternatives {
    let mut all = Vec::new();
    for part in parts {
        all.extend(part?);
    }
    if all.len() > ALTERNATIVES_MAX {
        return Ok(vec![ClientCondition::inexact("it has too many alternatives")]);
    }
    Ok(all)
}

/// Returns the condition that a client has one of these names or addresses.
pub(super) fn conditions_of_names(kind: &str, names: &[String]) -> ClientAlternatives {
    let own = ClientCondition::default();
    let is_odd = |name: &String| name.is_empty() || name.contains('*') || name.contains("${");
    let own = match kind {
        // `#` means everyone in NanoMQ's rules, and is a name in EMQX's.
        "user" | "username" | "client" | "clientid" if names.iter().any(|name| name == "#") => {
            return Ok(vec![ClientCondition::inexact("\"#\" as a name")]);
        }
        "user" | "username" | "client" | "clientid" if names.iter().any(is_odd) => {
            return Ok(vec![ClientCondition::inexact("a name that cannot be used here")]);
        }
        "user" | "username" => ClientCondition { users: names.to_vec(), ..own },
        "client" | "clientid" => ClientCondition { client_ids: names.to_vec(), ..own },
        "ipaddr" | "ipaddrs" => {
            if names.iter().any(|name| IpNetwork::parse(name).is_none()) {
                return Err("no address, use one like \"10.0.0.0/8\"".to_string());
            }
            // Such a client appears here with its IPv4 address, on any listener.
            if names.iter().any(|name| has_mapped_addresses(name)) {
                return Ok(vec![ClientCondition::inexact("IPv4 clients by an IPv6 network")]);
            }
            ClientCondition { addresses: names.to_vec(), ..own }
        }
        _ => ClientCondition::inexact(format!("{kind:?} is not a condition here")),
    };
    // An empty list matches no client.
    Ok(if names.is_empty() { Vec::new() } else { vec![own] })
}

/// Whether an IPv6 network has addresses of the form `::ffff:192.0.2.1` (RFC 4291, 2.5.5.2).
fn has_mapped_addresses(network: &str) -> bool {
    const MAPPED: u128 = 0xffff << 32;
    let (address, bits) = network.split_once('/').unwrap_or((network, "128"));
    let address: Option<Ipv6Addr> = address.parse().ok();
    address.zip(bits.parse::<u32>().ok()).is_some_and(|(address, bits)| {
        let shift = 128 - bits.min(96);
        u128::from(address).checked_shr(shift) == MAPPED.checked_shr(shift)
    })
}

/// Reads names from a regular expression: `^name$`, `^start`, `^start.*` and `^(one|other)$` are
/// exact.
fn conditions_of_regex(kind: &str, expression: &str) -> ClientAlternatives {
    let inexact = || format!("names by the expression {expression:?}");
    let (names, is_exact) = match names_of_regex(expression) {
        Some(found) => found,
        None => return Ok(vec![ClientCondition::inexact(inexact())]),
    };
    let own = ClientCondition::default();
    let mut own = match kind {
        "user" | "username" => ClientCondition { users: names, ..own },
        "client" | "clientid" => ClientCondition { client_ids: names, ..own },
        _ => own,
    };
    if !is_exact || own.users.is_empty() && own.client_ids.is_empty() {
        own.left_out = Some(inexact());
    }
    Ok(vec![own])
}

/// Returns the names, or prefixes with `*`, that an expression matches, and whether they match
/// nothing else. `None` stands for any name.
fn names_of_regex(expression: &str) -> Option<(Vec<String>, bool)> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_@: ".contains(c);
    let inside = expression.strip_prefix('^')?;
    let group = inside.strip_prefix('(').and_then(|rest| rest.strip_suffix(")$"));
    if let Some(group) = group {
        let names: Vec<String> = group.split('|').map(str::to_string).collect();
        let plain = names.iter().all(|name| !name.is_empty() && name.chars().all(is_plain));
        return plain.then_some((names, true));
    }
    // An unparenthesized alternative splits the whole expression.
    if inside.contains('|') {
        return None;
    }
    let len = inside.find(|c| !is_plain(c)).unwrap_or(inside.len());
    let (mut start, rest) = inside.split_at(len);
    match rest {
        "$" if !start.is_empty() => return Some((vec![start.to_string()], true)),
        "" | ".*" | ".*$" if !start.is_empty() => return Some((vec![format!("{start}*")], true)),
        _ => {}
    }
    // A quantifier applies to the last character, which may be absent or repeated.
    if rest.starts_with(['?', '*', '+', '{']) {
        start = &start[..start.len().saturating_sub(1)];
    }
    (!start.is_empty()).then(|| (vec![format!("{start}*")], false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_takes_these_names_or_fewer() {
        for (expression, names, is_exact) in [
            ("^dashboard$", vec!["dashboard"], true),
            ("^dev-", vec!["dev-*"], true),
            ("^dev-.*$", vec!["dev-*"], true),
            ("^(ann|bob)$", vec!["ann", "bob"], true),
            ("^dev-[0-9]+$", vec!["dev-*"], false),
            ("^abc?d$", vec!["ab*"], false),
        ] {
            let (found, exact) =
                names_of_regex(expression).unwrap_or_else(|| panic!("{expression}"));
            assert_eq!((found, exact), (names.iter().map(|n| n.to_string()).collect(), is_exact));
        }
        for expression in ["dashboard", "^a|b$", ".*", "^(a.|b)$", "^$", "^a*"] {
            assert_eq!(names_of_regex(expression), None, "{expression}");
        }
    }

    #[test]
    fn conditions_are_joined_or_say_what_they_leave_out() {
        let users = |names: &[&str]| {
            conditions_of_names(
                "user",
                &names.iter().map(|name| name.to_string()).collect::<Vec<_>>(),
            )
        };
        let both = intersect_all([users(&["a", "b"]), users(&["b", "c"])].into_iter()).unwrap();
        assert_eq!(both[0].users, ["b"]);
        assert!(intersect_all([users(&["a"]), users(&["c"])].into_iter()).unwrap().is_empty());
        let zone = conditions_of_names("zone", &["x".to_string()]);
        let found = intersect_all([users(&["a"]), zone].into_iter()).unwrap();
        assert_eq!((found.len(), found[0].users.len()), (1, 1));
        assert!(found[0].left_out.is_some());
        assert_eq!(union_all([users(&["a"]), users(&["c"])].into_iter()).unwrap().len(), 2);
        assert!(users(&[]).unwrap().is_empty());
    }
}
