//! Terminal text of a load on an NTS-KE server.

use std::collections::BTreeMap;

use horolog_record::{Distribution, NtsKeFailureReason, NtsKeResult, NtsKeTrial};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use super::shapes::{PlottedTrials, distribution, trials};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, percent_of};
use crate::verdict::search_sentence;

fn groups() -> Vec<GridColumnGroup<'static>> {
    let right = GridColumn::right;
    vec![
        GridColumnGroup {
            title: "NTS-KE exchanges",
            columns: vec![right("intended/s", 10), right("started/s", 9), right("clients", 7)],
        },
        GridColumnGroup { title: "", columns: vec![right("failed", 7)] },
        GridColumnGroup {
            title: "from the intended start",
            columns: ["p50", "p90", "p99", "max"].map(|title| right(title, 7)).to_vec(),
        },
    ]
}

/// Returns the two lines above the rows of a search's trials, without a newline at the end.
#[must_use]
pub fn nts_ke_header(style: &TableStyle) -> String {
    grid::header(&groups(), style.colour)
}

/// Returns a trial of a search in a line, without a newline at the end.
#[must_use]
pub fn nts_ke_row(trial: &NtsKeTrial, style: &TableStyle) -> String {
    let absent = || ABSENT.to_owned();
    let rate = |rate: f64| amount(rate).map_or_else(absent, |rate| format!("{rate:.0}"));
    let tone = if trial.lost > 0 { CellTone::Bad } else { CellTone::Plain };
    let mut cells = vec![
        GridCell::plain(trial.intended_rate.map_or_else(absent, rate)),
        GridCell::plain(rate(trial.achieved_rate)),
        GridCell::plain(full_count(trial.clients)),
        GridCell { text: percent_of(trial.lost, trial.sent), tone },
    ];
    let figures: [fn(&Distribution) -> u64; 4] =
        [|times| times.p50, |times| times.p90, |times| times.p99, |times| times.max];
    let time = |figure: fn(&Distribution) -> u64| {
        let text = trial.handshake_ns.as_ref().map(|times| human_ns(figure(times)));
        GridCell::plain(text.unwrap_or_else(absent))
    };
    cells.extend(figures.map(time));
    grid::row(&groups(), &cells, style.colour)
}

