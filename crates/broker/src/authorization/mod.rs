//! Authorization: the permissions of a client, by rules, groups, bans and decisions of
//! authorization servers.

pub(crate) mod acl_cache;
pub mod acl_rules;
pub mod authz;
pub(crate) mod authz_cache;
pub mod bans;
pub mod client_groups;
pub(crate) mod client_permissions;
pub mod placeholders;
pub(crate) mod reauthorization;
