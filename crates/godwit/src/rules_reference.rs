//! `docs/rules.md`: the prose about the language, and every field and function from its row.

use mqtt::{PacketType, ReasonCode};
use rules::functions::{GROUPS, RuleFunction};
use rules::{AGGREGATES, EVENTS, FIELDS};
use std::fmt::Write as _;

pub(crate) fn markdown() -> String {
    let mut text = String::from(include_str!("rulebook.md"));
    text.push_str("\n## Fields\n\n| field | what it is |\n|---|---|\n");
    for row in FIELDS {
        let _ = writeln!(text, "| `{}` | {} |", row.name, row.description);
    }
    text.push_str("\n## Events and their fields\n\n");
    text.push_str(
        "`$events/client/connected` and so on; the older names of EMQX mean the same. All have \
         `event`, `clientid`,\n`username`, `peerhost`, `node` and `timestamp`, those marked with a \
         star the fields of their message too.\n\n\
         | event | when | fields | older name |\n|---|---|---|---|\n",
    );
    for row in EVENTS {
        let star = if row.has_message { "\\*" } else { "" };
        let list = |names: &[&str]| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let (fields, older) = (list(row.fields), list(row.aliases));
        let _ =
            writeln!(text, "| `{}`{star} | {} | {fields} | {older} |", row.name, row.description);
    }
    text.push_str(&describe_reasons());
    text.push_str(
        "\n## Functions of windows\n\nThe examples saw 3, 1, 2, 2 and null as `payload.v`.\n\n\
         | function | what it gives | example |\n|---|---|---|\n",
    );
    for row in AGGREGATES {
        let (expr, result) = row.example;
        let call = format!("{}({})", row.name, row.parameters);
        let _ = writeln!(text, "| `{call}` | {} | `{expr} = {result}` |", row.description);
    }
    text.push_str("\n## Functions\n\n");
    text.push_str(
        "Names may have capitals. Arguments in brackets may be left out. The examples are tests;\n\
         they see the topic `car/7/speed`, the payload `{}` and a clock that stands at\n\
         2026-11-22T08:00:00.25Z.\n",
    );
    for (group, rows) in GROUPS {
        let _ = writeln!(text, "\n### {group}\n");
        text.push_str("| function | what it gives | example |\n|---|---|---|\n");
        for row in *rows {
            text.push_str(&function_row(row));
        }
    }
    text
}

/// Describes the values of the field `reason` for a closed connection.
fn describe_reasons() -> String {
    let all = (0..=u8::MAX).filter_map(ReasonCode::from_byte);
    let said = all.filter(|reason| reason.is_allowed_in(PacketType::Disconnect));
    let said: Vec<_> = said.map(|reason| format!("`{reason}`")).collect();
    format!(
        "\nThe `reason` of `client/disconnected` is `connection lost` where nobody said one; what \
         a DISCONNECT said, the client's or\nours: {}; or, where the client broke the protocol, \
         how, in words: `was silent for longer than its keep alive`. A connection that its client\n\
         replaces by another is `session/takenover` and not `client/disconnected`. `proto_ver` is \
         text: `3.1`, `3.1.1` or `5.0`.\n",
        said.join(", ")
    )
}

fn function_row(row: &RuleFunction) -> String {
    let (expr, result) = row.example;
    // An unescaped bar would start a new column, also inside of code.
    let cell = |text: &str| text.replace('|', "\\|");
    let call = format!("{}({})", row.name, row.parameters);
    let example = format!("{expr} = {result}");
    format!("| `{}` | {} | `{}` |\n", cell(&call), cell(row.description), cell(&example))
}
