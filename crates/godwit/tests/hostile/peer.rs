//! One client's socket, for those who keep the protocol and those who do not.

use mqtt::client::success_ack;
use mqtt::{
    Connect, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS, ReasonCode, Subscribe,
    SubscribeOptions, SubscriptionListBuf,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub(crate) struct RawMqttPeer {
    pub(crate) stream: TcpStream,
    version: ProtocolVersion,
    bytes: Vec<u8>,
}

/// How long the broker may take for anything on a busy host.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Says no more and hears the other side out, whatever it says.
pub(crate) fn end(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut said);
    said
}

/// The broker ends them, although they wait.
pub(crate) fn all_are_ended(streams: Vec<TcpStream>, began: Instant) {
    for mut stream in streams {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

impl RawMqttPeer {
    /// A bare connection.
    pub(crate) fn open(address: SocketAddr) -> RawMqttPeer {
        RawMqttPeer { stream: open(address), version: ProtocolVersion::V5, bytes: Vec::new() }
    }

    /// With a session.
    pub(crate) fn connect(address: SocketAddr, connect: Connect<'_>) -> RawMqttPeer {
        let mut peer = RawMqttPeer::open(address);
        assert_eq!(peer.greet(connect), ReasonCode::Success, "{}", connect.client_id);
        peer
    }

    /// CONNECT, and what CONNACK says.
    pub(crate) fn greet(&mut self, connect: Connect<'_>) -> ReasonCode {
        self.version = connect.version;
        self.send(Packet::Connect(connect));
        self.welcome()
    }

    /// What CONNACK says.
    pub(crate) fn welcome(&mut self) -> ReasonCode {
        self.next(|packet| match packet {
            Packet::ConnAck(ack) => ack.reason,
            other => panic!("{other:?}"),
        })
        .expect("CONNACK comes")
    }

    pub(crate) fn encode(&self, packet: Packet<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes);
        bytes
    }

    pub(crate) fn send(&mut self, packet: Packet<'_>) {
        let bytes = self.encode(packet);
        self.stream.write_all(&bytes).expect("the broker reads");
    }

    /// As much as the broker takes before it closes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next packet, or none where the stream ended.
    pub(crate) fn next<T>(&mut self, read: impl FnOnce(Packet<'_>) -> T) -> Option<T> {
        loop {
            if let Some(frame) = mqtt::split_frame(&self.bytes, u32::MAX).expect("well formed") {
                let len = frame.len;
                let packet = Packet::decode(frame, self.version).expect("well formed");
                let result = read(packet);
                self.bytes.drain(..len);
                return Some(result);
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.bytes.extend_from_slice(&buffer[..read]),
                Err(fault) if fault.kind() == ErrorKind::ConnectionReset => return None,
                Err(fault) => panic!("nothing came: {fault}"),
            }
        }
    }

    /// Reads to the end of the stream. The reason of a DISCONNECT that came before it.
    pub(crate) fn last_words(&mut self) -> Option<ReasonCode> {
        let mut said = None;
        while let Some(reason) = self.next(|packet| match packet {
            Packet::Disconnect(disconnect) => Some(disconnect.reason),
            _ => None,
        }) {
            said = reason.or(said);
        }
        said
    }

    /// SUBSCRIBE to all, and the codes.
    pub(crate) fn subscribe(&mut self, filters: &[&str], qos: QoS) -> Vec<u8> {
        let bytes = self.encode_subscribe(filters, qos);
        self.stream.write_all(&bytes).expect("the broker reads");
        self.next(|packet| match packet {
            Packet::SubAck(ack) => ack.codes.to_vec(),
            other => panic!("{other:?}"),
        })
        .expect("SUBACK comes")
    }

    pub(crate) fn encode_subscribe(&self, filters: &[&str], qos: QoS) -> Vec<u8> {
        let mut all = SubscriptionListBuf::default();
        let options = SubscribeOptions { qos, ..Default::default() };
        for filter in filters {
            all.push(filter, options);
        }
        self.encode(Packet::Subscribe(Subscribe {
            packet_id: PacketId::MIN,
            properties: Properties::default(),
            filters: all.as_subscriptions(),
        }))
    }

    pub(crate) fn encode_publish(&self, publish: Publish<'_>) -> Vec<u8> {
        self.encode(Packet::Publish(publish))
    }

    /// PUBLISH with QoS 1, and the reason of its PUBACK.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) -> ReasonCode {
        let packet = Publish { retain, payload, ..message(topic, QoS::AtLeastOnce) };
        self.send(Packet::Publish(packet));
        self.next(|packet| match packet {
            Packet::PubAck(ack) => ack.reason,
            other => panic!("{other:?}"),
        })
        .expect("PUBACK comes")
    }

    /// A QoS 1 message to itself: there, back, and acknowledged both ways.
    pub(crate) fn round_trip(&mut self, topic: &str) {
        self.send(Packet::Publish(message(topic, QoS::AtLeastOnce)));
        let (mut came, mut acknowledged) = (None, false);
        while came.is_none() || !acknowledged {
            self.next(|packet| match packet {
                Packet::Publish(publish) => came = publish.packet_id,
                Packet::PubAck(_) => acknowledged = true,
                other => panic!("{other:?}"),
            })
            .expect("the connection lives");
        }
        let packet_id = came.expect("QoS 1 has an id");
        self.send(Packet::PubAck(success_ack(packet_id)));
    }
}

/// A clean session of MQTT 5.0.
pub(crate) fn hello(client_id: &str) -> Connect<'_> {
    Connect {
        is_bridge: false,
        version: ProtocolVersion::V5,
        clean_start: true,
        keep_alive_s: 0,
        client_id,
        will: None,
        user_name: None,
        password: None,
        properties: Properties::default(),
    }
}

/// As short as it can be.
pub(crate) fn message(topic: &str, qos: QoS) -> Publish<'_> {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic,
        packet_id: (qos != QoS::AtMostOnce).then_some(PacketId::MIN),
        properties: Properties::default(),
        payload: b"x",
    }
}
