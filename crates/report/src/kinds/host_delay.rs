//! Document of a result of `horolog host delay`: for each setting the overshoot by function and
//! requested delay, waits under signals, and the tested claims.

use horolog_record::{
    DelayClaimVerdict, DelayMeasurement, DelaySetting, Distribution, HostDelayResult,
    InterruptedDelay, InterruptedSleepStrategy, SchedulingPolicy, TestedDelayClaim,
    TimerSlackSetting, WaitFunction,
};

use super::host_all::{delay, nanosleep};
use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NameColumn, NamedRow, NamedRowTable,
    ResultDocument, RunFacts, run_of,
};
use crate::html::data;
use crate::html::escape::{each, text};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotView, PlotViews};
use crate::html::sections::paragraph;
use crate::metrics::{Metric, NamedItems, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridColumn};
use crate::table::shapes::{SparklineGroup, SparklineRow, SparklineScale, SparklineUnit};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, full_count, human_ns, mean_ns, percent, sentence};

const METHOD: &str = "Overshoot: end of a wait minus its requested end, by CLOCK_MONOTONIC. \
                      Functions with a resolution of seconds or milliseconds have no shorter \
                      delays. Long delays have few waits. p99 and max: worst over all delays.";

/// Explanation of why functions differ: timer slack.
const SLACK: &str = "Timer slack: select, poll and epoll allow 0.1% of the delay, at most 100 ms, \
                     or the timer slack if larger; sleep, usleep and nanosleep the timer slack; \
                     alarm, timerfd, io_uring and real-time threads none.";

const CLAIMS: &str = "Claims about clocks and delays";

/// Element `id` of the table of all cells.
const TABLE: &str = "figures";
const TITLES: [&str; 9] = ["requested", "waits", "early", "min", "p50", "p90", "p99", "max", "CPU"];
const INTERRUPTED_TITLES: [&str; 5] = ["requested", "duration", "signals", "calls", "CPU"];

const NAME_WIDTH: usize = 25;
const CELL_WIDTH: usize = 8;
const SIGNALS_WIDTH: usize = 10;
/// Titles of the columns with the worst values over all delays, after those of single delays.
const WORST: [&str; 2] = ["p99", "max"];

impl DescribeResult for HostDelayResult {
    fn document(&self) -> ResultDocument<'_> {
        let late = nanosleep(self).and_then(|cell| cell.overshoot_ns.as_ref());
        let plots = [
            plot(self, "median", "Median overshoot", |one| one.p50),
            plot(self, "tail", "99th percentile of the overshoot", |one| one.p99),
        ];
        let plots = plots.map(|plot| BlockContent::Plot(plot, String::new()).under("Overshoot"));
        let settings = BlockContent::Custom(Box::new(|style| settings(self, style)), cells(self));
        let claims = BlockContent::Custom(Box::new(|style| claims(self, style)), claim_list(self));
        let mut blocks = Vec::from(plots);
        blocks.push(settings.under("Statistics"));
        let explanations = [METHOD, SLACK].map(str::to_owned).to_vec();
        blocks.push(BlockContent::Introduction(explanations).under("Statistics"));
        if !self.interrupted.is_empty() {
            blocks.push(BlockContent::Table(signals(self)).under("Interrupted by signals"));
        }
        blocks.extend([claims.under(CLAIMS), BlockContent::PageNote(METHOD).under("")]);
        ResultDocument {
            kind: "host delay",
            heading: "delays of this host".to_owned(),
            lead: format!("{} settings, started {}", self.settings.len(), self.started),
            headline: HeadlineMetric {
                name: "nanosleep overshoot, p99".to_owned(),
                value: late.map(|late| human_ns(late.p99)),
                sentence: late.map_or_else(String::new, |_| sentence(&delay(self))),
            },
            blocks,
            method: "",
            limits: &self.limits,
            findings: &self.findings,
            run: RunFacts {
                after: vec![
                    ("HZ", self.tick.hz.map(|hz| hz.to_string())),
                    ("Measurement overhead", Some(human_ns(self.own_cost_ns))),
                ],
                ..run_of!(self)
            },
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let overshoot =
            Metric::times("overshoot", |cell: &DelayMeasurement| cell.overshoot_ns.as_ref());
        of_items(measured_cells, overshoot.with_statistics("")).collect()
    }
}

judged_by_fields!(HostDelayResult);

/// Returns the measured waits: an impossible one has no value and fails no limit.
fn measured_cells(result: &HostDelayResult) -> NamedItems<'_, DelayMeasurement> {
    let name = |cell: &DelayMeasurement| {
        let setting = result.settings.get(cell.setting).map_or("", setting_name);
        format!("{} of {}, {setting}", cell.function.name(), human_ns(cell.requested_ns))
    };
    let measured = result.cells.iter().filter(|cell| cell.overshoot_ns.is_some());
    measured.map(|cell| (name(cell), cell)).collect()
}

