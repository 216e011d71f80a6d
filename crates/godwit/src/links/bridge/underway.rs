//! Whether what was said still gets on. A system takes hundreds of kilobytes at once, so on a slow
//! line a question may stand long behind what nobody sees leaving.

use engine::underway::unacknowledged;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::time::Instant;

/// The sockets between us and the other broker's system.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    sockets: Vec<OwnedFd>,
    left: usize,
    looked: Option<Instant>,
    /// When some of it was last seen to have left.
    moved: Option<Instant>,
}

impl UnderWay {
    pub(super) fn also(mut self, socket: &impl AsFd) -> io::Result<UnderWay> {
        self.sockets.push(socket.as_fd().try_clone_to_owned()?);
        Ok(self)
    }

    pub(super) fn look(&mut self, now: Instant) {
        // Who cannot say what it has left has nothing left.
        let each = |socket| unacknowledged(socket).unwrap_or_default();
        let left = self.sockets.iter().map(each).sum();
        if left < self.left {
            self.moved = Some(now);
        }
        (self.left, self.looked) = (left, Some(now));
    }

    pub(super) fn looked(&self) -> Option<Instant> {
        self.looked
    }

    pub(super) fn moved(&self) -> Option<Instant> {
        self.moved
    }
}
