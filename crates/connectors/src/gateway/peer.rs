//! One connected socket: its handshake, then outgoing and incoming messages.

use super::peer_message::{PeerId, PeerMessage, cost};
use super::peer_set::{PeerCutReason, PeerSet, STALLED};
use super::settings::GatewaySettings;
use super::unacked_bytes::UnackedBytes;
use crate::connection::{LinkConnection, READ_BYTES};
use crate::metrics::{LinkDropReason, LinkMetrics};
use net::endpoint::AsyncStream;
use net::pause_aware_timeout::timeout;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::debug;
use zmtp_sp::{MultipartMessage, RoutingStrategy, SocketEvent, SocketProtocol};

/// State which all peers of a gateway share.
#[derive(Clone)]
pub(super) struct GatewayShared {
    pub(super) settings: Arc<GatewaySettings>,
    pub(super) peers: Arc<PeerSet>,
    pub(super) metrics: Arc<LinkMetrics>,
}

/// The task of one peer after [`GatewayPeer::establish`].
pub(super) struct GatewayPeer {
    shared: GatewayShared,
    way: LinkConnection<Box<dyn AsyncStream>>,
    speech: SocketProtocol,
    id: PeerId,
    wake: Arc<Notify>,
    heard: VecDeque<SocketEvent>,
    /// Decoded messages for which `PeerIntake` has no room.
    said: VecDeque<MultipartMessage>,
    /// Reason for the end of the peer; reported when `said` is empty.
    broken: Option<String>,
    /// Whether the peer closed the connection or the connection failed.
    has_hung_up: bool,
    out: Vec<u8>,
    /// Bytes taken from the front of `out` which a layer of the stream may still hold.
    unflushed: usize,
    /// Messages in `out`, or unflushed before it, with the offset of their end.
    begun: VecDeque<(usize, Arc<PeerMessage>)>,
    gauge: Arc<UnackedBytes>,
    /// Written messages with a receipt, with the position of their end in the byte stream.
    sent: VecDeque<(u64, Arc<PeerMessage>)>,
    looks: AckProbe,
}

/// Schedule of the checks how many bytes have arrived at the peer's host.
struct AckProbe {
    next: Instant,
    /// Number of checks since more bytes arrived.
    count: u32,
    /// Arrived bytes at the last progress, or at a write to an idle connection.
    arrived: u64,
    /// Time since which bytes are in flight without any arriving.
    since: Instant,
}

impl AckProbe {
    fn new(arrived: u64, now: Instant) -> AckProbe {
        AckProbe { next: now, count: 0, arrived, since: now }
    }

    /// Records a check. Returns whether more bytes arrived. Time counts only while bytes are in
    /// flight: a peer without room in its buffer receives none.
    fn record_look(&mut self, arrived: u64, is_in_flight: bool, now: Instant) -> bool {
        let has_moved = arrived != self.arrived;
        if has_moved {
            *self = AckProbe::new(arrived, now);
        } else if !is_in_flight {
            self.since = now;
        }
        has_moved
    }

    fn is_timed_out(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= PATIENCE
    }
}

/// Bytes waiting to be written above which no message is taken from the queue.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// Number of checks without a pause, after other tasks had a turn: a fast peer has read by then.
const LOOKS_AT_ONCE: u32 = 3;
const LOOK_LAST: Duration = Duration::from_millis(100);
/// Time after which a peer counts as gone if none of the bytes in flight arrive. A peer whose
/// buffer is full has no bytes in flight and may take its time.
const PATIENCE: Duration = Duration::from_secs(30);

