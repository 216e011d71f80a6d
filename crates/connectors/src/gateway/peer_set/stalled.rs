//! Peers which do not read: when they are disconnected, and which peers get their messages.

use super::super::settings::GatewaySettings;
use super::*;
use tokio::time::Instant;

impl PeerSetState {
    /// Returns the oldest time without progress if messages in flight fill the whole window while a
    /// peer has no message at all. Returns `None` otherwise, or while a disconnection is in
    /// progress.
    pub(super) fn stalled_since(&self, settings: &GatewaySettings) -> Option<Instant> {
        let has_all = self.owed >= self.window(settings);
        let awaits = |seat: &PeerEntry| seat.queue.is_empty() && seat.unarrived == 0;
        let is_over = self.peers.values().any(|seat| seat.cut.is_some());
        if !has_all || is_over || !self.peers.values().any(awaits) {
            return None;
        }
        let owe = self.peers.values().filter(|seat| seat.unarrived > 0);
        owe.map(|seat| seat.last_progress).min()
    }

    /// Disconnects the peer with the most messages in flight among peers without progress for
    /// [`STALLED`].
    pub(super) fn disconnect_stalled(&mut self, settings: &GatewaySettings) {
        if self.stalled_since(settings).is_none_or(|since| since.elapsed() < STALLED) {
            return;
        }
        let stalled =
            |seat: &&mut PeerEntry| seat.unarrived > 0 && seat.last_progress.elapsed() >= STALLED;
        if let Some(most) =
            self.peers.values_mut().filter(stalled).max_by_key(|seat| seat.unarrived)
        {
            most.cut = Some(PeerCutReason::TookNothing);
            most.wake.notify_one();
        }
    }

    /// Returns queues of peers stuck for `STUCK` to `unassigned`, if a responsive peer has an empty
    /// queue.
    pub(super) fn reassign_stuck(&mut self) {
        if !self.has_idle_peer() {
            return;
        }
        for seat in self.peers.values_mut() {
            if seat.stuck_since.is_some_and(|since| since.elapsed() >= STUCK) {
                seat.queue_bytes = 0;
                self.unassigned.extend(seat.queue.drain(..));
            }
        }
    }
}
