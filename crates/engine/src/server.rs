//! Starting and stopping the shards.

use crate::body::{Body, Log, WAKER};
use crate::clock::Clock;
use crate::descriptors;
use crate::docket::{Control, Docket, Judge, Warden};
use crate::door::{Door, Listener};
use crate::handle::Handle;
use crate::host::{Host, STACK_BYTES, watch};
use crate::ring::{Bell, Rings};
use crate::salvo::Salvo;
use crate::seat::Hall;
use crate::shelf::Shelf;
use broker::{Command, Interest, Memory, NotRestored, Note, Options, Shard, ShardId, limits};
use mio::Poll;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use store::{Disk, Event};

/// What a server is started with.
pub struct Setup {
    pub listeners: Vec<Listener>,
    pub shards: usize,
    /// Whether shards may have the kernel do many writes in one call, where it can.
    pub io_uring: bool,
    pub options: Arc<Options>,
    /// Keys the hashes of what strangers name: drawn by the caller, anew in every process.
    pub seed: u64,
    /// Descriptors that connections of clients do not get, where there are as many.
    pub descriptors_reserved: usize,
    /// Where what clients have us keep outlives the process; none keeps it in memory.
    pub store: Option<Shelter>,
    /// Asked about every CONNECT while `Options::judges` holds, on the shard's thread: it must not
    /// wait for anything.
    pub judge: Option<Judge>,
    /// The same of what clients may do, while there is `Options::asks`.
    pub warden: Option<Warden>,
    /// Told of everything that a person may want to read, on the shard's thread.
    pub log: Box<dyn Fn(&Note) + Send + Sync>,
}

/// A folder for the store.
#[derive(Clone, Debug)]
pub struct Shelter {
    pub folder: PathBuf,
    pub options: store::Options,
}

/// Our own trouble.
#[derive(Debug)]
pub enum Fault {
    Store(store::Fault),
    /// What the store holds cannot be read; a note says why.
    Unreadable,
    /// What the store holds was written by a version that writes otherwise.
    OtherFormat,
    Listener(io::Error),
    TooManyListeners(usize),
    Poller(io::Error),
    Thread(io::Error),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Store(fault) => write!(f, "{fault}"),
            Fault::Unreadable => f.write_str("the store cannot be read"),
            Fault::OtherFormat => f.write_str("the store is that of another version of Godwit"),
            Fault::Listener(fault) => write!(f, "a listener cannot be polled: {fault}"),
            Fault::TooManyListeners(many) => {
                write!(f, "{many} sockets would listen, at most {} may", limits::LISTENERS_MAX)
            }
            Fault::Poller(fault) => write!(f, "no poller for a shard: {fault}"),
            Fault::Thread(fault) => write!(f, "no thread for a shard: {fault}"),
        }
    }
}

impl std::error::Error for Fault {}

#[derive(Debug)]
pub struct Server {
    host: JoinHandle<()>,
    handle: Handle,
    /// Ends after the shards, when it has written what they left.
    disk: Option<Disk>,
    report: Option<(store::Report, broker::Restored)>,
    descriptors_reserved: usize,
}

/// Between the wills of everyone and the end of every connection.
const WILLS_MS: u64 = 100;

impl Server {
    /// Its shards run, and nobody is let in before `open`: who comes until then waits in the
    /// kernel.
    pub fn start(setup: Setup) -> Result<Server, Fault> {
        let many = setup.listeners.len();
        if many > limits::LISTENERS_MAX {
            return Err(Fault::TooManyListeners(many));
        }
        descriptors::raise_limit();
        let shards = setup.shards.max(1);
        let clock = Clock::starting();
        let mut host = Host::new(shards, clock.clone()).map_err(Fault::Poller)?;
        let (polls, bells) = make_polls(&host, shards).map_err(Fault::Poller)?;
        let rings = Rings::all(bells);
        let bells = rings[0].bells.clone();
        let doors: Arc<[Door]> = setup.listeners.iter().map(|own| own.door.clone()).collect();
        let listeners = setup.listeners.into_iter().map(|own| own.socket.into_acceptor());
        let mut listeners = listeners.collect::<Result<_, _>>().map_err(Fault::Listener)?;
        let log: Log = setup.log.into();
        let refusing = Arc::new(AtomicUsize::new(0));
        let opened = setup.store.map(|shelter| open(shelter, &bells, &log)).transpose()?;
        let shelf = opened.as_ref().map(|(disk, _)| disk.handle());
        let mut shelf = shelf.map(|disk| Shelf::new(disk, log.clone(), refusing.clone()));
        if let Some(shelf) = &shelf
            && let Some(kept) =
                broker::stored_clock(shelf, &clock.reading()).map_err(not_restored)?
        {
            clock.resume(&kept);
        }
        let mut all = make_shards(shards, &setup.options, setup.seed, &clock);
        let restored = shelf.as_mut().map(|shelf| restore(&mut all, shelf, &clock)).transpose()?;
        let (disk, found) = opened.unzip();
        let report = found.zip(restored);
        all.iter_mut().for_each(Shard::make_presets);
        let hall = Hall::new(setup.seed);
        let mut controls = Vec::new();
        for (at, ((poll, rings), shard)) in polls.into_iter().zip(rings).zip(all).enumerate() {
            let id = ShardId(at as u8);
            let (sender, control) = channel();
            // Shard 0 accepts for all: a second process on the port gets "address in use".
            let own = if at == 0 { std::mem::take(&mut listeners) } else { Vec::new() };
            let registry = host.registry().map_err(Fault::Poller)?;
            let new_shelf = |disk: &Disk| Shelf::new(disk.handle(), log.clone(), refusing.clone());
            let shelf = disk.as_ref().map(new_shelf);
            let (judge, warden) = (setup.judge.clone(), setup.warden.clone());
            let docket = Docket::new(judge, warden, sender.clone(), bells.clone(), id);
            let body = Body::new(
                id,
                shard,
                poll,
                registry,
                rings,
                control,
                own,
                doors.clone(),
                clock.clone(),
                shelf,
                log.clone(),
                docket,
                hall.clone(),
                Salvo::new(setup.io_uring),
                &setup.options,
            );
            host.give(body);
            controls.push(sender);
        }
        let host = spawn_host(host)?;
        let (handle, descriptors_reserved) =
            (Handle::new(controls, bells), setup.descriptors_reserved);
        Ok(Server { host, handle, disk, report, descriptors_reserved })
    }

