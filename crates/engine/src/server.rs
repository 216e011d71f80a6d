//! Starts and stops the shards of the broker.

use crate::batched_send::BatchedSend;
use crate::clock::SystemClock;
use crate::connection_acceptor::ConnectionAcceptor;
use crate::connection_limiter::ConnectionLimiter;
use crate::connections::ShardConnections;
use crate::descriptors;
use crate::handle::EngineHandle;
use crate::listener::{Listener, ListenerTransport};
use crate::pending_auth::{AuthHandler, AuthzHandler, PendingAuth};
use crate::poll_token::WAKER;
use crate::quic::QuicShard;
use crate::ring::{ShardRings, ShardWaker};
use crate::scheduler::{STACK_BYTES, Scheduler, panic_on_failure};
use crate::shard_control::ShardControl;
use crate::shard_driver::ShardDriver;
use crate::shard_turn::{EventLogger, ShardTurn};
use crate::socket_registry::SocketRegistry;
use crate::store_client::StoreClient;
use broker::{
    BrokerEvent, BrokerOptions, Interest, ProcessMemory, RestoreError, Shard, ShardCommand,
    ShardId, limits,
};
use mio::Poll;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use store::{DiskStore, StoreEvent};

/// Options of [`Server::start`].
pub struct ServerOptions {
    pub listeners: Vec<Listener>,
    pub shards: usize,
    /// Whether a shard may submit many writes in one call of io_uring, where the kernel permits.
    pub io_uring: bool,
    pub options: Arc<BrokerOptions>,
    /// Key of the hashes over names chosen by clients. The caller draws a new value in every
    /// process.
    pub seed: u64,
    /// Number of descriptors reserved from client connections; fewer if the limit is low.
    pub descriptors_reserved: usize,
    /// Location of the store for sessions and messages across restarts; `None` keeps both in
    /// memory.
    pub store: Option<StoreLocation>,
    /// Decides about each CONNECT while `BrokerOptions::authenticates` holds. Runs on the shard's
    /// thread, so must not block.
    pub auth_handler: Option<AuthHandler>,
    /// Handler of authorization requests, used with `BrokerOptions::authz`.
    pub authz_handler: Option<AuthzHandler>,
    /// Receives every event of interest to an operator. Runs on the thread of a shard or of the
    /// store.
    pub log: Box<dyn Fn(&BrokerEvent) + Send + Sync>,
}

/// Folder and options of the store.
#[derive(Clone, Debug)]
pub struct StoreLocation {
    pub folder: PathBuf,
    pub options: store::StoreOptions,
}

/// Why [`Server::start`] or [`Server::open_listeners`] failed.
#[derive(Debug)]
pub enum ServerFault {
    Store(store::Fault),
    /// The store cannot be read; the log has the reason as an event.
    Unreadable,
    /// The store was written by a version of Godwit with another format.
    OtherFormat,
    Listener(io::Error),
    TooManyListeners(usize),
    Poller(io::Error),
    Thread(io::Error),
}

impl std::fmt::Display for ServerFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerFault::Store(fault) => write!(f, "{fault}"),
            ServerFault::Unreadable => f.write_str("the store cannot be read"),
            ServerFault::OtherFormat => {
                f.write_str("the store is that of another version of Godwit")
            }
            ServerFault::Listener(fault) => write!(f, "a listener cannot be polled: {fault}"),
            ServerFault::TooManyListeners(many) => {
                write!(f, "{many} sockets would listen, at most {} may", limits::LISTENERS_MAX)
            }
            ServerFault::Poller(fault) => write!(f, "no poller for a shard: {fault}"),
            ServerFault::Thread(fault) => write!(f, "no thread for a shard: {fault}"),
        }
    }
}

impl std::error::Error for ServerFault {}

#[derive(Debug)]
pub struct Server {
    scheduler: JoinHandle<()>,
    handle: EngineHandle,
    /// Dropped after the shards have ended, when the store has written their last records.
    disk: Option<DiskStore>,
    report: Option<(store::RecoveryReport, broker::RestoreStats)>,
    descriptors_reserved: usize,
}

/// Time in milliseconds between publishing all wills and closing all connections.
const WILLS_MS: u64 = 100;

