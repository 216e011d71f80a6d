//! Everything that can happen to a shard, and what it says to the others.

use crate::ask::{Answer, Slip};
use crate::caches::Word;
use crate::journal::Stored;
use crate::judge::Verdict;
use crate::lasting::Origin;
use crate::message::Message;
use crate::options::Options;
use crate::peer::{Address, Peer};
use crate::rules::{Row, Told};
use crate::sys::Counters;
use crate::unread::Reading;
use mqtt::SubscribeOptions;
use std::sync::Arc;

/// Chosen by the engine: the index of the socket, free again once the engine has reported
/// `Closed` or acted on `Effect::Close` or `Effect::Move`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u8);

/// Milliseconds of a clock that never goes back. It begins at the time of day, so that a time that
/// was stored still says the same after a restart, and rules can say when something was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(pub u64);

#[derive(Debug)]
pub enum Input<'a> {
    /// A transport is ready that was accepted at `since`: its CONNECT is due from then on. `moved`
    /// says that another shard sent it here, greeting and all, with the peer that it knew.
    Opened {
        conn: ConnId,
        peer: Peer,
        since: Now,
        moved: bool,
    },
    /// A welcomed connection has one more stream.
    Branched {
        conn: ConnId,
        of: ConnId,
    },
    /// A transport ended before it was ready.
    NotOpened {
        peer: Address,
        why: &'a dyn std::error::Error,
    },
    /// What was read, from the first byte not yet consumed. `Outbox::consumed` says how much was
    /// taken: less than everything when a packet is not complete, the outbox is full or the
    /// connection is held.
    Bytes {
        conn: ConnId,
        bytes: &'a [u8],
    },
    /// The transport is gone, by the peer's or the network's doing.
    Closed {
        conn: ConnId,
    },
    /// More bytes than `write_bytes_max` wait to be written to this connection.
    Congested {
        conn: ConnId,
    },
    /// There is no memory for what this connection has the engine hold: it ends with 0x97.
    Starved {
        conn: ConnId,
    },
    /// Everything was written to a connection that was congested.
    Writable {
        conn: ConnId,
    },
    /// What another shard said.
    Cross {
        from: ShardId,
        cross: Cross,
    },
    /// The tick is performed: the store has taken its records, under this number if there were any,
    /// and has everything up to the other one on the disk.
    Committed {
        seq: u64,
        durable: u64,
    },
    /// The store has everything up to this number on the disk.
    Durable {
        seq: u64,
    },
    /// What `Effect::Read` asked for.
    Stored {
        reading: Reading,
        stored: &'a dyn Stored,
    },
    /// What `Effect::Ask` asked for.
    Answered {
        slip: Slip,
        answer: Answer,
    },
    /// What `Effect::Judge` asked for.
    Verdict {
        conn: ConnId,
        case: u32,
        verdict: Verdict,
    },
    /// Time moved: fire what is due. Also the turn of whatever waits for room.
    Tick,
    Command(Command),
}

/// From the control plane.
#[derive(Clone, Debug)]
pub enum Command {
    /// Options that can change live.
    Reload(Arc<Options>),
    /// What the control plane knows goes to a topic below `$SYS/broker/`, retained; nothing in it
    /// clears that. For shard 0.
    Say { topic: Arc<str>, value: Arc<str> },
    /// Rules may hear of it. For one shard.
    Told(Told),
    /// Shutting down, first step: nobody new, and the wills of everyone, while there is somebody
    /// left to receive them: every session that does not outlive the process ends here
    /// [MQTT-3.1.2-8].
    Drain,
    /// Shutting down, last step: DISCONNECT 0x8B to 5.0 clients, and every connection closes.
    CloseAll,
}

/// Names a member of a shared group across shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub shard: ShardId,
    pub session: SessionId,
    /// Sessions are numbered slots: the generation says which tenant is meant.
    pub generation: u32,
}