impl GatewayPeer {
    /// Performs the handshake, within `connect_timeout`, and adds the peer to the set. `read` holds
    /// bytes received after a WebSocket upgrade.
    pub(super) async fn establish(
        shared: GatewayShared,
        wire: Box<dyn AsyncStream>,
        gauge: Arc<UnackedBytes>,
        read: Vec<u8>,
        speech: SocketProtocol,
    ) -> Result<GatewayPeer, String> {
        let now = Instant::now();
        let mut peer = GatewayPeer {
            shared,
            way: LinkConnection::new(wire, read),
            speech,
            id: 0,
            wake: Arc::default(),
            heard: VecDeque::new(),
            said: VecDeque::new(),
            broken: None,
            has_hung_up: false,
            out: Vec::new(),
            unflushed: 0,
            begun: VecDeque::new(),
            gauge,
            sent: VecDeque::new(),
            looks: AckProbe::new(0, now),
        };
        peer.speech.write_greeting(&mut peer.out);
        let mut buffer = vec![0; 4096];
        let within = peer.shared.settings.connect_timeout();
        let shaken = poll_fn(|cx| peer.shake_hands(cx, &mut buffer));
        match timeout(within, shaken).await {
            Ok(shaken) => shaken?,
            Err(_) => return Err(format!("no handshake within {} s", within.as_secs())),
        }
        let GatewayShared { settings, peers, .. } = &peer.shared;
        peer.id = peers.add_peer(settings, peer.wake.clone())?;
        if settings.pattern.subscribes() {
            for rule in &settings.rules.inward {
                peer.speech.write_subscribe(rule.prefix.as_bytes(), &mut peer.out);
            }
        }
        let peers = peer.shared.metrics.peers.fetch_add(1, Relaxed) + 1;
        debug!(target: "godwit::gateway", gateway = &*settings.name, peers, "a socket came");
        Ok(peer)
    }

