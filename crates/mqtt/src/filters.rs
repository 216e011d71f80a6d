//! The payloads of SUBSCRIBE and UNSUBSCRIBE: checked bytes, read by iteration.
//!
//! Invariant: the bytes are whole entries with checked text, so reading cannot fail.

use crate::encode;
use crate::packet::{FilterList, ProtocolVersion, QoS, SubscribeOptions, SubscriptionList};
use crate::text::PacketReader;
use crate::violation::Violation;

impl SubscribeOptions {
    /// Decodes the options of a filter; in 3.x all bits but the QoS are reserved.
    #[inline]
    pub(crate) fn from_byte(
        byte: u8,
        version: ProtocolVersion,
    ) -> Result<SubscribeOptions, Violation> {
        let reserved = if version.is_v5() { 0b1100_0000 } else { 0b1111_1100 };
        if byte & reserved != 0 {
            // [MQTT-3.8.3-5] [3.1.1:MQTT-3.8.3-4]
            return Err(Violation::SubscribeOptionsReserved);
        }
        let retain_handling = byte >> 4 & 0b11;
        if retain_handling == 3 {
            return Err(Violation::RetainHandlingInvalid);
        }
        Ok(SubscribeOptions {
            qos: QoS::from_bits(byte & 0b11).ok_or(Violation::SubscribeQoSInvalid)?,
            no_local: byte & 0b0100 != 0,
            retain_as_published: byte & 0b1000 != 0,
            retain_handling,
        })
    }

    #[inline]
    pub(crate) fn to_byte(self, version: ProtocolVersion) -> u8 {
        let qos = self.qos as u8;
        if !version.is_v5() {
            return qos;
        }
        qos | u8::from(self.no_local) << 2
            | u8::from(self.retain_as_published) << 3
            | self.retain_handling.min(2) << 4
    }
}

impl<'a> SubscriptionList<'a> {
    /// Checks all entries of a SUBSCRIBE payload, which must have at least one filter.
    pub(crate) fn check(bytes: &'a [u8], version: ProtocolVersion) -> Result<Self, Violation> {
        if bytes.is_empty() {
            // [MQTT-3.8.3-2] [3.1.1:MQTT-3.8.3-3]
            return Err(Violation::SubscribeWithoutFilter);
        }
        let mut reader = PacketReader::new(bytes);
        while !reader.is_empty() {
            reader.text()?; // [MQTT-3.8.3-1]
            SubscribeOptions::from_byte(reader.u8()?, version)?;
        }
        Ok(SubscriptionList { bytes })
    }

    #[inline]
    pub fn iter(&self) -> SubscriptionListIter<'a> {
        SubscriptionListIter { reader: PacketReader::new(self.bytes) }
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> IntoIterator for SubscriptionList<'a> {
    type Item = (&'a str, SubscribeOptions);
    type IntoIter = SubscriptionListIter<'a>;

    fn into_iter(self) -> SubscriptionListIter<'a> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct SubscriptionListIter<'a> {
    reader: PacketReader<'a>,
}

impl<'a> Iterator for SubscriptionListIter<'a> {
    type Item = (&'a str, SubscribeOptions);

    fn next(&mut self) -> Option<Self::Item> {
        let filter = self.reader.text().ok()?;
        // Bytes valid in 3.x have the same meaning in 5.0.
        let options =
            SubscribeOptions::from_byte(self.reader.u8().ok()?, ProtocolVersion::V5).ok()?;
        Some((filter, options))
    }
}

/// Builds a [`SubscriptionList`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionListBuf {
    bytes: Vec<u8>,
}

impl SubscriptionListBuf {
    pub fn push(&mut self, filter: &str, options: SubscribeOptions) -> &mut SubscriptionListBuf {
        encode::text(filter, &mut self.bytes);
        self.bytes.push(options.to_byte(ProtocolVersion::V5));
        self
    }

    #[inline]
    pub fn as_subscriptions(&self) -> SubscriptionList<'_> {
        SubscriptionList { bytes: &self.bytes }
    }
}

impl<'a> FilterList<'a> {
    /// Checks all filters of an UNSUBSCRIBE payload, which must have at least one.
    pub(crate) fn check(bytes: &'a [u8]) -> Result<Self, Violation> {
        if bytes.is_empty() {
            return Err(Violation::UnsubscribeWithoutFilter); // [MQTT-3.10.3-2]
        }
        let mut reader = PacketReader::new(bytes);
        while !reader.is_empty() {
            reader.text()?; // [MQTT-3.10.3-1]
        }
        Ok(FilterList { bytes })
    }

