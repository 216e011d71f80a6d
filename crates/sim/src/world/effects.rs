//! Performs an outbox: bytes, batches of the store, effects.

use super::*;
use broker::{Effect, Outbox, ShardInput, ShardMessage, StoreReadRequest};

impl SimWorld {
    /// Performs the outbox of a shard in the engine's order: store, writes, messages to shards,
    /// effects.
    pub(super) fn perform_outbox(&mut self, at: usize) {
        if !self.is_stopped() {
            self.commit(at);
        }
        if self.is_stopped() {
            // The power failed with this batch: its effects do not happen.
            let shards = self.shards.len();
            self.shards[at].out = Outbox::new(shards);
            return;
        }
        let place = &mut self.shards[at];
        for write in place.out.writes() {
            let Some(Some(id)) = place.conns.get(write.conn.0 as usize) else { continue };
            let wire = &mut self.wires[id.0];
            wire.unsent.extend(write.slices(&place.out.arena).flatten());
        }
        let effects = std::mem::take(&mut place.out.effects);
        for to in 0..self.shards.len() {
            let said: Vec<ShardMessage> = self.shards[at].out.lanes[to].drain(..).collect();
            self.shards[to].lanes[at].extend(said);
        }
        self.shards[at].out.clear();
        for effect in effects {
            self.perform_effect(at, effect);
        }
    }

    pub(super) fn commit(&mut self, at: usize) {
        let Some(disk) = &mut self.disk else { return };
        let place = &mut self.shards[at];
        // As in the engine: handling `Committed` may write more records.
        while place.shard.has_records() || place.store.has_refused() {
            let (changes, urgent) = place.shard.take_records();
            let rng = self.rng.as_mut();
            let refuses = disk.refuses && rng.is_none_or(|rng| !rng.one_in(4));
            let Some(seq) = place.store.commit(changes, urgent, disk, refuses) else {
                let store_client = &place.store;
                return place.out.hold_unwritten(|space, key| store_client.is_parked(space, key));
            };
            place.out.release_held(|cross| place.shard.update_late_message(cross));
            let durable = disk.durable();
            place.shard.handle(self.now, ShardInput::Committed { seq, durable }, &mut place.out);
        }
    }

    pub(super) fn give_store(&mut self, at: usize, reading: StoreReadRequest) {
        let Some(disk) = &self.disk else { return };
        let place = &mut self.shards[at];
        let stored = &disk.with_changes(&place.store.parked_changes());
        place.shard.handle(self.now, ShardInput::StoreReady { reading, stored }, &mut place.out);
        self.perform_outbox(at);
    }

    pub(super) fn perform_effect(&mut self, at: usize, effect: Effect) {
        if let Effect::ReadStore { reading } = effect {
            return self.give_store(at, reading);
        }
        if let Effect::Authorize { request_id, question } = effect {
            self.authorizer.receive_request(at, request_id, *question);
            if !self.authorizer.waits {
                self.answer_authz(usize::MAX);
            }
            return;
        }
        if let Effect::Authenticate { conn, case, request } = effect {
            self.users.pending.push((at, conn, case, *request));
            if !self.users.waits {
                self.answer_auth();
            }
            return;
        }
        let (Effect::Close { conn }
        | Effect::Hold { conn }
        | Effect::Move { conn, .. }
        | Effect::Resume { conn }) = effect
        else {
            return;
        };
        let Some(id) = self.shards[at].conns[conn.0 as usize] else { return };
        let wire = &mut self.wires[id.0];
        match effect {
            Effect::Close { .. } => {
                wire.end = None;
                wire.to_broker.clear();
                self.backlog.release(id);
                self.shards[at].conns[conn.0 as usize] = None;
            }
            Effect::Hold { .. } => wire.held = true,
            Effect::Resume { .. } => {
                wire.held = false;
                wire.ready = !wire.to_broker.is_empty();
            }
            Effect::Move { shard, peer, .. } => {
                self.shards[at].conns[conn.0 as usize] = None;
                self.attach(id, usize::from(shard.0), peer, true);
            }
            Effect::Authorize { .. } | Effect::Authenticate { .. } | Effect::ReadStore { .. } => {}
        }
    }
}
