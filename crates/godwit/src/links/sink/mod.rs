//! A sink: a session here whose messages go, in batches, to something that is no broker.
//!
//! ```text
//!   session here            sink                     far side
//!   PUBLISH 7, 8, 9  ---->  gathered to a batch ---> one transaction, request or write
//!   PUBACK 7, 8, 9   <----                      <--- taken
//! ```
//!
//! The session's queue is all the queue that there is, and a message is acknowledged once the far
//! side has it. So a far side that is gone costs a publisher nothing, and whoever is killed, what
//! was not acknowledged comes again: every message at least once. What has QoS 0 and every event
//! is in memory only.

mod ahead;
mod columns;
mod far;
mod files;
mod influx;
mod influx_time;
mod intake;
mod kafka;
pub(crate) mod message;
mod nats;
mod parquet;
mod rotation;
mod rows;
pub(crate) mod settings;
mod sql;
mod sqlite;
mod stream;
pub(super) mod template;
mod times;
mod web;
mod worker;

use self::far::{Far, Setback, What};
use self::intake::Intake;
use self::message::Message;
use self::settings::SinkSettings;
use self::times::Times;
use super::backoff;
use super::events::{Heard, Hub};
use super::fresh::Fresh;
use super::near::{Home, Wish, rows_for};
use super::tally::{Loss, Tally};
use super::{Credentials, Stop, stopped};
use crate::patience::timeout;
use mqtt::{QoS, SubscribeOptions};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tracing::info;

pub(crate) struct Sink {
    settings: SinkSettings,
    home: Arc<Home>,
    hub: Arc<Hub>,
    /// The options were read again.
    again: Arc<Notify>,
    tally: Arc<Tally>,
    far: Far,
    /// Its session, where there is one, has the filters that it is to have.
    is_subscribed: bool,
}

/// What a sink remembers from one attempt to the next.
#[derive(Default)]
struct Course {
    /// In a row.
    failures: u32,
    /// How long the far side asked us to wait.
    after: Option<Duration>,
    is_unprepared: bool,
    /// Filters whose retained messages have not begun to come.
    fresh: Fresh,
    /// What nobody would send again: of QoS 0, and events.
    left: Vec<Arc<Message>>,
    /// How often the batch in front was refused, ...
    refusals: u32,
    /// ... and when a message was passed over, if that was lately.
    passed_over_at: Option<Instant>,
    /// Of what its session sends again.
    times: Times,
}

/// Why it does not go on.
enum Ended {
    Stopped,
    /// Its session here was gone.
    Unprepared,
    Failed(String),
    /// The far side refuses a message, and the options say to wait for somebody who looks at it.
    Refused(String),
}

/// This broker is ours: if it does not answer it is busy stopping or starting.
const NEAR_RETRY: Duration = Duration::from_millis(200);
/// A far side that failed, was reached, and is given nothing for so long counts as there.
const SETTLED: Duration = Duration::from_secs(1);
/// What is under way at the end may be finished.
const FINISH: Duration = Duration::from_secs(1);
/// So long a far side that refused something is taken at its word when it refuses more: each batch
/// with one wrong message would else cost the waits between tries.
const AT_ITS_WORD: Duration = Duration::from_secs(60);

impl Sink {
    pub(crate) fn new(
        settings: &SinkSettings,
        tls: Credentials,
        (home, hub, again): (Arc<Home>, Arc<Hub>, Arc<Notify>),
        tally: Arc<Tally>,
        before: Option<&SinkSettings>,
    ) -> Sink {
        let far = Far::new(settings, tls);
        let is_subscribed = before.is_some_and(|before| {
            before.filters == settings.filters
                && before.takes_retained == settings.takes_retained
                && before.takes_rows == settings.takes_rows
        });
        Sink { settings: settings.clone(), home, hub, again, tally, far, is_subscribed }
    }

    /// Until `stop` says so.
    pub(crate) async fn run(mut self, stop: watch::Receiver<Stop>) {
        self.go_on(stop).await;
        self.far.end().await;
        info!(target: "godwit::sink", sink = &*self.settings.name, "stopped");
    }

    async fn go_on(&mut self, mut stop: watch::Receiver<Stop>) {
        let mut course = Course { is_unprepared: true, ..Course::default() };
        let mut heard = self.hub.listen(&self.settings, &self.tally);
        let mut told = stop.clone();
        loop {
            if course.is_unprepared {
                tokio::select! {
                    fresh = self.prepare() => {
                        (course.is_unprepared, course.fresh) = (false, fresh);
                    }
                    () = stopped(&mut told) => return,
                }
            }
            let ended = self.work(&mut course, &mut heard, &mut stop).await;
            self.tally.is_up.store(false, Relaxed);
            let name = &*self.settings.name;
            match ended {
                Ended::Stopped => return,
                Ended::Unprepared => course.is_unprepared = true,
                Ended::Failed(why) => {
                    course.failures = course.failures.saturating_add(1);
                    self.tally.failures.fetch_add(1, Relaxed);
                    let why = format!("{}: {why}", self.settings.target);
                    self.tally.fail(name, why);
                }
                Ended::Refused(why) => {
                    self.forget_again();
                    let why =
                        format!("{}: stopped, a message is refused: {why}", self.settings.target);
                    self.tally.fail(name, why);
                    tokio::select! {
                        () = self.again.notified() => course.refusals = 0,
                        () = stopped(&mut told) => return,
                    }
                    continue;
                }
            }
            tokio::select! {
                () = sleep(self.pause(&mut course)) => {}
                () = stopped(&mut told) => return,
            }
        }
    }

