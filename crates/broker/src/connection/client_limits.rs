//! The limits of a client before CONNACK, by its listener and its client group.

use crate::access_rules::client_group_counter::ClientGroupId;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::ConnId;
use crate::options::BrokerOptions;
use crate::permissions::client_permissions::ClientPermissions;
use crate::refusal::Refusal;
use crate::session::session_table::SessionTable;

impl ConnectionTable {
    pub(crate) fn limits_at<'a>(
        &'a self,
        conn: ConnId,
        sessions: &'a SessionTable,
    ) -> &'a BrokerOptions {
        self.conn(conn).map_or(&sessions.context.options, |known| {
            sessions.context.options.options_of_peer(&known.peer)
        })
    }

    /// Counts a client in the group, if the group has a limit. `Refusal::QuotaExceeded` above
    /// `connections_max`, `Refusal::TooFast` above `connections_per_s`. An earlier connection of
    /// the same session passes its guard on.
    pub(crate) fn join_client_group(
        &self,
        conn: ConnId,
        client_id: &str,
        rights: Option<&mut ClientPermissions>,
        sessions: &mut SessionTable,
    ) -> Result<(), Refusal> {
        let Some(rights) = rights else { return Ok(()) };
        let Some(class) = rights.client_group else { return Ok(()) };
        let limits = self.limits_at_client_group(conn, rights.client_group, sessions);
        let (max, per_s) = (limits.connections_max, limits.connections_per_s);
        let options = sessions.context.options.clone();
        let Some(class) = options.client_groups.get(class.index()) else { return Ok(()) };
        let (present, now) = (&class.present, sessions.context.now);
        let kept = sessions.find(client_id).map(|id| sessions.get_mut(id));
        let before = kept.and_then(|session| session.permissions.as_mut());
        let before = before.map(|rights| &mut rights.group_guard);
        let before = before.filter(|own| own.as_ref().is_some_and(|own| own.is_of(present)));
        let is_new = max > 0 && before.is_none();
        let place =
            if is_new { Some(present.admit(max).ok_or(Refusal::QuotaExceeded)?) } else { None };
        // A client refused for lack of room does not use up the rate.
        if per_s > 0 && !present.admit_rate(now, per_s) {
            return Err(Refusal::TooFast);
        }
        if max > 0 {
            rights.group_guard = place.or_else(|| before.and_then(Option::take));
        }
        Ok(())
    }

    fn limits_at_client_group<'a>(
        &self,
        conn: ConnId,
        class: Option<ClientGroupId>,
        sessions: &'a SessionTable,
    ) -> &'a BrokerOptions {
        let listener = self.conn(conn).map(|known| known.peer.listener);
        sessions.context.options.options_of_client(listener.unwrap_or_default(), class)
    }
}
