//! Authorization: the permissions of a client, by rules, groups, bans and decisions of
//! authorization servers.

pub(crate) mod auth_verdict;
pub(crate) mod ban_watch;
pub(crate) mod decisions;
pub(crate) mod reauthorization;
pub(crate) mod requests;

use crate::ids::MonotonicMs;
use crate::options::BrokerOptions;
use crate::options::bans::BanWatch;
use reauthorization::ReauthorizationQueue;

/// The generation of permissions, bans, and requests to authorization servers.
#[derive(Debug)]
pub(crate) struct ShardAuthorization {
    pub(in crate::authorization) rights_generation: u32,
    pub(crate) ban_watch: BanWatch,
    pub(crate) reauthorization: ReauthorizationQueue,
    /// Whether any listener has an authorization backend.
    pub(crate) uses_authz: bool,
    /// Number of the last authorization request, used as its `RequestId`.
    pub(in crate::authorization) authz_requests: u32,
}

impl ShardAuthorization {
    pub(crate) fn new(options: &BrokerOptions, now: MonotonicMs) -> ShardAuthorization {
        ShardAuthorization {
            rights_generation: 0,
            ban_watch: BanWatch::starting_at(now),
            reauthorization: ReauthorizationQueue::default(),
            uses_authz: options.uses_authz_anywhere(),
            authz_requests: 0,
        }
    }
}
