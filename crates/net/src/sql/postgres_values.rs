//! Values of PostgreSQL as text: parameters are sent as text, and results in binary form are
//! converted to the text that the server would write.

use crate::server_pool::RemoteError;
use crate::table_row::TableRow;
use bytes::{BufMut, BytesMut};
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};

/// A parameter to bind: text, or raw bytes for a `bytea` column.
#[derive(Debug)]
pub(super) struct PostgresParameter<'a>(pub(super) Option<&'a [u8]>);

impl ToSql for PostgresParameter<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(value) = self.0 else { return Ok(IsNull::Yes) };
        out.put_slice(value);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, kind: &Type) -> Format {
        if *kind == Type::BYTEA { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}

/// A column's value, as text.
struct PostgresText(Vec<u8>);

impl<'a> FromSql<'a> for PostgresText {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<PostgresText, Box<dyn Error + Sync + Send>> {
        // A text with NUL is not accepted as a hash, a word or a topic, so an unknown type grants
        // no access.
        let unknown = || format!("\0{}", kind.name()).into_bytes();
        Ok(PostgresText(text_value(kind, raw).unwrap_or_else(unknown)))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn text_value(kind: &Type, raw: &[u8]) -> Option<Vec<u8>> {
    let text = match *kind {
        Type::BOOL => if raw == [0] { "f" } else { "t" }.to_string(),
        Type::INT2 => i16::from_be_bytes(raw.try_into().ok()?).to_string(),
        Type::INT4 => i32::from_be_bytes(raw.try_into().ok()?).to_string(),
        Type::INT8 => i64::from_be_bytes(raw.try_into().ok()?).to_string(),
        Type::OID => u32::from_be_bytes(raw.try_into().ok()?).to_string(),
        Type::FLOAT4 => f32::from_be_bytes(raw.try_into().ok()?).to_string(),
        Type::FLOAT8 => f64::from_be_bytes(raw.try_into().ok()?).to_string(),
        Type::NUMERIC => numeric_text(raw)?,
        Type::BIT | Type::VARBIT => bit_text(raw)?,
        Type::BYTEA => {
            raw.iter().fold("\\x".to_string(), |text, byte| text + &format!("{byte:02x}"))
        }
        Type::UUID => uuid_text(raw.try_into().ok()?),
        // After the version byte of the format.
        Type::JSONB => return raw.strip_prefix(&[1]).map(<[u8]>::to_vec),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::CHAR => {
            return Some(raw.to_vec());
        }
        Type::JSON | Type::XML => return Some(raw.to_vec()),
        _ => match kind.kind() {
            Kind::Domain(base) => return text_value(base, raw),
            Kind::Enum(_) => return Some(raw.to_vec()),
            Kind::Simple if kind.name() == "citext" => return Some(raw.to_vec()),
            _ => return None,
        },
    };
    Some(text.into_bytes())
}

/// Formats NUMERIC: digits of base 10,000 with count, power of the first digit, sign and decimals.
/// `None` for special values and for numbers above `DIGITS_MAX` digits.
fn numeric_text(raw: &[u8]) -> Option<String> {
    const DIGITS_MAX: u16 = 32;
    let words: Vec<u16> =
        raw.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]])).collect();
    let [_, weight, sign, decimals, digits @ ..] = &words[..] else { return None };
    let power = i32::from(*weight as i16);
    if power >= i32::from(DIGITS_MAX) || *decimals > 4 * DIGITS_MAX {
        return None;
    }
    let digit = |power_of: i32| {
        let at = usize::try_from(power - power_of).ok();
        at.and_then(|at| digits.get(at)).copied().unwrap_or_default()
    };
    let sign = match sign {
        0 => "",
        0x4000 => "-",
        _ => return None,
    };
    let whole: String = (0..=power.max(0)).rev().map(|at| format!("{:04}", digit(at))).collect();
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    if *decimals == 0 {
        return Some(format!("{sign}{whole}"));
    }
    let groups = i32::from(decimals.div_ceil(4));
    let part: String = (1..=groups).map(|at| format!("{:04}", digit(-at))).collect();
    Some(format!("{sign}{whole}.{}", part.get(..usize::from(*decimals))?))
}

