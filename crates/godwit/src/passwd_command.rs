//! `godwit passwd`: writes the user file. The password comes from the terminal without an echo,
//! from the first line of stdin, or with `-b` from the command line, where other users may see it.

use crate::{fail, fail_with_usage_error, parse_line};
use auth::password_hash::PasswordHash;
use auth::users::check_name;
use command_line::{ArgMatches, Command, FlagRow};
use rustix::termios::{LocalModes, OptionalActions, isatty, tcgetattr, tcsetattr};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["-b"], &[], "the password is the last argument; others may see it"),
    FlagRow::new(&["-c"], &[], "begin the file anew, without the users in it"),
    FlagRow::new(&["-D"], &[], "remove the user"),
    FlagRow::new(
        &["--scram"],
        &[],
        "for clients of MQTT 5.0 that prove it by SCRAM-SHA-256, which never say it",
    ),
    FlagRow::new(
        &["--strong"],
        &[],
        "more than five times the work to check it, for passwords that people think of",
    ),
];

const USAGE: &str = "\
godwit passwd [-c] [--scram | --strong] FILE USER
       godwit passwd -D FILE USER
       godwit passwd [-c] [--scram | --strong] -b FILE USER PASSWORD";

const HELP: &str = "\
Option auth.users names the file, which the broker reads again on SIGHUP. The password is asked for,
or is the first line of stdin.";

const WORDS: &str = "FILE USER";

pub(crate) fn command() -> Command {
    let about = "Gives a user of the file of users a password, or another one";
    command_line::command("passwd", about, FLAGS)
        .arg(command_line::words(WORDS, "the file, a user's name, and with -b the password"))
        .override_usage(USAGE)
        .after_help(HELP)
}

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
    let matches = match parse_line(command(), &shield_password(arguments)) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let order = match parse_order(&matches) {
        Ok(order) => order,
        Err(why) => return fail_with_usage_error(&[why]),
    };
    match update_user_file(order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&[why]),
    }
}

/// Inserts `--` before the password of `-b`, the word after FILE and USER, because a password may
/// begin with a dash.
fn shield_password(arguments: &[OsString]) -> Vec<OsString> {
    let (mut line, mut words, mut is_batch) = (Vec::new(), 0, false);
    for argument in arguments {
        let is_password = is_batch && words == 2;
        if is_password {
            line.push("--".into());
        }
        let text = argument.to_string_lossy();
        let is_flag = text.starts_with('-') && !is_password;
        is_batch |= is_flag && !text.starts_with("--") && text.contains('b');
        words += usize::from(!is_flag);
        line.push(argument.clone());
    }
    line
}

fn parse_order(matches: &ArgMatches) -> Result<PasswdCommand, String> {
    let rest = command_line::words_of(matches, WORDS);
    let has = |name: &str| matches.contains_id(name);
    let (batch, anew, removes) = (has("-b"), has("-c"), has("-D"));
    let scheme = match (has("--scram"), has("--strong")) {
        (true, true) => return Err("--scram and --strong are two kinds, use one".into()),
        (true, false) => PasswordScheme::Scram,
        (false, true) => PasswordScheme::Argon2idStrong,
        (false, false) => PasswordScheme::Argon2id,
    };
    let has_scheme = !matches!(scheme, PasswordScheme::Argon2id);
    if removes && (anew || batch || has_scheme) {
        return Err("-D stands alone: the user goes, and nothing else changes".into());
    }
    let wanted = if batch { 3 } else { 2 };
    if rest.len() != wanted {
        let right = if batch { "-b FILE USER PASSWORD" } else { "FILE USER" };
        return Err(format!("use godwit passwd {right}"));
    }
    let user = rest[1].to_str().ok_or("the user name is not UTF-8")?;
    check_name(user)?;
    let password = rest.get(2).map(|text| text.as_encoded_bytes().to_vec());
    let file = PathBuf::from(&rest[0]);
    Ok(PasswdCommand { file, user: user.into(), password, anew, removes, scheme })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn order(line: &str) -> Result<PasswdCommand, String> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse_order(&parse_line(command(), &shield_password(&arguments)).expect("clap takes it"))
    }

    #[test]
    fn a_password_may_look_like_a_flag_and_flags_stand_anywhere() {
        for (line, password) in [
            ("-b f u -c", Some("-c")),
            ("-b f u --help", Some("--help")),
            ("f -b u --", Some("--")),
            ("f u -c", None),
        ] {
            let order = order(line).expect(line);
            assert_eq!(order.password.as_deref(), password.map(str::as_bytes), "{line}");
            assert_eq!((order.anew, order.user.as_str()), (password.is_none(), "u"), "{line}");
        }
        for line in ["f", "f u p", "-b f u", "-b f u p q", "-D -c f u", "--scram --strong f u"] {
            assert!(order(line).is_err(), "{line}");
        }
    }
}
