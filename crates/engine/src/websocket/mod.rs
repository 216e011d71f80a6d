//! WebSocket as a layer between a stream and MQTT (RFC 6455; MQTT 5.0, 6): an HTTP upgrade request
//! with its response, then frames in both directions. The layer transforms bytes in place and does
//! not buffer bytes of MQTT.

#[cfg(test)]
mod tests;
mod upgrade_request;

pub(crate) use websocket_codec::{HEADER_ROOM, wrap_in_place};

use broker::limits;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use transport::http_head_end;
use upgrade_request::UpgradeRefusal;
use websocket_codec::{
    CONTROL_BYTES_MAX, CloseStatus, FrameDecoder, FrameError, FrameRules, StreamProgress,
    write_close,
};

/// The WebSocket resource of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSocketSite {
    /// Path of the resource; `None` accepts every path.
    pub path: Option<String>,
    pub origins: AllowedOrigins,
    /// Request header in which a proxy names its client, like `x-forwarded-for`.
    pub address_header: Option<String>,
}

/// Origins whose pages may connect. Only browsers send a reliable Origin; any program can send a
/// false one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedOrigins {
    #[default]
    Any,
    Listed(Vec<String>),
    /// Only pages of `localhost`, `127.0.0.1` and `[::1]`, with any port.
    ThisHost,
}

/// WebSocket state of one connection: `PendingUpgrade`, then frames.
#[derive(Debug)]
pub(crate) struct WebSocketLayer {
    /// Upgrade request that is still incomplete; `None` after its response.
    upgrade: Option<Box<PendingUpgrade>>,
    /// Address of the client in the request, until the connection is reported.
    named_client: Option<Box<SocketAddr>>,
    frames: FrameDecoder,
}

#[derive(Debug)]
struct PendingUpgrade {
    site: Arc<WebSocketSite>,
    head: Vec<u8>,
}

enum UpgradeProgress {
    Incomplete,
    /// The request is accepted. Holds the client's address if a proxy's header names a client.
    Answered(Option<SocketAddr>),
}

/// Memory of the layer and its allocations, in bytes: see docs/benchmarks.md, WebSocket.
pub(crate) const STATE_BYTES: u32 = 208;

/// Reason for which a WebSocket ends with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebSocketError {
    Frame(FrameError),
    Request(UpgradeRefusal),
}

/// Rules for frames of a client. MQTT arrives in binary frames [MQTT-6.0.0-1], whose boundaries are
/// independent of packet boundaries [MQTT-6.0.0-2].
const FRAME_RULES: FrameRules = FrameRules {
    from_client: true,
    accepts_text: false,
    payload_bytes_max: limits::WEB_FRAME_BYTES_MAX,
};

impl WebSocketError {
    /// Returns a hint with the option that caused the error, or an empty text.
    pub(crate) fn option_hint(&self) -> &'static str {
        match self {
            WebSocketError::Request(UpgradeRefusal::Origin) => " (ws.origins)",
            WebSocketError::Request(UpgradeRefusal::ClientAddress) => " (ws.address_header)",
            WebSocketError::Request(UpgradeRefusal::Path) => " (the path of the URL in listen)",
            _ => "",
        }
    }
}

