//! The client's half of WebSocket (RFC 6455), as far as MQTT over it goes: one upgrade, binary
//! frames both ways, ping answered, close taken as the end.
//!
//! MQTT's bytes are a stream: frames need not hold whole packets (MQTT 5.0, 6).

use std::io::{self, Read, Write};

#[derive(Debug)]
pub(super) struct WebSocket {
    /// Taken and not yet written: the request, then frames.
    out: Vec<u8>,
    /// Received and not yet understood.
    input: Vec<u8>,
    /// Payload of the frame that is being read, still to come.
    left: u64,
    is_upgraded: bool,
}

/// What asks a server for WebSocket. The key proves that it understood, not who we are; ours is
/// always the same.
pub fn upgrade_request(host: &str, path: &str, subprotocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: Z29kd2l0LWJlbmNoLWtleQ==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    )
}

/// Whether the server agreed, by the first line of its answer.
pub fn upgrade_answer(head: &[u8]) -> Result<(), String> {
    if head.starts_with(b"HTTP/1.1 101") {
        return Ok(());
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Err(format!("no upgrade: {}", String::from_utf8_lossy(line)))
}

impl WebSocket {
    pub(super) fn new(host: &str, path: &str) -> WebSocket {
        let request = upgrade_request(host, path, "mqtt");
        WebSocket { out: request.into_bytes(), input: Vec::new(), left: 0, is_upgraded: false }
    }

    /// Whether the server has agreed.
    pub(super) fn upgrade(&mut self, below: &mut (impl Read + Write)) -> io::Result<bool> {
        match self.push(below) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            pushed => pushed?,
        }
        while !self.is_upgraded {
            if !self.fill(below)? {
                return Ok(false);
            }
            let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else {
                if self.input.len() > ANSWER_BYTES_MAX {
                    return Err(io::Error::other("the answer to the upgrade does not end"));
                }
                continue;
            };
            upgrade_answer(&self.input).map_err(io::Error::other)?;
            self.input.drain(..end + 4);
            self.is_upgraded = true;
        }
        Ok(true)
    }

    pub(super) fn read(
        &mut self,
        below: &mut (impl Read + Write),
        into: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            if self.left > 0 && !self.input.is_empty() {
                let take = self.input.len().min(into.len()).min(self.left as usize);
                into[..take].copy_from_slice(&self.input[..take]);
                self.input.drain(..take);
                self.left -= take as u64;
                return Ok(take);
            }
            if self.left == 0
                && let Some((opcode, header, payload)) = header(&self.input)?
            {
                match opcode {
                    CONTINUED | BINARY => {
                        self.input.drain(..header);
                        self.left = payload;
                        continue;
                    }
                    CLOSE => return Ok(0),
                    _ if self.input.len() as u64 >= header as u64 + payload => {
                        let end = header + payload as usize;
                        let payload: Vec<u8> = self.input.drain(..end).skip(header).collect();
                        if opcode == PING {
                            frame(PONG, &payload, &mut self.out);
                            self.push(below)?;
                        }
                        continue;
                    }
                    _ => {}
                }
            }
            let before = self.input.len();
            if !self.fill(below)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if self.input.len() == before {
                return Ok(0);
            }
        }
    }

    /// Takes all or nothing: what was taken goes out before more is taken.
    pub(super) fn write(&mut self, below: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        self.push(below)?;
        frame(BINARY, bytes, &mut self.out);
        match self.push(below) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes.len()),
        }
    }

    pub(super) fn push(&mut self, below: &mut impl Write) -> io::Result<()> {
        while !self.out.is_empty() {
            let written = below.write(&self.out)?;
            if written == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.out.drain(..written);
        }
        self.out = Vec::new();
        below.flush()
    }

    /// Takes leave (RFC 6455, 5.5.1).
    pub(super) fn end(&mut self) {
        frame(CLOSE, &NORMAL, &mut self.out);
    }

    /// Whether something was taken that has not left.
    pub(super) fn is_stuck(&self) -> bool {
        !self.out.is_empty()
    }

    /// False where nothing is there now. At the end it adds nothing.
    fn fill(&mut self, below: &mut impl Read) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        match below.read(&mut buffer) {
            Ok(0) if !self.is_upgraded => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.input.extend_from_slice(&buffer[..read]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Opcode, header's and payload's length of a server's frame, once its header is there.
fn header(input: &[u8]) -> io::Result<Option<(u8, usize, u64)>> {
    let [first, second, rest @ ..] = input else { return Ok(None) };
    if second & 0x80 != 0 {
        // RFC 6455, 5.1: a server does not mask.
        return Err(io::Error::other("a masked frame from a server"));
    }
    let (len_len, short) = match second & 0x7F {
        126 => (2, 0),
        127 => (8, 0),
        short => (0, u64::from(short)),
    };
    if rest.len() < len_len {
        return Ok(None);
    }
    let long = rest[..len_len].iter().fold(0, |len, byte| len << 8 | u64::from(*byte));
    Ok(Some((first & 0x0F, 2 + len_len, short + long)))
}

/// A client's frame is masked (RFC 6455, 5.3). The mask is there against proxies that mistake
/// payloads for requests; between a tester and its target it need not be secret.
fn frame(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x80 | opcode);
    match payload.len() {
        len @ 0..=125 => out.push(0x80 | len as u8),
        len @ 126..=0xFFFF => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

const MASK: [u8; 4] = [0x47, 0x6F, 0x64, 0x77];
const CONTINUED: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
/// Of a close frame: 1000, all is well.
const NORMAL: [u8; 2] = [0x03, 0xE8];
const PING: u8 = 9;
const PONG: u8 = 10;
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Gives what a server sent, a few bytes at a time, and keeps what we wrote.
    #[derive(Default)]
    struct Below {
        given: VecDeque<Vec<u8>>,
        written: Vec<u8>,
    }

    impl Read for Below {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let bytes = self.given.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            into[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    impl Write for Below {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn give(bytes: &[u8], piece: usize) -> Below {
        Below { given: bytes.chunks(piece).map(<[u8]>::to_vec).collect(), ..Below::default() }
    }

    #[test]
    fn payload_comes_out_however_frames_are_cut() {
        let mut bytes = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n".to_vec();
        bytes.extend_from_slice(b"\x82\x03abc\x89\x02hi\x02\x01d\x80\x7E\x00\x80");
        bytes.extend_from_slice(&[b'x'; 128]);
        for piece in [1, 7, 1_000] {
            let mut below = give(&bytes, piece);
            let mut websocket = WebSocket::new("h", "/mqtt");
            assert!(websocket.upgrade(&mut below).expect("the server agreed"));
            below.written.clear();
            let (mut got, mut into) = (Vec::new(), [0; 50]);
            while let Ok(read) = websocket.read(&mut below, &mut into) {
                got.extend_from_slice(&into[..read]);
            }
            assert_eq!(got, [&b"abcd"[..], &[b'x'; 128]].concat());
            // The ping was answered, masked.
            assert_eq!(below.written[..2], [0x8A, 0x82]);
        }
    }

    #[test]
    fn what_is_sent_is_masked_and_comes_back_by_the_same_mask() {
        for len in [1_usize, 125, 126, 65_535, 65_536] {
            let mut out = Vec::new();
            frame(BINARY, &vec![7; len], &mut out);
            let header = out.len() - len;
            let back = out[header..].iter().zip(MASK.iter().cycle());
            assert!(back.map(|(byte, mask)| byte ^ mask).all(|byte| byte == 7));
            assert_eq!(header, 6 + [0, 2, 8][usize::from(len > 125) + usize::from(len > 65_535)]);
        }
    }

    #[test]
    fn a_refused_upgrade_says_what_the_server_said() {
        let mut below = give(b"HTTP/1.1 404 Not Found\r\n\r\n", 100);
        let error = WebSocket::new("h", "/mqtt").upgrade(&mut below).expect_err("refused");
        assert_eq!(error.to_string(), "no upgrade: HTTP/1.1 404 Not Found");
    }

    #[test]
    fn a_close_frame_is_the_end() {
        let mut below = give(b"HTTP/1.1 101 x\r\n\r\n\x88\x00", 100);
        let mut websocket = WebSocket::new("h", "/mqtt");
        assert!(websocket.upgrade(&mut below).expect("the server agreed"));
        assert_eq!(websocket.read(&mut below, &mut [0; 10]).expect("an end"), 0);
    }
}
