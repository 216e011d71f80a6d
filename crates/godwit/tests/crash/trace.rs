//! Reads a trace of strace(1): the system calls of the broker that change its folder or read and
//! write its sockets, with all bytes, in an order that keeps causes before effects. A call has one
//! line at its end, or two lines, at its beginning and its end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A system call, at the position where the call takes effect.
#[derive(Debug)]
pub(crate) struct TraceStep {
    pub(crate) at: usize,
    pub(crate) call: TracedCall,
}

/// A system call with its arguments. `ended` is [`NEVER`] if the process ended during the call.
#[derive(Debug)]
pub(crate) enum TracedCall {
    Accepted {
        fd: u32,
    },
    Closed {
        fd: u32,
    },
    Cut {
        fd: u32,
        len: usize,
        ended: usize,
    },
    FolderMade {
        path: PathBuf,
        ended: usize,
    },
    Heard {
        fd: u32,
        bytes: Vec<u8>,
    },
    /// The process was killed, and left these files.
    Killed {
        left: HashMap<PathBuf, Vec<u8>>,
    },
    Opened {
        fd: u32,
        path: PathBuf,
        creates: bool,
        empties: bool,
        ended: usize,
    },
    Removed {
        path: PathBuf,
        ended: usize,
    },
    Renamed {
        from: PathBuf,
        to: PathBuf,
        ended: usize,
    },
    /// A write to a socket, or to any other descriptor without positions.
    Said {
        fd: u32,
        bytes: Vec<u8>,
    },
    Synced {
        fd: u32,
        began: usize,
    },
    Wrote {
        fd: u32,
        at: usize,
        bytes: Vec<u8>,
        ended: usize,
    },
}

/// Returns the arguments of strace, which writes to `path`. If `lies` is set, strace lets each sync
/// succeed without effect.
pub(crate) fn arguments(path: &Path, lies: bool) -> Vec<String> {
    let mut arguments =
        ["-f", "-D", "--seccomp-bpf", "-q", "-xx", "-s", "16777216"].map(String::from).to_vec();
    arguments.push(format!("--trace={CALLS}"));
    if lies {
        arguments.push("--inject=fdatasync:retval=0".to_string());
    }
    arguments.extend(["-o".to_string(), path.display().to_string()]);
    arguments
}

/// Whether strace has written everything about the process.
pub(crate) fn is_whole(text: &str, pid: u32) -> bool {
    let last =
        text.strip_suffix("+++ killed by SIGKILL +++\n").and_then(|text| text.lines().last());
    last.is_some_and(|last| last.trim_end() == pid.to_string())
}

/// Parses the trace of one process, with positions from `from` on. Returns the steps, and the first
/// position after them.
pub(crate) fn read(text: &str, from: usize) -> (Vec<TraceStep>, usize) {
    let (mut begun, mut ended) = (HashMap::new(), HashMap::new());
    let (mut steps, mut lasts) = (Vec::new(), Vec::new());
    // Nobody could have read what a dead thread asks for.
    let (mut next, mut lived) = (from, from);
    for line in text.lines() {
        let at = next;
        next += 1;
        let (thread, line) = line.split_once(' ').expect("a thread and what it did");
        let line = line.trim_start();
        let last = ended.remove(thread);
        if line.starts_with("+++") {
            lasts.extend(last);
            continue;
        }
        steps.extend(last.and_then(step));
        if line.starts_with("---") {
            continue;
        }
        if CALLS.split(',').any(|name| line.starts_with(name)) {
            lived = at;
        }
        if let Some(head) = line.strip_suffix("<unfinished ...>") {
            begun.insert(thread, (at, head));
        } else if let Some(rest) = line.strip_prefix("<... ") {
            let (began, head) = begun.remove(thread).expect("what is resumed has begun");
            let (_, tail) = rest.split_once(" resumed>").expect("a resumed call");
            ended.insert(thread, TraceLine { text: format!("{head}{tail}"), began, ended: at });
        } else {
            ended.insert(thread, TraceLine { text: line.to_string(), began: at, ended: at });
        }
    }
    let judged = |last: TraceLine| match last.ended < lived {
        true => step(last),
        false => cut_short(last),
    };
    steps.extend(lasts.into_iter().filter_map(judged));
    for (began, head) in begun.into_values() {
        steps.extend(step(TraceLine { text: format!("{head}) = ?"), began, ended: NEVER }));
    }
    steps.sort_by_key(|step| step.at);
    (steps, next)
}

/// A call with the positions of its beginning and end.
struct TraceLine {
    text: String,
    began: usize,
    ended: usize,
}

/// Returns the last call of a thread, which may or may not have taken effect: the thread ended
/// before strace could read the result.
fn cut_short(line: TraceLine) -> Option<TraceStep> {
    let (call, _) = line.text.rsplit_once(" = ")?;
    step(TraceLine { text: format!("{call} = ?"), ended: NEVER, ..line })
}