impl fmt::Display for WebSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebSocketError::Frame(error) => error.fmt(f),
            WebSocketError::Request(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for WebSocketError {}

impl WebSocketLayer {
    pub(crate) fn new(site: Arc<WebSocketSite>) -> WebSocketLayer {
        let asking = Some(Box::new(PendingUpgrade { site, head: Vec::new() }));
        WebSocketLayer { upgrade: asking, named_client: None, frames: FrameDecoder::default() }
    }

    /// Decodes `bytes` from `from` on, in place: only bytes of MQTT stay. Writes responses to
    /// `answers`, including the reason after an error. Returns whether the peer closes.
    pub(crate) fn decode(
        &mut self,
        bytes: &mut Vec<u8>,
        from: usize,
        answers: &mut Vec<u8>,
    ) -> Result<bool, WebSocketError> {
        if let Some(asking) = &mut self.upgrade {
            match asking.read_head(bytes, from, answers) {
                Ok(UpgradeProgress::Incomplete) => return Ok(false),
                Ok(UpgradeProgress::Answered(named_client)) => {
                    self.named_client = named_client.map(Box::new);
                    self.upgrade = None;
                }
                Err(refused) => {
                    bytes.truncate(from);
                    refused.write_response(answers);
                    return Err(WebSocketError::Request(refused));
                }
            }
        }
        match self.frames.decode(bytes, from, &FRAME_RULES, None, answers) {
            Ok(StreamProgress::Open) => Ok(false),
            // 5.5.1: the answer repeats the status code of the peer.
            Ok(StreamProgress::Closed(status)) => {
                write_close(status, "", None, answers);
                Ok(true)
            }
            Err(error) => {
                let status = CloseStatus::for_error(error);
                write_close(Some(status), &error.to_string(), None, answers);
                Err(WebSocketError::Frame(error))
            }
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.upgrade.is_none()
    }

    /// Returns the address of the client that a proxy named in its request, at the first call;
    /// `None` if no proxy did.
    pub(crate) fn take_named_client(&mut self) -> Option<SocketAddr> {
        self.named_client.take().map(|address| *address)
    }

    pub(crate) fn has_received(&self) -> bool {
        self.upgrade.as_ref().is_none_or(|asking| !asking.head.is_empty())
    }

    /// Writes the close frame of the server. RFC 6455, 7.4.1: `goes_down` reports a shutdown.
    pub(crate) fn close(&self, goes_down: bool, into: &mut Vec<u8>) {
        if self.is_ready() {
            let status = if goes_down { CloseStatus::GOING_AWAY } else { CloseStatus::NORMAL };
            write_close(Some(status), "", None, into);
        }
    }

    /// Returns the heap memory that the layer holds now, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.upgrade.as_ref().map_or(0, |asking| asking.head.capacity()) + self.frames.held_bytes()
    }
}

/// Answers a complete upgrade request of a gateway's peer, for `subprotocol` instead of MQTT. A
/// refusal is written to `answer` and is also the error text.
pub fn accept_upgrade(
    head: &[u8],
    site: &WebSocketSite,
    subprotocol: &str,
    answer: &mut Vec<u8>,
) -> Result<(), String> {
    let accepted = upgrade_request::accept_request(head, site, &[subprotocol], answer);
    accepted.map(drop).map_err(|refused| {
        refused.write_response(answer);
        refused.to_string()
    })
}

impl PendingUpgrade {
    /// Consumes the bytes of the request, and answers a complete request.
    fn read_head(
        &mut self,
        bytes: &mut Vec<u8>,
        from: usize,
        answers: &mut Vec<u8>,
    ) -> Result<UpgradeProgress, UpgradeRefusal> {
        let seen = self.head.len();
        let room = (HEAD_BYTES_MAX - seen).min(bytes.len() - from);
        self.head.extend_from_slice(&bytes[from..from + room]);
        if !upgrade_request::may_be_request(&self.head) {
            return Err(UpgradeRefusal::NoRequest);
        }
        let Some(end) = http_head_end(&self.head, seen) else {
            bytes.truncate(from);
            return if self.head.len() < HEAD_BYTES_MAX {
                Ok(UpgradeProgress::Incomplete)
            } else {
                Err(UpgradeRefusal::Headers)
            };
        };
        bytes.drain(from..from + end - seen);
        let named_client = upgrade_request::accept_request(
            &self.head[..end],
            &self.site,
            &upgrade_request::SUBPROTOCOLS,
            answers,
        )?;
        Ok(UpgradeProgress::Answered(named_client))
    }
}

pub const HEAD_BYTES_MAX: usize = limits::WEB_HEAD_BYTES_MAX;

/// Checks two properties for any bytes: the result does not depend on how the bytes are split, and
/// the output is never longer than the input. The fuzzer and its corpus call this function. The
/// first byte selects the length of the pieces, and whether the upgrade request is still expected.
pub fn probe(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let site = Arc::new(WebSocketSite {
        path: Some("/mqtt".into()),
        origins: AllowedOrigins::ThisHost,
        address_header: Some("x-forwarded-for".into()),
    });
    let open = |asks: bool| {
        let mut web = WebSocketLayer::new(site.clone());
        web.upgrade.take_if(|_| !asks);
        web
    };
    let asks = first & 1 == 1;
    let run = |len: usize| {
        let (mut web, mut said, mut ended) = (open(asks), Vec::new(), Ok(false));
        for piece in bytes.chunks(len) {
            let (mut piece, mut answers) = (piece.to_vec(), Vec::new());
            ended = web.decode(&mut piece, 0, &mut answers);
            said.extend_from_slice(&piece);
            if ended != Ok(false) {
                break;
            }
        }
        assert!(said.len() <= bytes.len(), "{} of {}", said.len(), bytes.len());
        assert!(web.held_bytes() <= HELD_MAX, "{} bytes are held", web.held_bytes());
        (said, ended)
    };
    let whole = run(bytes.len().max(1));
    let pieces = run(usize::from(first >> 1).max(1));
    assert!(whole == pieces, "{whole:x?} at once, {pieces:x?} in pieces");
}

/// Capacity of a request head that grew by doubling, and of two control frames.
const HELD_MAX: usize = 2 * HEAD_BYTES_MAX + CONTROL_BYTES_MAX * 2;
