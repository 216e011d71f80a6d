//! `godwit sub`: subscribes, prints what arrives, and comes back when the connection is lost.

use super::dial::{self, Dial, flag};
use super::format::{FIELDS, Format};
use super::publish::id_given;
use super::wire::{Arrival, Wire};
use super::{EXIT_LOST, EXIT_TIMEOUT, End, finish, wrong_flags};
use crate::flags::{self, Flag, Used};
use crate::print;
use crate::timestamp::Timestamp;
use mqtt::{
    Ack, FiltersBuf, Packet, PacketId, Properties, Publish, QoS, Reason, Subscribe,
    SubscribeOptions, SubscriptionsBuf, Unsubscribe,
};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

const OWN_FLAGS: [Flag; 15] = [
    flag(&["-t", "--topic"], &["FILTER"], "subscribe to this; may be repeated"),
    flag(&["-T", "--filter-out"], &["FILTER"], "print nothing that matches; may be repeated"),
    flag(&["-U", "--unsubscribe"], &["FILTER"], "unsubscribe from this; may be repeated"),
    flag(&["-v", "--verbose"], &[], "print the topic before the payload"),
    flag(&["-F", "--format"], &["FORMAT"], "how to print a message, see below"),
    flag(&["-N", "--no-newline"], &[], "no line end after a message"),
    flag(&["-C", "--count"], &["N"], "stop after so many messages"),
    flag(&["-W", "--timeout"], &["SECONDS"], "stop after this time, with exit code 27"),
    flag(&["-E", "--exit-after-subscribe"], &[], "stop once the broker has subscribed us"),
    flag(&["-R", "--no-stale"], &[], "print no retained messages"),
    flag(&["--retained-only"], &[], "print only those, and stop at the first other one"),
    flag(&["--remove-retained"], &[], "clear every retained message that arrives"),
    flag(&["--retain-as-published"], &[], "5.0: keep the retain flag of new messages"),
    flag(&["--retain-handling"], &["N"], "5.0: 0 send retained, 1 only if new, 2 never"),
    flag(&["--no-local"], &[], "5.0: not what this client id publishes"),
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
        Ok(None) => print(&help(&all)),
        Ok(Some(job)) => finish(job.run(), job.dial.quiet),
        Err(wrongs) => wrong_flags(&wrongs),
    }
}

fn help(all: &[Flag]) -> String {
    let mut help = format!("Subscribes and prints messages.\n\n{}\n", flags::help(all));
    help.push_str("A FORMAT is text with \\n, \\r, \\t, \\0, \\\\ and\n");
    for (letter, about) in FIELDS {
        help.push_str(&format!("  %{letter}  {about}\n"));
    }
    help
}

/// What the command line asks for.
#[derive(Debug)]
struct Job {
    dial: Dial,
    filters: Vec<String>,
    filters_out: Vec<String>,
    unsubscribe: Vec<String>,
    options: SubscribeOptions,
    format: Format,
    count: Option<u64>,
    timeout: Option<Duration>,
    exit_after_subscribe: bool,
    no_stale: bool,
    retained_only: bool,
    remove_retained: bool,
}

impl Job {
    fn read(used: &[Used]) -> Result<Job, String> {
        let mut job = Job {
            dial: Dial::new("godwit-sub"),
            filters: Vec::new(),
            filters_out: Vec::new(),
            unsubscribe: Vec::new(),
            options: SubscribeOptions::default(),
            format: Format::plain(false, true),
            count: None,
            timeout: None,
            exit_after_subscribe: false,
            no_stale: false,
            retained_only: false,
            remove_retained: false,
        };
        let (mut format, mut verbose, mut newline) = (None, false, true);
        for used in used {
            match used.name {
                "--format" => format = Some(used.value()),
                "--verbose" => verbose = true,
                "--no-newline" => newline = false,
                _ => job.take(used)?,
            }
        }
        job.dial.settle(id_given(used))?;
        job.options.qos = job.dial.qos;
        job.format = match format {
            Some(format) => Format::parse(format, newline)?,
            None => Format::plain(verbose, newline),
        };
        if job.filters.is_empty() && job.unsubscribe.is_empty() {
            return Err("there is nothing to subscribe to: use -t FILTER".to_string());
        }
        if job.options != (SubscribeOptions { qos: job.options.qos, ..Default::default() })
            && !job.dial.version.is_v5()
        {
            return Err("--retain-as-published, --retain-handling and --no-local need -V 5".into());
        }
        Ok(job)
    }

