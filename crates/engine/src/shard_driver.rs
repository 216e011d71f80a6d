//! Drives one shard: its sockets, its rings and its tick.
//!
//! ```text
//! wait -> take from the rings, read what is ready, obey commands, fire timers: all into one Outbox
//!      -> push the lanes, one write a touched connection, closes and holds, log, moves
//! ```
//!
//! A worker thread waits at the shard's own poller, and the scheduler at its own: the sockets of a
//! shard are registered with the poller of the thread that runs it, and with no other.
//!
//! Sockets are edge-triggered. A socket with more input than one tick takes stands in `listed` and
//! is read again in the next tick, without an event.

mod control;

use crate::batched_send::{self, BatchedSend, SendResult};
use crate::burst_release::BurstRelease;
use crate::clock::SystemClock;
use crate::connection_limiter::ConnectionLimiter;
use crate::descriptors::{AcceptPause, DescriptorBudget};
use crate::ingress::TAIL_COPIED_MAX;
use crate::listener::ListenerTransport;
use crate::pending_auth::PendingAuth;
use crate::poll_token::{LISTENER_FIRST, socket_token};
use crate::ring::{RingItem, ShardRings};
use crate::shard_control::ShardControl;
use crate::socket::Socket;
use crate::store_client::StoreClient;
use crate::stream::SocketAcceptor;
use crate::tls::SealedBuffer;
use crate::transport_stack::TransportError;
use broker::{
    BrokerEvent, BrokerOptions, ConnId, Effect, MonotonicMs, Outbox, Shard, ShardId, ShardInput,
    StoreReadRequest, limits,
};
use mio::{Events, Interest, Poll, Registry};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

pub(crate) type EventLogger = Arc<dyn Fn(&BrokerEvent) + Send + Sync>;

pub(crate) struct ShardDriver {
    pub(crate) id: ShardId,
    pub(crate) shard: Shard,
    /// The shard's own poller, for its time on a worker thread.
    pub(crate) poll: Poll,
    /// Registry of the poller where the sockets are registered now.
    pub(crate) registry: Registry,
    pub(crate) on_worker: bool,
    /// Planned end of the last sleep; `None` for a sleep without a timeout.
    pub(crate) wake_at: Option<Instant>,
    /// Work done since the last [`ShardDriver::take_work`].
    pub(crate) work: u64,
    pub(crate) rings: ShardRings,
    pub(crate) control: Receiver<ShardControl>,
    pub(crate) listeners: Vec<SocketAcceptor>,
    /// Whether the listeners are registered with the poller.
    accepts_connections: bool,
    /// QUIC state, once the shard has a QUIC listener or connection.
    pub(crate) quic: Option<Box<crate::quic::QuicShard>>,
    /// Transport layers of all listeners of the process.
    pub(crate) transports: Arc<[ListenerTransport]>,
    pub(crate) clock: SystemClock,
    pub(crate) store: Option<StoreClient>,
    pub(crate) log: EventLogger,
    pub(crate) pending_auth: PendingAuth,
    pub(crate) write_bytes_max: usize,
    pub(crate) connect_timeout_ms: u32,
    pub(crate) out: Outbox,
    pub(crate) now: MonotonicMs,
    pub(crate) sockets: Vec<Option<Socket>>,
    /// Sum of `Socket::counted_bytes`: see `socket_memory`.
    pub(crate) socket_bytes: usize,
    /// Connections whose sockets had to free their buffers in this turn.
    pub(crate) out_of_memory: Vec<ConnId>,
    pub(crate) free: Vec<u32>,
    /// Slots free once the outbox of this turn is performed: until then an effect may still name
    /// them.
    pub(crate) freed: Vec<u32>,
    /// Sockets to read in the next turn, independent of the poller.
    pub(crate) listed: Vec<u32>,
    /// Publishing sockets, whose events are handled last in a turn.
    pub(crate) publishers: VecDeque<u32>,
    /// Whether a listener may have more connections to accept.
    pub(crate) has_accepts: bool,
    pub(crate) accept_pause: AcceptPause,
    /// Counts connections against the limits of listeners and addresses.
    pub(crate) limiter: ConnectionLimiter,
    /// Closed sockets whose peers have not finished, with the time of the forced drop. The entry of
    /// a socket dropped earlier stays until then.
    pub(crate) lingering: VecDeque<(MonotonicMs, u32)>,
    /// Whether a burst of connections has ended whose memory is still allocated.
    pub(crate) has_memory_to_trim: bool,
    /// Earliest time of the next trim of the heap.
    pub(crate) trim_after: MonotonicMs,
    /// Timer and load for [`ShardDriver::release_burst_memory`].
    pub(crate) release: BurstRelease,
    /// Sockets in a handshake, unknown to the broker, with their deadlines in order.
    pub(crate) handshaking: VecDeque<(MonotonicMs, u32)>,
    /// The shard which got the last connection with a costly handshake.
    pub(crate) handshake_shard: usize,
    /// Time spent on handshakes in this turn.
    pub(crate) handshake_time: Duration,
    /// Bytes decoded by layers in this turn without yielding MQTT.
    pub(crate) layer_bytes: usize,
    /// Items without room in a ring, with the index of the receiving shard.
    pub(crate) pending_items: VecDeque<(usize, RingItem)>,
    /// A ring was full at the end of the last turn. Sockets are not read until there is room: no
    /// item is dropped, and order is kept.
    pub(crate) blocked: bool,
    /// More records wait for the disk than the store allows, so publishers are held.
    pub(crate) store_backlogged: bool,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) gathered: Vec<u8>,
    batched_send: BatchedSend,
    /// Buffer for the decoded bytes of one read.
    pub(crate) plain: Vec<u8>,
    pub(crate) sealed: SealedBuffer,
    /// Reads of the store requested by the shard, answered after the outbox is performed.
    readings: Vec<StoreReadRequest>,
    pub(crate) stop_at: Option<MonotonicMs>,
    /// Whether the process is shutting down, so that the layers may announce the reason when they
    /// close.
    pub(crate) is_shutting_down: bool,
}

