//! Rules with a window: GROUP BY and HAVING, and the meaning of columns with them. A total is
//! computed over the window; a field outside of a total is that of the last message.

use super::RuleParseError;
use super::planner::NameScope;
use super::statement::{ColumnClause, start_of};
use crate::plan::{Expr, PathRoot, PathStep, PlanShape, RulePlan};
use crate::value::Value;
use crate::windows::{
    self, AggregateCall, AggregateFunction, AggregateKind, VALUES_MAX, WindowPlan, WindowSpec, gcd,
};
use sqlparser::ast;
use sqlparser::tokenizer::Location;

/// Clauses of a statement with GROUP BY or HAVING.
pub(super) struct GroupedStatement {
    pub(super) columns: Option<Vec<ColumnClause>>,
    pub(super) condition: Option<ast::Expr>,
    pub(super) group_by: Vec<(ast::Expr, Location)>,
    pub(super) having: Option<(ast::Expr, Location)>,
}

/// Syntax of the windows by their names, for error messages.
const WINDOWS: &[(&str, &str)] = &[
    ("tumblingwindow", "TUMBLINGWINDOW(ss, 10)"),
    ("hoppingwindow", "HOPPINGWINDOW(ss, 10, 5)"),
    ("slidingwindow", "SLIDINGWINDOW(ss, 10)"),
    ("sessionwindow", "SESSIONWINDOW(mi, 10, 1)"),
    ("countwindow", "COUNTWINDOW(100)"),
];

/// Shortest length of a window in milliseconds: below this the timers of a shard are too coarse.
const MS_MIN: u64 = 100;
/// Longest length of a window in milliseconds, 31 days.
const MS_MAX: u64 = 31 * 24 * 3_600_000;
const COUNT_MAX: u64 = 1_000_000;

impl GroupedStatement {
    pub(super) fn plan(
        self,
        filters: Vec<Box<str>>,
        mut scope: NameScope,
        at: Location,
    ) -> Result<RulePlan, RuleParseError> {
        let Some(columns) = self.columns else {
            return scope.refuse(at, "FOREACH has no window", "SELECT ... GROUP BY");
        };
        if columns.iter().any(|column| matches!(column, ColumnClause::All)) {
            return scope.refuse(at, "a row of a window has no *", "say the columns");
        }
        let condition = self.condition.map(|condition| scope.expr(condition)).transpose()?;
        let (mut keys, mut window) = (Vec::new(), None);
        for (expr, at) in self.group_by {
            match read_window(&scope, &expr, at)? {
                Some(_) if window.is_some() => {
                    return scope.refuse(at, "a rule has one window", "");
                }
                Some(found) => window = Some(found),
                None => keys.push(scope.expr(expr)?),
            }
        }
        let Some(window) = window else {
            let hint = "GROUP BY payload.dev, TUMBLINGWINDOW(ss, 10)";
            return scope.refuse(at, "groups need a window", hint);
        };
        scope.aggregates = Some(Vec::new());
        let shape = PlanShape::Select(scope.columns(columns)?);
        let having = self.having.map(|(having, _)| scope.expr(having)).transpose()?;
        let asked = scope.aggregates.take().unwrap_or_default().into();
        let grouping =
            Some(Box::new(WindowPlan { window, keys: keys.into(), aggregates: asked, having }));
        let (reads, condition_says_alias) = (scope.reads, false);
        let rule_id = Box::default();
        Ok(RulePlan {
            filters,
            rule_id,
            shape,
            condition,
            condition_uses_alias: condition_says_alias,
            reads,
            window_plan: grouping,
        })
    }
}

