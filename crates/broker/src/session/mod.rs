//! The session: the state that MQTT keeps for a client, with subscriptions, queue and messages in
//! flight.

pub mod auto_subscription;
pub(crate) mod delivery;
pub(crate) mod encoded_publish;
pub(crate) mod flight;
pub(crate) mod id_shifts;
pub(crate) mod overdue_slots;
pub mod preset;
pub(crate) mod queue_age;
pub(crate) mod queue_drain;
pub(crate) mod retained_feed;
pub(crate) mod sent_slots;
pub(crate) mod session_end;
pub mod session_report;
pub(crate) mod session_table;
pub(crate) mod subscribe;
pub(crate) mod subscriptions;
pub(crate) mod will;
