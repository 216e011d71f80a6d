//! A gateway: a session at this broker, and sockets of ZeroMQ, nanomsg or NNG.
//!
//! The local session is the queue for sockets. A message to one socket (push, pair, req) is
//! acknowledged when the socket has received it, and stays in the session while no socket accepts
//! messages. A message to all sockets (pub, bus) skips slow sockets, and each skip is counted.
//! Messages from sockets are published at this broker; while the broker acknowledges no more,
//! sockets are not read. A stopping gateway first stops reading from sockets, then publishes the
//! messages already read.

mod address;
mod dialer;
mod formats;
mod intake;
#[cfg(test)]
mod layers;
mod overflow;
mod peer;
mod peer_message;
mod peer_set;
mod pending_requests;
mod quarantine;
#[cfg(test)]
mod questions;
mod rows;
mod rules;
mod session;
#[cfg(test)]
mod sessions;
pub mod settings;
#[cfg(test)]
mod tests;
mod trust;
mod unacked_bytes;
mod unacked_publishes;
mod upgrade;

pub use self::address::SocketAddress;
pub use self::rules::GatewayRuleSettings;

use self::dialer::GatewayTls;
use self::peer::{GatewayShared, count_lost};
use self::peer_set::PeerSet;
use self::session::{GatewaySession, without_retained};
use self::settings::GatewaySettings;
use self::trust::load_tls_configs;
use super::connection::{LinkConnection, READ_BYTES};
use super::local_session::{LocalBroker, LocalSessionRequest, PreparedSession};
use super::{
    LinkKind, LinkSettings, LinkStop, LinkTask, LinkTaskResources, LinkTlsConfigs, is_same_link,
    wait_for_stop,
};
use broker::BrokerOptions;
use mqtt::client::ServerLimits;
use mqtt::{Disconnect, Properties, ProtocolVersion, QoS, ReasonCode};
use net::pause_aware_timeout::timeout;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::info;

/// A gateway with the resources of its task. [`Gateway::run`] is the task.
pub struct Gateway {
    shared: GatewayShared,
    home: Arc<LocalBroker>,
    trusted: GatewayTls,
    /// Notified when the options are read again; permissions may have changed.
    again: Arc<Notify>,
}

/// Reason for the end of a connection to the local session.
enum GatewayExit {
    Stopped,
    /// No peer can accept a message, or peers were absent for a moment.
    NoReadyPeer,
    Failed(String),
}

/// Pause between attempts to connect to this broker, which fails to answer only while it starts or
/// stops.
const NEAR_RETRY: Duration = Duration::from_millis(200);
/// Time for the last messages to this broker when a gateway stops.
const FINISH: Duration = Duration::from_secs(1);
const LAST_WORD: Duration = Duration::from_millis(200);

impl LinkSettings for GatewaySettings {
    fn kind(&self) -> LinkKind {
        LinkKind::Gateway
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn limits(&self) -> &Arc<BrokerOptions> {
        &self.limits
    }

    /// Returns the addresses of listeners and of outgoing connections, as one text.
    fn servers(&self) -> Vec<String> {
        let all = self.listen.iter().chain(&self.dial).map(ToString::to_string);
        // The metrics show one server.
        vec![all.collect::<Vec<_>>().join(" ")]
    }

    fn is_same(&self, other: &dyn LinkSettings) -> bool {
        is_same_link(self, other, |one| GatewaySettings { limits: Arc::default(), ..one.clone() })
    }

    fn load_tls(&self) -> Result<LinkTlsConfigs, String> {
        load_tls_configs(self)
    }

    fn new_task(
        &self,
        resources: &LinkTaskResources,
        _before: Option<&dyn LinkSettings>,
        stop: watch::Receiver<LinkStop>,
    ) -> LinkTask {
        Box::pin(Gateway::new(self, resources).run(stop))
    }
}

impl Gateway {
    fn new(settings: &GatewaySettings, resources: &LinkTaskResources) -> Gateway {
        let LinkTaskResources { home, dial_tls, listen_tls, again, metrics, .. } =
            resources.clone();
        let (settings, peers) = (Arc::new(settings.clone()), Arc::new(PeerSet::default()));
        let shared = GatewayShared { settings, peers, metrics };
        let trusted = GatewayTls { dials: dial_tls, serves: listen_tls };
        Gateway { shared, home, trusted, again }
    }

