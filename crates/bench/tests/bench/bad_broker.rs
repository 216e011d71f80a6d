//! A broker with one injected fault, which counts the occurrences. The report must contain the same
//! count.

use mqtt::{
    ConnAck, Connect, PacketFrame, PacketType, Properties, ProtocolVersion, Publish, PublishAck,
    QoS, ReasonCode, SubAck, Subscribe, SubscribeOptions, filter_matches,
};
use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A fault of the broker. `Every(n)` is every n-th delivery of a topic to a subscriber, connection
/// or PUBACK; `At(n)` is the n-th delivery of a topic to a subscriber, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum InjectedFault {
    None,
    DropEvery(u64),
    DuplicateEvery(u64),
    /// Delivers every n-th message behind its successor.
    ReorderEvery(u64),
    DelayMs(u64),
    /// Delays once, before the delivery with the first number, by the second number in
    /// milliseconds.
    StallMs(u64, u64),
    /// Closes all connections and the listener after this number of deliveries.
    DieAfter(u64),
    /// Refuses every n-th connection.
    RefuseEvery(u64),
    RefuseSubscriptions,
    /// Omits every n-th PUBACK.
    ForgetAckEvery(u64),
    /// Closes the subscriber's connection once, before this delivery.
    CutAt(u64),
    /// Sends an invalid packet once, in place of this delivery.
    GarbageAt(u64),
}

#[derive(Clone)]
pub(crate) struct BadBroker {
    pub(crate) address: SocketAddr,
    world: Arc<Mutex<BadBrokerState>>,
}

struct BadBrokerState {
    fault: InjectedFault,
    connections: u64,
    deliveries: u64,
    acks: u64,
    /// Number of injected faults so far.
    injected: u64,
    is_dead: bool,
    /// Number of messages by topic, which selects the member of a shared subscription.
    turns: HashMap<String, usize>,
    greetings: Vec<String>,
    messages: Vec<String>,
    /// Number of CONNECTs before the first message.
    greeted_first: usize,
    peers: BTreeSet<String>,
    all: Vec<TcpStream>,
    subscribers: Vec<BadBrokerSubscriber>,
}

struct BadBrokerSubscriber {
    id: String,
    stream: TcpStream,
    version: ProtocolVersion,
    filters: Vec<(String, SubscribeOptions)>,
    packet_id: u16,
    /// By topic: the number of deliveries, and a packet that waits for its successor.
    topics: HashMap<String, (u64, Option<Vec<u8>>)>,
}

