//! Frames as a stream: a frame's bytes go on as they come, and nothing is kept but the beginning of
//! a header and the payload of a control frame.

use crate::close::CloseStatus;
use crate::frame::{
    FrameError, FrameHeader, FrameOpcode, FrameRules, HEADER_BYTES_MAX, apply_mask, header_len,
    write_frame,
};

/// The frames of one peer, as far as they have come.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    /// Bytes of an incomplete header.
    begun: [u8; HEADER_BYTES_MAX],
    begun_len: u8,
    /// Fragments of a message have come, and its last has not (5.4).
    fragmented: bool,
    frame: Option<PartialFrame>,
    /// Payload of a control frame, as far as it has arrived.
    control: Vec<u8>,
}

/// A frame whose header is read.
#[derive(Clone, Copy, Debug)]
struct PartialFrame {
    opcode: FrameOpcode,
    left: u32,
    /// Its first byte is for the next byte of the payload. A server's frame has zeros.
    key: [u8; 4],
}

/// Action that the frames ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProgress {
    Open,
    /// To close, and to answer with this status before (5.5.1).
    Closed(Option<CloseStatus>),
}

impl FrameDecoder {
    /// Takes all of `bytes` from `from` on, and leaves there the payload of data frames. A ping
    /// is answered into `answers`, with the masking key of a client's frame; the answer to the last
    /// one counts for all of them (5.5.3).
    #[inline]
    pub fn decode(
        &mut self,
        bytes: &mut Vec<u8>,
        from: usize,
        rules: &FrameRules,
        answer_key: Option<[u8; 4]>,
        answers: &mut Vec<u8>,
    ) -> Result<StreamProgress, FrameError> {
        let (mut at, mut kept) = (from, from);
        let (mut progress, mut ping) = (Ok(StreamProgress::Open), None);
        loop {
            let frame = match self.frame {
                Some(frame) => frame,
                None => match self.read_header(bytes, &mut at, rules) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(wrong) => {
                        progress = Err(wrong);
                        break;
                    }
                },
            };
            let here = (bytes.len() - at).min(frame.left as usize);
            let payload = &mut bytes[at..at + here];
            let key = if rules.from_client { apply_mask(payload, frame.key) } else { frame.key };
            if frame.opcode.is_control() {
                self.control.extend_from_slice(payload);
            } else {
                bytes.copy_within(at..at + here, kept);
                kept += here;
            }
            at += here;
            let left = frame.left - here as u32;
            self.frame = (left > 0).then_some(PartialFrame { left, key, ..frame });
            if left > 0 {
                break;
            }
            let control = std::mem::take(&mut self.control);
            match frame.opcode {
                FrameOpcode::Ping => ping = Some(control),
                // Nothing comes after it (5.5.1).
                FrameOpcode::Close => {
                    progress = CloseStatus::parse(&control).map(StreamProgress::Closed);
                    break;
                }
                _ => {}
            }
        }
        bytes.truncate(kept);
        if let Some(ping) = ping {
            write_frame(FrameOpcode::Pong, ping.len(), [&ping[..]], answer_key, answers);
        }
        progress
    }

    /// The next frame, once its header is whole.
    #[inline]
    fn read_header(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        rules: &FrameRules,
    ) -> Result<Option<PartialFrame>, FrameError> {
        let len = loop {
            let have = usize::from(self.begun_len);
            let len = if have < 2 { 2 } else { header_len(self.begun[0], self.begun[1], rules)? };
            if have == len {
                break len;
            }
            let here = (len - have).min(bytes.len() - *at);
            if here == 0 {
                return Ok(None);
            }
            self.begun[have..have + here].copy_from_slice(&bytes[*at..*at + here]);
            self.begun_len += here as u8;
            *at += here;
        };
        self.begun_len = 0;
        let header = FrameHeader::parse(&self.begun[..len], rules)?;
        self.fragmented = header.continue_message(self.fragmented)?;
        let FrameHeader { opcode, len, key, .. } = header;
        Ok(Some(PartialFrame { opcode, left: len, key: key.unwrap_or_default() }))
    }

    /// Bytes that it holds beside itself.
    pub fn held_bytes(&self) -> usize {
        self.control.capacity()
    }
}
