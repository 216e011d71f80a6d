//! A sink: a session at this broker whose messages go, in batches, to a destination which is not a
//! broker.
//!
//! ```text
//!   local session           sink                     destination
//!   PUBLISH 7, 8, 9  ---->  gathered to a batch ---> one transaction, request or write
//!   PUBACK 7, 8, 9   <----                      <--- accepted
//! ```
//!
//! The local session is the queue, and a message is acknowledged once the destination has it. So an
//! unreachable destination does not slow publishers down, and after a crash unacknowledged messages
//! are sent again: delivery is at least once. Messages with QoS 0 and events are only in memory.

mod columns;
mod delivered_ahead;
mod destination;
mod files;
mod http_options;
mod influx;
mod influx_time;
mod intake;
mod kafka;
pub mod message;
mod nats;
mod parquet;
mod receive_times;
mod redis_stream;
mod rotation;
mod rows;
pub mod settings;
mod sql;
mod sqlite;
pub(super) mod template;
mod webhook;
mod worker;

use self::destination::{BatchError, SinkDestination, SinkError};
use self::intake::SinkIntake;
use self::message::SinkMessage;
use self::receive_times::ReceiveTimes;
use self::settings::SinkSettings;
use super::backoff;
use super::events::{EventHub, SinkEventReceiver};
use super::local_session::{LocalBroker, LocalSessionRequest, row_subscription};
use super::metrics::{LinkDropReason, LinkMetrics};
use super::new_filters::NewLinkFilters;
use super::{
    LinkKind, LinkSettings, LinkStop, LinkTask, LinkTaskResources, LinkTlsConfigs, is_same_link,
    wait_for_stop,
};
use broker::BrokerOptions;
use mqtt::{QoS, SubscribeOptions};
use net::pause_aware_timeout::timeout;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tracing::info;

/// A sink with the resources of its task. [`Sink::run`] is the task.
pub struct Sink {
    settings: SinkSettings,
    home: Arc<LocalBroker>,
    hub: Arc<EventHub>,
    /// Notified when the options are read again.
    again: Arc<Notify>,
    metrics: Arc<LinkMetrics>,
    destination: SinkDestination,
    /// Whether an existing session already has the subscriptions of the options.
    is_subscribed: bool,
}

/// State of a sink that is kept from one connection to its destination to the next.
#[derive(Default)]
struct SinkRetryState {
    /// Failures in a row; determines the pause.
    failures: u32,
    /// Delay which the destination asked for.
    after: Option<Duration>,
    is_unprepared: bool,
    /// Filters whose retained messages are not requested yet.
    new_filters: NewLinkFilters,
    /// Messages which no session would send again: QoS 0 messages and events.
    volatile_messages: Vec<Arc<SinkMessage>>,
    /// Number of refusals of the first batch.
    refusals: u32,
    /// Time when a message was last skipped, within [`AT_ITS_WORD`].
    passed_over_at: Option<Instant>,
    /// Times of receipt of the messages which the session sends again.
    times: ReceiveTimes,
}

/// Reason for which a sink closes its connections to the local session and the destination.
enum SinkExit {
    Stopped,
    /// The local session does not exist any more.
    Unprepared,
    Failed(String),
    /// The destination refuses a message, and the option `refused` is "stop": the sink waits for a
    /// reload.
    Rejected(String),
}

/// Pause between attempts to prepare the local session. This broker fails to answer only while it
/// starts or stops.
const NEAR_RETRY: Duration = Duration::from_millis(200);
/// A destination which failed, and which is then connected without messages for this time, counts
/// as up.
const SETTLED: Duration = Duration::from_secs(1);
/// Time for a batch in flight when the sink stops, see `wait_for_stop_timeout`.
const FINISH: Duration = Duration::from_secs(1);
/// Time for which further refusals of a destination count at once: otherwise each batch with an
/// invalid message would cost the pauses of `refused_tries`.
const AT_ITS_WORD: Duration = Duration::from_secs(60);

