//! Switches: the eight steps, repetition by repetition as in the paper, and the exchanges.

use horolog_record::{
    HostSwitchResult, StepsRepetition, SwitchExchange, SwitchMechanism, SwitchPeer,
    SwitchPlacement, SwitchSteps,
};

use super::TableStyle;
use super::grid::{self, Column};
use super::shapes::{distributions, put};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::host::{conditions, scheduling};
use crate::units::{ABSENT, full_count, human_ns, mean_ns};

const NAME_WIDTH: usize = 30;
const TIME_WIDTH: usize = 9;
const EXCHANGE_TITLES: [&str; 7] =
    ["turn, mean", "p50", "p99", "max", "calls", "switch", "switches"];
const EXCHANGE_WIDTHS: [usize; 7] = [10, 9, 9, 9, 9, 9, 8];
/// Maximum number of repetitions of the eight steps that have a column.
const REPETITIONS_SHOWN: usize = 5;

/// Explanation of the method.
pub(crate) const METHOD: &str = "By the eight steps of Hao, Xue and Qin 2010, section 4.1.1: T1, \
     n calls of sched_yield alone, T2; T3, n turns with a child of the same priority on the same \
     core, T4. A switch is (T4 - T3 - 2 (T2 - T1)) / 2n: a turn has two switches and two calls. \
     As published: T0 of that paper, (T4 - T3 - (T2 - T1)) / n. An exchange wakes the peer and \
     waits to be woken; calls are those of one side alone, and a switch is half of a turn without \
     the calls of both sides and the clock reading; switches are counted by the kernel on one \
     side per turn.";

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_switch(result: &HostSwitchResult, style: &TableStyle) -> String {
    let mut lines = steps_table(result, style);
    lines.push(String::new());
    lines.extend(exchange_table(result, style));
    let turns = result.exchanges.iter();
    let turns = turns.filter_map(|one| Some((exchange_name(one), one.turn_ns.as_ref()?)));
    put(&mut lines, distributions("turn", &turns.collect::<Vec<_>>(), style));
    for text in facts(result).iter().map(String::as_str).chain([METHOD]) {
        lines.extend(wrapped(text, "  ", "    ", style));
    }
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

fn steps_table(result: &HostSwitchResult, style: &TableStyle) -> Vec<String> {
    const NUMBERS: [&str; REPETITIONS_SHOWN] = ["1", "2", "3", "4", "5"];
    let name = Column::left("eight steps", NAME_WIDTH);
    let repetitions = result.steps.iter().map(|steps| steps.repetitions.len()).max().unwrap_or(0);
    let titles = std::iter::once("median").chain(NUMBERS.into_iter().take(repetitions));
    let columns: Vec<_> = titles.map(|title| Column::right(title, TIME_WIDTH)).collect();
    let mut rows: Vec<_> = result.steps.iter().flat_map(steps_rows).collect();
    for (_, cells) in &mut rows {
        cells.resize(columns.len(), ABSENT.to_owned());
    }
    grid::blocks([name.clone(), name], &columns, &rows, style)
}

/// Returns both figures of the eight steps: a name, the median, each repetition.
pub(crate) fn steps_rows(steps: &SwitchSteps) -> [(String, Vec<String>); 2] {
    let row = |name: &str, median: Option<f64>, of: fn(&StepsRepetition) -> Option<f64>| {
        let name = format!("{} switch, {name}", peer_name(steps.peer));
        let each = steps.repetitions.iter().map(|one| known(of(one)));
        (name, std::iter::once(known(median)).chain(each).collect())
    };
    [
        row("each", steps.per_switch_ns, |one| one.per_switch_ns),
        row("as published", steps.paper_ns, |one| one.paper_ns),
    ]
}

fn exchange_table(result: &HostSwitchResult, style: &TableStyle) -> Vec<String> {
    let name = Column::left("exchange", NAME_WIDTH);
    let titles = EXCHANGE_TITLES.into_iter().zip(EXCHANGE_WIDTHS);
    let columns: Vec<_> = titles.map(|(title, width)| Column::right(title, width)).collect();
    let rows = result.exchanges.iter();
    let rows: Vec<_> = rows.map(|one| (exchange_name(one), exchange_cells(one).to_vec())).collect();
    grid::blocks([name.clone(), name], &columns, &rows, style)
}

/// Returns the titles of [`exchange_cells`].
pub(crate) const fn exchange_titles() -> [&'static str; 7] {
    EXCHANGE_TITLES
}

/// Returns the figures of an exchange.
pub(crate) fn exchange_cells(exchange: &SwitchExchange) -> [String; 7] {
    let turn = exchange.turn_ns.as_ref();
    let time = |of: fn(&horolog_record::Distribution) -> u64| {
        turn.map_or_else(|| ABSENT.to_owned(), |turn| human_ns(of(turn)))
    };
    let mean = |of: fn(&horolog_record::ExchangeRepetition) -> f64| {
        let sum: f64 = exchange.repetitions.iter().map(of).sum();
        let count = exchange.repetitions.len();
        (count > 0).then(|| sum / count as f64).filter(|mean| mean.is_finite() && *mean >= 0.0)
    };
    [
        known(exchange.turn_mean_ns),
        time(|turn| turn.p50),
        time(|turn| turn.p99),
        time(|turn| turn.max),
        known(mean(|one| one.baseline_ns)),
        known(exchange.per_switch_ns),
        mean(|one| one.switches_per_turn)
            .map_or_else(|| ABSENT.to_owned(), |count| format!("{count:.2}")),
    ]
}

/// Returns the mechanism of an exchange, with its peer and core.
#[must_use]
pub fn exchange_name(exchange: &SwitchExchange) -> String {
    let way = match exchange.mechanism {
        SwitchMechanism::Pipe => "pipe",
        SwitchMechanism::Futex => "futex",
        SwitchMechanism::Eventfd => "eventfd",
    };
    let placement = match exchange.placement {
        SwitchPlacement::SameCore => "same core",
        SwitchPlacement::AcrossCores => "across cores",
    };
    format!("{way}, {}, {placement}", peer_name(exchange.peer))
}

/// Returns the name of a peer's kind.
#[must_use]
pub const fn peer_name(peer: SwitchPeer) -> &'static str {
    match peer {
        SwitchPeer::Process => "process",
        SwitchPeer::Thread => "thread",
    }
}

