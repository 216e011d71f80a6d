//! The codec from outside: vectors, round trips and hostile bytes.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod hostile;
mod round_trip;
mod show;
mod vectors;
