//! Loop detection: bridges in a ring would forward one message for ever.
//!
//! Two kinds of evidence show that a message has passed this bridge before:
//!
//! * **The path**: a User Property of MQTT 5.0 with the bridges which a message has passed. A
//!   bridge adds its name once more than [`PASSES_UNMARKED`] equal messages have passed in one
//!   direction, and each following bridge then adds its own. A bridge which finds its own name has
//!   found a loop. On ways with 5.0 alone only the path counts: clients may publish equal messages
//!   without limit.
//! * **Recent messages**, on ways through a bridge of 3.1.1, which drops properties. A message from
//!   another bridge counts as a loop in two cases. Either local clients published equal messages,
//!   and this source brought [`RETURNS_MAX`] more than the clients. Or two sources brought
//!   [`RETURNS_MANY`] equal messages each: the second source is then stopped while the first had a
//!   message within [`RECENT`]. If the second source falls silent and the first brings [`RUN_MAX`]
//!   more in a row, one message is stopped as a probe, since every bridge of a ring may have seen
//!   the same direction first. The probe ends a ring, and costs a publishing client one message;
//!   each probe doubles the run until the next. Messages of local clients, and messages from a
//!   single source, are never stopped. A bridge with only inward rules sees no publications of
//!   local clients, so it subscribes to count them. Most of these bridges are not in a ring, so
//!   their limit is [`WATCHED_RETURNS_MAX`].
//!
//! A rule which changes topics makes another message in each turn, see [`RewrittenTopics`]. The
//! path is then added after the same number of messages with equal payloads, whatever their topics.
//! Where the path is lost, a topic made of its own earlier result [`REMADE_MAX`] times is stopped.
//!
//! Any client may publish a path, since a bridge of 5.0 looks like a client. A forged path affects
//! only its own message, which is dropped or counted as a message of another bridge. Messages
//! without a path pass as before.
//!
//! Equal messages have topic, payload and QoS in common. The memory has [`SLOTS`] places and lasts
//! for [`WINDOW`]: a newer message replaces an older one in the same place, which then counts as
//! new.

use super::loop_guard::own_mark;
use super::rewritten_topics::{REMADE_MAX, RewrittenTopics};
use broker::hop_name;
use mqtt::{Properties, Property, Publish, QoS};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::time::{Duration, Instant};

/// User Property with the bridges which a message has passed, `NAME@ID` each, in order.
pub(super) const PATH: &str = broker::BRIDGE_PATH;
/// The id of a hop whose broker adds no path.
const UNKNOWN: &str = "@0";
const PASSES_UNMARKED: u16 = 2;
const RETURNS_MAX: u32 = 3;
const WATCHED_RETURNS_MAX: u32 = 32;
const RETURNS_MANY: u32 = 16;
/// Equal messages of one way in a row before a probe stops one; and the number of messages of
/// another way which suggest a ring.
const RUN_MAX: u32 = 32;
const RING_MIN: u32 = 8;
const WINDOW: Duration = Duration::from_secs(10);
const RECENT: Duration = Duration::from_secs(2);
const SLOTS: usize = 1024;
const WAYS: usize = 3;
/// A longer path counts as a loop, whatever its names are.
const HOPS_MAX: usize = 32;
/// Name in the log for the bridges of a growing topic, where no path names them.
const REWRITING_BRIDGES: &str = "bridges that change its topic each time";
/// A path longer than `HOPS_MAX` hops can be counts as a loop. The encoder would cut additions to a
/// path of 64 KiB, and then no bridge would find its own name.
const PATH_BYTES_MAX: usize = HOPS_MAX * 80;

/// Names by which a bridge recognizes its own hops in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDetection {
    /// Name of this bridge in paths.
    own: String,
    /// Name of the remote broker, for messages without a path.
    remote: String,
    /// Whether messages from a 3.1.1 broker get a path, for further bridges of this process.
    marks_inward: bool,
}

/// Direction in which a message passes a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BridgeDirection {
    Out = 0,
    In = 1,
}

/// A message on its way through a bridge.
#[derive(Clone, Copy)]
pub(super) struct PassingMessage<'a> {
    pub(super) direction: BridgeDirection,
    /// Whether the connection to the remote broker uses MQTT 5.0.
    pub(super) is_v5: bool,
    pub(super) topic: &'a str,
    /// The topic at the remote broker.
    pub(super) remote_topic: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) qos: QoS,
    /// The message is sent again after a lost connection and was counted before.
    pub(super) dup: bool,
    pub(super) properties: Properties<'a>,
    pub(super) now: Instant,
}

impl<'a> PassingMessage<'a> {
    /// Returns the topic before and the topic after the bridge.
    pub(super) fn topics(&self) -> (&'a str, &'a str) {
        match self.direction {
            BridgeDirection::Out => (self.topic, self.remote_topic),
            BridgeDirection::In => (self.remote_topic, self.topic),
        }
    }
}

