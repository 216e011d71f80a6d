//! Bounds of a tick, a ring and a process that are no options, and the proof that they fit
//! together. What bounds one structure alone stands beside it.
//!
//! | bound | when it is reached |
//! |---|---|
//! | outbox bytes, deliveries a tick | the tick ends early; what is ready waits for the next |
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
//! | listeners, classes | the process does not start |
//! | a WebSocket's request: bytes, headers | it is answered with 431 |
//! | a WebSocket's frame | the connection closes with 1009 |
//! | memory bytes (option) | see `memory`: queues count as full, then what needs it is refused |

/// Indexes of owners have 31 bits, and the last two say something else where they are packed.
pub const INDEX_MAX: u32 = (1 << 31) - 2;
/// "None", where an index stands in 32 bits.
pub const NONE: u32 = u32::MAX;

/// Memory of a socket in the engine without its buffers, in bytes; a test of the engine proves it.
pub const SOCKET_BYTES: usize = 104;

/// Bytes that one connection may read in a tick.
pub const READ_BYTES_PER_TICK: usize = 64 * 1024;
/// A tick ends early once the outbox holds this many bytes of its own ...
pub const OUTBOX_BYTES_MAX: usize = 1024 * 1024;
/// ... or has this many deliveries, which bounds the time that one takes.
pub const OUTBOX_DELIVERIES_MAX: usize = 256 * 1024;
/// Nodes of the retained tree that all cursors together may look at in one turn, and topics and
/// messages of caches.
pub const CURSOR_STEPS_PER_TURN: u32 = 4096;
/// Packet ids are 1 to 65,535; a window spans fewer, so that an id never names two messages. What
/// stays unacknowledged longer leaves it: see `overdue`.
pub const FLIGHT_SPAN_MAX: usize = 65_000;
/// Default bounds of a session's queue in bytes: on the disk, ...
pub const STORED_QUEUE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// ... and in memory.
pub const MEMORY_QUEUE_BYTES_MAX: u64 = 64 * 1024 * 1024;
pub const MEMORY_QUEUE_MESSAGES_MAX: u64 = 10_000;
/// Messages at the front of a stored queue that are kept in memory too. Later ones are on the disk
/// only.
pub const QUEUE_FRONT_MESSAGES: usize = 1024;
pub const QUEUE_FRONT_BYTES: u64 = 1024 * 1024;
/// Slots of the ring from one shard to another.
pub const RING_SLOTS: usize = 8 * 1024;
/// Messages that a group's owner may give to a member on another shard before it hears of it.
pub const SHARE_GRANT_MAX: u32 = 256;
/// Shared groups of one session: each hears of every change of its room.
pub const SHARES_MAX: usize = 1024;
/// Rules that the filters of one packet are compared with, and subscriptions in one tick: some
/// 8 ms where each rule has to be looked at as a whole.
pub const RULES_PER_TICK: usize = 1 << 19;
/// The longest delay, which is EMQX's.
pub const DELAY_S_MAX: u32 = 4_294_967;
/// Delayed messages that are published in one tick.
pub const DUE_PER_TICK: usize = 1024;
/// Largest answer to a request to a message cache, in messages, ...
pub const CACHE_ANSWER_MESSAGES_MAX: usize = 1000;
/// ... and how large that is: one message may be larger.
pub const CACHE_ANSWER_BYTES_MAX: usize = 1024 * 1024;
pub const CACHE_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// Requests of a shard's clients that wait for an answer.
pub const CACHE_READS_MAX: usize = 1024;
/// Topics and messages that one of them looks at before the next has its turn.
pub const CACHE_STEPS_PER_READ: u32 = 1024;
pub const SHARDS_MAX: usize = 64;
/// Sockets that listen, of which a host name may have several.
pub const LISTENERS_MAX: usize = 64;
pub const MEMORY_BYTES_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;
/// A peer that nobody knows yet gets no more room than its CONNECT, will included, needs.
pub const CONNECT_BYTES_MAX: u32 = 256 * 1024;

/// The request that opens a WebSocket; the time for it is CONNECT's.
pub const WEB_HEAD_BYTES_MAX: usize = 8 * 1024;
pub const WEB_HEADERS_MAX: usize = 64;
/// The longest packet of MQTT. Nothing waits for a frame's end, and nothing is kept of it.
pub const WEB_FRAME_BYTES_MAX: u64 = 5 + 268_435_455;

/// Groups of users that have limits of their own.
pub const CLIENT_GROUPS_MAX: usize = 255;

const _: () = assert!(LISTENERS_MAX < u8::MAX as usize);
const _: () = assert!(FLIGHT_SPAN_MAX < u16::MAX as usize);
const _: () = assert!(OUTBOX_BYTES_MAX >= READ_BYTES_PER_TICK);

/// Keys of one rule with a window on one shard; what comes under others is counted.
pub(crate) const WINDOW_KEYS_MAX: usize = 10_000;
/// Bound of all windows in bytes of the values that they keep.
pub(crate) const WINDOW_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Client ids of links (bridges and the like) begin so, and nobody else's do. Below its own id a
/// link finds what rules send it, under topics that nobody else may say or ask for.
pub const LINK_IDS: &str = "$link/";
