//! Transcripts of the specification, clause by clause, in virtual time: one module per chapter, and
//! one per feature of the broker.

use sim::transcripts;

mod across_shards;
mod arrivals;
mod auto_subscribe;
mod bans;
mod c3_01_connect;
mod c3_01_session;
mod c3_01_will;
mod c3_03_properties;
mod c3_03_publish;
mod c3_03_retained;
mod c3_08_subscribe;
mod c4_01_queues;
mod c4_03_qos;
mod c4_07_topics;
mod c4_08_shared;
mod c4_12_authentication;
mod c5_04_security;
mod caches;
mod delayed;
mod durable;
mod exclusive;
mod kept_queues;
mod limits;
mod namespaces;
mod paces;
mod permits;
mod permits_many;
mod preset;
mod rewrite;
mod rule_events;
mod rule_links;
mod rule_windows;
mod rules;
mod sys_tree;
