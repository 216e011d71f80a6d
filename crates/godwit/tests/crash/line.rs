//! A non-blocking connection to the broker: returns the packets that have arrived, and buffers
//! unsent ones.

use mqtt::{Packet, PacketId, PacketType, ProtocolVersion, QoS, ReasonCode};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) struct CrashConnection {
    stream: TcpStream,
    version: ProtocolVersion,
    came: Vec<u8>,
    unsent: Vec<u8>,
}

/// The packets of the broker that the tests use.
#[derive(Debug)]
pub(crate) enum BrokerPacket {
    Ack {
        kind: PacketType,
        packet_id: PacketId,
        reason: ReasonCode,
    },
    Message {
        qos: QoS,
        /// The RETAIN flag: whether the message was a retained one.
        retain: bool,
        packet_id: Option<PacketId>,
        topic: String,
        payload: Vec<u8>,
    },
    Pong,
    Subscribed {
        codes: Vec<u8>,
    },
    Welcome {
        present: bool,
        reason: ReasonCode,
    },
}

impl CrashConnection {
    pub(crate) fn open(address: SocketAddr, version: ProtocolVersion) -> Option<CrashConnection> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_nonblocking(true).expect("a socket");
        Some(CrashConnection { stream, version, came: Vec::new(), unsent: Vec::new() })
    }

    /// Encodes a packet, which the next `flush` sends.
    pub(crate) fn say(&mut self, packet: Packet<'_>) {
        packet.encode(self.version, &mut self.unsent);
    }

    /// Sends buffered packets. Returns false if the connection is closed.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(fault) => return fault.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Returns the packets received since the last call, and whether the connection is still open.
    pub(crate) fn listen(&mut self) -> (Vec<BrokerPacket>, bool) {
        let mut buffer = [0; 64 * 1024];
        let lives = match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                self.came.extend_from_slice(&buffer[..read]);
                true
            }
            Err(fault) => fault.kind() == ErrorKind::WouldBlock,
        };
        let mut heard = Vec::new();
        take(&mut self.came, &mut self.version, |packet, _| heard.extend(hear(packet)));
        (heard, lives)
    }
}

/// Removes the complete packets from `came`. `each` may change the protocol version, as CONNECT
/// does, for the packets that follow.
pub(crate) fn take(
    came: &mut Vec<u8>,
    version: &mut ProtocolVersion,
    mut each: impl FnMut(Packet<'_>, &mut ProtocolVersion),
) {
    let mut at = 0;
    while let Some(frame) = mqtt::split_frame(&came[at..], u32::MAX).expect("well formed") {
        at += frame.len;
        each(Packet::decode(frame, *version).expect("well formed"), version);
    }
    came.drain(..at);
}

pub(crate) fn hear(packet: Packet<'_>) -> Option<BrokerPacket> {
    let (kind, ack) = match packet {
        Packet::PubAck(ack) => (PacketType::PubAck, ack),
        Packet::PubRec(ack) => (PacketType::PubRec, ack),
        Packet::PubRel(ack) => (PacketType::PubRel, ack),
        Packet::PubComp(ack) => (PacketType::PubComp, ack),
        Packet::PingResp => return Some(BrokerPacket::Pong),
        Packet::SubAck(ack) => return Some(BrokerPacket::Subscribed { codes: ack.codes.to_vec() }),
        Packet::ConnAck(ack) => {
            return Some(BrokerPacket::Welcome {
                present: ack.session_present,
                reason: ack.reason,
            });
        }
        Packet::Publish(publish) => {
            return Some(BrokerPacket::Message {
                qos: publish.qos,
                retain: publish.retain,
                packet_id: publish.packet_id,
                topic: publish.topic.to_string(),
                payload: publish.payload.to_vec(),
            });
        }
        // A connection that is taken over or ends says so; then it is gone.
        Packet::Disconnect(_) => return None,
        other => panic!("a broker does not send {other:?}"),
    };
    Some(BrokerPacket::Ack { kind, packet_id: ack.packet_id, reason: ack.reason })
}
