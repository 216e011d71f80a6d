//! Links: what the broker connects to by itself. Each has a session here, see `near`, whose queue
//! is all the queue that there is, and a task on the control plane's runtime that empties it.

pub(crate) mod bridge;
pub(crate) mod near;
pub(crate) mod report;

use self::bridge::Bridge;
use self::bridge::settings::BridgeSettings;
use self::bridge::tally::Tally;
use self::near::Home;
use self::report::Reporter;
use crate::outside::Outside;
use crate::runtime::Runtime;
use broker::limits::LINK_IDS;
use broker::survey::Which;
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

/// All links of the process.
pub(crate) struct Links {
    runtime: Arc<Runtime>,
    home: Arc<Home>,
    running: BTreeMap<Arc<str>, Running>,
    /// Sessions that are being ended, by their names: who comes after them waits.
    leaving: BTreeMap<String, Task>,
    reporter: Reporter,
}

/// What a link is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    /// It comes back: what the other side has for it stays.
    ForNow,
    ForEver,
}

/// Closed when a task has ended.
type Task = watch::Receiver<()>;

/// One that is at work.
struct Running {
    settings: BridgeSettings,
    tls: Credentials,
    tally: Arc<Tally>,
    stop: watch::Sender<Stop>,
    ended: Task,
}

/// What a link shows and trusts from its next connection on, where it uses TLS.
pub(crate) type Credentials = Arc<Mutex<Option<Arc<ClientConfig>>>>;

/// A link's options with what their files hold.
pub(crate) struct Wanted {
    pub(crate) settings: BridgeSettings,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// How long links may take to say goodbye when the process ends.
const GOODBYE: Duration = Duration::from_secs(2);
/// Between two attempts to end a session here.
const RETRY: Duration = Duration::from_millis(200);

impl Links {
    #[cold]
    pub(crate) fn start(
        outside: &Outside,
        server: &engine::Server,
        wanted: Vec<Wanted>,
        interval_s: u32,
    ) -> Links {
        let mut links = Links::new(outside.runtime.clone(), server.handle().clone());
        links.change(wanted, interval_s);
        links.forget_strangers();
        links
    }

    fn new(runtime: Arc<Runtime>, handle: engine::Handle) -> Links {
        let home = Arc::new(Home { handle });
        let reporter = Reporter::new(runtime.clone(), home.clone());
        let (running, leaving) = (BTreeMap::new(), BTreeMap::new());
        Links { runtime, home, running, leaving, reporter }
    }

    /// From now on there are these, each with its options: what has not changed goes on as it is.
    pub(crate) fn change(&mut self, wanted: Vec<Wanted>, interval_s: u32) {
        let is_wanted = |name: &Arc<str>| wanted.iter().any(|one| one.settings.name == *name);
        let gone: Vec<_> = self.running.keys().filter(|name| !is_wanted(name)).cloned().collect();
        for name in gone {
            if let Some(link) = self.running.remove(&name) {
                let _ = link.stop.send(Stop::ForEver);
                self.forget(link.settings.link_id(), Some(link.ended));
            }
        }
        for Wanted { settings, tls } in wanted {
            let name = settings.name.clone();
            let link = match self.running.remove(&name) {
                Some(same) if same.settings.is_same(&settings) => {
                    *lock(&same.tls) = tls;
                    same
                }
                before => self.begin(settings, tls, before),
            };
            self.running.insert(name, link);
        }
        let told = self.running.iter().map(|(name, link)| {
            let servers = link.settings.servers.iter().map(ToString::to_string).collect();
            (name.clone(), report::Told { tally: link.tally.clone(), servers })
        });
        self.reporter.change(told.collect(), interval_s);
    }

    fn begin(
        &mut self,
        settings: BridgeSettings,
        tls: Option<Arc<ClientConfig>>,
        before: Option<Running>,
    ) -> Running {
        let (stop, stopped) = watch::channel(Stop::No);
        let (ends, ended) = watch::channel(());
        let tls = Arc::new(Mutex::new(tls));
        let (mut gone, mut is_subscribed) = (Vec::new(), false);
        if let Some(before) = &before {
            is_subscribed = before.settings.rules.outward == settings.rules.outward;
            let _ = before.stop.send(Stop::ForNow);
            let had = before.settings.rules.inward.iter().map(|rule| &rule.map.filter);
            let has = |filter: &&String| {
                settings.rules.inward.iter().any(|rule| rule.map.filter == **filter)
            };
            gone = had.filter(|filter| !has(filter)).cloned().collect();
        }
        let tally = before.as_ref().map_or_else(Default::default, |before| before.tally.clone());
        let bridge = Bridge {
            settings: settings.clone(),
            tls: tls.clone(),
            home: self.home.clone(),
            tally: tally.clone(),
            gone,
            is_subscribed,
        };
        // Two of one name would take the session from each other.
        let leaving = self.leaving.remove(&settings.link_id());
        let earlier = before.map(|before| before.ended).into_iter().chain(leaving);
        self.runtime.spawn(async move {
            for task in earlier {
                end_of(task).await;
            }
            bridge.run(stopped).await;
            drop(ends);
        });
        Running { settings, tls, tally, stop, ended }
    }

    /// Ends the session of a link that is no more, with what waits in it.
    fn forget(&mut self, link_id: String, task: Option<Task>) {
        let home = self.home.clone();
        let (ends, ended) = watch::channel(());
        let earlier = task.into_iter().chain(self.leaving.insert(link_id.clone(), ended));
        self.runtime.spawn(async move {
            for task in earlier {
                end_of(task).await;
            }
            while let Err(why) = home.end(&link_id).await {
                warn!(target: "godwit::bridge", link = link_id, "its session is still here: {why}");
                sleep(RETRY).await;
            }
            info!(target: "godwit::bridge", link = link_id, "gone, with what it had queued");
            drop(ends);
        });
    }

    /// Sessions of links that were taken out of the options while nobody ran.
    fn forget_strangers(&mut self) {
        let known: Vec<String> =
            self.running.values().map(|link| link.settings.link_id()).collect();
        for report in self.home.handle.survey(Which::Beginning(LINK_IDS.into())) {
            if known.iter().all(|id| **id != *report.client_id) {
                self.forget(report.client_id.into(), None);
            }
        }
    }

    /// Has all say goodbye, and waits for that, but not for long.
    pub(crate) fn stop(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let (all_ended, wait) = channel();
        let running = std::mem::take(&mut self.running);
        for link in running.values() {
            let _ = link.stop.send(Stop::ForNow);
        }
        self.runtime.spawn(async move {
            for (_, link) in running {
                end_of(link.ended).await;
            }
            let _ = all_ended.send(());
        });
        let _ = wait.recv_timeout(GOODBYE);
    }
}

async fn end_of(mut task: Task) {
    while task.changed().await.is_ok() {}
}

/// What it guards is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
