//! The connections of a shard.

use crate::connection::conn::Conn;
use crate::connection::flapping::FlappingDetector;
use crate::connection::stalls::StallSearch;
use crate::input::ConnId;
use crate::statistics::broker_event::{BURST_LINES_PER_S, PeerLog};
use crate::statistics::log_rate_limiter::LogRateLimiter;

/// The connections of a shard, and what is known of addresses and clients that come and go.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    pub(crate) conns: Vec<Option<Conn>>,
    pub(crate) conn_generation: u32,
    /// ConnectionTable which are held while the store has a backlog.
    pub(crate) store_waiters: Vec<ConnId>,
    /// Details of the violation that ends a connection next.
    pub(crate) violation_detail: Box<str>,
    pub(crate) flapping: FlappingDetector,
    pub(crate) stalls: StallSearch,
    pub(crate) draining: bool,
    /// Limits log events of connections which the broker closed.
    pub(crate) end_log_limiter: LogRateLimiter,
    /// Limits log events of clients whose windows are stalled.
    pub(crate) stall_log_limiter: LogRateLimiter,
    pub(crate) not_opened: PeerLog,
}

impl Default for ConnectionTable {
    fn default() -> ConnectionTable {
        ConnectionTable {
            conns: Vec::new(),
            conn_generation: 0,
            store_waiters: Vec::new(),
            violation_detail: Box::default(),
            flapping: FlappingDetector::default(),
            stalls: StallSearch::default(),
            draining: false,
            end_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
            stall_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
            not_opened: PeerLog::default(),
        }
    }
}
