//! Templates with placeholders for values of a client or of an action. A value never changes the
//! structure of the text: values are escaped or bound as parameters.

use broker::access_rules::acl_rules::AclAction;
use broker::interface::authz::AuthzRequest;
use broker::{AuthRequest, ListenerId, PeerAddress};
use mqtt::template::{TemplatePart, TextTemplate, unknown_placeholder};
use net::server_url::percent_encode;
use net::sql::{BOUND, quote_after};
use std::borrow::Cow;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthTemplate(TextTemplate<AuthVariable>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthVariable {
    Access,
    Action,
    Address,
    CertificateName,
    CertificateSubject,
    ClientId,
    Listener,
    Namespace,
    Password,
    Protocol,
    QoS,
    Retain,
    Topic,
    UserName,
}

/// Subject of a template: a client, or an action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateScope {
    Client,
    AuthzRequest,
}

/// Placeholders with their names, this project's first; NanoMQ and mosquitto-go-auth use the
/// letters.
const NAMES: &[(&str, char, AuthVariable)] = &[
    ("username", 'u', AuthVariable::UserName),
    ("clientid", 'c', AuthVariable::ClientId),
    ("password", 'P', AuthVariable::Password),
    ("peerhost", 'a', AuthVariable::Address),
    ("listener", 'p', AuthVariable::Listener),
    ("cert_cn", 'C', AuthVariable::CertificateName),
    ("cert_common_name", 'C', AuthVariable::CertificateName),
    ("cert_subject", 'd', AuthVariable::CertificateSubject),
    ("protocol", 'r', AuthVariable::Protocol),
    ("topic", 't', AuthVariable::Topic),
    ("access", 'A', AuthVariable::Access),
    ("action", NO_LETTER, AuthVariable::Action),
    ("qos", NO_LETTER, AuthVariable::QoS),
    ("retain", NO_LETTER, AuthVariable::Retain),
    ("namespace", NO_LETTER, AuthVariable::Namespace),
];
const NO_LETTER: char = '\0';

/// Source of the values, with the ports of the listeners in their order.
#[derive(Clone, Copy)]
pub enum AuthVariableSource<'a> {
    Client { request: &'a AuthRequest, ports: &'a [Option<u16>] },
    AuthzRequest { question: &'a AuthzRequest, ports: &'a [Option<u16>] },
}

impl AuthVariable {
    /// Returns the value, empty if absent.
    pub fn resolve<'a>(self, values: AuthVariableSource<'a>) -> Cow<'a, [u8]> {
        match values {
            AuthVariableSource::Client { request, ports } => self.resolve_client(request, ports),
            AuthVariableSource::AuthzRequest { question, ports } => {
                self.resolve_authz_request(question, ports)
            }
        }
    }

    /// Whether a template of this scope may use the variable.
    fn is_allowed_in(self, about: TemplateScope) -> bool {
        use AuthVariable::{
            Access, Action, CertificateSubject, Namespace, Password, QoS, Retain, Topic,
        };
        match self {
            CertificateSubject | Password => about == TemplateScope::Client,
            Access | Action | Namespace | QoS | Retain | Topic => {
                about == TemplateScope::AuthzRequest
            }
            _ => true,
        }
    }

    fn resolve_authz_request<'a>(
        self,
        question: &'a AuthzRequest,
        ports: &[Option<u16>],
    ) -> Cow<'a, [u8]> {
        let publishes = question.action == AclAction::Publish;
        let text = |text: Option<&'a str>| Cow::Borrowed(text.unwrap_or_default().as_bytes());
        match self {
            AuthVariable::Access => text(Some(if publishes { "2" } else { "1" })),
            AuthVariable::Action => text(Some(if publishes { "publish" } else { "subscribe" })),
            AuthVariable::Address => match question.address {
                Some(address) => Cow::Owned(address.to_canonical().to_string().into_bytes()),
                None => Cow::Borrowed(b"unix"),
            },
            AuthVariable::CertificateName => text(question.common_name.as_deref()),
            AuthVariable::ClientId => text(Some(&question.client_id)),
            AuthVariable::Listener => port_of(question.listener, ports),
            AuthVariable::Namespace => text(Some(&question.namespace)),
            AuthVariable::Protocol => Cow::Borrowed(b"mqtt"),
            AuthVariable::QoS => Cow::Owned(question.qos.to_string().into_bytes()),
            AuthVariable::Retain => text(Some(if question.retain { "true" } else { "false" })),
            AuthVariable::Topic => text(Some(&question.topic)),
            AuthVariable::UserName => text(question.user.as_deref()),
            AuthVariable::CertificateSubject | AuthVariable::Password => Cow::Borrowed(b""),
        }
    }

    fn resolve_client<'a>(self, request: &'a AuthRequest, ports: &[Option<u16>]) -> Cow<'a, [u8]> {
        let certificate = request.certificate.as_deref();
        let text = |text: Option<&'a str>| Cow::Borrowed(text.unwrap_or_default().as_bytes());
        match self {
            AuthVariable::Address => match request.peer {
                PeerAddress::Network(address) => {
                    Cow::Owned(address.ip().to_canonical().to_string().into_bytes())
                }
                PeerAddress::Unix { .. } => Cow::Borrowed(b"unix"),
            },
            AuthVariable::CertificateName => {
                text(certificate.and_then(|own| own.common_name.as_deref()))
            }
            AuthVariable::CertificateSubject => text(certificate.map(|own| &*own.subject)),
            AuthVariable::ClientId => text(Some(&request.client_id)),
            AuthVariable::Listener => port_of(request.listener, ports),
            AuthVariable::Password => {
                Cow::Borrowed(request.password.as_ref().map_or(&[], |secret| &secret.0))
            }
            AuthVariable::Protocol => Cow::Borrowed(b"mqtt"),
            AuthVariable::UserName => text(request.user_name.as_deref()),
            AuthVariable::Access
            | AuthVariable::Action
            | AuthVariable::Namespace
            | AuthVariable::QoS
            | AuthVariable::Retain
            | AuthVariable::Topic => Cow::Borrowed(b""),
        }
    }
}

