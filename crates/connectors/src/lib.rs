//! Links: connections which the broker opens by itself (bridges, gateways and sinks). Each link has
//! a session at this broker, see `local_session`, and a task on the control plane's runtime. The
//! session holds the whole queue of the link; the task empties the queue.

#![forbid(unsafe_code)]

mod backoff;
pub mod bridge;
mod connection;
pub mod events;
#[cfg(feature = "gateway")]
pub mod gateway;
pub mod local_session;
pub mod metrics;
mod new_filters;
pub mod option_rows;
pub mod report;
#[cfg(feature = "sink")]
pub mod sink;
pub mod topic_map;

use self::bridge::remote_session::load_client_tls;
use self::events::EventHub;
use self::local_session::LocalBroker;
use self::metrics::LinkMetrics;
use self::option_rows::LinkTlsSettings;
use self::report::LinkReporter;
use broker::BrokerOptions;
use broker::limits::LINK_IDS;
use broker::session::session_report::SessionSelector;
use net::control_runtime::ControlRuntime;
use net::server_url::ServerUrl;
use rustls::{ClientConfig, ServerConfig};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::{info, warn};

/// Process resources for all links, passed to [`LinkSupervisor::start`].
pub struct LinkResources {
    pub runtime: Arc<ControlRuntime>,
    /// Distributes events about clients and sessions to sinks.
    pub hub: Arc<EventHub>,
}

/// All links of the process. [`LinkSupervisor::apply`] starts, replaces and ends links as the
/// options say.
pub struct LinkSupervisor {
    runtime: Arc<ControlRuntime>,
    home: Arc<LocalBroker>,
    hub: Arc<EventHub>,
    /// Running links by the client ids of their sessions, see [`LinkKind::link_id`].
    running: BTreeMap<String, RunningLink>,
    /// Sessions whose end is in progress, by client id. A new link of the same client id waits for
    /// the end of the task.
    leaving: BTreeMap<String, LinkTaskEnd>,
    reporter: LinkReporter,
}

/// Instruction to the task of a link, sent over a watch channel. `wait_for_stop` waits for an
/// instruction to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkStop {
    No,
    /// The link will come back: the session at the remote server stays.
    ForNow,
    /// The link ends the session at the remote server, except at the servers in `kept`, where
    /// another link continues the session.
    ForEver {
        kept: Vec<ServerUrl>,
    },
}

/// Receiver without values: the task of a link drops the sender when the task ends. See
/// `wait_for_end`.
type LinkTaskEnd = watch::Receiver<()>;

/// Kind of a link: part of the client id, of topics below `$SYS/broker/` and of log targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    #[default]
    Bridge,
    Gateway,
    Sink,
}

/// Settings of a link of one kind, with the task that the link runs.
pub trait LinkSettings: Any + fmt::Debug + Send + Sync {
    fn kind(&self) -> LinkKind;

    fn name(&self) -> &Arc<str>;

    /// Returns the limits of the local session.
    fn limits(&self) -> &Arc<BrokerOptions>;

    /// Returns the addresses of the servers, without secrets, for `ReportedLink::servers`.
    fn servers(&self) -> Vec<String>;

    /// Whether a reload can keep the link running: the same settings, apart from limits of the
    /// queue which change in place.
    fn is_same(&self, other: &dyn LinkSettings) -> bool;

    /// Loads the files of the TLS options.
    fn load_tls(&self) -> Result<LinkTlsConfigs, String>;

    /// Returns the task of the link, which runs until the stop. `before` are the settings of the
    /// task whose local session this task continues.
    fn new_task(
        &self,
        resources: &LinkTaskResources,
        before: Option<&dyn LinkSettings>,
        stop: watch::Receiver<LinkStop>,
    ) -> LinkTask;

    /// Returns the servers at which `other` has the same client id, and so the same session. Only
    /// bridges have sessions at servers.
    fn shared_servers(&self, _other: &dyn LinkSettings) -> Vec<ServerUrl> {
        Vec::new()
    }

