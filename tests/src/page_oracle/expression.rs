//! Formulas over a result's JSON, in which declarations say what a figure of a page has to be.
//!
//! A formula has numbers, `'words'`, `+ - * /`, comparisons (`=`, `>=`, `>`, `<`), functions, and
//! paths: `rtt_ns.p99` of the row that is looked at, `$.trials` of the whole result, `^.name` of
//! what the row lies in, `#` and `%` for the number of the outermost thing and of the row itself.
//! In a path `[]` are all elements, `[0]` and `[-1]` are one, `[?formula]` are those of which it
//! holds, and `.(formula)` is what it gives for each. What is not there is no value, and whatever
//! is worked out from it is none either.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::functions::call;

/// A formula.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Number(f64),
    Text(String),
    Path(Start, Vec<Step>),
    Call(String, Vec<Self>),
    Binary(&'static str, Box<Self>, Box<Self>),
}

/// Where a path begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Root,
    Row,
    Above(usize),
    Index,
    Inner,
}

/// One step of a path.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Field(String),
    All,
    At(Expression),
    Where(Expression),
    Each(Expression),
}

/// A value: a part of the result, or what was worked out.
#[derive(Clone, Debug)]
pub(super) enum Item<'a> {
    Json(&'a Value),
    Number(f64),
    Text(String),
}

impl<'a> Item<'a> {
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Json(Value::Bool(is_true)) => Some(f64::from(u8::from(*is_true))),
            Self::Json(json) => json.as_f64(),
            Self::Text(_) => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Json(json) => json.as_str(),
            Self::Number(_) => None,
        }
    }

    pub(super) fn json(&self) -> Option<&'a Value> {
        if let Self::Json(json) = self { Some(json) } else { None }
    }
}

/// What a formula's paths begin at.
#[derive(Clone, Debug)]
pub(super) struct Scope<'a> {
    pub(super) root: &'a Value,
    pub(super) row: Item<'a>,
    pub(super) above: Vec<Item<'a>>,
    pub(super) index: usize,
    pub(super) inner: usize,
}

impl<'a> Scope<'a> {
    pub(super) fn of(root: &'a Value) -> Self {
        Self { root, row: Item::Json(root), above: Vec::new(), index: 0, inner: 0 }
    }

    /// The scope of something that lies in this one's row.
    pub(super) fn inside(&self, row: Item<'a>, inner: usize) -> Self {
        let mut above = self.above.clone();
        above.push(self.row.clone());
        Self { row, above, inner, ..self.clone() }
    }
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut tokens = Tokens::of(text)?;
        let expression = tokens.expression()?;
        ensure!(tokens.is_at_end(), "'{text}' goes on behind its end");
        Ok(expression)
    }

    /// All values, none where there is none.
    pub(super) fn all<'a>(&self, scope: &Scope<'a>) -> Vec<Item<'a>> {
        match self {
            Self::Number(number) => vec![Item::Number(*number)],
            Self::Text(text) => vec![Item::Text(text.clone())],
            Self::Path(start, steps) => path(*start, steps, scope),
            Self::Call(name, arguments) => {
                let arguments: Vec<_> = arguments.iter().map(|one| one.all(scope)).collect();
                call(name, &arguments).into_iter().collect()
            }
            Self::Binary(operator, left, right) => {
                let both = left.one(scope).zip(right.one(scope));
                both.and_then(|(left, right)| binary(operator, &left, &right)).into_iter().collect()
            }
        }
    }

    /// The value, where there is one.
    pub(super) fn one<'a>(&self, scope: &Scope<'a>) -> Option<Item<'a>> {
        let mut all = self.all(scope);
        (all.len() == 1).then(|| all.remove(0))
    }

    pub(super) fn number(&self, scope: &Scope<'_>) -> Option<f64> {
        self.one(scope)?.number()
    }

    fn holds(&self, scope: &Scope<'_>) -> bool {
        let found = self.all(scope);
        found.first().is_some_and(|item| item.number() != Some(0.0))
    }
}

