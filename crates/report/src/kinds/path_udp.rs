//! Document of a result of `horolog path udp`: one row per datagram length and load, results by
//! direction, times in host and wire, and the cost of the measurement.

use horolog_record::{
    Distribution, LimitUnit, PathLossesByLocation, PathProtocol, PathRequestCounts, PathSendMode,
    PathUdpResult, PathUdpRow, SignedDistribution, TimestampSource,
};

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NamedFacts, ResultDocument, RunFacts, run_of,
};
use crate::html::escape::each;
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::html::{data, series, trials};
use crate::metrics::{Metric, NamedItems, joined, judged_by_fields, of_items, share};
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::table::shapes::distributions;
use crate::units::{
    ABSENT, amount, full_count, full_rate, human_ns, human_rate, percent, percent_of, signed_ns,
};

const METHOD: &str = "L: payload bytes. IP: IP packets per datagram. R: load datagrams \
                               per probe. M: lost. S: received in order. T: half the round trip.";

/// Column: title, width on a terminal, rank by which it is omitted on a narrow one (highest first;
/// rank 0 never), and function that returns its cell.
type PathUdpRowColumn = (&'static str, usize, u8, fn(&PathUdpRow) -> String);

const COLUMNS: [PathUdpRowColumn; 15] = [
    ("L", 6, 0, |row| row.length.to_string()),
    ("IP", 3, 5, |row| row.fragments.to_string()),
    ("R", 6, 4, |row| ratio(row.load.ratio)),
    ("sent", 9, 6, |row| full_count(row.counts.sent)),
    ("rate/s", 7, 3, |row| human_rate(row.achieved_rate).trim_end_matches("/s").to_owned()),
    ("M", 7, 0, |row| percent_of(row.counts.lost, row.counts.sent)),
    ("S", 8, 1, |row| row.order_ratio().map_or_else(|| ABSENT.to_owned(), percent)),
    ("dup", 7, 7, |row| full_count(row.counts.duplicate)),
    ("T mean", 7, 2, |row| {
        let mean = row.delay_ns.as_ref().and_then(|delay| amount(delay.mean));
        mean.map_or_else(|| ABSENT.to_owned(), |mean| human_ns(mean.round() as u64))
    }),
    ("min", 7, 9, |row| time(row.delay_ns.as_ref(), |delay| delay.min)),
    ("p50", 7, 0, |row| time(row.delay_ns.as_ref(), |delay| delay.p50)),
    ("p90", 7, 10, |row| time(row.delay_ns.as_ref(), |delay| delay.p90)),
    ("p99", 7, 0, |row| time(row.delay_ns.as_ref(), |delay| delay.p99)),
    ("p99.9", 7, 8, |row| time(row.delay_ns.as_ref(), |delay| delay.p99_9)),
    ("max", 7, 9, |row| time(row.delay_ns.as_ref(), |delay| delay.max)),
];

impl DescribeResult for PathUdpResult {
    fn document(&self) -> ResultDocument<'_> {
        const SHAPES: &str = "Round trip";
        let rtt = round_trips(self, true);
        let by_percentile =
            series::percentiles("rtt", "Round trip by percentile", &rtt, "rtt-figures");
        let numbered = self.rows.iter().enumerate();
        let details = numbered.flat_map(|(index, row)| details(self, index, row));
        let distributions =
            |style: &TableStyle| distributions("round trip", &round_trips(self, false), style);
        ResultDocument {
            kind: "path udp",
            heading: self.target.name.clone(),
            lead: format!("{}, started {}", title(self), self.started),
            headline: headline(self),
            blocks: vec![
                BlockContent::Title(title(self)).under(""),
                BlockContent::Custom(Box::new(|style| lines(self, style)), table(self))
                    .under("Rows"),
                BlockContent::Shape(Box::new(distributions)).under("Rows"),
                BlockContent::Remarks(details.chain([cost(self)]).collect()).under("Rows"),
                BlockContent::Plot(by_percentile, trials::distributions(&rtt, "rtt-figures"))
                    .under(SHAPES),
                BlockContent::Plot(by_length(self), String::new()).under(SHAPES),
            ],
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: RunFacts { after: conditions(self), ..run_of!(self) },
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let delay = Metric::times("delay", |row: &PathUdpRow| row.delay_ns.as_ref());
        let ratio = |name, value| Metric::number(name, LimitUnit::Ratio, value);
        let limited = [
            ratio("loss", |row: &PathUdpRow| (row.counts.sent > 0).then(|| row.loss_ratio())),
            ratio("reordered", |row| Some(1.0 - row.order_ratio()?)),
            ratio("duplicates", |row| share(row.counts.duplicate, row.counts.received)),
        ];
        let limited = limited.into_iter().chain(delay.statistics(""));
        let compared = [
            delay,
            Metric::times("rtt", |row| row.rtt_ns.as_ref()),
            Metric::times("far", |row| row.far_ns.as_ref()),
            Metric::times("wire", |row| row.wire_ns.as_ref()),
            Metric::times("send-late", |row: &PathUdpRow| row.send_late_ns.as_ref())
                .informational(),
            Metric::times("host-send", |row: &PathUdpRow| row.host_send_ns.as_ref())
                .informational(),
            Metric::times("host-receive", |row: &PathUdpRow| row.host_receive_ns.as_ref())
                .informational(),
        ];
        of_items(limited_rows, limited)
            .chain(of_items(compared_counts, path_metrics()))
            .chain(of_items(compared_rows, compared))
            .collect()
    }
}

judged_by_fields!(PathUdpResult);

fn limited_rows(result: &PathUdpResult) -> NamedItems<'_, PathUdpRow> {
    result.rows.iter().map(|row| (row_name(row), row)).collect()
}

