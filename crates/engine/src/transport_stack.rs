//! The layers between the bytes of a socket and those of MQTT, in both directions:
//!
//! ```text
//! socket -> [PROXY header] -> [TLS] -> [WebSocket] -> MQTT
//! socket <------------------- [TLS] <- [WebSocket] <- MQTT
//! socket to another broker <-> [relay of a link] <-> MQTT
//! ```
//!
//! A plain socket has no stack and pays one test for it. The layers do no input or output: they
//! turn bytes into bytes.

use crate::proxy::{self, ProxyVersions};
use crate::relay::RelayLayer;
use crate::tls::{HANDSHAKE_BYTES, LayerProgress, SealedBuffer, TlsError, TlsLayer};
use crate::websocket::{self, WebSocketLayer, WebSocketSite};
use broker::{MonotonicMs, PeerAddress, PeerInfo};
use std::fmt;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct TransportStack {
    /// The handshake to report to the broker when all layers are ready; the broker does not know
    /// the connection before.
    handshake: Option<Box<PendingHandshake>>,
    /// Accepted versions of the PROXY header, until the header is read.
    proxy: Option<ProxyVersions>,
    tls: Option<TlsLayer>,
    web: Option<Box<WebSocketLayer>>,
    /// The stream belongs to a QUIC connection, whose handshake is done before its first byte.
    quic: bool,
    /// The relay of a link, which is then the only layer.
    relay: Option<RelayLayer>,
    /// Bytes read and not decoded: a partial PROXY header or TLS record.
    raw: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct PendingHandshake {
    peer: PeerInfo,
    since: MonotonicMs,
    /// Deadline of the handshake.
    until: MonotonicMs,
}

impl PendingHandshake {
    /// A handshake of a connection accepted at `since`, with the deadline `until`.
    pub(crate) fn new(peer: PeerInfo, since: MonotonicMs, until: MonotonicMs) -> PendingHandshake {
        PendingHandshake { peer, since, until }
    }

    pub(crate) fn peer_address(&self) -> PeerAddress {
        self.peer.address
    }

    /// Returns the peer and the time of the accept, for `ShardInput::Opened`.
    pub(crate) fn into_opened(self) -> (PeerInfo, MonotonicMs) {
        (self.peer, self.since)
    }
}

/// Why a connection cannot go on below MQTT; the text goes to the log.
#[derive(Debug)]
pub(crate) enum TransportError {
    /// The peer closed during the handshake.
    PeerLeft,
    NoMemory,
    Proxy(proxy::ProxyError),
    Quic(quinn_proto::ConnectionError),
    TimedOut,
    Tls(TlsError),
    Web(websocket::WebSocketError),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransportError::PeerLeft => f.write_str("the peer left before the handshake was done"),
            TransportError::NoMemory => f.write_str("memory is missing for its handshake"),
            TransportError::Proxy(wrong) => write!(f, "{wrong} (proxy.protocol)"),
            TransportError::Quic(error) => write!(f, "QUIC: {error}"),
            TransportError::TimedOut => {
                f.write_str("the handshake was not done in time (connect.timeout_ms)")
            }
            TransportError::Tls(error) => error.fmt(f),
            TransportError::Web(wrong) => write!(f, "WebSocket: {wrong}{}", wrong.option_hint()),
        }
    }
}

impl std::error::Error for TransportError {}

impl From<TlsError> for TransportError {
    fn from(error: TlsError) -> TransportError {
        TransportError::Tls(error)
    }
}

impl From<rustls::Error> for TransportError {
    fn from(error: rustls::Error) -> TransportError {
        TransportError::Tls(error.into())
    }
}

impl From<websocket::WebSocketError> for TransportError {
    fn from(wrong: websocket::WebSocketError) -> TransportError {
        TransportError::Web(wrong)
    }
}

impl From<proxy::ProxyError> for TransportError {
    fn from(wrong: proxy::ProxyError) -> TransportError {
        TransportError::Proxy(wrong)
    }
}

impl TransportStack {
    pub(crate) fn new(
        proxy: Option<ProxyVersions>,
        tls: Option<TlsLayer>,
        web: Option<Arc<WebSocketSite>>,
    ) -> TransportStack {
        let web = web.map(|site| Box::new(WebSocketLayer::new(site)));
        TransportStack {
            handshake: None,
            proxy,
            tls,
            web,
            quic: false,
            relay: None,
            raw: Vec::new(),
        }
    }

