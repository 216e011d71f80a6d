//! The sample files match every row, and arbitrary bytes end in a draft or in errors.

use super::*;
use std::collections::BTreeSet;

/// Samples in the style of each project, with a value for every row.
const SAMPLES: &[(&str, &str)] = &[
    ("mosquitto", "mosquitto.conf"),
    ("nanomq", "nanomq.conf"),
    ("nanomq-old", "nanomq_old.conf"),
    ("emqx", "emqx.conf"),
    ("emqx4", "emqx4.conf"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../godwit/tests/import")
}

fn draft(file: &str, from: Option<&str>) -> Result<ConfigDraft, Vec<String>> {
    convert_file(&folder().join(file), &options(from), godwit::option_catalog())
}

fn options(from: Option<&str>) -> ImportOptions<'_> {
    ImportOptions { from, strict: false, has_out: true }
}

fn text(text: &str, from: Option<&str>) -> Result<ConfigDraft, Vec<String>> {
    convert(
        text,
        "t.conf",
        &options(from),
        ConfigFolder::of_file(Path::new("nowhere/t.conf")),
        godwit::option_catalog(),
    )
}

#[test]
fn every_row_is_met_by_a_sample() {
    for (project, (kind, file)) in PROJECTS.iter().zip(SAMPLES) {
        assert_eq!(project.name, *kind);
        let draft = draft(file, None).unwrap_or_else(|wrongs| panic!("{}", wrongs.join("\n")));
        let rows = || project.rows.iter().flat_map(|rows| rows.iter());
        let missed: Vec<&str> =
            rows().map(|row| row.key).filter(|key| !draft.hit.contains(key)).collect();
        // A file of rules is a source of its own, not part of a sample.
        let missed: Vec<&str> = missed.into_iter().filter(|key| *key != "terms").collect();
        assert!(missed.is_empty(), "{file} has nothing about {missed:?}");
        let keys: BTreeSet<&str> = rows().map(|row| row.key).collect();
        assert_eq!(keys.len(), rows().count(), "a key of {kind} stands twice");
    }
}

#[test]
fn every_row_leads_to_an_option() {
    let catalog = godwit::option_catalog();
    for row in PROJECTS.iter().flat_map(|project| project.rows.iter().flat_map(|rows| rows.iter()))
    {
        match row.to {
            row::ImportTarget::All(key, _) => {
                assert!(catalog.find(key).is_some(), "{} leads to {key}", row.key);
            }
            row::ImportTarget::Listener(key, _) => {
                let found = catalog.find(key).is_some_and(|option| option.has_listener_scope);
                assert!(found, "{} leads to {key}", row.key);
            }
            row::ImportTarget::Bridge(key, _) => {
                let found = catalog.find_bridge_option(key).is_some();
                assert!(found, "{} leads to {key}", row.key);
            }
            _ => {}
        }
    }
}

#[test]
fn unknown_keys_and_wrong_values_have_their_line() {
    for (kind, source, why) in [
        ("mosquitto", "\nallow_anonymos true", "t.conf:2: allow_anonymos is not known"),
        ("mosquitto", "password_fil x", "did you mean password_file?"),
        ("mosquitto", "max_queued_messages ten", "t.conf:1: max_queued_messages: not a number"),
        ("mosquitto", "persistence", "t.conf:1: persistence has no value"),
        ("mosquitto", "topic a", "t.conf:1: topic stands before any connection"),
        ("mosquitto", "connection a\ntopic a up 1", "t.conf:2: topic: use topic PATTERN"),
        (
            "nanomq",
            "auth {\n allow_anonymos = false\n}",
            "t.conf:2: auth.allow_anonymos is not known",
        ),
        ("nanomq", "a {\n}\ninclude \"../x\"", "t.conf:3: include: \"../x\" is not in the folder"),
        (
            "emqx",
            "listeners.ssl.a.ssl_options {\n include \"verify.conf\"\n}",
            "t.conf:2: include: \"verify.conf\" is not in the folder",
        ),
        ("emqx", "mqtt {\n\n include \"more.conf\" }", "t.conf:3: include: \"more.conf\""),
        ("nanomq", "auth.ldap { x = 1 }", "it may decide about access"),
        ("emqx", "listeners.tcp.a { bind = 1, acl_of_it = x }", "it may decide about access"),
        ("emqx", "authorization { policy = closed }", "it may decide about access"),
        ("nanomq", "mqtt.max_packet_size = much", "t.conf:1: mqtt.max_packet_size: not a size"),
        ("nanomq", "auth.acl.rules = [{permit = maybe}]", "t.conf:1: auth.acl.rules: permit is"),
        ("nanomq", "bridges.mqtt.a.forwards = [\n{qos = 3}]", "a QoS is 0, 1 or 2"),
        ("nanomq-old", "msq_len", "t.conf:1: no option, use NAME = VALUE"),
        ("nanomq-old", "acl.rule.1={", "t.conf:1: acl.rule.1: no object of JSON"),
        ("emqx", "mqtt.max_inflight = x", "t.conf:1: mqtt.max_inflight: not a number"),
        ("emqx", "authentication = [{x = 1}]", "t.conf:1: authentication: it says neither"),
        ("emqx", "listeners.tcp.a.bind = 70000", "t.conf:1: listeners.tcp.a.bind: use HOST:PORT"),
    ] {
        let wrongs = text(source, Some(kind)).err().unwrap_or_default().join("\n");
        assert!(wrongs.contains(why), "{source}: {wrongs:?}");
    }
    let wrongs = text("x = 1", None).err().unwrap_or_default().join("\n");
    assert!(wrongs.contains("say it with --from mosquitto"), "{wrongs}");
}