/// Returns the rows by length, load and intended rate: at another rate a row is another one.
fn compared_rows(result: &PathUdpResult) -> NamedItems<'_, PathUdpRow> {
    let name = |row: &PathUdpRow| {
        let rate = row.intended_rate.map_or_else(String::new, full_rate);
        joined(&row_name(row), &rate)
    };
    result.rows.iter().map(|row| (name(row), row)).collect()
}

fn compared_counts(result: &PathUdpResult) -> NamedItems<'_, PathRequestCounts> {
    compared_rows(result).into_iter().map(|(name, row)| (name, &row.counts)).collect()
}

/// Returns the metrics of the requests of a path.
pub(crate) fn path_metrics() -> [Metric<PathRequestCounts>; 5] {
    [
        Metric::ratio("loss", |counts: &PathRequestCounts| Some([counts.lost, counts.sent])),
        Metric::ratio("late", |counts| Some([counts.late, counts.sent])),
        Metric::ratio("invalid", |counts| Some([counts.invalid, counts.sent])),
        Metric::ratio("refused", |counts| Some([counts.refused, counts.sent])),
        Metric::ratio("reordered", |counts| Some([counts.reordered, counts.received])),
    ]
}

/// Returns the name of a row: its payload length and, with load, its load ratio R.
fn row_name(row: &PathUdpRow) -> String {
    let (length, load) = (row.length, row.load.planned_ratio);
    if load > 0.0 { format!("{length} bytes, R {load}") } else { format!("{length} bytes") }
}

/// Returns the loss over all rows, and the round trip of the first row with replies.
fn headline(result: &PathUdpResult) -> HeadlineMetric {
    let sum = |count: fn(&PathRequestCounts) -> u64| {
        result.rows.iter().map(|row| count(&row.counts)).fold(0, u64::saturating_add)
    };
    let (sent, lost) = (sum(|counts| counts.sent), sum(|counts| counts.lost));
    let rtt = result.rows.iter().find_map(|row| Some((row, row.rtt_ns.as_ref()?)));
    let sentence = rtt.map_or_else(
        || "No replies.".to_owned(),
        |(row, rtt): (_, &Distribution)| {
            let [p50, p99] = [rtt.p50, rtt.p99].map(human_ns);
            format!("Round trip of {} bytes: p50 {p50}, p99 {p99}.", full_count(row.length))
        },
    );
    HeadlineMetric {
        name: "Requests lost".to_owned(),
        value: (sent > 0).then(|| percent_of(lost, sent)),
        sentence,
    }
}

/// Returns the rows for a terminal.
fn lines(result: &PathUdpResult, style: &TableStyle) -> Vec<String> {
    let width_of = |columns: &[PathUdpRowColumn]| {
        columns.iter().map(|(_, width, ..)| width + 1).sum::<usize>().saturating_sub(1)
    };
    let shown = grid::fitting(COLUMNS.to_vec(), width_of, |(.., rank, _)| *rank, style.width);
    let columns = shown.iter().map(|(title, width, ..)| GridColumn::right(title, *width)).collect();
    let group = [GridColumnGroup { title: "", columns }];
    if result.rows.is_empty() {
        return vec!["  No measurements.".to_owned()];
    }
    let header = grid::header(&group, style.colour);
    let rows = result.rows.iter().map(|row| {
        let tone = |title| match title {
            "M" if row.counts.lost > 0 => CellTone::Bad,
            "S" if row.counts.reordered > 0 => CellTone::Warning,
            "dup" if row.counts.duplicate > 0 => CellTone::Warning,
            _ => CellTone::Plain,
        };
        let cells =
            shown.iter().map(|(title, _, _, cell)| GridCell { text: cell(row), tone: tone(title) });
        grid::row(&group, &cells.collect::<Vec<_>>(), style.colour)
    });
    header.lines().skip(1).map(str::to_owned).chain(rows).collect()
}