    /// Whether `other` continues the file or the remote session of this link, and so has to wait
    /// for the end of this link's task.
    fn must_wait_for_end(&self, other: &dyn LinkSettings) -> bool {
        !self.shared_servers(other).is_empty()
    }

    /// Returns the client id of the local session.
    fn link_id(&self) -> String {
        self.kind().link_id(self.name())
    }
}

/// Resources of the process and of the supervisor for the task of one link. The supervisor changes
/// the TLS configurations while the task runs.
#[derive(Clone)]
pub struct LinkTaskResources {
    pub home: Arc<LocalBroker>,
    pub hub: Arc<EventHub>,
    pub dial_tls: ClientTlsCell,
    pub listen_tls: ServerTlsCell,
    /// Notified when options are read again and the settings of the link stay the same.
    pub again: Arc<Notify>,
    pub metrics: Arc<LinkMetrics>,
}

/// Task of a link, see [`LinkSettings::new_task`].
pub type LinkTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A running link, with the handles by which `apply` changes or ends the task.
struct RunningLink {
    settings: Arc<dyn LinkSettings>,
    resources: LinkTaskResources,
    stop: watch::Sender<LinkStop>,
    ended: LinkTaskEnd,
}

/// TLS configuration of a link's next outgoing connection. `apply` replaces the content while the
/// link runs.
pub type ClientTlsCell = Arc<Mutex<Option<Arc<ClientConfig>>>>;

/// TLS configuration for the next incoming connection of a gateway. `apply` replaces the content
/// while the link runs.
pub type ServerTlsCell = Arc<Mutex<Option<Arc<ServerConfig>>>>;

/// TLS configurations made from the files which the settings of a link name.
pub struct LinkTlsConfigs {
    pub dial: Option<Arc<ClientConfig>>,
    /// Configuration for incoming connections. Only a [`LinkKind::Gateway`] accepts connections.
    pub listen: Option<Arc<ServerConfig>>,
}

impl LinkTlsConfigs {
    /// Loads the files for outgoing connections, if the link uses TLS.
    pub(crate) fn for_dialing(
        uses_tls: bool,
        tls: &LinkTlsSettings,
    ) -> Result<LinkTlsConfigs, String> {
        let dial = uses_tls.then(|| load_client_tls(tls)).transpose()?;
        Ok(LinkTlsConfigs { dial, listen: None })
    }
}

/// Settings of a link, with the contents of their files.
pub struct LinkDefinition {
    pub settings: Arc<dyn LinkSettings>,
    pub tls: LinkTlsConfigs,
}

/// Longest wait of [`LinkSupervisor::stop`] for links to disconnect when the process ends.
const GOODBYE: Duration = Duration::from_secs(2);
/// Pause between two attempts of `end_session` to end a session at this broker.
const RETRY: Duration = Duration::from_millis(200);

impl LinkStop {
    /// Whether the link has to end the session at `server`: only for `ForEver`, and not for servers
    /// in `kept`.
    pub fn ends_session_at(&self, server: &ServerUrl) -> bool {
        matches!(self, LinkStop::ForEver { kept } if !kept.contains(server))
    }
}

impl LinkKind {
    pub fn word(self) -> &'static str {
        match self {
            LinkKind::Bridge => "bridge",
            LinkKind::Gateway => "gateway",
            LinkKind::Sink => "sink",
        }
    }

    /// Returns the client id of the session of a link. `LINK_IDS` is a prefix which clients cannot
    /// use.
    pub fn link_id(self, name: &str) -> String {
        format!("{LINK_IDS}{}/{name}", self.word())
    }
}

