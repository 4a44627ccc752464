//! Document of a result of `horolog host all`: main result of each part, verdict, worst findings,
//! and on a page the documents of the parts.

use horolog_record::{
    ContextSwitchPeerKind, DelayMeasurement, Distribution, Finding, HostAllResult, HostClockResult,
    HostDelayResult, HostInterruptResult, HostMeasurementKind, HostMeasurementOutcome,
    HostMeasurementState, HostNicResult, HostSwitchResult, HostTimerResult, HostVerdict,
    LimitResult, TimerHandlerKind, WaitFunction, WorstFinding,
};

use super::host_delay::setting_name;
use crate::document::{
    BlockContent, DescribeResult, DocumentBlock, HeadlineMetric, ResultDocument, run_of,
};
use crate::html::escape::{each, text};
use crate::html::sections::{finding as finding_item, findings, paragraph};
use crate::metrics::{MeasuredResult, Metric, NamedItems};
use crate::table::TableStyle;
use crate::table::grid::CellTone;
use crate::table::summary::{finding as finding_lines, wrapped};
use crate::units::{ABSENT, human_ns, mean_ns, percent_of};

const NAME_WIDTH: usize = 14;

const NOTE: &str = "Each part is measured by the command of the same name; see there for the \
                    method.";

/// Requested delay whose overshoot stands for all delays, in ns.
const DELAY_NS: u64 = 1_000_000;

impl DescribeResult for HostAllResult {
    fn document(&self) -> ResultDocument<'_> {
        let parts = parts(self);
        let lead = format!("{} parts, started {}", parts.len(), self.started);
        let own = [
            BlockContent::Custom(Box::new(|style| lines(self, style)), worst(self))
                .under("Worst findings"),
            BlockContent::Markup(Box::new(|| overview(self))).under("Parts"),
            BlockContent::Markup(Box::new(|| findings(&self.findings))).under("Overall"),
            BlockContent::PageNote(NOTE).under(""),
        ];
        ResultDocument {
            kind: "host all",
            heading: "host qualification".to_owned(),
            lead,
            headline: HeadlineMetric {
                name: "For measuring in microseconds".to_owned(),
                value: Some(verdict_name(self.verdict).to_owned()),
                sentence: verdict_sentence(self.verdict).to_owned(),
            },
            blocks: own.into_iter().chain(parts).collect(),
            method: "",
            limits: &self.limits,
            findings: &[],
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        fn within<R: DescribeResult + 'static>(
            prefix: &'static str,
            part: fn(&HostAllResult) -> NamedItems<'_, R>,
        ) -> impl Iterator<Item = Metric<HostAllResult>> {
            R::metrics().into_iter().map(move |metric| metric.within(prefix, part))
        }
        within::<HostDelayResult>("delay.", |all| unnamed(all.delay.as_ref()))
            .chain(within::<HostTimerResult>("timer.", |all| unnamed(all.timer.as_ref())))
            .chain(within::<HostSwitchResult>("switch.", |all| unnamed(all.switch.as_ref())))
            .chain(within::<HostInterruptResult>("interrupt.", |all| {
                unnamed(all.interrupt.as_ref())
            }))
            .chain(within::<HostClockResult>("clock.", |all| unnamed(all.clock.as_ref())))
            .collect()
    }
}

impl MeasuredResult for HostAllResult {
    fn judgement(&mut self) -> (&mut Vec<LimitResult>, Vec<&Finding>) {
        let worst = self.worst_findings.iter();
        (&mut self.limits, worst.map(|one| &one.finding).collect())
    }
}

fn unnamed<R>(part: Option<&R>) -> NamedItems<'_, R> {
    part.into_iter().map(|part| (String::new(), part)).collect()
}

