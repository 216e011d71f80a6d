//! One shard's body: its sockets and the tick.
//!
//! ```text
//! wait -> take from the rings, read what is ready, obey commands, fire timers: all into one Outbox
//!      -> push the lanes, one write a touched connection, closes and holds, log, moves
//! ```
//!
//! With a guest it waits at its own poller, with the host at the host's: wherever it runs, its
//! sockets are registered there and nowhere else.
//!
//! Sockets are edge-triggered. A socket that has more to give than one tick takes stands in
//! `listed` and is looked at again in the next, without an event.

use crate::clock::Clock;
use crate::descriptors::{AcceptPause, DescriptorBudget};
use crate::docket::{Control, Docket};
use crate::door::Door;
use crate::intake::TAIL_COPIED_MAX;
use crate::layers::Broken;
use crate::release::BurstRelease;
use crate::ring::{Parcel, Rings};
use crate::salvo::{self, Salvo, Sent};
use crate::seat::Hall;
use crate::shelf::Shelf;
use crate::socket::Socket;
use crate::stream::Acceptor;
use crate::tls::Sealed;
use broker::outbox::Effect;
use broker::{Command, ConnId, Input, Note, Now, Options, Outbox, Reading, Shard, ShardId, limits};
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

pub(crate) type Log = Arc<dyn Fn(&Note) + Send + Sync>;

pub(crate) struct Body {
    pub(crate) id: ShardId,
    pub(crate) shard: Shard,
    /// For when it is with a guest.
    pub(crate) poll: Poll,
    /// Of the poller where its sockets are registered.
    pub(crate) registry: Registry,
    pub(crate) with_guest: bool,
    /// When it wanted to be woken when it last slept.
    pub(crate) due: Option<Instant>,
    /// What it did, until somebody asks: see `take_work`.
    pub(crate) work: u64,
    pub(crate) rings: Rings,
    pub(crate) control: Receiver<Control>,
    pub(crate) listeners: Vec<Acceptor>,
    /// The poller tells of them.
    is_open: bool,
    /// Where there are listeners or connections of QUIC.
    pub(crate) quic: Option<Box<crate::quic::Quic>>,
    /// What is behind every listener of the process.
    pub(crate) doors: Arc<[Door]>,
    pub(crate) clock: Clock,
    pub(crate) shelf: Option<Shelf>,
    pub(crate) log: Log,
    pub(crate) docket: Docket,
    pub(crate) write_bytes_max: usize,
    pub(crate) connect_timeout_ms: u32,
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
    pub(crate) listed: Vec<u32>,
    /// Sockets whose events this turn reads last.
    pub(crate) publishers: VecDeque<u32>,
    /// Whether listeners have more to accept.
    pub(crate) accepts: bool,
    pub(crate) accept_pause: AcceptPause,
    /// Where connections are counted.
    pub(crate) hall: Hall,
    /// Sockets that were closed and whose peers were not done, with the time to forget them. One
    /// that was forgotten sooner stays here until then.
    pub(crate) leaving: VecDeque<(Now, u32)>,
    /// A crowd has gone, and the memory that it had is still here, ...
    pub(crate) left_behind: bool,
    /// ... until then.
    pub(crate) gives_back_from: Now,
    /// When what a burst made large is looked at.
    pub(crate) release: BurstRelease,
    /// Sockets that the broker does not know yet, with the time when it must.
    pub(crate) opening: VecDeque<(Now, u32)>,
    /// The shard that got the last connection whose greeting is work.
    pub(crate) dealt: usize,
    /// Spent on handshakes in this turn.
    pub(crate) handshakes: Duration,
    /// Of what came in this turn, what layers took off.
    pub(crate) peel_bytes: usize,
    /// Connections that no ring had room for.
    pub(crate) homeward: VecDeque<(usize, Parcel)>,
    /// A ring was full at the end of the last tick. That holds the readers back: nothing is
    /// dropped, nobody is overtaken.
    pub(crate) blocked: bool,
    /// More waits for the disk than the store likes.
    pub(crate) crowded: bool,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) gathered: Vec<u8>,
    salvo: Salvo,
    /// What one read said, for a connection that passes layers, and what is written through them.
    pub(crate) plain: Vec<u8>,
    pub(crate) sealed: Sealed,
    /// What the shard wants to read in the store.
    readings: Vec<Reading>,
    pub(crate) stop_at: Option<Now>,
    /// Connections end because the process does.
    pub(crate) goes_down: bool,
}

/// Beyond the last socket: the listeners of shard 0.
pub(crate) const LISTENER_FIRST: usize = INDEX_MAX - limits::LISTENERS_MAX;
/// How long closed connections' peers may go on when the whole process ends.
const STOP_MS: u64 = 500;

