//! Text with places for what a client says of itself. A value never becomes part of the text's
//! language: it is escaped where the text says, or bound beside it.

use super::url::encode;
use broker::{Address, Claim};
use std::borrow::Cow;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Address,
    CertificateName,
    CertificateSubject,
    ClientId,
    Listener,
    Password,
    Protocol,
    UserName,
}

/// How each is written, the first as we show it; NanoMQ and mosquitto-go-auth know the letters.
const NAMES: &[(&str, char, Value)] = &[
    ("username", 'u', Value::UserName),
    ("clientid", 'c', Value::ClientId),
    ("password", 'P', Value::Password),
    ("peerhost", 'a', Value::Address),
    ("listener", 'p', Value::Listener),
    ("cert_cn", 'C', Value::CertificateName),
    ("cert_common_name", 'C', Value::CertificateName),
    ("cert_subject", 'd', Value::CertificateSubject),
    ("protocol", 'r', Value::Protocol),
];

/// A client, and what its values stand in.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) claim: &'a Claim,
    /// Of the listeners, in their order.
    pub(crate) ports: &'a [Option<u16>],
}

impl Value {
    /// What is not there is empty.
    pub(crate) fn of<'a>(self, values: Values<'a>) -> Cow<'a, [u8]> {
        let claim = values.claim;
        let certificate = claim.certificate.as_deref();
        let text = |text: Option<&'a str>| Cow::Borrowed(text.unwrap_or_default().as_bytes());
        match self {
            Value::Address => match claim.peer {
                Address::Network(address) => {
                    Cow::Owned(address.ip().to_canonical().to_string().into_bytes())
                }
                Address::Unix { .. } => Cow::Borrowed(b"unix"),
            },
            Value::CertificateName => text(certificate.and_then(|own| own.common_name.as_deref())),
            Value::CertificateSubject => text(certificate.map(|own| &*own.subject)),
            Value::ClientId => text(Some(&claim.client_id)),
            Value::Listener => match values.ports.get(usize::from(claim.listener.0)) {
                Some(Some(port)) => Cow::Owned(port.to_string().into_bytes()),
                _ => Cow::Borrowed(b"unix"),
            },
            Value::Password => {
                Cow::Borrowed(claim.password.as_ref().map_or(&[], |secret| &secret.0))
            }
            Value::Protocol => Cow::Borrowed(b"mqtt"),
            Value::UserName => text(claim.user_name.as_deref()),
        }
    }
}

impl Template {
    /// `${username}` and its like; with `letters` also `%u`, and `%%` for a percent sign. A percent
    /// sign before two hex digits is an encoded byte and stays.
    pub(crate) fn parse(text: &str, letters: bool) -> Result<Template, String> {
        let mut template = Template::default();
        let mut rest = text;
        while let Some(at) = rest.find(if letters { &['$', '%'][..] } else { &['$'][..] }) {
            template.push_text(&rest[..at]);
            rest = &rest[at..];
            let (value, len) = match rest.strip_prefix("${") {
                Some(inside) => named(inside)?,
                None if rest.starts_with('%') => lettered(rest)?,
                None => (None, 1),
            };
            match value {
                Some(value) => template.pieces.push(Piece::Value(value)),
                None if rest.starts_with("%%") => template.push_text("%"),
                None => template.push_text(&rest[..len]),
            }
            rest = &rest[len..];
        }
        template.push_text(rest);
        Ok(template)
    }

    fn push_text(&mut self, more: &str) {
        match self.pieces.last_mut() {
            _ if more.is_empty() => {}
            Some(Piece::Text(text)) => text.push_str(more),
            _ => self.pieces.push(Piece::Text(more.into())),
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn has(&self, wanted: Value) -> bool {
        self.pieces.contains(&Piece::Value(wanted))
    }

    /// Percent-encoded, for a URL.
    pub(crate) fn fill_url(&self, values: Values<'_>) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value(value) => encode(&value.of(values), &mut out),
            }
        }
        out
    }

    /// As it is, for one value that its reader gets as a whole.
    pub(crate) fn fill(&self, values: Values<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Value(value) => out.extend_from_slice(&value.of(values)),
            }
        }
        out
    }

    /// The text of a query in which `mark` stands for each value, and the values beside it. Inside
    /// quotes a mark would be text, and never what was meant.
    pub(crate) fn bind(&self, mark: fn(usize) -> String) -> Result<(String, Vec<Value>), String> {
        let (mut query, mut values, mut quote) = (String::new(), Vec::new(), None);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => {
                    for c in text.chars().filter(|c| matches!(c, '\'' | '"' | '`')) {
                        quote = match quote {
                            None => Some(c),
                            Some(open) if open == c => None,
                            open => open,
                        };
                    }
                    query.push_str(text);
                }
                Piece::Value(_) if quote.is_some() => {
                    return Err("a placeholder is bound, not written into the text: it stands \
                                without quotes"
                        .into());
                }
                Piece::Value(value) => {
                    values.push(*value);
                    query.push_str(&mark(values.len()));
                }
            }
        }
        Ok((query, values))
    }
}

