//! See `auth::fuzz_targets::check_keys`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| auth::fuzz_targets::check_keys(bytes));
