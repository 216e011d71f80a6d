//! Why a WebSocket ends (RFC 6455, 7.4).

use super::WebSocketError;
use super::frame::{CONTROL_BYTES_MAX, FrameOpcode, write_control_frame};

/// A status code that may stand in a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CloseStatus(u16);

impl CloseStatus {
    pub(super) const NORMAL: CloseStatus = CloseStatus(1000);
    pub(super) const GOING_AWAY: CloseStatus = CloseStatus(1001);

    /// Parses the status of a peer's close frame, which may be empty [RFC 6455, 5.5.1].
    pub(super) fn read(said: &[u8]) -> Result<Option<CloseStatus>, WebSocketError> {
        let Some((code, reason)) = said.split_first_chunk::<2>() else {
            // 5.5.1: what is there begins with a code of two bytes.
            return if said.is_empty() { Ok(None) } else { Err(WebSocketError::Close) };
        };
        let code = u16::from_be_bytes(*code);
        // 7.4.1 names those that are never sent, 7.4.2 the ranges; 1012 to 1014 were registered
        // later, as 11.7 has it.
        if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
            return Err(WebSocketError::Close);
        }
        // 5.5.1, 8.1: the reason is UTF-8.
        match std::str::from_utf8(reason) {
            Ok(_) => Ok(Some(CloseStatus(code))),
            Err(_) => Err(WebSocketError::CloseText),
        }
    }

    /// Returns the status that reports an error to the peer.
    pub(super) fn for_error(wrong: WebSocketError) -> CloseStatus {
        CloseStatus(match wrong {
            WebSocketError::Text => 1003,
            WebSocketError::CloseText => 1007,
            WebSocketError::TooLong => 1009,
            WebSocketError::Close
            | WebSocketError::Control
            | WebSocketError::Fragment
            | WebSocketError::Length
            | WebSocketError::Opcode
            | WebSocketError::Reserved
            | WebSocketError::Unmasked
            | WebSocketError::Request(_) => 1002,
        })
    }
}

/// The last frame of a connection.
pub(super) fn write_close(status: Option<CloseStatus>, why: &str, into: &mut Vec<u8>) {
    let mut said = Vec::new();
    if let Some(CloseStatus(code)) = status {
        said.extend_from_slice(&code.to_be_bytes());
        said.extend_from_slice(why.as_bytes());
    }
    said.truncate(CONTROL_BYTES_MAX);
    write_control_frame(FrameOpcode::Close, &said, into);
}
