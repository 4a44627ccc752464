//! Document of a result of `horolog cycle predict`: bounds of the tasks, the terms of the bounds,
//! and the costs on which they are based.

use horolog_record::{
    CyclePredictBound, CyclePredictCost, CyclePredictCostKind as Kind, CyclePredictResult,
    CyclePredictTaskResult, CyclePredictTermKind as Term, CyclePredictVerdict, LimitUnit,
};

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NameColumn, NamedRow, NamedRowTable,
    ResultDocument, run_of,
};
use crate::html::bars;
use crate::html::data::table_unless_empty;
use crate::html::escape::each;
use crate::metrics::{Metric, MetricValue, NamedItems, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::table::shapes::{TextBar, bars_up_to};
use crate::units::{ABSENT, count_of, full_count, human_ns, percent, signed_ns};

/// Explanation of the method.
const METHOD: &str = "Published: equation (3) of Hao, Xue and Qin 2010 with its \
     floors: the task's own work, the longest blocking by another call under SCHED_FIFO, and \
     completed ticks and interrupts. It ignores tasks of higher priority and can be exceeded. \
     Safe: response-time analysis of Joseph and Pandya 1986 and Audsley et al. 1993: each started \
     period, all tasks of higher or equal priority, blocking, release jitter and context \
     switches. It is safe if the costs below are worst cases, for deadlines within the period. \
     Share: safe bound to deadline.";

const MEASURED: &str = "measured";
/// Number of the core from which on costs are only counted in the text.
const CORES_SHOWN: usize = 8;

const WIDTH: usize = 13;
const NARROW: usize = 9;

impl DescribeResult for CyclePredictResult {
    fn document(&self) -> ResultDocument<'_> {
        let is_in_time =
            |task: &&CyclePredictTaskResult| task.verdict == CyclePredictVerdict::Schedulable;
        let in_time = self.tasks.iter().filter(is_in_time).count();
        let summary = sentences(self);
        let sentence = summary.get(1).or(summary.first()).cloned().unwrap_or_default();
        let mut blocks = vec![
            BlockContent::Title(heading(self)).under(""),
            BlockContent::Summary(summary).under("Summary"),
            BlockContent::Markup(Box::new(|| stacks(self))).under("Bounds relative to deadlines"),
            BlockContent::Table(task_table(self)).under("Tasks"),
        ];
        if !terms(self).is_empty() {
            blocks.push(BlockContent::Table(term_table(self)).under("Bound components"));
        }
        blocks.extend([
            BlockContent::Shape(Box::new(|style| shares(self, style))).under("Bound components"),
            BlockContent::Markup(Box::new(|| costs(self))).under("Host costs"),
            BlockContent::Introduction(cost_lines(self)).under(""),
        ]);
        ResultDocument {
            kind: "cycle predict",
            heading: heading(self),
            lead: format!("started {}", self.started),
            headline: HeadlineMetric {
                name: "Tasks in time".to_owned(),
                value: Some(count_of(in_time as u64, self.tasks.len() as u64)),
                sentence,
            },
            blocks,
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let metrics = [
            Metric::value("response", |task: &CyclePredictTaskResult| {
                MetricValue::attempt(task.safe.as_ref().map(|bound| bound.response_ns as f64))
            })
            .limited(LimitUnit::Ns),
            Metric::value("as-published", |task: &CyclePredictTaskResult| {
                let bound = task.as_published.as_ref();
                MetricValue::attempt(bound.map(|bound| bound.response_ns as f64))
            })
            .limited(LimitUnit::Ns),
            Metric::number(
                "deadline-share",
                LimitUnit::Ratio,
                CyclePredictTaskResult::deadline_share,
            ),
            Metric::number("utilisation", LimitUnit::Ratio, |task| task.utilisation),
            Metric::ratio("missed", |task| {
                task.measured.as_ref().map(|measured| [measured.missed, measured.periods])
            }),
        ];
        of_items(tasks, metrics).collect()
    }
}

judged_by_fields!(CyclePredictResult);

fn tasks(result: &CyclePredictResult) -> NamedItems<'_, CyclePredictTaskResult> {
    result.tasks.iter().map(|task| (format!("task {}", task.name), task)).collect()
}

fn task_table(result: &CyclePredictResult) -> NamedRowTable {
    let width = |title| match title {
        "schedule" | "largest" => WIDTH,
        "verdict" => NARROW - 1,
        _ => NARROW,
    };
    NamedRowTable {
        id: "tasks",
        label: "Tasks",
        names: NameColumn::words("task", 20).or("task", 12).titled("task"),
        columns: titles(result).into_iter().map(|title| (title.into(), width(title))).collect(),
        rows: NamedRow::list(rows(result)),
    }
}

