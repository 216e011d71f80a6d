//! The properties of MQTT 5, kept in their encoded form and checked once.
//!
//! Invariant: a [`Properties`] holds whole, valid properties, so reading it cannot fail.

mod table;

pub use table::{PROPERTIES, PropertyKind, PropertyRepeats, PropertyRow, WILL};

pub(crate) use table::*;

use crate::encode;
use crate::text::PacketReader;
use crate::topic;
use crate::violation::Violation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    PayloadFormatIndicator(u8),
    MessageExpiryInterval(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    SubscriptionIdentifier(u32),
    SessionExpiryInterval(u32),
    AssignedClientIdentifier(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(u8),
    WillDelayInterval(u32),
    RequestResponseInformation(u8),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(u16),
    TopicAliasMaximum(u16),
    TopicAlias(u16),
    MaximumQoS(u8),
    RetainAvailable(u8),
    UserProperty(&'a str, &'a str),
    MaximumPacketSize(u32),
    WildcardSubscriptionAvailable(u8),
    SubscriptionIdentifierAvailable(u8),
    SharedSubscriptionAvailable(u8),
}

/// Checked properties without the length field before them on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    bytes: &'a [u8],
}

impl<'a> Properties<'a> {
    /// Checks `bytes` as the properties of `owner`: a [`PacketType::bit`] or [`WILL`].
    ///
    /// [`PacketType::bit`]: crate::packet::PacketType::bit
    pub fn check(bytes: &'a [u8], owner: u16) -> Result<Properties<'a>, Violation> {
        check(bytes, owner)?;
        Ok(Properties { bytes })
    }

    /// Wraps bytes of an already checked `Properties`, without a new check.
    #[inline]
    pub fn trusted(bytes: &'a [u8]) -> Properties<'a> {
        Properties { bytes }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Property<'a>> + Clone + use<'a> {
        self.iter_with_bytes().map(|(property, _)| property)
    }

    /// Iterates over properties with their encoded form, for a caller forwarding some of them.
    #[inline]
    pub fn iter_with_bytes(
        &self,
    ) -> impl Iterator<Item = (Property<'a>, &'a [u8])> + Clone + use<'a> {
        let mut reader = PacketReader::new(self.bytes);
        std::iter::from_fn(move || {
            let before = reader.rest();
            let property = Property::read(&mut reader).ok()?;
            let len = before.len() - reader.rest().len();
            Some((property, before.get(..len)?))
        })
    }
}

/// Builds [`Properties`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertiesBuf {
    bytes: Vec<u8>,
}

impl PropertiesBuf {
    /// Appends a property. The caller has to know that the packet may carry the property.
    pub fn push(&mut self, property: Property<'_>) -> &mut PropertiesBuf {
        property.encode(&mut self.bytes);
        self
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    #[inline]
    pub fn as_properties(&self) -> Properties<'_> {
        Properties { bytes: &self.bytes }
    }
}

/// Checks the properties of `owner`, and returns the set of their identifiers.
pub(crate) fn check(bytes: &[u8], owner: u16) -> Result<PropertySet, Violation> {
    let mut seen = PropertySet(0);
    let mut reader = PacketReader::new(bytes);
    while let Some(&id) = reader.rest().first() {
        let place = property_rule(id).ok_or(Violation::PropertyUnknown)?;
        if place.packets & owner == 0 {
            return Err(Violation::PropertyForbidden);
        }
        if seen.has(id) && place.many & owner == 0 {
            return Err(Violation::PropertyRepeated);
        }
        seen.0 |= 1 << id;
        Property::read(&mut reader)?.check_value()?;
    }
    if seen.has(AUTHENTICATION_DATA) && !seen.has(AUTHENTICATION_METHOD) {
        return Err(Violation::AuthWithoutMethod);
    }
    Ok(seen)
}

/// A set of property identifiers, one bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PropertySet(u64);

impl PropertySet {
    pub(crate) const NONE: PropertySet = PropertySet(0);

