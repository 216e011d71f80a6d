//! Everything that can happen to a shard, and what it says to the others.

use crate::authorization::authz::{AuthzDecision, RequestId};
use crate::caches::CacheShardMessage;
use crate::connection::authentication::AuthDecision;
use crate::connection::peer::{PeerAddress, PeerInfo};
use crate::durability::persistent_session::QueueRecordId;
use crate::durability::stored_queue::StoreReadRequest;
use crate::durability::write_batch::StoreReader;
use crate::options::BrokerOptions;
use crate::routing::message::Message;
use crate::routing::shared::DispatchTarget;
use crate::rules::{LinkEvent, WindowRow};
use crate::statistics::sys::ShardCounters;
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
pub struct MonotonicMs(pub u64);

#[derive(Debug)]
pub enum ShardInput<'a> {
    /// A transport is ready that was accepted at `since`: its CONNECT is due from then on. `moved`
    /// says that another shard sent it here, greeting and all, with the peer that it knew.
    Opened {
        conn: ConnId,
        peer: PeerInfo,
        since: MonotonicMs,
        moved: bool,
    },
    /// A welcomed connection has one more stream.
    StreamOpened {
        conn: ConnId,
        of: ConnId,
    },
    /// A transport ended before it was ready.
    NotOpened {
        peer: PeerAddress,
        why: &'a dyn std::error::Error,
    },
    /// Received bytes, from the first byte that is not yet consumed. `Outbox::consumed` says how
    /// many were taken: fewer than all if a packet is incomplete, the outbox is full or the
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
    OutOfMemory {
        conn: ConnId,
    },
    /// A congested connection has written everything.
    Writable {
        conn: ConnId,
    },
    /// A message of another shard.
    ShardMessage {
        from: ShardId,
        cross: ShardMessage,
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
    /// The answer to `Effect::ReadStore`.
    StoreReady {
        reading: StoreReadRequest,
        stored: &'a dyn StoreReader,
    },
    /// The answer to `Effect::Authorize`.
    AuthzAnswered {
        request_id: RequestId,
        answer: AuthzDecision,
    },
    /// The answer to `Effect::Authenticate`.
    AuthDecided {
        conn: ConnId,
        case: u32,
        verdict: AuthDecision,
    },
    /// Time moved: fire what is due. Also the turn of whatever waits for room.
    Tick,
    Command(ShardCommand),
}

/// From the control plane.
#[derive(Clone, Debug)]
pub enum ShardCommand {
    /// Options that can change live.
    Reload(Arc<BrokerOptions>),
    /// Publishes a value of the control plane, retained, below `$SYS/broker/`; an empty value does
    /// not clear the topic. For shard 0.
    PublishSys { topic: Arc<str>, value: Arc<str> },
    /// Rules may hear of it. For one shard.
    LinkEvent(LinkEvent),
    /// Shutting down, first step: nobody new, and the wills of everyone, while there is somebody
    /// left to receive them: every session that does not outlive the process ends here
    /// [MQTT-3.1.2-8].
    Drain,
    /// Shutting down, last step: DISCONNECT 0x8B to 5.0 clients, and every connection closes.
    CloseAll,
}

/// Names a member of a shared group across shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionRef {
    pub shard: ShardId,
    pub session: SessionId,
    /// Sessions are numbered slots: the generation says which tenant is meant.
    pub generation: u32,
}

