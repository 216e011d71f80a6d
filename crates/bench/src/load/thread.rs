//! One load thread: its poller, its clients, and the turn.
//!
//! ```text
//! hand over -> open what is due -> publish what is due -> write -> wait -> read -> write
//! ```
//!
//! Sockets are edge-triggered for reading and writing from the first; nothing is registered twice.

use super::client::{ClientState, LoadClient};
use super::distribution::ThreadClients;
use super::incoming::AgeBatch;
use super::payload::PayloadGenerator;
use super::schedule::{IntervalQueue, PollTimer, round_up_to_grid};
use super::transport::{ClientTransport, QuicEndpoints};
use super::{LoadStage, SharedCounters, ThreadSecond};
use crate::clock::{RunClock, SECOND_NS};
use crate::limits::{CONNECT_S_MAX, EVENTS_A_TURN_MAX, OPENING_MAX, READ_BYTES_MAX};
use crate::load_stats::{LatencySampler, LoadCounter, LoadFailure, LoadStats};
use crate::plan::{LoadPlan, PublishPace, StartMode};
use crate::track::{StreamTracks, TrackTotals};
use mio::{Events, Poll, Token};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Sender;
use std::time::Duration;

pub(crate) struct LoadThread {
    pub(super) plan: Arc<LoadPlan>,
    pub(super) shared: Arc<SharedCounters>,
    pub(super) clock: RunClock,
    pub(super) clients: Vec<LoadClient>,
    /// Tracks of each shared subscription: deliveries to all members together.
    pub(super) shares: Vec<StreamTracks>,
    pub(super) stats: LoadStats,
    pub(super) buffer: Vec<u8>,
    /// Indexes of the clients with pending output.
    pub(super) dirty: Vec<u32>,
    pub(super) spares: Vec<Vec<u8>>,
    /// Due times of the QoS 0 messages that this turn writes.
    pub(super) written: Vec<u64>,
    /// By group: the due times of publishers with an interval (`schedules`), and the turns of
    /// publishers that wait for an acknowledgement before the next message (`closed_loop`).
    pub(super) schedules: Vec<IntervalQueue>,
    pub(super) closed_loop: Vec<ClosedLoopPublishers>,
    pub(super) payloads: Vec<PayloadGenerator>,
    /// Range of due times, in microseconds, of the messages that count in latencies.
    pub(super) measured_us: (u64, u64),
    /// Deliveries expected and received in this turn, not yet added to `SharedCounters`.
    pub(super) expected: u64,
    pub(super) received: u64,
    pub(super) flights: i64,
    pub(super) ages: AgeBatch,
    pub(super) endpoints: QuicEndpoints,
    /// Indexes of the clients whose QUIC connections have events.
    pub(super) woken: Vec<u32>,
    poll: Poll,
    timer: PollTimer,
    seconds: Sender<ThreadSecond>,
    to_open: VecDeque<(u64, u32)>,
    reopen: BinaryHeap<std::cmp::Reverse<(u64, u32)>>,
    opening: usize,
    timeouts: IntervalQueue,
    pings: Vec<IntervalQueue>,
    has_begun: bool,
    second_from: u64,
    cpu_ns: u64,
    handed_over_ns: u64,
}

/// Publishers of a group that publish as fast as the broker accepts messages.
#[derive(Debug, Default)]
pub(super) struct ClosedLoopPublishers {
    pub(super) clients: Vec<u32>,
    pub(super) next: usize,
}

