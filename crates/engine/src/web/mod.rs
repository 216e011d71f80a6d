//! WebSocket as a layer between a stream and MQTT (RFC 6455; MQTT 5.0, 6): a request of HTTP that
//! is answered, then frames both ways. It turns bytes into bytes, and keeps none of those that are
//! MQTT's.

mod close;
mod frame;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use frame::FRONT;

use broker::limits;
use close::{Status, close};
use frame::{Asked, Frames};
use request::Refused;
use std::fmt;
use std::sync::Arc;

/// What a listener serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Where; none is every path.
    pub path: Option<String>,
    pub origins: Origins,
}

/// Whose pages may connect. Only browsers say whose page it is: others can say what they like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    #[default]
    Any,
    Listed(Vec<String>),
    /// Pages that this host itself serves.
    ThisHost,
}

/// One connection's.
#[derive(Debug)]
pub(crate) struct Web {
    /// The request is still to come.
    asking: Option<Box<Asking>>,
    frames: Frames,
}

#[derive(Debug)]
struct Asking {
    site: Arc<Site>,
    head: Vec<u8>,
}

/// What it takes while it lasts, with what stands around it: see docs/benchmarks.md, WebSocket.
pub(crate) const STATE_BYTES: u32 = 208;

/// Why it cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A close frame whose code is none.
    Close,
    /// ... or whose reason is no text.
    CloseText,
    /// A control frame that is long or in pieces.
    Control,
    /// A continuation of nothing, or a new message before the end of the last.
    Fragment,
    /// A length that has a shorter form.
    Length,
    Opcode,
    Request(Refused),
    Reserved,
    Text,
    TooLong,
    Unmasked,
}

impl Wrong {
    /// Which option decides, where one does.
    pub(crate) fn option(&self) -> &'static str {
        match self {
            Wrong::Request(Refused::Origin) => " (ws.origins)",
            Wrong::Request(Refused::Path) => " (the path of the URL in listen)",
            _ => "",
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Close => "the close frame has a code that must not be sent",
            Wrong::CloseText => "the close frame has a reason that is not UTF-8",
            Wrong::Control => "a control frame is too long or in pieces",
            Wrong::Fragment => "fragments of messages are mixed",
            Wrong::Length => "a frame's length is not in its shortest form",
            Wrong::Opcode => "a frame has an unknown opcode",
            Wrong::Request(refused) => return write!(f, "{refused}"),
            Wrong::Reserved => "a frame has reserved bits",
            Wrong::Text => "MQTT comes in binary frames",
            Wrong::TooLong => "a frame is longer than any packet",
            Wrong::Unmasked => "a client's frame is not masked",
        })
    }
}

impl std::error::Error for Wrong {}

impl Web {
    pub(crate) fn new(site: Arc<Site>) -> Web {
        let asking = Some(Box::new(Asking { site, head: Vec::new() }));
        Web { asking, frames: Frames::default() }
    }

