//! Base64, hexadecimal, JSON and hashes.

use super::conversion::json;
use super::{Arguments, Function, Outcome, room, row};
use crate::operate::write_budget;
use crate::run::Frame;
use crate::value::Value;
use base64ct::{Base64, Encoding};
use std::borrow::Cow;
use std::fmt::Write as _;

pub(super) const ROWS: &[Function] = &[
    row(
        "base64_decode",
        1..=1,
        "text",
        "What a base64 text stands for: text, or bytes where they are not UTF-8.",
        ("base64_decode('c29tZSB2YWw=')", r#""some val""#),
        base64_decode,
    ),
    row(
        "base64_encode",
        1..=1,
        "text",
        "Text or bytes in base64.",
        ("base64_encode('some val')", r#""c29tZSB2YWw=""#),
        base64_encode,
    ),
    row(
        "bin2hexstr",
        1..=1,
        "text",
        "Text or bytes as hexadecimal digits.",
        ("bin2hexstr('abc')", r#""616263""#),
        bin2hexstr,
    ),
    row(
        "hexstr2bin",
        1..=1,
        "text",
        "What hexadecimal digits stand for: text, or bytes where they are not UTF-8.",
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
        "md5",
        1..=1,
        "text",
        "MD5 as hexadecimal digits.",
        ("md5('some val')", r#""1b68352b3e9c2de52ffd322e30bffcc4""#),
        hash::<md5::Md5>,
    ),
    row(
        "sha",
        1..=1,
        "text",
        "SHA-1 as hexadecimal digits.",
        ("sha('some val')", r#""f85ba28ff5ea84a0cbfa118319acb0c5e58ee2b9""#),
        hash::<sha1::Sha1>,
    ),
    row(
        "sha256",
        1..=1,
        "text",
        "SHA-256 as hexadecimal digits.",
        (
            "sha256('some val')",
            r#""67f97635d8a0e064f60ba6e8846a0ac0be664f18f0c1dc6445cd3542d2b71993""#,
        ),
        hash::<sha2::Sha256>,
    ),
];

fn base64_encode<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let bytes = a.bytes(0)?;
    room(f.budget, bytes.len() / 3 * 4 + 4)?;
    Ok(Value::Text(Base64::encode_string(&bytes).into()))
}

fn base64_decode<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let text = a.text(0)?;
    room(f.budget, text.len())?;
    match Base64::decode_vec(&text) {
        Ok(bytes) => Ok(Value::of_vec(bytes)),
        Err(_) => a.no("the text is no base64"),
    }
}

fn hex(bytes: &[u8]) -> Value<'static> {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    Value::Text(out.into())
}

fn bin2hexstr<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let bytes = a.bytes(0)?;
    room(f.budget, 2 * bytes.len())?;
    f.budget.step(bytes.len() as u64)?;
    match hex(&bytes) {
        // As EMQX writes them, where hashes have small letters.
        Value::Text(text) => Ok(Value::Text(Cow::Owned(text.to_uppercase()))),
        other => Ok(other),
    }
}

fn hexstr2bin<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let text = a.text(0)?;
    room(f.budget, text.len())?;
    let digits = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|of| of as u8);
    // An odd number of them lacks the first zero.
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let first = first.iter().map(|low| digit(*low));
    let pairs = pairs.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    match first.chain(pairs).collect::<Option<Vec<u8>>>() {
        Some(bytes) => Ok(Value::of_vec(bytes)),
        None => a.no("the text has what is no hexadecimal digit"),
    }
}

fn json_encode<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    write_budget(a.peek(0), f.budget)?;
    Ok(Value::Text(a.peek(0).to_string().into()))
}

fn hash<'a, D: sha2::Digest>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let bytes = a.bytes(0)?;
    // Some nanoseconds a byte.
    f.budget.step(20 + bytes.len() as u64 / 4)?;
    room(f.budget, 64)?;
    Ok(hex(&D::digest(&bytes)))
}
