//! mosquitto's ACL file: `user NAME`, `topic [read|write|readwrite|deny] FILTER` and `pattern ...`
//! with `%c` and `%u`. In mosquitto denials precede grants, a user's own topics precede patterns,
//! and topics above the first user apply to clients without a name.
//!
//! Only blanks end a word; filters and names may contain blanks. Blanks and tabs at the end of a
//! line, and around a filter or a name, are ignored.

use broker::access_rules::acl_rules::{AclRule, NamePattern, TopicPattern};
use config::source::LineErrors;

pub(super) fn read(text: &str) -> Result<Vec<AclRule>, LineErrors> {
    // User denials, user grants, pattern denials, pattern grants.
    let mut rules: [Vec<AclRule>; 4] = Default::default();
    let (mut user, mut wrongs): (Option<NamePattern>, LineErrors) = (None, Vec::new());
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_end_matches(is_blank).trim_start_matches(' ');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = first_word(line);
        let name = rest.trim_matches(is_blank);
        let read = match word {
            "user" if !name.is_empty() => {
                user = Some(NamePattern::Exactly(name.into()));
                continue;
            }
            "user" => Err("a name is missing, use user NAME".to_string()),
            "topic" => parse_rule(rest, check_literal_filter).map(|rule| match &user {
                Some(name) => AclRule { users: vec![name.clone()], ..rule },
                None => AclRule { anonymous_only: true, ..rule },
            }),
            "pattern" => parse_rule(rest, convert_pattern_filter),
            _ => Err(format!("{word:?} is not a keyword, use user, topic or pattern and a blank")),
        };
        match read {
            Ok(rule) => {
                rules[2 * usize::from(word == "pattern") + usize::from(rule.allows)].push(rule);
            }
            Err(why) => wrongs.push((at + 1, why)),
        }
    }
    if !wrongs.is_empty() {
        return Err(wrongs);
    }
    if !rules[2].is_empty() || !rules[3].is_empty() {
        // With patterns in the file, a client with a wildcard in its name may use its own topics
        // only.
        rules[2].insert(0, AclRule { wildcard_names_only: true, ..AclRule::default() });
    }
    Ok(rules.concat())
}

/// Whether C's `isspace` accepts the character, in every locale.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start_matches(' '))
}

/// Parses `read a/b`; without an access word the rule is for publishing and subscribing.
fn parse_rule(text: &str, topic: fn(&str) -> Result<String, String>) -> Result<AclRule, String> {
    let mut rule = AclRule { allows: true, ..AclRule::default() };
    let (word, rest) = first_word(text);
    let filter = match word {
        // A single word is the filter, whatever its text.
        _ if rest.is_empty() => word,
        "deny" => {
            rule.allows = false;
            rest
        }
        "read" => {
            rule.publish = false;
            rest
        }
        "write" => {
            rule.subscribe = false;
            rest
        }
        "readwrite" => rest,
        _ => {
            return Err(format!(
                "{word:?} is not an access: use read, write, readwrite or deny before a filter \
                 that has blanks"
            ));
        }
    };
    rule.topics = vec![TopicPattern::parse(&topic(filter.trim_matches(is_blank))?)?];
    Ok(rule)
}

/// Checks the filter of a `topic`, which has no placeholders.
fn check_literal_filter(filter: &str) -> Result<String, String> {
    if filter.contains("${") || filter.contains("%c") || filter.contains("%u") {
        return Err(format!(
            "in {filter:?} nothing stands for a client's name: use pattern instead of topic"
        ));
    }
    Ok(filter.to_string())
}

