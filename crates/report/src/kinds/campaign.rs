//! Campaign: the measurements of each role over all its parts, the end of each part, and the plan.

use horolog_record::{
    CampaignExclusions, CampaignInstanceOutcome, CampaignInstanceResult, CampaignNodeTaskResult,
    CampaignRelayCounts, CampaignResult, CampaignRoleResult, CampaignTaskResult, Distribution,
    LimitingRate, LimitingSide, MergedResults, PathRequestCounts, StartAccuracy, Trial,
};
use serde_json::Value;

use crate::breakdown::{RoleRankingRow, breakdowns};
use crate::document::{
    BlockContent, DescribeResult, DistributionSet, HeadlineMetric, ResultDocument, run_of,
};
use crate::html::breakdown::breakdowns as breakdown_bars;
use crate::html::data::{headed, row};
use crate::html::escape::{each, text};
use crate::html::sections::paragraph;
use crate::kinds::load::{trial_metrics, trials_with_parts};
use crate::kinds::path_udp::path_metrics;
use crate::metrics::{Metric, NamedItems, joined, of_items};
use crate::table::TableStyle;
use crate::table::grid::{self, GridColumn};
use crate::table::shapes::{TextBar, worst_first};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, count_of, full_count, human_ns, human_rate, percent_of, signed_ns};

impl DescribeResult for CampaignResult {
    fn document(&self) -> ResultDocument<'_> {
        let done =
            self.parts.iter().filter(|part| part.end == CampaignInstanceOutcome::Done).count();
        let interrupted = if self.interrupted { " Ended early." } else { "" };
        let sentence = format!(
            "{} roles of plan {} on {}.{interrupted}",
            self.roles.len(),
            self.plan.name,
            if self.local { "lab hosts on one host" } else { "agents" }
        );
        let merged = || each(figures(self).iter().enumerate(), merged_table);
        let plan = || format!("<pre>{}</pre>\n", text(&self.plan.text));
        let summary = sentences(self);
        ResultDocument {
            kind: "campaign",
            heading: self.plan.name.clone(),
            lead: format!("{} Started {}.", self.plan.description, self.started),
            headline: HeadlineMetric {
                name: "Parts completed".to_owned(),
                value: Some(count_of(done as u64, self.parts.len() as u64)),
                sentence,
            },
            blocks: vec![
                BlockContent::Custom(Box::new(|style| lines(self, style)), String::new()).under(""),
                BlockContent::Details(summary).under("Summary"),
                BlockContent::Markup(Box::new(merged)).under("Merged results"),
                BlockContent::Markup(Box::new(|| breakdown_bars(self))).under("Breakdown"),
                BlockContent::Distributions(distributions(self)).under("Distributions"),
                BlockContent::Markup(Box::new(|| part_table(self))).under("Parts"),
                BlockContent::Markup(Box::new(plan)).under("Plan"),
            ],
            method: METHOD,
            limits: &[],
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    /// Returns a copy, without the parts' own results if there are many: they can be a hundred
    /// times as large as the rest, so they are not even copied to be removed.
    fn embedded(&self) -> Option<Self> {
        let parts = match self.parts.len() {
            ..=PARTS_MAX => self.parts.clone(),
            _ => self.parts.iter().map(CampaignInstanceResult::without_result).collect(),
        };
        Some(self.with_instances(parts))
    }

    fn metrics() -> Vec<Metric<Self>> {
        let distribution = Metric::times("distribution", |one: &Distribution| Some(one));
        let tasks = [
            Metric::ratio("missed", |one: &CampaignTaskResult| Some([one.missed, one.periods])),
            Metric::times("start-latency", |one| one.start_latency_ns.as_ref()),
            Metric::times("response", |one| one.response_ns.as_ref()),
        ];
        let nodes = [
            Metric::ratio("missed", |one: &CampaignNodeTaskResult| Some([one.missed, one.periods])),
            Metric::times("start-latency", |one| one.start_latency_ns.as_ref()),
            Metric::times("response", |one| one.response_ns.as_ref()),
        ];
        of_items(|all| merged(all, merged_trials), trial_metrics())
            .chain(of_items(|all| merged(all, merged_path_counts), path_metrics()))
            .chain(of_items(
                |all| merged(all, merged_path_times),
                [Metric::times("rtt", |one: &Distribution| Some(one))],
            ))
            .chain(of_items(|all| merged(all, merged_tasks), tasks))
            .chain(of_items(|all| merged(all, merged_node_tasks), nodes))
            .chain(of_items(|all| merged(all, merged_distributions), [distribution]))
            .collect()
    }

    fn results(&self) -> Vec<(String, &Value)> {
        let results = self.parts.iter();
        results.filter_map(|part| Some((part.job.clone(), part.result.as_ref()?))).collect()
    }
}

/// Returns the items of one kind in the merged results of all roles.
fn merged<'a, I>(
    result: &'a CampaignResult,
    items: fn(&'a MergedResults) -> NamedItems<'a, I>,
) -> NamedItems<'a, I> {
    let of_role = |role: &'a CampaignRoleResult| {
        let items = items(&role.merged).into_iter();
        items.map(|(item, one)| (joined(&format!("role {}", role.role), &item), one))
    };
    result.roles.iter().flat_map(of_role).collect()
}

