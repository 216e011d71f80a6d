//! QUIC on the shard's own loop: quinn-proto does the protocol, this brings it datagrams and time.
//!
//! ```text
//! UDP socket -> Entrance (shard 0) -> Trunk (any shard) -> strand, a Socket like any other -> MQTT
//!                    ^  ids, resets       |
//!                    +--------------------+-> datagrams out, by the same UDP socket
//! ```
//!
//! Of one UDP socket shard 0 reads, and its entrance knows by its ids which trunk a datagram is
//! for, wherever the peer's address has gone meanwhile. A trunk is where its client is at home, and
//! everything that a connection costs is done there; it moves once, like a socket, and what comes
//! for it afterwards follows it over the ring. What an entrance and a trunk say to each other goes
//! the same way.

mod entrance;
mod terms;
mod trunk;

pub use terms::{Manners, Terms};

pub(crate) use carrier::Udp;
pub(crate) use entrance::Entrance;
pub(crate) use trunk::Trunk;

use crate::body::Body;
use crate::door::Door;
use crate::ring::Parcel;
use crate::socket::Socket;
use crate::stream::Acceptor;
use broker::{ListenerId, Peer, ShardId};
use quinn_proto::{ConnectionEvent, ConnectionHandle, EndpointEvent};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A shard's part of it. There is none before the first listener or the first trunk.
pub(crate) struct Quic {
    entrances: Vec<Entrance>,
    trunks: Vec<Option<Box<Trunk>>>,
    free: Vec<u32>,
    places: HashMap<Name, u32>,
    /// Trunks that have heard something ...
    fresh: Vec<u32>,
    /// ... and those that may have something to say.
    touched: Vec<u32>,
    /// Sockets of streams whose connection has ended.
    orphans: Vec<u32>,
    /// Trunks of which the UDP socket did not take a datagram.
    stalled: Vec<u32>,
    timers: BTreeSet<(Instant, u32)>,
    now: Instant,
    /// What is sent at this moment, and what was received.
    sent: Vec<u8>,
    received: Vec<u8>,
    /// Trunks whose handshake is not done.
    opening: usize,
    /// Nobody new comes in.
    draining: bool,
}

/// A trunk, whichever shard it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    listener: ListenerId,
    handle: ConnectionHandle,
}

/// What travels in a ring because of QUIC.
pub(crate) enum Word {
    /// To a trunk: a datagram, or an answer of its entrance.
    Came { name: Name, event: ConnectionEvent },
    /// To its entrance.
    Asks { name: Name, event: EndpointEvent },
    /// A trunk on its way home, with the socket of its control stream.
    Moves { trunk: Box<Trunk>, socket: Box<Socket>, peer: Peer },
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Came { name, .. } => f.debug_tuple("Came").field(name).finish(),
            Word::Asks { name, .. } => f.debug_tuple("Asks").field(name).finish(),
            Word::Moves { peer, .. } => f.debug_tuple("Moves").field(peer).finish(),
        }
    }
}

/// While the UDP socket takes no more.
const STALLED: Duration = Duration::from_millis(1);

impl Quic {
    pub(crate) fn new(now: Instant) -> Quic {
        Quic {
            entrances: Vec::new(),
            trunks: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            fresh: Vec::new(),
            touched: Vec::new(),
            orphans: Vec::new(),
            stalled: Vec::new(),
            timers: BTreeSet::new(),
            now,
            sent: Vec::new(),
            received: Vec::new(),
            opening: 0,
            draining: false,
        }
    }

    /// With the entrances of those listeners that have one.
    pub(crate) fn at(listeners: &[Acceptor], doors: &[Door]) -> Option<Box<Quic>> {
        if doors.iter().all(|door| door.quic.is_none()) {
            return None;
        }
        let mut quic = Box::new(Quic::new(Instant::now()));
        for (at, (listener, door)) in listeners.iter().zip(doors).enumerate() {
            if let (Acceptor::Quic(udp), Some(terms)) = (listener, &door.quic) {
                let listener = ListenerId(at as u8);
                quic.entrances.push(Entrance::new(listener, udp.clone(), terms));
            }
        }
        (!quic.entrances.is_empty()).then_some(quic)
    }

