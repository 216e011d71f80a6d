//! Kafka sink: a message becomes a record of a topic, and a batch is one request to each broker
//! that leads a partition of the batch. All in-sync replicas have an acknowledged record.

mod cluster;
mod codes;
pub(super) mod options;
mod protocol;
mod records;

use self::cluster::{KafkaCluster, KafkaTopic, LeaderConnections, PartitionOutcome};
use self::codes::{KafkaErrorClass, classify_error, error_name};
use self::protocol::{KafkaConnection, KafkaEndpoint, SaslCredentials};
use self::records::{KafkaRecord, encode_batch, partition_of};
use super::columns::SinkColumns;
use super::delivered_ahead::DeliveredAhead;
use super::destination::{BatchError, SinkError};
use super::message::{MessageField, SinkMessage};
use super::template::{SinkTemplate, ValueEncoding};
use crate::{ClientTlsCell, lock};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Values of the option rows `kafka.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// Bootstrap servers; any of them returns the cluster metadata.
    pub servers: Vec<(String, u16)>,
    pub has_tls: bool,
    pub who: Option<SaslCredentials>,
    pub topic: SinkTemplate,
    /// Template of the record key. Without a key, batches go to the partitions in turn.
    pub key: Option<SinkTemplate>,
    pub headers: SinkColumns,
    pub timeout_ms: u32,
}

/// Text for logs: the bootstrap servers.
impl fmt::Display for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kafka://")?;
        for (at, (host, port)) in self.servers.iter().enumerate() {
            let mark = if at > 0 { "," } else { "" };
            write!(f, "{mark}{host}:{port}")?;
        }
        Ok(())
    }
}

/// A sink into Kafka.
pub(super) struct KafkaSink {
    settings: KafkaSettings,
    tls: ClientTlsCell,
    cluster: KafkaCluster,
    conns: Option<KafkaConnections>,
    ahead: DeliveredAhead,
    /// Largest batch of records in bytes; halved when a broker refuses a batch.
    records_bytes_max: usize,
    /// Number of the next partition for messages without a key.
    turn: usize,
}

/// Connections to a bootstrap server (`guide`) and to leaders.
struct KafkaConnections {
    guide: KafkaConnection,
    leaders: LeaderConnections,
}

/// Messages of a batch for one partition, sent part by part to keep their order.
struct PartitionLane {
    leader: i32,
    /// Indexes in the batch of the messages for this partition.
    all: Vec<usize>,
    done: usize,
    stopped: Option<SinkError>,
}

/// Key and headers of a message, encoded for a record.
struct EncodedRecord {
    key: Option<Vec<u8>>,
    headers: Vec<Vec<u8>>,
}

/// Largest size of the records in a request at first, in bytes: half of the default limit of
/// brokers.
const RECORDS_BYTES_MAX: usize = 512 * 1024;
const TOPIC_BYTES_MAX: usize = 249;

impl KafkaSink {
    pub(super) fn new(settings: &KafkaSettings, tls: ClientTlsCell) -> KafkaSink {
        KafkaSink {
            settings: settings.clone(),
            tls,
            cluster: KafkaCluster::default(),
            conns: None,
            ahead: DeliveredAhead::default(),
            records_bytes_max: RECORDS_BYTES_MAX,
            turn: 0,
        }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.conns = None;
        self.conns = Some(self.connect_any().await?);
        Ok(())
    }

    /// Connects to the first bootstrap server which answers, and requests the brokers of the
    /// cluster.
    async fn connect_any(&mut self) -> Result<KafkaConnections, String> {
        let tls = lock(&self.tls).clone().filter(|_| self.settings.has_tls);
        let way = KafkaEndpoint { tls, who: self.settings.who.as_ref() };
        let mut whys = Vec::new();
        self.cluster = KafkaCluster::default();
        for (host, port) in &self.settings.servers {
            match way.connect(host, *port).await {
                Ok(mut guide) => {
                    self.cluster.refresh_metadata(&mut guide, &[]).await?;
                    return Ok(KafkaConnections { guide, leaders: LeaderConnections::default() });
                }
                Err(why) => whys.push(why),
            }
        }
        Err(whys.join("; "))
    }

    pub(super) async fn deliver(
        &mut self,
        messages: &[Arc<SinkMessage>],
    ) -> Result<(), BatchError> {
        let sent = self.ahead.undelivered(messages);
        let topics: Vec<String> =
            sent.iter().map(|one| topic_name(&self.settings.topic, one)).collect();
        let mut conns = self.refresh_metadata(&topics).await.map_err(BatchError::transient)?;
        let mut said: Vec<Option<Result<(), SinkError>>> = sent.iter().map(|_| None).collect();
        let written: Vec<EncodedRecord> = sent.iter().map(|one| self.encode_message(one)).collect();
        let mut lanes = self.assign_lanes(&topics, &written, &mut said);
        while self.produce(&mut conns, &mut lanes, &sent, &written, &mut said).await {}
        for lane in lanes.values() {
            if let Some(what) = &lane.stopped {
                lane.all[lane.done..].iter().for_each(|at| said[*at] = Some(Err(what.clone())));
                self.cluster.forget();
            }
        }
        self.turn += 1;
        self.conns = Some(conns);
        let said = said.into_iter().map(|said| said.unwrap_or(Ok(()))).collect();
        self.ahead.record_results(messages, &sent, said)
    }

    /// Refreshes the metadata of topics. A cancelled call drops the connection, so no later request
    /// reads a stale response.
    async fn refresh_metadata(&mut self, topics: &[String]) -> Result<KafkaConnections, String> {
        let mut names: Vec<&str> = topics.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| is_legal(name));
        if let Some(mut conns) = self.conns.take()
            && self.cluster.refresh_metadata(&mut conns.guide, &names).await.is_ok()
        {
            return Ok(conns);
        }
        // Brokers close idle connections, so a failure leads to a new connection.
        let mut conns = self.connect_any().await?;
        self.cluster.refresh_metadata(&mut conns.guide, &names).await?;
        Ok(conns)
    }

    fn encode_message(&self, message: &SinkMessage) -> EncodedRecord {
        // Records without the value would share one partition, and would replace each other in a
        // compacted topic.
        let known = self.settings.key.as_ref().filter(|key| key.has_all_values(message));
        let key = known.map(|key| {
            let mut out = Vec::new();
            key.fill(message, ValueEncoding::Bytes, &mut out);
            out
        });
        let mut headers = Vec::new();
        self.settings.headers.push_name_values(message, &mut headers);
        let has_value = |pair: &&[Vec<u8>]| pair.last().is_some_and(|value| !value.is_empty());
        let headers = headers.chunks(2).filter(has_value).flatten().cloned().collect();
        EncodedRecord { key, headers }
    }

    /// Assigns each message to the lane of its partition, or records in `said` why the message has
    /// none.
    fn assign_lanes<'a>(
        &self,
        topics: &'a [String],
        written: &[EncodedRecord],
        said: &mut [Option<Result<(), SinkError>>],
    ) -> BTreeMap<(&'a str, i32), PartitionLane> {
        let mut lanes: BTreeMap<(&str, i32), PartitionLane> = BTreeMap::new();
        for (at, topic) in topics.iter().enumerate() {
            let leaders = match self.cluster.topic(topic) {
                _ if !is_legal(topic) => {
                    let why = format!("{:?} is not a topic of Kafka", truncate_topic(topic));
                    said[at] = Some(Err(SinkError::Rejected(why)));
                    continue;
                }
                KafkaTopic::Leaders(leaders) => leaders,
                KafkaTopic::Error(code) => {
                    let why = format!("topic {topic}: {}", error_name(*code));
                    said[at] = Some(Err(match classify_error(*code, true) {
                        KafkaErrorClass::Rejected => SinkError::Rejected(why),
                        _ => SinkError::transient(why),
                    }));
                    continue;
                }
            };
            let partition = match &written[at].key {
                Some(key) => partition_of(key, leaders.len()),
                None => self.next_partition(leaders),
            };
            let Some(Some(leader)) = leaders.get(partition) else {
                let why = format!("nobody leads partition {partition} of topic {topic}");
                said[at] = Some(Err(SinkError::transient(why)));
                continue;
            };
            let new = || PartitionLane { leader: *leader, all: Vec::new(), done: 0, stopped: None };
            lanes.entry((topic, partition as i32)).or_insert_with(new).all.push(at);
        }
        lanes
    }

    /// Returns a partition with a leader; the next batch gets the next one.
    fn next_partition(&self, leaders: &[Option<i32>]) -> usize {
        let all = (0..leaders.len()).map(|at| (at + self.turn) % leaders.len().max(1));
        let mut all = all.filter(|at| leaders[*at].is_some());
        all.next().unwrap_or_default()
    }

    /// Sends the next part of each lane. Returns whether there was any.
    async fn produce(
        &mut self,
        conns: &mut KafkaConnections,
        lanes: &mut BTreeMap<(&str, i32), PartitionLane>,
        sent: &[&Arc<SinkMessage>],
        written: &[EncodedRecord],
        said: &mut [Option<Result<(), SinkError>>],
    ) -> bool {
        let (mut parcels, mut parts) = (BTreeMap::<i32, Vec<_>>::new(), BTreeMap::new());
        for ((topic, partition), lane) in lanes.iter() {
            if lane.done == lane.all.len() || lane.stopped.is_some() {
                continue;
            }
            let (mut records, mut bytes) = (Vec::new(), 0);
            for at in &lane.all[lane.done..] {
                let record = record_of(sent[*at], &written[*at]);
                bytes += record.bytes_max();
                if !records.is_empty() && bytes > self.records_bytes_max {
                    break;
                }
                records.push(record);
            }
            parts.insert((*topic, *partition), (records.len(), bytes));
            let parcel = (*topic, *partition, encode_batch(&records));
            parcels.entry(lane.leader).or_default().push(parcel);
        }
        let tls = lock(&self.tls).clone().filter(|_| self.settings.has_tls);
        let way = KafkaEndpoint { tls, who: self.settings.who.as_ref() };
        let timeout_ms = self.settings.timeout_ms;
        let leaders = &mut conns.leaders;
        let answers = leaders.produce(&way, &self.cluster, &parcels, timeout_ms).await;
        for (node, outcomes) in answers {
            let (outcomes, silent) = match outcomes {
                Ok(outcomes) => (outcomes, "no answer".to_string()),
                Err(why) => (Vec::new(), why),
            };
            for (topic, partition, _) in &parcels[&node] {
                let Some(lane) = lanes.get_mut(&(*topic, *partition)) else { continue };
                let (count, bytes) = parts[&(*topic, *partition)];
                let is_its =
                    |one: &&PartitionOutcome| one.topic == *topic && one.partition == *partition;
                match outcomes.iter().find(is_its) {
                    Some(outcome) => {
                        let has_key = self.settings.key.is_some();
                        if lane.record_outcome(outcome, count, has_key, said) {
                            self.records_bytes_max = (bytes / 2).min(self.records_bytes_max / 2);
                        }
                    }
                    None => lane.stopped = Some(SinkError::transient(silent.clone())),
                }
            }
        }
        !parcels.is_empty()
    }
}

impl PartitionLane {
    /// Records the outcome of a lane's part. Returns true if the part was too large and has to be
    /// sent again in smaller parts.
    fn record_outcome(
        &mut self,
        outcome: &PartitionOutcome,
        count: usize,
        has_key: bool,
        said: &mut [Option<Result<(), SinkError>>],
    ) -> bool {
        let why = || format!("topic {}: {}", outcome.topic, outcome.describe());
        let result = match classify_error(outcome.code, has_key) {
            KafkaErrorClass::TooLarge if count > 1 => return true,
            KafkaErrorClass::Success => Ok(()),
            KafkaErrorClass::TooLarge | KafkaErrorClass::Rejected => {
                Err(SinkError::Rejected(why()))
            }
            KafkaErrorClass::Transient => {
                self.stopped = Some(SinkError::transient(why()));
                return false;
            }
        };
        for at in &self.all[self.done..self.done + count] {
            said[*at] = Some(result.clone());
        }
        self.done += count;
        false
    }
}

fn record_of<'a>(message: &'a SinkMessage, written: &'a EncodedRecord) -> KafkaRecord<'a> {
    KafkaRecord {
        timestamp_ms: message.timestamp_ms,
        key: written.key.as_deref(),
        value: &message.payload,
        headers: &written.headers,
    }
}

/// Returns the name of a topic: levels are separated by dots, and characters which Kafka does not
/// allow become `_`.
fn topic_name(template: &SinkTemplate, message: &SinkMessage) -> String {
    template.fill_by(message, |field, value, topic| {
        topic.extend(value.chars().map(|c| match c {
            '/' if *field == MessageField::Topic => '.',
            c if c.is_ascii_alphanumeric() || "._-".contains(c) => c,
            _ => '_',
        }));
    })
}

fn is_legal(topic: &str) -> bool {
    !matches!(topic, "" | "." | "..") && topic.len() <= TOPIC_BYTES_MAX
}

/// Returns the beginning of a topic for the log.
fn truncate_topic(topic: &str) -> &str {
    &topic[..topic.len().min(TOPIC_BYTES_MAX)]
}
