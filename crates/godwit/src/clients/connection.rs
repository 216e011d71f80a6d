//! Blocking connection of a client: packets out, frames and other events in.
//!
//! One thread reads the socket, so that the client's thread can wait for the broker, for stdin and
//! for a timeout at the same time: all events arrive in one channel. The channel is bounded, so a
//! slow client applies back-pressure to the broker.

use super::stream::ClientStream;
use super::{ClientError, EXIT_LOST};
use mqtt::client::{ClientSession, KeepAlive, KeepAliveStep};
use mqtt::{Disconnect, Packet, Properties, ProtocolVersion, ReasonCode, Violation};
use std::io::{self, BufRead, BufReader, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

pub(super) struct BlockingConnection {
    stream: ClientStream,
    version: ProtocolVersion,
    client_id: String,
    debug: bool,
    pub(super) session: ClientSession<()>,
    sender: SyncSender<ReaderEvent>,
    events: Receiver<ReaderEvent>,
    out: Vec<u8>,
    keep_alive: KeepAlive<Instant>,
    sent_at: Instant,
}

/// Whole packet in encoded form.
pub(super) struct EncodedPacket(Vec<u8>);

enum ReaderEvent {
    Frame(EncodedPacket),
    /// Lines of stdin; an empty list is the end of stdin.
    Lines(Vec<Vec<u8>>),
    Lost(String),
}

/// An event that a client waits for in [`BlockingConnection::wait`].
pub(super) enum ClientInput {
    Frame(EncodedPacket),
    Lines(Vec<Vec<u8>>),
    Timeout,
}

/// Requests lines of stdin a few at a time, so that lines are read only when there is room.
pub(super) struct StdinLines {
    request_sender: SyncSender<()>,
    is_requested: bool,
}

impl BlockingConnection {
    pub(super) fn new(
        stream: ClientStream,
        version: ProtocolVersion,
        client_id: &str,
        debug: bool,
    ) -> io::Result<BlockingConnection> {
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let (reader, frames) = (stream.try_clone()?, sender.clone());
        thread::Builder::new().name("reader".into()).spawn(move || read_frames(reader, &frames))?;
        Ok(BlockingConnection {
            stream,
            version,
            client_id: client_id.to_string(),
            debug,
            session: ClientSession::default(),
            sender,
            events,
            out: Vec::new(),
            keep_alive: KeepAlive::new(Duration::ZERO, Duration::ZERO),
            sent_at: Instant::now(),
        })
    }

    pub(super) fn keep_alive(&mut self, seconds: u16) {
        let interval = Duration::from_secs(seconds.into());
        self.keep_alive = KeepAlive::new(interval, interval);
    }

    pub(super) fn send(&mut self, packet: &Packet<'_>) -> Result<(), ClientError> {
        self.queue(packet);
        self.flush()
    }

    /// Encodes a packet for the next `flush`. The caller flushes when many bytes are queued.
    pub(super) fn queue(&mut self, packet: &Packet<'_>) {
        if let Packet::Connect(connect) = packet {
            self.session.connect(connect);
        }
        packet.encode(self.version, &mut self.out);
        self.trace_packet("sending", packet);
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.out.len()
    }

    pub(super) fn flush(&mut self) -> Result<(), ClientError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let written = self.stream.write_all(&self.out);
        self.out.clear();
        self.sent_at = Instant::now();
        // A broker that closes may have sent a reason, which is unread yet.
        match written {
            Err(error) if !is_closed(&error) => Err(connection_lost(&error.to_string())),
            _ => Ok(()),
        }
    }

    pub(super) fn decode<'a>(
        &mut self,
        frame: &'a EncodedPacket,
    ) -> Result<Packet<'a>, ClientError> {
        let whole = mqtt::split_frame(&frame.0, u32::MAX).map_err(protocol_error)?;
        let whole = whole.ok_or_else(|| connection_lost("the broker sent half a packet"))?;
        let packet = Packet::decode(whole, self.version).map_err(protocol_error)?;
        self.trace_packet("received", &packet);
        if let Packet::ConnAck(connack) = &packet {
            // The caller that waits for CONNACK reports a refusal.
            let _ = self.session.on_connack(connack);
        }
        Ok(packet)
    }

    /// Returns the next packet; `None` after the deadline.
    pub(super) fn receive(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<EncodedPacket>, ClientError> {
        match self.wait(Some(deadline))? {
            ClientInput::Frame(frame) => Ok(Some(frame)),
            ClientInput::Lines(_) | ClientInput::Timeout => Ok(None),
        }
    }

    /// Waits for an event, and sends PINGREQs as the keep-alive requires.
    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> Result<ClientInput, ClientError> {
        self.flush()?;
        loop {
            let now = Instant::now();
            self.ping(now)?;
            let until = [deadline, self.keep_alive.due(self.sent_at)].into_iter().flatten().min();
            let left = until.map_or(FOREVER, |until| until.saturating_duration_since(now));
            match self.events.recv_timeout(left) {
                Ok(ReaderEvent::Frame(EncodedPacket(bytes))) if bytes == mqtt::PINGRESP => {
                    self.keep_alive.on_answer();
                }
                Ok(ReaderEvent::Frame(frame)) => return Ok(ClientInput::Frame(frame)),
                Ok(ReaderEvent::Lines(lines)) => return Ok(ClientInput::Lines(lines)),
                Ok(ReaderEvent::Lost(why)) => return Err(connection_lost(&why)),
                Err(RecvTimeoutError::Timeout) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Ok(ClientInput::Timeout);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(connection_lost("the reader is gone"));
                }
            }
        }
    }

    /// Returns the next available input without waiting.
    pub(super) fn try_receive(&mut self) -> Option<ClientInput> {
        let event = self.events.try_recv().ok()?;
        match event {
            ReaderEvent::Frame(EncodedPacket(bytes)) if bytes == mqtt::PINGRESP => {
                self.keep_alive.on_answer();
                self.try_receive()
            }
            ReaderEvent::Frame(frame) => Some(ClientInput::Frame(frame)),
            ReaderEvent::Lines(lines) => Some(ClientInput::Lines(lines)),
            ReaderEvent::Lost(why) => {
                // The next wait reports this error.
                let _ = self.sender.try_send(ReaderEvent::Lost(why));
                None
            }
        }
    }

    /// Starts a thread that delivers lines of stdin as events of this connection.
    pub(super) fn read_stdin(&self) -> io::Result<StdinLines> {
        let (asks, asked) = mpsc::sync_channel(1);
        let lines = self.sender.clone();
        thread::Builder::new().name("lines".into()).spawn(move || read_lines(&asked, &lines))?;
        Ok(StdinLines { request_sender: asks, is_requested: false })
    }

    pub(super) fn disconnect(&mut self, properties: Properties<'_>) -> Result<(), ClientError> {
        let reason = ReasonCode::NormalDisconnection;
        self.send(&Packet::Disconnect(Disconnect { reason, properties }))?;
        self.stream.shutdown_write();
        // A close with unread bytes would reset the connection and lose our last packets, so the
        // broker closes first.
        let deadline = Instant::now() + GOODBYE_TIMEOUT;
        while let Ok(ClientInput::Frame(_) | ClientInput::Lines(_)) = self.wait(Some(deadline)) {}
        Ok(())
    }

    fn ping(&mut self, now: Instant) -> Result<(), ClientError> {
        let due = self.keep_alive.due(self.sent_at);
        // If this process was stopped, a response may have arrived unread.
        let was_stopped = due.is_some_and(|due| now >= due + STOPPED);
        match self.keep_alive.step(self.sent_at, now) {
            KeepAliveStep::Wait => Ok(()),
            KeepAliveStep::Lost if !was_stopped => {
                Err(connection_lost("the broker does not answer pings"))
            }
            KeepAliveStep::Lost | KeepAliveStep::Ping => {
                self.keep_alive.on_ping_sent(now);
                self.send(&Packet::PingReq)
            }
        }
    }

    fn trace_packet(&self, way: &str, packet: &Packet<'_>) {
        if self.debug {
            let _ = writeln!(io::stderr(), "Client {} {way} {packet}", self.client_id);
        }
    }
}