    fn shake_hands(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<(), String>> {
        loop {
            self.way.poll_write(cx, &mut self.out).map_err(describe_io_error)?;
            self.read_frames();
            if self.heard.front() == Some(&SocketEvent::Open) {
                self.heard.pop_front();
                return Poll::Ready(Ok(()));
            }
            if let Some(why) = self.broken.take() {
                // The peer may still receive the reason.
                let _ = self.way.poll_write(cx, &mut self.out);
                return Poll::Ready(Err(why));
            }
            if !self.out.is_empty()
                && self.way.poll_write(cx, &mut self.out).map_err(describe_io_error)?
            {
                continue;
            }
            if !self.way.poll_read(cx, buffer).map_err(describe_io_error)? {
                return Poll::Pending;
            }
        }
    }

    /// Runs until the peer disconnects or the gateway stops.
    pub(super) async fn run(mut self) -> Result<(), String> {
        let ended = self.relay_until_end().await;
        // Messages which arrived before the end are acknowledged, and not given to another peer.
        self.probe_arrival().await;
        match (ended, self.leave_set()) {
            (Err(why), Some(doubt)) => Err(format!("{why}; {doubt}")),
            (ended, _) => ended,
        }
    }

    async fn relay_until_end(&mut self) -> Result<(), String> {
        let mut buffer = vec![0; READ_BYTES];
        let wake = self.wake.clone();
        loop {
            self.accept_frames();
            if self.said.is_empty()
                && let Some(why) = self.broken.take()
            {
                return Err(why);
            }
            self.check_held_bytes()?;
            self.fill_output();
            if let Some(end) = self.shared.peers.close_deadline() {
                let _ = timeout_at(end, self.drain(&mut buffer)).await;
                return Ok(());
            }
            let (is_under_way, next) = (self.has_unarrived(), self.looks.next);
            tokio::select! {
                biased;
                moved = poll_fn(|cx| self.poll(cx, &mut buffer)), if self.broken.is_none() => {
                    self.has_hung_up |= moved.is_err();
                    self.broken = self.broken.take().or(moved.err());
                }
                () = wake.notified() => {}
                () = sleep_until(next), if is_under_way => {
                    self.probe_arrival().await;
                    self.check_alive()?;
                }
            }
        }
    }

    /// Writes and reads as much as possible. Ready if any bytes were moved.
    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<(), String>> {
        let mut moved = self.write(cx).map_err(describe_io_error)?;
        // A peer which requests without reading the responses is not read, nor one with messages
        // which found no room.
        let has_room = self.said.is_empty() && self.out.len() < 2 * UNSENT_BYTES_MAX;
        let hears = has_room && !self.shared.peers.has_stopped_reading();
        if hears && self.way.poll_read(cx, buffer).map_err(describe_io_error)? {
            moved = true;
            self.read_frames();
        }
        if moved { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn read_frames(&mut self) {
        match self.speech.decode(self.way.unread(), &mut self.heard, &mut self.out) {
            Ok(taken) => self.way.consume(taken),
            Err(broken) => self.broken = Some(broken.to_string()),
        }
    }

    fn accept_frames(&mut self) {
        let GatewayShared { settings, peers, metrics } = &self.shared;
        while let Some(heard) = self.heard.pop_front() {
            match heard {
                SocketEvent::Open => {}
                SocketEvent::Message(message) if settings.pattern.receives() => {
                    self.said.push_back(message)
                }
                SocketEvent::Message(_) => {}
                SocketEvent::Subscribe(prefix) => {
                    if !peers.subscribe(self.id, &prefix, settings.subscriptions_max as usize) {
                        let why = "it has more subscriptions than peer.subscriptions_max, or one \
                                   of more than 1,024 bytes";
                        self.broken = Some(why.to_string());
                        break;
                    }
                }
                SocketEvent::Cancel(prefix) => peers.unsubscribe(self.id, &prefix),
                SocketEvent::Unroutable => metrics.count_drop(
                    &settings.name,
                    LinkDropReason::Unreadable,
                    "no way back in it",
                ),
            }
        }
        peers.accept_inbound(self.id, &mut self.said);
    }

    /// Charges the peer's partly received messages and subscriptions to the bound `peers_bytes_max`
    /// of all peers. Above the bound the peer with the most bytes is disconnected.
    fn check_held_bytes(&self) -> Result<(), String> {
        let GatewayShared { settings, peers, metrics } = &self.shared;
        let said: usize = self.said.iter().map(cost).sum();
        let held = self.way.unread().len() + self.speech.pending_bytes() + said;
        match peers.charge_bytes(self.id, held, settings) {
            Ok(()) => Ok(()),
            Err(PeerCutReason::HeldMost) => {
                metrics.count_drop(
                    &settings.name,
                    LinkDropReason::NoRoom,
                    "peers_bytes_max is reached",
                );
                Err("peers_bytes_max is reached, and it held most".to_string())
            }
            Err(PeerCutReason::TookNothing) => {
                self.gauge.reset_connection();
                let seconds = STALLED.as_secs();
                Err(format!("it took nothing for {seconds} s, and nothing was left for others"))
            }
        }
    }

    /// Encodes queued messages into `out` up to `UNSENT_BYTES_MAX`.
    fn fill_output(&mut self) {
        let GatewayShared { settings, peers, .. } = &self.shared;
        // For a socket of this host, a write counts as unread until all of it is read, so each
        // message is a write of its own.
        let most = if self.gauge.is_local() { 1 } else { UNSENT_BYTES_MAX };
        while self.out.len() < most {
            let Some(message) = peers.next_for_peer(self.id, settings) else { return };
            self.speech.encode(&message.message, &mut self.out);
            self.begun.push_back((self.unflushed + self.out.len(), message));
        }
        peers.mark_stuck(self.id, settings);
    }

    /// Writes `out`. Returns whether the socket, or a layer above it, accepted any byte.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let before = self.out.len();
        if self.has_unarrived() {
            self.gauge.update();
            self.acknowledge_arrived();
        }
        if !self.has_unarrived() {
            self.looks = AckProbe::new(self.gauge.arrived(), Instant::now());
        }
        // Under a steady flow a layer always holds bytes; without this bound all written messages
        // would stay in `begun`.
        let waits = self.unflushed >= UNSENT_BYTES_MAX;
        let out = if waits { &mut Vec::new() } else { &mut self.out };
        let mut moved = self.way.poll_write(cx, out)?;
        self.unflushed += before - self.out.len();
        if self.way.is_flushed() && self.unflushed > 0 {
            let len = std::mem::take(&mut self.unflushed);
            self.advance_output(len);
            self.gauge.update();
            self.acknowledge_arrived();
            moved = true;
        }
        Ok(moved)
    }

    /// Records that the socket has accepted `len` bytes of `out`. Messages with a receipt then wait
    /// for their arrival.
    fn advance_output(&mut self, len: usize) {
        for (end, _) in &mut self.begun {
            *end = end.saturating_sub(len);
        }
        let written = self.gauge.written();
        while self.begun.front().is_some_and(|(end, _)| *end == 0)
            && let Some((_, message)) = self.begun.pop_front()
        {
            match message.receipt {
                Some(_) => self.sent.push_back((written, message)),
                None => self.count_sent(&message),
            }
        }
    }

    /// Acknowledges messages which have arrived at the peer's host. The local session drops a
    /// message only then: bytes in the kernel's send buffer are lost with the connection.
    fn acknowledge_arrived(&mut self) {
        let arrived = self.gauge.arrived();
        if self.looks.record_look(arrived, self.gauge.is_in_flight(), Instant::now()) {
            self.shared.peers.record_progress(self.id);
        }
        while self.sent.front().is_some_and(|(end, _)| *end <= arrived)
            && let Some((_, message)) = self.sent.pop_front()
        {
            self.count_sent(&message);
            let GatewayShared { settings, peers, .. } = &self.shared;
            // A request keeps its receipt until the response.
            let receipt = message.receipt.filter(|_| !settings.pattern.sends_requests());
            peers.record_arrival(self.id, receipt);
        }
    }

    fn count_sent(&self, message: &PeerMessage) {
        let payload = message.message.frames.last().map_or(0, Vec::len);
        self.shared.metrics.count_out(payload);
    }

    /// Whether written bytes have not arrived yet.
    fn has_unarrived(&self) -> bool {
        self.gauge.written() > self.gauge.arrived()
    }

    /// Checks how many bytes have arrived, since the kernel reports no event for this.
    async fn probe_arrival(&mut self) {
        self.looks.count += 1;
        if let Some(over) = self.looks.count.checked_sub(LOOKS_AT_ONCE) {
            let pause = Duration::from_millis(1 << over.min(10));
            self.looks.next = Instant::now() + pause.min(LOOK_LAST);
        }
        yield_now().await;
        self.gauge.update();
        self.acknowledge_arrived();
    }

    fn check_alive(&self) -> Result<(), String> {
        if !self.looks.is_timed_out(Instant::now()) {
            return Ok(());
        }
        self.gauge.reset_connection();
        Err(format!("nothing arrives there since {} s", PATIENCE.as_secs()))
    }

    /// Waits until all sent bytes have arrived and the peer has closed the connection. Received
    /// bytes are discarded: closing a socket with unread bytes resets the connection, and the peer
    /// loses bytes which it has not read.
    async fn drain(&mut self, buffer: &mut [u8]) {
        let mut has_shut = false;
        loop {
            self.fill_output();
            let has_all = self.out.is_empty() && self.way.is_flushed() && !self.has_unarrived();
            if has_all && !has_shut {
                has_shut = true;
                let shut = poll_fn(|cx| Pin::new(&mut self.way.stream).poll_shutdown(cx));
                if shut.await.is_err() {
                    return;
                }
            }
            let (is_under_way, next) = (self.has_unarrived(), self.looks.next);
            tokio::select! {
                biased;
                moved = poll_fn(|cx| self.poll_last(cx, buffer)) => {
                    if moved.is_err() {
                        return;
                    }
                }
                () = sleep_until(next), if is_under_way => self.probe_arrival().await,
            }
        }
    }

    fn poll_last(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<()>> {
        let written = self.write(cx)?;
        let read = self.way.poll_read(cx, buffer)?;
        self.way.consume(self.way.unread().len());
        if written || read { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Removes the peer from the gateway's peers. Messages that have not arrived go to another peer
    /// if the pattern allows that. Returns a log text about the message that may have caused the
    /// end of the connection, if any.
    fn leave_set(&mut self) -> Option<String> {
        let id = std::mem::take(&mut self.id);
        if id == 0 {
            return None;
        }
        let doubt = self.poison_candidate().and_then(|message| self.describe_poison(&message));
        let GatewayShared { settings, peers, metrics } = &self.shared;
        let sent = self.sent.drain(..).map(|(_, message)| message);
        let begun = sent.chain(self.begun.drain(..).map(|(_, message)| message));
        let lost = peers.remove_peer(id, begun, settings.pattern.routing() == RoutingStrategy::One);
        count_lost(&self.shared, lost);
        let peers = metrics.peers.fetch_sub(1, Relaxed) - 1;
        debug!(target: "godwit::gateway", gateway = &*settings.name, peers, "a socket went");
        doubt
    }

    /// Returns the largest message in flight to a peer which closed the connection: the message to
    /// suspect if one was too long for the peer.
    fn poison_candidate(&self) -> Option<Arc<PeerMessage>> {
        let GatewayShared { settings, peers, .. } = &self.shared;
        let goes_on =
            settings.pattern.routing() == RoutingStrategy::One && peers.close_deadline().is_none();
        if !self.has_hung_up || !goes_on {
            return None;
        }
        let mut start = 0;
        let is_begun = |(end, _): &&(usize, Arc<PeerMessage>)| {
            let from = std::mem::replace(&mut start, *end);
            from == 0 || from < self.unflushed
        };
        let begun = self.begun.iter().take_while(is_begun).map(|(_, message)| message);
        let half_way = self.sent.iter().map(|(_, message)| message).chain(begun);
        half_way.min_by_key(|message| Reverse(message.message.len())).cloned()
    }

    /// Returns the log text about a message in flight when several connections ended, see
    /// [`PeerMessage::is_suspect`].
    fn describe_poison(&self, message: &PeerMessage) -> Option<String> {
        let GatewayShared { settings, peers, metrics } = &self.shared;
        let (count, len, topic) =
            (peers.count_disconnect(message), message.message.len(), &message.topic);
        if !message.is_suspect() {
            return None;
        }
        let doubt = format!(
            "{count} connections ended with a message of {len} bytes to {topic:?} half-way, so \
             others pass it: if it is too long there, message_bytes_max of the gateway has such \
             messages dropped"
        );
        metrics.record_failure(&settings.name, doubt.clone());
        if message.receipt.is_none() && !message.is_request() {
            metrics.count_drop(&settings.name, LinkDropReason::Refused, topic);
        }
        Some(doubt)
    }
}

/// Leaves the set of peers, also when the task is aborted.
impl Drop for GatewayPeer {
    fn drop(&mut self) {
        self.leave_set();
    }
}

/// Counts messages which are lost when a gateway stops.
pub(super) fn count_lost(shared: &GatewayShared, count: usize) {
    let about = "it waited for a socket when the gateway stopped";
    shared.metrics.count_drops(&shared.settings.name, LinkDropReason::NoPeer, about, count as u64);
}

fn describe_io_error(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes sent into a buffer with new room are in flight for one round trip; the wait before
    /// does not count.
    #[test]
    fn only_time_on_the_way_is_time_without_an_answer() {
        let start = Instant::now();
        let mut looks = AckProbe::new(7, start);
        let mut at = |tenths: u32, is_in_flight| {
            let now = start + LOOK_LAST * tenths;
            assert!(!looks.record_look(7, is_in_flight, now));
            looks.is_timed_out(now)
        };
        assert!(!at(600, false), "it has no room for a minute");
        assert!(!at(601, true), "and then it has");
        assert!(!at(899, true));
        assert!(at(901, true));
    }
}
