//! Payloads: built once per group; a message rewrites only the changing bytes.

use crate::plan::{PayloadField, PayloadKind};
use crate::stamp::{PayloadStamp, STAMP_BYTES};
use crate::template::BenchRng;

#[derive(Debug)]
pub(crate) struct PayloadGenerator {
    body: PayloadKind,
    bytes: Vec<u8>,
    count: u64,
    rng: BenchRng,
}

impl PayloadGenerator {
    pub(crate) fn new(body: &PayloadKind, seed: u64) -> PayloadGenerator {
        let bytes = match body {
            PayloadKind::Sized(len) => vec![PADDING; *len],
            PayloadKind::Literal(bytes) => bytes.clone(),
            PayloadKind::Template(text, _) => text.clone().into_bytes(),
            PayloadKind::Fields(fields, len) => vec![PADDING; 8 * fields.len() + len],
        };
        PayloadGenerator { body: body.clone(), bytes, count: 0, rng: BenchRng::new(seed) }
    }

    /// Returns the payload of the next message. `stamp` is written only into a payload of
    /// `PayloadKind::Sized` that is long enough.
    #[inline]
    pub(crate) fn next(&mut self, stamp: PayloadStamp, now_ns: u64) -> &[u8] {
        match &self.body {
            PayloadKind::Sized(_) => stamp.write(&mut self.bytes),
            PayloadKind::Literal(_) => {}
            PayloadKind::Template(text, random_bytes) => {
                self.bytes = self.rng.fill_payload(text, *random_bytes, now_ns).into_bytes();
            }
            PayloadKind::Fields(fields, _) => {
                for (field, into) in fields.iter().zip(self.bytes.chunks_exact_mut(8)) {
                    let value = match field {
                        PayloadField::Count => self.count,
                        PayloadField::Milliseconds => now_ns / 1_000_000,
                    };
                    into.copy_from_slice(&value.to_be_bytes());
                }
                self.count += 1;
            }
        }
        &self.bytes
    }
}

impl PayloadKind {
    /// Whether payloads carry a `PayloadStamp`. Without a stamp, latency, loss, duplicates and
    /// order are unknown.
    pub(crate) fn is_stamped(&self) -> bool {
        matches!(self, PayloadKind::Sized(len) if *len >= STAMP_BYTES)
    }
}

impl BenchRng {
    /// Fills the placeholders of emqtt_bench: times, and `%RANDOM%` as hexadecimal digits, so that
    /// the payload stays valid text.
    fn fill_payload(&mut self, text: &str, random_bytes: usize, now_ns: u64) -> String {
        let mut text = text.to_string();
        let times = [
            ("%TIMESTAMP%", now_ns / 1_000_000),
            ("%TIMESTAMPMS%", now_ns / 1_000_000),
            ("%TIMESTAMPUS%", now_ns / 1_000),
            ("%TIMESTAMPNS%", now_ns),
        ];
        for (place, value) in times {
            if text.contains(place) {
                text = text.replace(place, &value.to_string());
            }
        }
        for (place, bytes) in [("%UNIQUE%", 16), ("%RANDOM%", random_bytes)] {
            while text.contains(place) {
                text = text.replacen(place, &self.hex_digits(bytes), 1);
            }
        }
        text
    }

    fn hex_digits(&mut self, bytes: usize) -> String {
        let mut digits = String::with_capacity(bytes + 16);
        while digits.len() < bytes {
            digits += &format!("{:016x}", self.next() << 11 | self.next() & 0x7FF);
        }
        digits.truncate(bytes);
        digits
    }
}

/// Returns the sending time of a payload with emqtt_bench's header fields, in milliseconds of the
/// Unix epoch.
pub(crate) fn sent_ms(fields: &[PayloadField], payload: &[u8]) -> Option<u64> {
    let at = fields.iter().position(|field| *field == PayloadField::Milliseconds)?;
    let bytes = payload.get(8 * at..8 * at + 8)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

const PADDING: u8 = b'x';

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: PayloadStamp = PayloadStamp { time_us: 5, stream: 6, seq: 7 };

    #[test]
    fn a_stamp_needs_sixteen_bytes() {
        assert_eq!(
            PayloadStamp::read(PayloadGenerator::new(&PayloadKind::Sized(16), 1).next(STAMP, 0)),
            Some(STAMP)
        );
        assert_eq!(PayloadGenerator::new(&PayloadKind::Sized(15), 1).next(STAMP, 0), [PADDING; 15]);
        let literal = PayloadKind::Literal(b"a literal stays as it is".to_vec());
        assert_eq!(PayloadGenerator::new(&literal, 1).next(STAMP, 0), b"a literal stays as it is");
        assert!(PayloadKind::Sized(16).is_stamped() && !PayloadKind::Sized(15).is_stamped());
    }

    #[test]
    fn fields_stand_before_the_padding_in_the_order_given() {
        let fields = vec![PayloadField::Count, PayloadField::Milliseconds];
        let mut payload = PayloadGenerator::new(&PayloadKind::Fields(fields.clone(), 2), 1);
        payload.next(STAMP, 0);
        let bytes = payload.next(STAMP, 9_000_000);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, b'x', b'x']);
        assert_eq!(sent_ms(&fields, bytes), Some(9));
        assert_eq!(sent_ms(&fields, &bytes[..12]), None);
    }

    #[test]
    fn every_place_of_a_template_is_filled() {
        let body = PayloadKind::Template("%TIMESTAMPMS% %TIMESTAMP% %RANDOM% %RANDOM%".into(), 20);
        let mut payload = PayloadGenerator::new(&body, 1);
        let text = String::from_utf8(payload.next(STAMP, 2_345_000_000).to_vec()).expect("text");
        let parts: Vec<&str> = text.split(' ').collect();
        assert_eq!(parts[..2], ["2345", "2345"]);
        assert!(parts[2] != parts[3] && parts[2].len() == 20, "{text}");
    }
}