impl Drop for BlockingConnection {
    /// Wakes the reader thread, which holds the socket open.
    fn drop(&mut self) {
        self.stream.close();
    }
}

impl StdinLines {
    /// Requests the next lines, which arrive as [`ClientInput::Lines`]; a repeated request has no
    /// effect.
    pub(super) fn request_lines(&mut self) {
        if !self.is_requested {
            self.is_requested = self.request_sender.try_send(()).is_ok();
        }
    }

    pub(super) fn on_lines(&mut self) {
        self.is_requested = false;
    }
}

/// Returns the error for a connection that the broker or the network closed, with exit code
/// `EXIT_LOST`.
pub(super) fn connection_lost(why: &str) -> ClientError {
    ClientError::new(EXIT_LOST, format!("the connection was lost: {why}"))
}

pub(super) fn protocol_error(violation: Violation) -> ClientError {
    connection_lost(&format!("the broker broke the protocol: {violation}"))
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn read_frames(mut stream: ClientStream, frames: &SyncSender<ReaderEvent>) {
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
            match mqtt::split_frame(&buffer[consumed..], u32::MAX) {
                Ok(Some(frame)) => {
                    let bytes = buffer[consumed..consumed + frame.len].to_vec();
                    consumed += frame.len;
                    if frames.send(ReaderEvent::Frame(EncodedPacket(bytes))).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(violation) => {
                    let _ = frames.send(ReaderEvent::Lost(violation.to_string()));
                    return;
                }
            }
        }
        buffer.drain(..consumed);
    };
    let _ = frames.send(ReaderEvent::Lost(why));
}

/// Sends each complete line at once, together with further lines of the same read.
fn read_lines(asked: &Receiver<()>, lines: &SyncSender<ReaderEvent>) {
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
        if lines.send(ReaderEvent::Lines(batch)).is_err() || ended {
            return;
        }
    }
}

const LINES_MAX: usize = 256;
/// Largest number of events that wait for the client's thread.
const EVENTS_MAX: usize = 1024;
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay of a timer that shows that the process was stopped.
const STOPPED: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 64 * 1024;
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