/// Returns the rows for a page.
fn table(result: &PathUdpResult) -> String {
    let rows = each(result.rows.iter().enumerate(), |(index, one)| {
        data::row(&(index + 1).to_string(), COLUMNS.map(|(.., cell)| cell(one)))
    });
    data::table("rows", "Rows", &COLUMNS.map(|(title, ..)| title), &rows)
}

/// Returns the round trips of the rows that have any, with their names; half of each is T.
/// `names_zero` states whether a load ratio of 0 is named.
fn round_trips(result: &PathUdpResult, names_zero: bool) -> Vec<(String, &Distribution)> {
    let numbered = result.rows.iter().enumerate();
    let named = numbered.filter_map(|(index, row)| {
        let ratio = row.load.planned_ratio;
        let load = if names_zero || ratio > 0.0 { format!(", R {ratio}") } else { String::new() };
        Some((format!("{}. {} bytes{load}", index + 1, row.length), row.rtt_ns.as_ref()?))
    });
    named.collect()
}

/// Returns the plot of T, half the round trip, over the datagram length, of the rows without load.
fn by_length(result: &PathUdpResult) -> Plot {
    let is_plain = |row: &&PathUdpRow| row.load.planned_ratio == 0.0;
    let series = |name: &str, time: fn(&Distribution) -> f64| {
        let plain = result.rows.iter().filter(is_plain);
        let points =
            plain.filter_map(|row| Some((row.length as f64, time(row.delay_ns.as_ref()?))));
        PlotSeries::new(name.to_owned(), points.collect())
    };
    Plot {
        id: "length",
        title: "T by length",
        hint: "Half the round trip, rows without load.",
        described_by: "rows",
        x: PlotAxis {
            label: "bytes",
            short: "bytes",
            unit: PlotUnit::Count,
            scale: AxisScale::Linear,
        },
        y: PlotAxis { label: "T", short: "T", unit: PlotUnit::Ns, scale: AxisScale::Zero },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one([
            series("mean", |d| d.mean),
            series("p50", |d| d.p50 as f64),
            series("p99", |d| d.p99 as f64),
        ]),
    }
}

/// Returns the conditions of the run.
fn conditions(result: &PathUdpResult) -> NamedFacts {
    let target = &result.target;
    let yes = |yes: bool| Some(if yes { "yes" } else { "no" }.to_owned());
    vec![
        ("Far end", Some(format!("{} port {}", target.address, target.port))),
        ("MTU of the path", Some(full_count(target.mtu))),
        ("Far end on this kernel", yes(target.same_clock)),
        ("Clock difference, max", target.clock_error_ns.map(human_ns)),
        ("Reply timeout", Some(human_ns(result.reply_timeout_ns))),
        ("Warm-up of each row and flow", Some(full_count(result.warm_up))),
        ("DSCP", Some(result.dscp.to_string())),
        ("Load by broadcast", yes(result.load_broadcast)),
    ]
}

fn time(distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64) -> String {
    distribution.map_or_else(|| ABSENT.to_owned(), |one| human_ns(figure(one)))
}

fn ratio(ratio: f64) -> String {
    match amount(ratio) {
        Some(ratio) if ratio.fract() == 0.0 && ratio < 1e6 => format!("{ratio:.0}"),
        Some(ratio) if ratio < 1e6 => format!("{ratio:.2}"),
        _ => ABSENT.to_owned(),
    }
}

/// Returns the subject of the measurement, in a line.
fn title(result: &PathUdpResult) -> String {
    let target = &result.target;
    let mode = match result.mode {
        PathSendMode::PingPong => "ping-pong",
        PathSendMode::OpenLoop => "fixed rate",
    };
    let protocol = match result.protocol {
        PathProtocol::Horolog => "UDP",
        PathProtocol::Stamp => "STAMP",
    };
    let flows = match result.flows {
        1 => String::new(),
        flows => format!(", {flows} flows"),
    };
    let wait = if result.busy_polling { "busy polling" } else { "blocking" };
    format!("{protocol} to {} ({}), {mode}, {wait}{flows}", target.name, target.address)
}

