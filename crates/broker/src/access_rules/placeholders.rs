//! Name templates of options, completed per client: `devices/${clientid}/#`. The value of a
//! placeholder is exactly one topic level, whatever name the client has.

use crate::access_rules::acl_rules::{NameVariable, is_one_level};
use mqtt::template::{TemplatePart, TextTemplate, unknown_placeholder};
use std::borrow::Cow;
use std::net::IpAddr;

/// A name with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTemplate(TextTemplate<NamePlaceholder>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamePlaceholder {
    Variable(NameVariable),
    /// Capture group of a regular expression, by number.
    Group(usize),
}

/// Placeholders as permission rules spell them.
const VARIABLES: [(&str, NameVariable); 4] = [
    ("${clientid}", NameVariable::ClientId),
    ("${username}", NameVariable::User),
    ("${cert_cn}", NameVariable::CommonName),
    ("${host}", NameVariable::Host),
];
/// Placeholders as EMQX spells them.
const LETTERS: [(&str, NameVariable); 3] =
    [("%c", NameVariable::ClientId), ("%u", NameVariable::User), ("%h", NameVariable::Host)];

impl NameVariable {
    /// Returns the variable of a name between `${` and `}`, if it is one of those that are allowed.
    pub(crate) fn parse(name: &str, allowed: &[NameVariable]) -> Result<NameVariable, String> {
        let known = VARIABLES.iter().filter(|(_, variable)| allowed.contains(variable));
        let spelled = format!("${{{name}}}");
        let found = known.clone().find(|(known, _)| *known == spelled);
        let all = known.map(|(known, _)| *known);
        found.map(|(_, variable)| *variable).ok_or_else(|| unknown_placeholder(&spelled, all))
    }
}

impl NameTemplate {
    /// Parses a template. With `groups` above 0, `$1`, `$2` and so on are capture groups. The error
    /// names the wrong part and shows valid ones.
    pub fn parse(text: &str, groups: usize) -> Result<NameTemplate, String> {
        let all = VARIABLES.map(|(_, variable)| variable);
        let name = |name: &str| {
            let variable = NameVariable::parse(name, &all)?;
            Ok(TemplatePart::Value(NamePlaceholder::Variable(variable)))
        };
        let template = TextTemplate::parse_signs(text, name, |rest| {
            if let Some(digits) = rest.strip_prefix('$').filter(|_| groups > 0) {
                return parse_group(digits, groups);
            }
            let letter = LETTERS.iter().find(|(spelled, _)| rest.starts_with(spelled));
            Ok(letter.map(|(spelled, variable)| {
                (TemplatePart::Value(NamePlaceholder::Variable(*variable)), spelled.len())
            }))
        });
        Ok(NameTemplate(template?))
    }

    /// Returns the text for a client. `None` if a value is missing or is not a single topic level,
    /// by `is_one_level`.
    pub(crate) fn fill<'a>(
        &self,
        whom: &PlaceholderValues<'_>,
        group: impl Fn(usize) -> &'a str,
    ) -> Option<String> {
        let mut text = String::new();
        let filled = self.0.try_fill(&mut text, |place, text| {
            match place {
                NamePlaceholder::Group(at) => text.push_str(group(*at)),
                NamePlaceholder::Variable(variable) => {
                    let value = whom.value(*variable).filter(|value| is_one_level(value));
                    text.push_str(&value.ok_or(())?);
                }
            }
            Ok::<(), ()>(())
        });
        filled.ok().map(|()| text)
    }

    /// Returns the text with `x` as every value, for a syntax check.
    pub fn example(&self) -> String {
        let mut text = String::new();
        self.0.fill(&mut text, |_, text| text.push('x'));
        text
    }
}

/// Parses the number of a group, behind its `$`.
fn parse_group(
    rest: &str,
    groups: usize,
) -> Result<Option<(TemplatePart<NamePlaceholder>, usize)>, String> {
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    if digits.is_empty() {
        return Ok(None);
    }
    let at = digits.parse().ok().filter(|at| (1..groups + 1).contains(at)).ok_or_else(|| {
        format!("${digits} is not a group of the regular expression, it has {groups}")
    })?;
    Ok(Some((TemplatePart::Value(NamePlaceholder::Group(at)), 1 + digits.len())))
}

/// Values of the placeholders for one client.
#[derive(Debug)]
pub(crate) struct PlaceholderValues<'a> {
    pub(in crate::access_rules) client_id: &'a str,
    /// User name; `None` for a name without authentication.
    pub(in crate::access_rules) user: Option<&'a str>,
    pub(in crate::access_rules) common_name: Option<&'a str>,
    pub(in crate::access_rules) host: Option<IpAddr>,
}

impl<'a> PlaceholderValues<'a> {
    pub(crate) fn new(
        client_id: &'a str,
        user: Option<&'a str>,
        common_name: Option<&'a str>,
        host: Option<IpAddr>,
    ) -> PlaceholderValues<'a> {
        PlaceholderValues { client_id, user, common_name, host }
    }

    pub(crate) fn value(&self, variable: NameVariable) -> Option<Cow<'_, str>> {
        match variable {
            NameVariable::ClientId => Some(self.client_id.into()),
            NameVariable::CommonName => self.common_name.map(Cow::Borrowed),
            NameVariable::Host => self.host.map(|host| host.to_canonical().to_string().into()),
            NameVariable::User => self.user.map(Cow::Borrowed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str, groups: &[&str], client_id: &str) -> Option<String> {
        let template = NameTemplate::parse(text, groups.len()).unwrap();
        let whom =
            PlaceholderValues { client_id, user: Some("ann"), common_name: None, host: None };
        template.fill(&whom, |at| groups[at - 1])
    }

    #[test]
    fn what_is_said_of_a_client_stands_in_its_name() {
        assert_eq!(fill("a/%c/%u", &[], "c").as_deref(), Some("a/c/ann"));
        assert_eq!(fill("${clientid}${username}", &[], "c").as_deref(), Some("cann"));
        assert_eq!(fill("$2/$1/100%", &["x", "y/z"], "c").as_deref(), Some("y/z/x/100%"));
        assert_eq!(fill("$share/g/$1", &[], "c").as_deref(), Some("$share/g/$1"));
        assert_eq!(fill("a/${cert_cn}", &[], "c"), None);
        for wrong in ["", "+", "#", "a/b", "$SYS"] {
            assert_eq!(fill("a/%c", &[], wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_gap_that_nothing_fills_is_told() {
        assert!(NameTemplate::parse("a/$2", 1).unwrap_err().contains("it has 1"));
        assert!(NameTemplate::parse("a/$0", 1).is_err());
        assert!(NameTemplate::parse("a/${client}", 0).unwrap_err().contains("unknown variable"));
        assert_eq!(NameTemplate::parse("a/${clientid}/$1", 1).unwrap().example(), "a/x/x");
    }
}