/// After `${`.
fn named(inside: &str) -> Result<(Option<Value>, usize), String> {
    let name = inside.split_once('}').map(|(name, _)| name);
    match NAMES.iter().find(|(known, ..)| Some(*known) == name) {
        Some((known, _, value)) => Ok((Some(*value), known.len() + 3)),
        None => {
            let all: Vec<String> = NAMES.iter().map(|(name, ..)| format!("${{{name}}}")).collect();
            Err(format!("there is no such placeholder, use one of {}", all.join(" ")))
        }
    }
}

/// From the percent sign on.
fn lettered(rest: &str) -> Result<(Option<Value>, usize), String> {
    let bytes = rest.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    if is_hex(1) && is_hex(2) {
        return Ok((None, 3));
    }
    let letter = bytes.get(1).copied().map(char::from);
    if letter == Some('%') {
        return Ok((None, 2));
    }
    match NAMES.iter().find(|(_, known, _)| Some(*known) == letter) {
        Some((_, _, value)) => Ok((Some(*value), 2)),
        None => {
            let mut all: Vec<String> = NAMES.iter().map(|(_, c, _)| format!("%{c}")).collect();
            all.dedup();
            Err(format!("there is no such placeholder, use one of {}, or %%", all.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::judge::Secret;
    use broker::{Certificate, ListenerId};
    use std::sync::Arc;

    fn claim() -> Claim {
        Claim {
            peer: Address::Network(([192, 0, 2, 1], 1).into()),
            version: mqtt::Version::V5,
            client_id: "c/1".into(),
            user_name: Some("a'n\"n&".into()),
            password: Some(Secret(b"p\0\n\xff".as_slice().into())),
            listener: ListenerId(1),
            step: None,
            certificate: Some(Arc::new(Certificate {
                common_name: Some("cn".into()),
                subject: "CN=cn".into(),
                alternatives: Vec::new(),
            })),
        }
    }

    fn filled(text: &str) -> String {
        let claim = claim();
        let values = Values { claim: &claim, ports: &[None, Some(8883)] };
        Template::parse(text, true).unwrap().fill_url(values)
    }

    #[test]
    fn each_way_to_name_a_value_is_known() {
        assert_eq!(filled("%u %c %P %a %p %C %d %r"), {
            let all = "${username} ${clientid} ${password} ${peerhost} ${listener} ${cert_cn} \
                       ${cert_subject} ${protocol}";
            filled(all)
        });
        assert_eq!(filled("%a/%p/%C/%r"), "192.0.2.1/8883/cn/mqtt");
        assert_eq!(filled("%%u %20 $5 ${cert_common_name}"), "%u %20 $5 cn");
    }

    #[test]
    fn a_value_does_not_leave_its_place() {
        assert_eq!(filled("/?u=%u&p=%P&c=%c"), "/?u=a%27n%22n%26&p=p%00%0A%FF&c=c%2F1");
        let claim = claim();
        let values = Values { claim: &claim, ports: &[] };
        let template = Template::parse("key:${username}", false).unwrap();
        assert_eq!(template.fill(values), b"key:a'n\"n&");
    }

    #[test]
    fn in_a_query_a_mark_stands_for_a_value() {
        let mark = |n: usize| format!("${n}");
        let bind = |text: &str| Template::parse(text, false).unwrap().bind(mark);
        assert_eq!(
            bind("SELECT '%u' FROM t WHERE u = ${username} AND c = ${clientid}"),
            Ok((
                "SELECT '%u' FROM t WHERE u = $1 AND c = $2".into(),
                vec![Value::UserName, Value::ClientId]
            ))
        );
        assert!(bind("u = 'it''s' AND c = ${clientid}").is_ok());
        for wrong in ["u = '${username}'", "\"a${username}\"", "`${username}`", "'\"${username}"] {
            assert!(bind(wrong).unwrap_err().contains("without quotes"), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_placeholder_is_told() {
        for wrong in ["${user}", "${username", "%x", "%", "a%\u{e9}"] {
            let why = Template::parse(wrong, true).unwrap_err();
            assert!(why.starts_with("there is no such placeholder, use one of"), "{why}");
        }
        assert!(Template::parse("%x", false).is_ok());
    }
}
