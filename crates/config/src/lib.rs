//! Options from files, the environment and flags: rows, values, and errors with line numbers.
//!
//! This crate defines no options. Each crate with options writes its rows (`row::OptionRow`), and
//! the program assembles the rows.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod listen_url;
pub mod nearest;
pub mod row;
pub mod source;
pub mod value;
