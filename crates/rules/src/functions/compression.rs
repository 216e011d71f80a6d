//! DEFLATE without a header, and with the headers of gzip (RFC 1952) and zlib. Output is bounded
//! before it is produced, since a few bytes may inflate to very many.

use super::{CallArguments, RuleFunction, charge_output, row};
use crate::budget::RunError;
use crate::evaluation::EvalFrame;
use crate::value::Value;
use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};
use miniz_oxide::inflate::{
    DecompressError, TINFLStatus, decompress_to_vec_with_limit, decompress_to_vec_zlib_with_limit,
};

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "gunzip",
        1..=1,
        "bytes",
        "What gzip has compressed.",
        ("gunzip(hexstr2bin('1F8B0800000000000013CB48CDC9C9070086A6103605000000'))", r#""hello""#),
        |f, a| {
            let bytes = a.bytes(0)?;
            let Some((inside, check, len)) = gzip_parts(&bytes) else { return a.fail(NOT_SUCH) };
            let out = inflate_within(f, a, inside, decompress_to_vec_with_limit)?;
            f.budget.step(out.len() as u64 / 4)?;
            match crc32fast::hash(&out) == check && out.len() as u32 == len {
                true => Ok(Value::of_vec(out)),
                false => a.fail(NOT_SUCH),
            }
        },
    ),
    row(
        "gzip",
        1..=1,
        "text",
        "Text or bytes compressed as gzip has it.",
        ("bin2hexstr(gzip('hello'))", r#""1F8B0800000000000013CB48CDC9C9070086A6103605000000""#),
        |f, a| {
            let bytes = a.bytes(0)?;
            charge_deflate(f, bytes.len())?;
            let mut out = GZIP_HEADER.to_vec();
            out.extend_from_slice(&compress_to_vec(&bytes, LEVEL));
            out.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            Ok(Value::of_vec(out))
        },
    ),
    row(
        "unzip",
        1..=1,
        "bytes",
        "What DEFLATE has compressed, without a header.",
        ("unzip(hexstr2bin('CB48CDC9C90700'))", r#""hello""#),
        |f, a| {
            let bytes = a.bytes(0)?;
            inflate_within(f, a, &bytes, decompress_to_vec_with_limit).map(Value::of_vec)
        },
    ),
    row(
        "zip",
        1..=1,
        "text",
        "Text or bytes compressed by DEFLATE, without a header.",
        ("bin2hexstr(zip('hello'))", r#""CB48CDC9C90700""#),
        |f, a| {
            let bytes = a.bytes(0)?;
            charge_deflate(f, bytes.len())?;
            Ok(Value::of_vec(compress_to_vec(&bytes, LEVEL)))
        },
    ),
    row(
        "zip_compress",
        1..=1,
        "text",
        "Text or bytes compressed by DEFLATE, with zlib's header and check.",
        ("bin2hexstr(zip_compress('hello'))", r#""789CCB48CDC9C90700062C0215""#),
        |f, a| {
            let bytes = a.bytes(0)?;
            charge_deflate(f, bytes.len())?;
            Ok(Value::of_vec(compress_to_vec_zlib(&bytes, LEVEL)))
        },
    ),
    row(
        "zip_uncompress",
        1..=1,
        "bytes",
        "What DEFLATE has compressed, with zlib's header and check.",
        ("zip_uncompress(hexstr2bin('789CCB48CDC9C90700062C0215'))", r#""hello""#),
        |f, a| {
            let bytes = a.bytes(0)?;
            inflate_within(f, a, &bytes, decompress_to_vec_zlib_with_limit).map(Value::of_vec)
        },
    ),
];

const NOT_SUCH: &str = "the bytes are not compressed so, or not whole";
const LEVEL: u8 = 6;
/// DEFLATE, no flags, no time, and the system used in the examples of EMQX's documentation.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0x13];
/// Memory for the tables of a DEFLATE run, in bytes.
const DEFLATE_BYTES: usize = 330 * 1024;

/// Charges for compressing: about thirty nanoseconds a byte, and slightly more output than input
/// for bytes without repetition.
fn charge_deflate(f: &mut EvalFrame<'_, '_>, bytes: usize) -> Result<(), RunError> {
    f.budget.step(3 * bytes as u64)?;
    charge_output(f.budget, DEFLATE_BYTES + bytes + bytes / 8 + 64)
}

/// Inflates at most as many bytes as the budget can still pay for; more is [`RunError::Bytes`].
fn inflate_within(
    f: &mut EvalFrame<'_, '_>,
    a: &CallArguments<'_, '_>,
    bytes: &[u8],
    inflate: fn(&[u8], usize) -> Result<Vec<u8>, DecompressError>,
) -> Result<Vec<u8>, RunError> {
    charge_output(f.budget, 2 * bytes.len() + 64)?;
    f.budget.step(bytes.len() as u64 / 2)?;
    let left = f.budget.bytes.min(f.budget.steps.saturating_mul(STEP_BYTES)) / 2;
    let inflated = inflate(bytes, usize::try_from(left).unwrap_or(usize::MAX));
    let (len, is_full) = match &inflated {
        Ok(out) => (out.len(), false),
        Err(failed) => (failed.output.len(), failed.status == TINFLStatus::HasMoreOutput),
    };
    // A vector that grows has been copied once.
    f.budget.step(len as u64 / STEP_BYTES)?;
    f.budget.take(2 * len)?;
    match inflated {
        Ok(out) => Ok(out),
        Err(_) if is_full => Err(RunError::Bytes),
        Err(_) => a.fail(NOT_SUCH),
    }
}

/// Bytes inflated per step.
const STEP_BYTES: u64 = 4;

/// Splits gzip data into the compressed data, its CRC and its uncompressed length [RFC 1952, 2.3].
fn gzip_parts(bytes: &[u8]) -> Option<(&[u8], u32, u32)> {
    let (header, mut rest) = bytes.split_at_checked(10)?;
    let flags = header[3];
    if header[..3] != GZIP_HEADER[..3] || flags & 0xe0 != 0 {
        return None;
    }
    if flags & 4 != 0 {
        let (len, behind) = rest.split_at_checked(2)?;
        rest = behind.get(usize::from(u16::from_le_bytes([len[0], len[1]]))..)?;
    }
    // Skip a file name, and a comment.
    for flag in [8, 16] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & 2 != 0 {
        rest = rest.get(2..)?;
    }
    let (inside, trailer) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    let number = |at: usize| {
        let bytes = trailer.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    Some((inside, number(0)?, number(4)?))
}
