//! Drives one shard: its turn, from the ready sockets and rings to the writes.
//!
//! ```text
//! wait -> take from the rings, read what is ready, obey commands, fire timers: all into one Outbox
//!      -> push the lanes, one write a touched connection, closes and holds, log, moves
//! ```
//!
//! A worker thread waits at the shard's own poller, and the scheduler at its own: the sockets of a
//! shard are registered with the poller of the thread that runs it, and with no other.

mod accepting;
mod control;

use crate::burst_release::BurstRelease;
use crate::clock::SystemClock;
use crate::connection_acceptor::ConnectionAcceptor;
use crate::connections::ShardConnections;
use crate::pause_detector::PauseDetector;
use crate::poll_token::{LISTENER_FIRST, split_token};
use crate::ring::ShardWaker;
use crate::shard_control::ShardControl;
use crate::shard_turn::ShardTurn;
use crate::socket_registry::SocketRegistry;
use crate::store_client::StoreClient;
use broker::{Effect, ListenerId, MonotonicMs, ProcessPause, ShardId};
use mio::event::Event;
use mio::{Events, Poll, Registry};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

pub(crate) struct ShardDriver {
    turn: ShardTurn,
    connections: ShardConnections,
    acceptor: ConnectionAcceptor,
    store: Option<StoreClient>,
    control: Receiver<ShardControl>,
    /// Timer and load for [`ShardDriver::release_burst_memory`].
    release: BurstRelease,
    /// The shard's own poller, for its time on a worker thread.
    poll: Poll,
    on_worker: bool,
    /// Planned end of the last sleep; `None` for a sleep without a timeout.
    wake_at: Option<Instant>,
    stop_at: Option<MonotonicMs>,
}

/// Time in milliseconds for peers of closed connections when the whole process ends.
const STOP_MS: u64 = 500;
/// Capacity in bytes up to which the buffers of a turn stay allocated.
const BUFFER_KEPT: usize = 64 * 1024;

impl ShardDriver {
    /// Drives the shard of `turn`, whose sockets are registered with the scheduler's poller; `poll`
    /// is the shard's own.
    pub(crate) fn new(
        turn: ShardTurn,
        connections: ShardConnections,
        acceptor: ConnectionAcceptor,
        store: Option<StoreClient>,
        control: Receiver<ShardControl>,
        poll: Poll,
    ) -> ShardDriver {
        ShardDriver {
            turn,
            connections,
            acceptor,
            store,
            control,
            release: BurstRelease::default(),
            poll,
            on_worker: false,
            wake_at: None,
            stop_at: None,
        }
    }

    pub(crate) fn id(&self) -> ShardId {
        self.turn.id()
    }

    pub(crate) fn clock(&self) -> SystemClock {
        self.turn.clock().clone()
    }

    /// Moves the sockets to the shard's own poller, for a worker thread. The new poller reports
    /// ready sockets again.
    pub(crate) fn move_to_worker_poller(&mut self) -> io::Result<()> {
        let own = self.poll.registry().try_clone()?;
        self.on_worker = true;
        self.move_to_poller(own)
    }

    /// Moves the sockets to the scheduler's poller `host`.
    pub(crate) fn move_to_scheduler_poller(&mut self, host: Registry) -> io::Result<()> {
        self.on_worker = false;
        self.move_to_poller(host)
    }

    fn move_to_poller(&mut self, registry: Registry) -> io::Result<()> {
        let registry = SocketRegistry::new(self.turn.id(), registry);
        self.acceptor.move_listeners(self.connections.registry(), &registry)?;
        self.connections.move_to_poller(&mut self.turn, registry);
        Ok(())
    }

    /// Returns the work since the last call, in units of [`ShardTurn::take_work`].
    pub(crate) fn take_work(&mut self) -> u64 {
        self.turn.take_work()
    }

    /// Whether a move to another poller would take long: every socket costs two calls.
    pub(crate) fn has_many_sockets(&self) -> bool {
        self.connections.has_many_sockets()
    }

    /// Whether the shard has stopped and will have no further turn: all connections are closed, or
    /// [`STOP_MS`] have passed.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop_at.is_some_and(|at| self.has_no_connections() || self.turn.now() >= at)
    }

    /// Whether the shard has no socket in use.
    pub(crate) fn has_no_connections(&self) -> bool {
        self.connections.is_empty()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }
}

/// The first half of a turn: all ready input goes into the outbox.
impl ShardDriver {
    /// Puts all ready input into the outbox. Skips events of other shards, and leaves publishers
    /// for `read_publishers`.
    pub(crate) fn collect_input(&mut self, now: Instant, events: &Events) {
        self.take_ring_input(now);
        self.read_listed_sockets();
        for event in events {
            self.dispatch_event(event);
        }
        self.take_control();
    }

