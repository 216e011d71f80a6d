//! Parses the clauses of a rule, in the order of its text.

use super::dialect::{RESERVED, end, is_word};
use super::{RuleParseError, parse_error};
use crate::plan::AliasStep;
use sqlparser::ast::{Expr, Spanned};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token};

pub(super) struct RuleStatement {
    /// Columns of SELECT or DO; `None` without DO.
    pub(super) columns: Option<Vec<ColumnClause>>,
    pub(super) foreach: Option<ForeachClause>,
    pub(super) filters: Vec<(String, Location)>,
    pub(super) condition: Option<Expr>,
    pub(super) group_by: Vec<(Expr, Location)>,
    pub(super) having: Option<(Expr, Location)>,
}

pub(super) struct ForeachClause {
    /// The expressions before the array, each with its alias.
    pub(super) before: Vec<ColumnClause>,
    pub(super) array: Expr,
    pub(super) item: String,
    pub(super) incase: Option<Expr>,
}

/// A column of SELECT or DO.
pub(super) enum ColumnClause {
    All,
    One {
        expr: Box<Expr>,
        /// The names after AS; empty without AS.
        alias: Vec<AliasStep>,
        at: Location,
    },
}

pub(super) fn read(parser: Parser<'_>) -> Result<RuleStatement, RuleParseError> {
    StatementParser { parser }.statement()
}

struct StatementParser<'p> {
    parser: Parser<'p>,
}

