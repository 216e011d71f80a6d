//! The protocol of ZeroMQ (rfc.zeromq.org/spec/23 and /37) with the mechanisms NULL and PLAIN
//! (/24).
//!
//! ```text
//! greeting  FF, 8 bytes, 7F | version 3, 1 | mechanism (20) | as server (1) | zeros (31)
//! frame     flags: more 1, long 2, command 4 | length (1, or 8 where long) | body
//! command   length of its name (1) | name | data
//! ```

use crate::socket_type::SocketType;
use crate::{FRAMES_MAX, MessageLimits, MultipartMessage, SocketError, SocketEvent, envelope};
use std::collections::VecDeque;

/// User name and password of PLAIN: accepted by a server, sent by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainCredentials {
    pub user_name: Box<str>,
    pub password: Box<[u8]>,
}

#[derive(Debug)]
pub struct ZmtpCodec {
    pattern: SocketType,
    plain: Option<PlainCredentials>,
    listens: bool,
    limits: MessageLimits,
    stage: ZmtpStage,
    /// Whether the peer knows the command SUBSCRIBE (ZMTP 3.1).
    knows_subscribe: bool,
    /// Frames of a message whose last frame has not come, and their bytes.
    frames: Vec<Vec<u8>>,
    frames_bytes: usize,
}

/// The part of the handshake expected next by `read_command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZmtpStage {
    Greeting,
    Hello,
    Welcome,
    Initiate,
    Ready,
    Open,
}

struct ZmtpFrame<'b> {
    flags: u8,
    body: &'b [u8],
    /// Length of header and `body` in bytes.
    len: usize,
}

const GREETING: usize = 64;
const SIGNATURE: usize = 10;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
const NULL: &str = "NULL";
const PLAIN: &str = "PLAIN";
/// Longest command in bytes: commands are names, sizes and a few words.
const COMMAND_BYTES_MAX: usize = 4096;
/// The ERROR command of libzmq 4.3.5 for a wrong password. libzmq writes "\\x5ERROR" in C, whose
/// compiler reads the `E` as a part of the number.
const LIBZMQ_ERROR: &[u8] = b"^RROR";
const SUBSCRIBE: u8 = 1;
const CANCEL: u8 = 0;

impl ZmtpCodec {
    pub(crate) fn new(
        pattern: SocketType,
        plain: Option<PlainCredentials>,
        listens: bool,
        limits: MessageLimits,
    ) -> ZmtpCodec {
        ZmtpCodec {
            pattern,
            plain,
            listens,
            limits,
            stage: ZmtpStage::Greeting,
            knows_subscribe: false,
            frames: Vec::new(),
            frames_bytes: 0,
        }
    }

