//! A bridge: a session here and one at another broker, and a pipe between them.
//!
//! The task connects, carries, and begins again when a connection ends. It keeps nothing that
//! would be lost with it: what is on its way is in one of the two sessions, see `pipe`.

pub(crate) mod carry;
pub(crate) mod far;
mod loan;
pub(crate) mod pipe;
mod place;
pub(crate) mod settings;
mod tunnel;
mod underway;

use self::carry::{Ended, Line};
use self::far::{Denied, Far, Manner};
use self::pipe::{Past, Pipe, Rule, Side, Suspicion};
use self::place::Places;
use self::settings::BridgeSettings;
use super::backoff::{self, seed};
use super::fresh::Fresh;
use super::near::{Home, NOTE_OPTIONS, Near, Wish, rows_for};
use super::tally::Tally;
use super::{Credentials, Stop, lock, stopped};
use crate::patience::timeout;
use broker::rules::Told;
use mqtt::QoS;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;
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
    /// Its session has what its rules ask for.
    pub(crate) is_subscribed: bool,
}

/// What the task of a bridge remembers from one connection to the next.
#[derive(Default)]
struct Course {
    /// Which server is next, ...
    server: usize,
    /// ... and one that has let us in already.
    ready: Option<Far>,
    /// How many times in a row none was reached, ...
    failures: u32,
    /// ... or something here was the reason.
    own_failures: u32,
    /// The session here has to be begun, and to subscribe.
    is_unprepared: bool,
    /// Filters whose retained messages have not begun to come.
    fresh: Fresh,
    places: Places,
    gone: Vec<String>,
    past: Past,
    suspicion: Suspicion,
    /// Which server was told that it was the last connection.
    left: Option<usize>,
}

/// Who has this name next waits so long at most.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// A connection that lasted so long was one.
const STEADY: Duration = Duration::from_secs(5);
/// This broker is ours: if it does not answer it is busy stopping or starting.
const NEAR_RETRY: Duration = Duration::from_millis(200);

