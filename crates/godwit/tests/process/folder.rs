//! `godwit store`: checks a data folder, and moves its contents by export and import.

use crate::broker::{GODWIT, TestBroker, godwit, run, scratch};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

const LINES: &str = r#"{"space":"messages","key":"01","value":"68656c6c6f"}
{"space":"queues","key":"00ff","value":""}
{"space":"sessions","key":"61","value":"00"}
{"pairs":3}
"#;

fn import(folder: &Path, lines: &str) -> (Option<i32>, String) {
    let mut command =
        godwit(&["store", "import", "--data", folder.to_str().expect("the path is text")]);
    let mut child =
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("godwit can be run");
    let mut stdin = child.stdin.take().expect("it was asked for");
    // Who refuses at once does not read.
    let _ = stdin.write_all(lines.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8(output.stderr).expect("output is text"))
}

#[test]
fn what_was_exported_can_be_imported() {
    let folder = scratch("store-carried").join("data");
    assert_eq!(import(&folder, LINES), (Some(0), "godwit: 3 pairs\n".to_string()));
    let data = folder.to_str().unwrap();
    let checked = run(&["store", "check", "--data", data]);
    let whole = "last batch 1, of them in the log 1\nwhole\n";
    assert_eq!(checked, (Some(0), whole.to_string(), String::new()));
    let exported = run(&["store", "export", "--data", data]);
    assert_eq!(exported, (Some(0), LINES.to_string(), "godwit: 3 pairs\n".to_string()));
    let again = import(&folder, LINES);
    let why = format!("godwit: {data}: there is a store already; import makes a new one\n");
    assert_eq!(again, (Some(1), why));
}

#[test]
fn a_line_that_is_no_export_is_refused_by_its_number() {
    let folder = scratch("store-wrong-line").join("data");
    let lines = LINES.replace("queues", "queue");
    let (code, stderr) = import(&folder, &lines);
    assert_eq!(code, Some(1));
    let why = "godwit: stdin:2: not a line that export writes, use one like {\"space\":";
    assert!(stderr.starts_with(why), "{stderr}");
}

/// The last line of an export contains the number of pairs, so an import detects a truncated or
/// incomplete export.
#[test]
fn what_is_not_a_whole_export_is_refused() {
    let folder = scratch("store-cut").join("data");
    let first = LINES.split_inclusive('\n').next().unwrap();
    let without_end = LINES.replace("{\"pairs\":3}\n", "");
    let line_missing = LINES.replace(first, "");
    for (lines, why) in [
        (without_end.as_str(), "stdin:4: the end is missing, so this may be a part only: export"),
        (first, "stdin:2: the end is missing"),
        ("", "stdin:1: the end is missing"),
        (&line_missing, "stdin:3: 3 pairs were exported and 2 are here: export anew"),
        (&(LINES.to_string() + first), "stdin:5: nothing may follow the line with the number"),
        (&(LINES.to_string() + LINES), "stdin:5: nothing may follow the line with the number"),
        (&LINES[..LINES.len() - 3], "stdin:4: not a line that export writes"),
    ] {
        let (code, stderr) = import(&folder, lines);
        assert_eq!(code, Some(1), "{lines}");
        assert!(stderr.starts_with(&format!("godwit: {why}")), "{lines}: {stderr}");
    }
    assert_eq!(import(&folder, "{ \"pairs\" : 0 }\n"), (Some(0), "godwit: 0 pairs\n".to_string()));
}

/// A failed import must not leave an empty store, on which a broker would start.
#[test]
fn an_import_that_fails_leaves_the_data_folder_as_it_was() {
    let home = scratch("store-failed-import");
    let half = LINES.replace("{\"pairs\":3}\n", "");
    let folder = home.join("new/data");
    assert_eq!(import(&folder, &half).0, Some(1));
    assert!(!home.join("new").exists());

    // It was there before, with files of others.
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("notes"), "mine").unwrap();
    assert_eq!(import(&folder, &half).0, Some(1));
    let names = || {
        let found = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = found.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["lock", "notes"]);
    assert_eq!(import(&folder, LINES).0, Some(0));
    assert_eq!(names(), ["lock", "log.1", "mark", "notes", "store"]);
    let whole = run(&["store", "export", "--data", folder.to_str().unwrap()]);
    assert_eq!((whole.0, whole.1.as_str()), (Some(0), LINES));
}

