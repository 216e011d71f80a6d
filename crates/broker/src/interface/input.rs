//! The inputs of a shard, [`ShardInput`], and the messages between shards, [`ShardMessage`].

use crate::counters::ShardCounters;
use crate::ids::{ConnId, MonotonicMs, QueueRecordId, RequestId, RetainStamp, SessionRef, ShardId};
use crate::interface::authz::AuthzDecision;
use crate::interface::cache_message::CacheShardMessage;
use crate::interface::rule_event::{LinkEvent, WindowRow};
use crate::interface::store_access::{StoreReadRequest, StoreReader};
use crate::message::Message;
use crate::options::BrokerOptions;
use crate::peer::authentication::AuthDecision;
use crate::peer::{PeerAddress, PeerInfo};
use mqtt::SubscribeOptions;
use std::sync::Arc;

/// An input of `Shard::handle`: an event of the engine, of another shard or of the control plane.
#[derive(Debug)]
pub enum ShardInput<'a> {
    /// A transport is ready which was accepted at `since`; the CONNECT timeout counts from `since`.
    /// `moved` is set if another shard sent the connection here by `Effect::Move`, with its
    /// `PeerInfo` and all received bytes.
    Opened {
        conn: ConnId,
        peer: PeerInfo,
        since: MonotonicMs,
        moved: bool,
    },
    /// Connection `of`, whose CONNECT was accepted, has opened one more stream (QUIC).
    StreamOpened {
        conn: ConnId,
        of: ConnId,
    },
    /// A transport ended during its handshake (TLS, WebSocket, QUIC), for the reason `why`.
    NotOpened {
        peer: PeerAddress,
        why: &'a dyn std::error::Error,
    },
    /// Received bytes, from the first byte not yet consumed. `Outbox::consumed` returns how many
    /// bytes were taken: fewer than all if a packet is incomplete, if the outbox is full or after
    /// `Effect::Hold`.
    Bytes {
        conn: ConnId,
        bytes: &'a [u8],
    },
    /// The transport is closed, by the peer or by the network.
    Closed {
        conn: ConnId,
    },
    /// More than `BrokerOptions::write_bytes_max` bytes wait to be written to this connection.
    Congested {
        conn: ConnId,
    },
    /// The sockets exceed their share of the memory and the engine chose this connection to be
    /// closed: the connection ends with 0x97 (Quota exceeded).
    OutOfMemory {
        conn: ConnId,
    },
    /// A connection reported as `Congested` has written all its bytes.
    Writable {
        conn: ConnId,
    },
    /// A message from another shard, in the order in which `from` sent its messages.
    ShardMessage {
        from: ShardId,
        cross: ShardMessage,
    },
    /// The engine has performed a tick. The store has taken the tick's records as batch `seq`, if
    /// there were any, and all batches up to `durable` are on the disk.
    Committed {
        seq: u64,
        durable: u64,
    },
    /// All batches of the store up to `seq` are on the disk.
    Durable {
        seq: u64,
    },
    /// The store, in answer to `Effect::ReadStore`.
    StoreReady {
        reading: StoreReadRequest,
        stored: &'a dyn StoreReader,
    },
    /// The decision in answer to `Effect::Authorize`.
    AuthzAnswered {
        request_id: RequestId,
        answer: AuthzDecision,
    },
    /// The decision in answer to `Effect::Authenticate`.
    AuthDecided {
        conn: ConnId,
        case: u32,
        verdict: AuthDecision,
    },
    /// Time has passed: due timers fire, and sessions which wait for room in the outbox continue.
    Tick,
    Command(ShardCommand),
}

/// A command from the control plane (options, bridges, shutdown) to a shard.
#[derive(Clone, Debug)]
pub enum ShardCommand {
    /// New options. `Shard` compares them with its present ones and starts all checks which depend
    /// on a changed value, for example of permissions.
    Reload(Arc<BrokerOptions>),
    /// Publishes a value of the control plane as a retained message below `$SYS/broker/`. An empty
    /// value does not clear the topic. Only shard 0 receives this command.
    PublishSys { topic: Arc<str>, value: Arc<str> },
    /// State change of a link (bridge or sink) for the event rules. Only one shard receives this
    /// command.
    LinkEvent(LinkEvent),
    /// First step of a shutdown. The shard accepts no new connections and publishes all wills while
    /// subscribers are still connected [MQTT-3.1.2-8]. A delayed will of a persistent session stays
    /// stored for the next start.
    Drain,
    /// Last step of a shutdown: DISCONNECT 0x8B (Server shutting down) to MQTT 5.0 clients, then
    /// every connection closes.
    CloseAll,
}

