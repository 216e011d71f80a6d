//! `godwit passwd`: writes the user file. A password is never shown: it is asked for at the
//! terminal without an echo, or read from stdin.

use crate::flags::{self, CliFlag};
use crate::{fail, fail_with_usage_error, print};
use auth::password_hash::PasswordHash;
use auth::users::check_name;
use rustix::termios::{LocalModes, OptionalActions, isatty, tcgetattr, tcsetattr};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const FLAGS: &[CliFlag] = &[
    CliFlag {
        names: &["-b"],
        values: &[],
        doc: "the password is the last argument; others may see it",
    },
    CliFlag { names: &["-c"], values: &[], doc: "begin the file anew, without the users in it" },
    CliFlag { names: &["-D"], values: &[], doc: "remove the user" },
    CliFlag {
        names: &["--scram"],
        values: &[],
        doc: "for clients of MQTT 5.0 that prove it by SCRAM-SHA-256, which never say it",
    },
    CliFlag {
        names: &["--strong"],
        values: &[],
        doc: "more than five times the work to check it, for passwords that people think of",
    },
    CliFlag { names: &["-h", "--help"], values: &[], doc: "this" },
];

const HELP: &str = "\
Usage: godwit passwd [-c] [--scram | --strong] FILE USER
       godwit passwd -D FILE USER
       godwit passwd [-c] [--scram | --strong] -b FILE USER PASSWORD

Gives a user of the file a password, or another one; option auth.users names the file. The broker
reads it again on SIGHUP. The password is asked for, or is the first line of stdin.

";

struct PasswdCommand {
    file: PathBuf,
    user: String,
    password: Option<Vec<u8>>,
    anew: bool,
    removes: bool,
    scheme: PasswordScheme,
}

#[derive(Clone, Copy)]
enum PasswordScheme {
    Argon2id,
    Argon2idStrong,
    Scram,
}

impl PasswordScheme {
    fn hash(self, password: &[u8]) -> Result<PasswordHash, String> {
        match self {
            PasswordScheme::Argon2id => PasswordHash::from_password(password),
            PasswordScheme::Argon2idStrong => PasswordHash::from_password_strong(password),
            PasswordScheme::Scram => PasswordHash::scram_from_password(password),
        }
    }
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let order = match parse_arguments(arguments) {
        Ok(Some(order)) => order,
        Ok(None) => return print(&format!("{HELP}{}", flags::help(FLAGS))),
        Err(wrongs) => return fail_with_usage_error(&wrongs),
    };
    match update_user_file(order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&[why]),
    }
}

fn parse_arguments(arguments: &[OsString]) -> Result<Option<PasswdCommand>, Vec<String>> {
    // What stands behind FILE and USER is a password, whatever it begins with.
    let (mut switches, mut rest) = (Vec::new(), Vec::new());
    for word in arguments {
        let is_flag = word.to_string_lossy().starts_with('-');
        let is_batch = switches.iter().any(|switch| switch == "-b");
        match is_flag && (rest.len() < 2 || !is_batch && rest.len() == 2) {
            true => switches.push(word.clone()),
            false => rest.push(word.clone()),
        }
    }
    let used = flags::parse_flags(FLAGS, &switches)?;
    let has = |name: &str| used.iter().any(|used| used.name == name);
    if has("--help") {
        return Ok(None);
    }
    let (batch, anew, removes) = (has("-b"), has("-c"), has("-D"));
    let scheme = match (has("--scram"), has("--strong")) {
        (true, true) => return Err(vec!["--scram and --strong are two kinds, use one".into()]),
        (true, false) => PasswordScheme::Scram,
        (false, true) => PasswordScheme::Argon2idStrong,
        (false, false) => PasswordScheme::Argon2id,
    };
    let has_scheme = !matches!(scheme, PasswordScheme::Argon2id);
    if removes && (anew || batch || has_scheme) {
        return Err(vec!["-D stands alone: the user goes, and nothing else changes".into()]);
    }
    let wanted = if batch { 3 } else { 2 };
    if rest.len() != wanted {
        let right = if batch { "-b FILE USER PASSWORD" } else { "FILE USER" };
        return Err(vec![format!("use godwit passwd {right}")]);
    }
    let user = rest[1].to_str().ok_or_else(|| vec!["the user name is not UTF-8".to_string()])?;
    check_name(user).map_err(|why| vec![why])?;
    let password = rest.get(2).map(|text| text.as_encoded_bytes().to_vec());
    let file = PathBuf::from(&rest[0]);
    Ok(Some(PasswdCommand { file, user: user.into(), password, anew, removes, scheme }))
}

fn update_user_file(order: PasswdCommand) -> Result<(), String> {
    let shown = order.file.display();
    let before = match fs::read_to_string(&order.file) {
        Ok(text) => text.trim_start_matches('\u{feff}').to_string(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !order.removes => String::new(),
        Err(error) => return Err(format!("{shown}: {error}")),
    };
    let is_theirs = |line: &str| line.split_once(':').is_some_and(|(name, _)| name == order.user);
    if order.removes && !before.lines().any(is_theirs) {
        return Err(format!("{shown}: no user is named {:?}", order.user));
    }
    let mut lines: Vec<String> = Vec::new();
    if !order.anew {
        lines.extend(before.lines().filter(|line| !is_theirs(line)).map(String::from));
    }
    if !order.removes {
        let password = match order.password {
            Some(password) => password,
            None => prompt_password()?,
        };
        if password.is_empty() {
            return Err("the password is empty; nothing was changed".into());
        }
        let hash = order.scheme.hash(&password)?;
        lines.push(format!("{}:{hash}", order.user));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    replace_file(&order.file, &text).map_err(|error| format!("{shown}: {error}"))
}

/// Replaces the file atomically: a concurrent reader sees the old or the new content.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    // A symbolic link stays, and its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let written = written.and_then(|()| match fs::metadata(&path) {
        Ok(known) => {
            // The owner becomes the current user; the administrator decides which user the broker
            // runs as.
            let mode = known.permissions().mode() & 0o777;
            fs::set_permissions(&new, fs::Permissions::from_mode(mode))
        }
        Err(_) => Ok(()),
    });
    let written = written.and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Reads a new password: twice at a terminal, once from any other stdin.
fn prompt_password() -> Result<Vec<u8>, String> {
    if !isatty(io::stdin()) {
        return read_stdin_line().map_err(|error| format!("stdin: {error}"));
    }
    let first = prompt_without_echo("Password: ")?;
    let again = prompt_without_echo("Again: ")?;
    if first == again { Ok(first) } else { Err("they differ; nothing was changed".into()) }
}

fn prompt_without_echo(prompt: &str) -> Result<Vec<u8>, String> {
    let told = |error: rustix::io::Errno| format!("the terminal: {error}");
    let before = tcgetattr(io::stdin()).map_err(told)?;
    let mut unseen = before.clone();
    unseen.local_modes.remove(LocalModes::ECHO);
    unseen.local_modes.insert(LocalModes::ECHONL);
    let _ = write!(io::stderr(), "{prompt}");
    tcsetattr(io::stdin(), OptionalActions::Flush, &unseen).map_err(told)?;
    let answer = read_stdin_line();
    let after = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    after.map_err(told)?;
    answer.map_err(|error| format!("stdin: {error}"))
}

fn read_stdin_line() -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    io::stdin().lock().read_until(b'\n', &mut line)?;
    while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}
