//! A gateway: a session here, and sockets of ZeroMQ, nanomsg or NNG.
//!
//! The session's queue is all the queue that waits for sockets: what goes to one of them (push,
//! pair, req) is acknowledged when that socket took it, and while nobody is there, or nobody takes
//! anything, it stays in the session. What goes to all of them (pub, bus) passes by who is slow,
//! and is counted. What comes from sockets is published here; while this broker acknowledges
//! nothing more, no socket is read. When it stops it reads none of them any more, and says here
//! what it has read before it ends.

mod aside;
mod crowd;
mod desk;
mod errands;
mod forms;
mod gauge;
mod held;
mod intake;
#[cfg(test)]
mod layers;
mod parcel;
mod peer;
mod place;
#[cfg(test)]
mod questions;
mod roads;
mod rows;
mod rules;
mod said;
#[cfg(test)]
mod sessions;
pub(crate) mod settings;
#[cfg(test)]
mod tests;
mod trust;
mod upgrade;

pub(crate) use self::place::Place;
pub(crate) use self::rules::RuleGiven;
pub(crate) use self::trust::trust;

use self::crowd::Crowd;
use self::desk::{Desk, again};
use self::peer::{Shared, lose_all};
use self::roads::Trusted;
use self::settings::GatewaySettings;
use super::near::{Home, NearTerms, Prepared, Wish};
use super::tally::Tally;
use super::way::{READ_BYTES, Way};
use super::{Credentials, Served, Stop, stopped};
use crate::patience::timeout;
use mqtt::{Disconnect, Properties, QoS, Reason, Version};
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

pub(crate) struct Gateway {
    shared: Shared,
    home: Arc<Home>,
    trusted: Trusted,
    /// The options were read again.
    again: Arc<Notify>,
}

/// Why the connection to the session here ends.
enum Ended {
    Stopped,
    /// No socket is there that could take anything, or for a moment none was.
    Alone,
    Why(String),
}

/// This broker is ours: if it does not answer it is busy stopping or starting.
const NEAR_RETRY: Duration = Duration::from_millis(200);
/// What this broker still has to be told when it stops.
const FINISH: Duration = Duration::from_secs(1);
const LAST_WORD: Duration = Duration::from_millis(200);

impl Gateway {
    pub(crate) fn new(
        settings: &GatewaySettings,
        (dials, serves): (Credentials, Served),
        (home, again): (Arc<Home>, Arc<Notify>),
        tally: Arc<Tally>,
    ) -> Gateway {
        let (settings, crowd) = (Arc::new(settings.clone()), Arc::new(Crowd::default()));
        let shared = Shared { settings, crowd, tally };
        Gateway { shared, home, trusted: Trusted { dials, serves }, again }
    }

    /// Until `stop` says so.
    pub(crate) async fn run(self, mut stop: watch::Receiver<Stop>) {
        let Shared { settings, tally, .. } = self.shared.clone();
        let mut told = stop.clone();
        let prepared = tokio::select! {
            prepared = self.prepare(false) => prepared,
            () = stopped(&mut told) => return,
        };
        let mut roads = self.set_out();
        let terms =
            NearTerms { qos_max: QoS::AtLeastOnce, takes_retain: true, packet_bytes_max: u32::MAX };
        let mut desk = Desk::new(self.shared.clone(), terms);
        desk.heed_prepared(prepared);
        loop {
            tokio::select! {
                biased;
                // Who is there may have said something that is to be finished.
                () = self.somebody(&desk) => {}
                () = self.is_asked_again(desk.asks_again_at()) => {
                    // To its end, whoever comes: who carries has to know what was asked for.
                    tokio::select! {
                        prepared = self.prepare(true) => desk.heed_prepared(prepared),
                        () = stopped(&mut told) => break,
                    }
                    continue;
                }
                () = stopped(&mut told) => break,
            }
            match self.work(&mut desk, &mut stop).await {
                Ended::Stopped => break,
                Ended::Alone => {}
                Ended::Why(why) => {
                    tally.fail(&settings.name, why);
                    if *told.borrow() != Stop::No {
                        self.doubt(&desk, "it stopped");
                        break;
                    }
                    // What was said has one more connection to be said over when it stops.
                    tokio::select! {
                        () = sleep(NEAR_RETRY) => {}
                        () = stopped(&mut told) => {}
                    }
                }
            }
        }
        desk.pass_over();
        self.close();
        roads.shutdown().await;
        tally.is_up.store(false, Relaxed);
        info!(target: "godwit::gateway", gateway = &*settings.name, "stopped");
    }

