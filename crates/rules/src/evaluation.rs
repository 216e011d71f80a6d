//! Runs a plan on a message or event. Every operation is charged to the budget before it is done,
//! and the recursion is no deeper than the nesting of the plan's text or of a document.

mod paths;

use crate::budget::{Budget, RunError};
use crate::functions::CallArguments;
use crate::json::{JsonTape, TapeIndex};
use crate::operators::{Operator, apply_operator};
use crate::plan::{Expr, PathRoot, PlanColumn, PlanShape, RulePlan};
use crate::rule_input::{FIELDS, RuleField, RuleInput};
use crate::value::{Value, ValueMap};
use crate::windows::WindowState;
use std::borrow::Cow;

impl RulePlan {
    /// Runs the plan on `seen` and appends a row for each selection, no row where WHERE is not
    /// true. Rows appended before an error stay in `out`.
    pub fn run<'a>(
        &'a self,
        seen: &RuleInput<'a>,
        budget: &mut Budget,
        out: &mut Vec<ValueMap<'a>>,
    ) -> Result<(), RunError> {
        if self.window_plan.is_some() {
            return self.run_alone(seen, budget, out);
        }
        EvalFrame::new(self, *seen, budget, Vec::new()).run(self, out)
    }

    /// Runs a rule with a window on one message, as if the window had no further message.
    fn run_alone<'a>(
        &'a self,
        seen: &RuleInput<'a>,
        budget: &mut Budget,
        out: &mut Vec<ValueMap<'a>>,
    ) -> Result<(), RunError> {
        let Some(offer) = self.offer(seen, budget)? else { return Ok(()) };
        let (mut gathering, now) = (WindowState::default(), seen.now_ms.max(0) as u64);
        gathering.add(self, offer.values, now, budget)?;
        gathering.close(self, now, budget, out)
    }
}

/// State of a run: its [`RuleInput`], the parsed parts of the input, and the row under
/// construction.
pub(crate) struct EvalFrame<'r, 'a> {
    pub(crate) input: RuleInput<'a>,
    pub(crate) budget: &'r mut Budget,
    /// The payload as JSON, read at the first use; `Some(None)` for a payload other than JSON.
    tape: Option<Option<JsonTape<'a>>>,
    item: ForeachElement<'a>,
    row: ValueMap<'a>,
    /// The values before the array of FOREACH, by alias.
    before: ValueMap<'a>,
    rule_id: &'a str,
    /// Empty argument vectors, reused by later calls of functions.
    spare: Vec<Vec<Value<'a>>>,
    pub(crate) chance: fastrand::Rng,
    /// Finished totals of a window, for `PathRoot::Total`.
    totals: Vec<Value<'a>>,
}

/// The current element of FOREACH.
enum ForeachElement<'a> {
    None,
    /// An element of the payload, as an index of its [`JsonTape`].
    Place(TapeIndex),
    Value(Value<'a>),
}

/// Result of resolving a path: a place in the payload or a copied value.
enum PathTarget<'a> {
    Place(TapeIndex),
    Value(Value<'a>),
}

/// A `PathStep` whose index or key has been evaluated.
enum ResolvedStep<'a> {
    At(i64),
    Key(Cow<'a, str>),
    Range(i64, i64),
}

impl<'r, 'a> EvalFrame<'r, 'a> {
    pub(crate) fn new(
        plan: &'a RulePlan,
        seen: RuleInput<'a>,
        budget: &'r mut Budget,
        totals: Vec<Value<'a>>,
    ) -> EvalFrame<'r, 'a> {
        EvalFrame {
            input: seen,
            budget,
            tape: None,
            item: ForeachElement::None,
            row: ValueMap::default(),
            before: ValueMap::default(),
            rule_id: &plan.rule_id,
            spare: Vec::new(),
            chance: fastrand::Rng::with_seed(seen.chance),
            totals,
        }
    }

    /// Appends the row of a closed window, if HAVING is true.
    pub(crate) fn window_row(
        &mut self,
        plan: &'a RulePlan,
        having: Option<&'a Expr>,
        out: &mut Vec<ValueMap<'a>>,
    ) -> Result<(), RunError> {
        let PlanShape::Select(columns) = &plan.shape else { return Ok(()) };
        self.columns(columns)?;
        if self.is_true(having)? {
            self.budget.row()?;
            out.push(std::mem::take(&mut self.row));
        }
        Ok(())
    }

    fn run(&mut self, plan: &'a RulePlan, out: &mut Vec<ValueMap<'a>>) -> Result<(), RunError> {
        if !plan.condition_uses_alias && !self.is_true(plan.condition.as_ref())? {
            return Ok(());
        }
        match &plan.shape {
            PlanShape::Select(columns) => {
                self.columns(columns)?;
                if plan.condition_uses_alias && !self.is_true(plan.condition.as_ref())? {
                    return Ok(());
                }
                self.budget.row()?;
                out.push(std::mem::take(&mut self.row));
                Ok(())
            }
            PlanShape::Foreach { before, array, item, columns, incase } => {
                self.columns(before)?;
                self.before = std::mem::take(&mut self.row);
                if plan.condition_uses_alias && !self.is_true(plan.condition.as_ref())? {
                    return Ok(());
                }
                let elements = self.elements(array)?;
                for element in elements {
                    self.budget.step(1)?;
                    self.item = element;
                    if !self.is_true(incase.as_ref())? {
                        continue;
                    }
                    match columns {
                        Some(columns) => self.columns(columns)?,
                        None => self.message_and_item(item)?,
                    }
                    self.budget.row()?;
                    out.push(std::mem::take(&mut self.row));
                }
                Ok(())
            }
        }
    }