impl Bridge {
    /// Until `stop` says so.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<Stop>) {
        let course = self.work(&mut stop).await;
        let stop = stop.borrow().clone();
        self.leave(course, &stop).await;
    }

    async fn work(&mut self, stop: &mut watch::Receiver<Stop>) -> Course {
        let gone = std::mem::take(&mut self.gone);
        let past = Past::of(self.settings.servers.len());
        let mut course = Course { gone, past, is_unprepared: true, ..Course::default() };
        let mut told = stop.clone();
        loop {
            if course.is_unprepared {
                tokio::select! {
                    () = self.prepare(&mut course) => {}
                    () = stopped(&mut told) => return course,
                }
            }
            let connected = tokio::select! {
                connected = self.connect(&mut course) => connected,
                () = stopped(&mut told) => return course,
            };
            match connected {
                Ok(line) => self.carry(line, &mut course, stop).await,
                Err((side, why)) => self.failed(&mut course, side, why),
            }
            if course.ready.is_some() {
                continue;
            }
            tokio::select! {
                () = sleep(self.pause(&course)) => {}
                () = stopped(&mut told) => return course,
            }
        }
    }

    /// Has its servers forget it, as far as they answer: nobody comes for what they would keep.
    async fn leave(&self, course: Course, stop: &Stop) {
        let (settings, count) = (&self.settings, self.settings.servers.len());
        let connecting = Duration::from_secs(u64::from(settings.connect_timeout_s));
        let each = connecting.min(LEAVE_MAX) / count as u32;
        for server in (0..count).map(|at| (course.server + at) % count) {
            let url = &settings.servers[server];
            if !stop.ends_at(url) || course.left == Some(server) || course.places.is_unmet(url) {
                continue;
            }
            let leaving = async {
                if let Ok(far) = self.knock(server, true).await {
                    far.leave(settings.version).await;
                }
            };
            let _ = timeout(each, leaving).await;
        }
    }

    /// The session here exists, and is subscribed to what goes out, before anybody is called: what
    /// is published from now on waits.
    async fn prepare(&self, course: &mut Course) {
        loop {
            match self.try_prepare().await {
                Ok((places, fresh)) => {
                    course.is_unprepared = false;
                    (course.places, course.fresh) = (places, fresh);
                    return;
                }
                Err(why) => self.tally.fail(&self.settings.name, why),
            }
            sleep(NEAR_RETRY).await;
        }
    }

    async fn try_prepare(&self) -> Result<(Places, Fresh), String> {
        let rules = &self.settings.rules.outward;
        let (link_id, client_id) = (self.settings.link_id(), self.settings.far_client_id());
        let before = self.home.survey(vec![link_id.as_str().into()]).await;
        let (places, unmet) = match before.first() {
            Some(report) => (Places::of(&link_id, &client_id, &report.filters), Vec::new()),
            None => {
                let places = Places::unmet(&link_id, &client_id, &self.settings.servers);
                let unmet = places.filters();
                (places, unmet)
            }
        };
        let wanted = |qos_max| {
            let filter = |rule: &Rule| (rule.map.filter.clone(), rule.first_options(qos_max));
            let rows = self.settings.takes_rows.then(|| rows_for(&link_id, qos_max));
            let notes = unmet.iter().map(|note| (note.clone(), NOTE_OPTIONS));
            rules.iter().map(filter).chain(rows).chain(notes).collect()
        };
        let fresh = self.home.prepare(&link_id, self.is_subscribed, wanted).await?;
        Ok((places, fresh))
    }

    /// Both ends, and what is unfinished between them.
    async fn connect(&self, course: &mut Course) -> Result<Line, (Side, String)> {
        let (here, there) = (|why| (Side::Here, why), |why| (Side::There, why));
        let settings = &self.settings;
        self.tally.server.store(course.server, Relaxed);
        let far = match course.ready.take() {
            Some(far) => far,
            None => {
                let anew = self.begins_anew(course, course.server);
                self.reach(course.server, anew).await.map_err(there)?
            }
        };
        let granted = far.granted;
        let link_id = settings.link_id();
        let receive_maximum = granted.receive_maximum.min(settings.limits.inflight_max);
        let wish = Wish { link_id: &link_id, receive_maximum, is_last: false, is_quiet: false };
        let mut near = self.home.connect(wish).await.map_err(here)?;
        if !near.session_present {
            course.is_unprepared = true;
            course.past.forget_near();
            return Err(here("its session here was gone".to_string()));
        }
        let left = course.places.left(&settings.servers[course.server]);
        let has_two = granted.terms.qos_max == QoS::ExactlyOnce;
        course.past.arrive(course.server, granted.session_present, left.is_some() && has_two);
        let mut pipe = Pipe::new(
            settings.name.clone(),
            settings.rules.clone(),
            (granted.terms, near.terms),
            self.tally.clone(),
            std::mem::take(&mut course.past),
            seed(),
        );
        pipe.loops = settings.loop_detection(course.server);
        let mut settled =
            self.settle(course, granted.session_present, (&mut near, &mut pipe)).await;
        if settled.is_ok() {
            settled = near.begin(&mut course.fresh).await;
        }
        if let Err(why) = settled {
            course.past = pipe.into_past();
            return Err(here(why));
        }
        pipe.begin(&course.gone, left);
        pipe.say_status(&settings.status_topic, true);
        Ok(Line::new(near, far, pipe, (settings, self.home.handle.clone())))
    }

    /// A session there remembers ids of QoS 2 messages that one before this one here gave.
    fn begins_anew(&self, course: &Course, server: usize) -> bool {
        course.places.is_unmet(&self.settings.servers[server]) && self.has_two()
    }

    /// Whether QoS 2 may go out.
    fn has_two(&self) -> bool {
        let mut rules = self.settings.rules.outward.iter();
        rules.any(|rule| rule.qos == QoS::ExactlyOnce) || self.settings.takes_rows
    }

    /// What the session here has open is another one's, where that at the server is another. It is
    /// written down where it is now before anything comes from there or goes there.
    async fn settle(
        &self,
        course: &mut Course,
        is_present: bool,
        (near, pipe): (&mut Near, &mut Pipe),
    ) -> Result<(), String> {
        let link_id = self.settings.link_id();
        let server = &self.settings.servers[course.server];
        let mut change = course.places.move_to(server, self.has_two());
        if !is_present {
            change.gone.extend(course.places.left(server));
        }
        if change.moves || !is_present {
            let reports = self.home.survey(vec![link_id.as_str().into()]).await;
            let received = reports.into_iter().next().map(|report| report.received);
            pipe.release(&received.unwrap_or_default());
            near.say(&std::mem::take(&mut pipe.to_near)).await?;
        }
        if change.is_empty() {
            return Ok(());
        }
        let wanted: Vec<_> = change.wanted.iter().map(|note| (&**note, NOTE_OPTIONS)).collect();
        let gone: Vec<&str> = change.gone.iter().map(|note| &**note).collect();
        near.subscribe(&wanted, &gone).await?;
        course.places.change(change);
        Ok(())
    }

    /// As a bridge, where the other broker knows what that is.
    async fn knock(&self, server: usize, clean_start: bool) -> Result<Far, Denied> {
        let manner = Manner { clean_start, is_marked: !self.settings.version.is_v5() };
        match self.call(server, manner).await {
            // Without the mark it is a client like any other.
            Err(Denied::Mark) => self.call(server, Manner { is_marked: false, ..manner }).await,
            other => other,
        }
    }

    /// Lets itself in at a server, where the session begins anew if that is to be.
    async fn reach(&self, server: usize, anew: bool) -> Result<Far, String> {
        let settings = &self.settings;
        let far = self.knock(server, anew).await.map_err(|denied| denied.to_string())?;
        if !anew || settings.version.is_v5() {
            return Ok(far);
        }
        // In 3.1.1 a session that begins anew ends with its connection.
        let is_marked = far.granted.is_marked;
        let within = Duration::from_secs(u64::from(settings.connect_timeout_s));
        // One that does not close has heard it all the same.
        let _ = timeout(within, far.leave(settings.version)).await;
        let again = self.call(server, Manner { clean_start: false, is_marked }).await;
        again.map_err(|denied| denied.to_string())
    }

    async fn call(&self, server: usize, manner: Manner) -> Result<Far, Denied> {
        let settings = &self.settings;
        let within = Duration::from_secs(u64::from(settings.connect_timeout_s));
        let tls = lock(&self.tls).clone();
        let calling = Far::connect(settings, &settings.servers[server], tls.as_ref(), manner);
        let why = || Denied::Why(format!("no answer within {} s", settings.connect_timeout_s));
        timeout(within, calling).await.unwrap_or_else(|_| Err(why()))
    }

    async fn carry(&self, mut line: Line, course: &mut Course, stop: &mut watch::Receiver<Stop>) {
        let settings = &self.settings;
        let server = settings.servers[course.server].to_string();
        let name = &*settings.name;
        info!(target: "godwit::bridge", bridge = name, server, "connected");
        self.tally.connects.fetch_add(1, Relaxed);
        self.tally.is_up.store(true, Relaxed);
        self.tell("bridge/connected", &server, None);
        let since = Instant::now();
        let is_elsewhere = course.server > 0 && settings.return_s > 0;
        let anew = self.begins_anew(course, 0);
        let here = &settings.servers[course.server];
        let mut ended = line.carry((stop, here), self.first_answers(is_elsewhere, anew)).await;
        if let Ended::Why(Side::There, why) = &mut ended
            && let Some(suspects) = line.suspects()
            && let Some(more) = course.suspicion.hang_up(suspects)
        {
            why.push_str(", ");
            why.push_str(&more);
        }
        self.tally.is_up.store(false, Relaxed);
        self.tell("bridge/disconnected", &server, Some(ended.why()));
        if line.is_answered() {
            course.gone.clear();
            course.places.is_released(&settings.servers[course.server]);
        }
        let servers = settings.servers.len();
        course.past = line.into_past().unwrap_or_else(|| Past::of(servers));
        // Who is thrown out again and again, as by another with its client id, waits longer and
        // longer too.
        if since.elapsed() >= STEADY {
            (course.failures, course.own_failures) = (0, 0);
        }
        match ended {
            Ended::Stopped => {
                // In 3.1.1 nobody can say in the end that a session ends too.
                course.left = settings.version.is_v5().then_some(course.server);
                info!(target: "godwit::bridge", bridge = name, "stopped");
            }
            Ended::Return(far) => {
                info!(target: "godwit::bridge", bridge = name, "goes back to its first server");
                (course.server, course.ready) = (0, Some(*far));
            }
            Ended::Why(side, why) => self.failed(course, side, why),
        }
    }

    /// For rules.
    fn tell(&self, event: &'static str, server: &str, reason: Option<&str>) {
        let (bridge, server) = (self.settings.name.to_string(), server.to_string());
        let reason = reason.map(|reason| ("reason", reason.to_string()));
        let fields = [("bridge", bridge), ("server", server)].into_iter().chain(reason).collect();
        self.home.handle.tell(Told { event, fields });
    }

    /// Comes back with the first server once that lets us in, if that is not where we are.
    async fn first_answers(&self, is_elsewhere: bool, anew: bool) -> Far {
        if !is_elsewhere {
            return std::future::pending().await;
        }
        loop {
            sleep(Duration::from_secs(u64::from(self.settings.return_s))).await;
            if let Ok(far) = self.reach(0, anew).await {
                return far;
            }
        }
    }

    /// The next server in the list, and from the first one on again after a wait. What is wrong
    /// here would be wrong with each of them.
    fn failed(&self, course: &mut Course, side: Side, why: String) {
        let (name, server) = (&*self.settings.name, &self.settings.servers[course.server]);
        warn!(target: "godwit::bridge", bridge = name, %server, "not connected: {why}");
        if side == Side::Here {
            course.own_failures += 1;
            return self.tally.set_error(why);
        }
        self.tally.set_error(format!("{server}: {why}"));
        course.own_failures = 0;
        course.server = (course.server + 1) % self.settings.servers.len();
        course.failures += 1;
    }

    /// Servers of the list are tried one after the other, and then there is a wait.
    fn pause(&self, course: &Course) -> Duration {
        let first = Duration::from_millis(u64::from(self.settings.retry_min_ms));
        let longest = Duration::from_secs(u64::from(self.settings.retry_max_s));
        if course.own_failures > 0 {
            return backoff::pause(course.own_failures, first, longest);
        }
        let rounds = course.failures / self.settings.servers.len() as u32;
        if course.failures > 0 && course.server > 0 {
            return Duration::ZERO;
        }
        backoff::pause(if course.failures == 0 { 0 } else { rounds.max(1) }, first, longest)
    }
}
