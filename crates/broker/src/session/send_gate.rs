//! Reasons that keep a session's messages off the socket, as bits of one byte that each delivery
//! checks.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendGate(u8);

impl SendGate {
    /// The connection has more unsent bytes than `write_bytes_max`.
    pub(crate) const CONGESTED: SendGate = SendGate(1);
    /// The client has received as much as the rate limit allows for now.
    pub(crate) const AHEAD: SendGate = SendGate(2);
    /// The client has a rate limit: every message passes the queue, so `RateMeter` counts each.
    pub(crate) const METERED: SendGate = SendGate(4);
    /// The connection receives responses only (`Principal::is_quiet`).
    pub(crate) const QUIET: SendGate = SendGate(8);

    /// Whether a message may be written to the socket without a detour through the queue.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        self.0 == 0
    }

    /// Whether messages have to wait in the queue. [`METERED`](SendGate::METERED) alone does not
    /// stop the queue.
    #[inline]
    pub(crate) fn is_shut(self) -> bool {
        self.0 & (SendGate::CONGESTED.0 | SendGate::AHEAD.0 | SendGate::QUIET.0) != 0
    }

    #[inline]
    pub(crate) fn has(self, mark: SendGate) -> bool {
        self.0 & mark.0 != 0
    }

    pub(crate) fn set(&mut self, mark: SendGate, is_set: bool) {
        self.0 = if is_set { self.0 | mark.0 } else { self.0 & !mark.0 };
    }
}
