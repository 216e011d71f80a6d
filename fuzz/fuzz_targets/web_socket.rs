//! See `engine::web::probe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engine::web::probe(bytes));