    /// Starts or continues a turn with the rings and the store as the only input.
    pub(crate) fn take_ring_input(&mut self, now: Instant) {
        self.turn.begin(now);
        self.connections.set_quic_time(now);
        if let Some(store) = &mut self.store {
            store.update_shard(&mut self.turn);
        }
        self.connections.take_ring_items(&mut self.turn);
        self.connections.drive_quic(&mut self.turn);
    }

    pub(crate) fn has_ring_input(&self) -> bool {
        self.turn.rings().has_input()
    }

    fn read_listed_sockets(&mut self) {
        if self.turn.rings().is_blocked() {
            return;
        }
        if self.acceptor.is_due(self.turn.now()) {
            self.accept_connections();
        }
        self.connections.read_datagrams(&mut self.turn, self.acceptor.limiter());
        self.connections.read_listed_sockets(&mut self.turn);
    }

    pub(crate) fn has_listed_sockets(&self) -> bool {
        self.connections.has_listed()
    }

    fn dispatch_event(&mut self, event: &Event) {
        let (shard, index) = split_token(event.token());
        if shard != usize::from(self.turn.id().0) {
            return;
        }
        if index < LISTENER_FIRST {
            return self.connections.serve_event(&mut self.turn, index as u32, event);
        }
        let listener = ListenerId((index - LISTENER_FIRST) as u8);
        if self.connections.mark_quic_readable(listener) {
            return self.connections.read_datagrams(&mut self.turn, self.acceptor.limiter());
        }
        self.acceptor.note_ready();
        self.accept_connections();
    }

    pub(crate) fn has_publishers(&self) -> bool {
        self.connections.has_publishers()
    }

    /// Reads some publishers, after all other sockets.
    pub(crate) fn read_publishers(&mut self) {
        self.connections.read_publishers(&mut self.turn);
    }

    /// Ends the catch-up after a pause: all received bytes are read.
    pub(crate) fn end_pause(&mut self, pause: ProcessPause) {
        self.turn.note_pause(pause);
    }

    /// Fires timers, after all received bytes are read: a client whose bytes have arrived is never
    /// late.
    pub(crate) fn tick(&mut self) {
        self.turn.tick();
        self.release.trim_memory(self.turn.now());
        self.connections.tick_quic(&mut self.turn);
        if self.has_ended() {
            self.connections.drop_quic_connections(&mut self.turn);
        }
        self.connections.time_out_handshakes(&mut self.turn);
        self.connections.drop_lingered(&mut self.turn);
    }
}

/// The second half of a turn: the outbox is performed.
impl ShardDriver {
    /// Commits the records of the turn, so that nothing is sent before which depends on them.
    fn commit_records(&mut self) {
        if let Some(store) = &mut self.store {
            store.commit_records(&mut self.turn);
        }
    }

    /// Moves the messages for other shards into the rings.
    pub(crate) fn push_lanes(&mut self) {
        if !self.turn.has_lane_messages() {
            return;
        }
        // A receiving shard may delete a record that this shard has not committed: commit first.
        self.commit_records();
        if self.turn.push_lanes(self.on_worker) {
            self.release.watch(self.turn.now());
        }
    }

    /// Performs the outbox.
    pub(crate) fn perform_outbox(&mut self) {
        // First, so that no client learns from a write what another shard has not been sent.
        self.commit_records();
        self.push_lanes();
        let mut out = self.turn.take_outbox();
        let unfinished = self.connections.write_outbox(&mut self.turn, &out);
        for effect in out.effects.drain(..) {
            self.perform_effect(effect);
        }
        for event in out.events.drain(..) {
            self.turn.log(&event);
        }
        if self.turn.rings_mut().push_pending_items() {
            self.release.watch(self.turn.now());
        }
        self.release.count_work(1 + out.deliveries);
        self.turn.return_outbox(out);
        self.release_burst_memory();
        if self.connections.free_slots() {
            self.release.plan_trim();
            self.release.trim_memory(self.turn.now());
        }
        // Results of the writes and reads of the store are input of the next turn.
        if let Some(store) = &mut self.store {
            store.answer_reads(&mut self.turn);
        }
        self.connections.end_turn();
        self.connections.report_unfinished(&mut self.turn, unfinished);
        self.connections.flush_quic(&mut self.turn);
    }