fn merged_trials(merged: &MergedResults) -> NamedItems<'_, Trial> {
    let MergedResults::Load { trials, .. } = merged else { return Vec::new() };
    trials_with_parts(trials.iter().map(|one| &one.trial))
}

fn merged_paths(
    merged: &MergedResults,
) -> Vec<(String, &PathRequestCounts, Option<&Distribution>)> {
    let MergedResults::Paths { pairs, rows } = merged else { return Vec::new() };
    let pairs = pairs.iter().map(|pair| {
        let name =
            format!("{} to {}, {} bytes", pair.from, pair.to, length(pair.length, pair.load_ratio));
        (name, &pair.counts, pair.rtt_ns.as_ref())
    });
    let rows = rows.iter().map(|row| {
        (format!("{} bytes", length(row.length, row.load_ratio)), &row.counts, row.rtt_ns.as_ref())
    });
    pairs.chain(rows).collect()
}

fn merged_path_counts(merged: &MergedResults) -> NamedItems<'_, PathRequestCounts> {
    merged_paths(merged).into_iter().map(|(name, counts, _)| (name, counts)).collect()
}

fn merged_path_times(merged: &MergedResults) -> NamedItems<'_, Distribution> {
    merged_paths(merged).into_iter().filter_map(|(name, _, times)| Some((name, times?))).collect()
}

fn merged_tasks(merged: &MergedResults) -> NamedItems<'_, CampaignTaskResult> {
    let MergedResults::Cycles { tasks, .. } = merged else { return Vec::new() };
    let name = |one: &CampaignTaskResult| {
        format!("task '{}' of {}, run {}", one.task, one.leader, one.run + 1)
    };
    tasks.iter().map(|one| (name(one), one)).collect()
}

fn merged_node_tasks(merged: &MergedResults) -> NamedItems<'_, CampaignNodeTaskResult> {
    let MergedResults::Cycles { nodes, .. } = merged else { return Vec::new() };
    let name = |one: &CampaignNodeTaskResult| {
        format!("task '{}' on {} of {}, run {}", one.task, one.node, one.leader, one.run + 1)
    };
    nodes.iter().map(|one| (name(one), one)).collect()
}

fn merged_distributions(merged: &MergedResults) -> NamedItems<'_, Distribution> {
    let MergedResults::Distributions { distributions } = merged else { return Vec::new() };
    distributions.iter().map(|one| (one.path.clone(), &one.distribution)).collect()
}

fn part_table(result: &CampaignResult) -> String {
    let start = result.start.as_ref();
    let rows = each(&result.parts, |one| {
        let (name, cells) = part(one, start);
        row(&name, cells)
    });
    let titles = (PART_TITLES[0], &PART_TITLES[1..]);
    headed(TABLE, "Parts; start: after the start time", titles, &rows)
}

