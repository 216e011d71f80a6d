//! Tests of parsing, help and completions, with a flag of every kind.

use super::*;

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["-p", "--port"], &["PORT"], "where"),
    FlagRow::new(&["-q", "--quiet"], &[], "no errors"),
    FlagRow::new(&["-D", "--property"], &["PACKET", "NAME", "VALUE"], "a property"),
    FlagRow::new(&["-r", "--retain"], TRUTH, "keep it").with_default("false"),
    FlagRow::new(&["-b"], &[], "short alone"),
];

fn matches(line: &str) -> Result<ArgMatches, Error> {
    let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse("program", command("verb", "does it", FLAGS).arg(words("FILE", "files")), &arguments)
}

fn flags(line: &str) -> Vec<(&'static str, String)> {
    let used = flags_in_order(&matches(line).expect(line), FLAGS.iter().map(FlagRow::name));
    used.into_iter().map(|used| (used.name, used.values.join(" "))).collect()
}

fn wrong(line: &str) -> String {
    error_text("program", &matches(line).expect_err(line))
}

#[test]
fn flags_are_read_in_their_order_with_their_values() {
    let expected = [
        ("--port", "1"),
        ("-b", "true"),
        ("--property", "connect -a -q"),
        ("--port", "-2"),
        ("--quiet", "true"),
        ("--retain", "true"),
        ("--property", "publish topic-alias 3"),
        ("--retain", "false"),
        ("--port", ""),
    ];
    let line = "-p 1 -b -D connect -a -q --port=-2 -q -r -D publish topic-alias 3 --retain=Off \
                --port=";
    assert_eq!(flags(line), expected.map(|(name, value)| (name, value.to_string())));
    assert_eq!(flags("").len(), 0);
    assert_eq!(text(&matches("").expect("a line"), "--retain"), Some("false"));
    assert_eq!(text(&matches("-p 1 -p2").expect("a line"), "--port"), Some("2"));
}

#[test]
fn an_error_names_the_flag_and_what_would_be_right() {
    for (line, says) in [
        ("--quiet=1", "program: unexpected value '1' for '--quiet' found"),
        ("--prot 1", "a similar argument exists: '--port'"),
        ("-z", "program: unexpected argument '-z' found"),
        ("-p", "a value is required for '--port <PORT>' but none was supplied"),
        ("-D a b", "3 values required for '--property <PACKET> <NAME> <VALUE>' but 2 were"),
        ("-r=perhaps", "invalid value 'perhaps' for '--retain [<BOOL>]': use true or false"),
        ("--prot 1", "Usage: program verb"),
    ] {
        assert!(wrong(line).contains(says), "{line}: {}", wrong(line));
    }
    let error = matches("--zebra").expect_err("no flag");
    assert_eq!(unknown_argument(&error).as_deref(), Some("--zebra"));
    let text = with_tip(error, "--z", "use a horse".into()).to_string();
    assert!(text.contains("unexpected argument '--z' found\n\n  tip: use a horse\n"), "{text}");
}

#[test]
fn help_is_not_an_error_and_has_a_short_form_unless_a_flag_has_it() {
    let help = matches("-q --help").expect_err("help");
    assert!(!help.use_stderr());
    let text = error_text("program", &help);
    assert!(text.starts_with("does it\n\nUsage: program verb [OPTIONS] [FILE]..."), "{text}");
    assert!(text.contains("-D, --property <PACKET> <NAME> <VALUE>  a property"), "{text}");
    assert!(text.contains("-h, --help "), "{text}");
    let host = [FlagRow::new(&["-h", "--host"], &["HOST"], "broker")];
    let help = parse("verb", command("verb", "", &host), &["--help".into()]).expect_err("help");
    assert!(help.to_string().contains("      --help"), "{help}");
    assert!(parse("verb", command("verb", "", &host), &["-h".into(), "a".into()]).is_ok());
}

#[test]
fn words_stand_before_between_and_behind_flags() {
    for line in ["file -p 1 -q", "-p 1 file -q", "-p 1 -q file"] {
        assert_eq!(words_of(&matches(line).expect(line), "FILE"), ["file"], "{line}");
    }
}

#[test]
fn numbers_have_a_range() {
    let port = ParsedFlag { name: "--port", values: vec!["70000".to_string()] };
    assert_eq!(
        port.number::<u16>(1, 65_535).unwrap_err(),
        "--port 70000: use a number from 1 to 65535"
    );
}

#[test]
fn suggested_values_are_in_help_and_others_are_taken() {
    let verb = || {
        let level = value_argument("--level", &["WORD"]).long("level");
        command("verb", "", []).arg(level.value_parser(suggested_values(&["low", "high"])))
    };
    let help = verb().render_help().to_string();
    assert!(help.contains("[possible values: low, high]"), "{help}");
    let matches = parse("verb", verb(), &["--level=-7".into()]).expect("any value");
    assert_eq!(text(&matches, "--level"), Some("-7"));
}