/// Returns the window described by an expression of GROUP BY; `None` for an expression which is a
/// key.
fn read_window(
    scope: &NameScope,
    expr: &ast::Expr,
    at: Location,
) -> Result<Option<WindowSpec>, RuleParseError> {
    let ast::Expr::Function(call) = expr else { return Ok(None) };
    let name = call.name.to_string().to_lowercase();
    let Some((_, form)) = WINDOWS.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    let ast::FunctionArguments::List(list) = &call.args else { return Ok(None) };
    let arguments: Vec<&ast::Expr> = list
        .args
        .iter()
        .filter_map(|argument| match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect();
    let wrong = |why: &str| scope.refuse(at, why, &format!("it is written {form}"));
    let number = |expr: &ast::Expr| match expr {
        ast::Expr::Value(ast::ValueWithSpan { value: ast::Value::Number(text, _), .. }) => {
            text.parse::<u64>().ok().filter(|number| *number > 0)
        }
        _ => None,
    };
    if name == "countwindow" {
        return match arguments[..] {
            [count] => match number(count).filter(|count| *count <= COUNT_MAX) {
                Some(messages) => Ok(Some(WindowSpec::Count { messages })),
                None => wrong("it counts from 1 to 1000000 messages"),
            },
            _ => wrong("it takes how many messages"),
        };
    }
    let [unit, lengths @ ..] = &arguments[..] else { return wrong("it takes a unit and a length") };
    let ast::Expr::Identifier(unit) = unit else { return wrong("it begins with a unit") };
    let unit_ms = match &*unit.value.to_lowercase() {
        "ms" => 1,
        "ss" => 1000,
        "mi" => 60_000,
        "hh" => 3_600_000,
        "dd" => 24 * 3_600_000,
        _ => return wrong("its unit is dd, hh, mi, ss or ms"),
    };
    let ms = |expr: &&ast::Expr| {
        let ms = number(expr).and_then(|number| number.checked_mul(unit_ms));
        ms.filter(|ms| (MS_MIN..=MS_MAX).contains(ms))
    };
    let lengths: Option<Vec<u64>> = lengths.iter().map(ms).collect();
    let Some(lengths) = lengths else { return wrong("a length is from 100 ms to 31 days") };
    Ok(Some(match (&*name, &lengths[..]) {
        ("tumblingwindow", &[long]) => WindowSpec::Tumbling { long },
        ("slidingwindow", &[long]) => WindowSpec::Sliding { long },
        ("sessionwindow", &[long, gap]) => WindowSpec::Session { long, gap },
        ("hoppingwindow", &[long, hop]) if hop > long => {
            return wrong("what comes between two hops would be in none of its windows");
        }
        ("hoppingwindow", &[long, hop]) if long / gcd(long, hop) > VALUES_MAX as u64 => {
            return wrong("it has more than 1000 parts: take lengths that go into each other");
        }
        ("hoppingwindow", &[long, hop]) => WindowSpec::Hopping { long, hop },
        _ => return wrong("it has another number of lengths"),
    }))
}

impl NameScope {
    /// Plans the call of an aggregate function. Errors outside of a window and within another
    /// total.
    pub(super) fn aggregate_call(
        &mut self,
        row: &'static AggregateFunction,
        call: ast::Function,
        at: Location,
    ) -> Result<Expr, RuleParseError> {
        let Some(before) = self.aggregates.take() else {
            let message = format!("{} is for windows", row.name);
            return self.refuse(at, &message, "... GROUP BY payload.dev, TUMBLINGWINDOW(ss, 10)");
        };
        let ast::FunctionArguments::List(list) = call.args else {
            return self.refuse(at, "rules do not have this", "");
        };
        let wrong = format!("{} takes ({})", row.name, row.parameters);
        if list.args.len() != row.kind.arity() {
            return self.refuse(at, &wrong, "");
        }
        let (mut of, mut part) = (None, 0.0);
        for (place_of, argument) in list.args.into_iter().enumerate() {
            let expr = match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => expr,
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)
                    if row.kind == AggregateKind::Count =>
                {
                    continue;
                }
                _ => return self.refuse(at, &wrong, ""),
            };
            let at = start_of(&expr, at);
            let expr = self.expr(expr)?;
            if place_of == 0 {
                of = Some(expr);
                continue;
            }
            part = match expr {
                Expr::Const(Value::Float(part)) if (0.0..=1.0).contains(&part) => part,
                Expr::Const(Value::Int(part @ 0..=1)) => part as f64,
                _ => return self.refuse(at, "the part is a number from 0 to 1", ""),
            };
        }
        Ok(self
            .add_aggregate(before, AggregateCall { function: row, argument: of, percentile: part }))
    }

    /// Plans an expression with message fields in a window's row as `last_value` of the expression.
    /// Aliases of columns are read from the row itself.
    pub(super) fn in_last_value(
        &mut self,
        read: impl FnOnce(&mut NameScope) -> Result<Expr, RuleParseError>,
    ) -> Result<Expr, RuleParseError> {
        let Some(before) = self.aggregates.take() else { return read(self) };
        let expr = read(self)?;
        if let Expr::Path { root: PathRoot::Alias(_), steps } = &expr {
            if steps.iter().any(|step| matches!(step, PathStep::Computed(_))) {
                let at = Location::new(1, 1);
                return self.refuse(
                    at,
                    "an index of a column is a number where there is a window",
                    "",
                );
            }
            self.aggregates = Some(before);
            return Ok(expr);
        }
        let last = windows::by_name("last_value");
        let Some(row) = last else { return Ok(expr) };
        Ok(self.add_aggregate(
            before,
            AggregateCall { function: row, argument: Some(expr), percentile: 0.0 },
        ))
    }

    fn add_aggregate(&mut self, mut asked: Vec<AggregateCall>, one: AggregateCall) -> Expr {
        asked.push(one);
        let root = PathRoot::Total(asked.len() - 1);
        self.aggregates = Some(asked);
        Expr::Path { root, steps: Box::default() }
    }
}
