//! The chapters of `tests/protocol`, as data.

use crate::Transcript;

#[path = "../tests/protocol/c3_01_connect.rs"]
pub mod c3_01_connect;
#[path = "../tests/protocol/c3_01_session.rs"]
pub mod c3_01_session;
#[path = "../tests/protocol/c3_01_will.rs"]
pub mod c3_01_will;
#[path = "../tests/protocol/c3_03_publish.rs"]
pub mod c3_03_publish;
#[path = "../tests/protocol/c3_03_properties.rs"]
pub mod c3_03_properties;
#[path = "../tests/protocol/c3_03_retained.rs"]
pub mod c3_03_retained;

pub const CHAPTERS: &[&[Transcript]] = &[
    c3_01_connect::TRANSCRIPTS,
    c3_01_session::TRANSCRIPTS,
    c3_01_will::TRANSCRIPTS,
    c3_03_publish::TRANSCRIPTS,
    c3_03_properties::TRANSCRIPTS,
    c3_03_retained::TRANSCRIPTS,
];