/// A message which has passed this bridge before, with the path or the source for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoopFound(pub(super) String);

impl LoopDetection {
    /// Creates the loop detection of a bridge. `client_id` is the bridge's client id at the remote
    /// broker; `remote` is the address of the server.
    pub fn new(bridge: &str, client_id: &str, remote: &str, marks_inward: bool) -> LoopDetection {
        let mut id = DefaultHasher::new();
        (own_mark(), bridge).hash(&mut id);
        // The id is odd, so never equal to `UNKNOWN`.
        let own = format!("{}@{:08x}", hop_name(client_id), id.finish() as u32 | 1);
        LoopDetection { own, remote: format!("{}{UNKNOWN}", hop_name(remote)), marks_inward }
    }

    /// Checks whether the message has passed this bridge before; [`LoopFound`] if so. Otherwise
    /// returns the path to send with the message, if any.
    pub(super) fn check_and_mark(
        &self,
        message: &PassingMessage<'_>,
        carried: &mut CarriedMessages,
    ) -> Result<Option<String>, LoopFound> {
        let path = path_of(message.properties).unwrap_or_default();
        let hops = || path.split(' ').filter(|hop| !hop.is_empty());
        let is_long = path.len() > PATH_BYTES_MAX;
        if is_long || hops().any(|hop| hop == self.own) || hops().count() >= HOPS_MAX {
            return Err(LoopFound(path.chars().take(PATH_BYTES_MAX).collect()));
        }
        let is_inward = message.direction == BridgeDirection::In;
        // A connection of 3.1.1, here or earlier, has dropped the path.
        let brought_by = match is_inward {
            true => Some(&*self.remote).filter(|_| !message.is_v5),
            false => hops().next_back().filter(|hop| hop.ends_with(UNKNOWN) || !message.is_v5),
        };
        let passes = if message.dup { 0 } else { carried.record(message, brought_by)? };
        if passes > PASSES_UNMARKED || hops().any(|hop| !hop.ends_with(UNKNOWN)) {
            let separator = if path.is_empty() { "" } else { " " };
            return Ok(Some(format!("{path}{separator}{}", self.own)));
        }
        let is_marked = is_inward && self.marks_inward && brought_by.is_some();
        Ok(is_marked.then(|| self.remote.clone()))
    }
}

fn path_of(properties: Properties<'_>) -> Option<&str> {
    properties.iter().find_map(|property| match property {
        Property::UserProperty(PATH, path) => Some(path),
        _ => None,
    })
}

/// Recent messages which passed a bridge, by hash. Has `SLOTS` places of fixed size.
#[derive(Debug, Default)]
pub(super) struct CarriedMessages {
    /// Keyed hasher, so a client cannot construct colliding messages.
    hasher: RandomState,
    /// Slots by hash of the message; allocated with the first message.
    slots: Vec<CarriedSlot>,
    rewritten: RewrittenTopics,
}

#[derive(Clone, Debug)]
struct CarriedSlot {
    hash: u64,
    since: Option<Instant>,
    /// Number of messages by [`BridgeDirection`].
    passes: [u16; 2],
    /// Number of messages stopped as probes.
    probes: u8,
    /// Sources of the message: local clients first, then other sources in the order of arrival.
    ways: [MessageSource; WAYS],
}

/// Source of equal messages, with its counts.
#[derive(Clone, Copy, Debug)]
struct MessageSource {
    hash: u64,
    /// Number of messages which passed.
    count: u32,
    /// Number of messages since the last one from another source, except local clients.
    run: u32,
    /// Time of the last message, after the slot's `since`.
    last: Duration,
}

/// Value of [`MessageSource`]'s `hash` for local clients, for bridges of MQTT 5.0, whose path is
/// better evidence, and for unused entries.
const LOCAL: u64 = 0;
const UNUSED: MessageSource = MessageSource { hash: LOCAL, count: 0, run: 0, last: Duration::ZERO };

impl CarriedSlot {
    const FREE: CarriedSlot =
        CarriedSlot { hash: 0, since: None, passes: [0; 2], probes: 0, ways: [UNUSED; WAYS] };

    /// Returns the index of a source in `ways`. Sources beyond the bound share the last entry.
    fn source_index(&self, way: u64) -> usize {
        match way {
            LOCAL => 0,
            _ => {
                let fits = |at: &usize| [way, LOCAL].contains(&self.ways[*at].hash);
                (1..WAYS).find(fits).unwrap_or(WAYS - 1)
            }
        }
    }

