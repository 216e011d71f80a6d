//! The packet trace: an event for every packet which `EventOptions::trace` selects. An unset option
//! costs one comparison.
//!
//! A connection is registered here from its CONNECT, or from the start of the trace, until its last
//! bytes are written: refusals, and the DISCONNECT of a connection which the shard has already
//! removed, are often the reason for a trace.

use crate::broker_event::BrokerEvent;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::ConnId;
use crate::interface::outbox::Outbox;
use crate::peer::PeerAddress;
use crate::session::session_table::SessionTable;
use crate::statistics::ShardStatistics;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::{Packet, PacketFrame, Property, ProtocolVersion};

/// The traced connections of a shard, by `ConnId`.
#[derive(Debug, Default)]
pub(crate) struct PacketTracer {
    pub(crate) traced: HashMap<u32, TracedConn, FixedState>,
}

/// A traced connection, with the data which the decoder of its packets needs.
#[derive(Debug)]
pub(crate) struct TracedConn {
    client_id: Box<str>,
    peer: PeerAddress,
    version: ProtocolVersion,
    /// Topics of the aliases seen so far: set by the client, and set by the broker.
    aliases: [HashMap<u16, Box<str>, FixedState>; 2],
}

impl ShardStatistics {
    /// Registers a connection if the trace selects its packets.
    #[cold]
    pub(crate) fn start_trace(
        &mut self,
        conn: ConnId,
        client_id: &str,
        version: ProtocolVersion,
        connections: &ConnectionTable,
        sessions: &SessionTable,
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
    pub(crate) fn reload_trace(&mut self, connections: &ConnectionTable, sessions: &SessionTable) {
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
        sessions: &SessionTable,
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

impl TracedConn {
    /// Returns the trace event of a packet. A topic filter selects PUBLISH packets only. An unknown
    /// alias, set before the trace began, matches every filter.
    pub(crate) fn packet_event(
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
