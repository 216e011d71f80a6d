//! Session of one client, which outlives connections, and the state of its present connection.

use super::UnacknowledgedPackets;
use super::{AckOutcome, IncomingAliases, PacketIds, ServerLimits, UnacknowledgedPacket};
use crate::{
    ConnAck, Connect, Packet, PacketId, PacketType, Properties, Property, Publish, PublishAck, QoS,
    ReasonCode, Violation,
};

/// Session and connection of one client. `T` is the value that the client stores for a packet until
/// the server acknowledges the packet.
#[derive(Debug)]
pub struct ClientSession<T> {
    phase: ConnectionPhase,
    limits: ServerLimits,
    /// Keep-alive time of CONNECT, in seconds.
    keep_alive_s: u16,
    pub unacknowledged: UnacknowledgedPackets<T>,
    /// Packet ids of QoS 2 messages that arrived and are not released by PUBREL.
    received: PacketIds,
    aliases: IncomingAliases,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    Closed,
    /// CONNECT is sent, and CONNACK is outstanding.
    AwaitingConnAck,
    Connected,
}

/// Reason for which a CONNACK does not start a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnAckFault {
    Refused(ReasonCode),
    /// CONNACK arrived without an outstanding CONNECT.
    Unexpected,
}

impl<T> Default for ClientSession<T> {
    fn default() -> ClientSession<T> {
        ClientSession {
            phase: ConnectionPhase::Closed,
            limits: ServerLimits::default(),
            keep_alive_s: 0,
            unacknowledged: UnacknowledgedPackets::default(),
            received: PacketIds::default(),
            aliases: IncomingAliases::default(),
        }
    }
}

impl<T> ClientSession<T> {
    /// Records that CONNECT is sent, as the first packet of a connection. [MQTT-3.1.0-1]
    pub fn connect(&mut self, connect: &Connect<'_>) {
        self.phase = ConnectionPhase::AwaitingConnAck;
        self.keep_alive_s = connect.keep_alive_s;
        let alias_max = connect.properties.iter().find_map(|property| match property {
            Property::TopicAliasMaximum(max) => Some(max),
            _ => None,
        });
        self.aliases = IncomingAliases::new(alias_max.unwrap_or(0));
        if connect.clean_start {
            self.discard_state(); // [MQTT-3.1.2-4]
        }
    }

    /// Handles CONNACK. Returns the limits of the server, or the reason for which the connection
    /// does not start. Discards the session state if the server has no session.
    pub fn on_connack(&mut self, connack: &ConnAck<'_>) -> Result<ServerLimits, ConnAckFault> {
        if self.phase != ConnectionPhase::AwaitingConnAck {
            return Err(ConnAckFault::Unexpected);
        }
        self.phase = ConnectionPhase::Closed;
        self.limits = ServerLimits::from_connack(connack).map_err(ConnAckFault::Refused)?;
        self.phase = ConnectionPhase::Connected;
        if !connack.session_present {
            self.discard_state(); // [MQTT-3.2.2-5]
        }
        self.unacknowledged.start_resending();
        Ok(self.limits)
    }

    /// Takes over the session state of an earlier connection. The caller has read from CONNACK that
    /// the server has the session.
    pub fn resume(&mut self, earlier: ClientSession<T>) {
        (self.unacknowledged, self.received) = (earlier.unacknowledged, earlier.received);
        self.unacknowledged.start_resending();
    }

    /// Returns whether CONNACK accepted the connection and the connection is open.
    pub fn is_connected(&self) -> bool {
        self.phase == ConnectionPhase::Connected
    }

    /// Records the end of the connection. The session state stays.
    pub fn on_close(&mut self) {
        self.phase = ConnectionPhase::Closed;
    }

    pub fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    /// Keep-alive time of the connection, in seconds; 0 disables keep-alive.
    pub fn keep_alive_s(&self) -> u16 {
        // [MQTT-3.1.2-21] [MQTT-3.2.2-21]
        self.limits.server_keep_alive_s.unwrap_or(self.keep_alive_s)
    }

