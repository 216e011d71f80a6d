//! The session: the state that MQTT keeps for a client, with subscriptions, queue and messages in
//! flight.

pub(crate) mod admission;
pub(crate) mod alias;
pub(crate) mod client_permissions;
pub(crate) mod commits;
pub(crate) mod control_packets;
pub(crate) mod cross_shard;
pub(crate) mod deliver;
pub(crate) mod delivery_events;
pub(crate) mod dropped;
pub(crate) mod encoded_publish;
pub(crate) mod flight;
pub(crate) mod garbage_collector;
pub(crate) mod group_member;
pub(crate) mod id_barrier;
pub(crate) mod memory_pressure;
pub mod namespaced;
pub(crate) mod overdue_slots;
pub(crate) mod persistent_delivery;
pub(crate) mod queue_age;
pub(crate) mod queue_drain;
pub(crate) mod rate_limit;
pub mod rate_meter;
pub(crate) mod receipt;
pub(crate) mod retained_feed;
pub(crate) mod send_gate;
pub(crate) mod sent_slots;
pub(crate) mod session_end;
pub mod session_extras;
pub(crate) mod session_records;
pub mod session_report;
pub(crate) mod session_table;
pub(crate) mod stored_queue;
pub(crate) mod subscribe;
pub(crate) mod subscriptions;