/// Returns the summary, all tables and breakdowns, for a terminal.
fn lines(result: &CampaignResult, style: &TableStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for text in sentences(result) {
        lines.extend(wrapped(&text, "", "  ", style));
    }
    let start = result.start.as_ref();
    let parts = CampaignResultTable {
        caption: "Parts; start: after the start time".to_owned(),
        titles: PART_TITLES.to_vec(),
        rows: result.parts.iter().map(|one| part(one, start)).collect(),
    };
    for figures in figures(result).into_iter().chain([parts]) {
        lines.push(String::new());
        lines.extend(wrapped(&figures.caption, "", "  ", style));
        lines.extend(grid(&figures, style));
    }
    for one in breakdowns(result) {
        let [_, first, second] = one.titles;
        let bar = |row: &RoleRankingRow| {
            let [a, b] = &row.numbers;
            TextBar::plain(row.name.clone(), Some(row.size), format!("{first} {a}, {second} {b}"))
        };
        let all: Vec<_> = one.all.iter().map(bar).collect();
        let bars = worst_first(one.about.trim_end_matches('.'), &all, one.full, style);
        if !bars.is_empty() {
            lines.push(String::new());
            lines.extend(bars);
        }
    }
    lines.push(String::new());
    lines
}

/// Returns the lines of a table whose columns are as wide as their content.
fn grid(figures: &CampaignResultTable, style: &TableStyle) -> Vec<String> {
    let width = |index: usize, title: &str| {
        let cells = figures.rows.iter().filter_map(|(_, cells)| cells.get(index));
        cells.map(|cell| cell.chars().count()).chain([title.chars().count()]).max().unwrap_or(0)
    };
    let (first, rest) = figures.titles.split_first().map_or(("", &[][..]), |(a, b)| (*a, b));
    let names = figures.rows.iter().map(|(name, _)| name.chars().count());
    let name = GridColumn::left(first, names.chain([first.chars().count()]).max().unwrap_or(0));
    let columns: Vec<_> = rest
        .iter()
        .enumerate()
        .map(|(index, title)| GridColumn::right(title, width(index, title)))
        .collect();
    grid::blocks([name.clone(), name], &columns, &figures.rows, style)
}

const TABLE: &str = "parts";
/// Maximum number of lines of a plot: more cannot be distinguished.
const LINES_MAX: usize = 12;

/// Maximum number of parts whose own results are retained in the page's copy of the result.
const PARTS_MAX: usize = 16;

fn merged_table((number, figures): (usize, &CampaignResultTable)) -> String {
    let rows = each(&figures.rows, |(name, cells)| row(name, cells.clone()));
    let caption = text(&figures.caption);
    let id = format!("role-{number}");
    let (name, titles) = figures.titles.split_first().unwrap_or((&"", &[]));
    paragraph(&figures.caption) + &headed(&id, &caption, (name, titles), &rows)
}

/// Returns the first [`LINES_MAX`] merged distributions by name; relays have none.
fn distributions(result: &CampaignResult) -> DistributionSet<'_> {
    let mut all = Vec::new();
    for role in &result.roles {
        let name = &role.role;
        match &role.merged {
            MergedResults::Load { trials, .. } => all.extend(trials.iter().filter_map(|one| {
                let rate = human_rate(one.trial.intended_rate);
                Some((format!("{name}, {rate}"), one.trial.rtt_ns.as_ref()?))
            })),
            MergedResults::Paths { rows, .. } => all.extend(rows.iter().filter_map(|one| {
                Some((format!("{name}, {} bytes", one.length), one.rtt_ns.as_ref()?))
            })),
            MergedResults::Relays { .. } => {}
            MergedResults::Cycles { tasks, .. } => all.extend(tasks.iter().filter_map(|one| {
                Some((format!("{name}, {}, response", one.task), one.response_ns.as_ref()?))
            })),
            MergedResults::Distributions { distributions } => all.extend(
                distributions
                    .iter()
                    .map(|one| (format!("{name}, {}", one.path), &one.distribution)),
            ),
        }
    }
    all.truncate(LINES_MAX);
    DistributionSet {
        quantity: "",
        entries: all,
        histogram: None,
        percentiles: Some(("campaign-tail", "Time percentiles")),
        described_by: TABLE,
    }
}

