//! Links: what the broker connects to by itself. Each has a session here, see `near`, whose queue
//! is all the queue that there is, and a task on the control plane's runtime that empties it.

mod backoff;
pub(crate) mod bridge;
#[cfg(feature = "sink")]
pub(crate) mod events;
mod fresh;
#[cfg(feature = "gateway")]
pub(crate) mod gateway;
pub(crate) mod map;
pub(crate) mod near;
pub(crate) mod placeholders;
pub(crate) mod report;
pub(crate) mod rows;
#[cfg(feature = "sink")]
pub(crate) mod sink;
pub(crate) mod tally;
mod way;

use self::bridge::Bridge;
use self::bridge::settings::BridgeSettings;
#[cfg(feature = "sink")]
use self::events::Hub;
#[cfg(feature = "gateway")]
use self::gateway::{Gateway, settings::GatewaySettings};
use self::near::Home;
use self::report::Reporter;
#[cfg(feature = "sink")]
use self::sink::{Sink, settings::SinkSettings};
use self::tally::Tally;
use crate::identity::remote::url::Url;
use crate::outside::Outside;
use crate::runtime::Runtime;
use broker::limits::LINK_IDS;
use broker::survey::Which;
use rustls::{ClientConfig, ServerConfig};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::{info, warn};

/// All links of the process.
pub(crate) struct Links {
    runtime: Arc<Runtime>,
    home: Arc<Home>,
    #[cfg(feature = "sink")]
    hub: Arc<Hub>,
    /// By the client ids of their sessions.
    running: BTreeMap<String, Running>,
    /// Sessions that are being ended, by their names: who comes after them waits.
    leaving: BTreeMap<String, Task>,
    reporter: Reporter,
}

/// What a link is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    /// It comes back: what the other side has for it stays.
    ForNow,
    /// What the other side has for it goes, but at servers where another link goes on with it.
    ForEver {
        kept: Vec<Url>,
    },
}

/// Closed when a task has ended.
type Task = watch::Receiver<()>;

/// What a link leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkKind {
    #[default]
    Bridge,
    Gateway,
    Sink,
}

/// What the options say of one.
#[derive(Clone, Debug)]
pub(crate) enum LinkSettings {
    Bridge(Box<BridgeSettings>),
    #[cfg(feature = "gateway")]
    Gateway(Box<GatewaySettings>),
    #[cfg(feature = "sink")]
    Sink(Box<SinkSettings>),
}

/// One that is at work.
struct Running {
    settings: LinkSettings,
    tls: Credentials,
    served: Served,
    tally: Arc<Tally>,
    stop: watch::Sender<Stop>,
    /// Options were read again, of which its own are the same.
    again: Arc<Notify>,
    ended: Task,
}

/// What a link shows and trusts from its next connection on, where it uses TLS.
pub(crate) type Credentials = Arc<Mutex<Option<Arc<ClientConfig>>>>;

/// The same towards whoever connects to it.
pub(crate) type Served = Arc<Mutex<Option<Arc<ServerConfig>>>>;

/// A link's options with what their files hold.
pub(crate) struct Wanted {
    pub(crate) settings: LinkSettings,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Where others connect to it by TLS.
    pub(crate) served: Option<Arc<ServerConfig>>,
}

/// How long links may take to say goodbye when the process ends.
const GOODBYE: Duration = Duration::from_secs(2);
/// Between two attempts to end a session here.
const RETRY: Duration = Duration::from_millis(200);

impl Stop {
    /// Whether a server is to forget it.
    pub(crate) fn ends_at(&self, server: &Url) -> bool {
        matches!(self, Stop::ForEver { kept } if !kept.contains(server))
    }
}

impl LinkKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            LinkKind::Bridge => "bridge",
            LinkKind::Gateway => "gateway",
            LinkKind::Sink => "sink",
        }
    }

    /// What the session of one is called.
    pub(crate) fn link_id(self, name: &str) -> String {
        format!("{LINK_IDS}{}/{name}", self.word())
    }
}

impl LinkSettings {
    fn kind(&self) -> LinkKind {
        match self {
            LinkSettings::Bridge(_) => LinkKind::Bridge,
            #[cfg(feature = "gateway")]
            LinkSettings::Gateway(_) => LinkKind::Gateway,
            #[cfg(feature = "sink")]
            LinkSettings::Sink(_) => LinkKind::Sink,
        }
    }

