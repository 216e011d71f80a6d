//! Metadata of a Kafka cluster, and connections to the brokers which lead partitions.

use super::codes::error_name;
use super::protocol::{
    KafkaApi, KafkaConnection, KafkaEndpoint, KafkaRequest, KafkaResponse, NO_SENSE,
};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Metadata of the cluster, valid for `KNOWN_FOR` or until an error.
#[derive(Default)]
pub(super) struct KafkaCluster {
    brokers: HashMap<i32, (String, u16)>,
    topics: HashMap<String, KafkaTopic>,
    /// Time since which topics are known.
    since: Option<Instant>,
}

/// Metadata of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KafkaTopic {
    /// Leader of each partition, if it has one.
    Leaders(Vec<Option<i32>>),
    /// Error code of the topic.
    Error(i16),
}

/// Time after which metadata is requested again, to find new partitions.
const KNOWN_FOR: Duration = Duration::from_secs(300);

impl KafkaCluster {
    pub(super) fn forget(&mut self) {
        self.topics.clear();
    }

    pub(super) fn topic(&self, name: &str) -> &KafkaTopic {
        self.topics.get(name).unwrap_or(&KafkaTopic::Error(UNKNOWN))
    }

    /// Requests the metadata of unknown topics. The request does not create absent topics.
    pub(super) async fn refresh_metadata(
        &mut self,
        conn: &mut KafkaConnection,
        topics: &[&str],
    ) -> Result<(), String> {
        if self.since.is_none_or(|since| since.elapsed() > KNOWN_FOR) {
            self.since = Some(Instant::now());
            self.forget();
        }
        let is_known = |topic: &&&str| matches!(self.topic(topic), KafkaTopic::Leaders(_));
        let unknown: Vec<&str> = topics.iter().filter(|one| !is_known(one)).copied().collect();
        if unknown.is_empty() && !self.brokers.is_empty() {
            return Ok(());
        }
        let version = conn.versions.metadata;
        let said = conn.request(KafkaApi::Metadata, version, |out| {
            out.push_i32(unknown.len() as i32);
            unknown.iter().for_each(|topic| out.push_text(topic));
            out.push_bool(false);
        });
        let said = said.await?;
        self.read(KafkaResponse::new(&said), version)
    }

    fn read(&mut self, mut said: KafkaResponse<'_>, version: i16) -> Result<(), String> {
        let _throttled_ms = said.read_i32()?;
        let brokers = said.read_list(|said| {
            let node = said.read_i32()?;
            let (host, port) = (said.read_text()?.ok_or(NO_SENSE)?, said.read_i32()?);
            let _rack = said.read_text()?;
            Ok((node, (host, u16::try_from(port).map_err(|_| NO_SENSE)?)))
        })?;
        self.brokers = brokers.into_iter().collect();
        let (_cluster, _controller) = (said.read_text()?, said.read_i32()?);
        let topics = said.read_list(|said| {
            let (code, name) = (said.read_i16()?, said.read_text()?.ok_or(NO_SENSE)?);
            let _is_internal = said.read_bool()?;
            let leaders = said.read_list(|said| parse_partition(said, version))?;
            let leaders = BTreeMap::from_iter(leaders).into_values().collect();
            Ok((
                name,
                if code == 0 { KafkaTopic::Leaders(leaders) } else { KafkaTopic::Error(code) },
            ))
        })?;
        self.topics.extend(topics);
        Ok(())
    }
}

/// Parses a partition. Returns its index and its leader.
fn parse_partition(
    said: &mut KafkaResponse<'_>,
    version: i16,
) -> Result<(i32, Option<i32>), String> {
    let _code = said.read_i16()?;
    let (index, leader) = (said.read_i32()?, said.read_i32()?);
    if version >= 7 {
        let _epoch = said.read_i32()?;
    }
    let (_replicas, _in_sync) =
        (said.read_list(KafkaResponse::read_i32)?, said.read_list(KafkaResponse::read_i32)?);
    if version >= 5 {
        let _offline = said.read_list(KafkaResponse::read_i32)?;
    }
    Ok((index, (leader >= 0).then_some(leader)))
}

/// Error code UNKNOWN_TOPIC_OR_PARTITION.
const UNKNOWN: i16 = 3;

/// A batch of records for a partition: topic, partition, encoded records.
pub(super) type PartitionBatch<'a> = (&'a str, i32, Vec<u8>);

/// Result of one partition's batch, with the broker's error code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionOutcome {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) code: i16,
    pub(super) why: Option<String>,
}

