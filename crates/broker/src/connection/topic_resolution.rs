//! From the topic name of a PUBLISH to the topic that is routed: aliases, rewrite rules, delays.

use crate::access_rules::acl_rules::AclAction;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{ConnId, SessionId};
use crate::memory::SMALL_BYTES_MAX;
use crate::refusal::{CloseReason, Refusal};
use crate::routing::delayed;
use crate::session::session_table::SessionTable;
use mqtt::{Property, Publish, Violation};
use std::borrow::Cow;
use std::sync::Arc;

impl ConnectionTable {
    pub(crate) fn resolve_topic<'a>(
        &self,
        id: SessionId,
        name: &'a str,
        sessions: &SessionTable,
    ) -> Result<ResolvedTopic<'a>, Refusal> {
        let (delay_s, topic) = delayed::split_delay(name)?;
        let made = match sessions.context.options.rewrites.is_empty() {
            true => None,
            false => sessions.context.rewrite_name(
                AclAction::Publish,
                topic,
                &self.placeholder_values(id, sessions),
            )?,
        };
        Ok(ResolvedTopic { topic: made.map_or(Cow::Borrowed(topic), Cow::Owned), delay_s })
    }

    /// Returns the topic of an alias, or `None` if the packet contains the topic itself. A packet
    /// with both sets the alias.
    pub(crate) fn resolve_alias(
        &mut self,
        conn: ConnId,
        packet: &Publish<'_>,
        alias: Option<u16>,
        sessions: &mut SessionTable,
    ) -> Result<Option<Arc<str>>, CloseReason> {
        let Some(alias) = alias else { return Ok(None) };
        let Some(known) = self.conn_mut(conn) else { return Ok(None) };
        // [MQTT-3.3.2-8] [MQTT-3.3.2-9] [MQTT-3.2.2-17] [MQTT-3.2.2-18]
        if alias == 0 || alias > known.topic_alias_max {
            return Err(Violation::AliasOutOfRange.into());
        }
        // [MQTT-3.3.2-12]
        let place = usize::from(alias) - 1;
        if packet.topic.is_empty() {
            let topic = known.aliases.get(place).cloned().flatten();
            return topic.map(Some).ok_or(Violation::AliasUnknown.into());
        }
        if known.aliases.get(place).and_then(Option::as_deref) == Some(packet.topic) {
            return Ok(None);
        }
        self.set_alias(conn, place, packet.topic, sessions)?;
        Ok(None)
    }

    #[cold]
    pub(crate) fn topic_of_alias(&self, conn: ConnId, packet: &Publish<'_>) -> Option<Arc<str>> {
        let alias = packet.properties.iter().find_map(|property| match property {
            Property::TopicAlias(alias) => Some(usize::from(alias)),
            _ => None,
        })?;
        self.conn(conn)?.aliases.get(alias.checked_sub(1)?)?.clone()
    }

    /// Sets a topic alias. The client relies on every alias it has set, so lack of memory ends the
    /// connection: `Refusal::QuotaExceeded` beyond `SMALL_BYTES_MAX` under high memory pressure.
    fn set_alias(
        &mut self,
        conn: ConnId,
        place: usize,
        topic: &str,
        sessions: &mut SessionTable,
    ) -> Result<(), Refusal> {
        let tight = sessions.is_pressure_high();
        let Some(known) = self.conn_mut(conn) else { return Ok(()) };
        let before = known.alias_bytes;
        if known.aliases.len() <= place {
            known.alias_bytes += ((place + 1 - known.aliases.len()) * size_of::<Arc<str>>()) as u32;
            known.aliases.resize(place + 1, None);
        }
        let old = known.aliases[place].replace(topic.into());
        known.alias_bytes += (topic.len() + ALIAS_BYTES) as u32;
        known.alias_bytes -= old.map_or(0, |old| old.len() + ALIAS_BYTES) as u32;
        let after = known.alias_bytes;
        sessions.ledger.aliases = sessions.ledger.aliases + u64::from(after) - u64::from(before);
        if tight && after > before && after as usize > SMALL_BYTES_MAX {
            return Err(Refusal::QuotaExceeded);
        }
        Ok(())
    }
}

/// A topic name of a PUBLISH after `$delayed/` and the rewrites were applied.
#[derive(Debug)]
pub(crate) struct ResolvedTopic<'a> {
    pub(crate) topic: Cow<'a, str>,
    /// Delay in seconds; 0 publishes at once.
    pub(crate) delay_s: u32,
}

/// Memory of an alias in addition to its topic: counters, and the allocator's overhead.
pub(crate) const ALIAS_BYTES: usize = 32;