fn binary<'a>(operator: &str, left: &Item<'a>, right: &Item<'a>) -> Option<Item<'a>> {
    let truth = |holds| Some(Item::Number(f64::from(u8::from(holds))));
    if operator == "=" {
        return match (left.text(), right.text()) {
            (Some(left), Some(right)) => truth(left == right),
            _ => truth(left.number()?.total_cmp(&right.number()?).is_eq()),
        };
    }
    let (left, right) = (left.number()?, right.number()?);
    match operator {
        ">=" => truth(left >= right),
        ">" => truth(left > right),
        "<" => truth(left < right),
        "+" => Some(Item::Number(left + right)),
        "-" => Some(Item::Number(left - right)),
        "*" => Some(Item::Number(left * right)),
        _ if right == 0.0 => None,
        _ => Some(Item::Number(left / right)),
    }
}

fn path<'a>(start: Start, steps: &[Step], scope: &Scope<'a>) -> Vec<Item<'a>> {
    let first = match start {
        Start::Root => Some(Item::Json(scope.root)),
        Start::Row => Some(scope.row.clone()),
        Start::Above(levels) => {
            scope.above.len().checked_sub(levels).and_then(|at| scope.above.get(at)).cloned()
        }
        Start::Index => Some(Item::Number(scope.index as f64)),
        Start::Inner => Some(Item::Number(scope.inner as f64)),
    };
    let mut found: Vec<_> = first.into_iter().collect();
    for step in steps {
        found = found.into_iter().flat_map(|item| one_step(&item, step, scope)).collect();
    }
    found.retain(|item| !item.json().is_some_and(Value::is_null));
    found
}

fn one_step<'a>(item: &Item<'a>, step: &Step, scope: &Scope<'a>) -> Vec<Item<'a>> {
    if let Step::Each(formula) = step {
        return formula.all(&scope.inside(item.clone(), scope.inner));
    }
    let Some(json) = item.json() else { return Vec::new() };
    if let Step::Field(name) = step {
        return json.get(name).map(Item::Json).into_iter().collect();
    }
    let elements: Vec<Item<'a>> = match json {
        Value::Array(elements) => elements.iter().map(Item::Json).collect(),
        Value::Object(fields) => fields.values().map(Item::Json).collect(),
        _ => Vec::new(),
    };
    match step {
        Step::At(at) => {
            let Some(at) = at.one(scope) else { return Vec::new() };
            if let Some(name) = at.text() {
                return json.get(name).map(Item::Json).into_iter().collect();
            }
            let Some(at) = at.number() else { return Vec::new() };
            let from_end = if at < 0.0 { elements.len() as f64 } else { 0.0 };
            elements.get((at + from_end) as usize).cloned().into_iter().collect()
        }
        Step::Where(formula) => {
            let holds = |item: &Item<'a>| formula.holds(&scope.inside(item.clone(), scope.inner));
            elements.into_iter().filter(holds).collect()
        }
        _ => elements,
    }
}

/// The words and signs of a formula.
pub(super) struct Tokens {
    all: Vec<Token>,
    at: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Text(String),
    Name(String),
    Sign(&'static str),
}

const SIGNS: [&str; 20] = [
    ">=", "+", "-", "*", "/", "(", ")", "[", "]", ".", ",", "&", "?", "#", "%", "@", "$", "^", "=",
    ">",
];

impl Tokens {
    pub(super) fn of(text: &str) -> Result<Self> {
        let (mut all, mut rest) = (Vec::new(), text.trim());
        while let Some(first) = rest.chars().next() {
            let (token, length) = if first == '\'' || first == '"' {
                let length = rest[1..].find(first).with_context(|| format!("no end of {rest}"))?;
                (Token::Text(rest[1..=length].to_owned()), length + 2)
            } else if first.is_ascii_digit() {
                let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == 'e';
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                (Token::Number(rest[..length].parse()?), length)
            } else if first.is_ascii_alphabetic() || first == '_' {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                (Token::Name(rest[..length].to_owned()), length)
            } else {
                let sign = SIGNS.iter().chain(["<"].iter()).find(|sign| rest.starts_with(**sign));
                let sign = sign.with_context(|| format!("'{rest}' in a formula"))?;
                (Token::Sign(sign), sign.len())
            };
            all.push(token);
            rest = rest[length..].trim_start();
        }
        Ok(Self { all, at: 0 })
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.all.len()
    }