/// A file size limit of the process (`ulimit -f`) stands in for a full disk.
#[test]
fn an_import_that_has_no_room_ends_and_leaves_nothing() {
    let folder = scratch("store-no-room").join("data");
    let value = "00".repeat(1 << 20);
    let lines = (0..8).fold(String::new(), |lines, key| {
        lines + &format!("{{\"space\":\"queues\",\"key\":\"0{key}\",\"value\":\"{value}\"}}\n")
    });
    let file = folder.with_file_name("lines");
    std::fs::write(&file, lines + "{\"pairs\":8}\n").unwrap();
    // 1 MiB; what cannot be written is told to the process, which goes on.
    let line = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" store import --data \"$1\" <\"$2\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", line, GODWIT]).args([&folder, &file]);
    let output = command.output().expect("sh can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("data: the store is full"), "{stderr}");
    assert!(!folder.exists());
}

#[test]
fn damage_is_named_and_exported_around() {
    let folder = scratch("store-damaged").join("data");
    import(&folder, LINES);
    let log = folder.join("log.1");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let data = folder.to_str().unwrap();
    let (code, stdout, _) = run(&["store", "check", "--data", data]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("damaged: batch 1 is missing\n"), "{stdout}");
    let (code, stdout, stderr) = run(&["store", "export", "--data", data]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("the store is damaged: batch 1 is missing"), "{stderr}");
    let (code, _, stderr) = run(&["store", "export", "--data", data, "--repair"]);
    assert_eq!(code, Some(0));
    assert_eq!(stderr, "godwit: damaged: batch 1 is missing\ngodwit: 0 pairs\n");
}

#[test]
fn a_folder_that_is_not_there_stays_so() {
    let folder = scratch("store-absent").join("data");
    for verb in ["check", "export"] {
        let (code, _, stderr) = run(&["store", verb, "--data", folder.to_str().unwrap()]);
        assert_eq!(code, Some(1));
        assert!(stderr.contains("No such file or directory"), "{stderr}");
        assert!(!folder.exists());
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    for (arguments, why) in [
        (&["store"][..], "<check|export|import>"),
        (&["store", "chekc"], "a similar value exists: 'check'"),
        (&["store", "import", "--repair"], "only export takes --repair"),
        (&["store", "check", "--dato", "x"], "a similar argument exists: '--data'"),
        (&["store", "check", "/data"], "/data: the folder is named with --data, use godwit store"),
        (&["store", "import", "d"], "use godwit store import --data d"),
    ] {
        let (code, _, stderr) = run(arguments);
        assert_eq!(code, Some(2));
        assert!(stderr.contains(why), "{stderr}");
    }
}

/// Returns the error text of a broker that refuses to start on the data folder.
fn refused(data: &str) -> String {
    let (code, stdout, stderr) = run(&["serve", "--data", data, "--listen", "tcp://127.0.0.1:0"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    stderr
}

#[test]
fn a_folder_belongs_to_one_process() {
    let folder = scratch("store-locked").join("data");
    let data = folder.to_str().unwrap();
    let mut first = TestBroker::start(&["--data", data]);
    let why = format!(
        "godwit: {data} (option data): another process uses the data folder, name another one with \
         --data\n"
    );
    assert_eq!(refused(data), why);
    first.program.signal("TERM");
    assert_eq!(first.program.exit_code(), Some(0));
}

#[test]
fn a_damaged_store_starts_only_with_repair_and_an_unknown_one_not_at_all() {
    let folder = scratch("store-serve-damaged").join("data");
    import(&folder, LINES);
    let log = folder.join("log.1");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let data = folder.to_str().unwrap();
    let why = refused(data);
    assert!(why.contains("the store is damaged: batch 1 is missing. Nothing was changed"), "{why}");
    assert!(why.contains("--repair starts without what is missing"), "{why}");
    let mut repaired = TestBroker::start(&["--data", data, "--repair"]);
    repaired.program.signal("TERM");
    assert_eq!(repaired.program.exit_code(), Some(0));
    drop(TestBroker::start(&["--data", data]));

    let manifest = folder.join("store");
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[8] = 9;
    std::fs::write(&manifest, bytes).unwrap();
    let why = refused(data);
    assert!(why.contains("the store has format 9, and this program knows format 1 alone"), "{why}");
}