/// Explanation of the figures, for a reader who did not plan the campaign.
const METHOD: &str = "All processes except services were prepared before the start \
     time and started by it. Counts are sums over all jobs; percentiles are those of all values \
     together.";

/// Table of a campaign's result: titles, and rows of name and cells; the first title is that of the
/// names.
pub(crate) struct CampaignResultTable {
    pub(crate) caption: String,
    pub(crate) titles: Vec<&'static str>,
    pub(crate) rows: Vec<(String, Vec<String>)>,
}

/// Returns the figures of all roles that have any.
fn figures(result: &CampaignResult) -> Vec<CampaignResultTable> {
    let all = result.roles.iter().flat_map(of_role);
    all.filter(|figures| !figures.rows.is_empty()).collect()
}

fn of_role(role: &CampaignRoleResult) -> Vec<CampaignResultTable> {
    let caption = |what: &str| {
        format!(
            "{} ({}): {what}, {} of {} results",
            role.role, role.kind, role.results, role.instances
        )
    };
    match &role.merged {
        MergedResults::Load { trials, .. } => {
            let row = |one: &horolog_record::CampaignTrial| {
                let trial = &one.trial;
                let mut cells = vec![
                    one.generators.to_string(),
                    human_rate(trial.achieved_rate),
                    full_count(trial.sent),
                    percent_of(trial.lost, trial.sent),
                ];
                cells.extend(times(trial.rtt_ns.as_ref()));
                (human_rate(trial.intended_rate), cells)
            };
            let titles = ["intended/s", "from", "sent/s", "requests", "loss"];
            let titles = titles.into_iter().chain(TIMES).collect();
            let rows = trials.iter().map(row).collect();
            vec![CampaignResultTable { caption: caption("trials, all generators"), titles, rows }]
        }
        MergedResults::Paths { pairs, rows } => {
            let of_all = rows.iter().map(|row| {
                let name = length(row.length, row.load_ratio);
                (name, path_cells(row.paths.to_string(), &row.counts, row.rtt_ns.as_ref()))
            });
            let of_pairs = pairs.iter().map(|pair| {
                let name = format!("{} to {}", pair.from, pair.to);
                let length = length(pair.length, pair.load_ratio);
                (name, path_cells(length, &pair.counts, pair.rtt_ns.as_ref()))
            });
            let titles = |first, second| {
                let own = [first, second, "requests", "loss", "reordered"];
                own.into_iter().chain(TIMES).collect()
            };
            vec![
                CampaignResultTable {
                    caption: caption("all paths"),
                    titles: titles("bytes", "paths"),
                    rows: of_all.collect(),
                },
                CampaignResultTable {
                    caption: caption("each path"),
                    titles: titles("path", "bytes"),
                    rows: of_pairs.collect(),
                },
            ]
        }
        MergedResults::Relays { relays, .. } => {
            let titles = vec!["relay", "received", "refused", "to", "sent", "dropped", "delivered"];
            let rows = relays.iter().flat_map(of_relay).collect();
            vec![CampaignResultTable { caption: caption("by child"), titles, rows }]
        }
        MergedResults::Cycles { tasks, nodes } => {
            vec![of_tasks(caption("all nodes"), tasks), of_nodes(caption("each node"), nodes)]
        }
        MergedResults::Distributions { distributions } => {
            let row = |one: &horolog_record::MergedDistribution| {
                let mut cells = vec![one.results.to_string(), full_count(one.distribution.count)];
                cells.extend(times(Some(&one.distribution)));
                (one.path.clone(), cells)
            };
            let titles = ["path", "from", "values"].into_iter().chain(TIMES).collect();
            let rows = distributions.iter().map(row).collect();
            vec![CampaignResultTable { caption: caption("merged distributions"), titles, rows }]
        }
    }
}

