//! The plan of a test, from a command line or from a scenario.

use crate::limits;
use crate::template::{self, BenchRng, TemplateValues};
use mqtt::{ProtocolVersion, QoS, filter_matches};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    pub(crate) targets: Vec<BrokerTarget>,
    pub(crate) groups: Vec<PlanGroup>,
    pub(crate) threads: usize,
    /// Connections per second of all groups together.
    pub(crate) connects_per_s: f64,
    /// Local addresses to connect from, in turn; if empty, the kernel chooses.
    pub(crate) local_addresses: Vec<IpAddr>,
    pub(crate) start: StartMode,
    pub(crate) warm_s: f64,
    /// Seconds of the measured phase; with `None` a count or a signal ends the test.
    pub(crate) measure_s: Option<f64>,
    pub(crate) drain_s: f64,
    /// Whether latency counts from the actual sending instead of the due time.
    pub(crate) from_sending: bool,
    /// Deliveries in flight for groups with `PublishPace::AsTaken`.
    pub(crate) window: u64,
    pub(crate) seed: u64,
    pub(crate) share: PlanShare,
}

/// The part of the clients that belongs to this process, if several agents share a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanShare {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

/// Start of the publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartMode {
    /// Each publisher starts as soon as its client is connected.
    Each,
    /// All publishers start together, when every client is connected and subscribed or has failed.
    Together,
}

#[derive(Clone, Debug)]
pub(crate) struct BrokerTarget {
    pub(crate) url: String,
    pub(crate) host: String,
    pub(crate) address: SocketAddr,
    pub(crate) transport: TargetTransport,
}

/// The transport below MQTT.
#[derive(Clone, Debug)]
pub(crate) enum TargetTransport {
    /// TCP with optional layers of TLS and WebSocket.
    Tcp(transport::TransportLayers),
    Quic(transport::QuicClientOptions),
}

impl BrokerTarget {
    pub(crate) fn is_quic(&self) -> bool {
        matches!(self.transport, TargetTransport::Quic(_))
    }
}

/// Clients with the same behaviour.
#[derive(Clone, Debug)]
pub(crate) struct PlanGroup {
    pub(crate) clients: u64,
    /// The number of the group's first client, for templates.
    pub(crate) number_first: u64,
    /// Number of topics, to which `%t` and `%a` count.
    pub(crate) topics: u64,
    /// Index of the target; `None` uses all targets in turn.
    pub(crate) target: Option<usize>,
    pub(crate) client_id: String,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) version: ProtocolVersion,
    pub(crate) keep_alive_s: u16,
    pub(crate) clean_start: bool,
    pub(crate) session_expiry_s: u32,
    /// Topic filters to subscribe to; templates are allowed.
    pub(crate) subscribe: Vec<String>,
    pub(crate) subscribe_qos: QoS,
    pub(crate) publish: Option<PublishPlan>,
    /// Header fields of received payloads that other programs published.
    pub(crate) fields: Vec<PayloadField>,
    /// Number of connection retries before the first success, and after a loss.
    pub(crate) connect_retries: u32,
    pub(crate) reconnects: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct PublishPlan {
    pub(crate) topic: String,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) body: PayloadKind,
    pub(crate) pace: PublishPace,
    /// Unacknowledged messages per publisher; 0 is unlimited.
    pub(crate) inflight: u16,
    /// Number of messages of all publishers of the group together; `None` is unlimited.
    pub(crate) messages_max: Option<u64>,
    /// Bounds of the random delay before a publisher's first message, in milliseconds.
    pub(crate) wait_ms: (u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PayloadKind {
    /// Padding of this many bytes, with a `PayloadStamp` at the start if the stamp fits.
    Sized(usize),
    Literal(Vec<u8>),
    /// Text with placeholders for times and random bytes, and the number of bytes for `%RANDOM%`.
    Template(String, usize),
    /// Header fields of emqtt_bench, eight bytes each, then padding.
    Fields(Vec<PayloadField>, usize),
}

/// A field of `--payload-hdrs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadField {
    Count,
    Milliseconds,
}

/// Pace of a publisher's messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PublishPace {
    /// Open loop: messages are due at this interval, however slow the broker is.
    EveryNs(u64),
    /// Closed loop: as many messages as `LoadPlan::window` and the socket allow.
    AsTaken,
}

impl LoadPlan {
    pub(crate) fn clients(&self) -> u64 {
        self.groups.iter().map(|group| group.clients).sum()
    }

    /// Whether the test both publishes and subscribes, so that a loss can be detected.
    pub(crate) fn receives_own_messages(&self) -> bool {
        let publishes = self.groups.iter().any(|group| group.publish.is_some());
        publishes && self.groups.iter().any(|group| !group.subscribe.is_empty())
    }

    /// Returns the publishing plan of a stream. Streams number all publishers in the order of
    /// `groups`; `None` for a larger number.
    pub(crate) fn publishing(&self, stream: u32) -> Option<&PublishPlan> {
        let mut before = u64::from(stream);
        let publishers =
            self.groups.iter().filter_map(|group| Some((group, group.publish.as_ref()?)));
        for (group, publishing) in publishers {
            if before < group.clients {
                return Some(publishing);
            }
            before -= group.clients;
        }
        None
    }

