//! Queues longer than their part in memory, with clients that read them in pieces.

use broker::message::Durability;
use broker::{BrokerOptions, RecordSpace};
use mqtt::ProtocolVersion;
use sim::packet_line;
use sim::world::{SimWorld, WireId};
use std::collections::VecDeque;

/// A simulated world with clients of MQTT 5.0.
struct LongQueueCrowd {
    world: SimWorld,
    clients: Vec<LongQueueClient>,
}

/// A client that acknowledges messages only when the test says so.
struct LongQueueClient {
    name: &'static str,
    wire: WireId,
    unread: Vec<u8>,
    /// Outstanding acknowledgements, oldest first.
    owed: VecDeque<String>,
    /// Payloads of the received messages.
    taken: Vec<String>,
}

impl LongQueueCrowd {
    fn new(options: BrokerOptions) -> LongQueueCrowd {
        LongQueueCrowd::with_shards(options, 1)
    }

    fn with_shards(options: BrokerOptions, shards: usize) -> LongQueueCrowd {
        let options = BrokerOptions { sys_interval_s: 0, ..options };
        let mut world = SimWorld::new(options, shards, 1, None);
        world.enable_disk();
        LongQueueCrowd { world, clients: Vec::new() }
    }

    /// Connects a client with a persistent session. Returns its index.
    fn connect(&mut self, name: &'static str) -> usize {
        let wire = self.world.open();
        let client = LongQueueClient {
            name,
            wire,
            unread: Vec::new(),
            owed: VecDeque::new(),
            taken: Vec::new(),
        };
        self.clients.push(client);
        let at = self.clients.len() - 1;
        self.say(at, &format!("CONNECT id={name} clean=0 expiry=6000"));
        at
    }

    /// Closes the client's connection. The session stays.
    fn leave(&mut self, at: usize) {
        self.world.cut(self.clients[at].wire);
    }

    fn come_back(&mut self, at: usize) -> usize {
        self.connect(self.clients[at].name)
    }

    fn say(&mut self, at: usize, packet: &str) {
        let bytes = packet_line::encode(packet, ProtocolVersion::V5).expect("a packet");
        self.world.write(self.clients[at].wire, &bytes);
        self.world.run_until_quiet();
        (0..self.clients.len()).for_each(|at| self.listen(at));
    }

    fn listen(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.unread.extend(self.world.read(client.wire));
        while let Some((line, len)) = packet_line::decode(&client.unread, ProtocolVersion::V5) {
            client.unread.drain(..len);
            let mut words = line.split(' ');
            let (kind, id) = (words.next(), words.next().unwrap_or_default());
            match kind {
                Some("PUBLISH") => {
                    client.taken.extend(line.rsplit('"').nth(1).map(String::from));
                    if line.contains(" qos=1") {
                        client.owed.push_back(format!("PUBACK {id}"));
                    } else if line.contains(" qos=2") {
                        client.owed.push_back(format!("PUBREC {id}"));
                    }
                }
                Some("PUBREL") => client.owed.push_back(format!("PUBCOMP {id}")),
                _ => {}
            }
        }
    }

    /// Sends up to `count` outstanding acknowledgements.
    fn acknowledge(&mut self, at: usize, count: usize) {
        for _ in 0..count {
            let Some(packet) = self.clients[at].owed.pop_front() else { return };
            self.say(at, &packet);
        }
    }

    fn publish(&mut self, at: usize, qos: u8, payload: &str) {
        self.say(at, &format!("PUBLISH 1 \"t\" qos={qos} \"{payload}\""));
        if qos == 2 {
            self.say(at, "PUBREL 1");
        }
    }

    /// Sends acknowledgements until no more messages arrive.
    fn drain(&mut self, at: usize) {
        while !self.clients[at].owed.is_empty() {
            self.acknowledge(at, usize::MAX);
            self.rest();
        }
    }

    /// Cuts the power of the simulated machine, and restarts the broker with this number of shards.
    fn cut_power(&mut self, shards: usize) {
        self.world.cut_power(shards);
        self.world.run_until_quiet();
    }

    /// Advances the time by a second, so that lazy records are written, and reads all connections.
    fn rest(&mut self) {
        self.world.advance(1_000);
        (0..self.clients.len()).for_each(|at| self.listen(at));
    }
}