    fn set_out(&self) -> JoinSet<()> {
        let (mut roads, settings) = (JoinSet::new(), &self.shared.settings);
        for place in &settings.listen {
            roads.spawn(roads::listen(self.shared.clone(), place.clone(), self.trusted.clone()));
        }
        for place in &settings.dial {
            roads.spawn(roads::dial(self.shared.clone(), place.clone(), self.trusted.clone()));
        }
        roads
    }

    /// The session here exists, and is subscribed, before any socket is there.
    async fn prepare(&self, is_again: bool) -> Prepared {
        let settings = &self.shared.settings;
        let (link_id, identity) = (settings.link_id(), settings.identity());
        let wanted = |qos_max: QoS| match is_again {
            true => again(settings.wanted(qos_max)),
            false => settings.wanted(qos_max),
        };
        loop {
            match self.home.prepare_as(&link_id, identity, false, wanted).await {
                Ok(prepared) => return prepared,
                Err(why) => self.shared.tally.fail(&settings.name, why),
            }
            sleep(NEAR_RETRY).await;
        }
    }

    /// Comes back when there is somebody for whom the session here is wanted, or something that it
    /// does not have: until then its queue grows where sessions are, and not in memory.
    async fn somebody(&self, desk: &Desk) {
        while desk.is_alone() {
            self.shared.crowd.changed.notified().await;
        }
    }

    /// Comes back when its permissions may have changed while nobody was there for whom it works,
    /// or at the time that is given.
    async fn is_asked_again(&self, due: Option<Instant>) {
        let is_judged = self.shared.settings.identity().is_some();
        let told = async {
            match is_judged {
                true => self.again.notified().await,
                false => pending().await,
            }
        };
        tokio::select! {
            () = told => {}
            () = time_of(due) => {}
        }
    }

    async fn work(&self, desk: &mut Desk, stop: &mut watch::Receiver<Stop>) -> Ended {
        let settings = &self.shared.settings;
        let link_id = settings.link_id();
        let receive_maximum = settings.limits.inflight_max;
        let wish = Wish { link_id: &link_id, receive_maximum, is_last: false, is_quiet: false };
        let mut near = match self.home.connect_as(wish, settings.identity()).await {
            Ok(near) if near.session_present => near,
            Ok(near) => {
                let _ = near.goodbye().await;
                // What was said has time to be said over when it stops, and not longer.
                let late = async {
                    stopped(stop).await;
                    sleep(FINISH).await;
                };
                tokio::select! {
                    prepared = self.prepare(false) => desk.heed_prepared(prepared),
                    () = late => {
                        self.doubt(desk, "its session did not come again");
                        return Ended::Stopped;
                    }
                }
                return Ended::Alone;
            }
            Err(why) => return Ended::Why(why),
        };
        if let Err(why) = near.begin(&mut desk.fresh).await {
            return Ended::Why(why);
        }
        desk.begin(near.terms);
        desk.subscribe_again();
        let mut way = Way::new(near.stream, near.read);
        let ended = self.carry(desk, &mut way, stop).await;
        if !matches!(ended, Ended::Why(_)) {
            goodbye(desk, &mut way).await;
        }
        ended
    }