impl Body {
    #[expect(clippy::too_many_arguments, reason = "the parts of a shard, each given once")]
    pub(crate) fn new(
        id: ShardId,
        shard: Shard,
        poll: Poll,
        registry: Registry,
        rings: Rings,
        control: Receiver<Control>,
        listeners: Vec<Acceptor>,
        doors: Arc<[Door]>,
        clock: Clock,
        shelf: Option<Shelf>,
        log: Log,
        docket: Docket,
        hall: Hall,
        salvo: Salvo,
        options: &Options,
    ) -> Body {
        Body {
            id,
            shard,
            poll,
            registry,
            with_guest: false,
            due: None,
            work: 0,
            out: Outbox::new(rings.bells.len()),
            rings,
            control,
            quic: crate::quic::Quic::at(&listeners, &doors),
            listeners,
            is_open: false,
            doors,
            clock,
            shelf,
            log,
            docket,
            write_bytes_max: options.write_bytes_max as usize,
            connect_timeout_ms: options.connect_timeout_ms,
            now: Now::default(),
            sockets: Vec::new(),
            held: 0,
            starved: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            listed: Vec::new(),
            publishers: VecDeque::new(),
            accepts: false,
            accept_pause: AcceptPause::default(),
            hall,
            leaving: VecDeque::new(),
            left_behind: false,
            gives_back_from: Now::default(),
            release: BurstRelease::default(),
            opening: VecDeque::new(),
            dealt: 0,
            handshakes: Duration::ZERO,
            peel_bytes: 0,
            homeward: VecDeque::new(),
            blocked: false,
            crowded: false,
            buffer: vec![0; limits::READ_BYTES_PER_TICK + TAIL_COPIED_MAX].into(),
            gathered: Vec::new(),
            salvo,
            plain: Vec::new(),
            sealed: Sealed::default(),
            readings: Vec::new(),
            stop_at: None,
            goes_down: false,
        }
    }

    fn open_listeners(&mut self, descriptors_reserved: usize) -> io::Result<()> {
        self.accept_pause.budget = DescriptorBudget::measure(descriptors_reserved);
        self.is_open = true;
        self.register_listeners()
    }

    fn register_listeners(&mut self) -> io::Result<()> {
        if !self.is_open {
            return Ok(());
        }
        for (at, listener) in self.listeners.iter_mut().enumerate() {
            let token = token(self.id, LISTENER_FIRST + at);
            self.registry.register(listener, token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// To its own poller, with a guest. What is ready there is told anew.
    pub(crate) fn move_out(&mut self) -> io::Result<()> {
        let own = self.poll.registry().try_clone()?;
        self.move_to(own, true)
    }

    /// To the host's poller.
    pub(crate) fn move_in(&mut self, host: Registry) -> io::Result<()> {
        self.move_to(host, false)
    }

    fn move_to(&mut self, registry: Registry, with_guest: bool) -> io::Result<()> {
        let from = std::mem::replace(&mut self.registry, registry);
        self.with_guest = with_guest;
        for listener in self.listeners.iter_mut().filter(|_| self.is_open) {
            from.deregister(listener)?;
        }
        self.register_listeners()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let mut broken = Vec::new();
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            let Some(socket) = socket else { continue };
            let _ = from.deregister(&mut socket.stream);
            let interest = if socket.watches_room { both } else { Interest::READABLE };
            let token = token(self.id, index);
            if self.registry.register(&mut socket.stream, token, interest).is_err() {
                broken.push(index as u32);
            }
        }
        broken.into_iter().for_each(|index| self.lost(index));
        Ok(())
    }

    /// How much it did since it was asked last: what came in, and what that caused.
    pub(crate) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Whether moving it would take long: every socket costs two calls.
    pub(crate) fn is_heavy(&self) -> bool {
        self.sockets.len() - self.free.len() > MOVED_BACK_MAX
    }

    /// The first half of a turn: everything that is ready, into the Outbox. Of the events those of
    /// other shards are left out, and publishers are left to be read.
    pub(crate) fn take_in(&mut self, now: Instant, events: &Events) {
        self.take_what_others_say(now);
        self.look_at_listed();
        for event in events {
            self.event(event);
        }
        self.take_control();
    }

    pub(crate) fn has_publishers(&self) -> bool {
        !self.publishers.is_empty()
    }

    /// Only what the rings hold of it.
    pub(crate) fn take_what_others_say(&mut self, now: Instant) {
        self.now = self.clock.at(now);
        self.look_at_time_of_day();
        self.set_time_of_quic(now);
        self.look_at_disk();
        self.take_parcels();
        self.drive_fresh();
    }

    /// Whether the shard has stopped: there will be no further turn. Peers that still read our last
    /// words are waited for, but not for long.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop_at.is_some_and(|at| self.is_alone() || self.now >= at)
    }

    /// Whether there is no connection.
    pub(crate) fn is_alone(&self) -> bool {
        self.sockets.len() == self.free.len() + self.freed.len()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
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
        if self.blocked {
            return;
        }
        if self.accepts || self.accept_pause.rate_until.is_some_and(|at| at <= self.now) {
            self.accept();
        }
        self.read_datagrams();
        for index in std::mem::take(&mut self.listed) {
            if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
                socket.listed = false;
                self.read(index);
            }
        }
    }

