//! Where QUIC comes in: a UDP listener, and quinn's endpoint, which tells datagrams apart by their
//! connection ids and greets who is new.
//!
//! A datagram proves nothing of its sender. Until a peer has shown that it is where it says, it
//! gets at most three times what it sent [RFC 9000, 8.1], and where many handshakes are under way,
//! or connections are counted, it is asked to show that before anything is made for it (Retry).
//! What a handshake costs is bounded by the turn, as it is for TLS; who has to wait for that waits
//! in a short queue, and beyond that says it again.

use super::trunk::Trunk;
use super::{Name, Quic, Terms};
use crate::body::Body;
use crate::layers::{Layers, Opening};
use crate::socket::Socket;
use crate::stream::Stream;
use crate::through::HANDSHAKES_PER_TURN;
use broker::arrivals::Entry;
use broker::{Address, Input, ListenerId, Now, Peer, ShardId};
use carrier::{SLOT_BYTES, SLOTS, Udp, ecn_of};
use quinn_proto::{AcceptError, ConnectionHandle, DatagramEvent, Endpoint, Incoming, Transmit};
use quinn_udp::RecvMeta;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Entrance {
    pub(super) listener: ListenerId,
    udp: Arc<Udp>,
    pub(super) endpoint: Endpoint,
    /// Its trunks on other shards.
    pub(super) away: HashMap<ConnectionHandle, ShardId>,
    /// Whose handshakes wait for their turn.
    waiting: VecDeque<Incoming>,
    /// The UDP socket may have more.
    readable: bool,
}

/// Handshakes that wait for their turn; whoever comes then comes again by itself.
pub(super) const WAITING_MAX: usize = 1024;
/// With so many under way a peer has to show first that it is where it says.
const RETRY_FROM: usize = 64;
/// Calls that read, in one turn.
const CALLS_PER_TURN: usize = 8;

impl Entrance {
    pub(super) fn new(listener: ListenerId, udp: Arc<Udp>, terms: &Terms) -> Entrance {
        let config = Arc::new(terms.endpoint());
        let endpoint = Endpoint::new(config, Some(terms.config.clone()), true, None);
        let (away, waiting) = (HashMap::new(), VecDeque::new());
        Entrance { listener, udp, endpoint, away, waiting, readable: false }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.readable || !self.waiting.is_empty()
    }

    fn say(&self, transmit: &Transmit, bytes: &[u8]) {
        // Nothing that goes out here is worth waiting for: who does not get it asks again.
        let _ = self.udp.send(transmit, bytes);
    }
}

impl Quic {
    /// Says whether the listener is one of QUIC, which has something to read then.
    pub(crate) fn wake(&mut self, listener: usize) -> bool {
        let entrance =
            self.entrances.iter_mut().find(|own| usize::from(own.listener.0) == listener);
        if let Some(entrance) = entrance {
            entrance.readable = true;
            return true;
        }
        false
    }

    /// The same entrances, with what is behind them now. Nobody who is in notices.
    pub(super) fn change(&mut self, doors: &[crate::door::Door]) {
        for entrance in &mut self.entrances {
            let door = doors.get(usize::from(entrance.listener.0));
            if let Some(terms) = door.and_then(|door| door.quic.as_ref()) {
                entrance.endpoint.set_server_config(Some(terms.config.clone()));
            }
        }
    }
}

impl Body {
    /// Reads datagrams, as many as a turn may, and lets those whom they are for act on them.
    #[inline]
    pub(crate) fn read_datagrams(&mut self) {
        if self.quic.as_ref().is_some_and(|quic| quic.entrances.iter().any(Entrance::is_busy)) {
            self.read_entrances();
        }
    }

    /// Apart from what every turn of every broker looks at.
    #[cold]
    #[inline(never)]
    fn read_entrances(&mut self) {
        let Some(quic) = &mut self.quic else { return };
        let mut buffer = std::mem::take(&mut quic.received);
        buffer.resize(SLOTS * SLOT_BYTES, 0);
        let listeners: Vec<ListenerId> = quic.entrances.iter().map(|own| own.listener).collect();
        for listener in listeners {
            self.read_entrance(listener, &mut buffer);
            self.greet_waiting(listener);
        }
        if let Some(quic) = &mut self.quic {
            quic.received = buffer;
        }
        self.drive_fresh();
    }

    fn read_entrance(&mut self, listener: ListenerId, buffer: &mut [u8]) {
        let mut metas = [RecvMeta::default(); SLOTS];
        for _ in 0..CALLS_PER_TURN {
            // A full ring holds back who reads, and so does a turn that is spent on handshakes.
            if !self.homeward.is_empty() || self.handshakes >= 2 * HANDSHAKES_PER_TURN {
                return;
            }
            let Some(entrance) = self.quic.as_mut().and_then(|quic| quic.entrance(listener)) else {
                return;
            };
            if !entrance.readable {
                return;
            }
            let came = match entrance.udp.receive(buffer, &mut metas) {
                Ok(came) => came,
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {
                    entrance.readable = false;
                    return;
                }
                // Of a datagram that we sent: its trunk finds out by itself.
                Err(_) => continue,
            };
            for (meta, slot) in metas[..came].iter().zip(buffer.chunks_exact(SLOT_BYTES)) {
                for datagram in slot[..meta.len].chunks(meta.stride.max(1)) {
                    self.datagram(listener, meta, datagram);
                }
            }
        }
    }

