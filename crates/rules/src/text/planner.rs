//! Converts the syntax tree of sqlparser into a plan: names become fields, functions and columns,
//! and chains of operators become flat. Expressions without a meaning in a rule are refused.

mod paths;

use super::RuleParseError;
use super::group_by::GroupedStatement;
use super::names::{default_alias, is_range, suggest_functions};
use super::sources::parse_source;
use super::statement::{ColumnClause, ForeachClause, RuleStatement, start_of};
use crate::events::EVENTS;
use crate::functions::{self, FunctionNeeds};
use crate::operators::{LikePattern, Operator};
use crate::plan::{
    AliasStep, Expr, PathRoot, PathStep, PlanColumn, PlanReads, PlanShape, RulePlan,
};
use crate::rule_input::{FIELDS, RuleField};
use crate::value::{Number, Value};
use crate::windows::{self, AggregateCall};
use sqlparser::ast::{self, BinaryOperator, UnaryOperator};
use sqlparser::tokenizer::Location;

impl RuleStatement {
    pub(super) fn plan(self) -> Result<RulePlan, RuleParseError> {
        let mut filters = Vec::with_capacity(self.filters.len());
        let mut events = Vec::new();
        for (filter, at) in self.filters {
            match parse_source(&filter, at)? {
                Some(place) => {
                    events.push(place);
                    filters.push(format!("$events/{}", EVENTS[place].name).into());
                }
                None => filters.push(filter.into_boxed_str()),
            }
        }
        let start = Location::new(1, 1);
        let has_message =
            filters.len() > events.len() || events.iter().any(|at: &usize| EVENTS[*at].has_message);
        let mut scope = NameScope {
            aliases: Vec::new(),
            item: None,
            events,
            has_message,
            reads: PlanReads::default(),
            uses_alias: false,
            aggregates: None,
            at: start,
        };
        if let Some(found) = self.group_by.first().or(self.having.as_ref()) {
            let at = found.1;
            let grouped = GroupedStatement {
                columns: self.columns.filter(|_| self.foreach.is_none()),
                condition: self.condition,
                group_by: self.group_by,
                having: self.having,
            };
            return grouped.plan(filters, scope, at);
        }
        let shape = match self.foreach {
            None => PlanShape::Select(scope.columns(self.columns.unwrap_or_default())?),
            Some(foreach) => scope.foreach(foreach, self.columns)?,
        };
        scope.uses_alias = false;
        let condition = self.condition.map(|condition| scope.expr(condition)).transpose()?;
        let condition_says_alias = scope.uses_alias;
        let (reads, grouping) = (scope.reads, None);
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

/// Meaning of names at a place of the rule.
pub(super) struct NameScope {
    /// The aliases of the columns so far, each with all of its leading names.
    pub(super) aliases: Vec<Vec<String>>,
    /// Name of an element, inside of FOREACH.
    item: Option<String>,
    /// Events of FROM as indexes of [`EVENTS`], each with fields of its own.
    events: Vec<usize>,
    /// Whether a source of FROM is a message or an event about a message.
    has_message: bool,
    pub(super) reads: PlanReads,
    uses_alias: bool,
    /// Calls of aggregate functions found so far; `None` where a rule may not call any, as outside
    /// of the row of a window.
    pub(super) aggregates: Option<Vec<AggregateCall>>,
    /// Start of the part being planned, for errors without a location of their own.
    at: Location,
}

impl NameScope {
    fn foreach(
        &mut self,
        foreach: ForeachClause,
        columns: Option<Vec<ColumnClause>>,
    ) -> Result<PlanShape, RuleParseError> {
        // The array and WHERE are planned before the name of the element is known.
        let before = self.columns(foreach.before)?;
        let named = self.aliases.len();
        let array = self.expr(foreach.array)?;
        self.item = Some(foreach.item.clone());
        let incase = foreach.incase.map(|incase| self.expr(incase)).transpose()?;
        if columns.is_none() {
            self.reads_all();
        }
        let columns = columns.map(|columns| self.columns(columns)).transpose()?;
        self.item = None;
        self.aliases.truncate(named);
        Ok(PlanShape::Foreach { before, array, item: foreach.item.into(), columns, incase })
    }

    fn reads_field(&mut self, field: RuleField) {
        match field {
            RuleField::Payload => self.reads.payload = true,
            RuleField::PubProps => self.reads.properties = true,
            RuleField::Id | RuleField::Node | RuleField::PeerHost | RuleField::Username => {
                self.reads.publisher = true;
            }
            _ => {}
        }
    }

    fn reads_all(&mut self) {
        self.reads.payload = true;
        self.reads.properties = true;
        self.reads.publisher = true;
    }

    pub(super) fn columns(
        &mut self,
        columns: Vec<ColumnClause>,
    ) -> Result<Box<[PlanColumn]>, RuleParseError> {
        let mut done = Vec::with_capacity(columns.len());
        for column in columns {
            done.push(match column {
                ColumnClause::All => {
                    self.reads_all();
                    PlanColumn::All
                }
                ColumnClause::One { expr, alias, at } => {
                    self.at = at;
                    let own = if alias.is_empty() { default_alias(&expr) } else { alias.clone() };
                    let expr = self.expr(*expr)?;
                    if !alias.is_empty() {
                        self.aliases.push(leading_keys(&alias));
                    }
                    PlanColumn::One { expr, under: own.into() }
                }
            });
        }
        Ok(done.into())
    }

    pub(super) fn refuse<T>(
        &self,
        at: Location,
        message: &str,
        hint: &str,
    ) -> Result<T, RuleParseError> {
        Err(RuleParseError::new(at, message, hint))
    }

    fn boxed(&mut self, expr: ast::Expr) -> Result<Box<Expr>, RuleParseError> {
        self.expr(expr).map(Box::new)
    }

    fn all(&mut self, exprs: Vec<ast::Expr>) -> Result<Box<[Expr]>, RuleParseError> {
        exprs.into_iter().map(|expr| self.expr(expr)).collect()
    }

    pub(super) fn expr(&mut self, expr: ast::Expr) -> Result<Expr, RuleParseError> {
        use ast::Expr as Sql;
        let at = start_of(&expr, self.at);
        self.at = at;
        Ok(match expr {
            Sql::Nested(inside) => self.expr(*inside)?,
            Sql::Value(value) => self.value(value, at)?,
            Sql::Identifier(_) | Sql::CompoundIdentifier(_) | Sql::CompoundFieldAccess { .. } => {
                self.path(expr, at)?
            }
            Sql::BinaryOp { .. } => self.chain(expr)?,
            Sql::UnaryOp { op: UnaryOperator::Not, expr } => Expr::Not(self.boxed(*expr)?),
            Sql::UnaryOp { op: UnaryOperator::Plus, expr } => self.expr(*expr)?,
            Sql::UnaryOp { op: UnaryOperator::Minus, expr } => match self.expr(*expr)? {
                Expr::Const(Value::Int(of)) => Expr::Const(Value::Int(-of)),
                Expr::Const(Value::Float(of)) => Expr::Const(Value::Float(-of)),
                other => Expr::Negative(Box::new(other)),
            },
            Sql::Function(call) => self.call(call, at)?,
            Sql::Array(array) => self.array(array.elem, at)?,
            Sql::IsNull(of) => Expr::IsNull { of: self.boxed(*of)?, negated: false },
            Sql::IsNotNull(of) => Expr::IsNull { of: self.boxed(*of)?, negated: true },
            Sql::IsTrue(of) => self.truth_test(*of, true, false)?,
            Sql::IsNotTrue(of) => self.truth_test(*of, true, true)?,
            Sql::IsFalse(of) => self.truth_test(*of, false, false)?,
            Sql::IsNotFalse(of) => self.truth_test(*of, false, true)?,
            Sql::InList { expr, list, negated } => {
                Expr::In { of: self.boxed(*expr)?, list: self.all(list)?, negated }
            }
            Sql::Between { expr, negated, low, high } => {
                let of = self.boxed(*expr)?;
                Expr::Between { of, low: self.boxed(*low)?, high: self.boxed(*high)?, negated }
            }
            Sql::Like { negated, any: false, expr, pattern, escape_char } => {
                let pattern = self.pattern(*pattern, escape_char)?;
                Expr::Like { of: self.boxed(*expr)?, pattern, negated }
            }
            Sql::Case { operand, conditions, else_result, .. } => {
                let of = operand.map(|of| self.boxed(*of)).transpose()?;
                let mut arms = Vec::with_capacity(conditions.len());
                for arm in conditions {
                    arms.push((self.expr(arm.condition)?, self.expr(arm.result)?));
                }
                let otherwise = else_result.map(|of| self.boxed(*of)).transpose()?;
                Expr::Case { of, arms: arms.into(), otherwise }
            }
            other => return self.refuse_foreign(&other, at),
        })
    }

    /// Plans a constant. Text in double quotes is a name if a field or alias of this name exists,
    /// and text otherwise.
    fn value(&mut self, value: ast::ValueWithSpan, at: Location) -> Result<Expr, RuleParseError> {
        match value {
            ast::ValueWithSpan { value: ast::Value::DoubleQuotedString(name), span }
                if self.has_name(&name) =>
            {
                self.path(ast::Expr::Identifier(ast::Ident::with_span(span, name)), at)
            }
            value => self.literal(value).map(Expr::Const),
        }
    }

    fn array(&mut self, elements: Vec<ast::Expr>, at: Location) -> Result<Expr, RuleParseError> {
        match elements.first().is_some_and(is_range) {
            true => self.range(elements, at),
            false => self.all(elements).map(Expr::Array),
        }
    }

    fn truth_test(
        &mut self,
        of: ast::Expr,
        truth: bool,
        negated: bool,
    ) -> Result<Expr, RuleParseError> {
        let list = Box::new([Expr::Const(Value::Bool(truth))]);
        Ok(Expr::In { of: self.boxed(of)?, list, negated })
    }

    /// Refuses an expression which sqlparser parses and rules do not have.
    fn refuse_foreign(&self, expr: &ast::Expr, at: Location) -> Result<Expr, RuleParseError> {
        use ast::Expr as Sql;
        let hint = match expr {
            Sql::ILike { .. } => "lower(a) LIKE 'pattern'",
            Sql::RLike { .. } | Sql::SimilarTo { .. } => "regex_match(a, 'pattern')",
            Sql::InSubquery { .. } | Sql::InUnnest { .. } => {
                "a rule sees one message; IN takes a list, and contains(a, array) an array"
            }
            Sql::AnyOp { .. } | Sql::AllOp { .. } => "contains(a, array)",
            _ => "docs/rules.md has all that a rule may say",
        };
        self.refuse(at, "rules do not have this", hint)
    }

    fn literal(&self, value: ast::ValueWithSpan) -> Result<Value<'static>, RuleParseError> {
        let at = value.span.start;
        match value.value {
            ast::Value::Number(text, _) => match Number::parse(&text) {
                Some(Number::Float(of)) if !text.contains(['.', 'e', 'E']) => {
                    let message = format!("{text} is too large for an integer of 64 bits");
                    self.refuse(at, &message, &format!("as a float it is {of:e}"))
                }
                Some(number) => Ok(number.value()),
                None => self.refuse(at, &format!("{text} is not a number"), ""),
            },
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => {
                Ok(Value::Text(text.into()))
            }
            ast::Value::Boolean(of) => Ok(Value::Bool(of)),
            ast::Value::Null => Ok(Value::Null),
            _ => self.refuse(at, "this is not a value of a rule", "'text', 1, 1.5, true or null"),
        }
    }

    fn pattern(
        &mut self,
        pattern: ast::Expr,
        escape: Option<Box<ast::Expr>>,
    ) -> Result<LikePattern, RuleParseError> {
        let at = start_of(&pattern, self.at);
        let escape = match escape.map(|escape| self.expr(*escape)).transpose()? {
            None => '\\',
            Some(Expr::Const(Value::Text(text))) if text.chars().count() == 1 => {
                text.chars().next().unwrap_or('\\')
            }
            Some(_) => return self.refuse(at, "ESCAPE takes one character", "ESCAPE '!'"),
        };
        match self.expr(pattern)? {
            Expr::Const(Value::Text(text)) => Ok(LikePattern::new(&text, escape)),
            _ => self.refuse(
                at,
                "the pattern of LIKE stands in the rule",
                "LIKE 'a%', or regex_match(a, b) for a pattern that the message brings",
            ),
        }
    }

    /// Plans a chain of binary operators without recursion over its length.
    fn chain(&mut self, expr: ast::Expr) -> Result<Expr, RuleParseError> {
        let mut rest = Vec::new();
        let mut left = expr;
        while let ast::Expr::BinaryOp { left: before, op, right } = left {
            rest.push((op, *right));
            left = *before;
        }
        let mut first = self.expr(left)?;
        let mut chain: Vec<(Operator, Expr)> = Vec::new();
        while let Some((op, right)) = rest.pop() {
            let at = start_of(&right, self.at);
            let Some(operator) = operator(&op) else {
                let hint = match op {
                    BinaryOperator::Custom(_) => "a range stands in brackets: payload.list[1..3]",
                    _ => "docs/rules.md has all operators",
                };
                return self.refuse(at, &format!("{op} is not an operator here"), hint);
            };
            let operator = null_operator(operator, &right);
            let right = self.expr(right)?;
            // The left spine holds operators of any precedence in evaluation order: a + b = c.
            chain.push((operator, right));
        }
        if chain.len() == 1
            && let Some((operator, right)) = chain.pop()
        {
            if is_null_first(&first, operator) {
                let negated = operator == Operator::NotEqual;
                return Ok(Expr::IsNull { of: Box::new(right), negated });
            }
            let rest = Box::new([(operator, right)]);
            return Ok(Expr::Chain { first: Box::new(first), rest });
        }
        first = Expr::Chain { first: Box::new(first), rest: chain.into() };
        Ok(first)
    }

    fn call(&mut self, call: ast::Function, at: Location) -> Result<Expr, RuleParseError> {
        let name = call.name.to_string();
        if let Some(row) = windows::by_name(&name) {
            return self.aggregate_call(row, call, at);
        }
        if self.aggregates.is_some() && functions::reads_message(&name) {
            return self.in_last_value(|scope| scope.call(call, at));
        }
        let Some(function) = functions::by_name(&name) else {
            return self.refuse(
                at,
                &format!("no function is named {name}"),
                &suggest_functions(&name),
            );
        };
        let ast::FunctionArguments::List(list) = call.args else {
            return self.refuse(at, "rules do not have this", "");
        };
        let mut places = Vec::with_capacity(list.args.len());
        let mut arguments = Vec::with_capacity(list.args.len());
        for argument in list.args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = argument else {
                return self.refuse(at, "an argument has no name", "");
            };
            places.push(start_of(&expr, at));
            arguments.push(self.expr(expr)?);
        }
        if !function.arity.contains(&arguments.len()) {
            let message = format!("{} has {} arguments", function.name, arguments.len());
            let hint = format!("it takes {}({})", function.name, function.parameters);
            return self.refuse(at, &message, &hint);
        }
        let mut regex = None;
        match function.needs {
            FunctionNeeds::Nothing => {}
            FunctionNeeds::Chance => self.reads.chance = true,
            FunctionNeeds::Field(field) => self.reads_field(field),
            FunctionNeeds::Now => self.reads.now = true,
            FunctionNeeds::Pattern => {
                if let Some(Expr::Const(Value::Text(text))) = arguments.get(1) {
                    let hint = "back references and look-around are not supported";
                    let compiled = functions::compile(text);
                    regex =
                        Some(Box::new(compiled.or_else(|why| self.refuse(places[1], &why, hint))?));
                }
            }
        }
        Ok(Expr::Call { function, arguments: arguments.into(), regex })
    }

