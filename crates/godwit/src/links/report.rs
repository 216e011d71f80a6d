//! How links are: numbers of their tasks and of their sessions, for `$SYS/broker/bridge/` and for
//! whoever else asks.

use super::bridge::settings::BridgeSettings;
use super::bridge::tally::{LOSSES, Tally};
use super::lock;
use super::near::Home;
use crate::runtime::Runtime;
use broker::survey::Report;
use broker::sys::{DROP_NAMES, DROPS};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A bridge as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) is_up: bool,
    pub(crate) server: String,
    pub(crate) last_error: String,
    pub(crate) connects: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_out: u64,
    pub(crate) messages_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) rate_out: f64,
    pub(crate) rate_in: f64,
    pub(crate) in_flight: u32,
    pub(crate) queued: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) oldest_age_ms: u64,
    /// By the queue, and by the bridge.
    pub(crate) drops: [u64; DROPS],
    pub(crate) losses: [u64; LOSSES.len()],
}

/// One value below `$SYS/broker/bridge/{name}/`.
pub(crate) struct Row {
    pub(crate) topic: &'static str,
    pub(crate) about: &'static str,
    pub(crate) value: fn(&State) -> String,
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        topic: "state",
        about: "1 while it is connected, else 0",
        value: |state| u8::from(state.is_up).to_string(),
    },
    Row {
        topic: "server",
        about: "the server that it is, or was last, connected to",
        value: |state| state.server.clone(),
    },
    Row {
        topic: "last_error",
        about: "what went wrong last",
        value: |state| state.last_error.clone(),
    },
    Row {
        topic: "connects",
        about: "times that it was connected",
        value: |state| state.connects.to_string(),
    },
    Row {
        topic: "out/messages",
        about: "messages sent to the other broker",
        value: |state| state.messages_out.to_string(),
    },
    Row {
        topic: "out/bytes",
        about: "bytes of their payloads",
        value: |state| state.bytes_out.to_string(),
    },
    Row {
        topic: "out/messages_per_s",
        about: "the same a second, since the value before",
        value: |state| format!("{:.1}", state.rate_out),
    },
    Row {
        topic: "in/messages",
        about: "messages that came from the other broker",
        value: |state| state.messages_in.to_string(),
    },
    Row {
        topic: "in/bytes",
        about: "bytes of their payloads",
        value: |state| state.bytes_in.to_string(),
    },
    Row {
        topic: "in/messages_per_s",
        about: "the same a second, since the value before",
        value: |state| format!("{:.1}", state.rate_in),
    },
    Row {
        topic: "queue/in_flight",
        about: "messages that the other broker has not acknowledged",
        value: |state| state.in_flight.to_string(),
    },
    Row {
        topic: "queue/messages",
        about: "messages that wait; after a start, until it is connected, those that came since",
        value: |state| state.queued.to_string(),
    },
    Row {
        topic: "queue/bytes",
        about: "their bytes",
        value: |state| state.queued_bytes.to_string(),
    },
    Row {
        topic: "queue/oldest_ms",
        about: "how long the first of them has waited, in milliseconds",
        value: |state| state.oldest_age_ms.to_string(),
    },
];

/// Why messages of a bridge were dropped: by its queue, then by the bridge.
pub(crate) fn drops(state: &State) -> impl Iterator<Item = (&'static str, u64)> {
    let by_queue = DROP_NAMES.into_iter().zip(state.drops);
    // The queue has a name for these too, and they mean the same.
    let own = LOSSES.into_iter().zip(state.losses);
    let mut all: Vec<(&'static str, u64)> = by_queue.collect();
    for (name, count) in own {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => all.push((name, count)),
        }
    }
    all.into_iter()
}

/// What is known of a bridge without asking.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) tally: Arc<Tally>,
    pub(crate) servers: Vec<String>,
}

type Bridges = BTreeMap<Arc<str>, Told>;

/// Says every so often how all of them are.
pub(crate) struct Reporter {
    runtime: Arc<Runtime>,
    home: Arc<Home>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    bridges: Bridges,
    interval_s: u32,
    is_running: bool,
}

/// What was said last, and when.
#[derive(Default)]
struct Memory {
    said: HashMap<String, String>,
    counted: HashMap<Arc<str>, (Instant, u64, u64)>,
}

