//! The chapters of `tests/protocol`, as data.

use crate::Transcript;

#[path = "../tests/protocol/c3_01_connect.rs"]
pub mod c3_01_connect;

pub const CHAPTERS: &[&[Transcript]] = &[c3_01_connect::TRANSCRIPTS];
