//! Decodes frames as a stream: payload bytes are passed on as they arrive. The decoder buffers only
//! a partial header and the payload of a control frame.

use crate::close::CloseStatus;
use crate::frame::{
    FrameError, FrameHeader, FrameOpcode, FrameRules, HEADER_BYTES_MAX, apply_mask, header_len,
    write_frame,
};

/// Decoder state for the frames of one peer.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    /// Bytes of a partial header.
    begun: [u8; HEADER_BYTES_MAX],
    begun_len: u8,
    /// The last fragment of a message is outstanding (5.4).
    fragmented: bool,
    frame: Option<PartialFrame>,
    /// Received payload of a control frame.
    control: Vec<u8>,
}

/// Frame with a complete header and an incomplete payload.
#[derive(Clone, Copy, Debug)]
struct PartialFrame {
    opcode: FrameOpcode,
    left: u32,
    /// Masking key, rotated for the next byte of the payload. Zeros for a frame of a server.
    key: [u8; 4],
}

/// State of the stream after a call of [`FrameDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProgress {
    Open,
    /// The peer closed: the caller closes and answers with this status code (5.5.1).
    Closed(Option<CloseStatus>),
}

impl FrameDecoder {
    /// Decodes `bytes` from `from` on, in place: the payload of data frames stays, headers and
    /// control frames are removed. Writes the answer to the last ping to `answers` (5.5.3), with
    /// `answer_key` as the masking key of a client.
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
                // A close frame is the last frame (5.5.1).
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

    /// Reads the header of the next frame. `None` while the header is incomplete.
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

    /// Heap memory of the decoder, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.control.capacity()
    }
}