/// Returns further details of a row, such as one-way times and times in host and wire, one per
/// line.
fn details(result: &PathUdpResult, index: usize, row: &PathUdpRow) -> Vec<String> {
    let name = format!("{} bytes", row.length);
    let name = if result.rows.len() > 1 { format!("{}. {name}", index + 1) } else { name };
    let mut lines = Vec::new();
    if let (Some(there), Some(back)) = (&row.forward_ns, &row.backward_ns) {
        let way = |way: &SignedDistribution| {
            format!("{} (p99 {})", signed_ns(way.p50), signed_ns(way.p99))
        };
        lines.push(format!("{name}: forward {}, backward {}", way(there), way(back)));
    }
    let half = |one: &Option<Distribution>| one.as_ref().map(|one| human_ns(one.p50));
    if let (Some(send), Some(receive), Some(wire)) =
        (half(&row.host_send_ns), half(&row.host_receive_ns), half(&row.wire_ns))
    {
        let far = half(&row.far_ns).unwrap_or_else(|| ABSENT.to_owned());
        lines.push(format!(
            "{name}: near end {send} send and {receive} receive, far end {far}, wire and other \
                {wire}"
        ));
    }
    if let Some(late) = &row.send_late_ns {
        lines.push(format!(
            "{name}: send lateness {} (p99 {}), included in T",
            human_ns(late.p50),
            human_ns(late.p99)
        ));
    }
    if let Some(there) = row.dscp_forward {
        let back = row.dscp_backward.map_or_else(|| ABSENT.to_owned(), |back| back.to_string());
        lines.push(format!(
            "{name}: DSCP {} received as {there} forward, {back} backward",
            result.dscp
        ));
    }
    if let Some(at) = row.loss_locations().filter(|at| *at != PathLossesByLocation::default()) {
        lines.push(format!(
            "{name}: lost forward: {} by the far end's rate limit, up to {} at its socket, at \
             least {} on the path; backward: up to {} at the near end's socket, at least {} on \
             the path",
            full_count(at.far_limit),
            full_count(at.far_socket),
            full_count(at.path_forward),
            full_count(at.near_socket),
            full_count(at.path_backward)
        ));
    }
    if let Some(arrived) = row.load.arrived {
        lines.push(format!(
            "{name}: {} of {} load datagrams received, warm-up included",
            full_count(arrived),
            full_count(row.load.sent_in_all)
        ));
    }
    lines
}

/// Returns the cost of the measurement, and whether one-way delays use kernel timestamps.
fn cost(result: &PathUdpResult) -> String {
    let ns = |ns: f64| amount(ns).map_or_else(|| ABSENT.to_owned(), |ns| format!("{ns:.0} ns"));
    let timestamp_note = match result.timestamps {
        TimestampSource::User => "",
        TimestampSource::Kernel | TimestampSource::Hardware => {
            " One-way delays use kernel timestamps."
        }
    };
    format!(
        "Overhead: {} per exchange besides its system calls, of which {} (clock reading) is in \
         the round trip.{timestamp_note}",
        ns(result.cost.bookkeeping_ns),
        ns(result.cost.clock_reading_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn a_narrow_terminal_keeps_length_loss_and_two_percentiles() {
        let text = fixture::sample::<PathUdpResult>("path_udp")
            .text(&TableStyle { colour: false, width: 30 });
        let header = text.lines().find(|line| line.contains("p50")).unwrap();
        let titles: Vec<_> = header.split_whitespace().collect();
        assert_eq!(titles, ["L", "M", "p50", "p99"]);
    }

    #[test]
    fn a_row_without_replies_has_no_figures() {
        let mut result: PathUdpResult = fixture::sample("path_udp");
        let row = &mut result.rows[0];
        (row.rtt_ns, row.delay_ns, row.counts.received) = (None, None, 0);
        row.achieved_rate = f64::MAX;
        assert!(!result.text(&TableStyle::default()).contains("NaN"));
        result.rows.clear();
        let text = result.text(&TableStyle::default());
        assert!(text.contains("No measurements.") && !text.contains("T mean"), "{text}");
    }

    #[test]
    fn one_row_has_bars_with_shares_and_none_has_no_shape() {
        let mut result: PathUdpResult = fixture::sample("path_udp");
        result.rows.truncate(1);
        let text = result.text(&TableStyle { colour: false, width: 80 });
        assert!(text.contains("\nround trip, 1,000 values, from:\n   10.0 µs |####"), "{text}");
        result.rows[0].rtt_ns = None;
        let text = result.text(&TableStyle { colour: false, width: 80 });
        assert!(!text.contains("round trip, "), "{text}");
    }
}
