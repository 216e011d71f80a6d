//! Settings of a `[[gateway]]`, with the checks across options. The rows are in `rows`.

use super::address::SocketAddress;
use super::formats::{GatewayFormat, MultipartPolicy};
use super::rules::{GatewayRuleSettings, GatewayRules};
use crate::LinkSettings;
use crate::connection::READ_BYTES;
use crate::local_session::{LinkIdentity, row_subscription};
use crate::option_rows::{LinkTlsSettings, check_retry};
use broker::peer::authentication::SecretBytes;
use mqtt::{QoS, SubscribeOptions};
use std::sync::Arc;
use std::time::Duration;
use zmtp_sp::{MessageLimits, PlainCredentials, ProtocolFamily, RoutingStrategy, SocketType};

pub use super::rows::{IN_ROWS, OUT_ROWS, ROWS};

/// Settings of a gateway, from the options in `rows`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewaySettings {
    pub name: Arc<str>,
    pub family: ProtocolFamily,
    pub pattern: SocketType,
    pub listen: Vec<SocketAddress>,
    pub dial: Vec<SocketAddress>,
    /// Value of the option `form`; "auto" depends on pattern and family.
    pub(super) form_given: String,
    pub(super) delimiter: String,
    pub form: GatewayFormat,
    pub separator: String,
    pub multipart: MultipartPolicy,
    pub user_name: String,
    pub password: Option<SecretBytes>,
    /// Identity by which permissions apply; an empty user has all permissions.
    pub(super) identity_given: LinkIdentity,
    pub tls: LinkTlsSettings,
    pub ipc_mode: u32,
    pub peers_max: u32,
    pub peers_bytes_max: u32,
    pub message_bytes_max: u32,
    pub subscriptions_max: u32,
    pub queue_messages_max: u32,
    pub queue_bytes_max: u32,
    pub connect_timeout_s: u32,
    pub answer_timeout_ms: u32,
    pub response_topic: String,
    pub retry_min_ms: u32,
    pub retry_max_s: u32,
    pub rules: Arc<GatewayRules>,
    /// Whether rules of this broker send rows to the gateway.
    pub takes_rows: bool,
    /// Limits of the local session.
    pub limits: Arc<broker::BrokerOptions>,
}

impl GatewaySettings {
    pub fn dials_tls(&self) -> bool {
        self.dial.iter().any(SocketAddress::is_tls)
    }

    pub fn serves_tls(&self) -> bool {
        self.listen.iter().any(SocketAddress::is_tls)
    }

