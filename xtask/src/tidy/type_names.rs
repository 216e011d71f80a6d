//! Check of the names of types: a phrase of two words or more for a single thing in the whole
//! workspace, or a single word known from MQTT, Rust, operating systems or databases.

use std::collections::BTreeMap;

use super::TidyFinding;
use crate::source::{SourceFile, identifier, line_of, word_positions};
use crate::tree::SourceTree;

/// Single words allowed as type names: terms of the field, and terms in the glossary of
/// ARCHITECTURE.md.
const SINGLE_WORDS: &[&str] = &[
    // Packets and parts of packets: MQTT 5.0 chapters 2 and 3.
    "Auth",
    "Connect",
    "Disconnect",
    "Filter",
    "Message",
    "Packet",
    "Properties",
    "Property",
    "Publish",
    "Subscribe",
    "Subscription",
    "Unsubscribe",
    "Will",
    // Sessions and access: MQTT 5.0 chapter 4 and other brokers.
    "Admission",
    "Authenticator",
    "Authorizer",
    "Ban",
    "Bridge",
    "Delivery",
    "Durability",
    "Gateway",
    "Link",
    "Listener",
    "Principal",
    "Relay",
    "Retained",
    "Rule",
    "Server",
    "Session",
    "Sink",
    // Storage engines, operating systems, expression evaluators.
    "Compactor",
    "Crc32",
    "Expr",
    "Manifest",
    "Memtable",
    "Number",
    "Operator",
    "Scheduler",
    "Slab",
    "Socket",
    "Value",
    // Load tests and simulations.
    "Scenario",
    "Oracle",
    "Transcript",
    // The glossary of ARCHITECTURE.md.
    "Budget",
    "Conn",
    "Effect",
    "Fault",
    "Flight",
    "Interest",
    "Outbox",
    "Receipt",
    "Refusal",
    "Shard",
    "Tick",
    "Violation",
];

/// Pronouns, question words and bare participles, which carry no meaning as the name of a type.
const EMPTY_WORDS: &[&str] = &[
    "Asked", "Came", "Done", "Few", "Form", "Found", "Fresh", "Given", "Gone", "Half", "Heard",
    "Held", "Here", "Kept", "Known", "Left", "Less", "Made", "Meant", "Missing", "More", "Noted",
    "Of", "Others", "Owed", "Paid", "Past", "Place", "Rest", "Ruled", "Said", "Same", "Seen",
    "Seldom", "Sent", "Some", "Taken", "There", "Told", "Unmade", "Wanted", "Way", "What", "Which",
    "Who", "Whole", "Whom", "Whose", "Word", "Words", "Wrong",
];

/// A definition of a type outside of functions, traits and impls.
struct TypeDefinition<'a> {
    path: &'a str,
    line: usize,
    is_test: bool,
}

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    let mut definitions: BTreeMap<String, Vec<TypeDefinition<'_>>> = BTreeMap::new();
    for source in &tree.sources {
        for (name, line) in type_definitions(source) {
            let is_test = source.test[line - 1];
            found.extend(
                wrong_word(&name, is_test).map(|what| {
                    TidyFinding::new(&source.path, line, format!("type {name}: {what}"))
                }),
            );
            let definition = TypeDefinition { path: &source.path, line, is_test };
            definitions.entry(name).or_default().push(definition);
        }
    }
    for (name, places) in &definitions {
        let Some(first) = places.iter().find(|place| !place.is_test).or(places.first()) else {
            continue;
        };
        for place in places.iter().filter(|place| is_duplicate(first, place)) {
            let what = format!(
                "type {name} stands in {}:{} too; name each by what it holds",
                first.path, first.line
            );
            found.push(TidyFinding::new(place.path, place.line, what));
        }
    }
    found
}

/// Returns the error in the words of a name, if any; tests may use single words not in
/// [`EMPTY_WORDS`].
fn wrong_word(name: &str, is_test: bool) -> Option<&'static str> {
    if EMPTY_WORDS.contains(&name) {
        return Some("a pronoun or participle says nothing; name what it holds");
    }
    let words = name.chars().filter(char::is_ascii_uppercase).count();
    (words < 2 && !is_test && !SINGLE_WORDS.contains(&name)).then_some(
        "one word is too little; a phrase of two words or more, or a term listed in \
         tidy/type_names.rs",
    )
}

/// Whether `place` reuses the name of `first`. `cfg` may give a name two definitions in one file,
/// and a file of tests is compiled by itself.
fn is_duplicate(first: &TypeDefinition<'_>, place: &TypeDefinition<'_>) -> bool {
    first.path != place.path && !place.is_test
}

/// Returns names and lines of the types defined at module level; lines count from 1.
fn type_definitions(source: &SourceFile) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "trait", "union", "type"] {
        for at in word_positions(&source.code, keyword) {
            let name = identifier(source.code[at + keyword.len()..].trim_start());
            let line_start = source.code[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let before = &source.code[line_start..at];
            // An associated type is indented, and so is a type within a function.
            let is_outside = !before.starts_with([' ', '\t']);
            if is_outside && name.starts_with(|c: char| c.is_ascii_uppercase()) {
                found.push((name, line_of(&source.code, at) + 1));
            }
        }
    }
    found.sort_by_key(|(_, line)| *line);
    found
}
