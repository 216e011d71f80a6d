//! Positions in arrays as rules count them: from 1, or backwards from -1.

/// Returns the zero-based position of an element counted from 1, or backwards from -1; `None` for 0
/// and positions outside of `len` elements.
pub(crate) fn position(index: i64, len: usize) -> Option<usize> {
    let at = match index {
        0 => return None,
        1.. => usize::try_from(index).ok()? - 1,
        _ => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
    };
    (at < len).then_some(at)
}

/// Returns the positions between two elements, both included; positions outside of the array are
/// left out.
pub(crate) fn range(from: i64, to: i64, len: usize) -> std::ops::Range<usize> {
    let edge = |index: i64| match index {
        0.. => usize::try_from(index).unwrap_or(usize::MAX),
        _ => (len + 1).saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let end = edge(to).min(len);
    let start = edge(from).saturating_sub(1).min(end);
    start..end
}
