//! Text in a format of Erlang's `io_lib:format`: `~s ~p ~w ~b ~B ~f ~e ~g ~c ~n ~~`, each with a
//! width, a precision and a fill character.

use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::budget::{Budget, RunError};
use crate::evaluation::EvalFrame;
use crate::operators::{FLOAT_DIGITS_MAX, fixed, write_text};
use crate::value::Value;
use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "sprintf",
        1..=16,
        "format, value, ...",
        "The format with the values in the places that begin with `~`.",
        ("sprintf('~ts has ~p items, ~.1f kg', 'box', 2, 1.25)", r#""box has 2 items, 1.3 kg""#),
        |f, a| {
            let format = a.text(0)?;
            let values: Vec<_> = (1..a.len()).map(|at| a.take(at)).collect();
            format_values(f, a, &format, values)
        },
    ),
    row(
        "sprintf_s",
        2..=2,
        "format, array",
        "The same with the values in an array.",
        ("sprintf_s('~s-~s', ['a', 'b'])", r#""a-b""#),
        |f, a| {
            let format = a.text(0)?;
            let values = a.array(1)?;
            format_values(f, a, &format, values)
        },
    ),
];

/// Largest width of a directive in characters.
const WIDTH_MAX: usize = 4096;

/// A directive of the form `~F.P.PadModC`.
struct FormatDirective {
    width: Option<usize>,
    is_left: bool,
    precision: Option<usize>,
    filler: char,
    control: char,
}

fn format_values<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &CallArguments<'_, 'a>,
    format: &str,
    values: Vec<Value<'a>>,
) -> EvalResult<'a> {
    f.budget.scan(4 * format.len())?;
    let mut values = values.into_iter();
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '~' {
            charge_output(f.budget, 4)?;
            out.push(c);
            continue;
        }
        let Some(directive) = FormatDirective::read(&mut chars) else { return a.fail(WRONG) };
        let text = match directive.control {
            '~' => "~".to_string(),
            'n' => "\n".to_string(),
            'i' => match values.next() {
                Some(_) => continue,
                None => return a.fail(COUNT),
            },
            _ => {
                let Some(value) = values.next() else { return a.fail(COUNT) };
                match directive.write(&value, f.budget)? {
                    Some(text) => text,
                    None => return a.fail("a value is not of the kind that the format wants"),
                }
            }
        };
        directive.write_padded(&text, &mut out, f.budget)?;
    }
    if values.next().is_some() { a.fail(COUNT) } else { Ok(Value::Text(out.into())) }
}

const WRONG: &str = "the format has what is not a control sequence";
const COUNT: &str = "the format has places for another number of values";

impl FormatDirective {
    fn read(chars: &mut Peekable<Chars<'_>>) -> Option<FormatDirective> {
        let is_left = chars.next_if_eq(&'-').is_some();
        let width = number(chars)?;
        let mut directive =
            FormatDirective { width, is_left, precision: None, filler: ' ', control: ' ' };
        if chars.next_if_eq(&'.').is_some() {
            directive.precision = number(chars)?;
            if chars.next_if_eq(&'.').is_some() {
                directive.filler = chars.next()?;
            }
        }
        // The modifiers select how Erlang prints lists and maps, which makes no difference here.
        while chars.next_if(|c| matches!(c, 't' | 'l' | 'k' | 'K')).is_some() {}
        directive.control = chars.next()?;
        Some(directive)
    }