    #[inline]
    pub(crate) fn has(self, id: u8) -> bool {
        self.0 >> id & 1 != 0
    }
}

pub(crate) const AUTHENTICATION_METHOD: u8 = 0x15;
const AUTHENTICATION_DATA: u8 = 0x16;
pub(crate) const TOPIC_ALIAS: u8 = 0x23;

impl<'a> Property<'a> {
    fn read(reader: &mut PacketReader<'a>) -> Result<Property<'a>, Violation> {
        Ok(match reader.u8()? {
            0x01 => Property::PayloadFormatIndicator(reader.u8()?),
            0x02 => Property::MessageExpiryInterval(reader.u32()?),
            0x03 => Property::ContentType(reader.text()?), // [MQTT-3.3.2-19]
            0x08 => Property::ResponseTopic(reader.text()?), // [MQTT-3.3.2-13]
            0x09 => Property::CorrelationData(reader.binary()?),
            0x0B => Property::SubscriptionIdentifier(reader.varint()?),
            0x11 => Property::SessionExpiryInterval(reader.u32()?),
            0x12 => Property::AssignedClientIdentifier(reader.text()?),
            0x13 => Property::ServerKeepAlive(reader.u16()?),
            0x15 => Property::AuthenticationMethod(reader.text()?),
            0x16 => Property::AuthenticationData(reader.binary()?),
            0x17 => Property::RequestProblemInformation(reader.u8()?),
            0x18 => Property::WillDelayInterval(reader.u32()?),
            0x19 => Property::RequestResponseInformation(reader.u8()?),
            0x1A => Property::ResponseInformation(reader.text()?),
            0x1C => Property::ServerReference(reader.text()?),
            0x1F => Property::ReasonString(reader.text()?),
            0x21 => Property::ReceiveMaximum(reader.u16()?),
            0x22 => Property::TopicAliasMaximum(reader.u16()?),
            0x23 => Property::TopicAlias(reader.u16()?),
            0x24 => Property::MaximumQoS(reader.u8()?),
            0x25 => Property::RetainAvailable(reader.u8()?),
            0x26 => Property::UserProperty(reader.text()?, reader.text()?), // [MQTT-1.5.7-1]
            0x27 => Property::MaximumPacketSize(reader.u32()?),
            0x28 => Property::WildcardSubscriptionAvailable(reader.u8()?),
            0x29 => Property::SubscriptionIdentifierAvailable(reader.u8()?),
            0x2A => Property::SharedSubscriptionAvailable(reader.u8()?),
            _ => return Err(Violation::PropertyUnknown),
        })
    }

    /// Checks value ranges which the encoding alone does not enforce.
    fn check_value(self) -> Result<(), Violation> {
        match self {
            Property::TopicAlias(0) => Err(Violation::AliasOutOfRange), // [MQTT-3.3.2-8]
            Property::ResponseTopic(name) => {
                // [MQTT-3.3.2-14]
                topic::check_topic(name).map_err(|_| Violation::ResponseTopicInvalid)
            }
            Property::MaximumPacketSize(0)
            | Property::ReceiveMaximum(0)
            | Property::SubscriptionIdentifier(0)
            | Property::MaximumQoS(2..)
            | Property::PayloadFormatIndicator(2..)
            | Property::RequestProblemInformation(2..)
            | Property::RequestResponseInformation(2..)
            | Property::RetainAvailable(2..)
            | Property::SharedSubscriptionAvailable(2..)
            | Property::SubscriptionIdentifierAvailable(2..)
            | Property::WildcardSubscriptionAvailable(2..) => Err(Violation::PropertyValueInvalid),
            _ => Ok(()),
        }
    }

    /// Appends identifier and value.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (id, value) = self.encoding();
        out.push(id);
        match value {
            PropertyEncoding::U8(value) => out.push(value),
            PropertyEncoding::U16(value) => out.extend_from_slice(&value.to_be_bytes()),
            PropertyEncoding::U32(value) => out.extend_from_slice(&value.to_be_bytes()),
            PropertyEncoding::Varint(value) => encode::varint(value, out),
            PropertyEncoding::Text(value) => encode::text(value, out),
            PropertyEncoding::Binary(value) => encode::binary(value, out),
            PropertyEncoding::TextPair(name, value) => {
                encode::text(name, out);
                encode::text(value, out);
            }
        }
    }

    fn encoding(self) -> (u8, PropertyEncoding<'a>) {
        match self {
            Property::PayloadFormatIndicator(value) => (0x01, PropertyEncoding::U8(value)),
            Property::MessageExpiryInterval(value) => (0x02, PropertyEncoding::U32(value)),
            Property::ContentType(value) => (0x03, PropertyEncoding::Text(value)),
            Property::ResponseTopic(value) => (0x08, PropertyEncoding::Text(value)),
            Property::CorrelationData(value) => (0x09, PropertyEncoding::Binary(value)),
            Property::SubscriptionIdentifier(value) => (0x0B, PropertyEncoding::Varint(value)),
            Property::SessionExpiryInterval(value) => (0x11, PropertyEncoding::U32(value)),
            Property::AssignedClientIdentifier(value) => (0x12, PropertyEncoding::Text(value)),
            Property::ServerKeepAlive(value) => (0x13, PropertyEncoding::U16(value)),
            Property::AuthenticationMethod(value) => (0x15, PropertyEncoding::Text(value)),
            Property::AuthenticationData(value) => (0x16, PropertyEncoding::Binary(value)),
            Property::RequestProblemInformation(value) => (0x17, PropertyEncoding::U8(value)),
            Property::WillDelayInterval(value) => (0x18, PropertyEncoding::U32(value)),
            Property::RequestResponseInformation(value) => (0x19, PropertyEncoding::U8(value)),
            Property::ResponseInformation(value) => (0x1A, PropertyEncoding::Text(value)),
            Property::ServerReference(value) => (0x1C, PropertyEncoding::Text(value)),
            Property::ReasonString(value) => (0x1F, PropertyEncoding::Text(value)),
            Property::ReceiveMaximum(value) => (0x21, PropertyEncoding::U16(value)),
            Property::TopicAliasMaximum(value) => (0x22, PropertyEncoding::U16(value)),
            Property::TopicAlias(value) => (0x23, PropertyEncoding::U16(value)),
            Property::MaximumQoS(value) => (0x24, PropertyEncoding::U8(value)),
            Property::RetainAvailable(value) => (0x25, PropertyEncoding::U8(value)),
            Property::UserProperty(name, value) => (0x26, PropertyEncoding::TextPair(name, value)),
            Property::MaximumPacketSize(value) => (0x27, PropertyEncoding::U32(value)),
            Property::WildcardSubscriptionAvailable(value) => (0x28, PropertyEncoding::U8(value)),
            Property::SubscriptionIdentifierAvailable(value) => (0x29, PropertyEncoding::U8(value)),
            Property::SharedSubscriptionAvailable(value) => (0x2A, PropertyEncoding::U8(value)),
        }
    }
}

/// The value of a [`Property`] by its encoding.
enum PropertyEncoding<'a> {
    U8(u8),
    U16(u16),
    U32(u32),
    Varint(u32),
    Text(&'a str),
    TextPair(&'a str, &'a str),
    Binary(&'a [u8]),
}

#[cfg(test)]
mod tests;
