//! The packet trace: who is traced, and what.

use broker::options::{Noted, Trace};
use broker::{ConnId, Input, Interest, Note, Now, Options, Outbox, Peer, Shard, ShardId};
use mqtt::{
    Connect, Packet, Properties, PropertiesBuf, Property, Publish, QoS, Subscribe,
    SubscribeOptions, SubscriptionsBuf, Version,
};
use std::sync::Arc;

struct Broker {
    shard: Shard,
    out: Outbox,
}

impl Broker {
    fn tracing(trace: Trace) -> Broker {
        let noted = Noted { trace: Some(trace), ..Noted::default() };
        let options = Options { noted, sys_interval_s: 0, ..Options::default() };
        let (options, interest) = (Arc::new(options), Arc::new(Interest::new(7, 1)));
        let shard = Shard::new(ShardId(0), 1, options, interest, Arc::default(), 7, 8, Now(0));
        Broker { shard, out: Outbox::new(1) }
    }

    /// What is traced while a connection sends so many bytes, as the engine would have it.
    fn bytes(&mut self, conn: u32, bytes: &[u8]) -> Vec<String> {
        let input = Input::Bytes { conn: ConnId(conn), bytes };
        self.shard.handle(Now(1), input, &mut self.out);
        self.shard.trace_writes(&mut self.out);
        let notes = self.out.notes.iter().filter_map(|note| match note {
            Note::Traced { client_id, sent, packet, .. } => {
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
        packet.encode(Version::V5, &mut bytes);
        self.bytes(conn, &bytes)
    }

    fn connect(&mut self, conn: u32, client_id: &str) -> Vec<String> {
        let peer = Peer::at(([127, 0, 0, 1 + conn as u8], 1).into());
        let opened = Input::Opened { conn: ConnId(conn), peer, since: Now(0), moved: false };
        self.shard.handle(Now(0), opened, &mut self.out);
        let mut properties = PropertiesBuf::default();
        properties.push(Property::TopicAliasMaximum(5));
        self.say(
            conn,
            Packet::Connect(Connect {
                is_bridge: false,
                version: Version::V5,
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
        let mut filters = SubscriptionsBuf::default();
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

/// The way and the name of each packet.
fn names(notes: &[String]) -> Vec<String> {
    notes.iter().map(|note| note.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_client_is_traced_from_its_connect_to_its_last_word() {
    let trace = Trace { client_id: Some("seen".into()), ..Trace::default() };
    let mut broker = Broker::tracing(trace);
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
    let trace = Trace { client_id: Some("refused".into()), ..Trace::default() };
    let mut broker = Broker::tracing(trace);
    broker.shard.handle(Now(0), Input::Command(broker::Command::Drain), &mut broker.out);
    assert_eq!(names(&broker.connect(0, "refused")), ["refused> CONNECT", "refused< CONNACK"]);
}

#[test]
fn a_topic_is_traced_behind_its_alias_and_nothing_else_is() {
    let trace = Trace { topic: Some("a/#".into()), ..Trace::default() };
    let mut broker = Broker::tracing(trace);
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
    let mut broker = Broker::tracing(Trace { address, ..Trace::default() });
    assert_eq!(broker.connect(0, "other"), [""; 0]);
    assert_eq!(names(&broker.connect(1, "wanted")), ["wanted> CONNECT", "wanted< CONNACK"]);
}

#[test]
fn a_trace_that_begins_later_names_who_is_there() {
    let mut broker =
        Broker::tracing(Trace { client_id: Some("nobody".into()), ..Trace::default() });
    assert_eq!(broker.connect(0, "there"), [""; 0]);
    let trace = Trace { client_id: Some("there".into()), ..Trace::default() };
    let noted = Noted { trace: Some(trace), ..Noted::default() };
    let options = Options { noted, sys_interval_s: 0, ..Options::default() };
    let reload = Input::Command(broker::Command::Reload(Arc::new(options)));
    broker.shard.handle(Now(1), reload, &mut broker.out);
    assert_eq!(names(&broker.bytes(0, &[0xc0, 0])), ["there> PINGREQ", "there< PINGRESP"]);
}