    /// Whether a name alone refers to an element, an alias or a field here.
    fn has_name(&self, name: &str) -> bool {
        let is_alias = |alias: &Vec<String>| alias.len() == 1 && alias[0] == name;
        let has_field = |row: &crate::rule_input::RuleFieldRow| {
            row.name == name && (self.has_message || row.in_all_events || self.has_event_with(name))
        };
        self.item.as_deref() == Some(name)
            || self.aliases.iter().any(is_alias)
            || FIELDS.iter().any(has_field)
    }

    fn root(
        &mut self,
        name: String,
        steps: &[PathStep],
        at: Location,
    ) -> Result<PathRoot, RuleParseError> {
        if self.item.as_ref() == Some(&name) {
            return Ok(PathRoot::Item);
        }
        let field = RuleField::by_name(&name);
        // An alias is meant if all of its names match. An alias that begins with a field's name
        // does not hide the rest of the field.
        let said = |alias: &Vec<String>| {
            let keys = steps.iter().map(|step| match step {
                PathStep::Key(key) => Some(&**key),
                _ => None,
            });
            let mut said = std::iter::once(Some(name.as_str())).chain(keys);
            alias.iter().all(|own| said.next().flatten() == Some(own.as_str()))
        };
        let begins = |alias: &Vec<String>| alias.first() == Some(&name);
        if self.aliases.iter().any(said) || field.is_none() && self.aliases.iter().any(begins) {
            self.uses_alias = true;
            return Ok(PathRoot::Alias(name.into()));
        }
        match FIELDS.iter().find(|row| row.name.eq_ignore_ascii_case(&name)) {
            Some(row) if self.has_message || row.in_all_events || self.has_event_with(row.name) => {
                self.reads_field(row.field);
                Ok(PathRoot::Field(row.field))
            }
            None if self.has_event_with(&name) => Ok(PathRoot::EventField(name.into())),
            _ => self.refuse_unknown(&name, at),
        }
    }

