//! Data streams: further streams of a transport with several (QUIC), in addition to the control
//! stream that carried CONNECT. Each data stream has a session of its own, with separate packet
//! ids, window and subscriptions, so packet loss on one stream does not delay the rest. The session
//! ends with the stream and takes the client's identity and permissions from the control stream.

use crate::connection::conn::{Conn, ConnState};
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{ConnId, MonotonicMs};
use crate::session::rate_meter::RateMeter;
use crate::session::session_table::SessionTable;

impl ConnectionTable {
    pub(crate) fn open_data_stream(
        &mut self,
        conn: ConnId,
        of: ConnId,
        sessions: &mut SessionTable,
    ) {
        let Some(from) = self.conn(of).and_then(Conn::connacked_session) else { return };
        let Some(control) = self.conn(of) else { return };
        let (peer, version) = (control.peer.for_data_stream(), control.version);
        let (topic_alias_max, receive_maximum) = (control.topic_alias_max, control.receive_maximum);
        let packet_bytes_max = control.packet_bytes_max;
        let session = sessions.create_data_stream(from);
        let class =
            sessions.get(session).permissions.as_ref().and_then(|rights| rights.client_group);
        let all = sessions.context.options.clone();
        let options = all.options_of_client(peer.listener, class);
        sessions.set_meter(session, RateMeter::of_writes(options));
        let meter = RateMeter::of_reads(options);
        let (heard, timer_at) = (sessions.context.now, MonotonicMs(u64::MAX));
        self.add_conn(
            conn,
            |generation| Conn {
                state: ConnState::Live { session },
                peer,
                version,
                is_bridge: false,
                moved: false,
                generation,
                silence_ms_max: 0,
                last_activity: heard,
                timer_at,
                topic_alias_max,
                receive_maximum,
                packet_bytes_max,
                aliases: Vec::new(),
                alias_bytes: 0,
                meter,
                exchange: None,
                pending_acks: 0,
            },
            sessions,
        );
        sessions.get_mut(session).conn = conn.0;
    }
}