    pub(crate) fn resend(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.since = self.now;
        let sent = self.resend_of(index);
        self.count(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        match sent {
            Err(_) if socket.is_leaving() => self.forget(index),
            Err(fault) => {
                socket.note_fault(fault);
                self.takes_no_more(index);
            }
            Ok(false) => {}
            Ok(true) if socket.is_leaving() => self.end_stream(index),
            Ok(true) if socket.congested.is_none() => socket.note_sent(),
            Ok(true) => {
                socket.note_sent();
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
                && let Some(parcel) = ring.pop()
            {
                match parcel {
                    Parcel::Cross(cross) => {
                        let from = ShardId(from as u8);
                        let input = Input::Cross { from, cross };
                        self.shard.handle(self.now, input, &mut self.out);
                    }
                    Parcel::Socket { socket, peer } => self.arrive(*socket, peer),
                    Parcel::Quic(word) => self.hear_of_quic(*word),
                    // The ring follows it by itself.
                    Parcel::Next(_) => {}
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
                        Command::Drain => self.close_listeners(),
                        Command::Reload(options) => {
                            self.write_bytes_max = options.write_bytes_max as usize;
                            self.connect_timeout_ms = options.connect_timeout_ms;
                        }
                        Command::CloseAll => self.end_the_unopened(),
                        Command::Say { .. } | Command::Told(_) => {}
                    }
                    self.shard.handle(self.now, Input::Command(command), &mut self.out);
                }
                Control::Answered { slip, answer } => {
                    let input = Input::Answered { slip, answer };
                    self.shard.handle(self.now, input, &mut self.out);
                }
                Control::Doors(doors) => self.change_doors(doors),
                Control::Open { told, reserved } => _ = told.send(self.open_listeners(reserved)),
                Control::Verdict { conn, case, verdict } => {
                    self.docket.settle(conn, case);
                    let input = Input::Verdict { conn, case, verdict };
                    self.shard.handle(self.now, input, &mut self.out);
                }
                Control::Own { stream, grant } => self.take_own(stream, *grant),
                Control::HostRelay(slot) => self.host_relay(&slot),
                Control::RecallRelay(client_id) => self.recall_relay(&client_id),
                Control::SayByRelay { client_id, bytes } => self.say_by_relay(&client_id, &bytes),
                Control::Survey { which, to } => {
                    // Whoever asked may have gone.
                    let _ = to.send(self.shard.survey(&which));
                }
                Control::Done(told) => drop(told),
                Control::Stop => {
                    self.stop_at = Some(Now(self.now.0 + STOP_MS));
                    if self.id == ShardId(0) {
                        self.shard.keep_clock(&self.clock.reading());
                    }
                }
            }
        }
    }

    /// What time brings, once all is read: nobody is late whose bytes are here.
    pub(crate) fn tick(&mut self) {
        if self.shard.next_tick().is_some_and(|at| at <= self.now) {
            self.shard.handle(self.now, Input::Tick, &mut self.out);
        }
        self.give_back();
        self.tick_quic();
        self.end_the_slow();
        while let Some(&(at, index)) = self.leaving.front()
            && at <= self.now
        {
            self.leaving.pop_front();
            let place = self.sockets.get(index as usize);
            if place.is_some_and(|socket| socket.as_ref().is_some_and(|s| s.leaves_at == at)) {
                self.forget(index);
            }
        }
    }

    /// The second half of a turn: performs the Outbox.
    pub(crate) fn act(&mut self) {
        // First, so that nobody learns from a write what another shard is not yet told.
        self.store();
        self.push_lanes();
        if self.shard.is_tracing() {
            self.shard.trace_writes(&mut self.out);
        }
        let mut out = std::mem::take(&mut self.out);
        let (broken, congested) = self.write(&out);
        for effect in out.effects.drain(..) {
            self.effect(effect);
        }
        for note in out.notes.drain(..) {
            (self.log)(&note);
        }
        self.push_homeward();
        self.blocked = !self.homeward.is_empty() || out.lanes.iter().any(|lane| !lane.is_empty());
        self.work += out.deliveries as u64 * WORK_OF_DELIVERY;
        self.release.work += 1 + out.deliveries;
        out.clear();
        self.out = out;
        self.look_at_release();
        self.free_places();
        // What the writes found out is the next tick's input, and so is what the store holds.
        for reading in std::mem::take(&mut self.readings) {
            if let Some(stored) = &self.shelf {
                self.shard.handle(self.now, Input::Stored { reading, stored }, &mut self.out);
            }
        }
        self.handshakes = Duration::ZERO;
        self.peel_bytes = 0;
        for conn in std::mem::take(&mut self.starved) {
            if self.is_opening(conn.0) {
                self.never_opened(conn.0, &Broken::NoMemory);
                continue;
            }
            self.shard.handle(self.now, Input::Starved { conn }, &mut self.out);
        }
        for index in congested {
            let conn = ConnId(index);
            self.shard.handle(self.now, Input::Congested { conn }, &mut self.out);
        }
        for index in broken {
            self.takes_no_more(index);
        }
        self.flush_quic();
    }

    /// One write a touched connection, many of them in one call. Says whose connections are broken,
    /// and whose have become congested.
    fn write(&mut self, out: &Outbox) -> (Vec<u32>, Vec<u32>) {
        let (mut broken, mut congested) = (Vec::new(), Vec::new());
        let writes = out.writes();
        let mut salvo = std::mem::take(&mut self.salvo);
        let sent = if writes.len() < salvo::WRITES_MIN {
            &[]
        } else {
            salvo.fire(writes.iter().map(|write| {
                let socket = self.sockets.get(write.conn.0 as usize)?.as_ref()?;
                socket.plainly(write, &out.arena)
            }))
        };
        for (at, write) in writes.iter().enumerate() {
            let sent = sent.get(at).copied().unwrap_or(Sent::NOT);
            if sent.is_all_of(write.len()) {
                continue;
            }
            let index = write.conn.0;
            let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { continue };
            if socket.starved && socket.unsent() > 0 {
                continue;
            }
            let (gathered, sealed) = (&mut self.gathered, &mut self.sealed);
            if let Err(fault) = socket.send(write, sent, &out.arena, gathered, sealed) {
                socket.note_fault(fault);
                broken.push(index);
            } else if socket.unsent() > 0 && self.wait_for_room(index) {
                congested.push(index);
            }
            self.list_relay(index);
        }
        self.salvo = salvo;
        if self.gathered.capacity() > 2 * limits::OUTBOX_BYTES_MAX {
            self.gathered = Vec::new();
        }
        (broken, congested)
    }

    /// A socket took less than it was given. Says whether that makes its connection congested.
    pub(crate) fn wait_for_room(&mut self, index: u32) -> bool {
        if self.has_trunk_take_all(index) {
            return false;
        }
        self.count(index);
        let crowded = self.shard.sockets_are_crowded();
        let unsent_max = if crowded { 0 } else { self.write_bytes_max };
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return false };
        if !socket.watches_room {
            socket.watches_room = true;
            let both = Interest::READABLE | Interest::WRITABLE;
            let token = token(self.id, index as usize);
            let _ = self.registry.reregister(&mut socket.stream, token, both);
        }
        let unsent = socket.unsent();
        let congests = unsent > unsent_max && socket.congested.is_none();
        if congests {
            let unsent_max = u32::try_from(unsent + self.write_bytes_max);
            socket.congested = NonZeroU32::new(unsent_max.unwrap_or(u32::MAX));
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
            Effect::Ask { slip, question } => self.docket.request(slip, *question),
            Effect::Judge { conn, case, claim } => self.docket.ask(conn, case, *claim),
            Effect::Move { conn, shard, peer } => self.send_home(conn.0, shard, peer),
            Effect::Read { reading } => self.readings.push(reading),
        }
    }
}

/// The host's poller tells of the sockets of several shards: the highest bits of a token name the
/// shard, the others the socket.
pub(crate) fn token(shard: ShardId, index: usize) -> Token {
    Token(usize::from(shard.0) << INDEX_BITS | index)
}

/// The shard and what is ready of it.
pub(crate) fn named(token: Token) -> (usize, usize) {
    (token.0 >> INDEX_BITS, token.0 & INDEX_MAX)
}

/// A message that goes out is about as much work as so many bytes that come in.
const WORK_OF_DELIVERY: u64 = 16;
const INDEX_BITS: u32 = usize::BITS - limits::SHARDS_MAX.ilog2();
const INDEX_MAX: usize = (1 << INDEX_BITS) - 1;
/// A poller's own waker. The last shard has no listeners up there.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// A guest keeps a shard with more sockets than this: both would stand still for milliseconds.
const MOVED_BACK_MAX: usize = 8 * 1024;
const _: () = assert!(limits::SHARDS_MAX.is_power_of_two());
