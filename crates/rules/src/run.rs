//! A plan run on what was seen. Everything is paid for by the budget before it is done, and
//! nothing recurses deeper than the plan's text or a document nests.

use crate::budget::{Budget, Failed};
use crate::functions::Arguments;
use crate::index::{position, range};
use crate::json::{Place, Tape};
use crate::operate::{Operator, apply};
use crate::plan::{Column, Expr, Plan, Root, Shape, Step};
use crate::seen::{FIELDS, Field, Seen};
use crate::value::{Map, Value};
use crate::windows::Gathering;
use std::borrow::Cow;

impl Plan {
    /// Runs the plan and appends a row for whatever it selects, none where WHERE says so. What it
    /// appended before it failed stays there.
    pub fn run<'a>(
        &'a self,
        seen: &Seen<'a>,
        budget: &mut Budget,
        out: &mut Vec<Map<'a>>,
    ) -> Result<(), Failed> {
        if self.grouping.is_some() {
            return self.run_alone(seen, budget, out);
        }
        Frame::new(self, *seen, budget, Vec::new()).run(self, out)
    }

    /// A rule with a window, as if it had this message and no other.
    fn run_alone<'a>(
        &'a self,
        seen: &Seen<'a>,
        budget: &mut Budget,
        out: &mut Vec<Map<'a>>,
    ) -> Result<(), Failed> {
        let Some(offer) = self.offer(seen, budget)? else { return Ok(()) };
        let (mut gathering, now) = (Gathering::default(), seen.now_ms.max(0) as u64);
        gathering.add(self, offer.values, now, budget)?;
        gathering.close(self, now, budget, out)
    }
}

/// One run: what was seen, what was read of it so far, and the row that is being made.
pub(crate) struct Frame<'r, 'a> {
    pub(crate) seen: Seen<'a>,
    pub(crate) budget: &'r mut Budget,
    /// The payload as JSON once somebody looked; `Some(None)` where it is none.
    tape: Option<Option<Tape<'a>>>,
    item: Element<'a>,
    row: Map<'a>,
    /// The values that stand before FOREACH's array.
    before: Map<'a>,
    rule_id: &'a str,
    /// Emptied lists of arguments, for the next calls.
    spare: Vec<Vec<Value<'a>>>,
    pub(crate) chance: u64,
    /// What came together in a window.
    totals: Vec<Value<'a>>,
}

/// The element that FOREACH is at.
enum Element<'a> {
    None,
    /// In the payload as it came.
    Place(Place),
    Value(Value<'a>),
}

/// Where a path leads.
enum Spot<'a> {
    Place(Place),
    Value(Value<'a>),
}

/// A step whose index or key is known.
enum Move<'a> {
    At(i64),
    Key(Cow<'a, str>),
    Range(i64, i64),
}

