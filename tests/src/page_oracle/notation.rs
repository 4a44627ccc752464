//! The notation in which figures of pages are declared, one text for each group of kinds.
//!
//! A line at the margin begins something: `kind` with its schema; the `figure` on top by its name;
//! a time beside it (`time`); a `table` by its id, `facts` and `bars` by their titles; a `plot` by
//! its id; a `part`, which is another kind's page within this one; `columns` that several tables
//! have; `let`, after which a name in braces stands for a text. Below a table stand its columns,
//! all of them in their order, below facts their rows, and below a plot its series. `some` is what
//! shows a choice of what is declared, `maybe` what a page may do without, and `thinned` a plot
//! that leaves out points where there are many. Rows are what a path gives, of several paths with
//! `;` between; `a[] -> b[] | c` are those of each.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::expression::{Expression, Item, Scope};
use super::rendered::Pattern;

/// What a page of one kind of result has to show.
#[derive(Debug, Default)]
pub(super) struct Kind {
    pub(super) figures: Vec<(Name, Pattern)>,
    pub(super) times: Vec<(Name, Pattern)>,
    pub(super) tables: Vec<TableOf>,
    pub(super) bars: Vec<TableOf>,
    pub(super) facts: Vec<FactsOf>,
    pub(super) plots: Vec<PlotOf>,
    /// Other kinds, and where they stand in the result.
    pub(super) parts: Vec<(String, Expression)>,
}

#[derive(Debug)]
pub(super) struct TableOf {
    pub(super) id: String,
    pub(super) is_choice: bool,
    pub(super) may_be_absent: bool,
    pub(super) source: Source,
    pub(super) columns: Vec<Column>,
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) title: String,
    pub(super) may_be_absent: bool,
    pub(super) cell: Pattern,
}

#[derive(Debug)]
pub(super) struct FactsOf {
    pub(super) title: String,
    pub(super) rows: Vec<(Source, Name, Pattern)>,
}

#[derive(Debug)]
pub(super) struct PlotOf {
    pub(super) id: String,
    pub(super) is_choice: bool,
    pub(super) may_be_absent: bool,
    pub(super) is_thinned: bool,
    pub(super) series: Vec<SeriesOf>,
}

#[derive(Debug)]
pub(super) struct SeriesOf {
    pub(super) label: Pattern,
    pub(super) source: Source,
    pub(super) shape: Shape,
}

/// What a series shows of the thing that it is of.
#[derive(Debug)]
pub(super) enum Shape {
    /// Points, and of each its place and its height.
    Line(Source, Expression, Expression),
    /// How long all but the slowest of a distribution took.
    Tail(Expression),
    /// How often each time came in it.
    Histogram(Expression),
}

/// A name as it stands, or one with something of the result in it.
#[derive(Debug)]
pub(super) enum Name {
    Plain(String),
    Made(Pattern),
}

impl Name {
    fn parse(text: &str) -> Result<Self> {
        let is_made = text.starts_with('\'');
        Ok(if is_made { Self::Made(Pattern::parse(text)?) } else { Self::Plain(text.to_owned()) })
    }

    pub(super) fn is(&self, shown: &str, scope: &Scope<'_>) -> bool {
        match self {
            Self::Plain(name) => name == shown,
            Self::Made(pattern) => pattern.check(shown, scope).is_ok(),
        }
    }
}

/// Where rows come from: chains of paths, each within what the one before it gave.
#[derive(Clone, Debug)]
pub(super) struct Source(Vec<Vec<Vec<Expression>>>);

impl Source {
    fn parse(text: &str) -> Result<Self> {
        let level = |text: &str| text.split(" | ").map(Expression::parse).collect::<Result<_>>();
        let chain = |text: &str| text.split("->").map(level).collect::<Result<_>>();
        let chains = text.split(';').map(chain).collect::<Result<_>>();
        Ok(Self(chains.with_context(|| format!("rows of '{text}'"))?))
    }

