//! The figures of pages against the JSON that they are of: for every kind of result it is declared,
//! in texts apart from what makes the pages, where each table has its rows from, each column its
//! figures, and each plot its points. What a page shows and nobody declared is a complaint, and so
//! is what is declared and not to be seen on any page.

mod expression;
mod functions;
mod notation;
mod plots;
mod rendered;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::pages::{Plot, RenderedPage, Table};
use expression::Scope;
use notation::{FactsOf, Kind, Name, PlotOf, TableOf};
use rendered::Pattern;

pub(crate) use rendered::Figure;

const TEXTS: [&str; 5] = [
    include_str!("page_oracle/loads.txt"),
    include_str!("page_oracle/clocks.txt"),
    include_str!("page_oracle/hosts.txt"),
    include_str!("page_oracle/paths.txt"),
    include_str!("page_oracle/cycles.txt"),
];

/// What is declared, and what of it was seen.
pub(crate) struct Figures {
    kinds: BTreeMap<String, Kind>,
    rendered_keys: BTreeSet<String>,
}

/// A page while it is held against what is declared: what of it is claimed.
struct Reading<'a> {
    rendered_keys: &'a RenderedPage,
    tables: Vec<bool>,
    bars: Vec<bool>,
    plots: Vec<bool>,
    found: BTreeSet<String>,
}

impl Figures {
    pub(crate) fn declared() -> Result<Self> {
        Self::of(&TEXTS)
    }

    fn of(texts: &[&str]) -> Result<Self> {
        Ok(Self { kinds: notation::parse(texts)?, rendered_keys: BTreeSet::new() })
    }

    fn kind(&self, schema: &str) -> Result<&Kind> {
        self.kinds.get(schema).with_context(|| format!("nothing is declared of {schema}"))
    }

    /// A page shows the figures of this result and no others.
    pub(crate) fn check(&mut self, rendered_keys: &RenderedPage, result: &Value) -> Result<()> {
        let mut schema = result["schema"].as_str().context("no schema")?.to_owned();
        // These have other figures under the same schema.
        if result["mode"] == "nts-ke" {
            schema += " nts-ke";
        }
        let schema = schema.as_str();
        let none = |count| vec![false; count];
        let mut reading = Reading {
            rendered_keys,
            tables: none(rendered_keys.tables.len()),
            bars: none(rendered_keys.bars.len()),
            plots: none(rendered_keys.plots.len()),
            found: BTreeSet::new(),
        };
        let kind = self.kind(schema)?;
        reading.top(schema, kind, &Scope::of(result))?;
        self.part(&mut reading, schema, result)?;
        reading.is_all_claimed()?;
        self.rendered_keys.append(&mut reading.found);
        Ok(())
    }

    fn part(&self, reading: &mut Reading<'_>, schema: &str, result: &Value) -> Result<()> {
        let (kind, scope) = (self.kind(schema)?, Scope::of(result));
        for table in &kind.tables {
            reading.table(schema, table, &scope).with_context(|| format!("table {}", table.id))?;
        }
        for bars in &kind.bars {
            reading.bars(schema, bars, &scope).with_context(|| format!("bars {}", bars.id))?;
        }
        for facts in &kind.facts {
            let context = || format!("facts {}", facts.title);
            reading.facts(schema, facts, &scope).with_context(context)?;
        }
        for plot in &kind.plots {
            reading.plot(schema, plot, &scope).with_context(|| format!("plot {}", plot.id))?;
        }
        for (of, at) in &kind.parts {
            for part in at.all(&scope) {
                let part = part.json().context("a part that is no result")?;
                self.part(reading, of, part).with_context(|| of.clone())?;
            }
        }
        Ok(())
    }

    /// Whatever is declared was to be seen on some page.
    pub(crate) fn all_declared_were_rendered(&self) -> Result<()> {
        let mut unseen = Vec::new();
        for (schema, kind) in &self.kinds {
            unseen.extend(
                keys(schema, kind).into_iter().filter(|key| !self.rendered_keys.contains(key)),
            );
        }
        ensure!(unseen.is_empty(), "declared and not to be seen: {unseen:#?}");
        Ok(())
    }
}