/// Returns the documents of the parts that have a result, the interfaces last.
fn parts(result: &HostAllResult) -> Vec<DocumentBlock<'_>> {
    let named = [
        ("Clocks", result.clock.as_ref().map(DescribeResult::document)),
        ("Delays", result.delay.as_ref().map(DescribeResult::document)),
        ("Wake-ups", result.timer.as_ref().map(DescribeResult::document)),
        ("Switches", result.switch.as_ref().map(DescribeResult::document)),
        ("Handlers and OS noise", result.interrupt.as_ref().map(DescribeResult::document)),
    ];
    let named = named.into_iter().filter_map(|(name, part)| Some((name.to_owned(), part?)));
    let nics =
        result.nics.iter().map(|one| (format!("Interface {}", one.interface), one.document()));
    let parts = named.chain(nics);
    parts.map(|(name, part)| BlockContent::Part(name, Box::new(part)).under("")).collect()
}

/// Returns the main result of each part, the verdict and the worst findings, for a terminal.
fn lines(result: &HostAllResult, style: &TableStyle) -> Vec<String> {
    let mut lines: Vec<_> = result.parts.iter().flat_map(|one| part(result, one, style)).collect();
    lines.push(String::new());
    let tone = match result.verdict {
        HostVerdict::Fit => CellTone::Strong,
        HostVerdict::Marginal | HostVerdict::Unjudged => CellTone::Warning,
        HostVerdict::Unfit => CellTone::Bad,
    };
    lines.push(tone.paint(verdict_name(result.verdict), style.colour));
    lines.extend(wrapped(verdict_sentence(result.verdict), "  ", "  ", style));
    lines.extend(result.worst_findings.iter().flat_map(|worst| {
        finding_lines(&worst.finding, Some(origin(worst)), &worst.finding.message, style)
    }));
    lines
}

/// Returns the main result of a part, and its unmet prerequisites.
fn part(
    result: &HostAllResult,
    outcome: &HostMeasurementOutcome,
    style: &TableStyle,
) -> Vec<String> {
    let indent = " ".repeat(NAME_WIDTH);
    let mut first = format!("{:<NAME_WIDTH$}", part_name(outcome));
    let texts = [headline(result, outcome), shortfall(outcome)].into_iter().flatten();
    let lines = |text: String| {
        let first = std::mem::replace(&mut first, indent.clone());
        wrapped(&text, &first, &indent, style)
    };
    texts.flat_map(lines).collect()
}

/// Returns the outcome of a part, in one line.
#[must_use]
pub fn host_part(outcome: &HostMeasurementOutcome) -> String {
    let (name, state) = (part_name(outcome), state_name(outcome.state));
    match outcome.duration_ns {
        0 => format!("{name}: {state}"),
        took_ns => format!("{name}: {state}, {}", human_ns(took_ns)),
    }
}

/// Returns the worst findings for a page.
fn worst(result: &HostAllResult) -> String {
    let items =
        each(&result.worst_findings, |one| finding_item(&one.finding, Some(origin(one)), ""));
    match &*items {
        "" => paragraph("No findings."),
        items => format!("<ul class=\"findings\">\n{items}</ul>\n"),
    }
}