    /// Runs until `stop` is signalled: prepares the session, starts listeners and dialers, and
    /// connects to the session while there is work.
    pub async fn run(self, mut stop: watch::Receiver<LinkStop>) {
        let GatewayShared { settings, metrics, .. } = self.shared.clone();
        let mut told = stop.clone();
        let prepared = tokio::select! {
            prepared = self.prepare_session(false) => prepared,
            () = wait_for_stop(&mut told) => return,
        };
        let mut roads = self.spawn_dialers();
        let terms = ServerLimits { qos_max: QoS::AtLeastOnce, ..ServerLimits::UNSTATED };
        let mut session = GatewaySession::new(self.shared.clone(), terms);
        session.on_prepared(prepared);
        loop {
            tokio::select! {
                biased;
                // Messages already received from peers are published before a stop.
                () = self.wait_for_work(&session) => {}
                () = self.wait_for_permission_change(session.next_resubscribe_at()) => {
                    // Not interrupted by arriving peers: the session has to know which filters were
                    // requested.
                    tokio::select! {
                        prepared = self.prepare_session(true) => session.on_prepared(prepared),
                        () = wait_for_stop(&mut told) => break,
                    }
                    continue;
                }
                () = wait_for_stop(&mut told) => break,
            }
            match self.run_session(&mut session, &mut stop).await {
                GatewayExit::Stopped => break,
                GatewayExit::NoReadyPeer => {}
                GatewayExit::Failed(why) => {
                    metrics.record_failure(&settings.name, why);
                    if *told.borrow() != LinkStop::No {
                        self.warn_unconfirmed(&session, "it stopped");
                        break;
                    }
                    // While stopping, one more connection publishes the received messages.
                    tokio::select! {
                        () = sleep(NEAR_RETRY) => {}
                        () = wait_for_stop(&mut told) => {}
                    }
                }
            }
        }
        session.stop_delivering();
        self.close_peers();
        roads.shutdown().await;
        metrics.is_up.store(false, Relaxed);
        info!(target: "godwit::gateway", gateway = &*settings.name, "stopped");
    }

    fn spawn_dialers(&self) -> JoinSet<()> {
        let (mut roads, settings) = (JoinSet::new(), &self.shared.settings);
        for place in &settings.listen {
            roads.spawn(dialer::listen(self.shared.clone(), place.clone(), self.trusted.clone()));
        }
        for place in &settings.dial {
            roads.spawn(dialer::dial(self.shared.clone(), place.clone(), self.trusted.clone()));
        }
        roads
    }

    /// Creates and subscribes the local session before any socket connects. Retries until done.
    /// `is_again` requests no retained messages.
    async fn prepare_session(&self, is_again: bool) -> PreparedSession {
        let settings = &self.shared.settings;
        let (link_id, identity) = (settings.link_id(), settings.identity());
        let wanted = |qos_max: QoS| match is_again {
            true => without_retained(settings.subscriptions(qos_max)),
            false => settings.subscriptions(qos_max),
        };
        loop {
            match self.home.prepare_session_as(&link_id, identity, false, wanted).await {
                Ok(prepared) => return prepared,
                Err(why) => self.shared.metrics.record_failure(&settings.name, why),
            }
            sleep(NEAR_RETRY).await;
        }
    }

    /// Waits until a peer needs the local session, or a received message has to be published. Until
    /// then the queue grows in the session, and not in this task's memory.
    async fn wait_for_work(&self, session: &GatewaySession) {
        while session.is_idle() {
            self.shared.peers.changed.notified().await;
        }
    }

    /// Waits until permissions may have changed, or until `due`. Only a gateway with an identity
    /// has permissions.
    async fn wait_for_permission_change(&self, due: Option<Instant>) {
        let is_judged = self.shared.settings.identity().is_some();
        let told = async {
            match is_judged {
                true => self.again.notified().await,
                false => pending().await,
            }
        };
        tokio::select! {
            () = told => {}
            () = wait_for_deadline(due) => {}
        }
    }

    async fn run_session(
        &self,
        session: &mut GatewaySession,
        stop: &mut watch::Receiver<LinkStop>,
    ) -> GatewayExit {
        let settings = &self.shared.settings;
        let link_id = settings.link_id();
        let receive_maximum = settings.limits.inflight_max;
        let wish = LocalSessionRequest {
            link_id: &link_id,
            receive_maximum,
            is_last: false,
            is_quiet: false,
        };
        let mut local = match self.home.connect_as(wish, settings.identity()).await {
            Ok(local) if local.session_present => local,
            Ok(local) => {
                let _ = local.disconnect().await;
                // While stopping, the received messages have `FINISH` to be published.
                let late = async {
                    wait_for_stop(stop).await;
                    sleep(FINISH).await;
                };
                tokio::select! {
                    prepared = self.prepare_session(false) => session.on_prepared(prepared),
                    () = late => {
                        self.warn_unconfirmed(session, "its session did not come again");
                        return GatewayExit::Stopped;
                    }
                }
                return GatewayExit::NoReadyPeer;
            }
            Err(why) => return GatewayExit::Failed(why),
        };
        if let Err(why) = local.request_retained(&mut session.new_filters).await {
            return GatewayExit::Failed(why);
        }
        session.begin_connection(local.limits);
        session.subscribe_again();
        let mut way = LinkConnection::new(local.stream, local.read);
        let ended = self.relay_until_end(session, &mut way, stop).await;
        if !matches!(ended, GatewayExit::Failed(_)) {
            disconnect(session, &mut way).await;
        }
        ended
    }