    pub(crate) fn timeout(&self, now: Instant) -> Option<Duration> {
        let busy = !self.fresh.is_empty() || self.entrances.iter().any(Entrance::is_busy);
        if busy {
            return Some(Duration::ZERO);
        }
        let timer = self.timers.first().map(|(at, _)| at.saturating_duration_since(now));
        let stalled = (!self.stalled.is_empty()).then_some(STALLED);
        timer.into_iter().chain(stalled).min()
    }

    fn trunk(&mut self, at: u32) -> Option<&mut Trunk> {
        Some(self.trunks.get_mut(at as usize)?.as_mut()?)
    }

    fn entrance(&mut self, listener: ListenerId) -> Option<&mut Entrance> {
        self.entrances.iter_mut().find(|own| own.listener == listener)
    }

    fn add(&mut self, mut trunk: Box<Trunk>) -> u32 {
        let name = trunk.name;
        (trunk.touched, trunk.fresh, trunk.timer) = (false, false, None);
        let at = self.free.pop().unwrap_or_else(|| {
            self.trunks.push(None);
            self.trunks.len() as u32 - 1
        });
        self.trunks[at as usize] = Some(trunk);
        self.places.insert(name, at);
        at
    }

    fn remove(&mut self, at: u32) -> Option<Box<Trunk>> {
        let trunk = self.trunks.get_mut(at as usize)?.take()?;
        if let Some(timer) = trunk.timer {
            self.timers.remove(&(timer, at));
        }
        self.places.remove(&trunk.name);
        self.free.push(at);
        if self.places.is_empty() {
            (self.trunks, self.free, self.places) = Default::default();
        }
        Some(trunk)
    }

    /// It has heard something: it is driven before the turn ends.
    fn hear(&mut self, at: u32) {
        if let Some(trunk) = self.trunk(at)
            && !trunk.fresh
        {
            trunk.fresh = true;
            self.fresh.push(at);
        }
        self.touch(at);
    }

    /// It may have something to say: that goes out when the turn ends.
    fn touch(&mut self, at: u32) {
        if let Some(trunk) = self.trunk(at)
            && !trunk.touched
        {
            trunk.touched = true;
            self.touched.push(at);
        }
    }
}

impl Body {
    pub(crate) fn change_doors(&mut self, doors: Arc<[Door]>) {
        if let Some(quic) = &mut self.quic {
            quic.change(&doors);
        }
        self.doors = doors;
    }

    /// The time of this turn.
    pub(crate) fn set_time_of_quic(&mut self, now: Instant) {
        if let Some(quic) = &mut self.quic {
            quic.now = now;
        }
    }

    pub(crate) fn close_listeners(&mut self) {
        self.listeners.clear();
        self.drop_waiting();
        if let Some(quic) = &mut self.quic {
            quic.draining = true;
        }
    }

    /// What a ring brought. Nothing is driven here: a ring is looked into while a read goes on.
    pub(crate) fn hear_of_quic(&mut self, word: Word) {
        let quic = self.quic.get_or_insert_with(|| Box::new(Quic::new(Instant::now())));
        match word {
            Word::Came { name, event } => {
                // Its trunk may have gone meanwhile.
                let Some(&at) = quic.places.get(&name) else { return };
                let Some(trunk) = quic.trunk(at) else { return };
                trunk.conn.handle_event(event);
                quic.hear(at);
            }
            Word::Asks { name, event } => {
                if let Some(event) = self.ask_entrance(name, event) {
                    self.tell_trunk(name, event);
                }
            }
            Word::Moves { trunk, mut socket, peer } => {
                let at = quic.add(trunk);
                quic.hear(at);
                socket.stream = crate::stream::Stream::Quic { trunk: at };
                self.open(*socket, peer, true);
                let index = self.quic.as_mut().and_then(|quic| quic.trunk(at)?.control);
                if let Some(index) = index {
                    self.list(index);
                }
            }
        }
    }

