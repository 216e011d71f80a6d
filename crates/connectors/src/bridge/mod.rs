//! A bridge: a session at this broker, a session at a remote broker, and a relay between them.
//!
//! The task connects, relays, and reconnects when a connection ends. Messages in flight are in one
//! of the two sessions, so the end of a connection loses nothing: see `relay`.

pub mod connection_pair;
mod loan;
pub mod relay;
pub mod remote_session;
mod send_progress;
mod server_marks;
pub mod settings;
mod tunnel;

use self::connection_pair::{BridgeExit, ConnectionPair};
use self::relay::{BridgeRule, BridgeSide, FailoverState, PoisonGuard, Relay, WATCH_OPTIONS};
use self::remote_session::{RemoteConnectError, RemoteConnectOptions, RemoteSession, scheme};
use self::server_marks::ServerMarks;
use self::settings::BridgeSettings;
use super::backoff::{self, random_seed};
use super::local_session::{
    LocalBroker, LocalSession, LocalSessionRequest, NOTE_OPTIONS, row_subscription,
};
use super::metrics::LinkMetrics;
use super::new_filters::NewLinkFilters;
use super::{
    ClientTlsCell, LinkKind, LinkSettings, LinkStop, LinkTask, LinkTaskResources, LinkTlsConfigs,
    is_same_link, lock, wait_for_stop,
};
use broker::BrokerOptions;
use broker::interface::rule_event::LinkEvent;
use mqtt::QoS;
use net::pause_aware_timeout::timeout;
use net::server_url::ServerUrl;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

/// A bridge with the resources of its task. [`Bridge::run`] is the task.
pub struct Bridge {
    pub settings: BridgeSettings,
    /// TLS configuration for the next connection to a server; replaced when options are read again.
    pub tls: ClientTlsCell,
    pub local_broker: Arc<LocalBroker>,
    pub metrics: Arc<LinkMetrics>,
    /// Filters of rules which the options no longer have; the bridge unsubscribes from them at the
    /// remote broker.
    pub removed_filters: Vec<String>,
    /// Whether the local session already has the subscriptions of the rules.
    pub is_subscribed: bool,
}

/// State of a bridge's task between connections.
#[derive(Default)]
struct BridgeRetryState {
    /// Index of the next server.
    server: usize,
    /// A connection to `server` which is already open.
    ready: Option<RemoteSession>,
    /// Failures in a row at remote servers; determines the pause, see `retry_delay`.
    failures: u32,
    /// Number of failures in a row at the local session of this broker.
    own_failures: u32,
    /// Whether the local session has to be created and subscribed.
    is_unprepared: bool,
    /// Filters whose retained messages are not requested yet.
    new_filters: NewLinkFilters,
    server_marks: ServerMarks,
    removed_filters: Vec<String>,
    failover: FailoverState,
    poison_guard: PoisonGuard,
    /// Server which has received the end of the session in DISCONNECT.
    ended_at_server: Option<usize>,
}

/// Bound of the time to end the sessions at all servers, for which the next bridge of this name
/// waits.
const END_SESSION_MAX: Duration = Duration::from_secs(5);
/// A connection of this length resets the counts of failures.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Pause between attempts to prepare the local session. This broker fails to answer only while it
/// starts or stops.
const LOCAL_RETRY: Duration = Duration::from_millis(200);

