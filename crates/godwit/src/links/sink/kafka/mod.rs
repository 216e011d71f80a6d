//! A sink that is Kafka: messages become records of topics, and a batch is one request to each
//! broker that leads a partition of them. Every replica that is in sync has what is acknowledged.

mod cluster;
mod codes;
pub(super) mod options;
mod records;
mod wire;

use self::cluster::{Cluster, Lines, Outcome, Topic};
use self::codes::{Meaning, meaning, name};
use self::records::{Record, batch, partition_of};
use self::wire::{Conn, Way, Who};
use super::ahead::Ahead;
use super::columns::Columns;
use super::far::{Setback, What};
use super::message::{Field, Message};
use super::template::{Template, Tongue};
use crate::links::{Credentials, lock};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What the options say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KafkaSettings {
    /// Of these one is asked who the others are.
    pub(crate) servers: Vec<(String, u16)>,
    pub(crate) has_tls: bool,
    pub(crate) who: Option<Who>,
    pub(crate) topic: Template,
    /// Without it a record has none, and a batch goes to one partition after the other.
    pub(crate) key: Option<Template>,
    pub(crate) headers: Columns,
    pub(crate) timeout_ms: u32,
}

/// For logs: the brokers that the options name.
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

pub(super) struct Kafka {
    settings: KafkaSettings,
    tls: Credentials,
    cluster: Cluster,
    conns: Option<Conns>,
    ahead: Ahead,
    /// What one batch of records may be: less, once a broker took no more.
    records_bytes_max: usize,
    /// Which partition is next, for what has no key.
    turn: usize,
}

/// Who is asked about the cluster, and who leads in it.
struct Conns {
    guide: Conn,
    leaders: Lines,
}

/// What of one batch goes to one partition, one part after the other, so that it keeps its order.
struct Lane {
    leader: i32,
    /// Which of the messages that are sent.
    all: Vec<usize>,
    done: usize,
    stopped: Option<What>,
}

/// As it is for a record.
struct Written {
    key: Option<Vec<u8>>,
    headers: Vec<Vec<u8>>,
}

/// Half of what brokers take by default.
const RECORDS_BYTES_MAX: usize = 512 * 1024;
const TOPIC_BYTES_MAX: usize = 249;

impl Kafka {
    pub(super) fn new(settings: &KafkaSettings, tls: Credentials) -> Kafka {
        Kafka {
            settings: settings.clone(),
            tls,
            cluster: Cluster::default(),
            conns: None,
            ahead: Ahead::default(),
            records_bytes_max: RECORDS_BYTES_MAX,
            turn: 0,
        }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.conns = None;
        self.conns = Some(self.reach().await?);
        Ok(())
    }

    /// Some server of the list is there, and says who the brokers are.
    async fn reach(&mut self) -> Result<Conns, String> {
        let tls = lock(&self.tls).clone().filter(|_| self.settings.has_tls);
        let way = Way { tls, who: self.settings.who.as_ref() };
        let mut whys = Vec::new();
        self.cluster = Cluster::default();
        for (host, port) in &self.settings.servers {
            match way.connect(host, *port).await {
                Ok(mut guide) => {
                    self.cluster.learn(&mut guide, &[]).await?;
                    return Ok(Conns { guide, leaders: Lines::default() });
                }
                Err(why) => whys.push(why),
            }
        }
        Err(whys.join("; "))
    }

    pub(super) async fn take(&mut self, messages: &[Arc<Message>]) -> Result<(), Setback> {
        let sent = self.ahead.missing(messages);
        let topics: Vec<String> =
            sent.iter().map(|one| topic_of(&self.settings.topic, one)).collect();
        let mut conns = self.learn(&topics).await.map_err(Setback::down)?;
        let mut said: Vec<Option<Result<(), What>>> = sent.iter().map(|_| None).collect();
        let written: Vec<Written> = sent.iter().map(|one| self.write(one)).collect();
        let mut lanes = self.lanes(&topics, &written, &mut said);
        while self.produce(&mut conns, &mut lanes, (&sent, &written), &mut said).await {}
        for lane in lanes.values() {
            if let Some(what) = &lane.stopped {
                lane.all[lane.done..].iter().for_each(|at| said[*at] = Some(Err(what.clone())));
                self.cluster.forget();
            }
        }
        self.turn += 1;
        self.conns = Some(conns);
        let said = said.into_iter().map(|said| said.unwrap_or(Ok(()))).collect();
        self.ahead.settle(messages, &sent, said)
    }

