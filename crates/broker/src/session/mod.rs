//! The session: the state that MQTT keeps for a client, with subscriptions, queue and messages in
//! flight.

pub(crate) mod alias;
pub(crate) mod control_packets;
pub(crate) mod cross_shard_commits;
pub(crate) mod cross_shard_log;
pub(crate) mod deliver;
pub(crate) mod delivery_events;
pub(crate) mod dropped;
pub(crate) mod encoded_publish;
pub(crate) mod flight;
pub(crate) mod garbage_scan;
pub(crate) mod group_member;
pub(crate) mod group_return;
pub(crate) mod id_barrier;
pub mod namespaced;
pub(crate) mod overdue_slots;
pub(crate) mod permission_changes;
pub(crate) mod persistent_delivery;
pub(crate) mod queue_age;
pub(crate) mod queue_drain;
pub mod rate_meter;
pub(crate) mod receipt;
pub(crate) mod retained_cursors;
pub(crate) mod room_checks;
pub(crate) mod send_gate;
pub(crate) mod sent_slots;
pub mod session_extras;
pub(crate) mod session_records;
pub mod session_report;
pub(crate) mod session_table;
pub(crate) mod stored_queue_end;
pub(crate) mod subscribe_checks;
pub(crate) mod subscriptions;
pub(crate) mod write_rate;