    fn mechanism(&self) -> &'static str {
        if self.plain.is_some() { PLAIN } else { NULL }
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.frames_bytes
    }

    pub(crate) fn write_greeting(&self, out: &mut Vec<u8>) {
        let mut greeting = [0; GREETING];
        (greeting[0], greeting[8], greeting[9]) = (0xFF, 1, 0x7F);
        (greeting[10], greeting[11]) = (3, 1);
        let name = self.mechanism().as_bytes();
        greeting[12..12 + name.len()].copy_from_slice(name);
        greeting[32] = u8::from(self.listens && self.plain.is_some());
        out.extend_from_slice(&greeting);
    }

    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        heard: &mut VecDeque<SocketEvent>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SocketError> {
        let mut taken = 0;
        if self.stage == ZmtpStage::Greeting {
            if !self.read_greeting(bytes)? {
                return Ok(0);
            }
            taken = GREETING;
            self.start_handshake(out);
        }
        while let Some(frame) = self.next_frame(&bytes[taken..])? {
            taken += frame.len;
            if frame.flags & COMMAND != 0 {
                self.read_command(frame.body, heard, out)?;
            } else {
                self.read_frame(&frame, heard)?;
            }
        }
        Ok(taken)
    }

    /// Whether the whole greeting has been received; a [`SocketError`] for another protocol,
    /// version or mechanism.
    fn read_greeting(&mut self, bytes: &[u8]) -> Result<bool, SocketError> {
        let is_wrong = |at: usize, wanted: u8| bytes.get(at).is_some_and(|byte| *byte != wanted);
        if is_wrong(0, 0xFF) || is_wrong(SIGNATURE - 1, 0x7F) {
            return Err(SocketError::Greeting);
        }
        match bytes.get(SIGNATURE) {
            Some(0..3) => return Err(SocketError::Version(bytes[SIGNATURE])),
            _ if bytes.len() < GREETING => return Ok(false),
            _ => {}
        }
        self.knows_subscribe = bytes[SIGNATURE] > 3 || bytes[SIGNATURE + 1] > 0;
        let name = bytes[12..32].split(|byte| *byte == 0).next().unwrap_or_default();
        if name != self.mechanism().as_bytes() {
            return Err(SocketError::Mechanism(printable(name)));
        }
        Ok(true)
    }

    /// Sends the first command after the greetings: READY with NULL, HELLO as the client of PLAIN.
    fn start_handshake(&mut self, out: &mut Vec<u8>) {
        self.stage = match (&self.plain, self.listens) {
            (None, _) => {
                write_command("READY", &self.metadata(), out);
                ZmtpStage::Ready
            }
            (Some(_), true) => ZmtpStage::Hello,
            (Some(plain), false) => {
                let mut data = Vec::new();
                write_short_string(plain.user_name.as_bytes(), &mut data);
                write_short_string(&plain.password, &mut data);
                write_command("HELLO", &data, out);
                ZmtpStage::Welcome
            }
        };
    }

    fn metadata(&self) -> Vec<u8> {
        let mut data = Vec::new();
        write_property("Socket-Type", self.pattern.zmq_name().as_bytes(), &mut data);
        if matches!(self.pattern, SocketType::Req) {
            write_property("Identity", b"", &mut data);
        }
        data
    }

    /// Returns the frame at the front, if complete. Flags and length are checked as soon as they
    /// have come.
    fn next_frame<'b>(&self, bytes: &'b [u8]) -> Result<Option<ZmtpFrame<'b>>, SocketError> {
        let Some(flags) = bytes.first().copied() else { return Ok(None) };
        let is_command = flags & COMMAND != 0;
        if flags & !(MORE | LONG | COMMAND) != 0 || is_command && flags & MORE != 0 {
            return Err(SocketError::Command("it sent a frame with unknown flags"));
        }
        // Data of a peer without a verified password is not counted against any memory limit.
        if !is_command && self.stage != ZmtpStage::Open {
            return Err(SocketError::Command("it sent a message before hands were shaken"));
        }
        let front = if flags & LONG == 0 { 2 } else { 9 };
        let Some(len) = bytes.get(1..front) else { return Ok(None) };
        let len = len.iter().fold(0_u64, |len, byte| len << 8 | u64::from(*byte));
        let most = if is_command {
            COMMAND_BYTES_MAX
        } else {
            self.limits.message_bytes_max.saturating_sub(self.frames_bytes)
        };
        if len > most as u64 {
            return Err(SocketError::TooLarge);
        }
        let end = front + len as usize;
        Ok(bytes.get(front..end).map(|body| ZmtpFrame { flags, body, len: end }))
    }

    fn read_frame(
        &mut self,
        frame: &ZmtpFrame<'_>,
        heard: &mut VecDeque<SocketEvent>,
    ) -> Result<(), SocketError> {
        if self.frames.len() == FRAMES_MAX {
            return Err(SocketError::TooManyFrames);
        }
        let is_whole = frame.flags & MORE == 0;
        if self.pattern.receives_subscriptions() && is_whole && self.frames.is_empty() {
            match frame.body.split_first() {
                Some((&SUBSCRIBE, prefix)) => {
                    heard.push_back(SocketEvent::Subscribe(prefix.to_vec()));
                    return Ok(());
                }
                Some((&CANCEL, prefix)) => {
                    heard.push_back(SocketEvent::Cancel(prefix.to_vec()));
                    return Ok(());
                }
                _ => {}
            }
        }
        self.frames_bytes += frame.body.len();
        self.frames.push(frame.body.to_vec());
        if is_whole {
            self.frames_bytes = 0;
            heard.push_back(envelope::decode_zmq(self.pattern, std::mem::take(&mut self.frames)));
        }
        Ok(())
    }

    fn read_command(
        &mut self,
        body: &[u8],
        heard: &mut VecDeque<SocketEvent>,
        out: &mut Vec<u8>,
    ) -> Result<(), SocketError> {
        if let Some(why) = body.strip_prefix(LIBZMQ_ERROR) {
            return Err(SocketError::Refused(printable(
                read_short_string(why).map_or(why, |(why, _)| why),
            )));
        }
        let (name, data) = read_short_string(body)
            .ok_or(SocketError::Command("it sent a command without name"))?;
        match (self.stage, name) {
            (_, b"ERROR") => {
                let why = read_short_string(data).map_or(data, |(why, _)| why);
                return Err(SocketError::Refused(printable(why)));
            }
            (ZmtpStage::Hello, b"HELLO") => {
                if !self.has_valid_credentials(data) {
                    write_error("the user name or password is not right", out);
                    return Err(SocketError::Credentials);
                }
                write_command("WELCOME", b"", out);
                self.stage = ZmtpStage::Initiate;
            }
            (ZmtpStage::Welcome, b"WELCOME") => {
                write_command("INITIATE", &self.metadata(), out);
                self.stage = ZmtpStage::Ready;
            }
            (ZmtpStage::Initiate, b"INITIATE") => {
                self.check_peer_type(data, out)?;
                write_command("READY", &self.metadata(), out);
                self.finish_handshake(heard);
            }
            (ZmtpStage::Ready, b"READY") => {
                self.check_peer_type(data, out)?;
                self.finish_handshake(heard);
            }
            (ZmtpStage::Open, b"PING") => {
                // The TTL of the peer comes first, and the context behind it goes into the PONG.
                let context = data.get(2..).unwrap_or_default();
                write_command("PONG", &context[..context.len().min(16)], out);
            }
            (ZmtpStage::Open, b"SUBSCRIBE") => {
                heard.push_back(SocketEvent::Subscribe(data.to_vec()))
            }
            (ZmtpStage::Open, b"CANCEL") => heard.push_back(SocketEvent::Cancel(data.to_vec())),
            (ZmtpStage::Open, _) => {}
            _ => return Err(SocketError::Command("it sent a command that has no place there")),
        }
        Ok(())
    }

    fn finish_handshake(&mut self, heard: &mut VecDeque<SocketEvent>) {
        self.stage = ZmtpStage::Open;
        heard.push_back(SocketEvent::Open);
    }

    /// Checks that the socket type in the peer's metadata fits ours; otherwise answers with ERROR.
    fn check_peer_type(&self, mut data: &[u8], out: &mut Vec<u8>) -> Result<(), SocketError> {
        let mut kind = None;
        while !data.is_empty() {
            let wrong = SocketError::Command("its metadata cannot be read");
            let (name, rest) = read_short_string(data).ok_or(wrong.clone())?;
            let (len, rest) = rest.split_at_checked(4).ok_or(wrong.clone())?;
            let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize;
            let (value, rest) = rest.split_at_checked(len).ok_or(wrong)?;
            if name.eq_ignore_ascii_case(b"Socket-Type") {
                kind = Some(value);
            }
            data = rest;
        }
        let kind = printable(kind.unwrap_or_default());
        if self.pattern.accepts_zmq_peer(&kind) {
            return Ok(());
        }
        write_error("sockets of these kinds do not go together", out);
        Err(SocketError::SocketType(kind))
    }

    fn has_valid_credentials(&self, data: &[u8]) -> bool {
        let Some((user_name, rest)) = read_short_string(data) else { return false };
        let (Some((password, [])), Some(plain)) = (read_short_string(rest), &self.plain) else {
            return false;
        };
        let is_user = constant_time_eq(user_name, plain.user_name.as_bytes());
        constant_time_eq(password, &plain.password) & is_user
    }

    pub(crate) fn encode(&self, message: &MultipartMessage, out: &mut Vec<u8>) {
        let asks = self.pattern.sends_requests() || self.pattern.sends_replies();
        let empty: &[&[u8]] = if asks { &[&[]] } else { &[] };
        let before = message.envelope.iter().map(Vec::as_slice).chain(empty.iter().copied());
        let mut all = before.chain(message.frames.iter().map(Vec::as_slice)).peekable();
        while let Some(body) = all.next() {
            write_frame(if all.peek().is_some() { MORE } else { 0 }, body, out);
        }
    }

    pub(crate) fn write_subscribe(&self, prefix: &[u8], out: &mut Vec<u8>) {
        if self.knows_subscribe {
            return write_command("SUBSCRIBE", prefix, out);
        }
        let body = [&[SUBSCRIBE], prefix].concat();
        write_frame(0, &body, out);
    }
}

