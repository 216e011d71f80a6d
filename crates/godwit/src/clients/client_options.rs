//! Options common to `pub` and `sub`: flags for the broker's address, credentials and will, and the
//! CONNECT packet made from them.

use super::connection::BlockingConnection;
use super::properties::PacketProperties;
use super::stream::ClientStream;
use super::{ClientError, EXIT_NO_CONNECTION};
use crate::report_line_error;
use command_line::{Command, FlagRow, ParsedFlag};
use mqtt::{Connect, Packet, PropertiesBuf, Property, ProtocolVersion, QoS, ReasonCode, Will};
use net::tunnel::{TransportTunnel, TunnelTransport};
use std::ffi::OsString;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use transport::tls_errors::describe_io_error;
use transport::{
    QuicClientEndpoint, QuicClientOptions, TCP, TlsClientOptions, TransportLayers, UrlScheme,
};

const FLAGS: [FlagRow; 22] = [
    flag(
        &["-h", "--host"],
        &["HOST"],
        "broker, default localhost; or SCHEME://HOST with tls, ws, wss or quic, unix:///PATH",
    ),
    flag(&["-p", "--port"], &["PORT"], "default 1883; tls 8883, ws 8083, wss 8084, quic 14567"),
    flag(&["--cafile"], &["FILE"], "TLS, QUIC: CAs to trust, default those of this host"),
    flag(&["--cert"], &["FILE"], "TLS: our own certificate; needs --key"),
    flag(&["--key"], &["FILE"], "TLS: its private key"),
    flag(&["--insecure"], &[], "TLS: trust anyone"),
    flag(&["-V", "--protocol-version"], &["VERSION"], "31, 311 (default) or 5"),
    flag(&["-i", "--id"], &["ID"], "client id; default a random one"),
    flag(&["-I", "--id-prefix"], &["PREFIX"], "client id is this and the process id"),
    flag(&["-u", "--username"], &["NAME"], "user name"),
    flag(&["-P", "--pw"], &["PASSWORD"], "password"),
    flag(&["-k", "--keepalive"], &["SECONDS"], "keep-alive, default 60"),
    flag(&["-c", "--disable-clean-session"], &[], "keep the session; needs -i"),
    flag(&["-x", "--session-expiry-interval"], &["SECONDS"], "5.0; -1 is never"),
    flag(&["-q", "--qos"], &["QOS"], "0 (default), 1 or 2"),
    flag(&["-D", "--property"], &["PACKET", "NAME", "VALUE"], "5.0 property; may be repeated"),
    flag(&["--will-topic"], &["TOPIC"], "the broker publishes here if we get lost"),
    flag(&["--will-payload"], &["TEXT"], "default empty"),
    flag(&["--will-qos"], &["QOS"], "default 0"),
    flag(&["--will-retain"], &[], "the will is retained"),
    flag(&["-d", "--debug"], &[], "name every packet on stderr"),
    flag(&["--quiet"], &[], "print no errors"),
];

pub(super) const fn flag(
    names: &'static [&'static str],
    values: &'static [&'static str],
    doc: &'static str,
) -> FlagRow {
    FlagRow::new(names, values, doc)
}

/// User property with a name and a value; other properties have only a value. A `-D` of a user
/// property is parsed as this flag.
const USER_PROPERTY: FlagRow =
    flag(&["--user-property"], &["PACKET", "PROPERTY", "NAME", "VALUE"], "");

/// Returns a client's subcommand, with its own flags and the common flags.
pub(super) fn client_command(name: &'static str, about: &'static str, own: &[FlagRow]) -> Command {
    command_line::command(name, about, own.iter().chain(&FLAGS))
        .arg(USER_PROPERTY.argument().hide(true))
}

