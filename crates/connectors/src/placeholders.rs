//! Text with `${...}` in it, taken apart. What a name means is its reader's business.

/// A part of such a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceholderPart<'a> {
    /// Never empty.
    Text(&'a str),
    /// The text between `${` and `}`.
    Name(&'a str),
}

pub fn parts(text: &str) -> Result<Vec<PlaceholderPart<'_>>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, inside)) = rest.split_once("${") {
        let closed = inside.split_once('}');
        let (name, after) =
            closed.ok_or_else(|| format!("{text:?} has a \"${{\" without a \"}}\""))?;
        if !before.is_empty() {
            parts.push(PlaceholderPart::Text(before));
        }
        parts.push(PlaceholderPart::Name(name));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(PlaceholderPart::Text(rest));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use PlaceholderPart::{Name, Text};

    #[test]
    fn names_stand_between_texts() {
        for (text, expected) in [
            ("", &[][..]),
            ("a $ b", &[Text("a $ b")]),
            ("${a}", &[Name("a")]),
            ("x${a}${b.c[1]}y", &[Text("x"), Name("a"), Name("b.c[1]"), Text("y")]),
        ] {
            assert_eq!(parts(text).unwrap(), expected, "{text}");
        }
        assert!(parts("x${a").unwrap_err().contains("without"));
    }
}
