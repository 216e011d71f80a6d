//! ZeroMQ's protocol (rfc.zeromq.org/spec/23 and /37) with the mechanisms NULL and PLAIN (/24).
//!
//! ```text
//! greeting  FF, 8 bytes, 7F | version 3, 1 | mechanism (20) | as server (1) | zeros (31)
//! frame     flags: more 1, long 2, command 4 | length (1, or 8 where long) | body
//! command   length of its name (1) | name | data
//! ```

use crate::pattern::Pattern;
use crate::{Broken, FRAMES_MAX, Heard, Limits, Message, envelope};
use std::collections::VecDeque;

/// Who may come in by PLAIN, or who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    pub user_name: Box<str>,
    pub password: Box<[u8]>,
}

#[derive(Debug)]
pub struct Zmtp {
    pattern: Pattern,
    plain: Option<Plain>,
    listens: bool,
    limits: Limits,
    stage: Stage,
    /// Whether it knows commands that subscribe (3.1).
    knows_subscribe: bool,
    /// Frames of a message whose last has not come, and their bytes.
    frames: Vec<Vec<u8>>,
    frames_bytes: usize,
}

/// What has to come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    Hello,
    Welcome,
    Initiate,
    Ready,
    Open,
}

struct Frame<'b> {
    flags: u8,
    body: &'b [u8],
    /// With its header.
    len: usize,
}

const GREETING: usize = 64;
const SIGNATURE: usize = 10;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
const NULL: &str = "NULL";
const PLAIN: &str = "PLAIN";
/// Commands are names, sizes and a few words.
const COMMAND_BYTES_MAX: usize = 4096;
/// What libzmq says to a wrong password: it writes "\\x5ERROR", whose first letter C takes for a
/// part of the number (4.3.5).
const LIBZMQ_ERROR: &[u8] = b"^RROR";
const SUBSCRIBE: u8 = 1;
const CANCEL: u8 = 0;

impl Zmtp {
    pub(crate) fn new(
        pattern: Pattern,
        plain: Option<Plain>,
        listens: bool,
        limits: Limits,
    ) -> Zmtp {
        Zmtp {
            pattern,
            plain,
            listens,
            limits,
            stage: Stage::Greeting,
            knows_subscribe: false,
            frames: Vec::new(),
            frames_bytes: 0,
        }
    }

