//! The engine with real sockets: errors that only threads, rings and partial writes can cause.

mod client;

use broker::BrokerOptions;
use client::{EngineTestClient, serve};
use engine::{Server, ServerFault, ServerOptions};
use mqtt::{Packet, PacketId, Properties, ProtocolVersion, Publish, QoS, ReasonCode};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn what_is_published_after_suback_arrives_whatever_the_shards() {
    let (server, address) = serve(4, BrokerOptions::default());
    for round in 0..100 {
        let mut subscriber = EngineTestClient::connect(address, &format!("s{round}"));
        let mut publisher = EngineTestClient::connect(address, &format!("p{round}"));
        let filters = ["t/#", "t/+/x", "t/1/x", "+/1/+"];
        subscriber.subscribe(filters[round % filters.len()], QoS::AtMostOnce);
        publisher.publish("t/1/x", b"here", None);
        subscriber.expect(
            |packet| matches!(packet, Packet::Publish(publish) if publish.payload == b"here"),
        );
    }
    server.stop().expect("it stops");
}

#[test]
fn the_last_of_all_listeners_serves_and_one_more_is_refused() {
    let most = broker::limits::LISTENERS_MAX;
    let listeners = |many: usize| {
        let free = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        (0..many).map(|_| free()).collect::<Vec<_>>()
    };
    let setup = |listeners: Vec<TcpListener>| ServerOptions {
        auth_handler: None,
        authz_handler: None,
        listeners: listeners.into_iter().map(Into::into).collect(),
        shards: 64,
        io_uring: true,
        descriptors_reserved: 0,
        options: Arc::new(BrokerOptions::default()),
        seed: 7,
        store: None,
        log: Box::new(|_| {}),
    };
    let refused = Server::start(setup(listeners(most + 1)));
    assert!(matches!(refused, Err(ServerFault::TooManyListeners(65))), "{refused:?}");
    let all = listeners(most);
    let addresses = all.iter().map(|listener| listener.local_addr().expect("it is bound"));
    let addresses: Vec<SocketAddr> = addresses.collect();
    let server = Server::start(setup(all)).expect("it starts");
    server.open_listeners().expect("it listens");
    for (at, address) in addresses.into_iter().enumerate() {
        EngineTestClient::connect(address, &format!("client{at}"));
    }
    server.stop().expect("it stops");
}

#[test]
fn the_end_of_a_stream_is_found_however_much_came_before_it() {
    let (server, address) = serve(1, BrokerOptions::default());
    let pings = b"\xc0\0".repeat(500_000);
    for round in 0..20 {
        let mut client = EngineTestClient::connect(address, &format!("brief{round}")).stream;
        let mut reader = client.try_clone().expect("a socket");
        reader.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        let answers = thread::spawn(move || reader.read_to_end(&mut Vec::new()));
        client.write_all(&pings).expect("it reads");
        client.shutdown(Shutdown::Write).expect("a socket");
        let answers = answers.join().expect("it reads");
        assert!(answers.is_ok(), "round {round}: the broker has not noticed: {answers:?}");
    }
    server.stop().expect("it stops");
}

/// Publishes numbered QoS 1 messages, with at most 500 unacknowledged ones.
fn flood(address: SocketAddr, id: usize, messages: u32) {
    let mut client = EngineTestClient::connect(address, &format!("flood{id}"));
    let (mut sent, mut acknowledged) = (0_u32, 0_u32);
    let window = 500;
    while acknowledged < messages {
        while sent < messages && sent - acknowledged < window {
            let packet_id = PacketId::new((sent % 60_000) as u16 + 1);
            client.publish(&format!("flood/{id}"), &sent.to_be_bytes(), packet_id);
            sent += 1;
        }
        assert!(client.read(|packet| {
            assert!(matches!(packet, Packet::PubAck(_)), "{packet:?}");
            acknowledged += 1;
            acknowledged == sent || sent - acknowledged < window / 2
        }));
    }
}

