//! The connection to the remote broker: name lookup, transport, CONNECT and the limits in CONNACK.

use super::relay::{ALIASES_IN_MAX, RemoteBrokerLimits};
use super::send_progress::SendProgress;
use super::settings::BridgeSettings;
use super::tunnel;
use crate::local_session::{first_packet, read_frame};
use crate::option_rows::LinkTlsSettings;
use mqtt::client::ServerLimits;
use mqtt::{
    Connect, Disconnect, Packet, Properties, PropertiesBuf, Property, ProtocolVersion, QoS,
    ReasonCode, Will,
};
use net::endpoint::{AsyncStream, ServerEndpoint};
use net::server_url::ServerUrl;
use rustls::ClientConfig;
use socket2::SockRef;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use transport::TlsClientOptions;
use transport::{TCP, UrlScheme};

/// A connection after a successful CONNACK.
pub struct RemoteSession {
    pub stream: FarStream,
    pub send_progress: SendProgress,
    /// Bytes received after CONNACK.
    pub read: Vec<u8>,
    pub grants: ConnAckGrants,
}

/// Transport to the remote broker.
pub enum FarStream {
    /// TLS, or a tunnel for WebSocket and QUIC.
    Layered(Box<dyn AsyncStream>),
    /// The socket is with a shard, which runs the relay.
    Lent,
    Plain(TcpStream),
}

/// Properties of CONNACK.
#[derive(Clone, Copy, Debug)]
pub struct ConnAckGrants {
    pub session_present: bool,
    pub is_marked: bool,
    pub limits: RemoteBrokerLimits,
}

/// Options of a CONNECT in addition to [`BridgeSettings`].
#[derive(Clone, Copy, Debug)]
pub struct RemoteConnectOptions {
    pub clean_start: bool,
    /// Marks the client as a bridge by the highest bit of the protocol version. Brokers such as
    /// mosquitto support this; MQTT 3.1.1 does not define the bit.
    pub is_marked: bool,
}

/// Reason for a failed connection to a remote broker.
#[derive(Debug, PartialEq, Eq)]
pub enum RemoteConnectError {
    /// The broker does not support the bridge mark.
    Mark,
    Why(String),
}

/// Receive Maximum of the bridge.
const RECEIVE_MAXIMUM: u16 = 1024;

/// Loads the files of `tls` into a client configuration. Empty `authorities` mean the CAs of the
/// host.
pub fn load_client_tls(tls: &LinkTlsSettings) -> Result<Arc<ClientConfig>, String> {
    let named = |path: &Path| (!path.as_os_str().is_empty()).then(|| path.display().to_string());
    let trust = TlsClientOptions {
        authorities: named(&tls.authorities),
        certificate: named(&tls.certificate),
        key: named(&tls.key),
        insecure: false,
    };
    let mut config = trust.client_config().map_err(|why| match trust.authorities {
        None if why.contains("--cafile") => {
            "this host has no file of CAs, name one with tls.ca".to_string()
        }
        _ => why.replace("--cert and --key", "tls.certificate and tls.key"),
    })?;
    if !tls.alpn.is_empty() {
        let config = Arc::make_mut(&mut config);
        config.alpn_protocols = tls.alpn.iter().map(|name| name.clone().into_bytes()).collect();
    }
    Ok(config)
}

