//! A QUIC connection, and its streams as sockets: what quinn says of them becomes what the poller
//! says of others.

use super::entrance::canonical;
use super::{Name, Quic, Udp};
use crate::body::Body;
use crate::layers::{Broken, Layers, Opening};
use crate::socket::Socket;
use crate::stream::Stream;
use crate::through::behind;
use crate::tls;
use broker::{ConnId, Input, Now, limits};
use quinn_proto::{
    Connection, ConnectionError, Dir, Event, ReadError, StreamEvent, StreamId, Transmit, VarInt,
    WriteError,
};
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Trunk {
    pub(super) name: Name,
    pub(super) conn: Connection,
    udp: Arc<Udp>,
    /// Where its peer is now.
    address: SocketAddr,
    /// The socket of its control stream: none once the broker has let go of it.
    pub(super) control: Option<u32>,
    /// The first stream that the client opened.
    stream: Option<StreamId>,
    /// Its other streams, with their sockets, ...
    branches: Vec<(StreamId, u32)>,
    /// ... and those that wait until the client is welcome.
    waiting: Vec<StreamId>,
    pub(super) opening: bool,
    /// The connection is gone; what came before that may still be read.
    lost: bool,
    pub(super) fresh: bool,
    pub(super) touched: bool,
    /// Where it stands among the timers.
    pub(super) timer: Option<Instant>,
    /// What the UDP socket did not take.
    stuck: Option<Box<(Transmit, Vec<u8>)>>,
}

/// How long a connection that we end may take to hear our last words.
const LINGER_MS: u64 = 2_000;
/// What a connection keeps while it is silent, measured: see docs/benchmarks.md, QUIC.
pub(super) const STATE_BYTES: u32 = 20 * 1024;
/// EMQX's words: all is well.
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// What a read found.
enum Found {
    /// Nothing more for now.
    Blocked,
    Ended,
    /// As much as one may.
    Full,
}

impl Trunk {
    pub(super) fn new(name: Name, conn: Connection, udp: Arc<Udp>) -> Trunk {
        Trunk {
            name,
            address: conn.remote_address(),
            conn,
            udp,
            control: None,
            stream: None,
            branches: Vec::new(),
            waiting: Vec::new(),
            opening: true,
            lost: false,
            fresh: false,
            touched: false,
            timer: None,
            stuck: None,
        }
    }

    /// The stream that a socket is.
    fn stream_of(&self, index: u32) -> Option<StreamId> {
        if self.control == Some(index) {
            return self.stream;
        }
        self.branches.iter().find(|(_, own)| *own == index).map(|(id, _)| *id)
    }

    fn receive(&mut self, stream: StreamId, into: &mut Vec<u8>, most: usize) -> Found {
        let mut stream = self.conn.recv_stream(stream);
        // A stream that was read to its end is closed.
        let Ok(mut chunks) = stream.read(true) else { return Found::Ended };
        let mut left = most;
        let found = loop {
            match chunks.next(left) {
                Ok(Some(chunk)) => {
                    left -= chunk.bytes.len();
                    into.extend_from_slice(&chunk.bytes);
                    if left == 0 {
                        break Found::Full;
                    }
                }
                Ok(None) | Err(ReadError::Reset(_)) => break Found::Ended,
                Err(ReadError::Blocked) => break Found::Blocked,
            }
        };
        // That the window has moved is said with whatever goes out when the turn ends.
        let _ = chunks.finalize();
        found
    }
}

impl Trunk {
    /// What was said on it arrives; what was not is not said any more.
    fn drop_branch(&mut self, index: u32) {
        let Some(at) = self.branches.iter().position(|(_, own)| *own == index) else { return };
        let (id, _) = self.branches.swap_remove(at);
        // Either side may have ended already.
        let _ = self.conn.send_stream(id).finish();
        let _ = self.conn.recv_stream(id).stop(NO_ERROR);
    }
}