/// Results of a load thread at its end.
#[derive(Debug)]
pub(crate) struct ThreadSummary {
    /// Totals by the stream number in payloads.
    pub(crate) tracked: HashMap<u32, TrackTotals>,
    pub(crate) streams: Vec<StreamSummary>,
    /// Number of clients that were live, by filter.
    pub(crate) consumers: HashMap<String, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct StreamSummary {
    pub(crate) stream: u32,
    pub(crate) client: String,
    pub(crate) topic: String,
    pub(crate) sent: u64,
    pub(crate) unanswered: u64,
}

impl LoadThread {
    pub(crate) fn new(
        index: usize,
        plan: Arc<LoadPlan>,
        shared: Arc<SharedCounters>,
        clock: RunClock,
        seconds: Sender<ThreadSecond>,
        poll: Poll,
        part: ThreadClients,
    ) -> io::Result<LoadThread> {
        let interval = |group: &crate::plan::PlanGroup| match group.publish.as_ref().map(|p| p.pace)
        {
            Some(PublishPace::EveryNs(interval)) => interval.max(1),
            _ => u64::MAX,
        };
        let between_pings =
            |group: &crate::plan::PlanGroup| u64::from(group.keep_alive_s) * (SECOND_NS / 10) * 8;
        let payload = |(at, group): (usize, &crate::plan::PlanGroup)| {
            let nothing = crate::plan::PayloadKind::Sized(0);
            let body = group.publish.as_ref().map_or(&nothing, |publish| &publish.body);
            PayloadGenerator::new(body, plan.seed ^ (at as u64) << 32 ^ index as u64)
        };
        let timer = PollTimer::new(poll.registry(), TIMER)?;
        let now = clock.now_ns();
        let per_connect = SECOND_NS as f64 / plan.connects_per_s.max(0.001);
        let due = |client: &LoadClient| now + (client.index as f64 * per_connect) as u64;
        let to_open = part.clients.iter().enumerate();
        Ok(LoadThread {
            to_open: to_open.map(|(at, client)| (due(client), at as u32)).collect(),
            schedules: plan
                .groups
                .iter()
                .map(|group| IntervalQueue::new(interval(group)))
                .collect(),
            closed_loop: plan.groups.iter().map(|_| ClosedLoopPublishers::default()).collect(),
            payloads: plan.groups.iter().enumerate().map(payload).collect(),
            pings: plan
                .groups
                .iter()
                .map(|group| IntervalQueue::new(between_pings(group)))
                .collect(),
            plan,
            shared,
            clock,
            clients: part.clients,
            shares: (0..part.shares).map(|_| StreamTracks::default()).collect(),
            stats: LoadStats::new(),
            buffer: vec![0; READ_BYTES_MAX],
            dirty: Vec::new(),
            spares: Vec::new(),
            written: Vec::new(),
            measured_us: (u64::MAX, u64::MAX),
            expected: 0,
            received: 0,
            flights: 0,
            ages: AgeBatch::default(),
            endpoints: QuicEndpoints::default(),
            woken: Vec::new(),
            poll,
            timer,
            seconds,
            reopen: BinaryHeap::new(),
            opening: 0,
            timeouts: IntervalQueue::new(CONNECT_S_MAX * SECOND_NS),
            has_begun: false,
            second_from: clock.began_ns,
            cpu_ns: 0,
            handed_over_ns: now,
        })
    }

    pub(crate) fn run(mut self) -> io::Result<ThreadSummary> {
        let mut events = Events::with_capacity(EVENTS_A_TURN_MAX);
        loop {
            let now = self.clock.now_ns();
            let stage = self.shared.stage();
            if now >= self.second_until() {
                self.report_second(now);
            }
            if stage == LoadStage::Over {
                return self.finish(now);
            }
            self.open_due(now);
            self.check_timeouts(now);
            if stage >= LoadStage::Publishing && !self.has_begun {
                self.start_schedule();
            }
            self.fire_endpoint_timers()?;
            let room = stage >= LoadStage::Publishing && self.publish_due(now);
            self.flush();
            let timeout = self.timeout(now, room)?;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for (nth, event) in events.iter().enumerate() {
                self.dispatch_event(event)?;
                if nth % STEPS_PER_TIME_CHECK == STEPS_PER_TIME_CHECK - 1 {
                    self.publish_if_due();
                }
            }
            self.flush();
            self.shared.expected.fetch_add(std::mem::take(&mut self.expected), SeqCst);
            self.shared.received.fetch_add(std::mem::take(&mut self.received), SeqCst);
            self.shared.flights.fetch_add(std::mem::take(&mut self.flights), SeqCst);
        }
    }

    /// Publishes messages that came due during a long series of reads or writes, which may take
    /// longer than the schedule's grid. With `LoadPlan::from_sending` the thread reads first, as
    /// other testers do.
    pub(super) fn publish_if_due(&mut self) {
        if self.plan.from_sending {
            return;
        }
        let next =
            self.schedules.iter().filter_map(IntervalQueue::next_at).map(round_up_to_grid).min();
        if let Some(next) = next
            && let now = self.clock.now_ns()
            && next <= now
            && self.shared.stage() >= LoadStage::Publishing
        {
            self.publish_due(now);
            self.flush();
        }
    }

