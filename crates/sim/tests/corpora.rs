//! Runs the fuzz targets on the stored corpora and on random bytes, without a fuzzer.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;
use sim::fuzz;

#[test]
fn decode_takes_its_corpus() {
    replay("decode", fuzz::decode);
}

#[test]
fn roundtrip_takes_its_corpus() {
    replay("roundtrip", fuzz::roundtrip);
}

#[test]
fn conn_bytes_takes_its_corpus() {
    replay("conn_bytes", fuzz::conn_bytes);
}

#[test]
fn shard_inputs_takes_its_corpus() {
    replay("shard_inputs", fuzz::shard_inputs);
}

#[test]
fn shard_inputs_takes_random_bytes() {
    for seed in 0..200 {
        fuzz::shard_inputs(&fuzz::random_bytes(seed, 2000));
    }
}

/// The bytes that clients send in transcripts are further input of the fuzz targets.
#[test]
fn what_transcripts_send_is_taken_as_well() {
    for transcript in sim::transcripts() {
        for bytes in sim::transcript::sent_bytes(transcript.text) {
            fuzz::decode(&bytes);
            fuzz::conn_bytes(&bytes);
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = mqtt::split_frame(rest, u32::MAX) {
                fuzz::roundtrip(rest);
                rest = &rest[frame.len..];
            }
        }
    }
}
