//! Properties of file sinks only: rotation, full disks, large files, and one unwritable file among
//! several.

use super::contract::{OURS, SinkRig, numbers, wait_until};
use super::places::{CsvRows, JsonRows, ParquetRows, RowFormat, parquet_files};
use crate::broker::scratch;
use crate::installed::leave_out;
use parquet::file::reader::SerializedFileReader;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[test]
fn files_are_by_topic_and_rotate() {
    let folder = scratch("sink-rotates");
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nbatch.wait_ms = 0\n\
         file.path = \"{}/${{topic[2]}}.jsonl\"\nfile.rotate_bytes = 1024\nfile.keep = 3\n",
        folder.display()
    );
    let edge = SinkRig::start("sink-rotates-options", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    for topic in ["a/x", "a/..", "a/y/z"] {
        edge.publish(&["-t", topic, "-m", "1", "-q", "1"]);
    }
    let all = ["x.jsonl", "%2E..jsonl", "y.jsonl"];
    wait_until("a file a topic", || all.iter().all(|name| folder.join(name).exists()));
    edge.count("a/x", "1", 0..200);
    edge.wait_for_value("out/messages", |value| value == "203");
    let names = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name());
    let old = names.filter(|name| name.to_string_lossy().starts_with("x.jsonl.")).count();
    assert_eq!(old, 3);
    let largest =
        fs::read_dir(&folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert!(largest.max().unwrap() <= 1024);
    assert_eq!(edge.file.parent().unwrap().read_dir().unwrap().count(), 1, "nothing is elsewhere");
}

#[test]
fn parquet_has_types_and_whole_files() {
    let folder = scratch("sink-parquet");
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nrefused_tries = 1\nbatch.wait_ms = 300\n\
         file.path = \"{}/${{topic[1]}}.parquet\"\nfile.format = \"parquet\"\nfile.keep = 2\n\
         columns = [\"at=${{timestamp_ms}}\", \"n=${{payload.n}}\", \"v=${{payload.v}}\", \
         \"is=${{payload.is}}\", \"raw=${{payload}}\", \"where=at ${{topic}}\"]\n\
         file.types = [\"at=timestamp_ms\", \"n=int64\", \"v=double\", \"is=boolean\", \
         \"raw=bytes\"]\n",
        folder.display()
    );
    let mut edge = SinkRig::start("sink-parquet-options", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    // What a process that was killed leaves.
    fs::write(folder.join("a.unfinished"), "PAR1").unwrap();
    let file = edge.file.with_file_name("payloads");
    fs::write(&file, "{\"n\":7,\"v\":0.5,\"is\":true}\n{\"n\":21.0,\"v\":3}\n{\"n\":\"x\"}\n{}\n")
        .unwrap();
    edge.publish_lines(&["-t", "a", "-q", "1"], &file);
    let line = edge.broker.program.wait_for("not passed on");
    assert!(line.contains("column n: \\\"x\\\" is not of type int64"), "{line}");
    edge.wait_for_value("out/messages", |value| value == "3");
    let rows = |path: &Path| -> Vec<String> {
        let reader = SerializedFileReader::try_from(path).unwrap();
        let rows = reader.into_iter().map(Result::unwrap);
        rows.map(|row| row.to_string()).collect()
    };
    let found: Vec<String> = parquet_files(&folder).iter().flat_map(|path| rows(path)).collect();
    let wanted =
        ["n: 7, v: 0.5, is: true", "n: 21, v: 3.0, is: null", "n: null, v: null, is: null"];
    assert_eq!(found.len(), 3);
    for (row, wanted) in found.iter().zip(wanted) {
        assert!(row.contains(wanted) && row.contains("where: \"at a\""), "{row} {wanted}");
    }
    assert!(!folder.join("a.unfinished").exists());
    for number in ["4", "5", "6"] {
        edge.publish(&["-t", "a", "-q", "1", "-m", "{}"]);
        edge.wait_for_value("out/messages", |value| value == number);
    }
    assert_eq!(parquet_files(&folder).len(), 2, "the oldest go");
}

