//! Document of a result of `horolog host interrupt`: latencies of the handlers, their means by
//! repetition, and the OS noise of each core.

use horolog_record::{
    HostInterruptResult, LimitUnit, OsNoise, OsNoiseGap, OsNoiseGapSummary, TimerHandlerKind,
    TimerHandlerLatency,
};

use super::host_all::interrupt;
use crate::document::{
    BlockContent, DescribeResult, DistributionSet, HeadlineMetric, NameColumn, NamedRow,
    NamedRowTable, ResultDocument, run_of,
};
use crate::host::{LATENCY_TITLES, conditions, latency_figures, scheduling};
use crate::metrics::{Metric, NamedItems, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::table::shapes::{TextBar, bars};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, percent, percent_of, sentence};

const NAME_WIDTH: usize = 24;
const DELAYS: &str = "delays";
const OS_NOISE: &str = "stolen";
const NOISE_COLUMNS: [(&str, usize); 7] = [
    ("OS noise", 8),
    ("gaps", 8),
    ("longest", 9),
    ("by threads", 10),
    ("longest", 9),
    ("by others", 10),
    ("longest", 9),
];

const METHOD: &str = "Delay: from timer expiry at a random instant to the first clock \
     reading of the handler. The kernel handler is a bpf_timer callback, in the softirq after the \
     timer interrupt. OS noise: iterations of a spinning SCHED_OTHER thread longer than the \
     threshold; by threads if the kernel switched to another thread, by others (interrupts, SMIs, \
     hypervisor) if not.";

impl DescribeResult for HostInterruptResult {
    fn document(&self) -> ResultDocument<'_> {
        let worst = self.handlers.iter().filter_map(|one| Some(one.delay_ns.as_ref()?.p99)).max();
        ResultDocument {
            kind: "host interrupt",
            heading: "handler delays and OS noise".to_owned(),
            lead: format!(
                "{} expiries per repetition, started {}",
                full_count(self.expiries),
                self.started
            ),
            headline: HeadlineMetric {
                name: "Handler delay, p99".to_owned(),
                value: worst.map(human_ns),
                sentence: sentence(&interrupt(self)),
            },
            blocks: blocks(self),
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let delay = |name, handlers| {
            let delay = Metric::times(name, |one: &TimerHandlerLatency| one.delay_ns.as_ref());
            of_items(handlers, delay.with_statistics(&format!("{name}.")))
        };
        let noise = [
            Metric::number("os-noise", LimitUnit::Ratio, |core: &OsNoise| {
                Some(core.all.total_ns as f64 / core.duration_ns.max(1) as f64)
            }),
            Metric::number("gap", LimitUnit::Ns, |core| Some(core.all.max_ns as f64)),
            Metric::times("gap", |core| core.gap_ns.as_ref()),
        ];
        delay("kernel", |all| handlers_of(all, TimerHandlerKind::Kernel))
            .chain(delay("signal", |all| handlers_of(all, TimerHandlerKind::Signal)))
            .chain(delay("timerfd", |all| handlers_of(all, TimerHandlerKind::Timerfd)))
            .chain(of_items(noisy_cores, noise))
            .collect()
    }
}

judged_by_fields!(HostInterruptResult);

fn handlers_of(
    result: &HostInterruptResult,
    kind: TimerHandlerKind,
) -> NamedItems<'_, TimerHandlerLatency> {
    let handlers = result.handlers.iter().filter(|handler| handler.kind == kind);
    handlers.map(|one| (format!("core {}", one.core), one)).collect()
}

fn noisy_cores(result: &HostInterruptResult) -> NamedItems<'_, OsNoise> {
    result.os_noise.iter().map(|core| (core_name(core), core)).collect()
}

fn blocks(result: &HostInterruptResult) -> Vec<crate::document::DocumentBlock<'_>> {
    const SHAPES: &str = "Distributions";
    let means = result.handlers.iter().filter_map(repetitions).collect();
    let mut blocks = vec![
        BlockContent::Table(handlers(result)).under("Handlers"),
        BlockContent::Remarks(means).under("Handlers"),
    ];
    if !result.os_noise.is_empty() {
        let facts = result.os_noise.iter().map(noise_facts).collect();
        let longest = result.os_noise.iter().filter_map(longest_gaps).collect();
        blocks.extend(
            [
                BlockContent::Table(noise_table(result)),
                BlockContent::Remarks(facts),
                BlockContent::Details(longest),
            ]
            .map(|content| content.under("OS noise")),
        );
    }
    blocks.extend([
        BlockContent::Distributions(delays(result)).under(SHAPES),
        BlockContent::Distributions(gaps(result)).under(SHAPES),
        BlockContent::Shape(Box::new(|style| noise_bars(result, style))).under(SHAPES),
        BlockContent::Remarks(facts(result)).under("Method"),
    ]);
    blocks
}

fn handlers(result: &HostInterruptResult) -> NamedRowTable {
    let width = |title: &str| if title == "count" { 8 } else { 9 };
    let row = |one| NamedRow::new(handler_name(one), latency_figures(one.delay_ns.as_ref()));
    NamedRowTable {
        id: DELAYS,
        label: "Delays of handlers",
        names: NameColumn::words("handler", NAME_WIDTH),
        columns: LATENCY_TITLES.map(|title| (title.into(), width(title))).to_vec(),
        rows: result.handlers.iter().map(row).collect(),
    }
}

fn noise_table(result: &HostInterruptResult) -> NamedRowTable {
    NamedRowTable {
        id: OS_NOISE,
        label: "OS noise by core",
        names: NameColumn::words("core", NAME_WIDTH),
        columns: NOISE_COLUMNS.map(|(title, width)| (title.into(), width)).to_vec(),
        rows: result.os_noise.iter().map(noise_row).collect(),
    }
}

