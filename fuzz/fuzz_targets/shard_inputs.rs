//! See the function of the same name in the simulator.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sim::fuzz::shard_inputs(bytes));
