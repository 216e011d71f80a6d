//! Preset sessions, for clients that have not connected yet: created when the process starts or the
//! options change, and from then on the same as any session of an offline client. An existing
//! session is never changed.

use crate::authorization::client_permissions::ClientPermissions;
use crate::input::MonotonicMs;
use crate::limits::LINK_IDS;
use crate::routing::ShardRouting;
use crate::routing::rewrite::is_special;
use crate::routing::topics::SubscriptionFlags;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::{ProtocolVersion, QoS, SubscribeOptions};

/// A `[[preset]]` table of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetSession {
    client_id: Box<str>,
    user: Option<Box<str>>,
    filters: Vec<Box<str>>,
    qos: QoS,
    expiry_s: u32,
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

impl Shard {
    /// Creates the preset sessions that this shard owns and that do not exist. Called before
    /// clients may connect.
    pub fn make_presets(&mut self) {
        let presets = self.sessions.context.options.presets.clone();
        for preset in presets.iter() {
            if self.sessions.context.owner_of(&preset.client_id) == self.sessions.context.id
                && self.sessions.find(&preset.client_id).is_none()
            {
                self.routing.make_preset(preset, &mut self.sessions);
            }
        }
    }
}

impl ShardRouting {
    fn make_preset(&mut self, preset: &PresetSession, sessions: &mut SessionTable) {
        // The client's version replaces this one at CONNECT.
        let id = sessions.create(&preset.client_id, ProtocolVersion::V5);
        let session = sessions.get_mut(id);
        session.expiry_s = preset.expiry_s;
        let generation = session.generation;
        if let Some(user) = &preset.user {
            sessions.set_permissions(id, Some(Box::new(ClientPermissions::of_absent_user(user))));
        }
        self.make_persistent(id, sessions);
        let qos = preset.qos.min(sessions.context.qos_max());
        let options = SubscribeOptions { qos, ..SubscribeOptions::default() };
        for filter in &preset.filters {
            self.subscribe_own(id, filter, options, 0, sessions);
            sessions.write_filter(id, filter, SubscriptionFlags::new(options), 0);
        }
        if preset.expiry_s != u32::MAX {
            let at = MonotonicMs(sessions.context.now.0 + u64::from(preset.expiry_s) * 1000);
            sessions.get_mut(id).extras().ends_at = Some(at);
            sessions.context.timers.set(at, ShardTimer::Session { index: id.0, generation });
        }
        sessions.note_away(id);
    }
}
