//! Handlers' delays, repetition by repetition as the paper has them, and what was taken from each
//! core.

use horolog_record::{HandlerDelay, HandlerKind, HostInterruptResult, StolenCore, StolenPart};

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
    ["stolen", "gaps", "longest", "by threads", "longest", "by others", "longest"];
const STOLEN_WIDTHS: [usize; 7] = [8, 8, 9, 10, 9, 10, 9];

/// How the figures came about.
pub(crate) const METHOD: &str = "Delay: from a timer's expiry at a random instant to the handler's first reading of the \
     clock. The kernel's handler is a bpf_timer's callback, in the soft interrupt behind the \
     timer's own. Stolen: turns of a spinning loop of an ordinary thread that took longer than \
     the threshold; by threads where the kernel switched to another one, by others (interrupts, \
     system management, the host) where it did not.";

/// The lines for the terminal, without a newline at the end.
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
    if !result.stolen.is_empty() {
        lines.push(String::new());
        lines.extend(stolen_table(result, style));
        let told = result.stolen.iter().map(stolen_facts);
        lines.extend(told.flat_map(|text| wrapped(&text, "  ", "    ", style)));
    }
    put(&mut lines, shapes(result, style));
    for text in facts(result).iter().map(String::as_str).chain([METHOD]) {
        lines.extend(wrapped(text, "  ", "    ", style));
    }
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// How often delays came, and what was taken from each core.
fn shapes(result: &HostInterruptResult, style: &TableStyle) -> Vec<String> {
    let all = result.handlers.iter();
    let all: Vec<_> =
        all.filter_map(|one| Some((handler_name(one), one.delay_ns.as_ref()?))).collect();
    let mut lines = distributions("delay", &all, style);
    let stolen = result.stolen.iter().map(|core| {
        let share = |part: StolenPart| part.total_ns as f64 / core.duration_ns.max(1) as f64;
        let [all, by_threads] = [core.all, core.by_threads].map(share);
        Bar {
            name: format!("core {}", core.core),
            size: Some(by_threads),
            tail: Some(all),
            beside: format!("{}, by threads {}", percent(all), percent(by_threads)),
        }
    });
    let stolen: Vec<_> = stolen.collect();
    lines.extend(bars("stolen share, # by threads, - by others", &stolen, style));
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
    let rows =
        result.stolen.iter().map(|core| (format!("core {}", core.core), stolen_cells(core).into()));
    table("taken from", titles, rows, style)
}

/// A handler and its core.
pub(crate) fn handler_name(handler: &HandlerDelay) -> String {
    let kind = match handler.kind {
        HandlerKind::Kernel => "kernel",
        HandlerKind::Signal => "signal",
        HandlerKind::Timerfd => "timerfd",
    };
    format!("{kind}, core {}", handler.core)
}

/// The means of a handler's repetitions, as the paper has them; `None` where there is none.
pub(crate) fn repetitions(handler: &HandlerDelay) -> Option<String> {
    let means: Vec<_> = handler.repetitions.iter().map(|one| mean_ns(one.mean_ns)).collect();
    (!means.is_empty()).then(|| {
        format!("{}, the means of its repetitions: {}", handler_name(handler), means.join(", "))
    })
}

/// The titles of [`stolen_cells`].
pub(crate) const fn stolen_titles() -> [&'static str; 7] {
    STOLEN_TITLES
}

/// What was taken from a core: shares of the time, numbers, the longest.
pub(crate) fn stolen_cells(core: &StolenCore) -> [String; 7] {
    let share = |part: StolenPart| percent_of(part.total_ns, core.duration_ns);
    let longest = |part: StolenPart| {
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

/// What the kernel and the processor counted meanwhile.
pub(crate) fn stolen_facts(core: &StolenCore) -> String {
    let mut facts = vec![
        format!("spun for {}", human_ns(core.duration_ns)),
        format!("{} a turn, a gap from {} on", human_ns(core.turn_ns), human_ns(core.threshold_ns)),
    ];
    let known = [
        ("waited for the core", core.run_delay_ns.map(human_ns)),
        ("steal", core.steal_ns.map(human_ns)),
        ("interrupts", core.interrupts.map(full_count)),
        ("system management interrupts", core.system_management.map(full_count)),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    facts.extend(known);
    format!("Core {}: {}.", core.core, facts.join("; "))
}

/// What was measured and how, in sentences.
pub(crate) fn facts(result: &HostInterruptResult) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(handler) = result.handlers.first() {
        facts.push(format!(
            "{} expiries a repetition, {} to {} apart, threads {}; the clock takes {} of each delay.",
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
    fn looks_like_this() {
        let style = TableStyle { colour: false, width: 110 };
        let text = host_interrupt(&fixture::host_interrupt(), &style);
        assert_eq!(text, include_str!("host_interrupt.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_the_share() {
        let style = TableStyle { colour: false, width: 44 };
        let text = host_interrupt(&fixture::host_interrupt(), &style);
        assert!(text.contains("stolen") && !text.contains("by others "), "{text}");
    }

    #[test]
    fn one_core_is_compared_with_none() {
        let mut result = fixture::host_interrupt();
        result.stolen.truncate(1);
        let text = host_interrupt(&result, &TableStyle { colour: false, width: 80 });
        assert!(text.contains("  timerfd, core 0 |#") && !text.contains("stolen share"), "{text}");
    }

    #[test]
    fn what_threads_took_is_told_from_what_others_did() {
        let mut result = fixture::host_interrupt();
        result.stolen[1].all.total_ns = result.stolen[0].all.total_ns / 2;
        result.stolen[1].by_threads.total_ns = result.stolen[0].all.total_ns / 4;
        let lines = shapes(&result, &TableStyle { colour: false, width: 80 });
        let bar = lines.last().unwrap();
        assert!(bar.starts_with("  core 1 |##########----------          "), "{lines:?}");
        assert!(bar.ends_with("| 5.01%, by threads 2.50%"), "{lines:?}");
    }
}
