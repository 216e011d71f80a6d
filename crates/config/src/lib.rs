//! Options from files, the environment and flags: rows, values, and errors with their line.
//!
//! The crate knows no option. Each owner of options writes its rows, and the program assembles
//! them.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod listen_url;
pub mod nearest;
pub mod row;
pub mod source;
pub mod value;