    async fn relay_until_end(
        &self,
        session: &mut GatewaySession,
        way: &mut LinkConnection<UnixStream>,
        stop: &mut watch::Receiver<LinkStop>,
    ) -> GatewayExit {
        let GatewayShared { settings, peers, .. } = &self.shared;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            session.on_peers_changed();
            if session.is_idle() || session.needs_reconnect() {
                return GatewayExit::NoReadyPeer;
            }
            let due = session.next_deadline();
            tokio::select! {
                biased;
                () = wait_for_stop(stop) => {
                    self.drain(session, way).await;
                    return GatewayExit::Stopped;
                }
                moved = poll_fn(|cx| poll(session, way, cx, &mut buffer)) => {
                    if let Err(why) = moved {
                        return GatewayExit::Failed(why);
                    }
                }
                () = peers.changed.notified() => {}
                () = self.again.notified() => {
                    // The shards answer with the new permissions already in force.
                    self.home.report_sessions(vec![settings.link_id().into()]).await;
                    session.subscribe_again();
                }
                () = wait_for_deadline(due) => session.check_timeouts(),
            }
        }
    }

    /// Stops reading from sockets and waits, at most `FINISH`, until this broker has acknowledged
    /// all received messages. Then closes the peers, and acknowledges messages which arrive at
    /// peers until their end.
    async fn drain(&self, session: &mut GatewaySession, way: &mut LinkConnection<UnixStream>) {
        let peers = &self.shared.peers;
        peers.stop_reading();
        session.stop_delivering();
        let is_heard =
            |session: &GatewaySession| peers.has_relayed_all() && session.is_fully_acknowledged();
        match timeout(FINISH, self.relay_until(is_heard, session, way)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return self.warn_unconfirmed(session, &why),
            Err(_) => {
                self.warn_unconfirmed(session, &format!("no answer within {} s", FINISH.as_secs()))
            }
        }
        // A peer which received a message just before its end still has to report the arrival.
        let end = self.close_peers() + LAST_WORD;
        let have_gone =
            |session: &GatewaySession| peers.len() == 0 && session.is_fully_acknowledged();
        let _ = timeout_at(end, self.relay_until(have_gone, session, way)).await;
    }

    /// Closes all peers and counts lost messages. Returns the latest time of the peers' end.
    fn close_peers(&self) -> Instant {
        let (end, lost) = self.shared.peers.close();
        count_lost(&self.shared, lost);
        end
    }

    async fn relay_until(
        &self,
        is_so: impl Fn(&GatewaySession) -> bool,
        session: &mut GatewaySession,
        way: &mut LinkConnection<UnixStream>,
    ) -> Result<(), String> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            session.take_receipts();
            if is_so(session) {
                return Ok(());
            }
            tokio::select! {
                moved = poll_fn(|cx| poll(session, way, cx, &mut buffer)) => moved?,
                () = self.shared.peers.changed.notified() => {}
            }
        }
    }

    /// Reports received messages without an acknowledgement by this broker.
    fn warn_unconfirmed(&self, session: &GatewaySession, why: &str) {
        let GatewayShared { settings, peers, metrics } = &self.shared;
        let count = session.unacknowledged_count() + peers.unrelayed_count();
        if count > 0 {
            let what = format!("{why}: what {count} messages came to is not known");
            metrics.record_failure(&settings.name, what);
        }
    }
}

async fn wait_for_deadline(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Exchanges all available bytes and messages. Ready when anything moved.
fn poll(
    session: &mut GatewaySession,
    way: &mut LinkConnection<UnixStream>,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<Result<(), String>> {
    let taken_in = session.take_inbound();
    if exchange_bytes(session, way, cx, buffer)? || taken_in {
        return Poll::Ready(Ok(()));
    }
    Poll::Pending
}

/// Exchanges bytes with the local session. Returns whether any moved.
fn exchange_bytes(
    session: &mut GatewaySession,
    way: &mut LinkConnection<UnixStream>,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Result<bool, String> {
    let near = |error: std::io::Error| format!("this broker closed the connection: {error}");
    let mut moved = way.poll_write(cx, &mut session.to_near).map_err(near)?;
    if !way.unread().is_empty() {
        let taken = session.read_session(way.unread())?;
        way.consume(taken);
        moved |= taken > 0;
    }
    // While the session has back-pressure only an incomplete packet is read to its end.
    if way.unread().is_empty() || !session.has_backpressure() {
        moved |= way.poll_read(cx, buffer).map_err(near)?;
    }
    Ok(moved)
}

/// Sends DISCONNECT and waits, at most `FINISH`, until this broker closes the connection.
async fn disconnect(session: &mut GatewaySession, way: &mut LinkConnection<UnixStream>) {
    session.take_receipts();
    session.stop_delivering();
    let (reason, properties) = (ReasonCode::NormalDisconnection, Properties::default());
    Disconnect { reason, properties }.encode(ProtocolVersion::V5, &mut session.to_near);
    let mut buffer = vec![0; READ_BYTES];
    let closed = poll_fn(|cx| {
        while let Ok(moved) = exchange_bytes(session, way, cx, &mut buffer) {
            if !moved {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    });
    let _ = timeout(FINISH, closed).await;
    session.to_near.clear();
}
