//! `[[client_group]]`: limits of groups of clients.

use crate::access_rules::client_group_counter::{ClientGroupCounter, ClientGroupId};
use crate::ids::ListenerId;
use crate::limits::LINK_IDS;
use crate::options::BrokerOptions;
use crate::peer::PeerInfo;
use std::sync::Arc;

/// Options of the authorization backends, which decide where no access rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthzOptions {
    /// Time in milliseconds for which a decision holds for the same client and topic.
    pub cache_ms: u32,
    /// Whether the decision can depend on QoS and RETAIN, which the cache must then distinguish.
    pub uses_qos_or_retain: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientGroup {
    /// Name of the group, as returned by the authentication backends.
    pub name: Arc<str>,
    pub options: Arc<BrokerOptions>,
    pub present: ClientGroupCounter,
}

impl BrokerOptions {
    /// Returns the options of a client with this listener and group.
    #[inline]
    pub(crate) fn options_of_client(
        &self,
        at: ListenerId,
        class: Option<ClientGroupId>,
    ) -> &BrokerOptions {
        let own = self.options_of_listener(at);
        match class.and_then(|class| own.client_groups.get(class.index())) {
            Some(class) => &class.options,
            None => own,
        }
    }

    /// Returns the group of a client, by the groups from authentication and the members listed in
    /// the rules of the listener; `None` without a group.
    pub(crate) fn client_group_of(
        &self,
        at: ListenerId,
        user: Option<&str>,
        groups: &[Arc<str>],
    ) -> Option<ClientGroupId> {
        // A link that acts as another user keeps the limits of the link.
        if let Some(link) = groups.first().filter(|group| group.starts_with(LINK_IDS)) {
            return self.find_client_group(|class| class.name == *link);
        }
        let permissions = self.permissions_at(at);
        let members = permissions.map_or(&[][..], |permissions| permissions.groups_of(user));
        let is_in = |name: &Arc<str>| groups.contains(name) || members.contains(name);
        self.find_client_group(|class| is_in(&class.name))
    }

    fn find_client_group(&self, is_it: impl Fn(&ClientGroup) -> bool) -> Option<ClientGroupId> {
        let at = self.client_groups.iter().position(is_it)?;
        ClientGroupId::from_index(at)
    }

    /// Returns the options of a client before CONNACK, by the group if the `Principal` is known.
    pub(crate) fn options_of_peer(&self, peer: &PeerInfo) -> &BrokerOptions {
        let principal = peer.auth_outcome().and_then(|pass| pass.principal());
        let class = principal.and_then(|principal| {
            self.client_group_of(peer.listener, principal.user.as_deref(), &principal.groups)
        });
        self.options_of_client(peer.listener, class)
    }
}
