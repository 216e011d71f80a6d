//! Access rules and what they need: names with placeholders, and the counters of client groups.

pub mod acl_rules;
pub mod client_group_counter;
pub mod placeholders;
