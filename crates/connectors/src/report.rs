//! States of links: figures of their tasks and sessions, published below `$SYS/broker/bridge/`,
//! `gateway/` and `sink/`. The reference documents list the same rows.

use super::local_session::LocalBroker;
use super::metrics::LinkMetrics;
use super::{LinkKind, lock};
use broker::counters::{DROP_NAMES, DROPS};
use broker::session::session_report::SessionReport;
use net::control_runtime::ControlRuntime;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// State of a link at one time: figures of its [`LinkMetrics`] and of its [`SessionReport`].
#[derive(Clone, Debug, Default)]
pub struct LinkState {
    pub is_up: bool,
    pub server: String,
    pub last_error: String,
    pub connects: u64,
    pub batches: u64,
    pub failures: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
    pub messages_in: u64,
    pub bytes_in: u64,
    pub peers: u64,
    pub rate_out: f64,
    pub rate_in: f64,
    pub in_flight: u32,
    pub queued: u64,
    pub queued_bytes: u64,
    pub oldest_age_ms: u64,
    /// Messages dropped by the queue, in the order of `DROP_NAMES`; `losses` holds the drops of the
    /// link's task by reason.
    pub drops: [u64; DROPS],
    pub losses: Vec<(&'static str, u64)>,
}

/// A value below `$SYS/broker/bridge/{name}/`, or below the topic of another kind of link.
pub struct LinkMetricRow {
    /// Kinds of links with this value; empty means all kinds.
    pub only: &'static [LinkKind],
    pub topic: &'static str,
    pub about: &'static str,
    pub value: fn(&LinkState) -> String,
}

pub const ROWS: &[LinkMetricRow] = &[
    LinkMetricRow {
        only: &[],
        topic: "state",
        about: "1 while it is connected, a sink's far side takes what it is given, or a gateway \
                listens; else 0",
        value: |state| u8::from(state.is_up).to_string(),
    },
    LinkMetricRow {
        only: &[],
        topic: "server",
        about: "the server that it is, or was last, connected to; of a sink what it writes to, of \
                a gateway where it listens and connects to",
        value: |state| state.server.clone(),
    },
    LinkMetricRow {
        only: &[],
        topic: "last_error",
        about: "what went wrong last",
        value: |state| state.last_error.clone(),
    },
    LinkMetricRow {
        only: &[],
        topic: "connects",
        about: "times that it was connected",
        value: |state| state.connects.to_string(),
    },
    LinkMetricRow {
        only: &[LinkKind::Gateway],
        topic: "peers",
        about: "sockets that are connected to it",
        value: |state| state.peers.to_string(),
    },
    LinkMetricRow {
        only: &[],
        topic: "out/messages",
        about: "messages that the other side took; of a bridge those that were sent to it, each \
                time that they were",
        value: |state| state.messages_out.to_string(),
    },
    LinkMetricRow {
        only: &[],
        topic: "out/bytes",
        about: "bytes of their payloads",
        value: |state| state.bytes_out.to_string(),
    },
    LinkMetricRow {
        only: &[],
        topic: "out/messages_per_s",
        about: "the same a second, since the value before",
        value: |state| format!("{:.1}", state.rate_out),
    },
    LinkMetricRow {
        only: &[LinkKind::Sink],
        topic: "out/batches",
        about: "batches of them",
        value: |state| state.batches.to_string(),
    },
    LinkMetricRow {
        only: &[LinkKind::Sink],
        topic: "out/failures",
        about: "times that a batch was not taken, or nobody was there",
        value: |state| state.failures.to_string(),
    },
    LinkMetricRow {
        only: &[LinkKind::Bridge, LinkKind::Gateway],
        topic: "in/messages",
        about: "messages that came from the other broker, or from sockets",
        value: |state| state.messages_in.to_string(),
    },
    LinkMetricRow {
        only: &[LinkKind::Bridge, LinkKind::Gateway],
        topic: "in/bytes",
        about: "bytes of their payloads",
        value: |state| state.bytes_in.to_string(),
    },
    LinkMetricRow {
        only: &[LinkKind::Bridge, LinkKind::Gateway],
        topic: "in/messages_per_s",
        about: "the same a second, since the value before",
        value: |state| format!("{:.1}", state.rate_in),
    },
    LinkMetricRow {
        only: &[],
        topic: "queue/in_flight",
        about: "messages that the other side has not acknowledged",
        value: |state| state.in_flight.to_string(),
    },
    LinkMetricRow {
        only: &[],
        topic: "queue/messages",
        about: "messages that wait; of those that a start found the first 1,024, or 1 MiB, count, \
                and the others once they are read",
        value: |state| state.queued.to_string(),
    },
    LinkMetricRow {
        only: &[],
        topic: "queue/bytes",
        about: "their bytes",
        value: |state| state.queued_bytes.to_string(),
    },
    LinkMetricRow {
        only: &[],
        topic: "queue/oldest_ms",
        about: "how long the first of them has waited, in milliseconds",
        value: |state| state.oldest_age_ms.to_string(),
    },
];

/// Returns the rows of [`ROWS`] for a kind of link.
pub fn metric_rows(kind: LinkKind) -> impl Iterator<Item = &'static LinkMetricRow> {
    ROWS.iter().filter(move |row| row.only.is_empty() || row.only.contains(&kind))
}

