//! The chapters of `tests/protocol` as data, for `replay` and for fuzz corpora.

use crate::Transcript;

#[path = "../tests/protocol/arrivals.rs"]
pub mod arrivals;
#[path = "../tests/protocol/bans.rs"]
pub mod bans;
#[path = "../tests/protocol/c3_01_connect.rs"]
pub mod c3_01_connect;
#[path = "../tests/protocol/c3_01_session.rs"]
pub mod c3_01_session;
#[path = "../tests/protocol/c3_01_will.rs"]
pub mod c3_01_will;
#[path = "../tests/protocol/c3_03_properties.rs"]
pub mod c3_03_properties;
#[path = "../tests/protocol/c3_03_publish.rs"]
pub mod c3_03_publish;
#[path = "../tests/protocol/c3_03_retained.rs"]
pub mod c3_03_retained;
#[path = "../tests/protocol/c3_08_subscribe.rs"]
pub mod c3_08_subscribe;
#[path = "../tests/protocol/c4_01_queues.rs"]
pub mod c4_01_queues;
#[path = "../tests/protocol/c4_03_qos.rs"]
pub mod c4_03_qos;
#[path = "../tests/protocol/c4_07_topics.rs"]
pub mod c4_07_topics;
#[path = "../tests/protocol/c4_08_shared.rs"]
pub mod c4_08_shared;
#[path = "../tests/protocol/c5_04_security.rs"]
pub mod c5_04_security;
#[path = "../tests/protocol/delayed.rs"]
pub mod delayed;
#[path = "../tests/protocol/durable.rs"]
pub mod durable;
#[path = "../tests/protocol/limits.rs"]
pub mod limits;
#[path = "../tests/protocol/namespaces.rs"]
pub mod namespaces;
#[path = "../tests/protocol/paces.rs"]
pub mod paces;
#[path = "../tests/protocol/permits.rs"]
pub mod permits;
#[path = "../tests/protocol/sys_tree.rs"]
pub mod sys_tree;

pub const CHAPTERS: &[&[Transcript]] = &[
    c3_01_connect::TRANSCRIPTS,
    c3_01_session::TRANSCRIPTS,
    c3_01_will::TRANSCRIPTS,
    c3_03_publish::TRANSCRIPTS,
    c3_03_properties::TRANSCRIPTS,
    c3_03_retained::TRANSCRIPTS,
    c3_08_subscribe::TRANSCRIPTS,
    c4_03_qos::TRANSCRIPTS,
    c4_07_topics::TRANSCRIPTS,
    c4_01_queues::TRANSCRIPTS,
    c4_08_shared::TRANSCRIPTS,
    c5_04_security::TRANSCRIPTS,
    arrivals::TRANSCRIPTS,
    bans::TRANSCRIPTS,
    delayed::TRANSCRIPTS,
    durable::TRANSCRIPTS,
    limits::TRANSCRIPTS,
    namespaces::TRANSCRIPTS,
    paces::TRANSCRIPTS,
    permits::TRANSCRIPTS,
    sys_tree::TRANSCRIPTS,
];
