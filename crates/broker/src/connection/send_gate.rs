//! What stands between a session's messages and its socket: one byte that a delivery looks at.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendGate(u8);

impl SendGate {
    /// More unsent bytes than `write_bytes_max`.
    pub(crate) const CONGESTED: SendGate = SendGate(1);
    /// The client has been sent what its rate allows for now.
    pub(crate) const AHEAD: SendGate = SendGate(2);
    /// The client has a rate limit: every message goes through the queue.
    pub(crate) const METERED: SendGate = SendGate(4);
    /// Its connection is not there for messages.
    pub(crate) const QUIET: SendGate = SendGate(8);

    /// Whether messages go straight to the socket.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        self.0 == 0
    }

    /// Whether messages wait in the queue.
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