fn port_of(listener: ListenerId, ports: &[Option<u16>]) -> Cow<'static, [u8]> {
    match ports.get(usize::from(listener.0)) {
        Some(Some(port)) => Cow::Owned(port.to_string().into_bytes()),
        _ => Cow::Borrowed(b"unix"),
    }
}

impl AuthTemplate {
    /// Parses `${username}` and similar placeholders; with `letters` also `%u`, and `%%` for a
    /// percent sign. A percent sign before two hex digits is an encoded byte and stays.
    pub fn parse(text: &str, letters: bool) -> Result<AuthTemplate, String> {
        AuthTemplate::read(text, letters, TemplateScope::Client)
    }

    /// Parses a template about an action, with letters.
    pub fn parse_wish(text: &str) -> Result<AuthTemplate, String> {
        AuthTemplate::read(text, true, TemplateScope::AuthzRequest)
    }

    fn read(text: &str, letters: bool, about: TemplateScope) -> Result<AuthTemplate, String> {
        let name = |name: &str| named_variable(name, about).map(TemplatePart::Value);
        let template = TextTemplate::parse_signs(text, name, |rest| match letters {
            true if rest.starts_with('%') => parse_letter(rest, about),
            _ => Ok(None),
        });
        Ok(AuthTemplate(template?))
    }

    pub fn has(&self, wanted: AuthVariable) -> bool {
        self.0.values().any(|value| *value == wanted)
    }

    /// Fills the template for a URL, with percent-encoded values.
    pub fn fill_url(&self, values: AuthVariableSource<'_>) -> String {
        let mut out = String::new();
        self.0.fill(&mut out, |value, out| percent_encode(&value.resolve(values), out));
        out
    }

    /// Fills the template without escaping, for a value that is passed as a whole.
    pub fn fill(&self, values: AuthVariableSource<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.fill(&mut out, |value, out: &mut Vec<u8>| out.extend(&*value.resolve(values)));
        out
    }

    /// Returns the query with `mark` in the place of each variable, and the variables to bind. A
    /// placeholder inside quotes is an error, since the mark would be literal text there.
    pub fn bind(&self, mark: fn(usize) -> String) -> Result<(String, Vec<AuthVariable>), String> {
        let (query, values) = self.0.bind(mark, quote_after).ok_or(BOUND)?;
        Ok((query, values.into_iter().copied().collect()))
    }
}

fn named_variable(name: &str, about: TemplateScope) -> Result<AuthVariable, String> {
    let known = NAMES.iter().filter(|(.., value)| value.is_allowed_in(about));
    match known.clone().find(|(known, ..)| *known == name) {
        Some((.., value)) => Ok(*value),
        None => {
            let all: Vec<String> = known.map(|(name, ..)| format!("${{{name}}}")).collect();
            let all = all.iter().map(String::as_str);
            Err(unknown_placeholder(&format!("${{{name}}}"), all))
        }
    }
}

