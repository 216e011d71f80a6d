//! Bounds of a tick, a ring and a process which are not options, and assertions that they fit
//! together. The bound of a single structure is declared next to the structure.
//!
//! | bound | when it is reached |
//! |---|---|
//! | outbox bytes, deliveries a tick | the tick ends early; the rest waits for the next tick |
//! | ring slots | the shard stops reading from sockets until the ring has room |
//! | queue messages and bytes (options) | `queue_policy`: drop oldest, drop newest, disconnect |
//! | write bytes (option) | the connection is congested: messages wait in its session's queue |
//! | inflight (option, Receive Maximum) | messages wait in the session's queue |
//! | shared groups of a session | refused with 0x97 |
//! | rules that a SUBSCRIBE's filters are compared with | its other filters are refused with 0x97 |
//! | a delay | refused with 0x90 |
//! | delayed messages and bytes (options) | refused with 0x97 |
//! | delayed messages that are due | the rest is published in the next tick |
//! | messages and bytes of an answer from a cache | the answer says where the next one goes on |
//! | requests to caches that wait for an answer | refused with 0x97 |
//! | listeners, client groups | the process does not start |
//! | a WebSocket's request: bytes, headers | the request is answered with 431 |
//! | a WebSocket's frame | the connection closes with 1009 |
//! | memory bytes (option) | see `memory`: queues count as full, then allocations are refused |

/// Bound of a `Slab`'s indexes: 31 bits, whose two highest values are markers in packed slots.
pub const INDEX_MAX: u32 = (1 << 31) - 2;
/// The 32-bit index which stands for "none".
pub const NONE: u32 = u32::MAX;

/// Bytes of a socket in the engine without its buffers. A test of the engine compares the size.
pub const SOCKET_BYTES: usize = 104;

/// Bytes which a shard reads from a connection per tick.
pub const READ_BYTES_PER_TICK: usize = 64 * 1024;
/// Bytes of an `Outbox` (arena and writes) at which a tick ends early.
pub const OUTBOX_BYTES_MAX: usize = 1024 * 1024;
/// Deliveries at which a tick ends early. The bound limits the duration of a tick.
pub const OUTBOX_DELIVERIES_MAX: usize = 256 * 1024;
/// Steps per turn of all retained cursors and cache requests of a shard together: nodes of the
/// retained tree, topics and messages of caches.
pub const CURSOR_STEPS_PER_TURN: u32 = 4096;
/// Span of packet ids in a session's window. The span is below 65,535 so that an id never names two
/// messages; a message which stays unacknowledged longer moves to `overdue_slots`.
pub const FLIGHT_SPAN_MAX: usize = 65_000;
/// Default bound of a session's queue on the disk, in bytes (1 GiB).
pub const STORED_QUEUE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Default bound of a session's queue in memory, in bytes (64 MiB).
pub const MEMORY_QUEUE_BYTES_MAX: u64 = 64 * 1024 * 1024;
pub const MEMORY_QUEUE_MESSAGES_MAX: u64 = 10_000;
/// Messages at the front of a stored queue which stay in memory too. Messages behind this front are
/// only on the disk.
pub const QUEUE_FRONT_MESSAGES: usize = 1024;
pub const QUEUE_FRONT_BYTES: u64 = 1024 * 1024;
/// Slots of the ring from one shard to another.
pub const RING_SLOTS: usize = 8 * 1024;
/// Messages which a group's owner may dispatch to a member on another shard before the member's
/// shard reports room again by `ShardMessage::MemberRoom`.
pub const SHARE_GRANT_MAX: u32 = 256;
/// Shared groups of a session. Every change of a session's room is reported to each of its groups.
pub const SHARES_MAX: usize = 1024;
/// Comparisons of access rules per tick, for the filters of a SUBSCRIBE and for the reauthorization
/// of subscriptions: about 8 ms where every rule needs a full comparison.
pub const RULES_PER_TICK: usize = 1 << 19;
/// The longest delay of a delayed message in seconds, equal to EMQX's.
pub const DELAY_S_MAX: u32 = 4_294_967;
/// Delayed messages which a shard publishes per tick.
pub const DUE_PER_TICK: usize = 1024;
/// Messages in one answer to a request to a message cache.
pub const CACHE_ANSWER_MESSAGES_MAX: usize = 1000;
/// Bytes of one answer to a request to a message cache. A single larger message is still returned.
pub const CACHE_ANSWER_BYTES_MAX: usize = 1024 * 1024;
pub const CACHE_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// Requests to caches by a shard's clients which wait for an answer.
pub const CACHE_READS_MAX: usize = 1024;
/// Topics and messages which one request to a cache visits before the next request has its turn.
pub const CACHE_STEPS_PER_READ: u32 = 1024;
pub const SHARDS_MAX: usize = 64;
/// Listening sockets. A host name may resolve to several.
pub const LISTENERS_MAX: usize = 64;
pub const MEMORY_BYTES_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;
/// Packet bound before CONNECT is accepted: an unknown peer gets room for a CONNECT with a will,
/// 256 KiB.
pub const CONNECT_BYTES_MAX: u32 = 256 * 1024;

/// Bytes of the HTTP request which opens a WebSocket. The timeout is that of the CONNECT.
pub const WEB_HEAD_BYTES_MAX: usize = 8 * 1024;
pub const WEB_HEADERS_MAX: usize = 64;
/// Longest WebSocket frame: the longest MQTT packet. Frame payload is passed on as received, so a
/// long frame needs no memory.
pub const WEB_FRAME_BYTES_MAX: u32 = 5 + 268_435_455;

/// Groups of clients with options of their own (`ClientGroup`), limited by the `u8` index of a
/// group.
pub const CLIENT_GROUPS_MAX: usize = 255;

const _: () = assert!(LISTENERS_MAX < u8::MAX as usize);
const _: () = assert!(FLIGHT_SPAN_MAX < u16::MAX as usize);
const _: () = assert!(OUTBOX_BYTES_MAX >= READ_BYTES_PER_TICK);

/// Keys of one rule with a window on one shard. Rows with further keys are counted as failed.
pub(crate) const WINDOW_KEYS_MAX: usize = 10_000;
/// Bytes of the values in all windows of one rule on one shard. Further rows are counted as failed.
pub(crate) const WINDOW_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Prefix of the client ids of links (bridges, sinks), which no client may use. Rules send messages
/// to a link under topics below its client id, which clients may neither publish nor subscribe to.
pub const LINK_IDS: &str = "$link/";