    fn take(&mut self, used: &Used) -> Result<(), String> {
        match used.name {
            "--topic" => self.filters.push(filter(used)?),
            "--filter-out" => self.filters_out.push(filter(used)?),
            "--unsubscribe" => self.unsubscribe.push(filter(used)?),
            "--count" => self.count = Some(used.number(1, u64::MAX)?),
            "--timeout" => {
                let seconds = used.number(0.001, 31_536_000.0)?;
                self.timeout = Some(Duration::from_secs_f64(seconds));
            }
            "--exit-after-subscribe" => self.exit_after_subscribe = true,
            "--no-stale" => self.no_stale = true,
            "--retained-only" => self.retained_only = true,
            "--remove-retained" => self.remove_retained = true,
            "--retain-as-published" => self.options.retain_as_published = true,
            "--retain-handling" => self.options.retain_handling = used.number(0, 2)?,
            "--no-local" => self.options.no_local = true,
            _ => {
                self.dial.take(used)?;
            }
        }
        Ok(())
    }

    fn run(&self) -> Result<(), End> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut printer = Printer {
            job: self,
            out: BufWriter::new(io::stdout().lock()),
            left: self.count,
            received: HashSet::new(),
        };
        let mut connected_before = false;
        loop {
            let end = printer.connection(deadline, &mut connected_before);
            printer.flush()?;
            match end {
                Err(end) if connected_before && end.code == EXIT_LOST => {
                    if !self.dial.quiet {
                        let _ = writeln!(io::stderr(), "{end}; connecting again");
                    }
                    pause(deadline)?;
                }
                end => return end,
            }
        }
    }

    fn timed_out(&self) -> End {
        End::new(EXIT_TIMEOUT, "Timed out")
    }
}

/// A topic filter, shared or not.
fn filter(used: &Used) -> Result<String, String> {
    let text = used.value();
    let right = match mqtt::Share::parse(text) {
        Ok(Some(_)) => true,
        Ok(None) => mqtt::topic::check_filter(text).is_ok(),
        Err(_) => false,
    };
    let why = || format!("{} {text:?} is no topic filter, use one like a/+/c or a/#", used.name);
    right.then(|| text.to_string()).ok_or_else(why)
}

/// Before the next attempt.
fn pause(deadline: Option<Instant>) -> Result<(), End> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let pause = left.map_or(RECONNECT_PAUSE, |left| left.min(RECONNECT_PAUSE));
    thread::sleep(pause);
    if left.is_some_and(|left| left <= RECONNECT_PAUSE) {
        return Err(End::new(EXIT_TIMEOUT, "Timed out"));
    }
    Ok(())
}

struct Printer<'a> {
    job: &'a Job,
    out: BufWriter<StdoutLock<'static>>,
    /// Of `-C`.
    left: Option<u64>,
    /// QoS 2 messages that were printed and not released yet.
    received: HashSet<PacketId>,
}