impl dyn LinkSettings {
    /// Returns the settings as those of one kind of link; `None` if the link is of another kind.
    pub fn as_kind<S: LinkSettings>(&self) -> Option<&S> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Implements [`LinkSettings::is_same`] for a kind of link. `without_limits` returns the settings
/// with the default limits.
fn is_same_link<S: LinkSettings + PartialEq>(
    one: &S,
    other: &dyn LinkSettings,
    without_limits: fn(&S) -> S,
) -> bool {
    let limits = |one: &S| (one.limits().inflight_max, one.limits().packet_bytes_max);
    other.as_kind().is_some_and(|other| {
        without_limits(one) == without_limits(other) && limits(one) == limits(other)
    })
}

impl LinkDefinition {
    /// Loads the files which the settings name.
    pub fn load(settings: Arc<dyn LinkSettings>) -> Result<LinkDefinition, String> {
        match settings.load_tls() {
            Ok(tls) => Ok(LinkDefinition { settings, tls }),
            Err(why) => Err(format!("{} {}: {why}", settings.kind().word(), settings.name())),
        }
    }
}

impl LinkSupervisor {
    #[cold]
    pub fn start(
        resources: LinkResources,
        server: &engine::Server,
        wanted: Vec<LinkDefinition>,
        interval_s: u32,
    ) -> LinkSupervisor {
        let mut links = LinkSupervisor::new(resources, server.handle().clone());
        links.apply(wanted, interval_s);
        links.end_orphaned_sessions();
        links
    }

    fn new(resources: LinkResources, handle: engine::EngineHandle) -> LinkSupervisor {
        let runtime = resources.runtime;
        let home = Arc::new(LocalBroker::new(handle));
        let reporter = LinkReporter::new(runtime.clone(), home.clone());
        let (running, leaving) = (BTreeMap::new(), BTreeMap::new());
        LinkSupervisor { runtime, home, hub: resources.hub, running, leaving, reporter }
    }

    /// Makes the running links those of `wanted`. A link with unchanged settings keeps running and
    /// gets the new TLS configurations; a changed link restarts; a missing link ends, with its
    /// session. Returns when the sessions are prepared, or after the bound of
    /// `LocalBroker::wait_for_sessions`.
    pub fn apply(&mut self, wanted: Vec<LinkDefinition>, interval_s: u32) {
        let is_wanted = |id: &String| wanted.iter().any(|one| one.settings.link_id() == *id);
        let gone: Vec<_> = self.running.keys().filter(|id| !is_wanted(id)).cloned().collect();
        let heirs = self.successors(&wanted);
        for id in gone {
            if let Some(link) = self.running.remove(&id) {
                let kept =
                    wanted.iter().flat_map(|one| link.settings.shared_servers(&*one.settings));
                let kept = kept.collect();
                let _ = link.stop.send(LinkStop::ForEver { kept });
                self.end_session(id, Some(link.ended));
            }
        }
        for definition in wanted {
            let id = definition.settings.link_id();
            let after = heirs.iter().filter(|(heir, _)| *heir == id).map(|(_, task)| task.clone());
            let after = after.collect();
            let link = match self.running.remove(&id) {
                Some(same) if same.settings.is_same(&*definition.settings) => {
                    *lock(&same.resources.dial_tls) = definition.tls.dial;
                    *lock(&same.resources.listen_tls) = definition.tls.listen;
                    same.resources.again.notify_one();
                    same
                }
                before => self.start_link(definition, before, after),
            };
            self.running.insert(id, link);
        }
        let told = self.running.iter().map(|(id, link)| {
            let (name, metrics) = (link.settings.name().clone(), link.resources.metrics.clone());
            (id.clone(), report::ReportedLink { name, metrics, servers: link.settings.servers() })
        });
        self.reporter.set_links(told.collect(), interval_s);
        self.home.wait_for_sessions();
    }

    /// Returns pairs of a link's client id and the end of a task with another client id, for which
    /// the link has to wait: see `must_wait_for_end`.
    fn successors(&self, wanted: &[LinkDefinition]) -> Vec<(String, LinkTaskEnd)> {
        let mut heirs = Vec::new();
        for (id, link) in &self.running {
            let is_same = |other: &dyn LinkSettings| link.settings.is_same(other);
            if wanted.iter().any(|one| one.settings.link_id() == *id && is_same(&*one.settings)) {
                continue;
            }
            let next = wanted.iter().map(|one| &*one.settings);
            let next = next.filter(|one| one.link_id() != *id);
            let next = next.filter(|one| link.settings.must_wait_for_end(*one));
            heirs.extend(next.map(|one| (one.link_id(), link.ended.clone())));
        }
        heirs
    }