    /// All rows, each as the scope of its cells.
    pub(super) fn rows<'a>(&self, scope: &Scope<'a>) -> Vec<Scope<'a>> {
        let mut rows = Vec::new();
        for chain in &self.0 {
            extend(&mut rows, chain, scope, true);
        }
        rows
    }
}

fn extend<'a>(
    rows: &mut Vec<Scope<'a>>,
    levels: &[Vec<Expression>],
    scope: &Scope<'a>,
    is_outermost: bool,
) {
    let Some((first, further)) = levels.split_first() else {
        rows.push(scope.clone());
        return;
    };
    let items = first.iter().flat_map(|path| path.all(scope));
    for (number, item) in items.enumerate() {
        let mut inside: Scope<'a> = scope.inside(Item::clone(&item), number);
        if is_outermost {
            inside.index = number;
        }
        extend(rows, further, &inside, false);
    }
}

/// All that the texts declare, by the kind's schema.
pub(super) fn parse(texts: &[&str]) -> Result<BTreeMap<String, Kind>> {
    let mut parser = Parser::default();
    for text in texts {
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("--")) {
            let line = parser.filled(line);
            parser.take(&line).with_context(|| format!("'{line}'"))?;
        }
    }
    Ok(parser.kinds)
}

/// What indented lines belong to.
#[derive(Default)]
enum Open {
    #[default]
    Nothing,
    Columns(String),
    Table,
    Bars,
    Facts,
    Plot,
}

#[derive(Default)]
struct Parser {
    kinds: BTreeMap<String, Kind>,
    columns: BTreeMap<String, Vec<Column>>,
    texts: BTreeMap<String, String>,
    schema: String,
    open: Open,
}

impl Parser {
    fn kind(&mut self) -> &mut Kind {
        self.kinds.entry(self.schema.clone()).or_default()
    }

    /// With the texts that names in braces stand for.
    fn filled(&self, line: &str) -> String {
        let named = |line: String, (name, text): (&String, &String)| {
            line.replace(&format!("{{{name}}}"), text)
        };
        self.texts.iter().fold(line.to_owned(), named)
    }

    fn take(&mut self, line: &str) -> Result<()> {
        if line.starts_with(' ') {
            return self.take_below(line.trim());
        }
        let (word, rest) = line.split_once(' ').context("one word alone")?;
        match word {
            "kind" => rest.clone_into(&mut self.schema),
            "let" => {
                let (name, text) = rest.split_once(" = ").context("no ' = '")?;
                self.texts.insert(name.to_owned(), text.to_owned());
            }
            "columns" => {
                self.columns.insert(rest.to_owned(), Vec::new());
                self.open = Open::Columns(rest.to_owned());
            }
            "figure" => {
                let claim = claim(rest)?;
                self.kind().figures.push(claim);
            }
            "time" => {
                let claim = claim(rest)?;
                self.kind().times.push(claim);
            }
            "table" | "bars" => {
                let (head, source) = rest.split_once(" : ").context("no rows")?;
                let (id, words) = head_of(head);
                let table = TableOf {
                    id,
                    is_choice: words.contains(&"some"),
                    may_be_absent: words.contains(&"maybe"),
                    source: Source::parse(source)?,
                    columns: Vec::new(),
                };
                let is_table = word == "table";
                self.open = if is_table { Open::Table } else { Open::Bars };
                let kind = self.kind();
                if is_table { kind.tables.push(table) } else { kind.bars.push(table) }
            }
            "facts" => {
                self.open = Open::Facts;
                self.kind().facts.push(FactsOf { title: rest.to_owned(), rows: Vec::new() });
            }
            "plot" => {
                let (id, words) = head_of(rest);
                let plot = PlotOf {
                    id,
                    is_choice: words.contains(&"some"),
                    may_be_absent: words.contains(&"maybe"),
                    is_thinned: words.contains(&"thinned"),
                    series: Vec::new(),
                };
                self.open = Open::Plot;
                self.kind().plots.push(plot);
            }
            "part" => {
                let (schema, at) = rest.split_once(" at ").context("it is nowhere")?;
                let part = (schema.to_owned(), Expression::parse(at)?);
                self.kind().parts.push(part);
            }
            _ => bail!("'{word}' is no word of the notation"),
        }
        Ok(())
    }