/// Returns the name of a setting.
#[must_use]
pub const fn setting_name(setting: &DelaySetting) -> &'static str {
    match (setting.policy, setting.slack) {
        (SchedulingPolicy::Other, TimerSlackSetting::Default) => "SCHED_OTHER, default slack",
        (SchedulingPolicy::Other, TimerSlackSetting::Minimal) => "SCHED_OTHER, minimal slack",
        (SchedulingPolicy::Fifo, TimerSlackSetting::Default) => "SCHED_FIFO, default slack",
        (SchedulingPolicy::Fifo, TimerSlackSetting::Minimal) => "SCHED_FIFO, minimal slack",
    }
}

/// Returns true if a delay was measured under the setting; an interrupted run may have none.
fn is_measured(result: &HostDelayResult, setting: usize) -> bool {
    cells_of(result, setting).any(|cell| cell.overshoot_ns.is_some())
}

/// Returns the setting in words, with its timer slack or the reason why it was not measured.
fn setting(result: &HostDelayResult, index: usize) -> String {
    let setting = &result.settings[index];
    let name = setting_name(setting);
    if setting.error.is_none() && !is_measured(result, index) {
        return format!("{name}: not measured");
    }
    let slack = setting.slack_ns.map(human_ns);
    match (&setting.error, slack, setting.policy) {
        (Some(error), ..) => format!("{name}: not measured ({error})"),
        (None, _, SchedulingPolicy::Fifo) => format!("{name} (the kernel applies none)"),
        (None, Some(slack), _) => format!("{name} ({slack})"),
        (None, None, _) => name.to_owned(),
    }
}

/// Returns the measurements under a setting, given by its index.
fn cells_of(
    result: &HostDelayResult,
    setting: usize,
) -> impl Iterator<Item = &DelayMeasurement> + Clone {
    result.cells.iter().filter(move |cell| cell.setting == setting)
}

/// Returns the measurement of a function at a delay in ns under a setting.
fn cell_at(
    result: &HostDelayResult,
    setting: usize,
    function: WaitFunction,
    requested_ns: u64,
) -> Option<&DelayMeasurement> {
    cells_of(result, setting)
        .find(|cell| cell.function == function && cell.requested_ns == requested_ns)
}

/// Returns the requested delays in ascending order, in ns.
fn delays(result: &HostDelayResult) -> Vec<u64> {
    let mut delays: Vec<_> = result.cells.iter().map(|cell| cell.requested_ns).collect();
    delays.sort_unstable();
    delays.dedup();
    delays
}

/// Returns for each setting a table of the overshoots, and sparklines, for a terminal.
fn settings(result: &HostDelayResult, style: &TableStyle) -> Vec<String> {
    let lines = |index| {
        let mut lines = vec![CellTone::Strong.paint(&setting(result, index), style.colour)];
        if is_measured(result, index) {
            lines.extend(overshoots(result, index, style));
            lines.extend(tails(result, index, style));
        }
        lines.push(String::new());
        lines
    };
    (0..result.settings.len()).flat_map(lines).collect()
}

/// Returns a row for each function: the median at as many delays as fit (at least two), and the
/// worst p99 and maximum of all delays.
fn overshoots(result: &HostDelayResult, index: usize, style: &TableStyle) -> Vec<String> {
    let mut delays = delays(result);
    let room = style.width.saturating_sub(NAME_WIDTH + WORST.len() * (CELL_WIDTH + 1));
    delays.truncate((room / (CELL_WIDTH + 1)).max(2));
    let titles = delays.iter().map(|delay| human_ns(*delay).replace(".00", "").replace(".0", ""));
    let titles: Vec<_> = titles.chain(WORST.map(str::to_owned)).collect();
    let row = |function: &WaitFunction| {
        let of_function = cells_of(result, index).filter(|cell| cell.function == *function);
        let overshoots = of_function.clone().filter_map(|cell| cell.overshoot_ns.as_ref());
        let median = |delay: &u64| {
            let cell = cell_at(result, index, *function, *delay)?;
            Some(cell.overshoot_ns.as_ref()?.p50)
        };
        let worst =
            [overshoots.clone().map(|one| one.p99).max(), overshoots.map(|one| one.max).max()];
        let figures = delays.iter().map(median).chain(worst).map(figure).collect();
        of_function.clone().next().map(|_| (function.name().to_owned(), figures))
    };
    let names = [("median overshoot at", NAME_WIDTH), ("median at", 14)];
    let names = names.map(|(title, width)| GridColumn::left(title, width));
    let columns: Vec<_> = titles.iter().map(|title| GridColumn::right(title, CELL_WIDTH)).collect();
    let rows: Vec<_> = WaitFunction::ALL.iter().filter_map(row).collect();
    grid::blocks(names, &columns, &rows, style)
}