#[test]
fn a_full_disk_is_waited_for() {
    let folder = scratch("sink-full");
    let shown = folder.display().to_string();
    let mount = ["-t", "tmpfs", "-o", "size=64k", "none", &shown];
    if !Command::new("mount").args(mount).status().is_ok_and(|status| status.success()) {
        return leave_out("a full disk is mounted by root");
    }
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 50\nretry_max_s = 1\n\
         columns = [\"p=${{payload}}\"]\nfile.path = \"{shown}/rows\"\n"
    );
    let edge = SinkRig::start("sink-full-options", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![7; 56 << 10]).unwrap();
    let took = edge.count("a", "1", 0..2000);
    edge.wait_for_value("state", |value| value == "0");
    edge.wait_for_value("last_error", |value| value.contains("No space left"));
    let torn = fs::read_to_string(folder.join("rows")).unwrap();
    assert!(torn.is_empty() || torn.ends_with('\n'), "a line is whole or not there");
    fs::remove_file(&ballast).unwrap();
    edge.wait_until_done();
    let rows = fs::read_to_string(folder.join("rows")).unwrap();
    drop(edge);
    assert!(Command::new("umount").arg(&shown).status().unwrap().success());
    let wanted: Vec<String> = (0..2000).map(|number| format!("{{\"p\":{number}}}")).collect();
    assert!(rows.lines().eq(&wanted), "{} rows", rows.lines().count());
    assert!(took < Duration::from_secs(10), "the publisher waited: {took:?}");
}