/// Returns the duration, main result and state of each part, for a page.
fn overview(result: &HostAllResult) -> String {
    let rows = each(&result.parts, |outcome| {
        let state = shortfall(outcome).unwrap_or_else(|| state_name(outcome.state).to_owned());
        let headline = headline(result, outcome).unwrap_or_else(|| ABSENT.to_owned());
        let words =
            each([headline, state], |cell| format!("<td class=\"words\">{}</td>", text(&cell)));
        let (name, took) = (part_name(outcome), human_ns(outcome.duration_ns));
        format!(
            "<tr><th scope=\"row\" class=\"words\">{}</th><td>{took}</td>{words}</tr>\n",
            text(&name)
        )
    });
    format!(
        "<div class=\"scroll\" id=\"parts\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Parts\">\n<table class=\"data\">\n<thead><tr><td></td><th \
         scope=\"col\">duration</th><th scope=\"col\" class=\"words\">main result</th><th \
         scope=\"col\" \
         class=\"words\">state</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

/// Returns the name of a part; for a NIC with its interface.
fn part_name(outcome: &HostMeasurementOutcome) -> String {
    match &outcome.interface {
        Some(interface) => format!("nic {interface}"),
        None => outcome.part.name().to_owned(),
    }
}

/// Returns the outcome of a part, in a word or two.
const fn state_name(state: HostMeasurementState) -> &'static str {
    match state {
        HostMeasurementState::Measured => "measured",
        HostMeasurementState::Reduced => "partly measured",
        HostMeasurementState::Failed => "failed",
        HostMeasurementState::Interrupted => "interrupted",
        HostMeasurementState::NotBegun => "not started",
        HostMeasurementState::Skipped => "skipped",
        HostMeasurementState::Absent => "not present",
    }
}

/// Returns the state of a part and its reasons; `None` if it was measured without restrictions.
fn shortfall(outcome: &HostMeasurementOutcome) -> Option<String> {
    if outcome.state == HostMeasurementState::Measured {
        return None;
    }
    let name = state_name(outcome.state);
    Some(match outcome.reason.join(" ") {
        why if why.is_empty() => name.to_owned(),
        why => format!("{name}: {why}"),
    })
}

/// Returns the main metric of a part in words; `None` without a result.
fn headline(result: &HostAllResult, outcome: &HostMeasurementOutcome) -> Option<String> {
    match outcome.part {
        HostMeasurementKind::Clock => result.clock.as_ref().map(clock),
        HostMeasurementKind::Delay => result.delay.as_ref().map(delay),
        HostMeasurementKind::Timer => result.timer.as_ref().map(timer),
        HostMeasurementKind::Switch => result.switch.as_ref().map(switch),
        HostMeasurementKind::Interrupt => result.interrupt.as_ref().map(interrupt),
        HostMeasurementKind::Nic => {
            let interface = outcome.interface.as_deref()?;
            result.nics.iter().find(|one| one.interface == interface).map(nic)
        }
    }
}

pub(super) fn clock(result: &HostClockResult) -> String {
    let source = result.clocksource.current.as_deref().unwrap_or("unknown");
    let read = result.clocks.iter().find(|clock| clock.name == "REALTIME");
    let cost = read.and_then(|clock| clock.cost_ns);
    let cost = cost.map_or_else(|| ABSENT.to_owned(), mean_ns);
    let synchronised = match result.kernel.map(|kernel| kernel.synchronised) {
        Some(true) => "synchronised",
        Some(false) => "not synchronised",
        None => "synchronisation unknown",
    };
    format!("read cost {cost} (clocksource {source}); {synchronised}")
}

/// Returns the measurement of `nanosleep` at the delay closest to [`DELAY_NS`], under the first
/// setting that has any.
pub(super) fn nanosleep(result: &HostDelayResult) -> Option<&DelayMeasurement> {
    let cells = result.cells.iter().filter(|cell| cell.function == WaitFunction::Nanosleep);
    let cells = cells.filter(|cell| cell.overshoot_ns.is_some());
    cells.min_by_key(|cell| (cell.setting, cell.requested_ns.abs_diff(DELAY_NS)))
}

pub(super) fn delay(result: &HostDelayResult) -> String {
    let Some(cell) = nanosleep(result) else { return ABSENT.to_owned() };
    let of = |of: fn(&Distribution) -> u64| {
        cell.overshoot_ns.as_ref().map_or_else(|| ABSENT.to_owned(), |one| human_ns(of(one)))
    };
    let setting = result.settings.get(cell.setting).map_or("", setting_name);
    format!(
        "nanosleep of {} overshoots by {}, p99 {} ({setting})",
        human_ns(cell.requested_ns),
        of(|one| one.p50),
        of(|one| one.p99)
    )
}

pub(super) fn timer(result: &HostTimerResult) -> String {
    let cores =
        || result.cores.iter().filter_map(|core| Some((core.core, core.latency_ns.as_ref()?)));
    let worst = cores().max_by_key(|(_, latency)| latency.p99);
    let longest = cores().max_by_key(|(_, latency)| latency.max);
    worst.zip(longest).map_or_else(
        || ABSENT.to_owned(),
        |((core, latency), (late, longest))| {
            let [p50, p99, max] = [latency.p50, latency.p99, longest.max].map(human_ns);
            if core == late {
                return format!("wake-up latency {p50}, p99 {p99}, max {max} (core {core}, worst)");
            }
            format!(
                "wake-up latency {p50}, p99 {p99} (core {core}, worst), max {max} (core {late})"
            )
        },
    )
}

pub(super) fn switch(result: &HostSwitchResult) -> String {
    let figure = |peer| {
        let steps = result.steps.iter().find(|steps| steps.peer == peer);
        let figure = steps.and_then(|steps| steps.per_switch_ns);
        figure.map_or_else(|| ABSENT.to_owned(), mean_ns)
    };
    format!(
        "process switch {}, thread switch {}",
        figure(ContextSwitchPeerKind::Process),
        figure(ContextSwitchPeerKind::Thread)
    )
}

pub(super) fn interrupt(result: &HostInterruptResult) -> String {
    let worst = |kind| {
        let of_kind = result.handlers.iter().filter(move |one| one.kind == kind);
        let p99 = of_kind.filter_map(|one| Some(one.delay_ns.as_ref()?.p99)).max();
        p99.map_or_else(|| ABSENT.to_owned(), human_ns)
    };
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let stolen = result.os_noise.iter().max_by(|one, other| {
        share(one.all.total_ns, one.duration_ns)
            .total_cmp(&share(other.all.total_ns, other.duration_ns))
    });
    let stolen = stolen.map_or_else(String::new, |core| {
        let share = percent_of(core.all.total_ns, core.duration_ns);
        format!("; OS noise {share} on core {}, worst", core.core)
    });
    format!(
        "handler delay p99 {} in-kernel, {} by timerfd{stolen}",
        worst(TimerHandlerKind::Kernel),
        worst(TimerHandlerKind::Timerfd)
    )
}

pub(super) fn nic(result: &HostNicResult) -> String {
    let queues = if result.queues.rx == 1 { "queue" } else { "queues" };
    let timestamp_source = match &result.timestamps {
        Some(timestamps) if timestamps.hardware_rx && timestamps.hardware_tx => "NIC",
        Some(timestamps) if timestamps.software_rx || timestamps.software_tx => "kernel",
        Some(_) => "none",
        None => "unknown source",
    };
    let changes = match result.advice.iter().filter(|one| one.command.is_some()).count() {
        0 => "no changes advised".to_owned(),
        1 => "1 change advised".to_owned(),
        count => format!("{count} changes advised"),
    };
    format!("{} {queues}, timestamps: {timestamp_source}; {changes}", result.queues.rx)
}

/// Returns the name of a verdict.
const fn verdict_name(verdict: HostVerdict) -> &'static str {
    match verdict {
        HostVerdict::Fit => "fit",
        HostVerdict::Marginal => "fit with findings",
        HostVerdict::Unfit => "not fit",
        HostVerdict::Unjudged => "unknown",
    }
}

