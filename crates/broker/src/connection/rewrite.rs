//! Topics and filters of a connection after rewrite rules.

use crate::access_rules::acl_rules::AclAction;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{ConnId, SessionId};
use crate::interface::cache_message::{ParsedCacheRequest, response_topic};
use crate::limits::LINK_IDS;
use crate::message::namespace;
use crate::permissions::client_permissions::ClientPermissions;
use crate::permissions::placeholder_values::client_placeholder_values;
use crate::refusal::Refusal;
use crate::session::session_table::SessionTable;
use crate::special_topics::EXCLUSIVE;
use mqtt::{Connect, Publish, SharedFilter};
use std::borrow::Cow;

impl ConnectionTable {
    /// Rewrites a filter. A prefix `$share/GROUP/` or `$exclusive/` stays in front of the new name.
    pub(crate) fn rewrite_filter<'a>(
        &self,
        id: SessionId,
        filter: &'a str,
        sessions: &SessionTable,
    ) -> Result<Cow<'a, str>, Refusal> {
        // Links compare the topics they receive with the filters they sent.
        let is_link = || sessions.get(id).client_id.starts_with(LINK_IDS);
        if sessions.context.options.rewrites.is_empty() || is_link() {
            return Ok(Cow::Borrowed(filter));
        }
        let (front, inner) = match SharedFilter::parse(filter).ok().flatten() {
            Some(SharedFilter { group, filter }) => (format!("$share/{group}/"), filter),
            None => match filter.strip_prefix(EXCLUSIVE) {
                Some(inner) => (EXCLUSIVE.to_string(), inner),
                None => (String::new(), filter),
            },
        };
        let made = sessions.context.rewrite_name(
            AclAction::Subscribe,
            inner,
            &self.placeholder_values(id, sessions),
        )?;
        Ok(made.map_or(Cow::Borrowed(filter), |made| Cow::Owned(front + &made)))
    }

    /// Rewrites the topic of a client's will and checks the new topic.
    pub(crate) fn rewrite_will_topic(
        &self,
        conn: ConnId,
        client_id: &str,
        packet: &Connect<'_>,
        sessions: &SessionTable,
    ) -> Result<Option<String>, Refusal> {
        let (Some(will), Some(known)) = (&packet.will, self.conn(conn)) else { return Ok(None) };
        if sessions.context.options.rewrites.is_empty() {
            return Ok(None);
        }
        let rights = ClientPermissions::of_peer(&known.peer, &sessions.context.options);
        let whom = client_placeholder_values(client_id, rights.as_deref(), Some(&known.peer));
        let made = sessions.context.rewrite_name(AclAction::Publish, will.topic, &whom)?;
        if let Some(made) = &made {
            self.limits_at(conn, sessions).check_topic(made)?;
            namespace::check_name(
                namespace::prefix_len(&self.namespace_at(conn, sessions)?),
                made,
            )?;
        }
        Ok(made)
    }

    /// Returns the access checks of a request, in addition to the check of the topic `$cache/NAME`.
    pub(crate) fn cache_request_checks(
        &self,
        id: SessionId,
        packet: &Publish<'_>,
        topic: &str,
        sessions: &SessionTable,
    ) -> Vec<(AclAction, String)> {
        let (Some(said), Ok(request)) =
            (response_topic(packet), ParsedCacheRequest::parse(topic, packet.payload))
        else {
            return Vec::new();
        };
        let made = sessions.context.rewrite_name(
            AclAction::Publish,
            said,
            &self.placeholder_values(id, sessions),
        );
        let filter = self.rewrite_filter(id, &request.filter, sessions);
        let (Ok(made), Ok(filter)) = (made, filter) else { return Vec::new() };
        let said = made.unwrap_or_else(|| said.to_string());
        vec![(AclAction::Publish, said), (AclAction::Subscribe, filter.into_owned())]
    }
}
