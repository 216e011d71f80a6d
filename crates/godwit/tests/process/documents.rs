//! Completions for shells, and man pages.

use crate::broker::{run, scratch};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a program of the host. Returns exit code, stdout and stderr, or `None` if the program is
/// not installed.
fn run_tool(program: &str, arguments: &[&str]) -> Option<(Option<i32>, String, String)> {
    let mut command = Command::new(program);
    let command = command.args(arguments).env("MANWIDTH", "200").env("LC_ALL", "C");
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

fn write_completions(folder: &Path, shell: &str) -> String {
    let (code, script, stderr) = run(&["completions", shell]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(script.contains("queue.messages_max"), "{script}");
    let file = folder.join(shell);
    std::fs::write(&file, script).expect("the scratch folder is ours");
    file.to_str().expect("text").to_string()
}

/// Returns the completions which a bash script offers for the last of `words`.
fn complete(script: &str, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let line = format!(
        "source {script}; COMP_WORDS=({}); COMP_CWORD={last}; _godwit godwit '{}' '{}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words[last],
        words[last - 1],
    );
    let (code, stdout, stderr) = run_tool("bash", &["-c", &line]).expect("bash is there");
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{words:?}");
    stdout.lines().map(String::from).collect()
}

#[test]
fn bash_completes_flags_subcommands_and_words() {
    let script = write_completions(&scratch("completions-bash"), "bash");
    let (code, _, stderr) = run_tool("bash", &["-n", &script]).unwrap();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for (words, expected) in [
        (&["godwit", "serve", "--queue.messages"][..], &["--queue.messages_max"][..]),
        (&["godwit", "--mem"], &["--memory", "--memory.bytes_max"]),
        (&["godwit", "comp"], &["completions"]),
        (&["godwit", "completions", "f"], &["fish"]),
        (&["godwit", "serve", "--durability", ""], &["lazy", "memory", "sync"]),
        (&["godwit", "store", "exp"], &["export"]),
        (&["godwit", "sub", "--retain-a"], &["--retain-as-published"]),
    ] {
        assert_eq!(complete(&script, words), expected, "{words:?}");
    }
}

#[test]
fn scripts_of_other_shells_are_right_where_the_shell_is_there_to_read_them() {
    let folder = scratch("completions-others");
    for shell in ["fish", "zsh"] {
        let script = write_completions(&folder, shell);
        if let Some((code, _, stderr)) = run_tool(shell, &["-n", &script]) {
            assert_eq!((code, stderr.as_str()), (Some(0), ""), "{shell}");
        }
    }
    let (code, _, stderr) = run(&["completions", "csh"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("[possible values: bash, fish, zsh]"), "{stderr}");
}

#[test]
fn man_pages_are_written_and_can_be_rendered() {
    let folder = scratch("man-pages");
    let (code, stdout, _) = run(&["man", "--out", folder.to_str().unwrap()]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    for (page, flags) in [
        ("godwit", &["--queue.messages_max", "--memory", "--version"][..]),
        ("godwit-serve", &["--log.level", "-c, --config", "-l, --listen"]),
        ("godwit-sub", &["--retain-handling"]),
    ] {
        let file = folder.join(format!("{page}.1"));
        let (_, printed, _) = match page.strip_prefix("godwit-") {
            Some(subcommand) => run(&["man", subcommand]),
            None => run(&["man"]),
        };
        assert_eq!(printed, std::fs::read_to_string(&file).unwrap(), "{page}");
        let arguments = ["--warnings", "-E", "ascii", "-l", file.to_str().unwrap()];
        if let Some((Some(0), rendered, stderr)) = run_tool("man", &arguments) {
            assert_eq!(stderr, "", "{page}");
            // A host without groff has a man that prints nothing.
            let is_there = |flag: &&str| rendered.is_empty() || rendered.contains(*flag);
            assert!(flags.iter().all(is_there), "{page}: {rendered}");
        }
    }
    let (code, _, stderr) = run(&["man", "--out", "/dev/null/pages"]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("godwit: /dev/null/pages: "), "{stderr}");
}
