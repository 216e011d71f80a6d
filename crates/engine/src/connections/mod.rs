//! The connections of a shard: the bytes of sockets become input of the broker, and its output goes
//! to sockets.
//!
//! ```text
//! broker  <-  reading  <-------------------------  socket
//!         <-  layers: TLS, WebSocket, a relay  <-  socket
//!         <-  quic: a stream of a connection   <-  socket without a descriptor
//! broker  ->  write_outbox  -------------------->  any of the three
//! ```
//!
//! This file opens, moves, closes and drops connections, and writes the output of a turn.
//!
//! Sockets are edge-triggered. A socket with more input than one tick takes is listed, and is read
//! again in the next tick without an event.
//!
//! Sockets hold memory: partial packets, and output that peers do not read. Both count against the
//! memory that the broker may use, and may take a quarter of it. Above that the sockets that have
//! held bytes longest without progress are closed.

mod handshake_queue;
mod layers;
mod quic;
mod reading;
mod socket_table;
mod turn_buffers;

use crate::batched_send::{self, BatchedSend, SendResult};
use crate::pending_auth::PendingAuth;
use crate::quic::{QuicMessage, QuicShard};
use crate::ring::RingItem;
use crate::shard_turn::ShardTurn;
use crate::socket::Socket;
use crate::socket_registry::SocketRegistry;
use crate::transport_stack::TransportError;
use broker::ids::RequestId;
use broker::interface::authz::AuthzRequest;
use broker::{
    AuthRequest, BrokerOptions, ConnId, MonotonicMs, Outbox, PeerInfo, ShardId, ShardInput,
};
use handshake_queue::HandshakeQueue;
use socket_table::SocketTable;
use turn_buffers::TurnBuffers;

pub(crate) struct ShardConnections {
    table: SocketTable,
    handshakes: HandshakeQueue,
    buffers: TurnBuffers,
    batched_send: BatchedSend,
    pending_auth: PendingAuth,
    /// QUIC state, once the shard has a QUIC listener or connection.
    quic: Option<Box<QuicShard>>,
    /// Connections whose sockets had to free their buffers in this turn.
    out_of_memory: Vec<ConnId>,
    write_bytes_max: usize,
    /// Whether the process is shutting down, so that the layers may announce the reason when they
    /// close.
    is_shutting_down: bool,
}

/// Connections with a write that failed, or that now have too many unsent bytes.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedWrites {
    broken: Vec<u32>,
    congested: Vec<u32>,
}

/// Time in milliseconds for the peer of a closed connection to finish, before a reset.
const LINGER_MS: u64 = 2_000;

impl ShardConnections {
    pub(crate) fn new(
        registry: SocketRegistry,
        batched_send: BatchedSend,
        pending_auth: PendingAuth,
        quic: Option<Box<QuicShard>>,
        options: &BrokerOptions,
    ) -> ShardConnections {
        ShardConnections {
            table: SocketTable::new(registry),
            handshakes: HandshakeQueue::new(options.connect_timeout_ms),
            buffers: TurnBuffers::new(),
            batched_send,
            pending_auth,
            quic,
            out_of_memory: Vec::new(),
            write_bytes_max: options.write_bytes_max as usize,
            is_shutting_down: false,
        }
    }

    pub(crate) fn change_options(&mut self, options: &BrokerOptions) {
        self.write_bytes_max = options.write_bytes_max as usize;
        self.handshakes.change_timeout(options.connect_timeout_ms);
    }

    /// The poller where the sockets are registered now.
    pub(crate) fn registry(&self) -> &SocketRegistry {
        self.table.registry()
    }

    /// Whether the shard has no socket in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether a move to another poller would take long.
    pub(crate) fn has_many_sockets(&self) -> bool {
        self.table.has_many_sockets()
    }

    /// Moves all sockets to another poller.
    pub(crate) fn move_to_poller(&mut self, turn: &mut ShardTurn, registry: SocketRegistry) {
        for index in self.table.move_to_poller(registry) {
            self.drop_lost_connection(turn, index);
        }
    }

