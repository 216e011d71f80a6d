//! Tables of realistic configurations, stored as data beside the samples: the result of importing
//! each file, and the access that a broker with the result grants.

use crate::broker::{TestProgram, godwit, run, scratch};
use crate::certs;
use crate::clients::unused_port;
use std::fs;
use std::path::{Path, PathBuf};

/// An entry of a table: `=== NAME`, lines `WORD TEXT`, and files that follow lines `--- NAME`.
struct TableCase {
    name: String,
    lines: Vec<(String, String)>,
    files: Vec<(String, String)>,
}

impl TableCase {
    fn all<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter(move |(own, _)| own == word).map(|(_, text)| text.as_str())
    }

    fn one<'a>(&'a self, word: &'a str) -> Option<&'a str> {
        self.all(word).next()
    }
}

fn read_table(name: &str) -> Vec<TableCase> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import").join(name);
    let text = fs::read_to_string(path).expect("a file of the test's own");
    let mut cases: Vec<TableCase> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            let name = name.to_string();
            cases.push(TableCase { name, lines: Vec::new(), files: Vec::new() });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        if let Some(name) = line.strip_prefix("--- ") {
            case.files.push((name.to_string(), String::new()));
        } else if let Some((_, text)) = case.files.last_mut() {
            text.push_str(line);
            text.push('\n');
        } else if let Some((word, rest)) = line.split_once(' ') {
            case.lines.push((word.to_string(), rest.trim().to_string()));
        }
    }
    cases
}

/// Writes the files of a case into a folder, with `FOLDER` and the port names replaced. Returns the
/// path of the configuration.
fn write_files(case: &TableCase, folder: &Path, ports: &[(String, String)]) -> PathBuf {
    let encode = case.one("encoding").unwrap_or("utf-8");
    for (name, text) in &case.files {
        let mut text = text.replace("FOLDER", folder.to_str().expect("a path in UTF-8"));
        for (symbol, port) in ports {
            text = text.replace(symbol, port);
        }
        let bytes = match encode {
            "bom" => [b"\xef\xbb\xbf".to_vec(), text.into_bytes()].concat(),
            "crlf" => text.replace('\n', "\r\n").into_bytes(),
            "unended" => text.trim_end().as_bytes().to_vec(),
            "latin-1" => text.chars().map(|char| char as u8).collect(),
            "utf-16" => {
                format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
            }
            _ => text.into_bytes(),
        };
        fs::write(folder.join(name), bytes).expect("a file of the test's own");
    }
    folder.join(&case.files[0].0)
}

fn import(case: &TableCase, source: &Path, out: &Path) -> (Option<i32>, String) {
    let mut arguments = vec!["import", source.to_str().expect("UTF-8"), "--out"];
    arguments.push(out.to_str().expect("UTF-8"));
    let flags = case.one("flags").unwrap_or_default();
    arguments.extend(flags.split_whitespace());
    let (code, _, stderr) = run(&arguments);
    (code, stderr)
}

