//! Hashes in hexadecimal digits, and numbers derived from hashes.

use super::codecs::hex;
use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::budget::RunError;
use crate::evaluation::EvalFrame;
use crate::value::Value;
use std::borrow::Cow;

/// An algorithm of the function `hash`, with all its names.
struct HashAlgorithm {
    names: &'static [&'static str],
    digest: fn(&[u8]) -> Vec<u8>,
}

const ALGORITHMS: &[HashAlgorithm] = &[
    HashAlgorithm { names: &["blake2b"], digest: digest::<blake2::Blake2b512> },
    HashAlgorithm { names: &["blake2s"], digest: digest::<blake2::Blake2s256> },
    HashAlgorithm { names: &["md5"], digest: digest::<md5::Md5> },
    HashAlgorithm { names: &["sha", "sha1"], digest: digest::<sha1::Sha1> },
    HashAlgorithm { names: &["sha224"], digest: digest::<sha2::Sha224> },
    HashAlgorithm { names: &["sha256"], digest: digest::<sha2::Sha256> },
    HashAlgorithm { names: &["sha384"], digest: digest::<sha2::Sha384> },
    HashAlgorithm { names: &["sha512"], digest: digest::<sha2::Sha512> },
];

const WANTS: &str = "'md5', 'sha', 'sha224', 'sha256', 'sha384', 'sha512', 'blake2b' or 'blake2s'";

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "hash",
        2..=2,
        "algorithm, text",
        "Text or bytes under `md5`, `sha` (or `sha1`), `sha224`, `sha256`, `sha384`, `sha512`, \
         `blake2b` or `blake2s`.",
        ("hash('md5', 'some val')", r#""1b68352b3e9c2de52ffd322e30bffcc4""#),
        |f, a| {
            let name = a.text(0)?;
            match ALGORITHMS.iter().find(|one| one.names.contains(&&*name)) {
                Some(algorithm) => hash_argument(f, a, 1, algorithm.digest),
                None => {
                    a.values[0] = Value::Text(name);
                    a.type_error(0, WANTS)
                }
            }
        },
    ),
    row(
        "hash_to_range",
        3..=3,
        "text, from, to",
        "One of the integers from one to another, the same for the same text: its SHA-256 as a \
         number, and what is left of that.",
        ("hash_to_range('device-1', 0, 9)", "1"),
        |f, a| {
            let bytes = subject(a, 0)?;
            f.budget.step(20 + bytes.len() as u64 / 4)?;
            match bytes.is_empty() {
                true => a.fail("the text is empty"),
                false => map_into_range(a, &digest::<sha2::Sha256>(&bytes)),
            }
        },
    ),
    row(
        "map_to_range",
        3..=3,
        "text or integer, from, to",
        "The same for the bytes of a text as one large number, or for an integer.",
        ("map_to_range(7, 0, 3)", "3"),
        |f, a| match a.peek(0) {
            Value::Int(of) => {
                let of = *of;
                let (from, count) = range(a)?;
                let at = i128::from(from) + i128::from(of) % count;
                i64::try_from(at).map_or_else(|_| a.fail("overflow"), |at| Ok(Value::Int(at)))
            }
            _ => {
                let bytes = subject(a, 0)?;
                f.budget.scan(8 * bytes.len())?;
                if bytes.is_empty() {
                    a.fail("the text is empty")
                } else {
                    map_into_range(a, &bytes)
                }
            }
        },
    ),
    row(
        "md5",
        1..=1,
        "text",
        "MD5 as hexadecimal digits.",
        ("md5('some val')", r#""1b68352b3e9c2de52ffd322e30bffcc4""#),
        |f, a| hash_argument(f, a, 0, digest::<md5::Md5>),
    ),
    row(
        "sha",
        1..=1,
        "text",
        "SHA-1 as hexadecimal digits.",
        ("sha('some val')", r#""f85ba28ff5ea84a0cbfa118319acb0c5e58ee2b9""#),
        |f, a| hash_argument(f, a, 0, digest::<sha1::Sha1>),
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
        |f, a| hash_argument(f, a, 0, digest::<sha2::Sha256>),
    ),
];

fn digest<D: sha2::Digest>(bytes: &[u8]) -> Vec<u8> {
    D::digest(bytes).to_vec()
}

fn hash_argument<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
    at: usize,
    digest: fn(&[u8]) -> Vec<u8>,
) -> EvalResult<'a> {
    let bytes = a.bytes(at)?;
    // About four bytes per step of some ten nanoseconds.
    f.budget.step(20 + bytes.len() as u64 / 4)?;
    charge_output(f.budget, 192)?;
    Ok(hex(&digest(&bytes)))
}

fn subject<'a>(a: &mut CallArguments<'_, 'a>, at: usize) -> Result<Cow<'a, [u8]>, RunError> {
    match a.peek(at) {
        Value::Bool(truth) => Ok(Cow::Owned(truth.to_string().into_bytes())),
        _ => a.bytes(at),
    }
}

/// Returns the start and the number of integers of a range.
fn range(a: &CallArguments<'_, '_>) -> Result<(i64, i128), RunError> {
    let (from, to) = (a.int(1)?, a.int(2)?);
    let count = i128::from(to) - i128::from(from) + 1;
    if count > 0 { Ok((from, count)) } else { a.fail("the range ends before it begins") }
}

/// Maps bytes, read as one large number, into the range of arguments 1 and 2.
fn map_into_range<'a>(a: &CallArguments<'_, 'a>, number: &[u8]) -> EvalResult<'a> {
    let (from, count) = range(a)?;
    let left = number.iter().fold(0, |left: i128, byte| (left * 256 + i128::from(*byte)) % count);
    // The remainder is below the count of the range, so the sum is within it.
    Ok(Value::Int((i128::from(from) + left) as i64))
}
