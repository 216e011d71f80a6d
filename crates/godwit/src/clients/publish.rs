//! `godwit pub`: one message, one repeated, or one a line of stdin.

use super::dial::{self, Dial, Welcome, flag};
use super::wire::{Arrival, Lines, Wire, lost};
use super::{EXIT_NO_CONNECTION, End, finish, wrong_flags};
use crate::flags::{self, Flag, Used};
use crate::print;
use mqtt::{Ack, Packet, PacketId, Properties, Publish, QoS, Reason};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const OWN_FLAGS: [Flag; 10] = [
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

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let all: Vec<Flag> = OWN_FLAGS.into_iter().chain(dial::FLAGS).collect();
    let job = flags::read(&all, arguments).and_then(|used| {
        if used.iter().any(|used| used.name == "--help") {
            return Ok(None);
        }
        Job::read(&used).map(Some).map_err(|why| vec![why])
    });
    match job {
        Ok(None) => print(&format!("Publishes messages.\n\n{}", flags::help(&all))),
        Ok(Some(job)) => {
            let quiet = job.dial.quiet;
            finish(job.publish(), quiet)
        }
        Err(wrongs) => wrong_flags(&wrongs),
    }
}

/// What the command line asks for.
#[derive(Debug)]
struct Job {
    dial: Dial,
    topic: String,
    payload: Payload,
    retain: bool,
    inflight_max: u16,
    repeat: u32,
    repeat_delay: Duration,
}

#[derive(Debug)]
enum Payload {
    File(String),
    Lines,
    Stdin,
    Text(String),
}

impl Job {
    fn read(used: &[Used]) -> Result<Job, String> {
        let mut dial = Dial::new("godwit-pub");
        let mut topic = String::new();
        let mut payload = None;
        let (mut retain, mut inflight_max) = (false, 20);
        let (mut repeat, mut repeat_delay) = (1, Duration::ZERO);
        for used in used {
            let given = match used.name {
                "--message" => Payload::Text(used.value().to_string()),
                "--file" => Payload::File(used.value().to_string()),
                "--stdin-line" => Payload::Lines,
                "--stdin-file" => Payload::Stdin,
                "--null-message" => Payload::Text(String::new()),
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
                    dial.take(used)?;
                    continue;
                }
            };
            if payload.replace(given).is_some() {
                return Err("use only one of -m, -f, -l, -s and -n".to_string());
            }
        }
        dial.settle(id_given(used))?;
        if mqtt::topic::check_topic(&topic).is_err() {
            return Err(format!("-t {topic:?}: use a topic without + and #"));
        }
        let payload = payload.ok_or("there is no payload: use -m, -f, -l, -s or -n")?;
        Ok(Job { dial, topic, payload, retain, inflight_max, repeat, repeat_delay })
    }

    fn publish(self) -> Result<(), End> {
        let payload = self.payload()?;
        let (wire, welcome) = self.dial.connect(None)?;
        let mut run = Run::new(&self, wire, welcome, payload)?;
        let outcome = run.publish_all();
        // A broker that closed on us first has said everything.
        if outcome.is_ok() {
            run.wire.goodbye(self.dial.properties.disconnect.as_properties())?;
        }
        outcome.and_then(|()| run.refused.map_or(Ok(()), Err))
    }

    /// `None` when the payloads are lines that are still to come.
    fn payload(&self) -> Result<Option<Vec<u8>>, End> {
        let failed = |name: &str, error: io::Error| {
            End::new(EXIT_NO_CONNECTION, format!("{name} cannot be read: {error}"))
        };
        match &self.payload {
            Payload::File(path) => {
                std::fs::read(path).map(Some).map_err(|error| failed(path, error))
            }
            Payload::Lines => Ok(None),
            Payload::Stdin => {
                let mut bytes = Vec::new();
                let read = io::stdin().lock().read_to_end(&mut bytes);
                read.map(|_| Some(bytes)).map_err(|error| failed("stdin", error))
            }
            Payload::Text(text) => Ok(Some(text.as_bytes().to_vec())),
        }
    }
}

/// Where the messages come from.
enum Source {
    Lines { lines: Lines, pending: VecDeque<Vec<u8>> },
    Repeat { payload: Vec<u8>, left: u32, next_at: Instant },
    Ended,
}

/// What the broker still owes a message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Acknowledged,
    Completed,
    Received,
}

struct Run<'a> {
    job: &'a Job,
    wire: Wire,
    source: Source,
    window: usize,
    flights: BTreeMap<PacketId, Owed>,
    packet_id: PacketId,
    /// The first message that the broker refused; the others go on.
    refused: Option<End>,
}