    /// Formats a value. `None` if the control character does not fit the value, or is unknown.
    fn write(&self, value: &Value<'_>, budget: &mut Budget) -> Result<Option<String>, RunError> {
        let float = |value: &Value<'_>| match value {
            Value::Float(of) => Some(*of),
            _ => None,
        };
        budget.take(FLOAT_DIGITS_MAX)?;
        let precision = self.precision.unwrap_or(6);
        Ok(match (self.control, value) {
            ('s', Value::Text(_) | Value::Bytes(_) | Value::Bool(_)) => {
                let mut text = String::new();
                write_text(value, &mut text, budget)?;
                match self.precision {
                    Some(most) => Some(text.chars().take(most).collect()),
                    None => Some(text),
                }
            }
            ('p' | 'w' | 'P' | 'W', value) => {
                let mut text = String::new();
                term(value, &mut text, budget)?;
                Some(text)
            }
            ('b' | 'B', Value::Int(of)) => self.integer(*of),
            ('c', Value::Int(of)) => {
                let c = u32::try_from(*of).ok().and_then(char::from_u32);
                let times = self.precision.or(self.width).unwrap_or(1).min(WIDTH_MAX);
                charge_output(budget, 4 * times)?;
                c.map(|c| std::iter::repeat_n(c, times).collect())
            }
            ('f', value) => float(value).map(|of| fixed(of, precision)),
            ('e', value) => float(value).map(|of| scientific(of, precision)),
            ('g', value) => {
                float(value).map(|of| match of == 0.0 || (0.1..10_000.0).contains(&of.abs()) {
                    true => {
                        let whole = of.abs().log10().floor().max(0.0) as usize + 1;
                        format!("{of:.decimals$}", decimals = precision.saturating_sub(whole))
                    }
                    false => scientific(of, precision),
                })
            }
            _ => None,
        })
    }

    /// Writes an integer in the base given as the precision, 10 by default, 2 to 36.
    fn integer(&self, of: i64) -> Option<String> {
        let base = u64::try_from(self.precision.unwrap_or(10)).ok()?;
        if !(2..=36).contains(&base) {
            return None;
        }
        let (mut left, mut digits) = (of.unsigned_abs(), Vec::new());
        loop {
            let digit = char::from_digit((left % base) as u32, base as u32)?;
            digits.push(if self.control == 'B' { digit.to_ascii_uppercase() } else { digit });
            left /= base;
            if left == 0 {
                break;
            }
        }
        digits.extend((of < 0).then_some('-'));
        Some(digits.into_iter().rev().collect())
    }

    /// Pads a text to the width. As in Erlang, longer output is replaced by `*`, and longer text of
    /// `~s` is cut.
    fn write_padded(
        &self,
        text: &str,
        out: &mut String,
        budget: &mut Budget,
    ) -> Result<(), RunError> {
        let len = text.chars().count();
        let width = self.width.unwrap_or(len).min(WIDTH_MAX);
        charge_output(budget, text.len() + 4 * width)?;
        let fill = std::iter::repeat_n(self.filler, width.saturating_sub(len));
        if len > width {
            match self.control {
                's' => out.extend(text.chars().take(width)),
                'c' => out.push_str(text),
                _ => out.extend(std::iter::repeat_n('*', width)),
            }
        } else if self.is_left {
            out.push_str(text);
            out.extend(fill);
        } else {
            out.extend(fill);
            out.push_str(text);
        }
        Ok(())
    }
}

/// Reads digits; `Some(None)` without any. `None` for numbers above 253, a bound of width and
/// precision.
fn number(chars: &mut Peekable<Chars<'_>>) -> Option<Option<usize>> {
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.is_empty() {
        return Some(None);
    }
    digits.parse().ok().filter(|number| *number <= WIDTH_MAX.min(253)).map(Some)
}

/// Writes a float as `1.50000e+0`, with so many digits in total.
fn scientific(of: f64, digits: usize) -> String {
    let text = format!("{of:.decimals$e}", decimals = digits.saturating_sub(1));
    match text.split_once('e') {
        Some((number, power)) if power.starts_with('-') => format!("{number}e{power}"),
        Some((number, power)) => format!("{number}e+{power}"),
        None => text,
    }
}

/// Writes a value as Erlang writes a term, for `~p` and `~w`.
fn term(value: &Value<'_>, out: &mut String, budget: &mut Budget) -> Result<(), RunError> {
    charge_output(budget, 8)?;
    match value {
        Value::Null => out.push_str("undefined"),
        Value::Text(_) | Value::Bytes(_) => {
            let text = match value.as_bytes() {
                Some(bytes) => String::from_utf8_lossy(bytes),
                None => Cow::Borrowed(""),
            };
            charge_output(budget, 2 * text.len() + 8)?;
            out.push_str("<<\"");
            for c in text.chars() {
                match c {
                    '"' | '\\' => out.extend(['\\', c]),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    c => out.push(c),
                }
            }
            out.push_str(if text.is_ascii() { "\">>" } else { "\"/utf8>>" });
        }
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                term(value, out, budget)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push_str("#{");
            for (at, (name, value)) in map.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                charge_output(budget, name.len())?;
                term(&Value::text(name), out, budget)?;
                out.push_str(" => ");
                term(value, out, budget)?;
            }
            out.push('}');
        }
        other => write_text(other, out, budget)?,
    }
    Ok(())
}