/// Parses the command line of a client; the error is the exit code.
pub(super) fn parse_client_line(
    command: Command,
    own: &[FlagRow],
    arguments: &[OsString],
) -> Result<Vec<ParsedFlag>, ExitCode> {
    let line = mark_user_properties(arguments);
    let matches = command_line::parse(crate::PROGRAM, command, &line)
        .map_err(|error| report_line_error(&error, EXIT_NO_CONNECTION))?;
    let names = own.iter().chain(&FLAGS).chain([&USER_PROPERTY]).map(FlagRow::name);
    Ok(command_line::flags_in_order(&matches, names))
}

fn mark_user_properties(arguments: &[OsString]) -> Vec<OsString> {
    let mut line = Vec::new();
    for argument in arguments {
        match argument.to_str().and_then(|text| text.strip_prefix("--property=")) {
            Some(packet) => line.extend(["--property".into(), packet.into()]),
            None => line.push(argument.clone()),
        }
    }
    for at in 2..line.len() {
        if line[at] == "user-property" && (line[at - 2] == "-D" || line[at - 2] == "--property") {
            line[at - 2] = USER_PROPERTY.name().into();
        }
    }
    line
}

#[derive(Debug)]
pub(super) struct ClientOptions {
    host: String,
    port: Option<u16>,
    trust: TlsClientOptions,
    pub(super) version: ProtocolVersion,
    /// Whether `-V` was given.
    version_given: bool,
    pub(super) client_id: String,
    user_name: Option<String>,
    password: Option<String>,
    keep_alive_s: u16,
    pub(super) clean_start: bool,
    session_expiry_s: Option<u32>,
    pub(super) qos: QoS,
    pub(super) properties: PacketProperties,
    has_properties: bool,
    will_topic: Option<String>,
    will_payload: String,
    will_qos: QoS,
    will_retain: bool,
    /// The first flag that requires `--will-topic`.
    will_flag: Option<&'static str>,
    pub(super) debug: bool,
    pub(super) quiet: bool,
}