impl<'a> Run<'a> {
    fn new(
        job: &'a Job,
        wire: Wire,
        welcome: Welcome,
        payload: Option<Vec<u8>>,
    ) -> Result<Run<'a>, End> {
        let source = match payload {
            Some(payload) => Source::Repeat { payload, left: job.repeat, next_at: Instant::now() },
            None => {
                let lines = wire.lines().map_err(|error| lost(&error.to_string()))?;
                Source::Lines { lines, pending: VecDeque::new() }
            }
        };
        let window = usize::from(job.inflight_max.min(welcome.receive_maximum));
        let (flights, packet_id) = (BTreeMap::new(), PacketId::MIN);
        Ok(Run { job, wire, source, window, flights, packet_id, refused: None })
    }

    fn publish_all(&mut self) -> Result<(), End> {
        loop {
            let wake_at = self.fill()?;
            if matches!(self.source, Source::Ended) && self.flights.is_empty() {
                return Ok(());
            }
            match self.wire.wait(wake_at)? {
                Arrival::Frame(frame) => {
                    let packet = self.wire.decode(&frame)?;
                    self.acknowledged(&packet)?;
                }
                Arrival::Lines(more) if more.is_empty() => self.source = Source::Ended,
                Arrival::Lines(more) => {
                    if let Source::Lines { lines, pending } = &mut self.source {
                        lines.arrived();
                        pending.extend(more);
                    }
                }
                Arrival::Timeout => {}
            }
        }
    }

    /// Sends what may be sent now; returns when there will be more to send.
    fn fill(&mut self) -> Result<Option<Instant>, End> {
        while self.flights.len() < self.window {
            match &mut self.source {
                Source::Ended => return Ok(None),
                Source::Lines { lines, pending } => match pending.pop_front() {
                    Some(line) => self.send(&line)?,
                    None => {
                        lines.ask();
                        return Ok(None);
                    }
                },
                Source::Repeat { left: 0, .. } => self.source = Source::Ended,
                Source::Repeat { next_at, .. } if *next_at > Instant::now() => {
                    return Ok(Some(*next_at));
                }
                Source::Repeat { payload, left, next_at } => {
                    *left -= 1;
                    *next_at = Instant::now() + self.job.repeat_delay;
                    let payload = std::mem::take(payload);
                    self.send(&payload)?;
                    if let Source::Repeat { payload: again, .. } = &mut self.source {
                        *again = payload;
                    }
                }
            }
        }
        Ok(None)
    }

    fn send(&mut self, payload: &[u8]) -> Result<(), End> {
        let qos = self.job.dial.qos;
        let packet_id = (qos != QoS::AtMostOnce).then(|| self.next_packet_id());
        let owed = match qos {
            QoS::AtLeastOnce => Owed::Acknowledged,
            QoS::AtMostOnce | QoS::ExactlyOnce => Owed::Received,
        };
        if let Some(packet_id) = packet_id {
            self.flights.insert(packet_id, owed);
        }
        self.wire.queue(&Packet::Publish(Publish {
            dup: false,
            qos,
            retain: self.job.retain,
            topic: &self.job.topic,
            packet_id,
            properties: self.job.dial.properties.publish.as_properties(),
            payload,
        }));
        // With a pause between messages each should leave at its own time.
        if self.wire.queued_bytes() > WRITE_BYTES || !self.job.repeat_delay.is_zero() {
            self.wire.flush()?;
        }
        Ok(())
    }

    fn acknowledged(&mut self, packet: &Packet<'_>) -> Result<(), End> {
        let (ack, owed) = match packet {
            Packet::PubAck(ack) => (ack, Owed::Acknowledged),
            Packet::PubRec(ack) => (ack, Owed::Received),
            Packet::PubComp(ack) => (ack, Owed::Completed),
            Packet::Disconnect(disconnect) => {
                let why = format!("the broker ended the connection: {}", disconnect.reason);
                return Err(End::new(disconnect.reason.code(), why));
            }
            _ => return Ok(()),
        };
        if self.flights.get(&ack.packet_id) != Some(&owed) {
            return Ok(());
        }
        if ack.reason.is_error() {
            self.refuse(ack.reason);
        }
        if owed == Owed::Received && !ack.reason.is_error() {
            self.flights.insert(ack.packet_id, Owed::Completed);
            let (packet_id, properties) = (ack.packet_id, Properties::default());
            let release = Ack { packet_id, reason: Reason::Success, properties };
            self.wire.queue(&Packet::PubRel(release));
        } else {
            self.flights.remove(&ack.packet_id);
        }
        Ok(())
    }

    fn refuse(&mut self, reason: Reason) {
        let why = format!("the broker refused a message: {reason}");
        if !self.job.dial.quiet && self.refused.is_some() {
            let _ = writeln!(io::stderr(), "Error: {why}");
        }
        self.refused.get_or_insert(End::new(reason.code(), why));
    }

    /// The window is far smaller than the number of ids, so a free one is near.
    fn next_packet_id(&mut self) -> PacketId {
        loop {
            let id = self.packet_id;
            self.packet_id = id.checked_add(1).unwrap_or(PacketId::MIN);
            if !self.flights.contains_key(&id) {
                return id;
            }
        }
    }
}

pub(super) fn id_given(used: &[Used]) -> bool {
    used.iter().any(|used| matches!(used.name, "--id" | "--id-prefix"))
}

const WRITE_BYTES: usize = 64 * 1024;
