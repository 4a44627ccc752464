//! Result of `bench cores` as text tables and sentences, shared by the terminal and the HTML
//! report: reply rates by number of cores and capacities, with the values published for the same
//! experiment.

use horolog_record::{BenchCoresResult, CoreCountResult, CoresRateResult, ResponseRateSpread};

use crate::units::{ABSENT, amount, full_count, human_rate};

/// Figures of Liu, Wu and Wang, "Design of NTP server based on multi-core processor", Journal of
/// Time and Frequency 43 (2020), 1, 18-28: a Raspberry Pi 3B (ARM Cortex-A53, four cores, 1.2 GHz).
mod published {
    /// Numbers of cores that were measured.
    pub(super) const CORES: [usize; 4] = [1, 2, 3, 4];
    /// Table 1: requests per second, and replies per second on one to four cores; `None` where the
    /// table has a dash.
    pub(super) const RESPONSES: [(u32, [Option<u32>; 4]); 10] = [
        (5_000, [Some(5_000); 4]),
        (10_000, [Some(10_000); 4]),
        (15_000, [Some(15_000); 4]),
        (20_000, [Some(20_000); 4]),
        (25_000, [Some(25_000); 4]),
        (30_000, [Some(26_272), Some(30_000), Some(30_000), Some(30_000)]),
        (35_000, [None, Some(35_000), Some(35_000), Some(35_000)]),
        (40_000, [None, Some(40_000), Some(40_000), Some(40_000)]),
        (45_000, [None, Some(44_102), Some(45_000), Some(45_000)]),
        (50_000, [None, Some(44_102), Some(46_027), Some(46_098)]),
    ];
    /// Table 2: lowest, highest and mean capacity on one to four cores, in replies per second.
    pub(super) const CAPACITY: [[u32; 3]; 4] = [
        [25_112, 27_259, 26_272],
        [43_401, 45_086, 44_102],
        [45_397, 47_059, 46_027],
        [45_401, 47_072, 46_098],
    ];
    /// Conditions of the published experiment that its tables do not show.
    pub(super) const NOTE: &str = "Published: Liu, Wu, Wang, Journal of Time and Frequency 43 \
        (2020), 1, on a Raspberry Pi 3B; its text gives 46,089 for four cores, its tables 46,098.";
}

/// Cell for a rate that was not tried. A rate that was skipped because a lower one saturated the
/// server has a dash instead.
const NOT_TRIED: &str = "";

/// Table as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TextTable {
    pub(crate) title: String,
    /// Titles of the columns; the first is that of the name column.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Index of the first column with published values.
    pub(crate) published_at: usize,
}

/// Returns table 1: replies per second by rate and number of cores.
pub(crate) fn responses(result: &BenchCoresResult) -> TextTable {
    let mut rates: Vec<f64> = result
        .columns
        .iter()
        .flat_map(|column| &column.points)
        .map(|point| point.rate)
        .chain(published::RESPONSES.iter().map(|(rate, _)| f64::from(*rate)))
        .filter(|rate| amount(*rate).is_some())
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup_by(|a, b| a.total_cmp(b).is_eq());
    let names = result.columns.iter().map(|column| cores(column.cores));
    let published = published::CORES.iter().map(|count| cores(*count));
    TextTable {
        title: "Responses per second, mean of all runs".to_owned(),
        columns: std::iter::once("requests/s".to_owned()).chain(names).chain(published).collect(),
        rows: rates.into_iter().map(|rate| response_row(result, rate)).collect(),
        published_at: 1 + result.columns.len(),
    }
}

fn response_row(result: &BenchCoresResult, rate: f64) -> Vec<String> {
    let ours = result.columns.iter().map(|column| {
        let saturated = column.points.iter().any(|point| point.saturated && point.rate < rate);
        let point = column.points.iter().find(|point| point.rate.total_cmp(&rate).is_eq());
        match point.and_then(CoresRateResult::spread) {
            Some(spread) => number(spread.mean),
            None if saturated => ABSENT.to_owned(),
            None => NOT_TRIED.to_owned(),
        }
    });
    let of_rate = |known: &&(u32, _)| f64::from(known.0).total_cmp(&rate).is_eq();
    let known = published::RESPONSES.iter().find(of_rate);
    let published = (0..published::CORES.len()).map(|index| match known {
        Some((_, figures)) => {
            figures[index].map_or_else(|| ABSENT.to_owned(), |figure| full_count(figure.into()))
        }
        None => NOT_TRIED.to_owned(),
    });
    std::iter::once(number(rate)).chain(ours).chain(published).collect()
}

/// Returns table 2: the capacity on each number of cores, and the gain by the last core.
pub(crate) fn capacities(result: &BenchCoresResult) -> TextTable {
    let titles = ["minimum", "maximum", "mean", "gain"];
    let columns = std::iter::once("cores").chain(titles).chain(titles);
    let mut rows = Vec::new();
    let mut before: Option<&CoreCountResult> = None;
    for column in &result.columns {
        let mean = |column: &CoreCountResult| column.capacity().map(|spread| spread.mean);
        let mut row = vec![cores(column.cores)];
        row.extend(capacity_cells(column, column.capacity()));
        row.push(gain(before.and_then(mean), mean(column)));
        row.extend(published_cells(column.cores, before.map(|before| before.cores)));
        rows.push(row);
        before = Some(column);
    }
    TextTable {
        title: "Capacity: responses per second where the server is saturated".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows,
        published_at: 1 + titles.len(),
    }
}