    pub(crate) fn is_closed_loop(&self) -> bool {
        let mut paces = self.groups.iter().filter_map(|group| group.publish.as_ref());
        paces.any(|publishing| publishing.pace == PublishPace::AsTaken)
    }
}

impl Default for LoadPlan {
    fn default() -> LoadPlan {
        LoadPlan {
            targets: Vec::new(),
            groups: Vec::new(),
            threads: 1,
            connects_per_s: 1_000.0,
            local_addresses: Vec::new(),
            start: StartMode::Together,
            warm_s: 0.0,
            measure_s: None,
            drain_s: limits::DRAIN_S_DEFAULT,
            from_sending: false,
            window: limits::WINDOW_DEFAULT,
            seed: 1,
            share: PlanShare { index: 0, count: 1 },
        }
    }
}

impl Default for PlanGroup {
    fn default() -> PlanGroup {
        PlanGroup {
            clients: 1,
            number_first: 0,
            topics: 1,
            target: None,
            client_id: "%i".into(),
            user_name: None,
            password: None,
            version: ProtocolVersion::V311,
            keep_alive_s: 300,
            clean_start: true,
            session_expiry_s: 0,
            subscribe: Vec::new(),
            subscribe_qos: QoS::AtMostOnce,
            publish: None,
            fields: Vec::new(),
            connect_retries: 0,
            reconnects: 0,
        }
    }
}

impl PlanGroup {
    /// Returns the client identifier and the topic filters of client `number`, with templates
    /// filled in.
    pub(crate) fn client_names(&self, number: u64, rng: &mut BenchRng) -> (String, Vec<String>) {
        let mut who = TemplateValues { number, topics: self.topics, ..TemplateValues::default() };
        let client_id = template::fill_template(&self.client_id, &who, rng);
        let user_name = self.user_name(&who, rng).unwrap_or_default();
        (who.client_id, who.user_name) = (&client_id, &user_name);
        let each = self.subscribe.iter();
        let filters = each.flat_map(|one| template::fill_filters(one, &who, rng)).collect();
        (client_id, filters)
    }

    pub(crate) fn user_name(&self, who: &TemplateValues<'_>, rng: &mut BenchRng) -> Option<String> {
        self.user_name.as_ref().map(|name| template::fill_template(name, who, rng))
    }
}

/// Counts the consumers of a topic. A shared subscription is one consumer for any number of
/// members.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConsumerIndex {
    filters: HashMap<String, u64>,
    wild: Vec<String>,
}

impl ConsumerIndex {
    pub(crate) fn add(&mut self, filter: &str, consumers: u64) {
        let shared = share_filter(filter);
        let count = self.filters.entry(filter.to_string()).or_insert_with(|| {
            if shared.is_some() || filter.contains(['+', '#']) {
                self.wild.push(filter.to_string());
            }
            0
        });
        *count = if shared.is_some() { 1 } else { *count + consumers };
    }

    pub(crate) fn consumers_of(&self, topic: &str) -> u64 {
        let exact = self.filters.get(topic).copied().unwrap_or(0);
        let wild = self.wild.iter().filter(|filter| {
            let filter = share_filter(filter).unwrap_or(filter);
            filter_matches(filter, topic)
        });
        exact + wild.map(|filter| self.filters[filter]).sum::<u64>()
    }
}

/// Returns the filter inside a shared subscription; `None` for an ordinary filter.
pub(crate) fn share_filter(filter: &str) -> Option<&str> {
    mqtt::SharedFilter::parse(filter).ok().flatten().map(|share| share.filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_of_the_group_that_its_publisher_is_in() {
        let publishes = |topic: &str| PlanGroup {
            clients: 3,
            publish: Some(PublishPlan {
                topic: topic.into(),
                qos: QoS::AtMostOnce,
                retain: false,
                body: PayloadKind::Sized(16),
                pace: PublishPace::AsTaken,
                inflight: 1,
                messages_max: None,
                wait_ms: (0, 0),
            }),
            ..PlanGroup::default()
        };
        let groups =
            vec![publishes("a"), PlanGroup { clients: 9, ..PlanGroup::default() }, publishes("b")];
        let plan = LoadPlan { groups, ..LoadPlan::default() };
        let topic = |stream| plan.publishing(stream).map(|publishing| publishing.topic.as_str());
        assert_eq!([0, 2, 3, 5, 6].map(topic), [Some("a"), Some("a"), Some("b"), Some("b"), None]);
    }

    #[test]
    fn consumers_are_counted_by_filter_and_shared_ones_once() {
        let mut wanted = ConsumerIndex::default();
        for filter in ["a/1", "a/1", "a/+", "#", "$share/g/a/#", "$share/g/a/#", "$share/h/a/#"] {
            wanted.add(filter, 1);
        }
        assert_eq!(wanted.consumers_of("a/1"), 6);
        assert_eq!(wanted.consumers_of("a/2"), 4);
        assert_eq!(wanted.consumers_of("b"), 1);
    }
}