    /// Takes all of `bytes` from `from` on, and leaves there what it says in MQTT. What has to be
    /// answered goes to `answers`, after an error the words that say why. Says whether the peer
    /// closes.
    pub(crate) fn take_in(
        &mut self,
        bytes: &mut Vec<u8>,
        from: usize,
        answers: &mut Vec<u8>,
    ) -> Result<bool, Wrong> {
        if let Some(asking) = &mut self.asking {
            match asking.take_in(bytes, from, answers) {
                Ok(false) => return Ok(false),
                Ok(true) => self.asking = None,
                Err(refused) => {
                    bytes.truncate(from);
                    refused.answer(answers);
                    return Err(Wrong::Request(refused));
                }
            }
        }
        match self.frames.take(bytes, from, answers) {
            Ok(Asked::Nothing) => Ok(false),
            // 5.5.1: it is answered with its own code.
            Ok(Asked::Close(status)) => {
                close(status, "", answers);
                Ok(true)
            }
            Err(wrong) => {
                close(Some(Status::of(wrong)), &wrong.to_string(), answers);
                Err(wrong)
            }
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.asking.is_none()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.asking.as_ref().is_none_or(|asking| !asking.head.is_empty())
    }

    /// Our last frame. RFC 6455, 7.4.1: a server that goes down says so.
    pub(crate) fn end(&self, goes_down: bool, into: &mut Vec<u8>) {
        if self.is_ready() {
            let status = if goes_down { Status::GOING_AWAY } else { Status::NORMAL };
            close(Some(status), "", into);
        }
    }

    /// Makes a frame of what stands behind `FRONT` bytes, which it may use. Says where it begins.
    pub(crate) fn wrap(bytes: &mut [u8]) -> usize {
        frame::wrap(bytes)
    }

    /// Bytes that come and go.
    pub(crate) fn holds(&self) -> usize {
        self.asking.as_ref().map_or(0, |asking| asking.head.capacity()) + self.frames.holds()
    }
}

/// Answers a whole request that opens a WebSocket for something else than MQTT, which a gateway
/// speaks there. Says why it is refused, if it is; then that is the answer too.
pub fn welcome(
    head: &[u8],
    site: &Site,
    subprotocol: &str,
    answer: &mut Vec<u8>,
) -> Result<(), String> {
    request::accept(head, site, &[subprotocol], answer).map_err(|refused| {
        refused.answer(answer);
        refused.to_string()
    })
}

impl Asking {
    /// Takes as much as is the request's. Says whether it is answered.
    fn take_in(
        &mut self,
        bytes: &mut Vec<u8>,
        from: usize,
        answers: &mut Vec<u8>,
    ) -> Result<bool, Refused> {
        let seen = self.head.len();
        let room = (HEAD_BYTES_MAX - seen).min(bytes.len() - from);
        self.head.extend_from_slice(&bytes[from..from + room]);
        if !request::may_be_request(&self.head) {
            return Err(Refused::NoRequest);
        }
        let Some(end) = request::end(&self.head, seen) else {
            bytes.truncate(from);
            return if self.head.len() < HEAD_BYTES_MAX {
                Ok(false)
            } else {
                Err(Refused::Headers)
            };
        };
        bytes.drain(from..from + end - seen);
        request::accept(&self.head[..end], &self.site, &request::SUBPROTOCOLS, answers)?;
        Ok(true)
    }
}

pub const HEAD_BYTES_MAX: usize = limits::WEB_HEAD_BYTES_MAX;

/// What must hold for any bytes: what comes of them does not depend on the pieces they come in,
/// and there is never more of it than there was. For the fuzzer, and for its corpus. The first
/// byte says how long the pieces are, and whether the request is still to come.
pub fn probe(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let site = Arc::new(Site { path: Some("/mqtt".into()), origins: Origins::ThisHost });
    let open = |asks: bool| {
        let mut web = Web::new(site.clone());
        web.asking.take_if(|_| !asks);
        web
    };
    let asks = first & 1 == 1;
    let run = |len: usize| {
        let (mut web, mut said, mut ended) = (open(asks), Vec::new(), Ok(false));
        for piece in bytes.chunks(len) {
            let (mut piece, mut answers) = (piece.to_vec(), Vec::new());
            ended = web.take_in(&mut piece, 0, &mut answers);
            said.extend_from_slice(&piece);
            if ended != Ok(false) {
                break;
            }
        }
        assert!(said.len() <= bytes.len(), "{} of {}", said.len(), bytes.len());
        assert!(web.holds() <= HELD_MAX, "{} bytes are held", web.holds());
        (said, ended)
    };
    let whole = run(bytes.len().max(1));
    let pieces = run(usize::from(first >> 1).max(1));
    assert!(whole == pieces, "{whole:x?} at once, {pieces:x?} in pieces");
}

/// A head that has grown by doubling.
const HELD_MAX: usize = 2 * HEAD_BYTES_MAX + frame::CONTROL_BYTES_MAX * 2;
