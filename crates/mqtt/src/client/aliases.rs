//! Topic aliases of one connection, in each direction. The receiver's Topic Alias Maximum bounds
//! the number of aliases. Aliases end with the connection.

use crate::{Property, Publish, Violation};
use std::collections::HashMap;

/// Topic aliases that the server assigns.
#[derive(Debug, Default)]
pub struct IncomingAliases {
    /// Topic Alias Maximum of CONNECT.
    max: u16,
    topics: HashMap<u16, String>,
}

/// Topic aliases that the client assigns. Each new topic receives the next number, up to the Topic
/// Alias Maximum.
#[derive(Debug, Default)]
pub struct OutgoingAliases {
    max: u16,
    numbers: HashMap<String, u16>,
}

/// Form in which a PUBLISH names its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicAliasChoice {
    /// Topic alias without the topic: the server knows the alias already.
    Known(u16),
    /// Topic and topic alias: the server does not know the alias yet.
    New(u16),
    /// Topic without an alias.
    None,
}

impl IncomingAliases {
    pub fn new(max: u16) -> IncomingAliases {
        IncomingAliases { max, topics: HashMap::new() }
    }

    /// Returns the topic of a message, and stores the alias if the message assigns an alias. Fails
    /// with [`Violation::AliasUnknown`] if the message has no topic and the alias has no value. A
    /// topic with an alias above the client's maximum is valid; the alias is ignored.
    pub fn resolve<'a>(&'a mut self, publish: &Publish<'a>) -> Result<&'a str, Violation> {
        let Some(alias) = topic_alias(publish) else { return Ok(publish.topic) };
        if publish.topic.is_empty() {
            return self.topic(alias).ok_or(Violation::AliasUnknown);
        }
        self.set(alias, publish.topic);
        Ok(publish.topic)
    }

    pub fn topic(&self, alias: u16) -> Option<&str> {
        self.topics.get(&alias).map(String::as_str)
    }

    /// Assigns an alias to a topic. Does nothing if the alias is above the maximum. [MQTT-3.3.2-10]
    pub fn set(&mut self, alias: u16, topic: &str) {
        if !self.allows(alias) {
            return;
        }
        match self.topics.get_mut(&alias) {
            Some(known) => topic.clone_into(known),
            None => _ = self.topics.insert(alias, topic.to_string()),
        }
    }

    pub fn allows(&self, alias: u16) -> bool {
        (1..=self.max).contains(&alias)
    }

    /// Removes an alias, so that a later message with this alias alone is an error.
    pub fn forget(&mut self, alias: u16) {
        self.topics.remove(&alias);
    }
}

impl OutgoingAliases {
    /// Creates an empty set of aliases for a connection. `max` is the Topic Alias Maximum of the
    /// server, or a smaller number.
    pub fn new(max: u16) -> OutgoingAliases {
        OutgoingAliases { max, numbers: HashMap::new() }
    }

    pub fn assign(&mut self, topic: &str) -> TopicAliasChoice {
        if let Some(number) = self.numbers.get(topic) {
            return TopicAliasChoice::Known(*number);
        }
        // [MQTT-3.2.2-17] [MQTT-3.2.2-18] [MQTT-3.3.2-9]
        if self.numbers.len() >= usize::from(self.max) {
            return TopicAliasChoice::None;
        }
        let number = self.numbers.len() as u16 + 1;
        self.numbers.insert(topic.into(), number);
        TopicAliasChoice::New(number)
    }

    /// Removes the alias of `topic`, the last new alias, because its PUBLISH was not sent.
    pub fn revoke(&mut self, topic: &str) {
        self.numbers.remove(topic);
    }
}

fn topic_alias(publish: &Publish<'_>) -> Option<u16> {
    publish.properties.iter().find_map(|property| match property {
        Property::TopicAlias(alias) => Some(alias),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PropertiesBuf, QoS};

    fn resolve(
        aliases: &mut IncomingAliases,
        topic: &str,
        alias: Option<u16>,
    ) -> Result<String, Violation> {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::ContentType("c"));
        alias.into_iter().for_each(|alias| _ = properties.push(Property::TopicAlias(alias)));
        let publish = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic,
            packet_id: None,
            properties: properties.as_properties(),
            payload: b"",
        };
        aliases.resolve(&publish).map(str::to_string)
    }

    #[test]
    fn an_alias_stands_for_the_topic_that_it_came_with_last() {
        // [MQTT-3.3.2-10]
        let mut aliases = IncomingAliases::new(2);
        assert_eq!(resolve(&mut aliases, "a", None), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "a", Some(2)), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "", Some(2)), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "b", Some(2)), Ok("b".into()));
        assert_eq!(resolve(&mut aliases, "", Some(2)), Ok("b".into()));
        assert_eq!(resolve(&mut aliases, "", Some(1)), Err(Violation::AliasUnknown));
        aliases.forget(2);
        assert_eq!(resolve(&mut aliases, "", Some(2)), Err(Violation::AliasUnknown));
    }

    #[test]
    fn an_alias_above_the_maximum_is_not_remembered() {
        let mut aliases = IncomingAliases::new(2);
        assert_eq!(resolve(&mut aliases, "a", Some(3)), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "", Some(3)), Err(Violation::AliasUnknown));
        // A server that assigns more than it may makes the client keep nothing.
        (1..=u16::MAX).for_each(|alias| _ = resolve(&mut aliases, "a", Some(alias)));
        assert_eq!(aliases.topics.len(), 2);
    }

    #[test]
    fn the_client_assigns_as_many_aliases_as_the_server_takes() {
        // [MQTT-3.2.2-17] [MQTT-3.3.2-9]
        let mut aliases = OutgoingAliases::new(2);
        assert_eq!(aliases.assign("a"), TopicAliasChoice::New(1));
        assert_eq!(aliases.assign("b"), TopicAliasChoice::New(2));
        assert_eq!(aliases.assign("c"), TopicAliasChoice::None);
        assert_eq!(aliases.assign("a"), TopicAliasChoice::Known(1));
        aliases.revoke("b");
        assert_eq!(aliases.assign("c"), TopicAliasChoice::New(2));
        assert_eq!(aliases.assign("b"), TopicAliasChoice::None);
    }

    #[test]
    fn a_server_that_announces_no_aliases_gets_none() {
        // [MQTT-3.2.2-18]
        assert_eq!(OutgoingAliases::default().assign("a"), TopicAliasChoice::None);
    }
}
