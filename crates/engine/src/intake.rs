//! What comes in: connections, and bytes from them as far as the shard takes them.

use crate::body::{Body, LISTENER_FIRST, named, token};
use crate::socket::Socket;
use broker::outbox::Effect;
use broker::{ConnId, Input, Note, Now, Peer, limits};
use mio::Interest;
use std::io;

const PUBLISHERS_AT_ONCE: usize = 64;
/// Accepted in one tick at most.
const ACCEPTS_PER_TICK: usize = 256;
/// How long nothing is accepted when the process is out of descriptors or memory.
const ACCEPT_PAUSE_MS: u64 = 1_000;
/// So many connections leave something behind that is worth giving back.
const CROWD: usize = 1_000;
/// ... but not more often than this.
const GIVE_BACK_PAUSE_MS: u64 = 10_000;
/// A tail up to here is copied in front of what is read next; a longer one is read into.
pub(crate) const TAIL_COPIED_MAX: usize = 16 * 1024;

impl Body {
    pub(crate) fn accept(&mut self) {
        // Connections that are dealt wait for the rings like everything else.
        if self.now < self.accept_pause.until || !self.homeward.is_empty() {
            return;
        }
        if !self.let_in_waiting() {
            return;
        }
        for _ in 0..ACCEPTS_PER_TICK {
            let mut any = false;
            self.accept_pause.rate_until = None;
            for at in 0..self.listeners.len() {
                if let Some(until) = self.waits_at(at) {
                    let again = &mut self.accept_pause.rate_until;
                    *again = Some(again.map_or(until, |first| first.min(until)));
                    continue;
                }
                match self.listeners[at].accept() {
                    Ok((stream, address)) => {
                        any = true;
                        if !self.let_in_below(at, stream, address) {
                            return;
                        }
                    }
                    Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
                    // A peer that gave up while it waited: the next one is tried.
                    Err(fault) if fault.kind() == io::ErrorKind::ConnectionAborted => any = true,
                    Err(fault) => {
                        self.accept_pause.until = Now(self.now.0 + ACCEPT_PAUSE_MS);
                        return (self.log)(&Note::AcceptFailed { fault: fault.to_string().into() });
                    }
                }
            }
            if !any {
                return self.has_accepted_all();
            }
        }
    }

    /// The broker hears of it, and of what it said already.
    pub(crate) fn open(&mut self, socket: Socket, peer: Peer, moved: bool) {
        let has_tail = !socket.tail.is_empty();
        let Some(index) = self.place(socket) else { return };
        let (conn, since) = (ConnId(index), self.now);
        self.shard.handle(self.now, Input::Opened { conn, peer, since, moved }, &mut self.out);
        if has_tail {
            self.consume_tail(index);
        }
    }