#[test]
fn large_files_in_a_batch_that_takes_longer_get_each_row_once() {
    let folder = scratch("sink-many");
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 20\nretry_max_s = 1\n\
         timeout_ms = 20\nbatch.messages_max = 100\nbatch.wait_ms = 10000\n\
         columns = [\"p=${{payload}}\"]\nfile.format = \"csv\"\n\
         file.path = \"{}/${{topic[2]}}.csv\"\n",
        folder.display()
    );
    // More than are open at a time, and a look through all of them takes longer than timeout_ms.
    let old = format!("p\r\n{}", "what was there\r\n".repeat(65_536));
    let path = |number: u32| folder.join(format!("{number}.csv"));
    (0..100).for_each(|number| fs::write(path(number), &old).unwrap());
    let edge = SinkRig::start("sink-many-options", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    for round in 1..=2 {
        for number in 0..100 {
            edge.publish(&["-t", &format!("a/{number}"), "-m", "new", "-q", "1"]);
        }
        let all = (round * 100).to_string();
        edge.wait_for_value("out/messages", |value| value == all);
        for number in 0..100 {
            let found = fs::read_to_string(path(number)).unwrap();
            let new = found.strip_prefix(&old).unwrap();
            assert_eq!(new, "new\r\n".repeat(round), "{number}.csv");
        }
    }
    edge.wait_for_value("out/failures", |value| value == "0");
    edge.wait_for_value("last_error", |value| value.contains("it is waited for"));
    fs::remove_dir_all(folder).unwrap();
}

/// A batch has rows for three files, one of which cannot be written.
fn trouble_with_one_file_doubles_nothing<F: RowFormat>() {
    let folder = scratch(&format!("sink-one-{}", F::NAME));
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 10\nretry_max_s = 1\n\
         batch.messages_max = 30\nbatch.wait_ms = 300\n\
         file.path = \"{}/${{topic}}/rows\"\nfile.format = \"{}\"\n",
        folder.display(),
        F::NAME
    );
    let edge = SinkRig::start(&format!("sink-one-{}-options", F::NAME), &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    fs::write(folder.join("bad"), "in the way").expect(OURS);
    let topics = [("bad", "1"), ("good", "2"), ("best", "0")];
    let publish = |numbers: Range<u32>| {
        topics.iter().for_each(|(topic, qos)| _ = edge.count(topic, qos, numbers.clone()));
    };
    publish(0..10);
    edge.wait_for_value("out/failures", |value| value.parse::<u32>().is_ok_and(|times| times > 5));
    edge.wait_for_value("last_error", |value| value.contains("bad/rows (option file.path)"));
    let rows = |topic: &str| F::rows(&folder.join(topic).join("rows"));
    assert_eq!(rows("best"), numbers("best", 0..10));
    assert_eq!(rows("good"), numbers("good", 0..10));
    fs::remove_file(folder.join("bad")).expect(OURS);
    edge.wait_for_value("out/messages", |value| value == "30");
    publish(10..20);
    edge.wait_for_value("out/messages", |value| value == "60");
    for (topic, _) in topics {
        assert_eq!(rows(topic), numbers(topic, 0..20), "{topic}");
    }
}

#[test]
fn trouble_with_one_file_doubles_nothing_in_others() {
    trouble_with_one_file_doubles_nothing::<JsonRows>();
    trouble_with_one_file_doubles_nothing::<CsvRows>();
    trouble_with_one_file_doubles_nothing::<ParquetRows>();
}

/// The file is renamed whenever `file.rotate_bytes` is reached, and an older renamed file cannot be
/// removed, so each rotation fails after the rows are written.
#[test]
fn what_is_in_a_file_that_makes_trouble_later_is_not_written_again() {
    let folder = scratch("sink-half");
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 10\nretry_max_s = 1\n\
         batch.messages_max = 500\ncolumns = [\"p=${{payload}}\"]\n\
         file.path = \"{}/rows\"\nfile.rotate_bytes = 1024\nfile.keep = 1\n",
        folder.display()
    );
    let edge = SinkRig::start("sink-half-options", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    let old = |number: u32| folder.join(format!("rows.{number:04}0101T000000-000"));
    fs::create_dir_all(old(1999).join("in the way")).unwrap();
    edge.count("a", "1", 0..500);
    edge.wait_for_value("out/messages", |value| value == "500");
    edge.wait_for_value("out/failures", |value| value.parse::<u32>().is_ok_and(|times| times > 3));
    fs::remove_dir_all(old(1999)).unwrap();
    let mut rows = String::new();
    let mut names: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    // The one that is written now is the last one.
    names.sort_by_key(|path| (path.ends_with("rows"), path.clone()));
    names.iter().for_each(|path| rows.push_str(&fs::read_to_string(path).unwrap()));
    let wanted: Vec<String> = (0..500).map(|number| format!("{{\"p\":{number}}}")).collect();
    assert!(rows.lines().eq(&wanted), "{} rows", rows.lines().count());
}

/// A file has one writer at a time: a sink that takes over the path of another sink, by a swap or
/// under a new name, waits until the other sink has ended.
#[test]
fn who_gets_the_path_of_another_sink_waits_for_its_end() {
    let folder = scratch("sink-heirs");
    let sink = |name: &str, topic: &str, file: &str| {
        format!(
            "[[sink]]\nname = \"{name}\"\nfilters = [\"{topic}\"]\nbatch.messages_max = 2000\n\
             file.path = \"{}/{file}-${{payload}}\"\n",
            folder.display()
        )
    };
    let first = sink("s", "busy", "one") + &sink("idle", "quiet", "two");
    let swapped = sink("s", "busy", "two") + &sink("idle", "quiet", "one");
    let renamed = sink("heir", "quiet", "one");
    for (next, heir) in [(swapped, "idle"), (renamed, "heir")] {
        let mut edge = SinkRig::start("sink-heirs-options", &first, &[]);
        edge.wait_for_value("state", |value| value == "1");
        // A file and its way to the disk for each message keep it busy.
        edge.count("busy", "1", 0..3000);
        edge.broker.program.wait_for("client_id=godwit-pub");
        fs::write(&edge.file, next).expect(OURS);
        edge.broker.program.signal("HUP");
        while !edge.broker.program.wait_for("sink connected").contains(&format!("sink={heir}")) {}
        let is_end = |line: &String| line.contains("sink stopped") && line.contains("sink=s");
        let seen = edge.broker.program.seen();
        assert!(seen.iter().any(is_end), "{heir} did not wait:\n{}", seen.join("\n"));
    }
}