/// Returns the result of the search or a line on the single trial, a line on its durations, and the
/// findings; without a newline at the end.
#[must_use]
pub fn nts_ke(result: &NtsKeResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    if let Some(search) = &result.search {
        let sentence = wrapped(&search_sentence(search), "", "  ", style);
        lines.extend(sentence.iter().map(|line| CellTone::Strong.paint(line, style.colour)));
    }
    for trial in result.trials.iter().filter(|trial| trial.intended_rate.is_none()) {
        let line = format!(
            "NTS-KE exchanges: {} by {} clients; {} of {} failed.",
            human_rate(trial.achieved_rate),
            full_count(trial.clients),
            full_count(trial.lost),
            full_count(trial.sent)
        );
        lines.push(CellTone::Strong.paint(&line, style.colour));
        lines.extend(trial.handshake_ns.as_ref().map(|times| {
            let [p50, p90, p99, max] = [times.p50, times.p90, times.p99, times.max].map(human_ns);
            format!("From connection start to keys: p50 {p50}, p90 {p90}, p99 {p99}, max {max}.")
        }));
    }
    lines.extend(failures(&result.trials));
    lines.extend(drawn(result, style));
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns failures and times by rate, and the distribution of times at the highest rate without a
/// failure.
fn drawn(result: &NtsKeResult, style: &TableStyle) -> Vec<String> {
    let sent = || result.trials.iter().filter(|trial| trial.sent > 0);
    let share = |trial: &NtsKeTrial| trial.lost as f64 / trial.sent as f64;
    let all = sent().map(|one| (one.achieved_rate, share(one), one.handshake_ns.as_ref()));
    let mut lines = trials(PlottedTrials { all: all.collect(), lost: "failed" }, style);
    let rate = |a: &&NtsKeTrial, b: &&NtsKeTrial| a.achieved_rate.total_cmp(&b.achieved_rate);
    let whole = sent().filter(|trial| trial.lost == 0).max_by(rate).or_else(|| sent().next());
    if let Some((trial, times)) = whole.and_then(|one| Some((one, one.handshake_ns.as_ref()?))) {
        let (rate, count) = (human_rate(trial.achieved_rate), full_count(times.count));
        let title = format!("from connection start to keys at {rate}, {count} values, from");
        lines.extend(distribution(&title, times, style));
    }
    lines
}

/// Returns a line with the failures of all trials by reason; `None` without failures.
pub(crate) fn failures(trials: &[NtsKeTrial]) -> Option<String> {
    let mut sum = BTreeMap::<NtsKeFailureReason, u64>::new();
    for (reason, count) in trials.iter().flat_map(|trial| &trial.failures) {
        *sum.entry(*reason).or_default() += count;
    }
    let phrase = |(reason, count): (&NtsKeFailureReason, &u64)| {
        let why = match reason {
            NtsKeFailureReason::Connection => "connection failed",
            NtsKeFailureReason::Timeout => "timed out",
            NtsKeFailureReason::Tls => "TLS error",
            NtsKeFailureReason::Response => "incomplete response",
            NtsKeFailureReason::Refused => "refused",
        };
        format!("{} {why}", full_count(*count))
    };
    let phrases: Vec<_> = sum.iter().map(phrase).collect();
    (!phrases.is_empty()).then(|| format!("Failed: {}.", phrases.join(", ")))
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_record::{LOAD_SCHEMA, RequestMode};

    use super::*;
    use crate::fixture;

    pub(crate) fn trial(intended_rate: Option<f64>) -> NtsKeTrial {
        NtsKeTrial {
            intended_rate,
            achieved_rate: 1234.5,
            duration_s: 2.0,
            clients: 32,
            sent: 2_475,
            received: 2_468,
            lost: 7,
            failures: BTreeMap::from([
                (NtsKeFailureReason::Timeout, 6),
                (NtsKeFailureReason::Tls, 1),
            ]),
            handshake_ns: None,
        }
    }

    pub(crate) fn result(trials: Vec<NtsKeTrial>, searched: bool) -> NtsKeResult {
        let load = fixture::load();
        NtsKeResult {
            schema: LOAD_SCHEMA.to_owned(),
            started: load.started,
            command: Vec::new(),
            host: load.host,
            target: load.target,
            mode: RequestMode::NtsKe,
            trials,
            search: load.search.filter(|_| searched),
            limits: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn text(trials: Vec<NtsKeTrial>, searched: bool) -> String {
        nts_ke(&result(trials, searched), &TableStyle::default())
    }

    #[test]
    fn output_matches_the_expected_text() {
        assert_eq!(
            text(vec![trial(None)], false),
            "NTS-KE exchanges: 1.23 k/s by 32 clients; 7 of 2,475 failed.\nFailed: 6 timed out, \
             1 TLS error."
        );
    }

    #[test]
    fn a_search_has_a_row_for_each_trial_and_a_sentence() {
        let style = TableStyle::default();
        let rows =
            format!("{}\n{}", nts_ke_header(&style), nts_ke_row(&trial(Some(1240.0)), &style));
        let expected = "      NTS-KE exchanges       |         |     from the intended start\n\
                        intended/s started/s clients |  failed |     p50     p90     p99     max\n      \
                        1240      1234      32 |   0.28% |       -       -       -       -";
        assert_eq!(rows, expected);
        let text = text(vec![trial(Some(1240.0)), trial(Some(2480.0))], true);
        assert!(text.starts_with("Non-drop rate") && !text.contains("by 32 clients"), "{text}");
        assert!(text.contains("\nFailed: 12 timed out, 2 TLS error."), "{text}");
        assert!(text.ends_with("\n  failed |##| 0.28% throughout"), "{text}");
    }
}