#[test]
fn what_does_not_fit_is_said_and_left_out() {
    let draft = text("mqtt.max_packet_size = 1B\nmqtt.max_inflight = infinity", Some("emqx"));
    let draft = draft.unwrap_or_else(|wrongs| panic!("{wrongs:?}"));
    let missing = write::list_unsupported(&draft).join("\n");
    assert!(missing.contains("t.conf:1 mqtt.max_packet_size"), "{missing}");
    assert!(missing.contains("1 is beyond what connection.packet_bytes_max takes"), "{missing}");
    let written = write::write_options(&draft, "t.conf");
    assert!(written.contains("# t.conf:2 mqtt.max_inflight\ninflight_max = 65000\n"), "{written}");
    assert!(written.contains("packet_bytes_max = \"1KiB\""), "{written}");
}

/// Returns the settings of the only bridge.
fn of_bridge(source: &str, from: &str) -> Vec<(&'static str, String)> {
    let draft = text(source, Some(from)).unwrap_or_else(|wrongs| panic!("{wrongs:?}"));
    assert_eq!(draft.bridges.len(), 1, "{:?}", write::list_unsupported(&draft));
    let settings = draft.bridges[0].settings.iter();
    settings.map(|setting| (setting.key, setting.toml.clone())).collect()
}

#[test]
fn the_largest_packet_of_a_bridge_comes_along() {
    let source =
        |most| format!("connection c\naddress h\ntopic a out\nbridge_max_packet_size {most}");
    for (most, toml) in [("1024", "\"1KiB\""), ("0", "\"off\"")] {
        let found = of_bridge(&source(most), "mosquitto");
        assert!(found.contains(&("packet_bytes_max", toml.to_string())), "{found:?}");
    }
}

#[test]
fn a_cache_for_all_bridges_is_the_queue_of_each() {
    let bridge = "bridges.mqtt.a { server = \"mqtt-tcp://h:1\", max_send_queue_len = 32\n\
                  forwards = [{ local_topic = \"a/#\" }] }\n";
    let old = "bridge.mqtt.a.address=mqtt-tcp://h:1\nbridge.mqtt.a.max_send_queue_len=32\n\
               bridge.mqtt.a.forwards.1.local_topic=a/#\n";
    let (cache, messages) = ("bridges.mqtt.cache.disk_cache_size", "queue.messages_max");
    let queue = |source: &str, from: &str| {
        let settings = of_bridge(source, from);
        let found = settings.iter().find(|(key, _)| *key == messages);
        found.map(|(_, value)| value.clone())
    };
    // The key may precede or follow the bridges; NanoMQ's queues between threads do not count.
    let is_102400 = |found: Option<String>| assert_eq!(found.as_deref(), Some("102400"));
    is_102400(queue(&format!("{cache} = 102400\n{bridge}"), "nanomq"));
    is_102400(queue(&format!("{bridge}{cache} = 102400\n"), "nanomq"));
    let old_cache = |is_on| {
        format!("{old}bridge.sqlite.enable={is_on}\nbridge.sqlite.disk_cache_size=102400\n")
    };
    is_102400(queue(&old_cache(true), "nanomq-old"));
    assert_eq!(queue(&old_cache(false), "nanomq-old"), None);
    assert_eq!(queue(&format!("{bridge}{cache} = 0\n"), "nanomq"), None);
    assert_eq!(queue(bridge, "nanomq"), None);
}

#[test]
fn both_waits_of_a_connection_are_taken_over() {
    let settings = |waits: &str| {
        let source = format!("connection a\naddress h:1\ntopic a\nrestart_timeout {waits}\n");
        let all = of_bridge(&source, "mosquitto");
        all.into_iter().filter(|(key, _)| key.starts_with("retry")).collect::<Vec<_>>()
    };
    let (least, most) = ("retry_min_ms", "retry_max_s");
    assert_eq!(settings("5 30"), [(least, "5000".to_string()), (most, "30".to_string())]);
    assert_eq!(settings("7"), [(most, "7".to_string())]);
    let source = "connection a\naddress h:1\ntopic a\nrestart_timeout 30 5\n";
    let wrongs = text(source, Some("mosquitto")).err().unwrap_or_default().join("\n");
    assert!(wrongs.contains("t.conf:4: restart_timeout: use SECONDS, or BASE CAP"), "{wrongs}");
}