impl StatementParser<'_> {
    fn location(&self) -> Location {
        let next = self.parser.peek_token_ref();
        if next.token == Token::EOF { end(&self.parser) } else { next.span.start }
    }

    fn is_next(&self, word: &str) -> bool {
        is_word(&self.parser.peek_token_ref().token, word)
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let there = self.is_next(word);
        if there {
            self.parser.advance_token();
        }
        there
    }

    fn expr(&mut self) -> Result<Expr, RuleParseError> {
        let expr = self.parser.parse_expr();
        expr.map_err(|wrong| parse_error(wrong, &self.parser))
    }

    fn statement(mut self) -> Result<RuleStatement, RuleParseError> {
        let (columns, foreach) = if self.skip_word("select") {
            let is_call = self.parser.peek_nth_token_ref(1).token == Token::LParen;
            if self.is_next("distinct") && !is_call {
                return self.refuse("SELECT DISTINCT", "a rule sees one message, so leave it out");
            }
            (Some(self.columns()?), None)
        } else if self.skip_word("foreach") {
            let (columns, foreach) = self.foreach()?;
            (columns, Some(foreach))
        } else {
            let hint = "SELECT what FROM \"topic/filter\", or FOREACH array FROM \"topic/filter\"";
            return self.refuse("a rule begins with SELECT or FOREACH", hint);
        };
        if !self.skip_word("from") {
            return self.unexpected("FROM and a topic filter in double quotes");
        }
        let filters = self.filters()?;
        let condition = if self.skip_word("where") { Some(self.expr()?) } else { None };
        let mut group_by = Vec::new();
        if self.skip_word("group") {
            if !self.skip_word("by") {
                return self.unexpected("BY");
            }
            loop {
                let at = self.location();
                group_by.push((self.expr()?, at));
                if !self.parser.consume_token(&Token::Comma) {
                    break;
                }
            }
        }
        let at = self.location();
        let having = if self.skip_word("having") { Some((self.expr()?, at)) } else { None };
        while self.parser.consume_token(&Token::SemiColon) {}
        match self.parser.peek_token_ref().token {
            Token::EOF => {
                Ok(RuleStatement { columns, foreach, filters, condition, group_by, having })
            }
            _ => self.unexpected("the end of the rule"),
        }
    }

    fn foreach(&mut self) -> Result<(Option<Vec<ColumnClause>>, ForeachClause), RuleParseError> {
        let mut before = Vec::new();
        let (array, item) = loop {
            let at = self.location();
            let array = self.expr()?;
            let name =
                if self.skip_word("as") { Some((self.location(), self.names()?)) } else { None };
            if self.parser.consume_token(&Token::Comma) {
                let Some((_, alias)) = name else {
                    let hint = "payload.a AS a, a.list AS item";
                    let message = "a value before the array of FOREACH has a name";
                    return Err(RuleParseError::new(at, message, hint));
                };
                before.push(ColumnClause::One { expr: Box::new(array), alias, at });
                continue;
            }
            break match name {
                None => (array, "item".to_string()),
                Some((at, mut names)) => match (names.pop(), names.is_empty()) {
                    (Some(AliasStep::Key(name)), true) => (array, name.into_string()),
                    _ => {
                        return Err(RuleParseError::new(
                            at,
                            "an element has one name",
                            "AS sensor",
                        ));
                    }
                },
            };
        };
        let columns = if self.skip_word("do") { Some(self.columns()?) } else { None };
        let incase = if self.skip_word("incase") { Some(self.expr()?) } else { None };
        Ok((columns, ForeachClause { before, array, item, incase }))
    }

    fn columns(&mut self) -> Result<Vec<ColumnClause>, RuleParseError> {
        let mut columns = Vec::new();
        loop {
            columns.push(self.column()?);
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(columns);
            }
        }
    }

    fn column(&mut self) -> Result<ColumnClause, RuleParseError> {
        if self.parser.consume_token(&Token::Mul) {
            return Ok(ColumnClause::All);
        }
        let at = self.location();
        let expr = Box::new(self.expr()?);
        let alias = if self.skip_word("as") { self.names()? } else { Vec::new() };
        Ok(ColumnClause::One { expr, alias, at })
    }

    /// Parses an alias: names separated by dots, with indexes in brackets after each.
    fn names(&mut self) -> Result<Vec<AliasStep>, RuleParseError> {
        let mut names = Vec::new();
        loop {
            match self.parser.peek_token_ref().token.clone() {
                Token::Word(word) => {
                    let reserved = RESERVED.iter().any(|known| {
                        word.quote_style.is_none() && word.value.eq_ignore_ascii_case(known)
                    });
                    if reserved && names.is_empty() {
                        return self.unexpected("a name");
                    }
                    names.push(AliasStep::Key(word.value.into()));
                }
                Token::SingleQuotedString(text) => names.push(AliasStep::Key(text.into())),
                _ => return self.unexpected("a name"),
            }
            self.parser.advance_token();
            while self.parser.consume_token(&Token::LBracket) {
                names.push(self.place_of_array()?);
            }
            if names.len() > NAMES_MAX {
                return self.refuse("more than 16 names in one alias", "");
            }
            if !self.parser.consume_token(&Token::Period) {
                return Ok(names);
            }
        }
    }

    /// Parses the index in the brackets of an alias, and the closing bracket.
    fn place_of_array(&mut self) -> Result<AliasStep, RuleParseError> {
        let negative = self.parser.consume_token(&Token::Minus);
        let Token::Number(text, _) = self.parser.peek_token_ref().token.clone() else {
            return self.unexpected("the place of an element: [1], [-1], [0] or [-0]");
        };
        let Ok(index) = text.parse::<i64>() else {
            return self.refuse(&format!("{text} is not a place of an array"), "a[1], a[-1]");
        };
        self.parser.advance_token();
        if !self.parser.consume_token(&Token::RBracket) {
            return self.unexpected("]");
        }
        Ok(match (index, negative) {
            (0, false) => AliasStep::Head,
            (0, true) => AliasStep::Tail,
            (index, false) => AliasStep::At(index),
            (index, true) => AliasStep::At(-index),
        })
    }

    fn filters(&mut self) -> Result<Vec<(String, Location)>, RuleParseError> {
        let mut filters = Vec::new();
        loop {
            let at = self.location();
            match self.parser.peek_token_ref().token.clone() {
                Token::Word(word) if word.quote_style.is_some() => filters.push((word.value, at)),
                Token::SingleQuotedString(text) => filters.push((text, at)),
                _ => return self.unexpected("a topic filter in double quotes"),
            }
            self.parser.advance_token();
            if self.is_next("as") {
                return self.refuse("a topic has no alias", "say its fields by their names: topic");
            }
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(filters);
            }
        }
    }

    fn refuse<T>(&self, message: &str, hint: &str) -> Result<T, RuleParseError> {
        Err(RuleParseError::new(self.location(), message, hint))
    }

    /// Returns the error that the next token is not allowed here.
    fn unexpected<T>(&self, expected: &str) -> Result<T, RuleParseError> {
        let next = &self.parser.peek_token_ref().token;
        if *next == Token::EOF {
            let message = format!("the rule ends where {expected} was expected");
            return Err(RuleParseError::new(self.location(), message, ""));
        }
        let known = FOREIGN.iter().find(|(word, _)| is_word(next, word));
        let hint = known.map_or("", |(_, hint)| hint);
        let message = format!("{next} stands where {expected} was expected");
        Err(RuleParseError::new(self.location(), message, hint))
    }
}

/// Most names in one alias, which nests a map for each name.
pub(super) const NAMES_MAX: usize = 16;

/// Clauses of SQL which a rule does not have, by their first word, with hints.
const FOREIGN: &[(&str, &str)] = &[
    ("cross", JOIN),
    ("full", JOIN),
    ("inner", JOIN),
    ("join", JOIN),
    ("left", JOIN),
    ("limit", "a rule makes one row of a message, or one of each element with FOREACH"),
    ("order", "a rule makes one row of a message, so there is nothing to put in order"),
    ("right", JOIN),
    ("union", "make it two rules, or several filters in FROM"),
    ("window", "GROUP BY payload.dev, TUMBLINGWINDOW(ss, 10)"),
];

const JOIN: &str = "a rule sees one message; republish what has to come together";

/// Returns the start of an expression, or `otherwise` if sqlparser did not record a start.
pub(super) fn start_of(expr: &Expr, otherwise: Location) -> Location {
    let start = expr.span().start;
    if start.line == 0 { otherwise } else { start }
}