    fn take_below(&mut self, line: &str) -> Result<()> {
        let lost = "it is below nothing";
        match &self.open {
            Open::Nothing => bail!(lost),
            Open::Columns(name) => {
                let columns = columns(line, &self.columns)?;
                self.columns.get_mut(name).context(lost)?.extend(columns);
            }
            Open::Table => {
                let columns = columns(line, &self.columns)?;
                self.kind().tables.last_mut().context(lost)?.columns.extend(columns);
            }
            Open::Bars => {
                let columns = columns(line, &self.columns)?;
                self.kind().bars.last_mut().context(lost)?.columns.extend(columns);
            }
            Open::Facts => {
                let (source, line) = match line.strip_prefix("for ") {
                    Some(rest) => rest.split_once(" : ").context("no rows")?,
                    None => ("@", line),
                };
                let (name, cell) = claim(line)?;
                let row = (Source::parse(source)?, name, cell);
                self.kind().facts.last_mut().context(lost)?.rows.push(row);
            }
            Open::Plot => {
                let series = series(line)?;
                self.kind().plots.last_mut().context(lost)?.series.push(series);
            }
        }
        Ok(())
    }
}

fn claim(line: &str) -> Result<(Name, Pattern)> {
    let (name, cell) = line.split_once(" = ").context("no ' = '")?;
    Ok((Name::parse(name)?, Pattern::parse(cell)?))
}

fn head_of(head: &str) -> (String, Vec<&str>) {
    const WORDS: [&str; 3] = ["some", "maybe", "thinned"];
    let (words, id): (Vec<_>, Vec<_>) = head.split(' ').partition(|word| WORDS.contains(word));
    (id.join(" "), words)
}

/// The columns of a line: one with its cell, several that are named as their fields are, or those
/// that stand under a name.
fn columns(line: &str, known: &BTreeMap<String, Vec<Column>>) -> Result<Vec<Column>> {
    if let Some(name) = line.strip_prefix("with ") {
        return known.get(name).cloned().with_context(|| format!("no columns '{name}'"));
    }
    let Some((title, cell)) = line.split_once(" = ") else {
        let field = |title: &str| column(title.trim(), &title.trim().replace('.', "_"));
        return line.split(',').map(field).collect();
    };
    Ok(vec![column(title, cell)?])
}

fn column(title: &str, cell: &str) -> Result<Column> {
    let (title, may_be_absent) = match title.strip_suffix('?') {
        Some(title) => (title, true),
        None => (title, false),
    };
    let title = if title == "_" { String::new() } else { title.to_owned() };
    Ok(Column { title, may_be_absent, cell: Pattern::parse(cell)? })
}

fn series(line: &str) -> Result<SeriesOf> {
    let (shape, rest) = line.split_once(' ').context("no shape")?;
    let fields: Vec<&str> = rest.split(" : ").collect();
    let (label, source, shape) = match (shape, &fields[..]) {
        ("line", [label, source, points, x, y]) => {
            let [x, y] = [Expression::parse(x)?, Expression::parse(y)?];
            (label, source, Shape::Line(Source::parse(points)?, x, y))
        }
        ("tail", [label, source, of]) => (label, source, Shape::Tail(Expression::parse(of)?)),
        ("histogram", [label, source, of]) => {
            (label, source, Shape::Histogram(Expression::parse(of)?))
        }
        _ => bail!("neither a line nor a tail nor a histogram"),
    };
    Ok(SeriesOf { label: Pattern::parse(label)?, source: Source::parse(source)?, shape })
}
