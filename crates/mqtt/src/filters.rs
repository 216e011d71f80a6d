//! The payloads of SUBSCRIBE and UNSUBSCRIBE: checked bytes, read by iterating.
//!
//! Invariant: the bytes are whole entries with text that was checked, so reading cannot fail.

use crate::encode;
use crate::packet::{Filters, QoS, SubscribeOptions, Subscriptions, Version};
use crate::text::Reader;
use crate::violation::Violation;

impl SubscribeOptions {
    /// In 3.x the byte is the QoS and nothing else.
    #[inline]
    pub(crate) fn from_byte(byte: u8, version: Version) -> Result<SubscribeOptions, Violation> {
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
    pub(crate) fn to_byte(self, version: Version) -> u8 {
        let qos = self.qos as u8;
        if !version.is_v5() {
            return qos;
        }
        qos | u8::from(self.no_local) << 2
            | u8::from(self.retain_as_published) << 3
            | self.retain_handling.min(2) << 4
    }
}

impl<'a> Subscriptions<'a> {
    /// Walks over `bytes` once.
    pub(crate) fn check(bytes: &'a [u8], version: Version) -> Result<Self, Violation> {
        if bytes.is_empty() {
            // [MQTT-3.8.3-2] [3.1.1:MQTT-3.8.3-3]
            return Err(Violation::SubscribeWithoutFilter);
        }
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            reader.text()?; // [MQTT-3.8.3-1]
            SubscribeOptions::from_byte(reader.u8()?, version)?;
        }
        Ok(Subscriptions { bytes })
    }

    #[inline]
    pub fn iter(&self) -> SubscriptionsIter<'a> {
        SubscriptionsIter { reader: Reader::new(self.bytes) }
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> IntoIterator for Subscriptions<'a> {
    type Item = (&'a str, SubscribeOptions);
    type IntoIter = SubscriptionsIter<'a>;

    fn into_iter(self) -> SubscriptionsIter<'a> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct SubscriptionsIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for SubscriptionsIter<'a> {
    type Item = (&'a str, SubscribeOptions);

    fn next(&mut self) -> Option<Self::Item> {
        let filter = self.reader.text().ok()?;
        // What 3.x allows means the same in 5.0.
        let options = SubscribeOptions::from_byte(self.reader.u8().ok()?, Version::V5).ok()?;
        Some((filter, options))
    }
}

/// A payload of SUBSCRIBE that is being put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionsBuf {
    bytes: Vec<u8>,
}

impl SubscriptionsBuf {
    pub fn push(&mut self, filter: &str, options: SubscribeOptions) -> &mut SubscriptionsBuf {
        encode::text(filter, &mut self.bytes);
        self.bytes.push(options.to_byte(Version::V5));
        self
    }

    #[inline]
    pub fn as_subscriptions(&self) -> Subscriptions<'_> {
        Subscriptions { bytes: &self.bytes }
    }
}

impl<'a> Filters<'a> {
    /// Walks over `bytes` once.
    pub(crate) fn check(bytes: &'a [u8]) -> Result<Self, Violation> {
        if bytes.is_empty() {
            return Err(Violation::UnsubscribeWithoutFilter); // [MQTT-3.10.3-2]
        }
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            reader.text()?; // [MQTT-3.10.3-1]
        }
        Ok(Filters { bytes })
    }

    #[inline]
    pub fn iter(&self) -> FiltersIter<'a> {
        FiltersIter { reader: Reader::new(self.bytes) }
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> IntoIterator for Filters<'a> {
    type Item = &'a str;
    type IntoIter = FiltersIter<'a>;

    fn into_iter(self) -> FiltersIter<'a> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct FiltersIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for FiltersIter<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.reader.text().ok()
    }
}

/// A payload of UNSUBSCRIBE that is being put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FiltersBuf {
    bytes: Vec<u8>,
}

impl FiltersBuf {
    pub fn push(&mut self, filter: &str) -> &mut FiltersBuf {
        encode::text(filter, &mut self.bytes);
        self
    }

    #[inline]
    pub fn as_filters(&self) -> Filters<'_> {
        Filters { bytes: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_their_byte() {
        let mut legal = 0;
        for byte in 0..=u8::MAX {
            if let Ok(options) = SubscribeOptions::from_byte(byte, Version::V5) {
                assert_eq!(options.to_byte(Version::V5), byte);
                assert_eq!(options.to_byte(Version::V311), byte & 0b11);
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
            assert_eq!(of(byte, Version::V5), Err(Violation::SubscribeOptionsReserved));
        }
        assert_eq!(of(0b0011_0000, Version::V5), Err(Violation::RetainHandlingInvalid));
        assert_eq!(of(0b0000_0011, Version::V5), Err(Violation::SubscribeQoSInvalid));
        // [3.1.1:MQTT-3.8.3-4]
        for byte in 4..=u8::MAX {
            assert_eq!(of(byte, Version::V311), Err(Violation::SubscribeOptionsReserved));
        }
        assert_eq!(of(3, Version::V31), Err(Violation::SubscribeQoSInvalid));
    }

    #[test]
    fn retain_handling_out_of_range_is_written_as_never() {
        let options = SubscribeOptions { retain_handling: 255, ..Default::default() };
        assert_eq!(options.to_byte(Version::V5), 0b0010_0000);
    }

    #[test]
    fn payloads_read_back_in_order() {
        let eager = SubscribeOptions { qos: QoS::ExactlyOnce, ..Default::default() };
        let mut buf = SubscriptionsBuf::default();
        buf.push("a/#", eager).push("", SubscribeOptions::default());
        let subscriptions = buf.as_subscriptions();
        let read: Vec<_> = subscriptions.into_iter().collect();
        assert_eq!(read, [("a/#", eager), ("", SubscribeOptions::default())]);
        assert_eq!(subscriptions.len(), 2);
        assert_eq!(
            Subscriptions::check(buf.as_subscriptions().bytes, Version::V311),
            Ok(subscriptions)
        );

        let mut buf = FiltersBuf::default();
        buf.push("a").push("b/+");
        assert_eq!(buf.as_filters().into_iter().collect::<Vec<_>>(), ["a", "b/+"]);
        assert_eq!(buf.as_filters().len(), 2);
    }

    #[test]
    fn empty_payloads_are_only_defaults() {
        // [MQTT-3.8.3-2] [MQTT-3.10.3-2] [3.1.1:MQTT-3.8.3-3]
        assert!(Subscriptions::default().is_empty() && Filters::default().is_empty());
        let subscriptions = Subscriptions::check(&[], Version::V5);
        assert_eq!(subscriptions, Err(Violation::SubscribeWithoutFilter));
        assert_eq!(Filters::check(&[]), Err(Violation::UnsubscribeWithoutFilter));
    }
}
