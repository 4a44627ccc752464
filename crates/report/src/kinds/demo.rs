//! Demonstration: capacity of each server relative to the first one, curves of all servers in
//! shared plots, and the trials of each.

use horolog_record::{
    CapacitySearchGoal, DemoCandidateResult, DemoResult, Distribution, Finding, LoadResult, Trial,
};

use crate::document::{BlockContent, DescribeResult, HeadlineMetric, ResultDocument, run_of};
use crate::findings::trial_label;
use crate::html::bars::{bar, row, table};
use crate::html::escape::{each, text};
use crate::html::losses::losses;
use crate::html::plot::Plot;
use crate::html::sections::{command_line, findings, times_at_lower_bound};
use crate::html::{LOAD_NOTE, series, trials};
use crate::metrics::{Metric, NamedItems, of_items};
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::table::shapes::{TextBar, bars};
use crate::table::summary::finding_lines;
use crate::units::{ABSENT, human_ns};
use crate::verdict::{BestRate, lower_bound_trial, sentence};

/// Longest label that is shown in full on a terminal.
const LABEL_MAX: usize = 32;

impl DescribeResult for DemoResult {
    fn document(&self) -> ResultDocument<'_> {
        let (rates, all) = (rate_name(self), all_findings(self));
        let found = findings(&all);
        let found_lines = move |style: &TableStyle| finding_lines(&all, style);
        let mut blocks = vec![
            BlockContent::Custom(Box::new(|style| lines(self, style)), rate_table(self))
                .under(rates),
            BlockContent::Shape(Box::new(|style| rate_bars(self, style))).under(rates),
            BlockContent::Custom(Box::new(found_lines), found).under("Findings").first_on_page(),
        ];
        let plot = |(plot, below)| BlockContent::Plot(plot, below).under("Rate, loss and latency");
        blocks.extend(plots(self).map(plot));
        blocks.extend([
            BlockContent::Markup(Box::new(|| servers(self))).under("Servers and their trials"),
            BlockContent::PageNote(LOAD_NOTE).under(""),
        ]);
        if let Some(best) = best(self) {
            let times = times_at_lower_bound(&best.load).to_vec();
            blocks.push(BlockContent::TimesAtRate(times).under(""));
        }
        ResultDocument {
            kind: "demo",
            heading: "Maximum request rate of each server".to_owned(),
            lead: format!(
                "{} servers under the same search, started {}",
                self.candidates.len(),
                self.started
            ),
            headline: headline(self),
            blocks,
            method: "",
            limits: &[],
            findings: &[],
            run: run_of!(self),
        }
    }

    /// Returns a copy with histograms only of the trials at the servers' lower bounds; all of them
    /// would make the page several times as large.
    fn embedded(&self) -> Option<Self> {
        let mut result = self.clone();
        for candidate in &mut result.candidates {
            let retained = lower_bound_trial(&candidate.load);
            let trials = candidate.load.trials.iter_mut().enumerate();
            for (_, trial) in trials.filter(|(index, _)| Some(*index) != retained) {
                let Trial { rtt_ns, response_time_ns, lateness_ns, .. } = trial;
                for distribution in [rtt_ns, response_time_ns, lateness_ns].into_iter().flatten() {
                    distribution.histogram.clear();
                }
            }
        }
        Some(result)
    }

    fn metrics() -> Vec<Metric<Self>> {
        of_items(loads, LoadResult::metrics()).collect()
    }
}

fn loads(result: &DemoResult) -> NamedItems<'_, LoadResult> {
    result.candidates.iter().map(|one| (one.label.clone(), &one.load)).collect()
}

/// Returns true if the search goal of any server allows loss.
fn is_partial(result: &DemoResult) -> bool {
    let partial = |candidate: &DemoCandidateResult| {
        candidate.load.search.as_ref().is_some_and(|search| search.kind == CapacitySearchGoal::Pdr)
    };
    result.candidates.iter().any(partial)
}

fn rate_name(result: &DemoResult) -> &'static str {
    if is_partial(result) {
        "Highest rate within the loss goal"
    } else {
        "Highest rate without loss"
    }
}

