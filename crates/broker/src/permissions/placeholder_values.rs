//! The values of a client for placeholders.

use crate::access_rules::placeholders::PlaceholderValues;
use crate::peer::PeerInfo;
use crate::permissions::client_permissions::ClientPermissions;

/// Returns the values of a client, as far as they are known.
pub(crate) fn client_placeholder_values<'a>(
    client_id: &'a str,
    rights: Option<&'a ClientPermissions>,
    peer: Option<&'a PeerInfo>,
) -> PlaceholderValues<'a> {
    let certificate = peer.and_then(|peer| peer.certificate());
    let user = rights.and_then(|rights| rights.subject.user.as_deref());
    let common_name = certificate.and_then(|known| known.common_name.as_deref());
    let host = peer.and_then(|peer| peer.address.ip());
    PlaceholderValues::new(client_id, user, common_name, host)
}
