//! The permissions of a client: access checks, its access rules, cached decisions, and what
//! placeholders stand for.

pub mod access_check;
pub(crate) mod acl_cache;
pub(crate) mod authz_cache;
pub(crate) mod client_permissions;
pub mod placeholder_values;