#[test]
fn files_as_people_have_them_become_what_the_table_says() {
    let folder = scratch("import-table");
    certs::make(&folder).expect("certificates");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for table in ["table_mosquitto.txt", "table_nanomq.txt", "table_emqx.txt"] {
        for case in read_table(table) {
            count += 1;
            let own = folder.join(&case.name);
            fs::create_dir(&own).expect("a name of its own");
            for file in ["server.pem", "server.key", "ca.pem"] {
                fs::copy(folder.join(file), own.join(file)).expect("certificates");
            }
            let source = write_files(&case, &own, &[]);
            let out = own.join("out.toml");
            let (code, stderr) = import(&case, &source, &out);
            let rules = fs::read_to_string(own.join("out.rules.toml")).unwrap_or_default();
            let written = fs::read_to_string(&out).unwrap_or_default();
            let (options, _) = written.split_once("\n# no equal:\n").unwrap_or((&written, ""));
            let options = format!("{options}\n{rules}");
            let has = |line: &str| options.lines().any(|own| own == line);
            let mut complain = |why: String| wrong.push(format!("{}: {why}\n{stderr}", case.name));
            let wanted = case.one("rc").unwrap_or("0").parse().ok();
            if code != wanted {
                complain(format!("rc {code:?}, not {wanted:?}"));
                continue;
            }
            case.all("says").filter(|text| !stderr.contains(text)).for_each(|text| {
                complain(format!("does not say {text:?}"));
            });
            case.all("has").filter(|line| !has(line)).for_each(|line| {
                complain(format!("has no {line:?} in\n{options}"));
            });
            case.all("lacks").filter(|text| options.contains(text)).for_each(|text| {
                complain(format!("has {text:?} in\n{options}"));
            });
            if code == Some(0) {
                let (checked, _, why) = run(&["check", "--config", out.to_str().expect("UTF-8")]);
                let wanted = if case.one("check") == Some("fails") { 2 } else { 0 };
                if checked != Some(wanted) {
                    complain(format!("check {checked:?}, not {wanted}: {why}\n{options}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(count >= 60, "{count} cases");
}

/// Exit code of a client that was admitted and authorized.
const DONE: Option<i32> = Some(0);

/// Returns whether a client with these credentials may do an action: `PORT USER PASSWORD pub TOPIC`
/// or `... sub FILTER`; `-` stands for an absent name or password.
fn may(ask: &[&str], host: &str) -> bool {
    let [port, user, password, deed, topic] = ask[..] else { panic!("{ask:?}") };
    let mut arguments = vec![deed, "-h", host, "-p", port, "-V", "5", "-q", "1", "-t", topic];
    if user != "-" {
        arguments.extend(["-u", user]);
    }
    if password != "-" {
        arguments.extend(["-P", password]);
    }
    match deed {
        "pub" => run(&[&arguments[..], &["-m", "x"]].concat()).0 == DONE,
        // With -E it ends as soon as it is granted.
        _ => run(&[&arguments[..], &["-E", "-W", "10"]].concat()).0 == DONE,
    }
}

#[test]
fn nobody_gets_in_or_does_what_the_original_refuses() {
    let folder = scratch("import-access");
    certs::make(&folder).expect("certificates");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in read_table("access.txt") {
        let own = folder.join(&case.name);
        fs::create_dir(&own).expect("a name of its own");
        for file in ["server.pem", "server.key", "ca.pem"] {
            fs::copy(folder.join(file), own.join(file)).expect("certificates");
        }
        let port = |symbol: &str| (symbol.to_string(), unused_port());
        let ports = [port("PORT1"), port("PORT2")];
        let source = write_files(&case, &own, &ports);
        let out = own.join("out.toml");
        let (code, stderr) = import(&case, &source, &out);
        let config = out.to_str().expect("UTF-8");
        // A configuration that is refused lets nobody in.
        let is_refused = code != Some(0) || run(&["check", "--config", config]).0 != Some(0);
        let broker = (!is_refused).then(|| {
            let program = TestProgram::start(godwit(&["serve", "--memory", "--config", config]));
            started(program)
        });
        for ask in case.all("ask") {
            count += 1;
            let (ask, wanted) = ask.rsplit_once(" -> ").expect("an answer");
            let mut ask = ask.to_string();
            for (symbol, port) in &ports {
                ask = ask.replace(symbol, port);
            }
            let words: Vec<&str> = ask.split_whitespace().collect();
            let (host, words) = (words[0], &words[1..]);
            let found = if broker.is_some() && may(words, host) { "yes" } else { "no" };
            if found != wanted {
                let written = fs::read_to_string(&out).unwrap_or_default();
                let rules = fs::read_to_string(own.join("out.rules.toml")).unwrap_or_default();
                wrong.push(format!(
                    "{}: {ask} is {found}, not {wanted}\n{stderr}\n{written}\n{rules}",
                    case.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(count >= 50, "{count} questions");
}

/// Waits for the start of a broker without a TCP listener, whose banner has no address.
fn started(mut program: TestProgram) -> TestProgram {
    program.wait_for("memory limit");
    program
}
