//! Substitutions `${name}` of values in the same file. Environment variables are not used: the
//! importer's environment differs from that of the original.

use super::merge::merge_values;
use crate::config_tree::{ConfigFields, ConfigNode, ConfigTree};

/// Bound of all nodes. Substitutions may contain substitutions, and without a bound a short file
/// could grow a thousandfold.
const NODES_MAX: usize = 200_000;
const DEPTH_MAX: usize = 64;

pub(super) fn resolve(root: ConfigNode) -> Result<ConfigNode, String> {
    let mut resolver = HoconResolver { root: &root, left: NODES_MAX, depth: 0 };
    let whole = resolver.node(&root)?;
    Ok(whole
        .unwrap_or(ConfigNode { place: root.place.clone(), tree: ConfigTree::Object(Vec::new()) }))
}

struct HoconResolver<'a> {
    root: &'a ConfigNode,
    left: usize,
    depth: usize,
}

impl HoconResolver<'_> {
    /// Resolves a node. Returns `None` for an absent optional name, and for `null`.
    fn node(&mut self, node: &ConfigNode) -> Result<Option<ConfigNode>, String> {
        let place = node.place.clone();
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            format!("{place}: names that stand for names make this too long, write it out")
        })?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("{place}: a name that stands for itself, write its value"));
        }
        let tree = match &node.tree {
            ConfigTree::Null => None,
            tree @ (ConfigTree::Text(_) | ConfigTree::UnclearText(_)) => Some(tree.clone()),
            ConfigTree::List(nodes) => {
                let nodes = nodes.iter().map(|node| self.node(node));
                Some(ConfigTree::List(
                    nodes.filter_map(Result::transpose).collect::<Result<_, _>>()?,
                ))
            }
            ConfigTree::Object(fields) => {
                let mut resolved = ConfigFields::new();
                for (key, node) in fields {
                    resolved.extend(self.node(node)?.map(|node| (key.clone(), node)));
                }
                Some(ConfigTree::Object(resolved))
            }
            ConfigTree::Variable { path, optional } => {
                self.named(path, *optional, node)?.map(|found| found.tree)
            }
            ConfigTree::Pieces(pieces) => self.pieces(pieces)?,
            ConfigTree::Override(values) => self.overridden(values)?,
        };
        self.depth -= 1;
        Ok(tree.map(|tree| ConfigNode { place, tree }))
    }

    fn named(
        &mut self,
        path: &str,
        optional: bool,
        at: &ConfigNode,
    ) -> Result<Option<ConfigNode>, String> {
        let mut found = Some(self.root.clone());
        for name in path.split('.') {
            let Some(there) = found else { break };
            let there = match &there.tree {
                ConfigTree::Pieces(_) | ConfigTree::Variable { .. } | ConfigTree::Override(_) => {
                    self.node(&there)?
                }
                _ => Some(there),
            };
            found = there.and_then(|there| there.field(name.trim_matches('"')).cloned());
        }
        match found {
            Some(found) => self.node(&found),
            None if optional => Ok(None),
            None => {
                Err(format!("{}: ${{{path}}} is not a key of the file, write its value", at.place))
            }
        }
    }

    /// Returns the latest defined value of `Override`. Objects are merged, back to the latest other
    /// value.
    fn overridden(&mut self, values: &[ConfigNode]) -> Result<Option<ConfigTree>, String> {
        let mut objects: Vec<ConfigNode> = Vec::new();
        for value in values.iter().rev() {
            let Some(value) = self.node(value)? else { continue };
            match value.tree {
                ConfigTree::Object(_) => objects.push(value),
                ConfigTree::List(_) if objects.iter().any(is_indexed) => {
                    return Err(format!(
                        "{}: a part of this list is written again by its number: write the list \
                         once, as it is in the end",
                        value.place
                    ));
                }
                tree if objects.is_empty() => return Ok(Some(tree)),
                _ => break,
            }
        }
        let Some(mut whole) = objects.pop() else { return Ok(None) };
        while let Some(later) = objects.pop() {
            merge_values(&mut whole, later);
        }
        Ok(Some(whole.tree))
    }

    /// Joins adjacent pieces: objects are merged, lists concatenated, other values joined as text.
    fn pieces(&mut self, pieces: &[ConfigNode]) -> Result<Option<ConfigTree>, String> {
        let mut whole: Option<ConfigNode> = None;
        for piece in pieces {
            let Some(piece) = self.node(piece)? else { continue };
            let Some(there) = &mut whole else {
                whole = Some(piece);
                continue;
            };
            let is_gap = |tree: &ConfigTree| match tree {
                ConfigTree::Text(text) => text.trim().is_empty(),
                _ => false,
            };
            match (&mut there.tree, piece.tree) {
                (ConfigTree::Object(_) | ConfigTree::List(_), tree) if is_gap(&tree) => {}
                (first, tree) if is_gap(first) => there.tree = tree,
                (ConfigTree::Object(_), ConfigTree::Object(more)) => {
                    merge_values(
                        there,
                        ConfigNode { place: piece.place, tree: ConfigTree::Object(more) },
                    );
                }
                (ConfigTree::List(nodes), ConfigTree::List(more)) => nodes.extend(more),
                (
                    ConfigTree::Text(text) | ConfigTree::UnclearText(text),
                    ConfigTree::Text(more),
                ) => text.push_str(&more),
                (
                    ConfigTree::Text(text) | ConfigTree::UnclearText(text),
                    ConfigTree::UnclearText(more),
                ) => {
                    let whole = std::mem::take(text) + &more;
                    there.tree = ConfigTree::UnclearText(whole);
                }
                _ => {
                    let why = "text, lists and braces do not go together, use one of them";
                    return Err(format!("{}: {why}", piece.place));
                }
            }
        }
        Ok(whole.map(|node| match node.tree {
            ConfigTree::Text(text) => ConfigTree::Text(text.trim_end().to_string()),
            tree => tree,
        }))
    }
}

/// Whether an object has a number as a key, which changes that element of a list.
pub(super) fn is_indexed(node: &ConfigNode) -> bool {
    match &node.tree {
        ConfigTree::Object(fields) => fields.iter().any(|(key, _)| key.parse::<i64>().is_ok()),
        _ => false,
    }
}
