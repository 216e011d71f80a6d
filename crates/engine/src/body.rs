//! One shard's body: its poller, its sockets, and the tick.
//!
//! ```text
//! wait -> take from the rings, read what is ready, obey commands, fire timers: all into one Outbox
//!      -> push the lanes, one write a touched connection, closes and holds, log, moves
//! ```
//!
//! Sockets are edge-triggered. A socket that has more to give than one tick takes stands in
//! `listed` and is looked at again in the next, without an event.

use crate::intake::TAIL_COPIED_MAX;
use crate::ring::{Parcel, Rings};
use crate::shelf::{Committed, Shelf};
use crate::socket::Socket;
use broker::outbox::Effect;
use broker::{Command, ConnId, Input, Note, Now, Outbox, Reading, Shard, ShardId, limits};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

pub(crate) type Log = Arc<dyn Fn(&Note) + Send + Sync>;

#[derive(Debug)]
pub(crate) enum Control {
    Command(Command),
    /// Leave once everything is written.
    Stop,
}

/// What one turn was.
pub(crate) struct Turn {
    /// After the wait.
    pub(crate) began: Instant,
    /// The shard has stopped: there will be no further turn.
    pub(crate) ended: bool,
}

/// Tells shards the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_ms: u64,
}

impl Clock {
    /// From the time of day on, where times are to mean something to the next process, or from 0.
    pub(crate) fn starting(from_today: bool) -> Clock {
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start_ms = if from_today { today.as_millis() as u64 } else { 0 };
        Clock { start: Instant::now(), start_ms }
    }

    pub(crate) fn now(self) -> Now {
        self.at(Instant::now())
    }

    fn at(self, moment: Instant) -> Now {
        Now(self.start_ms + (moment - self.start).as_millis() as u64)
    }
}

pub(crate) struct Body {
    pub(crate) id: ShardId,
    pub(crate) shard: Shard,
    pub(crate) poll: Poll,
    pub(crate) rings: Rings,
    pub(crate) control: Receiver<Control>,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) clock: Clock,
    pub(crate) shelf: Option<Shelf>,
    pub(crate) log: Log,
    pub(crate) write_bytes_max: usize,
    pub(crate) out: Outbox,
    pub(crate) now: Now,
    pub(crate) sockets: Vec<Option<Socket>>,
    /// Bytes that all of them hold: see `holding`.
    pub(crate) held: usize,
    /// Connections that had to give up what their sockets hold.
    pub(crate) starved: Vec<ConnId>,
    pub(crate) free: Vec<u32>,
    /// Free once this tick's outbox is performed: until then a decision may still name them.
    pub(crate) freed: Vec<u32>,
    /// Sockets to look at in the next tick, whatever the poller says.
    listed: Vec<u32>,
    /// Whether listeners have more to accept.
    pub(crate) accepts: bool,
    /// Nothing is accepted before: the process had no descriptor left.
    pub(crate) accepts_from: Now,
    /// Sockets that were closed and whose peers were not done, with the time to forget them. One
    /// that was forgotten sooner stays here until then.
    leaving: VecDeque<(Now, u32)>,
    /// Connections that no ring had room for.
    homeward: VecDeque<(usize, Parcel)>,
    /// A ring was full at the end of the last tick.
    blocked: bool,
    /// More waits for the disk than the store likes.
    crowded: bool,
    pub(crate) buffer: Box<[u8]>,
    gathered: Vec<u8>,
    /// What the shard wants to read in the store.
    readings: Vec<Reading>,
    stop_at: Option<Now>,
}

pub(crate) const WAKER: Token = Token(usize::MAX);
const LISTENER_FIRST: usize = usize::MAX - 64;
/// How long a closed connection's peer may go on before it gets a reset.
const LINGER_MS: u64 = 2_000;
/// The same when the whole process ends.
const STOP_MS: u64 = 500;