    pub fn connect_timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.connect_timeout_s))
    }

    pub fn answer_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.answer_timeout_ms))
    }

    pub fn peer_limits(&self) -> MessageLimits {
        MessageLimits { message_bytes_max: self.message_bytes_max as usize }
    }

    /// Returns the bound in bytes of requests to sockets, and of requests to clients: a quarter of
    /// `peers_bytes_max` each, in addition to other messages.
    pub(super) fn requests_bytes_max(&self) -> usize {
        self.peers_bytes_max as usize / 4
    }

    pub fn plain(&self) -> Option<PlainCredentials> {
        let password = self.password.as_ref()?.0.clone();
        Some(PlainCredentials { user_name: self.user_name.as_str().into(), password })
    }

    pub fn identity(&self) -> Option<&LinkIdentity> {
        Some(&self.identity_given).filter(|own| !own.user.is_empty())
    }

    /// Returns the subscriptions of the local session. `qos_max` is this broker's Maximum QoS.
    pub(super) fn subscriptions(&self, qos_max: QoS) -> Vec<(String, SubscribeOptions)> {
        // Sockets acknowledge once, so QoS 2 has no use.
        let qos = QoS::AtLeastOnce.min(qos_max);
        let rules = self.rules.outward.iter();
        let mut wanted: Vec<_> =
            rules.map(|rule| (rule.map.filter.clone(), rule.subscribe_options(qos_max))).collect();
        if self.pattern.sends_replies() {
            let (no_local, retain_as_published) = (true, false);
            let options =
                SubscribeOptions { qos, no_local, retain_as_published, retain_handling: 2 };
            wanted.push((self.response_topic(), options));
        }
        wanted.extend(self.takes_rows.then(|| row_subscription(&self.link_id(), qos)));
        wanted
    }

    /// Returns the topic for responses to requests of sockets.
    pub fn response_topic(&self) -> String {
        match self.response_topic.as_str() {
            "" => format!("gateway/{}/answers", self.name),
            own => own.to_string(),
        }
    }

    /// Whether outgoing messages wait for a peer instead of being skipped without one.
    pub fn waits_for_peers(&self) -> bool {
        self.pattern.routing() == RoutingStrategy::One || self.pattern == SocketType::Surveyor
    }

    /// Checks the options together and builds format and rules. The error names the wrong or
    /// missing option.
    pub fn resolve_options(
        &mut self,
        rules: (&[GatewayRuleSettings], &[GatewayRuleSettings]),
    ) -> Result<(), String> {
        self.check_sockets()?;
        self.form = self.resolve_format()?;
        self.check_rules(rules.0, rules.1)?;
        let own = ("gateway", &*self.name);
        let rules = GatewayRules::new(rules.0, rules.1, own, &self.form, &self.separator)?;
        self.rules = rules.into();
        check_retry(self.retry_min_ms, self.retry_max_s)?;
        if (self.queue_bytes_max as usize) < self.peer_limits().message_bytes_max {
            return Err("peer.queue_bytes_max has to have room for message_bytes_max".to_string());
        }
        if (self.peers_bytes_max as usize) < self.peer_limits().message_bytes_max + READ_BYTES {
            let why = "peers_bytes_max has to have room for message_bytes_max and 64KiB";
            return Err(why.to_string());
        }
        self.check_secrets()
    }

    fn check_sockets(&self) -> Result<(), String> {
        if !self.pattern.is_in_family(self.family) {
            let names: Vec<&str> = SocketType::all(self.family).map(SocketType::name).collect();
            let family = self.family_word();
            let (own, names) = (self.pattern.name(), names.join(", "));
            return Err(format!("{family} has no pattern {own:?}, it has {names}"));
        }
        if self.listen.is_empty() && self.dial.is_empty() {
            return Err("a gateway needs listen = [\"tcp://127.0.0.1:5555\"], or dial".to_string());
        }
        let wrong =
            |place: &&SocketAddress| self.family == ProtocolFamily::Zmq && !place.is_plain();
        match self.listen.iter().chain(&self.dial).find(wrong) {
            Some(place) => Err(format!("{place}: zmq goes over tcp:// and ipc://")),
            None => Ok(()),
        }
    }

    fn family_word(&self) -> &'static str {
        match self.family {
            ProtocolFamily::Sp => "sp",
            ProtocolFamily::Zmq => "zmq",
        }
    }

    fn resolve_format(&self) -> Result<GatewayFormat, String> {
        let is_talk = self.pattern.sends_requests() || self.pattern.sends_replies();
        let given = match (self.form_given.as_str(), self.family) {
            ("auto", _) if is_talk => "raw",
            ("auto", ProtocolFamily::Sp) => "delimited",
            ("auto", ProtocolFamily::Zmq) => "frames",
            (given, _) => given,
        };
        match given {
            "frames" if self.family == ProtocolFamily::Sp => Err(
                "form = \"frames\" is zmq's, a message of sp has one: use delimited, json or raw"
                    .to_string(),
            ),
            "delimited" if self.delimiter.is_empty() => {
                Err("form = \"delimited\" needs a delimiter".to_string())
            }
            "frames" => Ok(GatewayFormat::Frames),
            "delimited" => Ok(GatewayFormat::Delimited(self.delimiter.clone())),
            "json" => Ok(GatewayFormat::Json),
            _ => Ok(GatewayFormat::Raw),
        }
    }

    fn check_rules(
        &self,
        out: &[GatewayRuleSettings],
        inward: &[GatewayRuleSettings],
    ) -> Result<(), String> {
        let pattern = self.pattern;
        let name = pattern.name();
        let goes_out = self.sends_own_messages();
        let comes_in = pattern.receives() && !pattern.sends_requests();
        if !out.is_empty() && !goes_out {
            return Err(format!("{name} sends nothing of its own: it has no [[gateway.out]]"));
        }
        if !inward.is_empty() && !comes_in {
            return Err(format!("{name} hears nothing of its own: it has no [[gateway.in]]"));
        }
        Ok(())
    }

    /// Whether the pattern sends messages other than responses.
    fn sends_own_messages(&self) -> bool {
        self.pattern.routing() != RoutingStrategy::None && !self.pattern.sends_replies()
    }

    /// Returns an error if rules of the broker send to a pattern which cannot send, or if the
    /// gateway has no rule at all.
    pub fn check_rule_target(&self, is_sent_to: bool) -> Option<String> {
        let (name, pattern) = (&self.name, self.pattern.name());
        if is_sent_to && !self.sends_own_messages() {
            return Some(format!(
                "{pattern} sends nothing of its own: no [[rule]] can send.to gateway/{name}"
            ));
        }
        let has_some = !self.rules.outward.is_empty() || !self.rules.inward.is_empty();
        (!has_some && !is_sent_to).then(|| match self.sends_own_messages() {
            true => format!(
                "a gateway needs a rule: [[gateway.out]], or a [[rule]] with \
                 send.to = [\"gateway/{name}\"]"
            ),
            false => "a gateway needs a rule: [[gateway.in]]".to_string(),
        })
    }

    fn check_secrets(&self) -> Result<(), String> {
        if self.user_name.is_empty() != self.password.is_none() {
            return Err("user_name and password go together".to_string());
        }
        if !self.user_name.is_empty() && self.family == ProtocolFamily::Sp {
            return Err("sp knows no passwords: use TLS with tls.ca".to_string());
        }
        if self.identity().is_none() && !self.identity_given.groups.is_empty() {
            return Err("identity.groups needs identity.user".to_string());
        }
        let password_len = self.password.as_ref().map_or(0, |password| password.0.len());
        if self.user_name.len() > 255 || password_len > 255 {
            return Err("user_name and password have at most 255 bytes".to_string());
        }
        let is_spoken = self.dials_tls() || self.serves_tls();
        self.tls.check(is_spoken, "tls+tcp:// and wss://: none is")?;
        if self.serves_tls() && self.tls.key.as_os_str().is_empty() {
            return Err("to listen with TLS it needs tls.certificate and tls.key".to_string());
        }
        Ok(())
    }

    /// Returns the first listener which clients of other hosts can use without a password or a
    /// certificate.
    pub fn first_open_listener(&self) -> Option<&SocketAddress> {
        let asks = |place: &SocketAddress| {
            !self.user_name.is_empty()
                || place.is_tls() && !self.tls.authorities.as_os_str().is_empty()
        };
        self.listen.iter().find(|place| !place.is_local() && !asks(place))
    }
}