/// Time in milliseconds for peers of closed connections when the whole process ends.
const STOP_MS: u64 = 500;

impl ShardDriver {
    #[expect(clippy::too_many_arguments, reason = "the parts of a shard, each given once")]
    pub(crate) fn new(
        id: ShardId,
        shard: Shard,
        poll: Poll,
        registry: Registry,
        rings: ShardRings,
        control: Receiver<ShardControl>,
        listeners: Vec<SocketAcceptor>,
        transports: Arc<[ListenerTransport]>,
        clock: SystemClock,
        store_client: Option<StoreClient>,
        log: EventLogger,
        pending_auth: PendingAuth,
        limiter: ConnectionLimiter,
        salvo: BatchedSend,
        options: &BrokerOptions,
    ) -> ShardDriver {
        ShardDriver {
            id,
            shard,
            poll,
            registry,
            on_worker: false,
            wake_at: None,
            work: 0,
            out: Outbox::new(rings.wakers.len()),
            rings,
            control,
            quic: crate::quic::QuicShard::for_listeners(&listeners, &transports),
            listeners,
            accepts_connections: false,
            transports,
            clock,
            store: store_client,
            log,
            pending_auth,
            write_bytes_max: options.write_bytes_max as usize,
            connect_timeout_ms: options.connect_timeout_ms,
            now: MonotonicMs::default(),
            sockets: Vec::new(),
            socket_bytes: 0,
            out_of_memory: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            listed: Vec::new(),
            publishers: VecDeque::new(),
            has_accepts: false,
            accept_pause: AcceptPause::default(),
            limiter,
            lingering: VecDeque::new(),
            has_memory_to_trim: false,
            trim_after: MonotonicMs::default(),
            release: BurstRelease::default(),
            handshaking: VecDeque::new(),
            handshake_shard: 0,
            handshake_time: Duration::ZERO,
            layer_bytes: 0,
            pending_items: VecDeque::new(),
            blocked: false,
            store_backlogged: false,
            buffer: vec![0; limits::READ_BYTES_PER_TICK + TAIL_COPIED_MAX].into(),
            gathered: Vec::new(),
            batched_send: salvo,
            plain: Vec::new(),
            sealed: SealedBuffer::default(),
            readings: Vec::new(),
            stop_at: None,
            is_shutting_down: false,
        }
    }

