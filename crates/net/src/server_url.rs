//! URL of a server: `scheme://user:password@host:port/path`. Errors and logs contain at most
//! scheme, host and port, because the rest may contain a password.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use std::fmt;

#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    pub scheme: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Host name or address; an IPv6 address is without brackets.
    pub host: String,
    pub port: Option<u16>,
    /// Path and query, from the first `/` or `?`; may be empty.
    pub path: String,
}

impl ServerUrl {
    /// Parses a URL with one of `schemes`. The error names the accepted forms.
    pub fn parse(text: &str, schemes: &[&str]) -> Result<ServerUrl, String> {
        let right = || {
            let all: Vec<String> = schemes.iter().map(|one| format!("{one}://HOST")).collect();
            format!("no URL that can be asked, use {}", all.join(" or "))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(right)?;
        if !schemes.contains(&scheme) || rest.contains(|c: char| !c.is_ascii_graphic()) {
            return Err(right());
        }
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (who, place) = match authority.rsplit_once('@') {
            Some((who, place)) => (Some(who), place),
            None => (None, authority),
        };
        let (user, password) = match who.map(|who| who.split_once(':').unwrap_or((who, ""))) {
            Some((user, password)) => {
                let decoded =
                    percent_decode(user).zip(percent_decode(password)).ok_or_else(right)?;
                let given = |text: String| (!text.is_empty()).then_some(text);
                (given(decoded.0), given(decoded.1))
            }
            None => (None, None),
        };
        let (host, port) = split_port(place).ok_or_else(right)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(is_name) {
            return Err(right());
        }
        let (scheme, host, path) = (scheme.into(), host.into(), path.into());
        Ok(ServerUrl { scheme, user, password, host, port, path })
    }
}

/// Splits `host`, `host:port`, `[::1]` or `[::1]:port`.
fn split_port(place: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let _: std::net::Ipv6Addr = host.parse().ok()?;
            (host, port)
        }
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0).map(|port| (host, Some(port))),
        None => port.is_empty().then_some((host, None)),
    }
}

/// Decodes percent-encoding of UTF-8 (RFC 3986, 2.1). Returns `None` for a `%` without two hex
/// digits and for invalid UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let is_encoded = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_encoded) {
        return None;
    }
    percent_encoding::percent_decode_str(text).decode_utf8().ok().map(String::from)
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes every byte outside RFC 3986's unreserved set (2.3), so that a value cannot
/// change the structure of the URL.
pub fn percent_encode(bytes: &[u8], out: &mut String) {
    out.extend(percent_encoding::percent_encode(bytes, RESERVED));
}

/// Returns whether a path contains `.` or `..`, which a server may resolve (RFC 3986, 5.2.4).
/// Encoded dots, encoded separators and `\` count as their plain forms, because some servers decode
/// before the resolution.
pub fn has_dot_segments(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default().to_ascii_uppercase();
    let path = path.replace("%2E", ".").replace("%2F", "/").replace("%5C", "/").replace('\\', "/");
    path.split('/').any(|segment| segment == "." || segment == "..")
}

/// Formats scheme, host and port, for logs; user and password are left out.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerUrl { scheme, host, port, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        match port {
            Some(port) => write!(f, "{scheme}://{host}:{port}"),
            None => write!(f, "{scheme}://{host}"),
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMES: &[&str] = &["http", "redis"];

    #[test]
    fn its_parts_are_told_apart() {
        let url = ServerUrl::parse("redis://ann:p%40%3Aw@db.example:6380/2?x=1", SCHEMES).unwrap();
        assert_eq!((url.scheme.as_str(), url.host.as_str()), ("redis", "db.example"));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("ann"), Some("p@:w")));
        assert_eq!((url.port, url.path.as_str()), (Some(6380), "/2?x=1"));
        let url = ServerUrl::parse("redis://:secret@[::1]", SCHEMES).unwrap();
        assert_eq!((url.user, url.password.as_deref()), (None, Some("secret")));
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("::1", None, ""));
        let url = ServerUrl::parse("http://h?id=${clientid}", SCHEMES).unwrap();
        assert_eq!((url.host.as_str(), url.path.as_str()), ("h", "?id=${clientid}"));
    }

    #[test]
    fn what_is_no_url_is_told_without_repeating_it() {
        for text in [
            "",
            "h",
            "ftp://secret@h",
            "http://",
            "http://:80",
            "http://h:0",
            "http://h:99999",
            "http://h:x",
            "http://[::1",
            "http://[x]",
            "http://a b",
            "http://a\r\nb",
            "http://u:%4@h",
            "http://u:%ff@h",
            "http://h\u{e9}",
        ] {
            let why = ServerUrl::parse(text, SCHEMES).unwrap_err();
            assert_eq!(why, "no URL that can be asked, use http://HOST or redis://HOST", "{text}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let text = "redis://ann:secret@h:1/0";
        let url = ServerUrl::parse(text, SCHEMES).unwrap();
        assert_eq!(
            (format!("{url}"), format!("{url:?}")),
            ("redis://h:1".into(), "redis://h:1".into())
        );
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_found_however_it_is_written() {
        for path in ["/..", "/a/./b", "/a%2f..", "/a/%2e%2E/b", "/.%2e", "/a\\..\\b", "/a%5C..?x"] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["/...", "/a..", "/%252e%252e", "/a?x=/../", "/.a/b."] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }

    #[test]
    fn values_are_nothing_but_values() {
        let mut out = String::new();
        percent_encode("a&b=c/..?#%\r\n\0\u{e9}".as_bytes(), &mut out);
        assert_eq!(out, "a%26b%3Dc%2F..%3F%23%25%0D%0A%00%C3%A9");
        assert_eq!(percent_decode(&out).as_deref(), Some("a&b=c/..?#%\r\n\0\u{e9}"));
        for wrong in ["%", "%4", "a%4g", "%+1", "%\u{e9}"] {
            assert_eq!(percent_decode(wrong), None, "{wrong}");
        }
    }
}