    fn mechanism(&self) -> &'static str {
        if self.plain.is_some() { PLAIN } else { NULL }
    }

    pub(crate) fn held(&self) -> usize {
        self.frames_bytes
    }

    pub(crate) fn greet(&self, out: &mut Vec<u8>) {
        let mut greeting = [0; GREETING];
        (greeting[0], greeting[8], greeting[9]) = (0xFF, 1, 0x7F);
        (greeting[10], greeting[11]) = (3, 1);
        let name = self.mechanism().as_bytes();
        greeting[12..12 + name.len()].copy_from_slice(name);
        greeting[32] = u8::from(self.listens && self.plain.is_some());
        out.extend_from_slice(&greeting);
    }

    pub(crate) fn hear(
        &mut self,
        bytes: &[u8],
        heard: &mut VecDeque<Heard>,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        let mut taken = 0;
        if self.stage == Stage::Greeting {
            if !self.is_greeted(bytes)? {
                return Ok(0);
            }
            taken = GREETING;
            self.introduce(out);
        }
        while let Some(frame) = self.cut(&bytes[taken..])? {
            taken += frame.len;
            if frame.flags & COMMAND != 0 {
                self.command(frame.body, heard, out)?;
            } else {
                self.frame(&frame, heard)?;
            }
        }
        Ok(taken)
    }

    /// Whether the whole greeting is there.
    fn is_greeted(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        let is_wrong = |at: usize, wanted: u8| bytes.get(at).is_some_and(|byte| *byte != wanted);
        if is_wrong(0, 0xFF) || is_wrong(SIGNATURE - 1, 0x7F) {
            return Err(Broken::Greeting);
        }
        match bytes.get(SIGNATURE) {
            Some(0..3) => return Err(Broken::Version(bytes[SIGNATURE])),
            _ if bytes.len() < GREETING => return Ok(false),
            _ => {}
        }
        self.knows_subscribe = bytes[SIGNATURE] > 3 || bytes[SIGNATURE + 1] > 0;
        let name = bytes[12..32].split(|byte| *byte == 0).next().unwrap_or_default();
        if name != self.mechanism().as_bytes() {
            return Err(Broken::Mechanism(words(name)));
        }
        Ok(true)
    }

    /// Our part after the greetings.
    fn introduce(&mut self, out: &mut Vec<u8>) {
        self.stage = match (&self.plain, self.listens) {
            (None, _) => {
                command("READY", &self.metadata(), out);
                Stage::Ready
            }
            (Some(_), true) => Stage::Hello,
            (Some(plain), false) => {
                let mut data = Vec::new();
                push_short(plain.user_name.as_bytes(), &mut data);
                push_short(&plain.password, &mut data);
                command("HELLO", &data, out);
                Stage::Welcome
            }
        };
    }

    fn metadata(&self) -> Vec<u8> {
        let mut data = Vec::new();
        property("Socket-Type", self.pattern.zmq_name().as_bytes(), &mut data);
        if matches!(self.pattern, Pattern::Req) {
            property("Identity", b"", &mut data);
        }
        data
    }

    /// The frame in front, if it is whole. What it may be long it says in its first bytes.
    fn cut<'b>(&self, bytes: &'b [u8]) -> Result<Option<Frame<'b>>, Broken> {
        let Some(flags) = bytes.first().copied() else { return Ok(None) };
        let is_command = flags & COMMAND != 0;
        if flags & !(MORE | LONG | COMMAND) != 0 || is_command && flags & MORE != 0 {
            return Err(Broken::Command("it sent a frame with unknown flags"));
        }
        // Nothing weighs what waits of somebody who has not shown a password yet.
        if !is_command && self.stage != Stage::Open {
            return Err(Broken::Command("it sent a message before hands were shaken"));
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
            return Err(Broken::TooLarge);
        }
        let end = front + len as usize;
        Ok(bytes.get(front..end).map(|body| Frame { flags, body, len: end }))
    }

    fn frame(&mut self, frame: &Frame<'_>, heard: &mut VecDeque<Heard>) -> Result<(), Broken> {
        if self.frames.len() == FRAMES_MAX {
            return Err(Broken::TooManyFrames);
        }
        let is_whole = frame.flags & MORE == 0;
        if self.pattern.is_subscribed_to() && is_whole && self.frames.is_empty() {
            match frame.body.split_first() {
                Some((&SUBSCRIBE, prefix)) => {
                    heard.push_back(Heard::Subscribe(prefix.to_vec()));
                    return Ok(());
                }
                Some((&CANCEL, prefix)) => {
                    heard.push_back(Heard::Cancel(prefix.to_vec()));
                    return Ok(());
                }
                _ => {}
            }
        }
        self.frames_bytes += frame.body.len();
        self.frames.push(frame.body.to_vec());
        if is_whole {
            self.frames_bytes = 0;
            heard.push_back(envelope::of_zmq(self.pattern, std::mem::take(&mut self.frames)));
        }
        Ok(())
    }

    fn command(
        &mut self,
        body: &[u8],
        heard: &mut VecDeque<Heard>,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        if let Some(why) = body.strip_prefix(LIBZMQ_ERROR) {
            return Err(Broken::Refused(words(short(why).map_or(why, |(why, _)| why))));
        }
        let (name, data) = short(body).ok_or(Broken::Command("it sent a command without name"))?;
        match (self.stage, name) {
            (_, b"ERROR") => {
                let why = short(data).map_or(data, |(why, _)| why);
                return Err(Broken::Refused(words(why)));
            }
            (Stage::Hello, b"HELLO") => {
                if !self.is_let_in(data) {
                    refuse("the user name or password is not right", out);
                    return Err(Broken::Credentials);
                }
                command("WELCOME", b"", out);
                self.stage = Stage::Initiate;
            }
            (Stage::Welcome, b"WELCOME") => {
                command("INITIATE", &self.metadata(), out);
                self.stage = Stage::Ready;
            }
            (Stage::Initiate, b"INITIATE") => {
                self.meet(data, out)?;
                command("READY", &self.metadata(), out);
                self.open(heard);
            }
            (Stage::Ready, b"READY") => {
                self.meet(data, out)?;
                self.open(heard);
            }
            (Stage::Open, b"PING") => {
                // Behind the time that it gives us stands what it wants to hear back.
                let context = data.get(2..).unwrap_or_default();
                command("PONG", &context[..context.len().min(16)], out);
            }
            (Stage::Open, b"SUBSCRIBE") => heard.push_back(Heard::Subscribe(data.to_vec())),
            (Stage::Open, b"CANCEL") => heard.push_back(Heard::Cancel(data.to_vec())),
            (Stage::Open, _) => {}
            _ => return Err(Broken::Command("it sent a command that has no place there")),
        }
        Ok(())
    }

    fn open(&mut self, heard: &mut VecDeque<Heard>) {
        self.stage = Stage::Open;
        heard.push_back(Heard::Open);
    }

    /// Whether the peer's kind of socket goes with ours.
    fn meet(&self, mut data: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        let mut kind = None;
        while !data.is_empty() {
            let wrong = Broken::Command("its metadata cannot be read");
            let (name, rest) = short(data).ok_or(wrong.clone())?;
            let (len, rest) = rest.split_at_checked(4).ok_or(wrong.clone())?;
            let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize;
            let (value, rest) = rest.split_at_checked(len).ok_or(wrong)?;
            if name.eq_ignore_ascii_case(b"Socket-Type") {
                kind = Some(value);
            }
            data = rest;
        }
        let kind = words(kind.unwrap_or_default());
        if self.pattern.goes_with_zmq(&kind) {
            return Ok(());
        }
        refuse("sockets of these kinds do not go together", out);
        Err(Broken::Pattern(kind))
    }

    fn is_let_in(&self, data: &[u8]) -> bool {
        let Some((user_name, rest)) = short(data) else { return false };
        let (Some((password, [])), Some(plain)) = (short(rest), &self.plain) else { return false };
        let is_user = is_same(user_name, plain.user_name.as_bytes());
        is_same(password, &plain.password) & is_user
    }

    pub(crate) fn say(&self, message: &Message, out: &mut Vec<u8>) {
        let asks = self.pattern.asks() || self.pattern.answers();
        let empty: &[&[u8]] = if asks { &[&[]] } else { &[] };
        let before = message.envelope.iter().map(Vec::as_slice).chain(empty.iter().copied());
        let mut all = before.chain(message.frames.iter().map(Vec::as_slice)).peekable();
        while let Some(body) = all.next() {
            frame(if all.peek().is_some() { MORE } else { 0 }, body, out);
        }
    }

    pub(crate) fn subscribe(&self, prefix: &[u8], out: &mut Vec<u8>) {
        if self.knows_subscribe {
            return command("SUBSCRIBE", prefix, out);
        }
        let body = [&[SUBSCRIBE], prefix].concat();
        frame(0, &body, out);
    }
}