impl Quic {
    pub(super) fn send(&mut self, at: u32) {
        let Some(trunk) = self.trunks.get_mut(at as usize).and_then(Option::as_mut) else { return };
        let is_full = |sent: &io::Result<()>| {
            sent.as_ref().is_err_and(|fault| fault.kind() == io::ErrorKind::WouldBlock)
        };
        if let Some(stuck) = &trunk.stuck
            && is_full(&trunk.udp.send(&stuck.0, &stuck.1))
        {
            return self.stalled.push(at);
        }
        trunk.stuck = None;
        let train = trunk.udp.train_len_max();
        loop {
            self.sent.clear();
            let Some(transmit) = trunk.conn.poll_transmit(self.now, train, &mut self.sent) else {
                break;
            };
            // Anything else is a datagram that was lost.
            if is_full(&trunk.udp.send(&transmit, &self.sent)) {
                trunk.stuck = Some(Box::new((transmit, self.sent.clone())));
                self.stalled.push(at);
                break;
            }
        }
        let next = trunk.conn.poll_timeout();
        if next != trunk.timer {
            if let Some(timer) = trunk.timer {
                self.timers.remove(&(timer, at));
            }
            trunk.timer = next;
            self.timers.extend(next.map(|timer| (timer, at)));
        }
    }
}

impl Body {
    fn trunk(&mut self, at: u32) -> Option<&mut Trunk> {
        self.quic.as_mut()?.trunk(at)
    }