    fn name(&self) -> &Arc<str> {
        match self {
            LinkSettings::Bridge(bridge) => &bridge.name,
            #[cfg(feature = "gateway")]
            LinkSettings::Gateway(gateway) => &gateway.name,
            #[cfg(feature = "sink")]
            LinkSettings::Sink(sink) => &sink.name,
        }
    }

    fn link_id(&self) -> String {
        self.kind().link_id(self.name())
    }

    fn is_same(&self, other: &LinkSettings) -> bool {
        match (self, other) {
            (LinkSettings::Bridge(one), LinkSettings::Bridge(other)) => one.is_same(other),
            #[cfg(feature = "sink")]
            (LinkSettings::Sink(one), LinkSettings::Sink(other)) => one.is_same(other),
            #[cfg(feature = "gateway")]
            (LinkSettings::Gateway(one), LinkSettings::Gateway(other)) => one.is_same(other),
            #[cfg(any(feature = "gateway", feature = "sink"))]
            _ => false,
        }
    }

    /// Those of its servers at which the other one is the same client, and so has its session.
    fn shares(&self, other: &LinkSettings) -> Vec<Url> {
        match (self, other) {
            (LinkSettings::Bridge(one), LinkSettings::Bridge(other)) => one.shares(other),
            #[cfg(any(feature = "gateway", feature = "sink"))]
            _ => Vec::new(),
        }
    }

    /// Whether the other one goes on where this one writes, and so has to wait for its end.
    fn is_followed_by(&self, other: &LinkSettings) -> bool {
        match (self, other) {
            #[cfg(feature = "sink")]
            (LinkSettings::Sink(one), LinkSettings::Sink(other)) => {
                one.file_path().is_some_and(|path| other.file_path() == Some(path))
            }
            _ => !self.shares(other).is_empty(),
        }
    }

    /// What it writes to, without secrets.
    fn servers(&self) -> Vec<String> {
        match self {
            LinkSettings::Bridge(bridge) => {
                bridge.servers.iter().map(ToString::to_string).collect()
            }
            #[cfg(feature = "gateway")]
            LinkSettings::Gateway(gateway) => gateway.places(),
            #[cfg(feature = "sink")]
            LinkSettings::Sink(sink) => vec![sink.target.to_string()],
        }
    }
}

impl Links {
    #[cold]
    pub(crate) fn start(
        outside: &Outside,
        server: &engine::Server,
        wanted: Vec<Wanted>,
        interval_s: u32,
    ) -> Links {
        let mut links = Links::new(outside, server.handle().clone());
        links.change(wanted, interval_s);
        links.forget_strangers();
        links
    }

    fn new(outside: &Outside, handle: engine::Handle) -> Links {
        let runtime = outside.runtime.clone();
        let home = Arc::new(Home::new(handle));
        let reporter = Reporter::new(runtime.clone(), home.clone());
        let (running, leaving) = (BTreeMap::new(), BTreeMap::new());
        Links {
            runtime,
            home,
            #[cfg(feature = "sink")]
            hub: outside.hub.clone(),
            running,
            leaving,
            reporter,
        }
    }

    /// From now on there are these, each with its options: what has not changed goes on as it is.
    /// Their sessions are there when it returns.
    pub(crate) fn change(&mut self, wanted: Vec<Wanted>, interval_s: u32) {
        let is_wanted = |id: &String| wanted.iter().any(|one| one.settings.link_id() == *id);
        let gone: Vec<_> = self.running.keys().filter(|id| !is_wanted(id)).cloned().collect();
        let heirs = self.heirs(&wanted);
        for id in gone {
            if let Some(link) = self.running.remove(&id) {
                let kept = wanted.iter().flat_map(|one| link.settings.shares(&one.settings));
                let kept = kept.collect();
                let _ = link.stop.send(Stop::ForEver { kept });
                self.forget(id, Some(link.ended));
            }
        }
        for Wanted { settings, tls, served } in wanted {
            let id = settings.link_id();
            let after = heirs.iter().filter(|(heir, _)| *heir == id).map(|(_, task)| task.clone());
            let after = after.collect();
            let link = match self.running.remove(&id) {
                Some(same) if same.settings.is_same(&settings) => {
                    *lock(&same.tls) = tls;
                    *lock(&same.served) = served;
                    same.again.notify_one();
                    same
                }
                before => self.begin(settings, (tls, served), before, after),
            };
            self.running.insert(id, link);
        }
        let told = self.running.iter().map(|(id, link)| {
            let (name, tally) = (link.settings.name().clone(), link.tally.clone());
            (id.clone(), report::Told { name, tally, servers: link.settings.servers() })
        });
        self.reporter.change(told.collect(), interval_s);
        self.home.wait_for_sessions();
    }