    fn datagram(&mut self, listener: ListenerId, meta: &RecvMeta, bytes: &[u8]) {
        let Some(quic) = &mut self.quic else { return };
        let (now, mut answer) = (quic.now, std::mem::take(&mut quic.sent));
        answer.clear();
        let Some(entrance) = quic.entrance(listener) else { return };
        let endpoint = &mut entrance.endpoint;
        let ecn = ecn_of(meta);
        let event = endpoint.handle(now, meta.addr, meta.dst_ip, ecn, bytes.into(), &mut answer);
        match event {
            None => {}
            Some(DatagramEvent::Response(transmit)) => entrance.say(&transmit, &answer),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                self.tell_trunk(Name { listener, handle }, event);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.knock(listener, incoming, &mut answer);
            }
        }
        if let Some(quic) = &mut self.quic {
            quic.sent = answer;
        }
    }

    /// Somebody new, as it seems.
    fn knock(&mut self, listener: ListenerId, incoming: Incoming, answer: &mut Vec<u8>) {
        let address = address_of(&incoming);
        let is_banned = self.shard.turns_away(self.now, address, &mut self.out);
        let must_wait = self.waits_at(usize::from(listener.0)).is_some();
        // Else whoever writes another's address on it would use up what that one may.
        let is_counted = self.shard.options().counts_arrivals(listener);
        let Some(quic) = &mut self.quic else { return };
        let (draining, opening) = (quic.draining, quic.opening);
        let Some(entrance) = quic.entrance(listener) else { return };
        let waiting = entrance.waiting.len();
        // It will say it again: that is its queue.
        if is_banned || must_wait || waiting >= WAITING_MAX {
            return entrance.endpoint.ignore(incoming);
        }
        let is_doubtful = is_counted || opening + waiting >= RETRY_FROM;
        let is_doubtful = is_doubtful && incoming.may_retry();
        if draining || (is_doubtful && !incoming.remote_address_validated()) {
            let transmit = match draining {
                true => entrance.endpoint.refuse(incoming, answer),
                false => match entrance.endpoint.retry(incoming, answer) {
                    Ok(transmit) => transmit,
                    Err(error) => return entrance.endpoint.ignore(error.into_incoming()),
                },
            };
            return entrance.say(&transmit, answer);
        }
        entrance.waiting.push_back(incoming);
    }

    fn greet_waiting(&mut self, listener: ListenerId) {
        while self.handshakes < HANDSHAKES_PER_TURN {
            let Some(quic) = &mut self.quic else { return };
            let Some(entrance) = quic.entrance(listener) else { return };
            let Some(incoming) = entrance.waiting.pop_front() else { return };
            let began = Instant::now();
            self.greet(listener, incoming);
            self.handshakes += began.elapsed().max(Duration::from_micros(1));
        }
    }

    /// Its handshake begins, if limits have a place for it.
    fn greet(&mut self, listener: ListenerId, incoming: Incoming) {
        let address = address_of(&incoming);
        let (mut answer, options) = (Vec::new(), self.shard.options());
        let mut seat = None;
        if options.counts_arrivals(listener) {
            let (entry, own) = self.hall.knock(self.now, listener, Some(address), options);
            if let Entry::Closed(refusal) | Entry::Told(refusal) = entry {
                self.shard.turned_away(self.now, address, refusal, &mut self.out);
                let Some(quic) = &mut self.quic else { return };
                let Some(entrance) = quic.entrance(listener) else { return };
                let transmit = entrance.endpoint.refuse(incoming, &mut answer);
                return entrance.say(&transmit, &answer);
            }
            seat = own;
        }
        let Some(quic) = &mut self.quic else { return };
        let now = quic.now;
        let Some(entrance) = quic.entrance(listener) else { return };
        let udp = entrance.udp.clone();
        let (handle, conn) = match entrance.endpoint.accept(incoming, now, &mut answer, None) {
            Ok(accepted) => accepted,
            Err(AcceptError { cause, response }) => {
                if let Some(transmit) = response {
                    entrance.say(&transmit, &answer);
                }
                let input = Input::NotOpened { peer: address, why: &cause };
                return self.shard.handle(self.now, input, &mut self.out);
            }
        };
        let name = Name { listener, handle };
        let trunk = quic.add(Box::new(Trunk::new(name, conn, udp)));
        quic.opening += 1;
        quic.hear(trunk);
        let until = Now(self.now.0 + u64::from(self.connect_timeout_ms));
        let (peer, since) = (Peer::new(address, listener), self.now);
        let mut socket = Socket::new(Stream::Quic { trunk }, Vec::new());
        socket.seat = seat;
        socket.layers = Some(Box::new(Layers::of_quic(Opening { peer, since, until })));
        self.wait_until_open(socket);
    }
}

/// On [::] an IPv4 client comes in the clothes of an IPv6 one.
fn address_of(incoming: &Incoming) -> Address {
    canonical(incoming.remote_address())
}

pub(super) fn canonical(address: SocketAddr) -> Address {
    Address::Network(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