/// A message from one shard to another. The order of messages between two shards is preserved.
#[derive(Clone, Debug)]
pub enum ShardMessage {
    /// Deliver `message` to the subscribers of the receiving shard. A `ticket` other than 0
    /// requests `TokensCommitted` once the records of the delivery are on the disk. Tickets
    /// increase between two shards; `Retain` and `DispatchToMember` carry tickets of the same
    /// sequence.
    Publish {
        message: Message,
        ticket: u64,
        /// The sender's stored copy, for a message which must survive a power cut: see
        /// `session::cross_shard_log`.
        origin: Option<QueueRecordId>,
    },
    /// The records requested by tickets `first` to `last` are on the receiver's disk.
    TokensCommitted {
        first: u64,
        last: u64,
    },
    /// Set or clear (empty payload) the retained message of a topic in the receiver's copy of the
    /// retained store, which is the same on every shard, and deliver the message like `Publish`.
    Retain {
        message: Message,
        stamp: RetainStamp,
        ticket: u64,
        origin: Option<QueueRecordId>,
    },
    /// `member` joins the shared group which the receiver owns, or changes its options there.
    JoinGroup {
        group: Arc<str>,
        member: SessionRef,
        client_id: Arc<str>,
        join: GroupJoin,
    },
    /// Answer to `JoinGroup`: the SUBACK which waits for the group may be sent.
    GroupJoined {
        group: Arc<str>,
        member: SessionRef,
    },
    LeaveGroup {
        group: Arc<str>,
        member: SessionRef,
    },
    /// A session requests an exclusive filter from the shard which owns the filter. The owner
    /// grants a filter to a single session at a time.
    ClaimExclusive {
        filter: Arc<str>,
        member: SessionRef,
    },
    /// Answer to `ClaimExclusive`: the SUBACK which waits for the filter may be sent.
    ExclusiveClaimed {
        filter: Arc<str>,
        member: SessionRef,
        is_granted: bool,
    },
    /// The session has unsubscribed or ended: the owner may grant the filter again.
    ReleaseExclusive {
        filter: Arc<str>,
        member: SessionRef,
    },
    /// The member connected or disconnected, or messages in its window were acknowledged. The owner
    /// may dispatch `more` messages to the member in addition to its earlier grants.
    MemberRoom {
        group: Arc<str>,
        member: SessionRef,
        online: bool,
        more: u32,
    },
    /// The group's owner dispatched `message` to a member of the receiving shard.
    DispatchToMember {
        group: Arc<str>,
        target: DispatchTarget,
        message: Message,
        /// The owner's stored copy of the message, to be removed once the member's shard has stored
        /// its own.
        origin: Option<QueueRecordId>,
        ticket: u64,
    },
    /// The member's session ended before delivery: the owner dispatches `message` to another
    /// member.
    ReturnToGroup {
        group: Arc<str>,
        message: Message,
        origin: Option<QueueRecordId>,
    },
    /// A client exceeded `BrokerOptions::flapping_count_max`: every shard refuses its CONNECT
    /// before `until`. `client` is `ShardContext::client_hash` of the client id.
    BanFlapping {
        client: u64,
        until: MonotonicMs,
    },
    /// A row for the window of a rule. The receiver owns the window's key.
    WindowRow(Box<WindowRow>),
    /// A request to a message cache, or the answer of a cache.
    Cache(Box<CacheShardMessage>),
    /// Counters of a shard for the `$SYS` tree, sent to shard 0 once per `$SYS` interval.
    Counters(Box<ShardCounters>),
}

impl ShardMessage {
    /// Returns the key of the record in the sender's part of the store that the receiver deletes
    /// together with its own write, if any.
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

/// The member chosen for a message, and the options of its subscription.
#[derive(Clone, Copy, Debug)]
pub struct DispatchTarget {
    pub member: SessionRef,
    pub options: SubscribeOptions,
    /// The subscription identifier [MQTT-3.3.4-3]; 0 where the client gave none.
    pub id: u32,
}

/// The subscription with which a member joins a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupJoin {
    pub options: SubscribeOptions,
    /// Subscription Identifier, or 0.
    pub id: u32,
    /// Whether the member's session is persistent.
    pub lasts: bool,
}
