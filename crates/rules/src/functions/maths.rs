//! Functions of numbers.

use super::{CallArguments, EvalResult, RuleFunction, row};
use crate::evaluation::EvalFrame;
use crate::value::{Number, Value};

/// A row for a function from one number to a float; a result which is not finite is an error.
macro_rules! float {
    ($name:literal, $says:literal, $example:expr, $of:expr) => {
        row($name, 1..=1, "number", $says, $example, |_, a| {
            let of: fn(f64) -> f64 = $of;
            finite(a, of(a.number(0)?.float()))
        })
    };
}

pub(super) const ROWS: &[RuleFunction] = &[
    row("abs", 1..=1, "number", "The number without its sign.", ("abs(-12)", "12"), abs),
    float!("acos", "Arc cosine, in radians.", ("acos(1)", "0.0"), f64::acos),
    float!("acosh", "Inverse hyperbolic cosine.", ("acosh(1)", "0.0"), f64::acosh),
    float!("asin", "Arc sine, in radians.", ("asin(0)", "0.0"), f64::asin),
    float!("asinh", "Inverse hyperbolic sine.", ("asinh(0)", "0.0"), f64::asinh),
    float!("atan", "Arc tangent, in radians.", ("atan(0)", "0.0"), f64::atan),
    float!("atanh", "Inverse hyperbolic tangent.", ("atanh(0)", "0.0"), f64::atanh),
    row("ceil", 1..=1, "number", "The next integer above.", ("ceil(1.2)", "2"), |_, a| {
        whole(a, f64::ceil)
    }),
    float!("cos", "Cosine of radians.", ("cos(0)", "1.0"), f64::cos),
    float!("cosh", "Hyperbolic cosine.", ("cosh(0)", "1.0"), f64::cosh),
    row(
        "div",
        2..=2,
        "integer, divisor",
        "The same as the operator `div`.",
        ("div(-7, 2)", "-3"),
        |_, a| match a.int(0)?.checked_div(a.int(1)?) {
            Some(of) => Ok(Value::Int(of)),
            None => a.fail("division by zero, or overflow"),
        },
    ),
    float!("exp", "e to this power.", ("exp(0)", "1.0"), f64::exp),
    row("floor", 1..=1, "number", "The next integer below.", ("floor(-1.2)", "-2"), |_, a| {
        whole(a, f64::floor)
    }),
    row(
        "fmod",
        2..=2,
        "number, divisor",
        "The remainder of a division, as a float with the sign of the number.",
        ("fmod(6.5, 2)", "0.5"),
        |_, a| {
            let (of, by) = (a.number(0)?.float(), a.number(1)?.float());
            if by == 0.0 { a.fail("division by zero") } else { finite(a, of % by) }
        },
    ),
    float!("log", "Natural logarithm.", ("log(1)", "0.0"), f64::ln),
    float!("log10", "Logarithm to base 10.", ("log10(1000)", "3.0"), f64::log10),
    float!("log2", "Logarithm to base 2.", ("log2(1024)", "10.0"), f64::log2),
    row(
        "mod",
        2..=2,
        "integer, divisor",
        "The same as the operator `mod`.",
        ("mod(-7, 4)", "-3"),
        |_, a| match a.int(0)?.checked_rem(a.int(1)?) {
            Some(of) => Ok(Value::Int(of)),
            None => a.fail("division by zero, or overflow"),
        },
    ),
    row(
        "power",
        2..=2,
        "number, power",
        "A number to a power.",
        ("power(2, 10)", "1024.0"),
        |_, a| {
            let (of, to) = (a.number(0)?.float(), a.number(1)?.float());
            finite(a, of.powf(to))
        },
    ),
    row("round", 1..=1, "number", "The nearest integer.", ("round(2.5)", "3"), |_, a| {
        whole(a, f64::round)
    }),
    float!("sin", "Sine of radians.", ("sin(0)", "0.0"), f64::sin),
    float!("sinh", "Hyperbolic sine.", ("sinh(0)", "0.0"), f64::sinh),
    float!("sqrt", "Square root.", ("sqrt(9)", "3.0"), f64::sqrt),
    float!("tan", "Tangent of radians.", ("tan(0)", "0.0"), f64::tan),
    float!("tanh", "Hyperbolic tangent.", ("tanh(0)", "0.0"), f64::tanh),
];

fn finite<'a>(a: &CallArguments<'_, 'a>, of: f64) -> EvalResult<'a> {
    if of.is_finite() { Ok(Value::Float(of)) } else { a.fail("has no result for this number") }
}

fn abs<'a>(_: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    match a.number(0)? {
        Number::Int(of) => {
            of.checked_abs().map_or_else(|| a.fail("overflow"), |of| Ok(Value::Int(of)))
        }
        Number::Float(of) => Ok(Value::Float(of.abs())),
    }
}

fn whole<'a>(a: &CallArguments<'_, 'a>, rounded: fn(f64) -> f64) -> EvalResult<'a> {
    match a.number(0)? {
        Number::Int(of) => Ok(Value::Int(of)),
        Number::Float(of) => to_int(rounded(of)).map_or_else(|| a.fail("overflow"), Ok),
    }
}

/// Converts a whole float; `None` outside the range of `i64`.
pub(super) fn to_int<'a>(of: f64) -> Option<Value<'a>> {
    let fits = of >= i64::MIN as f64 && of < i64::MAX as f64;
    fits.then_some(Value::Int(of as i64))
}
