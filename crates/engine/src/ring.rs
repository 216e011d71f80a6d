//! Rings carry items from one shard to another; wakers wake shards that sleep.
//!
//! A ring has one producer and one consumer, and grows to the size of its load: a producer that
//! finds it full continues in a larger ring, and names the larger ring in the last slot of the old
//! one. Neither side ever waits for the other. Sleep and wake-up follow one rule: the consumer
//! marks itself as asleep before it looks into its rings a last time, and the producer looks at the
//! mark after its push. One of the two then sees the other.

use crate::quic::QuicMessage;
use crate::socket::Socket;
use broker::{PeerInfo, ShardMessage, limits};
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, fence};

#[derive(Debug)]
pub(crate) enum RingItem {
    Message(ShardMessage),
    /// A socket for its owner shard, with all unconsumed bytes, the state of its layers and its
    /// `peer`; or, with `peer` absent, a socket whose handshake starts on the receiving shard.
    Socket {
        socket: Box<Socket>,
        peer: Option<PeerInfo>,
    },
    Quic(Box<QuicMessage>),
    /// The last item of a ring: later items are in the ring named here, of another size.
    Next(Box<Consumer<RingItem>>),
}

/// The producer end of a ring from one shard to another.
#[derive(Debug)]
pub(crate) struct RingSender {
    ring: Producer<RingItem>,
    /// Capacity of the current ring in items, at most `limits::RING_SLOTS`.
    slots: usize,
    /// More than a quarter of the slots were in use at some time since [`RingSender::shrink`].
    is_needed: bool,
}

impl RingSender {
    fn new(slots: usize) -> (RingSender, RingReceiver) {
        let (ring, end) = RingBuffer::new(slots);
        (RingSender { ring, slots, is_needed: false }, RingReceiver { ring: end })
    }

    /// Returns how many of `wanted` items have room, after growing a ring too small for all. A slot
    /// is reserved for [`RingItem::Next`].
    #[inline]
    pub(crate) fn room_for(&mut self, wanted: usize) -> usize {
        let free = self.ring.slots();
        self.is_needed |= self.slots - free + wanted > self.slots / 4;
        match free <= wanted && self.slots < limits::RING_SLOTS {
            true => self.grow(wanted),
            false => free.saturating_sub(1),
        }
    }

    #[cold]
    fn grow(&mut self, wanted: usize) -> usize {
        let mut slots = self.slots * GROWTH;
        while slots <= wanted && slots < limits::RING_SLOTS {
            slots *= GROWTH;
        }
        self.continue_in(slots);
        self.ring.slots().saturating_sub(1)
    }

    /// Pushes an item into room found by [`RingSender::room_for`].
    #[inline]
    pub(crate) fn put(&mut self, item: RingItem) {
        // No other producer can have filled the slot.
        let _ = self.ring.push(item);
    }

    /// Pushes an item, or returns it if the ring is full at `limits::RING_SLOTS`.
    pub(crate) fn push(&mut self, item: RingItem) -> Result<(), RingItem> {
        if self.room_for(1) == 0 {
            return Err(item);
        }
        self.put(item);
        Ok(())
    }

    /// Starts a ring of `slots` slots for all later items. Returns false if [`RingItem::Next`]
    /// found no slot.
    fn continue_in(&mut self, slots: usize) -> bool {
        let (next, end) = RingSender::new(slots.min(limits::RING_SLOTS));
        if self.ring.push(RingItem::Next(Box::new(end.ring))).is_err() {
            return false;
        }
        *self = next;
        true
    }

    /// Whether the ring has more slots than [`SLOTS_MIN`].
    pub(crate) fn is_grown(&self) -> bool {
        self.slots > SLOTS_MIN
    }

    /// Shrinks a grown ring which needed little room since the last call. Returns whether the
    /// receiver has to be woken, to free the old ring.
    pub(crate) fn shrink(&mut self) -> bool {
        let in_use = self.slots - self.ring.slots();
        let was_needed = std::mem::take(&mut self.is_needed) || in_use > 0;
        self.is_grown() && !was_needed && self.continue_in(SLOTS_MIN)
    }
}

