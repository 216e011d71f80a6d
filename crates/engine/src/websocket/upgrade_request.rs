//! Upgrade request of a WebSocket and its response (RFC 6455, 4.2).

use super::{AllowedOrigins, WebSocketSite};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use transport::accept_key_of;

/// Reason for which an upgrade request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpgradeRefusal {
    /// Not HTTP, or malformed HTTP.
    NoRequest,
    NoHost,
    NoKey,
    NoSubprotocol,
    NoUpgrade,
    /// The header of a proxy (`ws.address_header`) has no address, or occurs twice.
    ClientAddress,
    Headers,
    Method,
    Origin,
    Path,
    Protocol,
    Version,
}

impl UpgradeRefusal {
    fn status(self) -> &'static str {
        match self {
            UpgradeRefusal::NoRequest
            | UpgradeRefusal::NoHost
            | UpgradeRefusal::NoKey
            | UpgradeRefusal::ClientAddress
            | UpgradeRefusal::NoSubprotocol => "400 Bad Request",
            UpgradeRefusal::Origin => "403 Forbidden",
            UpgradeRefusal::Path => "404 Not Found",
            UpgradeRefusal::Method => "405 Method Not Allowed",
            UpgradeRefusal::NoUpgrade | UpgradeRefusal::Version => "426 Upgrade Required",
            UpgradeRefusal::Headers => "431 Request Header Fields Too Large",
            UpgradeRefusal::Protocol => "505 HTTP Version Not Supported",
        }
    }

    /// Returns the headers that HTTP requires with the status.
    fn headers(self) -> &'static str {
        match self {
            UpgradeRefusal::Method => "Allow: GET\r\n",
            // RFC 9110, 15.5.22; RFC 6455, 4.4.
            UpgradeRefusal::NoUpgrade | UpgradeRefusal::Version => {
                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            }
            _ => "",
        }
    }

    pub(super) fn write_response(self, into: &mut Vec<u8>) {
        let (status, headers) = (self.status(), self.headers());
        let words = format!("{self}\n");
        let upgrade = if headers.starts_with("Upgrade") { "Upgrade, " } else { "" };
        let text = format!(
            "HTTP/1.1 {status}\r\nConnection: {upgrade}close\r\n{headers}Content-Type: \
             text/plain\r\nContent-Length: {}\r\n\r\n{words}",
            words.len()
        );
        into.extend_from_slice(text.as_bytes());
    }
}

impl fmt::Display for UpgradeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpgradeRefusal::NoRequest => {
                "this is not an HTTP request: MQTT comes over WebSocket here"
            }
            UpgradeRefusal::NoHost => "the request has no Host, or several",
            UpgradeRefusal::NoKey => "the request has no Sec-WebSocket-Key of 16 bytes, or several",
            UpgradeRefusal::NoSubprotocol => {
                "the request offers no subprotocol of ours: use Sec-WebSocket-Protocol: mqtt"
            }
            UpgradeRefusal::NoUpgrade => "MQTT over WebSocket is served here, and nothing else",
            UpgradeRefusal::ClientAddress => {
                "the header in which a proxy names its client has no IP address, or comes twice"
            }
            UpgradeRefusal::Headers => "the request's headers are too long or too many",
            UpgradeRefusal::Method => "a WebSocket is opened with GET",
            UpgradeRefusal::Origin => "pages of this origin may not connect",
            UpgradeRefusal::Path => "no WebSocket is served at this path",
            UpgradeRefusal::Protocol => "a WebSocket needs HTTP/1.1",
            UpgradeRefusal::Version => "this version of WebSocket is not known, use 13",
        })
    }
}

/// Returns whether `head` may still become a request. MQTT or TLS on this port is refused at its
/// first byte.
pub(super) fn may_be_request(head: &[u8]) -> bool {
    head.first().is_none_or(u8::is_ascii_alphabetic)
}

