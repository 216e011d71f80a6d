//! Reason Strings: the sentence beside a reason code, for the person who reads a client's log.

use mqtt::{Properties, PropertiesBuf, Property};

/// Encodes a packet with its Reason String or, where the client would not take that, without: a
/// string must never make a packet larger than the client's Maximum Packet Size [MQTT-3.2.2-19]
/// [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.9.2-1] [MQTT-3.14.2-3].
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
    // Not even the code fits: the client asked for less than it can be told.
    if bytes.len() > packet_bytes_max as usize {
        bytes.clear();
    }
    bytes
}
