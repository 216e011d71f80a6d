//! The engine's stand-in: shards, a clock that only moves when told, wires that can be cut, slow
//! or torn at any byte, and lanes between shards that keep their order. It does what the engine
//! does with inputs and effects, so what holds here holds there. With a seed the order of events
//! is drawn; without one it is fixed.

use crate::chance::Chance;
use crate::disk::{Disk, Syncs};
use crate::kernel::{Kernel, Knock};
use crate::people::People;
use crate::shelf::Shelf;
use crate::warden::Warden;
use broker::arrivals::Entry;
use broker::{
    Address, Command, ConnId, Cross, Effect, Input, Interest, ListenerId, Memory, Now, Options,
    Outbox, Peer, Reading, Shard, ShardId,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Names one wire for the whole run: connections are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireId(pub usize);

#[derive(Debug)]
pub struct World {
    pub now: Now,
    places: Vec<Place>,
    wires: Vec<Wire>,
    chance: Option<Chance>,
    options: Arc<Options>,
    seed: u64,
    disk: Option<Disk>,
    people: People,
    warden: Warden,
    kernel: Kernel,
    write_bytes_max: usize,
}

/// One shard with what the engine keeps for it.
#[derive(Debug)]
struct Place {
    shard: Shard,
    out: Outbox,
    shelf: Shelf,
    conns: Vec<Option<WireId>>,
    /// What other shards said, a queue a sender.
    lanes: Vec<VecDeque<Cross>>,
}

#[derive(Debug)]
struct Wire {
    /// Where the broker's end is; `None` once it is closed.
    end: Option<(usize, ConnId)>,
    to_broker: Vec<u8>,
    /// Unread bytes that the shard has not seen since it last said that it wants more.
    ready: bool,
    held: bool,
    /// Written by the broker, not yet taken by the network.
    unsent: VecDeque<u8>,
    /// Arrived at the client, not yet read by it.
    to_client: VecDeque<u8>,
    /// The client reads nothing: its socket takes `room` more bytes.
    stalled: bool,
    room: usize,
    congested: bool,
    /// The client went without a word.
    cut: bool,
}

/// What a client's socket takes while the client does not read.
const STALLED_ROOM: usize = 1024;
/// A world that is still busy after this many rounds will never be quiet.
const ROUNDS_MAX: usize = 100_000;
/// How long the disk lets batches wait for which nobody waits.
const LAZY_MS: u64 = 1000;

impl World {
    /// Where clients come from that say nothing else.
    pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// `chance` draws the order of events where it is given.
    pub fn new(options: Options, shards: usize, seed: u64, chance: Option<Chance>) -> World {
        let write_bytes_max = options.write_bytes_max as usize;
        let options = Arc::new(options);
        let mut world = World {
            now: Now(0),
            places: Vec::new(),
            wires: Vec::new(),
            chance,
            options,
            seed,
            disk: None,
            people: People::default(),
            warden: Warden::default(),
            kernel: Kernel::new(seed),
            write_bytes_max,
        };
        world.start(shards);
        world
    }

    /// Who may come in, for worlds that ask.
    pub fn people(&mut self) -> &mut People {
        &mut self.people
    }

    /// Who says what clients may do, for worlds that ask.
    pub fn warden(&mut self) -> &mut Warden {
        &mut self.warden
    }

    /// The first of those who wait to hear what they may do are told.
    pub fn permit(&mut self, count: usize) {
        let count = count.min(self.warden.waiting.len());
        let told: Vec<_> = self.warden.waiting.drain(..count).collect();
        for (at, slip, question) in told {
            let answer = self.warden.answer(&question);
            self.tell(at, Input::Answered { slip, answer });
        }
    }

    /// Everyone who waits at the door is told.
    pub fn judge(&mut self) {
        for (at, conn, case, claim) in std::mem::take(&mut self.people.waiting) {
            let verdict = self.people.verdict(&claim);
            self.tell(at, Input::Verdict { conn, case, verdict });
        }
    }

    /// What is stored outlives `power` and `restart` from here on.
    pub fn keep(&mut self) {
        self.disk = Some(Disk::default());
        self.start(self.places.len());
    }

    pub fn disk(&mut self) -> Option<&mut Disk> {
        self.disk.as_mut()
    }

    /// Whether the power has gone in the middle of things: nothing happens before `power`.
    pub fn is_stopped(&self) -> bool {
        self.disk.as_ref().is_some_and(Disk::is_stopped)
    }

    /// The machine goes, with all that was not synced, and comes back with so many shards.
    pub fn power(&mut self, shards: usize) {
        if let Some(disk) = &mut self.disk {
            disk.forget();
            disk.syncs = Syncs::Everything;
        }
        for wire in &mut self.wires {
            wire.end = None;
            wire.to_broker.clear();
            wire.unsent.clear();
        }
        self.kernel = Kernel::new(self.seed);
        // Another process has other keys.
        self.seed = self.seed.wrapping_mul(31).wrapping_add(7);
        self.start(shards);
    }

    fn start(&mut self, shards: usize) {
        let (seed, now) = (self.seed, self.now);
        let interest = Arc::new(Interest::new(seed, shards));
        let memory = Arc::new(Memory::default());
        let shard = |at| {
            let id = ShardId(at as u8);
            let own_chance = seed ^ (at as u64 + 1) << 32;
            let (interest, memory) = (interest.clone(), memory.clone());
            let options = self.options.clone();
            Shard::new(id, shards, options, interest, memory, seed, own_chance, now)
        };
        let mut all: Vec<Shard> = (0..shards).map(shard).collect();
        if let Some(disk) = &mut self.disk {
            let restored = broker::restore(&mut all, disk, now);
            let (_, changes) = restored.expect("this disk can be read");
            let seq = disk.commit(changes, true);
            all.iter_mut().for_each(|shard| shard.began_with(seq));
        }
        all.iter_mut().for_each(Shard::make_presets);
        let place = |shard| {
            let lanes = (0..shards).map(|_| VecDeque::new()).collect();
            let shelf = Shelf::default();
            Place { shard, out: Outbox::new(shards), shelf, conns: Vec::new(), lanes }
        };
        self.places = all.into_iter().map(place).collect();
    }

    /// A client connects: to each shard in turn, so that every one greets and is moved to.
    pub fn open(&mut self) -> WireId {
        self.open_by(ListenerId(0), World::HERE)
    }

    /// It is as well closed as soon as it is accepted.
    pub fn open_by(&mut self, listener: ListenerId, address: IpAddr) -> WireId {
        let wire = WireId(self.wires.len());
        self.wires.push(Wire {
            end: None,
            to_broker: Vec::new(),
            ready: false,
            held: false,
            unsent: VecDeque::new(),
            to_client: VecDeque::new(),
            stalled: false,
            room: 0,
            congested: false,
            cut: false,
        });
        let address = (address, 10_000 + wire.0 as u16).into();
        self.kernel.push(wire, listener, Address::Network(address));
        self.accept();
        wire
    }

    /// Lets in who waits, as fast as that may be.
    fn accept(&mut self) {
        while let Some((knock, entry)) = self.kernel.accept(self.now, &self.options) {
            let mut peer = knock.peer();
            let Knock { wire, address, .. } = knock;
            let at = wire.0 % self.places.len();
            let place = &mut self.places[at];
            match entry {
                _ if place.shard.turns_away(self.now, address, &mut place.out) => {
                    self.kernel.leave(wire);
                    continue;
                }
                Entry::In(_) => {}
                Entry::Told(refusal) => peer.turn_down(refusal),
                Entry::Closed(_) => continue,
            }
            self.attach(wire, at, peer, false);
        }
    }

    fn attach(&mut self, wire: WireId, at: usize, peer: Peer, moved: bool) {
        let place = &mut self.places[at];
        let free = place.conns.iter().position(Option::is_none);
        let index = free.unwrap_or(place.conns.len());
        if index == place.conns.len() {
            place.conns.push(None);
        }
        place.conns[index] = Some(wire);
        let conn = ConnId(index as u32);
        self.wires[wire.0].end = Some((at, conn));
        self.wires[wire.0].ready = !self.wires[wire.0].to_broker.is_empty();
        let input = Input::Opened { conn, peer, since: self.now, moved };
        place.shard.handle(self.now, input, &mut place.out);
    }

    /// The client writes.
    pub fn write(&mut self, wire: WireId, bytes: &[u8]) {
        let waits = self.kernel.is_waiting(wire);
        let wire = &mut self.wires[wire.0];
        if (wire.end.is_some() || waits) && !bytes.is_empty() {
            wire.to_broker.extend_from_slice(bytes);
            wire.ready = true;
        }
    }

    /// What arrived at the client since it last read.
    pub fn read(&mut self, wire: WireId) -> Vec<u8> {
        let wire = &mut self.wires[wire.0];
        if wire.stalled { Vec::new() } else { wire.to_client.drain(..).collect() }
    }

    /// Whether the broker has closed the connection.
    pub fn is_closed(&self, wire: WireId) -> bool {
        let waits = self.kernel.is_waiting(wire);
        let wire = &self.wires[wire.0];
        wire.end.is_none() && wire.unsent.is_empty() && !waits
    }

    /// Whether the broker has more to write than it likes: until that is taken messages wait.
    pub fn is_congested(&self, wire: WireId) -> bool {
        self.wires[wire.0].congested
    }

    /// The transport goes without a word.
    pub fn cut(&mut self, wire: WireId) {
        self.kernel.leave(wire);
        let wire = &mut self.wires[wire.0];
        wire.cut = true;
        wire.to_broker.clear();
        wire.unsent.clear();
        wire.to_client.clear();
        let Some((at, conn)) = wire.end.take() else { return };
        self.places[at].conns[conn.0 as usize] = None;
        self.tell(at, Input::Closed { conn });
    }

    /// The client stops reading, or goes on.
    pub fn stall(&mut self, wire: WireId, stalled: bool) {
        let wire = &mut self.wires[wire.0];
        (wire.stalled, wire.room) = (stalled, STALLED_ROOM);
    }

    pub fn command(&mut self, command: &Command) {
        if let Command::Reload(options) = command {
            self.write_bytes_max = options.write_bytes_max as usize;
            self.options = options.clone();
        }
        for at in 0..self.places.len() {
            self.tell(at, Input::Command(command.clone()));
        }
    }

    /// One shard hears it, and what follows is done.
    fn tell(&mut self, at: usize, input: Input<'_>) {
        let place = &mut self.places[at];
        place.shard.handle(self.now, input, &mut place.out);
        self.act(at);
    }

    /// More waits for the disk than it likes, or no longer.
    pub fn crowd(&mut self, is_crowded: bool) {
        for at in 0..self.places.len() {
            let place = &mut self.places[at];
            place.shard.set_store_crowded(self.now, is_crowded, &mut place.out);
            self.act(at);
        }
    }

    /// The store has no room, or some again.
    pub fn fill(&mut self, is_full: bool) {
        self.places.iter_mut().for_each(|place| place.shard.set_store_full(is_full));
    }

    /// Runs until nothing is left to do at this moment.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.round() {
                return;
            }
        }
        panic!("the world does not come to rest at {:?}", self.now);
    }

    /// Runs so many turns, and leaves what is not finished then as it is.
    pub fn some_rounds(&mut self, rounds: usize) {
        (0..rounds).for_each(|_| {
            self.round();
        });
    }

    /// Lets time pass, with every tick that becomes due on the way.
    pub fn pass(&mut self, ms: u64) {
        self.settle();
        let until = Now(self.now.0 + ms);
        while !self.is_stopped() {
            let due = self.places.iter().filter_map(|place| place.shard.next_tick());
            let due = due.chain(self.kernel.due(self.now, &self.options)).min();
            let Some(due) = due.filter(|due| *due <= until) else { break };
            self.now = due.max(self.now);
            self.accept();
            self.settle();
        }
        self.now = self.now.max(until);
        if let Some(disk) = self.disk.as_mut().filter(|_| ms >= LAZY_MS) {
            disk.want_all();
            self.settle();
        }
    }

    /// One turn of every shard. Says whether anything happened.
    fn round(&mut self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let mut busy = false;
        for at in self.order(self.places.len()) {
            busy |= self.turn(at);
        }
        busy |= self.sync();
        busy |= self.network();
        busy
    }

    /// The disk keeps what it took, all or some of it.
    fn sync(&mut self) -> bool {
        let Some(disk) = &mut self.disk else { return false };
        let unsynced = disk.unsynced();
        if unsynced == 0 {
            return false;
        }
        let chance = self.chance.as_mut();
        disk.sync(chance.map_or(unsynced, |chance| chance.below(unsynced + 1)));
        let seq = disk.durable();
        for at in 0..self.places.len() {
            if self.places[at].shard.waits_for_disk() && !self.is_stopped() {
                self.tell(at, Input::Durable { seq });
            }
        }
        true
    }

    fn order(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        if let Some(chance) = &mut self.chance {
            for at in (1..len).rev() {
                order.swap(at, chance.below(at + 1));
            }
        }
        order
    }

    fn turn(&mut self, at: usize) -> bool {
        if self.is_stopped() {
            return false;
        }
        let mut busy = false;
        for from in self.order(self.places.len()) {
            let len = self.places[at].lanes[from].len();
            let take = self.chance.as_mut().map_or(len, |chance| chance.below(len + 1).max(1));
            for _ in 0..take.min(len) {
                let place = &mut self.places[at];
                let Some(cross) = place.lanes[from].pop_front() else { break };
                let from = ShardId(from as u8);
                place.shard.handle(self.now, Input::Cross { from, cross }, &mut place.out);
                busy = true;
            }
        }
        // Rings come before sockets: what another shard said is known before a client's next word.
        if self.places[at].lanes.iter().all(VecDeque::is_empty) {
            for index in self.order(self.places[at].conns.len()) {
                busy |= self.feed(at, ConnId(index as u32));
            }
        }
        let place = &mut self.places[at];
        if place.shard.next_tick().is_some_and(|due| due <= self.now) {
            place.shard.handle(self.now, Input::Tick, &mut place.out);
            busy = true;
        }
        let was_full = place.shelf.is_full();
        self.act(at);
        let is_full = self.places[at].shelf.is_full();
        // With chance the disk takes it sooner or later.
        busy | (is_full && self.chance.is_some()) | (was_full && !is_full)
    }

    /// Gives the shard what one connection's client has sent.
    fn feed(&mut self, at: usize, conn: ConnId) -> bool {
        let place = &mut self.places[at];
        let Some(id) = place.conns[conn.0 as usize] else { return false };
        let wire = &mut self.wires[id.0];
        if wire.held || !wire.ready {
            return false;
        }
        let len = wire.to_broker.len();
        let len = self
            .chance
            .as_mut()
            .map_or(len, |chance| if chance.one_in(4) { 1 + chance.below(len) } else { len });
        let bytes = &wire.to_broker[..len];
        place.shard.handle(self.now, Input::Bytes { conn, bytes }, &mut place.out);
        let consumed = place.out.consumed;
        assert!(consumed <= len, "no more than was given");
        let unseen = wire.to_broker.len() > len;
        wire.to_broker.drain(..consumed);
        // What was seen and not taken is no whole packet yet, or held: only more bytes or Resume
        // change that.
        wire.ready = (unseen || place.out.is_full()) && !wire.to_broker.is_empty();
        true
    }

    /// Performs what the shard decided.
    fn act(&mut self, at: usize) {
        if !self.is_stopped() {
            self.commit(at);
        }
        if self.is_stopped() {
            // What was decided with the last batch is not done any more.
            let shards = self.places.len();
            self.places[at].out = Outbox::new(shards);
            return;
        }
        let place = &mut self.places[at];
        for write in place.out.writes() {
            let Some(Some(id)) = place.conns.get(write.conn.0 as usize) else { continue };
            let wire = &mut self.wires[id.0];
            wire.unsent.extend(write.slices(&place.out.arena).flatten());
        }
        let effects = std::mem::take(&mut place.out.effects);
        for to in 0..self.places.len() {
            let said: Vec<Cross> = self.places[at].out.lanes[to].drain(..).collect();
            self.places[to].lanes[at].extend(said);
        }
        self.places[at].out.clear();
        for effect in effects {
            self.perform(at, effect);
        }
    }

    fn commit(&mut self, at: usize) {
        let Some(disk) = &mut self.disk else { return };
        let place = &mut self.places[at];
        // As in the engine: what is paid at once may write more.
        while place.shard.has_records() || place.shelf.is_full() {
            let (changes, urgent) = place.shard.take_records();
            let chance = self.chance.as_mut();
            let refuses = disk.refuses && chance.is_none_or(|chance| !chance.one_in(4));
            let Some(seq) = place.shelf.commit(changes, urgent, disk, refuses) else {
                let shelf = &place.shelf;
                return place.out.hold_back(|space, key| shelf.has_parked(space, key));
            };
            place.out.let_go(|cross| place.shard.say_late(cross));
            let durable = disk.durable();
            place.shard.handle(self.now, Input::Committed { seq, durable }, &mut place.out);
        }
    }

    fn hand_store(&mut self, at: usize, reading: Reading) {
        let Some(disk) = &self.disk else { return };
        let place = &mut self.places[at];
        let stored = &disk.with(&place.shelf.parked());
        place.shard.handle(self.now, Input::Stored { reading, stored }, &mut place.out);
        self.act(at);
    }

    fn perform(&mut self, at: usize, effect: Effect) {
        if let Effect::Read { reading } = effect {
            return self.hand_store(at, reading);
        }
        if let Effect::Ask { slip, question } = effect {
            self.warden.hear(at, slip, *question);
            if !self.warden.waits {
                self.permit(usize::MAX);
            }
            return;
        }
        if let Effect::Judge { conn, case, claim } = effect {
            self.people.waiting.push((at, conn, case, *claim));
            if !self.people.waits {
                self.judge();
            }
            return;
        }
        let (Effect::Close { conn }
        | Effect::Hold { conn }
        | Effect::Move { conn, .. }
        | Effect::Resume { conn }) = effect
        else {
            return;
        };
        let Some(id) = self.places[at].conns[conn.0 as usize] else { return };
        let wire = &mut self.wires[id.0];
        match effect {
            Effect::Close { .. } => {
                wire.end = None;
                wire.to_broker.clear();
                self.kernel.leave(id);
                self.places[at].conns[conn.0 as usize] = None;
            }
            Effect::Hold { .. } => wire.held = true,
            Effect::Resume { .. } => {
                wire.held = false;
                wire.ready = !wire.to_broker.is_empty();
            }
            Effect::Move { shard, peer, .. } => {
                self.places[at].conns[conn.0 as usize] = None;
                self.attach(id, usize::from(shard.0), peer, true);
            }
            Effect::Ask { .. } | Effect::Judge { .. } | Effect::Read { .. } => {}
        }
    }

    /// Bytes travel to the clients as far as their sockets take them; congestion comes and goes.
    fn network(&mut self) -> bool {
        let mut busy = false;
        for wire in &mut self.wires {
            let len = wire.unsent.len();
            let mut take = if wire.stalled { wire.room.min(len) } else { len };
            if let Some(chance) = &mut self.chance
                && chance.one_in(4)
            {
                take = chance.below(take + 1).max(take.min(1));
            }
            busy |= take > 0;
            wire.room = wire.room.saturating_sub(take);
            wire.to_client.extend(wire.unsent.drain(..take));
            let congested = match wire.congested {
                false => wire.unsent.len() > self.write_bytes_max,
                true => !wire.unsent.is_empty(),
            };
            let Some((at, conn)) = wire.end.filter(|_| congested != wire.congested) else {
                continue;
            };
            wire.congested = congested;
            let input = match congested {
                true => Input::Congested { conn },
                false => Input::Writable { conn },
            };
            let place = &mut self.places[at];
            place.shard.handle(self.now, input, &mut place.out);
            busy = true;
        }
        busy
    }
}