impl BadBroker {
    pub(crate) fn start(fault: InjectedFault) -> BadBroker {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let world = BadBrokerState {
            fault,
            connections: 0,
            deliveries: 0,
            acks: 0,
            injected: 0,
            is_dead: false,
            turns: HashMap::new(),
            peers: BTreeSet::new(),
            greetings: Vec::new(),
            messages: Vec::new(),
            greeted_first: 0,
            all: Vec::new(),
            subscribers: Vec::new(),
        };
        let broker = BadBroker { address, world: Arc::new(Mutex::new(world)) };
        let accepting = broker.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.world().is_dead {
                    return;
                }
                let broker = accepting.clone();
                thread::spawn(move || broker.serve(stream));
            }
        });
        broker
    }

    pub(crate) fn injected(&self) -> u64 {
        self.world().injected
    }

    /// Returns each received CONNECT as text.
    pub(crate) fn greetings(&self) -> Vec<String> {
        self.world().greetings.clone()
    }

    /// Returns the first received PUBLISHes as text.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.world().messages.clone()
    }

    pub(crate) fn greeted_first(&self) -> usize {
        self.world().greeted_first
    }

    /// Returns the addresses of the clients, without duplicates.
    pub(crate) fn peers(&self) -> Vec<String> {
        self.world().peers.iter().cloned().collect()
    }

    pub(crate) fn deliveries(&self) -> u64 {
        self.world().deliveries
    }

    fn world(&self) -> MutexGuard<'_, BadBrokerState> {
        self.world.lock().expect("no thread of it panics")
    }

    /// Serves a connection to its end.
    fn serve(&self, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let (mut bytes, mut id, mut version) = (Vec::new(), String::new(), ProtocolVersion::V311);
        let mut buffer = [0; 65_536];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..read]);
            let mut used = 0;
            while let Ok(Some(frame)) = mqtt::split_frame(&bytes[used..], u32::MAX) {
                used += frame.len;
                if self.packet(&mut stream, frame, &mut id, &mut version).is_none() {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
            bytes.drain(..used);
        }
        self.world().subscribers.retain(|subscriber| subscriber.id != id);
    }

    /// Handles a packet. Returns `None` to close the connection.
    fn packet(
        &self,
        stream: &mut TcpStream,
        frame: PacketFrame<'_>,
        id: &mut String,
        version: &mut ProtocolVersion,
    ) -> Option<()> {
        let mut out = Vec::new();
        match PacketType::from_byte(frame.first)? {
            PacketType::Connect => {
                let connect = Connect::decode(frame).ok()?;
                (*id, *version) = (connect.client_id.into(), connect.version);
                let reason = self.world().welcome(stream.try_clone().ok()?);
                self.world().greetings.push(in_words(&connect));
                let properties = Properties::default();
                ConnAck { session_present: false, reason, properties }.encode(*version, &mut out);
                if reason.is_error() {
                    let _ = stream.write_all(&out);
                    return None;
                }
            }
            PacketType::Subscribe => {
                let subscribe = Subscribe::decode(frame, *version).ok()?;
                let code = self.world().subscribe(stream, id, *version, &subscribe);
                let codes = vec![code; subscribe.filters.len()];
                let (packet_id, properties) = (subscribe.packet_id, Properties::default());
                SubAck { packet_id, properties, codes: &codes }.encode(*version, &mut out);
            }
            PacketType::Publish => {
                let publish = Publish::decode(frame, *version).ok()?;
                let answers = self.world().publish(&publish);
                if let Some(packet_id) = publish.packet_id.filter(|_| answers) {
                    let (reason, properties) = (ReasonCode::Success, Properties::default());
                    let ack = PublishAck { packet_id, reason, properties };
                    ack.encode(PacketType::PubAck, *version, &mut out);
                }
            }
            PacketType::PingReq => out.extend_from_slice(&mqtt::PINGRESP),
            PacketType::Disconnect => return None,
            _ => {}
        }
        stream.write_all(&out).ok()
    }
}

impl BadBrokerState {
    fn welcome(&mut self, stream: TcpStream) -> ReasonCode {
        self.connections += 1;
        self.peers.extend(stream.peer_addr().map(|peer| peer.ip().to_string()));
        self.all.push(stream);
        match self.fault {
            InjectedFault::RefuseEvery(n) if self.connections.is_multiple_of(n) => {
                self.injected += 1;
                ReasonCode::NotAuthorized
            }
            _ => ReasonCode::Success,
        }
    }

    fn subscribe(
        &mut self,
        stream: &TcpStream,
        id: &str,
        version: ProtocolVersion,
        subscribe: &Subscribe<'_>,
    ) -> u8 {
        if self.fault == InjectedFault::RefuseSubscriptions {
            self.injected += 1;
            return 0x80;
        }
        let filters = subscribe.filters.iter().map(|(filter, options)| (filter.into(), options));
        self.subscribers.push(BadBrokerSubscriber {
            id: id.into(),
            stream: stream.try_clone().expect("a descriptor is left"),
            version,
            filters: filters.collect(),
            packet_id: 0,
            topics: HashMap::new(),
        });
        subscribe.filters.iter().next().map_or(0, |(_, options)| options.qos as u8)
    }

    /// Delivers a message. Returns whether the publisher gets an acknowledgement.
    fn publish(&mut self, publish: &Publish<'_>) -> bool {
        if let InjectedFault::DelayMs(ms) = self.fault {
            thread::sleep(Duration::from_millis(ms));
        }
        *self.turns.entry(publish.topic.into()).or_default() += 1;
        if self.messages.is_empty() {
            self.greeted_first = self.greetings.len();
        }
        if self.messages.len() < MESSAGES_KEPT {
            let (qos, retain) = (publish.qos as u8, publish.retain);
            let text = String::from_utf8_lossy(publish.payload);
            self.messages.push(format!("{} qos={qos} retain={retain} {text}", publish.topic));
        }
        for at in self.takers(publish.topic) {
            self.deliver(at, publish);
            if self.is_dead {
                return false;
            }
        }
        self.acks += 1;
        match self.fault {
            InjectedFault::ForgetAckEvery(n) if self.acks.is_multiple_of(n) => {
                self.injected += 1;
                false
            }
            _ => true,
        }
    }

