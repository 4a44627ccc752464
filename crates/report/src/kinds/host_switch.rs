//! Document of a result of `horolog host switch`: cost of a switch by `sched_yield` by repetition,
//! as in Hao, Xue and Qin 2010, and the ping-pongs.

use horolog_record::{
    ContextSwitchPeerKind, ContextSwitchPlacement, Distribution, HandoverMechanism,
    HostSwitchResult, LimitUnit, PingPongCost, PingPongRepetition, YieldSwitchCost,
    YieldSwitchRepetition,
};

use super::host_all::switch;
use crate::document::{
    BlockContent, DescribeResult, DistributionSet, HeadlineMetric, NameColumn, NamedRow,
    NamedRowTable, ResultDocument, run_of,
};
use crate::host::{conditions, scheduling};
use crate::metrics::{Metric, NamedItems, judged_by_fields, of_items};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, sentence};

const NAME_WIDTH: usize = 30;
const TIME_WIDTH: usize = 9;
const EXCHANGE_COLUMNS: [(&str, usize); 7] = [
    ("turn, mean", 10),
    ("p50", 9),
    ("p99", 9),
    ("max", 9),
    ("calls", 9),
    ("switch", 9),
    ("switches", 8),
];

const METHOD: &str = "By the eight steps of Hao, Xue and Qin 2010, section 4.1.1: T1, \
     n calls of sched_yield alone, T2; T3, n turns with a child of the same priority on the same \
     core, T4. A switch is (T4 - T3 - 2 (T2 - T1)) / 2n: a turn has two switches and two calls. \
     As published: T0 of that paper, (T4 - T3 - (T2 - T1)) / n. An exchange wakes the peer and \
     waits to be woken; calls are those of one side alone, and a switch is half of a turn without \
     the calls of both sides and the clock reading; switches are counted by the kernel on one \
     side per turn.";

impl DescribeResult for HostSwitchResult {
    fn document(&self) -> ResultDocument<'_> {
        let steps = self.steps.iter().find(|steps| steps.peer == ContextSwitchPeerKind::Process);
        ResultDocument {
            kind: "host switch",
            heading: "switches between processes and threads".to_owned(),
            lead: format!(
                "{} turns per repetition, started {}",
                full_count(self.turns),
                self.started
            ),
            headline: HeadlineMetric {
                name: "Process switch".to_owned(),
                value: steps.and_then(|steps| steps.per_switch_ns).map(mean_ns),
                sentence: sentence(&switch(self)),
            },
            blocks: vec![
                BlockContent::Table(steps_table(self)).under("The eight steps"),
                BlockContent::Table(exchange_table(self)).under("Exchanges"),
                BlockContent::Distributions(turns(self)).under("Distribution of turns"),
                BlockContent::Remarks(facts(self)).under("Method"),
            ],
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let switch = |name, steps| {
            let cost = Metric::time(name, |one: &YieldSwitchCost| one.per_switch_ns);
            of_items(steps, [cost.limited(LimitUnit::Ns)])
        };
        let turn = |name, exchanges| {
            let mean = Metric::number(name, LimitUnit::Ns, |one: &PingPongCost| one.turn_mean_ns);
            of_items(exchanges, [mean])
        };
        let exchanges = [
            Metric::time("exchange", |one: &PingPongCost| one.per_switch_ns),
            Metric::times("turn", |one| one.turn_ns.as_ref()),
        ];
        switch("process", |all| steps_with(all, ContextSwitchPeerKind::Process))
            .chain(switch("thread", |all| steps_with(all, ContextSwitchPeerKind::Thread)))
            .chain(turn("pipe", |all| exchanges_by(all, Some(HandoverMechanism::Pipe))))
            .chain(turn("futex", |all| exchanges_by(all, Some(HandoverMechanism::Futex))))
            .chain(turn("eventfd", |all| exchanges_by(all, Some(HandoverMechanism::Eventfd))))
            .chain(of_items(|all| exchanges_by(all, None), exchanges))
            .collect()
    }
}

judged_by_fields!(HostSwitchResult);

fn steps_with(
    result: &HostSwitchResult,
    peer: ContextSwitchPeerKind,
) -> NamedItems<'_, YieldSwitchCost> {
    let steps = result.steps.iter().filter(|steps| steps.peer == peer);
    steps.map(|one| (format!("a {}", peer_name(peer)), one)).collect()
}

/// Returns the ping-pongs by a mechanism, or all.
fn exchanges_by(
    result: &HostSwitchResult,
    mechanism: Option<HandoverMechanism>,
) -> NamedItems<'_, PingPongCost> {
    let all = result.exchanges.iter();
    let all = all.filter(|one| mechanism.is_none_or(|mechanism| one.mechanism == mechanism));
    all.map(|one| (exchange_name(one), one)).collect()
}