    /// Whether one more message from source `at` counts as a loop: see the module's rules.
    fn is_loop(&self, at: usize, after: Duration) -> bool {
        let [local, first, ..] = self.ways;
        let came = self.ways[at].count;
        let is_carried_out = self.passes[BridgeDirection::Out as usize] > 0;
        let returns_max = if is_carried_out { RETURNS_MAX } else { WATCHED_RETURNS_MAX };
        let comes_back = local.count > 0 && came >= local.count.saturating_add(returns_max);
        let is_first_there =
            first.count >= RETURNS_MANY && after.saturating_sub(first.last) < RECENT;
        let is_second = at > 1 && came >= RETURNS_MANY && is_first_there;
        at > 0 && (comes_back || is_second)
    }

    /// Whether source `at` has sent so many messages in a row, after another source suggested a
    /// ring, that one has to be stopped as a probe.
    fn needs_probe(&self, at: usize) -> bool {
        let others = (1..WAYS).filter(|other| at > 0 && *other != at);
        self.ways[at].run >= RUN_MAX << self.probes.min(16)
            && others.map(|other| self.ways[other].count).any(|count| count >= RING_MIN)
    }
}

impl CarriedMessages {
    /// Counts a message. Returns how many equal messages passed in this direction, or messages with
    /// an equal payload if a rule changes topics.
    fn record(
        &mut self,
        message: &PassingMessage<'_>,
        brought_by: Option<&str>,
    ) -> Result<u16, LoopFound> {
        // The payload may be long, so it is hashed once.
        let body = self.hasher.hash_one((message.payload, message.qos as u8));
        let rewritten = self.rewritten.record(message, body);
        if rewritten.remade >= REMADE_MAX {
            return Err(LoopFound(brought_by.unwrap_or(REWRITING_BRIDGES).to_string()));
        }
        let passes = self.record_equal(message, body, brought_by)?;
        Ok(passes.max(rewritten.equal_payloads))
    }

    /// Counts a message which this bridge only watches, published by a local client or by a bridge
    /// with a path. The subscription has QoS 0, so the original QoS is unknown and all three are
    /// counted.
    pub(super) fn record_local_publish(&mut self, publish: &Publish<'_>, now: Instant) {
        let path = path_of(publish.properties).unwrap_or_default();
        if path.ends_with(UNKNOWN) {
            return;
        }
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let body = self.hasher.hash_one((publish.payload, qos as u8));
            let (slot, after) = self.recent_slot(publish.topic, body, now);
            let local = &mut slot.ways[0];
            *local = MessageSource { count: local.count.saturating_add(1), last: after, ..*local };
        }
    }

    /// Returns the slot of a message and the slot's age. A slot older than [`WINDOW`], or of
    /// another message, is reset.
    fn recent_slot(
        &mut self,
        topic: &str,
        body: u64,
        now: Instant,
    ) -> (&mut CarriedSlot, Duration) {
        if self.slots.is_empty() {
            self.slots = vec![CarriedSlot::FREE; SLOTS];
        }
        let hash = self.hasher.hash_one((topic, body));
        let slot = &mut self.slots[hash as usize % SLOTS];
        let age = |since| now.saturating_duration_since(since);
        let after = slot.since.filter(|_| slot.hash == hash).map(age);
        let after = after.filter(|after| *after < WINDOW).unwrap_or_else(|| {
            *slot = CarriedSlot { hash, since: Some(now), ..CarriedSlot::FREE };
            Duration::ZERO
        });
        (slot, after)
    }

    /// Counts a message and returns how many equal ones passed in this direction. `body` is the
    /// hash of payload and QoS, and `brought_by` the source where paths do not tell.
    fn record_equal(
        &mut self,
        message: &PassingMessage<'_>,
        body: u64,
        brought_by: Option<&str>,
    ) -> Result<u16, LoopFound> {
        let way = brought_by.map_or(LOCAL, |name| self.hasher.hash_one(name) | 1);
        let (slot, after) = self.recent_slot(message.topic, body, message.now);
        let at = slot.source_index(way);
        if at > 0 {
            (1..WAYS).filter(|other| *other != at).for_each(|other| slot.ways[other].run = 0);
        }
        if slot.is_loop(at, after) {
            slot.ways[at].last = after;
            return Err(LoopFound(brought_by.unwrap_or_default().to_string()));
        }
        if slot.needs_probe(at) {
            slot.probes += 1;
            slot.ways[at].run = 0;
            return Err(LoopFound(brought_by.unwrap_or_default().to_string()));
        }
        let MessageSource { count, run, .. } = slot.ways[at];
        let (count, run) = (count.saturating_add(1), run.saturating_add(1));
        slot.ways[at] = MessageSource { hash: way, count, run, last: after };
        let passes = &mut slot.passes[message.direction as usize];
        *passes = passes.saturating_add(1);
        Ok(*passes)
    }
}

#[cfg(test)]
#[path = "loops_tests.rs"]
mod tests;
