//! The fuzz targets on their corpora and on some random bytes, without a fuzzer.

use sim::fuzz;
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be listed").path();
        run(&std::fs::read(path).expect("an input can be read"));
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

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

/// Whatever clients say in transcripts is worth a fuzzer's attention, too.
#[test]
fn what_transcripts_send_is_taken_as_well() {
    for transcript in sim::transcripts() {
        for bytes in sim::transcript::sent(transcript.text) {
            fuzz::decode(&bytes);
            fuzz::conn_bytes(&bytes);
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = mqtt::cut(rest, u32::MAX) {
                fuzz::roundtrip(rest);
                rest = &rest[frame.len..];
            }
        }
    }
}
