//! What stands between a socket's bytes and those of MQTT, both ways:
//!
//! ```text
//! socket -> [PROXY header] -> [TLS] -> MQTT
//! socket <------------------- [TLS] <- MQTT
//! ```
//!
//! A plain socket has none of it and pays one look whether it has. Nothing here reads or writes: it
//! turns bytes into bytes.

use crate::proxy::{self, Versions};
use crate::tls::{HANDSHAKE_BYTES, STATE_BYTES, Sealed, Taken, Tls};
use broker::{Now, Peer};
use rustls::ServerConfig;
use std::fmt;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Layers {
    /// What the broker will be told once everything is passed; it knows nothing before.
    pub(crate) opening: Option<Box<Opening>>,
    /// The header is still to come.
    proxy: Option<Versions>,
    tls: Option<Tls>,
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
    Slow,
    Tls(rustls::Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Left => f.write_str("the peer left before the handshake was done"),
            Broken::NoMemory => f.write_str("there is no memory for its handshake"),
            Broken::Proxy(wrong) => write!(f, "{wrong}"),
            Broken::Slow => f.write_str("the handshake was not done in time"),
            Broken::Tls(error) => write!(f, "TLS: {error}"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<rustls::Error> for Broken {
    fn from(error: rustls::Error) -> Broken {
        Broken::Tls(error)
    }
}

impl From<proxy::Wrong> for Broken {
    fn from(wrong: proxy::Wrong) -> Broken {
        Broken::Proxy(wrong)
    }
}

impl Layers {
    pub(crate) fn new(proxy: Option<Versions>, tls: Option<Arc<ServerConfig>>) -> Layers {
        Layers { opening: None, proxy, tls: tls.map(Tls::Silent), raw: Vec::new() }
    }

    /// Takes in what came, from the first byte that was not understood yet. What it says goes to
    /// `plain`, and what has to be answered to `sealed`.
    pub(crate) fn take_in(
        &mut self,
        raw: &mut [u8],
        plain: &mut Vec<u8>,
        sealed: &mut Sealed,
    ) -> Result<Taken, Broken> {
        let mut at = 0;
        if let Some(versions) = self.proxy {
            let Some(header) = proxy::read(raw, versions)? else { return Ok(Taken::default()) };
            self.proxy = None;
            at = header.len;
            if let (Some(opening), Some(source)) = (&mut self.opening, header.source) {
                opening.peer.address = broker::Address::Network(source);
            }
        }
        let Some(tls) = &mut self.tls else {
            plain.extend_from_slice(&raw[at..]);
            return Ok(Taken { consumed: raw.len(), ended: false });
        };
        if at == raw.len() {
            return Ok(Taken { consumed: at, ended: false });
        }
        let taken = tls.take_in(&mut raw[at..], plain, sealed)?;
        Ok(Taken { consumed: at + taken.consumed, ..taken })
    }

    /// What the broker is to be told, once, when everything is passed.
    pub(crate) fn take_opened(&mut self) -> Option<Opening> {
        let is_ready = self.proxy.is_none() && self.tls.as_ref().is_none_or(Tls::is_ready);
        let mut opening = self.opening.take_if(|_| is_ready)?;
        if let Some(tls) = &self.tls {
            if let Some(certificate) = tls.certificate() {
                opening.peer.show(certificate);
            }
            opening.peer.transport_bytes = STATE_BYTES;
        }
        Some(*opening)
    }

    /// Whether the connection needs them after the header.
    pub(crate) fn stay(&self) -> bool {
        self.proxy.is_some() || self.tls.is_some()
    }

    pub(crate) fn seal(&mut self, bytes: &[u8], sealed: &mut Sealed) -> Result<(), rustls::Error> {
        match &mut self.tls {
            Some(tls) => tls.seal(&mut self.raw, bytes, sealed),
            None => Err(rustls::Error::HandshakeNotComplete),
        }
    }

    /// The last words of each layer.
    pub(crate) fn end(&mut self, sealed: &mut Sealed) {
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

    /// Keeps what is not whole yet.
    pub(crate) fn keep(&mut self, rest: &[u8]) {
        self.raw = rest.to_vec();
    }

    /// Whether anything was said before it was ready.
    pub(crate) fn has_begun(&self) -> bool {
        !self.raw.is_empty() || self.tls.as_ref().is_some_and(|tls| !tls.is_silent())
    }

    /// Bytes that come and go; what stays is counted with the connection.
    pub(crate) fn holds(&self) -> usize {
        let shakes =
            self.opening.is_some() && self.tls.as_ref().is_some_and(|tls| !tls.is_silent());
        self.raw.capacity() + if shakes { HANDSHAKE_BYTES } else { 0 }
    }

    /// Its memory is needed elsewhere, and its connection ends.
    pub(crate) fn give_up(&mut self) {
        self.raw = Vec::new();
        if self.opening.is_some() {
            self.tls = None;
        }
    }
}
