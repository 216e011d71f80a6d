//! Records of Kafka: the record batch format, version 2, and the hash which assigns a key to a
//! partition.

/// A record of one message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KafkaRecord<'a> {
    pub(super) timestamp_ms: u64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
    /// Names and values of headers, alternating.
    pub(super) headers: &'a [Vec<u8>],
}

impl KafkaRecord<'_> {
    /// Returns an upper bound of the record's size in a batch.
    pub(super) fn bytes_max(&self) -> usize {
        let words = self.headers.iter().map(|word| word.len() + NUMBER_BYTES_MAX).sum::<usize>();
        let (key, value) = (self.key.map_or(0, <[u8]>::len), self.value.len());
        key + value + words + 8 * NUMBER_BYTES_MAX
    }

    fn write(&self, at: usize, from_ms: u64, out: &mut Vec<u8>) {
        let mut body = vec![0];
        push_varint(self.timestamp_ms as i64 - from_ms as i64, &mut body);
        push_varint(at as i64, &mut body);
        match self.key {
            Some(key) => push_bytes(key, &mut body),
            None => push_varint(-1, &mut body),
        }
        push_bytes(self.value, &mut body);
        push_varint(self.headers.len() as i64 / 2, &mut body);
        self.headers.iter().for_each(|one| push_bytes(one, &mut body));
        push_bytes(&body, out);
    }
}

/// Encodes a record batch without a producer id, so without idempotence.
pub(super) fn encode_batch(records: &[KafkaRecord<'_>]) -> Vec<u8> {
    let times = || records.iter().map(|record| record.timestamp_ms);
    let (from_ms, to_ms) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    // The checksum covers attributes, last offset, times, producer fields and number of records.
    let mut body = vec![0, 0];
    body.extend((records.len().saturating_sub(1) as i32).to_be_bytes());
    body.extend(from_ms.to_be_bytes());
    body.extend(to_ms.to_be_bytes());
    body.extend([0xff; 8 + 2 + 4]);
    body.extend((records.len() as i32).to_be_bytes());
    for (at, record) in records.iter().enumerate() {
        record.write(at, from_ms, &mut body);
    }
    let mut out = Vec::with_capacity(body.len() + HEAD_BYTES);
    out.extend(0_u64.to_be_bytes());
    out.extend((body.len() as i32 + 4 + 1 + 4).to_be_bytes());
    out.extend([0xff; 4]);
    out.push(VERSION);
    out.extend(crc32c(&body).to_be_bytes());
    out.extend(body);
    out
}

const VERSION: u8 = 2;
const HEAD_BYTES: usize = 8 + 4 + 4 + 1 + 4;
const NUMBER_BYTES_MAX: usize = 10;

fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    push_varint(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

/// Appends a zigzag varint: seven bits a byte, and short encodings for small numbers of either
/// sign.
fn push_varint(value: i64, out: &mut Vec<u8>) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Returns the CRC-32C (Castagnoli's polynomial, reflected).
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(!0, step)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

/// Returns the partition of a key, the same as Kafka's own clients choose (murmur2).
pub(super) fn partition_of(key: &[u8], partitions: usize) -> usize {
    (murmur2(key) & 0x7fff_ffff) as usize % partitions.max(1)
}

fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tests of Kafka's own client.
    #[test]
    fn keys_hash_as_those_of_kafkas_clients_do() {
        for (key, expected) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
        }
    }

    /// RFC 3720, B.4.
    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn numbers_are_short_where_they_are_small() {
        for (value, expected) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (-65, &[0x81, 1]),
            (300, &[0xd8, 4]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut out = Vec::new();
            push_varint(value, &mut out);
            assert_eq!(out, expected, "{value}");
        }
    }

    #[test]
    fn a_record_takes_no_more_than_it_says() {
        let headers = [b"name".to_vec(), Vec::new()];
        for (key, value) in [(None, &b""[..]), (Some(&b"key"[..]), &[7; 300])] {
            let record = KafkaRecord { timestamp_ms: u64::MAX >> 1, key, value, headers: &headers };
            let mut out = Vec::new();
            record.write(1 << 30, 0, &mut out);
            assert!(out.len() <= record.bytes_max(), "{}", out.len());
        }
    }
}