impl LinkSettings for BridgeSettings {
    fn kind(&self) -> LinkKind {
        LinkKind::Bridge
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn limits(&self) -> &Arc<BrokerOptions> {
        &self.limits
    }

    fn servers(&self) -> Vec<String> {
        self.servers.iter().map(ToString::to_string).collect()
    }

    fn is_same(&self, other: &dyn LinkSettings) -> bool {
        is_same_link(self, other, |one| BridgeSettings { limits: Arc::default(), ..one.clone() })
    }

    fn load_tls(&self) -> Result<LinkTlsConfigs, String> {
        LinkTlsConfigs::for_dialing(self.uses_tls(), &self.tls)
    }

    fn new_task(
        &self,
        resources: &LinkTaskResources,
        before: Option<&dyn LinkSettings>,
        stop: watch::Receiver<LinkStop>,
    ) -> LinkTask {
        let before = before.and_then(|before| before.as_kind());
        Box::pin(Bridge::new(self, resources, before).run(stop))
    }

    /// Schemes and paths of servers are not compared.
    fn shared_servers(&self, other: &dyn LinkSettings) -> Vec<ServerUrl> {
        let same = |other: &&BridgeSettings| self.remote_client_id() == other.remote_client_id();
        let Some(other) = other.as_kind().filter(same) else { return Vec::new() };
        let place =
            |url: &ServerUrl| (url.host.to_ascii_lowercase(), url.port.unwrap_or(scheme(url).port));
        let has = |url: &&ServerUrl| other.servers.iter().any(|own| place(own) == place(url));
        self.servers.iter().filter(has).cloned().collect()
    }
}

impl Bridge {
    fn new(
        settings: &BridgeSettings,
        resources: &LinkTaskResources,
        before: Option<&BridgeSettings>,
    ) -> Bridge {
        let (mut gone, mut is_subscribed) = (Vec::new(), false);
        if let Some(before) = before {
            is_subscribed = before.rules.outward == settings.rules.outward
                && before.watched_filters() == settings.watched_filters()
                && before.takes_rows == settings.takes_rows;
            let had = before.rules.inward.iter().map(|rule| &rule.map.filter);
            let has = |filter: &&String| {
                settings.rules.inward.iter().any(|rule| rule.map.filter == **filter)
            };
            gone = had.filter(|filter| !has(filter)).cloned().collect();
        }
        Bridge {
            settings: settings.clone(),
            tls: resources.dial_tls.clone(),
            local_broker: resources.home.clone(),
            metrics: resources.metrics.clone(),
            removed_filters: gone,
            is_subscribed,
        }
    }

    /// Relays until `stop` is signalled. If the bridge was removed, then ends its sessions at the
    /// servers.
    pub async fn run(mut self, mut stop: watch::Receiver<LinkStop>) {
        let course = self.run_connections(&mut stop).await;
        let stop = stop.borrow().clone();
        self.end_remote_sessions(course, &stop).await;
    }

    async fn run_connections(&mut self, stop: &mut watch::Receiver<LinkStop>) -> BridgeRetryState {
        let gone = std::mem::take(&mut self.removed_filters);
        let past = FailoverState::for_servers(self.settings.servers.len());
        let mut course = BridgeRetryState {
            removed_filters: gone,
            failover: past,
            is_unprepared: true,
            ..BridgeRetryState::default()
        };
        let mut told = stop.clone();
        loop {
            if course.is_unprepared {
                tokio::select! {
                    () = self.prepare_local_session(&mut course) => {}
                    () = wait_for_stop(&mut told) => return course,
                }
            }
            let connected = tokio::select! {
                connected = self.connect(&mut course) => connected,
                () = wait_for_stop(&mut told) => return course,
            };
            match connected {
                Ok(line) => self.relay_until_end(line, &mut course, stop).await,
                Err((side, why)) => self.on_failure(&mut course, side, why),
            }
            if course.ready.is_some() {
                continue;
            }
            tokio::select! {
                () = sleep(self.retry_delay(&course)) => {}
                () = wait_for_stop(&mut told) => return course,
            }
        }
    }

    /// Ends the sessions for which [`LinkStop::ends_session_at`] returns true, as far as the
    /// servers answer within `END_SESSION_MAX`: no bridge would receive the messages kept there.
    async fn end_remote_sessions(&self, course: BridgeRetryState, stop: &LinkStop) {
        let (settings, count) = (&self.settings, self.settings.servers.len());
        let connecting = Duration::from_secs(u64::from(settings.connect_timeout_s));
        let each = connecting.min(END_SESSION_MAX) / count as u32;
        for server in (0..count).map(|at| (course.server + at) % count) {
            let url = &settings.servers[server];
            if !stop.ends_session_at(url)
                || course.ended_at_server == Some(server)
                || course.server_marks.is_unvisited(url)
            {
                continue;
            }
            let leaving = async {
                if let Ok(remote) = self.connect_with_fallback(server, true).await {
                    remote.end_session(settings.version).await;
                }
            };
            let _ = timeout(each, leaving).await;
        }
    }

