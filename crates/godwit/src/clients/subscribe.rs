//! `godwit sub`: subscribes, prints messages, and reconnects after a lost connection.

use super::client_options::{ClientOptions, client_command, flag, parse_client_line};
use super::connection::{BlockingConnection, ClientInput, protocol_error};
use super::format::{FIELDS, MessageFormat};
use super::publish::has_client_id_flag;
use super::{ClientError, EXIT_LOST, EXIT_TIMEOUT, report_flag_error, report_result};
use command_line::{Command, FlagRow, ParsedFlag};
use mqtt::client::{ClientSession, receipt};
use mqtt::{
    FilterListBuf, Packet, PacketType, Properties, Publish, QoS, ReasonCode, Subscribe,
    SubscribeOptions, SubscriptionListBuf, Unsubscribe,
};
use net::timestamp::UnixTimestamp;
use std::ffi::OsString;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

const OWN_FLAGS: [FlagRow; 15] = [
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

pub(crate) fn command() -> Command {
    let mut formats = "A FORMAT is text with \\n, \\r, \\t, \\0, \\\\ and".to_string();
    for (letter, about) in FIELDS {
        formats.push_str(&format!("\n  %{letter}  {about}"));
    }
    client_command("sub", "Subscribes and prints messages", &OWN_FLAGS).after_help(formats)
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let used = match parse_client_line(command(), &OWN_FLAGS, arguments) {
        Ok(used) => used,
        Err(code) => return code,
    };
    match SubscribeCommand::from_flags(&used) {
        Ok(job) => report_result(job.run(), job.client.quiet),
        Err(why) => report_flag_error(why),
    }
}

/// The parsed command line.
#[derive(Debug)]
struct SubscribeCommand {
    client: ClientOptions,
    filters: Vec<String>,
    filters_out: Vec<String>,
    unsubscribe: Vec<String>,
    options: SubscribeOptions,
    format: MessageFormat,
    count: Option<u64>,
    timeout: Option<Duration>,
    exit_after_subscribe: bool,
    no_stale: bool,
    retained_only: bool,
    remove_retained: bool,
}

impl SubscribeCommand {
    fn from_flags(used: &[ParsedFlag]) -> Result<SubscribeCommand, String> {
        let mut job = SubscribeCommand {
            client: ClientOptions::new("godwit-sub"),
            filters: Vec::new(),
            filters_out: Vec::new(),
            unsubscribe: Vec::new(),
            options: SubscribeOptions::default(),
            format: MessageFormat::plain(false, true),
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
                _ => job.apply_flag(used)?,
            }
        }
        job.client.check_flags(has_client_id_flag(used))?;
        job.options.qos = job.client.qos;
        job.format = match format {
            Some(format) => MessageFormat::parse(format, newline)?,
            None => MessageFormat::plain(verbose, newline),
        };
        if job.filters.is_empty() && job.unsubscribe.is_empty() {
            return Err("there is nothing to subscribe to: use -t FILTER".to_string());
        }
        if job.options != (SubscribeOptions { qos: job.options.qos, ..Default::default() })
            && !job.client.version.is_v5()
        {
            return Err("--retain-as-published, --retain-handling and --no-local need -V 5".into());
        }
        Ok(job)
    }

    fn apply_flag(&mut self, used: &ParsedFlag) -> Result<(), String> {
        match used.name {
            "--topic" => self.filters.push(parse_filter(used)?),
            "--filter-out" => self.filters_out.push(parse_filter(used)?),
            "--unsubscribe" => self.unsubscribe.push(parse_filter(used)?),
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
                self.client.apply_flag(used)?;
            }
        }
        Ok(())
    }

    fn run(&self) -> Result<(), ClientError> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut printer = MessagePrinter {
            command: self,
            out: BufWriter::new(io::stdout().lock()),
            left: self.count,
            session: ClientSession::default(),
        };
        let mut connected_before = false;
        loop {
            let end = printer.run_connection(deadline, &mut connected_before);
            printer.flush()?;
            match end {
                Err(end) if connected_before && end.code == EXIT_LOST => {
                    if !self.client.quiet {
                        let _ = writeln!(io::stderr(), "{end}; connecting again");
                    }
                    wait_before_reconnect(deadline)?;
                }
                end => return end,
            }
        }
    }

    fn timeout_error(&self) -> ClientError {
        ClientError::new(EXIT_TIMEOUT, "Timed out")
    }
}