    /// Acts on everything that quinn has to tell of it.
    pub(super) fn drive(&mut self, at: u32) {
        while let Some(trunk) = self.trunk(at) {
            trunk.fresh = false;
            let Some(event) = trunk.conn.poll() else { break };
            match event {
                Event::Connected => self.trunk_opens(at),
                Event::ConnectionLost { reason } => self.trunk_ends(at, reason),
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => self.take_streams(at),
                Event::Stream(StreamEvent::Readable { id }) => {
                    if let Some(index) = self.strand(at, id) {
                        self.read(index);
                    }
                }
                Event::Stream(StreamEvent::Writable { id }) => {
                    if let Some(index) = self.strand(at, id) {
                        self.resend(index);
                    }
                }
                // Our last words have arrived, or nobody wants them.
                Event::Stream(StreamEvent::Finished { id } | StreamEvent::Stopped { id, .. }) => {
                    if let Some(index) = self.strand(at, id) {
                        self.strand_ends(index);
                    }
                }
                Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Available { .. })
                | Event::DatagramReceived
                | Event::DatagramsUnblocked
                | Event::HandshakeDataReady => {}
            }
        }
        self.look_at_address(at);
    }

    /// The socket of a stream.
    fn strand(&mut self, at: u32, id: StreamId) -> Option<u32> {
        let trunk = self.trunk(at)?;
        let control = trunk.control.filter(|_| trunk.stream == Some(id));
        let branch = || trunk.branches.iter().find(|(own, _)| *own == id);
        control.or_else(|| branch().map(|(_, index)| *index))
    }

    /// The handshake is done: the broker hears of it.
    fn trunk_opens(&mut self, at: u32) {
        let Some(trunk) = self.trunk(at) else { return };
        let Some(index) = trunk.control else { return };
        let chain = trunk.conn.crypto_session().peer_identity();
        let chain = chain.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        if std::mem::take(&mut trunk.opening)
            && let Some(quic) = &mut self.quic
        {
            quic.opening -= 1;
        }
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let Some(opening) = socket.layers.as_mut().and_then(|layers| layers.opening.take()) else {
            return;
        };
        let Opening { mut peer, since, .. } = *opening;
        if let Some(certificate) = chain.and_then(|chain| tls::certificate(&chain)) {
            peer.show(certificate);
        }
        peer.transport_bytes += STATE_BYTES;
        self.count(index);
        let input = Input::Opened { conn: ConnId(index), peer, since, moved: false };
        self.shard.handle(self.now, input, &mut self.out);
    }

    fn take_streams(&mut self, at: u32) {
        let Some(trunk) = self.trunk(at) else { return };
        while let Some(id) = trunk.conn.streams().accept(Dir::Bi) {
            match trunk.stream {
                None => trunk.stream = Some(id),
                Some(_) => trunk.waiting.push(id),
            }
        }
        let Some(index) = trunk.control else { return };
        // Before the handshake is done only early data gets here, which a listener has to allow.
        if trunk.opening {
            self.trunk_opens(at);
        }
        self.read(index);
    }

    /// Streams that came before the client was welcome, and that it may use from then on.
    pub(super) fn open_branches(&mut self, at: u32) {
        let Some(trunk) = self.trunk(at).filter(|trunk| !trunk.waiting.is_empty()) else { return };
        let Some(control) = trunk.control else { return };
        if !self.shard.is_welcomed(ConnId(control)) {
            return;
        }
        let Some(trunk) = self.trunk(at) else { return };
        for id in std::mem::take(&mut trunk.waiting) {
            let mut socket = Socket::new(Stream::Quic { trunk: at }, Vec::new());
            socket.layers = Some(Box::new(Layers::of_branch()));
            let Some(index) = self.place(socket) else { continue };
            if let Some(trunk) = self.trunk(at) {
                trunk.branches.push((id, index));
            }
            let input = Input::Branched { conn: ConnId(index), of: ConnId(control) };
            self.shard.handle(self.now, input, &mut self.out);
            // What it said already tells nobody else that it is there.
            self.list(index);
        }
    }

    fn trunk_ends(&mut self, at: u32, reason: ConnectionError) {
        let Some(trunk) = self.trunk(at) else { return };
        trunk.lost = true;
        let Some(index) = trunk.control else { return };
        if self.is_opening(index) {
            return self.never_opened(index, &Broken::Quic(reason));
        }
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_leaving() || socket.starved {
            return self.forget(index);
        }
        socket.drop_unsent();
        self.count(index);
        self.read(index);
    }

    fn strand_ends(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_leaving() {
            self.forget(index);
        } else {
            self.lost(index);
        }
    }

    /// Reads once, and hands over what that says.
    pub(crate) fn read_strand(&mut self, index: u32, trunk: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.layers.as_ref().is_some_and(|layers| layers.opening.is_some()) {
            return;
        }
        let Some(quic) = &mut self.quic else { return };
        let Some(own) = quic.trunk(trunk) else { return };
        let (mut plain, grows) = behind(&mut socket.tail, &mut self.plain);
        let before = plain.len();
        let found = match own.stream_of(index) {
            Some(stream) => own.receive(stream, &mut plain, limits::READ_BYTES_PER_TICK),
            None => Found::Blocked,
        };
        let (lost, control) = (own.lost, own.control);
        quic.touch(trunk);
        let came = plain.len() > before;
        // A word on any stream is a sign of the client's life.
        if let Some(control) = control.filter(|own| came && *own != index) {
            let input = Input::Bytes { conn: ConnId(control), bytes: &[] };
            self.shard.handle(self.now, input, &mut self.out);
        }
        self.hand_over_plain(index, plain, grows, came);
        match found {
            Found::Full => self.list(index),
            // What it said before has to be done first, and may have to wait.
            Found::Ended | Found::Blocked if came && (lost || matches!(found, Found::Ended)) => {
                self.list(index);
            }
            Found::Ended => self.lost(index),
            Found::Blocked if lost => self.lost(index),
            Found::Blocked => {}
        }
    }

    /// A socket goes on with what is unsent, whatever takes it. True once nothing is.
    pub(crate) fn resend_of(&mut self, index: u32) -> io::Result<bool> {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return Ok(true) };
        match socket.stream.trunk() {
            None => socket.resend(),
            Some(trunk) => self.write_strand(index, trunk),
        }
    }

    /// Whether what a socket did not take by itself was only waiting for its trunk.
    pub(crate) fn has_trunk_take_all(&mut self, index: u32) -> bool {
        let socket = self.sockets.get(index as usize).and_then(Option::as_ref);
        let trunk = socket.and_then(|socket| socket.stream.trunk());
        trunk.is_some_and(|trunk| matches!(self.write_strand(index, trunk), Ok(true)))
    }

    /// Gives the trunk what is unsent, as much as the peer's window and ours have room for. Says
    /// whether that was all.
    pub(crate) fn write_strand(&mut self, index: u32, trunk: u32) -> io::Result<bool> {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return Ok(true) };
        let Some(quic) = &mut self.quic else { return Ok(true) };
        let Some(own) = quic.trunk(trunk) else { return Ok(true) };
        let Some(stream) = own.stream_of(index) else { return Ok(false) };
        let mut stream = own.conn.send_stream(stream);
        let sent = socket.resend_by(|bytes| {
            stream.write(bytes).map_err(|error| match error {
                WriteError::Blocked => io::ErrorKind::WouldBlock.into(),
                WriteError::Stopped(_) | WriteError::ClosedStream => {
                    io::ErrorKind::BrokenPipe.into()
                }
            })
        });
        quic.touch(trunk);
        sent
    }

    /// Our side is done: the stream ends, and once the peer has it all the connection does, where
    /// it is the control stream.
    pub(crate) fn close_strand(&mut self, index: u32, trunk: u32) {
        let sent = self.write_strand(index, trunk);
        let finished = self.trunk(trunk).and_then(|own| {
            let stream =
                own.stream_of(index).filter(|_| !own.lost && own.control == Some(index))?;
            own.conn.send_stream(stream).finish().ok()
        });
        self.end_branches(trunk);
        self.count(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if !matches!(sent, Ok(true)) || finished.is_none() {
            return self.forget(index);
        }
        let at = Now(self.now.0 + LINGER_MS);
        socket.leaves_at = at;
        self.leaving.push_back((at, index));
    }

    /// Its control stream ends, and so do the others: the broker is told when the turn ends, since
    /// what it decided is being performed.
    fn end_branches(&mut self, trunk: u32) {
        let Some(quic) = &mut self.quic else { return };
        let Some(own) = quic.trunk(trunk).filter(|own| own.control.is_some()) else { return };
        let branches: Vec<u32> = own.branches.iter().map(|(_, index)| *index).collect();
        own.waiting.clear();
        quic.orphans.extend(branches);
    }

    /// The socket is gone: so is its stream, and with the control stream the connection.
    pub(crate) fn let_go(&mut self, index: u32, trunk: u32) {
        let Some(quic) = &mut self.quic else { return };
        let now = quic.now;
        let Some(own) = quic.trunk(trunk) else { return };
        own.drop_branch(index);
        if own.control != Some(index) {
            return quic.touch(trunk);
        }
        self.end_branches(trunk);
        let Some(quic) = &mut self.quic else { return };
        let Some(own) = quic.trunk(trunk) else { return };
        own.control = None;
        if !own.conn.is_closed() {
            own.conn.close(now, NO_ERROR, bytes::Bytes::new());
        }
        if std::mem::take(&mut own.opening) {
            quic.opening -= 1;
        }
        quic.touch(trunk);
    }

    /// It goes home: what comes for it from now on follows it.
    pub(crate) fn take_trunk(&mut self, at: u32, home: broker::ShardId) -> Option<Box<Trunk>> {
        let quic = self.quic.as_mut()?;
        let mut trunk = quic.remove(at)?;
        trunk.control = None;
        if let Some(entrance) = quic.entrance(trunk.name.listener) {
            entrance.away.insert(trunk.name.handle, home);
        }
        Some(trunk)
    }

    /// Where the socket of its control stream is, which is its first.
    pub(crate) fn seat_strand(&mut self, index: u32, trunk: u32) {
        if let Some(own) = self.trunk(trunk) {
            own.control.get_or_insert(index);
        }
    }

    /// A peer that is elsewhere now may be where nobody may come from.
    fn look_at_address(&mut self, at: u32) {
        let now = self.now;
        let Some(trunk) = self.trunk(at) else { return };
        let address = trunk.conn.remote_address();
        if address == std::mem::replace(&mut trunk.address, address) {
            return;
        }
        let control = trunk.control;
        if self.shard.turns_away(now, canonical(address), &mut self.out)
            && let Some(index) = control
        {
            self.strand_ends(index);
        }
    }
}
