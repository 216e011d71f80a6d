//! What stands between a session's messages and its socket: one byte that a delivery looks at.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate(u8);

impl Gate {
    /// More unsent bytes than `write_bytes_max`.
    pub(crate) const CONGESTED: Gate = Gate(1);
    /// It was sent what its rate allows for now.
    pub(crate) const AHEAD: Gate = Gate(2);
    /// It has a rate: every message passes by the queue.
    pub(crate) const METERED: Gate = Gate(4);
    /// Its connection is not there for messages.
    pub(crate) const QUIET: Gate = Gate(8);

    /// Whether messages go straight to the socket.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        self.0 == 0
    }

    /// Whether messages wait in the queue.
    #[inline]
    pub(crate) fn is_shut(self) -> bool {
        self.0 & (Gate::CONGESTED.0 | Gate::AHEAD.0 | Gate::QUIET.0) != 0
    }

    #[inline]
    pub(crate) fn has(self, mark: Gate) -> bool {
        self.0 & mark.0 != 0
    }

    pub(crate) fn set(&mut self, mark: Gate, is_set: bool) {
        self.0 = if is_set { self.0 | mark.0 } else { self.0 & !mark.0 };
    }
}