fn bit_text(raw: &[u8]) -> Option<String> {
    let (count, bits) = raw.split_first_chunk()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    if count > 8 * bits.len() {
        return None;
    }
    Some((0..count).map(|at| if bits[at / 8] << (at % 8) & 0x80 > 0 { '1' } else { '0' }).collect())
}

fn uuid_text(raw: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(raw));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Converts a row to texts with column names, within `bytes_left`.
pub(super) fn text_row(row: &Row, bytes_left: &mut usize) -> Result<TableRow, RemoteError> {
    let mut texts = TableRow::default();
    for (at, column) in row.columns().iter().enumerate() {
        let value = row.try_get::<_, Option<PostgresText>>(at);
        let value = value.map_err(|error| RemoteError::Broken(error.to_string()))?;
        let Some(PostgresText(value)) = value else { continue };
        let name = column.name().to_string();
        let left = bytes_left.checked_sub(name.len() + value.len());
        *bytes_left =
            left.ok_or_else(|| RemoteError::Broken("it answers with more than we read".into()))?;
        texts.0.push((name, value));
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(head: [u16; 4], digits: &[u16]) -> Option<String> {
        let words = head.iter().chain(digits);
        numeric_text(&words.flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_are_written_as_the_server_writes_them() {
        assert_eq!(numeric([0, 0, 0, 0], &[]).as_deref(), Some("0"));
        assert_eq!(numeric([1, 0, 0, 0], &[1]).as_deref(), Some("1"));
        assert_eq!(numeric([1, 0, 0x4000, 1], &[1]).as_deref(), Some("-1.0"));
        assert_eq!(numeric([1, 1, 0, 0], &[2]).as_deref(), Some("20000"));
        assert_eq!(numeric([2, 1, 0, 0], &[1, 5]).as_deref(), Some("10005"));
        assert_eq!(numeric([2, 0, 0, 5], &[12, 3456]).as_deref(), Some("12.34560"));
        assert_eq!(numeric([1, 0xffff, 0, 2], &[500]).as_deref(), Some("0.05"));
        assert_eq!(numeric([1, 0xfffe, 0, 8], &[1]).as_deref(), Some("0.00000001"));
        // NaN, and numbers whose text would be far longer than their bytes.
        assert_eq!(numeric([0, 0, 0xc000, 0], &[]), None);
        assert_eq!(numeric([1, 32_767, 0, 0], &[1]), None);
        assert_eq!(numeric([1, 0, 0, 16_383], &[1]), None);
        assert_eq!(numeric_text(&[0, 1]), None);
    }

    #[test]
    fn values_are_text_and_those_of_other_kinds_are_no_word() {
        let text = |kind: &Type, raw: &[u8]| {
            let PostgresText(text) = PostgresText::from_sql(kind, raw).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(&Type::BOOL, &[1]), "t");
        assert_eq!(text(&Type::INT2, &[0xff, 0xff]), "-1");
        assert_eq!(text(&Type::BYTEA, b"\x00\xffa"), "\\x00ff61");
        assert_eq!(text(&Type::JSONB, b"\x01{}"), "{}");
        assert_eq!(text(&Type::BIT, &[0, 0, 0, 3, 0b1010_0000]), "101");
        assert_eq!(text(&Type::UUID, &[0x12; 16]), "12121212-1212-1212-1212-121212121212");
        for (kind, raw) in [
            (Type::DATE, &[0; 4][..]),
            (Type::INT8, b"1"),
            (Type::BIT, &[0xff; 5]),
            (Type::BIT, &[0, 0, 1, 0, 7]),
            (Type::JSONB, b"{}"),
            (Type::NUMERIC, b""),
        ] {
            assert_eq!(text(&kind, raw), format!("\0{}", kind.name()));
        }
    }
}
