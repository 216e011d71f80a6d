//! One event, taken apart, and the three ways to write it. Whatever a client says (its id, a
//! topic) is escaped, so a line stays a line.

use crate::timestamp::Timestamp;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

pub(super) struct Line {
    at: Timestamp,
    level: Level,
    module: &'static str,
    message: String,
    fields: Vec<(&'static str, Shown)>,
}

enum Shown {
    Text(String),
    /// A number or a truth value: bare in JSON too.
    Plain(String),
}

impl Line {
    pub(super) fn of(event: &Event<'_>, now: Timestamp) -> Line {
        let metadata = event.metadata();
        let mut line = Line {
            at: now,
            level: *metadata.level(),
            module: metadata.target(),
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut line);
        line
    }

    /// `2026-11-21T10:00:00.000Z INFO  godwit::conn client connected client_id=a`
    pub(super) fn write_text(&self, out: &mut String) {
        let _ = write!(out, "{} ", self.at);
        self.write_unstamped(out);
    }

    /// For syslog, which stamps lines itself.
    pub(super) fn write_unstamped(&self, out: &mut String) {
        let _ = write!(out, "{:5} {} {}", self.level.as_str(), self.module, Escaped(&self.message));
        for (name, shown) in &self.fields {
            let _ = match shown {
                Shown::Plain(text) => write!(out, " {name}={text}"),
                Shown::Text(text) if needs_quotes(text) => write!(out, " {name}={text:?}"),
                Shown::Text(text) => write!(out, " {name}={text}"),
            };
        }
    }

    pub(super) fn write_json(&self, out: &mut String) {
        let (at, level, module) = (self.at, self.level, self.module);
        let _ = write!(out, "{{\"time\":\"{at}\",\"level\":\"{level}\",\"module\":\"{module}\"");
        let _ = write!(out, ",\"message\":{}", Json(&self.message));
        for (name, shown) in &self.fields {
            let _ = match shown {
                Shown::Plain(text) => write!(out, ",\"{name}\":{text}"),
                Shown::Text(text) => write!(out, ",\"{name}\":{}", Json(text)),
            };
        }
        out.push('}');
    }

    fn plain(&mut self, field: &Field, value: impl fmt::Display) {
        self.fields.push((field.name(), Shown::Plain(value.to_string())));
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.fields.push((field.name(), Shown::Text(format!("{value:?}"))));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.fields.push((field.name(), Shown::Text(value.to_string())));
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

/// Without the characters that would end or disguise a line.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
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

struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
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