fn best(result: &DemoResult) -> Option<&DemoCandidateResult> {
    let rate =
        |candidate: &DemoCandidateResult| BestRate::of(&candidate.load).held().unwrap_or(-1.0);
    result.candidates.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// Returns the rate of the first server, to which those of the others are compared.
fn base(result: &DemoResult) -> BestRate {
    result.candidates.first().map_or(BestRate::Nothing, |first| BestRate::of(&first.load))
}

/// Returns the best server, compared with the first one.
fn headline(result: &DemoResult) -> HeadlineMetric {
    let name = rate_name(result).to_owned();
    let (Some(best), Some(first)) = (best(result), result.candidates.first()) else {
        return HeadlineMetric {
            name,
            value: None,
            sentence: "No servers were tested.".to_owned(),
        };
    };
    let highest = BestRate::of(&best.load);
    let ratio = highest.ratio_to(base(result));
    let against = if std::ptr::eq(best, first) || ratio == ABSENT {
        String::new()
    } else {
        format!(", {ratio} the rate of {}", first.label)
    };
    let value = highest.text();
    HeadlineMetric {
        name,
        sentence: format!("{}: {value}{against}.", best.label),
        value: Some(value),
    }
}

/// Returns a row for each server. `≥` marks a rate whose search ended before the server's limit was
/// reached. Latencies are those of the trial at the lower bound of the search. The response time is
/// omitted on a narrow terminal.
fn lines(result: &DemoResult, style: &TableStyle) -> Vec<String> {
    let mut groups = groups(result);
    if grid::width(&groups) > style.width {
        groups.pop();
    }
    let base = base(result);
    let row = |candidate: &DemoCandidateResult| {
        let row = grid::row(&groups, &cells(candidate, base), style.colour);
        row.trim_end().to_owned()
    };
    let header = grid::header(&groups, style.colour);
    std::iter::once(header).chain(result.candidates.iter().map(row)).collect()
}

fn groups(result: &DemoResult) -> Vec<GridColumnGroup<'static>> {
    let longest = result.candidates.iter().map(|candidate| candidate.label.chars().count()).max();
    let label_width = longest.unwrap_or(0).clamp("server".len(), LABEL_MAX);
    let rate = if is_partial(result) { "within goal" } else { "lossless" };
    let servers = vec![
        GridColumn::left("server", label_width),
        GridColumn::right(rate, 13),
        GridColumn::right("ratio", 9),
    ];
    let times = || vec![GridColumn::right("p50", 7), GridColumn::right("p99", 7)];
    vec![
        GridColumnGroup { title: "", columns: servers },
        GridColumnGroup { title: "round trip", columns: times() },
        GridColumnGroup { title: "response time", columns: times() },
    ]
}

fn cells(candidate: &DemoCandidateResult, base: BestRate) -> Vec<GridCell> {
    let highest = BestRate::of(&candidate.load);
    let trial = lower_bound_trial(&candidate.load).map(|index| &candidate.load.trials[index]);
    let rtt = trial.and_then(|trial: &Trial| trial.rtt_ns.as_ref());
    let response = trial.and_then(|trial: &Trial| trial.response_time_ns.as_ref());
    let time = |distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64| {
        GridCell::plain(distribution.map_or_else(|| ABSENT.to_owned(), |d| human_ns(figure(d))))
    };
    vec![
        GridCell::plain(shortened(&candidate.label)),
        GridCell { text: highest.text(), tone: CellTone::Strong },
        GridCell::plain(highest.ratio_to(base)),
        time(rtt, |d| d.p50),
        time(rtt, |d| d.p99),
        time(response, |d| d.p50),
        time(response, |d| d.p99),
    ]
}

fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL_MAX {
        return label.to_owned();
    }
    let prefix: String = label.chars().take(LABEL_MAX - 1).collect();
    format!("{prefix}…")
}

/// Returns bars of the highest rate of each server, for a terminal.
fn rate_bars(result: &DemoResult, style: &TableStyle) -> Vec<String> {
    let bar = |candidate: &DemoCandidateResult| {
        let highest = BestRate::of(&candidate.load);
        TextBar::plain(shortened(&candidate.label), highest.held(), highest.text())
    };
    let title = if is_partial(result) { "rate within goal" } else { "lossless rate" };
    bars(title, &result.candidates.iter().map(bar).collect::<Vec<_>>(), style)
}

