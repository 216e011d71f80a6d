//! What a test found out, as one document (JSON), and the forms that people read.
//!
//! The document is the report: every other form is made from it alone, also later and elsewhere.

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
pub(crate) use command::{file_kind, run};
pub(crate) use csv::csv;
pub(crate) use host::host_lines;
pub(crate) use jtl::jtl;
pub(crate) use markdown::{conclusion, disclosure, markdown};
pub(crate) use page::html;

use serde_json::Value;

/// A number of the document, 0 where there is none.
pub(crate) fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

/// A text of the document, empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A form made later and elsewhere is the one that would have been made at once.
    #[test]
    fn a_report_is_read_as_it_was_written() {
        let numbers = serde_json::json!([0.009950248756218905, 1585.8770947022533]);
        let read: Value = serde_json::from_str(&numbers.to_string()).expect("JSON");
        assert_eq!(read, numbers);
    }
}