    /// Links of other names that end, by who goes on where they were.
    fn heirs(&self, wanted: &[Wanted]) -> Vec<(String, Task)> {
        let mut heirs = Vec::new();
        for (id, link) in &self.running {
            let is_same = |other: &LinkSettings| link.settings.is_same(other);
            if wanted.iter().any(|one| one.settings.link_id() == *id && is_same(&one.settings)) {
                continue;
            }
            let next = wanted.iter().map(|one| &one.settings);
            let next = next.filter(|one| one.link_id() != *id);
            let next = next.filter(|one| link.settings.is_followed_by(one));
            heirs.extend(next.map(|one| (one.link_id(), link.ended.clone())));
        }
        heirs
    }

    fn begin(
        &mut self,
        settings: LinkSettings,
        (tls, served): (Option<Arc<ClientConfig>>, Option<Arc<ServerConfig>>),
        before: Option<Running>,
        after: Vec<Task>,
    ) -> Running {
        let ((stop, stopped), again) = (watch::channel(Stop::No), Arc::new(Notify::new()));
        let (ends, ended) = watch::channel(());
        let (tls, served) = (Arc::new(Mutex::new(tls)), Arc::new(Mutex::new(served)));
        if let Some(before) = &before {
            let _ = before.stop.send(Stop::ForNow);
        }
        let tally = before.as_ref().map(|before| before.tally.clone());
        let tally = tally.unwrap_or_else(|| Arc::new(Tally::of(settings.kind())));
        self.home.expect(settings.link_id());
        let had = before.as_ref().map(|before| &before.settings);
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = match &settings {
            LinkSettings::Bridge(own) => {
                Box::pin(self.bridge(own, had, (&tls, &tally)).run(stopped))
            }
            #[cfg(feature = "gateway")]
            LinkSettings::Gateway(own) => {
                let tls = (tls.clone(), served.clone());
                let home = (self.home.clone(), again.clone());
                Box::pin(Gateway::new(own, tls, home, tally.clone()).run(stopped))
            }
            #[cfg(feature = "sink")]
            LinkSettings::Sink(own) => {
                let home = (self.home.clone(), self.hub.clone(), again.clone());
                let had = had.and_then(|had| match had {
                    LinkSettings::Sink(had) => Some(&**had),
                    _ => None,
                });
                let sink = Sink::new(own, tls.clone(), home, tally.clone(), had);
                Box::pin(sink.run(stopped))
            }
        };
        // Two of one name would take the session from each other, here or there.
        let leaving = self.leaving.remove(&settings.link_id());
        let earlier = before.map(|before| before.ended).into_iter().chain(leaving).chain(after);
        self.runtime.spawn(async move {
            for task in earlier {
                end_of(task).await;
            }
            work.await;
            drop(ends);
        });
        Running { settings, tls, served, tally, stop, again, ended }
    }

    fn bridge(
        &self,
        settings: &BridgeSettings,
        before: Option<&LinkSettings>,
        (tls, tally): (&Credentials, &Arc<Tally>),
    ) -> Bridge {
        let (mut gone, mut is_subscribed) = (Vec::new(), false);
        if let Some(LinkSettings::Bridge(before)) = before {
            is_subscribed = before.rules.outward == settings.rules.outward
                && before.takes_rows == settings.takes_rows;
            let had = before.rules.inward.iter().map(|rule| &rule.map.filter);
            let has = |filter: &&String| {
                settings.rules.inward.iter().any(|rule| rule.map.filter == **filter)
            };
            gone = had.filter(|filter| !has(filter)).cloned().collect();
        }
        Bridge {
            settings: settings.clone(),
            tls: tls.clone(),
            home: self.home.clone(),
            tally: tally.clone(),
            gone,
            is_subscribed,
        }
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
                warn!(target: "godwit::link", link = link_id, "its session is still here: {why}");
                sleep(RETRY).await;
            }
            info!(target: "godwit::link", link = link_id, "gone, with what it had queued");
            drop(ends);
        });
    }

    /// Sessions of links that were taken out of the options while nobody ran.
    fn forget_strangers(&mut self) {
        let known: Vec<String> = self.running.keys().cloned().collect();
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

/// Comes back when it is to stop, or nobody could say so any more.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Stop>) {
    let _ = stop.wait_for(|stop| *stop != Stop::No).await;
}

async fn end_of(mut task: Task) {
    while task.changed().await.is_ok() {}
}

/// What it guards is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
