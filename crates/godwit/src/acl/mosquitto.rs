//! mosquitto's ACL file: `user NAME`, `topic [read|write|readwrite|deny] FILTER` and `pattern ...`
//! with `%c` and `%u`. There what denies comes before what allows, a user's own topics before
//! patterns, and topics above the first user are for clients without a name.

use crate::source::Wrongs;
use broker::permissions::{Name, Pattern, Rule};

pub(super) fn read(text: &str) -> Result<Vec<Rule>, Wrongs> {
    // User denials, user grants, pattern denials, pattern grants.
    let mut rules: [Vec<Rule>; 4] = Default::default();
    let (mut user, mut wrongs): (Option<Name>, Wrongs) = (None, Vec::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let read = match word {
            "user" if !rest.is_empty() => {
                user = Some(Name::Exactly(rest.into()));
                continue;
            }
            "user" => Err("a name is missing, use user NAME".to_string()),
            "topic" => rule(rest).map(|rule| match &user {
                Some(name) => Rule { users: vec![name.clone()], ..rule },
                None => Rule { anonymous: true, ..rule },
            }),
            "pattern" => with_variables(rest).and_then(|rest| rule(&rest)),
            _ => Err(format!("{word:?} is no keyword, use user, topic or pattern")),
        };
        match read {
            Ok(rule) => {
                rules[2 * usize::from(word == "pattern") + usize::from(rule.allows)].push(rule);
            }
            Err(why) => wrongs.push((at + 1, why)),
        }
    }
    if wrongs.is_empty() { Ok(rules.concat()) } else { Err(wrongs) }
}

/// `read a/b`, or without a first word for both.
fn rule(text: &str) -> Result<Rule, String> {
    let mut rule = Rule { allows: true, ..Rule::default() };
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or(("", text));
    let filter = match word {
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
        _ => text,
    };
    rule.topics = vec![Pattern::parse(filter.trim())?];
    Ok(rule)
}

fn with_variables(text: &str) -> Result<String, String> {
    let (start, filter) = match text.rsplit_once(char::is_whitespace) {
        Some((start, filter)) => (format!("{start} "), filter),
        None => (String::new(), text),
    };
    let level = |level| match level {
        "%c" => Ok("${clientid}".to_string()),
        "%u" => Ok("${username}".to_string()),
        _ if level.contains("%c") || level.contains("%u") => {
            Err(format!("in {filter:?} %c or %u is not alone in its level, as it has to be"))
        }
        _ => Ok(level.to_string()),
    };
    let levels = filter.split('/').map(level).collect::<Result<Vec<_>, _>>()?;
    Ok(start + &levels.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(rule: &Rule) -> String {
        let pattern = |pattern: &Pattern| pattern.to_string();
        let topics: Vec<String> = rule.topics.iter().map(pattern).collect();
        let who = match &rule.users[..] {
            [] if rule.anonymous => "nobody".to_string(),
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
                "all false true true ${username}/x",
                "all true false true $SYS/broker/connection/${clientid}/state",
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let text = "user\ntopics a\ntopic a/#/b\npattern read a-%c\ntopic";
        let wrongs = read(text).unwrap_err();
        let told: Vec<String> = wrongs.iter().map(|(line, why)| format!("{line}: {why}")).collect();
        assert_eq!(
            told,
            [
                "1: a name is missing, use user NAME",
                "2: \"topics\" is no keyword, use user, topic or pattern",
                "3: \"a/#/b\" is no topic filter, use one like \"a/+/c\" or \"a/#\"",
                "4: in \"a-%c\" %c or %u is not alone in its level, as it has to be",
                "5: \"\" is no topic filter, use one like \"a/+/c\" or \"a/#\"",
            ]
        );
    }
}
