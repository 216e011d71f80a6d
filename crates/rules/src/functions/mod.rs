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

use crate::budget::{Budget, RunError};
use crate::evaluation::EvalFrame;
use crate::rule_input::RuleField;
use crate::value::{Number, Value};
pub(crate) use regexes::{RegexMatcher, compile};
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Implementation of a function.
pub(crate) type FunctionBody =
    for<'a> fn(&mut EvalFrame<'_, 'a>, &mut CallArguments<'_, 'a>) -> EvalResult<'a>;
pub(crate) type EvalResult<'a> = Result<Value<'a>, RunError>;

/// A function with its documentation.
pub struct RuleFunction {
    pub name: &'static str,
    pub arity: RangeInclusive<usize>,
    /// The arguments as a person writes them, optional ones in brackets.
    pub parameters: &'static str,
    /// Description in one sentence.
    pub description: &'static str,
    /// An expression and its result as JSON; each is a test.
    pub example: (&'static str, &'static str),
    pub(crate) run: FunctionBody,
    /// Parts of a message that the function reads in addition to its arguments.
    pub(crate) needs: FunctionNeeds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionNeeds {
    Nothing,
    Chance,
    /// A field that the rule does not name.
    Field(RuleField),
    Now,
    /// Its second argument is a regular expression, compiled with the plan where it is a literal.
    Pattern,
}

impl std::fmt::Debug for RuleFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Functions by subject, in the order of the documentation.
pub const GROUPS: &[(&str, &[RuleFunction])] = &[
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

pub(crate) fn by_name(name: &str) -> Option<&'static RuleFunction> {
    all().find(|function| function.name.eq_ignore_ascii_case(name))
}

/// Whether it says something of the message without being given it.
pub(crate) fn reads_message(name: &str) -> bool {
    message::ROWS.iter().any(|function| function.name.eq_ignore_ascii_case(name))
}

pub(crate) fn all() -> impl Iterator<Item = &'static RuleFunction> {
    GROUPS.iter().flat_map(|(_, rows)| *rows)
}

const fn row(
    name: &'static str,
    arity: RangeInclusive<usize>,
    takes: &'static str,
    says: &'static str,
    example: (&'static str, &'static str),
    run: FunctionBody,
) -> RuleFunction {
    RuleFunction {
        name,
        arity,
        parameters: takes,
        description: says,
        example,
        run,
        needs: FunctionNeeds::Nothing,
    }
}

/// The values that a function is called with. Taking one leaves null.
pub(crate) struct CallArguments<'v, 'a> {
    function: &'static str,
    values: &'v mut [Value<'a>],
    regex: Option<&'a RegexMatcher>,
}

impl<'v, 'a> CallArguments<'v, 'a> {
    pub(crate) fn new(
        function: &'static str,
        values: &'v mut [Value<'a>],
        regex: Option<&'a RegexMatcher>,
    ) -> Self {
        CallArguments { function, values, regex }
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

    fn type_error<T>(&self, at: usize, wants: &'static str) -> Result<T, RunError> {
        let got = self.values[at].kind();
        Err(RunError::Argument { function: self.function, at: at + 1, wants, got })
    }

    fn fail<T>(&self, why: &'static str) -> Result<T, RunError> {
        Err(RunError::Function { function: self.function, why })
    }

    fn text(&mut self, at: usize) -> Result<Cow<'a, str>, RunError> {
        match &mut self.values[at] {
            Value::Text(text) => Ok(std::mem::take(text)),
            _ => self.type_error(at, "text"),
        }
    }

    /// The text that a function of texts is about: a boolean is the word for it.
    fn subject(&mut self, at: usize) -> Result<Cow<'a, str>, RunError> {
        match self.values[at] {
            Value::Bool(truth) => Ok(if truth { "true".into() } else { "false".into() }),
            _ => self.text(at),
        }
    }

    /// Text and bytes alike.
    fn bytes(&mut self, at: usize) -> Result<Cow<'a, [u8]>, RunError> {
        Ok(match &mut self.values[at] {
            Value::Bytes(bytes) => std::mem::take(bytes),
            Value::Text(text) => match std::mem::take(text) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            _ => return self.type_error(at, "text or bytes"),
        })
    }

    fn int(&self, at: usize) -> Result<i64, RunError> {
        match self.values[at] {
            Value::Int(of) => Ok(of),
            _ => self.type_error(at, "an integer"),
        }
    }

    /// A count or a length.
    fn size(&self, at: usize) -> Result<usize, RunError> {
        match self.values[at] {
            Value::Int(of) if of >= 0 => Ok(usize::try_from(of).unwrap_or(usize::MAX)),
            _ => self.type_error(at, "an integer from 0 on"),
        }
    }

    fn number(&self, at: usize) -> Result<Number, RunError> {
        match self.values[at] {
            Value::Int(of) => Ok(Number::Int(of)),
            Value::Float(of) => Ok(Number::Float(of)),
            _ => self.type_error(at, "a number"),
        }
    }

    fn array(&mut self, at: usize) -> Result<Vec<Value<'a>>, RunError> {
        match &mut self.values[at] {
            Value::Array(values) => Ok(std::mem::take(values)),
            _ => self.type_error(at, "an array"),
        }
    }

    /// Returns the index of an argument in a list of allowed words.
    fn keyword(&self, at: usize, words: &[&str], wants: &'static str) -> Result<usize, RunError> {
        let found = match &self.values[at] {
            Value::Text(text) => words.iter().position(|word| text.eq_ignore_ascii_case(word)),
            _ => None,
        };
        found.map_or_else(|| self.type_error(at, wants), Ok)
    }
}

/// Pays for a text that a function makes.
fn charge_output(budget: &mut Budget, bytes: usize) -> Result<(), RunError> {
    budget.step(1)?;
    budget.take(bytes)
}