    /// Creates and subscribes the local session before the bridge connects, so messages published
    /// from now on wait for the bridge. Retries until done.
    async fn prepare_local_session(&self, course: &mut BridgeRetryState) {
        loop {
            match self.try_prepare_local_session().await {
                Ok((places, fresh)) => {
                    course.is_unprepared = false;
                    (course.server_marks, course.new_filters) = (places, fresh);
                    return;
                }
                Err(why) => self.metrics.record_failure(&self.settings.name, why),
            }
            sleep(LOCAL_RETRY).await;
        }
    }

    async fn try_prepare_local_session(&self) -> Result<(ServerMarks, NewLinkFilters), String> {
        let rules = &self.settings.rules.outward;
        let (link_id, client_id) = (self.settings.link_id(), self.settings.remote_client_id());
        let before = self.local_broker.report_sessions(vec![link_id.as_str().into()]).await;
        let (places, unmet) = match before.first() {
            Some(report) => {
                (ServerMarks::from_filters(&link_id, &client_id, &report.filters), Vec::new())
            }
            None => {
                let places =
                    ServerMarks::for_new_session(&link_id, &client_id, &self.settings.servers);
                let unmet = places.filters();
                (places, unmet)
            }
        };
        let wanted = |qos_max| {
            let filter = |rule: &BridgeRule| {
                (rule.map.filter.clone(), rule.initial_subscribe_options(qos_max))
            };
            let rows = self.settings.takes_rows.then(|| row_subscription(&link_id, qos_max));
            let watched = self.settings.watched_filters().into_iter();
            let watched = watched.map(|filter| (filter, WATCH_OPTIONS));
            let notes = unmet.iter().map(|note| (note.clone(), NOTE_OPTIONS));
            rules.iter().map(filter).chain(watched).chain(rows).chain(notes).collect()
        };
        let fresh = self.local_broker.prepare_session(&link_id, self.is_subscribed, wanted).await?;
        Ok((places, fresh))
    }

    /// Connects to the server and to the local session, and builds the relay from the state of the
    /// earlier connection.
    async fn connect(
        &self,
        course: &mut BridgeRetryState,
    ) -> Result<ConnectionPair, (BridgeSide, String)> {
        let (here, there) = (|why| (BridgeSide::Local, why), |why| (BridgeSide::Remote, why));
        let settings = &self.settings;
        self.metrics.server.store(course.server, Relaxed);
        let remote = match course.ready.take() {
            Some(remote) => remote,
            None => {
                let anew = self.needs_clean_start(course, course.server);
                self.connect_clean(course.server, anew).await.map_err(there)?
            }
        };
        let granted = remote.grants;
        let link_id = settings.link_id();
        let receive_maximum =
            granted.limits.server.receive_maximum.min(settings.limits.inflight_max);
        let wish = LocalSessionRequest {
            link_id: &link_id,
            receive_maximum,
            is_last: false,
            is_quiet: false,
        };
        let mut local = self.local_broker.connect(wish).await.map_err(here)?;
        if !local.session_present {
            course.is_unprepared = true;
            course.failover.reset_local();
            return Err(here("its session here was gone".to_string()));
        }
        let left = course.server_marks.left_note(&settings.servers[course.server]);
        let has_two = granted.limits.server.qos_max == QoS::ExactlyOnce;
        course.failover.connect_to(
            course.server,
            granted.session_present,
            left.is_some() && has_two,
        );
        let mut pipe = Relay::new(
            settings.name.clone(),
            settings.rules.clone(),
            granted.limits,
            local.limits,
            self.metrics.clone(),
            std::mem::take(&mut course.failover),
            random_seed(),
        );
        pipe.loops = settings.loop_detection(course.server);
        pipe.watched_filters = settings.watched_filters();
        let mut settled =
            self.record_server_change(course, granted.session_present, &mut local, &mut pipe).await;
        if settled.is_ok() {
            settled = local.request_retained(&mut course.new_filters).await;
        }
        if let Err(why) = settled {
            course.failover = pipe.into_failover_state();
            return Err(here(why));
        }
        pipe.send_requests(&course.removed_filters, left);
        pipe.publish_status(&settings.status_topic, true);
        Ok(ConnectionPair::new(local, remote, pipe, settings, self.local_broker.handle.clone()))
    }

    /// Whether the session at `server` has to begin anew: a session of an earlier bridge may hold
    /// packet ids of QoS 2 messages.
    fn needs_clean_start(&self, course: &BridgeRetryState, server: usize) -> bool {
        course.server_marks.is_unvisited(&self.settings.servers[server]) && self.sends_qos2()
    }