impl LinkSettings for SinkSettings {
    fn kind(&self) -> LinkKind {
        LinkKind::Sink
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn limits(&self) -> &Arc<BrokerOptions> {
        &self.limits
    }

    fn servers(&self) -> Vec<String> {
        vec![self.target.to_string()]
    }

    fn is_same(&self, other: &dyn LinkSettings) -> bool {
        is_same_link(self, other, |one| SinkSettings { limits: Arc::default(), ..one.clone() })
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
        Box::pin(Sink::new(self, resources, before).run(stop))
    }

    fn must_wait_for_end(&self, other: &dyn LinkSettings) -> bool {
        let other = other.as_kind().and_then(SinkSettings::file_path);
        other.is_some() && other == self.file_path()
    }
}

impl Sink {
    fn new(
        settings: &SinkSettings,
        resources: &LinkTaskResources,
        before: Option<&SinkSettings>,
    ) -> Sink {
        let LinkTaskResources { home, hub, dial_tls, again, metrics, .. } = resources.clone();
        let destination = SinkDestination::new(settings, dial_tls);
        let is_subscribed = before.is_some_and(|before| {
            before.filters == settings.filters
                && before.takes_retained == settings.takes_retained
                && before.takes_rows == settings.takes_rows
        });
        Sink { settings: settings.clone(), home, hub, again, metrics, destination, is_subscribed }
    }

    /// Runs until `stop` is signalled, then waits for writes of a local destination.
    pub async fn run(mut self, stop: watch::Receiver<LinkStop>) {
        self.run_attempts(stop).await;
        self.destination.finish().await;
        info!(target: "godwit::sink", sink = &*self.settings.name, "stopped");
    }

    async fn run_attempts(&mut self, mut stop: watch::Receiver<LinkStop>) {
        let mut course = SinkRetryState { is_unprepared: true, ..SinkRetryState::default() };
        let SinkSettings { name, events, events_max, .. } = &self.settings;
        let mut heard = self.hub.add_subscriber(name, events, *events_max, &self.metrics);
        let mut told = stop.clone();
        loop {
            if course.is_unprepared {
                tokio::select! {
                    fresh = self.prepare_session() => {
                        (course.is_unprepared, course.new_filters) = (false, fresh);
                    }
                    () = wait_for_stop(&mut told) => return,
                }
            }
            let ended = self.connect_and_relay(&mut course, &mut heard, &mut stop).await;
            self.metrics.is_up.store(false, Relaxed);
            let name = &*self.settings.name;
            match ended {
                SinkExit::Stopped => return,
                SinkExit::Unprepared => course.is_unprepared = true,
                SinkExit::Failed(why) => {
                    course.failures = course.failures.saturating_add(1);
                    self.metrics.failures.fetch_add(1, Relaxed);
                    let why = format!("{}: {why}", self.settings.target);
                    self.metrics.record_failure(name, why);
                }
                SinkExit::Rejected(why) => {
                    self.discard_reload_notice();
                    let why =
                        format!("{}: stopped, a message is refused: {why}", self.settings.target);
                    self.metrics.record_failure(name, why);
                    tokio::select! {
                        () = self.again.notified() => course.refusals = 0,
                        () = wait_for_stop(&mut told) => return,
                    }
                    continue;
                }
            }
            tokio::select! {
                () = sleep(self.retry_delay(&mut course)) => {}
                () = wait_for_stop(&mut told) => return,
            }
        }
    }

    /// Creates and subscribes the local session before the destination is connected. Retries until
    /// done.
    async fn prepare_session(&mut self) -> NewLinkFilters {
        let link_id = self.settings.link_id();
        let wanted = |qos_max: QoS| {
            let options = SubscribeOptions {
                qos: qos_max,
                no_local: false,
                retain_as_published: true,
                retain_handling: if self.settings.takes_retained { 1 } else { 2 },
            };
            let filters = self.settings.filters.iter().map(|filter| (filter.clone(), options));
            let rows = self.settings.takes_rows.then(|| row_subscription(&link_id, qos_max));
            filters.chain(rows).collect()
        };
        loop {
            match self.home.prepare_session(&link_id, self.is_subscribed, wanted).await {
                Ok(fresh) => return fresh,
                Err(why) => self.metrics.record_failure(&self.settings.name, why),
            }
            sleep(NEAR_RETRY).await;
        }
    }

    /// Discards a reload notice from before the sink stopped, since that reload cannot have fixed
    /// the cause.
    fn discard_reload_notice(&self) {
        let _ = pin!(self.again.notified()).as_mut().enable();
    }

    fn retry_delay(&self, course: &mut SinkRetryState) -> Duration {
        let first = Duration::from_millis(u64::from(self.settings.retry_min_ms));
        let longest = Duration::from_secs(u64::from(self.settings.retry_max_s));
        let after = course.after.take().unwrap_or_default().min(longest);
        backoff::retry_delay(course.failures, first, longest).max(after)
    }

