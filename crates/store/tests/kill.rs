//! A process that commits is killed at a random moment, ten times on one folder: all batches
//! reported as durable are there. A second test bounds the memory of a process with an empty store.
//! The child processes are this program itself, so the tests have no harness.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use store::{DiskStore, KeySpace, KeyValueStore, StoreBatch, StoreEvent, StoreOptions, check};

fn main() {
    let args: Vec<_> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("commit") => commit(Path::new(&args[2])),
        Some("idle") => idle(Path::new(&args[2])),
        _ => {
            killed_at_random_moments_nothing_durable_is_missing();
            an_empty_store_is_small();
        }
    }
}

/// Commits batches without end, and writes the numbers of durable ones to stdout.
fn commit(path: &Path) {
    let say = |event| {
        if let StoreEvent::Durable(seq) = event {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{}", seq.0).and_then(|()| out.flush()).expect("the parent reads");
        }
    };
    let options = StoreOptions { memory_bytes: 64 << 10, ..StoreOptions::default() };
    let (store, report) = DiskStore::open(path, options, Box::new(say)).expect("the store opens");
    let mut handle = store.handle();
    for seq in report.seq.0 + 1.. {
        while handle.is_backlogged() || handle.durable().0 + 50 < seq {
            std::thread::yield_now();
        }
        handle.commit(batch(seq)).expect("there is room");
    }
}

/// Returns the changes of batch `seq`: a new pair, the number of the latest batch, and the removal
/// of an old pair.
fn batch(seq: u64) -> StoreBatch {
    let mut batch = StoreBatch::default();
    batch.put(KeySpace::Queues, seq.to_be_bytes().to_vec(), vec![seq as u8; 100]);
    batch.put(KeySpace::Sessions, b"latest".to_vec(), seq.to_be_bytes().to_vec());
    if let Some(old) = seq.checked_sub(KEPT).filter(|old| *old > 0) {
        batch.remove(KeySpace::Queues, old.to_be_bytes().to_vec());
    }
    batch
}

fn killed_at_random_moments_nothing_durable_is_missing() {
    let folder = KillFolder::new("kill");
    let mut promised = 0;
    for round in 0..rounds() {
        let mut child = run("commit", &folder.0);
        let out = BufReader::new(child.stdout.take().expect("it was asked for"));
        let began = Instant::now();
        let life = Duration::from_millis(50 + (round * 7919 + u64::from(child.id())) % 400);
        for line in out.lines().map_while(Result::ok) {
            promised = line.parse().expect("a number");
            if began.elapsed() > life {
                child.kill().expect("it runs");
            }
        }
        child.wait().expect("it ran");
        let report = check(&folder.0).expect("an end is not a damage");
        assert!(report.seq.0 >= promised, "{promised} was durable, {report:?}");
        assert_eq!(report.damage, []);
        holds(&folder.0, report.seq.0);
    }
    assert!(promised > 0);
}

/// Checks that the store has exactly the pairs of the batches up to `seq`.
fn holds(path: &Path, seq: u64) {
    let (store, _) =
        DiskStore::open(path, StoreOptions::default(), Box::new(|_| {})).expect("it opens");
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let n = u64::from_be_bytes(key.try_into().expect("eight bytes"));
        assert_eq!(value, vec![n as u8; 100]);
        keys.push(n);
        true
    };
    store.handle().scan(KeySpace::Queues, b"", b"", &mut visit).expect("readable");
    assert!(keys.into_iter().eq(seq.saturating_sub(KEPT) + 1..=seq), "up to {seq}");
}

/// Opens a store, prints the resident memory in kilobytes, and waits to be ended.
fn idle(path: &Path) {
    let _store =
        DiskStore::open(path, StoreOptions::default(), Box::new(|_| {})).expect("the store opens");
    std::thread::sleep(Duration::from_millis(100));
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is told");
    println!("{}", line.split_whitespace().nth(1).expect("a number"));
}

fn an_empty_store_is_small() {
    let folder = KillFolder::new("idle");
    let out = run("idle", &folder.0).wait_with_output().expect("it ran");
    let text = String::from_utf8(out.stdout).expect("a number");
    let resident_kb: u64 = text.trim().parse().expect("a number");
    println!("an empty store open: {resident_kb} KB resident");
    assert!(resident_kb < 4096, "{resident_kb} KB");
}

fn run(what: &str, folder: &Path) -> std::process::Child {
    let me = std::env::current_exe().expect("known");
    let mut command = Command::new(me);
    command.arg(what).arg(folder).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// Returns the number of rounds: ten, or `GODWIT_STORE_KILLS`.
fn rounds() -> u64 {
    let said = std::env::var("GODWIT_STORE_KILLS");
    said.map_or(10, |said| said.parse().expect("GODWIT_STORE_KILLS is a number"))
}

struct KillFolder(PathBuf);

impl KillFolder {
    fn new(name: &str) -> KillFolder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{name}"));
        drop(std::fs::remove_dir_all(&path));
        KillFolder(path)
    }
}

impl Drop for KillFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Number of batches whose pairs are in the store at a time.
const KEPT: u64 = 500;