/// Returns dropped messages of a link by reason: first the reasons of the queue, then further
/// reasons of the link's task. Counts of equal names are added.
pub fn drop_counts(state: &LinkState) -> impl Iterator<Item = (&'static str, u64)> {
    let by_queue = DROP_NAMES.into_iter().zip(state.drops);
    let mut all: Vec<(&'static str, u64)> = by_queue.collect();
    // Queue and task have some names in common, with the same meaning.
    for (name, count) in &state.losses {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += count,
            None => all.push((name, *count)),
        }
    }
    all.into_iter()
}

/// Facts about a link which need no request to a shard.
#[derive(Clone)]
pub struct ReportedLink {
    pub name: Arc<str>,
    pub metrics: Arc<LinkMetrics>,
    pub servers: Vec<String>,
}

/// Links by the client ids of their sessions.
type ReportedLinks = BTreeMap<String, ReportedLink>;

/// Publishes the states of all links below `$SYS/broker/`, every `interval_s` seconds.
pub struct LinkReporter {
    runtime: Arc<ControlRuntime>,
    home: Arc<LocalBroker>,
    plan: Arc<Mutex<ReportPlan>>,
}

#[derive(Default)]
struct ReportPlan {
    links: ReportedLinks,
    interval_s: u32,
    is_running: bool,
}

/// The values published last, by topic. [`LinkReporter`] publishes only values which changed.
#[derive(Default)]
struct PublishedValues {
    published: HashMap<String, String>,
}

/// Shortest pause of the reporter; also the pause while the interval is 0 and values are not
/// published.
const IDLE: Duration = Duration::from_secs(1);

impl LinkReporter {
    pub fn new(runtime: Arc<ControlRuntime>, home: Arc<LocalBroker>) -> LinkReporter {
        LinkReporter { runtime, home, plan: Arc::default() }
    }

    pub fn set_links(&self, links: ReportedLinks, interval_s: u32) {
        let mut plan = lock(&self.plan);
        (plan.links, plan.interval_s) = (links, interval_s);
        if plan.is_running || plan.links.is_empty() {
            return;
        }
        plan.is_running = true;
        let (home, plan) = (self.home.clone(), self.plan.clone());
        self.runtime.spawn(async move {
            let mut memory = PublishedValues::default();
            loop {
                let (links, interval_s) = {
                    let plan = lock(&plan);
                    (plan.links.clone(), plan.interval_s)
                };
                if interval_s > 0 {
                    memory.publish_changes(&home, &links).await;
                }
                sleep(Duration::from_secs(u64::from(interval_s)).max(IDLE)).await;
            }
        });
    }
}

/// Returns the states of `links` by client id. Asks the shards for reports on the sessions.
pub async fn link_states(home: &LocalBroker, links: &ReportedLinks) -> BTreeMap<String, LinkState> {
    let ids = links.keys().map(|id| id.as_str().into()).collect();
    let reports = home.report_sessions(ids).await;
    let state = |(id, told): (&String, &ReportedLink)| {
        let report = reports.iter().find(|one| *one.client_id == **id);
        (id.clone(), link_state(told, report))
    };
    links.iter().map(state).collect()
}

fn link_state(told: &ReportedLink, report: Option<&SessionReport>) -> LinkState {
    let metrics = &told.metrics;
    let server = told.servers.get(metrics.server.load(Relaxed));
    let [rate_out, rate_in] = metrics.rates(Instant::now());
    LinkState {
        is_up: metrics.is_up.load(Relaxed),
        server: server.cloned().unwrap_or_default(),
        last_error: metrics.last_error(),
        connects: metrics.connects.load(Relaxed),
        batches: metrics.batches.load(Relaxed),
        failures: metrics.failures.load(Relaxed),
        messages_out: metrics.messages_out.load(Relaxed),
        bytes_out: metrics.bytes_out.load(Relaxed),
        messages_in: metrics.messages_in.load(Relaxed),
        bytes_in: metrics.bytes_in.load(Relaxed),
        peers: metrics.peers.load(Relaxed),
        rate_out,
        rate_in,
        in_flight: report.map_or(0, |report| report.in_flight),
        queued: report.map_or(0, |report| report.queued),
        queued_bytes: report.map_or(0, |report| report.queued_bytes),
        oldest_age_ms: report.and_then(|report| report.oldest_age_ms).unwrap_or(0),
        drops: report.map_or([0; DROPS], |report| report.drops),
        losses: metrics.drop_counts().collect(),
    }
}

impl PublishedValues {
    async fn publish_changes(&mut self, home: &LocalBroker, links: &ReportedLinks) {
        let mut all: HashMap<String, String> = HashMap::new();
        for (id, state) in link_states(home, links).await {
            let ReportedLink { name, metrics, .. } = &links[&id];
            let base = format!("$SYS/broker/{}/{name}", metrics.kind.word());
            for row in metric_rows(metrics.kind) {
                all.insert(format!("{base}/{}", row.topic), (row.value)(&state));
            }
            for (reason, count) in drop_counts(&state) {
                all.insert(format!("{base}/dropped/{reason}"), count.to_string());
            }
        }
        for (topic, value) in &all {
            if self.published.get(topic) != Some(value) {
                home.handle.publish_sys(topic.as_str().into(), value.as_str().into());
            }
        }
        // A retained message without a payload removes the values of a link which does not exist
        // any more.
        for topic in self.published.keys().filter(|topic| !all.contains_key(*topic)) {
            home.handle.publish_sys(topic.as_str().into(), "".into());
        }
        self.published = all;
    }
}
