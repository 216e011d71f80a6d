//! What stands between a socket's bytes and those of MQTT, both ways:
//!
//! ```text
//! socket -> [PROXY header] -> [TLS] -> [WebSocket] -> MQTT
//! socket <------------------- [TLS] <- [WebSocket] <- MQTT
//! socket to another broker <-> [relay of a link] <-> MQTT
//! ```
//!
//! A plain socket has none of it and pays one look whether it has. Nothing here reads or writes: it
//! turns bytes into bytes.

use crate::proxy::{self, Versions};
use crate::relay::RelayLayer;
use crate::tls::{HANDSHAKE_BYTES, Sealed, Taken, Tls};
use crate::web::{self, Site, Web};
use broker::{Now, Peer};
use carrier::tls_errors::describe_client_error;
use std::fmt;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Layers {
    /// What the broker will be told once everything is passed; it knows nothing before.
    pub(crate) opening: Option<Box<Opening>>,
    /// The header is still to come.
    proxy: Option<Versions>,
    tls: Option<Tls>,
    web: Option<Box<Web>>,
    /// It is a stream of QUIC: what it has to pass is passed before its first byte.
    quic: bool,
    /// It leads to another broker, and nothing else stands between.
    pub(crate) relay: Option<RelayLayer>,
    /// Read and not whole: the beginning of a header or of a record.
    raw: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) peer: Peer,
    pub(crate) since: Now,
    /// When it has to be done.
    pub(crate) until: Now,
}

/// Why a connection cannot go on below MQTT.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The peer went in the middle of it.
    Left,
    NoMemory,
    Proxy(proxy::Wrong),
    #[cfg(feature = "psk")]
    Psk(crate::tls::psk::Wrong),
    Quic(quinn_proto::ConnectionError),
    Slow,
    Tls(rustls::Error),
    Web(web::Wrong),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Left => f.write_str("the peer left before the handshake was done"),
            Broken::NoMemory => f.write_str("there is no memory for its handshake"),
            Broken::Proxy(wrong) => write!(f, "{wrong} (proxy.protocol)"),
            #[cfg(feature = "psk")]
            Broken::Psk(wrong) => write!(f, "TLS: {wrong}"),
            Broken::Quic(error) => write!(f, "QUIC: {error}"),
            Broken::Slow => f.write_str("the handshake was not done in time (connect.timeout_ms)"),
            Broken::Tls(error) => {
                write!(f, "TLS: {}{}", describe_client_error(error), option_of(error))
            }
            Broken::Web(wrong) => write!(f, "WebSocket: {wrong}{}", wrong.option()),
        }
    }
}

/// Which option decides, where one does.
fn option_of(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::NoCertificatesPresented => " (tls.client_certificate)",
        rustls::Error::InvalidCertificate(_) => " (tls.client_ca, tls.crl)",
        rustls::Error::PeerIncompatible(_) => " (tls.version_min, tls.certificate)",
        rustls::Error::InvalidMessage(_) => ": is it TLS? (plain MQTT belongs to tcp://)",
        _ => "",
    }
}

impl std::error::Error for Broken {}

impl From<rustls::Error> for Broken {
    fn from(error: rustls::Error) -> Broken {
        Broken::Tls(error)
    }
}

#[cfg(feature = "psk")]
impl From<crate::tls::psk::Wrong> for Broken {
    fn from(wrong: crate::tls::psk::Wrong) -> Broken {
        Broken::Psk(wrong)
    }
}

impl From<web::Wrong> for Broken {
    fn from(wrong: web::Wrong) -> Broken {
        Broken::Web(wrong)
    }
}

impl From<proxy::Wrong> for Broken {
    fn from(wrong: proxy::Wrong) -> Broken {
        Broken::Proxy(wrong)
    }
}

impl Layers {
    pub(crate) fn new(proxy: Option<Versions>, tls: Option<Tls>, web: Option<Arc<Site>>) -> Layers {
        let web = web.map(|site| Box::new(Web::new(site)));
        Layers { opening: None, proxy, tls, web, quic: false, relay: None, raw: Vec::new() }
    }

    /// Of a stream of QUIC.
    pub(crate) fn of_quic(opening: Opening) -> Layers {
        Layers { opening: Some(Box::new(opening)), quic: true, ..Layers::new(None, None, None) }
    }

    /// Of another stream of a connection that is open.
    pub(crate) fn of_branch() -> Layers {
        Layers { quic: true, ..Layers::new(None, None, None) }
    }

    pub(crate) fn of_relay(relay: RelayLayer) -> Layers {
        Layers { relay: Some(relay), ..Layers::new(None, None, None) }
    }

    /// Takes in what came, from the first byte that was not understood yet, and keeps what is not
    /// whole. What it says goes to `plain`, and what has to be answered to `sealed`. Says whether
    /// the peer is done.
    pub(crate) fn take_in(
        &mut self,
        raw: &mut [u8],
        plain: &mut Vec<u8>,
        sealed: &mut Sealed,
    ) -> Result<bool, Broken> {
        if let Some(relay) = &mut self.relay {
            return Ok(relay.take_in(raw, plain, sealed)?);
        }
        let mut at = 0;
        if let Some(versions) = self.proxy {
            let Some(header) = proxy::read(raw, versions)? else {
                self.raw = raw.to_vec();
                return Ok(false);
            };
            self.proxy = None;
            at = header.len;
            if let (Some(opening), Some(source)) = (&mut self.opening, header.source) {
                opening.peer.address = broker::Address::Network(source);
            }
        }
        let from = plain.len();
        let taken = match &mut self.tls {
            Some(tls) if at < raw.len() => {
                let taken = tls.take_in(&mut raw[at..], plain, sealed);
                if taken.is_err() && self.web.is_some() {
                    plain.truncate(from);
                }
                taken?
            }
            Some(_) => Taken::default(),
            None => {
                plain.extend_from_slice(&raw[at..]);
                Taken { consumed: raw.len() - at, ended: false }
            }
        };
        self.raw = raw[at + taken.consumed..].to_vec();
        Ok(self.take_frames(plain, from, sealed)? || taken.ended)
    }

