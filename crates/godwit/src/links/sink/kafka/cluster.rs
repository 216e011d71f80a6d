//! Brokers and topics of a cluster, as one of them tells, and connections to those that lead
//! partitions.

use super::codes::name;
use super::wire::{Api, Conn, NO_SENSE, Request, Said, Way};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// What is known, until somebody moves.
#[derive(Default)]
pub(super) struct Cluster {
    brokers: HashMap<i32, (String, u16)>,
    topics: HashMap<String, Topic>,
    /// Since when topics are known.
    since: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// Who leads each of its partitions, where somebody does.
    Known(Vec<Option<i32>>),
    /// By its number.
    Wrong(i16),
}

/// So long nobody asks whether a topic has more partitions now.
const KNOWN_FOR: Duration = Duration::from_secs(300);

impl Cluster {
    pub(super) fn forget(&mut self) {
        self.topics.clear();
    }

    pub(super) fn topic(&self, name: &str) -> &Topic {
        self.topics.get(name).unwrap_or(&Topic::Wrong(UNKNOWN))
    }

    /// Those topics are known that are there. None is made.
    pub(super) async fn learn(&mut self, conn: &mut Conn, topics: &[&str]) -> Result<(), String> {
        if self.since.is_none_or(|since| since.elapsed() > KNOWN_FOR) {
            self.since = Some(Instant::now());
            self.forget();
        }
        let is_known = |topic: &&&str| matches!(self.topic(topic), Topic::Known(_));
        let unknown: Vec<&str> = topics.iter().filter(|one| !is_known(one)).copied().collect();
        if unknown.is_empty() && !self.brokers.is_empty() {
            return Ok(());
        }
        let version = conn.versions.metadata;
        let said = conn.ask(Api::Metadata, version, |out| {
            out.number(unknown.len() as i32);
            unknown.iter().for_each(|topic| out.text(topic));
            out.bool(false);
        });
        let said = said.await?;
        self.read(Said(&said), version)
    }

    fn read(&mut self, mut said: Said<'_>, version: i16) -> Result<(), String> {
        let _throttled_ms = said.number()?;
        let brokers = said.list(|said| {
            let node = said.number()?;
            let (host, port) = (said.text()?.ok_or(NO_SENSE)?, said.number()?);
            let _rack = said.text()?;
            Ok((node, (host, u16::try_from(port).map_err(|_| NO_SENSE)?)))
        })?;
        self.brokers = brokers.into_iter().collect();
        let (_cluster, _controller) = (said.text()?, said.number()?);
        let topics = said.list(|said| {
            let (code, name) = (said.short()?, said.text()?.ok_or(NO_SENSE)?);
            let _is_internal = said.bool()?;
            let leaders = said.list(|said| partition(said, version))?;
            let leaders = BTreeMap::from_iter(leaders).into_values().collect();
            Ok((name, if code == 0 { Topic::Known(leaders) } else { Topic::Wrong(code) }))
        })?;
        self.topics.extend(topics);
        Ok(())
    }
}

/// Its number and its leader.
fn partition(said: &mut Said<'_>, version: i16) -> Result<(i32, Option<i32>), String> {
    let _code = said.short()?;
    let (index, leader) = (said.number()?, said.number()?);
    if version >= 7 {
        let _epoch = said.number()?;
    }
    let (_replicas, _in_sync) = (said.list(Said::number)?, said.list(Said::number)?);
    if version >= 5 {
        let _offline = said.list(Said::number)?;
    }
    Ok((index, (leader >= 0).then_some(leader)))
}

/// UNKNOWN_TOPIC_OR_PARTITION
const UNKNOWN: i16 = 3;

/// What is produced to one broker at once: topic, partition, a batch of records.
pub(super) type Parcel<'a> = (&'a str, i32, Vec<u8>);

/// What became of one partition's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) code: i16,
    pub(super) why: Option<String>,
}

impl Outcome {
    pub(super) fn why(&self) -> String {
        match &self.why {
            Some(why) => format!("{}: {why}", name(self.code)),
            None => name(self.code),
        }
    }
}

/// Connections to brokers, by their numbers.
#[derive(Default)]
pub(super) struct Lines(HashMap<i32, Conn>);

impl Lines {
    /// Each broker's parcels as one request, all under way together. Why there was no answer, or
    /// what became of each.
    pub(super) async fn produce(
        &mut self,
        way: &Way<'_>,
        cluster: &Cluster,
        parcels: &BTreeMap<i32, Vec<Parcel<'_>>>,
        timeout_ms: u32,
    ) -> BTreeMap<i32, Result<Vec<Outcome>, String>> {
        let mut asked = BTreeMap::new();
        for (node, parcels) in parcels {
            let had = self.0.remove(node);
            let was_there = had.is_some();
            let begun = match had {
                Some(conn) => Ok(conn),
                None => cluster.reach(*node, way).await,
            };
            let told = match begun {
                Ok(mut conn) => tell(&mut conn, parcels, timeout_ms).await.map(|()| conn),
                Err(why) => Err(why),
            };
            asked.insert(*node, (told, was_there));
        }
        let mut outcomes = BTreeMap::new();
        for (node, (told, was_there)) in asked {
            let mut heard = match told {
                Ok(conn) => hear(conn).await,
                Err(why) => Err(why),
            };
            // A broker ends connections that were silent, and that is no failure.
            if heard.is_err() && was_there {
                heard = match cluster.reach(node, way).await {
                    Ok(mut conn) => match tell(&mut conn, &parcels[&node], timeout_ms).await {
                        Ok(()) => hear(conn).await,
                        Err(why) => Err(why),
                    },
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

impl Cluster {
    async fn reach(&self, node: i32, way: &Way<'_>) -> Result<Conn, String> {
        let (host, port) = self.brokers.get(&node).ok_or("a leader that no broker knows")?;
        way.connect(host, *port).await
    }
}

async fn tell(conn: &mut Conn, parcels: &[Parcel<'_>], timeout_ms: u32) -> Result<(), String> {
    let mut request = Request::new(Api::Produce, conn.versions.produce);
    // No transaction; all replicas that are in sync have it.
    request.short(-1);
    request.short(-1);
    request.number(i32::try_from(timeout_ms).unwrap_or(i32::MAX));
    request.number(parcels.len() as i32);
    for (topic, partition, records) in parcels {
        request.text(topic);
        request.number(1);
        request.number(*partition);
        request.bytes(records);
    }
    conn.tell(&request.whole()).await
}

async fn hear(mut conn: Conn) -> Result<(Conn, Vec<Outcome>), String> {
    let said = conn.hear().await?;
    let outcomes = outcomes(Said(&said), conn.versions.produce)?;
    Ok((conn, outcomes))
}

fn outcomes(mut said: Said<'_>, version: i16) -> Result<Vec<Outcome>, String> {
    let all = said.list(|said| {
        let topic = said.text()?.ok_or(NO_SENSE)?;
        said.list(|said| {
            let (partition, code) = (said.number()?, said.short()?);
            let (_offset, _appended_ms) = (said.long()?, said.long()?);
            if version >= 5 {
                let _begins = said.long()?;
            }
            let mut why = None;
            if version >= 8 {
                let records = said.list(|said| Ok((said.number()?, said.text()?)))?;
                let of_record = records.into_iter().find_map(|(_, why)| why);
                why = said.text()?.or(of_record);
            }
            Ok(Outcome { topic: topic.clone(), partition, code, why })
        })
    })?;
    Ok(all.into_iter().flatten().collect())
}
