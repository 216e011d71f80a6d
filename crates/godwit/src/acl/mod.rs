//! The file that says who may do what: ours, in TOML, or one of mosquitto's. It becomes a
//! [`Permissions`] only as a whole; every error names its line and what would be right.

pub(crate) mod entry;
mod mosquitto;
mod rules;
#[cfg(feature = "http")]
pub(crate) mod warden;

use crate::source::{self, Wrongs};
use broker::permissions::{Members, Pattern, Permissions, Rule};
use std::path::Path;

/// Reads a file by its name: what ends in `.toml` is ours. `ports` are those of the listeners, in
/// their order; a unix socket has none.
pub(crate) fn read(path: &Path, ports: &[Option<u16>]) -> Result<Permissions, Vec<String>> {
    let is_ours = path.extension().is_some_and(|extension| extension == "toml");
    let rules =
        source::read(path, "ACL file (acl.file)", "topics and names are", |text| match is_ours {
            true => rules::read(text, ports),
            false => mosquitto::read(text).map(|rules| (rules, Members::default())),
        });
    rules.map(|(rules, members)| Permissions::new(rules).with_members(members))
}

/// A text is understood, or told by line, whichever format it is taken for.
pub(crate) fn probe(text: &str) {
    look_at(text, rules::read(text, &[Some(1883)]).map(|(rules, _)| rules));
    look_at(text, mosquitto::read(text));
}

fn look_at(text: &str, rules: Result<Vec<Rule>, Wrongs>) {
    match rules {
        Ok(rules) => {
            for pattern in rules.iter().flat_map(|rule| &rule.topics) {
                let shown = pattern.to_string();
                let read = [Pattern::parse(&shown), Pattern::exactly(&shown)];
                assert!(read.iter().any(|one| one.as_ref() == Ok(pattern)), "{text:?}");
            }
            Permissions::new(rules);
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
        mutations::each(OURS, probe);
        mutations::each(MOSQUITTOS, probe);
    }
}
