//! Numbers and lists in text for readers.

/// Formats three significant digits, or the whole number if longer; thousands have commas.
pub(crate) fn amount(value: f64) -> String {
    fixed(value, amount_digits(value))
}

/// Returns the number of decimals of an [`amount`].
pub(crate) fn amount_digits(value: f64) -> usize {
    let size = value.abs();
    match () {
        () if size == 0.0 || size >= 100.0 => 0,
        () if size >= 10.0 => 1,
        () if size >= 1.0 => 2,
        () => 3,
    }
}

/// Formats with at most `digits` decimals, without trailing zeros; thousands have commas.
pub(crate) fn fixed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

/// Joins texts as in a sentence: `a`, `a and b`, `a, b and c`.
pub(crate) fn list_of(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// Compares `other` with `best` in words: "12 % more", "2.5 times as much".
pub(crate) fn more_or_less(best: f64, other: f64) -> String {
    let ratio = other / best.max(1e-9);
    match ratio {
        r if (0.995..1.005).contains(&r) => "the same".into(),
        r if r >= 2.0 => format!("{r:.1} times as much"),
        r if r >= 1.0 => format!("{:.0} % more", (r - 1.0) * 100.0),
        r => format!("{:.0} % less", (1.0 - r) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let all = [0.0, 0.0123, 0.97, 8.399, 12.34, 123.4, 81_234.6, 1_234_567.0, -1_000.0];
        let expected =
            ["0", "0.012", "0.97", "8.4", "12.3", "123", "81,235", "1,234,567", "-1,000"];
        assert_eq!(all.map(amount), expected);
        assert_eq!(fixed(15_756.0, 1), "15,756");
    }

    #[test]
    fn leads_are_told_in_per_cent_or_as_factors() {
        let pairs = [(1.0, 2.31), (0.693, 0.97), (81.0, 60.0), (22.0, 22.1)];
        let told = pairs.map(|(a, b)| more_or_less(a, b));
        assert_eq!(told, ["2.3 times as much", "40 % more", "26 % less", "the same"]);
        let names = ["a", "b", "c"].map(String::from);
        assert_eq!(list_of(&names), "a, b and c");
        assert_eq!(list_of(&names[..2]), "a and b");
    }
}