impl RemoteSession {
    /// Opens a transport, sends CONNECT and waits for CONNACK. The caller bounds the time.
    pub async fn connect(
        settings: &BridgeSettings,
        server: &ServerUrl,
        tls: Option<&Arc<ClientConfig>>,
        manner: RemoteConnectOptions,
    ) -> Result<RemoteSession, RemoteConnectError> {
        let (mut stream, under_way) =
            open_transport(settings, server, tls).await.map_err(RemoteConnectError::Why)?;
        let hello = encode_connect(settings, server, manner);
        let said = stream.write_all(&hello).await;
        let said = match said {
            Ok(()) => stream.flush().await,
            wrong => wrong,
        };
        said.map_err(|error| RemoteConnectError::Why(error.to_string()))?;
        let mut read = Vec::new();
        let answer = read_frame(&mut stream, &mut read).await;
        let len = answer.map_err(|why| match manner.is_marked {
            // Some brokers close the connection instead of refusing the protocol version.
            true => RemoteConnectError::Mark,
            false => RemoteConnectError::Why(format!("no answer to CONNECT: {why}")),
        })?;
        let Some(Packet::ConnAck(ack)) = first_packet(&read, settings.version) else {
            if manner.is_marked {
                return Err(RemoteConnectError::Mark);
            }
            return Err(RemoteConnectError::Why(
                "it did not answer CONNECT as a broker does".to_string(),
            ));
        };
        let mut server = ServerLimits::from_connack(&ack).map_err(|reason| match reason {
            ReasonCode::UnsupportedProtocolVersion if manner.is_marked => RemoteConnectError::Mark,
            reason => RemoteConnectError::Why(format!("it refused CONNECT: {reason}")),
        })?;
        server.packet_bytes_max = server.packet_bytes_max.min(settings.packet_bytes_max());
        let spares_own = settings.version.is_v5() || manner.is_marked;
        let granted = ConnAckGrants {
            session_present: ack.session_present,
            is_marked: manner.is_marked,
            limits: RemoteBrokerLimits { version: settings.version, server, spares_own },
        };
        read.drain(..len);
        Ok(RemoteSession { stream, send_progress: under_way, read, grants: granted })
    }
}

impl RemoteSession {
    /// Sends DISCONNECT with Session Expiry Interval 0, and waits until the broker closes the
    /// connection.
    pub(super) async fn end_session(mut self, version: ProtocolVersion) {
        let mut bytes = Vec::new();
        encode_disconnect(version, true, &mut bytes);
        let _ = self.stream.write_all(&bytes).await;
        let _ = self.stream.shutdown().await;
        // The broker closes the connection when it has processed DISCONNECT.
        let mut rest = [0; 512];
        while self.stream.read(&mut rest).await.is_ok_and(|len| len > 0) {}
    }
}

impl FarStream {
    fn wire(&mut self) -> io::Result<Pin<&mut dyn AsyncStream>> {
        match self {
            FarStream::Layered(wire) => Ok(Pin::new(&mut **wire)),
            FarStream::Lent => Err(io::ErrorKind::NotConnected.into()),
            FarStream::Plain(stream) => Ok(Pin::new(stream)),
        }
    }
}

impl AsyncRead for FarStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.wire()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for FarStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wire()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire()?.poll_shutdown(cx)
    }
}

impl fmt::Display for RemoteConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteConnectError::Mark => f.write_str("it does not know bridges of 3.1.1"),
            RemoteConnectError::Why(why) => f.write_str(why),
        }
    }
}

impl ConnAckGrants {
    /// Returns the keep-alive time of the connection, in seconds: the server's value, or the
    /// option. A server value of 0 is ignored, because a bridge must detect an unreachable broker.
    pub fn keep_alive_s(&self, settings: &BridgeSettings) -> u16 {
        let stated = self.limits.server.server_keep_alive_s;
        stated.filter(|seconds| *seconds > 0).unwrap_or(settings.keep_alive_s)
    }
}

