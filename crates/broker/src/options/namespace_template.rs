//! `namespace`: the template of the namespace of a client.

use crate::access_rules::acl_rules::NameVariable;
use crate::message::namespace::is_valid_namespace;
use mqtt::template::TextTemplate;
use std::fmt;

/// A namespace as an option gives it: `tenant`, or `tenants/${username}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceTemplate {
    pub(crate) text: Box<str>,
    template: TextTemplate<NameVariable>,
}

impl NamespaceTemplate {
    /// Parses the option's value. Returns `None` for the empty text, which means no namespace.
    pub fn parse(text: &str) -> Result<Option<NamespaceTemplate>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let template = TextTemplate::parse(text, |name| NameVariable::parse(name, &VARIABLES))?;
        let mut plain = String::new();
        template.fill(&mut plain, |_, plain| plain.push('x'));
        if !is_valid_namespace(&plain) {
            let why = "no namespace, use one like \"tenant\" or \"tenants/${username}\"";
            return Err(why.to_string());
        }
        Ok(Some(NamespaceTemplate { text: text.into(), template }))
    }

    /// Whether the namespace depends on the client: its user name or its certificate.
    pub fn has_variables(&self) -> bool {
        self.template.values().next().is_some()
    }

    /// Whether the template contains `${username}`.
    pub fn asks_for_user(&self) -> bool {
        self.template.values().any(|variable| *variable == NameVariable::User)
    }

    /// Returns the namespace of a client, or `None` if a value is missing or is not a single level.
    pub(crate) fn of(&self, user: Option<&str>, common_name: Option<&str>) -> Option<Box<str>> {
        let mut text = String::new();
        let filled = self.template.try_fill(&mut text, |variable, text| {
            let value = if *variable == NameVariable::User { user } else { common_name };
            let value = value.filter(|value| !value.contains(['/', '$']));
            text.push_str(value.ok_or(())?);
            Ok::<(), ()>(())
        });
        filled.ok()?;
        is_valid_namespace(&text).then(|| text.into())
    }
}

const VARIABLES: [NameVariable; 2] = [NameVariable::User, NameVariable::CommonName];

impl fmt::Display for NamespaceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