fn known(ns: Option<f64>) -> String {
    ns.map_or_else(|| ABSENT.to_owned(), mean_ns)
}

/// Returns the conditions of the measurement, in sentences.
pub(crate) fn facts(result: &HostSwitchResult) -> Vec<String> {
    let cores = result.cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    vec![
        format!(
            "{} turns per repetition, {} {cores}, {}; clock reading {}.",
            full_count(result.turns),
            if result.cores.len() == 1 { "core" } else { "cores" },
            scheduling(&result.scheduling),
            human_ns(result.clock_ns)
        ),
        conditions(&result.conditions),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 110 };
        let text = host_switch(&fixture::host_switch(), &style);
        assert_eq!(text, include_str!("host_switch.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_has_the_rest_below() {
        let style = TableStyle { colour: false, width: 44 };
        let text = host_switch(&fixture::host_switch(), &style);
        assert!(text.contains("median") && text.contains("p99"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 44), "{text}");
    }

    #[test]
    fn what_was_refused_is_a_dash() {
        let rows = steps_rows(&fixture::host_switch().steps[1]);
        assert!(rows[0].1.contains(&ABSENT.to_owned()), "{rows:?}");
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let mut result = fixture::host_switch();
        result.exchanges[0].turn_ns = None;
        let text = host_switch(&result, &TableStyle { colour: false, width: 80 });
        assert!(text.contains("\nturn, 20,000 values, from:\n"), "{text}");
        result.exchanges.clear();
        assert!(!host_switch(&result, &TableStyle::default()).contains("turn, how many"));
    }
}
