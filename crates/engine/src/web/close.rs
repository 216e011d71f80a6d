//! Why a WebSocket ends (RFC 6455, 7.4).

use super::Wrong;
use super::frame::{CONTROL_BYTES_MAX, Kind, say};

/// A status code that may stand in a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(u16);

impl Status {
    pub(super) const NORMAL: Status = Status(1000);
    pub(super) const GOING_AWAY: Status = Status(1001);

    /// What a peer's close frame says; a frame may say nothing.
    pub(super) fn read(said: &[u8]) -> Result<Option<Status>, Wrong> {
        let Some((code, reason)) = said.split_first_chunk::<2>() else {
            // 5.5.1: what is there begins with a code of two bytes.
            return if said.is_empty() { Ok(None) } else { Err(Wrong::Close) };
        };
        let code = u16::from_be_bytes(*code);
        // 7.4.1 names those that are never sent, 7.4.2 the ranges; 1012 to 1014 were registered
        // later, as 11.7 has it.
        if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
            return Err(Wrong::Close);
        }
        // 5.5.1, 8.1: the reason is UTF-8.
        match std::str::from_utf8(reason) {
            Ok(_) => Ok(Some(Status(code))),
            Err(_) => Err(Wrong::CloseText),
        }
    }

    /// What we say of what is wrong.
    pub(super) fn of(wrong: Wrong) -> Status {
        Status(match wrong {
            Wrong::Text => 1003,
            Wrong::CloseText => 1007,
            Wrong::TooLong => 1009,
            Wrong::Close
            | Wrong::Control
            | Wrong::Fragment
            | Wrong::Length
            | Wrong::Opcode
            | Wrong::Reserved
            | Wrong::Unmasked
            | Wrong::Request(_) => 1002,
        })
    }
}

/// The last frame of a connection.
pub(super) fn close(status: Option<Status>, why: &str, into: &mut Vec<u8>) {
    let mut said = Vec::new();
    if let Some(Status(code)) = status {
        said.extend_from_slice(&code.to_be_bytes());
        said.extend_from_slice(why.as_bytes());
    }
    said.truncate(CONTROL_BYTES_MAX);
    say(Kind::Close, &said, into);
}