// [MQTT-7.1.1-1] [MQTT-4.2-1]
#[test]
fn a_flood_between_shards_loses_nothing_and_keeps_its_order() {
    const PUBLISHERS: usize = 4;
    const MESSAGES: u32 = 20_000;
    // Acknowledged as fast as they come: what the subscribers have not read yet has to wait.
    let options = BrokerOptions { queue_messages_max: 1_000_000, ..BrokerOptions::default() };
    let (server, address) = serve(3, options);
    let subscribers: Vec<_> = (0..4)
        .map(|at| {
            let mut client = EngineTestClient::connect(address, &format!("sink{at}"));
            client.subscribe("flood/#", QoS::AtLeastOnce);
            std::thread::spawn(move || {
                let mut next: HashMap<String, u32> = HashMap::new();
                let mut left = PUBLISHERS as u32 * MESSAGES;
                while left > 0 {
                    let mut ids = Vec::new();
                    assert!(client.read(|packet| {
                        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
                        let number = u32::from_be_bytes(publish.payload.try_into().expect("4"));
                        let expected = next.entry(publish.topic.to_owned()).or_default();
                        assert_eq!(number, *expected, "{}", publish.topic);
                        *expected += 1;
                        left -= 1;
                        ids.extend(publish.packet_id);
                        left == 0 || ids.len() == 200
                    }));
                    ids.into_iter().for_each(|id| client.puback(id));
                }
            })
        })
        .collect();
    let floods: Vec<_> = (0..PUBLISHERS)
        .map(|id| std::thread::spawn(move || flood(address, id, MESSAGES)))
        .collect();
    for thread in floods.into_iter().chain(subscribers) {
        thread.join().expect("nothing lost, nothing out of order");
    }
    server.stop().expect("it stops");
}

#[test]
fn a_subscriber_that_does_not_read_costs_only_its_own_queue() {
    let options = BrokerOptions {
        queue_messages_max: 100,
        write_bytes_max: 64 * 1024,
        ..BrokerOptions::default()
    };
    let (server, address) = serve(1, options);
    let mut stalled = EngineTestClient::connect(address, "stalled");
    stalled.subscribe("big", QoS::AtMostOnce);
    let mut healthy = EngineTestClient::connect(address, "healthy");
    healthy.subscribe("big", QoS::AtMostOnce);
    let mut publisher = EngineTestClient::connect(address, "publisher");
    let payload = vec![b'x'; 64 * 1024];
    for round in 0..400 {
        publisher.publish("big", &payload, None);
        let began = Instant::now();
        healthy.expect(|packet| matches!(packet, Packet::Publish(_)));
        assert!(began.elapsed() < Duration::from_secs(2), "round {round}");
    }
    // What its socket and its queue held still comes, the last message included.
    publisher.publish("big", b"last", None);
    let mut count = 0;
    assert!(stalled.read(|packet| {
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        count += 1;
        publish.payload == b"last"
    }));
    assert!((100..400).contains(&count), "{count} of 401");
    server.stop().expect("it stops");
}

#[test]
fn a_packet_in_many_pieces_is_one_packet() {
    let (server, address) = serve(2, BrokerOptions::default());
    let mut subscriber = EngineTestClient::connect(address, "subscriber");
    subscriber.subscribe("pieces", QoS::AtLeastOnce);
    let mut publisher = EngineTestClient::connect(address, "publisher");
    let payload: Vec<u8> = (0..1_500_000_u32).map(|at| (at / 7) as u8).collect();
    let mut bytes = Vec::new();
    let publish = Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: "pieces",
        packet_id: PacketId::new(9),
        properties: Properties::default(),
        payload: &payload,
    };
    Packet::Publish(publish).encode(ProtocolVersion::V5, &mut bytes);
    Packet::PingReq.encode(ProtocolVersion::V5, &mut bytes);
    let (head, rest) = bytes.split_at(3);
    let (one, rest) = rest.split_at(20_000);
    for piece in head.chunks(1).chain([one]).chain(rest.chunks(300_000)) {
        publisher.stream.write_all(piece).expect("the broker reads");
    }
    publisher.expect(|packet| matches!(packet, Packet::PubAck(ack) if ack.packet_id.get() == 9));
    publisher.expect(|packet| matches!(packet, Packet::PingResp));
    subscriber
        .expect(|packet| matches!(packet, Packet::Publish(publish) if publish.payload == payload));
    server.stop().expect("it stops");
}