    #[inline]
    pub fn iter(&self) -> FilterListIter<'a> {
        FilterListIter { reader: PacketReader::new(self.bytes) }
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> IntoIterator for FilterList<'a> {
    type Item = &'a str;
    type IntoIter = FilterListIter<'a>;

    fn into_iter(self) -> FilterListIter<'a> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct FilterListIter<'a> {
    reader: PacketReader<'a>,
}

impl<'a> Iterator for FilterListIter<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.reader.text().ok()
    }
}

/// Builds a [`FilterList`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterListBuf {
    bytes: Vec<u8>,
}

impl FilterListBuf {
    pub fn push(&mut self, filter: &str) -> &mut FilterListBuf {
        encode::text(filter, &mut self.bytes);
        self
    }

    #[inline]
    pub fn as_filters(&self) -> FilterList<'_> {
        FilterList { bytes: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_their_byte() {
        let mut legal = 0;
        for byte in 0..=u8::MAX {
            if let Ok(options) = SubscribeOptions::from_byte(byte, ProtocolVersion::V5) {
                assert_eq!(options.to_byte(ProtocolVersion::V5), byte);
                assert_eq!(options.to_byte(ProtocolVersion::V311), byte & 0b11);
                legal += 1;
            }
        }
        // Three values of QoS, two flags, three values of retain handling.
        assert_eq!(legal, 3 * 2 * 2 * 3);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let of = SubscribeOptions::from_byte;
        // [MQTT-3.8.3-5]
        for byte in [0b0100_0000, 0b1000_0000, 0b1100_0001] {
            assert_eq!(of(byte, ProtocolVersion::V5), Err(Violation::SubscribeOptionsReserved));
        }
        assert_eq!(of(0b0011_0000, ProtocolVersion::V5), Err(Violation::RetainHandlingInvalid));
        assert_eq!(of(0b0000_0011, ProtocolVersion::V5), Err(Violation::SubscribeQoSInvalid));
        // [3.1.1:MQTT-3.8.3-4]
        for byte in 4..=u8::MAX {
            assert_eq!(of(byte, ProtocolVersion::V311), Err(Violation::SubscribeOptionsReserved));
        }
        assert_eq!(of(3, ProtocolVersion::V31), Err(Violation::SubscribeQoSInvalid));
    }

    #[test]
    fn retain_handling_out_of_range_is_written_as_never() {
        let options = SubscribeOptions { retain_handling: 255, ..Default::default() };
        assert_eq!(options.to_byte(ProtocolVersion::V5), 0b0010_0000);
    }

    #[test]
    fn payloads_read_back_in_order() {
        let eager = SubscribeOptions { qos: QoS::ExactlyOnce, ..Default::default() };
        let mut buf = SubscriptionListBuf::default();
        buf.push("a/#", eager).push("", SubscribeOptions::default());
        let subscriptions = buf.as_subscriptions();
        let read: Vec<_> = subscriptions.into_iter().collect();
        assert_eq!(read, [("a/#", eager), ("", SubscribeOptions::default())]);
        assert_eq!(subscriptions.len(), 2);
        assert_eq!(
            SubscriptionList::check(buf.as_subscriptions().bytes, ProtocolVersion::V311),
            Ok(subscriptions)
        );

        let mut buf = FilterListBuf::default();
        buf.push("a").push("b/+");
        assert_eq!(buf.as_filters().into_iter().collect::<Vec<_>>(), ["a", "b/+"]);
        assert_eq!(buf.as_filters().len(), 2);
    }

    #[test]
    fn empty_payloads_are_only_defaults() {
        // [MQTT-3.8.3-2] [MQTT-3.10.3-2] [3.1.1:MQTT-3.8.3-3]
        assert!(SubscriptionList::default().is_empty() && FilterList::default().is_empty());
        let subscriptions = SubscriptionList::check(&[], ProtocolVersion::V5);
        assert_eq!(subscriptions, Err(Violation::SubscribeWithoutFilter));
        assert_eq!(FilterList::check(&[]), Err(Violation::UnsubscribeWithoutFilter));
    }
}