/// The consumer end of a ring.
#[derive(Debug)]
pub(crate) struct RingReceiver {
    ring: Consumer<RingItem>,
}

impl RingReceiver {
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<RingItem> {
        loop {
            match self.ring.pop() {
                Ok(RingItem::Next(next)) => self.ring = *next,
                Ok(item) => return Some(item),
                Err(rtrb::PopError::Empty) => return None,
            }
        }
    }
}

/// Slots of a ring at the start, and after a long time without items.
const SLOTS_MIN: usize = 16;
/// Factor between the sizes of a full ring and its successor.
const GROWTH: usize = 8;

/// Wakes the thread which runs one shard. Aligned to 128 bytes: threads write their own wakers
/// often, and processors fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ShardWaker {
    /// Waker of the scheduler's poller, shared by all shards.
    scheduler: Arc<mio::Waker>,
    /// Waker of the shard's own poller, in use on a worker thread.
    own: mio::Waker,
    sleeps: AtomicU8,
    /// Whether the scheduler's thread runs the shard. Only this thread writes and reads the flag.
    on_scheduler: AtomicBool,
    /// The shard holds answers until the store reports progress.
    awaits_disk: AtomicBool,
}

const AWAKE: u8 = 0;
const SLEEPS_ON_SCHEDULER: u8 = 1;
const SLEEPS_ON_WORKER: u8 = 2;

impl ShardWaker {
    pub(crate) fn new(scheduler: Arc<mio::Waker>, own: mio::Waker) -> ShardWaker {
        let (sleeps, awaits_disk) = (AtomicU8::new(AWAKE), AtomicBool::new(false));
        ShardWaker { scheduler, own, sleeps, on_scheduler: AtomicBool::new(false), awaits_disk }
    }

    /// Marks the shard as asleep. The caller then has to look into its rings once more, and at the
    /// store if `awaits_disk`: an earlier push may have missed the mark.
    pub(crate) fn set_asleep(&self, with_guest: bool, awaits_disk: bool) {
        self.awaits_disk.store(awaits_disk, SeqCst);
        let sleeps = if with_guest { SLEEPS_ON_WORKER } else { SLEEPS_ON_SCHEDULER };
        self.sleeps.store(sleeps, SeqCst);
        fence(SeqCst);
    }

    pub(crate) fn set_awake(&self) {
        self.sleeps.store(AWAKE, SeqCst);
    }

    pub(crate) fn set_on_scheduler(&self, hosted: bool) {
        self.on_scheduler.store(hosted, Relaxed);
    }

    /// Wakes the shard like [`ShardWaker::wake`], if called on the scheduler's thread: a shard of
    /// the same thread takes the items before this thread sleeps and needs no wake-up.
    pub(crate) fn wake_from_scheduler(&self) {
        if !self.on_scheduler.load(Relaxed) {
            self.wake();
        }
    }

    /// Wakes the thread of the shard if the thread sleeps or is about to sleep.
    pub(crate) fn wake(&self) {
        // Orders the push before the look, as `set_asleep` orders its store before its caller's.
        fence(SeqCst);
        if self.sleeps.load(Relaxed) == AWAKE {
            return;
        }
        // A thread that cannot be woken has ended.
        let _ = match self.sleeps.swap(AWAKE, SeqCst) {
            SLEEPS_ON_SCHEDULER => self.scheduler.wake(),
            SLEEPS_ON_WORKER => self.own.wake(),
            _ => Ok(()),
        };
    }

    /// Wakes both possible threads of the shard, whatever their state.
    pub(crate) fn wake_always(&self) {
        let _ = self.scheduler.wake();
        let _ = self.own.wake();
    }
}

impl ShardWaker {
    /// Wakes a shard waiting for the store, after progress of the store.
    pub(crate) fn wake_for_disk(&self) {
        if self.awaits_disk.swap(false, SeqCst) {
            self.wake();
        }
    }
}

