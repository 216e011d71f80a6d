//! Whether the connection still exists for which work is done elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a connection that waits for a verdict is still there. Work for one that has gone lets
/// nobody in.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLiveness {
    is_closed: Arc<AtomicBool>,
}

impl ConnectionLiveness {
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// The connection has ended, or its deadline has answered.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}
