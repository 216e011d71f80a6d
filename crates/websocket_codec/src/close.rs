//! Close frames of a WebSocket and their status codes (RFC 6455, 7.4).

use crate::frame::{CONTROL_BYTES_MAX, FrameError, FrameOpcode, write_frame};

/// Status code that is valid in a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseStatus(u16);

impl CloseStatus {
    pub const NORMAL: CloseStatus = CloseStatus(1000);
    pub const GOING_AWAY: CloseStatus = CloseStatus(1001);

    /// Parses the payload of a close frame, which may be empty [RFC 6455, 5.5.1].
    pub fn parse(payload: &[u8]) -> Result<Option<CloseStatus>, FrameError> {
        let Some((code, reason)) = payload.split_first_chunk::<2>() else {
            // 5.5.1: a payload begins with a status code of two bytes.
            return if payload.is_empty() { Ok(None) } else { Err(FrameError::Close) };
        };
        let code = u16::from_be_bytes(*code);
        // 7.4.1 lists the codes that are never sent, 7.4.2 the ranges; 1012 to 1014 were registered
        // later, see 11.7.
        if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
            return Err(FrameError::Close);
        }
        // 5.5.1, 8.1: the reason is UTF-8.
        match std::str::from_utf8(reason) {
            Ok(_) => Ok(Some(CloseStatus(code))),
            Err(_) => Err(FrameError::CloseText),
        }
    }

    /// Returns the status code that reports an error to the peer.
    pub fn for_error(error: FrameError) -> CloseStatus {
        CloseStatus(match error {
            FrameError::Text => 1003,
            FrameError::CloseText => 1007,
            FrameError::TooLong => 1009,
            FrameError::Close
            | FrameError::Control
            | FrameError::Fragment
            | FrameError::Length
            | FrameError::Masked
            | FrameError::Opcode
            | FrameError::Reserved
            | FrameError::Unmasked => 1002,
        })
    }
}

/// Writes a close frame. A client sets `key`, the masking key.
pub fn write_close(
    status: Option<CloseStatus>,
    reason: &str,
    key: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) {
    let mut payload = Vec::new();
    if let Some(CloseStatus(code)) = status {
        payload.extend_from_slice(&code.to_be_bytes());
        payload.extend_from_slice(reason.as_bytes());
    }
    payload.truncate(CONTROL_BYTES_MAX);
    write_frame(FrameOpcode::Close, payload.len(), [&payload[..]], key, out);
}