    /// What the store said when it was opened, and what came back from it.
    pub fn report(&self) -> Option<&(store::Report, broker::Restored)> {
        self.report.as_ref()
    }

    /// For whoever tells and asks shards beside its owner.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    pub fn open(&self) -> Result<(), Fault> {
        let (told, opened) = channel();
        self.handle.send_first(Control::Open { told, reserved: self.descriptors_reserved });
        // A shard that has ended lets nobody in.
        opened.recv().unwrap_or(Ok(())).map_err(Fault::Listener)
    }

    pub fn command(&self, command: Command) {
        self.handle.command(command);
    }

    /// From now on new connections find this behind the listeners, which are the same and in the
    /// same order. Nobody who is in notices.
    pub fn change_doors(&self, doors: Vec<Door>) {
        let doors: Arc<[Door]> = doors.into();
        self.handle.send(|| Control::Doors(doors.clone()));
    }

    /// Waits until every shard has done what it was told before.
    pub fn wait_until_done(&self) {
        self.handle.wait_until_done();
    }

    /// Drains and stops: wills while there is somebody to get them, then DISCONNECT to everyone.
    pub fn stop(self) -> io::Result<()> {
        self.command(Command::Drain);
        thread::sleep(Duration::from_millis(WILLS_MS));
        self.command(Command::CloseAll);
        self.handle.send(|| Control::Stop);
        self.join()
    }

    /// Waits for the shards to end.
    pub fn join(self) -> io::Result<()> {
        let ended = self.host.join();
        drop(self.disk);
        ended.map_err(|_| io::Error::other("the shards' thread panicked"))
    }
}

fn not_restored(why: NotRestored) -> Fault {
    match why {
        NotRestored::OtherFormat => Fault::OtherFormat,
        NotRestored::Unreadable => Fault::Unreadable,
    }
}

/// Fills the shards with what the store has, and says how much that was.
fn restore(all: &mut [Shard], shelf: &mut Shelf, clock: &Clock) -> Result<broker::Restored, Fault> {
    let restored = broker::restore(all, shelf, clock.now());
    let (restored, changes) = restored.map_err(not_restored)?;
    let seq = shelf.begin(changes);
    all.iter_mut().for_each(|shard| shard.began_with(seq));
    if let Some(first) = all.first_mut()
        && clock.claim_record(clock.now(), true)
    {
        first.keep_clock(&clock.reading());
    }
    Ok(restored)
}

fn spawn_host(host: Host) -> Result<JoinHandle<()>, Fault> {
    let thread = thread::Builder::new().name("shards".into()).stack_size(STACK_BYTES);
    thread.spawn(move || watch(host.run())).map_err(Fault::Thread)
}

fn make_polls(host: &Host, shards: usize) -> io::Result<(Vec<Poll>, Vec<Bell>)> {
    let (mut polls, mut bells) = (Vec::new(), Vec::new());
    for _ in 0..shards {
        let poll = Poll::new()?;
        let own = mio::Waker::new(poll.registry(), WAKER)?;
        bells.push(Bell::new(host.waker.clone(), own));
        polls.push(poll);
    }
    Ok((polls, bells))
}

fn make_shards(shards: usize, options: &Arc<Options>, seed: u64, clock: &Clock) -> Vec<Shard> {
    let interest = Arc::new(Interest::new(seed, shards));
    let memory = Arc::new(Memory::default());
    let shard = |at: usize| {
        // Drawn anew in every process: chance that could be replayed would give out the same
        // client ids again.
        let chance = RandomState::new().hash_one(at);
        let (interest, memory) = (interest.clone(), memory.clone());
        let id = ShardId(at as u8);
        let options = options.clone();
        let mut shard =
            Shard::new(id, shards, options, interest, memory, seed, chance, clock.now());
        shard.time_rules(Clock::ns);
        shard.set_time_of_day(clock.time_of_day_offset_ms());
        shard
    };
    (0..shards).map(shard).collect()
}

fn open(shelter: Shelter, bells: &Arc<[Bell]>, log: &Log) -> Result<(Disk, store::Report), Fault> {
    let (bells, log) = (bells.clone(), log.clone());
    let notify = move |event| match event {
        Event::Durable(_) | Event::Roomy => bells.iter().for_each(Bell::ring_for_disk),
        Event::Failing(fault) => log(&Note::StoreFailing { fault: fault.to_string().into() }),
        Event::Damaged(fault) => log(&Note::StoreUnreadable { fault: fault.to_string().into() }),
        Event::Recovered => {
            log(&Note::StoreRecovered);
            bells.iter().for_each(Bell::ring_for_disk);
        }
    };
    Disk::open(&shelter.folder, shelter.options, Box::new(notify)).map_err(Fault::Store)
}