    fn refuse_unknown(&self, name: &str, at: Location) -> Result<PathRoot, RuleParseError> {
        let known = FIELDS.iter().filter(|row| self.has_message || row.in_all_events);
        let known: Vec<&str> = known.map(|row| row.name).collect();
        let mut own: Vec<&str> = Vec::new();
        for name in self.events.iter().flat_map(|at| EVENTS[*at].fields) {
            if !own.contains(name) && !known.contains(name) {
                own.push(name);
            }
        }
        let has = [own.as_slice(), &known].concat().join(", ");
        if !own.is_empty() {
            let hint = format!("what the rule is about has {has}");
            return self.refuse(at, &format!("no event of this rule has {name}"), &hint);
        }
        let hint = format!("payload.{name} is in the payload; a message has {has}");
        self.refuse(at, &format!("a message has no {name}"), &hint)
    }

    fn has_event_with(&self, field: &str) -> bool {
        self.events.iter().any(|at| EVENTS[*at].fields.contains(&field))
    }
}

/// Turns `x = NULL` and `x <> NULL` into tests for null.
fn null_operator(operator: Operator, right: &ast::Expr) -> Operator {
    let is_null = matches!(right, ast::Expr::Value(of) if of.value == ast::Value::Null);
    match operator {
        Operator::Equal if is_null => Operator::IsNull,
        Operator::NotEqual if is_null => Operator::IsNotNull,
        operator => operator,
    }
}

