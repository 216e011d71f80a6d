//! What leaves a shard: connections that we close or that go home, and words to other shards.

use crate::body::Body;
use crate::quic::Word;
use crate::release::{LANE_KEPT, RELEASE_MS};
use crate::ring::Parcel;
use broker::{Now, Peer, ShardId};

/// How long a closed connection's peer may go on before it gets a reset.
const LINGER_MS: u64 = 2_000;

impl Body {
    /// To the other shards, as much as the rings hold.
    pub(crate) fn push_lanes(&mut self) {
        if self.out.lanes.iter().all(|lane| lane.is_empty()) {
            return self.out.note_left();
        }
        // What a shard hears of may be struck in the store before this shard's next word there.
        self.store();
        for (to, lane) in self.out.lanes.iter_mut().enumerate() {
            if lane.is_empty() {
                continue;
            }
            let Some(ring) = &mut self.rings.outbound[to] else { continue };
            let slots = ring.room_for(lane.len()).min(lane.len());
            for cross in lane.drain(..slots) {
                ring.put(Parcel::Cross(cross));
            }
            if ring.is_grown() || lane.capacity() > LANE_KEPT {
                let at = Now(self.now.0 + RELEASE_MS);
                self.release.at.get_or_insert(at);
            }
            match &self.rings.bells[to] {
                _ if slots == 0 => {}
                bell if self.with_guest => bell.ring(),
                bell => bell.ring_from_host(),
            }
        }
        self.out.note_left();
    }

    /// Our side is done. The peer gets to read our last words, and what the socket had not taken
    /// before them, before anything resets the stream.
    pub(crate) fn close(&mut self, index: u32) {
        if self.hosts_relay(index) {
            return self.forget(index);
        }
        self.docket.withdraw(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.tail = Vec::new();
        if let Some(trunk) = socket.stream.trunk() {
            return self.close_strand(index, trunk);
        }
        if socket.layers.is_some() {
            self.end_layers(index);
        }
        self.count(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        // What it had to give up is missing in the stream: nothing may follow.
        if socket.starved && socket.unsent() > 0 {
            return self.forget(index);
        }
        let at = Now(self.now.0 + LINGER_MS);
        socket.leaves_at = at;
        self.leaving.push_back((at, index));
        if socket.unsent() == 0 {
            self.end_stream(index);
        }
    }

    /// All that we had to say to a connection that we closed is written.
    pub(crate) fn end_stream(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        match socket.stream.shutdown(std::net::Shutdown::Write) {
            Ok(()) => self.read_away(index),
            Err(_) => self.forget(index),
        }
    }

    pub(crate) fn send_home(&mut self, index: u32, home: ShardId, peer: Peer) {
        let Some(place) = self.sockets.get_mut(index as usize) else { return };
        let Some(mut socket) = place.take() else { return };
        self.count_out(&socket);
        self.freed.push(index);
        let _ = self.registry.deregister(&mut socket.stream);
        let (trunk, socket) = (socket.stream.trunk(), Box::new(socket.travelling()));
        let parcel = match trunk.map(|trunk| self.take_trunk(trunk, home)) {
            None => Parcel::Socket { socket, peer: Some(peer) },
            Some(Some(trunk)) => Parcel::Quic(Box::new(Word::Moves { trunk, socket, peer })),
            Some(None) => return,
        };
        self.homeward.push_back((usize::from(home.0), parcel));
    }

    pub(crate) fn push_homeward(&mut self) {
        while let Some((home, parcel)) = self.homeward.pop_front() {
            let Some(ring) = &mut self.rings.outbound[home] else { continue };
            let pushed = ring.push(parcel);
            if ring.is_grown() {
                self.release.at.get_or_insert(Now(self.now.0 + RELEASE_MS));
            }
            self.rings.bells[home].ring();
            if let Err(parcel) = pushed {
                return self.homeward.push_front((home, parcel));
            }
        }
    }
}