impl Server {
    /// Starts the shards. Clients are accepted from [`Server::open_listeners`] on, and wait in the
    /// kernel until then.
    pub fn start(setup: ServerOptions) -> Result<Server, ServerFault> {
        if setup.listeners.len() > limits::LISTENERS_MAX {
            return Err(ServerFault::TooManyListeners(setup.listeners.len()));
        }
        descriptors::raise_descriptor_limit();
        let shards = setup.shards.max(1);
        let clock = SystemClock::starting();
        let mut scheduler = Scheduler::new(shards, clock.clone()).map_err(ServerFault::Poller)?;
        let (polls, wakers) = make_polls(&scheduler, shards).map_err(ServerFault::Poller)?;
        let rings = ShardRings::all(wakers);
        let wakers = rings[0].wakers();
        let transports: Arc<[ListenerTransport]> =
            setup.listeners.iter().map(|own| own.transport.clone()).collect();
        let listeners = setup.listeners.into_iter().map(|own| own.socket.into_acceptor());
        let mut listeners = listeners.collect::<Result<_, _>>().map_err(ServerFault::Listener)?;
        let log: EventLogger = setup.log.into();
        let refusing = Arc::new(AtomicUsize::new(0));
        let opened = setup.store.map(|shelter| open_store(shelter, &wakers, &log)).transpose()?;
        let store = opened.as_ref().map(|(disk, _)| disk.handle());
        let mut store = store.map(|disk| StoreClient::new(disk, log.clone(), refusing.clone()));
        if let Some(store) = &store
            && let Some(kept) =
                broker::stored_clock(store, &clock.reading()).map_err(restore_fault)?
        {
            clock.resume(&kept);
        }
        let mut all = make_shards(shards, &setup.options, setup.seed, &clock);
        let restored =
            store.as_mut().map(|store| restore_shards(&mut all, store, &clock)).transpose()?;
        let (disk, found) = opened.unzip();
        let report = found.zip(restored);
        all.iter_mut().for_each(Shard::make_presets);
        let limiter = ConnectionLimiter::new(setup.seed);
        let mut controls = Vec::new();
        for (at, ((poll, rings), shard)) in polls.into_iter().zip(rings).zip(all).enumerate() {
            let id = ShardId(at as u8);
            let (sender, control) = channel();
            // Shard 0 accepts for all: a second process on the port gets "address in use".
            let own = if at == 0 { std::mem::take(&mut listeners) } else { Vec::new() };
            let registry = scheduler.registry().map_err(ServerFault::Poller)?;
            let registry = SocketRegistry::new(id, registry);
            let store = disk.as_ref().map(DiskStore::handle);
            let store = store.map(|disk| StoreClient::new(disk, log.clone(), refusing.clone()));
            let (auth_handler, authz_handler) =
                (setup.auth_handler.clone(), setup.authz_handler.clone());
            let pending_auth =
                PendingAuth::new(auth_handler, authz_handler, sender.clone(), wakers.clone(), id);
            let acceptor = ConnectionAcceptor::new(own, transports.clone(), limiter.clone());
            let quic = QuicShard::for_listeners(acceptor.quic_listeners());
            let batched_send = BatchedSend::new(setup.io_uring);
            let connections =
                ShardConnections::new(registry, batched_send, pending_auth, quic, &setup.options);
            let turn = ShardTurn::new(id, shard, rings, clock.clone(), log.clone());
            let driver = ShardDriver::new(turn, connections, acceptor, store, control, poll);
            scheduler.add_shard(driver);
            controls.push(sender);
        }
        let scheduler = spawn_scheduler(scheduler)?;
        let handle = EngineHandle::new(controls, wakers);
        let descriptors_reserved = setup.descriptors_reserved;
        Ok(Server { scheduler, handle, disk, report, descriptors_reserved })
    }

    /// Returns the report of the store's recovery, and the counts of restored items; `None` without
    /// a store.
    pub fn report(&self) -> Option<&(store::RecoveryReport, broker::RestoreStats)> {
        self.report.as_ref()
    }

    /// Handle for threads which send commands to the shards independently of the `Server`.
    pub fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    pub fn open_listeners(&self) -> Result<(), ServerFault> {
        let (told, opened) = channel();
        self.handle.send_to_first_shard(ShardControl::OpenListeners {
            told,
            reserved: self.descriptors_reserved,
        });
        // A shard that has ended accepts no connection, which is not an error.
        opened.recv().unwrap_or(Ok(())).map_err(ServerFault::Listener)
    }

    pub fn send_command(&self, command: ShardCommand) {
        self.handle.send_command(command);
    }

    /// Replaces the layers of the same listeners, in the same order, for new connections. Open
    /// connections keep their layers.
    pub fn change_transports(&self, transports: Vec<ListenerTransport>) {
        let transports: Arc<[ListenerTransport]> = transports.into();
        self.handle.send_to_all(|| ShardControl::ReplaceTransports(transports.clone()));
    }