/// Returns bars of the highest rate of each server, with the ratio to the first, for a page.
fn rate_table(result: &DemoResult) -> String {
    if result.candidates.is_empty() {
        return String::new();
    }
    let rate = |candidate: &DemoCandidateResult| BestRate::of(&candidate.load);
    let highest = result.candidates.iter().filter_map(|one| rate(one).held()).fold(0.0, f64::max);
    let rows = each(&result.candidates, |candidate| {
        let rate = rate(candidate);
        let share = rate.held().filter(|_| highest > 0.0).map(|rate| rate / highest);
        row(&candidate.label, [&rate.text(), &rate.ratio_to(base(result))], &bar(share))
    });
    table(["server", "requests per second", "ratio", ""], &rows)
}

/// Returns the plots of all servers, with the tables below them.
fn plots(result: &DemoResult) -> [(Plot, String); 4] {
    let candidates = result.candidates.iter();
    let runs: Vec<_> = candidates.map(|one| (one.label.as_str(), &one.load)).collect();
    let of_percentiles = |id, title, table, times: fn(&Trial) -> Option<&Distribution>| {
        let times = at_lower_bound(result, times);
        let plot = series::percentiles(id, title, &times, table);
        (plot, trials::distributions(&times, table))
    };
    [
        (series::loss(&runs, "servers"), String::new()),
        (series::latency(&runs, "servers"), String::new()),
        of_percentiles(
            "rtt",
            "Round trip by percentile, at the best rate of each server",
            "rtt-figures",
            |trial| trial.rtt_ns.as_ref(),
        ),
        of_percentiles(
            "response",
            "Server's response time by percentile, at its best rate",
            "response-figures",
            |trial| trial.response_time_ns.as_ref(),
        ),
    ]
}

fn at_lower_bound(
    result: &DemoResult,
    time: fn(&Trial) -> Option<&Distribution>,
) -> Vec<(String, &Distribution)> {
    result
        .candidates
        .iter()
        .filter_map(|candidate| {
            let trial = &candidate.load.trials[lower_bound_trial(&candidate.load)?];
            Some((candidate.label.clone(), time(trial)?))
        })
        .collect()
}

fn servers(result: &DemoResult) -> String {
    let servers = each(result.candidates.iter().enumerate(), server);
    format!("<div id=\"servers\">\n{servers}</div>\n")
}

fn server((index, candidate): (usize, &DemoCandidateResult)) -> String {
    let load = &candidate.load;
    let found = findings(&load.findings);
    let found = if found.is_empty() { found } else { format!("<h3>Findings</h3>\n{found}") };
    let lost = losses(load);
    let lost = if lost.is_empty() { lost } else { format!("<h3>Loss locations</h3>\n{lost}") };
    format!(
        "<details class=\"server\">\n<summary><span class=\"label\">{}</span> \
         <span class=\"figure\">{}</span></summary>\n<p class=\"sentence\">{}</p>\n\
         <p><code>{}</code></p>\n{found}{lost}<h3>Trials</h3>\n{}</details>\n",
        text(&candidate.label),
        text(&BestRate::of(load).text()),
        text(&sentence(load)),
        text(&command_line(&candidate.server_command)),
        trials::trials(load, &format!("trials-{index}")),
    )
}

/// Returns the findings of a demonstration: its own, then those of its servers. Findings with the
/// same code and severity are listed once, as that of the first server with the names of the
/// others.
fn all_findings(result: &DemoResult) -> Vec<Finding> {
    let mut all = result.findings.clone();
    let mut kinds: Vec<(Finding, Vec<&str>)> = Vec::new();
    let is_own = |finding: &&Finding| {
        result
            .findings
            .iter()
            .any(|own| (own.code, &own.message) == (finding.code, &finding.message))
    };
    for candidate in &result.candidates {
        for finding in candidate.load.findings.iter().filter(|finding| !is_own(finding)) {
            let is_same = |(kind, _): &&mut (Finding, Vec<&str>)| {
                (kind.code, kind.severity) == (finding.code, finding.severity)
            };
            match kinds.iter_mut().find(is_same) {
                Some((_, servers)) if servers.contains(&candidate.label.as_str()) => {}
                Some((_, servers)) => servers.push(&candidate.label),
                None => kinds.push((of_server(&candidate.label, finding), vec![&candidate.label])),
            }
        }
    }
    all.extend(kinds.into_iter().map(|(mut finding, servers)| {
        let others = &servers[1..];
        if !others.is_empty() {
            let message = finding.message.trim_end_matches('.');
            finding.message = format!("{message}; also: {}", others.join("; "));
        }
        finding
    }));
    all
}