    /// Returns whether one more message of QoS 1 or 2 may be sent. [MQTT-3.3.4-7]
    pub fn has_room(&self) -> bool {
        self.unacknowledged.has_room(self.limits.receive_maximum)
    }

    /// Records that a message of QoS 1 or 2 is sent. Returns its packet id, or `None` for QoS 0,
    /// which has no packet id, and when all packet ids are in use.
    pub fn publish(&mut self, qos: QoS, value: T) -> Option<PacketId> {
        match qos {
            QoS::AtMostOnce => None, // [MQTT-2.2.1-2]
            QoS::AtLeastOnce => self.unacknowledged.add(PacketType::PubAck, value),
            QoS::ExactlyOnce => self.unacknowledged.add(PacketType::PubRec, value),
        }
    }

    /// Handles PUBACK, PUBREC or PUBCOMP.
    pub fn on_publish_ack(&mut self, kind: PacketType, ack: &PublishAck<'_>) -> AckOutcome<T> {
        self.unacknowledged.acknowledge(kind, ack)
    }

    /// Returns the next message of an earlier connection to send again; `None` if all are sent, or
    /// the Receive Maximum is reached.
    pub fn next_resend(&mut self) -> Option<&mut UnacknowledgedPacket<T>> {
        self.unacknowledged.next_resend(self.limits.receive_maximum)
    }

    /// Handles PUBLISH. Returns whether the message is new: `false` for a QoS 2 message that the
    /// client has received and the server has not released. [MQTT-4.3.2-5] [MQTT-4.3.3-10]
    /// [MQTT-4.3.3-12]
    pub fn on_publish(&mut self, qos: QoS, packet_id: Option<PacketId>) -> bool {
        match (qos, packet_id) {
            (QoS::ExactlyOnce, Some(id)) => self.received.insert(id),
            _ => true,
        }
    }

    /// Returns the topic of a message and resolves its topic alias, see
    /// [`IncomingAliases::resolve`].
    pub fn topic<'a>(&'a mut self, publish: &Publish<'a>) -> Result<&'a str, Violation> {
        self.aliases.resolve(publish)
    }

    /// Handles PUBREL. Returns PUBCOMP to send. [MQTT-4.3.3-11]
    pub fn on_pubrel(&mut self, packet_id: PacketId) -> Packet<'static> {
        self.received.remove(packet_id);
        Packet::PubComp(success_ack(packet_id))
    }

    /// Returns whether the server has released every QoS 2 message that arrived.
    pub fn has_released_all(&self) -> bool {
        self.received.is_empty()
    }

    fn discard_state(&mut self) {
        self.received = PacketIds::default();
        self.unacknowledged.clear();
    }
}

/// Returns PUBACK for an accepted message of QoS 1, PUBREC for QoS 2, and `None` for QoS 0.
/// [MQTT-3.3.4-1] [MQTT-4.3.2-4] [MQTT-4.3.3-8]
pub fn receipt(qos: QoS, packet_id: Option<PacketId>) -> Option<Packet<'static>> {
    let ack = success_ack(packet_id?);
    match qos {
        QoS::AtMostOnce => None,
        QoS::AtLeastOnce => Some(Packet::PubAck(ack)),
        QoS::ExactlyOnce => Some(Packet::PubRec(ack)),
    }
}

