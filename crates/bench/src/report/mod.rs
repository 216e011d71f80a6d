//! Results of a test: one JSON document, and forms for readers (Markdown, HTML, CSV, JTL).
//!
//! The document is complete: every form is made from the document alone, also later or on another
//! host.

mod build;
mod command;
mod cpu_resolution;
mod csv;
mod grouping;
mod host;
mod jtl;
mod markdown;
mod page;
mod reservations;
mod samplers;
mod verdict;
mod wording;

pub(crate) use build::{TestSubject, build};
pub(crate) use command::{command, file_kind, run};
pub(crate) use csv::csv;
pub(crate) use host::host_lines;
pub(crate) use jtl::jtl;
pub(crate) use markdown::{conclusion, disclosure, markdown};
pub(crate) use page::html;

use serde_json::Value;

/// Returns the number at `path` of the document; 0 if absent.
pub(crate) fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

/// Returns the text at `path` of the document; empty if absent.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A form made later from the stored document equals the form made at once.
    #[test]
    fn a_report_is_read_as_it_was_written() {
        let numbers = serde_json::json!([0.009950248756218905, 1585.8770947022533]);
        let read: Value = serde_json::from_str(&numbers.to_string()).expect("JSON");
        assert_eq!(read, numbers);
    }
}