    /// Whoever stops waiting leaves no connection behind that is in the middle of something.
    async fn learn(&mut self, topics: &[String]) -> Result<Conns, String> {
        let mut names: Vec<&str> = topics.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| is_legal(name));
        if let Some(mut conns) = self.conns.take()
            && self.cluster.learn(&mut conns.guide, &names).await.is_ok()
        {
            return Ok(conns);
        }
        // A broker ends connections that were silent, and that is no failure.
        let mut conns = self.reach().await?;
        self.cluster.learn(&mut conns.guide, &names).await?;
        Ok(conns)
    }

    fn write(&self, message: &Message) -> Written {
        // Records without the value would share one partition, and replace each other where a topic
        // keeps the last of each key.
        let known = self.settings.key.as_ref().filter(|key| key.has_all_values(message));
        let key = known.map(|key| {
            let mut out = Vec::new();
            key.fill(message, Tongue::Bytes, &mut out);
            out
        });
        let mut headers = Vec::new();
        self.settings.headers.push_words(message, &mut headers);
        let has_value = |pair: &&[Vec<u8>]| pair.last().is_some_and(|value| !value.is_empty());
        let headers = headers.chunks(2).filter(has_value).flatten().cloned().collect();
        Written { key, headers }
    }

    /// Where each message goes, or why it does not go anywhere.
    fn lanes<'a>(
        &self,
        topics: &'a [String],
        written: &[Written],
        said: &mut [Option<Result<(), What>>],
    ) -> BTreeMap<(&'a str, i32), Lane> {
        let mut lanes: BTreeMap<(&str, i32), Lane> = BTreeMap::new();
        for (at, topic) in topics.iter().enumerate() {
            let leaders = match self.cluster.topic(topic) {
                _ if !is_legal(topic) => {
                    let why = format!("{:?} is no topic of Kafka", shown(topic));
                    said[at] = Some(Err(What::Refused(why)));
                    continue;
                }
                Topic::Known(leaders) => leaders,
                Topic::Wrong(code) => {
                    let why = format!("topic {topic}: {}", name(*code));
                    said[at] = Some(Err(match meaning(*code, true) {
                        Meaning::Refused => What::Refused(why),
                        _ => What::down(why),
                    }));
                    continue;
                }
            };
            let partition = match &written[at].key {
                Some(key) => partition_of(key, leaders.len()),
                None => self.led(leaders),
            };
            let Some(Some(leader)) = leaders.get(partition) else {
                let why = format!("nobody leads partition {partition} of topic {topic}");
                said[at] = Some(Err(What::down(why)));
                continue;
            };
            let new = || Lane { leader: *leader, all: Vec::new(), done: 0, stopped: None };
            lanes.entry((topic, partition as i32)).or_insert_with(new).all.push(at);
        }
        lanes
    }

    /// A partition that has a leader, and the next one next time.
    fn led(&self, leaders: &[Option<i32>]) -> usize {
        let all = (0..leaders.len()).map(|at| (at + self.turn) % leaders.len().max(1));
        let mut all = all.filter(|at| leaders[*at].is_some());
        all.next().unwrap_or_default()
    }

    /// The next part of each lane. Says whether there was any.
    async fn produce(
        &mut self,
        conns: &mut Conns,
        lanes: &mut BTreeMap<(&str, i32), Lane>,
        (sent, written): (&[&Arc<Message>], &[Written]),
        said: &mut [Option<Result<(), What>>],
    ) -> bool {
        let (mut parcels, mut parts) = (BTreeMap::<i32, Vec<_>>::new(), BTreeMap::new());
        for ((topic, partition), lane) in lanes.iter() {
            if lane.done == lane.all.len() || lane.stopped.is_some() {
                continue;
            }
            let (mut records, mut bytes) = (Vec::new(), 0);
            for at in &lane.all[lane.done..] {
                let record = record(sent[*at], &written[*at]);
                bytes += record.bytes_max();
                if !records.is_empty() && bytes > self.records_bytes_max {
                    break;
                }
                records.push(record);
            }
            parts.insert((*topic, *partition), (records.len(), bytes));
            let parcel = (*topic, *partition, batch(&records));
            parcels.entry(lane.leader).or_default().push(parcel);
        }
        let tls = lock(&self.tls).clone().filter(|_| self.settings.has_tls);
        let way = Way { tls, who: self.settings.who.as_ref() };
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
                let is_its = |one: &&Outcome| one.topic == *topic && one.partition == *partition;
                match outcomes.iter().find(is_its) {
                    Some(outcome) => {
                        let has_key = self.settings.key.is_some();
                        if lane.settle(outcome, (count, has_key), said) {
                            self.records_bytes_max = (bytes / 2).min(self.records_bytes_max / 2);
                        }
                    }
                    None => lane.stopped = Some(What::down(silent.clone())),
                }
            }
        }
        !parcels.is_empty()
    }
}

impl Lane {
    /// Says whether less should go at once.
    fn settle(
        &mut self,
        outcome: &Outcome,
        (count, has_key): (usize, bool),
        said: &mut [Option<Result<(), What>>],
    ) -> bool {
        let why = || format!("topic {}: {}", outcome.topic, outcome.why());
        let result = match meaning(outcome.code, has_key) {
            Meaning::TooLarge if count > 1 => return true,
            Meaning::Taken => Ok(()),
            Meaning::TooLarge | Meaning::Refused => Err(What::Refused(why())),
            Meaning::Down => {
                self.stopped = Some(What::down(why()));
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

fn record<'a>(message: &'a Message, written: &'a Written) -> Record<'a> {
    Record {
        timestamp_ms: message.timestamp_ms,
        key: written.key.as_deref(),
        value: &message.payload,
        headers: &written.headers,
    }
}

/// What Kafka does not allow in a name is `_` there, and a level of an MQTT topic ends with a dot.
fn topic_of(template: &Template, message: &Message) -> String {
    template.fill_by(message, |field, value, topic| {
        topic.extend(value.chars().map(|c| match c {
            '/' if *field == Field::Topic => '.',
            c if c.is_ascii_alphanumeric() || "._-".contains(c) => c,
            _ => '_',
        }));
    })
}

fn is_legal(topic: &str) -> bool {
    !matches!(topic, "" | "." | "..") && topic.len() <= TOPIC_BYTES_MAX
}

/// Enough of it to know it by.
fn shown(topic: &str) -> &str {
    &topic[..topic.len().min(TOPIC_BYTES_MAX)]
}
