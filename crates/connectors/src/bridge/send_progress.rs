//! Whether what was said still gets on. A system takes hundreds of kilobytes at once, so on a slow
//! line a question may stand long behind what nobody sees leaving.

use engine::send_queue::unacknowledged_bytes;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::time::Instant;

/// The sockets between us and the other broker's system.
#[derive(Debug, Default)]
pub struct SendProgress {
    sockets: Vec<OwnedFd>,
    left: usize,
    looked: Option<Instant>,
    /// When some of it was last seen to have left.
    moved: Option<Instant>,
}

impl SendProgress {
    pub(super) fn with_socket(mut self, socket: &impl AsFd) -> io::Result<SendProgress> {
        self.sockets.push(socket.as_fd().try_clone_to_owned()?);
        Ok(self)
    }

    pub(super) fn update(&mut self, now: Instant) {
        // Who cannot say what it has left has nothing left.
        let each = |socket| unacknowledged_bytes(socket).unwrap_or_default();
        let left = self.sockets.iter().map(each).sum();
        if left < self.left {
            self.moved = Some(now);
        }
        (self.left, self.looked) = (left, Some(now));
    }

    pub(super) fn last_update(&self) -> Option<Instant> {
        self.looked
    }

    pub(super) fn last_progress(&self) -> Option<Instant> {
        self.moved
    }
}