    /// Whether a rule, or a row of the broker's rules, may send with QoS 2.
    fn sends_qos2(&self) -> bool {
        let mut rules = self.settings.rules.outward.iter();
        rules.any(|rule| rule.qos == QoS::ExactlyOnce) || self.settings.takes_rows
    }

    /// Records a change of the server in the local session, before any message passes. Open
    /// exchanges of the local session belong to the server where they began.
    async fn record_server_change(
        &self,
        course: &mut BridgeRetryState,
        is_present: bool,
        local: &mut LocalSession,
        pipe: &mut Relay,
    ) -> Result<(), String> {
        let link_id = self.settings.link_id();
        let server = &self.settings.servers[course.server];
        let mut change = course.server_marks.move_to(server, self.sends_qos2());
        if !is_present {
            change.removed.extend(course.server_marks.left_note(server));
        }
        if change.moves || !is_present {
            let reports = self.local_broker.report_sessions(vec![link_id.as_str().into()]).await;
            let received = reports.into_iter().next().map(|report| report.received);
            pipe.release_received(&received.unwrap_or_default());
            local.write_all(&std::mem::take(&mut pipe.to_local)).await?;
        }
        if change.is_empty() {
            return Ok(());
        }
        let wanted: Vec<_> = change.added.iter().map(|note| (&**note, NOTE_OPTIONS)).collect();
        let gone: Vec<&str> = change.removed.iter().map(|note| &**note).collect();
        local.subscribe(&wanted, &gone).await?;
        course.server_marks.apply(change);
        Ok(())
    }

    /// Connects with the bridge mark in 3.1.1, and without the mark if the server refuses it.
    async fn connect_with_fallback(
        &self,
        server: usize,
        clean_start: bool,
    ) -> Result<RemoteSession, RemoteConnectError> {
        let manner =
            RemoteConnectOptions { clean_start, is_marked: !self.settings.version.is_v5() };
        match self.connect_once(server, manner).await {
            // Without the mark the bridge is a client like any other.
            Err(RemoteConnectError::Mark) => {
                self.connect_once(server, RemoteConnectOptions { is_marked: false, ..manner }).await
            }
            other => other,
        }
    }

    /// Connects to a server. `anew` discards the server's session first.
    async fn connect_clean(&self, server: usize, anew: bool) -> Result<RemoteSession, String> {
        let settings = &self.settings;
        let remote =
            self.connect_with_fallback(server, anew).await.map_err(|denied| denied.to_string())?;
        if !anew || settings.version.is_v5() {
            return Ok(remote);
        }
        // In 3.1.1 a session with Clean Session 1 ends with its connection, so a second connection
        // begins the lasting session.
        let is_marked = remote.grants.is_marked;
        let within = Duration::from_secs(u64::from(settings.connect_timeout_s));
        // A server which does not close the connection in time has still received DISCONNECT.
        let _ = timeout(within, remote.end_session(settings.version)).await;
        let again =
            self.connect_once(server, RemoteConnectOptions { clean_start: false, is_marked }).await;
        again.map_err(|denied| denied.to_string())
    }

    async fn connect_once(
        &self,
        server: usize,
        manner: RemoteConnectOptions,
    ) -> Result<RemoteSession, RemoteConnectError> {
        let settings = &self.settings;
        let within = Duration::from_secs(u64::from(settings.connect_timeout_s));
        let tls = lock(&self.tls).clone();
        let calling =
            RemoteSession::connect(settings, &settings.servers[server], tls.as_ref(), manner);
        let why = || {
            RemoteConnectError::Why(format!("no answer within {} s", settings.connect_timeout_s))
        };
        timeout(within, calling).await.unwrap_or_else(|_| Err(why()))
    }