#[test]
fn stopping_says_so_and_publishes_wills() {
    let (server, address) = serve(2, BrokerOptions::default());
    let mut clients: Vec<EngineTestClient> =
        (0..10).map(|at| EngineTestClient::connect(address, &format!("c{at}"))).collect();
    let stopping = std::thread::spawn(move || server.stop());
    for client in &mut clients {
        client.expect(|packet| {
            let Packet::Disconnect(disconnect) = packet else { return false };
            disconnect.reason == ReasonCode::ServerShuttingDown
        });
        assert!(!client.read(|_| true), "nothing after DISCONNECT");
    }
    stopping.join().expect("no panic").expect("it stops");
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

/// Clients connect and disconnect while messages cross the shards. Effects for an earlier
/// connection must not reach a later one with the same index.
#[test]
fn connections_that_come_and_go_get_nothing_of_each_other() {
    let (server, address) = serve(2, BrokerOptions::default());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let noise: Vec<_> = (0..2)
        .map(|at| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut publisher = EngineTestClient::connect(address, &format!("noise{at}"));
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for _ in 0..200 {
                        publisher.publish("noise", &[b'n'; 200], None);
                    }
                    publisher.send(Packet::PingReq);
                    publisher.expect(|packet| matches!(packet, Packet::PingResp));
                }
            })
        })
        .collect();
    for round in 0..300 {
        let mut listener = EngineTestClient::connect(address, &format!("listener{round}"));
        listener.subscribe("noise", QoS::AtMostOnce);
        // Gone with deliveries on their way; the next one comes at the same time.
        listener.send(Packet::PingReq);
        drop(listener);
        let mut quiet = EngineTestClient::connect(address, &format!("quiet{round}"));
        quiet.subscribe("quiet", QoS::AtMostOnce);
        quiet.send(Packet::PingReq);
        quiet.expect(|packet| matches!(packet, Packet::PingResp));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    noise.into_iter().for_each(|thread| thread.join().expect("it goes on"));
    server.stop().expect("it stops");
}

/// The server still reads from a client that does not read, so PINGREQ keeps the connection alive.
#[test]
fn a_client_that_does_not_read_is_still_heard() {
    let options = BrokerOptions { write_bytes_max: 64 * 1024, ..BrokerOptions::default() };
    let (server, address) = serve(1, options);
    let mut stalled = EngineTestClient::connect(address, "stalled");
    stalled.subscribe("big", QoS::AtMostOnce);
    let mut publisher = EngineTestClient::connect(address, "publisher");
    publisher.subscribe("heard", QoS::AtMostOnce);
    let payload = vec![b'x'; 256 * 1024];
    for _ in 0..100 {
        publisher.publish("big", &payload, None);
        publisher.send(Packet::PingReq);
        publisher.expect(|packet| matches!(packet, Packet::PingResp));
    }
    stalled.publish("heard", b"still here", None);
    publisher.expect(
        |packet| matches!(packet, Packet::Publish(publish) if publish.payload == b"still here"),
    );
    server.stop().expect("it stops");
}

/// Writes to a closed connection fail. The server must still read all packets that the client sent
/// before.
#[test]
fn who_goes_without_reading_is_heard_to_the_end() {
    let options = BrokerOptions { write_bytes_max: 64 * 1024, ..BrokerOptions::default() };
    let (server, address) = serve(1, options);
    let mut other = EngineTestClient::connect(address, "other");
    other.subscribe("words", QoS::AtMostOnce);
    let payload = vec![b'x'; 256 * 1024];
    for round in 0..20_u32 {
        let mut stalled = EngineTestClient::connect(address, "stalled");
        stalled.subscribe("big", QoS::AtMostOnce);
        for _ in 0..40 {
            other.publish("big", &payload, None);
            other.send(Packet::PingReq);
            other.expect(|packet| matches!(packet, Packet::PingResp));
        }
        stalled.publish("words", &round.to_be_bytes(), None);
        drop(stalled);
        other.expect(|packet| {
            matches!(packet, Packet::Publish(publish) if publish.payload == round.to_be_bytes())
        });
    }
    server.stop().expect("it stops");
}

/// A member with a full window gets no message while another member has room, also if the two are
/// on different shards.
#[test]
fn a_burst_to_a_group_goes_to_the_member_with_room() {
    const MESSAGES: usize = 300;
    let (server, address) = serve(2, BrokerOptions::default());
    // So many groups that some are owned by the publisher's shard and some are not.
    for group in 0..6 {
        let mut stuck = EngineTestClient::connect_with(address, &format!("stuck{group}"), 1);
        let mut healthy =
            EngineTestClient::connect_with(address, &format!("healthy{group}"), u16::MAX);
        let filter = format!("$share/g{group}/burst/{group}");
        stuck.subscribe(&filter, QoS::AtLeastOnce);
        healthy.subscribe(&filter, QoS::AtLeastOnce);
        let mut publisher = EngineTestClient::connect(address, &format!("burst{group}"));
        for at in 0..MESSAGES {
            let packet_id = PacketId::new(at as u16 + 1);
            publisher.publish(&format!("burst/{group}"), b"m", packet_id);
        }
        // One stays with the member that acknowledges nothing.
        let mut got = 0;
        while got < MESSAGES - 1 {
            let mut ids = Vec::new();
            assert!(healthy.read(|packet| {
                let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
                ids.extend(publish.packet_id);
                got += 1;
                true
            }));
            ids.into_iter().for_each(|id| healthy.puback(id));
        }
    }
    server.stop().expect("it stops");
}
