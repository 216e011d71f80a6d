//! The SQL dialect of rules: the words and signs allowed in an expression, and their precedence.
//!
//! The prefix of an expression is parsed here and never by sqlparser, which tries types, intervals
//! and sub-queries one after another, and would read `timestamp` or `floor` as something else. So
//! parsing is linear, and an unknown word is refused at its place.

use sqlparser::ast::{
    Array, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, UnaryOperator, Value,
};
use sqlparser::dialect::Dialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Word};

#[derive(Debug)]
pub(super) struct RuleDialect;

impl Dialect for RuleDialect {
    fn is_identifier_start(&self, c: char) -> bool {
        c.is_alphabetic() || c == '_'
    }

    fn is_identifier_part(&self, c: char) -> bool {
        c.is_alphanumeric() || c == '_'
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        Some(prefix(parser))
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        Some(Ok(next_precedence(parser)))
    }
}

/// Separates a message from its hint in the single text of a `ParserError`.
pub(super) const HINT: char = '\u{1f}';

/// Words which end or join expressions, and so cannot be names.
pub(super) const RESERVED: &[&str] = &[
    "and", "as", "between", "by", "case", "do", "else", "end", "foreach", "from", "group",
    "having", "in", "incase", "is", "join", "like", "limit", "not", "or", "order", "select",
    "then", "union", "when", "where",
];

pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(Word { value, quote_style: None, .. })
        if value.eq_ignore_ascii_case(word))
}

fn is_reserved(word: &Word) -> bool {
    let value = &word.value;
    word.quote_style.is_none() && RESERVED.iter().any(|known| value.eq_ignore_ascii_case(known))
}

/// Merges operators which SQL does not have as one token: `div`, `mod`, `=~` and the `..` of a
/// range. `div` and `mod` are operators only after an operand; `payload.mod` is a name.
pub(super) fn merge_operators(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut operand = false;
    let custom = |sign: &str| Token::CustomBinaryOperator(sign.to_string());
    for mut token in tokens {
        let last = out.last().map(|last| &last.token);
        match &token.token {
            Token::Word(word) if operand && word.quote_style.is_none() => {
                for sign in ["div", "mod"] {
                    if word.value.eq_ignore_ascii_case(sign) {
                        token.token = custom(sign);
                        break;
                    }
                }
            }
            Token::Tilde if last == Some(&Token::Eq) => {
                out.pop();
                token.token = custom("=~");
            }
            Token::Period if last == Some(&Token::Period) => {
                out.pop();
                token.token = custom("..");
            }
            Token::Period | Token::Number(..) => {
                let behind = match &token.token {
                    Token::Number(text, _) => text.strip_prefix('.').map(str::to_string),
                    _ => Some(String::new()),
                };
                let before = match last {
                    Some(Token::Number(text, _)) => text.strip_suffix('.').map(str::to_string),
                    _ => None,
                };
                if let (Some(before), Some(behind)) = (before, behind)
                    && let Some(last) = out.last_mut()
                {
                    last.token = Token::Number(before, false);
                    out.push(TokenWithSpan { token: custom(".."), span: token.span });
                    token.token = Token::Number(behind.clone(), false);
                    if behind.is_empty() {
                        operand = false;
                        continue;
                    }
                }
            }
            _ => {}
        }
        operand = match &token.token {
            Token::Whitespace(_) => operand,
            Token::Word(word) => !is_reserved(word) || word.keyword == Keyword::END,
            Token::Number(..) | Token::SingleQuotedString(_) => true,
            other => matches!(other, Token::RParen | Token::RBracket),
        };
        out.push(token);
    }
    out
}

/// Counts tokens which may join two expressions. `*` is counted even where it is not an operator.
pub(super) fn count_operators(tokens: &[TokenWithSpan]) -> usize {
    let joins = |token: &&TokenWithSpan| match &token.token {
        Token::Word(word) => matches!(word.keyword, Keyword::AND | Keyword::OR | Keyword::IS),
        token => sign_precedence(token) > 0,
    };
    tokens.iter().filter(joins).count()
}

/// Returns the precedence of the next token; 0 ends the expression.
fn next_precedence(parser: &Parser<'_>) -> u8 {
    match &parser.peek_token_ref().token {
        Token::Word(word) if word.quote_style.is_none() => match word.keyword {
            Keyword::OR => 5,
            Keyword::AND => 10,
            Keyword::IS => 17,
            Keyword::NOT => match &parser.peek_nth_token_ref(1).token {
                Token::Word(word) => comparison_precedence(word.keyword),
                _ => 0,
            },
            other => comparison_precedence(other),
        },
        sign => sign_precedence(sign),
    }
}

fn sign_precedence(sign: &Token) -> u8 {
    match sign {
        Token::DoubleEq | Token::Eq | Token::Neq => 20,
        Token::Lt | Token::LtEq | Token::Gt | Token::GtEq => 20,
        Token::Plus | Token::Minus | Token::StringConcat => 30,
        Token::Mul | Token::Div => 40,
        Token::CustomBinaryOperator(sign) => match &**sign {
            "=~" => 20,
            ".." => 25,
            "div" | "mod" => 40,
            _ => 0,
        },
        _ => 0,
    }
}

