//! Connections that pass layers: waiting until they are open, and reading through them.
//!
//! The broker hears of a connection once it is open. Until then its deadline is kept here, from the
//! moment it was accepted; from then on the broker's counts, from the same moment. Handshakes are
//! the only work here that costs a thousand times what its bytes do, so each turn does so much of
//! it and no more, and whoever was not looked at comes first in the next.

use crate::body::Body;
use crate::intake::TAIL_COPIED_MAX;
use crate::layers::{Broken, Opening};
use crate::ring::Parcel;
use crate::seat::Seat;
use crate::socket::Socket;
use crate::stream::Stream;
use broker::judge::Grant;
use broker::{Address, ConnId, Input, Now, Peer, limits};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Spent on handshakes in one turn, and then those that are ready wait.
pub(crate) const HANDSHAKES_PER_TURN: Duration = Duration::from_millis(1);
/// What layers take off in one turn, and then all that have layers wait: frames of a byte or of
/// none are work, and nothing of MQTT that a tick would be full of.
const PEEL_BYTES_PER_TURN: usize = 64 * 1024;

impl Body {
    /// A new connection. Shards take turns where its greeting is work.
    pub(crate) fn admit(&mut self, stream: Stream, peer: Peer, seat: Option<Box<Seat>>) {
        let door = &self.doors[usize::from(peer.listener.0)];
        let mut socket = Socket::new(stream, Vec::new());
        socket.seat = seat;
        let Some(mut layers) = door.layers() else { return self.open(socket, peer, false) };
        let until = Now(self.now.0 + u64::from(self.connect_timeout_ms));
        layers.opening = Some(Box::new(Opening { peer, since: self.now, until }));
        socket.layers = Some(Box::new(layers));
        if !door.is_work() {
            return self.wait_until_open(socket);
        }
        self.dealt = (self.dealt + 1) % self.rings.bells.len();
        match self.dealt == usize::from(self.id.0) {
            true => self.wait_until_open(socket),
            false => {
                let socket = Box::new(socket);
                self.homeward.push_back((self.dealt, Parcel::Socket { socket, peer: None }));
            }
        }
    }

    /// A connection of this process to itself: no door, no limit of arrivals.
    pub(crate) fn take_own(&mut self, stream: UnixStream, grant: Grant) {
        let user = rustix::process::getuid().as_raw();
        let peer = Peer::own(Address::Unix { user, process: std::process::id() }, grant);
        let stream = Stream::Unix(mio::net::UnixStream::from_std(stream));
        self.open(Socket::new(stream, Vec::new()), peer, false);
    }

    /// What came over a ring: to its home with its peer, or dealt to this shard to be opened.
    pub(crate) fn arrive(&mut self, socket: Socket, peer: Option<Peer>) {
        match peer {
            Some(peer) => self.open(socket, peer, true),
            None => self.wait_until_open(socket),
        }
    }

    pub(crate) fn wait_until_open(&mut self, socket: Socket) {
        let opening = socket.layers.as_ref().and_then(|layers| layers.opening.as_ref());
        let Some(until) = opening.map(|opening| opening.until) else { return };
        if let Some(index) = self.place(socket) {
            self.opening.push_back((until, index));
        }
    }

    fn opens_at(&self, index: u32) -> Option<Now> {
        let socket = self.sockets.get(index as usize)?.as_ref()?;
        Some(socket.layers.as_ref()?.opening.as_ref()?.until)
    }

    pub(crate) fn is_opening(&self, index: u32) -> bool {
        self.opens_at(index).is_some()
    }

    /// Whose time is over. Those that have opened since leave the list without a wake-up.
    pub(crate) fn end_the_slow(&mut self) {
        while let Some(&(until, index)) = self.opening.front() {
            let waits = self.opens_at(index) == Some(until);
            if waits && self.extend_opening(until) > self.now {
                return;
            }
            self.opening.pop_front();
            if waits {
                self.never_opened(index, &Broken::Slow);
            }
        }
    }

    /// The process ends: nobody greets them any more.
    pub(crate) fn end_the_unopened(&mut self) {
        self.goes_down = true;
        for (until, index) in std::mem::take(&mut self.opening) {
            if self.opens_at(index) == Some(until) {
                self.forget(index);
            }
        }
    }

