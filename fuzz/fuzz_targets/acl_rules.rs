//! See `godwit::probes::acl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit::probes::acl(bytes));