/// While nothing is to be said.
const IDLE: Duration = Duration::from_secs(1);

impl Reporter {
    pub(crate) fn new(runtime: Arc<Runtime>, home: Arc<Home>) -> Reporter {
        Reporter { runtime, home, plan: Arc::default() }
    }

    pub(crate) fn change(&self, bridges: Bridges, interval_s: u32) {
        let mut plan = lock(&self.plan);
        (plan.bridges, plan.interval_s) = (bridges, interval_s);
        if plan.is_running || plan.bridges.is_empty() {
            return;
        }
        plan.is_running = true;
        let (home, plan) = (self.home.clone(), self.plan.clone());
        self.runtime.spawn(async move {
            let mut memory = Memory::default();
            loop {
                let (bridges, interval_s) = {
                    let plan = lock(&plan);
                    (plan.bridges.clone(), plan.interval_s)
                };
                if interval_s > 0 {
                    memory.say(&home, &bridges).await;
                }
                sleep(Duration::from_secs(u64::from(interval_s)).max(IDLE)).await;
            }
        });
    }
}

/// How these bridges are.
pub(crate) async fn states(home: &Home, bridges: &Bridges) -> BTreeMap<Arc<str>, State> {
    let prefix = BridgeSettings::link_prefix();
    let ids = bridges.keys().map(|name| format!("{prefix}{name}").into()).collect();
    let reports = home.survey(ids).await;
    let state = |(name, told): (&Arc<str>, &Told)| {
        let report = reports.iter().find(|one| one.client_id.strip_prefix(&prefix) == Some(name));
        (name.clone(), state(told, report))
    };
    bridges.iter().map(state).collect()
}

fn state(told: &Told, report: Option<&Report>) -> State {
    let tally = &told.tally;
    let mut losses = [0; LOSSES.len()];
    losses.iter_mut().zip(tally.losses()).for_each(|(count, (_, lost))| *count = lost);
    let server = told.servers.get(tally.server.load(Relaxed));
    State {
        is_up: tally.is_up.load(Relaxed),
        server: server.cloned().unwrap_or_default(),
        last_error: tally.last_error(),
        connects: tally.connects.load(Relaxed),
        messages_out: tally.messages_out.load(Relaxed),
        bytes_out: tally.bytes_out.load(Relaxed),
        messages_in: tally.messages_in.load(Relaxed),
        bytes_in: tally.bytes_in.load(Relaxed),
        rate_out: 0.0,
        rate_in: 0.0,
        in_flight: report.map_or(0, |report| report.in_flight),
        queued: report.map_or(0, |report| report.queued),
        queued_bytes: report.map_or(0, |report| report.queued_bytes),
        oldest_age_ms: report.and_then(|report| report.oldest_age_ms).unwrap_or(0),
        drops: report.map_or([0; DROPS], |report| report.drops),
        losses,
    }
}

impl Memory {
    async fn say(&mut self, home: &Home, bridges: &Bridges) {
        let now = Instant::now();
        let mut all: HashMap<String, String> = HashMap::new();
        for (name, mut state) in states(home, bridges).await {
            let counts = (now, state.messages_out, state.messages_in);
            if let Some((at, out, inward)) = self.counted.insert(name.clone(), counts) {
                let seconds = (now - at).as_secs_f64().max(0.001);
                state.rate_out = (state.messages_out.saturating_sub(out)) as f64 / seconds;
                state.rate_in = (state.messages_in.saturating_sub(inward)) as f64 / seconds;
            }
            let base = format!("$SYS/broker/bridge/{name}");
            for row in ROWS {
                all.insert(format!("{base}/{}", row.topic), (row.value)(&state));
            }
            for (reason, count) in drops(&state) {
                all.insert(format!("{base}/dropped/{reason}"), count.to_string());
            }
        }
        for (topic, value) in &all {
            if self.said.get(topic) != Some(value) {
                home.handle.say(topic.as_str().into(), value.as_str().into());
            }
        }
        // A retained message without a payload clears what a bridge that is gone said.
        for topic in self.said.keys().filter(|topic| !all.contains_key(*topic)) {
            home.handle.say(topic.as_str().into(), "".into());
        }
        self.counted.retain(|name, _| bridges.contains_key(name));
        self.said = all;
    }
}