    async fn carry(
        &self,
        desk: &mut Desk,
        way: &mut Way<UnixStream>,
        stop: &mut watch::Receiver<Stop>,
    ) -> Ended {
        let Shared { settings, crowd, .. } = &self.shared;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            desk.heed_crowd();
            if desk.is_alone() || desk.is_parted() {
                return Ended::Alone;
            }
            let due = desk.due();
            tokio::select! {
                biased;
                () = stopped(stop) => {
                    self.settle(desk, way).await;
                    return Ended::Stopped;
                }
                moved = poll_fn(|cx| poll(desk, way, cx, &mut buffer)) => {
                    if let Err(why) = moved {
                        return Ended::Why(why);
                    }
                }
                () = crowd.changed.notified() => {}
                () = self.again.notified() => {
                    // Who answers that knows the new permissions.
                    self.home.survey(vec![settings.link_id().into()]).await;
                    desk.subscribe_again();
                }
                () = time_of(due) => desk.look_at_time(),
            }
        }
    }

    /// What was read of sockets this broker has, before any of them may believe so: none is read
    /// any more. Then they go, and what they take until they have gone is acknowledged.
    async fn settle(&self, desk: &mut Desk, way: &mut Way<UnixStream>) {
        let crowd = &self.shared.crowd;
        crowd.stop_hearing();
        desk.pass_over();
        let is_heard = |desk: &Desk| crowd.is_heard_out() && desk.is_answered();
        match timeout(FINISH, self.carry_until(is_heard, desk, way)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return self.doubt(desk, &why),
            Err(_) => self.doubt(desk, &format!("no answer within {} s", FINISH.as_secs())),
        }
        // Nobody takes anything behind the end, but who did it just before has to say so.
        let end = self.close() + LAST_WORD;
        let have_gone = |desk: &Desk| crowd.len() == 0 && desk.is_answered();
        let _ = timeout_at(end, self.carry_until(have_gone, desk, way)).await;
    }

    /// Says when all sockets have gone at the latest.
    fn close(&self) -> Instant {
        let (end, lost) = self.shared.crowd.close();
        lose_all(&self.shared, lost);
        end
    }

    async fn carry_until(
        &self,
        is_so: impl Fn(&Desk) -> bool,
        desk: &mut Desk,
        way: &mut Way<UnixStream>,
    ) -> Result<(), String> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            desk.take_receipts();
            if is_so(desk) {
                return Ok(());
            }
            tokio::select! {
                moved = poll_fn(|cx| poll(desk, way, cx, &mut buffer)) => moved?,
                () = self.shared.crowd.changed.notified() => {}
            }
        }
    }

    /// Says so where it is not known what came of what sockets said.
    fn doubt(&self, desk: &Desk, why: &str) {
        let Shared { settings, crowd, tally } = &self.shared;
        let count = desk.unanswered() + crowd.unheard();
        if count > 0 {
            let what = format!("{why}: what {count} messages came to is not known");
            tally.fail(&settings.name, what);
        }
    }
}

async fn time_of(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Everything that can go on does. Comes back when something did.
fn poll(
    desk: &mut Desk,
    way: &mut Way<UnixStream>,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<Result<(), String>> {
    let taken_in = desk.take_in();
    if exchange(desk, way, cx, buffer)? || taken_in {
        return Poll::Ready(Ok(()));
    }
    Poll::Pending
}

/// What goes to the session here and what comes from it. Says whether there was anything.
fn exchange(
    desk: &mut Desk,
    way: &mut Way<UnixStream>,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Result<bool, String> {
    let near = |error: std::io::Error| format!("this broker closed the connection: {error}");
    let mut moved = way.poll_write(cx, &mut desk.to_near).map_err(near)?;
    if !way.unread().is_empty() {
        let taken = desk.hear(way.unread())?;
        way.take(taken);
        moved |= taken > 0;
    }
    // What cannot go on yet is not made longer, but a packet that is not whole is.
    if way.unread().is_empty() || !desk.is_held_up() {
        moved |= way.poll_read(cx, buffer).map_err(near)?;
    }
    Ok(moved)
}

/// This broker has heard it once it closes the connection.
async fn goodbye(desk: &mut Desk, way: &mut Way<UnixStream>) {
    desk.take_receipts();
    desk.pass_over();
    let (reason, properties) = (Reason::NormalDisconnection, Properties::default());
    Disconnect { reason, properties }.encode(Version::V5, &mut desk.to_near);
    let mut buffer = vec![0; READ_BYTES];
    let closed = poll_fn(|cx| {
        while let Ok(moved) = exchange(desk, way, cx, &mut buffer) {
            if !moved {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    });
    let _ = timeout(FINISH, closed).await;
    desk.to_near.clear();
}
