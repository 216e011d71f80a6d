//! Tests of the public codec: vectors, round trips and invalid bytes.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod hostile;
mod round_trip;
mod show;
mod vectors;