    /// Gives a socket a place, and has the poller tell of it.
    pub(crate) fn place(&mut self, mut socket: Socket) -> Option<u32> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() as u32 - 1
        });
        let token = token(self.id, index as usize);
        if self.registry.register(&mut socket.stream, token, Interest::READABLE).is_err() {
            self.free.push(index);
            return None;
        }
        if let Some(trunk) = socket.stream.trunk() {
            self.seat_strand(index, trunk);
        }
        let waits = socket.unsent() > 0;
        self.sockets[index as usize] = Some(socket);
        if waits {
            self.wait_for_room(index);
        }
        Some(index)
    }

    pub(crate) fn event(&mut self, event: &mio::event::Event) {
        let (shard, index) = named(event.token());
        if shard != usize::from(self.id.0) {
            return;
        }
        if index >= LISTENER_FIRST {
            if self.quic.as_mut().is_some_and(|quic| quic.wake(index - LISTENER_FIRST)) {
                return self.read_datagrams();
            }
            self.accepts = true;
            return self.accept();
        }
        let index = index as u32;
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.ends |= event.is_read_closed() || event.is_error();
        let publishes = socket.publishes;
        if event.is_writable() && socket.unsent() > 0 {
            self.resend(index);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if publishes {
                self.publishers.push_back(index);
            } else {
                self.read(index);
            }
        }
    }

    /// After all others: what they have published meanwhile leaves in this turn too. Of many only
    /// so many at once, so that what they say to other shards gets there while the cache has it.
    pub(crate) fn read_publishers(&mut self) {
        for _ in 0..PUBLISHERS_AT_ONCE {
            let Some(index) = self.publishers.pop_front() else { break };
            self.read(index);
        }
    }

    /// Reads once and hands over what came.
    pub(crate) fn read(&mut self, index: u32) {
        let blocked = self.blocked;
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_leaving() {
            return self.read_away(index);
        }
        // The peer that does not read our answers is not asked for more: it is listed again once
        // all is sent. Its pings are heard for longer than its messages flow.
        if socket.held
            || socket.starved
            || socket.congested.is_some_and(|max| socket.unsent() > max.get() as usize)
        {
            if socket.held && socket.ends {
                self.end_abandoned(index);
            }
            return;
        }
        if blocked || self.out.is_full() {
            return self.list(index);
        }
        if socket.unfinished {
            socket.unfinished = false;
            self.list(index);
            return self.consume_tail(index);
        }
        if socket.layers.is_some() {
            return self.read_through(index);
        }
        let tail_len = socket.tail.len();
        if tail_len > TAIL_COPIED_MAX {
            return self.read_into_tail(index);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let tail = std::mem::take(&mut socket.tail);
        buffer[..tail_len].copy_from_slice(&tail);
        let room = tail_len + limits::READ_BYTES_PER_TICK;
        match socket.receive(&mut buffer[tail_len..room]) {
            Ok(Some(0)) | Err(_) => self.lost(index),
            Ok(None) if socket.ends => self.lost(index),
            Ok(None) => socket.tail = tail,
            Ok(Some(read)) => {
                let len = tail_len + read;
                let ends = socket.ends;
                self.hand_over(index, &buffer[..len]);
                if len == room || ends {
                    self.list(index);
                }
            }
        }
        self.buffer = buffer;
    }

    /// A large packet grows in place, by what has come and not by what was announced.
    fn read_into_tail(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let have = socket.tail.len();
        let mut tail = std::mem::take(&mut socket.tail);
        let missing = mqtt::expected_len(&tail).map_or(0, |len| len.saturating_sub(have));
        let more = missing.clamp(1, have.max(limits::READ_BYTES_PER_TICK));
        tail.resize(have + more, 0);
        match socket.receive(&mut tail[have..]) {
            Ok(Some(0)) | Err(_) => self.lost(index),
            Ok(None) if socket.ends => self.lost(index),
            Ok(None) => {
                tail.truncate(have);
                socket.tail = tail;
            }
            Ok(Some(read)) => {
                tail.truncate(have + read);
                if read < missing {
                    self.keep_part(index, tail);
                } else {
                    self.hand_over(index, &tail);
                }
                self.list(index);
            }
        }
    }

    /// A packet that is not whole yet waits here, but who sends it is not silent: the shard finds
    /// nothing in it to take, and hears it [MQTT-3.1.2-22].
    pub(crate) fn keep_part(&mut self, index: u32, part: Vec<u8>) {
        let input = Input::Bytes { conn: ConnId(index), bytes: &part };
        self.shard.handle(self.now, input, &mut self.out);
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            socket.tail = part;
            self.count(index);
        }
    }

    fn consume_tail(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let tail = std::mem::take(&mut socket.tail);
        self.hand_over(index, &tail);
    }

    pub(crate) fn hand_over(&mut self, index: u32, bytes: &[u8]) {
        if self.rings.has_input() {
            self.take_parcels();
        }
        let conn = ConnId(index);
        let before = self.out.deliveries;
        let decided = self.out.effects.len();
        self.shard.handle(self.now, Input::Bytes { conn, bytes }, &mut self.out);
        let publishes = self.out.deliveries > before;
        let left = &bytes[self.out.consumed..];
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        // The shard knows it no longer, and would take what a second read brings for the words of
        // a connection that has ended. Its home reads on.
        if matches!(self.out.effects.get(decided), Some(Effect::Move { .. })) {
            socket.held = true;
        }
        self.work += self.out.consumed as u64;
        if self.out.consumed > 0 {
            socket.since = self.now;
        }
        socket.publishes = publishes;
        socket.tail = left.to_vec();
        self.count(index);
        if left.is_empty() {
            return;
        }
        if self.out.is_full() {
            self.go_on_later(index);
        }
    }

    /// Whole packets may be left: they come next, before anything new is read.
    pub(crate) fn go_on_later(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            socket.unfinished = true;
            self.list(index);
        }
    }

    /// Its peer has gone, but what that said before, and be it goodbye, may not have been read.
    pub(crate) fn takes_no_more(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.held || socket.starved || socket.stream.trunk().is_some() {
            return self.lost(index);
        }
        socket.drop_unsent();
        socket.ends = true;
        self.list(index);
    }

    /// The stream ended or broke.
    pub(crate) fn lost(&mut self, index: u32) {
        self.shard.handle(self.now, Input::Closed { conn: ConnId(index) }, &mut self.out);
        self.forget(index);
    }

    pub(crate) fn forget(&mut self, index: u32) {
        self.docket.withdraw(index);
        if let Some(place) = self.sockets.get_mut(index as usize)
            && let Some(mut socket) = place.take()
        {
            let _ = self.registry.deregister(&mut socket.stream);
            self.freed.push(index);
            self.count_out(&socket);
            if let Some(trunk) = socket.stream.trunk() {
                self.let_go(index, trunk);
            }
            self.give_back_relay(socket);
        }
    }

    /// Places of connections that ended may be used again.
    pub(crate) fn free_places(&mut self) {
        self.free.append(&mut self.freed);
        if self.free.len() < self.sockets.len() {
            return;
        }
        let was_crowd = self.sockets.len() > CROWD;
        self.sockets = Vec::new();
        self.free = Vec::new();
        if was_crowd {
            self.left_behind = true;
            self.give_back();
        }
    }

    /// It takes the allocator's locks for milliseconds, which keeps no connection of this shard
    /// waiting right after the last has gone; those of others may wait, so it is not done often.
    pub(crate) fn give_back(&mut self) {
        if self.left_behind && self.now >= self.gives_back_from {
            self.left_behind = false;
            self.gives_back_from = Now(self.now.0 + GIVE_BACK_PAUSE_MS);
            crate::heap::give_back();
        }
    }

    /// Throws away what a peer still sends after the close.
    pub(crate) fn read_away(&mut self, index: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut done = true;
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            for _ in 0..16 {
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
        self.buffer = buffer;
        if done {
            self.forget(index);
        }
    }
}