fn of_tasks(caption: String, tasks: &[CampaignTaskResult]) -> CampaignResultTable {
    let row = |one: &CampaignTaskResult| {
        let skew = format!("{} \u{b1} {}", human_ns(one.skew_ns), human_ns(one.skew_error_ns));
        let mut cells = vec![
            format!("{}, run {}", one.leader, one.run + 1),
            one.nodes.to_string(),
            full_count(one.periods),
            full_count(one.missed),
            skew,
            one.span_ns.map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64)),
        ];
        cells.extend(times(one.response_ns.as_ref()));
        (one.task.clone(), cells)
    };
    let titles = ["task", "run", "nodes", "periods", "missed", "skew", "span"];
    let titles = titles.into_iter().chain(TIMES).collect();
    CampaignResultTable { caption, titles, rows: tasks.iter().map(row).collect() }
}

fn of_nodes(caption: String, nodes: &[CampaignNodeTaskResult]) -> CampaignResultTable {
    let row = |one: &CampaignNodeTaskResult| {
        let p99 = |times: Option<&Distribution>| {
            times.map_or_else(|| ABSENT.to_owned(), |times| human_ns(times.p99))
        };
        let count = |count: Option<u64>| count.map_or_else(|| ABSENT.to_owned(), full_count);
        let cells = vec![
            one.agent.clone().unwrap_or_else(|| ABSENT.to_owned()),
            one.task.clone(),
            full_count(one.periods),
            full_count(one.missed),
            count(one.straggler_periods),
            one.ahead_ns.map_or_else(|| ABSENT.to_owned(), signed_ns),
            p99(one.start_latency_ns.as_ref()),
            p99(one.response_ns.as_ref()),
        ];
        (one.node.clone(), cells)
    };
    let titles = vec![
        "node",
        "agent",
        "task",
        "periods",
        "missed",
        "straggler",
        "clock",
        "start p99",
        "resp p99",
    ];
    CampaignResultTable { caption, titles, rows: nodes.iter().map(row).collect() }
}

const TIMES: [&str; 4] = ["p50", "p99", "p99.9", "max"];

fn times(distribution: Option<&Distribution>) -> [String; 4] {
    let shown = |one: &Distribution| [one.p50, one.p99, one.p99_9, one.max].map(human_ns);
    distribution.map_or_else(|| [ABSENT; 4].map(str::to_owned), shown)
}

/// Formats a length in bytes, with R if there is load.
pub(crate) fn length(length: u64, load_ratio: f64) -> String {
    if load_ratio > 0.0 { format!("{length}, R {load_ratio}") } else { length.to_string() }
}

fn path_cells(
    first: String,
    counts: &PathRequestCounts,
    rtt: Option<&Distribution>,
) -> Vec<String> {
    let mut cells = vec![
        first,
        full_count(counts.sent),
        percent_of(counts.lost, counts.sent),
        percent_of(counts.reordered, counts.received),
    ];
    cells.extend(times(rtt));
    cells
}

/// Returns a row for each child of a relay, or one if it has none.
fn of_relay(relay: &CampaignRelayCounts) -> Vec<(String, Vec<String>)> {
    let sum = |counts: &std::collections::BTreeMap<String, u64>| {
        full_count(counts.values().fold(0, |sum, count| sum.saturating_add(*count)))
    };
    let name = format!("{} on {}", relay.job, relay.agent);
    let own = [full_count(relay.packets), sum(&relay.refused)];
    if relay.children.is_empty() {
        let none = [ABSENT; 4].map(str::to_owned);
        return vec![(name, own.into_iter().chain(none).collect())];
    }
    let child = |child: &horolog_record::CampaignRelayChildCounts| {
        let to = child.job.clone().unwrap_or_else(|| child.address.to_string());
        let received = child.received.map_or_else(|| ABSENT.to_owned(), full_count);
        let cells = [to, full_count(child.sent), sum(&child.dropped), received];
        (name.clone(), own.iter().cloned().chain(cells).collect())
    };
    relay.children.iter().map(child).collect()
}

