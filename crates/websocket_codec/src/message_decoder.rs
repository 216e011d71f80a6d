//! Decodes frames into whole messages, binary or text.

use crate::close::CloseStatus;
use crate::frame::{
    FrameError, FrameHeader, FrameOpcode, FrameRules, apply_mask, header_len, write_frame,
};

/// Decoder state for the messages of one peer.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    /// Received fragments of an incomplete message.
    partial: Option<Vec<u8>>,
}

/// Result of a call of [`MessageDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageProgress {
    /// Number of consumed bytes.
    pub taken: usize,
    /// The peer sent a close frame, and `answers` has the answer.
    pub is_closed: bool,
}

impl MessageDecoder {
    /// Decodes `bytes` and passes each whole message to `on_message`. Writes the answers to pings
    /// and to a close frame to `answers`, with `answer_key` as the masking key of a client.
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

    /// Returns the first frame, unmasked, and its length in bytes. `None` while the frame is
    /// incomplete.
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

    /// Received bytes of an incomplete message.
    pub fn pending_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, Vec::len)
    }
}
