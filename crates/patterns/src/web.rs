//! Messages of WebSocket (RFC 6455, 5), from either side: each is one of the socket's. The request
//! that opens it is none of this.

use crate::Broken;

#[derive(Debug)]
pub(crate) struct Web {
    /// Ours are masked, and the peer's are not; or the other way round.
    masks: bool,
    /// Fragments of a message whose last has not come.
    begun: Option<Vec<u8>>,
}

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const CONTROL_BYTES_MAX: u64 = 125;
/// It is there against proxies that take payloads for requests, and need not be secret between
/// two programs.
const MASK: [u8; 4] = *b"Gdwt";

struct Frame {
    opcode: u8,
    is_last: bool,
    /// Where its payload begins and ends.
    from: usize,
    to: usize,
    key: Option<[u8; 4]>,
}

impl Web {
    pub(crate) fn new(masks: bool) -> Web {
        Web { masks, begun: None }
    }

    pub(crate) fn held(&self) -> usize {
        self.begun.as_ref().map_or(0, Vec::len)
    }

    /// Hands each whole message on, and answers pings.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        most: usize,
        out: &mut Vec<u8>,
        mut hear: impl FnMut(&[u8]),
    ) -> Result<usize, Broken> {
        let mut taken = 0;
        while let Some(frame) = self.frame(&bytes[taken..], most)? {
            let mut payload = bytes[taken..][frame.from..frame.to].to_vec();
            if let Some(key) = frame.key {
                payload.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
            }
            taken += frame.to;
            match frame.opcode {
                TEXT | BINARY if self.begun.is_some() => return Err(MIXED),
                TEXT | BINARY if frame.is_last => hear(&payload),
                TEXT | BINARY => self.begun = Some(payload),
                CONTINUED => {
                    let mut begun = self.begun.take().ok_or(MIXED)?;
                    begun.append(&mut payload);
                    if frame.is_last { hear(&begun) } else { self.begun = Some(begun) }
                }
                CLOSE => {
                    self.frame_of(CLOSE, payload.len(), [&payload[..]].into_iter(), out);
                    return Err(Broken::Closed);
                }
                PING => self.frame_of(PONG, payload.len(), [&payload[..]].into_iter(), out),
                PONG => {}
                _ => return Err(Broken::Web("it sent a frame of an unknown kind")),
            }
        }
        Ok(taken)
    }

    /// The frame in front, if it is whole.
    fn frame(&self, bytes: &[u8], most: usize) -> Result<Option<Frame>, Broken> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & RESERVED != 0 {
            return Err(Broken::Web("it sent a frame with reserved bits"));
        }
        // RFC 6455, 5.1: who connected masks, who listens does not.
        if (second & MASKED == 0) != self.masks {
            return Err(Broken::Web("its frames are masked and must not be, or are not"));
        }
        let len_len = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(len) = rest.get(..len_len) else { return Ok(None) };
        let len = match len_len {
            0 => u64::from(second & !MASKED),
            _ => len.iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
        };
        let (opcode, is_last) = (first & 0x0F, first & FIN != 0);
        if opcode >= CLOSE && (!is_last || len > CONTROL_BYTES_MAX) {
            return Err(Broken::Web("it sent a control frame that is long or in pieces"));
        }
        let begun = self.begun.as_ref().map_or(0, Vec::len) as u64;
        if begun.saturating_add(len) > most as u64 && opcode < CLOSE {
            return Err(Broken::TooLarge);
        }
        let key_len = if self.masks { 0 } else { 4 };
        let from = 2 + len_len + key_len;
        let to = from + len as usize;
        if bytes.len() < to {
            return Ok(None);
        }
        let key = <[u8; 4]>::try_from(&bytes[from - key_len..from]).ok();
        Ok(Some(Frame { opcode, is_last, from, to, key }))
    }

    pub(crate) fn say<'p>(
        &self,
        len: usize,
        parts: impl Iterator<Item = &'p [u8]>,
        out: &mut Vec<u8>,
    ) {
        self.frame_of(BINARY, len, parts, out);
    }

    fn frame_of<'p>(
        &self,
        opcode: u8,
        len: usize,
        parts: impl Iterator<Item = &'p [u8]>,
        out: &mut Vec<u8>,
    ) {
        out.push(FIN | opcode);
        let masked = if self.masks { MASKED } else { 0 };
        match len {
            0..=125 => out.push(masked | len as u8),
            126..=0xFFFF => {
                out.push(masked | 126);
                out.extend_from_slice(&(len as u16).to_be_bytes());
            }
            _ => {
                out.push(masked | 127);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        if self.masks {
            out.extend_from_slice(&MASK);
        }
        let from = out.len();
        parts.for_each(|part| out.extend_from_slice(part));
        if self.masks {
            let payload = out[from..].iter_mut().zip(MASK.iter().cycle());
            payload.for_each(|(byte, key)| *byte ^= key);
        }
    }
}

const MIXED: Broken = Broken::Web("it mixed fragments of messages");
