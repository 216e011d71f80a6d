//! The functions of rules, one row each: the parser, the evaluation, tests and `docs/rules.md` use
//! the same rows. Names and the order of arguments are those of EMQX.

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

/// Implementation of a function, as stored in [`RuleFunction`].
pub(crate) type FunctionBody =
    for<'a> fn(&mut EvalFrame<'_, 'a>, &mut CallArguments<'_, 'a>) -> EvalResult<'a>;
pub(crate) type EvalResult<'a> = Result<Value<'a>, RunError>;

/// A function with its documentation, a row of [`GROUPS`].
pub struct RuleFunction {
    pub name: &'static str,
    pub arity: RangeInclusive<usize>,
    /// The arguments in the notation of the documentation, optional arguments in brackets.
    pub parameters: &'static str,
    /// Description in one sentence.
    pub description: &'static str,
    /// An expression and its result as JSON; every example is run as a test.
    pub example: (&'static str, &'static str),
    pub(crate) run: FunctionBody,
    /// Parts of a message read in addition to the arguments.
    pub(crate) needs: FunctionNeeds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionNeeds {
    Nothing,
    Chance,
    /// A field which the text of the rule does not name.
    Field(RuleField),
    Now,
    /// Argument 1 is a regular expression, compiled with the plan if constant.
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

/// Whether a function, such as `payload`, reads the message without an argument for it.
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

/// The arguments of a call. Taking a value leaves [`Value::Null`].
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

    /// Returns the text argument of a text function; a boolean counts as `true` or `false`.
    fn subject(&mut self, at: usize) -> Result<Cow<'a, str>, RunError> {
        match self.values[at] {
            Value::Bool(truth) => Ok(if truth { "true".into() } else { "false".into() }),
            _ => self.text(at),
        }
    }

    /// Takes the bytes of argument `at`, counted from 0: a text or bytes. Any other kind is an
    /// error.
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

    /// Returns a count or length, an integer from 0 on.
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

/// Charges the budget for the output of a function.
fn charge_output(budget: &mut Budget, bytes: usize) -> Result<(), RunError> {
    budget.step(1)?;
    budget.take(bytes)
}
