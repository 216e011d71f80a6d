//! A blocking MQTT client for tests, and functions that start a server.
#![allow(dead_code, reason = "each test program uses a part of it")]

use broker::{BrokerEvent, BrokerOptions};
use engine::{AuthHandler, Server, ServerOptions, StoreLocation};
use mqtt::client::{ClientSession, success_ack};
use mqtt::{
    Connect, Packet, PacketId, Properties, PropertiesBuf, Property, ProtocolVersion, Publish, QoS,
    Subscribe, SubscribeOptions, SubscriptionListBuf,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn serve(shards: usize, options: BrokerOptions) -> (Server, SocketAddr) {
    serve_from(shards, options, None)
}

pub(crate) fn serve_from(
    shards: usize,
    options: BrokerOptions,
    store: Option<StoreLocation>,
) -> (Server, SocketAddr) {
    serve_noting(shards, options, store, |_| {})
}

pub(crate) fn serve_noting(
    shards: usize,
    options: BrokerOptions,
    store: Option<StoreLocation>,
    log: impl Fn(&BrokerEvent) + Send + Sync + 'static,
) -> (Server, SocketAddr) {
    serve_as(|listener| ServerOptions {
        auth_handler: None,
        authz_handler: None,
        listeners: vec![listener.into()],
        shards,
        io_uring: true,
        descriptors_reserved: 0,
        options: Arc::new(options),
        seed: 7,
        store,
        log: Box::new(log),
    })
}

pub(crate) fn serve_asking(
    shards: usize,
    options: BrokerOptions,
    judge: AuthHandler,
) -> (Server, SocketAddr) {
    serve_as(|listener| ServerOptions {
        auth_handler: Some(judge),
        authz_handler: None,
        listeners: vec![listener.into()],
        shards,
        io_uring: true,
        descriptors_reserved: 0,
        options: Arc::new(options),
        seed: 7,
        store: None,
        log: Box::new(|_| {}),
    })
}

fn serve_as(setup: impl FnOnce(TcpListener) -> ServerOptions) -> (Server, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = Server::start(setup(listener)).expect("it starts");
    server.open_listeners().expect("it listens");
    (server, address)
}

pub(crate) struct EngineTestClient {
    pub(crate) stream: TcpStream,
    bytes: Vec<u8>,
}

impl EngineTestClient {
    pub(crate) fn connect(address: SocketAddr, id: &str) -> EngineTestClient {
        EngineTestClient::connect_with(address, id, u16::MAX)
    }

    pub(crate) fn connect_with(
        address: SocketAddr,
        id: &str,
        receive_maximum: u16,
    ) -> EngineTestClient {
        EngineTestClient::open(address, id, true, &[Property::ReceiveMaximum(receive_maximum)])
    }

    /// Connects with a session that survives the connection.
    pub(crate) fn connect_to_stay(address: SocketAddr, id: &str) -> EngineTestClient {
        EngineTestClient::open(address, id, false, &[Property::SessionExpiryInterval(3600)])
    }

    fn open(
        address: SocketAddr,
        id: &str,
        clean_start: bool,
        given: &[Property<'_>],
    ) -> EngineTestClient {
        let mut properties = PropertiesBuf::default();
        for property in given {
            properties.push(*property);
        }
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut client = EngineTestClient { stream, bytes: Vec::new() };
        let connect = Connect {
            is_bridge: false,
            version: ProtocolVersion::V5,
            clean_start,
            keep_alive_s: 0,
            client_id: id,
            will: None,
            user_name: None,
            password: None,
            properties: properties.as_properties(),
        };
        let mut session = ClientSession::<()>::default();
        session.connect(&connect);
        client.send(Packet::Connect(connect));
        client.read(|packet| {
            let Packet::ConnAck(connack) = packet else { panic!("unexpected: {packet:?}") };
            session.on_connack(&connack).expect("it is let in");
            true
        });
        assert!(session.is_connected());
        client
    }

    pub(crate) fn send(&mut self, packet: Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(ProtocolVersion::V5, &mut bytes);
        self.stream.write_all(&bytes).expect("the broker reads");
    }

    /// Passes each packet to `visit` until `visit` returns true. Returns false if the stream ends
    /// before.
    pub(crate) fn read(&mut self, mut visit: impl FnMut(Packet<'_>) -> bool) -> bool {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let mut at = 0;
            while let Some(frame) =
                mqtt::split_frame(&self.bytes[at..], u32::MAX).expect("well formed")
            {
                at += frame.len;
                let packet = Packet::decode(frame, ProtocolVersion::V5).expect("well formed");
                if visit(packet) {
                    self.bytes.drain(..at);
                    return true;
                }
            }
            self.bytes.drain(..at);
            let read = self.stream.read(&mut buffer).expect("something comes in time");
            if read == 0 {
                return false;
            }
            self.bytes.extend_from_slice(&buffer[..read]);
        }
    }

    pub(crate) fn expect(&mut self, is: impl Fn(Packet<'_>) -> bool) {
        assert!(self.read(|packet| {
            assert!(is(packet), "unexpected: {packet:?}");
            true
        }));
    }

    pub(crate) fn subscribe(&mut self, filter: &str, qos: QoS) {
        let mut filters = SubscriptionListBuf::default();
        filters.push(filter, SubscribeOptions { qos, ..Default::default() });
        let (packet_id, properties) = (PacketId::MIN, Properties::default());
        let filters = filters.as_subscriptions();
        self.send(Packet::Subscribe(Subscribe { packet_id, properties, filters }));
        self.expect(|packet| matches!(packet, Packet::SubAck(_)));
    }

    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], packet_id: Option<PacketId>) {
        let qos = if packet_id.is_some() { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        let properties = Properties::default();
        let (dup, retain) = (false, false);
        self.send(Packet::Publish(Publish {
            dup,
            qos,
            retain,
            topic,
            packet_id,
            properties,
            payload,
        }));
    }

    pub(crate) fn puback(&mut self, packet_id: PacketId) {
        self.send(Packet::PubAck(success_ack(packet_id)));
    }
}