/// Returns the table row with the OS noise of a core.
fn noise_row(core: &OsNoise) -> NamedRow {
    let share = |part: OsNoiseGapSummary| percent_of(part.total_ns, core.duration_ns);
    let longest = |part: OsNoiseGapSummary| {
        if part.gaps == 0 { ABSENT.to_owned() } else { human_ns(part.max_ns) }
    };
    let cells = [
        share(core.all),
        full_count(core.all.gaps),
        longest(core.all),
        share(core.by_threads),
        longest(core.by_threads),
        share(core.by_others),
        longest(core.by_others),
    ];
    NamedRow::new(core_name(core), cells)
}

fn core_name(core: &OsNoise) -> String {
    format!("core {}", core.core)
}

/// Returns the counts of the kernel and the CPU over the same time, in words.
fn noise_facts(core: &OsNoise) -> String {
    let mut facts = vec![
        format!("spun for {}", human_ns(core.duration_ns)),
        format!(
            "{} per iteration, gaps from {}",
            human_ns(core.turn_ns),
            human_ns(core.threshold_ns)
        ),
    ];
    let known = [
        ("run-queue wait", core.run_delay_ns.map(human_ns)),
        ("steal", core.steal_ns.map(human_ns)),
        ("interrupts", core.interrupts.map(full_count)),
        ("system management interrupts", core.system_management.map(full_count)),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    facts.extend(known);
    format!("Core {}: {}.", core.core, facts.join("; "))
}

fn longest_gaps(core: &OsNoise) -> Option<String> {
    let gap = |gap: &OsNoiseGap| {
        let whose = if gap.by_threads { "a thread" } else { "no thread" };
        format!("{} at {:.6} s ({whose})", human_ns(gap.length_ns), gap.at_s)
    };
    let gaps: Vec<_> = core.longest.iter().map(gap).collect();
    (!gaps.is_empty()).then(|| format!("Longest gaps of core {}: {}.", core.core, gaps.join(", ")))
}

fn delays(result: &HostInterruptResult) -> DistributionSet<'_> {
    let handlers = result.handlers.iter();
    DistributionSet {
        quantity: "delay",
        entries: handlers
            .filter_map(|one| Some((handler_name(one), one.delay_ns.as_ref()?)))
            .collect(),
        histogram: Some(("handlers-histogram", "Histogram of delays")),
        percentiles: Some(("handlers-tail", "Delay percentiles")),
        described_by: DELAYS,
    }
}

/// Returns the gaps of each core, for a page only.
fn gaps(result: &HostInterruptResult) -> DistributionSet<'_> {
    let cores = result.os_noise.iter();
    DistributionSet {
        quantity: "",
        entries: cores.filter_map(|one| Some((core_name(one), one.gap_ns.as_ref()?))).collect(),
        histogram: Some(("gaps", "Histogram of gaps")),
        percentiles: None,
        described_by: OS_NOISE,
    }
}

fn noise_bars(result: &HostInterruptResult, style: &TableStyle) -> Vec<String> {
    let bar = |core: &OsNoise| {
        let share = |part: OsNoiseGapSummary| part.total_ns as f64 / core.duration_ns.max(1) as f64;
        let [all, by_threads] = [core.all, core.by_threads].map(share);
        TextBar {
            name: core_name(core),
            size: Some(by_threads),
            tail: Some(all),
            value_text: format!("{}, by threads {}", percent(all), percent(by_threads)),
        }
    };
    let all: Vec<_> = result.os_noise.iter().map(bar).collect();
    bars("OS noise, # by threads, - by others", &all, style)
}

/// Returns the names of a handler and its core.
fn handler_name(handler: &TimerHandlerLatency) -> String {
    let kind = match handler.kind {
        TimerHandlerKind::Kernel => "kernel",
        TimerHandlerKind::Signal => "signal",
        TimerHandlerKind::Timerfd => "timerfd",
    };
    format!("{kind}, core {}", handler.core)
}

/// Returns the mean latency of each repetition of a handler, in words; `None` without any.
fn repetitions(handler: &TimerHandlerLatency) -> Option<String> {
    let means: Vec<_> = handler.repetitions.iter().map(|one| mean_ns(one.mean_ns)).collect();
    (!means.is_empty()).then(|| {
        format!("{}, means of the repetitions: {}", handler_name(handler), means.join(", "))
    })
}

/// Returns the conditions of the measurement, in sentences.
fn facts(result: &HostInterruptResult) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(handler) = result.handlers.first() {
        facts.push(format!(
            "{} expiries per repetition, {} to {} apart, threads {}; clock reading {} of each \
                delay.",
            full_count(result.expiries),
            human_ns(result.distance_min_ns),
            human_ns(result.distance_max_ns),
            scheduling(&handler.scheduling),
            human_ns(result.clock_ns)
        ));
    }
    facts.push(conditions(&result.conditions));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn time_of_threads_is_distinguished_from_time_of_others() {
        let mut result: HostInterruptResult = fixture::sample("host_interrupt");
        result.os_noise[1].all.total_ns = result.os_noise[0].all.total_ns / 2;
        result.os_noise[1].by_threads.total_ns = result.os_noise[0].all.total_ns / 4;
        let lines = noise_bars(&result, &TableStyle { colour: false, width: 80 });
        let bar = lines.last().unwrap();
        assert!(bar.starts_with("  core 1 |##########----------          "), "{lines:?}");
        assert!(bar.ends_with("| 5.01%, by threads 2.50%"), "{lines:?}");
    }
}