    fn perform_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Close { conn } => self.connections.close_connection(&mut self.turn, conn.0),
            Effect::Hold { conn } => self.connections.hold_reading(conn.0),
            Effect::Resume { conn } => self.connections.resume_reading(conn.0),
            Effect::Authorize { request_id, question } => {
                self.connections.request_authz(request_id, *question)
            }
            Effect::Authenticate { conn, case, request } => {
                self.connections.request_auth(conn, case, *request)
            }
            Effect::Move { conn, shard, peer } => {
                self.connections.move_to_owner_shard(&mut self.turn, conn.0, shard, peer)
            }
            Effect::ReadStore { reading } => {
                if let Some(store) = &mut self.store {
                    store.queue_read(reading);
                }
            }
        }
    }

    /// Runs after a turn, when the buffers are empty. Frees large buffers if the last time had
    /// little work, and otherwise plans the next look.
    fn release_burst_memory(&mut self) {
        let now = self.turn.now();
        if !self.release.is_watching() {
            if self.turn.has_large_arena(BUFFER_KEPT)
                || self.connections.has_large_buffers(BUFFER_KEPT)
            {
                self.release.watch(now);
            }
            return;
        }
        if !self.release.is_due(now) {
            return;
        }
        let is_busy = self.release.take_is_busy();
        if !is_busy {
            self.turn.free_buffers();
            self.connections.free_buffers();
        }
        // A ring that was needed since the last look stays, and is looked at once more.
        let is_large = is_busy || self.turn.has_large_lanes();
        self.release.end_look(now, is_large);
    }
}

/// The sleep between two turns, and how other threads learn of it.
impl ShardDriver {
    /// Returns the time to wait before the next turn: zero for no sleep, and `None` to wait for an
    /// event without a limit. Before a sleep the shard marks itself as asleep in its
    /// [`ShardWaker`], and then looks into its rings once more.
    pub(crate) fn prepare_sleep(&mut self, now: Instant) -> Option<Duration> {
        let timeout = self.next_timeout(now);
        self.wake_at = timeout.map(|timeout| now + timeout);
        if timeout != Some(Duration::ZERO) {
            let awaits_disk = self.awaits_disk();
            self.waker().set_asleep(self.on_worker, awaits_disk);
            if self.has_ring_input() || (awaits_disk && self.has_disk_progress()) {
                self.mark_awake();
                return Some(Duration::ZERO);
            }
        }
        timeout
    }

    pub(crate) fn mark_awake(&self) {
        self.waker().set_awake();
    }

    pub(crate) fn waker(&self) -> &ShardWaker {
        self.turn.rings().own_waker()
    }

    /// Wakers of all shards of the process.
    pub(crate) fn wakers(&self) -> Arc<[ShardWaker]> {
        self.turn.rings().wakers()
    }

    /// Whether a turn would find work without a poller event: ring items, a due timer, or progress
    /// of the store.
    pub(crate) fn has_due_work(&self, now: Instant) -> bool {
        self.has_ring_input()
            || self.wake_at.is_some_and(|due| due <= now)
            || (self.awaits_disk() && self.has_disk_progress())
    }

    fn awaits_disk(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_awaited(&self.turn))
    }

    fn has_disk_progress(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.has_progress(&self.turn))
    }

    /// Waits at the shard's own poller, on a worker thread, and returns the time of the wake-up.
    pub(crate) fn wait_on_worker(
        &mut self,
        events: &mut Events,
        pauses: &mut PauseDetector,
    ) -> io::Result<Instant> {
        let now = Instant::now();
        let timeout = self.prepare_sleep(now);
        let polled = self.poll.poll(events, pauses.plan_wait(now, timeout));
        self.mark_awake();
        pauses.record_wake(polled)
    }

    fn next_timeout(&self, now: Instant) -> Option<Duration> {
        if self.turn.has_output() {
            return Some(Duration::ZERO);
        }
        if self.turn.rings().is_blocked() {
            // The other shard has no way to report that its ring has room again.
            return Some(Duration::from_millis(1));
        }
        if self.has_listed_sockets() {
            return Some(Duration::ZERO);
        }
        let own = self.connections.next_deadline(&self.turn).into_iter().chain(self.stop_at);
        let own = own.chain(self.acceptor.next_accept()).chain(self.release.next_at());
        let next = self.turn.shard().next_tick().into_iter().chain(own).min();
        // Milliseconds are rounded down, and the comparison uses the same rounding: without the
        // extra one the last turn would spin.
        let (instant, now) = (now, self.turn.clock().at(now));
        let next = next.map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
        let retry = self.store.as_ref().and_then(StoreClient::retry_after);
        let quic = self.connections.quic_timeout(instant);
        next.into_iter().chain(retry).chain(quic).min()
    }
}
