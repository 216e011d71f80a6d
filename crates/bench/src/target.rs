//! Where brokers are: URLs and lists of hosts become addresses and what carries MQTT to them.

use crate::plan::{Carrier, Target};
use carrier::{Layers, Manner, Scheme, Trust};
use rustls::client::Resumption;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

/// `SCHEME://host:port`, `SCHEME://host`, `host:port` or `host`. Anyone's certificate is taken.
pub(crate) fn from_url(url: &str) -> Result<Target, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("tcp", url));
    let Some(scheme) = Scheme::of(scheme) else {
        return Err(format!("{url}: {scheme} is not spoken here, but {}", Scheme::names()));
    };
    let rest = rest.trim_end_matches('/');
    let is_bare_v6 = rest.matches(':').count() > 1 && !rest.starts_with('[');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !is_bare_v6 && !rest.ends_with(']') => {
            let port = port.parse().map_err(|_| format!("{url}: {port} is no port"))?;
            (host, port)
        }
        _ => (rest, scheme.port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let trust = Trust { insecure: true, ..Trust::default() };
    resolve(host, port, scheme, &carrier(scheme, &trust)?)
}

pub(crate) fn carrier(scheme: Scheme, trust: &Trust) -> Result<Carrier, String> {
    let mut tls = scheme.is_tls.then(|| trust.config()).transpose()?;
    if let Some(tls) = &mut tls {
        // Clients are strangers to each other: none comes with a session of another's.
        Arc::make_mut(tls).resumption = Resumption::disabled();
    }
    match tls {
        Some(tls) if scheme.is_quic => Manner::new(&tls).map(Carrier::Quic),
        tls => Ok(Carrier::Own(Layers { tls, websocket: scheme.websocket_path() })),
    }
}

/// The addresses of this host to connect from, in turn.
pub(crate) fn local(list: &str) -> Result<Vec<IpAddr>, String> {
    let wrong = |address| format!("ifaddr: {address} is no IP address; use a comma between them");
    let addresses = list.split(',').filter(|address| !address.is_empty());
    addresses.map(|address| address.parse().map_err(|_| wrong(address))).collect()
}

pub(crate) fn resolve(
    host: &str,
    port: u16,
    scheme: Scheme,
    carrier: &Carrier,
) -> Result<Target, String> {
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{host}: the name is not known: {error}"))?;
    let address = addresses.next().ok_or_else(|| format!("{host}: the name has no address"))?;
    let url = format!("{}://{host}:{port}", scheme.name);
    Ok(Target { url, host: host.into(), address, carrier: carrier.clone() })
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
        assert!(address("http://127.0.0.1").is_err());
        assert!(address("127.0.0.1:http").is_err());
    }
}