    fn tell_trunk(&mut self, name: Name, event: ConnectionEvent) {
        let Some(quic) = &mut self.quic else { return };
        if let Some(&at) = quic.places.get(&name) {
            let Some(trunk) = quic.trunk(at) else { return };
            let began = trunk.opening.then(Instant::now);
            trunk.conn.handle_event(event);
            quic.hear(at);
            self.handshakes += began.map_or(Duration::ZERO, |began| began.elapsed());
            return;
        }
        let away = quic.entrance(name.listener).and_then(|own| own.away.get(&name.handle).copied());
        if let Some(shard) = away {
            self.tell_shard(shard, Word::Came { name, event });
        }
    }

    /// What the entrance answers, where it is here.
    fn ask_entrance(&mut self, name: Name, event: EndpointEvent) -> Option<ConnectionEvent> {
        let Some(entrance) = self.quic.as_mut()?.entrance(name.listener) else {
            self.tell_shard(ShardId(0), Word::Asks { name, event });
            return None;
        };
        if event.is_drained() {
            entrance.away.remove(&name.handle);
        }
        entrance.endpoint.handle_event(name.handle, event)
    }

    fn tell_shard(&mut self, shard: ShardId, word: Word) {
        let to = usize::from(shard.0);
        let mut parcel = Parcel::Quic(Box::new(word));
        // Nothing overtakes what waits for a ring.
        if self.homeward.is_empty()
            && let Some(ring) = &mut self.rings.outbound[to]
        {
            match ring.push(parcel) {
                Ok(()) => return self.rings.bells[to].ring(),
                Err(back) => parcel = back,
            }
        }
        self.homeward.push_back((to, parcel));
    }

    /// Lets trunks that have heard something act on it.
    pub(crate) fn drive_fresh(&mut self) {
        let Some(quic) = &mut self.quic else { return };
        for at in std::mem::take(&mut quic.fresh) {
            self.drive(at);
        }
    }

    /// Fires what is due, and drives what has heard something since sockets were read.
    pub(crate) fn tick_quic(&mut self) {
        self.drive_fresh();
        loop {
            let Some(quic) = &mut self.quic else { return };
            let now = quic.now;
            let Some(&(due, at)) = quic.timers.first().filter(|(due, _)| *due <= now) else {
                return self.end_trunks_at_last();
            };
            quic.timers.remove(&(due, at));
            if let Some(trunk) = quic.trunk(at) {
                trunk.timer = None;
                trunk.conn.handle_timeout(now);
                quic.touch(at);
                self.drive(at);
            }
        }
    }

    /// The shard ends: a peer that has not acknowledged our last words yet hears of it all the
    /// same. What it answers may find nobody, since the entrance's shard may have ended before.
    fn end_trunks_at_last(&mut self) {
        if !self.has_ended() {
            return;
        }
        let Some(quic) = &self.quic else { return };
        let trunks = quic.trunks.iter().flatten();
        let sockets: Vec<u32> = trunks.filter_map(|trunk| trunk.control).collect();
        sockets.into_iter().for_each(|index| self.forget(index));
    }

    /// Sends what trunks have to say, once everything else of the turn is done.
    pub(crate) fn flush_quic(&mut self) {
        let Some(quic) = &mut self.quic else { return };
        for at in std::mem::take(&mut quic.stalled) {
            quic.touch(at);
        }
        for index in std::mem::take(&mut quic.orphans) {
            self.lost(index);
        }
        let Some(quic) = &mut self.quic else { return };
        for at in std::mem::take(&mut quic.touched) {
            self.open_branches(at);
            self.flush(at);
        }
    }

    fn flush(&mut self, at: u32) {
        loop {
            let Some(trunk) = self.quic.as_mut().and_then(|quic| quic.trunk(at)) else { return };
            trunk.touched = false;
            let Some(event) = trunk.conn.poll_endpoint_events() else { break };
            let name = trunk.name;
            if event.is_drained() {
                if let Some(quic) = &mut self.quic {
                    quic.remove(at);
                }
                self.ask_entrance(name, event);
                return;
            }
            let answer = self.ask_entrance(name, event);
            let trunk = self.quic.as_mut().and_then(|quic| quic.trunk(at));
            if let (Some(trunk), Some(event)) = (trunk, answer) {
                trunk.conn.handle_event(event);
            }
        }
        if let Some(quic) = &mut self.quic {
            quic.send(at);
        }
    }
}
