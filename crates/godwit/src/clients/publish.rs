//! `godwit pub`: publishes one message, a repeated message, or each line of stdin.

use super::client_options::{ClientOptions, client_command, flag, parse_client_line};
use super::connection::{BlockingConnection, ClientInput, StdinLines, connection_lost};
use super::{ClientError, EXIT_NO_CONNECTION, report_flag_error, report_result};
use command_line::{Command, FlagRow, ParsedFlag};
use mqtt::client::{AckOutcome, success_ack};
use mqtt::{Packet, PacketType, Publish, ReasonCode};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const OWN_FLAGS: [FlagRow; 10] = [
    flag(&["-t", "--topic"], &["TOPIC"], "where to publish"),
    flag(&["-m", "--message"], &["TEXT"], "the payload"),
    flag(&["-f", "--file"], &["FILE"], "the payload is this file"),
    flag(&["-l", "--stdin-line"], &[], "a message a line of stdin"),
    flag(&["-s", "--stdin-file"], &[], "the payload is all of stdin"),
    flag(&["-n", "--null-message"], &[], "an empty payload"),
    flag(&["-r", "--retain"], &[], "the message is retained"),
    flag(&["-M", "--max-inflight"], &["N"], "unacknowledged messages at once, default 20"),
    flag(&["--repeat"], &["N"], "publish the message so often"),
    flag(&["--repeat-delay"], &["SECONDS"], "with this pause between, 0.5 is fine"),
];

pub(crate) fn command() -> Command {
    client_command("pub", "Publishes messages", &OWN_FLAGS)
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let used = match parse_client_line(command(), &OWN_FLAGS, arguments) {
        Ok(used) => used,
        Err(code) => return code,
    };
    match PublishCommand::from_flags(&used) {
        Ok(job) => {
            let quiet = job.options.quiet;
            report_result(job.publish(), quiet)
        }
        Err(why) => report_flag_error(why),
    }
}

/// The parsed command line.
#[derive(Debug)]
struct PublishCommand {
    options: ClientOptions,
    topic: String,
    payload: PayloadSource,
    retain: bool,
    inflight_max: u16,
    repeat: u32,
    repeat_delay: Duration,
}

#[derive(Debug)]
enum PayloadSource {
    File(String),
    Lines,
    Stdin,
    Text(String),
}

impl PublishCommand {
    fn from_flags(used: &[ParsedFlag]) -> Result<PublishCommand, String> {
        let mut dial = ClientOptions::new("godwit-pub");
        let mut topic = String::new();
        let mut payload = None;
        let (mut retain, mut inflight_max) = (false, 20);
        let (mut repeat, mut repeat_delay) = (1, Duration::ZERO);
        for used in used {
            let given = match used.name {
                "--message" => PayloadSource::Text(used.value().to_string()),
                "--file" => PayloadSource::File(used.value().to_string()),
                "--stdin-line" => PayloadSource::Lines,
                "--stdin-file" => PayloadSource::Stdin,
                "--null-message" => PayloadSource::Text(String::new()),
                "--topic" => {
                    topic = used.value().to_string();
                    continue;
                }
                "--retain" => {
                    retain = true;
                    continue;
                }
                "--max-inflight" => {
                    inflight_max = used.number(1, u16::MAX)?;
                    continue;
                }
                "--repeat" => {
                    repeat = used.number(1, u32::MAX)?;
                    continue;
                }
                "--repeat-delay" => {
                    repeat_delay = Duration::from_secs_f64(used.number(0.0, 86_400.0)?);
                    continue;
                }
                _ => {
                    dial.apply_flag(used)?;
                    continue;
                }
            };
            if payload.replace(given).is_some() {
                return Err("use only one of -m, -f, -l, -s and -n".to_string());
            }
        }
        dial.check_flags(has_client_id_flag(used))?;
        if mqtt::topic::check_topic(&topic).is_err() {
            return Err(format!("-t {topic:?}: use a topic without + and #"));
        }
        let payload = payload.ok_or("the payload is missing: use -m, -f, -l, -s or -n")?;
        Ok(PublishCommand {
            options: dial,
            topic,
            payload,
            retain,
            inflight_max,
            repeat,
            repeat_delay,
        })
    }

    fn publish(self) -> Result<(), ClientError> {
        let payload = self.read_payload()?;
        let (wire, _) = self.options.connect(None)?;
        let mut run = PublishRun::new(&self, wire, payload)?;
        let outcome = run.publish_all();
        // A broker that closed first needs no DISCONNECT.
        if outcome.is_ok() {
            run.wire.disconnect(self.options.properties.disconnect.as_properties())?;
        }
        outcome.and_then(|()| run.first_refusal.map_or(Ok(()), Err))
    }

    /// Returns the payload; `None` if the payloads are lines read later.
    fn read_payload(&self) -> Result<Option<Vec<u8>>, ClientError> {
        let failed = |name: &str, error: io::Error| {
            ClientError::new(EXIT_NO_CONNECTION, format!("{name} cannot be read: {error}"))
        };
        match &self.payload {
            PayloadSource::File(path) => {
                std::fs::read(path).map(Some).map_err(|error| failed(path, error))
            }
            PayloadSource::Lines => Ok(None),
            PayloadSource::Stdin => {
                let mut bytes = Vec::new();
                let read = io::stdin().lock().read_to_end(&mut bytes);
                read.map(|_| Some(bytes)).map_err(|error| failed("stdin", error))
            }
            PayloadSource::Text(text) => Ok(Some(text.as_bytes().to_vec())),
        }
    }
}