impl PartitionOutcome {
    pub(super) fn describe(&self) -> String {
        match &self.why {
            Some(why) => format!("{}: {why}", error_name(self.code)),
            None => error_name(self.code),
        }
    }
}

/// Connections to leaders by broker id.
#[derive(Default)]
pub(super) struct LeaderConnections(HashMap<i32, KafkaConnection>);

impl LeaderConnections {
    /// Sends each broker its batches in one request, to all brokers at once. Returns for each
    /// broker the outcome of each batch, or why the broker did not answer.
    pub(super) async fn produce(
        &mut self,
        way: &KafkaEndpoint<'_>,
        cluster: &KafkaCluster,
        parcels: &BTreeMap<i32, Vec<PartitionBatch<'_>>>,
        timeout_ms: u32,
    ) -> BTreeMap<i32, Result<Vec<PartitionOutcome>, String>> {
        let mut asked = BTreeMap::new();
        for (node, parcels) in parcels {
            let had = self.0.remove(node);
            let was_there = had.is_some();
            let begun = match had {
                Some(conn) => Ok(conn),
                None => cluster.connect_to_leader(*node, way).await,
            };
            let told = match begun {
                Ok(mut conn) => send_produce(&mut conn, parcels, timeout_ms).await.map(|()| conn),
                Err(why) => Err(why),
            };
            asked.insert(*node, (told, was_there));
        }
        let mut outcomes = BTreeMap::new();
        for (node, (told, was_there)) in asked {
            let mut heard = match told {
                Ok(conn) => read_produce_response(conn).await,
                Err(why) => Err(why),
            };
            // Brokers close idle connections, so the first failure of an old connection leads to a
            // new one.
            if heard.is_err() && was_there {
                heard = match cluster.connect_to_leader(node, way).await {
                    Ok(mut conn) => {
                        match send_produce(&mut conn, &parcels[&node], timeout_ms).await {
                            Ok(()) => read_produce_response(conn).await,
                            Err(why) => Err(why),
                        }
                    }
                    Err(why) => Err(why),
                };
            }
            outcomes.insert(
                node,
                heard.map(|(conn, outcomes)| {
                    self.0.insert(node, conn);
                    outcomes
                }),
            );
        }
        outcomes
    }
}

impl KafkaCluster {
    async fn connect_to_leader(
        &self,
        node: i32,
        way: &KafkaEndpoint<'_>,
    ) -> Result<KafkaConnection, String> {
        let (host, port) = self.brokers.get(&node).ok_or("a leader that no broker knows")?;
        way.connect(host, *port).await
    }
}

async fn send_produce(
    conn: &mut KafkaConnection,
    parcels: &[PartitionBatch<'_>],
    timeout_ms: u32,
) -> Result<(), String> {
    let mut request = KafkaRequest::new(KafkaApi::Produce, conn.versions.produce);
    // No transaction; acks=-1: all in-sync replicas have the records.
    request.push_i16(-1);
    request.push_i16(-1);
    request.push_i32(i32::try_from(timeout_ms).unwrap_or(i32::MAX));
    request.push_i32(parcels.len() as i32);
    for (topic, partition, records) in parcels {
        request.push_text(topic);
        request.push_i32(1);
        request.push_i32(*partition);
        request.push_bytes(records);
    }
    conn.send(&request.finish()).await
}

async fn read_produce_response(
    mut conn: KafkaConnection,
) -> Result<(KafkaConnection, Vec<PartitionOutcome>), String> {
    let said = conn.read_response().await?;
    let outcomes = parse_outcomes(KafkaResponse::new(&said), conn.versions.produce)?;
    Ok((conn, outcomes))
}

fn parse_outcomes(
    mut said: KafkaResponse<'_>,
    version: i16,
) -> Result<Vec<PartitionOutcome>, String> {
    let all = said.read_list(|said| {
        let topic = said.read_text()?.ok_or(NO_SENSE)?;
        said.read_list(|said| {
            let (partition, code) = (said.read_i32()?, said.read_i16()?);
            let (_offset, _appended_ms) = (said.read_i64()?, said.read_i64()?);
            if version >= 5 {
                let _begins = said.read_i64()?;
            }
            let mut why = None;
            if version >= 8 {
                let records = said.read_list(|said| Ok((said.read_i32()?, said.read_text()?)))?;
                let of_record = records.into_iter().find_map(|(_, why)| why);
                why = said.read_text()?.or(of_record);
            }
            Ok(PartitionOutcome { topic: topic.clone(), partition, code, why })
        })
    })?;
    Ok(all.into_iter().flatten().collect())
}
