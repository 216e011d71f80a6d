//! A bridge: a session here and one at another broker, and a pipe between them.
//!
//! The task connects, carries, and begins again when a connection ends. It keeps nothing: what is
//! on its way is in one of the two sessions, see `pipe`.

pub(crate) mod carry;
pub(crate) mod far;
pub(crate) mod map;
pub(crate) mod pipe;
pub(crate) mod settings;
pub(crate) mod tally;

use self::carry::{Ended, Line};
use self::far::{Denied, Far, Manner, endpoint};
use self::pipe::Pipe;
use self::settings::BridgeSettings;
use self::tally::Tally;
use super::near::{Home, Wish};
use super::{Credentials, lock};
use crate::identity::remote::url::Url;
use mqtt::{QoS, SubscribeOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// One bridge at work.
pub(crate) struct Bridge {
    pub(crate) settings: BridgeSettings,
    /// Where a server is reached by TLS.
    pub(crate) tls: Credentials,
    pub(crate) home: Arc<Home>,
    pub(crate) tally: Arc<Tally>,
    /// Filters that it had before its options changed, and asks for no more.
    pub(crate) gone: Vec<String>,
}

/// What the task of a bridge remembers from one connection to the next.
struct Course {
    /// Which server is next.
    server: usize,
    /// How many times in a row none was reached.
    failures: u32,
    is_marked: bool,
    /// The session here is new, and the other broker's may be of another one.
    is_new: bool,
    gone: Vec<String>,
}

/// This broker is ours: if it does not answer it is busy stopping or starting.
const NEAR_RETRY: Duration = Duration::from_millis(200);

impl Bridge {
    /// Until `stop` says so.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut course = Course {
            server: 0,
            failures: 0,
            is_marked: !self.settings.version.is_v5(),
            is_new: false,
            gone: std::mem::take(&mut self.gone),
        };
        let mut told = stop.clone();
        tokio::select! {
            () = self.prepare(&mut course) => {}
            () = stopped(&mut told) => return,
        }
        loop {
            let connected = tokio::select! {
                connected = self.connect(&mut course) => connected,
                () = stopped(&mut told) => return,
            };
            match connected {
                Ok(line) => self.carry(line, &mut course, &mut stop).await,
                Err(why) => self.failed(&mut course, why),
            }
            tokio::select! {
                () = sleep(self.pause(&course)) => {}
                () = stopped(&mut told) => return,
            }
        }
    }

    /// The session here exists, and is subscribed to what goes out, before anybody is called: what
    /// is published from now on waits.
    async fn prepare(&self, course: &mut Course) {
        loop {
            match self.try_prepare().await {
                Ok(present) => {
                    course.is_new = !present;
                    return;
                }
                Err(why) => self.tally.fail(&self.settings.name, why),
            }
            sleep(NEAR_RETRY).await;
        }
    }

    async fn try_prepare(&self) -> Result<bool, String> {
        let link_id = self.settings.link_id();
        let before = self.home.survey(&link_id).await;
        let wish = Wish { link_id: &link_id, receive_maximum: 1, is_last: false };
        let mut near = self.home.connect(wish).await?;
        let rules = &self.settings.rules.outward;
        let wanted = rules.iter().map(|rule| {
            let filter = rule.map.filter.as_str();
            let options = SubscribeOptions {
                qos: rule.qos.min(near.terms.qos_max),
                // What came from there does not go back. Of a shared one it would be an error
                // [MQTT-3.8.3-4].
                no_local: !filter.starts_with("$share/"),
                retain_as_published: true,
                retain_handling: rule.retained as u8,
            };
            (filter, options)
        });
        let wanted: Vec<(&str, SubscribeOptions)> = wanted.collect();
        let is_gone = |filter: &&str| wanted.iter().all(|(wanted, _)| wanted != filter);
        let had = before.iter().flat_map(|report| report.filters.iter().map(|one| &**one));
        let gone: Vec<&str> = had.filter(is_gone).collect();
        near.subscribe(&wanted, &gone).await?;
        let present = near.session_present;
        near.goodbye().await?;
        Ok(present)
    }

    /// Both ends, and what is unfinished between them.
    async fn connect(&self, course: &mut Course) -> Result<Line, String> {
        let settings = &self.settings;
        let server = &settings.servers[course.server];
        self.tally.server.store(course.server, Relaxed);
        // A session there remembers ids of QoS 2 messages that one before this one here gave.
        let out = &settings.rules.outward;
        let clean_start = course.is_new && out.iter().any(|rule| rule.qos == QoS::ExactlyOnce);
        let manner = Manner { clean_start, is_marked: course.is_marked };
        let within = Duration::from_secs(u64::from(settings.connect_timeout_s));
        let tls = lock(&self.tls).clone();
        let connecting = Far::connect(settings, server, tls.as_ref(), manner);
        let far = match timeout(within, connecting).await {
            Ok(Ok(far)) => far,
            Ok(Err(Denied::Mark)) => {
                course.is_marked = false;
                return Err("it does not know bridges of 3.1.1, and is asked as a client".into());
            }
            Ok(Err(Denied::Why(why))) => return Err(why),
            Err(_) => return Err(format!("no answer within {} s", settings.connect_timeout_s)),
        };
        let link_id = settings.link_id();
        let granted = far.granted;
        let reports = match granted.session_present {
            true => Vec::new(),
            false => self.home.survey(&link_id).await,
        };
        let receive_maximum = granted.receive_maximum.min(settings.limits.inflight_max);
        let wish = Wish { link_id: &link_id, receive_maximum, is_last: false };
        let near = self.home.connect(wish).await?;
        let mut pipe = Pipe::new(
            settings.name.clone(),
            settings.rules.clone(),
            (granted.terms, near.terms),
            self.tally.clone(),
            seed(),
        );
        reports.iter().for_each(|report| pipe.release(&report.received));
        pipe.begin(&course.gone);
        pipe.say_status(&settings.status_topic, true);
        Ok(Line::new(near, far, pipe, settings))
    }

    async fn carry(&self, mut line: Line, course: &mut Course, stop: &mut watch::Receiver<bool>) {
        let settings = &self.settings;
        let server = settings.servers[course.server].to_string();
        let name = &*settings.name;
        info!(target: "godwit::bridge", bridge = name, server, "connected");
        self.tally.connects.fetch_add(1, Relaxed);
        self.tally.is_up.store(true, Relaxed);
        (course.failures, course.is_new) = (0, false);
        course.gone.clear();
        let home = (course.server > 0 && settings.return_s > 0).then(|| &settings.servers[0]);
        let ended = line.carry(stop, self.first_answers(home)).await;
        self.tally.is_up.store(false, Relaxed);
        match ended {
            Ended::Stopped => info!(target: "godwit::bridge", bridge = name, "stopped"),
            Ended::Return => {
                info!(target: "godwit::bridge", bridge = name, "goes back to its first server");
                course.server = 0;
            }
            Ended::Why(why) => self.failed(course, why),
        }
    }

    /// Comes back once the first server can be reached, if that is not where we are.
    async fn first_answers(&self, server: Option<&Url>) {
        let Some(server) = server else { return std::future::pending().await };
        let endpoint = endpoint(server);
        let within = Duration::from_secs(u64::from(self.settings.connect_timeout_s));
        loop {
            sleep(Duration::from_secs(u64::from(self.settings.return_s))).await;
            if matches!(timeout(within, endpoint.dial()).await, Ok(Ok(_))) {
                return;
            }
        }
    }

    /// The next server in the list, and from the first one on again after a wait.
    fn failed(&self, course: &mut Course, why: String) {
        let (name, server) = (&*self.settings.name, &self.settings.servers[course.server]);
        warn!(target: "godwit::bridge", bridge = name, %server, "not connected: {why}");
        self.tally.set_error(format!("{server}: {why}"));
        course.server = (course.server + 1) % self.settings.servers.len();
        course.failures += 1;
    }

    /// Twice as long each time, by a random part shorter: bridges that lost one broker do not come
    /// back in one moment.
    fn pause(&self, course: &Course) -> Duration {
        let rounds = course.failures / self.settings.servers.len() as u32;
        if course.failures > 0 && course.server > 0 {
            return Duration::ZERO;
        }
        let first = Duration::from_millis(u64::from(self.settings.retry_min_ms));
        let longest = Duration::from_secs(u64::from(self.settings.retry_max_s)).max(first);
        let pause = first.saturating_mul(1 << rounds.saturating_sub(1).min(20)).min(longest);
        if course.failures == 0 {
            first
        } else {
            pause.mul_f64(1.0 - f64::from(seed() % 256) / 512.0)
        }
    }
}

/// Different each time.
fn seed() -> u16 {
    let mut bytes = [0; 2];
    // Without it ids of requests are less unlikely to be in use, and waits alike.
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    u16::from_ne_bytes(bytes)
}

/// Comes back when it is to stop, or nobody could say so any more.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
