//! Input of connections: each socket is read once a turn, and its bytes go to the broker as far as
//! the broker takes them.

use super::ShardConnections;
use crate::shard_turn::ShardTurn;
use crate::socket::{TAIL_COPIED_MAX, TailRead};
use broker::{ConnId, ShardInput, limits};
use mio::event::Event;

const PUBLISHERS_AT_ONCE: usize = 64;
/// Reads of a closed connection in one turn.
const DISCARDS_PER_TURN: usize = 16;

impl ShardConnections {
    /// Writes and reads a socket after an event of the poller.
    pub(crate) fn serve_event(&mut self, turn: &mut ShardTurn, index: u32, event: &Event) {
        let Some(socket) = self.table.get_mut(index) else { return };
        socket.note_peer_closed(event.is_read_closed() || event.is_error());
        let publishes = socket.is_publisher();
        if event.is_writable() && socket.unsent_len() > 0 {
            self.resend_unsent(turn, index);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if publishes {
                self.table.queue_publisher(index);
            } else {
                self.read_socket(turn, index);
            }
        }
    }

    pub(crate) fn has_listed(&self) -> bool {
        self.table.has_listed()
    }

    /// Reads the sockets which the last turn has left with input.
    pub(crate) fn read_listed_sockets(&mut self, turn: &mut ShardTurn) {
        for index in self.table.take_listed() {
            if let Some(socket) = self.table.get_mut(index) {
                socket.end_listing();
                self.read_socket(turn, index);
            }
        }
    }

    pub(crate) fn has_publishers(&self) -> bool {
        self.table.has_publishers()
    }

    /// Reads publishers after all other sockets, so messages published meanwhile leave in the same
    /// turn. Reads at most [`PUBLISHERS_AT_ONCE`] per call: messages to other shards leave while
    /// the cache has them.
    pub(crate) fn read_publishers(&mut self, turn: &mut ShardTurn) {
        for _ in 0..PUBLISHERS_AT_ONCE {
            let Some(index) = self.table.next_publisher() else { break };
            self.read_socket(turn, index);
        }
    }

    /// Reads once and delivers the bytes, unless the socket is held, congested or out of memory.
    pub(super) fn read_socket(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        if socket.is_lingering() {
            return self.discard_input(turn, index);
        }
        if socket.is_unreadable() {
            if socket.is_held() && socket.has_peer_closed() {
                self.end_abandoned(turn, index);
            }
            return;
        }
        if turn.rings().is_blocked() || turn.is_full() {
            return self.table.list(index);
        }
        if socket.take_unread_mark() {
            self.table.list(index);
            return self.consume_tail(turn, index);
        }
        if socket.has_layers() {
            return self.read_through_stack(turn, index);
        }
        let tail_len = socket.tail_len();
        if tail_len > TAIL_COPIED_MAX {
            return self.read_into_tail(turn, index);
        }
        let mut buffer = self.buffers.take_input();
        let tail = socket.take_tail();
        buffer[..tail_len].copy_from_slice(&tail);
        let room = tail_len + limits::READ_BYTES_PER_TICK;
        match socket.receive(&mut buffer[tail_len..room]) {
            Ok(Some(0)) | Err(_) => self.drop_lost_connection(turn, index),
            Ok(None) if socket.has_peer_closed() => self.drop_lost_connection(turn, index),
            Ok(None) => socket.keep_tail(tail),
            Ok(Some(read)) => {
                let len = tail_len + read;
                let ends = socket.has_peer_closed();
                self.deliver_bytes(turn, index, &buffer[..len]);
                if len == room || ends {
                    self.table.list(index);
                }
            }
        }
        self.buffers.return_input(buffer);
    }

    /// Reads into the tail of a large packet.
    fn read_into_tail(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        match socket.receive_into_tail() {
            Ok(Some(TailRead::Ended)) | Err(_) => self.drop_lost_connection(turn, index),
            Ok(None) if socket.has_peer_closed() => self.drop_lost_connection(turn, index),
            Ok(None) => {}
            Ok(Some(TailRead::Partial(tail))) => {
                self.keep_partial_packet(turn, index, tail);
                self.table.list(index);
            }
            Ok(Some(TailRead::Whole(tail))) => {
                self.deliver_bytes(turn, index, &tail);
                self.table.list(index);
            }
        }
    }

    /// Keeps a partial packet. The shard also gets the bytes: it consumes none of them, but counts
    /// the sender as alive [MQTT-3.1.2-22].
    pub(super) fn keep_partial_packet(&mut self, turn: &mut ShardTurn, index: u32, part: Vec<u8>) {
        turn.handle(ShardInput::Bytes { conn: ConnId(index), bytes: &part });
        if let Some(socket) = self.table.get_mut(index) {
            socket.keep_tail(part);
            self.count_socket_bytes(turn, index);
        }
    }