fn term_table(result: &CyclePredictResult) -> NamedRowTable {
    NamedRowTable {
        id: "terms",
        label: "Bound components",
        names: NameColumn::words("bound", 24).or("bound", 16).titled("bound"),
        columns: terms(result).into_iter().map(|term| (term.name().into(), WIDTH)).collect(),
        rows: NamedRow::list(term_rows(result)),
    }
}

fn costs(result: &CyclePredictResult) -> String {
    table_unless_empty("costs", "Costs", ("cost", &COST_TITLES), cost_rows(result))
}

/// Returns bars of the share of its deadline that each bound takes.
fn shares(result: &CyclePredictResult, style: &TableStyle) -> Vec<String> {
    let all = bounds(result).into_iter().map(|(name, task, bound)| {
        let share = bound.response_ns as f64 / task.deadline_ns.max(1) as f64;
        let times = [bound.response_ns, task.deadline_ns].map(human_ns);
        let value_text = format!("{}, {} of {}", percent(share), times[0], times[1]);
        TextBar::plain(name, Some(share), value_text)
    });
    bars_up_to("bounds relative to deadlines", &all.collect::<Vec<_>>(), 1.0, style)
}

/// Returns one stacked bar per bound, of its terms. All bars have the same scale, as shares of the
/// deadlines, wide enough for the longest.
fn stacks(result: &CyclePredictResult) -> String {
    let all = bounds(result);
    if all.is_empty() {
        return String::new();
    }
    let used = |task: &CyclePredictTaskResult, bound: &CyclePredictBound| {
        bound.response_ns as f64 / task.deadline_ns.max(1) as f64
    };
    let longest = all.iter().map(|(_, task, bound)| used(task, bound)).fold(1.0, f64::max);
    let legend = each(terms(result), |term| {
        format!("<li><span class=\"swatch\" style=\"{}\"></span>{}</li>", colour(term), term.name())
    });
    let rows = each(all, |(name, task, bound)| {
        let numbers = [&human_ns(bound.response_ns)[..], &percent(used(task, bound))];
        let stack = format!(
            "<span class=\"stack\">{}<span class=\"deadline\" style=\"left:{:.2}%\"></span></span>",
            parts(task, bound, longest),
            100.0 / longest,
        );
        bars::row(&name, numbers, &stack)
    });
    format!(
        "<p class=\"hint\">The line is the deadline; the values are in the tables \
         below.</p>\n<ul class=\"legend\">{legend}</ul>\n{}",
        bars::table(["bound", "response", "deadline share", ""], &rows)
    )
}

fn parts(task: &CyclePredictTaskResult, bound: &CyclePredictBound, longest: f64) -> String {
    each(&bound.terms, |term| {
        let width = 100.0 * term.ns as f64 / task.deadline_ns.max(1) as f64 / longest;
        format!(
            "<span class=\"term\" style=\"width:{width:.2}%;{}\" title=\"{}: {}\"></span>",
            colour(term.kind),
            term.kind.name(),
            human_ns(term.ns)
        )
    })
}

/// Returns the colour of a term as a CSS declaration. The plots have one colour less than there are
/// terms.
fn colour(term: Term) -> String {
    match term {
        Term::Interrupts => "background:var(--muted)".to_owned(),
        _ => format!("background:var(--series-{})", term as usize),
    }
}

/// Returns the titles of [`rows`], with a column for measured values if there are any.
fn titles(result: &CyclePredictResult) -> Vec<&'static str> {
    let all = [
        "schedule",
        "deadline",
        "published",
        "safe",
        MEASURED,
        "margin",
        "share",
        "largest",
        "verdict",
    ];
    all.into_iter().filter(|title| *title != MEASURED || is_measured(result)).collect()
}

fn is_measured(result: &CyclePredictResult) -> bool {
    result.tasks.iter().any(|task| task.measured.is_some())
}

/// Returns the table rows, one per task.
fn rows(result: &CyclePredictResult) -> Vec<(String, Vec<String>)> {
    let response = |bound: Option<&CyclePredictBound>| {
        bound.map_or_else(|| ABSENT.to_owned(), |bound| human_ns(bound.response_ns))
    };
    let row = |task: &CyclePredictTaskResult| {
        let largest = task.safe.as_ref().and_then(|safe| safe.dominant);
        let measured = task.measured.as_ref().and_then(|measured| measured.response_ns);
        let mut cells = vec![
            schedule(task),
            human_ns(task.deadline_ns),
            response(task.as_published.as_ref()),
            response(task.safe.as_ref()),
            task.margin_ns.map_or_else(|| ABSENT.to_owned(), signed_ns),
            task.deadline_share().map_or_else(|| ABSENT.to_owned(), percent),
            largest.map_or_else(|| ABSENT.to_owned(), |term| term.name().to_owned()),
            verdict(task.verdict).to_owned(),
        ];
        if is_measured(result) {
            cells.insert(4, measured.map_or_else(|| ABSENT.to_owned(), human_ns));
        }
        (task.name.clone(), cells)
    };
    result.tasks.iter().map(row).collect()
}

