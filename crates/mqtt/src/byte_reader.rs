//! Reader of binary formats: takes fields off the front of a slice.
//!
//! Invariant: a [`ByteReader`] never reads past the end of its slice. A field that is longer than
//! the rest returns `None` and takes no bytes.

#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { rest: bytes }
    }

    /// Returns the unread bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub fn u16_be(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub fn u32_be(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub fn u16_le(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub fn u32_le(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub fn u64_le(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a big-endian number of `len` bytes; `len` is at most 8.
    #[inline]
    pub fn number_be(&mut self, len: usize) -> Option<u64> {
        let bytes = self.bytes(len)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Reads a field with a length prefix: a big-endian number of `len_bytes` bytes.
    #[inline]
    pub fn vector_be(&mut self, len_bytes: usize) -> Option<&'a [u8]> {
        let mut after = *self;
        let len = after.number_be(len_bytes)?;
        let field = after.bytes(usize::try_from(len).ok()?)?;
        *self = after;
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_both_orders_of_bytes() {
        let mut reader = ByteReader::new(b"\x01\x02\x01\x02\x03\x04\x01\x02\x01\0\0\0\x07\0\0\0\0");
        assert_eq!((reader.u16_be(), reader.u32_be()), (Some(0x0102), Some(0x0102_0304)));
        assert_eq!((reader.u16_le(), reader.u32_le()), (Some(0x0201), Some(1)));
        assert_eq!((reader.u64_le(), reader.rest()), (None, &b"\x07\0\0\0\0"[..]));
        assert_eq!((reader.number_be(3), reader.u16_be()), (Some(0x07_0000), Some(0)));
        assert!(reader.is_empty());
    }

    #[test]
    fn nothing_is_taken_of_a_field_that_is_cut() {
        let mut reader = ByteReader::new(b"\0\x03ab");
        assert_eq!(reader.vector_be(2), None);
        assert_eq!(reader.bytes(5), None);
        assert_eq!(reader.array::<5>(), None);
        assert_eq!(reader.rest(), b"\0\x03ab");
        assert_eq!(reader.u8(), Some(0));
        assert_eq!(reader.vector_be(1), None);
        assert_eq!(ByteReader::new(b"\x02ab!").vector_be(1), Some(&b"ab"[..]));
    }
}