/// From one shard to another. Order within one pair of shards is kept.
#[derive(Clone, Debug)]
pub enum ShardMessage {
    /// Deliver to whoever here subscribes. Whoever sent it with a ticket wants to hear when what
    /// came of it is on the disk; 0 asks for nothing. Tickets count up between two shards, and
    /// `RetainAction` and `Dispatch` have them too.
    Publish {
        message: Message,
        ticket: u64,
        /// The store's copy of the message, if it must arrive once: see `cross_shard_log`.
        origin: Option<QueueRecordId>,
    },
    /// The receiver's requests under these tokens are on the disk.
    TokensCommitted {
        first: u64,
        last: u64,
    },
    /// The retained store of every shard holds the same; an empty payload clears. Delivered to
    /// whoever subscribes there, like `Publish`.
    Retain {
        message: Message,
        stamp: RetainStamp,
        ticket: u64,
        origin: Option<QueueRecordId>,
    },
    /// A member joins (or changes its options in) the group that the receiver owns.
    JoinGroup {
        group: Arc<str>,
        member: SessionRef,
        client_id: Arc<str>,
        options: SubscribeOptions,
        subscription_id: u32,
        /// Whether the member's session outlives the process.
        lasts: bool,
    },
    /// The SUBACK that waits for it may leave.
    GroupJoined {
        group: Arc<str>,
        member: SessionRef,
    },
    LeaveGroup {
        group: Arc<str>,
        member: SessionRef,
    },
    /// A session asks for a filter alone, which the receiver gives to one at a time.
    ClaimExclusive {
        filter: Arc<str>,
        member: SessionRef,
    },
    /// The SUBACK that waits for it may leave.
    ExclusiveClaimed {
        filter: Arc<str>,
        member: SessionRef,
        is_granted: bool,
    },
    /// The session has it no more.
    ReleaseExclusive {
        filter: Arc<str>,
        member: SessionRef,
    },
    /// The member's connection came or went, or its window has emptied: it may be given so many
    /// messages more than before.
    MemberRoom {
        group: Arc<str>,
        member: SessionRef,
        online: bool,
        more: u32,
    },
    /// The owner chose this member.
    DispatchToMember {
        group: Arc<str>,
        target: DispatchTarget,
        message: Message,
        /// The store's copy of the message, until the member has its own.
        origin: Option<QueueRecordId>,
        ticket: u64,
    },
    /// A member ended with this message undelivered: choose another.
    ReturnToGroup {
        group: Arc<str>,
        message: Message,
        origin: Option<QueueRecordId>,
    },
    /// A client came and went too often: nobody lets it in before.
    BanFlapping {
        client: u64,
        until: MonotonicMs,
    },
    /// For the window of a rule whose key the receiver owns.
    WindowRow(Box<WindowRow>),
    /// For a cache, or from one.
    Cache(Box<CacheShardMessage>),
    /// Once a `$SYS` interval, to shard 0.
    Counters(Box<ShardCounters>),
}

impl ShardMessage {
    /// The place in the store that the receiver strikes.
    pub(crate) fn origin(&self) -> Option<QueueRecordId> {
        match self {
            ShardMessage::Publish { origin, .. }
            | ShardMessage::Retain { origin, .. }
            | ShardMessage::DispatchToMember { origin, .. }
            | ShardMessage::ReturnToGroup { origin, .. } => *origin,
            ShardMessage::Cache(_)
            | ShardMessage::ClaimExclusive { .. }
            | ShardMessage::ExclusiveClaimed { .. }
            | ShardMessage::Counters(_)
            | ShardMessage::BanFlapping { .. }
            | ShardMessage::JoinGroup { .. }
            | ShardMessage::GroupJoined { .. }
            | ShardMessage::TokensCommitted { .. }
            | ShardMessage::LeaveGroup { .. }
            | ShardMessage::MemberRoom { .. }
            | ShardMessage::ReleaseExclusive { .. }
            | ShardMessage::WindowRow(_) => None,
        }
    }
}

/// Orders retained messages for one topic across shards: the highest wins everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetainStamp {
    pub at: u64,
    pub counter: u32,
    pub shard: u8,
}

impl RetainStamp {
    /// Higher than this one, whatever the clock says: clocks of shards differ by a tick, and one
    /// client may answer another within a millisecond.
    pub(crate) fn next(self, now: MonotonicMs, shard: ShardId) -> RetainStamp {
        let shard = shard.0;
        match now.0 > self.at {
            true => RetainStamp { at: now.0, counter: 0, shard },
            false => RetainStamp { at: self.at, counter: self.counter + 1, shard },
        }
    }
}