impl Body {
    #[expect(clippy::too_many_arguments, reason = "the parts of a shard, each given once")]
    pub(crate) fn new(
        id: ShardId,
        shard: Shard,
        poll: Poll,
        rings: Rings,
        control: Receiver<Control>,
        listeners: Vec<TcpListener>,
        clock: Clock,
        shelf: Option<Shelf>,
        log: Log,
        write_bytes_max: usize,
    ) -> io::Result<Body> {
        let mut body = Body {
            id,
            shard,
            poll,
            out: Outbox::new(rings.bells.len()),
            rings,
            control,
            listeners,
            clock,
            shelf,
            log,
            write_bytes_max,
            now: Now::default(),
            sockets: Vec::new(),
            held: 0,
            starved: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            listed: Vec::new(),
            accepts: false,
            accepts_from: Now::default(),
            leaving: VecDeque::new(),
            homeward: VecDeque::new(),
            blocked: false,
            crowded: false,
            buffer: vec![0; limits::READ_BYTES_PER_TICK + TAIL_COPIED_MAX].into(),
            gathered: Vec::new(),
            readings: Vec::new(),
            stop_at: None,
        };
        for (at, listener) in body.listeners.iter_mut().enumerate() {
            let token = Token(LISTENER_FIRST + at);
            body.poll.registry().register(listener, token, Interest::READABLE)?;
        }
        Ok(body)
    }

    /// Whether the wait before the next turn may be a sleep, and for how long. A shard that may
    /// sleep says so to the others first, and then looks into its rings once more.
    pub(crate) fn doze(&mut self) -> Option<Duration> {
        let timeout = self.timeout();
        if timeout != Some(Duration::ZERO) {
            let awaits_disk = self.awaits_disk();
            self.bell().awaits_disk.store(awaits_disk, SeqCst);
            self.bell().sleeps.store(true, SeqCst);
            fence(SeqCst);
            if self.rings.has_input() || (awaits_disk && self.disk_has_more()) {
                self.wake_up();
                return Some(Duration::ZERO);
            }
        }
        timeout
    }

    pub(crate) fn wake_up(&self) {
        self.bell().sleeps.store(false, SeqCst);
    }

    fn bell(&self) -> &crate::ring::Bell {
        &self.rings.bells[usize::from(self.id.0)]
    }

    /// Whether a turn would find anything that no event tells of.
    pub(crate) fn has_work(&self) -> bool {
        self.rings.has_input() || self.timeout() == Some(Duration::ZERO)
    }

    /// Whether another turn would bring its rings forward.
    pub(crate) fn takes_parcels(&self) -> bool {
        self.rings.has_input() && !self.is_stopping()
    }

    /// Waits for events as long as told.
    pub(crate) fn wait(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let polled = self.poll.poll(events, timeout);
        self.wake_up();
        match polled {
            Err(fault) if fault.kind() != io::ErrorKind::Interrupted => Err(fault),
            _ => Ok(()),
        }
    }

    /// One tick: does everything that is ready.
    pub(crate) fn turn(&mut self, events: &Events) -> Turn {
        let began = Instant::now();
        self.now = self.clock.at(began);
        self.look_at_disk();
        self.take_parcels();
        self.look_at_listed();
        for event in events {
            self.event(event);
        }
        self.take_control();
        self.tick();
        self.act();
        // Peers that still read our last words are waited for, but not for long.
        let alone = self.sockets.len() == self.free.len() + self.freed.len();
        let ended = self.stop_at.is_some_and(|at| alone || self.now >= at);
        Turn { began, ended }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.out.is_empty() {
            return Some(Duration::ZERO);
        }
        if self.blocked {
            // The other shard has no way to say that its ring has room again.
            return Some(Duration::from_millis(1));
        }
        if !self.listed.is_empty() && !self.crowded {
            return Some(Duration::ZERO);
        }
        let leaving = self.leaving.front().map(|(at, _)| *at);
        let accepts = self.accepts.then_some(self.accepts_from);
        let own = leaving.into_iter().chain(self.stop_at).chain(accepts);
        let next = self.shard.next_tick().into_iter().chain(own).min();
        let next = next.map(|at| Duration::from_millis(at.0.saturating_sub(self.clock.now().0)));
        let retry = self.shelf.as_ref().and_then(Shelf::retry_after);
        next.into_iter().chain(retry).min()
    }