/// Titles of [`part`]'s cells.
const PART_TITLES: [&str; 6] = ["part", "kind", "agent", "address", "end", "start"];

/// Returns the row of a part: its name, and a cell for each further one of [`PART_TITLES`].
fn part(part: &CampaignInstanceResult, start: Option<&StartAccuracy>) -> (String, Vec<String>) {
    let late = part.started_ns.zip(start).filter(|_| !part.service).map(|(at_ns, start)| {
        let ahead_ns = part.clock.as_ref().map_or(0, |clock| clock.offset_ns);
        signed_ns(at_ns.saturating_sub(ahead_ns).saturating_sub(start.instant_ns))
    });
    let before = if part.service { "before" } else { ABSENT };
    let end = match (part.end, part.status) {
        (CampaignInstanceOutcome::Done, Some(status @ 1..)) => format!("done ({status})"),
        (CampaignInstanceOutcome::Failed, Some(status)) => format!("failed ({status})"),
        (end, _) => end_name(end).to_owned(),
    };
    let cells = vec![
        part.kind.clone(),
        part.agent.clone(),
        part.address.to_string(),
        end,
        late.unwrap_or_else(|| before.to_owned()),
    ];
    (part.job.clone(), cells)
}

const fn end_name(end: CampaignInstanceOutcome) -> &'static str {
    match end {
        CampaignInstanceOutcome::Done => "done",
        CampaignInstanceOutcome::Failed => "failed",
        CampaignInstanceOutcome::Signalled => "signalled",
        CampaignInstanceOutcome::TimedOut => "timed out",
        CampaignInstanceOutcome::Abandoned => "abandoned",
        CampaignInstanceOutcome::Refused => "not started",
        CampaignInstanceOutcome::Interrupted => "interrupted",
        CampaignInstanceOutcome::Lost => "lost",
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", full_count(count), if count == 1 { one } else { many })
}

/// Returns sentences on agents that were not used and on results and messages that are in no
/// figure.
fn delivered(delivery: &CampaignExclusions) -> Vec<String> {
    let unusable = delivery.unusable.iter();
    let unusable: Vec<_> =
        unusable.map(|one| format!("Agent {} not used: {}.", one.agent, one.reason)).collect();
    let left = [
        (delivery.duplicate_outcomes, "duplicate result", "duplicate results"),
        (delivery.unexpected_reports, "unexpected report", "unexpected reports"),
        (delivery.unreadable_messages, "unreadable message", "unreadable messages"),
    ];
    let left = left.iter().filter(|(count, ..)| *count > 0);
    let left: Vec<_> = left.map(|(count, one, many)| counted(*count, one, many)).collect();
    let left = (!left.is_empty()).then(|| format!("Not counted: {}.", left.join(", ")));
    unusable.into_iter().chain(left).collect()
}

/// Returns a sentence on the rate up to which servers replied and on what limited it; `None` if the
/// role is no load or its capacity is unknown.
fn up_to(role: &CampaignRoleResult) -> Option<String> {
    let MergedResults::Load { capacity: Some(capacity), .. } = &role.merged else { return None };
    let lost = |share: f64| format!("{}%", (share * 1e4).round() / 1e2);
    let answered = match capacity.answered_rate {
        Some(rate) => format!("up to {} answered", human_rate(rate)),
        None => "first rate not answered".to_owned(),
    };
    let gave_way = match capacity.limit {
        None => "no limit reached, so it is above the intended rates".to_owned(),
        Some(LimitingRate {
            limited_by: LimitingSide::Servers,
            intended_rate: planned_rate,
            loss,
            ..
        }) => {
            format!("at {} loss was {}", human_rate(planned_rate), lost(loss))
        }
        Some(LimitingRate { intended_rate: planned_rate, sent_rate, .. }) => format!(
            "of {} the generators sent only {}, so they were the limit",
            human_rate(planned_rate),
            human_rate(sent_rate)
        ),
    };
    let max = lost(capacity.loss_max);
    Some(format!("{}: {answered} with at most {max} loss; {gave_way}.", role.role))
}