    /// Whether this sign is next, which is then behind.
    pub(super) fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.all.get(self.at), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    /// The same with a word.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.all.get(self.at), Some(Token::Name(next)) if next == word);
        self.at += usize::from(is_next);
        is_next
    }

    fn must_take(&mut self, sign: &str) -> Result<()> {
        let taken = self.takes(sign);
        ensure!(taken, "no '{sign}' where {:?} is", self.all.get(self.at));
        Ok(())
    }

    fn chain(
        &mut self,
        operators: &[&'static str],
        next: fn(&mut Self) -> Result<Expression>,
    ) -> Result<Expression> {
        let mut left = next(self)?;
        while let Some(operator) = operators.iter().find(|sign| self.takes(sign)) {
            left = Expression::Binary(operator, Box::new(left), Box::new(next(self)?));
        }
        Ok(left)
    }

    pub(super) fn expression(&mut self) -> Result<Expression> {
        self.chain(&[">=", ">", "<", "="], Self::sum)
    }

    fn sum(&mut self) -> Result<Expression> {
        self.chain(&["+", "-"], |tokens| tokens.chain(&["*", "/"], Self::factor))
    }

    fn factor(&mut self) -> Result<Expression> {
        if self.takes("-") {
            let zero = Box::new(Expression::Number(0.0));
            return Ok(Expression::Binary("-", zero, Box::new(self.factor()?)));
        }
        if self.takes("(") {
            let inner = self.expression()?;
            self.must_take(")")?;
            return Ok(inner);
        }
        let token = self.all.get(self.at).cloned().context("a formula without an end")?;
        self.at += 1;
        let start = match token {
            Token::Number(number) => return Ok(Expression::Number(number)),
            Token::Text(text) => return Ok(Expression::Text(text)),
            Token::Name(name) if self.takes("(") => {
                return Ok(Expression::Call(name, self.arguments()?));
            }
            Token::Name(name) => return self.steps(Start::Row, vec![Step::Field(name)]),
            Token::Sign("$") => Start::Root,
            Token::Sign("@") => Start::Row,
            Token::Sign("#") => Start::Index,
            Token::Sign("%") => Start::Inner,
            Token::Sign("^") => {
                let mut levels = 1;
                while self.takes("^") {
                    levels += 1;
                }
                Start::Above(levels)
            }
            Token::Sign(sign) => bail!("'{sign}' where a value should be"),
        };
        self.steps(start, Vec::new())
    }

    fn arguments(&mut self) -> Result<Vec<Expression>> {
        let mut arguments = vec![self.expression()?];
        while self.takes(",") {
            arguments.push(self.expression()?);
        }
        self.must_take(")")?;
        Ok(arguments)
    }

    fn steps(&mut self, start: Start, mut steps: Vec<Step>) -> Result<Expression> {
        loop {
            if self.takes(".") {
                if self.takes("(") {
                    steps.push(Step::Each(self.expression()?));
                    self.must_take(")")?;
                    continue;
                }
                match self.all.get(self.at).cloned() {
                    Some(Token::Name(name) | Token::Text(name)) => steps.push(Step::Field(name)),
                    other => bail!("{other:?} where a field should be"),
                }
                self.at += 1;
            } else if self.takes("[") {
                if self.takes("]") {
                    steps.push(Step::All);
                    continue;
                }
                let is_filter = self.takes("?");
                let inner = self.expression()?;
                self.must_take("]")?;
                steps.push(if is_filter { Step::Where(inner) } else { Step::At(inner) });
            } else {
                return Ok(Expression::Path(start, steps));
            }
        }
    }
}
