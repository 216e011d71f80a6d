//! Documents generated from the commands of a program: shell completions and man pages.

use crate::{Arg, Command, Error, ErrorKind, FlagRow, command, parse};
use clap_complete::Shell;
use clap_mangen::Man;
use std::ffi::OsString;

const SHELL: &str = "SHELL";
const PAGE: &str = "SUBCOMMAND";

const MAN_FLAGS: &[FlagRow] =
    &[FlagRow::new(&["--out"], &["DIR"], "write every page into this folder")];

/// Returns the subcommand `completions`, which prints shell completions.
pub fn completions_command() -> Command {
    let shell = Arg::new(SHELL).help("the shell").required(true);
    let shell = shell.value_parser(["bash", "fish", "zsh"]);
    command("completions", "Prints completions for a shell", []).arg(shell)
}

/// Returns the subcommand `man`, which prints man pages.
pub fn man_command() -> Command {
    let page = Arg::new(PAGE).help("whose page to print; without it the program's");
    command("man", "Prints a man page", MAN_FLAGS).arg(page)
}

/// Runs the subcommand of [`completions_command`]. Returns the script.
pub fn print_completions(mut program: Command, arguments: &[OsString]) -> Result<Vec<u8>, Error> {
    let name = program.get_name().to_string();
    let matches = parse(&name, completions_command(), arguments)?;
    let shell = matches.get_one::<String>(SHELL).and_then(|shell| shell.parse().ok());
    let mut script = Vec::new();
    clap_complete::generate(shell.unwrap_or(Shell::Bash), &mut program, name, &mut script);
    Ok(script)
}

/// Runs the subcommand of [`man_command`]. Returns a page, or no bytes if `--out` writes all pages
/// into a folder.
///
/// # Errors
///
/// Fails if the line is wrong, or with [`ErrorKind::Io`] if the folder cannot be written.
pub fn print_man_page(mut program: Command, arguments: &[OsString]) -> Result<Vec<u8>, Error> {
    let matches = parse(program.get_name(), man_command(), arguments)?;
    if let Some(folder) = matches.get_one::<String>("--out") {
        let wrong = |error| Error::raw(ErrorKind::Io, format!("{folder}: {error}\n"));
        let written = std::fs::create_dir_all(folder);
        let written = written.and_then(|()| clap_mangen::generate_to(program, folder));
        return written.map(|()| Vec::new()).map_err(wrong);
    }
    program.build();
    let page = match matches.get_one::<String>(PAGE) {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(page) => page.clone(),
            None => {
                let why = format!("{name} is not a subcommand\n");
                return Err(Error::raw(ErrorKind::InvalidSubcommand, why));
            }
        },
    };
    let mut text = Vec::new();
    let wrong = |error| Error::raw(ErrorKind::Io, format!("{error}\n"));
    Man::new(page).render(&mut text).map(|()| text).map_err(wrong)
}