/// Returns an acknowledgement with the id of the acknowledged packet and the reason Success
/// [MQTT-2.2.1-5].
pub fn success_ack(packet_id: PacketId) -> PublishAck<'static> {
    PublishAck { packet_id, reason: ReasonCode::Success, properties: Properties::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PropertiesBuf, ProtocolVersion};

    fn hello<'a>(properties: &'a PropertiesBuf) -> Connect<'a> {
        Connect {
            version: ProtocolVersion::V5,
            is_bridge: false,
            clean_start: false,
            keep_alive_s: 60,
            client_id: "c",
            will: None,
            user_name: None,
            password: None,
            properties: properties.as_properties(),
        }
    }

    fn welcome<'a>(session_present: bool, properties: &'a PropertiesBuf) -> ConnAck<'a> {
        let reason = ReasonCode::Success;
        ConnAck { session_present, reason, properties: properties.as_properties() }
    }

    fn connected(connack: &[Property<'_>]) -> ClientSession<char> {
        let mut session = ClientSession::default();
        reconnect(&mut session, true, connack);
        session
    }

    fn reconnect(session: &mut ClientSession<char>, present: bool, connack: &[Property<'_>]) {
        let mut properties = PropertiesBuf::default();
        connack.iter().for_each(|property| _ = properties.push(*property));
        session.connect(&hello(&PropertiesBuf::default()));
        session.on_connack(&welcome(present, &properties)).expect("it is let in");
    }

    fn message(topic: &str, id: u16) -> Publish<'_> {
        Publish {
            dup: false,
            qos: QoS::ExactlyOnce,
            retain: false,
            topic,
            packet_id: PacketId::new(id),
            properties: Properties::default(),
            payload: b"",
        }
    }

    #[test]
    fn connack_answers_one_connect() {
        // [MQTT-3.1.0-1]
        let (mut session, none) = (ClientSession::<()>::default(), PropertiesBuf::default());
        assert_eq!(session.on_connack(&welcome(false, &none)), Err(ConnAckFault::Unexpected));
        session.connect(&hello(&none));
        assert!(!session.is_connected());
        assert_eq!(session.on_connack(&welcome(false, &none)), Ok(ServerLimits::default()));
        assert!(session.is_connected());
        assert_eq!(session.on_connack(&welcome(false, &none)), Err(ConnAckFault::Unexpected));
        assert!(session.is_connected());
        session.on_close();
        assert!(!session.is_connected());
        let refusal = ConnAck { reason: ReasonCode::Banned, ..welcome(false, &none) };
        session.connect(&hello(&none));
        let refused = Err(ConnAckFault::Refused(ReasonCode::Banned));
        assert_eq!(session.on_connack(&refusal), refused);
        assert_eq!(session.on_connack(&refusal), Err(ConnAckFault::Unexpected));
        assert!(!session.is_connected());
    }

    #[test]
    fn the_keep_alive_of_the_server_counts() {
        // [MQTT-3.1.2-21] [MQTT-3.2.2-21]
        assert_eq!(connected(&[]).keep_alive_s(), 60);
        assert_eq!(connected(&[Property::ServerKeepAlive(7)]).keep_alive_s(), 7);
        assert_eq!(connected(&[Property::ServerKeepAlive(0)]).keep_alive_s(), 0);
    }

    #[test]
    fn messages_above_qos_0_have_ids_and_a_window() {
        // [MQTT-2.2.1-2] [MQTT-3.3.4-7]
        let mut session = connected(&[Property::ReceiveMaximum(2)]);
        assert_eq!(session.publish(QoS::AtMostOnce, 'a'), None);
        assert_eq!(session.publish(QoS::AtLeastOnce, 'b'), PacketId::new(1));
        assert!(session.has_room());
        assert_eq!(session.publish(QoS::ExactlyOnce, 'c'), PacketId::new(2));
        assert!(!session.has_room());
        let [first, second] = [1, 2].map(|id| success_ack(PacketId::new(id).expect("not 0")));
        let outcome = session.on_publish_ack(PacketType::PubAck, &first);
        assert_eq!(outcome, AckOutcome::Complete('b'));
        let outcome = session.on_publish_ack(PacketType::PubRec, &second);
        assert_eq!(outcome, AckOutcome::Release);
        // The next connection begins with the release.
        reconnect(&mut session, true, &[]);
        let again = session.next_resend().map(|packet| (packet.awaits, packet.value));
        assert_eq!(again, Some((PacketType::PubComp, 'c')));
    }

    #[test]
    fn a_session_that_the_server_has_not_is_forgotten() {
        // [MQTT-3.2.2-5]
        let mut session = connected(&[]);
        session.publish(QoS::AtLeastOnce, 'a');
        session.on_publish(QoS::ExactlyOnce, PacketId::new(1));
        reconnect(&mut session, true, &[]);
        assert!(!session.on_publish(QoS::ExactlyOnce, PacketId::new(1)), "it is the same message");
        reconnect(&mut session, false, &[]);
        assert_eq!(session.next_resend(), None);
        assert!(session.on_publish(QoS::ExactlyOnce, PacketId::new(1)), "it is another message");
    }

    #[test]
    fn a_session_goes_on_in_another_connection() {
        // [MQTT-4.4.0-1]
        let mut earlier = connected(&[]);
        earlier.publish(QoS::AtLeastOnce, 'a');
        earlier.on_publish(QoS::ExactlyOnce, PacketId::new(1));
        let mut session = connected(&[]);
        session.resume(earlier);
        assert_eq!(session.next_resend().map(|packet| packet.value), Some('a'));
        assert!(!session.on_publish(QoS::ExactlyOnce, PacketId::new(1)));
    }

    #[test]
    fn clean_start_forgets_the_session() {
        // [MQTT-3.1.2-4]
        let (mut session, none) = (connected(&[]), PropertiesBuf::default());
        session.publish(QoS::AtLeastOnce, 'a');
        session.connect(&Connect { clean_start: true, ..hello(&none) });
        assert_eq!(session.unacknowledged.publish_count(), 0);
    }

    #[test]
    fn a_qos_2_message_is_new_once_until_its_release() {
        // [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12]
        let mut session = connected(&[]);
        assert!(session.on_publish(QoS::ExactlyOnce, PacketId::new(3)));
        assert!(!session.on_publish(QoS::ExactlyOnce, PacketId::new(3)));
        assert!(session.on_publish(QoS::ExactlyOnce, PacketId::new(4)));
        assert!(!session.has_released_all());
        let id = PacketId::new(3).expect("not 0");
        assert_eq!(session.on_pubrel(id), Packet::PubComp(success_ack(id)));
        // The server may have lost PUBCOMP.
        assert_eq!(session.on_pubrel(id), Packet::PubComp(success_ack(id)));
        assert!(session.on_publish(QoS::ExactlyOnce, PacketId::new(3)));
    }

    #[test]
    fn a_qos_1_message_is_new_each_time() {
        // [MQTT-4.3.2-5]
        let mut session = connected(&[]);
        assert!(session.on_publish(QoS::AtLeastOnce, PacketId::new(3)));
        assert!(session.on_publish(QoS::AtLeastOnce, PacketId::new(3)));
        assert!(session.has_released_all());
    }

    #[test]
    fn each_qos_has_its_receipt_under_the_same_id() {
        // [MQTT-2.2.1-5] [MQTT-3.3.4-1] [MQTT-4.3.2-4] [MQTT-4.3.3-8]
        let id = PacketId::new(9);
        let ack = success_ack(PacketId::new(9).expect("not 0"));
        assert_eq!(receipt(QoS::AtMostOnce, None), None);
        assert_eq!(receipt(QoS::AtLeastOnce, id), Some(Packet::PubAck(ack)));
        assert_eq!(receipt(QoS::ExactlyOnce, id), Some(Packet::PubRec(ack)));
    }

    #[test]
    fn aliases_end_with_the_connection() {
        let (mut alias, mut connect) = (PropertiesBuf::default(), PropertiesBuf::default());
        alias.push(Property::TopicAlias(1));
        connect.push(Property::TopicAliasMaximum(1));
        let mut session = ClientSession::<()>::default();
        let named = Publish { properties: alias.as_properties(), ..message("t", 1) };
        session.connect(&hello(&connect));
        assert_eq!(session.topic(&named), Ok("t"));
        assert_eq!(session.topic(&Publish { topic: "", ..named }), Ok("t"));
        session.connect(&hello(&connect));
        let unknown = Err(Violation::AliasUnknown);
        assert_eq!(session.topic(&Publish { topic: "", ..named }), unknown);
        // Without a maximum there are none.
        session.connect(&hello(&PropertiesBuf::default()));
        assert_eq!(session.topic(&named), Ok("t"));
        assert_eq!(session.topic(&Publish { topic: "", ..named }), unknown);
    }
}
