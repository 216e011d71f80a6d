//! See `patterns::probe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| patterns::probe(bytes));
