//! See `godwit::fuzz_targets::check_acl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit::fuzz_targets::check_acl(bytes));
