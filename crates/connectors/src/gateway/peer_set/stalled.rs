//! Peers that read nothing: when they are given up, and who gets their messages.

use super::super::settings::GatewaySettings;
use super::*;
use tokio::time::Instant;

impl PeerSetState {
    /// Since when one takes nothing of what it was sent while that, with what others were sent, is
    /// all that the session here gives out before it is told more, and somebody has nothing.
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

    /// Disconnects the peer with most messages of those that have taken nothing for long.
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

    /// Gives messages of stuck peers to responsive ones.
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
