//! NanoMQ's old file: a line an option, `a.b.c = value`, the value up to the end of the line.

use super::draft::Draft;
use super::row::meet;
use super::table::nanomq_old::ROWS;
use super::tree::{Node, Place};
use std::rc::Rc;

pub(super) fn take_in(text: &str, file: &Rc<str>, draft: &mut Draft) {
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = Place { file: file.clone(), line: at + 1 };
        match line.split_once('=') {
            Some((key, value)) if is_key(key.trim()) => {
                let mut path = key.trim().split('.').map(str::to_string).collect();
                meet(ROWS, &mut path, &Node::text_at(&place, value.trim()), draft);
            }
            _ => draft.wrongs.push(format!("{place}: no option, use NAME = VALUE")),
        }
    }
}

/// How many of these lines are the old file's.
pub(super) fn score(text: &str) -> usize {
    let key = |line: &str| line.split_once('=').map(|(key, _)| key.trim().to_string());
    let known = |key: &String| {
        let path: Vec<String> = key.split('.').map(str::to_string).collect();
        super::row::knows(ROWS, &path)
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(key).filter(known).count()
}

fn is_key(key: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !key.is_empty() && key.len() < 256 && key.bytes().all(legal)
}
