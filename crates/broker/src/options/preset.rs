//! Preset sessions, for clients that have not connected yet: created when the process starts or the
//! options change, and from then on the same as any session of an offline client. An existing
//! session is never changed.

use crate::limits::LINK_IDS;
use crate::options::rewrite::is_special;
use mqtt::QoS;

/// A `[[preset]]` table of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetSession {
    pub(crate) client_id: Box<str>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) filters: Vec<Box<str>>,
    pub(crate) qos: QoS,
    pub(crate) expiry_s: u32,
}

impl PresetSession {
    /// Parses the values of a table. The error names the wrong value and shows a valid one.
    pub fn parse(
        client_id: &str,
        user: Option<&str>,
        filters: &[String],
        qos: QoS,
        expiry_s: u32,
    ) -> Result<PresetSession, String> {
        if client_id.is_empty() || client_id.contains('\0') || client_id.starts_with(LINK_IDS) {
            return Err("client_id is missing, or one that no client has".to_string());
        }
        if filters.is_empty() {
            return Err("a preset needs subscriptions = [\"a/#\"]".to_string());
        }
        if expiry_s == 0 {
            return Err("expiry_s = 0 ends it at once, use seconds or \"never\"".to_string());
        }
        for filter in filters {
            if mqtt::topic::check_filter(filter).is_err() || is_special(filter) {
                let why = "is not a topic filter that it can have, use one like \"a/#\"";
                return Err(format!("subscriptions: {filter:?} {why}"));
            }
        }
        Ok(PresetSession {
            client_id: client_id.into(),
            user: user.map(Into::into),
            filters: filters.iter().map(|filter| filter.as_str().into()).collect(),
            qos,
            expiry_s,
        })
    }

    /// Returns the client id of the session.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }
}
