//! Merging of keys that occur several times.

use crate::config_tree::{ConfigFields, ConfigNode, ConfigTree};

/// Merges fields. Two objects of one name become one; otherwise the later value counts.
pub(super) fn merge(fields: &mut ConfigFields, more: ConfigFields) {
    for (key, node) in more {
        put_field(fields, &[key], node, false);
    }
}

pub(super) fn put_field(
    fields: &mut ConfigFields,
    path: &[String],
    value: ConfigNode,
    appends: bool,
) {
    let Some((first, rest)) = path.split_first() else { return };
    let found = fields.iter_mut().find(|(key, _)| key == first).map(|(_, node)| node);
    if !rest.is_empty() {
        let mut inside = ConfigFields::new();
        put_field(&mut inside, rest, value, appends);
        let place = inside.first().map(|(_, node)| node.place.clone());
        let Some(place) = place else { return };
        let node = ConfigNode { place, tree: ConfigTree::Object(inside) };
        return match found {
            Some(there) => merge_values(there, node),
            None => fields.push((first.clone(), node)),
        };
    }
    match found {
        Some(there) if appends => match &mut there.tree {
            ConfigTree::List(nodes) => nodes.push(value),
            // The value of a name is known only at the end.
            ConfigTree::Pieces(_) | ConfigTree::Variable { .. } | ConfigTree::Override(_) => {
                let place = value.place.clone();
                let more = ConfigNode { place, tree: ConfigTree::List(vec![value]) };
                append_piece(there, more);
            }
            _ => *there = value,
        },
        Some(there) => merge_values(there, value),
        None if appends => {
            let place = value.place.clone();
            fields.push((first.clone(), ConfigNode { place, tree: ConfigTree::List(vec![value]) }));
        }
        None => fields.push((first.clone(), value)),
    }
}

/// Appends a list to an unresolved value, as `Pieces`.
fn append_piece(there: &mut ConfigNode, more: ConfigNode) {
    if let ConfigTree::Pieces(pieces) = &mut there.tree {
        return pieces.push(more);
    }
    let earlier = std::mem::replace(&mut there.tree, ConfigTree::Pieces(Vec::new()));
    let earlier = ConfigNode { place: there.place.clone(), tree: earlier };
    there.tree = ConfigTree::Pieces(vec![earlier, more]);
}

/// Merges a later value into an earlier value of the same key.
pub(super) fn merge_values(there: &mut ConfigNode, later: ConfigNode) {
    let needs_names = |tree: &ConfigTree| {
        use ConfigTree::{Override, Pieces, Variable};
        matches!(tree, Variable { .. } | Pieces(_) | Override(_))
    };
    match (&mut there.tree, later.tree) {
        (ConfigTree::Object(fields), ConfigTree::Object(more)) => merge(fields, more),
        (ConfigTree::Override(values), tree)
            if needs_names(&tree) || matches!(tree, ConfigTree::Object(_)) =>
        {
            values.push(ConfigNode { place: later.place, tree });
        }
        // Numbered parts change a list; the result is known at the end.
        (earlier, tree)
            if needs_names(&tree)
                || matches!((&*earlier, &tree), (ConfigTree::List(_), ConfigTree::Object(_)))
                || matches!(
                    (&*earlier, &tree),
                    (ConfigTree::Pieces(_) | ConfigTree::Variable { .. }, ConfigTree::Object(_))
                ) =>
        {
            let earlier = std::mem::replace(earlier, ConfigTree::Override(Vec::new()));
            let earlier = ConfigNode { place: there.place.clone(), tree: earlier };
            let later = ConfigNode { place: later.place, tree };
            there.tree = ConfigTree::Override(vec![earlier, later]);
        }
        (_, tree) => *there = ConfigNode { place: later.place, tree },
    }
}

/// Returns the key that would occur twice, in any case, if a value is added at `path`. Two objects
/// are merged and do not count.
pub(super) fn key_twice(
    fields: &ConfigFields,
    path: &[String],
    value: &ConfigTree,
) -> Option<String> {
    let Some((first, rest)) = path.split_first() else {
        let ConfigTree::Object(more) = value else { return None };
        let below = |(key, node): &(String, ConfigNode)| {
            key_twice(fields, std::slice::from_ref(key), &node.tree)
        };
        return more.iter().find_map(below);
    };
    let (key, there) = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(first))?;
    match (&there.tree, value) {
        (ConfigTree::Object(inside), _) if key == first && !rest.is_empty() => {
            key_twice(inside, rest, value)
        }
        (ConfigTree::Object(inside), ConfigTree::Object(_)) if key == first => {
            key_twice(inside, &[], value)
        }
        _ => Some(first.clone()),
    }
}
