//! One snapshot per check: a bad tree and the finding that the check must return.

use super::{CHECKS, TidyFinding};
use crate::tree::{SourceTree, TreeFile};

/// Runs one check on files given as (path, text) and compares whole messages.
fn check(name: &str, files: &[(&str, &str)], expected: &[&str]) {
    let file = |(path, text): &(&str, &str)| TreeFile {
        path: (*path).to_string(),
        bytes: text.len() as u64,
        text: Some((*text).to_string()),
    };
    let tree = SourceTree::new(files.iter().map(file).collect());
    let check = CHECKS.iter().find(|check| check.name == name).expect("a check of that name");
    let found: Vec<String> = (check.find)(&tree).iter().map(TidyFinding::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_product_file_over_600_lines_is_named_and_its_tests_do_not_count() {
    let long = "//! A.\n".repeat(601);
    let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(600), long);
    check(
        "file-length",
        &[
            ("crates/broker/src/a.rs", &long),
            ("crates/broker/src/b.rs", &with_tests),
            ("crates/broker/src/c/tests.rs", &long),
            ("crates/broker/tests/d.rs", &long),
            ("crates/broker/src/e.rs", "#[cfg(test)]\nmod far;\n"),
            ("crates/broker/src/e/far.rs", &long),
        ],
        &["crates/broker/src/a.rs:1: 601 lines without tests; at most 600: split it by the nouns \
           in it"],
    );
}

#[test]
fn a_function_over_70_lines_is_named_with_its_length() {
    let text = |lines: usize| format!("\nfn publish() {{\n{}}}\n", "let a = '{';\n".repeat(lines));
    check(
        "fn-length",
        &[("crates/mqtt/src/a.rs", &text(69)), ("crates/mqtt/src/b.rs", &text(68))],
        &["crates/mqtt/src/a.rs:2: fn publish has 71 lines; at most 70: keep the control flow \
           here and move straight lines into leaves"],
    );
}

#[test]
fn a_line_over_100_columns_is_named_unless_it_holds_an_address() {
    let address = format!("// https://example.org/{}", "a".repeat(100));
    let text = format!("{}\n{}\n{address}\n", "a".repeat(100), "b".repeat(101));
    let expected = "fuzz/a.rs:2: 101 columns; at most 100: break the line";
    check("columns", &[("fuzz/a.rs", &text)], &[expected]);
}

#[test]
fn a_file_without_header_is_named() {
    check(
        "header",
        &[("crates/mqtt/src/a.rs", "use std::mem;\n"), ("crates/mqtt/src/b.rs", "//! B.\n")],
        &["crates/mqtt/src/a.rs:1: no header; open with //! and say in a sentence or two what \
           this file is"],
    );
}

#[test]
fn a_character_outside_ascii_is_named() {
    check(
        "ascii",
        &[("xtask/src/a.rs", "//! A.\n// caf\u{e9}\n"), ("README.md", "caf\u{e9}")],
        &["xtask/src/a.rs:2: U+00E9 in source; write ASCII, in a string \\u{e9}"],
    );
}

#[test]
fn a_tab_is_named_where_spaces_are_the_custom() {
    check(
        "tabs",
        &[("Cargo.toml", "[a]\n\tb = 1\n"), ("docs/clauses/same.tsv", "a\tb\n")],
        &["Cargo.toml:2: a tab; indent with spaces, in a string write \\t"],
    );
}

#[test]
fn a_large_file_is_named() {
    let text = "a".repeat(513 * 1024);
    check(
        "blobs",
        &[("docs/a.bin", &text), ("docs/b.bin", "b")],
        &["docs/a.bin:1: 513 KB; at most 512 KB: generate it in the build or the test that \
           needs it"],
    );
}

#[test]
fn an_edge_that_the_house_does_not_allow_is_named() {
    let broker = "[package]\nname = \"broker\"\n[dependencies]\nmqtt.workspace = true\n\
                  engine = { path = \"../engine\" }\nserde = \"1\"\n\
                  [dev-dependencies]\nsim.workspace = true\n";
    let mqtt = "[dependencies.broker]\nworkspace = true\n[target.'cfg(unix)'.dependencies]\n\
                mio = \"1\"\n";
    check(
        "edges",
        &[
            ("Cargo.toml", "[workspace.dependencies]\nengine = { path = \"crates/engine\" }\n"),
            ("crates/broker/Cargo.toml", broker),
            ("crates/mqtt/Cargo.toml", mqtt),
            ("crates/attic/Cargo.toml", "[package]\n"),
            ("fuzz/Cargo.toml", "[dependencies]\nbroker = { path = \"../crates/broker\" }\n"),
        ],
        &[
            "crates/broker/Cargo.toml:5: broker must not depend on engine; it may use mqtt, \
             rules: turn the edge round",
            "crates/broker/Cargo.toml:6: broker must not depend on serde; move what needs it \
             behind a seam of engine or godwit",
            "crates/mqtt/Cargo.toml:1: mqtt must not depend on broker; it may use none of ours: \
             turn the edge round",
            "crates/mqtt/Cargo.toml:4: mqtt must not depend on mio; move what needs it behind a \
             seam of engine or godwit",
            "crates/attic/Cargo.toml:1: crate attic is not in the house; give it a row in \
             tidy/dependency_edges.rs",
        ],
    );
}

#[test]
fn a_folder_that_uses_one_above_it_is_named() {
    let session = "//! A.\nuse crate::ids::ConnId;\nuse crate::routing::publish;\n\
                   fn a() {\n    crate::shard::b();\n    crate::Shard::c();\n}\n\
                   #[cfg(test)]\nmod tests {\n    use crate::shard::Shard;\n}\n";
    let grouped = "//! A.\nuse crate::{ids::{ConnId, ShardId}, connection::conn, limits};\n\
                   // crate::shard stands in a comment.\n";
    let above = "which stands above it: pass what is needed as an argument, or move the shared \
                 data below both";
    check(
        "folder-edges",
        &[
            ("crates/broker/src/session/a.rs", session),
            ("crates/broker/src/routing.rs", grouped),
            ("crates/broker/src/attic/a.rs", "//! A.\n"),
            ("crates/broker/src/lib.rs", "pub use crate::shard::Shard;\n"),
            ("crates/mqtt/src/a.rs", "use crate::shard::Shard;\n"),
        ],
        &[
            &format!("crates/broker/src/session/a.rs:3: session must not use routing, {above}"),
            &format!("crates/broker/src/session/a.rs:5: session must not use shard, {above}"),
            "crates/broker/src/session/a.rs:6: crate::Shard hides its folder; write the path with \
             the folder",
            &format!("crates/broker/src/routing.rs:2: routing must not use connection, {above}"),
            "crates/broker/src/attic/a.rs:1: folder attic has no place; give it one in \
             tidy/folder_edges.rs",
        ],
    );
}

#[test]
fn a_word_that_a_crate_may_not_say_is_named_with_its_replacement() {
    check(
        "words",
        &[
            ("crates/broker/src/a.rs", "//! std::fs\nuse std::{mem, time::{Duration, Instant}};\n"),
            ("crates/mqtt/src/a.rs", "use std::io::Read;\nfn a() { let b = \"std::io\"; }\n"),
            ("crates/engine/src/a.rs", "use std::io;\nuse tokio::net;\n"),
            ("crates/godwit/src/a.rs", "fn a() { b.unwrap(); c.unwrap_or(1); }\n"),
            ("crates/store/src/a.rs", "#[cfg(test)]\nmod tests {\nfn a() { b.unwrap(); }\n}\n"),
        ],
        &[
            "crates/broker/src/a.rs:2: std::time::Instant here; take `now` as an argument",
            "crates/mqtt/src/a.rs:1: std::io here; return bytes or a Violation; engine does I/O",
            "crates/engine/src/a.rs:2: tokio here; use mio in engine; tokio belongs to the \
             control plane in godwit",
            "crates/godwit/src/a.rs:1: .unwrap() here; return the error, or expect(\"why it \
             holds\")",
        ],
    );
}

#[test]
fn unfinished_work_and_sleeping_tests_are_named() {
    let unit = "fn a() { todo!() }\n#[test]\nfn b() {\n std::thread::sleep(c);\n dbg!(d);\n}\n\
                #[test]\n#[ignore = \"slow\"]\nfn e() { unimplemented!() }\n";
    check(
        "words",
        &[("crates/engine/src/a.rs", unit), ("crates/godwit/tests/b.rs", "fn a() { sleep(b) }")],
        &[
            "crates/engine/src/a.rs:4: thread::sleep here; move virtual time: a line `+ 5s` of a \
             transcript",
            "crates/engine/src/a.rs:8: #[ignore here; mend the test or delete it",
            "crates/engine/src/a.rs:1: todo! here; write it or open an issue",
            "crates/engine/src/a.rs:9: unimplemented! here; write it or refuse it",
            "crates/engine/src/a.rs:5: dbg! here; delete it",
        ],
    );
}

#[test]
fn a_leftover_in_a_comment_is_named() {
    check(
        "leftovers",
        &[("crates/mqtt/src/a.rs", "//! A.\n// FIXME: later\nlet a = \"XXX\"; // XXX\n")],
        &[
            "crates/mqtt/src/a.rs:2: FIXME left behind; mend it or open an issue",
            "crates/mqtt/src/a.rs:3: XXX left behind; mend it or open an issue",
        ],
    );
}

#[test]
fn unsafe_outside_the_list_is_named() {
    check(
        "unsafe",
        &[("crates/engine/src/a.rs", "#![forbid(unsafe_code)]\n// unsafe\nunsafe { a() }\n")],
        &["crates/engine/src/a.rs:3: unsafe outside the listed files; find a safe way, or list \
           the file in tidy/banned_words.rs with the reason in its header"],
    );
}

#[test]
fn a_name_of_plumbing_is_named_with_a_better_one() {
    let text = "fn handle() {}\nfn handle_publish() {}\nfn get_mut() {}\nfn get_topic() {}\n\
                struct SessionManager;\nstruct Database;\nstruct CorrelationData;\n\
                fn publish_inner() {}\ntype BaseInfo = u8;\nfn _later() {}\n";
    check(
        "names",
        &[("crates/broker/src/utils.rs", text)],
        &[
            "crates/broker/src/utils.rs:1: file utils: `utils` says nothing; name what they do",
            "crates/broker/src/utils.rs:2: fn handle_publish: `handle_` says nothing; say the \
             verb of the domain; `handle` is the one entry",
            "crates/broker/src/utils.rs:4: fn get_topic: `get_` says nothing; drop the prefix: \
             `topic()`, not `get_topic()`",
            "crates/broker/src/utils.rs:8: fn publish_inner: `inner` says nothing; one owner \
             needs no inner part; name what it is",
            "crates/broker/src/utils.rs:10: fn _later: `_` says nothing; drop the underscore, or \
             delete what is not used",
            "crates/broker/src/utils.rs:5: type SessionManager: `manager` says nothing; name \
             what it owns",
            "crates/broker/src/utils.rs:9: type BaseInfo: `base` says nothing; name the noun that \
             is shared",
        ],
    );
}

#[test]
fn a_type_of_one_word_or_of_two_meanings_is_named() {
    let one = "struct Session;\nstruct Crowd;\nstruct Said;\nstruct PeerSet;\n\
               impl Iterator for PeerSet {\n    type Item = u8;\n}\n\
               #[cfg(test)]\nmod tests {\n    struct Rig;\n}\n";
    let two = "/// enum PeerSet\nenum PeerSet {}\ntype Unsaid = &'static str;\n";
    check(
        "type-names",
        &[
            ("crates/broker/src/a.rs", one),
            ("crates/engine/src/b.rs", two),
            ("crates/engine/tests/c.rs", "struct PeerSet;\nstruct Rig;\nstruct Told;\n"),
        ],
        &[
            "crates/broker/src/a.rs:2: type Crowd: one word is too little; a phrase of two words \
             or more, or a term listed in tidy/type_names.rs",
            "crates/broker/src/a.rs:3: type Said: a pronoun or participle says nothing; name what \
             it holds",
            "crates/engine/src/b.rs:3: type Unsaid: one word is too little; a phrase of two words \
             or more, or a term listed in tidy/type_names.rs",
            "crates/engine/tests/c.rs:3: type Told: a pronoun or participle says nothing; name \
             what it holds",
            "crates/engine/src/b.rs:2: type PeerSet stands in crates/broker/src/a.rs:4 too; name \
             each by what it holds",
        ],
    );
}

#[test]
fn a_tuple_of_parameters_is_named() {
    let text = "fn a((left, right): (u8, u8)) {}\nfn b(pair: (u8, u8)) -> (u8, u8) { pair }\n\
                fn c<F: Fn((u8, u8)) -> u8>(\n    first: u8,\n    (second, _): (u8, F),\n) {}\n\
                fn d() { let f = |(a, b): (u8, u8)| a + b; }\nfn e(f: fn((u8,)) -> u8, g: u8) {}\n";
    let why =
        "parameters packed into a tuple; name each, or make a struct of what travels together";
    check(
        "tuples",
        &[("crates/broker/src/a.rs", text), ("crates/broker/tests/b.rs", text)],
        &[
            &format!("crates/broker/src/a.rs:1: fn a: {why}"),
            &format!("crates/broker/src/a.rs:3: fn c: {why}"),
        ],
    );
}

#[test]
fn a_doc_comment_names_its_subject() {
    let text = "/// What is left.\n/// It goes on.\nstruct A;\n/// Items left.\n/// They go on.\n\
                fn b() {}\n    /// Of the same kind.\n    c: u8,\n/// Offset in bytes.\n// What.\n\
                #[cfg(test)]\nmod tests {\n    /// It fails.\n    fn d() {}\n}\n";
    let why = "open with the noun that it stands for, or with a verb";
    check(
        "doc-openings",
        &[("crates/broker/src/a.rs", text), ("crates/broker/tests/b.rs", text)],
        &[
            &format!("crates/broker/src/a.rs:1: a doc comment opens with \"What\"; {why}"),
            &format!("crates/broker/src/a.rs:7: a doc comment opens with \"Of\"; {why}"),
        ],
    );
}

#[test]
fn a_module_path_in_a_document_is_there() {
    let map = "`broker::routing::publish`, `broker::publish`,\n`broker::routing::Publish::new`, \
               `std::mem`, `broker::gone()`, `broker::Gone`\n";
    check(
        "doc-paths",
        &[
            ("ARCHITECTURE.md", map),
            ("crates/broker/src/routing/mod.rs", "mod publish;\n"),
            ("crates/broker/src/routing/publish.rs", "pub struct Publish;\n"),
        ],
        &[
            "ARCHITECTURE.md:1: broker::publish is not there; name a module or an item that is",
            "ARCHITECTURE.md:2: broker::gone is not there; name a module or an item that is",
            "ARCHITECTURE.md:2: broker::Gone is not there; name a module or an item that is",
        ],
    );
}

#[test]
fn a_name_of_code_in_a_document_is_in_the_source() {
    let there = "`relay::loops`, `relay::loops::find`, `LinkRelay::resume`, `drain_queue`\n\
                 `session.inflight_max`, `GODWIT_ANY_KEY`, `word`, `Publish`, `a b_c`\n\
                 `rustls::ClientConfig`, `Vec::with_capacity`, `resume()`\n\
                 ```\nlet other_name = `other_name`;\n```\n";
    let gone = "`relay::pipe`, `LinkRelay::inbox_bytes`, `GonePeer`, `left_behind`, `flow()`\n";
    let relay = "pub struct LinkRelay;\nimpl LinkRelay {\n    fn resume() {}\n}\n\
                 fn drain_queue() {} // left_behind\n";
    let options = "const KEY: &str = \"session.inflight_max\";\n";
    let message = "is not there; name a module or an item that is";
    let expected = ["relay::pipe", "LinkRelay::inbox_bytes", "GonePeer", "left_behind", "flow"];
    let expected = expected.map(|name| format!("docs/flows.md:1: {name} {message}"));
    let expected = expected.each_ref().map(String::as_str);
    let sources = [
        ("crates/connectors/src/relay/mod.rs", relay),
        ("crates/connectors/src/relay/loops.rs", "fn find() -> Vec<u8> {}\n"),
        ("Cargo.toml", "rustls = \"0.23\"\n"),
        ("crates/broker/src/options.rs", options),
        // Documents elsewhere, such as reports, may name code of their time.
        ("docs/reports/old.md", gone),
    ];
    check("doc-paths", &[&sources[..], &[("docs/topics.md", there)]].concat(), &[]);
    let found = [&sources[..], &[("docs/flows.md", gone)]].concat();
    check("doc-paths", &found, &expected);
}

#[test]
fn a_doc_comment_over_half_a_sentence_is_named() {
    let text = "//! A.\n\n/// Packets lost, ...\nlost: u8,\n/// ... and packets\n\
                /// delayed.\nlate: u8,\n";
    let whole = "//! A.\n\n/// Packets that a, b, ...\n/// and c lose.\n///\n\
                 /// ```text\n/// ...\n/// ```\na: u8, // ...\n";
    let what = "a doc comment opens or ends with \"...\"; make it a sentence of its own";
    check(
        "doc-fragments",
        &[("crates/netem/src/a.rs", text), ("crates/netem/src/b.rs", whole)],
        &[&format!("crates/netem/src/a.rs:3: {what}"), &format!("crates/netem/src/a.rs:5: {what}")],
    );
}

#[test]
fn a_clean_tree_has_nothing_to_mend() {
    let text = "//! A message.\n\n/// A whole message.\npub struct Message;\n";
    for rule in CHECKS {
        check(rule.name, &[("crates/broker/src/message.rs", text)], &[]);
    }
}
