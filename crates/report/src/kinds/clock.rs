//! Document of a result of `horolog clock simulate`: errors of both discipline methods, outages,
//! Allan deviations and counts.

use std::collections::BTreeMap;

use horolog_record::{
    AllanDeviation, ClockErrorRange, ClockSimulateResult, DisciplineMethod, DisciplineResult,
    LimitUnit, PulseOutageResult,
};

use super::clock_compare::OFFSET_STATISTICS;
use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NamedFacts, ResultDocument, RunFacts, run_of,
};
use crate::html::data::{row, table};
use crate::html::escape::each;
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotUnit, PlotViews};
use crate::html::sections::paragraph;
use crate::html::stability::{allan_plot, allan_table, allan_text};
use crate::html::time_series::TimeSeriesDrawingLimits;
use crate::metrics::{Metric, MetricValue, NamedItems, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::table::grid::{self, GridColumn};
use crate::table::shapes::{
    SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, allan as allan_lines,
};
use crate::units::{
    ABSENT, figure_texts, full_count, human_ns, long_time, mean_ns, percent, seconds,
};

/// Titles of the columns on a terminal in descending order of importance, each with its index in
/// [`figure_texts`].
const COLUMNS: [(&str, usize); 10] = [
    ("deviation", 1),
    ("mean", 0),
    ("max", 9),
    ("min", 3),
    ("RMS", 2),
    ("p50", 6),
    ("p99", 8),
    ("p1", 4),
    ("p95", 7),
    ("p5", 5),
];
const NAME_WIDTH: usize = 17;
const CELL_WIDTH: usize = 9;

/// Distance from 0 up to which the scale of the plot is linear, in ns.
const KNEE_NS: f64 = 100.0;

const STABILITY: &str = "Overlapping, of the clock's error in service (NIST SP 1065). Slope −1 \
                         where the clock follows the pulses.";

/// Accuracies stated in the literature, and the reason why they are not directly comparable.
const LITERATURE: &str = "For reference: Liu, Wu and Wang 2020 measured a mean of \
                                     16.5 µs, a standard deviation of 6.93 µs and an RMS of 17.9 \
                                     µs on their server with a time analyser over a cable. These \
                                     include network and software, so they are not comparable \
                                     with a simulation.";

const METHOD: &str = "Errors are relative to true time, sampled at a random point in \
                                     each second, from the first lock of the servo on, \
                                     excluding outages and the minute after each. Recovery: the \
                                     error stays within 1 µs for a minute.";

impl DescribeResult for ClockSimulateResult {
    fn document(&self) -> ResultDocument<'_> {
        let error_rows = |style: &TableStyle| errors(self, style);
        let outages = self.methods.iter().flat_map(|method| {
            method.outages.iter().map(|one| outage(method, one, self.duration_s))
        });
        let first = self.methods.iter().find_map(|one| Some((one, one.error_ns.as_ref()?)));
        let name = first.map_or_else(
            || "Clock error".to_owned(),
            |(method, _)| format!("Clock error, {}, RMS", method_name(method.kind)),
        );
        let deviations = self.methods.iter().map(deviations).collect();
        ResultDocument {
            kind: "clock simulate",
            heading: format!("{}, {}", self.oscillator.name, long_time(self.duration_s)),
            lead: format!("Seed {}: {}", self.seed, conditions(self)),
            headline: HeadlineMetric {
                name,
                value: first.map(|(_, error)| mean_ns(error.rms)),
                sentence: lock_sentence(self),
            },
            blocks: vec![
                BlockContent::Title(title(self)).under(""),
                BlockContent::Introduction(vec![conditions(self)]).under(""),
                BlockContent::Custom(Box::new(error_rows), error_table(self)).under("Error"),
                BlockContent::Shape(Box::new(|style| shapes(self, style))).under("Error"),
                BlockContent::Plot(over_time(self), String::new()).under("Over time"),
                BlockContent::Plot(allan_plot(STABILITY, &stability(self)), String::new())
                    .under("Over time"),
                BlockContent::Remarks(outages.collect()).under("Outages"),
                BlockContent::Introduction(deviations).under(""),
                BlockContent::Remarks(counts(self)).under("Pulses and sentences"),
                BlockContent::Markup(Box::new(|| allan_table(&stability(self))))
                    .under("Allan deviation"),
                BlockContent::Introduction(vec![LITERATURE.to_owned()]).under(""),
            ],
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: RunFacts {
                heading: "Simulation and host",
                after: vec![(
                    "Clock",
                    Some(if self.steered { "steered" } else { "estimated only" }.to_owned()),
                )],
                other_lists: vec![oscillator(self)],
                ..run_of!(self)
            },
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        // Of the servo, the first method.
        let errors = OFFSET_STATISTICS.map(|(name, statistic)| {
            Metric::new(name, LimitUnit::Ns, move |result: &Self| {
                let servo = result.methods.iter().take(1);
                let error = servo.map(|method| method.error_ns.as_ref().and_then(statistic));
                error.map(|error| (String::new(), error)).collect()
            })
        });
        let recovery = Metric::number("recovery", LimitUnit::Ns, |outage: &PulseOutageResult| {
            Some(outage.recovered_after_s? as f64 * 1e9)
        });
        let compared = Metric::value("error-rms", |method: &DisciplineResult| {
            MetricValue::attempt(method.error_ns.as_ref().map(|error| error.rms))
        });
        let servo_outages = of_items(servo_outages, [recovery]);
        errors.into_iter().chain(servo_outages).chain(of_items(methods, [compared])).collect()
    }
}

judged_by_fields!(ClockSimulateResult);

fn servo_outages(result: &ClockSimulateResult) -> NamedItems<'_, PulseOutageResult> {
    let outages = result.methods.iter().take(1).flat_map(|method| &method.outages);
    outages.map(|one| (format!("the outage {} s after the start", one.begin_s), one)).collect()
}