    /// Gives every publisher a place in its group's schedule, spread evenly over one interval.
    fn start_schedule(&mut self) {
        self.has_begun = true;
        let start = self.shared.start_ns.load(SeqCst);
        self.measured_us = (
            self.shared.measure_from_ns.load(SeqCst) / 1_000,
            self.shared.publish_until_ns.load(SeqCst) / 1_000,
        );
        if self.plan.start == StartMode::Each {
            return;
        }
        for at in 0..self.clients.len() {
            if self.clients[at].publisher.is_some() {
                let group = usize::from(self.clients[at].group);
                let nth = self.clients[at].number - self.plan.groups[group].number_first;
                let interval = u128::from(self.schedules[group].interval_ns);
                let offset =
                    interval * u128::from(nth) / u128::from(self.plan.groups[group].clients);
                self.schedule_publisher(at as u32, start + offset as u64);
            }
        }
    }

    fn schedule_publisher(&mut self, at: u32, first_ns: u64) {
        let group = usize::from(self.clients[at as usize].group);
        let Some(publishing) = &self.plan.groups[group].publish else { return };
        match publishing.pace {
            PublishPace::AsTaken => self.closed_loop[group].clients.push(at),
            PublishPace::EveryNs(_) => {
                let (min, max) = publishing.wait_ms;
                let place = self.clients[at as usize].index;
                let wait = match max.checked_sub(min) {
                    Some(span) => {
                        min + super::distribution::client_rng(&self.plan, place).next() % (span + 1)
                    }
                    None => 0,
                };
                self.schedules[group].insert(first_ns + wait * 1_000_000, at);
            }
        }
    }

    pub(super) fn end_publishing(&mut self) {
        self.schedules.iter_mut().for_each(IntervalQueue::clear);
        self.closed_loop.iter_mut().for_each(|takers| takers.clients.clear());
    }

    /// Returns the timeout of the poller: zero if a closed loop has `room` left.
    fn timeout(&mut self, now: u64, room: bool) -> io::Result<Option<Duration>> {
        if room {
            return Ok(Some(Duration::ZERO));
        }
        if self.closed_loop.iter().any(|takers| !takers.clients.is_empty()) {
            // Another thread's input may make room here, without an event for this thread.
            return Ok(Some(Duration::from_millis(1).min(self.endpoints.idle_time())));
        }
        let publishing =
            self.schedules.iter().filter_map(IntervalQueue::next_at).map(round_up_to_grid);
        let opening = self.to_open.front().filter(|_| self.opening < OPENING_MAX);
        let reopening = self.reopen.peek().map(|next| next.0.0);
        let next = publishing.chain(opening.map(|next| next.0)).chain(reopening).min();
        if let Some(next) = next {
            self.timer.set(next, now)?;
        }
        let nap = POLL_WAIT_MAX.min(self.endpoints.idle_time());
        Ok(Some(Duration::from_nanos(self.second_until().saturating_sub(now)).min(nap)))
    }

    fn dispatch_event(&mut self, event: &mio::event::Event) -> io::Result<()> {
        let Token(at) = event.token();
        if event.token() == WAKER || event.token() == TIMER {
            return Ok(());
        }
        if let Some(outlet) = self.endpoints.index_of_token(event.token()) {
            return self.poll_endpoint(outlet);
        }
        let ends = event.is_read_closed() || event.is_error();
        self.on_client_event(at as u32, event.is_readable() || ends, event.is_writable(), ends);
        Ok(())
    }

    /// Handles a poller event of a client. `ends` is whether the peer has closed or reset.
    pub(super) fn on_client_event(
        &mut self,
        at: u32,
        is_readable: bool,
        is_writable: bool,
        ends: bool,
    ) {
        let Some(client) = self.clients.get_mut(at as usize) else { return };
        if client.transport.is_none() {
            return;
        }
        if client.state == ClientState::Opening {
            // Handshakes below MQTT need both directions.
            self.check_opened(at);
            if self.clients[at as usize].state == ClientState::Opening {
                return;
            }
        } else if is_writable {
            self.resume_writing(at);
        }
        if is_readable {
            self.receive(at, ends);
        }
    }

    fn open_due(&mut self, now: u64) {
        while self.opening < OPENING_MAX
            && let Some(&(due, at)) = self.to_open.front()
            && due <= now
        {
            self.to_open.pop_front();
            self.open(at, now);
        }
        while self.opening < OPENING_MAX
            && let Some(next) = self.reopen.peek()
            && next.0.0 <= now
            && let Some(next) = self.reopen.pop()
        {
            self.open(next.0.1, now);
        }
    }