    pub(crate) fn is_true(&mut self, condition: Option<&'a Expr>) -> Result<bool, RunError> {
        match condition {
            Some(condition) => Ok(self.eval(condition)? == Value::Bool(true)),
            None => Ok(true),
        }
    }

    /// Returns the elements for FOREACH; empty if the value is not an array. Elements of the
    /// payload are indexes of its tape.
    fn elements(&mut self, array: &'a Expr) -> Result<Vec<ForeachElement<'a>>, RunError> {
        let spot = match array {
            Expr::Path { root: PathRoot::Field(RuleField::Payload), steps } if steps.is_empty() => {
                match self.payload()? {
                    Some(_) => PathTarget::Place(TapeIndex::ROOT),
                    None => return Ok(Vec::new()),
                }
            }
            Expr::Path { root, steps } => self.resolve_path(root, steps)?,
            other => PathTarget::Value(self.eval(other)?),
        };
        if let (PathTarget::Place(place), Some(Some(tape))) = (&spot, &self.tape)
            && !tape.is_text(*place)
        {
            let count = tape.elements(*place).count();
            self.budget.step(count as u64)?;
            self.budget.take(count * size_of::<ForeachElement>())?;
            return Ok(tape.elements(*place).map(ForeachElement::Place).collect());
        }
        match self.value(spot)?.open_json(self.budget)? {
            Value::Array(values) => {
                self.budget.take(values.len() * size_of::<ForeachElement>())?;
                Ok(values.into_iter().map(ForeachElement::Value).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Builds the row of an element in a FOREACH without DO: all fields, the values before the
    /// array, and the element.
    fn message_and_item(&mut self, name: &'a str) -> Result<(), RunError> {
        self.row = ValueMap::with_room(FIELDS.len() + 1);
        self.all_fields()?;
        let (steps, bytes) = self.before.size();
        self.budget.step(steps)?;
        self.budget.take(bytes as usize)?;
        for (name, value) in self.before.clone().into_entries() {
            *self.row.entry(name) = value;
        }
        let item = self.resolve_path(&PathRoot::Item, &[])?;
        let item = self.value(item)?;
        self.row.put(name, item);
        Ok(())
    }

    fn columns(&mut self, columns: &'a [PlanColumn]) -> Result<(), RunError> {
        self.row = ValueMap::with_room(columns.len());
        for column in columns {
            match column {
                PlanColumn::All => self.all_fields()?,
                PlanColumn::One { expr, under } => {
                    let value = self.eval(expr)?;
                    self.row.put_under(under, value, self.budget)?;
                }
            }
        }
        Ok(())
    }

    fn all_fields(&mut self) -> Result<(), RunError> {
        let is_whole = self.input.has_message;
        for row in FIELDS.iter().filter(|row| row.in_star && (is_whole || row.in_all_events)) {
            let value = self.field(row.field)?;
            self.row.put(row.name, value);
        }
        self.budget.step(FIELDS.len() as u64 + self.input.extra_fields.len() as u64)?;
        for (name, value) in self.input.extra_fields {
            let (steps, bytes) = value.size();
            self.budget.step(steps)?;
            self.budget.take(bytes as usize)?;
            self.row.put(*name, value.view());
        }
        Ok(())
    }

    pub(crate) fn field(&mut self, field: RuleField) -> Result<Value<'a>, RunError> {
        if field == RuleField::Payload {
            // The check for UTF-8 scans all of the payload.
            self.budget.scan(self.input.payload.len())?;
        }
        if field == RuleField::PubProps {
            self.budget.scan(self.input.properties.as_bytes().len())?;
        }
        if field == RuleField::Metadata {
            self.budget.take(64)?;
            let mut metadata = ValueMap::with_room(1);
            metadata.push("rule_id".into(), Value::text(self.rule_id));
            return Ok(Value::Map(metadata));
        }
        let (value, bytes) = self.input.field(field);
        self.budget.take(bytes)?;
        Ok(value)
    }

    pub(crate) fn eval(&mut self, expr: &'a Expr) -> Result<Value<'a>, RunError> {
        self.budget.step(1)?;
        match expr {
            Expr::Const(value) => self.copy(value),
            Expr::Path { root, steps } => {
                let spot = self.resolve_path(root, steps)?;
                self.value(spot)
            }
            Expr::Chain { first, rest } => self.chain(first, rest),
            Expr::Call { function, arguments, regex } => {
                let mut values = self.spare.pop().unwrap_or_default();
                for argument in arguments {
                    values.push(self.eval(argument)?);
                }
                let run = function.run;
                let arguments =
                    &mut CallArguments::new(function.name, &mut values, regex.as_deref());
                let result = run(self, arguments);
                values.clear();
                self.spare.push(values);
                result
            }
            // NOT of a value other than a boolean is false.
            Expr::Not(of) => Ok(Value::Bool(self.eval(of)? == Value::Bool(false))),
            Expr::Negative(of) => {
                let of = self.eval(of)?;
                apply_operator(Operator::Subtract, Value::Int(0), of, self.budget)
            }
            Expr::IsNull { of, negated } => Ok(Value::Bool(self.eval(of)?.is_null() != *negated)),
            Expr::Between { of, low, high, negated } => {
                let of = self.eval(of)?;
                let (low, high) = (self.eval(low)?, self.eval(high)?);
                let within = of.order(&low).is_some_and(|order| order.is_ge())
                    && of.order(&high).is_some_and(|order| order.is_le());
                Ok(Value::Bool(within != *negated))
            }
            Expr::In { of, list, negated } => self.is_in(of, list, *negated),
            Expr::Like { of, pattern, negated } => {
                let like = match self.eval(of)? {
                    Value::Text(text) => pattern.matches(&text, self.budget)?,
                    _ => false,
                };
                Ok(Value::Bool(like != *negated))
            }
            Expr::Case { of, arms, otherwise } => {
                self.case(of.as_deref(), arms, otherwise.as_deref())
            }
            Expr::Array(exprs) => {
                self.budget.take(exprs.len() * size_of::<Value>())?;
                exprs.iter().map(|expr| self.eval(expr)).collect::<Result<_, _>>().map(Value::Array)
            }
        }
    }

    fn chain(
        &mut self,
        first: &'a Expr,
        rest: &'a [(Operator, Expr)],
    ) -> Result<Value<'a>, RunError> {
        let mut left = self.eval(first)?;
        for (operator, expr) in rest {
            let truth = left == Value::Bool(true);
            left = match operator {
                Operator::And => Value::Bool(truth && self.eval(expr)? == Value::Bool(true)),
                Operator::Or => Value::Bool(truth || self.eval(expr)? == Value::Bool(true)),
                Operator::IsNull => Value::Bool(left.is_null()),
                Operator::IsNotNull => Value::Bool(!left.is_null()),
                _ => {
                    let right = self.eval(expr)?;
                    apply_operator(*operator, left, right, self.budget)?
                }
            };
        }
        Ok(left)
    }

    fn is_in(
        &mut self,
        of: &'a Expr,
        list: &'a [Expr],
        negated: bool,
    ) -> Result<Value<'a>, RunError> {
        let of = self.eval(of)?;
        for expr in list {
            let other = self.eval(expr)?;
            if of.equals(&other, self.budget)? {
                return Ok(Value::Bool(!negated));
            }
        }
        Ok(Value::Bool(negated))
    }

    fn case(
        &mut self,
        of: Option<&'a Expr>,
        arms: &'a [(Expr, Expr)],
        otherwise: Option<&'a Expr>,
    ) -> Result<Value<'a>, RunError> {
        let of = of.map(|of| self.eval(of)).transpose()?;
        for (when, then) in arms {
            let when = self.eval(when)?;
            let chosen = match &of {
                Some(of) => of.equals(&when, self.budget)?,
                None => when == Value::Bool(true),
            };
            if chosen {
                return self.eval(then);
            }
        }
        otherwise.map_or(Ok(Value::Null), |otherwise| self.eval(otherwise))
    }

    /// Returns a view of a constant, charging arrays and maps for their elements.
    fn copy(&mut self, value: &'a Value<'static>) -> Result<Value<'a>, RunError> {
        if let Value::Array(_) | Value::Map(_) = value {
            let (steps, bytes) = value.size();
            self.budget.step(steps)?;
            self.budget.take(bytes as usize)?;
        }
        Ok(value.view())
    }

    fn value(&mut self, spot: PathTarget<'a>) -> Result<Value<'a>, RunError> {
        match (spot, &self.tape) {
            (PathTarget::Value(value), _) => Ok(value),
            (PathTarget::Place(place), Some(Some(tape))) => tape.value(place, self.budget),
            (PathTarget::Place(_), _) => Ok(Value::Null),
        }
    }

    fn payload(&mut self) -> Result<Option<&JsonTape<'a>>, RunError> {
        if self.tape.is_none() {
            self.tape = Some(JsonTape::read(self.input.payload, self.budget)?);
        }
        Ok(self.tape.as_ref().and_then(Option::as_ref))
    }

    /// Returns the value of the payload at a path of names separated by dots, or null.
    pub(crate) fn payload_under(&mut self, path: &str) -> Result<Value<'a>, RunError> {
        if self.payload()?.is_none() {
            return Ok(Value::Null);
        }
        let mut at = TapeIndex::ROOT;
        for name in path.split('.') {
            self.budget.step(1)?;
            let Some(Some(tape)) = &self.tape else { break };
            match tape.find_key(at, name, self.budget)? {
                Some(next) => at = next,
                None => return Ok(Value::Null),
            }
        }
        self.value(PathTarget::Place(at))
    }
}
