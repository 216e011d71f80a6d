//! A blocking connection: packets out, frames and other events in.
//!
//! One thread reads the socket, so that the client's own thread can wait for the broker, for a
//! line of stdin and for time at once: everything arrives in one channel, which is bounded, so a
//! client that does not keep up holds the broker back.

use super::stream::Stream;
use super::{EXIT_LOST, End};
use mqtt::{Disconnect, Packet, Properties, Reason, Version};
use std::io::{self, BufRead, BufReader, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

pub(super) struct Wire {
    stream: Stream,
    version: Version,
    client_id: String,
    debug: bool,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
    out: Vec<u8>,
    keep_alive: Option<Duration>,
    sent_at: Instant,
    /// When the PINGREQ left that is not answered yet.
    pinged_at: Option<Instant>,
}

/// One whole packet, still encoded.
pub(super) struct Frame(Vec<u8>);

enum Event {
    Frame(Frame),
    /// Lines of stdin; none at its end.
    Lines(Vec<Vec<u8>>),
    Lost(String),
}

/// What a client waits for.
pub(super) enum Arrival {
    Frame(Frame),
    Lines(Vec<Vec<u8>>),
    Timeout,
}

/// Asks for lines of stdin a few at a time, so that none is read long before there is room for it.
pub(super) struct Lines {
    asks: SyncSender<()>,
    asked: bool,
}

impl Wire {
    pub(super) fn new(
        stream: Stream,
        version: Version,
        client_id: &str,
        debug: bool,
    ) -> io::Result<Wire> {
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let (reader, frames) = (stream.try_clone()?, sender.clone());
        thread::Builder::new().name("reader".into()).spawn(move || read(reader, &frames))?;
        Ok(Wire {
            stream,
            version,
            client_id: client_id.to_string(),
            debug,
            sender,
            events,
            out: Vec::new(),
            keep_alive: None,
            sent_at: Instant::now(),
            pinged_at: None,
        })
    }

    pub(super) fn keep_alive(&mut self, seconds: u16) {
        self.keep_alive = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    }

    pub(super) fn send(&mut self, packet: &Packet<'_>) -> Result<(), End> {
        self.queue(packet);
        self.flush()
    }

    /// For many packets at once: they leave with the next `flush`, or when there are many.
    pub(super) fn queue(&mut self, packet: &Packet<'_>) {
        packet.encode(self.version, &mut self.out);
        self.say("sending", packet);
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.out.len()
    }

    pub(super) fn flush(&mut self) -> Result<(), End> {
        if self.out.is_empty() {
            return Ok(());
        }
        let written = self.stream.write_all(&self.out);
        self.out.clear();
        self.sent_at = Instant::now();
        // A broker that closes says why first: what it said is still to be read.
        match written {
            Err(error) if !is_closed(&error) => Err(lost(&error.to_string())),
            _ => Ok(()),
        }
    }

    pub(super) fn decode<'a>(&self, frame: &'a Frame) -> Result<Packet<'a>, End> {
        let broken = |violation| lost(&format!("the broker broke the protocol: {violation}"));
        let whole = mqtt::cut(&frame.0, u32::MAX).map_err(broken)?;
        let whole = whole.ok_or_else(|| lost("the broker sent half a packet"))?;
        let packet = Packet::decode(whole, self.version).map_err(broken)?;
        self.say("received", &packet);
        Ok(packet)
    }

    /// The next packet; `None` when the deadline comes first.
    pub(super) fn receive(&mut self, deadline: Instant) -> Result<Option<Frame>, End> {
        match self.wait(Some(deadline))? {
            Arrival::Frame(frame) => Ok(Some(frame)),
            Arrival::Lines(_) | Arrival::Timeout => Ok(None),
        }
    }

    /// Waits, and pings meanwhile where the keep-alive asks for it.
    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> Result<Arrival, End> {
        self.flush()?;
        loop {
            let now = Instant::now();
            self.ping(now)?;
            let until = [deadline, self.next_ping()].into_iter().flatten().min();
            let left = until.map_or(FOREVER, |until| until.saturating_duration_since(now));
            match self.events.recv_timeout(left) {
                Ok(Event::Frame(Frame(bytes))) if bytes == mqtt::PINGRESP => self.pinged_at = None,
                Ok(Event::Frame(frame)) => return Ok(Arrival::Frame(frame)),
                Ok(Event::Lines(lines)) => return Ok(Arrival::Lines(lines)),
                Ok(Event::Lost(why)) => return Err(lost(&why)),
                Err(RecvTimeoutError::Timeout) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Ok(Arrival::Timeout);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(lost("the reader is gone")),
            }
        }
    }

    /// What is there already, without waiting.
    pub(super) fn ready(&mut self) -> Option<Arrival> {
        let event = self.events.try_recv().ok()?;
        match event {
            Event::Frame(Frame(bytes)) if bytes == mqtt::PINGRESP => {
                self.pinged_at = None;
                self.ready()
            }
            Event::Frame(frame) => Some(Arrival::Frame(frame)),
            Event::Lines(lines) => Some(Arrival::Lines(lines)),
            Event::Lost(why) => {
                // Said by the next wait.
                let _ = self.sender.try_send(Event::Lost(why));
                None
            }
        }
    }

    /// Lines of stdin become arrivals of this connection.
    pub(super) fn lines(&self) -> io::Result<Lines> {
        let (asks, asked) = mpsc::sync_channel(1);
        let lines = self.sender.clone();
        thread::Builder::new().name("lines".into()).spawn(move || read_lines(&asked, &lines))?;
        Ok(Lines { asks, asked: false })
    }

    pub(super) fn goodbye(&mut self, properties: Properties<'_>) -> Result<(), End> {
        let reason = Reason::NormalDisconnection;
        self.send(&Packet::Disconnect(Disconnect { reason, properties }))?;
        self.stream.end();
        // Closing with unread bytes would reset the connection, and what we sent last with it: so
        // the broker closes first.
        let deadline = Instant::now() + GOODBYE_TIMEOUT;
        while let Ok(Arrival::Frame(_) | Arrival::Lines(_)) = self.wait(Some(deadline)) {}
        Ok(())
    }

    fn ping(&mut self, now: Instant) -> Result<(), End> {
        let Some(keep_alive) = self.keep_alive else { return Ok(()) };
        match self.pinged_at {
            // This process was stopped for a while: an answer may have come and not been read.
            Some(at) if now >= at + keep_alive + STOPPED => {
                self.pinged_at = Some(now);
                self.send(&Packet::PingReq)
            }
            Some(at) if now >= at + keep_alive => Err(lost("the broker does not answer pings")),
            None if now >= self.sent_at + keep_alive => {
                self.pinged_at = Some(now);
                self.send(&Packet::PingReq)
            }
            _ => Ok(()),
        }
    }

    fn next_ping(&self) -> Option<Instant> {
        let from = self.pinged_at.unwrap_or(self.sent_at);
        self.keep_alive.map(|keep_alive| from + keep_alive)
    }

    fn say(&self, way: &str, packet: &Packet<'_>) {
        if self.debug {
            let _ = writeln!(io::stderr(), "Client {} {way} {packet}", self.client_id);
        }
    }
}

