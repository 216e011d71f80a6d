//! The functions of rules: one row each, of which parser, evaluation, tests and `docs/rules.md`
//! come. Names and order of arguments are EMQX's.

mod arrays;
mod bits;
mod codecs;
mod compression;
mod conditions;
mod conversion;
mod dates;
mod format;
mod hashes;
mod maps;
mod maths;
mod message;
mod regexes;
mod terms;
mod texts;
mod time;

use crate::budget::{Budget, Failed};
use crate::run::Frame;
use crate::seen::Field;
use crate::value::{Number, Value};
pub(crate) use regexes::{Matcher, compile};
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// What a plan calls.
pub(crate) type Run = for<'a> fn(&mut Frame<'_, 'a>, &mut Arguments<'_, 'a>) -> Outcome<'a>;
pub(crate) type Outcome<'a> = Result<Value<'a>, Failed>;

/// One function, and all that users read of it.
pub struct Function {
    pub name: &'static str,
    pub arity: RangeInclusive<usize>,
    /// The arguments as a person writes them, optional ones in brackets.
    pub takes: &'static str,
    /// One sentence.
    pub says: &'static str,
    /// An expression and its result as JSON; each is a test.
    pub example: (&'static str, &'static str),
    pub(crate) run: Run,
    /// What of a message it looks at besides its arguments.
    pub(crate) needs: Needs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Chance,
    /// A field that the rule does not name.
    Field(Field),
    Now,
    /// Its second argument is a regular expression, compiled with the plan where it is a literal.
    Pattern,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Functions by subject, in the order of the documentation.
pub const GROUPS: &[(&str, &[Function])] = &[
    ("Maths", maths::ROWS),
    ("What a value is", conditions::ROWS),
    ("Conversion", conversion::ROWS),
    ("Text", texts::ROWS),
    ("Formatted text", format::ROWS),
    ("Regular expressions", regexes::ROWS),
    ("Maps", maps::ROWS),
    ("Arrays", arrays::ROWS),
    ("Encoding", codecs::ROWS),
    ("Hashes", hashes::ROWS),
    ("Compression", compression::ROWS),
    ("Bits", bits::ROWS),
    ("Time", time::ROWS),
    ("Topics and chance", message::ROWS),
];

pub(crate) fn by_name(name: &str) -> Option<&'static Function> {
    all().find(|function| function.name.eq_ignore_ascii_case(name))
}

/// Whether it says something of the message without being given it.
pub(crate) fn looks_at_message(name: &str) -> bool {
    message::ROWS.iter().any(|function| function.name.eq_ignore_ascii_case(name))
}

pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    GROUPS.iter().flat_map(|(_, rows)| *rows)
}

const fn row(
    name: &'static str,
    arity: RangeInclusive<usize>,
    takes: &'static str,
    says: &'static str,
    example: (&'static str, &'static str),
    run: Run,
) -> Function {
    Function { name, arity, takes, says, example, run, needs: Needs::Nothing }
}

/// The values that a function is called with. Taking one leaves null.
pub(crate) struct Arguments<'v, 'a> {
    function: &'static str,
    values: &'v mut [Value<'a>],
    regex: Option<&'a Matcher>,
}

impl<'v, 'a> Arguments<'v, 'a> {
    pub(crate) fn new(
        function: &'static str,
        values: &'v mut [Value<'a>],
        regex: Option<&'a Matcher>,
    ) -> Self {
        Arguments { function, values, regex }
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn peek(&self, at: usize) -> &Value<'a> {
        &self.values[at]
    }

    fn take(&mut self, at: usize) -> Value<'a> {
        std::mem::take(&mut self.values[at])
    }

    fn wants<T>(&self, at: usize, wants: &'static str) -> Result<T, Failed> {
        let got = self.values[at].kind();
        Err(Failed::Argument { function: self.function, at: at + 1, wants, got })
    }

    fn no<T>(&self, why: &'static str) -> Result<T, Failed> {
        Err(Failed::Function { function: self.function, why })
    }

    fn text(&mut self, at: usize) -> Result<Cow<'a, str>, Failed> {
        match &mut self.values[at] {
            Value::Text(text) => Ok(std::mem::take(text)),
            _ => self.wants(at, "text"),
        }
    }

    /// The text that a function of texts is about: a boolean is the word for it.
    fn subject(&mut self, at: usize) -> Result<Cow<'a, str>, Failed> {
        match self.values[at] {
            Value::Bool(truth) => Ok(if truth { "true".into() } else { "false".into() }),
            _ => self.text(at),
        }
    }

    /// Text and bytes alike.
    fn bytes(&mut self, at: usize) -> Result<Cow<'a, [u8]>, Failed> {
        Ok(match &mut self.values[at] {
            Value::Bytes(bytes) => std::mem::take(bytes),
            Value::Text(text) => match std::mem::take(text) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            _ => return self.wants(at, "text or bytes"),
        })
    }

    fn int(&self, at: usize) -> Result<i64, Failed> {
        match self.values[at] {
            Value::Int(of) => Ok(of),
            _ => self.wants(at, "an integer"),
        }
    }

    /// A count or a length.
    fn size(&self, at: usize) -> Result<usize, Failed> {
        match self.values[at] {
            Value::Int(of) if of >= 0 => Ok(usize::try_from(of).unwrap_or(usize::MAX)),
            _ => self.wants(at, "an integer from 0 on"),
        }
    }

    fn number(&self, at: usize) -> Result<Number, Failed> {
        match self.values[at] {
            Value::Int(of) => Ok(Number::Int(of)),
            Value::Float(of) => Ok(Number::Float(of)),
            _ => self.wants(at, "a number"),
        }
    }

    fn array(&mut self, at: usize) -> Result<Vec<Value<'a>>, Failed> {
        match &mut self.values[at] {
            Value::Array(values) => Ok(std::mem::take(values)),
            _ => self.wants(at, "an array"),
        }
    }

    /// One of some words, by its place among them.
    fn word(&self, at: usize, words: &[&str], wants: &'static str) -> Result<usize, Failed> {
        let found = match &self.values[at] {
            Value::Text(text) => words.iter().position(|word| text.eq_ignore_ascii_case(word)),
            _ => None,
        };
        found.map_or_else(|| self.wants(at, wants), Ok)
    }
}

/// Pays for a text that a function makes.
fn room(budget: &mut Budget, bytes: usize) -> Result<(), Failed> {
    budget.step(1)?;
    budget.take(bytes)
}