/// Texts about missing keys name the replacement that exists here.
#[test]
fn rows_name_what_there_is() {
    let is_about = |key: &str, words: &[&str]| words.iter().any(|word| key.starts_with(word));
    let mut named = 0;
    for row in PROJECTS.iter().flat_map(|project| project.rows.iter().flat_map(|rows| rows.iter()))
    {
        let row::ImportTarget::Unsupported(why) = &row.to else { continue };
        let ours = match row.key {
            key if is_about(key, &["webhook.", "web.hook.", "connectors.*.", "actions.*."]) => {
                "[[sink]]"
            }
            key if is_about(key, &["rule", "rules."]) => "[[rule]]",
            key if is_about(key, &["gateway.", "bridges.nng."]) => "[[gateway]]",
            _ => continue,
        };
        assert!(why.contains(ours), "{}: {why}", row.key);
        named += 1;
    }
    assert!(named > 8, "{named}");
}

#[test]
fn a_host_is_the_origin_of_both_schemes() {
    let source = "websockets_origin https://a.example:8443\nwebsockets_origin b.example\n";
    let draft = text(source, Some("mosquitto")).unwrap_or_else(|wrongs| panic!("{wrongs:?}"));
    let origins = draft.setting("ws.origins").map(|there| there.value.list().join(" "));
    let expected = "https://a.example:8443 http://b.example https://b.example";
    assert_eq!(origins.as_deref(), Some(expected));
}

#[test]
fn a_key_cannot_write_options() {
    let draft = text("dashboard.\"x\\nshards = 9\" = 1\nmqtt.max_inflight = 7", Some("emqx"));
    let written = write::write_options(&draft.unwrap_or_else(|w| panic!("{w:?}")), "a\nshards = 9");
    assert!(!written.lines().any(|line| line.starts_with("shards")), "{written}");
}

#[test]
fn nobody_is_let_in_wider_than_the_server_would() {
    let source = "authentication = []\nauthorization { no_match = allow, sources = [\n\
                  {type = http, url = \"http://h/a\", method = get}\n\
                  {type = file,\n\
                  rules = \"\"\"{allow, {user, \"a\"}, all, [\"b\"]}. {allow, all}.\"\"\"}] }";
    let draft = text(source, Some("emqx")).unwrap_or_else(|wrongs| panic!("{wrongs:?}"));
    assert!(draft.rules.is_empty(), "the server is asked first there");
    let source = "authentication = []\nauthorization { no_match = allow, sources = [\n\
                  {type = file,\n\
                  rules = \"\"\"{allow, {user, \"a\"}, all, [\"b\"]}. {allow, all}.\"\"\"}\n\
                  {type = http, url = \"http://h/a\", method = get}] }";
    let draft = text(source, Some("emqx")).unwrap_or_else(|wrongs| panic!("{wrongs:?}"));
    assert_eq!(draft.rules.len(), 1, "only that of one user is left");
    assert_eq!(draft.notes.len(), 3, "{:?}", draft.notes);
}

/// Arbitrary bytes end in a draft or in errors.
#[test]
fn no_bytes_bring_the_reader_down() {
    let mut rng = ImportTestRng(fastrand::Rng::with_seed(7));
    let kinds: Vec<Option<&str>> =
        PROJECTS.iter().map(|project| Some(project.name)).chain([None]).collect();
    let sources: Vec<String> = SAMPLES
        .iter()
        .map(|(_, file)| {
            config_tree::read(&folder().join(file)).unwrap_or_else(|why| panic!("{why}"))
        })
        .collect();
    for round in 0..600_usize {
        let mut bytes = sources[round % sources.len()].clone().into_bytes();
        if round % 5 == 0 {
            bytes = (0..rng.below(400)).map(|_| rng.below(256) as u8).collect();
        } else {
            // A piece of a sample with some bytes changed, removed or repeated.
            let from = rng.below(bytes.len());
            let to = (from + rng.below(2000)).min(bytes.len());
            bytes = bytes[from..to].to_vec();
            for _ in 0..rng.below(20) {
                let at = rng.below(bytes.len().max(1));
                match rng.below(3) {
                    0 => bytes.insert(at.min(bytes.len()), SIGNS[rng.below(SIGNS.len())]),
                    1 if at < bytes.len() => _ = bytes.remove(at),
                    _ if at < bytes.len() => bytes[at] = rng.below(256) as u8,
                    _ => {}
                }
            }
        }
        let source = String::from_utf8_lossy(&bytes);
        for kind in &kinds {
            if let Ok(draft) = text(&source, *kind) {
                let written = write::write_options(&draft, "t.conf");
                assert!(config::source::parse_toml(&written).is_ok(), "{source}\n->\n{written}");
                let rules = write::write_rules(&draft, "t.conf");
                assert!(config::source::parse_toml(&rules).is_ok(), "{source}\n->\n{rules}");
            }
        }
    }
}

const SIGNS: &[u8] = b"{}[]\"'=:,.#$\n\\%/+-*\0 ";

struct ImportTestRng(fastrand::Rng);

impl ImportTestRng {
    fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound.max(1))
    }
}