fn is_null_first(first: &Expr, operator: Operator) -> bool {
    let compares = matches!(operator, Operator::Equal | Operator::NotEqual);
    compares && matches!(first, Expr::Const(Value::Null))
}

fn operator(op: &BinaryOperator) -> Option<Operator> {
    Some(match op {
        BinaryOperator::And => Operator::And,
        BinaryOperator::Or => Operator::Or,
        BinaryOperator::Plus => Operator::Add,
        BinaryOperator::Minus => Operator::Subtract,
        BinaryOperator::Multiply => Operator::Multiply,
        BinaryOperator::Divide => Operator::Divide,
        BinaryOperator::StringConcat => Operator::Concat,
        BinaryOperator::Eq => Operator::Equal,
        BinaryOperator::NotEq => Operator::NotEqual,
        BinaryOperator::Lt => Operator::Less,
        BinaryOperator::LtEq => Operator::LessOrEqual,
        BinaryOperator::Gt => Operator::Greater,
        BinaryOperator::GtEq => Operator::GreaterOrEqual,
        BinaryOperator::Custom(sign) => match &**sign {
            "div" => Operator::IntDivide,
            "mod" => Operator::Modulo,
            "=~" => Operator::TopicMatches,
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns the names of an alias before its first index: `a` and `b` of `a.b[1].c`.
fn leading_keys(alias: &[AliasStep]) -> Vec<String> {
    let key = |step: &AliasStep| match step {
        AliasStep::Key(name) => Some(name.to_string()),
        _ => None,
    };
    alias.iter().map_while(key).collect()
}