    /// The session here exists, and is subscribed, before the far side is looked for.
    async fn prepare(&mut self) -> Fresh {
        let link_id = self.settings.link_id();
        let wanted = |qos_max: QoS| {
            let options = SubscribeOptions {
                qos: qos_max,
                no_local: false,
                retain_as_published: true,
                retain_handling: if self.settings.takes_retained { 1 } else { 2 },
            };
            let filters = self.settings.filters.iter().map(|filter| (filter.clone(), options));
            let rows = self.settings.takes_rows.then(|| rows_for(&link_id, qos_max));
            filters.chain(rows).collect()
        };
        loop {
            match self.home.prepare(&link_id, self.is_subscribed, wanted).await {
                Ok(fresh) => return fresh,
                Err(why) => self.tally.fail(&self.settings.name, why),
            }
            sleep(NEAR_RETRY).await;
        }
    }

    /// That the options were read before it stopped is no answer to why it did.
    fn forget_again(&self) {
        let _ = pin!(self.again.notified()).as_mut().enable();
    }

    fn pause(&self, course: &mut Course) -> Duration {
        let first = Duration::from_millis(u64::from(self.settings.retry_min_ms));
        let longest = Duration::from_secs(u64::from(self.settings.retry_max_s));
        let after = course.after.take().unwrap_or_default().min(longest);
        backoff::pause(course.failures, first, longest).max(after)
    }

    /// Reaches the far side, and carries until something is wrong.
    async fn work(
        &mut self,
        course: &mut Course,
        heard: &mut Heard,
        stop: &mut watch::Receiver<Stop>,
    ) -> Ended {
        let reached = tokio::select! {
            reached = self.reach() => reached,
            () = stopped(stop) => return Ended::Stopped,
        };
        if let Err(why) = reached {
            return Ended::Failed(why);
        }
        let link_id = self.settings.link_id();
        let receive_maximum = self.settings.limits.inflight_max;
        let wish = Wish { link_id: &link_id, receive_maximum, is_last: false, is_quiet: false };
        let mut near = match self.home.connect(wish).await {
            Ok(near) if near.session_present => near,
            Ok(_) => {
                course.times = Times::default();
                return Ended::Unprepared;
            }
            Err(why) => return Ended::Failed(why),
        };
        if let Err(why) = near.begin(&mut course.fresh).await {
            return Ended::Failed(why);
        }
        if course.failures == 0 {
            self.up();
        }
        let mut batch = std::mem::take(&mut course.left);
        let mut intake = Intake::new(near, std::mem::take(&mut course.times));
        let ended = self.carry(&mut intake, &mut batch, course, (heard, stop)).await;
        course.times = intake.times;
        // A session sends the others again.
        batch.retain(|message| message.packet_id.is_none());
        course.left = batch;
        ended
    }

    async fn carry(
        &mut self,
        intake: &mut Intake,
        batch: &mut Vec<Arc<Message>>,
        course: &mut Course,
        (heard, stop): (&mut Heard, &mut watch::Receiver<Stop>),
    ) -> Ended {
        loop {
            let gathered = tokio::select! {
                gathered = self.gather(intake, batch, heard) => gathered,
                () = stopped(stop) => {
                    intake.goodbye().await;
                    return Ended::Stopped;
                }
            };
            match gathered {
                Ok(true) => {}
                Ok(false) => {
                    // Somebody is there, and there is nothing that they could refuse.
                    self.up();
                    continue;
                }
                Err(why) => return Ended::Failed(why),
            }
            let delivered = tokio::select! {
                delivered = self.deliver(intake, batch, course) => delivered,
                () = too_late(stop) => Err(Ended::Stopped),
            };
            if let Err(ended) = delivered {
                return ended;
            }
        }
    }

    /// Says whether there is anything.
    async fn gather(
        &mut self,
        intake: &mut Intake,
        batch: &mut Vec<Arc<Message>>,
        heard: &mut Heard,
    ) -> Result<bool, String> {
        loop {
            let gathering = intake.gather(batch, &self.settings, heard);
            if self.tally.is_up.load(Relaxed) {
                return gathering.await.map(|()| true);
            }
            match timeout(SETTLED, gathering).await {
                Ok(gathered) => return gathered.map(|()| true),
                Err(_) if batch.is_empty() => return Ok(false),
                Err(_) => {}
            }
        }
    }

