//! `godwit check` reads the options as `serve` would and says what they change; `godwit options`
//! prints the table.

use crate::options::{OptionPlan, option_text};
use crate::serve::{self, broker_command};
use crate::{fail_with_usage_error, parse_line, print};
use auth::auth_resources::AuthResources;
use command_line::{Command, FlagRow};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

pub(crate) fn command() -> Command {
    broker_command("check", "Reads the options as serve would, and prints what they change")
        .override_usage("godwit check [OPTIONS]")
        .after_help("Exit code 2 if any option is wrong.")
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let sources = match serve::sources(command(), arguments) {
        Ok(sources) => sources,
        Err(code) => return code,
    };
    match OptionPlan::read(&sources) {
        Ok(plan) => match check_files(&plan) {
            Ok(()) => print(&describe_changes(&plan)),
            Err(wrongs) => fail_with_usage_error(&wrongs),
        },
        Err(wrongs) => {
            fail_with_usage_error(&wrongs.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
    }
}

/// Reads all files that options name, as a start would.
fn check_files(plan: &OptionPlan) -> Result<(), Vec<String>> {
    let settings = plan.settings(0);
    let mut wrongs = serve::load_listener_transports(&settings).err().unwrap_or_default();
    let ports: Vec<Option<u16>> = settings.listeners.iter().map(|own| own.url.port()).collect();
    let security = settings.load_security(&ports, &AuthResources::default());
    wrongs.extend(security.err().unwrap_or_default());
    if wrongs.is_empty() { Ok(()) } else { Err(wrongs) }
}

/// Lists the changed options, one per line, in the syntax of an options file.
fn describe_changes(plan: &OptionPlan) -> String {
    let mut report = String::new();
    for (row, given) in plan.changed() {
        let value = row.kind.format_value(&given.value);
        let default = row.kind.format_value(&row.default_value());
        let _ = writeln!(report, "{} = {value}  # {}, not {default}", row.key, given.origin);
    }
    if report.is_empty() {
        report.push_str("# every option for all has its default\n");
    }
    // Tables have options of their own, which were checked when read.
    let tables = plan.table_counts();
    let tables = tables.iter().map(|(name, count)| format!("{count} [[{name}]]"));
    let tables: Vec<String> = tables.collect();
    if !tables.is_empty() {
        let _ = writeln!(report, "# beside them: {}", tables.join(", "));
    }
    report
}

pub(crate) fn list_command() -> Command {
    command_line::command("options", "Lists every option with its default", LIST_FLAGS)
}

pub(crate) fn list_options(arguments: &[OsString]) -> ExitCode {
    let matches = match parse_line(list_command(), arguments) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    if matches.contains_id("--markdown") {
        print(&option_text::markdown())
    } else if matches.contains_id("--sample") {
        print(&option_text::sample())
    } else {
        print(&option_text::list())
    }
}

const LIST_FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--markdown"], &[], "as the page docs/options.md"),
    FlagRow::new(&["--sample"], &[], "as the file docs/godwit.toml"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OptionSources;
    use crate::options::flags::OptionFlag;

    #[test]
    fn only_what_differs_is_reported_with_its_origin() {
        let flags =
            ["queue.messages_max=10000", "queue.bytes_max=8MiB", "shared.strategies.a=sticky"];
        let flags = flags.iter().map(|text| OptionFlag::set(text)).collect();
        let environment = vec![("GODWIT_LOG__LEVEL".to_string(), "debug".to_string())];
        let plan =
            OptionPlan::read(&OptionSources { flags, environment, ..OptionSources::default() })
                .unwrap();
        assert_eq!(
            describe_changes(&plan),
            "queue.bytes_max = \"8MiB\"  # --set queue.bytes_max, not \"auto\"\n\
             queue.messages_max = 10000  # --set queue.messages_max, not \"auto\"\n\
             shared.strategies = { a = \"sticky\" }  # --set shared.strategies.a, not {}\n\
             log.level = \"debug\"  # environment GODWIT_LOG__LEVEL, not \"info\"\n"
        );
        assert_eq!(
            describe_changes(&OptionPlan::default()),
            "# every option for all has its default\n"
        );
    }
}