/// The ends of all rings which belong to one shard, and the wakers of all shards.
#[derive(Debug)]
pub(crate) struct ShardRings {
    shard: usize,
    inbound: Vec<Option<RingReceiver>>,
    outbound: Vec<Option<RingSender>>,
    wakers: Arc<[ShardWaker]>,
    /// Items without room in a ring, with the index of the receiving shard.
    pending_items: VecDeque<(usize, RingItem)>,
    /// A ring was full at the end of the last turn. Sockets are not read until there is room: no
    /// item is dropped, and order is kept.
    blocked: bool,
}

impl ShardRings {
    /// Creates a ring for each ordered pair of different shards.
    pub(crate) fn all(wakers: Vec<ShardWaker>) -> Vec<ShardRings> {
        let shards = wakers.len();
        let wakers: Arc<[ShardWaker]> = wakers.into();
        let empty = |shard| ShardRings {
            shard,
            inbound: (0..shards).map(|_| None).collect(),
            outbound: (0..shards).map(|_| None).collect(),
            wakers: wakers.clone(),
            pending_items: VecDeque::new(),
            blocked: false,
        };
        let mut all: Vec<ShardRings> = (0..shards).map(empty).collect();
        for from in 0..shards {
            for to in (0..shards).filter(|&to| to != from) {
                let (producer, consumer) = RingSender::new(SLOTS_MIN);
                all[from].outbound[to] = Some(producer);
                all[to].inbound[from] = Some(consumer);
            }
        }
        all
    }

    /// Number of shards of the process.
    pub(crate) fn shards(&self) -> usize {
        self.wakers.len()
    }

    pub(crate) fn wakers(&self) -> Arc<[ShardWaker]> {
        self.wakers.clone()
    }

    /// Waker of the shard that owns these ends.
    pub(crate) fn own_waker(&self) -> &ShardWaker {
        &self.wakers[self.shard]
    }

    #[inline]
    pub(crate) fn has_input(&self) -> bool {
        self.inbound.iter().flatten().any(|ring| !ring.is_empty())
    }

    /// Takes the ring from another shard, to read it while its items are handled.
    #[inline]
    pub(crate) fn take_inbound(&mut self, from: usize) -> Option<RingReceiver> {
        self.inbound[from].take()
    }

    /// Puts a ring of [`ShardRings::take_inbound`] back.
    #[inline]
    pub(crate) fn return_inbound(&mut self, from: usize, ring: RingReceiver) {
        self.inbound[from] = Some(ring);
    }

    /// Whether a ring was full at the end of the last turn, so that no socket is read.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Records at the end of a turn whether anything waits for room in a ring: items, or the rest
    /// of a lane.
    pub(crate) fn note_blocked(&mut self, has_lane_rest: bool) {
        self.blocked = has_lane_rest || self.has_pending_items();
    }

    /// Whether items wait for room in a ring.
    pub(crate) fn has_pending_items(&self) -> bool {
        !self.pending_items.is_empty()
    }

    /// Moves messages from the front of `lane` into the ring to a shard, as many as fit, and wakes
    /// the shard. Returns whether the ring has grown; `None` without a ring.
    pub(crate) fn push_messages(
        &mut self,
        to: usize,
        lane: &mut VecDeque<ShardMessage>,
        on_worker: bool,
    ) -> Option<bool> {
        let ring = self.outbound[to].as_mut()?;
        let slots = ring.room_for(lane.len()).min(lane.len());
        for cross in lane.drain(..slots) {
            ring.put(RingItem::Message(cross));
        }
        let is_grown = ring.is_grown();
        match &self.wakers[to] {
            _ if slots == 0 => {}
            waker if on_worker => waker.wake(),
            waker => waker.wake_from_scheduler(),
        }
        Some(is_grown)
    }

    /// Queues an item for [`ShardRings::push_pending_items`], at the end of the turn.
    pub(crate) fn queue_item(&mut self, to: usize, item: RingItem) {
        self.pending_items.push_back((to, item));
    }