    /// Takes the items of all rings. Rings come before sockets: an item sent by another shard
    /// before a peer learned of it is known here before the peer's next packet.
    pub(crate) fn take_ring_items(&mut self, turn: &mut ShardTurn) {
        for from in 0..turn.rings().shards() {
            let Some(mut ring) = turn.rings_mut().take_inbound(from) else { continue };
            while !turn.is_full()
                && let Some(item) = ring.pop()
            {
                match item {
                    RingItem::Message(cross) => {
                        let from = ShardId(from as u8);
                        turn.handle(ShardInput::ShardMessage { from, cross });
                    }
                    RingItem::Socket { socket, peer: Some(peer) } => {
                        self.open_connection(turn, *socket, peer, true)
                    }
                    RingItem::Socket { socket, peer: None } => self.await_handshake(turn, *socket),
                    RingItem::Quic(message) => self.apply_quic_message(turn, *message),
                    // `RingReceiver::pop` follows such an item itself.
                    RingItem::Next(_) => {}
                }
            }
            turn.rings_mut().return_inbound(from, ring);
        }
    }

    /// Registers the socket, and reports the connection and the bytes already read to the broker.
    pub(crate) fn open_connection(
        &mut self,
        turn: &mut ShardTurn,
        socket: Socket,
        peer: PeerInfo,
        moved: bool,
    ) {
        let has_tail = socket.tail_len() > 0;
        let Some(index) = self.register_socket(turn, socket) else { return };
        let (conn, since) = (ConnId(index), turn.now());
        turn.handle(ShardInput::Opened { conn, peer, since, moved });
        if has_tail {
            self.consume_tail(turn, index);
        }
    }

    /// Stores the socket in a free slot and registers it with the poller. Returns `None` if the
    /// poller refuses.
    fn register_socket(&mut self, turn: &mut ShardTurn, socket: Socket) -> Option<u32> {
        let (connection, waits) = (socket.quic_connection(), socket.unsent_len() > 0);
        let index = self.table.insert(socket)?;
        if let Some(connection) = connection {
            self.set_control_socket(index, connection);
        }
        if waits {
            self.wait_for_room(turn, index);
        }
        Some(index)
    }

    /// Reports the end of a connection to the shard and drops the socket.
    fn drop_lost_connection(&mut self, turn: &mut ShardTurn, index: u32) {
        turn.handle(ShardInput::Closed { conn: ConnId(index) });
        self.drop_socket(turn, index);
    }

    fn drop_socket(&mut self, turn: &mut ShardTurn, index: u32) {
        self.pending_auth.cancel(index);
        let Some(socket) = self.table.remove(index) else { return };
        turn.set_socket_bytes(self.table.held_bytes());
        if let Some(connection) = socket.quic_connection() {
            self.release_quic_stream(index, connection);
        }
        if let Some(relay) = socket.into_ended_relay() {
            relay.give_back();
        }
    }

    /// Closes the server's side of a connection. The peer can read the last packets, and older
    /// unsent bytes, before a reset: the socket lingers for `LINGER_MS`.
    pub(crate) fn close_connection(&mut self, turn: &mut ShardTurn, index: u32) {
        if self.hosts_relay(index) {
            return self.drop_socket(turn, index);
        }
        self.pending_auth.cancel(index);
        let Some(socket) = self.table.get_mut(index) else { return };
        socket.keep_tail(Vec::new());
        if let Some(connection) = socket.quic_connection() {
            return self.close_quic_stream(turn, index, connection);
        }
        self.buffers.close_layers(socket, self.is_shutting_down);
        self.count_socket_bytes(turn, index);
        let Some(socket) = self.table.get_mut(index) else { return };
        if socket.is_cut() {
            return self.drop_socket(turn, index);
        }
        let is_written = socket.unsent_len() == 0;
        self.table.linger(index, MonotonicMs(turn.now().0 + LINGER_MS));
        if is_written {
            self.shut_down_write(turn, index);
        }
    }