/// Formats the scheduling of a task, such as `fifo 80 @1`.
fn schedule(task: &CyclePredictTaskResult) -> String {
    let policy = task.policy.name();
    let priority = if task.priority > 0 { format!(" {}", task.priority) } else { String::new() };
    let core = task.core.map_or_else(String::new, |core| format!(" @{core}"));
    format!("{policy}{priority}{core}")
}

const fn verdict(verdict: CyclePredictVerdict) -> &'static str {
    match verdict {
        CyclePredictVerdict::Schedulable => "in time",
        CyclePredictVerdict::Unschedulable => "late",
        CyclePredictVerdict::Unknown => "unknown",
    }
}

/// Returns the terms that are above 0 in at least one bound, in the order of `Term::ALL`.
fn terms(result: &CyclePredictResult) -> Vec<Term> {
    let bounds = || result.tasks.iter().flat_map(|task| [&task.safe, &task.as_published]).flatten();
    let is_there = |term: &Term| bounds().any(|bound| bound.term_ns(*term) > 0);
    Term::ALL.into_iter().filter(is_there).collect()
}

/// Returns the bounds that have terms with their names and tasks, for each task the safe bound
/// first.
fn bounds(
    result: &CyclePredictResult,
) -> Vec<(String, &CyclePredictTaskResult, &CyclePredictBound)> {
    fn of(
        task: &CyclePredictTaskResult,
    ) -> Vec<(String, &CyclePredictTaskResult, &CyclePredictBound)> {
        let CyclePredictTaskResult { name, safe, as_published: printed, .. } = task;
        let both = [("safe", safe), ("published", printed)];
        let summed = both.into_iter().filter_map(|(kind, bound)| {
            let bound = bound.as_ref().filter(|bound| !bound.terms.is_empty())?;
            Some((format!("{name}, {kind}"), task, bound))
        });
        summed.collect()
    }
    result.tasks.iter().flat_map(of).collect()
}

/// Returns one row per bound, with the duration of each term.
fn term_rows(result: &CyclePredictResult) -> Vec<(String, Vec<String>)> {
    let shown = terms(result);
    let cell = |ns: u64| if ns == 0 { ABSENT.to_owned() } else { human_ns(ns) };
    let row = |(name, _, bound): (String, &CyclePredictTaskResult, &CyclePredictBound)| {
        (name, shown.iter().map(|term| cell(bound.term_ns(*term))).collect())
    };
    bounds(result).into_iter().map(row).collect()
}

/// Returns the heading: the number of tasks in time, of all tasks, and of those without a verdict.
fn heading(result: &CyclePredictResult) -> String {
    let of = |verdict| result.tasks.iter().filter(|task| task.verdict == verdict).count();
    let in_time = of(CyclePredictVerdict::Schedulable) as u64;
    let count = result.tasks.len() as u64;
    let tasks = if count == 1 { "task" } else { "tasks" };
    let unknown = match of(CyclePredictVerdict::Unknown) {
        0 => String::new(),
        unknown => format!(", {} unknown", full_count(unknown as u64)),
    };
    format!("{} of {} {tasks} in time{unknown}", full_count(in_time), full_count(count))
}

/// Returns the conclusions, a sentence or a few each.
fn sentences(result: &CyclePredictResult) -> Vec<String> {
    let nodes = match result.nodes {
        0 | 1 => "One node; messages and barriers wait for no peer.".to_owned(),
        nodes => format!("{} nodes that exchange messages.", full_count(nodes.into())),
    };
    let worst = format!("{nodes} Percentile of measurements: {}.", result.percentile.name());
    let known = result.tasks.iter().filter_map(|task| Some((task, task.margin_ns?)));
    let closest = known.min_by_key(|(_, margin)| *margin).map(|(task, margin)| {
        format!(
            "Smallest margin: {}, {} of {}.",
            task.name,
            signed_ns(margin),
            human_ns(task.deadline_ns)
        )
    });
    let reasons = result.tasks.iter().filter_map(|task| {
        task.reason.as_ref().map(|why| format!("{} has no bound: {why}.", task.name))
    });
    let all = std::iter::once(worst).chain(closest).chain(reasons);
    all.chain(result.tasks.iter().filter_map(measured)).collect()
}