    /// Creates the stack of a QUIC control stream.
    pub(crate) fn for_quic(opening: PendingHandshake) -> TransportStack {
        TransportStack {
            handshake: Some(Box::new(opening)),
            quic: true,
            ..TransportStack::new(None, None, None)
        }
    }

    /// Creates the stack of a further stream of an open QUIC connection.
    pub(crate) fn for_data_stream() -> TransportStack {
        TransportStack { quic: true, ..TransportStack::new(None, None, None) }
    }

    pub(crate) fn of_relay(relay: RelayLayer) -> TransportStack {
        TransportStack { relay: Some(relay), ..TransportStack::new(None, None, None) }
    }

    /// Starts the handshake to report to the broker, on a new stack.
    pub(crate) fn begin_handshake(&mut self, opening: PendingHandshake) {
        self.handshake = Some(Box::new(opening));
    }

    #[inline]
    pub(crate) fn is_handshaking(&self) -> bool {
        self.handshake.is_some()
    }

    pub(crate) fn handshake_deadline(&self) -> Option<MonotonicMs> {
        Some(self.handshake.as_ref()?.until)
    }

    /// Takes the handshake, whether complete or not: its connection has ended, or QUIC has done it.
    pub(crate) fn take_handshake(&mut self) -> Option<Box<PendingHandshake>> {
        self.handshake.take()
    }

    #[inline]
    pub(crate) fn relay_mut(&mut self) -> Option<&mut RelayLayer> {
        self.relay.as_mut()
    }

    pub(crate) fn into_relay(self) -> Option<RelayLayer> {
        self.relay
    }

    /// Decodes `raw`, which starts with the bytes of [`TransportStack::copy_pending`], and keeps
    /// the undecoded rest. MQTT bytes go to `plain`, answers of the layers to `sealed`. Returns
    /// whether the peer has ended the connection.
    pub(crate) fn decode(
        &mut self,
        raw: &mut [u8],
        plain: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
    ) -> Result<bool, TransportError> {
        if let Some(relay) = &mut self.relay {
            return Ok(relay.take_in(raw, plain, sealed)?);
        }
        let mut at = 0;
        if let Some(versions) = self.proxy {
            let Some(header) = proxy::read_header(raw, versions)? else {
                self.raw = raw.to_vec();
                return Ok(false);
            };
            self.proxy = None;
            at = header.len;
            if let (Some(opening), Some(source)) = (&mut self.handshake, header.source) {
                opening.peer.address = PeerAddress::Network(source);
            }
        }
        let from = plain.len();
        let taken = match &mut self.tls {
            Some(tls) if at < raw.len() => {
                let taken = tls.decode(&mut raw[at..], plain, sealed);
                if taken.is_err() && self.web.is_some() {
                    plain.truncate(from);
                }
                taken?
            }
            Some(_) => LayerProgress::default(),
            None => {
                plain.extend_from_slice(&raw[at..]);
                LayerProgress::through_plain(raw.len() - at)
            }
        };
        self.raw = raw[at + taken.consumed()..].to_vec();
        Ok(self.take_frames(plain, from, sealed)? || taken.has_ended())
    }

    /// Decodes the WebSocket frames after `from` in `plain`. Returns whether the peer closes.
    fn take_frames(
        &mut self,
        plain: &mut Vec<u8>,
        from: usize,
        sealed: &mut SealedBuffer,
    ) -> Result<bool, TransportError> {
        let Some(web) = self.web.as_mut().filter(|_| plain.len() > from) else { return Ok(false) };
        let mut answers = Vec::new();
        let taken = web.decode(plain, from, &mut answers);
        if let (Some(opening), Some(address)) = (&mut self.handshake, web.take_named_client()) {
            opening.peer.address = PeerAddress::Network(address);
        }
        if !answers.is_empty() {
            self.seal_reply(&answers, sealed)?;
        }
        if taken != Ok(false) {
            self.end_tls(sealed);
        }
        Ok(taken?)
    }

    /// Returns the completed handshake, once, when all layers are ready; `None` before and
    /// afterwards.
    pub(crate) fn take_completed_handshake(&mut self) -> Option<PendingHandshake> {
        let is_ready = self.proxy.is_none()
            && self.tls.as_ref().is_none_or(TlsLayer::is_ready)
            && self.web.as_ref().is_none_or(|web| web.is_ready());
        let mut opening = self.handshake.take_if(|_| is_ready)?;
        if let Some(tls) = &self.tls {
            if let Some(certificate) = tls.certificate() {
                opening.peer.set_certificate(certificate);
            }
            opening.peer.transport_bytes += tls.state_bytes();
        }
        if self.web.is_some() {
            opening.peer.transport_bytes += websocket::STATE_BYTES;
        }
        Some(*opening)
    }

