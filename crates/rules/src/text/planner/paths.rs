//! Plans paths such as `payload.a[1].b` in the text of a rule, and ranges of arrays.

use super::super::RuleParseError;
use super::super::names::is_range;
use super::super::statement::start_of;
use super::*;
use crate::functions::{self};
use crate::plan::{Expr, PathRoot, PathStep};
use crate::value::Value;
use sqlparser::ast::{self, AccessExpr, BinaryOperator, Subscript, UnaryOperator};
use sqlparser::tokenizer::Location;

impl NameScope {
    pub(super) fn path(&mut self, expr: ast::Expr, at: Location) -> Result<Expr, RuleParseError> {
        let is_named = match &expr {
            ast::Expr::CompoundFieldAccess { root, .. } => {
                matches!(**root, ast::Expr::Identifier(_))
            }
            _ => true,
        };
        match self.aggregates.is_some() && is_named {
            true => self.in_last_value(|scope| scope.bare_path(expr, at)),
            false => self.bare_path(expr, at),
        }
    }

    pub(super) fn bare_path(
        &mut self,
        expr: ast::Expr,
        at: Location,
    ) -> Result<Expr, RuleParseError> {
        let mut steps = Vec::new();
        let (root, chain) = match expr {
            ast::Expr::Identifier(name) => (name.value, Vec::new()),
            ast::Expr::CompoundIdentifier(names) => {
                let mut names = names.into_iter().map(|name| name.value);
                let root = names.next().unwrap_or_default();
                steps.extend(names.map(|name| PathStep::Key(name.into())));
                (root, Vec::new())
            }
            ast::Expr::CompoundFieldAccess { root, access_chain } => match *root {
                ast::Expr::Identifier(name) => (name.value, access_chain),
                other => {
                    let root = PathRoot::Expr(self.boxed(other)?);
                    self.steps(access_chain, &mut steps, at)?;
                    return Ok(Expr::Path { root, steps: steps.into() });
                }
            },
            other => return self.refuse_foreign(&other, at),
        };
        self.steps(chain, &mut steps, at)?;
        let root = self.root(root, &steps, at)?;
        Ok(Expr::Path { root, steps: steps.into() })
    }

    /// Plans `[1..4]` as a call of the function `range`.
    pub(super) fn range(
        &mut self,
        elements: Vec<ast::Expr>,
        at: Location,
    ) -> Result<Expr, RuleParseError> {
        let mut elements = elements.into_iter();
        let step = match (elements.next(), elements.next()) {
            (Some(range), None) => self.index(range)?,
            _ => return self.refuse(at, "a range stands alone in its brackets", "[1..4]"),
        };
        let (PathStep::Range(from, to), Some(function)) = (step, functions::by_name("range"))
        else {
            return self.refuse(at, "a range has two integers", "[1..4]; or range(from, to)");
        };
        let arguments = [from, to].map(|of| Expr::Const(Value::Int(of)));
        Ok(Expr::Call { function, arguments: Box::new(arguments), regex: None })
    }

    pub(super) fn steps(
        &mut self,
        chain: Vec<AccessExpr>,
        steps: &mut Vec<PathStep>,
        at: Location,
    ) -> Result<(), RuleParseError> {
        for access in chain {
            if let Some(PathStep::Range(..)) = steps.last() {
                let hint = "FOREACH goes over the elements of a range";
                return self.refuse(at, "a range is the end of its path", hint);
            }
            steps.push(match access {
                AccessExpr::Dot(ast::Expr::Identifier(name)) => PathStep::Key(name.value.into()),
                AccessExpr::Dot(ast::Expr::Value(value)) => match self.literal(value)? {
                    Value::Text(name) => PathStep::Key(name.into()),
                    _ => return self.refuse(at, "a name stands behind a dot", "a.b or a.'b c'"),
                },
                AccessExpr::Subscript(Subscript::Index { index }) => self.index(index)?,
                _ => {
                    let hint = "a.b, a.'b c', a[1], a[-1] or a[1..3]";
                    return self.refuse(at, "this is not a way into a value", hint);
                }
            });
        }
        Ok(())
    }

    /// Plans the index in brackets: a position, a range, or an expression for a position or a name.
    pub(super) fn index(&mut self, index: ast::Expr) -> Result<PathStep, RuleParseError> {
        let at = start_of(&index, self.at);
        let (index, sign) = match index {
            ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr } if is_range(&expr) => (*expr, -1),
            other => (other, 1),
        };
        let (from, to) = match index {
            ast::Expr::BinaryOp { left, op: BinaryOperator::Custom(sign), right }
                if sign == ".." =>
            {
                (self.expr(*left)?, self.expr(*right)?)
            }
            other => {
                return Ok(match self.expr(other)? {
                    Expr::Const(Value::Int(index)) => PathStep::At(index),
                    Expr::Const(Value::Text(key)) => PathStep::Key(key.into()),
                    computed => PathStep::Computed(computed),
                });
            }
        };
        match (from, to) {
            (Expr::Const(Value::Int(from)), Expr::Const(Value::Int(to))) => {
                Ok(PathStep::Range(sign * from, to))
            }
            _ => self.refuse(at, "a range has two integers", "a[1..3]; or sublist(from, count, a)"),
        }
    }
}
