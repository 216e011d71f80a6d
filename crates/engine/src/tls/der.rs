//! As much of DER (X.690) as it takes to find names in a certificate. What is read was signed by
//! somebody whom we trust, and is read as if not: nothing here can fail but by `None`.

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTF8: u8 = 0x0c;
pub(super) const PRINTABLE: u8 = 0x13;
pub(super) const IA5: u8 = 0x16;
pub(super) const BMP: u8 = 0x1e;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// The unread rest of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct DerReader<'a> {
    rest: &'a [u8],
}

impl<'a> DerReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> DerReader<'a> {
        DerReader { rest: bytes }
    }

    /// The next element, whatever it is: its tag, and its contents.
    pub(super) fn element(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.rest.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut len = usize::from(first);
        if first > 0x80 {
            let octets = usize::from(first & 0x7f);
            // A certificate in a handshake is shorter than three octets can say.
            if octets > 3 || rest.len() < octets {
                return None;
            }
            len = rest[..octets].iter().fold(0, |len, octet| len << 8 | usize::from(*octet));
            rest = &rest[octets..];
        } else if first == 0x80 {
            return None;
        }
        let contents = rest.get(..len)?;
        self.rest = &rest[len..];
        Some((tag, contents))
    }

    /// The contents of the next element, which must have this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, contents) = self.element()?;
        (found == tag).then_some(contents)
    }

    /// Reads the next element if it has this tag.
    pub(super) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let contents = ahead.expect(tag)?;
        *self = ahead;
        Some(contents)
    }
}