    /// Reads once, through the layers, and hands over what that says.
    pub(crate) fn read_through(&mut self, index: u32) {
        let spent = self.handshakes >= HANDSHAKES_PER_TURN;
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if let Some(trunk) = socket.stream.trunk() {
            return self.read_strand(index, trunk);
        }
        let Some(layers) = &socket.layers else { return };
        if self.peel_bytes >= PEEL_BYTES_PER_TURN || (spent && layers.opening.is_some()) {
            return self.list(index);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        if layers.relay.is_some() {
            let is_over = self.read_by_relay(index, &mut buffer);
            self.buffer = buffer;
            if is_over {
                self.lost(index);
            }
            return;
        }
        let kept = layers.lay_out(&mut buffer);
        let ended = match socket.receive(&mut buffer[kept..]) {
            Ok(None) => Ok(socket.ends),
            Ok(Some(0)) | Err(_) => Ok(true),
            Ok(Some(read)) => {
                let len = kept + read;
                if len == buffer.len() || socket.ends {
                    self.list(index);
                }
                self.pass(index, &mut buffer[..len])
            }
        };
        // Closing needs the buffer too.
        self.buffer = buffer;
        match ended {
            Ok(false) => {}
            Ok(true) => self.left(index),
            Err(broken) => self.broke(index, &broken),
        }
    }

    /// What the layers make of it; whether the peer is done.
    pub(crate) fn pass(&mut self, index: u32, raw: &mut [u8]) -> Result<bool, Broken> {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return Ok(false) };
        let Some(mut layers) = socket.layers.take() else { return Ok(false) };
        let (mut plain, grows) = behind(&mut socket.tail, &mut self.plain);
        let before = plain.len();
        let began = layers.opening.is_some().then(Instant::now);
        self.sealed.clear();
        let taken = layers.take_in(raw, &mut plain, &mut self.sealed);
        self.handshakes += began.map_or(Duration::ZERO, |began| began.elapsed());
        // Whether it breaks is found out by the next read.
        let _ = socket.send_sealed(self.sealed.bytes());
        let waits = socket.unsent() > 0;
        let understood = raw.len() - layers.kept();
        self.peel_bytes += understood.saturating_sub(plain.len() - before);
        let opened = layers.take_opened();
        socket.layers = Some(layers).filter(|layers| layers.stay());
        self.count(index);
        let congests = waits && self.wait_for_room(index);
        let conn = ConnId(index);
        if let Some(Opening { mut peer, since, .. }) = opened {
            self.meet(index, &mut peer);
            let input = Input::Opened { conn, peer, since, moved: false };
            self.shard.handle(self.now, input, &mut self.out);
        }
        // A peer can have the layers answer it without end.
        if congests && !self.is_opening(index) {
            self.shard.handle(self.now, Input::Congested { conn }, &mut self.out);
        }
        let came = plain.len() > before;
        self.hand_over_plain(index, plain, grows, came);
        taken
    }

    pub(crate) fn hand_over_plain(&mut self, index: u32, plain: Vec<u8>, grows: bool, came: bool) {
        if !grows {
            if came {
                self.hand_over(index, &plain);
            }
            if plain.capacity() <= 2 * limits::READ_BYTES_PER_TICK {
                self.plain = plain;
            }
            return;
        }
        if came && mqtt::expected_len(&plain).is_none_or(|len| len <= plain.len()) {
            return self.hand_over(index, &plain);
        }
        self.keep_part(index, plain);
    }

    /// The stream ended, in whatever state it was.
    fn left(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let layers = socket.layers.as_ref().filter(|layers| layers.opening.is_some());
        match layers {
            None => self.lost(index),
            // A port that somebody only looked at is nothing to tell of.
            Some(layers) if !layers.has_begun() => self.forget(index),
            Some(_) => self.never_opened(index, &Broken::Left),
        }
    }

    /// A layer cannot go on.
    fn broke(&mut self, index: u32, broken: &Broken) {
        if self.is_opening(index) {
            return self.never_opened(index, broken);
        }
        self.shard.handle(self.now, Input::Closed { conn: ConnId(index) }, &mut self.out);
        self.close_broken(index);
    }

    pub(crate) fn never_opened(&mut self, index: u32, why: &Broken) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let opening = socket.layers.take().and_then(|layers| layers.opening);
        if let Some(opening) = opening {
            let peer = opening.peer.address;
            self.shard.handle(self.now, Input::NotOpened { peer, why }, &mut self.out);
        }
        self.close_broken(index);
    }

    /// The alert that says why has gone out; nothing else is said.
    fn close_broken(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            socket.layers = None;
        }
        self.close(index);
    }

    /// Last words of the layers, before our side is closed.
    pub(crate) fn end_layers(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if let Some(mut layers) = socket.layers.take() {
            self.sealed.clear();
            layers.end(self.goes_down, &mut self.sealed);
            let _ = socket.send_sealed(self.sealed.bytes());
        }
    }
}

/// Where what comes is gathered, with what came before of its packet: a large packet grows in
/// place, which is the second thing to know; the beginning of a small one is copied.
pub(crate) fn behind(tail: &mut Vec<u8>, spare: &mut Vec<u8>) -> (Vec<u8>, bool) {
    if tail.len() > TAIL_COPIED_MAX {
        return (std::mem::take(tail), true);
    }
    let mut plain = std::mem::take(spare);
    plain.clear();
    plain.extend_from_slice(tail);
    (plain, false)
}
