//! Rows that a server answers with.

/// Names and values; what is NULL is not there.
#[derive(Debug, Default)]
pub struct TableRow(pub Vec<(String, Vec<u8>)>);

/// An answer with more bytes is none.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

impl TableRow {
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let known = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, value)| &value[..])
    }

    /// Returns a column as text; other types count as absent.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    pub fn word(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().trim().to_lowercase()
    }
}