fn capacity_cells(column: &CoreCountResult, capacity: Option<ResponseRateSpread>) -> [String; 3] {
    match (capacity, column.full_answer_rate()) {
        (Some(ResponseRateSpread { min, max, mean }), _) => [min, max, mean].map(number),
        (None, Some(rate)) => [ABSENT.to_owned(), ABSENT.to_owned(), format!("≥ {}", number(rate))],
        (None, None) => [ABSENT; 3].map(str::to_owned),
    }
}

/// Returns the published values for a number of cores, and their gain over the number `before` with
/// which the measured gain is computed.
fn published_cells(cores: usize, before: Option<usize>) -> Vec<String> {
    let index_of = |cores: usize| published::CORES.iter().position(|known| *known == cores);
    let Some(index) = index_of(cores) else {
        return vec![ABSENT.to_owned(); 4];
    };
    let figures = published::CAPACITY[index];
    let mean = |index: usize| f64::from(published::CAPACITY[index][2]);
    let before = before.and_then(index_of).map(mean);
    let figures = figures.iter().map(|figure| full_count((*figure).into()));
    figures.chain([gain(before, Some(mean(index)))]).collect()
}

/// Formats the gain of `mean` over the previous value.
fn gain(before: Option<f64>, mean: Option<f64>) -> String {
    match before.zip(mean) {
        Some((before, mean)) if before > 0.0 && mean.is_finite() => {
            format!("{:+.1}%", (mean / before - 1.0) * 100.0)
        }
        _ => ABSENT.to_owned(),
    }
}

/// Returns the conclusions, in sentences.
pub(crate) fn sentences(result: &BenchCoresResult) -> Vec<String> {
    let wanted = human_rate(result.required_rate);
    let enough = match result.cores_required() {
        Some(count) => format!("{wanted} required: fully answered with {}.", cores(count)),
        None if result.is_decided() => {
            format!("{wanted} required: not fully answered with any number of cores.")
        }
        None => format!("{wanted} required: not measured with every number of cores."),
    };
    let capture = result.capture.map(|check| {
        let verdict = if check.has_equal_counts() { "agree" } else { "disagree" };
        format!(
            "Verified by one capture: {} replies, {} in the capture ({} dropped by it); they \
             {verdict}.",
            full_count(check.counted),
            full_count(check.captured),
            full_count(check.dropped)
        )
    });
    let note = published::NOTE.to_owned();
    std::iter::once(enough).chain(capture).chain([note]).collect()
}

/// Formats a number of cores, with its noun.
pub(crate) fn cores(count: usize) -> String {
    if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }
}

fn number(value: f64) -> String {
    amount(value).map_or_else(|| ABSENT.to_owned(), |value| full_count(value.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_published_tables_belong_together() {
        for (index, [min, max, mean]) in published::CAPACITY.into_iter().enumerate() {
            assert!(min < mean && mean < max);
            let last = published::RESPONSES.iter().rev().find_map(|(_, figures)| figures[index]);
            assert_eq!(last, Some(mean));
        }
        let gains: Vec<_> = published::CORES
            .iter()
            .map(|&count| published_cells(count, count.checked_sub(1))[3].clone())
            .collect();
        assert_eq!(gains, ["-", "+67.9%", "+4.4%", "+0.2%"]);
    }

    #[test]
    fn a_saturated_column_has_dashes_from_then_on() {
        let sheet = responses(&fixture::cores());
        assert_eq!(sheet.columns[..3], ["requests/s", "1 core", "2 cores"]);
        let row = |rate: &str| sheet.rows.iter().find(|row| row[0] == rate).unwrap().clone();
        assert_eq!(
            row("30,000")[1..],
            ["26,272", "30,000", "26,272", "30,000", "30,000", "30,000"]
        );
        assert_eq!(row("35,000")[1..4], ["-", "33,100", "-"]);
        assert_eq!(row("10,000")[1..4], ["", "", "10,000"]);
        assert!(sheet.rows.iter().all(|row| row.len() == sheet.columns.len()));
    }

    #[test]
    fn the_capacity_of_a_server_that_was_never_saturated_is_a_lower_bound() {
        let mut result = fixture::cores();
        let sheet = capacities(&result);
        assert_eq!(sheet.rows[1][1..5], ["33,000", "33,200", "33,100", "+26.0%"]);
        result.columns[1].points.truncate(2);
        assert_eq!(capacities(&result).rows[1][1..5], ["-", "-", "≥ 30,000", "-"]);
        result.columns[1].points.clear();
        assert_eq!(capacities(&result).rows[1][1..5], ["-"; 4]);
    }

    #[test]
    fn sentences_state_the_number_of_cores_required() {
        let mut result = fixture::cores();
        assert_eq!(sentences(&result)[0], "30.0 k/s required: fully answered with 2 cores.");
        assert!(sentences(&result)[1].ends_with("they agree."));
        result.required_rate = 50e3;
        assert!(sentences(&result)[0].contains("not fully answered"));
        result.columns[1].points.truncate(1);
        assert!(sentences(&result)[0].contains("not measured"));
    }
}
