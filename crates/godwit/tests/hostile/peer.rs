//! The socket of a client, for valid and invalid packets.

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

/// Longest time to wait for the broker, enough for a busy host.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Ends the sending direction. Returns all bytes that the broker still sends.
pub(crate) fn end(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut said);
    said
}

/// Checks that the broker closes all connections in time, although their clients stay idle.
pub(crate) fn all_are_ended(streams: Vec<TcpStream>, began: Instant) {
    for mut stream in streams {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

impl RawMqttPeer {
    /// Connects without CONNECT.
    pub(crate) fn open(address: SocketAddr) -> RawMqttPeer {
        RawMqttPeer { stream: open(address), version: ProtocolVersion::V5, bytes: Vec::new() }
    }

    /// Connects, sends CONNECT, and checks that CONNACK has reason Success.
    pub(crate) fn connect(address: SocketAddr, connect: Connect<'_>) -> RawMqttPeer {
        let mut peer = RawMqttPeer::open(address);
        assert_eq!(peer.greet(connect), ReasonCode::Success, "{}", connect.client_id);
        peer
    }

    /// Sends CONNECT. Returns the reason code of CONNACK.
    pub(crate) fn greet(&mut self, connect: Connect<'_>) -> ReasonCode {
        self.version = connect.version;
        self.send(Packet::Connect(connect));
        self.welcome()
    }

    /// Waits for CONNACK, and returns its reason code.
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

    /// Sends bytes. Returns false if the broker closes the connection before.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Returns the result of `read` for the next packet, or `None` at the end of the stream.
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

    /// Reads to the end of the stream. Returns the reason code of DISCONNECT, if there was one.
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

    /// Subscribes to all filters. Returns the reason codes of SUBACK.
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

    /// Publishes at QoS 1. Returns the reason code of PUBACK.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) -> ReasonCode {
        let packet = Publish { retain, payload, ..message(topic, QoS::AtLeastOnce) };
        self.send(Packet::Publish(packet));
        self.next(|packet| match packet {
            Packet::PubAck(ack) => ack.reason,
            other => panic!("{other:?}"),
        })
        .expect("PUBACK comes")
    }

    /// Sends a QoS 1 message to itself, and waits until the message is received and both directions
    /// are acknowledged.
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

/// Returns a CONNECT of MQTT 5.0 with Clean Start.
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

/// Returns a PUBLISH with a payload of one byte.
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
