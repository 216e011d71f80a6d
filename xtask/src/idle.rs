//! The idle check: the memory of a broker without clients must stay below the figures promised for
//! small hosts.

use std::ffi::OsStr;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::shell::{free_port, release_binary};

const RESIDENT_KB_MAX: u64 = 3 * 1024;
/// Bound in kilobytes with an empty store open, instead of [`RESIDENT_KB_MAX`].
const STORE_KB_MAX: u64 = 4 * 1024;

pub(crate) fn check_idle_memory() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("godwit-idle-{}", std::process::id()));
    let in_memory = measure_idle(&["--memory".as_ref()], "in memory", RESIDENT_KB_MAX);
    let stored =
        measure_idle(&["--data".as_ref(), folder.as_os_str()], "with a store", STORE_KB_MAX);
    let _ = fs::remove_dir_all(&folder);
    in_memory.and(stored)
}

fn measure_idle(storage: &[&OsStr], how: &str, kb_max: u64) -> Result<(), String> {
    let port = free_port().map_err(|why| format!("idle: {why}"))?;
    let mut child = Command::new(release_binary())
        .args(["serve", "--listen", &format!("tcp://127.0.0.1:{port}")])
        .args(storage)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("idle: {} cannot be run: {e}", release_binary().display()))?;
    // By then the start has touched all its pages, and so has the publishing of `$SYS`, which comes
    // after one second and then every ten: a real wait for a real process.
    sleep(Duration::from_secs(13));
    let resident = resident_kb(&mut child);
    // The broker may have ended by itself, which `resident_kb` reports; then kill fails, without
    // harm.
    let _ = child.kill();
    let _ = child.wait();
    let resident = resident?;
    println!("idle: {resident} KB resident {how}, at most {kb_max} KB");
    if resident > kb_max {
        return Err(format!("idle: {resident} KB resident {how} is over the promise"));
    }
    Ok(())
}

fn resident_kb(child: &mut Child) -> Result<u64, String> {
    if let Ok(Some(status)) = child.try_wait() {
        return Err(format!("idle: the broker ended with {status}"));
    }
    let path = format!("/proc/{}/status", child.id());
    let status = fs::read_to_string(&path).map_err(|e| format!("idle: {path}: {e}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kb.ok_or_else(|| format!("idle: {path} does not tell VmRSS"))
}
