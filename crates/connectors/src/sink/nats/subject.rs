//! The subject of a message in NATS. Levels of a topic become levels of the subject; a value can
//! neither add levels nor address the server's own subjects.

use crate::sink::message::{MessageField, SinkMessage};
use crate::sink::template::SinkTemplate;
use std::fmt::Write;

/// Template of a subject, from the option `nats.subject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSubject(SinkTemplate);

impl NatsSubject {
    pub fn parse(text: &str) -> Result<NatsSubject, String> {
        let template = SinkTemplate::parse(text)?;
        let sample = template.fill_by(&SinkMessage::default(), |_, _, subject| subject.push('x'));
        let is_legal = |c: char| !c.is_whitespace() && !c.is_control() && !"*>".contains(c);
        let is_whole = sample.split('.').all(|level| !level.is_empty());
        match sample.chars().all(is_legal) && is_whole {
            true => Ok(NatsSubject(template)),
            false => Err(format!(
                "{text:?} is not a subject: levels have dots between them, and neither spaces nor \
                 * nor > in them"
            )),
        }
    }

    pub(super) fn fill(&self, message: &SinkMessage) -> String {
        let subject = self.0.fill_by(message, push_value);
        if subject.split('.').all(|level| !level.is_empty()) {
            return subject;
        }
        let levels = subject.split('.').map(|level| if level.is_empty() { EMPTY } else { level });
        levels.collect::<Vec<_>>().join(".")
    }
}

/// Token for an empty level. Unique, since a percent sign in a value becomes `%25`.
const EMPTY: &str = "%";

fn push_value(field: &MessageField, value: &str, subject: &mut String) {
    for c in value.chars() {
        match c {
            '/' if *field == MessageField::Topic => subject.push('.'),
            // Subjects of the server and of inboxes begin with these characters.
            '$' | '_' if subject.is_empty() => encode(c, subject),
            '.' | '*' | '>' | '%' => encode(c, subject),
            c if c.is_whitespace() || c.is_control() => encode(c, subject),
            c => subject.push(c),
        }
    }
}

/// Appends a character percent-encoded as UTF-8 [RFC 3986, 2.1].
pub(super) fn encode(c: char, out: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        let _ = write!(out, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_become_subjects_and_no_value_leaves_its_level() {
        for (template, topic, expected) in [
            ("mqtt.${topic}", "a/b/c", "mqtt.a.b.c"),
            ("mqtt.${topic}", "/a//b/", "mqtt.%.a.%.b.%"),
            ("mqtt.${topic}", "a.b/*/>/100%", "mqtt.a%2Eb.%2A.%3E.100%25"),
            ("mqtt.${topic}", "a b\t\u{a0}\u{7f}\u{e9}", "mqtt.a%20b%09%C2%A0%7F\u{e9}"),
            ("${topic}", "$JS/API/STREAM/DELETE/x", "%24JS.API.STREAM.DELETE.x"),
            ("${topic}", "_INBOX/x/$_", "%5FINBOX.x.$_"),
            ("$KV.${topic[2]}.x", "a/b/c", "$KV.b.x"),
            ("m.${topic[9]}.${clientid}${topic[1]}", "a", "m.%.a"),
            ("${clientid}${topic[1]}", "$SYS", "%24SYS"),
            ("m.${payload}", "a", "m.a/b%0D%0APUB"),
        ] {
            let payload = b"a/b\r\nPUB".to_vec();
            let message = SinkMessage { topic: topic.into(), payload, ..SinkMessage::default() };
            assert_eq!(
                NatsSubject::parse(template).unwrap().fill(&message),
                expected,
                "{template}"
            );
        }
    }

    #[test]
    fn what_is_no_subject_is_told() {
        for wrong in ["", ".a", "a.", "a..b", "a b", "a.*", "a.>", "a\n", "${topic}.", "${x}"] {
            NatsSubject::parse(wrong).unwrap_err();
        }
    }
}