    /// Whether any layer is left: a PROXY header alone is no longer needed after its decoding.
    pub(crate) fn is_needed(&self) -> bool {
        self.proxy.is_some() || self.tls.is_some() || self.web.is_some() || self.relay.is_some()
    }

    /// Bytes to leave free in front of data for [`TransportStack::seal`], for a WebSocket header.
    pub(crate) fn header_room(&self) -> usize {
        if self.web.is_some() { websocket::HEADER_ROOM } else { 0 }
    }

    /// Encodes a message for the socket: adds WebSocket and TLS framing as configured. `bytes`
    /// begins with [`TransportStack::header_room`] unused bytes.
    pub(crate) fn seal<'b>(
        &mut self,
        bytes: &'b mut [u8],
        sealed: &'b mut SealedBuffer,
    ) -> Result<&'b [u8], rustls::Error> {
        if let Some(relay) = &mut self.relay {
            sealed.clear();
            relay.seal(bytes, sealed)?;
            return Ok(sealed.bytes());
        }
        let from = if self.web.is_some() { websocket::wrap_in_place(bytes) } else { 0 };
        let Some(tls) = &mut self.tls else { return Ok(&bytes[from..]) };
        sealed.clear();
        tls.seal(&mut self.raw, &bytes[from..], sealed)?;
        Ok(sealed.bytes())
    }

    /// Encodes an answer of the WebSocket layer through TLS.
    fn seal_reply(&mut self, bytes: &[u8], sealed: &mut SealedBuffer) -> Result<(), rustls::Error> {
        match &mut self.tls {
            Some(tls) => tls.seal(&mut self.raw, bytes, sealed),
            None => sealed.push(bytes),
        }
    }

    /// Appends the closing messages of each layer. `goes_down` tells the peer of a shutdown of the
    /// server.
    pub(crate) fn close(&mut self, goes_down: bool, sealed: &mut SealedBuffer) {
        let mut last = Vec::new();
        if let Some(web) = &self.web {
            web.close(goes_down, &mut last);
        }
        if !last.is_empty() && self.seal_reply(&last, sealed).is_err() {
            return;
        }
        self.end_tls(sealed);
    }

    fn end_tls(&mut self, sealed: &mut SealedBuffer) {
        if let Some(tls) = &mut self.tls
            && tls.is_ready()
        {
            tls.close(&mut self.raw, sealed);
        }
    }

    /// Copies the undecoded bytes to the front of `buffer`, and returns their number.
    pub(crate) fn copy_pending(&self, buffer: &mut [u8]) -> usize {
        buffer[..self.raw.len()].copy_from_slice(&self.raw);
        self.raw.len()
    }

    /// Number of undecoded bytes, which wait for the rest of a header or record.
    pub(crate) fn pending_len(&self) -> usize {
        self.raw.len()
    }

    /// Whether a layer has received bytes: a peer which only connected, as port scanners do, is not
    /// logged.
    pub(crate) fn has_received(&self) -> bool {
        !self.raw.is_empty()
            || self.tls.as_ref().is_some_and(|tls| !tls.is_silent())
            || self.web.as_ref().is_some_and(|web| web.has_received())
    }

    /// Returns the temporary memory of the layers in bytes. The lasting part,
    /// `PeerInfo::transport_bytes`, is counted with the connection.
    pub(crate) fn held_bytes(&self) -> usize {
        let shakes = match &self.tls {
            _ if self.handshake.is_none() => 0,
            Some(tls) => tls.handshake_bytes(),
            None if self.quic => HANDSHAKE_BYTES,
            None => 0,
        };
        let web = self.web.as_ref().map_or(0, |web| web.held_bytes());
        let relay = self.relay.as_ref().map_or(0, RelayLayer::holds);
        self.raw.capacity() + web + shakes + relay
    }

    /// Frees the memory of a connection which ends for lack of memory.
    pub(crate) fn release_memory(&mut self) {
        self.raw = Vec::new();
        if self.handshake.is_some() {
            self.tls = None;
            self.web = None;
        }
    }
}