fn frame(flags: u8, body: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(body.len()) {
        Ok(len) => out.extend_from_slice(&[flags, len]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

fn command(name: &str, data: &[u8], out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(1 + name.len() + data.len());
    push_short(name.as_bytes(), &mut body);
    body.extend_from_slice(data);
    frame(COMMAND, &body, out);
}

fn refuse(why: &str, out: &mut Vec<u8>) {
    let mut data = Vec::new();
    push_short(why.as_bytes(), &mut data);
    command("ERROR", &data, out);
}

/// Names and passwords are no longer than that; the options see to it.
fn push_short(bytes: &[u8], out: &mut Vec<u8>) {
    let len = bytes.len().min(usize::from(u8::MAX));
    out.push(len as u8);
    out.extend_from_slice(&bytes[..len]);
}

fn property(name: &str, value: &[u8], out: &mut Vec<u8>) {
    push_short(name.as_bytes(), out);
    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
    out.extend_from_slice(value);
}

/// What stands behind a length of one byte, and the rest.
fn short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// For people: what a peer calls something, and not more of it than a line has room for.
fn words(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(64)];
    bytes.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' }).collect()
}

/// In a time that does not tell how much of it is right.
fn is_same(given: &[u8], own: &[u8]) -> bool {
    let differs = given.iter().zip(own).fold(0, |differs, (given, own)| differs | (given ^ own));
    differs == 0 && given.len() == own.len()
}