    /// Of what came through the layers before, what the frames carry. Says whether the peer closes.
    fn take_frames(
        &mut self,
        plain: &mut Vec<u8>,
        from: usize,
        sealed: &mut Sealed,
    ) -> Result<bool, Broken> {
        let Some(web) = self.web.as_mut().filter(|_| plain.len() > from) else { return Ok(false) };
        let mut answers = Vec::new();
        let taken = web.take_in(plain, from, &mut answers);
        if !answers.is_empty() {
            self.say(&answers, sealed)?;
        }
        if taken != Ok(false) {
            self.end_tls(sealed);
        }
        Ok(taken?)
    }

    /// What the broker is to be told, once, when everything is passed.
    pub(crate) fn take_opened(&mut self) -> Option<Opening> {
        let is_ready = self.proxy.is_none()
            && self.tls.as_ref().is_none_or(Tls::is_ready)
            && self.web.as_ref().is_none_or(|web| web.is_ready());
        let mut opening = self.opening.take_if(|_| is_ready)?;
        if let Some(tls) = &self.tls {
            if let Some(certificate) = tls.certificate() {
                opening.peer.show(certificate);
            }
            opening.peer.transport_bytes += tls.state_bytes();
        }
        if self.web.is_some() {
            opening.peer.transport_bytes += web::STATE_BYTES;
        }
        Some(*opening)
    }

    /// Whether the connection needs them after the header.
    pub(crate) fn stay(&self) -> bool {
        self.proxy.is_some() || self.tls.is_some() || self.web.is_some() || self.relay.is_some()
    }

    /// Room that has to stand in front of what is sealed.
    pub(crate) fn front(&self) -> usize {
        if self.web.is_some() { web::FRONT } else { 0 }
    }

    /// What goes to the socket for the bytes that stand behind `front`.
    pub(crate) fn seal<'b>(
        &mut self,
        bytes: &'b mut [u8],
        sealed: &'b mut Sealed,
    ) -> Result<&'b [u8], rustls::Error> {
        if let Some(relay) = &mut self.relay {
            sealed.clear();
            relay.seal(bytes, sealed)?;
            return Ok(sealed.bytes());
        }
        let from = if self.web.is_some() { Web::wrap(bytes) } else { 0 };
        let Some(tls) = &mut self.tls else { return Ok(&bytes[from..]) };
        sealed.clear();
        tls.seal(&mut self.raw, &bytes[from..], sealed)?;
        Ok(sealed.bytes())
    }

    /// Words of a layer above TLS.
    fn say(&mut self, bytes: &[u8], sealed: &mut Sealed) -> Result<(), rustls::Error> {
        match &mut self.tls {
            Some(tls) => tls.seal(&mut self.raw, bytes, sealed),
            None => sealed.push(bytes),
        }
    }

    /// The last words of each layer. They may say that all connections end here.
    pub(crate) fn end(&mut self, goes_down: bool, sealed: &mut Sealed) {
        let mut last = Vec::new();
        if let Some(web) = &self.web {
            web.end(goes_down, &mut last);
        }
        if !last.is_empty() && self.say(&last, sealed).is_err() {
            return;
        }
        self.end_tls(sealed);
    }

    fn end_tls(&mut self, sealed: &mut Sealed) {
        if let Some(tls) = &mut self.tls
            && tls.is_ready()
        {
            tls.end(&mut self.raw, sealed);
        }
    }

    /// Puts what was read before in front, and says how much that is.
    pub(crate) fn lay_out(&self, buffer: &mut [u8]) -> usize {
        buffer[..self.raw.len()].copy_from_slice(&self.raw);
        self.raw.len()
    }

    /// Bytes that wait for the rest of what they begin.
    pub(crate) fn kept(&self) -> usize {
        self.raw.len()
    }

    /// Whether anything was said before it was ready.
    pub(crate) fn has_begun(&self) -> bool {
        !self.raw.is_empty()
            || self.tls.as_ref().is_some_and(|tls| !tls.is_silent())
            || self.web.as_ref().is_some_and(|web| web.has_begun())
    }

    /// Bytes that come and go; what stays is counted with the connection.
    pub(crate) fn holds(&self) -> usize {
        let shakes = match &self.tls {
            _ if self.opening.is_none() => 0,
            Some(tls) => tls.handshake_bytes(),
            None if self.quic => HANDSHAKE_BYTES,
            None => 0,
        };
        let web = self.web.as_ref().map_or(0, |web| web.holds());
        let relay = self.relay.as_ref().map_or(0, RelayLayer::holds);
        self.raw.capacity() + web + shakes + relay
    }

    /// Its memory is needed elsewhere, and its connection ends.
    pub(crate) fn give_up(&mut self) {
        self.raw = Vec::new();
        if self.opening.is_some() {
            self.tls = None;
            self.web = None;
        }
    }
}