/// Returns sparklines of the 99th percentile over the requested delay, one per function.
fn tails(result: &HostDelayResult, index: usize, style: &TableStyle) -> Vec<String> {
    let delays = delays(result);
    let row = |function: &WaitFunction| {
        let tail = |delay: &u64| {
            let cell = cell_at(result, index, *function, *delay)?;
            Some(cell.overshoot_ns.as_ref()?.p99 as f64)
        };
        SparklineRow::in_order(
            function.name().to_owned(),
            delays.iter().map(tail),
            SparklineScale::Log,
            SparklineUnit::Time,
        )
    };
    let (Some(first), Some(last)) = (delays.first(), delays.last()) else { return Vec::new() };
    let title = format!("p99 by requested delay, {} to {}", human_ns(*first), human_ns(*last));
    let rows = WaitFunction::ALL.iter().map(row).collect();
    SparklineGroup::in_order(title, delays.len(), rows).lines(style)
}

fn figure(ns: Option<u64>) -> String {
    ns.map_or_else(|| ABSENT.to_owned(), human_ns)
}

fn plot(
    result: &HostDelayResult,
    id: &'static str,
    title: &'static str,
    of: fn(&Distribution) -> u64,
) -> Plot {
    let view = |index: usize| {
        let line = |function: WaitFunction| {
            let cells = cells_of(result, index).filter(|cell| cell.function == function);
            // A logarithmic axis has no position for values that are not positive.
            let point = |cell: &DelayMeasurement| {
                Some((cell.requested_ns as f64, of(cell.overshoot_ns.as_ref()?).max(1) as f64))
            };
            PlotSeries::new(function.name().to_owned(), cells.filter_map(point).collect())
        };
        let series = WaitFunction::ALL.into_iter().map(line);
        PlotView {
            label: setting_name(&result.settings[index]).into(),
            series: series.filter(|series| !series.points.is_empty()).collect(),
        }
    };
    let measured = (0..result.settings.len()).filter(|at| is_measured(result, *at));
    let axis = |label, short| PlotAxis { label, short, unit: PlotUnit::Ns, scale: AxisScale::Log };
    Plot {
        id,
        title,
        hint: SLACK,
        described_by: TABLE,
        x: axis("requested delay", "requested"),
        y: axis("overshoot", "overshoot"),
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews { chooser: "Setting", view: 0, views: measured.map(view).collect() },
    }
}

/// Returns the table of all cells, grouped by setting, for a page.
fn cells(result: &HostDelayResult) -> String {
    let rows = each(0..result.settings.len(), |index| {
        let head = format!(
            "<tr><th scope=\"rowgroup\" class=\"words\" colspan=\"{}\">{}</th></tr>\n",
            TITLES.len() + 1,
            text(&setting(result, index))
        );
        let row = |cell: &DelayMeasurement| data::row(cell.function.name(), cell_texts(cell));
        head + &each(cells_of(result, index), row)
    });
    data::table(TABLE, "Overshoots", &TITLES, &rows)
}

/// Returns the texts of a cell, in the order of [`TITLES`].
fn cell_texts(cell: &DelayMeasurement) -> [String; 9] {
    let of = |of: fn(&Distribution) -> u64| figure(cell.overshoot_ns.as_ref().map(of));
    [
        human_ns(cell.requested_ns),
        full_count(cell.overshoot_ns.as_ref().map_or(0, |one| one.count)),
        full_count(cell.early),
        of(|one| one.min),
        of(|one| one.p50),
        of(|one| one.p90),
        of(|one| one.p99),
        of(|one| one.max),
        cell.error.clone().or_else(|| cell.processor_ns.map(mean_ns)).unwrap_or(ABSENT.to_owned()),
    ]
}

fn signals(result: &HostDelayResult) -> NamedRowTable {
    let row = |one: &InterruptedDelay| NamedRow::new(resumption(one.resumption), interrupted(one));
    NamedRowTable {
        id: "signals",
        label: "nanosleep under signals",
        names: NameColumn::words("nanosleep under signals", NAME_WIDTH),
        columns: INTERRUPTED_TITLES.map(|title| (title.into(), SIGNALS_WIDTH)).to_vec(),
        rows: result.interrupted.iter().map(row).collect(),
    }
}

