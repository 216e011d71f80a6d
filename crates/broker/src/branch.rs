//! Streams beside the one that a client connected on, where its transport has several. Each is a
//! session of its own that ends with its stream: packet ids, windows and subscriptions of one have
//! nothing to do with those of another, so a loss on one keeps nobody else waiting. Who its client
//! is and what it may do it has from the connection.

use crate::conn::{Conn, State};
use crate::input::{ConnId, Now, SessionId};
use crate::limits::NONE;
use crate::meter::Meter;
use crate::outbox::Outbox;
use crate::session::Sessions;
use crate::shard::Shard;

impl Shard {
    /// Whether a connection has had its CONNACK: before that it has no branches.
    pub fn is_welcomed(&self, conn: ConnId) -> bool {
        self.conn(conn).and_then(Conn::welcomed).is_some()
    }

    pub(crate) fn branched(&mut self, conn: ConnId, of: ConnId) {
        let Some(from) = self.conn(of).and_then(Conn::welcomed) else { return };
        let Some(trunk) = self.conn(of) else { return };
        let (peer, version) = (trunk.peer.branch(), trunk.version);
        let (topic_alias_max, receive_maximum) = (trunk.topic_alias_max, trunk.receive_maximum);
        let packet_bytes_max = trunk.packet_bytes_max;
        let session = self.sessions.create_branch(from);
        let class = self.sessions.get(session).rights.as_ref().and_then(|rights| rights.class);
        let all = self.options.clone();
        let options = all.of_client(peer.listener, class);
        self.sessions.set_meter(session, Meter::outward(options));
        let meter = Meter::inward(options);
        let (heard, timer_at) = (self.now, Now(u64::MAX));
        self.add_conn(conn, |generation| Conn {
            state: State::Live { session },
            peer,
            version,
            is_bridge: false,
            moved: false,
            generation,
            silence_ms_max: 0,
            heard,
            timer_at,
            topic_alias_max,
            receive_maximum,
            packet_bytes_max,
            aliases: Vec::new(),
            alias_bytes: 0,
            meter,
            exchange: None,
            owed: 0,
        });
        self.sessions.get_mut(session).conn = conn.0;
    }

    /// Nobody hears of a stream's end: its client is still there, or goes by itself.
    pub(crate) fn end_branch(&mut self, id: SessionId, out: &mut Outbox) {
        self.sessions.get_mut(id).conn = NONE;
        self.end_session(id, false, out);
    }
}

impl Sessions {
    /// Another stream of a client's: whoever asks for the client finds its session and not this.
    fn create_branch(&mut self, of: SessionId) -> SessionId {
        let from = self.get(of);
        let (client_id, version) = (from.client_id.clone(), from.version);
        let (window, packet_bytes_max) = (from.window, from.packet_bytes_max);
        let (problem_information, listener) = (from.problem_information, from.listener);
        let rights = from.rights.as_ref().map(|rights| Box::new(rights.branch()));
        let id = SessionId(self.insert(&client_id, version));
        let branch = self.get_mut(id);
        branch.is_branch = true;
        (branch.window, branch.packet_bytes_max) = (window, packet_bytes_max);
        branch.problem_information = problem_information;
        branch.listener = listener;
        self.branches += 1;
        self.set_rights(id, rights);
        id
    }
}