    /// Shuts down the write direction of a closed connection once all bytes are written, and then
    /// discards input until the peer has closed too.
    fn shut_down_write(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        match socket.shut_down_write() {
            Ok(()) => self.discard_input(turn, index),
            Err(_) => self.drop_socket(turn, index),
        }
    }

    /// Drops the closed sockets whose peers have not finished in time.
    pub(crate) fn drop_lingered(&mut self, turn: &mut ShardTurn) {
        while let Some(index) = self.table.next_lingered(turn.now()) {
            self.drop_socket(turn, index);
        }
    }

    /// Sends a socket to the shard that owns its client.
    pub(crate) fn move_to_owner_shard(
        &mut self,
        turn: &mut ShardTurn,
        index: u32,
        home: ShardId,
        peer: PeerInfo,
    ) {
        let Some(socket) = self.table.remove(index) else { return };
        turn.set_socket_bytes(self.table.held_bytes());
        let (connection, socket) = (socket.quic_connection(), Box::new(socket.into_moved()));
        let item = match connection.map(|connection| self.take_quic_connection(connection, home)) {
            None => RingItem::Socket { socket, peer: Some(peer) },
            Some(Some(connection)) => {
                RingItem::Quic(Box::new(QuicMessage::MoveConnection { connection, socket, peer }))
            }
            Some(None) => return,
        };
        turn.rings_mut().queue_item(usize::from(home.0), item);
    }

    /// Updates the counted bytes of the socket after a change, and sheds sockets above the bound.
    fn count_socket_bytes(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(has_grown) = self.table.count_bytes(index, turn.now()) else { return };
        turn.set_socket_bytes(self.table.held_bytes());
        if has_grown {
            self.shed_sockets(turn);
        }
    }

    /// Closes the sockets stuck longest, in this order, until `socket_bytes_excess` is freed.
    fn shed_sockets(&mut self, turn: &mut ShardTurn) {
        let mut excess = turn.socket_bytes_excess();
        if excess == 0 {
            return;
        }
        for index in self.table.stuck_sockets() {
            let held = self.table.held_bytes();
            let Some(socket) = self.table.get_mut(index) else { continue };
            // The broker has already forgotten this connection.
            if socket.is_lingering() {
                self.drop_socket(turn, index);
            } else {
                socket.release_memory();
                self.count_socket_bytes(turn, index);
                self.out_of_memory.push(ConnId(index));
            }
            let freed = held - self.table.held_bytes();
            if freed >= excess {
                break;
            }
            excess -= freed;
        }
    }

    /// Stops reading a connection until [`ShardConnections::resume_reading`].
    pub(crate) fn hold_reading(&mut self, index: u32) {
        if let Some(socket) = self.table.get_mut(index) {
            socket.hold();
        }
    }

    pub(crate) fn resume_reading(&mut self, index: u32) {
        if let Some(socket) = self.table.get_mut(index) {
            socket.resume();
        }
        self.resume_later(index);
    }

    pub(crate) fn request_auth(&mut self, conn: ConnId, case: u32, request: AuthRequest) {
        self.pending_auth.request_auth(conn, case, request);
    }

    pub(crate) fn request_authz(&self, request_id: RequestId, question: AuthzRequest) {
        self.pending_auth.request_authz(request_id, question);
    }

    /// Forgets a request whose decision has come.
    pub(crate) fn resolve_auth(&mut self, conn: ConnId, case: u32) {
        self.pending_auth.resolve(conn, case);
    }

    /// Frees the slots of connections ended in this turn. Returns whether a crowd has ended.
    pub(crate) fn free_slots(&mut self) -> bool {
        self.table.free_slots()
    }

    /// Whether the buffers of a turn are larger than `kept` bytes.
    pub(crate) fn has_large_buffers(&self, kept: usize) -> bool {
        self.buffers.is_large(kept)
    }

    /// Frees the memory that a burst has left behind.
    pub(crate) fn free_buffers(&mut self) {
        self.buffers.free();
    }