/// Returns a sentence on the verdict.
const fn verdict_sentence(verdict: HostVerdict) -> &'static str {
    match verdict {
        HostVerdict::Fit => "This host is fit for measuring in microseconds.",
        HostVerdict::Marginal => {
            "This host is fit for measuring in microseconds, with the findings below."
        }
        HostVerdict::Unfit => "This host is not fit for measuring in microseconds.",
        HostVerdict::Unjudged => {
            "Fitness for measuring in microseconds is unknown: it takes complete runs of the \
             parts timer and interrupt (wake-up latency and OS noise)."
        }
    }
}

/// Returns the origin of one of the worst findings: `timer`, `interrupt, and 2 more of this kind`.
fn origin(worst: &WorstFinding) -> String {
    let part = worst.part.map_or("all", HostMeasurementKind::name);
    match worst.others {
        0 => part.to_owned(),
        others => format!("{part}, and {others} more of this kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn each_part_is_on_the_page_with_its_plots_and_no_two_elements_have_one_name() {
        let mut result: HostAllResult = fixture::sample("host_all");
        let nic = HostNicResult { interface: "eth1".to_owned(), ..result.nics[0].clone() };
        result.nics.push(nic);
        let page = result.page();
        for shown in ["plot-median", "plot-wake-ups-histogram", "plot-turns-tail", "plot-gaps"] {
            assert!(page.contains(shown), "{shown}");
        }
        assert!(page.len() < 1_000_000, "{}", page.len());
        let ids: Vec<_> = main_of(&page)
            .split(" id=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let once: std::collections::BTreeSet<_> = ids.iter().collect();
        assert!(ids.len() > 10 && once.len() == ids.len(), "{ids:?}");
    }

    #[test]
    fn a_run_without_parts_still_makes_a_page() {
        let mut result: HostAllResult = fixture::sample("host_all");
        (result.clock, result.delay, result.timer) = (None, None, None);
        (result.switch, result.interrupt) = (None, None);
        result.nics.clear();
        result.worst_findings.clear();
        let page = result.page();
        let main = main_of(&page);
        assert!(!main.contains("plot-") && main.contains("No findings."), "{main}");
    }

    #[test]
    fn a_part_that_is_done_is_a_line() {
        let mut timer = fixture::sample::<HostAllResult>("host_all").parts[2].clone();
        assert_eq!(host_part(&timer), "timer: partly measured, 10.1 s");
        (timer.state, timer.duration_ns) = (HostMeasurementState::Skipped, 0);
        assert_eq!(host_part(&timer), "timer: skipped");
    }

    #[test]
    fn each_part_has_a_main_figure() {
        let result: HostAllResult = fixture::sample("host_all");
        let is_done = |part: &&HostMeasurementOutcome| part.state != HostMeasurementState::Skipped;
        for outcome in result.parts.iter().filter(is_done) {
            let line = headline(&result, outcome).unwrap();
            assert!(!line.contains("NaN") && !line.starts_with('-'), "{line}");
        }
    }

    #[test]
    fn the_longest_wake_up_is_that_of_all_cores() {
        let mut result = fixture::sample::<HostAllResult>("host_all").timer.unwrap();
        let latency = |result: &mut HostTimerResult, core: usize, [p50, p99, max]: [u64; 3]| {
            let latency = result.cores[core].latency_ns.as_mut().unwrap();
            (latency.p50, latency.p99, latency.max) = (p50, p99, max);
        };
        latency(&mut result, 0, [10_000, 90_000, 149_000]);
        latency(&mut result, 1, [10_000, 80_000, 229_000]);
        let expected = "wake-up latency 10.0 µs, p99 90.0 µs (core 0, worst), max 229 µs (core 1)";
        assert_eq!(timer(&result), expected);
    }

    #[test]
    fn a_part_without_figures_is_shown_as_absent() {
        let mut result: HostAllResult = fixture::sample("host_all");
        result.timer.as_mut().unwrap().cores.clear();
        result.delay.as_mut().unwrap().cells.clear();
        result.switch = None;
        result.interrupt.as_mut().unwrap().handlers[0].delay_ns = None;
        let lines: Vec<_> = result.parts.iter().map(|one| headline(&result, one)).collect();
        assert_eq!((lines[1].as_deref(), lines[2].as_deref()), (Some(ABSENT), Some(ABSENT)));
        assert_eq!(lines[3], None);
        let interrupt = lines[4].as_deref().unwrap();
        assert!(interrupt.starts_with("handler delay p99 - in-kernel, "), "{interrupt}");
    }
}