    fn open_listeners(&mut self, descriptors_reserved: usize) -> io::Result<()> {
        self.accept_pause.budget = DescriptorBudget::measure(descriptors_reserved);
        self.accepts_connections = true;
        self.register_listeners()
    }

    fn register_listeners(&mut self) -> io::Result<()> {
        if !self.accepts_connections {
            return Ok(());
        }
        for (at, listener) in self.listeners.iter_mut().enumerate() {
            let token = socket_token(self.id, LISTENER_FIRST + at);
            self.registry.register(listener, token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Moves the sockets to the shard's own poller, for a worker thread. The new poller reports
    /// ready sockets again.
    pub(crate) fn move_to_worker_poller(&mut self) -> io::Result<()> {
        let own = self.poll.registry().try_clone()?;
        self.move_to_poller(own, true)
    }

    /// Moves the sockets to the scheduler's poller `host`.
    pub(crate) fn move_to_scheduler_poller(&mut self, host: Registry) -> io::Result<()> {
        self.move_to_poller(host, false)
    }

    fn move_to_poller(&mut self, registry: Registry, with_guest: bool) -> io::Result<()> {
        let from = std::mem::replace(&mut self.registry, registry);
        self.on_worker = with_guest;
        for listener in self.listeners.iter_mut().filter(|_| self.accepts_connections) {
            from.deregister(listener)?;
        }
        self.register_listeners()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let mut broken = Vec::new();
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            let Some(socket) = socket else { continue };
            let _ = from.deregister(&mut socket.stream);
            let interest = if socket.watches_writable { both } else { Interest::READABLE };
            let token = socket_token(self.id, index);
            if self.registry.register(&mut socket.stream, token, interest).is_err() {
                broken.push(index as u32);
            }
        }
        broken.into_iter().for_each(|index| self.drop_lost_connection(index));
        Ok(())
    }

    /// Returns the work since the last call: consumed bytes, and [`WORK_OF_DELIVERY`] for each
    /// delivery.
    pub(crate) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Whether a move to another poller would take long: every socket costs two calls.
    pub(crate) fn has_many_sockets(&self) -> bool {
        self.sockets.len() - self.free.len() > MOVED_BACK_MAX
    }

    /// First half of a turn: puts all ready input into the [`Outbox`]. Skips events of other
    /// shards, and leaves publishers for `read_publishers`.
    pub(crate) fn collect_input(&mut self, now: Instant, events: &Events) {
        self.take_ring_input(now);
        self.read_listed_sockets();
        for event in events {
            self.dispatch_event(event);
        }
        self.take_control();
    }

    pub(crate) fn has_publishers(&self) -> bool {
        !self.publishers.is_empty()
    }

    /// Starts or continues a turn with the rings and the store as the only input.
    pub(crate) fn take_ring_input(&mut self, now: Instant) {
        self.now = self.clock.at(now);
        self.check_time_of_day();
        self.set_quic_time(now);
        self.update_from_store();
        self.take_ring_items();
        self.drive_quic();
    }

    /// Whether the shard has stopped and will have no further turn: all connections are closed, or
    /// [`STOP_MS`] have passed.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop_at.is_some_and(|at| self.has_no_connections() || self.now >= at)
    }

    /// Whether the shard has no socket in use.
    pub(crate) fn has_no_connections(&self) -> bool {
        self.sockets.len() == self.free.len() + self.freed.len()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }

    pub(crate) fn list_socket(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize)
            && !socket.listed
        {
            socket.listed = true;
            self.listed.push(index);
        }
    }