/// Parses a placeholder with a letter; `rest` begins with the percent sign.
fn parse_letter(
    rest: &str,
    about: TemplateScope,
) -> Result<Option<(TemplatePart<AuthVariable>, usize)>, String> {
    let bytes = rest.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    if is_hex(1) && is_hex(2) {
        return Ok(None);
    }
    let letter = rest.chars().nth(1);
    if letter == Some('%') {
        return Ok(Some((TemplatePart::Text("%".to_string()), 2)));
    }
    let is_known =
        |(_, c, value): &&(_, char, AuthVariable)| value.is_allowed_in(about) && *c != NO_LETTER;
    let known = NAMES.iter().filter(is_known);
    match known.clone().find(|(_, known, _)| Some(*known) == letter) {
        Some((_, _, value)) => Ok(Some((TemplatePart::Value(*value), 2))),
        None => {
            let mut all: Vec<String> = known.map(|(_, c, _)| format!("%{c}")).collect();
            all.dedup();
            all.push("%%".to_string());
            let wrong: String = rest.chars().take(2).collect();
            Err(unknown_placeholder(&wrong, all.iter().map(String::as_str)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::peer::authentication::SecretBytes;
    use broker::{ListenerId, PeerCertificate};
    use std::sync::Arc;

    fn claim() -> AuthRequest {
        AuthRequest {
            peer: PeerAddress::Network(([192, 0, 2, 1], 1).into()),
            version: mqtt::ProtocolVersion::V5,
            client_id: "c/1".into(),
            user_name: Some("a'n\"n&".into()),
            password: Some(SecretBytes(b"p\0\n\xff".as_slice().into())),
            listener: ListenerId(1),
            step: None,
            certificate: Some(Arc::new(PeerCertificate {
                common_name: Some("cn".into()),
                subject: "CN=cn".into(),
                alternatives: Vec::new(),
            })),
        }
    }

    fn filled(text: &str) -> String {
        let request = claim();
        let values = AuthVariableSource::Client { request: &request, ports: &[None, Some(8883)] };
        AuthTemplate::parse(text, true).unwrap().fill_url(values)
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
        let request = claim();
        let values = AuthVariableSource::Client { request: &request, ports: &[] };
        let template = AuthTemplate::parse("key:${username}", false).unwrap();
        assert_eq!(template.fill(values), b"key:a'n\"n&");
    }

    #[test]
    fn in_a_query_a_mark_stands_for_a_value() {
        let mark = |n: usize| format!("${n}");
        let bind = |text: &str| AuthTemplate::parse(text, false).unwrap().bind(mark);
        assert_eq!(
            bind("SELECT '%u' FROM t WHERE u = ${username} AND c = ${clientid}"),
            Ok((
                "SELECT '%u' FROM t WHERE u = $1 AND c = $2".into(),
                vec![AuthVariable::UserName, AuthVariable::ClientId]
            ))
        );
        assert!(bind("u = 'it''s' AND c = ${clientid}").is_ok());
        for wrong in ["u = '${username}'", "\"a${username}\"", "`${username}`", "'\"${username}"] {
            assert!(bind(wrong).unwrap_err().contains("without quotes"), "{wrong}");
        }
    }

    #[test]
    fn what_a_client_wants_has_names_of_its_own() {
        let question = AuthzRequest {
            client_id: "c/1".into(),
            namespace: "n".into(),
            user: None,
            address: Some([192, 0, 2, 1].into()),
            listener: ListenerId(1),
            common_name: Some("cn".into()),
            action: AclAction::Subscribe,
            topic: "a/+ b&\"#".into(),
            qos: 1,
            retain: false,
        };
        let values =
            AuthVariableSource::AuthzRequest { question: &question, ports: &[None, Some(8883)] };
        let filled = |text: &str| AuthTemplate::parse_wish(text).unwrap().fill_url(values);
        assert_eq!(
            filled("%u|%c|%a|%p|%C|%r|%t|%A"),
            "|c%2F1|192.0.2.1|8883|cn|mqtt|a%2F%2B%20b%26%22%23|1"
        );
        assert_eq!(filled("${action} ${qos} ${retain} ${namespace}"), "subscribe 1 false n");
        for wrong in ["${password}", "%P", "%d", "%\0"] {
            let why = AuthTemplate::parse_wish(wrong).unwrap_err();
            assert!(
                why.contains("use one of ${username}, ") || why.contains("use one of %u, "),
                "{why}"
            );
            assert!(!why.contains("%P,") && !why.contains("{password},"), "{why}");
        }
        assert!(
            AuthTemplate::parse("${topic}", true).is_err()
                && AuthTemplate::parse("%t", true).is_err()
        );
    }

    #[test]
    fn what_is_no_placeholder_is_told() {
        for wrong in ["${user}", "${username", "%x", "%", "a%\u{e9}"] {
            let why = AuthTemplate::parse(wrong, true).unwrap_err();
            assert!(why.starts_with("at character "), "{why}");
        }
        assert!(AuthTemplate::parse("%x", false).is_ok());
    }
}