#[test]
fn a_lazy_message_of_qos_2_behind_a_long_front_is_sent() {
    let mut crowd = LongQueueCrowd::new(BrokerOptions {
        durability: Durability::Lazy,
        ..BrokerOptions::default()
    });
    let away = crowd.connect("away");
    crowd.say(away, "SUBSCRIBE 1 \"t\" qos=2");
    crowd.leave(away);
    let publisher = crowd.connect("publisher");
    let published: Vec<String> = (0..1_500).map(|number| number.to_string()).collect();
    published.iter().for_each(|payload| crowd.publish(publisher, 2, payload));
    crowd.rest();
    let away = crowd.come_back(away);
    crowd.drain(away);
    assert_eq!(crowd.clients[away].taken, published);
}

/// A large message in several queues is stored once, but counts in full against the bytes of each
/// queue.
#[test]
fn a_queue_that_is_read_as_fast_as_it_grows_does_not_fill_up() {
    let padding = "x".repeat(300);
    let bytes_max = 1_400 * 400;
    let queue =
        BrokerOptions { queue_bytes_max: bytes_max, inflight_max: 10, ..BrokerOptions::default() };
    let mut crowd = LongQueueCrowd::new(queue);
    let publisher = crowd.connect("publisher");
    let names = ["a", "b", "c", "d", "e", "f"];
    let readers = names.map(|name| crowd.connect(name));
    readers.iter().for_each(|at| crowd.say(*at, "SUBSCRIBE 1 \"t\" qos=1"));
    let mut published = Vec::new();
    let publish = |crowd: &mut LongQueueCrowd, published: &mut Vec<String>| {
        let payload = format!("{}-{padding}", published.len());
        crowd.publish(publisher, 1, &payload);
        published.push(payload);
    };
    (0..1_300).for_each(|_| publish(&mut crowd, &mut published));
    for _ in 0..3_000 {
        publish(&mut crowd, &mut published);
        readers.iter().for_each(|at| crowd.acknowledge(*at, 1));
    }
    for at in readers {
        crowd.acknowledge(at, usize::MAX);
        let taken = &crowd.clients[at].taken;
        assert_eq!(taken.len(), published.len());
        assert_eq!(taken, &published);
    }
}

/// The member of a shared group disconnects, returns, and receives all messages in order, with and
/// without a power cut in between.
#[test]
fn the_long_queue_of_a_group_is_read_as_its_member_takes_it() {
    for (shards, has_cut, qos) in [(1, false, 1), (1, true, 2), (3, false, 2), (3, true, 1)] {
        let mut crowd = LongQueueCrowd::with_shards(BrokerOptions::default(), shards);
        let away = crowd.connect("away");
        crowd.say(away, "SUBSCRIBE 1 \"$share/g/t\" qos=2");
        crowd.leave(away);
        let publisher = crowd.connect("publisher");
        let published: Vec<String> = (0..3_000).map(|number| number.to_string()).collect();
        let (before, after) = published.split_at(2_900);
        before.iter().for_each(|payload| crowd.publish(publisher, qos, payload));
        let mut publisher = publisher;
        if has_cut {
            crowd.cut_power(shards);
            publisher = crowd.come_back(publisher);
        }
        let back = crowd.come_back(away);
        crowd.acknowledge(back, 100);
        after.iter().for_each(|payload| crowd.publish(publisher, qos, payload));
        crowd.rest();
        crowd.drain(back);
        let taken = &crowd.clients[back].taken;
        assert_eq!(taken.len(), published.len(), "{shards} shards, cut {has_cut}, QoS {qos}");
        assert_eq!(taken, &published);
        let queues = crowd.world.disk().expect("it has one").keys(RecordSpace::Queues).count();
        assert_eq!(queues, 0, "{shards} shards, cut {has_cut}, QoS {qos}");
    }
}

/// The oldest messages of the queue are dropped, both in memory and in the store.
#[test]
fn a_full_group_drops_its_oldest() {
    let bounds = BrokerOptions { queue_messages_max: 2_000, ..BrokerOptions::default() };
    let mut crowd = LongQueueCrowd::new(bounds);
    let away = crowd.connect("away");
    crowd.say(away, "SUBSCRIBE 1 \"$share/g/t\" qos=1");
    crowd.leave(away);
    let publisher = crowd.connect("publisher");
    let published: Vec<String> = (0..6_000).map(|number| number.to_string()).collect();
    published.iter().for_each(|payload| crowd.publish(publisher, 1, payload));
    let back = crowd.come_back(away);
    crowd.drain(back);
    assert_eq!(crowd.clients[back].taken, published[4_000..]);
}