/// Source of the messages: lines of stdin, or a payload sent `--repeat` times.
enum PublishSource {
    Lines { lines: StdinLines, pending: VecDeque<Vec<u8>> },
    Repeat { payload: Vec<u8>, left: u32, next_at: Instant },
    Ended,
}

struct PublishRun<'a> {
    command: &'a PublishCommand,
    wire: BlockingConnection,
    source: PublishSource,
    window: u16,
    /// First message that the broker refused; the client continues with other messages.
    first_refusal: Option<ClientError>,
}

impl<'a> PublishRun<'a> {
    fn new(
        job: &'a PublishCommand,
        wire: BlockingConnection,
        payload: Option<Vec<u8>>,
    ) -> Result<PublishRun<'a>, ClientError> {
        let source = match payload {
            Some(payload) => {
                PublishSource::Repeat { payload, left: job.repeat, next_at: Instant::now() }
            }
            None => {
                let lines =
                    wire.read_stdin().map_err(|error| connection_lost(&error.to_string()))?;
                PublishSource::Lines { lines, pending: VecDeque::new() }
            }
        };
        let window = job.inflight_max.min(wire.session.limits().receive_maximum);
        Ok(PublishRun { command: job, wire, source, window, first_refusal: None })
    }

    fn publish_all(&mut self) -> Result<(), ClientError> {
        loop {
            let wake_at = self.fill()?;
            let unacknowledged = self.wire.session.unacknowledged.publish_count();
            if matches!(self.source, PublishSource::Ended) && unacknowledged == 0 {
                return Ok(());
            }
            match self.wire.wait(wake_at)? {
                ClientInput::Frame(frame) => {
                    let packet = self.wire.decode(&frame)?;
                    self.on_ack(&packet)?;
                }
                ClientInput::Lines(more) if more.is_empty() => self.source = PublishSource::Ended,
                ClientInput::Lines(more) => {
                    if let PublishSource::Lines { lines, pending } = &mut self.source {
                        lines.on_lines();
                        pending.extend(more);
                    }
                }
                ClientInput::Timeout => {}
            }
        }
    }

    /// Sends what may be sent now; returns when there will be more to send.
    fn fill(&mut self) -> Result<Option<Instant>, ClientError> {
        while self.wire.session.unacknowledged.has_room(self.window) {
            match &mut self.source {
                PublishSource::Ended => return Ok(None),
                PublishSource::Lines { lines, pending } => match pending.pop_front() {
                    Some(line) => self.send(&line)?,
                    None => {
                        lines.request_lines();
                        return Ok(None);
                    }
                },
                PublishSource::Repeat { left: 0, .. } => self.source = PublishSource::Ended,
                PublishSource::Repeat { next_at, .. } if *next_at > Instant::now() => {
                    return Ok(Some(*next_at));
                }
                PublishSource::Repeat { payload, left, next_at } => {
                    *left -= 1;
                    *next_at = Instant::now() + self.command.repeat_delay;
                    let payload = std::mem::take(payload);
                    self.send(&payload)?;
                    if let PublishSource::Repeat { payload: again, .. } = &mut self.source {
                        *again = payload;
                    }
                }
            }
        }
        Ok(None)
    }

    fn send(&mut self, payload: &[u8]) -> Result<(), ClientError> {
        let qos = self.command.options.qos;
        let packet_id = self.wire.session.publish(qos, ());
        self.wire.queue(&Packet::Publish(Publish {
            dup: false,
            qos,
            retain: self.command.retain,
            topic: &self.command.topic,
            packet_id,
            properties: self.command.options.properties.publish.as_properties(),
            payload,
        }));
        // With a delay between messages each message is sent at once.
        if self.wire.queued_bytes() > WRITE_BYTES || !self.command.repeat_delay.is_zero() {
            self.wire.flush()?;
        }
        Ok(())
    }

    fn on_ack(&mut self, packet: &Packet<'_>) -> Result<(), ClientError> {
        let (ack, kind) = match packet {
            Packet::PubAck(ack) => (ack, PacketType::PubAck),
            Packet::PubRec(ack) => (ack, PacketType::PubRec),
            Packet::PubComp(ack) => (ack, PacketType::PubComp),
            Packet::Disconnect(disconnect) => {
                let why = format!("the broker ended the connection: {}", disconnect.reason);
                return Err(ClientError::new(disconnect.reason.code(), why));
            }
            _ => return Ok(()),
        };
        match self.wire.session.on_publish_ack(kind, ack) {
            AckOutcome::Complete(()) if ack.reason.is_error() => self.on_refusal(ack.reason),
            AckOutcome::Complete(()) | AckOutcome::Unexpected => {}
            AckOutcome::Release => self.wire.queue(&Packet::PubRel(success_ack(ack.packet_id))),
        }
        Ok(())
    }

    fn on_refusal(&mut self, reason: ReasonCode) {
        let why = format!("the broker refused a message: {reason}");
        if !self.command.options.quiet && self.first_refusal.is_some() {
            let _ = writeln!(io::stderr(), "Error: {why}");
        }
        self.first_refusal.get_or_insert(ClientError::new(reason.code(), why));
    }
}

pub(super) fn has_client_id_flag(used: &[ParsedFlag]) -> bool {
    used.iter().any(|used| matches!(used.name, "--id" | "--id-prefix"))
}

const WRITE_BYTES: usize = 64 * 1024;
