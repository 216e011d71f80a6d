//! A flag which tells other threads whether a connection still exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a connection still waits for an authentication result. Workers skip jobs for closed
/// connections. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLiveness {
    is_closed: Arc<AtomicBool>,
}

impl ConnectionLiveness {
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// Marks the connection as closed, or its deadline as passed. Later results are discarded.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}
