//! Texts generated from the table of options: the list of `godwit options`, `docs/options.md`, and
//! the sample file.

use super::links::{LinkKindOptions, find_kind};
use super::table::{ProgramOption, rows, rows_of};
use config::row::{OptionRow, OptionScope};
use std::fmt::Write as _;

/// Returns the output of `godwit options`: every option, and the options of tables, which only a
/// file can contain.
pub(crate) fn list() -> String {
    let mut list = String::new();
    list_lines(rows(), &mut list);
    table_lists(&mut list);
    list
}

fn list_lines<'a, S: 'a>(rows: impl Iterator<Item = &'a OptionRow<S>>, out: &mut String) {
    let rows: Vec<&OptionRow<S>> = rows.collect();
    let width = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
    for row in rows {
        let default = match row.default {
            "" => String::new(),
            default => format!(" [{default}]"),
        };
        let line = format!("  {:width$}  {}{default}", row.key, row.short);
        out.push_str(&wrap(&line, &" ".repeat(width + 4)));
    }
}

/// The options of one kind of table, under the table's name.
pub(super) fn table_list<S>(name: &str, rows: &[OptionRow<S>], out: &mut String) {
    let _ = write!(out, "\nEach [[{name}]] has:\n");
    list_lines(rows.iter(), out);
}

fn table_lists(out: &mut String) {
    use super::topics::{AUTO_SUBSCRIBE, CACHE, PRESET, REWRITE};
    table_list("rewrite", REWRITE, out);
    table_list("auto_subscribe", AUTO_SUBSCRIBE, out);
    table_list("preset", PRESET, out);
    table_list("cache", CACHE, out);
    table_list("imported", super::imported::IMPORTED, out);
    table_list("rule", super::rules::ROWS, out);
    link_kinds().for_each(|kind| (kind.write_list)(out));
}

/// Returns the kinds of links of this build in the order of the documents.
fn link_kinds() -> impl Iterator<Item = &'static LinkKindOptions> {
    ["bridge", "sink", "gateway"].into_iter().filter_map(find_kind)
}

/// Returns the text of `docs/options.md`.
pub(crate) fn markdown() -> String {
    let mut page = MARKDOWN_HEAD.to_string();
    let mut section = "";
    for row in rows() {
        if row.section() != section {
            section = row.section();
            let _ = write!(page, "\n## {section}\n");
        }
        page.push_str(&markdown_row(row));
    }
    topics(&mut page);
    rules(&mut page);
    link_kinds().for_each(|kind| (kind.write_page)(&mut page));
    page
}

fn topics(page: &mut String) {
    use super::topics::{AUTO_SUBSCRIBE, CACHE, PRESET, REWRITE};
    page.push_str(REWRITE_HEAD);
    REWRITE.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str(AUTO_SUBSCRIBE_HEAD);
    AUTO_SUBSCRIBE.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str(PRESET_HEAD);
    PRESET.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str(CACHE_HEAD);
    CACHE.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str(IMPORTED_HEAD);
    super::imported::IMPORTED.iter().for_each(|row| page.push_str(&own_row(row)));
}

fn rules(page: &mut String) {
    page.push_str(RULES_HEAD);
    super::rules::ROWS.iter().for_each(|row| page.push_str(&own_row(row)));
}

/// Lists the broker's options that a link may have in addition to its own.
pub(super) fn own_limits(scope: OptionScope) -> String {
    let limits: Vec<String> = rows_of(scope).map(|row| format!("`{}`", row.key)).collect();
    wrap(&format!("\nBeside these it may have {}.", limits.join(", ")), "")
}

/// Formats an option that exists only in tables of a file.
pub(super) fn own_row<S>(row: &OptionRow<S>) -> String {
    let mut text = format!("\n#### `{}`\n\n{}.", row.key, capital(row.short));
    if !row.long.is_empty() {
        let _ = write!(text, " {}", row.long);
    }
    let mut text = wrap(&text, "");
    let default = row.kind.format_value(&row.default_value());
    let right = row.kind.expected();
    let _ = write!(text, "\n| value | default |\n|---|---|\n| {right} | `{default}` |\n");
    if !row.source.is_empty() {
        let _ = write!(text, "\nSource: {}.\n", row.source);
    }
    text
}