fn methods(result: &ClockSimulateResult) -> NamedItems<'_, DisciplineResult> {
    result.methods.iter().map(|one| (method_name(one.kind).to_owned(), one)).collect()
}

fn title(result: &ClockSimulateResult) -> String {
    let lock = result.locked_after_s.map_or_else(
        || "never locked".to_owned(),
        |seconds| format!("locked after {}", long_time(seconds)),
    );
    format!(
        "{}, {} simulated, seed {}: {lock}",
        result.oscillator.name,
        long_time(result.duration_s),
        result.seed
    )
}

fn lock_sentence(result: &ClockSimulateResult) -> String {
    result.locked_after_s.map_or_else(
        || "The servo never locked.".to_owned(),
        |seconds| format!("The servo locked after {}.", long_time(seconds)),
    )
}

/// Returns the properties of the oscillator.
fn oscillator(result: &ClockSimulateResult) -> NamedFacts {
    let oscillator = &result.oscillator;
    let ppb = |value: f64| Some(format!("{value} ppb"));
    let period = seconds(oscillator.temperature_period_s);
    vec![
        ("Oscillator", Some(oscillator.name.clone())),
        ("Frequency", ppb(oscillator.frequency_ppb)),
        ("White FM at 1 s", ppb(oscillator.white_fm_ppb)),
        ("Flicker FM", ppb(oscillator.flicker_fm_ppb)),
        ("Random walk FM at 1 s", ppb(oscillator.random_walk_fm_ppb)),
        ("Ageing per day", ppb(oscillator.ageing_ppb_per_day)),
        ("Temperature", Some(format!("± {} ppb in {period}", oscillator.temperature_ppb))),
    ]
}

/// Returns the errors for a terminal.
fn errors(result: &ClockSimulateResult, style: &TableStyle) -> Vec<String> {
    let columns = COLUMNS.map(|(title, _)| GridColumn::right(title, CELL_WIDTH));
    let row = |method: &DisciplineResult| {
        let texts = method.error_ns.map(|figures| figure_texts(&figures, true));
        let figure = |index: usize| fitted(texts.as_ref().map_or(ABSENT, |texts| &texts[index]));
        (
            format!("  {}", method_name(method.kind)),
            COLUMNS.map(|(_, index)| figure(index)).to_vec(),
        )
    };
    let rows: Vec<_> = result.methods.iter().map(row).collect();
    let name = GridColumn::left("  error", NAME_WIDTH + 2);
    let table = grid::blocks([name.clone(), name], &columns, &rows, style);
    std::iter::once(String::new()).chain(table).collect()
}

/// Returns the errors for a page.
fn error_table(result: &ClockSimulateResult) -> String {
    const TITLES: [&str; 11] =
        ["seconds", "mean", "deviation", "RMS", "min", "p1", "p5", "p50", "p95", "p99", "max"];
    let rows = each(&result.methods, |method| {
        let cells = match &method.error_ns {
            Some(figures) => std::iter::once(full_count(figures.count))
                .chain(figure_texts(figures, true))
                .collect(),
            None => vec![ABSENT.to_owned(); TITLES.len()],
        };
        row(method_name(method.kind), cells)
    });
    let table = table("errors", "Clock error", &TITLES, &rows);
    [paragraph(&lock_sentence(result)), table, paragraph(LITERATURE)].concat()
}