/// Answers a complete request head. Returns the client's address from a proxy's header, if the site
/// reads that header.
pub(super) fn accept_request(
    head: &[u8],
    site: &WebSocketSite,
    subprotocols: &[&str],
    into: &mut Vec<u8>,
) -> Result<Option<SocketAddr>, UpgradeRefusal> {
    let mut room = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut room);
    match request.parse(head) {
        Ok(httparse::Status::Complete(len)) if len == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(UpgradeRefusal::Headers),
        _ => return Err(UpgradeRefusal::NoRequest),
    }
    let headers = RequestHeaders(request.headers);
    // 4.2.1, in its order where there is one.
    if request.version != Some(1) {
        return Err(UpgradeRefusal::Protocol);
    }
    if request.method != Some("GET") {
        return Err(UpgradeRefusal::Method);
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    if site.path.as_ref().is_some_and(|own| own != path) {
        return Err(UpgradeRefusal::Path);
    }
    if !headers.tokens("Upgrade").any(|word| word.eq_ignore_ascii_case("websocket"))
        || !headers.tokens("Connection").any(|word| word.eq_ignore_ascii_case("Upgrade"))
    {
        return Err(UpgradeRefusal::NoUpgrade);
    }
    if headers.single_value("Sec-WebSocket-Version") != Some("13") {
        return Err(UpgradeRefusal::Version);
    }
    headers.single_value("Host").ok_or(UpgradeRefusal::NoHost)?;
    let key = headers
        .single_value("Sec-WebSocket-Key")
        .filter(|key| is_websocket_key(key))
        .ok_or(UpgradeRefusal::NoKey)?;
    // 10.2: browsers send the origin of the page; other clients need not.
    if headers.has("Origin")
        && !headers.single_value("Origin").is_some_and(|origin| site.origins.allows(origin))
    {
        return Err(UpgradeRefusal::Origin);
    }
    let named_client = match &site.address_header {
        Some(name) if headers.has(name) => {
            let first = headers.single_value(name).and_then(|text| text.split(',').next());
            Some(first.and_then(read_address).ok_or(UpgradeRefusal::ClientAddress)?)
        }
        _ => None,
    };
    // [MQTT-6.0.0-3]
    let offers = |name: &str| headers.tokens("Sec-WebSocket-Protocol").any(|word| word == name);
    let subprotocol = subprotocols.iter().find(|name| offers(name));
    let subprotocol = subprotocol.ok_or(UpgradeRefusal::NoSubprotocol)?;
    // 4.2.2; [MQTT-6.0.0-4]
    let text = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: {subprotocol}\r\n\r\n",
        accept_key_of(key)
    );
    into.extend_from_slice(text.as_bytes());
    Ok(named_client)
}

/// Parses an address with or without a port, in the forms that proxies write: `192.0.2.1`,
/// `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`. A missing port is 0.
fn read_address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 0))
}

impl AllowedOrigins {
    fn allows(&self, origin: &str) -> bool {
        match self {
            AllowedOrigins::Any => true,
            // RFC 6454, 6.2: browsers write schemes and hosts in lower case.
            AllowedOrigins::Listed(all) => all.iter().any(|own| own.eq_ignore_ascii_case(origin)),
            AllowedOrigins::ThisHost => {
                let host = origin.split_once("://").map_or("", |(_, host)| host);
                // A port consists of digits; the colons of an IPv6 address are in brackets.
                let host = match host.rsplit_once(':') {
                    Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
                    _ => host,
                };
                matches!(host, "localhost" | "127.0.0.1" | "[::1]")
            }
        }
    }
}

struct RequestHeaders<'h>(&'h [httparse::Header<'h>]);

impl<'h> RequestHeaders<'h> {
    fn values(&self, name: &str) -> impl Iterator<Item = &'h str> {
        let named = self.0.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        // A value that is not ASCII matches none of the expected values.
        named.map(|header| std::str::from_utf8(header.value).unwrap_or_default().trim())
    }

    fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Returns the value of a header that occurs exactly once (11.3.1, 11.3.5).
    fn single_value(&self, name: &str) -> Option<&'h str> {
        let mut all = self.values(name);
        all.next().filter(|_| all.next().is_none())
    }

    /// Returns the tokens of all values of a header, which are comma-separated lists.
    fn tokens(&self, name: &str) -> impl Iterator<Item = &'h str> {
        self.values(name).flat_map(|value| value.split(',')).map(str::trim)
    }
}

/// Returns whether `text` is base64 of 16 bytes (4.2.1, 5).
fn is_websocket_key(text: &str) -> bool {
    let Some(word) = text.strip_suffix("==") else { return false };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    word.len() == 22 && word.bytes().all(is_letter)
}

/// Subprotocols in order of preference. Old clients offer the second one (MQTT 3.1).
pub(super) const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];
/// Maximum number of headers; browsers send about twenty.
const HEADERS_MAX: usize = broker::limits::WEB_HEADERS_MAX;
