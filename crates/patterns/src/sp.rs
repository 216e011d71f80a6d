//! nanomsg's and NNG's protocol over a stream, a unix socket and WebSocket (sp-tcp-mapping-01,
//! sp-ipc-mapping-01, sp-websocket-mapping-01). TLS is a stream.
//!
//! ```text
//! header    0 'S' 'P' 0 | number of the kind of socket (2) | 0 0
//! message   a byte 1 over unix sockets | length (8) | header of a request | body
//! ```
//! Over WebSocket there is neither: a message is one of WebSocket's.

use crate::pattern::Pattern;
use crate::web::Web;
use crate::{Broken, Heard, Limits, Message, envelope};
use std::collections::VecDeque;

/// What brings its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Stream,
    Ipc,
    /// Who has connected masks what it says.
    Web {
        masks: bool,
    },
}

#[derive(Debug)]
pub struct Sp {
    pattern: Pattern,
    carrier: Carrier,
    limits: Limits,
    web: Web,
    is_open: bool,
}

const HEADER: usize = 8;
const IN_BAND: u8 = 1;
const LEN: usize = 8;

impl Sp {
    pub(crate) fn new(pattern: Pattern, carrier: Carrier, limits: Limits) -> Sp {
        let masks = carrier == Carrier::Web { masks: true };
        Sp { pattern, carrier, limits, web: Web::new(masks), is_open: false }
    }

    fn is_web(&self) -> bool {
        matches!(self.carrier, Carrier::Web { .. })
    }

    pub(crate) fn held(&self) -> usize {
        self.web.held()
    }

    pub(crate) fn greet(&self, out: &mut Vec<u8>) {
        if !self.is_web() {
            out.extend_from_slice(&header(self.pattern.sp_number()));
        }
    }

    pub(crate) fn hear(
        &mut self,
        bytes: &[u8],
        heard: &mut VecDeque<Heard>,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        let mut taken = 0;
        if !self.is_open {
            if !self.is_web() {
                if !self.is_greeted(bytes)? {
                    return Ok(0);
                }
                taken = HEADER;
            }
            self.is_open = true;
            heard.push_back(Heard::Open);
        }
        if self.is_web() {
            let (pattern, most) = (self.pattern, self.limits.message_bytes_max);
            let hear = |body: &[u8]| heard.push_back(envelope::of_sp(pattern, body));
            return self.web.take(bytes, most, out, hear);
        }
        while let Some((body, len)) = self.cut(&bytes[taken..])? {
            heard.push_back(envelope::of_sp(self.pattern, body));
            taken += len;
        }
        Ok(taken)
    }

    /// Whether the whole header is there. One that is wrong is so from its first byte on.
    fn is_greeted(&self, bytes: &[u8]) -> Result<bool, Broken> {
        let begun = &bytes[..bytes.len().min(HEADER)];
        let right = header(self.pattern.sp_peer());
        if begun.iter().zip(&right[..4]).any(|(byte, right)| byte != right) {
            return Err(Broken::Greeting);
        }
        if begun.len() < HEADER {
            return Ok(false);
        }
        if begun != right {
            let number = u16::from_be_bytes([begun[4], begun[5]]);
            let named = Pattern::all(crate::Family::Sp).find(|one| one.sp_number() == number);
            let name = named.map_or_else(|| format!("number {number}"), |one| one.name().into());
            return Err(Broken::Pattern(name));
        }
        Ok(true)
    }

    /// The first message, if it is whole, and how long it is with what stands around it.
    fn cut<'b>(&self, bytes: &'b [u8]) -> Result<Option<(&'b [u8], usize)>, Broken> {
        let front = match self.carrier {
            Carrier::Ipc if bytes.first().is_some_and(|kind| *kind != IN_BAND) => {
                return Err(Broken::Command("it sent a message of an unknown kind"));
            }
            Carrier::Ipc => 1 + LEN,
            _ => LEN,
        };
        let Some(len) = bytes.get(front - LEN..front) else { return Ok(None) };
        let len = len.iter().fold(0_u64, |len, byte| len << 8 | u64::from(*byte));
        if len > self.limits.message_bytes_max as u64 {
            return Err(Broken::TooLarge);
        }
        let end = front + len as usize;
        Ok(bytes.get(front..end).map(|body| (body, end)))
    }

    pub(crate) fn say(&self, message: &Message, out: &mut Vec<u8>) {
        let before = envelope::sp_bytes(self.pattern, message);
        let len = before.len() + message.frames.iter().map(Vec::len).sum::<usize>();
        let parts = std::iter::once(before).chain(message.frames.iter().map(Vec::as_slice));
        match self.carrier {
            Carrier::Web { .. } => return self.web.say(len, parts, out),
            Carrier::Ipc => out.push(IN_BAND),
            Carrier::Stream => {}
        }
        out.extend_from_slice(&(len as u64).to_be_bytes());
        parts.for_each(|part| out.extend_from_slice(part));
    }
}

fn header(number: u16) -> [u8; HEADER] {
    let [high, low] = number.to_be_bytes();
    [0, b'S', b'P', 0, high, low, 0, 0]
}
