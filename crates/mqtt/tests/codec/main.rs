//! The codec from outside: vectors, round trips and hostile bytes.

mod hostile;
mod round_trip;
mod show;
mod vectors;
