//! Frames as messages: each is handed on as a whole, binary or text.

use crate::close::CloseStatus;
use crate::frame::{
    FrameError, FrameHeader, FrameOpcode, FrameRules, apply_mask, header_len, write_frame,
};

/// The messages of one peer.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    /// Fragments of a message whose last has not come.
    partial: Option<Vec<u8>>,
}

/// Outcome of a call of [`MessageDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageProgress {
    /// Bytes that were taken.
    pub taken: usize,
    /// The peer closed, which is answered.
    pub is_closed: bool,
}

impl MessageDecoder {
    /// Hands each whole message on. Pings and a close are answered into `answers`, with the
    /// masking key of a client's frame.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        rules: &FrameRules,
        answer_key: Option<[u8; 4]>,
        answers: &mut Vec<u8>,
        mut on_message: impl FnMut(&[u8]),
    ) -> Result<MessageProgress, FrameError> {
        let mut taken = 0;
        while let Some((header, mut payload, len)) = self.next_frame(&bytes[taken..], rules)? {
            taken += len;
            let mut answer = |opcode, payload: &[u8]| {
                write_frame(opcode, payload.len(), [payload], answer_key, answers);
            };
            match header.opcode {
                FrameOpcode::Ping => answer(FrameOpcode::Pong, &payload),
                FrameOpcode::Pong => {}
                FrameOpcode::Close => {
                    CloseStatus::parse(&payload)?;
                    answer(FrameOpcode::Close, &payload);
                    return Ok(MessageProgress { taken, is_closed: true });
                }
                FrameOpcode::Binary | FrameOpcode::Continuation | FrameOpcode::Text => {
                    let message = match self.partial.take() {
                        Some(mut begun) => {
                            begun.append(&mut payload);
                            begun
                        }
                        None => payload,
                    };
                    if header.is_last {
                        on_message(&message);
                    } else {
                        self.partial = Some(message);
                    }
                }
            }
        }
        Ok(MessageProgress { taken, is_closed: false })
    }

    /// Returns the frame in front without its mask, and its length, if it is whole.
    fn next_frame(
        &self,
        bytes: &[u8],
        rules: &FrameRules,
    ) -> Result<Option<(FrameHeader, Vec<u8>, usize)>, FrameError> {
        let [first, second, ..] = *bytes else { return Ok(None) };
        let from = header_len(first, second, rules)?;
        let Some(header) = bytes.get(..from) else { return Ok(None) };
        let header = FrameHeader::parse(header, rules)?;
        header.continue_message(self.partial.is_some())?;
        let begun = if header.opcode.is_control() { 0 } else { self.pending_bytes() };
        if begun.saturating_add(header.len as usize) > rules.payload_bytes_max as usize {
            return Err(FrameError::TooLong);
        }
        let len = from + header.len as usize;
        let Some(payload) = bytes.get(from..len) else { return Ok(None) };
        let mut payload = payload.to_vec();
        if let Some(key) = header.key {
            apply_mask(&mut payload, key);
        }
        Ok(Some((header, payload, len)))
    }

    /// Bytes of a message whose end has not come.
    pub fn pending_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, Vec::len)
    }
}