    fn open(&mut self, at: u32, now: u64) {
        let client = &mut self.clients[at as usize];
        let group = &self.plan.groups[usize::from(client.group)];
        let targets = &self.plan.targets;
        let place = client.index as usize;
        let target = &targets[group.target.unwrap_or(place) % targets.len()];
        let local = (!self.plan.local_addresses.is_empty()).then(|| {
            self.plan.local_addresses[place / targets.len() % self.plan.local_addresses.len()]
        });
        client.state = ClientState::Opening;
        client.opened_ns = now;
        client.requested_ns = now;
        self.opening += 1;
        self.timeouts.insert(now + self.timeouts.interval_ns, at);
        match ClientTransport::connect(target, local, at, &mut self.endpoints, self.poll.registry())
        {
            Ok(wire) => client.transport = Some(wire),
            Err(error) => self.drop_connection(at, LoadFailure::from_io(&error)),
        }
    }

    fn check_opened(&mut self, at: u32) {
        let Some(wire) = &mut self.clients[at as usize].transport else { return };
        match wire.poll_open(&mut self.endpoints) {
            Ok(false) => {}
            Ok(true) => self.send_connect(at),
            Err(error) => self.drop_connection(at, LoadFailure::from_io(&error)),
        }
    }

    /// Marks a client `Live`: CONNACK and all SUBACKs have arrived.
    pub(super) fn mark_live(&mut self, at: u32) {
        let now = self.clock.now_ns();
        let client = &mut self.clients[at as usize];
        client.state = ClientState::Live;
        self.opening -= 1;
        self.shared.live.fetch_add(1, SeqCst);
        if client.lost_ns > 0 {
            self.stats.record(LatencySampler::Reconnect, (now - client.lost_ns) / 1_000);
            self.stats.add(LoadCounter::ReconnectSucc, 1);
        }
        client.retries = 0;
        let joins = !client.was_live && self.plan.start == StartMode::Each;
        client.was_live = true;
        let line = &mut self.pings[usize::from(client.group)];
        if line.interval_ns > 0 {
            line.insert(now + line.interval_ns, at);
        }
        if joins && client.publisher.is_some() {
            let interval = self.schedules[usize::from(client.group)].interval_ns;
            self.schedule_publisher(at, now.saturating_add(interval));
        }
        self.mark_settled(at);
    }

    fn mark_settled(&mut self, at: u32) {
        if !std::mem::replace(&mut self.clients[at as usize].is_settled, true) {
            self.shared.settled.fetch_add(1, SeqCst);
        }
    }

    /// Closes a lost or failed connection, counts the failure with all unacknowledged and late
    /// messages, and schedules a retry if the plan allows.
    pub(super) fn drop_connection(&mut self, at: u32, failure: LoadFailure) {
        let now = self.clock.now_ns();
        let client = &mut self.clients[at as usize];
        let group = &self.plan.groups[usize::from(client.group)];
        client.close(&mut self.endpoints);
        let was_live = client.state == ClientState::Live;
        if was_live {
            self.shared.live.fetch_sub(1, SeqCst);
            self.stats.add(LoadCounter::Lost, 1);
            client.lost_ns = now;
        } else {
            self.opening -= 1;
            self.stats.add(LoadCounter::ConnectFail, 1);
        }
        self.stats.record_failure(failure);
        if let Some(publisher) = &mut client.publisher {
            let unanswered = publisher.flights.drain(..).count() as u64;
            self.flights -= unanswered as i64;
            self.stats.add(LoadCounter::PubUnanswered, unanswered);
            self.stats
                .add(LoadCounter::PubMissed, u64::from(std::mem::take(&mut publisher.backlog_len)));
        }
        let tries = if client.was_live { group.reconnects } else { group.connect_retries };
        if client.retries < tries && self.shared.stage() < LoadStage::Draining {
            // The first retry is immediate, for a restarted broker; later retries wait `RETRY_NS`.
            let wait = if was_live { 0 } else { RETRY_NS };
            client.retries += 1;
            client.state = ClientState::Waiting;
            self.stats.add(LoadCounter::ConnectRetried, 1);
            self.reopen.push(std::cmp::Reverse((now + wait, at)));
        } else {
            client.state = ClientState::Over;
            self.shared.over.fetch_add(1, SeqCst);
            self.mark_settled(at);
        }
    }