/// Parses a topic filter, shared or not.
fn parse_filter(used: &ParsedFlag) -> Result<String, String> {
    let text = used.value();
    let right = match mqtt::SharedFilter::parse(text) {
        Ok(Some(_)) => true,
        Ok(None) => mqtt::topic::check_filter(text).is_ok(),
        Err(_) => false,
    };
    let why = || format!("{} {text:?} is not a topic filter, use one like a/+/c or a/#", used.name);
    right.then(|| text.to_string()).ok_or_else(why)
}

/// Waits before the next attempt to connect.
fn wait_before_reconnect(deadline: Option<Instant>) -> Result<(), ClientError> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let pause = left.map_or(RECONNECT_PAUSE, |left| left.min(RECONNECT_PAUSE));
    thread::sleep(pause);
    if left.is_some_and(|left| left <= RECONNECT_PAUSE) {
        return Err(ClientError::new(EXIT_TIMEOUT, "Timed out"));
    }
    Ok(())
}

struct MessagePrinter<'a> {
    command: &'a SubscribeCommand,
    out: BufWriter<StdoutLock<'static>>,
    /// Number of messages until the limit of `-C`.
    left: Option<u64>,
    /// Session state from the previous connection.
    session: ClientSession<()>,
}

impl MessagePrinter<'_> {
    fn run_connection(
        &mut self,
        deadline: Option<Instant>,
        before: &mut bool,
    ) -> Result<(), ClientError> {
        let (mut wire, session_present) = match self.command.client.connect(deadline) {
            Err(end) if *before && end.code == 1 => {
                return Err(ClientError { code: EXIT_LOST, ..end });
            }
            connected => connected?,
        };
        *before = true;
        if session_present {
            wire.session.resume(std::mem::take(&mut self.session));
        }
        self.send_requests(&mut wire);
        let end = self.receive(&mut wire, deadline);
        self.session = std::mem::take(&mut wire.session);
        let reached = matches!(&end, Ok(())) || matches!(&end, Err(end) if end.code != EXIT_LOST);
        if reached {
            let _ = wire.disconnect(self.command.client.properties.disconnect.as_properties());
        }
        end
    }

    fn send_requests(&self, wire: &mut BlockingConnection) {
        let mut subscriptions = SubscriptionListBuf::default();
        for filter in &self.command.filters {
            subscriptions.push(filter, self.command.options);
        }
        if !self.command.filters.is_empty()
            && let Some(packet_id) = wire.session.unacknowledged.add(PacketType::SubAck, ())
        {
            wire.queue(&Packet::Subscribe(Subscribe {
                packet_id,
                properties: self.command.client.properties.subscribe.as_properties(),
                filters: subscriptions.as_subscriptions(),
            }));
        }
        let mut filters = FilterListBuf::default();
        for filter in &self.command.unsubscribe {
            filters.push(filter);
        }
        if !self.command.unsubscribe.is_empty()
            && let Some(packet_id) = wire.session.unacknowledged.add(PacketType::UnsubAck, ())
        {
            wire.queue(&Packet::Unsubscribe(Unsubscribe {
                packet_id,
                properties: self.command.client.properties.unsubscribe.as_properties(),
                filters: filters.as_filters(),
            }));
        }
    }

    fn receive(
        &mut self,
        wire: &mut BlockingConnection,
        deadline: Option<Instant>,
    ) -> Result<(), ClientError> {
        loop {
            let arrival = match wire.try_receive() {
                Some(arrival) => arrival,
                // No further message is buffered: flush stdout before waiting, and send
                // acknowledgements.
                None => {
                    self.flush()?;
                    wire.wait(deadline)?
                }
            };
            let frame = match arrival {
                ClientInput::Frame(frame) => frame,
                ClientInput::Lines(_) => continue,
                ClientInput::Timeout => return Err(self.command.timeout_error()),
            };
            let done = match wire.decode(&frame)? {
                Packet::Publish(message) => self.print_message(wire, &message)?,
                Packet::PubRel(release) => {
                    let answer = wire.session.on_pubrel(release.packet_id);
                    wire.queue(&answer);
                    false
                }
                Packet::SubAck(ack) => {
                    let sent = &mut wire.session.unacknowledged;
                    sent.answer_request(PacketType::SubAck, ack.packet_id);
                    self.on_suback(ack.codes)?
                }
                Packet::UnsubAck(ack) => {
                    let sent = &mut wire.session.unacknowledged;
                    sent.answer_request(PacketType::UnsubAck, ack.packet_id);
                    self.command.filters.is_empty()
                }
                Packet::Disconnect(disconnect) => return Err(disconnect_error(disconnect.reason)),
                _ => false,
            };
            if done || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                wire.flush()?;
                return if done { Ok(()) } else { Err(self.command.timeout_error()) };
            }
        }
    }

    /// Prints and acknowledges a message. Returns `true` after the last message.
    fn print_message(
        &mut self,
        wire: &mut BlockingConnection,
        message: &Publish<'_>,
    ) -> Result<bool, ClientError> {
        let ended = self.command.retained_only && !message.retain;
        let repeated = !wire.session.on_publish(message.qos, message.packet_id);
        let topic = wire.session.topic(message).map_err(protocol_error)?;
        let stale = self.command.no_stale && message.retain;
        let unwanted = |filter: &String| mqtt::filter_matches(filter, topic);
        let unwanted = self.command.filters_out.iter().any(unwanted);
        if !ended && !repeated && !stale && !unwanted {
            self.command
                .format
                .write(&Publish { topic, ..*message }, UnixTimestamp::now(), &mut self.out)
                .map_err(stdout_error)?;
            self.left = self.left.map(|left| left - 1);
        }
        let cleared = self.command.remove_retained && message.retain && !unwanted;
        let cleared = cleared.then(|| topic.to_string());
        if let Some(receipt) = receipt(message.qos, message.packet_id) {
            wire.queue(&receipt);
        }
        if let Some(topic) = cleared {
            wire.queue(&clear_retained_packet(&topic));
        }
        if wire.queued_bytes() > WRITE_BYTES {
            wire.flush()?;
        }
        Ok(ended || self.left == Some(0))
    }

    /// Handles SUBACK. A refused filter does not affect the other filters.
    fn on_suback(&mut self, codes: &[u8]) -> Result<bool, ClientError> {
        let mut refused = None;
        for (filter, code) in self.command.filters.iter().zip(codes) {
            let Some(reason) = ReasonCode::from_byte(*code).filter(|reason| reason.is_error())
            else {
                continue;
            };
            let why = format!("{filter:?} was refused: {reason}");
            if !self.command.client.quiet {
                let _ = writeln!(io::stderr(), "Warning: {why}");
            }
            refused = Some(*code);
        }
        let all = codes.iter().all(|code| *code >= 0x80);
        match refused {
            Some(code) if all => Err(ClientError::new(code, "all subscriptions were refused")),
            _ => Ok(self.command.exit_after_subscribe),
        }
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.out.flush().map_err(stdout_error)
    }
}

/// Returns an empty retained message, which clears the topic's retained message.
fn clear_retained_packet(topic: &str) -> Packet<'_> {
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

/// Returns the error for a received DISCONNECT. `EXIT_LOST`, which permits a reconnect, is for some
/// reasons only.
fn disconnect_error(reason: ReasonCode) -> ClientError {
    let why = format!("the broker ended the connection: {reason}");
    match reason {
        ReasonCode::ServerShuttingDown | ReasonCode::ServerBusy | ReasonCode::KeepAliveTimeout => {
            ClientError::new(EXIT_LOST, why)
        }
        _ => ClientError::new(reason.code(), why),
    }
}

/// Returns the error of a closed stdout, with which `sub | head` ends.
fn stdout_error(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ClientError::new(0, ""),
        _ => ClientError::new(1, format!("stdout cannot be written: {error}")),
    }
}

const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const WRITE_BYTES: usize = 64 * 1024;