    pub(super) fn consume_tail(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        let tail = socket.take_tail();
        self.deliver_bytes(turn, index, &tail);
    }

    pub(super) fn deliver_bytes(&mut self, turn: &mut ShardTurn, index: u32, bytes: &[u8]) {
        if turn.rings().has_input() {
            self.take_ring_items(turn);
        }
        let outcome = turn.consume_bytes(ConnId(index), bytes);
        let consumed = turn.consumed();
        let left = &bytes[consumed..];
        let Some(socket) = self.table.get_mut(index) else { return };
        // The shard no longer knows the connection, and would take bytes of a second read for those
        // of an ended connection. The owner shard reads on.
        if outcome.moves() {
            socket.hold();
        }
        turn.count_consumed(consumed);
        if consumed > 0 {
            socket.note_progress(turn.now());
        }
        socket.note_delivery(outcome.has_deliveries(), left);
        self.count_socket_bytes(turn, index);
        if left.is_empty() {
            return;
        }
        if turn.is_full() {
            self.resume_later(index);
        }
    }

    /// Marks the tail as possibly holding whole packets, which are consumed before new bytes are
    /// read.
    pub(super) fn resume_later(&mut self, index: u32) {
        if let Some(socket) = self.table.get_mut(index) {
            socket.mark_unread_tail();
            self.table.list(index);
        }
    }

    /// Discards bytes which the peer sends after the close, and drops the socket at the end of the
    /// stream.
    pub(super) fn discard_input(&mut self, turn: &mut ShardTurn, index: u32) {
        let mut buffer = self.buffers.take_input();
        let mut done = true;
        if let Some(socket) = self.table.get_mut(index) {
            for _ in 0..DISCARDS_PER_TURN {
                match socket.receive(&mut buffer) {
                    Ok(Some(0)) | Err(_) => break,
                    Ok(None) => {
                        done = false;
                        break;
                    }
                    Ok(Some(_)) => {}
                }
            }
        }
        self.buffers.return_input(buffer);
        if done {
            self.drop_socket(turn, index);
        }
    }

    /// Drops a held connection whose peer has sent its end of stream and only packets which need no
    /// response after its CONNECT: the pending decision has no receiver. A held connection is not
    /// read otherwise. The bytes read to learn this stay in the tail, so a client which published
    /// and left without waiting is still served.
    fn end_abandoned(&mut self, turn: &mut ShardTurn, index: u32) {
        if !self.pending_auth.awaits_decision(index) {
            return;
        }
        let Some(socket) = self.table.get_mut(index) else { return };
        // A connection of QUIC reports the end of its streams itself.
        if socket.quic_connection().is_some() || socket.tail_len() > TAIL_COPIED_MAX {
            return;
        }
        let is_all = self.buffers.receive_ahead(socket);
        let is_abandoned = is_all && needs_no_response(socket.tail());
        self.count_socket_bytes(turn, index);
        if is_abandoned {
            self.drop_lost_connection(turn, index);
        }
    }
}

/// Whether every whole packet after the first in `bytes` is AUTH, DISCONNECT or PINGREQ: a client
/// may still send these after losing patience, and no answer or action is due.
fn needs_no_response(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_first = true;
    while let Some(len) = mqtt::expected_len(rest).filter(|len| *len <= rest.len()) {
        if !is_first && !matches!(rest[0] >> 4, AUTH | DISCONNECT | PINGREQ) {
            return false;
        }
        is_first = false;
        rest = &rest[len..];
    }
    true
}

const AUTH: u8 = 15;
const DISCONNECT: u8 = 14;
const PINGREQ: u8 = 12;

#[cfg(test)]
mod tests {
    use super::needs_no_response;

    #[test]
    fn a_client_that_said_goodbye_or_nothing_has_given_up() {
        let connect = b"\x10\x02ab";
        let with = |more: &[u8]| needs_no_response(&[&connect[..], more].concat());
        assert!(with(b"") && with(b"\xe0\x00") && with(b"\xc0\x00\xe0\x00"));
        assert!(with(b"\xf0\x01\x18"), "a step of its authentication");
        assert!(with(b"\x30\x05\x00"), "half a packet is none");
        assert!(!with(b"\x30\x03\x00\x01a") && !with(b"\xc0\x00\x30\x03\x00\x01a\xe0\x00"));
        assert!(!with(b"\x82\x06\x00\x01\x00\x01a\x00"));
        assert!(needs_no_response(b""));
    }
}