/// Returns the program's resumption after an interruption, in words.
const fn resumption(resumption: InterruptedSleepStrategy) -> &'static str {
    match resumption {
        InterruptedSleepStrategy::None => "not resumed",
        InterruptedSleepStrategy::Remaining => "resumed for the rest",
        InterruptedSleepStrategy::Absolute => "until the same time",
        InterruptedSleepStrategy::Again => "restarted",
    }
}

/// Returns the cells of an interrupted delay, in the order of [`INTERRUPTED_TITLES`].
fn interrupted(delay: &InterruptedDelay) -> [String; 5] {
    let share = delay.processor_ns as f64 / delay.duration_ns.max(1) as f64;
    let took = human_ns(delay.duration_ns);
    [
        human_ns(delay.requested_ns),
        if delay.ended { took } else { format!(">{took}") },
        full_count(delay.interruptions),
        full_count(delay.calls),
        percent(share),
    ]
}

/// Returns the claims with their verdicts for a terminal; nothing if none was tested.
fn claims(result: &HostDelayResult, style: &TableStyle) -> Vec<String> {
    if result.claims.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), CellTone::Strong.paint(CLAIMS, style.colour)];
    for TestedDelayClaim { statement, verdict, evidence, .. } in &result.claims {
        let (mark, word) = verdict_words(*verdict);
        let text = match verdict {
            DelayClaimVerdict::Elsewhere => format!("{statement} {evidence}"),
            _ => format!("{statement} → {word}: {evidence}"),
        };
        lines.extend(wrapped(&text, &format!("  {mark} "), "    ", style));
    }
    lines.extend(wrapped(&tally(result), "  ", "    ", style));
    lines
}

/// Returns the claims with their verdicts for a page; nothing if none was tested.
fn claim_list(result: &HostDelayResult) -> String {
    if result.claims.is_empty() {
        return String::new();
    }
    let items = each(&result.claims, |claim| {
        let class = if claim.verdict == DelayClaimVerdict::Fails { "warning" } else { "note" };
        format!(
            "<li class=\"{class}\"><span class=\"severity\">{}</span><p>{}</p>\
             <p class=\"advice\">{}</p></li>\n",
            verdict_words(claim.verdict).1,
            text(&claim.statement),
            text(&claim.evidence)
        )
    });
    format!("{}<ul class=\"findings\">\n{items}</ul>\n", paragraph(&tally(result)))
}

/// Returns a verdict as a character and in words.
const fn verdict_words(verdict: DelayClaimVerdict) -> (char, &'static str) {
    match verdict {
        DelayClaimVerdict::Holds => ('+', "holds"),
        DelayClaimVerdict::Fails => ('-', "does not hold"),
        DelayClaimVerdict::NotMeasured => ('?', "not measured"),
        DelayClaimVerdict::Elsewhere => ('>', "see"),
    }
}

/// Returns a sentence with the number of claims by verdict.
fn tally(result: &HostDelayResult) -> String {
    let count = |verdict| result.claims.iter().filter(|claim| claim.verdict == verdict).count();
    format!(
        "{} hold, {} do not, {} not measured, {} covered by other commands.",
        count(DelayClaimVerdict::Holds),
        count(DelayClaimVerdict::Fails),
        count(DelayClaimVerdict::NotMeasured),
        count(DelayClaimVerdict::Elsewhere)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn a_setting_that_was_not_reached_has_no_table() {
        let mut result: HostDelayResult = fixture::sample("host_delay");
        result.cells.retain(|cell| cell.setting == 0);
        let text = result.text(&TableStyle { colour: false, width: 100 });
        assert!(text.contains("SCHED_OTHER, minimal slack: not measured\n\n"), "{text}");
        assert_eq!(text.matches("median overshoot at").count(), 1);
    }

    #[test]
    fn a_narrow_terminal_keeps_the_worst() {
        let text = fixture::sample::<HostDelayResult>("host_delay")
            .text(&TableStyle { colour: false, width: 50 });
        assert!(text.contains("\nmedian at          1 µs   100 µs      p99      max\n"), "{text}");
    }

    #[test]
    fn a_delay_that_was_not_measured_is_a_gap_and_one_is_no_series() {
        let mut result: HostDelayResult = fixture::sample("host_delay");
        let is_gap = |one: &DelayMeasurement| {
            one.function == WaitFunction::Nanosleep && one.requested_ns == 100_000
        };
        for cell in result.cells.iter_mut().filter(|cell| is_gap(cell)) {
            cell.overshoot_ns = None;
        }
        let text = result.text(&TableStyle { colour: false, width: 100 });
        assert!(text.contains("\n  nanosleep |_ _#| 92.2 µs to 259 µs\n"), "{text}");
        result.cells.retain(|cell| cell.requested_ns == 1_000);
        assert!(!result.text(&TableStyle::default()).contains("p99 by"));
    }
}