    /// Connects to the destination and relays batches until an error or a stop.
    async fn connect_and_relay(
        &mut self,
        course: &mut SinkRetryState,
        heard: &mut SinkEventReceiver,
        stop: &mut watch::Receiver<LinkStop>,
    ) -> SinkExit {
        let reached = tokio::select! {
            reached = self.connect() => reached,
            () = wait_for_stop(stop) => return SinkExit::Stopped,
        };
        if let Err(why) = reached {
            return SinkExit::Failed(why);
        }
        let link_id = self.settings.link_id();
        let receive_maximum = self.settings.limits.inflight_max;
        let wish = LocalSessionRequest {
            link_id: &link_id,
            receive_maximum,
            is_last: false,
            is_quiet: false,
        };
        let mut local = match self.home.connect(wish).await {
            Ok(local) if local.session_present => local,
            Ok(_) => {
                course.times = ReceiveTimes::default();
                return SinkExit::Unprepared;
            }
            Err(why) => return SinkExit::Failed(why),
        };
        if let Err(why) = local.request_retained(&mut course.new_filters).await {
            return SinkExit::Failed(why);
        }
        if course.failures == 0 {
            self.mark_up();
        }
        let mut batch = std::mem::take(&mut course.volatile_messages);
        let mut intake = SinkIntake::new(local, std::mem::take(&mut course.times));
        let ended = self.relay_batches(&mut intake, &mut batch, course, heard, stop).await;
        course.times = intake.times;
        // The session sends the remaining messages again.
        batch.retain(|message| message.packet_id.is_none());
        course.volatile_messages = batch;
        ended
    }

    async fn relay_batches(
        &mut self,
        intake: &mut SinkIntake,
        batch: &mut Vec<Arc<SinkMessage>>,
        course: &mut SinkRetryState,
        heard: &mut SinkEventReceiver,
        stop: &mut watch::Receiver<LinkStop>,
    ) -> SinkExit {
        loop {
            let gathered = tokio::select! {
                gathered = self.gather_batch(intake, batch, heard) => gathered,
                () = wait_for_stop(stop) => {
                    intake.disconnect().await;
                    return SinkExit::Stopped;
                }
            };
            match gathered {
                Ok(true) => {}
                Ok(false) => {
                    // The destination is connected, and no message is there which could be refused.
                    self.mark_up();
                    continue;
                }
                Err(why) => return SinkExit::Failed(why),
            }
            let delivered = tokio::select! {
                delivered = self.deliver_batch(intake, batch, course) => delivered,
                () = wait_for_stop_timeout(stop) => Err(SinkExit::Stopped),
            };
            if let Err(ended) = delivered {
                return ended;
            }
        }
    }

    /// Gathers a batch. Returns false if none came within [`SETTLED`] while the destination is not
    /// yet up.
    async fn gather_batch(
        &mut self,
        intake: &mut SinkIntake,
        batch: &mut Vec<Arc<SinkMessage>>,
        heard: &mut SinkEventReceiver,
    ) -> Result<bool, String> {
        loop {
            let gathering = intake.gather_batch(batch, &self.settings, heard);
            if self.metrics.is_up.load(Relaxed) {
                return gathering.await.map(|()| true);
            }
            match timeout(SETTLED, gathering).await {
                Ok(gathered) => return gathered.map(|()| true),
                Err(_) if batch.is_empty() => return Ok(false),
                Err(_) => {}
            }
        }
    }

