//! See `godwit::probes::token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit::probes::token(bytes));
