//! Functions for base64, hexadecimal, JSON and Erlang's terms.

use super::conversion::json;
use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::budget::RunError;
use crate::evaluation::EvalFrame;
use crate::operators::charge_json;
use crate::value::Value;
use base64ct::{Base64, Base64Unpadded, Base64Url, Base64UrlUnpadded, Encoding};
use std::fmt::Write as _;

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "base64_decode",
        1..=3,
        "text[, option[, option]]",
        "What a base64 text stands for: text, or bytes where they are not UTF-8. The options are \
         `urlsafe` and `no_padding`; white space in it is passed over.",
        ("base64_decode('c29tZSB2YWw=')", r#""some val""#),
        base64_decode,
    ),
    row(
        "base64_encode",
        1..=3,
        "text[, option[, option]]",
        "Text or bytes in base64. The options are `urlsafe` and `no_padding`.",
        ("base64_encode('some val')", r#""c29tZSB2YWw=""#),
        base64_encode,
    ),
    row(
        "bin2hexstr",
        1..=2,
        "text[, prefix]",
        "Text or bytes as hexadecimal digits, behind a prefix.",
        ("bin2hexstr('abc')", r#""616263""#),
        bin2hexstr,
    ),
    row(
        "hexstr2bin",
        1..=2,
        "text[, prefix]",
        "What hexadecimal digits stand for: text, or bytes where they are not UTF-8. A prefix \
         has to \
         stand before them.",
        ("hexstr2bin('616263')", r#""abc""#),
        hexstr2bin,
    ),
    row(
        "json_decode",
        1..=1,
        "text",
        "The value that a JSON text says.",
        (r#"json_decode('{"a": [1, true]}')"#, r#"{"a":[1,true]}"#),
        json,
    ),
    row(
        "json_encode",
        1..=1,
        "value",
        "Any value as JSON.",
        ("json_encode([1, 'a'])", r#""[1,\"a\"]""#),
        json_encode,
    ),
    row(
        "sqlserver_bin2hexstr",
        1..=1,
        "text",
        "Text or bytes as Microsoft SQL Server writes binary values.",
        ("sqlserver_bin2hexstr('hello')", r#""0x68656C6C6F""#),
        |f, a| {
            let bytes = a.bytes(0)?;
            digits(f, &bytes, "0x")
        },
    ),
    row(
        "term_decode",
        1..=1,
        "bytes",
        "The value of a term in Erlang's external format.",
        ("term_decode(hexstr2bin('836101'))", "1"),
        super::terms::term_decode,
    ),
    row(
        "term_encode",
        1..=1,
        "value",
        "Any value in Erlang's external term format, as bytes.",
        ("bin2hexstr(term_encode(1))", r#""836101""#),
        super::terms::term_encode,
    ),
];

/// Base64 alphabet and padding, as the options of a call select.
struct Base64Options {
    is_urlsafe: bool,
    is_padded: bool,
}

fn alphabet(a: &CallArguments<'_, '_>) -> Result<Base64Options, RunError> {
    let mut alphabet = Base64Options { is_urlsafe: false, is_padded: true };
    for at in 1..a.len() {
        match a.keyword(at, &["urlsafe", "no_padding"], "'urlsafe' or 'no_padding'")? {
            0 => alphabet.is_urlsafe = true,
            _ => alphabet.is_padded = false,
        }
    }
    Ok(alphabet)
}

fn base64_encode<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let alphabet = alphabet(a)?;
    let bytes = a.bytes(0)?;
    charge_output(f.budget, bytes.len() / 3 * 4 + 4)?;
    let encode = match (alphabet.is_urlsafe, alphabet.is_padded) {
        (false, true) => Base64::encode_string,
        (false, false) => Base64Unpadded::encode_string,
        (true, true) => Base64Url::encode_string,
        (true, false) => Base64UrlUnpadded::encode_string,
    };
    Ok(Value::Text(encode(&bytes).into()))
}

fn base64_decode<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let alphabet = alphabet(a)?;
    let text = a.text(0)?;
    charge_output(f.budget, 2 * text.len())?;
    let text: String = text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r' | '\n')).collect();
    // Without `no_padding` the padding is required; with it, padding is removed where present.
    let text = if alphabet.is_padded { &*text } else { text.trim_end_matches('=') };
    let decode = match (alphabet.is_urlsafe, alphabet.is_padded) {
        (false, true) => Base64::decode_vec,
        (false, false) => Base64Unpadded::decode_vec,
        (true, true) => Base64Url::decode_vec,
        (true, false) => Base64UrlUnpadded::decode_vec,
    };
    match decode(text) {
        Ok(bytes) => Ok(Value::of_vec(bytes)),
        Err(_) => a.fail("the text is not base64"),
    }
}

pub(super) fn hex(bytes: &[u8]) -> Value<'static> {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    Value::Text(out.into())
}

/// Writes capital hexadecimal digits, unlike [`hex`], which writes hashes in small letters.
fn digits<'a>(f: &mut EvalFrame<'_, 'a>, bytes: &[u8], prefix: &str) -> EvalResult<'a> {
    charge_output(f.budget, prefix.len() + 2 * bytes.len())?;
    f.budget.step(bytes.len() as u64)?;
    let mut out = String::with_capacity(prefix.len() + 2 * bytes.len());
    out.push_str(prefix);
    for byte in bytes {
        let _ = write!(out, "{byte:02X}");
    }
    Ok(Value::Text(out.into()))
}

fn bin2hexstr<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let prefix = if a.len() == 2 { a.text(1)? } else { "".into() };
    let bytes = a.bytes(0)?;
    digits(f, &bytes, &prefix)
}

fn hexstr2bin<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let prefix = if a.len() == 2 { a.text(1)? } else { "".into() };
    let text = a.text(0)?;
    charge_output(f.budget, text.len())?;
    let Some(digits) = text.strip_prefix(&*prefix) else {
        return a.fail("the text does not begin with the prefix");
    };
    let digits = digits.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|of| of as u8);
    // With an odd number of digits the first zero is missing.
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let first = first.iter().map(|low| digit(*low));
    let pairs = pairs.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    match first.chain(pairs).collect::<Option<Vec<u8>>>() {
        Some(bytes) => Ok(Value::of_vec(bytes)),
        None => a.fail("the text has what is not a hexadecimal digit"),
    }
}

fn json_encode<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    charge_json(a.peek(0), f.budget)?;
    Ok(Value::Text(a.peek(0).to_string().into()))
}