fn write_frame(flags: u8, body: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(body.len()) {
        Ok(len) => out.extend_from_slice(&[flags, len]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

fn write_command(name: &str, data: &[u8], out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(1 + name.len() + data.len());
    write_short_string(name.as_bytes(), &mut body);
    body.extend_from_slice(data);
    write_frame(COMMAND, &body, out);
}

fn write_error(why: &str, out: &mut Vec<u8>) {
    let mut data = Vec::new();
    write_short_string(why.as_bytes(), &mut data);
    write_command("ERROR", &data, out);
}

/// Appends a string with a length of one byte; longer strings are cut. The options bound names and
/// passwords to 255 bytes.
fn write_short_string(bytes: &[u8], out: &mut Vec<u8>) {
    let len = bytes.len().min(usize::from(u8::MAX));
    out.push(len as u8);
    out.extend_from_slice(&bytes[..len]);
}

fn write_property(name: &str, value: &[u8], out: &mut Vec<u8>) {
    write_short_string(name.as_bytes(), out);
    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
    out.extend_from_slice(value);
}

/// Splits off a string with a length of one byte. Returns the string and the bytes behind.
fn read_short_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// Returns at most 64 bytes of a peer's text for a log line, bytes which are not printable ASCII as
/// spaces.
fn printable(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(64)];
    bytes.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' }).collect()
}

/// Compares in a time independent of the position of the first difference.
fn constant_time_eq(given: &[u8], own: &[u8]) -> bool {
    let differs = given.iter().zip(own).fold(0, |differs, (given, own)| differs | (given ^ own));
    differs == 0 && given.len() == own.len()
}