/// The keys of all that is declared of a kind.
fn keys(schema: &str, kind: &Kind) -> Vec<String> {
    let claims = |what: &'static str, claims: &[(Name, Pattern)]| {
        (0..claims.len()).map(|at| key(schema, what, &at.to_string())).collect::<Vec<_>>()
    };
    let mut keys = claims("figure", &kind.figures);
    keys.extend(claims("time", &kind.times));
    for (what, tables) in [("table", &kind.tables), ("bars", &kind.bars)] {
        for table in tables {
            keys.push(key(schema, what, &table.id));
            let columns = table.columns.iter().enumerate();
            keys.extend(columns.map(|(at, _)| key(schema, what, &column_key(table, at))));
        }
    }
    for facts in &kind.facts {
        keys.extend((0..facts.rows.len()).map(|at| key(schema, "facts", &fact_key(facts, at))));
    }
    for plot in &kind.plots {
        keys.push(key(schema, "plot", &plot.id));
    }
    keys
}

fn key(schema: &str, what: &str, id: &str) -> String {
    format!("{schema}: {what} {id}")
}

fn column_key(table: &TableOf, at: usize) -> String {
    format!("{}, column {at} '{}'", table.id, table.columns[at].title)
}

fn fact_key(facts: &FactsOf, at: usize) -> String {
    format!("{}, row {at}", facts.title)
}

