//! Limits of a server, read from its CONNACK.

use crate::{ConnAck, Property, ProtocolVersion, Publish, QoS, ReasonCode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Messages of QoS 1 and 2 that may be unacknowledged at once.
    pub receive_maximum: u16,
    /// Keep-alive time that replaces the one of CONNECT, in seconds; 0 switches it off.
    pub server_keep_alive_s: Option<u16>,
    pub qos_max: QoS,
    pub retain_available: bool,
    pub packet_bytes_max: u32,
    /// Topic aliases that the client may assign.
    pub topic_alias_max: u16,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits::UNSTATED
    }
}

impl ServerLimits {
    /// Limits of a CONNACK without properties, and so of every CONNACK of MQTT 3.x.
    pub const UNSTATED: ServerLimits = ServerLimits {
        receive_maximum: u16::MAX,
        server_keep_alive_s: None,
        qos_max: QoS::ExactlyOnce,
        retain_available: true,
        packet_bytes_max: u32::MAX,
        topic_alias_max: 0, // [MQTT-3.2.2-18]
    };

    /// Reads the limits of a CONNACK. Returns the reason code as the error if the server refuses
    /// the connection.
    pub fn from_connack(connack: &ConnAck<'_>) -> Result<ServerLimits, ReasonCode> {
        if connack.reason != ReasonCode::Success {
            return Err(connack.reason);
        }
        let mut limits = ServerLimits::default();
        for property in connack.properties.iter() {
            match property {
                Property::MaximumPacketSize(max) => limits.packet_bytes_max = max,
                Property::MaximumQoS(qos) => {
                    limits.qos_max = QoS::from_bits(qos).unwrap_or_default();
                }
                Property::ReceiveMaximum(max) => limits.receive_maximum = max,
                Property::RetainAvailable(0) => limits.retain_available = false,
                Property::ServerKeepAlive(seconds) => limits.server_keep_alive_s = Some(seconds),
                Property::TopicAliasMaximum(max) => limits.topic_alias_max = max,
                _ => {}
            }
        }
        Ok(limits)
    }

    /// Appends a PUBLISH to `out` and returns its length in bytes. Returns `None` and appends no
    /// bytes if the packet is larger than the Maximum Packet Size of the server.
    pub fn encode_publish(
        &self,
        publish: &Publish<'_>,
        version: ProtocolVersion,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let before = out.len();
        publish.encode(version, out);
        let bytes = out.len() - before;
        // [MQTT-3.2.2-15]
        if bytes > self.packet_bytes_max as usize {
            out.truncate(before);
            return None;
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Properties, PropertiesBuf};

    fn limits_of(properties: &[Property<'_>]) -> ServerLimits {
        let mut buf = PropertiesBuf::default();
        properties.iter().for_each(|property| _ = buf.push(*property));
        ServerLimits::from_connack(&ConnAck {
            session_present: false,
            reason: ReasonCode::Success,
            properties: buf.as_properties(),
        })
        .expect("it accepts")
    }

    #[test]
    fn without_properties_a_server_takes_everything_but_aliases() {
        // [MQTT-3.2.2-18]
        assert_eq!(limits_of(&[]), ServerLimits::default());
        assert_eq!(ServerLimits::default().topic_alias_max, 0);
    }

    #[test]
    fn connack_states_the_limits() {
        let limits = limits_of(&[
            Property::ReceiveMaximum(7),
            Property::ServerKeepAlive(0),
            Property::MaximumQoS(1),
            Property::RetainAvailable(0),
            Property::MaximumPacketSize(100),
            Property::TopicAliasMaximum(3),
            Property::AssignedClientIdentifier("c"),
        ]);
        let expected = ServerLimits {
            receive_maximum: 7,
            server_keep_alive_s: Some(0),
            qos_max: QoS::AtLeastOnce,
            retain_available: false,
            packet_bytes_max: 100,
            topic_alias_max: 3,
        };
        assert_eq!(limits, expected);
    }

    #[test]
    fn a_refusal_states_no_limits() {
        let (session_present, properties) = (false, Properties::default());
        let reason = ReasonCode::ServerBusy;
        let connack = ConnAck { session_present, reason, properties };
        assert_eq!(ServerLimits::from_connack(&connack), Err(reason));
    }

    #[test]
    fn a_publish_above_the_maximum_packet_size_is_not_written() {
        // [MQTT-3.2.2-15]
        let limits = limits_of(&[Property::MaximumPacketSize(8)]);
        let publish = |payload| Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "t",
            packet_id: None,
            properties: Properties::default(),
            payload,
        };
        let mut out = vec![0xEE];
        assert_eq!(limits.encode_publish(&publish(b"123"), ProtocolVersion::V5, &mut out), None);
        assert_eq!(out, [0xEE]);
        assert_eq!(limits.encode_publish(&publish(b"12"), ProtocolVersion::V5, &mut out), Some(8));
        assert_eq!(out, b"\xEE\x30\x06\x00\x01t\x0012");
    }
}
