//! Durable batches per second with one producer, and with a thousand which each wait for their last
//! batch, compared with a plain fdatasync(2) loop on the same disk. `cargo bench -p store --
//! FOLDER`.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use store::{BatchSeq, DiskStore, KeySpace, KeyValueStore, StoreBatch, StoreEvent, StoreOptions};

fn main() {
    let said = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let base = said.map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    println!(
        "{} s each, values of {VALUE} bytes, one put a batch, in {}",
        LENGTH.as_secs(),
        base.display()
    );
    for round in 1..=3 {
        println!("round {round}");
        probe(&base);
        for producers in [1, 100, 1_000, 10_000] {
            closed_loop(&base, producers);
        }
    }
}

/// Measures writes of the size of a batch, each with fdatasync: the limit of the disk.
fn probe(base: &Path) {
    let path = base.join("probe");
    let file = std::fs::File::create(&path).expect("the folder is there");
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < LENGTH {
        let at = Instant::now();
        file.write_all_at(&[7; VALUE + 45], (times.len() * (VALUE + 45)) as u64).expect("room");
        file.sync_data().expect("it syncs");
        times.push(at.elapsed());
    }
    print("bare fdatasync", times.len(), began.elapsed(), times);
    std::fs::remove_file(&path).expect("it is there");
}

/// Measures `producers` that commit a batch when their last one is durable. One thread runs all
/// producers, like a shard.
fn closed_loop(base: &Path, producers: u64) {
    let path = base.join("store-bench");
    drop(std::fs::remove_dir_all(&path));
    let durable = Arc::new((Mutex::new((BatchSeq(0), 0_u64)), Condvar::new()));
    let ears = Arc::clone(&durable);
    let notify = move |event| {
        if let StoreEvent::Durable(seq) = event {
            let mut heard = ears.0.lock().expect("nobody panics");
            *heard = (seq, heard.1 + 1);
            ears.1.notify_one();
        }
    };
    let opened = DiskStore::open(&path, StoreOptions::default(), Box::new(notify));
    let (store, _) = opened.expect("the store opens");
    let mut handle = store.handle();
    let (mut waiting, mut times) = (std::collections::VecDeque::new(), Vec::new());
    let (began, cpu) = (Instant::now(), cpu());
    let mut n = 0_u64;
    while began.elapsed() < LENGTH {
        while (waiting.len() as u64) < producers && !handle.is_backlogged() {
            n += 1;
            let mut batch = StoreBatch::default();
            let key = [(n % producers).to_be_bytes(), n.to_be_bytes()].concat();
            batch.put(KeySpace::Queues, key, vec![7; VALUE]);
            waiting.push_back((handle.commit(batch).expect("room"), Instant::now()));
        }
        if waiting.is_empty() {
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut heard = durable.0.lock().expect("nobody panics");
        while waiting.front().is_some_and(|(seq, _)| *seq > heard.0) {
            heard = durable.1.wait(heard).expect("nobody panics");
        }
        let upto = heard.0;
        drop(heard);
        while waiting.front().is_some_and(|(seq, _)| *seq <= upto) {
            times.extend(waiting.pop_front().map(|(_, at)| at.elapsed()));
        }
    }
    let took = began.elapsed();
    let syncs = durable.0.lock().expect("nobody panics").1;
    let cpu_us = (self::cpu() - cpu).as_secs_f64() * 1e6 / times.len() as f64;
    print(&format!("{producers} producers"), times.len(), took, times);
    println!("    {:.0} syncs/s, {cpu_us:.1} us CPU a batch", syncs as f64 / took.as_secs_f64());
    drop(store);
    drop(std::fs::remove_dir_all(&path));
}

fn print(what: &str, count: usize, took: Duration, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 1000).min(times.len() - 1)];
    let (p50, p99, rate) = (at(500), at(990), count as f64 / took.as_secs_f64());
    println!("  {what:>16}: {rate:>9.0} a second, p50 {p50:>9.1?}, p99 {p99:>9.1?}");
}

/// Returns the processor time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let behind = stat.rsplit_once(") ").expect("as proc(5) has it").1;
    let mut fields = behind.split(' ').skip(11).map(|field| field.parse::<u64>().unwrap_or(0));
    let ticks = fields.next().unwrap_or(0) + fields.next().unwrap_or(0);
    Duration::from_millis(ticks * 10)
}

const LENGTH: Duration = Duration::from_secs(3);
const VALUE: usize = 160;
