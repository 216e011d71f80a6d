//! Suggestions for mistyped words ("did you mean ...?").

/// Returns the known word with the smallest `edit_distance` to `typed`, or `None` if each known
/// word differs in more than a third of the letters (at least one, at most four letters).
pub fn nearest_word<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mistakes_max = (typed.chars().count() / 3).clamp(1, 4);
    known
        .map(|word| (edit_distance(typed, word), word))
        .filter(|(mistakes, _)| *mistakes <= mistakes_max)
        .min_by_key(|(mistakes, _)| *mistakes)
        .map(|(_, word)| word)
}

/// Returns the number of letters to change, insert, delete or swap with their neighbour to turn `a`
/// into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, a_char) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b_char) in b.iter().enumerate() {
            let change = last[j] + usize::from(a_char != b_char);
            let mut cost = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a_char == b[j - 1] && a[i - 1] == *b_char {
                cost = cost.min(before_last[j - 1] + 1);
            }
            row.push(cost);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_its_word_and_nonsense_finds_none() {
        let known = ["queue.messages_max", "queue.bytes_max", "shards", "listen"];
        let find = |typed| nearest_word(typed, known.into_iter());
        assert_eq!(find("queue.mesages_max"), Some("queue.messages_max"));
        assert_eq!(find("sahrds"), Some("shards"));
        assert_eq!(find("listne"), Some("listen"));
        assert_eq!(find("zebra"), None);
        assert_eq!(find(""), None);
    }
}