/// Returns a server's finding as one of the demonstration: its message names the server and
/// the trial, and it has no trial index.
fn of_server(label: &str, finding: &Finding) -> Finding {
    let trial = trial_label(finding).map_or_else(String::new, |trial| format!(", {trial}"));
    Finding {
        message: format!("{label}{trial}: {}", finding.message),
        trial: None,
        ..finding.clone()
    }
}

#[cfg(test)]
mod tests {
    use horolog_record::{FindingCode, Severity};

    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn the_best_server_is_named_against_the_first() {
        let headline = headline(&fixture::demo());
        assert_eq!(headline.sentence, "XDP: ≥ 3.83 M/s, ≥ 86.7× the rate of chronyd 4.3.");
    }

    #[test]
    fn the_fastest_server_has_the_full_bar_and_the_sign_of_its_bound() {
        let markup = rate_table(&fixture::demo());
        assert_eq!(markup.matches("width:100.00%").count(), 1);
        assert!(markup.contains("≥ 3.83 M/s") && markup.contains(">1.00×<"), "{markup}");
    }

    #[test]
    fn every_server_has_its_trials() {
        let page = fixture::demo().page();
        assert_eq!(page.matches("<details class=\"server\">").count(), 5);
        assert!(page.contains("id=\"trials-4\""));
    }

    #[test]
    fn lines_up_whatever_the_candidates_are() {
        let mut result = fixture::demo();
        result.candidates[1].label =
            "a label that is far longer than any column is wide".to_owned();
        result.candidates[2].load = fixture::empty();
        result.candidates[3].load.trials = vec![fixture::extreme_trial()];
        result.findings.clear();
        let text = result.text(&TableStyle::default());
        let bars = |line: &str| line.chars().position(|c| c == '|');
        let expected = bars(text.lines().nth(1).unwrap());
        let table = text.lines().skip(1).take_while(|line| !line.is_empty());
        assert!(table.clone().count() == 6 && table.into_iter().all(|line| bars(line) == expected));
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn findings_about_servers_are_reported_once_with_their_labels() {
        let finding = |code, severity, trial: usize| {
            fixture::finding(code, severity, &format!("seen in {trial}"), "do it", Some(trial))
        };
        let mut result = fixture::demo();
        result.findings = vec![finding(FindingCode::EngineFallback, Severity::Note, 0)];
        for candidate in &mut result.candidates {
            candidate.load.findings.clear();
        }
        let noisy = |trial| finding(FindingCode::TrialsInconsistent, Severity::Warning, trial);
        result.candidates[0].load.findings = vec![noisy(3), noisy(4)];
        result.candidates[2].load.findings = vec![noisy(5)];
        result.candidates[3].load.findings =
            vec![finding(FindingCode::NoReplies, Severity::Error, 0)];
        let labels: Vec<_> = result.candidates.iter().map(|one| one.label.as_str()).collect();
        let messages: Vec<_> = all_findings(&result).into_iter().map(|one| one.message).collect();
        let noisy = format!("{}, trial 4: seen in 3; also: {}", labels[0], labels[2]);
        let no_replies = format!("{}, trial 1: seen in 0", labels[3]);
        assert_eq!(messages, ["seen in 0", &*noisy, &*no_replies]);
        assert!(result.text(&TableStyle::default()).contains(&no_replies));
        let page = result.page();
        assert!(page.find("seen in 0").unwrap() < page.find("id=\"plot-loss\"").unwrap());
    }

    #[test]
    fn no_candidate_is_a_table_without_rows() {
        let mut result = fixture::demo();
        result.candidates.clear();
        result.findings.clear();
        assert_eq!(result.text(&TableStyle::default()).lines().count(), 2);
    }
}
