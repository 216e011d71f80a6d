//! See `engine::proxy::probe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engine::proxy::probe(bytes));