/// Opens a transport to the server, without sending MQTT packets. Also returns the socket whose
/// progress in sending is observed.
pub(super) async fn open_transport(
    settings: &BridgeSettings,
    server: &ServerUrl,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<(FarStream, SendProgress), String> {
    let (endpoint, scheme) = (endpoint(server), scheme(server));
    let tls = tls.filter(|_| scheme.is_tls);
    let name = match settings.tls.server_name.as_str() {
        "" => &endpoint.host,
        name => name,
    };
    if scheme.is_websocket || scheme.is_quic {
        let within = Duration::from_secs(u64::from(settings.connect_timeout_s));
        let patience = settings.silence_limit();
        let opened = tunnel::open_tunnel(&endpoint, name, server, tls, within, patience).await;
        return opened.map(|(wire, under_way)| (FarStream::Layered(wire), under_way));
    }
    let stream = endpoint.connect_tcp().await?;
    set_user_timeout(&stream, settings.silence_limit());
    let under_way = SendProgress::default().with_socket(&stream);
    let under_way = under_way.map_err(|error| format!("{endpoint}: {error}"))?;
    let stream = match tls {
        Some(tls) => FarStream::Layered(endpoint.start_tls_as(name, stream, tls.clone()).await?),
        None => FarStream::Plain(stream),
    };
    Ok((stream, under_way))
}

/// Sets the time after which the kernel gives up a connection whose bytes are not acknowledged [RFC
/// 5482]. Writes succeed while the kernel has buffer space, so only the kernel notices.
pub fn set_user_timeout(socket: &impl AsFd, patience: Duration) {
    // An old kernel without the option uses its own, longer timeout.
    let _ = SockRef::from(socket).set_tcp_user_timeout(Some(patience));
}

/// Returns the scheme of a server. The option's check has refused unknown schemes, so `TCP` is
/// never used as a default.
pub(super) fn scheme(server: &ServerUrl) -> UrlScheme {
    UrlScheme::from_name(&server.scheme).unwrap_or(TCP)
}

/// Returns the endpoint of a server, with the default port of its scheme.
fn endpoint(server: &ServerUrl) -> ServerEndpoint {
    let port = server.port.unwrap_or(scheme(server).port);
    ServerEndpoint { host: server.host.clone(), port, tls: None }
}

fn encode_connect(
    settings: &BridgeSettings,
    server: &ServerUrl,
    manner: RemoteConnectOptions,
) -> Vec<u8> {
    let client_id = settings.remote_client_id();
    let (mut properties, none) = (PropertiesBuf::default(), Properties::default());
    properties.push(Property::SessionExpiryInterval(settings.session_expiry_s));
    properties.push(Property::ReceiveMaximum(RECEIVE_MAXIMUM));
    properties.push(Property::TopicAliasMaximum(ALIASES_IN_MAX));
    properties.push(Property::MaximumPacketSize(settings.limits.packet_bytes_max));
    let status = settings.status_topic.as_str();
    let will = Will {
        qos: QoS::AtLeastOnce,
        retain: true,
        topic: status,
        payload: b"0",
        properties: none,
    };
    let packet = Connect {
        version: settings.version,
        is_bridge: manner.is_marked,
        clean_start: manner.clean_start,
        keep_alive_s: settings.keep_alive_s,
        client_id: &client_id,
        will: (!status.is_empty()).then_some(will),
        user_name: nonempty(settings.user_name.as_str()).or(server.user.as_deref()),
        password: nonempty(&*settings.password.0)
            .or(server.password.as_ref().map(|password| password.as_bytes())),
        properties: properties.as_properties(),
    };
    let mut bytes = Vec::new();
    packet.encode(settings.version, &mut bytes);
    bytes
}

/// Appends a DISCONNECT. `is_last` ends the session at the remote broker; MQTT 3.1.1 cannot express
/// this.
pub(super) fn encode_disconnect(version: ProtocolVersion, is_last: bool, out: &mut Vec<u8>) {
    let (reason, mut properties) = (ReasonCode::NormalDisconnection, PropertiesBuf::default());
    if is_last {
        properties.push(Property::SessionExpiryInterval(0));
    }
    let properties = properties.as_properties();
    Disconnect { reason, properties }.encode(version, out);
}

fn nonempty<T: ?Sized + AsRef<[u8]>>(option: &T) -> Option<&T> {
    (!option.as_ref().is_empty()).then_some(option)
}
