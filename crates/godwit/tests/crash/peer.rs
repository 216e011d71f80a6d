//! Common part of publishers and subscribers: a persistent session, and a connection that comes and
//! goes.

use crate::line::{BrokerPacket, CrashConnection};
use mqtt::client::{ClientSession, success_ack};
use mqtt::{ConnAck, Connect, Packet, PacketId, PacketType, Properties, PropertiesBuf};
use mqtt::{Property, ProtocolVersion};
use std::net::SocketAddr;

pub(crate) struct CrashPeer {
    pub(crate) id: String,
    pub(crate) version: ProtocolVersion,
    pub(crate) receive_maximum: u16,
    pub(crate) expiry_s: u32,
    /// Whether the broker has acknowledged a packet that belongs to the session, so that the
    /// session must exist from now on.
    pub(crate) is_known: bool,
    pub(crate) session: ClientSession<()>,
    line: Option<CrashConnection>,
}

impl CrashPeer {
    pub(crate) fn new(id: String, version: ProtocolVersion, receive_maximum: u16) -> CrashPeer {
        CrashPeer {
            id,
            version,
            receive_maximum,
            expiry_s: u32::MAX,
            is_known: false,
            session: ClientSession::default(),
            line: None,
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        self.session.is_connected()
    }

    /// Connects if there is no connection. Returns the received packets; the first one of a
    /// connection is `BrokerPacket::Welcome`.
    pub(crate) fn turn(&mut self, address: SocketAddr) -> Vec<BrokerPacket> {
        if self.line.is_none() {
            self.line = CrashConnection::open(address, self.version);
            self.greet();
        }
        let Some(line) = &mut self.line else { return Vec::new() };
        let (heard, lives) = line.listen();
        for heard in &heard {
            if let BrokerPacket::Welcome { present, reason } = *heard {
                assert!(present || !self.is_known, "{}: its session is lost", self.id);
                let (session_present, properties) = (present, Properties::default());
                let connack = ConnAck { session_present, reason, properties };
                assert!(self.session.on_connack(&connack).is_ok(), "{}: {reason}", self.id);
            }
        }
        if !lives {
            self.cut();
        }
        heard
    }

    fn greet(&mut self) {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::SessionExpiryInterval(self.expiry_s));
        properties.push(Property::ReceiveMaximum(self.receive_maximum));
        let none = Properties::default();
        let connect = Connect {
            is_bridge: false,
            version: self.version,
            clean_start: false,
            keep_alive_s: 0,
            client_id: &self.id,
            will: None,
            user_name: None,
            password: None,
            properties: if self.version.is_v5() { properties.as_properties() } else { none },
        };
        if let Some(line) = &mut self.line {
            self.session.connect(&connect);
            line.say(Packet::Connect(connect));
        }
        self.flush();
    }

    pub(crate) fn say(&mut self, packet: Packet<'_>) {
        if let Some(line) = &mut self.line {
            line.say(packet);
        }
    }

    pub(crate) fn acknowledge(&mut self, kind: PacketType, packet_id: PacketId) {
        let ack = success_ack(packet_id);
        self.say(match kind {
            PacketType::PubAck => Packet::PubAck(ack),
            PacketType::PubRec => Packet::PubRec(ack),
            PacketType::PubRel => Packet::PubRel(ack),
            PacketType::PubComp => Packet::PubComp(ack),
            other => panic!("{other:?} acknowledges nothing"),
        });
    }

    pub(crate) fn flush(&mut self) {
        if self.line.as_mut().is_some_and(|line| !line.flush()) {
            self.cut();
        }
    }

    /// Closes the connection without DISCONNECT.
    pub(crate) fn cut(&mut self) {
        self.line = None;
        self.session.on_close();
    }
}