    /// Earliest time at which a lingering socket or a handshake ends.
    pub(crate) fn next_deadline(&self, turn: &ShardTurn) -> Option<MonotonicMs> {
        let opening = self.handshakes.next_deadline(turn.shard().last_pause());
        self.table.next_linger_end().into_iter().chain(opening).min()
    }
}

/// Output of the turn.
impl ShardConnections {
    /// Writes once to each touched connection, with one call for many.
    pub(crate) fn write_outbox(&mut self, turn: &mut ShardTurn, out: &Outbox) -> UnfinishedWrites {
        let mut unfinished = UnfinishedWrites::default();
        let writes = out.writes();
        let mut batch = std::mem::take(&mut self.batched_send);
        let sent = if writes.len() < batched_send::WRITES_MIN {
            &[]
        } else {
            batch.send_all(writes.iter().map(|write| {
                let socket = self.table.get(write.conn.0)?;
                socket.as_single_send(write, &out.arena)
            }))
        };
        for (at, write) in writes.iter().enumerate() {
            let sent = sent.get(at).copied().unwrap_or(SendResult::NOT);
            if sent.is_all_of(write.len()) {
                continue;
            }
            let index = write.conn.0;
            let Some(socket) = self.table.get_mut(index) else { continue };
            if socket.is_cut() {
                continue;
            }
            if let Err(fault) = self.buffers.send(socket, write, sent, &out.arena) {
                socket.note_fault(fault);
                unfinished.broken.push(index);
            } else if socket.unsent_len() > 0 && self.wait_for_room(turn, index) {
                unfinished.congested.push(index);
            }
            self.list_relay(index);
        }
        self.batched_send = batch;
        self.buffers.end_writes();
        unfinished
    }

    /// Reports the connections which the turn has left without memory, congested or broken.
    pub(crate) fn report_unfinished(&mut self, turn: &mut ShardTurn, unfinished: UnfinishedWrites) {
        for conn in std::mem::take(&mut self.out_of_memory) {
            if self.is_handshaking(conn.0) {
                self.fail_handshake(turn, conn.0, &TransportError::NoMemory);
                continue;
            }
            turn.handle(ShardInput::OutOfMemory { conn });
        }
        for index in unfinished.congested {
            turn.handle(ShardInput::Congested { conn: ConnId(index) });
        }
        for index in unfinished.broken {
            self.end_writes(turn, index);
        }
    }

    /// Watches a socket which has unsent bytes for writability. Returns whether the connection
    /// becomes congested.
    fn wait_for_room(&mut self, turn: &mut ShardTurn, index: u32) -> bool {
        if self.flushes_to_quic(index) {
            return false;
        }
        self.count_socket_bytes(turn, index);
        let crowded = turn.are_sockets_over_budget();
        let unsent_max = if crowded { 0 } else { self.write_bytes_max };
        self.table.watch_writable(index);
        let Some(socket) = self.table.get_mut(index) else { return false };
        socket.congest_above(unsent_max, self.write_bytes_max)
    }

    fn resend_unsent(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        socket.note_progress(turn.now());
        let sent = self.resend_socket(index);
        self.count_socket_bytes(turn, index);
        let Some(socket) = self.table.get_mut(index) else { return };
        match sent {
            Err(_) if socket.is_lingering() => self.drop_socket(turn, index),
            Err(fault) => {
                socket.note_fault(fault);
                self.end_writes(turn, index);
            }
            Ok(false) => {}
            Ok(true) if socket.is_lingering() => self.shut_down_write(turn, index),
            Ok(true) => {
                socket.note_sent();
                if socket.end_congestion() {
                    turn.handle(ShardInput::Writable { conn: ConnId(index) });
                    self.table.list(index);
                }
            }
        }
    }

    /// Handles a failed write: the peer has gone, but unread bytes, such as a DISCONNECT, are still
    /// read.
    fn end_writes(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        let is_unread = socket.is_held() || socket.is_out_of_memory();
        if is_unread || socket.quic_connection().is_some() {
            return self.drop_lost_connection(turn, index);
        }
        socket.drop_unsent();
        socket.note_peer_closed(true);
        self.table.list(index);
    }
}
