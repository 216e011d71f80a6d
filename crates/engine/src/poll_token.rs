//! Tokens of a poller. The scheduler's poller reports sockets of several shards, so a token names
//! the shard in its highest bits, and a socket or listener of the shard in the others.

use broker::{ShardId, limits};
use mio::Token;

/// Token of a poller's own waker. The last shard has no listeners, so no socket has this token.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// Socket indices from here on are the listeners of shard 0.
pub(crate) const LISTENER_FIRST: usize = INDEX_MAX - limits::LISTENERS_MAX;

/// Encodes a shard and its socket index.
pub(crate) fn socket_token(shard: ShardId, index: usize) -> Token {
    Token(usize::from(shard.0) << INDEX_BITS | index)
}

/// Decodes a [`Token`] into the shard and the socket index.
pub(crate) fn split_token(token: Token) -> (usize, usize) {
    (token.0 >> INDEX_BITS, token.0 & INDEX_MAX)
}

const INDEX_BITS: u32 = usize::BITS - limits::SHARDS_MAX.ilog2();
const INDEX_MAX: usize = (1 << INDEX_BITS) - 1;
const _: () = assert!(limits::SHARDS_MAX.is_power_of_two());