impl<'r, 'a> Frame<'r, 'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        seen: Seen<'a>,
        budget: &'r mut Budget,
        totals: Vec<Value<'a>>,
    ) -> Frame<'r, 'a> {
        Frame {
            seen,
            budget,
            tape: None,
            item: Element::None,
            row: Map::default(),
            before: Map::default(),
            rule_id: &plan.rule_id,
            spare: Vec::new(),
            chance: seen.chance,
            totals,
        }
    }

    /// The row of a window that is over.
    pub(crate) fn window_row(
        &mut self,
        plan: &'a Plan,
        having: Option<&'a Expr>,
        out: &mut Vec<Map<'a>>,
    ) -> Result<(), Failed> {
        let Shape::Select(columns) = &plan.shape else { return Ok(()) };
        self.columns(columns)?;
        if self.holds(having)? {
            self.budget.row()?;
            out.push(std::mem::take(&mut self.row));
        }
        Ok(())
    }

    fn run(&mut self, plan: &'a Plan, out: &mut Vec<Map<'a>>) -> Result<(), Failed> {
        if !plan.condition_says_alias && !self.holds(plan.condition.as_ref())? {
            return Ok(());
        }
        match &plan.shape {
            Shape::Select(columns) => {
                self.columns(columns)?;
                if plan.condition_says_alias && !self.holds(plan.condition.as_ref())? {
                    return Ok(());
                }
                self.budget.row()?;
                out.push(std::mem::take(&mut self.row));
                Ok(())
            }
            Shape::Foreach { before, array, item, columns, incase } => {
                self.columns(before)?;
                self.before = std::mem::take(&mut self.row);
                if plan.condition_says_alias && !self.holds(plan.condition.as_ref())? {
                    return Ok(());
                }
                let elements = self.elements(array)?;
                for element in elements {
                    self.budget.step(1)?;
                    self.item = element;
                    if !self.holds(incase.as_ref())? {
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

    pub(crate) fn holds(&mut self, condition: Option<&'a Expr>) -> Result<bool, Failed> {
        match condition {
            Some(condition) => Ok(self.eval(condition)? == Value::Bool(true)),
            None => Ok(true),
        }
    }

    /// What FOREACH goes over, nothing where that is no array. Of the payload only places are
    /// taken.
    fn elements(&mut self, array: &'a Expr) -> Result<Vec<Element<'a>>, Failed> {
        let spot = match array {
            Expr::Path { root: Root::Field(Field::Payload), steps } if steps.is_empty() => {
                match self.payload()? {
                    Some(_) => Spot::Place(Place::ROOT),
                    None => return Ok(Vec::new()),
                }
            }
            Expr::Path { root, steps } => self.find(root, steps)?,
            other => Spot::Value(self.eval(other)?),
        };
        if let (Spot::Place(place), Some(Some(tape))) = (&spot, &self.tape)
            && !tape.is_text(*place)
        {
            let count = tape.elements(*place).count();
            self.budget.step(count as u64)?;
            self.budget.take(count * size_of::<Element>())?;
            return Ok(tape.elements(*place).map(Element::Place).collect());
        }
        match self.value(spot)?.opened(self.budget)? {
            Value::Array(values) => {
                self.budget.take(values.len() * size_of::<Element>())?;
                Ok(values.into_iter().map(Element::Value).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The row of an element where FOREACH has no DO.
    fn message_and_item(&mut self, name: &'a str) -> Result<(), Failed> {
        self.row = Map::with_room(FIELDS.len() + 1);
        self.all_fields()?;
        let (steps, bytes) = self.before.size();
        self.budget.step(steps)?;
        self.budget.take(bytes as usize)?;
        for (name, value) in self.before.clone().into_entries() {
            *self.row.entry(name) = value;
        }
        let item = self.find(&Root::Item, &[])?;
        let item = self.value(item)?;
        self.row.put(name, item);
        Ok(())
    }

    fn columns(&mut self, columns: &'a [Column]) -> Result<(), Failed> {
        self.row = Map::with_room(columns.len());
        for column in columns {
            match column {
                Column::All => self.all_fields()?,
                Column::One { expr, under } => {
                    let value = self.eval(expr)?;
                    self.row.put_under(under, value, self.budget)?;
                }
            }
        }
        Ok(())
    }

    fn all_fields(&mut self) -> Result<(), Failed> {
        let is_whole = self.seen.has_message;
        for row in FIELDS.iter().filter(|row| row.in_all && (is_whole || row.of_all)) {
            let value = self.field(row.field)?;
            self.row.put(row.name, value);
        }
        self.budget.step(FIELDS.len() as u64 + self.seen.more.len() as u64)?;
        for (name, value) in self.seen.more {
            let (steps, bytes) = value.size();
            self.budget.step(steps)?;
            self.budget.take(bytes as usize)?;
            self.row.put(*name, value.view());
        }
        Ok(())
    }

    pub(crate) fn field(&mut self, field: Field) -> Result<Value<'a>, Failed> {
        if field == Field::Payload {
            // To know whether it is UTF-8 all of it has to be looked at.
            self.budget.scan(self.seen.payload.len())?;
        }
        if field == Field::PubProps {
            self.budget.scan(self.seen.properties.as_bytes().len())?;
        }
        if field == Field::Metadata {
            self.budget.take(64)?;
            let mut metadata = Map::with_room(1);
            metadata.push("rule_id".into(), Value::text(self.rule_id));
            return Ok(Value::Map(metadata));
        }
        let (value, bytes) = self.seen.field(field);
        self.budget.take(bytes)?;
        Ok(value)
    }

    pub(crate) fn eval(&mut self, expr: &'a Expr) -> Result<Value<'a>, Failed> {
        self.budget.step(1)?;
        match expr {
            Expr::Const(value) => self.copy(value),
            Expr::Path { root, steps } => {
                let spot = self.find(root, steps)?;
                self.value(spot)
            }
            Expr::Chain { first, rest } => self.chain(first, rest),
            Expr::Call { function, arguments, regex } => {
                let mut values = self.spare.pop().unwrap_or_default();
                for argument in arguments {
                    values.push(self.eval(argument)?);
                }
                let run = function.run;
                let arguments = &mut Arguments::new(function.name, &mut values, regex.as_deref());
                let result = run(self, arguments);
                values.clear();
                self.spare.push(values);
                result
            }
            // What is no boolean is no truth either way.
            Expr::Not(of) => Ok(Value::Bool(self.eval(of)? == Value::Bool(false))),
            Expr::Negative(of) => {
                let of = self.eval(of)?;
                apply(Operator::Subtract, Value::Int(0), of, self.budget)
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
    ) -> Result<Value<'a>, Failed> {
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
                    apply(*operator, left, right, self.budget)?
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
    ) -> Result<Value<'a>, Failed> {
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
    ) -> Result<Value<'a>, Failed> {
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

    /// A value again, of what stays where it is.
    fn copy(&mut self, value: &'a Value<'static>) -> Result<Value<'a>, Failed> {
        if let Value::Array(_) | Value::Map(_) = value {
            let (steps, bytes) = value.size();
            self.budget.step(steps)?;
            self.budget.take(bytes as usize)?;
        }
        Ok(value.view())
    }

    fn value(&mut self, spot: Spot<'a>) -> Result<Value<'a>, Failed> {
        match (spot, &self.tape) {
            (Spot::Value(value), _) => Ok(value),
            (Spot::Place(place), Some(Some(tape))) => tape.value(place, self.budget),
            (Spot::Place(_), _) => Ok(Value::Null),
        }
    }

    fn payload(&mut self) -> Result<Option<&Tape<'a>>, Failed> {
        if self.tape.is_none() {
            self.tape = Some(Tape::read(self.seen.payload, self.budget)?);
        }
        Ok(self.tape.as_ref().and_then(Option::as_ref))
    }

    /// What stands in the payload under a path of names with dots.
    pub(crate) fn payload_under(&mut self, path: &str) -> Result<Value<'a>, Failed> {
        if self.payload()?.is_none() {
            return Ok(Value::Null);
        }
        let mut at = Place::ROOT;
        for name in path.split('.') {
            self.budget.step(1)?;
            let Some(Some(tape)) = &self.tape else { break };
            match tape.under(at, name, self.budget)? {
                Some(next) => at = next,
                None => return Ok(Value::Null),
            }
        }
        self.value(Spot::Place(at))
    }

    fn find(&mut self, root: &'a Root, steps: &'a [Step]) -> Result<Spot<'a>, Failed> {
        let value = match root {
            Root::Field(Field::Payload) if !steps.is_empty() => {
                if self.payload()?.is_none() {
                    return Ok(Spot::Value(Value::Null));
                }
                return self.walk(Place::ROOT, steps);
            }
            Root::Item => match &self.item {
                Element::Place(place) => {
                    let place = *place;
                    return self.walk(place, steps);
                }
                Element::Value(_) => return self.borrowed(None, steps),
                Element::None => Value::Null,
            },
            Root::Alias(name) => return self.borrowed(Some(name), steps),
            Root::Field(field) => self.field(*field)?,
            Root::More(name) => {
                let (value, (steps, bytes)) = self.seen.more(name);
                self.budget.step(steps)?;
                self.budget.take(bytes as usize)?;
                value
            }
            Root::Expr(expr) => self.eval(expr)?,
            Root::Total(at) => {
                let value = self.totals.get(*at).unwrap_or(&Value::Null);
                let (steps, bytes) = value.size();
                self.budget.step(steps)?;
                self.budget.take(bytes as usize)?;
                value.clone()
            }
        };
        self.descend(value, steps).map(Spot::Value)
    }

    /// Along the payload as it came, as far as steps lead to one value each.
    fn walk(&mut self, from: Place, steps: &'a [Step]) -> Result<Spot<'a>, Failed> {
        let mut at = from;
        for (done, step) in steps.iter().enumerate() {
            self.budget.step(1)?;
            let next = match self.resolve(step)? {
                Move::Key(key) => {
                    let Some(Some(tape)) = &self.tape else { break };
                    tape.under(at, &key, self.budget)?
                }
                Move::At(index) => self.nth(at, index)?,
                Move::Range(..) => {
                    let value = self.value(Spot::Place(at))?;
                    return self.descend(value, &steps[done..]).map(Spot::Value);
                }
            };
            let Some(next) = next else {
                let is_text = matches!(&self.tape, Some(Some(tape)) if tape.is_text(at));
                if !is_text {
                    return Ok(Spot::Value(Value::Null));
                }
                let text = self.value(Spot::Place(at))?;
                return self.descend(text, &steps[done..]).map(Spot::Value);
            };
            at = next;
        }
        Ok(Spot::Place(at))
    }

    fn nth(&mut self, array: Place, index: i64) -> Result<Option<Place>, Failed> {
        let Some(Some(tape)) = &self.tape else { return Ok(None) };
        let mut looked = 0;
        let at = match index {
            1.. => Some(index - 1),
            0 => None,
            _ => {
                let count = tape.elements(array).inspect(|_| looked += 1).count();
                index.checked_add_unsigned(count as u64).filter(|at| *at >= 0)
            }
        };
        let at = at.and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| tape.elements(array).inspect(|_| looked += 1).nth(at));
        self.budget.step(looked / 4)?;
        Ok(found)
    }

    /// Of the row so far, or of an element that is no part of the payload: only what the path
    /// leads to is copied.
    fn borrowed(&mut self, alias: Option<&str>, steps: &'a [Step]) -> Result<Spot<'a>, Failed> {
        // Steps may run functions, so they are known before anything is borrowed.
        let mut moves = Vec::with_capacity(steps.len());
        for step in steps {
            moves.push(self.resolve(step)?);
        }
        let mut at = match (alias, &self.item) {
            (Some(name), _) => self.row.get(name).or_else(|| self.before.get(name)),
            (None, Element::Value(value)) => Some(value),
            (None, _) => None,
        };
        for (done, step) in moves.iter().enumerate() {
            self.budget.step(1)?;
            at = match (at, step) {
                (Some(text @ Value::Text(_)), _) => {
                    self.budget.take(text.size().1 as usize)?;
                    let mut inside = text.clone();
                    for step in &moves[done..] {
                        inside = step_into(inside, step, self.budget)?;
                    }
                    return Ok(Spot::Value(inside));
                }
                (Some(Value::Map(map)), Move::Key(key)) => {
                    self.budget.step(map.len() as u64 / 4)?;
                    map.get(key)
                }
                (Some(Value::Array(values)), Move::At(index)) => {
                    position(*index, values.len()).map(|at| &values[at])
                }
                (Some(Value::Array(values)), Move::Range(from, to)) => {
                    let part = &values[range(*from, *to, values.len())];
                    for (steps, bytes) in part.iter().map(Value::size) {
                        self.budget.step(steps)?;
                        self.budget.take(bytes as usize)?;
                    }
                    // A range is the end of its path.
                    return Ok(Spot::Value(Value::Array(part.to_vec())));
                }
                _ => None,
            };
        }
        let Some(value) = at else { return Ok(Spot::Value(Value::Null)) };
        let (steps, bytes) = value.size();
        self.budget.step(steps)?;
        self.budget.take(bytes as usize)?;
        Ok(Spot::Value(value.clone()))
    }

    fn descend(&mut self, from: Value<'a>, steps: &'a [Step]) -> Result<Value<'a>, Failed> {
        let mut at = from;
        for step in steps {
            let step = self.resolve(step)?;
            at = step_into(at, &step, self.budget)?;
        }
        Ok(at)
    }

    fn resolve(&mut self, step: &'a Step) -> Result<Move<'a>, Failed> {
        Ok(match step {
            Step::Key(key) => Move::Key(Cow::Borrowed(key)),
            Step::At(index) => Move::At(*index),
            Step::Range(from, to) => Move::Range(*from, *to),
            Step::Computed(expr) => match self.eval(expr)? {
                Value::Text(key) => Move::Key(key),
                Value::Int(index) => Move::At(index),
                // No array has it.
                _ => Move::At(0),
            },
        })
    }
}

/// A text on the way is looked into as JSON, as a payload is.
fn step_into<'a>(
    from: Value<'a>,
    step: &Move<'_>,
    budget: &mut Budget,
) -> Result<Value<'a>, Failed> {
    budget.step(1)?;
    Ok(match (step, from.opened(budget)?) {
        (Move::Key(key), Value::Map(mut map)) => {
            budget.step(map.len() as u64 / 4)?;
            map.take(key).unwrap_or_default()
        }
        (Move::At(index), Value::Array(mut values)) => {
            let at = position(*index, values.len());
            at.map_or(Value::Null, |at| values.swap_remove(at))
        }
        (Move::Range(from, to), Value::Array(mut values)) => {
            let range = range(*from, *to, values.len());
            Value::Array(values.drain(range).collect())
        }
        _ => Value::Null,
    })
}
