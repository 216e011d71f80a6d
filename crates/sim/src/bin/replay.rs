//! Replays the transcripts of the protocol against any broker, without comparing reason strings:
//! `cargo run -p sim --bin replay -- --broker host:port [--wait-max SECONDS] [filter]`.
#![forbid(unsafe_code)]

use sim::parsed_transcript::ParsedTranscript;
use sim::replay::{ReplayOptions, clean_up, replay};
use std::net::ToSocketAddrs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut broker, mut filter, mut wait_s_max) =
        (String::from("127.0.0.1:1883"), String::new(), 2);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--broker" => broker = arguments.next().unwrap_or_default(),
            "--wait-max" => {
                wait_s_max = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            _ => filter = argument,
        }
    }
    let found = broker.to_socket_addrs().ok().and_then(|mut found| found.next());
    let Some(address) = found else {
        eprintln!("--broker host:port, not {broker}");
        return ExitCode::FAILURE;
    };
    let manner = ReplayOptions { reason_strings: false, ..ReplayOptions::default() };
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    for transcript in sim::transcripts() {
        let name = transcript.name;
        let chapter = transcript.chapter.rsplit("::").next().unwrap_or_default();
        if !format!("{chapter}::{name}").contains(&filter) {
            continue;
        }
        let Ok(script) = ParsedTranscript::parse(transcript.text) else { continue };
        let suits = script.is_replayable() && script.settings.is_empty() && script.shards.is_none();
        if !suits || script.waits_ms() > wait_s_max * 1000 {
            left_out += 1;
            continue;
        }
        let outcome = replay(&script, address, manner);
        clean_up(&script, address);
        match outcome {
            Ok(()) => passed += 1,
            Err(why) => {
                failed += 1;
                println!("--- {chapter}::{name}\n{why}\n");
            }
        }
    }
    println!("{passed} passed; {failed} failed; {left_out} left out (options, waits, simulator)");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