impl Printer<'_> {
    fn connection(&mut self, deadline: Option<Instant>, before: &mut bool) -> Result<(), End> {
        let (mut wire, welcome) = match self.job.dial.connect(deadline) {
            Err(end) if *before && end.code == 1 => return Err(End { code: EXIT_LOST, ..end }),
            connected => connected?,
        };
        *before = true;
        if !welcome.session_present {
            self.received.clear();
        }
        self.ask(&mut wire);
        let end = self.receive(&mut wire, deadline);
        let reached = matches!(&end, Ok(())) || matches!(&end, Err(end) if end.code != EXIT_LOST);
        if reached {
            let _ = wire.goodbye(self.job.dial.properties.disconnect.as_properties());
        }
        end
    }

    fn ask(&self, wire: &mut Wire) {
        let mut subscriptions = SubscriptionsBuf::default();
        for filter in &self.job.filters {
            subscriptions.push(filter, self.job.options);
        }
        if !self.job.filters.is_empty() {
            wire.queue(&Packet::Subscribe(Subscribe {
                packet_id: SUBSCRIBE_ID,
                properties: self.job.dial.properties.subscribe.as_properties(),
                filters: subscriptions.as_subscriptions(),
            }));
        }
        let mut filters = FiltersBuf::default();
        for filter in &self.job.unsubscribe {
            filters.push(filter);
        }
        if !self.job.unsubscribe.is_empty() {
            wire.queue(&Packet::Unsubscribe(Unsubscribe {
                packet_id: UNSUBSCRIBE_ID,
                properties: self.job.dial.properties.unsubscribe.as_properties(),
                filters: filters.as_filters(),
            }));
        }
    }

    fn receive(&mut self, wire: &mut Wire, deadline: Option<Instant>) -> Result<(), End> {
        loop {
            let arrival = match wire.ready() {
                Some(arrival) => arrival,
                // Nothing more to print at once: now it should be seen, and acknowledged.
                None => {
                    self.flush()?;
                    wire.wait(deadline)?
                }
            };
            let frame = match arrival {
                Arrival::Frame(frame) => frame,
                Arrival::Lines(_) => continue,
                Arrival::Timeout => return Err(self.job.timed_out()),
            };
            let done = match wire.decode(&frame)? {
                Packet::Publish(message) => self.message(wire, &message)?,
                Packet::PubRel(release) => {
                    self.received.remove(&release.packet_id);
                    wire.queue(&Packet::PubComp(success(release.packet_id)));
                    false
                }
                Packet::SubAck(ack) => self.subscribed(ack.codes)?,
                Packet::UnsubAck(_) => self.job.filters.is_empty(),
                Packet::Disconnect(disconnect) => return Err(told(disconnect.reason)),
                _ => false,
            };
            if done || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                wire.flush()?;
                return if done { Ok(()) } else { Err(self.job.timed_out()) };
            }
        }
    }

    /// Prints and acknowledges; `true` when it was the last one.
    fn message(&mut self, wire: &mut Wire, message: &Publish<'_>) -> Result<bool, End> {
        let ended = self.job.retained_only && !message.retain;
        let repeated = message.qos == QoS::ExactlyOnce
            && message.packet_id.is_some_and(|id| !self.received.insert(id));
        let stale = self.job.no_stale && message.retain;
        let unwanted = |filter: &String| mqtt::filter_matches(filter, message.topic);
        let unwanted = self.job.filters_out.iter().any(unwanted);
        if !ended && !repeated && !stale && !unwanted {
            self.job.format.write(message, Timestamp::now(), &mut self.out).map_err(closed)?;
            self.left = self.left.map(|left| left - 1);
        }
        match (message.qos, message.packet_id) {
            (QoS::AtLeastOnce, Some(id)) => wire.queue(&Packet::PubAck(success(id))),
            (QoS::ExactlyOnce, Some(id)) => wire.queue(&Packet::PubRec(success(id))),
            _ => {}
        }
        if self.job.remove_retained && message.retain && !unwanted {
            wire.queue(&clear(message.topic));
        }
        if wire.queued_bytes() > WRITE_BYTES {
            wire.flush()?;
        }
        Ok(ended || self.left == Some(0))
    }

    /// A filter that is refused does not keep the others from working.
    fn subscribed(&mut self, codes: &[u8]) -> Result<bool, End> {
        let mut refused = None;
        for (filter, code) in self.job.filters.iter().zip(codes) {
            let Some(reason) = Reason::from_byte(*code).filter(|reason| reason.is_error()) else {
                continue;
            };
            let why = format!("{filter:?} was refused: {reason}");
            if !self.job.dial.quiet {
                let _ = writeln!(io::stderr(), "Warning: {why}");
            }
            refused = Some(*code);
        }
        let all = codes.iter().all(|code| *code >= 0x80);
        match refused {
            Some(code) if all => Err(End::new(code, "all subscriptions were refused")),
            _ => Ok(self.job.exit_after_subscribe),
        }
    }

    fn flush(&mut self) -> Result<(), End> {
        self.out.flush().map_err(closed)
    }
}

/// The empty retained message that clears the one that is there.
fn clear(topic: &str) -> Packet<'_> {
    Packet::Publish(Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: true,
        topic,
        packet_id: None,
        properties: Properties::default(),
        payload: b"",
    })
}

fn success(packet_id: PacketId) -> Ack<'static> {
    Ack { packet_id, reason: Reason::Success, properties: Properties::default() }
}

/// After some reasons coming back is right, after others it would be a nuisance.
fn told(reason: Reason) -> End {
    let why = format!("the broker ended the connection: {reason}");
    match reason {
        Reason::ServerShuttingDown | Reason::ServerBusy | Reason::KeepAliveTimeout => {
            End::new(EXIT_LOST, why)
        }
        _ => End::new(reason.code(), why),
    }
}

/// Whoever read our output has gone, which is how `sub | head` ends.
fn closed(error: io::Error) -> End {
    match error.kind() {
        io::ErrorKind::BrokenPipe => End::new(0, ""),
        _ => End::new(1, format!("stdout cannot be written: {error}")),
    }
}

const SUBSCRIBE_ID: PacketId = PacketId::MIN;
const UNSUBSCRIBE_ID: PacketId = PacketId::MAX;
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const WRITE_BYTES: usize = 64 * 1024;