/// From one shard to another. Order within one pair of shards is kept.
#[derive(Clone, Debug)]
pub enum Cross {
    /// Deliver to whoever here subscribes. Whoever sent it with a ticket wants to hear when what
    /// came of it is on the disk; 0 asks for nothing. Tickets count up between two shards, and
    /// `Retain` and `Dispatch` have them too.
    Publish {
        message: Message,
        ticket: u64,
        /// Where the store has it meanwhile, if it is to come once: see `transit`.
        origin: Option<Origin>,
    },
    /// What the receiver asked for under these tickets is kept.
    Kept {
        first: u64,
        last: u64,
    },
    /// The retained store of every shard holds the same; an empty payload clears. Delivered to
    /// whoever subscribes there, like `Publish`.
    Retain {
        message: Message,
        stamp: Stamp,
        ticket: u64,
        origin: Option<Origin>,
    },
    /// A member joins (or changes its options in) the group that the receiver owns.
    Join {
        group: Arc<str>,
        member: Member,
        client_id: Arc<str>,
        options: SubscribeOptions,
        subscription_id: u32,
        /// Whether the member's session outlives the process.
        lasts: bool,
    },
    /// The SUBACK that waits for it may leave.
    Joined {
        group: Arc<str>,
        member: Member,
    },
    Leave {
        group: Arc<str>,
        member: Member,
    },
    /// A session asks for a filter alone, which the receiver gives to one at a time.
    Claim {
        filter: Arc<str>,
        member: Member,
    },
    /// The SUBACK that waits for it may leave.
    Claimed {
        filter: Arc<str>,
        member: Member,
        is_granted: bool,
    },
    /// The session has it no more.
    Unclaim {
        filter: Arc<str>,
        member: Member,
    },
    /// The member's connection came or went, or its window has emptied: it may be given so many
    /// messages more than before.
    Room {
        group: Arc<str>,
        member: Member,
        online: bool,
        more: u32,
    },
    /// The owner chose this member.
    Dispatch {
        group: Arc<str>,
        member: Member,
        message: Message,
        options: SubscribeOptions,
        subscription_id: u32,
        /// Where the store has it until the member does.
        origin: Option<Origin>,
        ticket: u64,
    },
    /// A member ended with this message undelivered: choose another.
    Return {
        group: Arc<str>,
        message: Message,
        origin: Option<Origin>,
    },
    /// A client came and went too often: nobody lets it in before.
    Flapped {
        client: u64,
        until: Now,
    },
    /// For the window of a rule whose key the receiver owns.
    Row(Box<Row>),
    /// For a cache, or from one.
    Cache(Box<Word>),
    /// Once a `$SYS` interval, to shard 0.
    Counters(Box<Counters>),
}

impl Cross {
    /// The place in the store that the receiver strikes.
    pub(crate) fn origin(&self) -> Option<Origin> {
        match self {
            Cross::Publish { origin, .. }
            | Cross::Retain { origin, .. }
            | Cross::Dispatch { origin, .. }
            | Cross::Return { origin, .. } => *origin,
            Cross::Cache(_)
            | Cross::Claim { .. }
            | Cross::Claimed { .. }
            | Cross::Counters(_)
            | Cross::Flapped { .. }
            | Cross::Join { .. }
            | Cross::Joined { .. }
            | Cross::Kept { .. }
            | Cross::Leave { .. }
            | Cross::Room { .. }
            | Cross::Unclaim { .. }
            | Cross::Row(_) => None,
        }
    }
}

/// Orders retained messages for one topic across shards: the highest wins everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    pub at: u64,
    pub counter: u32,
    pub shard: u8,
}

impl Stamp {
    /// Higher than this one, whatever the clock says: clocks of shards differ by a tick, and one
    /// client may answer another within a millisecond.
    pub(crate) fn next(self, now: Now, shard: ShardId) -> Stamp {
        let shard = shard.0;
        match now.0 > self.at {
            true => Stamp { at: now.0, counter: 0, shard },
            false => Stamp { at: self.at, counter: self.counter + 1, shard },
        }
    }
}