/// Returns the precedence of a comparison. Some keywords are parsed only to be refused by name.
fn comparison_precedence(keyword: Keyword) -> u8 {
    match keyword {
        Keyword::IN | Keyword::BETWEEN => 20,
        Keyword::LIKE | Keyword::ILIKE | Keyword::RLIKE => 19,
        Keyword::REGEXP | Keyword::SIMILAR => 19,
        _ => 0,
    }
}

fn prefix(parser: &mut Parser) -> Result<Expr, ParserError> {
    let next = parser.next_token();
    let at = next.span.start;
    match next.token {
        Token::Word(word) if word.quote_style.is_none() => prefix_word(parser, word, &next.span),
        // As EMQX reads them, text in double quotes is text; names in quotes stand only behind a
        // dot or AS.
        Token::Word(word) => {
            Ok(Expr::Value(Value::DoubleQuotedString(word.value).with_span(next.span)))
        }
        Token::Number(..) | Token::SingleQuotedString(_) => {
            parser.prev_token();
            parser.parse_value().map(Expr::Value)
        }
        Token::LParen => {
            let ahead = parser.peek_token_ref();
            if is_word(&ahead.token, "select") || is_word(&ahead.token, "with") {
                return error_at(
                    ahead.span.start,
                    "a rule in a rule",
                    "a rule sees one message; make it two rules, the first republishing",
                );
            }
            let inside = parser.parse_expr()?;
            parser.expect_token(&Token::RParen)?;
            Ok(Expr::Nested(Box::new(inside)))
        }
        Token::LBracket => {
            let elem = list(parser, &Token::RBracket)?;
            Ok(Expr::Array(Array { elem, named: false }))
        }
        sign @ (Token::Minus | Token::Plus) => {
            let op = match sign {
                Token::Minus => UnaryOperator::Minus,
                _ => UnaryOperator::Plus,
            };
            Ok(Expr::UnaryOp { op, expr: Box::new(parser.parse_subexpr(40)?) })
        }
        Token::EOF => error_at(end(parser), "an expression is missing at the end", ""),
        other => error_at(at, &format!("an expression cannot begin with {other}"), ""),
    }
}

fn prefix_word(
    parser: &mut Parser,
    word: Word,
    span: &sqlparser::tokenizer::Span,
) -> Result<Expr, ParserError> {
    match word.keyword {
        Keyword::TRUE => return Ok(Expr::Value(Value::Boolean(true).with_span(*span))),
        Keyword::FALSE => return Ok(Expr::Value(Value::Boolean(false).with_span(*span))),
        Keyword::NULL if parser.peek_token_ref().token != Token::LParen => {
            return Ok(Expr::Value(Value::Null.with_span(*span)));
        }
        Keyword::CASE => return parser.parse_case_expr(),
        Keyword::NOT => {
            let expr = Box::new(parser.parse_subexpr(15)?);
            return Ok(Expr::UnaryOp { op: UnaryOperator::Not, expr });
        }
        _ => {}
    }
    if is_reserved(&word) {
        let message = format!("an expression is missing before {}", word.value);
        return error_at(span.start, &message, "");
    }
    let name = Ident::with_span(*span, word.value);
    if parser.peek_token_ref().token != Token::LParen {
        return Ok(Expr::Identifier(name));
    }
    parser.advance_token();
    // `count(*)`
    let args: Vec<_> = match parser.consume_tokens(&[Token::Mul, Token::RParen]) {
        true => vec![FunctionArg::Unnamed(FunctionArgExpr::Wildcard)],
        false => {
            let exprs = list(parser, &Token::RParen)?.into_iter();
            exprs.map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect()
        }
    };
    Ok(Expr::Function(Function {
        name: ObjectName::from(vec![name]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    }))
}

/// Parses expressions separated by commas up to the token `end`, which is consumed.
fn list(parser: &mut Parser, end: &Token) -> Result<Vec<Expr>, ParserError> {
    let mut exprs = Vec::new();
    if parser.consume_token(end) {
        return Ok(exprs);
    }
    loop {
        exprs.push(parser.parse_expr()?);
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(end)?;
            return Ok(exprs);
        }
    }
}

/// Returns the end of the last token.
pub(super) fn end(parser: &Parser<'_>) -> Location {
    let last = parser.get_current_token();
    let end = if last.token == Token::EOF { None } else { Some(last.span.end) };
    end.filter(|end| end.line > 0).unwrap_or_else(|| {
        // The token before the end, whatever was skipped behind it.
        let before = parser.index().saturating_sub(2);
        parser.token_at(before).span.end
    })
}

fn error_at<T>(at: Location, message: &str, hint: &str) -> Result<T, ParserError> {
    let (line, column) = (at.line, at.column);
    Err(ParserError::ParserError(format!(
        "{message}{HINT}{hint} at Line: {line}, Column: {column}"
    )))
}

/// Rewrites a message of sqlparser in plain words.
pub(super) fn plain_message(message: &str) -> String {
    let Some((expected, found)) =
        message.strip_prefix("Expected: ").and_then(|rest| rest.split_once(", found: "))
    else {
        let mut chars = message.chars();
        let first = chars.next().map(|c| c.to_lowercase().collect::<String>());
        return first.unwrap_or_default() + chars.as_str();
    };
    let found = if found == "EOF" { "the end" } else { found };
    format!("{found} stands where {expected} was expected")
}
