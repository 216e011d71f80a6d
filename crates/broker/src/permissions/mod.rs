//! The permissions of a client: its access rules, cached decisions, and what placeholders stand
//! for.

pub(crate) mod acl_cache;
pub mod authz;
pub(crate) mod authz_cache;
pub(crate) mod client_permissions;
pub mod placeholder_values;
