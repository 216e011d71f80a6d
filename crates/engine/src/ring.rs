//! What travels from one shard to another, and the waking of shards that sleep.
//!
//! A ring has one producer and one consumer. Sleeping and waking follow one rule: the consumer
//! says that it sleeps before it looks into its rings a last time, the producer looks whether the
//! consumer sleeps after it has pushed. One of the two then sees the other.

use crate::quic::Word;
use crate::socket::Socket;
use broker::{Cross, Peer, limits};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Relaxed, SeqCst},
    fence,
};

#[derive(Debug)]
pub(crate) enum Parcel {
    Cross(Cross),
    /// A connection on its way home, with every byte that was read and not consumed and the
    /// state of its layers; or one that is to be opened there, whose peer its layers know.
    Socket {
        socket: Box<Socket>,
        peer: Option<Peer>,
    },
    Quic(Box<Word>),
}

/// How to wake the thread that runs one shard. Its neighbours' threads write theirs as often, and
/// processors fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Bell {
    /// Of the host's poller.
    host: Arc<mio::Waker>,
    /// Of the shard's own poller, which it uses with a guest.
    own: mio::Waker,
    sleeps: AtomicU8,
    /// Whether the host's thread runs the shard. Only that thread says so, and only it asks.
    hosted: AtomicBool,
    /// Its shard has answers that wait for the disk.
    awaits_disk: AtomicBool,
}

const AWAKE: u8 = 0;
const SLEEPS_WITH_HOST: u8 = 1;
const SLEEPS_WITH_GUEST: u8 = 2;

impl Bell {
    pub(crate) fn new(host: Arc<mio::Waker>, own: mio::Waker) -> Bell {
        let (sleeps, awaits_disk) = (AtomicU8::new(AWAKE), AtomicBool::new(false));
        Bell { host, own, sleeps, hosted: AtomicBool::new(false), awaits_disk }
    }

    /// The shard is about to sleep. Whoever says so looks into its rings afterwards, and at the
    /// disk if it waits for that.
    pub(crate) fn say_asleep(&self, with_guest: bool, awaits_disk: bool) {
        self.awaits_disk.store(awaits_disk, SeqCst);
        let sleeps = if with_guest { SLEEPS_WITH_GUEST } else { SLEEPS_WITH_HOST };
        self.sleeps.store(sleeps, SeqCst);
        fence(SeqCst);
    }

    pub(crate) fn say_awake(&self) {
        self.sleeps.store(AWAKE, SeqCst);
    }

    pub(crate) fn say_hosted(&self, hosted: bool) {
        self.hosted.store(hosted, Relaxed);
    }

    /// `ring` for a shard of the host's thread: what it has for a neighbour, the neighbour takes
    /// before that thread sleeps.
    pub(crate) fn ring_from_host(&self) {
        if !self.hosted.load(Relaxed) {
            self.ring();
        }
    }

    /// Wakes the thread if it sleeps or is about to.
    pub(crate) fn ring(&self) {
        // Orders the push before the look, as `say_asleep` orders its store before its caller's.
        fence(SeqCst);
        if self.sleeps.load(Relaxed) == AWAKE {
            return;
        }
        // A thread that cannot be woken is one that has ended.
        let _ = match self.sleeps.swap(AWAKE, SeqCst) {
            SLEEPS_WITH_HOST => self.host.wake(),
            SLEEPS_WITH_GUEST => self.own.wake(),
            _ => Ok(()),
        };
    }

    /// Wakes whoever runs the shard, or is about to, from whatever it does.
    pub(crate) fn ring_out(&self) {
        let _ = self.host.wake();
        let _ = self.own.wake();
    }
}

impl Bell {
    /// The disk has more than before.
    pub(crate) fn ring_for_disk(&self) {
        if self.awaits_disk.swap(false, SeqCst) {
            self.ring();
        }
    }
}

/// One shard's ends of all rings.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) inbound: Vec<Option<Consumer<Parcel>>>,
    pub(crate) outbound: Vec<Option<Producer<Parcel>>>,
    pub(crate) bells: Arc<[Bell]>,
}

impl Rings {
    /// The rings of all shards, the diagonal left out.
    pub(crate) fn all(bells: Vec<Bell>) -> Vec<Rings> {
        let shards = bells.len();
        let bells: Arc<[Bell]> = bells.into();
        let empty = |_| Rings {
            inbound: (0..shards).map(|_| None).collect(),
            outbound: (0..shards).map(|_| None).collect(),
            bells: bells.clone(),
        };
        let mut all: Vec<Rings> = (0..shards).map(empty).collect();
        for from in 0..shards {
            for to in (0..shards).filter(|&to| to != from) {
                let (producer, consumer) = RingBuffer::new(limits::RING_SLOTS);
                all[from].outbound[to] = Some(producer);
                all[to].inbound[from] = Some(consumer);
            }
        }
        all
    }

    pub(crate) fn has_input(&self) -> bool {
        self.inbound.iter().flatten().any(|ring| !ring.is_empty())
    }
}
