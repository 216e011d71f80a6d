//! CRC-32 (the polynomial of IEEE 802.3, reflected) over parts which are not contiguous.

use crc32fast::Hasher;

/// Returns the checksum of the concatenation of `parts`.
pub(crate) fn crc(parts: &[&[u8]]) -> u32 {
    let mut sum = Hasher::new();
    parts.iter().for_each(|part| sum.update(part));
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        // CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
        assert_eq!(crc(&[b"123456789"]), 0xCBF4_3926);
        assert_eq!(crc(&[b"12345", b"", b"6789"]), 0xCBF4_3926);
        assert_eq!(crc(&[]), 0);
    }
}