/// Returns a sentence on the measured values of a task; `None` without any.
fn measured(task: &CyclePredictTaskResult) -> Option<String> {
    let measured = task.measured.as_ref()?;
    let longest = measured.response_ns.map_or_else(|| ABSENT.to_owned(), human_ns);
    let of_bound =
        measured.response_ns.zip(task.safe.as_ref()).map_or_else(String::new, |(ns, safe)| {
            format!(", {} of its bound", percent(ns as f64 / safe.response_ns.max(1) as f64))
        });
    Some(format!(
        "Measured: {} took up to {longest}{of_bound}; {} of {} periods missed their deadlines \
         [{}].",
        task.name,
        full_count(measured.missed),
        full_count(measured.periods),
        measured.source
    ))
}

/// Returns one line for each kind, core and source of the host's costs.
fn cost_lines(result: &CyclePredictResult) -> Vec<String> {
    let is_shown = |cost: &&CyclePredictCost| cost.core.is_none_or(|core| core < CORES_SHOWN);
    let shown: Vec<&CyclePredictCost> = result.costs.iter().filter(is_shown).collect();
    let same = |a: &&CyclePredictCost, b: &&CyclePredictCost| {
        (a.kind, a.core, &a.source) == (b.kind, b.core, &b.source)
    };
    let mut lines: Vec<String> = shown.chunk_by(same).map(of_one_kind).collect();
    let hidden = result.costs.len() - shown.len();
    if hidden > 0 {
        let hidden = full_count(hidden as u64);
        lines.push(format!("{hidden} more, of cores from {CORES_SHOWN} on, are in the result."));
    }
    lines
}

fn of_one_kind(costs: &[&CyclePredictCost]) -> String {
    let each: Vec<String> = costs.iter().map(|cost| amount(cost)).collect();
    let source = costs.first().map_or("", |cost| cost.source.as_str());
    // Parts of a distribution state their own label.
    let figure = costs.first().filter(|cost| cost.part.is_none());
    let figure = figure.map_or_else(String::new, |cost| format!("; {}", cost.statistic));
    let name = costs.first().map_or_else(String::new, |cost| cost_name(cost));
    format!("{name}: {}{figure} [{source}].", each.join(", "))
}

/// Returns the name of a cost, such as `interrupts, core 1`.
fn cost_name(cost: &CyclePredictCost) -> String {
    let kind = match cost.kind {
        Kind::Switch => "switch",
        Kind::Release => "release",
        Kind::Scheduler => "scheduler tick",
        Kind::Interrupt => "interrupts",
        Kind::Threads => "other threads (policy other)",
        Kind::Message => "message",
    };
    cost.core.map_or_else(|| kind.to_owned(), |core| format!("{kind}, core {core}"))
}

/// Formats duration and frequency of a cost.
fn amount(cost: &CyclePredictCost) -> String {
    let every = cost.every_ns.map_or_else(String::new, |ns| format!(" every {}", human_ns(ns)));
    let part = cost.part.map_or_else(String::new, |part| format!(" (to {})", part.name()));
    let bytes =
        cost.bytes.map_or_else(String::new, |bytes| format!(" for {} bytes", full_count(bytes)));
    format!("{}{every}{part}{bytes}", human_ns(cost.ns))
}

/// Titles of the cells of [`cost_rows`].
const COST_TITLES: [&str; 4] = ["each", "every", "statistic", "from"];

/// Returns the table rows of the costs, one per cost.
fn cost_rows(result: &CyclePredictResult) -> Vec<(String, Vec<String>)> {
    let row = |cost: &CyclePredictCost| {
        let bytes =
            cost.bytes.map_or_else(String::new, |bytes| format!(", {} bytes", full_count(bytes)));
        let cells = vec![
            human_ns(cost.ns),
            cost.every_ns.map_or_else(|| ABSENT.to_owned(), human_ns),
            cost.statistic.clone(),
            cost.source.clone(),
        ];
        (cost_name(cost) + &bytes, cells)
    };
    result.costs.iter().map(row).collect()
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn nothing_at_all_is_no_error_and_many_cores_are_counted() {
        let mut result: CyclePredictResult = fixture::sample("cycle_predict");
        let mut cost = result.costs[1].clone();
        cost.core = Some(77);
        result.costs.extend([cost.clone(), cost]);
        let text = result.text(&TableStyle::default());
        assert!(text.contains("2 more, of cores from 8 on"), "{text}");
        result.tasks.clear();
        result.costs.clear();
        assert!(result.text(&TableStyle::default()).starts_with("0 of 0 tasks"));
    }

    #[test]
    fn a_bound_beyond_its_deadline_is_marked_and_no_deadline_is_no_error() {
        let mut result: CyclePredictResult = fixture::sample("cycle_predict");
        result.tasks[0].deadline_ns = 0;
        let lines = shares(&result, &TableStyle { colour: false, width: 80 });
        assert!(lines[1].contains("#>| >9999%, 3.59 ms of 0 ns"), "{lines:?}");
    }
}
