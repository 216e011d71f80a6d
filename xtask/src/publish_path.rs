//! `cargo x publish-path`: counts the files whose code runs for one PUBLISH, in the optimised
//! program under callgrind, and writes them into docs/publish-path.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::shell::{free_port, has_program, new_command, output, target_folder};
use crate::start_order::{IDLE, build_profiled, end_child, start_profiled};
use crate::tree::root;

const DOCUMENT: &str = "docs/publish-path.md";
const BEGIN: &str = "<!-- files of a PUBLISH, by cargo x publish-path -->\n";
const END: &str = "<!-- end of the files -->\n";
/// Pause before a command to callgrind, in which running work ends.
const REST: Duration = Duration::from_secs(3);
/// Duration of each count, so that timers run equally often in all counts.
const SPAN: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if let Some(argument) = args.first() {
        return Err(format!("publish-path takes nothing, got {argument}"));
    }
    if !has_program("valgrind") {
        return Err("publish-path: valgrind not found; apt-get install valgrind".into());
    }
    build_profiled()?;
    let folder = target_folder().join("publish-path");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let port = free_port().map_err(|why| format!("publish-path: {why}"))?;
    let profile = folder.join("callgrind.out");
    let options = ["--memory", "--set", "shards=1", "--set", "sys.interval_s=off"];
    let mut child = start_profiled(&profile, port, &options)?;
    sleep(IDLE);
    let counted = count_cases(&child, &profile, port);
    end_child(&mut child);
    let table = table(&counted?);
    let path = root().join(DOCUMENT);
    let text = fs::read_to_string(&path).map_err(|e| format!("{DOCUMENT}: {e}"))?;
    let text = with_table(&text, &table).ok_or(format!("{DOCUMENT}: the marks are missing"))?;
    fs::write(&path, text).map_err(|e| format!("{DOCUMENT}: {e}"))?;
    print!("{table}");
    Ok(())
}

