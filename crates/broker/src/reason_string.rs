//! Reason Strings: a sentence in addition to the reason code, for a person who reads a client's
//! log.

use mqtt::{Properties, PropertiesBuf, Property};

/// Encodes a packet with a Reason String, or without if the packet would exceed the client's
/// Maximum Packet Size [MQTT-3.2.2-19] [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.9.2-1]
/// [MQTT-3.14.2-3]. Returns no bytes if even the packet without the string is too large.
pub(crate) fn encode_with_reason(
    text: Option<&str>,
    packet_bytes_max: u32,
    encode: impl Fn(Properties<'_>, &mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    if let Some(text) = text {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::ReasonString(text));
        encode(properties.as_properties(), &mut bytes);
        if bytes.len() <= packet_bytes_max as usize {
            return bytes;
        }
        bytes.clear();
    }
    encode(Properties::default(), &mut bytes);
    // The client's Maximum Packet Size is below the size of the packet without properties.
    if bytes.len() > packet_bytes_max as usize {
        bytes.clear();
    }
    bytes
}