fn markdown_row(row: &ProgramOption) -> String {
    let mut text = format!("\n### `{}`\n\n{}.", row.key, capital(row.short));
    if !row.long.is_empty() {
        let _ = write!(text, " {}", row.long);
    }
    let mut text = wrap(&text, "");
    let own = match (row.is_for(OptionScope::Listener), row.is_for(OptionScope::Group)) {
        (true, true) => "Also in a `[[listener]]` or `[[group]]`, for that one alone.\n",
        (true, false) => "Also in a `[[listener]]`, for that one alone.\n",
        (false, true) => "Also in a `[[group]]`, for that one alone.\n",
        (false, false) => "",
    };
    let change = if row.live { "live, by SIGHUP" } else { "by a restart" };
    let _ = write!(text, "\n| value | default | environment | changes |\n|---|---|---|---|\n");
    let _ = writeln!(
        text,
        "| {} | `{}` | `{}` | {change} |",
        row.kind.expected(),
        row.kind.format_value(&row.default_value()),
        row.environment(),
    );
    if !own.is_empty() {
        let _ = write!(text, "\n{own}");
    }
    if !row.source.is_empty() {
        let _ = write!(text, "\nSource: {}.\n", row.source);
    }
    text
}

/// Returns the sample file with commented defaults; with every line uncommented the options stay
/// the same.
pub(crate) fn sample() -> String {
    let mut file = SAMPLE_HEAD.to_string();
    let mut section = "";
    for row in rows() {
        if row.section() != section {
            section = row.section();
            let _ = write!(file, "\n[{section}]\n");
        }
        let right = format!("{}. {}.", capital(row.short), capital(&row.kind.expected()));
        file.push('\n');
        file.push_str(&wrap(&format!("# {right}"), "# "));
        let _ = writeln!(file, "#{} = {}", row.name(), row.kind.format_value(&row.default_value()));
    }
    file
}

/// Returns the sample's option lines, uncommented.
#[cfg(test)]
pub(crate) fn sample_lines(sample: &str) -> Vec<&str> {
    let option = |line: &&str| !line.starts_with("# ") && !line.is_empty();
    sample.lines().filter(option).map(|line| line.trim_start_matches('#')).collect()
}

/// Wraps at spaces, so that lines have at most `COLUMNS` columns unless a word is longer.
pub(super) fn wrap(text: &str, indent: &str) -> String {
    let mut wrapped = String::new();
    for line in text.split('\n') {
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            if column + word.trim_end().len() > COLUMNS && column > indent.len() {
                wrapped.truncate(wrapped.trim_end_matches(' ').len());
                wrapped.push('\n');
                wrapped.push_str(indent);
                column = indent.len();
            }
            wrapped.push_str(word);
            column += word.len();
        }
        wrapped.push('\n');
    }
    wrapped
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|char| char.to_uppercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}

const COLUMNS: usize = 100;

const MARKDOWN_HEAD: &str = "\
# Options

Generated by `godwit options --markdown`: change the table in `crates/godwit/src/options/table`, not
this page.

A TOML file (`--config FILE` or `GODWIT_CONFIG`) is overruled by the environment, the environment by
flags. `godwit.toml` beside this page is a file with every option. An option is

* `name = value` under `[section]` in the file,
* `GODWIT_SECTION__NAME=value` in the environment,
* `--section.name=value` or `--set section.name=value` as a flag.

In the environment and in flags text has no quotes, a list is `a,b` and a table is `a=1,b=2`; there,
`--set section.name.a=1` adds one entry. A list or a table replaces the one of a weaker layer.
`godwit check` reads all three layers and prints what differs from the defaults. A wrong option is
refused with its file and line, and exit code 2.

Every `[[listener]]` of the file is one more listener, and every `[[group]]` a group of users. They
may have those options for themselves that say so below; what they do not say is as for all:

```toml
[tls]
certificate = [\"server.pem\"]
key = [\"server.key\"]

[[listener]]
url = \"tls://0.0.0.0:8883\"
tls.client_certificate = \"required\"
tls.client_ca = \"clients.pem\"
limits.connections_max = 1000
queue.messages_max = 500

[[group]]
name = \"sensors\"
limits.messages_per_s = 10
session.subscriptions_max = 5
```

Where several speak of a client the more particular wins: its group, then its listener, then what is
for all. A client of several groups has the limits of the first of them in the file. Who is in which
group a token says (`auth.jwt_groups_claim`), or `[groups]` in the file of `acl.file`.

SIGHUP reads all layers again. If anything is wrong, everything stays as it is; otherwise what can
change live does, and the log names what needs a restart.
";

const REWRITE_HEAD: &str = "
## Rewrites

Every `[[rewrite]]` of the file gives some topics another name as they come in; `topics.md` says
how. They are compared in their order, and the first whose `source` and `regex` both match decides.

```toml
[[rewrite]]
action = \"publish\"
source = \"y/#\"
regex = '^y/(.+)/z/(.+)$'
dest = \"y/z/$2\"
```
";

const AUTO_SUBSCRIBE_HEAD: &str = "
## Automatic subscriptions

Every `[[auto_subscribe]]` of the file is a subscription that each client has from its CONNECT on,
as if it had asked for it: permissions go for it, and a client that may not have it has not.

```toml
[[auto_subscribe]]
topic = \"clients/${clientid}/#\"
qos = \"1\"
```
";

const PRESET_HEAD: &str = "
## Preset sessions

Every `[[preset]]` of the file is a session that a client finds when it comes for the first time,
with the messages that came meanwhile. It is made where there is no session of that client, at the
start and by SIGHUP; one that exists is left as it is.

```toml
[[preset]]
client_id = \"meter-7\"
subscriptions = [\"commands/meter-7/#\"]
```
";

const IMPORTED_HEAD: &str = "
## Imported listeners

Every `[[imported]]` of the file says what another broker asked of the clients of one listener.
`godwit import` writes them. A listener that asks for less is refused, at the start, by
`godwit check` and by SIGHUP; a listener of another port has to ask for what all of them asked for.
Change an entry, or take it out, to accept what it refuses.

```toml
[[imported]]
listener = \"*:1883\"
credentials = true
```
";

const CACHE_HEAD: &str = "
## Caches

Every `[[cache]]` of the file keeps the last messages of some topics, whether they are retained or
not, and a client of MQTT 5.0 asks for them by `$cache/{name}`; `topics.md` says how.

```toml
[[cache]]
name = \"climate\"
filters = [\"rooms/+/climate\"]
messages_max = 20
```

What it keeps is in memory, and gone after a restart. SIGHUP applies changes: a cache of the same
name keeps what it has, as far as its filters and bounds let it.
";

const RULES_HEAD: &str = "
## Rules

Every `[[rule]]` of the file says in SQL what becomes of messages beside going where they are
wanted;
`rules.md` has the language, and `godwit rules test` tries one:

```toml
[[rule]]
name = \"hot\"
sql = '''SELECT payload.t AS t, nth(2, tokens(topic, '/')) AS room
         FROM \"rooms/+/climate\" WHERE payload.t > 30'''
publish.topic = \"alarms/${room}\"
publish.payload = '{\"t\": ${t}}'
publish.qos = \"1\"
```

`send.to = [\"sink/history\"]` puts rows into the queues of links, and nobody else gets them.
What a rule publishes follows the message that it was made of, and that is acknowledged when both
are
where they have to be. A rule that fails on a message does not disturb it. SIGHUP applies changed
rules. `$SYS/broker/rule/` tells what became of what each saw, see reference.md.
";

const SAMPLE_HEAD: &str = "\
# Every option of Godwit with its default, commented out. Generated by `godwit options --sample`;
# docs/options.md explains each.
";