    fn read_listed_sockets(&mut self) {
        if self.blocked {
            return;
        }
        if self.has_accepts || self.accept_pause.rate_until.is_some_and(|at| at <= self.now) {
            self.accept_connections();
        }
        self.read_datagrams();
        for index in std::mem::take(&mut self.listed) {
            if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
                socket.listed = false;
                self.read_socket(index);
            }
        }
    }

    pub(crate) fn resend_unsent(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.stuck_since = self.now;
        let sent = self.resend_socket(index);
        self.count_socket_bytes(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        match sent {
            Err(_) if socket.is_lingering() => self.drop_socket(index),
            Err(fault) => {
                socket.note_fault(fault);
                self.end_writes(index);
            }
            Ok(false) => {}
            Ok(true) if socket.is_lingering() => self.shut_down_write(index),
            Ok(true) if socket.congested.is_none() => socket.note_sent(),
            Ok(true) => {
                socket.note_sent();
                socket.congested = None;
                let conn = ConnId(index);
                self.shard.handle(self.now, ShardInput::Writable { conn }, &mut self.out);
                self.list_socket(index);
            }
        }
    }

    /// Takes the items of all rings. Rings come before sockets: an item sent by another shard
    /// before a peer learned of it is known here before the peer's next packet.
    pub(crate) fn take_ring_items(&mut self) {
        for from in 0..self.rings.inbound.len() {
            let Some(mut ring) = self.rings.inbound[from].take() else { continue };
            while !self.out.is_full()
                && let Some(item) = ring.pop()
            {
                match item {
                    RingItem::Message(cross) => {
                        let from = ShardId(from as u8);
                        let input = ShardInput::ShardMessage { from, cross };
                        self.shard.handle(self.now, input, &mut self.out);
                    }
                    RingItem::Socket { socket, peer } => self.receive_socket(*socket, peer),
                    RingItem::Quic(word) => self.apply_quic_message(*word),
                    // `RingReceiver::pop` follows such an item itself.
                    RingItem::Next(_) => {}
                }
            }
            self.rings.inbound[from] = Some(ring);
        }
    }

    /// Fires timers, after all received bytes are read: a client whose bytes have arrived is never
    /// late.
    pub(crate) fn tick(&mut self) {
        if self.shard.next_tick().is_some_and(|at| at <= self.now) {
            self.shard.handle(self.now, ShardInput::Tick, &mut self.out);
        }
        self.trim_memory();
        self.tick_quic();
        self.time_out_handshakes();
        while let Some(&(at, index)) = self.lingering.front()
            && at <= self.now
        {
            self.lingering.pop_front();
            let place = self.sockets.get(index as usize);
            if place.is_some_and(|socket| socket.as_ref().is_some_and(|s| s.lingers_until == at)) {
                self.drop_socket(index);
            }
        }
    }

    /// Second half of a turn: performs the [`Outbox`].
    pub(crate) fn perform_outbox(&mut self) {
        // First, so that no client learns from a write what another shard has not been sent.
        self.commit_records();
        self.push_lanes();
        if self.shard.is_tracing() {
            self.shard.trace_writes(&mut self.out);
        }
        let mut out = std::mem::take(&mut self.out);
        let (broken, congested) = self.write_outbox(&out);
        for effect in out.effects.drain(..) {
            self.perform_effect(effect);
        }
        for event in out.events.drain(..) {
            (self.log)(&event);
        }
        self.push_pending_items();
        self.blocked =
            !self.pending_items.is_empty() || out.lanes.iter().any(|lane| !lane.is_empty());
        self.work += out.deliveries as u64 * WORK_OF_DELIVERY;
        self.release.work += 1 + out.deliveries;
        out.clear();
        self.out = out;
        self.release_burst_memory();
        self.free_slots();
        // Results of the writes and reads of the store are input of the next turn.
        for reading in std::mem::take(&mut self.readings) {
            if let Some(stored) = &self.store {
                self.shard.handle(
                    self.now,
                    ShardInput::StoreReady { reading, stored },
                    &mut self.out,
                );
            }
        }
        self.handshake_time = Duration::ZERO;
        self.layer_bytes = 0;
        for conn in std::mem::take(&mut self.out_of_memory) {
            if self.is_handshaking(conn.0) {
                self.fail_handshake(conn.0, &TransportError::NoMemory);
                continue;
            }
            self.shard.handle(self.now, ShardInput::OutOfMemory { conn }, &mut self.out);
        }
        for index in congested {
            let conn = ConnId(index);
            self.shard.handle(self.now, ShardInput::Congested { conn }, &mut self.out);
        }
        for index in broken {
            self.end_writes(index);
        }
        self.flush_quic();
    }

    /// Writes once to each touched connection, with one call for many. Returns the broken and the
    /// congested connections.
    fn write_outbox(&mut self, out: &Outbox) -> (Vec<u32>, Vec<u32>) {
        let (mut broken, mut congested) = (Vec::new(), Vec::new());
        let writes = out.writes();
        let mut salvo = std::mem::take(&mut self.batched_send);
        let sent = if writes.len() < batched_send::WRITES_MIN {
            &[]
        } else {
            salvo.send_all(writes.iter().map(|write| {
                let socket = self.sockets.get(write.conn.0 as usize)?.as_ref()?;
                socket.as_single_send(write, &out.arena)
            }))
        };
        for (at, write) in writes.iter().enumerate() {
            let sent = sent.get(at).copied().unwrap_or(SendResult::NOT);
            if sent.is_all_of(write.len()) {
                continue;
            }
            let index = write.conn.0;
            let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { continue };
            if socket.out_of_memory && socket.unsent_len() > 0 {
                continue;
            }
            let (gathered, sealed) = (&mut self.gathered, &mut self.sealed);
            if let Err(fault) = socket.send(write, sent, &out.arena, gathered, sealed) {
                socket.note_fault(fault);
                broken.push(index);
            } else if socket.unsent_len() > 0 && self.wait_for_room(index) {
                congested.push(index);
            }
            self.list_relay(index);
        }
        self.batched_send = salvo;
        if self.gathered.capacity() > 2 * limits::OUTBOX_BYTES_MAX {
            self.gathered = Vec::new();
        }
        (broken, congested)
    }

    /// Watches a socket which has unsent bytes for writability. Returns whether the connection
    /// becomes congested.
    pub(crate) fn wait_for_room(&mut self, index: u32) -> bool {
        if self.flushes_to_quic(index) {
            return false;
        }
        self.count_socket_bytes(index);
        let crowded = self.shard.are_sockets_over_budget();
        let unsent_max = if crowded { 0 } else { self.write_bytes_max };
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return false };
        if !socket.watches_writable {
            socket.watches_writable = true;
            let both = Interest::READABLE | Interest::WRITABLE;
            let token = socket_token(self.id, index as usize);
            let _ = self.registry.reregister(&mut socket.stream, token, both);
        }
        let unsent = socket.unsent_len();
        let congests = unsent > unsent_max && socket.congested.is_none();
        if congests {
            let unsent_max = u32::try_from(unsent + self.write_bytes_max);
            socket.congested = NonZeroU32::new(unsent_max.unwrap_or(u32::MAX));
        }
        congests
    }

    fn perform_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Close { conn } => self.close_connection(conn.0),
            Effect::Hold { conn } => {
                if let Some(Some(socket)) = self.sockets.get_mut(conn.0 as usize) {
                    socket.held = true;
                }
            }
            Effect::Resume { conn } => {
                if let Some(Some(socket)) = self.sockets.get_mut(conn.0 as usize) {
                    socket.held = false;
                }
                self.resume_later(conn.0);
            }
            Effect::Authorize { request_id, question } => {
                self.pending_auth.request_authz(request_id, *question)
            }
            Effect::Authenticate { conn, case, request } => {
                self.pending_auth.request_auth(conn, case, *request)
            }
            Effect::Move { conn, shard, peer } => self.move_to_owner_shard(conn.0, shard, peer),
            Effect::ReadStore { reading } => self.readings.push(reading),
        }
    }
}

/// Work of one delivered message, as a number of received bytes of about the same cost.
const WORK_OF_DELIVERY: u64 = 16;
/// Number of sockets above which a worker thread keeps its shard: moving more would stop both
/// threads for milliseconds.
const MOVED_BACK_MAX: usize = 8 * 1024;
