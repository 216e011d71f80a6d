//! Properties of every row of the table, and the error texts for users.

use super::flags::OptionFlag;
use super::settings::ProgramSettings;
use super::table::{self, ProgramOption, rows};
use super::{OptionChanges, OptionPlan, OptionSources, option_text};
use broker::BrokerOptions;
use broker::options::{QueuePolicy, SharedStrategy};
use config::row::OptionRow;
use config::value::OptionKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) fn scratch(name: &str, source: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("godwit-options-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, source).unwrap();
    path
}

fn sets(sets: &[&str]) -> OptionSources {
    OptionSources {
        flags: sets.iter().map(|set| OptionFlag::set(set)).collect(),
        ..OptionSources::default()
    }
}

fn environment(pairs: &[(&str, &str)]) -> OptionSources {
    let pairs = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    OptionSources { environment: pairs.collect(), ..OptionSources::default() }
}

pub(super) fn settings(sources: &OptionSources) -> ProgramSettings {
    match OptionPlan::read(sources) {
        Ok(plan) => plan.settings(MEMORY),
        Err(wrongs) => panic!("{wrongs:?}"),
    }
}

/// Returns all errors, one per line, without the path of the scratch folder.
fn complaints(sources: &OptionSources) -> String {
    let wrongs = OptionPlan::read(sources).expect_err("these options are wrong");
    let lines: Vec<String> = wrongs.iter().map(ToString::to_string).collect();
    let folder = std::env::temp_dir().join(format!("godwit-options-{}", std::process::id()));
    lines.join("\n").replace(&format!("{}/", folder.display()), "")
}

pub(super) fn file_complaints(name: &str, source: &str) -> String {
    complaints(&OptionSources { config: Some(scratch(name, source)), ..OptionSources::default() })
}

#[test]
fn keys_are_unique_and_sections_stand_together() {
    let keys: BTreeSet<&str> = rows().map(|row| row.key).collect();
    assert_eq!(keys.len(), rows().count());
    let mut sections: Vec<&str> = rows().map(OptionRow::section).collect();
    sections.dedup();
    let unique: BTreeSet<&str> = sections.iter().copied().collect();
    assert_eq!(sections.len(), unique.len(), "{sections:?}");
    assert_eq!(sections[0], "", "a TOML file has its keys without a section first");
}

#[test]
fn every_default_fits_its_row_and_survives_being_written() {
    for row in rows() {
        let value = row.default_value();
        let source = format!("x = {}", row.kind.format_value(&value));
        let table = toml::de::DeTable::parse(&source).unwrap();
        let again = row.kind.read_toml(&table.get_ref()["x"]).unwrap();
        assert_eq!(again, value, "{}", row.key);
    }
}

#[test]
fn the_table_has_the_brokers_defaults() {
    let options = BrokerOptions { memory_bytes_max: MEMORY, ..BrokerOptions::default() };
    assert_eq!(OptionPlan::default().settings(MEMORY).broker, options);
}

/// Returns a value other than the default.
fn other(row: &ProgramOption) -> String {
    match row.kind {
        OptionKind::Bool => (row.default == "false").to_string(),
        OptionKind::Choice(words) => {
            words.iter().rfind(|word| **word != row.default).unwrap_or(&row.default).to_string()
        }
        OptionKind::Hidden(OptionKind::Map { .. }) => "x-key=1".to_string(),
        OptionKind::Hidden(_) => format!("{}://192.0.2.7/", scheme(row.key)),
        OptionKind::List { .. } => "tcp://127.0.0.1:1".to_string(),
        OptionKind::Map { .. } if row.key == "log.modules" => "conn=debug".to_string(),
        OptionKind::Map { .. } if row.key == "store.topics" => "a/#=lazy".to_string(),
        OptionKind::Map { .. } => "group=sticky".to_string(),
        OptionKind::Number { min, max, .. } if row.default == min.to_string() => max.to_string(),
        OptionKind::Number { min, .. } => (min + 1).to_string(),
        OptionKind::Text { .. } if row.key == "unix.mode" => "600".to_string(),
        OptionKind::Text { of: "a command", .. } => "HGETALL key".to_string(),
        OptionKind::Text { .. } => "192.0.2.7".to_string(),
    }
}

fn scheme(key: &str) -> &str {
    let name = key.split_once('.').map_or(key, |(_, name)| name);
    let name = name.split('_').next().unwrap_or_default();
    if name == "jwt" { "http" } else { name }
}

#[test]
fn every_row_sets_one_thing_and_every_broker_option_has_a_row() {
    let before = OptionPlan::default().settings(MEMORY);
    let mut set = BTreeSet::new();
    // Without OpenSSL `tls.psk_file` accepts no value.
    let takes = |row: &&ProgramOption| cfg!(feature = "psk") || row.key != "tls.psk_file";
    for row in rows().filter(takes) {
        let mut after = before.clone();
        (row.set)(&mut after, &row.kind.read_text(&other(row)).unwrap());
        let (before, after) = (format!("{before:#?}"), format!("{after:#?}"));
        assert_ne!(before, after, "{}", row.key);
        set.extend(fields(&after).difference(&fields(&before)).cloned());
    }
    // The trace is one field, set by three rows.
    let names: BTreeSet<String> = set.iter().map(|line| name(line)).collect();
    // Fields set from files that other rows name (see `security`), and from sinks.
    let read = [
        "access",
        "acked",
        "authenticates",
        "authz",
        "auto_subscriptions",
        "bans",
        "bridge_path",
        "caches",
        "client_groups",
        "delivered",
        "delivery",
        "event_options",
        "listeners",
        "methods",
        "namespace_needs_user",
        "own",
        "permissions",
        "presets",
        "rewrites",
        "rules",
    ];
    for line in fields(&format!("{:#?}", BrokerOptions::default())) {
        let name = name(&line);
        let known = names.contains(&name) || read.contains(&name.as_str());
        assert!(known, "{line} has no row in the table");
    }
}

/// Returns the lines of a pretty-printed struct that start with a field's name.
fn fields(printed: &str) -> BTreeSet<String> {
    printed.lines().filter(|line| line.contains(": ")).map(|l| l.trim().to_string()).collect()
}

fn name(line: &str) -> String {
    line.split(':').next().unwrap_or_default().to_string()
}

#[test]
fn ranges_hold_at_both_ends() {
    for row in rows() {
        let OptionKind::Number { min, max, word, .. } = row.kind else { continue };
        for right in [min, max] {
            assert!(row.kind.read_text(&right.to_string()).is_ok(), "{} {right}", row.key);
        }
        for wrong in [i128::from(min) - 1, i128::from(max) + 1, i128::MAX] {
            let special = word.is_some_and(|(_, number)| i128::from(number) == wrong);
            let why = row.kind.read_text(&wrong.to_string()).expect_err(row.key);
            assert!(why.starts_with("out of range, use ") && !special, "{} {why}", row.key);
        }
        if let Some((word, number)) = word {
            assert_eq!(
                row.kind.read_text(word).unwrap(),
                config::value::OptionValue::Number(number)
            );
        }
    }
}

#[test]
fn every_row_refuses_the_wrong_type() {
    for row in rows() {
        let table = toml::de::DeTable::parse("x = 1979-05-27").unwrap();
        let misfit = row.kind.read_toml(&table.get_ref()["x"]).unwrap_err();
        assert_eq!(misfit.why, format!("this is a date, use {}", row.kind.expected()));
        assert_eq!(misfit.at, 4);
    }
}

#[test]
fn a_file_is_refused_with_every_wrong_line() {
    let source = r#"
lsiten = ["tcp://a"]
listen = ["coap://a:1"]
shards = -1

[queue]
mesages_max = 5
messages_max = 0
policy = "drop"
bytes_max = "12MB"
qos0 = 1

[quue]
x = 1

[sessions.x]
y = 1

[log]
modules = { con = "info" }
level = 1.5
sys = 1

[trace]
address = "somewhere"
topic = "a/#/b"

[shared.strategies]
billing = "first"
"#;
    let mut lines: Vec<String> =
        file_complaints("wrong.toml", source).lines().map(String::from).collect();
    lines.sort_by_key(|line| line.split(':').nth(1).and_then(|line| line.parse::<u32>().ok()));
    assert_eq!(
        lines,
        [
            "wrong.toml:2: lsiten is not an option, did you mean listen?",
            "wrong.toml:3: listen: \"coap://a:1\": coap listeners do not exist; use \
             tcp://ADDRESS:PORT, tls://ADDRESS:PORT, quic://ADDRESS:PORT, \
             ws://ADDRESS:PORT/PATH, wss://ADDRESS:PORT/PATH or unix:///PATH",
            "wrong.toml:4: shards = -1: out of range, use 0 to 64 threads",
            "wrong.toml:7: queue.mesages_max is not an option, did you mean queue.messages_max?",
            "wrong.toml:8: queue.messages_max = 0: out of range, use 1 to 1000000000 messages, or \
             \"auto\"",
            "wrong.toml:9: queue.policy = \"drop\": no such choice, use \"disconnect\", \
             \"drop_newest\" or \"drop_oldest\"",
            "wrong.toml:10: queue.bytes_max = \"12MB\": not a number, use 1KiB to 1TiB, a \
             number of bytes or a size like \"64MiB\", or \"auto\"",
            "wrong.toml:11: queue.qos0 = 1: this is a number, use true or false",
            "wrong.toml:13: [quue] is not a section, did you mean [queue]?",
            "wrong.toml:16: [sessions] is not a section, did you mean [session]?",
            "wrong.toml:20: log.modules: no module is named \"con\", use \"auth\", \"conn\", \
             \"drop\", \"gateway\", \"permission\", \"serve\", \"session\", \"store\", \
             \"subscription\" or \"trace\", did you mean \"conn\"?",
            "wrong.toml:21: log.level = 1.5: this is a number with a point, use \"off\", \
             \"error\", \"warn\", \"info\", \"debug\" or \"trace\"",
            "wrong.toml:22: log.sys is not an option, `godwit options` lists them all",
            "wrong.toml:25: trace.address = \"somewhere\": not an IP address, use one like \
             192.0.2.7 or 2001:db8::7",
            "wrong.toml:26: trace.topic = \"a/#/b\": not a topic filter, use one like \
             \"a/+/c\" or \"a/#\"",
            "wrong.toml:29: shared.strategies: no such strategy, use \"hash_client\", \
             \"hash_topic\", \"random\", \"round_robin\" or \"sticky\"",
        ]
    );
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_its_line() {
    assert_eq!(
        file_complaints("syntax.toml", "shards = 1\nshards = 2\n"),
        "syntax.toml:2: not TOML: duplicate key"
    );
    let why = file_complaints("syntax.toml", "shards = 1\n[queue\n");
    assert!(why.starts_with("syntax.toml:2: not TOML: "), "{why}");
    assert_eq!(
        file_complaints("section.toml", "\nretain = true\n"),
        "section.toml:2: retain is a section, use [retain] and under it available, bytes_max, \
         messages_max"
    );
    let path = scratch("latin.toml", "");
    std::fs::write(&path, b"shards = 1\ndata = \"\xe4\"").unwrap();
    assert_eq!(
        complaints(&OptionSources { config: Some(path), ..OptionSources::default() }),
        "latin.toml:2: not UTF-8 text, which TOML must be"
    );
    let missing =
        OptionSources { config: Some("/nowhere.toml".into()), ..OptionSources::default() };
    assert_eq!(
        complaints(&missing),
        "--config /nowhere.toml: the file cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn environment_and_flags_are_refused_by_name() {
    let mut sources = sets(&["queue.polcy=x", "shards", "shards=x", "shared.strategies.a=b"]);
    sources.flags.push(OptionFlag::new("--listen", "listen", "foo"));
    sources.environment = environment(&[
        ("GODWIT_SHADS", "1"),
        ("GODWIT_QUEUE__POLICY", "z"),
        ("GODWIT_ZEBRA", "1"),
        ("GODWIT_PORT_1883_TCP", "tcp://10.0.0.1:1883"),
        ("GODWIT_SERVICE_HOST", "10.0.0.1"),
        ("PATH", "/bin"),
    ])
    .environment;
    assert_eq!(
        complaints(&sources).lines().collect::<Vec<_>>(),
        [
            "environment GODWIT_SHADS: shads is not an option, did you mean GODWIT_SHARDS?",
            "environment GODWIT_QUEUE__POLICY: queue.policy = \"z\": no such choice, use \
             \"disconnect\", \"drop_newest\" or \"drop_oldest\"",
            "environment GODWIT_ZEBRA: zebra is not an option, `godwit options` lists them all",
            "--set queue.polcy: queue.polcy is not an option, did you mean queue.policy?",
            "--set shards: there is no \"=\", use --set key=value",
            "--set shards: shards = \"x\": not a number, use 0 to 64 threads",
            "--set shared.strategies.a: shared.strategies = \"b\": no such strategy, use \
             \"hash_client\", \"hash_topic\", \"random\", \"round_robin\" or \"sticky\"",
            "--listen: listen = \"foo\": \"foo\" is not a URL, use one like tcp://127.0.0.1:1883",
        ]
    );
}

#[test]
fn options_that_do_not_fit_each_other_are_refused() {
    let why = |set: &[&str]| complaints(&sets(set));
    assert_eq!(
        why(&["listen=tcp://127.0.0.1,tcp://0.0.0.0:1884"]),
        "--set listen: tcp://0.0.0.0:1884 can be reached from other hosts, and \
         authentication is missing: listen on 127.0.0.1 or [::1], name users with auth.users, or \
         let everyone in with allow_anonymous = true"
    );
    assert_eq!(
        why(&["listen="]),
        "--set listen: listen is empty, use at least one URL like \
                                   tcp://127.0.0.1:1883"
    );
    let listeners = |many: u16| {
        let urls = (1..=many).map(|port| format!("tcp://127.0.0.1:{port}"));
        format!("listen={}", urls.collect::<Vec<_>>().join(","))
    };
    assert_eq!(why(&[&listeners(65)]), "--set listen: there are 65 listeners, use at most 64");
    assert_eq!(settings(&sets(&[&listeners(64)])).listeners.len(), 64);
    assert!(why(&["allow_anonymous=false"]).contains("nobody could connect"));
    assert!(why(&["data="]).contains("use the path of a folder"));
    assert!(why(&["log.target=file"]).contains("needs the file's path in log.file"));
    assert!(why(&["queue.bytes_max=1MiB"]).contains("one packet must fit into a queue"));
    let open = settings(&sets(&["listen=tcp://0.0.0.0", "allow_anonymous=true"]));
    assert_eq!(open.listen.len(), 1);
}

#[test]
fn a_file_is_overruled_by_the_environment_and_that_by_flags() {
    let source = "shards = 2\nlisten = [\"tcp://[::1]:1\"]\n[queue]\nqos0 = true\n\
                  policy = \"disconnect\"\n[shared.strategies]\na = \"sticky\"\n";
    let mut sources = sets(&["shards=4"]);
    sources.config = Some(scratch("layers.toml", source));
    sources.environment = environment(&[
        ("GODWIT_SHARDS", "3"),
        ("GODWIT_QUEUE__POLICY", "drop_newest"),
        ("GODWIT_SHARED__STRATEGIES", "b=random, c=hash_topic"),
        ("GODWIT_CONFIG", "/unused"),
    ])
    .environment;
    let settings = settings(&sources);
    assert_eq!(settings.shards, 4);
    assert_eq!(settings.broker.queue_policy, QueuePolicy::DropNewest);
    assert!(settings.broker.queue_qos0);
    assert_eq!(
        settings.broker.shared_strategies,
        [("b".to_string(), SharedStrategy::Random), ("c".to_string(), SharedStrategy::HashTopic)]
    );
    assert_eq!(settings.listen[0].to_string(), "tcp://[::1]:1");
}

#[test]
fn repeated_flags_add_to_lists_and_replace_what_is_weaker() {
    let mut sources = sets(&[
        "listen=tcp://127.0.0.1:1",
        "listen=tcp://127.0.0.1:2",
        "shared.strategies.a=sticky",
        "shared.strategies.b=random",
        "shards=1",
        "shards=2",
    ]);
    sources.environment = environment(&[("GODWIT_LISTEN", "tcp://127.0.0.1:3")]).environment;
    let settings = settings(&sources);
    let urls: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    assert_eq!(urls, ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"]);
    assert_eq!(settings.broker.shared_strategies.len(), 2);
    assert_eq!(settings.shards, 2);
}

#[test]
fn sizes_have_suffixes_and_words_stand_for_numbers() {
    let broker = settings(&sets(&[
        "queue.bytes_max=3MiB",
        "connection.packet_bytes_max=4 KiB",
        "memory.bytes_max=1GiB",
        "session.expiry_s_max=3600",
        "session.expiry_s_default=never",
        "sys.interval_s=off",
    ]))
    .broker;
    assert_eq!((broker.queue_bytes_max, broker.packet_bytes_max), (3 << 20, 4096));
    assert_eq!((broker.memory_bytes_max, broker.sys_interval_s), (1 << 30, 0));
    assert_eq!((broker.session_expiry_s_max, broker.session_expiry_s_default), (3600, u32::MAX));
    let source = "[queue]\nbytes_max = 0x400000\nmessages_max = 1_000\n";
    let sources =
        OptionSources { config: Some(scratch("sizes.toml", source)), ..OptionSources::default() };
    let broker = settings(&sources).broker;
    assert_eq!((broker.queue_bytes_max, broker.queue_messages_max), (4 << 20, 1000));
}

fn from_file(name: &str, source: &str) -> OptionPlan {
    let sources = OptionSources { config: Some(scratch(name, source)), ..OptionSources::default() };
    OptionPlan::read(&sources).unwrap_or_else(|wrongs| panic!("{wrongs:?}"))
}

const OWN: &str = "topic.levels_max = 10\nlimits.connections_max = 1000\n[[listener]]\n\
                   url = \"tcp://127.0.0.1:0\"\ntopic.levels_max = 11\n\
                   [[group]]\nname = \"few\"\nsession.inflight_max = 12\n\
                   limits.connections_max = 1\n[[group]]\nname = \"many\"\n";

#[test]
fn a_group_has_what_its_listener_has_but_the_number_of_connections() {
    let broker = from_file("own.toml", OWN).settings(MEMORY);
    let classes = |options: &BrokerOptions| -> Vec<_> {
        let limits =
            |own: &BrokerOptions| (own.topic_levels_max, own.inflight_max, own.connections_max);
        options.client_groups.iter().map(|class| limits(&class.options)).collect()
    };
    assert_eq!(classes(&broker.broker), [(10, 12, 1), (10, 1024, 0)]);
    let listener = broker.listeners[0].broker.as_deref().expect("it has limits of its own");
    assert_eq!((listener.topic_levels_max, listener.connections_max), (11, 1000));
    assert_eq!(classes(listener), [(11, 12, 1), (11, 1024, 0)]);
    let present =
        |at: usize| (&broker.broker.client_groups[at].present, &listener.client_groups[at].present);
    assert_eq!(present(0).0, present(0).1);
    assert_ne!(present(0).0, present(1).0);
}

#[test]
fn a_reload_of_a_group_is_live_and_goes_on_counting() {
    let mut plan = from_file("before.toml", OWN);
    let before = plan.settings(MEMORY).broker.client_groups;
    let changes = plan.reload(from_file("after.toml", &OWN.replace("_max = 12", "_max = 13")));
    assert_eq!(changes, OptionChanges { live: vec!["group"], restart: vec![] });
    let after = plan.settings(MEMORY).broker.client_groups;
    assert_eq!(before[0].present, after[0].present);
    assert_eq!((before[0].options.inflight_max, after[0].options.inflight_max), (12, 13));
}

#[test]
fn wrong_groups_are_refused_with_their_line() {
    let source = "[[group]]\nname = \"a\"\nretain.available = true\nurl = \"x\"\n[[group]]\n\
                  name = \"a\"\n[[group]]\nname = \"\"\nlimits.messages_per_s = -1\n";
    assert_eq!(
        file_complaints("groups.toml", source).lines().collect::<Vec<_>>(),
        [
            "groups.toml:3: retain.available goes for all, a group has none of its own",
            "groups.toml:4: a group has no url, use name and limits",
            "groups.toml:5: a group needs a name = \"...\" of its own",
            "groups.toml:9: limits.messages_per_s: out of range, use 0 to 1000000000 messages a \
             second, or \"off\"",
            "groups.toml:7: a group needs a name = \"...\" of its own",
        ]
    );
    let small = "[[group]]\nname = \"a\"\nqueue.bytes_max = \"1KiB\"\n";
    let why = file_complaints("small.toml", small);
    assert!(why.starts_with("small.toml:1: queue.bytes_max = 1024 is less than"), "{why}");
}

#[test]
fn a_reload_takes_what_is_live_and_names_what_is_not() {
    let mut plan = OptionPlan::read(&sets(&["shards=2", "queue.qos0=true"])).unwrap();
    let next = OptionPlan::read(&sets(&["shards=3", "log.level=debug"])).unwrap();
    let changes = plan.reload(next);
    assert_eq!(
        changes,
        OptionChanges { live: vec!["queue.qos0", "log.level"], restart: vec!["shards"] }
    );
    let settings = plan.settings(MEMORY);
    assert_eq!((settings.shards, settings.broker.queue_qos0), (2, false));
    assert_eq!(settings.log.level, tracing::level_filters::LevelFilter::DEBUG);
}

#[test]
fn the_sample_file_is_valid_and_changes_nothing_when_uncommented() {
    let sample = option_text::sample();
    let path = scratch("sample.toml", &option_text::sample_lines(&sample).join("\n"));
    let plan = OptionPlan::read(&OptionSources { config: Some(path), ..OptionSources::default() })
        .unwrap();
    assert_eq!(plan.changed().count(), 0);
    assert_eq!(plan.given.len(), rows().count());
    let commented = scratch("commented.toml", &option_text::sample());
    let plan =
        OptionPlan::read(&OptionSources { config: Some(commented), ..OptionSources::default() })
            .unwrap();
    assert_eq!(plan.given.len(), 0);
}

#[test]
fn help_and_docs_have_every_option() {
    let help = crate::program_command().render_help().to_string();
    let page = option_text::markdown();
    for row in rows() {
        assert!(help.contains(&format!("--{} <", row.key)), "{}", row.key);
        assert!(page.contains(&format!("### `{}`\n", row.key)), "{}", row.key);
        assert!(page.contains(&row.environment()));
        assert!(!row.short.ends_with('.') && !row.short.is_empty());
        assert!(row.long.is_empty() || row.long.ends_with('.'), "{}", row.key);
    }
    assert!(table::find("queue.policy").is_some());
}

#[test]
fn generated_docs_are_fresh() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, fresh, command) in [
        (
            "options.md",
            option_text::markdown(),
            "cargo run -- options --markdown > docs/options.md",
        ),
        ("godwit.toml", option_text::sample(), "cargo run -- options --sample > docs/godwit.toml"),
    ] {
        let stored = std::fs::read_to_string(docs.join(name)).unwrap_or_default();
        assert!(stored == fresh, "docs/{name} is out of date: {command}");
    }
}

const MEMORY: u64 = 12_345_678;

/// `godwit options` lists every option of `docs/options.md`, including options of tables.
#[test]
fn the_list_has_every_option_of_the_page() {
    let list = option_text::list();
    let page = option_text::markdown();
    let keys = page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(" `"));
    let keys: Vec<&str> = keys.filter_map(|line| line.strip_suffix('`')).collect();
    assert!(keys.len() > rows().count(), "{}", keys.len());
    for key in keys {
        let has = list.lines().any(|line| line.split_whitespace().next() == Some(key));
        assert!(has, "{key}");
    }
}
