//! Where brokers are: URLs and lists of hosts become addresses and what carries MQTT to them.

use crate::carrier;
use crate::plan::{Carrier, Target};
use std::net::{IpAddr, ToSocketAddrs};

/// `SCHEME://host:port`, `SCHEME://host`, `host:port` or `host`.
pub(crate) fn from_url(url: &str) -> Result<Target, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("tcp", url));
    let Some((_, _, default_port, is_tls, is_websocket)) =
        SCHEMES.iter().find(|(_, names, ..)| names.contains(&scheme))
    else {
        let known: Vec<&str> = SCHEMES.iter().map(|(name, ..)| *name).collect();
        return Err(format!("{url}: {scheme} is not spoken here, but {}", known.join(", ")));
    };
    let rest = rest.trim_end_matches('/');
    let is_bare_v6 = rest.matches(':').count() > 1 && !rest.starts_with('[');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !is_bare_v6 && !rest.ends_with(']') => {
            let port = port.parse().map_err(|_| format!("{url}: {port} is no port"))?;
            (host, port)
        }
        _ => (rest, *default_port),
    };
    let tls = is_tls.then(|| carrier::tls(None, None, None)).transpose()?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    resolve(host, port, Carrier { tls, is_websocket: *is_websocket })
}

/// The addresses of this host to connect from, in turn.
pub(crate) fn local(list: &str) -> Result<Vec<IpAddr>, String> {
    let wrong = |address| format!("ifaddr: {address} is no IP address; use a comma between them");
    let addresses = list.split(',').filter(|address| !address.is_empty());
    addresses.map(|address| address.parse().map_err(|_| wrong(address))).collect()
}

pub(crate) fn resolve(host: &str, port: u16, carrier: Carrier) -> Result<Target, String> {
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{host}: the name is not known: {error}"))?;
    let address = addresses.next().ok_or_else(|| format!("{host}: the name has no address"))?;
    let scheme = SCHEMES.iter().find(|(.., is_tls, is_websocket)| {
        *is_tls == carrier.tls.is_some() && *is_websocket == carrier.is_websocket
    });
    let scheme = scheme.map_or("tcp", |(name, ..)| name);
    Ok(Target { url: format!("{scheme}://{host}:{port}"), host: host.into(), address, carrier })
}

/// Name, all names, default port, TLS, WebSocket.
const SCHEMES: &[(&str, &[&str], u16, bool, bool)] = &[
    ("tcp", &["tcp", "mqtt"], 1883, false, false),
    ("tls", &["tls", "mqtts", "ssl"], 8883, true, false),
    ("ws", &["ws"], 8083, false, true),
    ("wss", &["wss"], 8084, true, true),
];

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
        assert!(address("http://127.0.0.1").is_err());
        assert!(address("127.0.0.1:http").is_err());
    }
}
