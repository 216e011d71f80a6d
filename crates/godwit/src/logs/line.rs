//! A log event, split into fields, and its three formats. Text of clients (identifiers, topics) is
//! escaped, so that an event stays one line.

use net::timestamp::UnixTimestamp;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

pub(super) struct LogLine {
    at: UnixTimestamp,
    level: Level,
    module: &'static str,
    message: String,
    fields: Vec<(&'static str, LogFieldValue)>,
}

enum LogFieldValue {
    Text(String),
    /// A number or a truth value, without quotes also in JSON.
    Plain(String),
}

impl LogLine {
    pub(super) fn of(event: &Event<'_>, now: UnixTimestamp) -> LogLine {
        let metadata = event.metadata();
        let mut line = LogLine {
            at: now,
            level: *metadata.level(),
            module: metadata.target(),
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut line);
        line
    }

    /// Formats the event as a line of text, for example `2026-11-21T10:00:00.000Z INFO
    /// godwit::conn client connected client_id=a`.
    pub(super) fn write_text(&self, out: &mut String) {
        let _ = write!(out, "{} ", self.at);
        self.write_unstamped(out);
    }

    /// Formats the event without a time, for syslog, which adds the time.
    pub(super) fn write_unstamped(&self, out: &mut String) {
        let _ =
            write!(out, "{:5} {} {}", self.level.as_str(), self.module, EscapedText(&self.message));
        for (name, shown) in &self.fields {
            let _ = match shown {
                LogFieldValue::Plain(text) => write!(out, " {name}={text}"),
                LogFieldValue::Text(text) if needs_quotes(text) => write!(out, " {name}={text:?}"),
                LogFieldValue::Text(text) => write!(out, " {name}={text}"),
            };
        }
    }

    pub(super) fn write_json(&self, out: &mut String) {
        let (at, level, module) = (self.at, self.level, self.module);
        let _ = write!(out, "{{\"time\":\"{at}\",\"level\":\"{level}\",\"module\":\"{module}\"");
        let _ = write!(out, ",\"message\":{}", JsonText(&self.message));
        for (name, shown) in &self.fields {
            let _ = match shown {
                LogFieldValue::Plain(text) => write!(out, ",\"{name}\":{text}"),
                LogFieldValue::Text(text) => write!(out, ",\"{name}\":{}", JsonText(text)),
            };
        }
        out.push('}');
    }

    fn plain(&mut self, field: &Field, value: impl fmt::Display) {
        self.fields.push((field.name(), LogFieldValue::Plain(value.to_string())));
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.fields.push((field.name(), LogFieldValue::Text(format!("{value:?}"))));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.fields.push((field.name(), LogFieldValue::Text(value.to_string())));
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value);
    }
}

fn needs_quotes(text: &str) -> bool {
    let special = |char: char| char.is_whitespace() || char.is_control() || "\"=\\".contains(char);
    text.is_empty() || text.contains(special)
}

/// Text without the characters that would end or disguise a line.
struct EscapedText<'a>(&'a str);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            if char.is_control() {
                write!(f, "{}", char.escape_default())?;
            } else {
                f.write_char(char)?;
            }
        }
        Ok(())
    }
}

struct JsonText<'a>(&'a str);

impl fmt::Display for JsonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for char in self.0.chars() {
            match char {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                char if char.is_control() => write!(f, "\\u{:04x}", u32::from(char))?,
                char => f.write_char(char)?,
            }
        }
        f.write_char('"')
    }
}
