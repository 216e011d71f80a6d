//! Negotiation: the options that a CONNECT requests, the options in force for the connection, and
//! the properties of the CONNACK that reports the difference.

use crate::connection::auth_exchange::{self, AuthExchange};
use crate::connection::connection_table::ConnectionTable;
use crate::ids::ConnId;
use crate::message::namespace::NamespacedClientId;
use crate::peer::authentication::AuthOutcome;
use crate::refusal::Refusal;
use crate::session::session_table::SessionTable;
use mqtt::{ConnAck, Connect, Properties, PropertiesBuf, Property, ProtocolVersion, ReasonCode};

/// Properties of a CONNECT. An absent property has the default of MQTT 5.0, section 3.1.2.11.
pub(crate) struct ConnectProperties<'a> {
    pub(in crate::connection) session_expiry_s: Option<u32>,
    pub(in crate::connection) receive_maximum: u16,
    pub(crate) packet_bytes_max: u32,
    pub(in crate::connection) topic_alias_max: u16,
    pub(in crate::connection) response_information: bool,
    pub(in crate::connection) problem_information: bool,
    pub(in crate::connection) method: Option<&'a str>,
}

impl<'a> ConnectProperties<'a> {
    pub(crate) fn new(properties: Properties<'a>) -> ConnectProperties<'a> {
        let mut asked = ConnectProperties {
            session_expiry_s: None,
            receive_maximum: u16::MAX,
            packet_bytes_max: u32::MAX,
            topic_alias_max: 0,
            response_information: false,
            problem_information: true,
            method: None,
        };
        for property in properties.iter() {
            match property {
                Property::SessionExpiryInterval(seconds) => asked.session_expiry_s = Some(seconds),
                Property::ReceiveMaximum(max) => asked.receive_maximum = max,
                Property::MaximumPacketSize(max) => asked.packet_bytes_max = max,
                Property::TopicAliasMaximum(max) => asked.topic_alias_max = max,
                Property::RequestResponseInformation(flag) => {
                    asked.response_information = flag == 1;
                }
                Property::RequestProblemInformation(flag) => asked.problem_information = flag == 1,
                Property::AuthenticationMethod(method) => asked.method = Some(method),
                _ => {}
            }
        }
        asked
    }
}

/// The options in force for a connection, and the CONNACK properties to report them.
pub(crate) struct NegotiatedOptions {
    pub(crate) keep_alive_s: u16,
    pub(crate) session_expiry_s: u32,
    pub(in crate::connection) properties: PropertiesBuf,
    pub(in crate::connection) exchange: Option<AuthExchange>,
}

impl ConnectionTable {
    /// Negotiates the options of a connection. `Refusal::AnswerTooLarge` for a client whose Maximum
    /// Packet Size is below the size of CONNACK [MQTT-3.1.2-24]; later responses of fixed length
    /// are shorter.
    pub(crate) fn negotiate_options(
        &self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        admitted: &NamespacedClientId,
        sessions: &SessionTable,
    ) -> Result<NegotiatedOptions, Refusal> {
        let options = self.limits_at(conn, sessions);
        // [MQTT-3.2.2-22]: the client's value applies unless CONNACK has Server Keep Alive.
        let keep_alive_s = match (packet.keep_alive_s, options.keep_alive_s_max) {
            (asked, 0) => asked,
            // CONNACK of 3.x cannot change the keep-alive, so the client's value applies.
            (asked, _) if packet.version != ProtocolVersion::V5 => asked,
            (0, max) => max,
            (asked, max) => asked.min(max),
        };
        let session_expiry_s = match packet.version {
            ProtocolVersion::V5 => {
                asked.session_expiry_s.unwrap_or(0).min(options.session_expiry_s_max)
            }
            _ if packet.clean_start => 0,
            // [3.1.1:MQTT-3.1.2-4]
            _ => options.session_expiry_s_default.min(options.session_expiry_s_max),
        };
        let mut agreed = NegotiatedOptions {
            keep_alive_s,
            session_expiry_s,
            properties: PropertiesBuf::default(),
            exchange: None,
        };
        if packet.version == ProtocolVersion::V5 {
            self.add_connack_properties(
                conn,
                packet,
                asked,
                &admitted.client_id,
                &mut agreed,
                sessions,
            );
        }
        // CONNACK has Authentication Method only if CONNECT had the property [MQTT-4.12.0-6].
        if let Some(method) = asked.method {
            let pass = self.conn(conn).and_then(|known| known.peer.auth_outcome());
            let says =
                pass.and_then(AuthOutcome::principal).and_then(|grant| grant.auth_data.as_deref());
            auth_exchange::push_auth_properties(method, says, &mut agreed.properties);
            let answers = pass.map_or(0, |pass| pass.auth_packets);
            agreed.exchange =
                Some(AuthExchange::for_accepted(method, asked.packet_bytes_max, answers));
        }
        let mut bytes = Vec::with_capacity(64);
        accepting_connack(packet.version, false, &agreed).encode(packet.version, &mut bytes);
        if bytes.len() > asked.packet_bytes_max as usize {
            return Err(Refusal::AnswerTooLarge);
        }
        Ok(agreed)
    }

    /// Writes the CONNACK properties: values that differ from the default of the specification or
    /// from the request in `asked`.
    fn add_connack_properties(
        &self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        client_id: &str,
        agreed: &mut NegotiatedOptions,
        sessions: &SessionTable,
    ) {
        let (options, properties) = (self.limits_at(conn, sessions), &mut agreed.properties);
        if asked.session_expiry_s.is_some_and(|asked| asked != agreed.session_expiry_s) {
            properties.push(Property::SessionExpiryInterval(agreed.session_expiry_s));
        }
        if options.receive_maximum < u16::MAX {
            properties.push(Property::ReceiveMaximum(options.receive_maximum));
        }
        if options.qos_max < 2 {
            properties.push(Property::MaximumQoS(options.qos_max)); // [MQTT-3.2.2-9]
        }
        if !options.retain_available {
            properties.push(Property::RetainAvailable(0));
        }
        properties.push(Property::MaximumPacketSize(options.packet_bytes_max));
        if packet.client_id.is_empty() {
            // [MQTT-3.1.3-7] [MQTT-3.2.2-16]
            properties.push(Property::AssignedClientIdentifier(client_id));
        }
        if options.topic_alias_max > 0 {
            properties.push(Property::TopicAliasMaximum(options.topic_alias_max));
        }
        if !options.wildcard_available {
            properties.push(Property::WildcardSubscriptionAvailable(0));
        }
        if !options.subscription_ids_available {
            properties.push(Property::SubscriptionIdentifierAvailable(0));
        }
        if !options.shared_available {
            properties.push(Property::SharedSubscriptionAvailable(0));
        }
        if agreed.keep_alive_s != packet.keep_alive_s {
            properties.push(Property::ServerKeepAlive(agreed.keep_alive_s));
        }
        // [MQTT-3.1.2-28]
        if asked.response_information && !options.response_information.is_empty() {
            properties.push(Property::ResponseInformation(&options.response_information));
        }
    }
}

/// Returns the CONNACK for an accepted client. `present` is ignored for 3.1, where the byte of
/// Session Present is reserved.
pub(crate) fn accepting_connack(
    version: ProtocolVersion,
    present: bool,
    agreed: &NegotiatedOptions,
) -> ConnAck<'_> {
    ConnAck {
        session_present: present && version != ProtocolVersion::V31,
        reason: ReasonCode::Success,
        properties: agreed.properties.as_properties(),
    }
}
