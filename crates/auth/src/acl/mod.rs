//! The ACL file: rules in TOML, or a file of mosquitto. It becomes an [`AclRuleSet`] only as a
//! whole; every error has its line and says what would be right.

#[cfg(feature = "http")]
pub mod authorizer;
pub mod entry;
mod mosquitto;
mod rules;

use broker::access_rules::acl_rules::{AclRule, AclRuleSet, IpNetwork, TopicPattern, UserGroups};
use config::source::{self, LineErrors, TomlReader, TomlValue};
use std::path::Path;

/// Reads a file of rules; a name with `.toml` selects the TOML format. `ports` are the listeners'
/// ports in order; a unix socket has none.
pub fn read_acl_file(path: &Path, ports: &[Option<u16>]) -> Result<AclRuleSet, Vec<String>> {
    let is_ours = path.extension().is_some_and(|extension| extension == "toml");
    let rules =
        source::read(path, "ACL file (acl.file)", "topics and names are", |text| match is_ours {
            true => rules::read(text, ports),
            false => mosquitto::read(text).map(|rules| (rules, UserGroups::default())),
        });
    rules.map(|(rules, members)| AclRuleSet::new(rules).with_members(members))
}

/// Reads an address or a network, or a list of them.
pub fn read_networks(reader: &mut TomlReader<'_>, value: &TomlValue<'_>) -> Vec<IpNetwork> {
    reader.read_parsed(value, "addresses like \"10.0.0.0/8\"", |text| {
        IpNetwork::parse(text).ok_or_else(|| {
            format!(
                "{text:?} is neither an address nor a network, use one like \"192.0.2.7\" or \
                 \"2001:db8::/32\""
            )
        })
    })
}

/// Checks for any text that both parsers succeed, or report errors with lines.
pub fn fuzz_acl_text(text: &str) {
    check_parse_result(text, rules::read(text, &[Some(1883)]).map(|(rules, _)| rules));
    check_parse_result(text, mosquitto::read(text));
}

fn check_parse_result(text: &str, rules: Result<Vec<AclRule>, LineErrors>) {
    match rules {
        Ok(rules) => {
            for pattern in rules.iter().flat_map(|rule| &rule.topics) {
                let shown = pattern.to_string();
                let read = [TopicPattern::parse(&shown), TopicPattern::exactly(&shown)];
                assert!(read.iter().any(|one| one.as_ref() == Ok(pattern)), "{text:?}");
            }
            AclRuleSet::new(rules);
        }
        Err(wrongs) => {
            let lines = text.matches('\n').count() + 1;
            let named = wrongs.iter().all(|(line, why)| *line <= lines && !why.is_empty());
            assert!(!wrongs.is_empty() && named, "{text:?}: {wrongs:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutations;

    const OURS: &[&str] = &[
        "[groups]\noperators = [\"ann\", \"bob\"]\n",
        "[[rule]]\ndeny = \"subscribe\"\ntopic = \"#\"\nfilter = [\"+/#\"]\n\
         user = [\"ann\", \"b*\"]\n",
        "[[rule]]\nallow = \"publish\"\ntopic = [\"a/${clientid}/#\", \"+/${username}\"]\n\
         qos = [0, 1]\nretain = false\naddress = [\"10.0.0.0/8\", \"::1\"]\n",
        "[[rule]]\nallow = \"all\"\ngroup = \"operators\"\nlistener = 1883\nanonymous = true\n",
    ];
    const MOSQUITTOS: &[&str] = &[
        "topic read $SYS/#\n# a comment\ntopic write a/b c\n",
        "user ann\ntopic readwrite a/+/b\ntopic deny a/secret\ntopic c\n",
        "pattern write dev/%c/%u\npattern read +/%u/#\n",
    ];

    #[test]
    fn whatever_stands_in_a_file_is_understood_or_told_by_line() {
        mutations::for_each_mutation(OURS, fuzz_acl_text);
        mutations::for_each_mutation(MOSQUITTOS, fuzz_acl_text);
    }
}