    /// Delivers a batch until all messages are delivered or skipped. A refused batch is tried
    /// `refused_tries` times, then in halves, down to the single refused message.
    async fn deliver_batch(
        &mut self,
        intake: &mut SinkIntake,
        batch: &mut Vec<Arc<SinkMessage>>,
        course: &mut SinkRetryState,
    ) -> Result<(), SinkExit> {
        let mut size = batch.len();
        if course.passed_over_at.is_some_and(|at| at.elapsed() > AT_ITS_WORD) {
            (course.passed_over_at, course.refusals) = (None, 0);
        }
        while !batch.is_empty() {
            size = size.clamp(1, batch.len());
            let outcome = self.try_deliver(&batch[..size]).await;
            let taken = outcome.as_ref().map_or_else(|setback| setback.accepted, |()| size);
            self.count_delivered(&batch[..taken]);
            intake.acknowledge(&batch[..taken]).await.map_err(SinkExit::Failed)?;
            batch.drain(..taken);
            let Err(BatchError { error: what, .. }) = outcome else {
                self.record_success(course);
                size = batch.len();
                continue;
            };
            match what {
                SinkError::Transient { why, after } => {
                    course.after = after;
                    return Err(SinkExit::Failed(why));
                }
                SinkError::Rejected(why) if course.refusals + 1 < self.settings.refused_tries => {
                    course.refusals += 1;
                    self.metrics.failures.fetch_add(1, Relaxed);
                    self.metrics.set_error(format!("{}: {why}", self.settings.target));
                    sleep(Duration::from_millis(u64::from(self.settings.retry_min_ms))).await;
                }
                SinkError::Rejected(why) if size - taken > 1 => {
                    self.metrics.set_error(format!("{}: {why}", self.settings.target));
                    size = (size - taken) / 2;
                }
                SinkError::Rejected(why) | SinkError::Unwritable(why)
                    if self.settings.refused_stops =>
                {
                    return Err(SinkExit::Rejected(why));
                }
                // A retry would yield the same text.
                SinkError::Unwritable(why) => {
                    self.skip_message(&batch[0], &why);
                    intake.acknowledge(&batch[..1]).await.map_err(SinkExit::Failed)?;
                    batch.drain(..1);
                    size = batch.len();
                }
                SinkError::Rejected(why) => {
                    self.skip_message(&batch[0], &why);
                    course.passed_over_at = Some(Instant::now());
                    intake.acknowledge(&batch[..1]).await.map_err(SinkExit::Failed)?;
                    batch.drain(..1);
                    size = batch.len();
                }
            }
        }
        if course.passed_over_at.is_none() {
            course.refusals = 0;
        }
        Ok(())
    }

    async fn try_deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        let (is_here, work) = (self.destination.is_local_disk(), self.destination.deliver(batch));
        let taken = run_with_timeout(&self.settings, &self.metrics, is_here, work).await;
        taken.unwrap_or_else(|why| Err(BatchError::transient(why)))
    }

    async fn connect(&mut self) -> Result<(), String> {
        let (is_here, work) = (self.destination.is_local_disk(), self.destination.connect());
        run_with_timeout(&self.settings, &self.metrics, is_here, work).await.unwrap_or_else(Err)
    }

    fn count_delivered(&self, taken: &[Arc<SinkMessage>]) {
        taken.iter().for_each(|message| self.metrics.count_out(message.payload.len()));
        if !taken.is_empty() {
            self.metrics.batches.fetch_add(1, Relaxed);
        }
    }

    fn skip_message(&self, message: &SinkMessage, why: &str) {
        self.metrics.set_error(format!("{}: {why}", self.settings.target));
        let about = match message.event {
            Some(event) => event,
            None => &message.topic,
        };
        self.metrics.count_drop(
            &self.settings.name,
            LinkDropReason::Refused,
            &format!("{about}: {why}"),
        );
    }

    /// Records a success of the destination.
    fn record_success(&self, course: &mut SinkRetryState) {
        course.failures = 0;
        if !self.metrics.is_up.load(Relaxed) {
            self.mark_up();
        }
    }

    fn mark_up(&self) {
        let (name, target) = (&*self.settings.name, &self.settings.target);
        info!(target: "godwit::sink", sink = name, %target, "connected");
        self.metrics.connects.fetch_add(1, Relaxed);
        self.metrics.is_up.store(true, Relaxed);
    }
}

/// Runs `work` with the timeout `timeout_ms`. A local disk (`is_here`) is reported in the log and
/// waited for: the worker thread finishes its write anyway, and a retry would write twice.
async fn run_with_timeout<T>(
    settings: &SinkSettings,
    metrics: &LinkMetrics,
    is_here: bool,
    work: impl Future<Output = T>,
) -> Result<T, String> {
    let mut work = pin!(work);
    let limit_ms = settings.timeout_ms;
    let done = timeout(Duration::from_millis(limit_ms.into()), work.as_mut()).await;
    match done {
        Ok(done) => Ok(done),
        Err(_) if is_here => {
            metrics.is_up.store(false, Relaxed);
            let target = &settings.target;
            let why = format!("{target}: no answer within {limit_ms} ms, it is waited for");
            metrics.record_failure(&settings.name, why);
            Ok(work.await)
        }
        Err(_) => Err(format!("no answer within {limit_ms} ms")),
    }
}

/// Completes when the sink has to stop and batches in flight have had the time [`FINISH`].
async fn wait_for_stop_timeout(stop: &mut watch::Receiver<LinkStop>) {
    wait_for_stop(stop).await;
    sleep(FINISH).await;
}
