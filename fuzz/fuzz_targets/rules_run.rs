//! See the function `run` in `rules::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rules::fuzz::run(bytes));