    /// A full ring holds the readers back: nothing is dropped, nobody is overtaken.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked || self.crowded
    }

    /// The tick's records go down before anything that says so goes out.
    fn store(&mut self) {
        let Some(shelf) = &mut self.shelf else { return };
        let has_records = self.shard.has_records();
        if !has_records && !shelf.owes() {
            return;
        }
        let (changes, urgent) = match has_records {
            true => self.shard.take_records(),
            false => Default::default(),
        };
        if let Committed::Under(seq) = shelf.commit(changes, urgent) {
            let durable = shelf.durable();
            self.shard.handle(self.now, Input::Committed { seq, durable }, &mut self.out);
        }
    }

    fn awaits_disk(&self) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| self.shard.waits_for_disk() || shelf.is_crowded())
    }

    fn disk_has_more(&self) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| {
            shelf.durable() > self.shard.durable_seen() || self.crowded && !shelf.is_crowded()
        })
    }

    fn look_at_disk(&mut self) {
        let Some(shelf) = &mut self.shelf else { return };
        self.crowded = shelf.is_crowded();
        self.shard.set_store_full(shelf.refuses());
        let seq = shelf.durable();
        if self.shard.waits_for_disk() && seq > self.shard.durable_seen() {
            self.shard.handle(self.now, Input::Durable { seq }, &mut self.out);
        }
    }

    pub(crate) fn list(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize)
            && !socket.listed
        {
            socket.listed = true;
            self.listed.push(index);
        }
    }

    fn look_at_listed(&mut self) {
        if self.is_blocked() {
            return;
        }
        if self.accepts {
            self.accept();
        }
        for index in std::mem::take(&mut self.listed) {
            if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
                socket.listed = false;
                self.read(index);
            }
        }
    }

    fn event(&mut self, event: &mio::event::Event) {
        let token = event.token();
        if token == WAKER {
            return;
        }
        if token.0 >= LISTENER_FIRST {
            self.accepts = true;
            return self.accept();
        }
        let index = token.0 as u32;
        let Some(Some(socket)) = self.sockets.get(index as usize) else { return };
        if event.is_writable() && socket.unsent() > 0 {
            self.resend(index);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(index);
            // The edge that told of the end comes once: a short read leaves it to be found.
            if event.is_read_closed() || event.is_error() {
                self.list(index);
            }
        }
    }

    fn resend(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.since = self.now;
        let sent = socket.resend();
        self.count(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        match sent {
            Err(_) => self.lost(index),
            Ok(false) => {}
            Ok(true) if socket.congested.is_none() => {}
            Ok(true) => {
                socket.congested = None;
                let conn = ConnId(index);
                self.shard.handle(self.now, Input::Writable { conn }, &mut self.out);
                self.list(index);
            }
        }
    }

    /// What another shard handed over before a peer learnt of it is known here before that peer's
    /// next word is: rings come before sockets.
    pub(crate) fn take_parcels(&mut self) {
        for from in 0..self.rings.inbound.len() {
            let Some(mut ring) = self.rings.inbound[from].take() else { continue };
            while !self.out.is_full()
                && let Ok(parcel) = ring.pop()
            {
                match parcel {
                    Parcel::Cross(cross) => {
                        let from = ShardId(from as u8);
                        let input = Input::Cross { from, cross };
                        self.shard.handle(self.now, input, &mut self.out);
                    }
                    Parcel::Socket { stream, bytes } => {
                        // A peer that is gone already has no address: nothing is lost with it.
                        if let Ok(peer) = stream.peer_addr() {
                            self.open(stream, peer, true, bytes);
                        }
                    }
                }
            }
            self.rings.inbound[from] = Some(ring);
        }
    }

    fn take_control(&mut self) {
        while let Ok(control) = self.control.try_recv() {
            match control {
                Control::Command(command) => {
                    match &command {
                        Command::Drain => self.listeners.clear(),
                        Command::Reload(options) => {
                            self.write_bytes_max = options.write_bytes_max as usize;
                        }
                        Command::CloseAll => {}
                    }
                    self.shard.handle(self.now, Input::Command(command), &mut self.out);
                }
                Control::Stop => self.stop_at = Some(Now(self.now.0 + STOP_MS)),
            }
        }
    }

    fn tick(&mut self) {
        if self.shard.next_tick().is_some_and(|at| at <= self.now) {
            self.shard.handle(self.now, Input::Tick, &mut self.out);
        }
        while let Some(&(at, index)) = self.leaving.front()
            && at <= self.now
        {
            self.leaving.pop_front();
            let place = self.sockets.get(index as usize);
            if place.is_some_and(|socket| socket.as_ref().is_some_and(|s| s.leaves_at == Some(at)))
            {
                self.forget(index);
            }
        }
    }

    /// Performs the outbox.
    fn act(&mut self) {
        self.store();
        if self.shard.is_tracing() {
            self.shard.trace_writes(&mut self.out);
        }
        let mut out = std::mem::take(&mut self.out);
        // First, so that nobody learns from a write what another shard is not yet told.
        self.push_lanes(&mut out);
        let (mut broken, mut congested) = (Vec::new(), Vec::new());
        for write in out.writes() {
            let index = write.conn.0;
            let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { continue };
            if socket.starved && socket.unsent() > 0 {
                continue;
            }
            if socket.send(write, &out.arena, &mut self.gathered).is_err() {
                broken.push(index);
            } else if socket.unsent() > 0 && self.wait_for_room(index) {
                congested.push(index);
            }
        }
        if self.gathered.capacity() > 2 * limits::OUTBOX_BYTES_MAX {
            self.gathered = Vec::new();
        }
        for effect in out.effects.drain(..) {
            self.effect(effect);
        }
        for note in out.notes.drain(..) {
            (self.log)(&note);
        }
        self.push_homeward();
        self.blocked = !self.homeward.is_empty() || out.lanes.iter().any(|lane| !lane.is_empty());
        out.clear();
        self.out = out;
        self.free.append(&mut self.freed);
        if self.free.len() == self.sockets.len() {
            self.sockets = Vec::new();
            self.free = Vec::new();
        }
        // What the writes found out is the next tick's input, and so is what the store holds.
        for reading in std::mem::take(&mut self.readings) {
            if let Some(stored) = &self.shelf {
                self.shard.handle(self.now, Input::Stored { reading, stored }, &mut self.out);
            }
        }
        for conn in std::mem::take(&mut self.starved) {
            self.shard.handle(self.now, Input::Starved { conn }, &mut self.out);
        }
        for index in congested {
            let conn = ConnId(index);
            self.shard.handle(self.now, Input::Congested { conn }, &mut self.out);
        }
        for index in broken {
            self.lost(index);
        }
    }

    /// A socket took less than it was given. Says whether that makes its connection congested.
    fn wait_for_room(&mut self, index: u32) -> bool {
        self.count(index);
        let crowded = self.shard.sockets_are_crowded();
        let unsent_max = if crowded { 0 } else { self.write_bytes_max };
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return false };
        if !socket.watches_room {
            socket.watches_room = true;
            let both = Interest::READABLE | Interest::WRITABLE;
            let token = Token(index as usize);
            let _ = self.poll.registry().reregister(&mut socket.stream, token, both);
        }
        let unsent = socket.unsent();
        let congests = unsent > unsent_max && socket.congested.is_none();
        if congests {
            socket.congested = Some(unsent + self.write_bytes_max);
        }
        congests
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Close { conn } => self.close(conn.0),
            Effect::Hold { conn } => {
                if let Some(Some(socket)) = self.sockets.get_mut(conn.0 as usize) {
                    socket.held = true;
                }
            }
            Effect::Resume { conn } => {
                if let Some(Some(socket)) = self.sockets.get_mut(conn.0 as usize) {
                    socket.held = false;
                }
                self.go_on_later(conn.0);
            }
            Effect::Move { conn, shard } => self.send_home(conn.0, shard),
            Effect::Read { reading } => self.readings.push(reading),
        }
    }

    /// Our side is done. The peer gets to read our last words before anything resets the stream.
    fn close(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.tail = Vec::new();
        self.count(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.unsent() > 0 || socket.stream.shutdown(std::net::Shutdown::Write).is_err() {
            return self.forget(index);
        }
        let at = Now(self.now.0 + LINGER_MS);
        socket.leaves_at = Some(at);
        self.leaving.push_back((at, index));
        self.read_away(index);
    }

    fn send_home(&mut self, index: u32, home: ShardId) {
        let Some(place) = self.sockets.get_mut(index as usize) else { return };
        let Some(mut socket) = place.take() else { return };
        self.count_out(&socket);
        self.freed.push(index);
        let _ = self.poll.registry().deregister(&mut socket.stream);
        let parcel = Parcel::Socket { stream: socket.stream, bytes: socket.tail };
        self.homeward.push_back((usize::from(home.0), parcel));
    }

    fn push_homeward(&mut self) {
        while let Some((home, parcel)) = self.homeward.pop_front() {
            let Some(ring) = &mut self.rings.outbound[home] else { continue };
            let pushed = ring.push(parcel);
            self.rings.bells[home].ring();
            if let Err(rtrb::PushError::Full(parcel)) = pushed {
                return self.homeward.push_front((home, parcel));
            }
        }
    }

    fn push_lanes(&mut self, out: &mut Outbox) {
        for (to, lane) in out.lanes.iter_mut().enumerate() {
            if lane.is_empty() {
                continue;
            }
            let Some(ring) = &mut self.rings.outbound[to] else { continue };
            let slots = ring.slots().min(lane.len());
            for cross in lane.drain(..slots) {
                // There is room: nobody else pushes.
                let _ = ring.push(Parcel::Cross(cross));
            }
            if slots > 0 {
                self.rings.bells[to].ring();
            }
        }
    }
}