impl Drop for Wire {
    /// Wakes the reader, which would hold the socket open.
    fn drop(&mut self) {
        self.stream.close();
    }
}

impl Lines {
    /// The next lines will arrive; asking twice for the same ones is fine.
    pub(super) fn ask(&mut self) {
        if !self.asked {
            self.asked = self.asks.try_send(()).is_ok();
        }
    }

    pub(super) fn arrived(&mut self) {
        self.asked = false;
    }
}

/// The broker ended the connection, or the network did.
pub(super) fn lost(why: &str) -> End {
    End::new(EXIT_LOST, format!("the connection was lost: {why}"))
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn read(mut stream: Stream, frames: &SyncSender<Event>) {
    let mut buffer = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let why = loop {
        match stream.read(&mut chunk) {
            Ok(0) => break "closed by the broker".to_string(),
            Ok(len) => buffer.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break error.to_string(),
        }
        let mut consumed = 0;
        loop {
            match mqtt::cut(&buffer[consumed..], u32::MAX) {
                Ok(Some(frame)) => {
                    let bytes = buffer[consumed..consumed + frame.len].to_vec();
                    consumed += frame.len;
                    if frames.send(Event::Frame(Frame(bytes))).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(violation) => {
                    let _ = frames.send(Event::Lost(violation.to_string()));
                    return;
                }
            }
        }
        buffer.drain(..consumed);
    };
    let _ = frames.send(Event::Lost(why));
}

/// One line as soon as it is there, and with it those that came in the same read.
fn read_lines(asked: &Receiver<()>, lines: &SyncSender<Event>) {
    let mut stdin = BufReader::with_capacity(CHUNK_BYTES, io::stdin());
    while asked.recv().is_ok() {
        let mut batch = Vec::new();
        while batch.is_empty() || batch.len() < LINES_MAX && stdin.buffer().contains(&b'\n') {
            let mut line = Vec::new();
            if !matches!(stdin.read_until(b'\n', &mut line), Ok(1..)) {
                break;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            batch.push(line);
        }
        let ended = batch.is_empty();
        if lines.send(Event::Lines(batch)).is_err() || ended {
            return;
        }
    }
}

const LINES_MAX: usize = 256;
/// Events that may wait for the client's own thread.
const EVENTS_MAX: usize = 1024;
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);
/// A timer that fires this late shows that the process was stopped.
const STOPPED: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 64 * 1024;
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