    /// Sends PINGREQs, and drops connections without PINGRESP or beyond `CONNECT_S_MAX`.
    fn check_timeouts(&mut self, now: u64) {
        for group in 0..self.pings.len() {
            while let Some((_, at)) = self.pings[group].pop_due(now) {
                let client = &mut self.clients[at as usize];
                if client.state != ClientState::Live {
                    continue;
                }
                if client.is_pinging {
                    self.drop_connection(at, LoadFailure::NoPong);
                    continue;
                }
                client.is_pinging = true;
                let next = now + self.pings[group].interval_ns;
                self.pings[group].insert(next, at);
                self.send(at, |_, out| out.extend_from_slice(&mqtt::PINGREQ));
            }
        }
        while let Some((deadline, at)) = self.timeouts.pop_due(now) {
            let client = &self.clients[at as usize];
            let begun = deadline - self.timeouts.interval_ns;
            let is_opening = matches!(
                client.state,
                ClientState::Opening | ClientState::AwaitingConnAck | ClientState::Subscribing
            );
            // A later attempt has its own deadline.
            if is_opening && client.opened_ns == begun {
                self.drop_connection(at, LoadFailure::ConnectTimedOut);
            }
        }
    }

    /// Returns the end of the current second, or of the current phase if earlier.
    fn second_until(&self) -> u64 {
        let bounds = [&self.shared.measure_from_ns, &self.shared.publish_until_ns];
        let bounds = bounds.iter().map(|bound| bound.load(SeqCst));
        let next = bounds.filter(|bound| *bound > self.second_from).min();
        next.unwrap_or(u64::MAX).min(self.second_from + SECOND_NS)
    }

    fn report_second(&mut self, now: u64) {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * SECOND_NS + cpu.tv_nsec as u64;
        let mut stats = std::mem::replace(&mut self.stats, LoadStats::new());
        stats.cpu_ns = cpu_ns - std::mem::replace(&mut self.cpu_ns, cpu_ns);
        let passed = now.saturating_sub(std::mem::replace(&mut self.handed_over_ns, now));
        // The processor clock and the wall clock are read one after the other, so a share may
        // exceed 1.
        let busy = (stats.cpu_ns as f64 / passed.max(BUSY_WINDOW_NS_MIN) as f64).min(1.0);
        let until_ns = self.second_until().min(now);
        let from_ns = std::mem::replace(&mut self.second_from, until_ns);
        // A closed channel means that the driver has ended.
        let _ = self.seconds.send(ThreadSecond { from_ns, until_ns, stats, busy });
    }

    /// Sends DISCONNECT for live clients, closes QUIC connections, and returns the summary.
    fn finish(mut self, now: u64) -> io::Result<ThreadSummary> {
        let mut end = ThreadSummary {
            tracked: HashMap::new(),
            streams: Vec::new(),
            consumers: HashMap::new(),
        };
        for at in 0..self.clients.len() as u32 {
            if self.clients[at as usize].state == ClientState::Live {
                self.send_disconnect(at);
            }
        }
        self.flush();
        self.close_quic_connections()?;
        let mut unanswered = 0;
        for client in &self.clients {
            if client.was_live {
                for filter in &client.filters {
                    *end.consumers.entry(filter.clone()).or_default() += 1;
                }
            }
            if let Some(publisher) = &client.publisher {
                unanswered += publisher.flights.len() as u64;
                self.stats.add(LoadCounter::PubMissed, u64::from(publisher.backlog_len));
                end.streams.push(StreamSummary {
                    stream: publisher.stream,
                    client: client.id.to_string(),
                    topic: publisher.topic.clone(),
                    sent: u64::from(publisher.seq),
                    unanswered: publisher.flights.len() as u64,
                });
            }
        }
        self.stats.add(LoadCounter::PubUnanswered, unanswered);
        for track in self.clients.iter().flat_map(|client| client.tracks.iter()) {
            *end.tracked.entry(track.stream).or_default() += track.totals();
        }
        for track in self.shares.iter().flat_map(StreamTracks::iter) {
            // Messages to different members of a shared subscription may overtake each other.
            let tracked = TrackTotals { reordered: 0, ..track.totals() };
            *end.tracked.entry(track.stream).or_default() += tracked;
        }
        self.report_second(now);
        Ok(end)
    }
}

pub(super) const WAKER: Token = Token(usize::MAX);
const TIMER: Token = Token(usize::MAX - 1);
/// Longest wait of the poller, so that a change of stage is seen without a wake-up.
const POLL_WAIT_MAX: Duration = Duration::from_millis(100);
/// Reads or writes between two reads of the clock.
pub(super) const STEPS_PER_TIME_CHECK: usize = 64;
/// Shortest interval for which `ThreadSecond::busy` is computed, in nanoseconds.
const BUSY_WINDOW_NS_MIN: u64 = 1_000_000;
const RETRY_NS: u64 = SECOND_NS;
