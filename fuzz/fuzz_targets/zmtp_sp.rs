//! See `zmtp_sp::probe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zmtp_sp::probe(bytes));
