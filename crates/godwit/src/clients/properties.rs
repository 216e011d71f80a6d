//! `-D COMMAND NAME VALUE`: properties from the command line, checked by the codec's table
//! [`PROPERTIES`].

use config::nearest::nearest_word;
use mqtt::property::{PROPERTIES, PropertyKind, PropertyRepeats, PropertyRow, WILL};
use mqtt::{PacketType, PropertiesBuf, Property};

/// Properties given by `-D`, by the packet that carries them.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketProperties {
    pub(super) connect: PropertiesBuf,
    pub(super) disconnect: PropertiesBuf,
    pub(super) publish: PropertiesBuf,
    pub(super) subscribe: PropertiesBuf,
    pub(super) unsubscribe: PropertiesBuf,
    pub(super) will: PropertiesBuf,
}

impl PacketProperties {
    /// Adds a property. `values` are the packet, the property's name and its value, or a user
    /// property's name and value.
    pub(super) fn add(&mut self, values: &[String]) -> Result<(), String> {
        let [packet, name, value, more @ ..] = values else {
            return Err("-D needs a packet, a property and a value".to_string());
        };
        let (owner, properties) = self.properties_of_packet(packet)?;
        let row = find_property(name)?;
        if row.packets & owner == 0 {
            return Err(format!("-D {packet} {name}: {packet} has no such property"));
        }
        let present = properties.as_properties();
        if row.repeats != PropertyRepeats::Many
            && present.iter_with_bytes().any(|(_, b)| b[0] == row.id)
        {
            return Err(format!("-D {packet} {name}: given twice"));
        }
        let bytes = encode_property(row, value, more.first().map_or("", String::as_str));
        let bytes = bytes.map_err(|right| format!("-D {packet} {name} {value}: use {right}"))?;
        let checked = mqtt::Properties::check(&bytes, owner);
        let property = checked.ok().and_then(|properties| properties.iter().next());
        let property =
            property.ok_or_else(|| format!("-D {packet} {name} {value}: not allowed"))?;
        properties.push(property);
        Ok(())
    }

    fn properties_of_packet(&mut self, packet: &str) -> Result<(u16, &mut PropertiesBuf), String> {
        Ok(match packet.to_ascii_lowercase().as_str() {
            "connect" => (PacketType::Connect.bit(), &mut self.connect),
            "disconnect" => (PacketType::Disconnect.bit(), &mut self.disconnect),
            "publish" => (PacketType::Publish.bit(), &mut self.publish),
            "subscribe" => (PacketType::Subscribe.bit(), &mut self.subscribe),
            "unsubscribe" => (PacketType::Unsubscribe.bit(), &mut self.unsubscribe),
            "will" => (WILL, &mut self.will),
            _ => {
                return Err(format!(
                    "-D {packet}: use connect, disconnect, publish, subscribe, unsubscribe or will"
                ));
            }
        })
    }
}

/// Finds a property by its flag name: `message-expiry-interval` is "Message Expiry Interval".
fn find_property(name: &str) -> Result<&'static PropertyRow, String> {
    let names: Vec<String> = PROPERTIES.iter().map(flag_name).collect();
    if let Some(at) = names.iter().position(|known| known == name) {
        return Ok(&PROPERTIES[at]);
    }
    let hint = nearest_word(name, names.iter().map(String::as_str));
    let hint = hint.map_or(String::new(), |meant| format!(", did you mean {meant}?"));
    Err(format!("-D: no property is named {name}{hint}"))
}

fn flag_name(row: &PropertyRow) -> String {
    row.name.to_ascii_lowercase().replace(' ', "-")
}

/// Encodes a property; the error says which kind of value is right.
fn encode_property(row: &PropertyRow, value: &str, second: &str) -> Result<Vec<u8>, &'static str> {
    let number = |max: u32| value.parse::<u32>().ok().filter(|number| *number <= max);
    let mut bytes = vec![row.id];
    match row.kind {
        PropertyKind::Flag => bytes.push(number(1).ok_or("0 or 1")? as u8),
        PropertyKind::U16 => {
            let number = number(0xFFFF).ok_or("a number from 0 to 65535")? as u16;
            bytes.extend(number.to_be_bytes());
        }
        PropertyKind::U32 => {
            let number = number(u32::MAX).ok_or("a number from 0 to 4294967295")?;
            bytes.extend(number.to_be_bytes());
        }
        PropertyKind::Varint => {
            let number = number(mqtt::frame::VARINT_MAX).ok_or("a number from 1 to 268435455")?;
            bytes.clear();
            Property::SubscriptionIdentifier(number).encode(&mut bytes);
        }
        PropertyKind::Text | PropertyKind::Binary => push_text(value, &mut bytes)?,
        PropertyKind::TextPair => {
            push_text(value, &mut bytes)?;
            push_text(second, &mut bytes)?;
        }
    }
    Ok(bytes)
}

fn push_text(text: &str, bytes: &mut Vec<u8>) -> Result<(), &'static str> {
    let len = u16::try_from(text.len()).map_err(|_| "at most 65535 bytes")?;
    bytes.extend(len.to_be_bytes());
    bytes.extend(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(given: &mut PacketProperties, line: &str) -> Result<(), String> {
        let values: Vec<String> = line.split_whitespace().map(String::from).collect();
        given.add(&values)
    }

    #[test]
    fn properties_are_encoded_in_their_order() {
        let mut given = PacketProperties::default();
        for line in [
            "publish message-expiry-interval 7",
            "publish user-property a b",
            "PUBLISH user-property a c",
            "publish correlation-data xy",
            "publish payload-format-indicator 1",
        ] {
            add(&mut given, line).unwrap();
        }
        add(&mut given, "subscribe subscription-identifier 300").unwrap();
        let properties = given.publish.as_properties();
        assert_eq!(
            properties.iter().collect::<Vec<_>>(),
            [
                Property::MessageExpiryInterval(7),
                Property::UserProperty("a", "b"),
                Property::UserProperty("a", "c"),
                Property::CorrelationData(b"xy"),
                Property::PayloadFormatIndicator(1),
            ]
        );
        let properties = given.subscribe.as_properties();
        assert_eq!(properties.iter().collect::<Vec<_>>(), [Property::SubscriptionIdentifier(300)]);
    }

    #[test]
    fn wrong_properties_say_what_would_be_right() {
        let mut given = PacketProperties::default();
        add(&mut given, "publish content-type x").unwrap();
        let mut why = |line| add(&mut given, line).unwrap_err();
        assert_eq!(why("publish content-type y"), "-D publish content-type: given twice");
        assert_eq!(
            why("publish receive-maximum 1"),
            "-D publish receive-maximum: publish has no such property"
        );
        assert_eq!(
            why("connect recieve-maximum 1"),
            "-D: no property is named recieve-maximum, did you mean receive-maximum?"
        );
        assert_eq!(
            why("connect receive-maximum 70000"),
            "-D connect receive-maximum 70000: use a number from 0 to 65535"
        );
        assert_eq!(why("connect receive-maximum 0"), "-D connect receive-maximum 0: not allowed");
        assert!(why("puback reason-string 0").starts_with("-D puback: use connect, "));
    }
}
