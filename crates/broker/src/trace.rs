//! The packet trace: a note for every packet of whoever `Options::trace` names. Costs one test of
//! an option where it is off.

use crate::input::{ConnId, SessionId};
use crate::note::Note;
use crate::outbox::Outbox;
use crate::shard::Shard;
use mqtt::{Frame, Packet, Version};
use std::net::SocketAddr;

impl Shard {
    /// Whether packets of this connection are traced.
    fn traces(&self, client_id: &str, peer: SocketAddr) -> bool {
        let Some(trace) = &self.options.trace else { return false };
        trace.client_id.as_ref().is_none_or(|wanted| wanted == client_id)
            && trace.address.is_none_or(|wanted| wanted == peer.ip())
    }

    #[cold]
    pub(crate) fn trace_received(
        &self,
        conn: ConnId,
        session: SessionId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) {
        let Some(known) = self.conn(conn) else { return };
        let session = self.sessions.get(session);
        if self.traces(&session.client_id, known.peer) {
            self.trace(&session.client_id, known.peer, session.version, frame, false, out);
        }
    }

    /// Notes what this tick is going to write. The engine calls it once a tick, and only where
    /// `is_tracing`.
    pub fn trace_writes(&self, out: &mut Outbox) {
        for at in 0..out.writes().len() {
            let write = &out.writes()[at];
            let Some(known) = self.conn(write.conn) else { continue };
            let Some(id) = known.session() else { continue };
            let session = self.sessions.get(id);
            if !self.traces(&session.client_id, known.peer) {
                continue;
            }
            let bytes: Vec<u8> =
                write.slices(&out.arena).flat_map(|slice| slice.iter().copied()).collect();
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = mqtt::cut(rest, u32::MAX) {
                self.trace(&session.client_id, known.peer, session.version, frame, true, out);
                rest = &rest[frame.len..];
            }
        }
    }

    pub fn is_tracing(&self) -> bool {
        self.options.trace.is_some()
    }

    fn trace(
        &self,
        client_id: &str,
        peer: SocketAddr,
        version: Version,
        frame: Frame<'_>,
        sent: bool,
        out: &mut Outbox,
    ) {
        let Ok(packet) = Packet::decode(frame, version) else { return };
        let wanted = self.options.trace.as_ref().and_then(|trace| trace.topic.as_ref());
        if let (Some(filter), Packet::Publish(publish)) = (wanted, &packet)
            && !mqtt::filter_matches(filter, publish.topic)
        {
            return;
        }
        let packet = packet.to_string().into();
        out.notes.push(Note::Traced { client_id: client_id.into(), peer, sent, packet });
    }
}
