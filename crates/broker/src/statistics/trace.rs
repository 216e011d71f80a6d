//! The packet trace: an event for every packet which `EventOptions::trace` selects. An unset option
//! costs one comparison.
//!
//! A connection is registered here from its CONNECT, or from the start of the trace, until its last
//! bytes are written: refusals, and the DISCONNECT of a connection which the shard has already
//! removed, are often the reason for a trace.

use crate::connection::connection_table::ConnectionTable;
use crate::connection::peer::PeerAddress;
use crate::context::ShardContext;
use crate::input::ConnId;
use crate::outbox::Outbox;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::ShardStatistics;
use crate::statistics::broker_event::BrokerEvent;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::{Packet, PacketFrame, Property, ProtocolVersion};

/// The traced connections of a shard, by `ConnId`.
#[derive(Debug, Default)]
pub(crate) struct PacketTracer {
    traced: HashMap<u32, TracedConn, FixedState>,
}

/// A traced connection, with the data which the decoder of its packets needs.
#[derive(Debug)]
struct TracedConn {
    client_id: Box<str>,
    peer: PeerAddress,
    version: ProtocolVersion,
    /// Topics of the aliases seen so far: set by the client, and set by the broker.
    aliases: [HashMap<u16, Box<str>, FixedState>; 2],
}

impl ShardContext {
    pub(crate) fn is_tracing(&self) -> bool {
        self.options.event_options.trace.is_some()
    }
}

impl ShardStatistics {
    /// Registers a connection if the trace selects its packets.
    #[cold]
    pub(crate) fn start_trace(
        &mut self,
        conn: ConnId,
        client_id: &str,
        version: ProtocolVersion,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
    ) {
        let (Some(trace), Some(known)) =
            (&sessions.context.options.event_options.trace, connections.conn(conn))
        else {
            return;
        };
        let peer = known.peer.address;
        let wanted = trace.client_id.as_ref().is_none_or(|wanted| wanted == client_id)
            && trace.address.is_none_or(|wanted| peer.ip() == Some(wanted));
        if wanted {
            let (client_id, aliases) = (client_id.into(), Default::default());
            self.tracer.traced.insert(conn.0, TracedConn { client_id, peer, version, aliases });
        } else {
            self.tracer.traced.remove(&conn.0);
        }
    }

    /// Applies a new, changed or removed trace option to all connections.
    pub(crate) fn reload_trace(
        &mut self,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
    ) {
        self.tracer = PacketTracer::default();
        if !sessions.context.is_tracing() {
            return;
        }
        for index in 0..connections.conns.len() as u32 {
            let Some(known) = connections.conn(ConnId(index)) else { continue };
            if let Some(id) = known.session() {
                let session = sessions.get(id);
                let (client_id, version) = (session.own_client_id().to_string(), session.version);
                self.start_trace(ConnId(index), &client_id, version, connections, sessions);
            }
        }
    }

    /// Unregisters a connection which moves to another shard.
    pub(crate) fn stop_trace(&mut self, conn: ConnId) {
        self.tracer.traced.remove(&conn.0);
    }

    #[cold]
    pub(crate) fn trace_received(
        &mut self,
        conn: ConnId,
        frame: PacketFrame<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if let Some(traced) = self.tracer.traced.get_mut(&conn.0) {
            let wanted = sessions
                .context
                .options
                .event_options
                .trace
                .as_ref()
                .and_then(|trace| trace.topic.as_deref());
            out.events.extend(traced.packet_event(frame, false, wanted));
        }
    }
}

impl Shard {
    /// Records the packets which this tick is going to write. The engine calls this function once
    /// per tick, only if `is_tracing`.
    pub fn trace_writes(&mut self, out: &mut Outbox) {
        for at in 0..out.writes().len() {
            let write = &out.writes()[at];
            let Some(traced) = self.statistics.tracer.traced.get_mut(&write.conn.0) else {
                continue;
            };
            let wanted = self
                .sessions
                .context
                .options
                .event_options
                .trace
                .as_ref()
                .and_then(|trace| trace.topic.as_deref());
            let bytes: Vec<u8> =
                write.slices(&out.arena).flat_map(|slice| slice.iter().copied()).collect();
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = mqtt::split_frame(rest, u32::MAX) {
                out.events.extend(traced.packet_event(frame, true, wanted));
                rest = &rest[frame.len..];
            }
        }
        let conns = &self.connections.conns;
        let lives = |conn: &u32| conns.get(*conn as usize).is_some_and(Option::is_some);
        self.statistics.tracer.traced.retain(|conn, _| lives(conn));
    }
}

impl TracedConn {
    /// Returns the trace event of a packet. A topic filter selects PUBLISH packets only. An unknown
    /// alias, set before the trace began, matches every filter.
    fn packet_event(
        &mut self,
        frame: PacketFrame<'_>,
        sent: bool,
        wanted: Option<&str>,
    ) -> Option<BrokerEvent> {
        let packet = match Packet::decode(frame, self.version) {
            Ok(packet) => packet,
            Err(violation) if wanted.is_none() => {
                let packet = format!("{} bytes, malformed: {violation}", frame.len);
                return Some(self.traced_event(sent, packet));
            }
            Err(_) => return None,
        };
        let mut text = packet.to_string();
        if let Packet::Publish(publish) = &packet {
            let alias = publish.properties.iter().find_map(|property| match property {
                Property::TopicAlias(alias) => Some(alias),
                _ => None,
            });
            let aliases = &mut self.aliases[usize::from(sent)];
            let mut topic = Some(publish.topic);
            if let (Some(alias), "") = (alias, publish.topic) {
                topic = aliases.get(&alias).map(|topic| &**topic);
                text.extend(topic.map(|topic| format!(" # {topic:?}")));
            } else if let Some(alias) = alias {
                aliases.insert(alias, publish.topic.into());
            }
            let matches = |filter| topic.is_none_or(|topic| mqtt::filter_matches(filter, topic));
            if !wanted.is_none_or(matches) {
                return None;
            }
        } else if wanted.is_some() {
            return None;
        }
        Some(self.traced_event(sent, text))
    }

    fn traced_event(&self, sent: bool, packet: String) -> BrokerEvent {
        let client_id = self.client_id.clone();
        BrokerEvent::Traced { client_id, peer: self.peer, sent, packet: packet.into() }
    }
}