    fn start_link(
        &mut self,
        LinkDefinition { settings, tls }: LinkDefinition,
        before: Option<RunningLink>,
        after: Vec<LinkTaskEnd>,
    ) -> RunningLink {
        let ((stop, stopped), (ends, ended)) = (watch::channel(LinkStop::No), watch::channel(()));
        if let Some(before) = &before {
            let _ = before.stop.send(LinkStop::ForNow);
        }
        let metrics = before.as_ref().map(|before| before.resources.metrics.clone());
        let metrics = metrics.unwrap_or_else(|| Arc::new(LinkMetrics::for_kind(settings.kind())));
        self.home.expect_session(settings.link_id());
        let resources = LinkTaskResources {
            home: self.home.clone(),
            hub: self.hub.clone(),
            dial_tls: Arc::new(Mutex::new(tls.dial)),
            listen_tls: Arc::new(Mutex::new(tls.listen)),
            again: Arc::new(Notify::new()),
            metrics,
        };
        let had = before.as_ref().map(|before| &*before.settings);
        let work = settings.new_task(&resources, had, stopped);
        // Two tasks of the same client id would take over the session from each other, at this
        // broker or at the remote server.
        let leaving = self.leaving.remove(&settings.link_id());
        let earlier = before.map(|before| before.ended).into_iter().chain(leaving).chain(after);
        self.runtime.spawn(async move {
            for task in earlier {
                wait_for_end(task).await;
            }
            work.await;
            drop(ends);
        });
        RunningLink { settings, resources, stop, ended }
    }

    /// Ends the session of a removed link and discards its queue, after the link's task has ended.
    /// Retries every `RETRY` until the session is gone.
    fn end_session(&mut self, link_id: String, task: Option<LinkTaskEnd>) {
        let home = self.home.clone();
        let (ends, ended) = watch::channel(());
        let earlier = task.into_iter().chain(self.leaving.insert(link_id.clone(), ended));
        self.runtime.spawn(async move {
            for task in earlier {
                wait_for_end(task).await;
            }
            while let Err(why) = home.end_session(&link_id).await {
                warn!(target: "godwit::link", link = link_id, "its session is still here: {why}");
                sleep(RETRY).await;
            }
            info!(target: "godwit::link", link = link_id, "gone, with what it had queued");
            drop(ends);
        });
    }

    /// Ends sessions of links which were removed from the options while the process did not run.
    fn end_orphaned_sessions(&mut self) {
        let known: Vec<String> = self.running.keys().cloned().collect();
        for report in
            self.home.handle.report_sessions(SessionSelector::ClientIdPrefix(LINK_IDS.into()))
        {
            if known.iter().all(|id| **id != *report.client_id) {
                self.end_session(report.client_id.into(), None);
            }
        }
    }

    /// Stops all links with [`LinkStop::ForNow`] and waits at most `GOODBYE` for their tasks.
    pub fn stop(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let (all_ended, wait) = channel();
        let running = std::mem::take(&mut self.running);
        for link in running.values() {
            let _ = link.stop.send(LinkStop::ForNow);
        }
        self.runtime.spawn(async move {
            for (_, link) in running {
                wait_for_end(link.ended).await;
            }
            let _ = all_ended.send(());
        });
        let _ = wait.recv_timeout(GOODBYE);
    }
}

/// Waits for an instruction to stop, or until the sender is dropped.
pub async fn wait_for_stop(stop: &mut watch::Receiver<LinkStop>) {
    let _ = stop.wait_for(|stop| *stop != LinkStop::No).await;
}

/// Waits until the task has dropped the sender of `task`.
async fn wait_for_end(mut task: LinkTaskEnd) {
    while task.changed().await.is_ok() {}
}

/// Locks a mutex, poisoned or not. Holders in this crate do not leave the content half-written when
/// their thread panics.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