    /// Sends an item at once, unless items wait for a ring: these go first, to keep the order.
    pub(crate) fn send_item(&mut self, to: usize, mut item: RingItem) {
        if self.pending_items.is_empty()
            && let Some(ring) = &mut self.outbound[to]
        {
            match ring.push(item) {
                Ok(()) => return self.wakers[to].wake(),
                Err(back) => item = back,
            }
        }
        self.queue_item(to, item);
    }

    /// Moves queued items into the rings, as many as fit. Returns whether a ring has grown.
    pub(crate) fn push_pending_items(&mut self) -> bool {
        let mut is_grown = false;
        while let Some((to, item)) = self.pending_items.pop_front() {
            let Some(ring) = &mut self.outbound[to] else { continue };
            let pushed = ring.push(item);
            is_grown |= ring.is_grown();
            self.wakers[to].wake();
            if let Err(item) = pushed {
                self.pending_items.push_front((to, item));
                break;
            }
        }
        is_grown
    }
}

impl ShardRings {
    pub(crate) fn are_grown(&self) -> bool {
        self.outbound.iter().flatten().any(RingSender::is_grown)
    }

    /// Shrinks outbound rings unused since the last call, and wakes their receivers to free the old
    /// rings.
    pub(crate) fn shrink(&mut self) {
        for (ring, waker) in self.outbound.iter_mut().zip(self.wakers.iter()) {
            if ring.as_mut().is_some_and(RingSender::shrink) {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(number: u64) -> RingItem {
        RingItem::Message(ShardMessage::TokensCommitted { first: number, last: number })
    }

    fn number(item: Option<RingItem>) -> Option<u64> {
        match item? {
            RingItem::Message(ShardMessage::TokensCommitted { first, .. }) => Some(first),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_ring_grows_with_what_stands_in_it_and_keeps_the_order() {
        let (mut sender, mut receiver) = RingSender::new(SLOTS_MIN);
        let mut pushed = 0;
        while sender.push(parcel(pushed)).is_ok() {
            pushed += 1;
        }
        assert_eq!(sender.slots, limits::RING_SLOTS);
        assert!(pushed >= limits::RING_SLOTS as u64 - 1, "only {pushed} have room");
        for expected in 0..pushed {
            assert_eq!(number(receiver.pop()), Some(expected));
        }
        assert!(receiver.is_empty() && receiver.pop().is_none());
        assert!(sender.push(parcel(7)).is_ok());
        assert_eq!(number(receiver.pop()), Some(7));
    }

    #[test]
    fn a_ring_whose_room_is_not_needed_any_more_is_small_again() {
        let (mut sender, mut receiver) = RingSender::new(SLOTS_MIN);
        (0..100).for_each(|at| sender.push(parcel(at)).expect("it grows"));
        assert!(!sender.shrink(), "something stands in it");
        (0..100).for_each(|at| assert_eq!(number(receiver.pop()), Some(at)));
        assert!(sender.shrink() && !sender.is_grown() && !sender.shrink());
        sender.push(parcel(100)).expect("it has room");
        assert_eq!(number(receiver.pop()), Some(100));
        assert_eq!(receiver.ring.buffer().capacity(), SLOTS_MIN);
    }

    /// Runs both ends on threads of their own, while the ring grows and shrinks all the time.
    #[test]
    fn nothing_is_lost_or_overtaken_between_two_threads() {
        const PARCELS: u64 = 200_000;
        let (mut sender, mut receiver) = RingSender::new(SLOTS_MIN);
        let producer = std::thread::spawn(move || {
            for at in 0..PARCELS {
                let mut next = parcel(at);
                while let Err(back) = sender.push(next) {
                    next = back;
                    std::thread::yield_now();
                }
                if at % 1_000 == 0 {
                    sender.shrink();
                }
            }
        });
        for expected in 0..PARCELS {
            let mut next = receiver.pop();
            while next.is_none() {
                std::thread::yield_now();
                next = receiver.pop();
            }
            assert_eq!(number(next), Some(expected));
        }
        producer.join().expect("no panic");
    }
}
