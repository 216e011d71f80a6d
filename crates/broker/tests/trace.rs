//! The packet trace: selection of clients, and the traced packets.

use broker::options::{EventOptions, TraceFilter};
use broker::{
    BrokerEvent, BrokerOptions, ConnId, Interest, MonotonicMs, Outbox, PeerInfo, Shard, ShardId,
    ShardInput,
};
use mqtt::{
    Connect, Packet, Properties, PropertiesBuf, Property, ProtocolVersion, Publish, QoS, Subscribe,
    SubscribeOptions, SubscriptionListBuf,
};
use std::sync::Arc;

struct TraceBroker {
    shard: Shard,
    out: Outbox,
}

impl TraceBroker {
    fn tracing(trace: TraceFilter) -> TraceBroker {
        let noted = EventOptions { trace: Some(trace), ..EventOptions::default() };
        let options =
            BrokerOptions { event_options: noted, sys_interval_s: 0, ..BrokerOptions::default() };
        let (options, interest) = (Arc::new(options), Arc::new(Interest::new(7, 1)));
        let shard =
            Shard::new(ShardId(0), 1, options, interest, Arc::default(), 7, 8, MonotonicMs(0));
        TraceBroker { shard, out: Outbox::new(1) }
    }

    /// Passes received bytes to the shard. Returns the traced packets as lines.
    fn bytes(&mut self, conn: u32, bytes: &[u8]) -> Vec<String> {
        let input = ShardInput::Bytes { conn: ConnId(conn), bytes };
        self.shard.handle(MonotonicMs(1), input, &mut self.out);
        self.shard.trace_writes(&mut self.out);
        let notes = self.out.events.iter().filter_map(|event| match event {
            BrokerEvent::Traced { client_id, sent, packet, .. } => {
                let way = if *sent { '<' } else { '>' };
                Some(format!("{client_id}{way} {packet}"))
            }
            _ => None,
        });
        let notes = notes.collect();
        self.out.clear();
        notes
    }

    fn say(&mut self, conn: u32, packet: Packet<'_>) -> Vec<String> {
        let mut bytes = Vec::new();
        packet.encode(ProtocolVersion::V5, &mut bytes);
        self.bytes(conn, &bytes)
    }

    fn connect(&mut self, conn: u32, client_id: &str) -> Vec<String> {
        let peer = PeerInfo::from_address(([127, 0, 0, 1 + conn as u8], 1).into());
        let opened =
            ShardInput::Opened { conn: ConnId(conn), peer, since: MonotonicMs(0), moved: false };
        self.shard.handle(MonotonicMs(0), opened, &mut self.out);
        let mut properties = PropertiesBuf::default();
        properties.push(Property::TopicAliasMaximum(5));
        self.say(
            conn,
            Packet::Connect(Connect {
                is_bridge: false,
                version: ProtocolVersion::V5,
                clean_start: true,
                keep_alive_s: 0,
                client_id,
                will: None,
                user_name: None,
                password: None,
                properties: properties.as_properties(),
            }),
        )
    }

    fn subscribe(&mut self, conn: u32, filter: &str) -> Vec<String> {
        let mut filters = SubscriptionListBuf::default();
        filters.push(filter, SubscribeOptions::default());
        let (packet_id, properties) = (mqtt::PacketId::MIN, Properties::default());
        let filters = filters.as_subscriptions();
        self.say(conn, Packet::Subscribe(Subscribe { packet_id, properties, filters }))
    }

    fn publish(&mut self, conn: u32, topic: &str, alias: Option<u16>) -> Vec<String> {
        let mut properties = PropertiesBuf::default();
        if let Some(alias) = alias {
            properties.push(Property::TopicAlias(alias));
        }
        self.say(
            conn,
            Packet::Publish(Publish {
                dup: false,
                qos: QoS::AtMostOnce,
                retain: false,
                topic,
                packet_id: None,
                properties: properties.as_properties(),
                payload: b"x",
            }),
        )
    }
}