/// Returns sentences on the plan and its parameters, the capacities, what was not counted, and the
/// start latency.
fn sentences(result: &CampaignResult) -> Vec<String> {
    let agents: std::collections::BTreeSet<_> =
        result.parts.iter().map(|part| part.agent.as_str()).collect();
    let host_kind = if result.local { "lab hosts on one host" } else { "agents" };
    let mut sentences = vec![format!(
        "Plan {}: {} on {} {host_kind}.",
        result.plan.name,
        counted(result.parts.len() as u64, "part", "parts"),
        agents.len()
    )];
    if !result.plan.parameters.is_empty() {
        let values = result.plan.parameters.iter();
        let values: Vec<_> = values.map(|(name, value)| format!("{name} = {value}")).collect();
        sentences.push(format!("Parameters: {}.", values.join(", ")));
    }
    sentences.extend(result.roles.iter().filter_map(up_to));
    sentences.extend(result.delivery.iter().flat_map(delivered));
    let Some(start) = &result.start else { return sentences };
    let late = &start.late_ns;
    let error = match start.clock_error_ns {
        Some(0) => "one clock".to_owned(),
        Some(error) => format!("clock error ±{}", human_ns(error)),
        None => "clock error unknown".to_owned(),
    };
    sentences.push(format!(
        "Start latency of {}: p50 {}, p99 {}, max {}; {} from first to last, {error}.",
        counted(late.count, "process", "processes"),
        signed_ns(late.p50),
        signed_ns(late.p99),
        signed_ns(late.max),
        human_ns(start.spread_ns)
    ));
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn a_narrow_terminal_has_the_rest_below() {
        let style = TableStyle { colour: false, width: 60 };
        let text = fixture::sample::<CampaignResult>("campaign").text(&style);
        assert!(text.contains("p99.9") && text.contains("load.2"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn of_many_rows_the_worst_are_drawn() {
        let mut result: CampaignResult = fixture::sample("campaign");
        for role in &mut result.roles {
            if let horolog_record::MergedResults::Paths { pairs, .. } = &mut role.merged {
                let pair = pairs[0].clone();
                pairs.extend((0..20).map(|at| {
                    let mut pair = pair.clone();
                    pair.from = format!("m{at}");
                    pair.rtt_ns.as_mut().unwrap().p99 = 1_000_000 * (at + 1);
                    pair
                }));
            }
        }
        let text = result.text(&TableStyle { colour: false, width: 80 });
        let first = text.split("round trip at 64 bytes, p99:\n").nth(1).unwrap();
        assert!(first.starts_with("  m19 to n2 |####"), "{text}");
        assert!(first.contains("\n  and 6 more were better\n"), "{text}");
    }

    #[test]
    fn the_results_of_many_parts_are_left_to_the_file() {
        let mut result: CampaignResult = fixture::sample("campaign");
        result.parts[0].result = Some(serde_json::json!({ "schema": "of a part" }));
        assert!(result.page().contains("of a part"));
        result.parts = vec![result.parts[0].clone(); PARTS_MAX + 1];
        assert!(!result.page().contains("of a part"));
    }

    #[test]
    fn all_is_shown_and_no_text_becomes_markup() {
        let mut result: CampaignResult = fixture::sample("campaign");
        result.plan.text = "name = \"<script>\"".to_owned();
        result.parts[0].agent = "<img src=x>".to_owned();
        let page = result.page();
        let main = main_of(&page);
        assert!(!main.contains("<script>") && !main.contains("<img"), "{main}");
        for shown in
            ["&lt;script&gt;", "&lt;img src=x&gt;", "load.2", "trials, all generators", "by child"]
        {
            assert!(main.contains(shown), "{shown}");
        }
        for first in ["intended/s", "relay", "part"] {
            let head = format!("<thead><tr><th scope=\"col\" class=\"words\">{first}</th>");
            assert!(main.contains(&head), "{first}");
        }
        assert!(!main.contains("<td></td>"), "a column without a title");
    }
}