/// Parses a call. Returns `None` if the call failed, or does not matter for the disk and the
/// clients.
fn step(TraceLine { text, began, ended }: TraceLine) -> Option<TraceStep> {
    let (call, result) = text.rsplit_once(" = ")?;
    let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
    if result.starts_with('-') {
        let harmless = ["ENOENT", "EAGAIN", "EEXIST", "ECONNRESET", "EPIPE"];
        assert!(harmless.iter().any(|name| result.contains(name)), "a disk that fails: {text}");
        return None;
    }
    // Answered by strace, and never heard of by any disk.
    if result.ends_with("(INJECTED)") {
        return None;
    }
    let ended = if result.starts_with('?') { NEVER } else { ended };
    // Whoever sees no end has done all that was begun: what else would it rely on?
    let result = number(result).unwrap_or(usize::MAX);
    let fd = arguments.split(',').next().and_then(number).unwrap_or(0) as u32;
    let last = || arguments.rsplit(", ").next().and_then(number).expect("a number comes last");
    let strings = strings(arguments);
    let path = |at: usize| PathBuf::from(String::from_utf8_lossy(&strings[at]).into_owned());
    let (at, call) = match name {
        "accept4" => (ended, TracedCall::Accepted { fd: result as u32 }),
        "close" => (began, TracedCall::Closed { fd }),
        "fdatasync" | "fsync" => (ended, TracedCall::Synced { fd, began }),
        "ftruncate" => (began, TracedCall::Cut { fd, len: last(), ended }),
        "mkdir" => (began, TracedCall::FolderMade { path: path(0), ended }),
        "openat" => {
            let has = |flag| arguments.contains(flag);
            let (creates, empties) = (has("O_CREAT"), has("O_TRUNC"));
            let at = if ended == NEVER { began } else { ended };
            (at, TracedCall::Opened { fd: result as u32, path: path(0), creates, empties, ended })
        }
        "pwrite64" => (began, TracedCall::Wrote { fd, at: last(), bytes: strings.concat(), ended }),
        "rename" => (began, TracedCall::Renamed { from: path(0), to: path(1), ended }),
        "unlink" => (began, TracedCall::Removed { path: path(0), ended }),
        "read" | "recvfrom" => (ended, TracedCall::Heard { fd, bytes: strings.concat() }),
        "sendto" | "write" | "writev" => {
            // How much of it went is known when it ended; that it goes, when it began.
            let mut bytes = strings.concat();
            bytes.truncate(result);
            (began, TracedCall::Said { fd, bytes })
        }
        // Killed before strace knew which it would be.
        _ if ended == NEVER && (name == "???" || name.starts_with("syscall_0x")) => return None,
        _ => panic!("nobody knows what a disk holds after {name}"),
    };
    if let TracedCall::Wrote { bytes, ended, .. } = &call {
        assert!(*ended == NEVER || bytes.len() == result, "half a write: {text}");
    }
    // What never ended and has its effect at its end has none.
    (at != NEVER).then_some(TraceStep { at, call })
}

fn number(text: &str) -> Option<usize> {
    let digits = text.trim().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Returns the strings in quotes, in which strace writes each byte as `\x` and two digits.
fn strings(arguments: &str) -> Vec<Vec<u8>> {
    assert!(!arguments.contains("\"..."), "strace has cut a string off");
    let quoted = arguments.split('"').skip(1).step_by(2);
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    let byte = |four: &[u8]| digit(four[2]) << 4 | digit(four[3]);
    quoted.map(|text| text.as_bytes().chunks_exact(4).map(byte).collect()).collect()
}

pub(crate) const NEVER: usize = usize::MAX;

/// System calls to trace: the ones that the broker makes, and ones that would need a case in `step`
/// if the broker made them.
const CALLS: &str = "accept4,close,copy_file_range,fallocate,fdatasync,fsync,ftruncate,\
    io_uring_setup,link,linkat,mkdir,mkdirat,msync,openat,pwrite64,pwritev,pwritev2,read,recvfrom,\
    rename,renameat,renameat2,rmdir,sendfile,sendto,splice,symlink,symlinkat,sync,sync_file_range,\
    syncfs,truncate,unlink,unlinkat,write,writev";

#[test]
fn a_last_call_has_ended_if_another_began_after_it() {
    let synced = |text: &str| {
        let (steps, _) = read(text, 0);
        steps.iter().any(|step| matches!(step.call, TracedCall::Synced { .. }))
    };
    let (sync, say) = ("1 fdatasync(3) = 0\n", "2 write(4, \"\", 0) = 0\n");
    let ends = "1 +++ killed by SIGKILL +++\n2 +++ killed by SIGKILL +++\n";
    assert!(synced(&[sync, say, ends].concat()));
    assert!(synced(&[sync, "2 write(4, \"\", 0) = ?\n", ends].concat()));
    assert!(!synced(&[say, sync, ends].concat()));
    let (began, resumed) = ("2 write(4, \"\", <unfinished ...>\n", "2 <... write resumed>0) = 0\n");
    assert!(!synced(&[began, sync, resumed, ends].concat()));
}
