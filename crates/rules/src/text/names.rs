//! Default aliases of columns without AS, and suggestions for unknown functions.

use super::statement::NAMES_MAX;
use crate::functions;
use crate::plan::AliasStep;
use sqlparser::ast::{self, AccessExpr, BinaryOperator, Expr, Subscript, UnaryOperator};

/// Returns the alias of a column without AS: the path of names and indexes as in the message, a
/// constant text, and for any other expression the text of the expression.
pub(super) fn default_alias(expr: &Expr) -> Vec<AliasStep> {
    let key = |name: &str| AliasStep::Key(name.into());
    let path = match expr {
        Expr::CompoundIdentifier(names) => {
            Some(names.iter().map(|name| key(&name.value)).collect::<Vec<_>>())
        }
        Expr::CompoundFieldAccess { root, access_chain } => match &**root {
            Expr::Identifier(name) => steps(key(&name.value), access_chain),
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => {
                Some(vec![key(text)])
            }
            _ => None,
        },
        _ => None,
    };
    let path = path.filter(|path| path.len() <= NAMES_MAX);
    path.unwrap_or_else(|| vec![key(&expr.to_string())])
}

/// Returns the steps of a path. A range ends the alias: its elements stand at the path before the
/// range.
fn steps(root: AliasStep, chain: &[AccessExpr]) -> Option<Vec<AliasStep>> {
    let mut steps = vec![root];
    for access in chain {
        steps.push(match access {
            AccessExpr::Dot(Expr::Identifier(name)) => AliasStep::Key((&*name.value).into()),
            AccessExpr::Dot(Expr::Value(value)) => AliasStep::Key(text(&value.value)?.into()),
            AccessExpr::Subscript(Subscript::Index { index }) if is_range(index) => {
                return Some(steps);
            }
            AccessExpr::Subscript(Subscript::Index { index }) => match index {
                Expr::Value(value) if text(&value.value).is_some() => {
                    AliasStep::Key(text(&value.value)?.into())
                }
                index => AliasStep::At(integer(index)?),
            },
            _ => return None,
        });
    }
    Some(steps)
}

fn text(value: &ast::Value) -> Option<&str> {
    match value {
        ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => Some(text),
        _ => None,
    }
}

fn integer(index: &Expr) -> Option<i64> {
    match index {
        Expr::Value(value) => match &value.value {
            ast::Value::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => integer(expr)?.checked_neg(),
        _ => None,
    }
}

/// Whether an index is a range such as `1..3`, or `-3..-1`, which sqlparser reads as the negative
/// of `3..-1`.
pub(super) fn is_range(index: &Expr) -> bool {
    match index {
        Expr::BinaryOp { op: BinaryOperator::Custom(sign), .. } => sign == "..",
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            matches!(&**expr, Expr::BinaryOp { .. }) && is_range(expr)
        }
        _ => false,
    }
}

/// Returns a hint with at most six functions whose names are similar to an unknown name.
pub(super) fn suggest_functions(name: &str) -> String {
    let name = name.to_lowercase();
    let head: String = name.chars().take(3).collect();
    let tail: String = name.chars().skip(name.chars().count().saturating_sub(3)).collect();
    let akin =
        |known: &&str| known.starts_with(&head) || known.ends_with(&tail) || known.contains(&name);
    let mut near: Vec<&str> = functions::all().map(|function| function.name).filter(akin).collect();
    near.truncate(6);
    match near.is_empty() {
        true => "docs/rules.md has all functions".to_string(),
        false => format!("there are {}", near.join(", ")),
    }
}