/// Returns the table of the cost by `sched_yield`: both metrics, as median and by repetition.
fn steps_table(result: &HostSwitchResult) -> NamedRowTable {
    let repetitions = result.steps.iter().map(|steps| steps.repetitions.len()).max().unwrap_or(0);
    let numbers = (1..=repetitions).map(|number| (number.to_string().into(), TIME_WIDTH));
    let mut rows: Vec<NamedRow> = result.steps.iter().flat_map(steps_rows).collect();
    for cells in rows.iter_mut().filter_map(|row| row.cells.as_mut().ok()) {
        cells.resize(repetitions + 1, ABSENT.to_owned());
    }
    NamedRowTable {
        id: "steps",
        label: "Switches by the eight steps",
        names: NameColumn::words("eight steps", NAME_WIDTH),
        columns: std::iter::once(("median".into(), TIME_WIDTH)).chain(numbers).collect(),
        rows,
    }
}

fn steps_rows(steps: &YieldSwitchCost) -> [NamedRow; 2] {
    let row = |name: &str, median: Option<f64>, of: fn(&YieldSwitchRepetition) -> Option<f64>| {
        let each = steps.repetitions.iter().map(|one| known(of(one)));
        let cells: Vec<_> = std::iter::once(known(median)).chain(each).collect();
        NamedRow::new(format!("{} switch, {name}", peer_name(steps.peer)), cells)
    };
    [
        row("each", steps.per_switch_ns, |one| one.per_switch_ns),
        row("as published", steps.paper_ns, |one| one.paper_ns),
    ]
}

fn exchange_table(result: &HostSwitchResult) -> NamedRowTable {
    NamedRowTable {
        id: "exchanges",
        label: "Exchanges",
        names: NameColumn::words("exchange", NAME_WIDTH),
        columns: EXCHANGE_COLUMNS.map(|(title, width)| (title.into(), width)).to_vec(),
        rows: result.exchanges.iter().map(exchange_row).collect(),
    }
}

fn exchange_row(exchange: &PingPongCost) -> NamedRow {
    let turn = exchange.turn_ns.as_ref();
    let time = |of: fn(&Distribution) -> u64| {
        turn.map_or_else(|| ABSENT.to_owned(), |turn| human_ns(of(turn)))
    };
    let mean = |of: fn(&PingPongRepetition) -> f64| {
        let sum: f64 = exchange.repetitions.iter().map(of).sum();
        let count = exchange.repetitions.len();
        (count > 0).then(|| sum / count as f64).filter(|mean| mean.is_finite() && *mean >= 0.0)
    };
    let switches = mean(|one| one.switches_per_turn).map(|count| format!("{count:.2}"));
    let cells = [
        known(exchange.turn_mean_ns),
        time(|turn| turn.p50),
        time(|turn| turn.p99),
        time(|turn| turn.max),
        known(mean(|one| one.baseline_ns)),
        known(exchange.per_switch_ns),
        switches.unwrap_or_else(|| ABSENT.to_owned()),
    ];
    NamedRow::new(exchange_name(exchange), cells)
}

fn turns(result: &HostSwitchResult) -> DistributionSet<'_> {
    let of = |one| -> Option<(String, &Distribution)> {
        let exchange: &PingPongCost = one;
        Some((exchange_name(exchange), exchange.turn_ns.as_ref()?))
    };
    DistributionSet {
        quantity: "turn",
        entries: result.exchanges.iter().filter_map(of).collect(),
        histogram: Some(("turns-histogram", "Histogram of turns")),
        percentiles: Some(("turns-tail", "Turn percentiles")),
        described_by: "exchanges",
    }
}

/// Returns the name of a ping-pong: mechanism, peer and placement.
#[must_use]
pub fn exchange_name(exchange: &PingPongCost) -> String {
    let mechanism = match exchange.mechanism {
        HandoverMechanism::Pipe => "pipe",
        HandoverMechanism::Futex => "futex",
        HandoverMechanism::Eventfd => "eventfd",
    };
    let placement = match exchange.placement {
        ContextSwitchPlacement::SameCore => "same core",
        ContextSwitchPlacement::AcrossCores => "across cores",
    };
    format!("{mechanism}, {}, {placement}", peer_name(exchange.peer))
}

/// Returns the name of a peer's kind.
#[must_use]
pub const fn peer_name(peer: ContextSwitchPeerKind) -> &'static str {
    match peer {
        ContextSwitchPeerKind::Process => "process",
        ContextSwitchPeerKind::Thread => "thread",
    }
}

fn known(ns: Option<f64>) -> String {
    ns.map_or_else(|| ABSENT.to_owned(), mean_ns)
}

/// Returns the conditions of the measurement, in sentences.
fn facts(result: &HostSwitchResult) -> Vec<String> {
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
