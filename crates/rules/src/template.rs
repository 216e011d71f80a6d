//! Text with placeholders for values of a row: `sensors/${id}/${payload.kind}`, and `${.}` for the
//! whole row.

use crate::budget::{Budget, RunError};
use crate::value::{Value, ValueMap};
use mqtt::template::TextTemplate;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTemplate(TextTemplate<RowPlaceholder>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum RowPlaceholder {
    /// The whole row as JSON, written `${.}`.
    Whole,
    Path(Box<str>, Box<[RowTemplateStep]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RowTemplateStep {
    Key(Box<str>),
    /// Position in an array, counted from 1 as in a rule.
    At(usize),
}

impl RowTemplate {
    /// Parses a template. The error contains the invalid placeholder and the valid forms.
    pub fn parse(text: &str) -> Result<RowTemplate, String> {
        let template = TextTemplate::parse(text, |inside| {
            parse_placeholder(inside).ok_or_else(|| {
                format!(
                    "${{{inside}}} is not a placeholder, use ${{name}}, ${{name.key[1]}} or ${{.}}"
                )
            })
        });
        Ok(RowTemplate(template?))
    }

    /// Appends it with a row's values: bytes as they are, a text without its quotes, the rest as
    /// JSON. Says whether the row has all of them: what is not there is `null`. What it appends
    /// the budget pays for, so that of rows that are large only some are written.
    pub fn fill(
        &self,
        row: &ValueMap<'_>,
        budget: &mut Budget,
        out: &mut Vec<u8>,
    ) -> Result<bool, RunError> {
        let (mut has_all, mut paid) = (true, out.len());
        self.0.try_fill(out, |place, out| {
            match place {
                RowPlaceholder::Whole => {
                    let mut text = String::new();
                    row.write_json(&mut text);
                    out.extend_from_slice(text.as_bytes());
                }
                RowPlaceholder::Path(name, steps) => {
                    has_all &= match row.get(name) {
                        Some(value) => write_path(value, steps, budget, out)?,
                        None => write_null(out),
                    };
                }
            }
            // With the text in front of it.
            budget.take(out.len() - paid)?;
            paid = out.len();
            Ok(())
        })?;
        budget.take(out.len() - paid)?;
        Ok(has_all)
    }
}

fn parse_placeholder(inside: &str) -> Option<RowPlaceholder> {
    if inside == "." {
        return Some(RowPlaceholder::Whole);
    }
    let end = inside.find(['.', '[']).unwrap_or(inside.len());
    let (name, mut rest) = inside.split_at(end);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(after) => {
                let (index, after) = after.split_once(']')?;
                (RowTemplateStep::At(index.parse().ok().filter(|index| *index > 0)?), after)
            }
            None => {
                let after = rest.strip_prefix('.')?;
                let (key, after) = after.split_at(after.find(['.', '[']).unwrap_or(after.len()));
                (RowTemplateStep::Key(Some(key).filter(|key| !key.is_empty())?.into()), after)
            }
        };
        steps.push(step);
        rest = after;
    }
    (!name.is_empty()).then(|| RowPlaceholder::Path(name.into(), steps.into()))
}

/// Writes the value at a path. If the path enters a text, the text is parsed as JSON, like a
/// payload. Returns whether there is a value.
fn write_path(
    value: &Value<'_>,
    steps: &[RowTemplateStep],
    budget: &mut Budget,
    out: &mut Vec<u8>,
) -> Result<bool, RunError> {
    let Some((step, rest)) = steps.split_first() else {
        write_value(value, out);
        return Ok(!value.is_null());
    };
    let next = match (value, step) {
        (Value::Map(map), RowTemplateStep::Key(key)) => map.get(key),
        (Value::Array(all), RowTemplateStep::At(at)) => all.get(at - 1),
        (Value::Text(text), _) => {
            return match Value::of_json(text, budget)? {
                Some(inside @ (Value::Map(_) | Value::Array(_))) => {
                    write_path(&inside, steps, budget, out)
                }
                _ => Ok(write_null(out)),
            };
        }
        _ => None,
    };
    match next {
        Some(next) => write_path(next, rest, budget, out),
        None => Ok(write_null(out)),
    }
}

fn write_null(out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(b"null");
    false
}

fn write_value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        value => {
            let mut text = String::new();
            value.write_text(&mut text);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, row: &str) -> (String, bool) {
        let Some(Value::Map(row)) = Value::from_json(row) else { panic!("{row}") };
        let mut out = Vec::new();
        let filled =
            RowTemplate::parse(template).unwrap().fill(&row, &mut Budget::default(), &mut out);
        let has_all = filled.unwrap();
        (String::from_utf8(out).unwrap(), has_all)
    }

    #[test]
    fn places_get_what_the_row_has() {
        let row = r#"{"a":{"b":[1,"two"]},"t":"x/y","p":"{\"v\":[7]}","n":null}"#;
        for (template, wanted, has_all) in [
            ("t/${t}/${a.b[2]}", "t/x/y/two", true),
            ("${a}", r#"{"b":[1,"two"]}"#, true),
            ("${p.v[1]}", "7", true),
            ("plain", "plain", true),
            ("", "", true),
            ("${n}", "null", false),
            ("${nothing.at[3].all}", "null", false),
            ("${a.b[3]}", "null", false),
            ("${t.x}", "null", false),
            ("$ { } ${t}$", "$ { } x/y$", true),
        ] {
            assert_eq!(filled(template, row), (wanted.to_string(), has_all), "{template}");
        }
        assert_eq!(filled("${.}", r#"{"a":1}"#), (r#"{"a":1}"#.to_string(), true));
    }

    #[test]
    fn what_is_large_is_paid_for() {
        let large = "x".repeat(1000);
        let row = format!(r#"{{"a":"{large}","b":"[{}1]"}}"#, "1,".repeat(1000));
        let Some(Value::Map(row)) = Value::from_json(&row) else { panic!("{row}") };
        for template in ["${a}", "${.}", "${b[7]}"] {
            let mut budget = Budget { bytes: 900, ..Budget::default() };
            let filled =
                RowTemplate::parse(template).unwrap().fill(&row, &mut budget, &mut Vec::new());
            assert_eq!(filled, Err(RunError::Bytes), "{template}");
        }
    }

    #[test]
    fn what_is_no_placeholder_is_told() {
        for wrong in ["${", "${}", "${a.}", "${a[0]}", "${a[x]}", "${a[1}", "${.a}", "${a]}"] {
            let read = RowTemplate::parse(wrong);
            assert!(read.is_err() || wrong == "${a]}", "{wrong}: {read:?}");
        }
    }
}
