//! Handlers' delays, repetition by repetition as in the paper, and the OS noise of each core.

use horolog_record::{HandlerDelay, HandlerKind, HostInterruptResult, OsNoise, OsNoiseShare};

use super::TableStyle;
use super::grid::{self, Column};
use super::shapes::{Bar, bars, distributions, put};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::host::{LATENCY_TITLES, conditions, latency_figures, scheduling};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, percent, percent_of};

const NAME_WIDTH: usize = 24;
const TIME_WIDTH: usize = 9;
const COUNT_WIDTH: usize = 8;
const STOLEN_TITLES: [&str; 7] =
    ["OS noise", "gaps", "longest", "by threads", "longest", "by others", "longest"];
const STOLEN_WIDTHS: [usize; 7] = [8, 8, 9, 10, 9, 10, 9];

/// Explanation of the method.
pub(crate) const METHOD: &str = "Delay: from timer expiry at a random instant to the first clock \
     reading of the handler. The kernel handler is a bpf_timer callback, in the softirq after the \
     timer interrupt. OS noise: iterations of a spinning SCHED_OTHER thread longer than the \
     threshold; by threads if the kernel switched to another thread, by others (interrupts, SMIs, \
     hypervisor) if not.";

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_interrupt(result: &HostInterruptResult, style: &TableStyle) -> String {
    let mut lines = handlers_table(result, style);
    lines.extend(
        result
            .handlers
            .iter()
            .filter_map(repetitions)
            .flat_map(|text| wrapped(&text, "  ", "    ", style)),
    );
    if !result.os_noise.is_empty() {
        lines.push(String::new());
        lines.extend(stolen_table(result, style));
        let texts = result.os_noise.iter().map(stolen_facts);
        lines.extend(texts.flat_map(|text| wrapped(&text, "  ", "    ", style)));
    }
    put(&mut lines, shapes(result, style));
    for text in facts(result).iter().map(String::as_str).chain([METHOD]) {
        lines.extend(wrapped(text, "  ", "    ", style));
    }
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns the distribution of delays, and the OS noise of each core.
fn shapes(result: &HostInterruptResult, style: &TableStyle) -> Vec<String> {
    let all = result.handlers.iter();
    let all: Vec<_> =
        all.filter_map(|one| Some((handler_name(one), one.delay_ns.as_ref()?))).collect();
    let mut lines = distributions("delay", &all, style);
    let stolen = result.os_noise.iter().map(|core| {
        let share = |part: OsNoiseShare| part.total_ns as f64 / core.duration_ns.max(1) as f64;
        let [all, by_threads] = [core.all, core.by_threads].map(share);
        Bar {
            name: format!("core {}", core.core),
            size: Some(by_threads),
            tail: Some(all),
            value_text: format!("{}, by threads {}", percent(all), percent(by_threads)),
        }
    });
    let stolen: Vec<_> = stolen.collect();
    lines.extend(bars("OS noise, # by threads, - by others", &stolen, style));
    lines
}

fn table(
    name: &'static str,
    titles: impl IntoIterator<Item = (&'static str, usize)>,
    rows: impl Iterator<Item = (String, Vec<String>)>,
    style: &TableStyle,
) -> Vec<String> {
    let name = Column::left(name, NAME_WIDTH);
    let columns = titles.into_iter().map(|(title, width)| Column::right(title, width));
    let (columns, rows): (Vec<_>, Vec<_>) = (columns.collect(), rows.collect());
    grid::blocks([name.clone(), name], &columns, &rows, style)
}

fn handlers_table(result: &HostInterruptResult, style: &TableStyle) -> Vec<String> {
    let width = |title: &str| if title == "count" { COUNT_WIDTH } else { TIME_WIDTH };
    let titles = LATENCY_TITLES.map(|title| (title, width(title)));
    let all = result.handlers.iter();
    let rows = all.map(|one| (handler_name(one), latency_figures(one.delay_ns.as_ref()).into()));
    table("handler", titles, rows, style)
}

fn stolen_table(result: &HostInterruptResult, style: &TableStyle) -> Vec<String> {
    let titles = STOLEN_TITLES.into_iter().zip(STOLEN_WIDTHS);
    let rows = result
        .os_noise
        .iter()
        .map(|core| (format!("core {}", core.core), stolen_cells(core).into()));
    table("core", titles, rows, style)
}

/// Returns a handler and its core.
pub(crate) fn handler_name(handler: &HandlerDelay) -> String {
    let kind = match handler.kind {
        HandlerKind::Kernel => "kernel",
        HandlerKind::Signal => "signal",
        HandlerKind::Timerfd => "timerfd",
    };
    format!("{kind}, core {}", handler.core)
}

/// Returns the means of a handler's repetitions, as in the paper; `None` if there is none.
pub(crate) fn repetitions(handler: &HandlerDelay) -> Option<String> {
    let means: Vec<_> = handler.repetitions.iter().map(|one| mean_ns(one.mean_ns)).collect();
    (!means.is_empty()).then(|| {
        format!("{}, means of the repetitions: {}", handler_name(handler), means.join(", "))
    })
}

/// Returns the titles of [`stolen_cells`].
pub(crate) const fn stolen_titles() -> [&'static str; 7] {
    STOLEN_TITLES
}

/// Returns the OS noise of a core: shares of the time, numbers, the longest.
pub(crate) fn stolen_cells(core: &OsNoise) -> [String; 7] {
    let share = |part: OsNoiseShare| percent_of(part.total_ns, core.duration_ns);
    let longest = |part: OsNoiseShare| {
        if part.gaps == 0 { ABSENT.to_owned() } else { human_ns(part.max_ns) }
    };
    [
        share(core.all),
        full_count(core.all.gaps),
        longest(core.all),
        share(core.by_threads),
        longest(core.by_threads),
        share(core.by_others),
        longest(core.by_others),
    ]
}

/// Returns the counts of the kernel and the processor meanwhile.
pub(crate) fn stolen_facts(core: &OsNoise) -> String {
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

/// Returns the conditions of the measurement, in sentences.
pub(crate) fn facts(result: &HostInterruptResult) -> Vec<String> {
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
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 110 };
        let text = host_interrupt(&fixture::host_interrupt(), &style);
        assert_eq!(text, include_str!("host_interrupt.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_the_share() {
        let style = TableStyle { colour: false, width: 44 };
        let text = host_interrupt(&fixture::host_interrupt(), &style);
        assert!(text.contains("OS noise") && !text.contains("by others   longest"), "{text}");
    }

    #[test]
    fn one_core_is_compared_with_none() {
        let mut result = fixture::host_interrupt();
        result.os_noise.truncate(1);
        let text = host_interrupt(&result, &TableStyle { colour: false, width: 80 });
        assert!(text.contains("  timerfd, core 0 |#") && !text.contains("OS noise, #"), "{text}");
    }

    #[test]
    fn time_of_threads_is_distinguished_from_time_of_others() {
        let mut result = fixture::host_interrupt();
        result.os_noise[1].all.total_ns = result.os_noise[0].all.total_ns / 2;
        result.os_noise[1].by_threads.total_ns = result.os_noise[0].all.total_ns / 4;
        let lines = shapes(&result, &TableStyle { colour: false, width: 80 });
        let bar = lines.last().unwrap();
        assert!(bar.starts_with("  core 1 |##########----------          "), "{lines:?}");
        assert!(bar.ends_with("| 5.01%, by threads 2.50%"), "{lines:?}");
    }
}