/// Returns sparklines of the error over time, and of the Allan deviation.
fn shapes(result: &ClockSimulateResult, style: &TableStyle) -> Vec<String> {
    // Errors before lock are omitted: before its first step a clock may be off by any time, which
    // would hide all other errors.
    let locked_s = result.locked_after_s.unwrap_or(0);
    let row = |method: &DisciplineResult| {
        let worst =
            |one: &ClockErrorRange| one.min_ns.unsigned_abs().max(one.max_ns.unsigned_abs());
        let shown = method.series.iter().filter(|one| one.begin_s >= locked_s);
        let points = shown.map(|one| (one.begin_s as f64, worst(one) as f64));
        let name = method_name(method.kind).to_owned();
        SparklineRow {
            name,
            points: points.collect(),
            scale: SparklineScale::Log,
            unit: SparklineUnit::Time,
        }
    };
    let rows = result.methods.iter().map(row).collect();
    let mut lines =
        SparklineGroup::over_time("largest absolute error once locked", rows).lines(style);
    let allan = result.methods.iter().map(|one| (method_name(one.kind), &one.allan[..]));
    lines.extend(allan_lines(&allan.collect::<Vec<_>>(), style));
    lines
}

/// Returns the plot of the largest absolute error of each interval, one line per method.
fn over_time(result: &ClockSimulateResult) -> Plot {
    let series = |method: &DisciplineResult| {
        let points = method.series.iter().map(|stretch| {
            let worst = stretch.min_ns.unsigned_abs().max(stretch.max_ns.unsigned_abs());
            (stretch.begin_s as f64, worst as f64)
        });
        TimeSeriesDrawingLimits::EVEN.line(method_name(method.kind).to_owned(), points.collect())
    };
    Plot {
        id: "error",
        title: "Error over time",
        hint: "Largest absolute error of each interval. The axis is linear up to 100 ns.",
        described_by: "errors",
        x: PlotAxis::ELAPSED,
        y: PlotAxis {
            label: "error",
            short: "error",
            unit: PlotUnit::Ns,
            scale: AxisScale::Knee { knee: KNEE_NS },
        },
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(result.methods.iter().map(series)),
    }
}

/// Returns the Allan deviations by method.
fn stability(result: &ClockSimulateResult) -> Vec<(&str, &[AllanDeviation])> {
    result.methods.iter().map(|one| (method_name(one.kind), one.allan.as_slice())).collect()
}

/// Shortens a time in whole seconds that is too long for a cell to whole days: a clock that
/// followed a wrong sentence may be years off.
fn fitted(text: &str) -> String {
    const DAY_S: i64 = 86_400;
    let seconds = || text.strip_suffix(" s")?.replace(',', "").parse::<i64>().ok();
    match seconds() {
        Some(seconds) if text.chars().count() > CELL_WIDTH => {
            let sign = if seconds > 0 && text.starts_with('+') { "+" } else { "" };
            format!("{sign}{} d", seconds / DAY_S)
        }
        _ => text.to_owned(),
    }
}

fn deviations(method: &DisciplineResult) -> String {
    let points = allan_text(&method.allan).unwrap_or_else(|| ABSENT.to_owned());
    format!("Allan deviation, {}: {points}", method_name(method.kind))
}

/// Returns the name of a discipline method.
const fn method_name(kind: DisciplineMethod) -> &'static str {
    match kind {
        DisciplineMethod::Servo => "servo",
        DisciplineMethod::SetAtPulse => "set at each pulse",
    }
}

/// Returns the conditions of the simulation.
fn conditions(result: &ClockSimulateResult) -> String {
    let conditions = &result.conditions;
    let mut texts = vec![
        format!("pulses ± {}", mean_ns(conditions.pulse_noise_ns)),
        format!("in steps of {}", mean_ns(conditions.quantisation_ns)),
        format!(
            "{} of them late by {} on average",
            percent(conditions.latency_tail),
            mean_ns(conditions.latency_tail_ns)
        ),
    ];
    if conditions.latency_ns > 0.0 {
        texts.push(format!("all {} late", mean_ns(conditions.latency_ns)));
    }
    if conditions.pulses_per_second != 1 {
        texts.push(format!("{} pulses a second", conditions.pulses_per_second));
    }
    let shares = [
        (conditions.bad_sentences, "bad sentences"),
        (conditions.false_pulses, "false pulses"),
        (conditions.missing_pulses, "missing pulses"),
    ];
    let shares = shares.into_iter().filter(|(share, _)| *share > 0.0);
    texts.extend(shares.map(|(share, what)| format!("{} {what}", percent(share))));
    texts.join(", ")
}

