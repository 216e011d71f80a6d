//! Named values of a message, written as a JSON object, a line of CSV, or names and values.

use super::message::SinkMessage;
use super::template::{SinkTemplate, ValueEncoding};

/// Columns in order, each with a name and a [`SinkTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkColumns(Vec<(String, SinkTemplate)>);

impl SinkColumns {
    /// Parses columns of the form `NAME=TEMPLATE`.
    pub fn parse(columns: &[String]) -> Result<SinkColumns, String> {
        columns.iter().map(|column| parse(column)).collect::<Result<_, _>>().map(SinkColumns)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &SinkTemplate)> {
        self.0.iter().map(|(name, template)| (name.as_str(), template))
    }

    /// Appends a JSON object with a member for each column.
    pub fn write_json(&self, message: &SinkMessage, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, (name, template)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let name = serde_json::Value::from(name.as_str()).to_string();
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            template.fill_value(message, out);
        }
        out.push(b'}');
    }

    /// Appends the name and the value of each column, for example as fields of a Redis entry.
    pub fn push_name_values(&self, message: &SinkMessage, out: &mut Vec<Vec<u8>>) {
        for (name, template) in &self.0 {
            let mut value = Vec::new();
            template.fill(message, ValueEncoding::Bytes, &mut value);
            out.extend([name.clone().into_bytes(), value]);
        }
    }

    /// Returns each name with its value as text.
    pub fn iter_texts(&self, message: &SinkMessage) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().map(|(name, template)| {
            let mut value = Vec::new();
            template.fill(message, ValueEncoding::Plain, &mut value);
            (name.as_str(), String::from_utf8_lossy(&value).into_owned())
        })
    }

    /// Appends a line of CSV with its line end [RFC 4180].
    pub fn write_csv(&self, message: &SinkMessage, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        let values = self.0.iter().map(|(_, template)| {
            value.clear();
            template.fill(message, ValueEncoding::Plain, &mut value);
            quoted(&value)
        });
        write_line(values, out);
    }

    pub fn write_header(&self, out: &mut Vec<u8>) {
        write_line(self.0.iter().map(|(name, _)| quoted(name.as_bytes())), out);
    }
}

/// Parses a column; also used as the check of the option.
pub(super) fn parse(column: &str) -> Result<(String, SinkTemplate), String> {
    match column.split_once('=') {
        Some((name, template)) if !name.trim().is_empty() => {
            Ok((name.trim().into(), SinkTemplate::parse(template.trim())?))
        }
        _ => Err(format!("{column:?} is not a column, use NAME=${{topic}} and the like")),
    }
}

fn write_line(values: impl Iterator<Item = Vec<u8>>, out: &mut Vec<u8>) {
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&value);
    }
    out.extend_from_slice(b"\r\n");
}

fn quoted(value: &[u8]) -> Vec<u8> {
    if !value.iter().any(|byte| matches!(byte, b'"' | b',' | b'\r' | b'\n')) {
        return value.to_vec();
    }
    let mut out = vec![b'"'];
    for byte in value {
        out.push(*byte);
        if *byte == b'"' {
            out.push(b'"');
        }
    }
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_their_columns() {
        let columns = ["t=${topic}", "x=a ${qos}", "p=${payload}"].map(String::from);
        let columns = SinkColumns::parse(&columns).unwrap();
        let payload = b"say \"a,b\"\r\nand more".to_vec();
        let message = SinkMessage { topic: "a/b".into(), payload, ..SinkMessage::default() };
        let mut out = Vec::new();
        columns.write_header(&mut out);
        columns.write_csv(&message, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "t,x,p\r\na/b,a 0,\"say \"\"a,b\"\"\r\nand more\"\r\n");
        let mut out = Vec::new();
        columns.write_json(&message, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, r#"{"t":"a/b","x":"a 0","p":"say \"a,b\"\r\nand more"}"#);
        assert!(SinkColumns::parse(&["${topic}".into()]).is_err());
    }

    #[test]
    fn what_has_no_value_is_null_in_json_and_empty_elsewhere() {
        let columns = ["a=${payload.gone}", "b=${payload.null}", "c=at ${payload.gone}", "d=\"\""];
        let columns = SinkColumns::parse(&columns.map(String::from)).unwrap();
        let message =
            SinkMessage { payload: br#"{"null":null}"#.to_vec(), ..SinkMessage::default() };
        let (mut json, mut csv, mut words) = (Vec::new(), Vec::new(), Vec::new());
        columns.write_json(&message, &mut json);
        columns.write_csv(&message, &mut csv);
        columns.push_name_values(&message, &mut words);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!(text(json), r#"{"a":null,"b":null,"c":"at ","d":"\"\""}"#);
        assert_eq!(text(csv), ",,at ,\"\"\"\"\"\"\r\n");
        assert_eq!(
            words.into_iter().map(text).collect::<Vec<_>>()[..6],
            ["a", "", "b", "", "c", "at "]
        );
    }
}
