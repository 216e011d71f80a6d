//! Where brokers are: URLs and lists of hosts become addresses.

use crate::plan::Target;
use std::net::ToSocketAddrs;

/// `tcp://host:port`, `mqtt://host`, `host:port` or `host`.
pub(crate) fn from_url(url: &str) -> Result<Target, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("tcp", url));
    if !["tcp", "mqtt"].contains(&scheme) {
        return Err(format!("{url}: {scheme} is not spoken here; use tcp://HOST:PORT"));
    }
    let rest = rest.trim_end_matches('/');
    let is_bare_v6 = rest.matches(':').count() > 1 && !rest.starts_with('[');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !is_bare_v6 && !rest.ends_with(']') => {
            let port = port.parse().map_err(|_| format!("{url}: {port} is no port"))?;
            (host, port)
        }
        _ => (rest, DEFAULT_PORT),
    };
    resolve(host.trim_start_matches('[').trim_end_matches(']'), port)
}

pub(crate) fn resolve(host: &str, port: u16) -> Result<Target, String> {
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{host}: the name is not known: {error}"))?;
    let address = addresses.next().ok_or_else(|| format!("{host}: the name has no address"))?;
    Ok(Target { url: format!("tcp://{host}:{port}"), host: host.into(), address })
}

const DEFAULT_PORT: u16 = 1883;

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
        assert!(address("http://127.0.0.1").is_err());
        assert!(address("127.0.0.1:http").is_err());
    }
}