    async fn relay_until_end(
        &self,
        mut line: ConnectionPair,
        course: &mut BridgeRetryState,
        stop: &mut watch::Receiver<LinkStop>,
    ) {
        let settings = &self.settings;
        let server = settings.servers[course.server].to_string();
        let name = &*settings.name;
        info!(target: "godwit::bridge", bridge = name, server, "connected");
        self.metrics.connects.fetch_add(1, Relaxed);
        self.metrics.is_up.store(true, Relaxed);
        self.emit_event("bridge/connected", &server, None);
        let since = Instant::now();
        let is_elsewhere = course.server > 0 && settings.return_s > 0;
        let anew = self.needs_clean_start(course, 0);
        let here = &settings.servers[course.server];
        let mut ended =
            line.relay_until_end(stop, here, self.wait_for_first_server(is_elsewhere, anew)).await;
        if let BridgeExit::Failed(BridgeSide::Remote, why) = &mut ended
            && let Some(suspects) = line.poison_candidates()
            && let Some(more) = course.poison_guard.record_hang_up(suspects)
        {
            why.push_str(", ");
            why.push_str(&more);
        }
        self.metrics.is_up.store(false, Relaxed);
        self.emit_event("bridge/disconnected", &server, Some(ended.describe()));
        if line.is_answered() {
            course.removed_filters.clear();
            course.server_marks.is_released(&settings.servers[course.server]);
        }
        let servers = settings.servers.len();
        course.failover =
            line.into_failover_state().unwrap_or_else(|| FailoverState::for_servers(servers));
        // Short connections do not reset the counts: a client id which two clients fight over leads
        // to longer pauses.
        if since.elapsed() >= STABLE_AFTER {
            (course.failures, course.own_failures) = (0, 0);
        }
        match ended {
            BridgeExit::Stopped => {
                // MQTT 3.1.1 has no way to end a session in DISCONNECT.
                course.ended_at_server = settings.version.is_v5().then_some(course.server);
                info!(target: "godwit::bridge", bridge = name, "stopped");
            }
            BridgeExit::Return(remote) => {
                info!(target: "godwit::bridge", bridge = name, "goes back to its first server");
                (course.server, course.ready) = (0, Some(*remote));
            }
            BridgeExit::Failed(side, why) => self.on_failure(course, side, why),
        }
    }

    /// Reports a [`LinkEvent`] for the rules of this broker.
    fn emit_event(&self, event: &'static str, server: &str, reason: Option<&str>) {
        let (bridge, server) = (self.settings.name.to_string(), server.to_string());
        let reason = reason.map(|reason| ("reason", reason.to_string()));
        let fields = [("bridge", bridge), ("server", server)].into_iter().chain(reason).collect();
        self.local_broker.handle.report_link_event(LinkEvent { event, fields });
    }

    /// Tries the first server every `return_s` seconds and returns its connection. Never returns if
    /// the bridge is at the first server, or `return_s` is 0.
    async fn wait_for_first_server(&self, is_elsewhere: bool, anew: bool) -> RemoteSession {
        if !is_elsewhere {
            return std::future::pending().await;
        }
        loop {
            sleep(Duration::from_secs(u64::from(self.settings.return_s))).await;
            if let Ok(remote) = self.connect_clean(0, anew).await {
                return remote;
            }
        }
    }

    /// Counts a failure and selects the next server. A failure at this broker would occur with each
    /// server, so `server` stays.
    fn on_failure(&self, course: &mut BridgeRetryState, side: BridgeSide, why: String) {
        let (name, server) = (&*self.settings.name, &self.settings.servers[course.server]);
        warn!(target: "godwit::bridge", bridge = name, %server, "not connected: {why}");
        if side == BridgeSide::Local {
            course.own_failures += 1;
            return self.metrics.set_error(why);
        }
        self.metrics.set_error(format!("{server}: {why}"));
        course.own_failures = 0;
        course.server = (course.server + 1) % self.settings.servers.len();
        course.failures += 1;
    }

    /// Returns the pause before the next attempt: none between the servers of the list, and
    /// [`backoff::retry_delay`] after each round.
    fn retry_delay(&self, course: &BridgeRetryState) -> Duration {
        let first = Duration::from_millis(u64::from(self.settings.retry_min_ms));
        let longest = Duration::from_secs(u64::from(self.settings.retry_max_s));
        if course.own_failures > 0 {
            return backoff::retry_delay(course.own_failures, first, longest);
        }
        let rounds = course.failures / self.settings.servers.len() as u32;
        if course.failures > 0 && course.server > 0 {
            return Duration::ZERO;
        }
        backoff::retry_delay(if course.failures == 0 { 0 } else { rounds.max(1) }, first, longest)
    }
}