    /// Returns the indexes of the receivers: every plain subscriber, and one member of each shared
    /// subscription.
    fn takers(&self, topic: &str) -> Vec<usize> {
        let (mut takers, mut shares) = (Vec::new(), HashMap::<&str, Vec<usize>>::new());
        for (at, subscriber) in self.subscribers.iter().enumerate() {
            for (filter, _) in &subscriber.filters {
                match mqtt::SharedFilter::parse(filter).ok().flatten() {
                    Some(share) if filter_matches(share.filter, topic) => {
                        shares.entry(filter).or_default().push(at);
                    }
                    None if filter_matches(filter, topic) => takers.push(at),
                    _ => {}
                }
            }
        }
        takers.extend(shares.values().map(|members| members[self.turns[topic] % members.len()]));
        takers
    }

    fn deliver(&mut self, at: usize, publish: &Publish<'_>) {
        let subscriber = &mut self.subscribers[at];
        let bytes = subscriber.encode(publish);
        let (count, held) = subscriber.topics.entry(publish.topic.into()).or_default();
        *count += 1;
        let (count, held) = (*count, held.take());
        let mut stream = &subscriber.stream;
        let mut send = |bytes: &[u8]| {
            let _ = stream.write_all(bytes);
        };
        let mut wrong = true;
        match self.fault {
            InjectedFault::DropEvery(n) if count.is_multiple_of(n) => {}
            InjectedFault::DuplicateEvery(n) if count.is_multiple_of(n) => {
                send(&bytes);
                send(&bytes);
            }
            InjectedFault::ReorderEvery(n) if count.is_multiple_of(n) => {
                subscriber.topics.insert(publish.topic.into(), (count, Some(bytes)));
            }
            InjectedFault::StallMs(n, ms) if count == n => {
                thread::sleep(Duration::from_millis(ms));
                send(&bytes);
            }
            InjectedFault::CutAt(n) if count == n && self.injected == 0 => {
                let _ = subscriber.stream.shutdown(Shutdown::Both);
            }
            InjectedFault::GarbageAt(n) if count == n && self.injected == 0 => send(&[0xFF; 9]),
            InjectedFault::DieAfter(n) if self.deliveries == n => {
                self.is_dead = true;
                for stream in self.all.drain(..) {
                    let _ = stream.shutdown(Shutdown::Both);
                }
                self.injected += 1;
                return;
            }
            _ => {
                wrong = false;
                send(&bytes);
            }
        }
        if let Some(held) = held {
            send(&held);
        }
        self.injected += u64::from(wrong);
        self.deliveries += 1;
    }
}

impl BadBrokerSubscriber {
    fn encode(&mut self, publish: &Publish<'_>) -> Vec<u8> {
        let granted = self.filters.iter().map(|(_, options)| options.qos).max();
        let qos = granted.unwrap_or_default().min(publish.qos);
        let has_id = qos != QoS::AtMostOnce;
        self.packet_id = self.packet_id % 65_535 + u16::from(has_id);
        let packet_id = mqtt::PacketId::new(self.packet_id).filter(|_| has_id);
        let mut bytes = Vec::new();
        let publish = Publish { qos, packet_id, dup: false, retain: false, ..*publish };
        publish.encode(self.version, &mut bytes);
        bytes
    }
}

fn in_words(connect: &Connect<'_>) -> String {
    let password = connect.password.map(String::from_utf8_lossy).unwrap_or_default();
    let expiry = connect.properties.iter().find_map(|property| match property {
        mqtt::Property::SessionExpiryInterval(seconds) => Some(seconds),
        _ => None,
    });
    format!(
        "{:?} {} {}:{password} clean={} keep_alive={} expiry={}",
        connect.version,
        connect.client_id,
        connect.user_name.unwrap_or_default(),
        connect.clean_start,
        connect.keep_alive_s,
        expiry.unwrap_or_default(),
    )
}

const MESSAGES_KEPT: usize = 100;