    /// Until all of it is taken, or passed over.
    async fn deliver(
        &mut self,
        intake: &mut Intake,
        batch: &mut Vec<Arc<Message>>,
        course: &mut Course,
    ) -> Result<(), Ended> {
        let mut size = batch.len();
        if course.passed_over_at.is_some_and(|at| at.elapsed() > AT_ITS_WORD) {
            (course.passed_over_at, course.refusals) = (None, 0);
        }
        while !batch.is_empty() {
            size = size.clamp(1, batch.len());
            let outcome = self.take(&batch[..size]).await;
            let taken = outcome.as_ref().map_or_else(|setback| setback.taken, |()| size);
            self.count(&batch[..taken]);
            intake.acknowledge(&batch[..taken]).await.map_err(Ended::Failed)?;
            batch.drain(..taken);
            let Err(Setback { what, .. }) = outcome else {
                self.well(course);
                size = batch.len();
                continue;
            };
            match what {
                What::Down { why, after } => {
                    course.after = after;
                    return Err(Ended::Failed(why));
                }
                What::Refused(why) if course.refusals + 1 < self.settings.refused_tries => {
                    course.refusals += 1;
                    self.tally.failures.fetch_add(1, Relaxed);
                    self.tally.set_error(format!("{}: {why}", self.settings.target));
                    sleep(Duration::from_millis(u64::from(self.settings.retry_min_ms))).await;
                }
                What::Refused(why) if size - taken > 1 => {
                    self.tally.set_error(format!("{}: {why}", self.settings.target));
                    size = (size - taken) / 2;
                }
                What::Refused(why) | What::Unwritable(why) if self.settings.refused_stops => {
                    return Err(Ended::Refused(why));
                }
                // Another try would change nothing.
                What::Unwritable(why) => {
                    self.pass_over(&batch[0], &why);
                    intake.acknowledge(&batch[..1]).await.map_err(Ended::Failed)?;
                    batch.drain(..1);
                    size = batch.len();
                }
                What::Refused(why) => {
                    self.pass_over(&batch[0], &why);
                    course.passed_over_at = Some(Instant::now());
                    intake.acknowledge(&batch[..1]).await.map_err(Ended::Failed)?;
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

    async fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        let (is_here, work) = (self.far.is_here(), self.far.take(batch));
        let taken = within(&self.settings, &self.tally, is_here, work).await;
        taken.unwrap_or_else(|why| Err(Setback::down(why)))
    }

    async fn reach(&mut self) -> Result<(), String> {
        let (is_here, work) = (self.far.is_here(), self.far.connect());
        within(&self.settings, &self.tally, is_here, work).await.unwrap_or_else(Err)
    }

    fn count(&self, taken: &[Arc<Message>]) {
        taken.iter().for_each(|message| self.tally.count_out(message.payload.len()));
        if !taken.is_empty() {
            self.tally.batches.fetch_add(1, Relaxed);
        }
    }

    fn pass_over(&self, message: &Message, why: &str) {
        self.tally.set_error(format!("{}: {why}", self.settings.target));
        let about = match message.event {
            Some(event) => event,
            None => &message.topic,
        };
        self.tally.lose(&self.settings.name, Loss::Refused, &format!("{about}: {why}"));
    }

    /// Something was taken.
    fn well(&self, course: &mut Course) {
        course.failures = 0;
        if !self.tally.is_up.load(Relaxed) {
            self.up();
        }
    }

    fn up(&self) {
        let (name, target) = (&*self.settings.name, &self.settings.target);
        info!(target: "godwit::sink", sink = name, %target, "connected");
        self.tally.connects.fetch_add(1, Relaxed);
        self.tally.is_up.store(true, Relaxed);
    }
}

/// Or why it is given up. What a thread of ours has begun it ends, and whoever gave that up would
/// have it done twice: where the far side is here it is said in the log and waited for.
async fn within<T>(
    settings: &SinkSettings,
    tally: &Tally,
    is_here: bool,
    work: impl Future<Output = T>,
) -> Result<T, String> {
    let mut work = pin!(work);
    let limit_ms = settings.timeout_ms;
    let done = timeout(Duration::from_millis(limit_ms.into()), work.as_mut()).await;
    match done {
        Ok(done) => Ok(done),
        Err(_) if is_here => {
            tally.is_up.store(false, Relaxed);
            let target = &settings.target;
            let why = format!("{target}: no answer within {limit_ms} ms, it is waited for");
            tally.fail(&settings.name, why);
            Ok(work.await)
        }
        Err(_) => Err(format!("no answer within {limit_ms} ms")),
    }
}

/// It is to stop, and what was under way had its time.
async fn too_late(stop: &mut watch::Receiver<Stop>) {
    stopped(stop).await;
    sleep(FINISH).await;
}
