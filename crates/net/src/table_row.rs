//! Rows of a database server's response to a query.

/// Column names and values, in the order of the query; NULL values are absent.
#[derive(Debug, Default)]
pub struct TableRow(pub Vec<(String, Vec<u8>)>);

/// Largest answer in bytes; a larger answer is an error.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

impl TableRow {
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let known = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, value)| &value[..])
    }

    /// Returns a column as text; `None` if absent or not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    pub fn word(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().trim().to_lowercase()
    }
}