/// Converts the filter of a `pattern`, where `%c` and `%u` are placeholders anywhere.
fn convert_pattern_filter(filter: &str) -> Result<String, String> {
    if filter.contains("${") {
        return Err(format!("{filter:?} has ${{, use %c for the client id and %u for the user"));
    }
    Ok(filter.replace("%c", "${clientid}").replace("%u", "${username}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(rule: &AclRule) -> String {
        let pattern = |pattern: &TopicPattern| pattern.to_string();
        let topics: Vec<String> = rule.topics.iter().map(pattern).collect();
        let who = match &rule.users[..] {
            _ if rule.wildcard_names_only => "wild".to_string(),
            [] if rule.anonymous_only => "nobody".to_string(),
            [] => "all".to_string(),
            names => format!("{names:?}"),
        };
        let (allows, publish, subscribe) = (rule.allows, rule.publish, rule.subscribe);
        format!("{who} {allows} {publish} {subscribe} {}", topics.join(" "))
    }

    #[test]
    fn the_example_of_its_manual_is_read() {
        let text = "# anonymous\ntopic read $SYS/#\n\nuser roger\ntopic foo/bar\n\
                    topic deny foo/bar/secret place\ntopic write  w\n# all\n\
                    pattern read $SYS/broker/connection/%c/state\npattern deny %u/x\n";
        let rules = read(text).unwrap();
        let roger = "[Exactly(\"roger\")]";
        assert_eq!(
            rules.iter().map(show).collect::<Vec<_>>(),
            [
                &format!("{roger} false true true foo/bar/secret place"),
                "nobody true false true $SYS/#",
                &format!("{roger} true true true foo/bar"),
                &format!("{roger} true true false w"),
                "wild false true true ",
                "all false true true ${username}/x",
                "all true false true $SYS/broker/connection/${clientid}/state",
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let text = "user\ntopics a\ntopic a/#/b\npattern read ${username}\ntopic\ntopic on a\n\
                    topic\tread a\ntopic write a/%u\ntopic deny ${clientid}\n";
        let wrongs = read(text).unwrap_err();
        let told: Vec<String> = wrongs.iter().map(|(line, why)| format!("{line}: {why}")).collect();
        assert_eq!(
            told,
            [
                "1: a name is missing, use user NAME",
                "2: \"topics\" is not a keyword, use user, topic or pattern and a blank",
                "3: \"a/#/b\" is not a topic filter, use one like \"a/+/c\" or \"a/#\"",
                "4: \"${username}\" has ${, use %c for the client id and %u for the user",
                "5: \"\" is not a topic filter, use one like \"a/+/c\" or \"a/#\"",
                "6: \"on\" is not an access: use read, write, readwrite or deny before a filter \
                 that has blanks",
                "7: \"topic\\tread\" is not a keyword, use user, topic or pattern and a blank",
                "8: in \"a/%u\" nothing stands for a client's name: use pattern instead of topic",
                "9: in \"${clientid}\" nothing stands for a client's name: use pattern instead of \
                 topic",
            ]
        );
    }

    #[test]
    fn blanks_are_where_people_put_them() {
        for (line, wanted) in [
            (
                "pattern write homes/%u/living room/lamp",
                "all true true false homes/${username}/living room/lamp",
            ),
            ("pattern readwrite my devices/%c/#", "all true true true my devices/${clientid}/#"),
            ("pattern   read   a/%u   ", "all true false true a/${username}"),
            ("pattern read a/%u \t\r", "all true false true a/${username}"),
            ("pattern read \ta/%u", "all true false true a/${username}"),
            ("pattern a-%c/%u%c", "all true true true a-${clientid}/${username}${clientid}"),
            ("pattern %u ", "all true true true ${username}"),
            ("pattern deny %c/# ", "all false true true ${clientid}/#"),
            ("  topic read", "nobody true true true read"),
            ("topic read\ta/b", "nobody true true true read\ta/b"),
            ("topic deny  a b  c ", "nobody false true true a b  c"),
        ] {
            let rules = read(&format!("{line}\r\n")).unwrap();
            assert_eq!(show(rules.last().unwrap()), wanted, "{line:?}");
        }
        let rules = read("user  Ann  of Arc \t\r\ntopic read x\r\n").unwrap();
        assert_eq!(show(&rules[0]), "[Exactly(\"Ann  of Arc\")] true false true x");
    }
}