/// Address of a broker, from `-h` and `-p`.
#[derive(Debug, PartialEq, Eq)]
enum BrokerAddress<'a> {
    Network { scheme: UrlScheme, host: &'a str, port: u16 },
    Unix(&'a str),
}

impl ClientOptions {
    /// Returns the defaults. `name` is the prefix of a generated client id.
    pub(super) fn new(name: &str) -> ClientOptions {
        ClientOptions {
            host: "localhost".to_string(),
            port: None,
            trust: TlsClientOptions::default(),
            version: ProtocolVersion::V311,
            version_given: false,
            client_id: format!("{name}-{:08x}", random_number()),
            user_name: None,
            password: None,
            keep_alive_s: 60,
            clean_start: true,
            session_expiry_s: None,
            qos: QoS::AtMostOnce,
            properties: PacketProperties::default(),
            has_properties: false,
            will_topic: None,
            will_payload: String::new(),
            will_qos: QoS::AtMostOnce,
            will_retain: false,
            will_flag: None,
            debug: false,
            quiet: false,
        }
    }

    /// Applies a flag of [`FLAGS`]; `false` for any other flag.
    pub(super) fn apply_flag(&mut self, used: &ParsedFlag) -> Result<bool, String> {
        match used.name {
            "--host" => self.host = used.value().to_string(),
            "--port" => self.port = Some(used.number(1, u16::MAX)?),
            "--cafile" => self.trust.authorities = Some(used.value().to_string()),
            "--cert" => self.trust.certificate = Some(used.value().to_string()),
            "--key" => self.trust.key = Some(used.value().to_string()),
            "--insecure" => self.trust.insecure = true,
            "--protocol-version" => {
                self.version = parse_version(used.value())?;
                self.version_given = true;
            }
            "--id" => self.client_id = used.value().to_string(),
            "--id-prefix" => self.client_id = format!("{}{}", used.value(), std::process::id()),
            "--username" => self.user_name = Some(used.value().to_string()),
            "--pw" => self.password = Some(used.value().to_string()),
            "--keepalive" => self.keep_alive_s = used.number(0, u16::MAX)?,
            "--disable-clean-session" => self.clean_start = false,
            "--session-expiry-interval" => self.session_expiry_s = Some(parse_expiry(used)?),
            "--qos" => self.qos = parse_qos(used)?,
            "--property" | "--user-property" => {
                self.properties.add(&used.values)?;
                self.has_properties = true;
            }
            "--debug" => self.debug = true,
            "--quiet" => self.quiet = true,
            _ => return self.apply_will_flag(used),
        }
        Ok(true)
    }

    fn apply_will_flag(&mut self, used: &ParsedFlag) -> Result<bool, String> {
        match used.name {
            "--will-topic" => {
                let topic = used.value();
                mqtt::topic::check_topic(topic)
                    .map_err(|_| format!("--will-topic {topic:?}: use a topic without + and #"))?;
                self.will_topic = Some(topic.to_string());
                return Ok(true);
            }
            "--will-payload" => self.will_payload = used.value().to_string(),
            "--will-qos" => self.will_qos = parse_qos(used)?,
            "--will-retain" => self.will_retain = true,
            _ => return Ok(false),
        }
        self.will_flag.get_or_insert(used.name);
        Ok(true)
    }

    /// Checks flags that depend on each other, after all flags are read.
    pub(super) fn check_flags(&mut self, id_given: bool) -> Result<(), String> {
        if let Some((name, _)) = self.host.split_once("://")
            && name != "unix"
            && UrlScheme::from_name(name).is_none()
        {
            let known = UrlScheme::names();
            return Err(format!("-h {}: {name} is not spoken here, but {known}, unix", self.host));
        }
        if let (Some(flag), None) = (self.will_flag, &self.will_topic) {
            return Err(format!("{flag} needs --will-topic"));
        }
        if !self.clean_start && !id_given {
            return Err("-c needs a client id (-i): a session is found by it".to_string());
        }
        if self.password.is_some() && self.user_name.is_none() && !self.version.is_v5() {
            return Err("-P needs a user name (-u) before 5.0".to_string());
        }
        // Properties exist only in MQTT 5.0, so these flags select it.
        if self.has_properties || self.session_expiry_s.is_some() {
            if self.version_given && !self.version.is_v5() {
                return Err("-D and -x need -V 5".to_string());
            }
            self.version = ProtocolVersion::V5;
        }
        // As in MQTT 3.1.1, a session kept by -c never expires, unless -x sets an expiry.
        if self.version.is_v5() && !self.clean_start {
            self.session_expiry_s.get_or_insert(u32::MAX);
        }
        Ok(())
    }

    /// Connects. Returns the connection, and whether the broker has the session of an earlier one.
    pub(super) fn connect(
        &self,
        deadline: Option<Instant>,
    ) -> Result<(BlockingConnection, bool), ClientError> {
        let mut wire =
            BlockingConnection::new(self.open_stream()?, self.version, &self.client_id, self.debug)
                .map_err(|error| self.connection_error(&error.to_string()))?;
        let properties = self.connect_properties();
        let connect = Connect {
            is_bridge: false,
            version: self.version,
            clean_start: self.clean_start,
            keep_alive_s: self.keep_alive_s,
            client_id: &self.client_id,
            will: self.will_topic.as_deref().map(|topic| Will {
                qos: self.will_qos,
                retain: self.will_retain,
                topic,
                payload: self.will_payload.as_bytes(),
                properties: self.properties.will.as_properties(),
            }),
            user_name: self.user_name.as_deref(),
            password: self.password.as_deref().map(str::as_bytes),
            properties: properties.as_properties(),
        };
        wire.send(&Packet::Connect(connect))?;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + CONNECT_TIMEOUT);
        let session_present = self.read_connack(&mut wire, deadline)?;
        wire.keep_alive(wire.session.keep_alive_s());
        Ok((wire, session_present))
    }

    fn read_connack(
        &self,
        wire: &mut BlockingConnection,
        deadline: Instant,
    ) -> Result<bool, ClientError> {
        let silent =
            || ClientError::new(EXIT_NO_CONNECTION, format!("{self}: no answer to CONNECT"));
        let frame = wire.receive(deadline)?.ok_or_else(silent)?;
        let Packet::ConnAck(ack) = wire.decode(&frame)? else {
            return Err(self.connection_error("the first answer was no CONNACK"));
        };
        if ack.reason != ReasonCode::Success {
            let v3 = (!self.version.is_v5()).then(|| ack.reason.connack_v3()).flatten();
            let code = v3.unwrap_or(ack.reason.code());
            return Err(ClientError::new(
                code,
                format!("{self}: connection refused: {}", ack.reason),
            ));
        }
        Ok(ack.session_present)
    }

    fn connect_properties(&self) -> PropertiesBuf {
        let mut properties = self.properties.connect.clone();
        let given = |property| matches!(property, Property::SessionExpiryInterval(_));
        if let Some(seconds) = self.session_expiry_s
            && !self.properties.connect.as_properties().iter().any(given)
        {
            properties.push(Property::SessionExpiryInterval(seconds));
        }
        properties
    }

    /// Returns the address of the broker. Flags that only TLS has select TLS.
    fn broker_address(&self) -> BrokerAddress<'_> {
        if let Some(path) = self.host.strip_prefix("unix://") {
            return BrokerAddress::Unix(path);
        }
        let (name, rest) = self.host.split_once("://").unwrap_or((TCP.name, &self.host));
        let scheme = UrlScheme::from_name(name).unwrap_or(TCP);
        let scheme = if self.trust.is_given() { scheme.with_tls() } else { scheme };
        // The usual path of MQTT over WebSocket.
        let rest = rest.trim_end_matches('/');
        let rest = rest.strip_suffix("/mqtt").filter(|_| scheme.is_websocket).unwrap_or(rest);
        // A bare IPv6 address contains colons.
        let after_bracket = rest.rfind(']').map_or(0, |at| at + 1);
        let named = rest[after_bracket..].split_once(':').filter(|(_, port)| !port.contains(':'));
        let port = named.and_then(|(_, port)| port.parse().ok());
        let host = match port {
            Some(_) => &rest[..rest.len() - named.map_or(0, |(_, port)| port.len() + 1)],
            None => rest,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = self.port.or(port).unwrap_or(scheme.port);
        BrokerAddress::Network { scheme, host, port }
    }

    fn open_stream(&self) -> Result<ClientStream, ClientError> {
        match self.broker_address() {
            BrokerAddress::Unix(path) => {
                let stream = UnixStream::connect(path).map(ClientStream::Unix);
                stream.map_err(|error| self.connection_error(&error.to_string()))
            }
            BrokerAddress::Network { scheme, host, port } => {
                let tls = scheme.is_tls.then(|| self.trust.client_config()).transpose();
                let tls = tls.map_err(|why| self.connection_error(&why))?;
                match tls {
                    None if !scheme.is_websocket => self
                        .connect_first_address(host, port, ClientOptions::connect_tcp)
                        .map(ClientStream::Tcp),
                    Some(tls) if scheme.is_quic => {
                        let manner = QuicClientOptions::new(&tls)
                            .map_err(|why| self.connection_error(&why))?;
                        let tunnel = self.connect_first_address(host, port, |to| {
                            ClientOptions::open_quic(to, host, &manner)
                        });
                        tunnel.map(ClientStream::Tunnel)
                    }
                    tls => {
                        let layers = TransportLayers { tls, websocket: scheme.websocket_path() };
                        let stream =
                            self.connect_first_address(host, port, ClientOptions::connect_tcp)?;
                        let tunnel = ClientOptions::open_transport(stream, host, &layers);
                        let name = if scheme.is_tls { "TLS" } else { "WebSocket" };
                        let says = |error| {
                            self.connection_error(&format!("{name}: {}", describe_io_error(&error)))
                        };
                        tunnel.map(ClientStream::Tunnel).map_err(says)
                    }
                }
            }
        }
    }

    /// Connects to the first address that answers.
    fn connect_first_address<T>(
        &self,
        host: &str,
        port: u16,
        connect: impl Fn(SocketAddr) -> io::Result<T>,
    ) -> Result<T, ClientError> {
        let addresses = (host, port).to_socket_addrs();
        let addresses = addresses.map_err(|error| self.connection_error(&error.to_string()))?;
        let mut why = "the host has no address".to_string();
        for address in addresses {
            match connect(address) {
                Ok(there) => return Ok(there),
                Err(error) => why = error.to_string(),
            }
        }
        Err(self.connection_error(&why))
    }

    fn connect_tcp(to: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn open_transport(
        stream: TcpStream,
        host: &str,
        layers: &TransportLayers,
    ) -> io::Result<TransportTunnel> {
        stream.set_nonblocking(true)?;
        let wire = transport::TcpTransport::from_stream(stream, host, layers)?;
        TransportTunnel::open(TunnelTransport::Stream(wire), Instant::now() + CONNECT_TIMEOUT)
    }

    fn open_quic(
        to: SocketAddr,
        host: &str,
        manner: &QuicClientOptions,
    ) -> io::Result<TransportTunnel> {
        let mut outlet = QuicClientEndpoint::new(to, None, PINGS_EVERY)?;
        let connection = outlet.connect(manner, host, 0)?;
        TransportTunnel::open(
            TunnelTransport::Quic(Box::new(outlet), connection),
            Instant::now() + CONNECT_TIMEOUT,
        )
    }

    fn connection_error(&self, why: &str) -> ClientError {
        ClientError::new(EXIT_NO_CONNECTION, format!("{self}: {why}"))
    }
}

impl std::fmt::Display for ClientOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.broker_address() {
            BrokerAddress::Unix(path) => f.write_str(path),
            BrokerAddress::Network { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

fn parse_version(text: &str) -> Result<ProtocolVersion, String> {
    match text {
        "31" | "3.1" | "mqttv31" => Ok(ProtocolVersion::V31),
        "311" | "3.1.1" | "mqttv311" => Ok(ProtocolVersion::V311),
        "5" | "5.0" | "mqttv5" => Ok(ProtocolVersion::V5),
        _ => Err(format!("-V {text}: use 31, 311 or 5")),
    }
}

fn parse_expiry(used: &ParsedFlag) -> Result<u32, String> {
    match used.value() {
        "-1" | "never" => Ok(u32::MAX),
        _ => used.number(0, u32::MAX),
    }
}

pub(super) fn parse_qos(used: &ParsedFlag) -> Result<QoS, String> {
    QoS::from_bits(used.number(0, 2)?).ok_or_else(|| "use 0, 1 or 2".to_string())
}

/// Returns a random number for a client identifier: process ids repeat in containers, and clients
/// with equal identifiers take over each other's session.
fn random_number() -> u32 {
    let mut bytes = [0; 4];
    let urandom = std::fs::File::open("/dev/urandom");
    match urandom.and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => u32::from_le_bytes(bytes),
        Err(_) => std::process::id(),
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of QUIC pings (`QuicClientOptions`): a broker may vanish silently, and NAT mappings of
/// idle flows expire.
const PINGS_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn dial(line: &str) -> Result<ClientOptions, String> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let used = parse_client_line(client_command("test", "", &[]), &[], &arguments);
        let used = used.expect("clap takes it");
        let mut dial = ClientOptions::new("test");
        for used in &used {
            assert!(dial.apply_flag(used)?);
        }
        let id_given = super::super::publish::has_client_id_flag(&used);
        dial.check_flags(id_given).map(|()| dial)
    }

    #[test]
    fn what_only_5_0_has_asks_for_5_0() {
        assert_eq!(dial("").unwrap().version, ProtocolVersion::V311);
        assert_eq!(dial("-x 5").unwrap().version, ProtocolVersion::V5);
        assert_eq!(dial("-D connect receive-maximum 5").unwrap().version, ProtocolVersion::V5);
        assert_eq!(dial("-V 311 -x 5").unwrap_err(), "-D and -x need -V 5");
        assert_eq!(dial("-V 4").unwrap_err(), "-V 4: use 31, 311 or 5");
    }

    #[test]
    fn a_user_property_has_a_value_more_than_others() {
        for line in [
            "-D publish user-property -a -q -D connect receive-maximum 5 -q 1",
            "-q 1 --property=publish user-property -a -q --property connect receive-maximum 5",
        ] {
            let dial = dial(line).unwrap();
            let properties = dial.properties.publish.as_properties();
            let expected = [Property::UserProperty("-a", "-q")];
            assert_eq!(properties.iter().collect::<Vec<_>>(), expected, "{line}");
            assert_eq!(dial.properties.connect.as_properties().iter().count(), 1, "{line}");
            assert_eq!(dial.qos, QoS::AtLeastOnce, "{line}");
        }
    }

    #[test]
    fn a_host_may_be_a_url_and_flags_of_tls_ask_for_it() {
        let place = |line: &str, name: &str, host: &str, port| {
            let dial = dial(line).unwrap();
            let scheme = UrlScheme::from_name(name).unwrap();
            assert_eq!(
                dial.broker_address(),
                BrokerAddress::Network { scheme, host, port },
                "{line}"
            );
        };
        place("", "tcp", "localhost", 1883);
        place("-h a.org -p 99", "tcp", "a.org", 99);
        place("-h ::1", "tcp", "::1", 1883);
        place("-h tls://a.org", "tls", "a.org", 8883);
        place("-h tls://a.org:99", "tls", "a.org", 99);
        place("-h tls://[::1]:99", "tls", "::1", 99);
        place("-h tcp://a.org", "tcp", "a.org", 1883);
        place("--cafile ca.pem -h a.org", "tls", "a.org", 8883);
        place("--insecure -p 99", "tls", "localhost", 99);
        place("-h quic://a.org", "quic", "a.org", 14567);
        place("-h quic://[::1] --insecure", "quic", "::1", 14567);
        place("-h ws://a.org", "ws", "a.org", 8083);
        place("-h ws://a.org/mqtt --cafile ca.pem", "wss", "a.org", 8084);
        place("-h wss://a.org:99/", "wss", "a.org", 99);
        assert_eq!(
            dial("-h http://a.org").unwrap_err(),
            "-h http://a.org: http is not spoken here, but tcp, tls, ws, wss, quic, unix"
        );
        assert_eq!(
            dial("-h unix:///run/a").unwrap().broker_address(),
            BrokerAddress::Unix("/run/a")
        );
    }

    #[test]
    fn a_kept_session_is_kept_for_ever_unless_told_otherwise() {
        for (line, seconds) in [
            ("-V 5 -i a -c", u32::MAX),
            ("-i a -x -1", u32::MAX),
            ("-i a -c -x 7", 7),
            ("-i a -c -V 5 -D connect session-expiry-interval 7", 7),
        ] {
            let properties = dial(line).unwrap().connect_properties();
            let properties: Vec<_> = properties.as_properties().iter().collect();
            assert_eq!(properties, [Property::SessionExpiryInterval(seconds)], "{line}");
        }
        assert!(dial("-V 5").unwrap().connect_properties().as_properties().is_empty());
    }

    #[test]
    fn flags_that_do_not_fit_each_other_are_refused() {
        assert!(dial("-c").unwrap_err().starts_with("-c needs a client id"));
        assert!(dial("-P secret").unwrap_err().starts_with("-P needs a user name"));
        assert!(dial("-P secret -V 5").is_ok());
        assert_eq!(dial("--will-retain").unwrap_err(), "--will-retain needs --will-topic");
        assert!(dial("--will-topic a/#").is_err());
        assert_eq!(dial("-q 3").unwrap_err(), "--qos 3: use a number from 0 to 2");
    }
}
