//! Addresses of brokers: URLs and lists of hosts become `BrokerTarget`s with a transport.

use crate::plan::{BrokerTarget, TargetTransport};
use rustls::SupportedProtocolVersion;
use rustls::client::Resumption;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use transport::{QuicClientOptions, TCP, TlsClientOptions, TransportLayers, UrlScheme};

/// Parses and resolves `SCHEME://host:port`, `SCHEME://host`, `host:port` or `host`. With TLS any
/// certificate is accepted.
pub(crate) fn from_url(url: &str) -> Result<BrokerTarget, String> {
    let place = UrlParts::read(url)?;
    let scheme = place.scheme.unwrap_or(TCP);
    let trust = TlsClientOptions { insecure: true, ..TlsClientOptions::default() };
    let carrier = transport_for(scheme, &trust, rustls::DEFAULT_VERSIONS)?;
    resolve(place.host, place.port.unwrap_or(scheme.port), scheme, &carrier)
}

/// The parts of a URL; only the host is required.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UrlParts<'a> {
    pub(crate) scheme: Option<UrlScheme>,
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
}

impl UrlParts<'_> {
    pub(crate) fn read(url: &str) -> Result<UrlParts<'_>, String> {
        let (scheme, rest) = match url.split_once("://") {
            Some((name, rest)) => (Some(name), rest),
            None => (None, url),
        };
        let named = scheme.map(|name| {
            let unknown =
                || format!("{url}: {name} is not spoken here, but {}", UrlScheme::names());
            UrlScheme::from_name(name).ok_or_else(unknown)
        });
        let scheme = named.transpose()?;
        let rest = match (scheme, rest.split_once('/')) {
            (Some(scheme), Some((rest, path))) if path == "mqtt" && scheme.is_websocket => rest,
            (_, Some((rest, ""))) => rest,
            (_, Some((_, path))) => {
                return Err(format!("{url}: leave out /{path}, the path of a WebSocket is /mqtt"));
            }
            (_, None) => rest,
        };
        if rest.contains('@') {
            return Err(format!("{url}: a user and a password have flags of their own here"));
        }
        let is_bare_v6 = rest.matches(':').count() > 1 && !rest.starts_with('[');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !is_bare_v6 && !rest.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| format!("{url}: {port} is not a port"))?))
            }
            _ => (rest, None),
        };
        let is_bracketed = host.starts_with('[');
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || is_bracketed != rest.contains(']') || port == Some(0) {
            return Err(format!(
                "\"{url}\" is not an address: use HOST, HOST:PORT, [IPV6]:PORT or a URL such as \
                 tcp://HOST:PORT"
            ));
        }
        Ok(UrlParts { scheme, host, port })
    }
}

/// Returns the transport of `scheme`; `versions` are the TLS versions, if the scheme uses TLS.
pub(crate) fn transport_for(
    scheme: UrlScheme,
    trust: &TlsClientOptions,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<TargetTransport, String> {
    let mut tls = scheme.is_tls.then(|| trust.client_config_for(versions)).transpose()?;
    if let Some(tls) = &mut tls {
        // Every client does a full handshake, since real clients do not share TLS sessions.
        Arc::make_mut(tls).resumption = Resumption::disabled();
    }
    match tls {
        Some(tls) if scheme.is_quic => QuicClientOptions::new(&tls).map(TargetTransport::Quic),
        tls => {
            Ok(TargetTransport::Tcp(TransportLayers { tls, websocket: scheme.websocket_path() }))
        }
    }
}

/// Parses a comma-separated list of local addresses to connect from.
pub(crate) fn parse_local_addresses(list: &str) -> Result<Vec<IpAddr>, String> {
    let wrong =
        |address| format!("ifaddr: {address} is not an IP address; use a comma between them");
    let addresses = list.split(',').filter(|address| !address.is_empty());
    addresses.map(|address| address.parse().map_err(|_| wrong(address))).collect()
}

pub(crate) fn resolve(
    host: &str,
    port: u16,
    scheme: UrlScheme,
    carrier: &TargetTransport,
) -> Result<BrokerTarget, String> {
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{host}: the name is not known: {error}"))?;
    let address = addresses.next().ok_or_else(|| format!("{host}: the name has no address"))?;
    let url = format!("{}://{host}:{port}", scheme.name);
    Ok(BrokerTarget { url, host: host.into(), address, transport: carrier.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_host_and_port() {
        let address = |url: &str| from_url(url).map(|target| target.address.to_string());
        assert_eq!(address("tcp://127.0.0.1:1884"), Ok("127.0.0.1:1884".into()));
        assert_eq!(address("mqtt://127.0.0.1/"), Ok("127.0.0.1:1883".into()));
        assert_eq!(address("127.0.0.1"), Ok("127.0.0.1:1883".into()));
        assert_eq!(address("tcp://[::1]:9"), Ok("[::1]:9".into()));
        assert_eq!(address("::1"), Ok("[::1]:1883".into()));
        assert_eq!(address("wss://127.0.0.1/"), Ok("127.0.0.1:8084".into()));
        assert_eq!(from_url("ssl://127.0.0.1").map(|t| t.url), Ok("tls://127.0.0.1:8883".into()));
        assert_eq!(address("quic://127.0.0.1"), Ok("127.0.0.1:14567".into()));
        assert_eq!(address("ws://127.0.0.1:1/mqtt"), Ok("127.0.0.1:1".into()));
        assert!(address("ws://127.0.0.1/other").unwrap_err().contains("leave out /other"));
        assert!(address("mqtt://me:secret@127.0.0.1").unwrap_err().contains("flags of their own"));
        assert!(address("http://127.0.0.1").is_err());
        assert!(address("127.0.0.1:http").is_err());
        for wrong in ["", "tcp://", "tcp://:1883", "[::1", "[]", "127.0.0.1:0"] {
            assert!(address(wrong).unwrap_err().contains("use HOST, HOST:PORT"), "{wrong}");
        }
    }
}
