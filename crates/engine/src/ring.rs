//! What travels from one shard to another, and the waking of shards that sleep.
//!
//! A ring has one producer and one consumer. Sleeping and waking follow one rule: the consumer
//! says that it sleeps before it looks into its rings a last time, the producer looks whether the
//! consumer sleeps after it has pushed. One of the two then sees the other.

use broker::{Cross, limits};
use mio::net::TcpStream;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
    fence,
};

#[derive(Debug)]
pub(crate) enum Parcel {
    Cross(Cross),
    /// A connection on its way home, with every byte that was read and not consumed.
    Socket {
        stream: TcpStream,
        bytes: Vec<u8>,
    },
}

/// How to wake one shard's thread.
#[derive(Debug)]
pub(crate) struct Bell {
    pub(crate) waker: mio::Waker,
    pub(crate) sleeps: AtomicBool,
    /// Its shard has answers that wait for the disk.
    pub(crate) awaits_disk: AtomicBool,
}

impl Bell {
    /// Wakes the thread if it sleeps or is about to.
    pub(crate) fn ring(&self) {
        // Orders the push before the look, as `Body::doze` orders its store before its own.
        fence(SeqCst);
        if self.sleeps.load(Relaxed) && self.sleeps.swap(false, SeqCst) {
            // A thread that cannot be woken is one that has ended.
            let _ = self.waker.wake();
        }
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
