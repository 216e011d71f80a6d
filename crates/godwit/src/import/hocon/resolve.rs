//! `${name}`: what stands elsewhere in the file, or in the environment.

use super::join;
use crate::import::tree::{Fields, Node, Tree};

/// What a name brings may bring others: so much in all, that no file becomes a thousand times as
/// long.
const NODES_MAX: usize = 200_000;
const DEPTH_MAX: usize = 64;

pub(super) fn resolve(root: Node) -> Result<Node, String> {
    let mut resolver = Resolver { root: &root, left: NODES_MAX, depth: 0 };
    let whole = resolver.node(&root)?;
    Ok(whole.unwrap_or(Node { place: root.place.clone(), tree: Tree::Object(Vec::new()) }))
}

struct Resolver<'a> {
    root: &'a Node,
    left: usize,
    depth: usize,
}

impl Resolver<'_> {
    /// Nothing where an optional name is not there, or where `null` stands.
    fn node(&mut self, node: &Node) -> Result<Option<Node>, String> {
        let place = node.place.clone();
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            format!("{place}: names that stand for names make this too long, write it out")
        })?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("{place}: a name that stands for itself, write its value"));
        }
        let tree = match &node.tree {
            Tree::Text(text) if text == "null" => None,
            Tree::Text(text) => Some(Tree::Text(text.clone())),
            Tree::List(nodes) => {
                let nodes = nodes.iter().map(|node| self.node(node));
                Some(Tree::List(nodes.filter_map(Result::transpose).collect::<Result<_, _>>()?))
            }
            Tree::Object(fields) => {
                let mut resolved = Fields::new();
                for (key, node) in fields {
                    resolved.extend(self.node(node)?.map(|node| (key.clone(), node)));
                }
                Some(Tree::Object(resolved))
            }
            Tree::Named { path, optional } => {
                self.named(path, *optional, node)?.map(|found| found.tree)
            }
            Tree::Pieces(pieces) => self.pieces(pieces)?,
        };
        self.depth -= 1;
        Ok(tree.map(|tree| Node { place, tree }))
    }

    fn named(&mut self, path: &str, optional: bool, at: &Node) -> Result<Option<Node>, String> {
        let mut found = Some(self.root.clone());
        for name in path.split('.') {
            let Some(there) = found else { break };
            let there = match &there.tree {
                Tree::Pieces(_) | Tree::Named { .. } => self.node(&there)?,
                _ => Some(there),
            };
            found = there.and_then(|there| there.field(name.trim_matches('"')).cloned());
        }
        match found {
            Some(found) => self.node(&found),
            None => match std::env::var(path) {
                Ok(text) => Ok(Some(Node { place: at.place.clone(), tree: Tree::Text(text) })),
                Err(_) if optional => Ok(None),
                Err(_) => Err(format!(
                    "{}: ${{{path}}} is neither a key nor in the environment, write its value",
                    at.place
                )),
            },
        }
    }

    /// Objects become one, lists one after the other, all else one text.
    fn pieces(&mut self, pieces: &[Node]) -> Result<Option<Tree>, String> {
        let mut whole: Option<Node> = None;
        for piece in pieces {
            let Some(piece) = self.node(piece)? else { continue };
            let Some(there) = &mut whole else {
                whole = Some(piece);
                continue;
            };
            let is_gap = |tree: &Tree| matches!(tree, Tree::Text(text) if text.trim().is_empty());
            match (&mut there.tree, piece.tree) {
                (Tree::Object(_) | Tree::List(_), tree) if is_gap(&tree) => {}
                (first, tree) if is_gap(first) => there.tree = tree,
                (Tree::Object(_), Tree::Object(more)) => {
                    join(there, Node { place: piece.place, tree: Tree::Object(more) });
                }
                (Tree::List(nodes), Tree::List(more)) => nodes.extend(more),
                (Tree::Text(text), Tree::Text(more)) => text.push_str(&more),
                _ => {
                    let why = "text, lists and braces do not go together, use one of them";
                    return Err(format!("{}: {why}", piece.place));
                }
            }
        }
        Ok(whole.map(|node| match node.tree {
            Tree::Text(text) => Tree::Text(text.trim_end().to_string()),
            tree => tree,
        }))
    }
}
