//! Progress of sent bytes. The kernel buffers hundreds of kilobytes, so on a slow line a ping may
//! wait for a long time behind earlier bytes.

use engine::send_queue::unacknowledged_bytes;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::time::Instant;

/// The sockets between the bridge and the remote host, and the bytes which they have not delivered.
#[derive(Debug, Default)]
pub struct SendProgress {
    sockets: Vec<OwnedFd>,
    left: usize,
    looked: Option<Instant>,
    /// Time when `update` last saw fewer bytes left.
    moved: Option<Instant>,
}

impl SendProgress {
    pub(super) fn with_socket(mut self, socket: &impl AsFd) -> io::Result<SendProgress> {
        self.sockets.push(socket.as_fd().try_clone_to_owned()?);
        Ok(self)
    }

    pub(super) fn update(&mut self, now: Instant) {
        // A socket which cannot report its unsent bytes counts as empty.
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
