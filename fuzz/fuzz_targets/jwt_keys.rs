//! See `godwit::probes::keys`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit::probes::keys(bytes));