type CountedFiles = (&'static str, BTreeSet<String>);

/// Messages of a case. A file counts if it runs at least `MESSAGES` instructions more than without
/// messages.
const MESSAGES: u64 = 500;

fn count_cases(child: &Child, profile: &Path, port: u16) -> Result<Vec<CountedFiles>, String> {
    let failed = |e: io::Error| format!("publish-path: the program serves no client: {e}");
    let mut clients = PublishClients::connect(port).map_err(failed)?;
    let mut dumps = 0;
    let mut instructions = |qos: Option<u8>| {
        control(child, "-z")?;
        let begun = Instant::now();
        for _ in qos.iter().flat_map(|_| 0..MESSAGES) {
            clients.publish(qos.unwrap_or_default()).map_err(failed)?;
        }
        sleep(SPAN.saturating_sub(begun.elapsed()));
        control(child, "-d")?;
        dumps += 1;
        let dump = PathBuf::from(format!("{}.{dumps}", profile.display()));
        let text = fs::read_to_string(&dump).map_err(|e| format!("{}: {e}", dump.display()))?;
        Ok::<_, String>(instructions_by_file(&text))
    };
    // The first messages allocate buffers that later messages reuse.
    instructions(Some(0)).and_then(|_| instructions(Some(1)))?;
    let idle = instructions(None)?;
    let mut counted = Vec::new();
    for (qos, case) in [(0, "QoS 0, one subscriber"), (1, "QoS 1, one subscriber")] {
        let busy = instructions(Some(qos))?;
        let runs_for_each = |(file, count): (String, u64)| {
            let without = idle.get(&file).copied().unwrap_or(0);
            (count >= without + MESSAGES).then_some(file)
        };
        counted.push((case, busy.into_iter().filter_map(runs_for_each).collect()));
    }
    Ok(counted)
}

fn control(child: &Child, flag: &str) -> Result<(), String> {
    sleep(REST);
    output(new_command("callgrind_control").args([flag, &child.id().to_string()])).map(|_| ())
}

/// A publisher and a subscriber of one topic, connected by MQTT 3.1.1.
struct PublishClients {
    publisher: TcpStream,
    subscriber: TcpStream,
}

impl PublishClients {
    fn connect(port: u16) -> io::Result<PublishClients> {
        let connect = |client: u8| {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01")?;
            stream.write_all(&[client])?;
            expect(&mut stream, b"\x20\x02\x00\x00")?;
            Ok::<_, io::Error>(stream)
        };
        let (publisher, mut subscriber) = (connect(b'a')?, connect(b'b')?);
        subscriber.write_all(b"\x82\x06\x00\x01\x00\x01t\x01")?;
        expect(&mut subscriber, b"\x90\x03\x00\x01\x01")?;
        Ok(PublishClients { publisher, subscriber })
    }

    fn publish(&mut self, qos: u8) -> io::Result<()> {
        if qos == 0 {
            self.publisher.write_all(b"\x30\x04\x00\x01tx")?;
            return expect(&mut self.subscriber, b"\x30\x04\x00\x01tx");
        }
        self.publisher.write_all(b"\x32\x06\x00\x01t\x00\x02x")?;
        expect(&mut self.publisher, b"\x40\x02\x00\x02")?;
        expect(&mut self.subscriber, b"\x32\x06\x00\x01t")?;
        let mut rest = [0; 3];
        self.subscriber.read_exact(&mut rest)?;
        self.subscriber.write_all(&[0x40, 2, rest[0], rest[1]])
    }
}

fn expect(stream: &mut TcpStream, wanted: &[u8]) -> io::Result<()> {
    let mut bytes = vec![0; wanted.len()];
    stream.read_exact(&mut bytes)?;
    match bytes == wanted {
        true => Ok(()),
        false => Err(io::Error::other(format!("it answered {bytes:?}"))),
    }
}

/// Sums the instructions of each file of this project in a dump of callgrind. `fl=` begins a
/// function of a file, `fi=` and `fe=` inlined code of a file; the line after `calls=` is the cost
/// of the called function and does not count.
fn instructions_by_file(dump: &str) -> BTreeMap<String, u64> {
    let (mut counted, mut file, mut is_call) = (BTreeMap::new(), None, false);
    for line in dump.lines() {
        let named = ["fl=", "fi=", "fe="].into_iter().find_map(|mark| line.strip_prefix(mark));
        if let Some(path) = named {
            file = own_file(path);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some(count) = cost_of_line(line) {
            if let Some(file) = file.as_ref().filter(|_| !is_call) {
                *counted.entry(file.clone()).or_default() += count;
            }
            is_call = false;
        }
    }
    counted
}

/// Returns the instructions of a cost line such as `12 345`, `+3 9` or `* 2`.
fn cost_of_line(line: &str) -> Option<u64> {
    line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)).then_some(())?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn own_file(path: &str) -> Option<String> {
    let (_, inside) = path.rsplit_once("/crates/")?;
    let (name, file) = inside.split_once("/src/")?;
    let is_ours = !path.contains("/rustc/") && !path.contains("/registry/");
    (is_ours && file.ends_with(".rs")).then(|| format!("{name}/{}", file.trim_end_matches(".rs")))
}

fn table(cases: &[CountedFiles]) -> String {
    let mut text = String::from("| case | files | which |\n|---|--:|---|\n");
    for (case, files) in cases {
        let mut crates: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, file) in files.iter().filter_map(|file| file.split_once('/')) {
            crates.entry(name).or_default().push(file);
        }
        let parts = crates.iter().map(|(name, files)| format!("{name}: {}", files.join(", ")));
        let parts: Vec<String> = parts.collect();
        text += &format!("| {case} | {} | {} |\n", files.len(), parts.join("; "));
    }
    text
}

fn with_table(document: &str, table: &str) -> Option<String> {
    let (head, rest) = document.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}{table}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_functions_and_of_what_is_inlined() {
        let dump = "fl=/a/crates/broker/src/routing/publish.rs\nfn=x\n1 2\n+1 3\n\
                    cfn=y\ncalls=1 7\n+2 900\n* 1\n\
                    fi=/a/crates/mqtt/src/text.rs\n3 4\n\
                    fe=/a/crates/broker/src/routing/publish.rs\n9 10\n\
                    fl=/rustc/library/stdarch/crates/core_arch/src/x86/sse2.rs\n1 1\n\
                    fl=/r/mio-1.0/src/poll.rs\n1 1\n";
        let counted = instructions_by_file(dump);
        let wanted = [("broker/routing/publish", 16), ("mqtt/text", 4)];
        assert_eq!(counted, wanted.map(|(file, count)| (file.to_string(), count)).into());
    }

    #[test]
    fn the_table_takes_the_place_of_the_one_before() {
        let files = ["broker/shard", "mqtt/text", "broker/outbox"].map(String::from);
        let counted = table(&[("QoS 0", files.into())]);
        let wanted = "| QoS 0 | 3 | broker: outbox, shard; mqtt: text |\n";
        assert!(counted.ends_with(wanted), "{counted}");
        let document = format!("a\n{BEGIN}old\n{END}b\n");
        let written = with_table(&document, &counted).expect("the marks are there");
        assert_eq!(written, format!("a\n{BEGIN}{counted}{END}b\n"));
    }
}