impl Reading<'_> {
    fn found(&mut self, schema: &str, what: &str, id: &str) {
        self.found.insert(key(schema, what, id));
    }

    /// The verdict and the times beside it.
    fn top(&mut self, schema: &str, kind: &Kind, scope: &Scope<'_>) -> Result<()> {
        let name = self.rendered_keys.name.as_deref().context("no verdict")?;
        let figure = self.rendered_keys.figure.as_deref().context("no verdict")?;
        let at = kind.figures.iter().position(|(of, _)| of.is(name, scope));
        let at = at.with_context(|| format!("the verdict '{name}' is not declared"))?;
        kind.figures[at].1.check(figure, scope).with_context(|| name.to_owned())?;
        self.found(schema, "figure", &at.to_string());
        for [name, time] in &self.rendered_keys.times {
            let at = kind.times.iter().position(|(of, _)| of.is(name, scope));
            let at = at.with_context(|| format!("the time '{name}' is not declared"))?;
            kind.times[at].1.check(time, scope).with_context(|| name.clone())?;
            self.found(schema, "time", &at.to_string());
        }
        Ok(())
    }

    fn table(&mut self, schema: &str, declared: &TableOf, scope: &Scope<'_>) -> Result<()> {
        let is_it = |table: &Table| table.id.as_deref() == Some(&declared.id);
        let at = unclaimed(&self.rendered_keys.tables, &mut self.tables, is_it);
        let table = at.map(|at| &self.rendered_keys.tables[at]);
        self.rows(schema, "table", declared, scope, table)
    }

    fn bars(&mut self, schema: &str, declared: &TableOf, scope: &Scope<'_>) -> Result<()> {
        let is_it = |table: &Table| table.label == declared.id;
        let at = unclaimed(&self.rendered_keys.bars, &mut self.bars, is_it);
        let table = at.map(|at| &self.rendered_keys.bars[at]);
        self.rows(schema, "bars", declared, scope, table)
    }

    fn rows(
        &mut self,
        schema: &str,
        what: &str,
        declared: &TableOf,
        scope: &Scope<'_>,
        table: Option<&Table>,
    ) -> Result<()> {
        let rows = declared.source.rows(scope);
        let Some(table) = table else {
            let may_be_absent = declared.may_be_absent || rows.is_empty();
            ensure!(may_be_absent, "{} rows are not shown", rows.len());
            return Ok(());
        };
        let columns = columns(declared, &table.titles)?;
        for at in &columns {
            self.found(schema, what, &column_key(declared, *at));
        }
        self.found(schema, what, &declared.id);
        let cells: Vec<_> = columns.iter().map(|at| &declared.columns[*at]).collect();
        let is_row = |shown: &[String], row: &Scope<'_>| -> Result<()> {
            if let [only] = shown {
                return cells.first().context("no columns")?.cell.check(only, row);
            }
            if let [_, error] = shown
                && cells.len() > 2
            {
                let row_error = row.row.json().and_then(|row| row["error"].as_str());
                ensure!(row_error == Some(error), "'{error}' in place of a row");
                return Ok(());
            }
            ensure!(shown.len() == cells.len(), "{} cells in {shown:?}", shown.len());
            for (shown, column) in shown.iter().zip(&cells) {
                let context = || format!("column '{}'", column.title);
                column.cell.check(shown, row).with_context(context)?;
            }
            Ok(())
        };
        if declared.is_choice {
            for shown in &table.rows {
                let is_one = rows.iter().any(|row| is_row(shown, row).is_ok());
                ensure!(is_one, "no row is {shown:?}");
            }
            return Ok(());
        }
        let [shown, wanted] = [table.rows.len(), rows.len()];
        ensure!(shown == wanted, "{shown} rows in place of {wanted}");
        for (shown, row) in table.rows.iter().zip(&rows) {
            is_row(shown, row).with_context(|| format!("row {shown:?}"))?;
        }
        Ok(())
    }

    fn facts(&mut self, schema: &str, declared: &FactsOf, scope: &Scope<'_>) -> Result<()> {
        let is_it = |table: &Table| table.id.is_none() && table.label == declared.title;
        let at = unclaimed(&self.rendered_keys.tables, &mut self.tables, is_it)
            .context("it is not there")?;
        for shown in &self.rendered_keys.tables[at].rows {
            let [name, value, ..] = &shown[..] else { anyhow::bail!("{shown:?}") };
            let mut rows = declared.rows.iter().enumerate().flat_map(|(at, (source, of, cell))| {
                source.rows(scope).into_iter().map(move |row| (at, row, of, cell))
            });
            let row = rows.find(|(_, row, of, _)| of.is(name, row));
            let (at, row, _, cell) = row.with_context(|| format!("nothing claims '{name}'"))?;
            cell.check(value, &row).with_context(|| name.clone())?;
            self.found.insert(key(schema, "facts", &fact_key(declared, at)));
        }
        Ok(())
    }

    fn plot(&mut self, schema: &str, declared: &PlotOf, scope: &Scope<'_>) -> Result<()> {
        let is_it = |plot: &Plot| plot.id == declared.id;
        let Some(at) = unclaimed(&self.rendered_keys.plots, &mut self.plots, is_it) else {
            let is_right = declared.may_be_absent || !plots::is_wanted(declared, scope)?;
            ensure!(is_right, "it is not drawn");
            return Ok(());
        };
        self.found(schema, "plot", &declared.id);
        plots::check(declared, &self.rendered_keys.plots[at], scope)
    }

    fn is_all_claimed(&self) -> Result<()> {
        let left = |all: &[bool]| all.iter().position(|is_claimed| !is_claimed);
        for (tables, at) in [
            (&self.rendered_keys.tables, left(&self.tables)),
            (&self.rendered_keys.bars, left(&self.bars)),
        ] {
            let left = at.map(|at| &tables[at]);
            ensure!(left.is_none(), "nothing claims the table {left:?}");
        }
        let plot = left(&self.plots).map(|at| &self.rendered_keys.plots[at].id);
        ensure!(plot.is_none(), "nothing claims the plot {plot:?}");
        Ok(())
    }
}

/// The first one of these that nothing has claimed yet, which is claimed then.
fn unclaimed<T>(all: &[T], claimed: &mut [bool], is_it: impl Fn(&T) -> bool) -> Option<usize> {
    let at = all.iter().zip(&*claimed).position(|(one, is_claimed)| !is_claimed && is_it(one))?;
    claimed[at] = true;
    Some(at)
}

/// Which of the declared columns a table has; it has no others, and no others are left out.
fn columns(declared: &TableOf, titles: &[String]) -> Result<Vec<usize>> {
    let (mut columns, mut titles) = (Vec::new(), titles.iter().peekable());
    for (at, column) in declared.columns.iter().enumerate() {
        if titles.next_if(|title| **title == column.title).is_some() {
            columns.push(at);
        } else {
            let next = titles.peek();
            ensure!(column.may_be_absent, "{next:?} where column '{}' should be", column.title);
        }
    }
    let left = titles.next();
    ensure!(left.is_none(), "nothing claims the column {left:?}");
    Ok(columns)
}
