//! The brain of one shard: connections, sessions, subscriptions, retained messages and timers of
//! one core, sans I/O. Whatever happens enters by `Shard::handle(now, input, &mut outbox)`, and
//! whatever follows leaves by the outbox. No socket, no clock, no thread, no lock: time and chance
//! are arguments, so every behaviour can be tested in virtual time and repeated from a seed.
//!
//! The groups of modules stand about in the order in which a PUBLISH meets them.
#![forbid(unsafe_code)]

pub mod input;
pub mod limits;
pub mod options;

mod memory;
mod shard;

mod age;
mod agreed;
mod answers;
pub mod arrivals;
pub mod ask;
pub mod auto;
mod away;
pub mod bans;
mod branch;
mod bridged;
pub mod caches;
pub mod classes;
mod conn;
mod connect;
mod doubts;
mod exchange;
mod flapping;
pub mod judge;
mod meter;

mod delayed;
mod incoming;
mod message;
pub mod mount;
pub mod permissions;
pub mod placeholders;
pub mod preset;
mod publish;
pub mod rewrite;
mod rights;

mod ids;
mod interest;
mod retained;
mod shared;
mod topics;

mod alias;
mod barrier;
mod decisions;
mod deliver;
mod encode;
mod ends;
mod exclusive;
mod explain;
mod feed;
mod flight;
mod flow;
mod gate;
mod home;
mod id_shifts;
mod journal;
mod lasting;
mod leftovers;
mod overdue;
mod owed;
mod pace;
mod pause;
mod receipt;
mod records;
mod restore;
pub mod rules;
mod sent;
mod session;

mod slab;
mod stalls;
mod subscribe;
mod subscriptions;
pub mod survey;
pub mod sys;
mod time_of_day;
mod timer;
mod trace;
mod transit;
mod unread;
mod will;

pub mod note;
pub mod outbox;
mod peer;
pub mod refusal;

pub use bridged::{BRIDGE_PATH, hop_name};
pub use exchange::Step;
pub use input::{Command, ConnId, Cross, Input, Now, ShardId};
pub use interest::Interest;
pub use journal::{Change, Space, Stored, Unreadable};
pub use judge::{Claim, Verdict};
pub use memory::Memory;
pub use message::Message;
pub use note::{Few, Note, Withheld};
pub use options::Options;
pub use outbox::{Effect, Outbox};
pub use pause::ProcessPause;
pub use peer::{Address, AlternativeName, Certificate, ListenerId, Peer, Source};
pub use refusal::Refusal;
pub use restore::{NotRestored, Restored, restore};
pub use shard::Shard;
pub use time_of_day::{ClockReading, stored_clock};
pub use unread::Reading;
