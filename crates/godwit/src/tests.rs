//! Help, completions and man pages of the program and its subcommands.

use super::{SUBCOMMANDS, parse_line, program_command};
use command_line::{Arg, Command};
use std::ffi::OsString;

fn shown_flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|flag| !flag.is_hide_set() && !flag.is_positional())
}

#[test]
fn commands_are_named_as_their_rows_and_free_of_contradictions() {
    let mut program = program_command();
    program.clone().debug_assert();
    for (row, command) in SUBCOMMANDS.iter().zip(program.get_subcommands_mut()) {
        assert_eq!(row.name, command.get_name());
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && !about.ends_with('.'), "{}", row.name);
    }
}

#[test]
fn help_of_a_subcommand_has_every_flag() {
    for row in SUBCOMMANDS {
        let help = (row.command)().render_help().to_string();
        for flag in shown_flags(&(row.command)()) {
            let long = flag.get_long().map(|long| format!("--{long}"));
            let short = flag.get_short().map(|short| format!("-{short}"));
            for name in long.iter().chain(&short) {
                let is_shown = |line: &str| line.split([' ', ',']).any(|word| word == name);
                assert!(help.lines().any(is_shown), "{} {name}: {help}", row.name);
            }
        }
    }
}

#[test]
fn man_pages_have_every_flag_under_the_heading_of_its_section() {
    for row in SUBCOMMANDS {
        let line = [OsString::from(row.name)];
        let page = command_line::print_man_page(program_command(), &line).unwrap();
        let page = String::from_utf8(page).unwrap();
        for flag in shown_flags(&(row.command)()) {
            let name = flag.get_long().map_or_else(
                || format!("\\-{}", flag.get_short().unwrap_or_default()),
                |long| format!("\\-\\-{}", long.replace('-', "\\-")),
            );
            assert!(page.contains(&name), "{} {name}: {page}", row.name);
            if let Some(heading) = flag.get_help_heading() {
                assert!(page.contains(&format!(".SH {}\n", heading.to_uppercase())), "{heading}");
            }
        }
    }
    assert!(command_line::print_man_page(program_command(), &["serv".into()]).is_err());
}

#[test]
fn a_wrong_line_is_no_order() {
    for row in SUBCOMMANDS {
        assert!(parse_line((row.command)(), &["--zebra".into()]).is_err(), "{}", row.name);
    }
}