    /// Blocks until every shard has done all earlier commands.
    pub fn wait_for_commands(&self) {
        self.handle.wait_for_commands();
    }

    /// Stops the server: publishes wills while subscribers are connected, waits `WILLS_MS`, sends
    /// DISCONNECT to all clients, and waits for the shards.
    pub fn stop(self) -> io::Result<()> {
        self.send_command(ShardCommand::Drain);
        thread::sleep(Duration::from_millis(WILLS_MS));
        self.send_command(ShardCommand::CloseAll);
        self.handle.send_to_all(|| ShardControl::Stop);
        self.join()
    }

    /// Waits for the shards to end, and then for the store.
    pub fn join(self) -> io::Result<()> {
        let ended = self.scheduler.join();
        drop(self.disk);
        ended.map_err(|_| io::Error::other("the shards' thread panicked"))
    }
}

fn restore_fault(why: RestoreError) -> ServerFault {
    match why {
        RestoreError::OtherFormat => ServerFault::OtherFormat,
        RestoreError::Unreadable => ServerFault::Unreadable,
    }
}

/// Fills the shards from the store, and returns the counts of restored items.
fn restore_shards(
    all: &mut [Shard],
    store: &mut StoreClient,
    clock: &SystemClock,
) -> Result<broker::RestoreStats, ServerFault> {
    let restored = broker::restore(all, store, clock.now());
    let (restored, changes) = restored.map_err(restore_fault)?;
    let seq = store.commit_initial(changes);
    all.iter_mut().for_each(|shard| shard.set_initial_commit(seq));
    if let Some(first) = all.first_mut()
        && clock.claim_clock_record(clock.now(), true)
    {
        first.keep_clock(&clock.reading());
    }
    Ok(restored)
}

fn spawn_scheduler(scheduler: Scheduler) -> Result<JoinHandle<()>, ServerFault> {
    let thread = thread::Builder::new().name("shards".into()).stack_size(STACK_BYTES);
    thread.spawn(move || panic_on_failure(scheduler.run())).map_err(ServerFault::Thread)
}

fn make_polls(scheduler: &Scheduler, shards: usize) -> io::Result<(Vec<Poll>, Vec<ShardWaker>)> {
    let (mut polls, mut wakers) = (Vec::new(), Vec::new());
    for _ in 0..shards {
        let poll = Poll::new()?;
        let own = mio::Waker::new(poll.registry(), WAKER)?;
        wakers.push(ShardWaker::new(scheduler.waker(), own));
        polls.push(poll);
    }
    Ok((polls, wakers))
}

fn make_shards(
    shards: usize,
    options: &Arc<BrokerOptions>,
    seed: u64,
    clock: &SystemClock,
) -> Vec<Shard> {
    let interest = Arc::new(Interest::new(seed, shards));
    let memory = Arc::new(ProcessMemory::default());
    let shard = |at: usize| {
        // A new random seed per process: a seed that could be replayed would give out the same
        // client ids again.
        let chance = RandomState::new().hash_one(at);
        let (interest, memory) = (interest.clone(), memory.clone());
        let id = ShardId(at as u8);
        let options = options.clone();
        let mut shard =
            Shard::new(id, shards, options, interest, memory, seed, chance, clock.now());
        shard.time_rules(SystemClock::monotonic_ns);
        shard.set_time_of_day(clock.time_of_day_offset_ms());
        shard
    };
    (0..shards).map(shard).collect()
}

fn open_store(
    shelter: StoreLocation,
    wakers: &Arc<[ShardWaker]>,
    log: &EventLogger,
) -> Result<(DiskStore, store::RecoveryReport), ServerFault> {
    let (wakers, log) = (wakers.clone(), log.clone());
    let notify = move |event| match event {
        StoreEvent::Durable(_) | StoreEvent::BacklogCleared => {
            wakers.iter().for_each(ShardWaker::wake_for_disk)
        }
        StoreEvent::Failing(fault) => {
            log(&BrokerEvent::StoreFailing { fault: fault.to_string().into() })
        }
        StoreEvent::Damaged(fault) => {
            log(&BrokerEvent::StoreUnreadable { fault: fault.to_string().into() })
        }
        StoreEvent::Recovered => {
            log(&BrokerEvent::StoreRecovered);
            wakers.iter().for_each(ShardWaker::wake_for_disk);
        }
    };
    DiskStore::open(&shelter.folder, shelter.options, Box::new(notify)).map_err(ServerFault::Store)
}
