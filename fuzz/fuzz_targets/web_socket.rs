//! See `engine::websocket::probe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engine::websocket::probe(bytes));