/// Returns direction and packet name of each line.
fn names(notes: &[String]) -> Vec<String> {
    notes.iter().map(|note| note.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_client_is_traced_from_its_connect_to_its_last_word() {
    let trace = TraceFilter { client_id: Some("seen".into()), ..TraceFilter::default() };
    let mut broker = TraceBroker::tracing(trace);
    assert_eq!(broker.connect(0, "unseen"), [""; 0]);
    assert_eq!(names(&broker.connect(1, "seen")), ["seen> CONNECT", "seen< CONNACK"]);
    assert_eq!(names(&broker.publish(1, "t", None)), ["seen> PUBLISH"]);
    assert_eq!(broker.publish(0, "t", None), [""; 0]);
    // Taken over: the DISCONNECT goes to a connection that the shard has let go of.
    let taken = broker.connect(2, "seen");
    assert!(taken.iter().any(|note| note.starts_with("seen< DISCONNECT")), "{taken:?}");
    // PUBLISH with both QoS bits set, and our answer.
    let bad = broker.bytes(2, &[0x36, 3, 0, 1, b't']);
    assert!(bad.len() == 2 && bad[0].contains("malformed"), "{bad:?}");
    assert!(bad[1].starts_with("seen< DISCONNECT"), "{bad:?}");
}

#[test]
fn a_refused_connect_is_traced_with_its_answer() {
    let trace = TraceFilter { client_id: Some("refused".into()), ..TraceFilter::default() };
    let mut broker = TraceBroker::tracing(trace);
    broker.shard.handle(
        MonotonicMs(0),
        ShardInput::Command(broker::ShardCommand::Drain),
        &mut broker.out,
    );
    assert_eq!(names(&broker.connect(0, "refused")), ["refused> CONNECT", "refused< CONNACK"]);
}

#[test]
fn a_topic_is_traced_behind_its_alias_and_nothing_else_is() {
    let trace = TraceFilter { topic: Some("a/#".into()), ..TraceFilter::default() };
    let mut broker = TraceBroker::tracing(trace);
    assert_eq!(broker.connect(0, "p"), [""; 0]);
    assert_eq!(broker.connect(1, "s"), [""; 0]);
    assert_eq!(broker.subscribe(1, "#"), [""; 0]);
    assert_eq!(broker.publish(0, "b/1", Some(1)), [""; 0]);
    assert_eq!(names(&broker.publish(0, "a/1", Some(2))), ["p> PUBLISH", "s< PUBLISH"]);
    for _ in 0..3 {
        let behind = broker.publish(0, "", Some(2));
        assert_eq!(names(&behind), ["p> PUBLISH", "s< PUBLISH"]);
        assert!(behind[0].ends_with("# \"a/1\""), "{behind:?}");
    }
    assert_eq!(broker.publish(0, "", Some(1)), [""; 0]);
}

#[test]
fn an_address_is_traced_and_no_other() {
    let address = Some([127, 0, 0, 2].into());
    let mut broker = TraceBroker::tracing(TraceFilter { address, ..TraceFilter::default() });
    assert_eq!(broker.connect(0, "other"), [""; 0]);
    assert_eq!(names(&broker.connect(1, "wanted")), ["wanted> CONNECT", "wanted< CONNACK"]);
}

#[test]
fn a_trace_that_begins_later_names_who_is_there() {
    let mut broker = TraceBroker::tracing(TraceFilter {
        client_id: Some("nobody".into()),
        ..TraceFilter::default()
    });
    assert_eq!(broker.connect(0, "there"), [""; 0]);
    let trace = TraceFilter { client_id: Some("there".into()), ..TraceFilter::default() };
    let noted = EventOptions { trace: Some(trace), ..EventOptions::default() };
    let options =
        BrokerOptions { event_options: noted, sys_interval_s: 0, ..BrokerOptions::default() };
    let reload = ShardInput::Command(broker::ShardCommand::Reload(Arc::new(options)));
    broker.shard.handle(MonotonicMs(1), reload, &mut broker.out);
    assert_eq!(names(&broker.bytes(0, &[0xc0, 0])), ["there> PINGREQ", "there< PINGRESP"]);
}