/// Returns a sentence on an outage; `duration_s` is the duration of the simulation in seconds.
fn outage(method: &DisciplineResult, outage: &PulseOutageResult, duration_s: u64) -> String {
    let error =
        format!("{} off by up to {}", method_name(method.kind), human_ns(outage.error_max_ns));
    let what = match outage.recovered_after_s {
        _ if outage.begin_s >= duration_s => "not started when the run ended".to_owned(),
        _ if outage.begin_s.saturating_add(outage.length_s) > duration_s => {
            format!("{error}, not over when the run ended")
        }
        Some(seconds) => format!("{error}, recovered {} after its end", long_time(seconds)),
        None => format!("{error}, not recovered"),
    };
    let (length, begin) = (long_time(outage.length_s), long_time(outage.begin_s));
    format!("{length} without signal, {begin} after the start: {what}")
}

/// Returns sentences on the counts of pulses and sentences.
fn counts(result: &ClockSimulateResult) -> Vec<String> {
    let counts = &result.counts;
    let listed = |title: &str, counts: &BTreeMap<String, u64>| {
        let texts: Vec<_> =
            counts.iter().map(|(name, count)| format!("{name} {}", full_count(*count))).collect();
        (!texts.is_empty()).then(|| format!("{title}: {}", texts.join(", ")))
    };
    let lines = [
        listed("pulses", &counts.pulses),
        listed("rejected pulses", &counts.pulse_rejects),
        listed("rejected sentences", &counts.sentence_rejects),
        Some(format!(
            "wrong seconds {}, clock steps {}",
            full_count(counts.wrong_labels),
            full_count(counts.steps)
        )),
    ];
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn an_outage_that_outlasts_the_run_is_not_one_without_recovery() {
        let sentence = |begin_s, length_s| {
            let error_max_ns = 3_000;
            let one =
                PulseOutageResult { begin_s, length_s, error_max_ns, recovered_after_s: None };
            outage(&fixture::sample::<ClockSimulateResult>("clock").methods[0], &one, 3_600)
        };
        assert!(sentence(600, 60).ends_with("servo off by up to 3.00 µs, not recovered"));
        assert!(sentence(600, 3_600).ends_with("3.00 µs, not over when the run ended"));
        assert!(sentence(3_600, 60).ends_with("start: not started when the run ended"));
    }

    #[test]
    fn a_clock_that_was_never_locked_has_no_figures() {
        let mut result: ClockSimulateResult = fixture::sample("clock");
        result.locked_after_s = None;
        for method in &mut result.methods {
            (method.error_ns, method.allan, method.outages) = (None, Vec::new(), Vec::new());
        }
        let text = result.text(&TableStyle::default());
        assert!(text.contains("never locked") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn a_clock_that_is_years_off_stays_in_its_columns() {
        assert_eq!(fitted("+619,315,200 s"), "+7168 d");
        assert_eq!(fitted("-9,223,372,036 s"), "-106751 d");
        assert_eq!(fitted("619,315,200 s"), "7168 d");
        assert_eq!(fitted("-34,667 s"), "-34,667 s");
    }

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let style = TableStyle { colour: false, width: 60 };
        let text = fixture::sample::<ClockSimulateResult>("clock").text(&style);
        for (title, _) in COLUMNS {
            assert!(text.contains(&format!(" {title}")), "{title}: {text}");
        }
        assert!(
            errors(&fixture::sample::<ClockSimulateResult>("clock"), &style)
                .iter()
                .all(|line| line.chars().count() <= 60)
        );
    }

    #[test]
    fn a_method_without_a_series_is_not_drawn() {
        let mut result: ClockSimulateResult = fixture::sample("clock");
        result.methods[0].series.clear();
        result.methods[1].series[7].min_ns = i64::MIN;
        let style = TableStyle { colour: false, width: 80 };
        let lines = shapes(&result, &style);
        assert!(lines[1].starts_with("  set at each pulse |______#_"), "{lines:?}");
        assert!(lines[1].ends_with("to >999 s") && lines[2].starts_with("Allan"), "{lines:?}");
        result.locked_after_s = Some(result.methods[1].series[8].begin_s);
        let lines = shapes(&result, &style);
        assert!(lines[0].contains(", 19 h 12 min to ") && !lines[1].contains(">9"), "{lines:?}");
        result.methods.clear();
        assert!(shapes(&result, &style).is_empty());
    }
}
