//! Texts on the result of `host all`, shared by the terminal and the HTML report: one line per
//! part, and the verdict.

use horolog_record::{
    DelayMeasurement, Distribution, HostAllResult, HostClockResult, HostDelayResult,
    HostInterruptResult, HostMeasurement, HostMeasurementOutcome, HostMeasurementState,
    HostNicResult, HostSwitchResult, HostTimerResult, HostVerdict, RankedFinding, SwitchPeer,
    TimerHandlerKind, WaitFunction,
};

use crate::kinds::setting_name;
use crate::units::{ABSENT, human_ns, mean_ns, percent_of};

/// Requested delay whose overshoot stands for all delays, in ns.
const DELAY_NS: u64 = 1_000_000;

/// Returns the name of a part; for a NIC with its interface.
pub(crate) fn part_name(outcome: &HostMeasurementOutcome) -> String {
    match &outcome.interface {
        Some(interface) => format!("nic {interface}"),
        None => outcome.part.name().to_owned(),
    }
}

/// Returns the outcome of a part, in a word or two.
pub(crate) const fn state_name(state: HostMeasurementState) -> &'static str {
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
pub(crate) fn shortfall(outcome: &HostMeasurementOutcome) -> Option<String> {
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
pub(crate) fn headline(result: &HostAllResult, outcome: &HostMeasurementOutcome) -> Option<String> {
    match outcome.part {
        HostMeasurement::Clock => result.clock.as_ref().map(clock),
        HostMeasurement::Delay => result.delay.as_ref().map(delay),
        HostMeasurement::Timer => result.timer.as_ref().map(timer),
        HostMeasurement::Switch => result.switch.as_ref().map(switch),
        HostMeasurement::Interrupt => result.interrupt.as_ref().map(interrupt),
        HostMeasurement::Nic => {
            let interface = outcome.interface.as_deref()?;
            result.nics.iter().find(|one| one.interface == interface).map(nic)
        }
    }
}

pub(crate) fn clock(result: &HostClockResult) -> String {
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
pub(crate) fn nanosleep(result: &HostDelayResult) -> Option<&DelayMeasurement> {
    let cells = result.cells.iter().filter(|cell| cell.function == WaitFunction::Nanosleep);
    let cells = cells.filter(|cell| cell.overshoot_ns.is_some());
    cells.min_by_key(|cell| (cell.setting, cell.requested_ns.abs_diff(DELAY_NS)))
}

pub(crate) fn delay(result: &HostDelayResult) -> String {
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

pub(crate) fn timer(result: &HostTimerResult) -> String {
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

pub(crate) fn switch(result: &HostSwitchResult) -> String {
    let figure = |peer| {
        let steps = result.steps.iter().find(|steps| steps.peer == peer);
        let figure = steps.and_then(|steps| steps.per_switch_ns);
        figure.map_or_else(|| ABSENT.to_owned(), mean_ns)
    };
    format!(
        "process switch {}, thread switch {}",
        figure(SwitchPeer::Process),
        figure(SwitchPeer::Thread)
    )
}

pub(crate) fn interrupt(result: &HostInterruptResult) -> String {
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

pub(crate) fn nic(result: &HostNicResult) -> String {
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
pub(crate) const fn verdict_name(verdict: HostVerdict) -> &'static str {
    match verdict {
        HostVerdict::Fit => "fit",
        HostVerdict::Marginal => "fit with findings",
        HostVerdict::Unfit => "not fit",
        HostVerdict::Unjudged => "unknown",
    }
}

/// Returns a sentence on the verdict.
pub(crate) const fn verdict_sentence(verdict: HostVerdict) -> &'static str {
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

/// Returns the origin of one of the worst findings: `timer`, `interrupt and 2 more of this kind`.
pub(crate) fn origin(worst: &RankedFinding) -> String {
    let part = worst.part.map_or("all", HostMeasurement::name);
    match worst.others {
        0 => part.to_owned(),
        others => format!("{part}, and {others} more of this kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_part_has_a_main_figure() {
        let result = fixture::host_all();
        for outcome in &result.parts {
            let line = headline(&result, outcome).unwrap();
            assert!(!line.contains("NaN") && !line.starts_with('-'), "{line}");
        }
    }

    #[test]
    fn the_longest_wake_up_is_that_of_all_cores() {
        let mut result = fixture::host_all().timer.unwrap();
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
        let mut result = fixture::host_all();
        result.timer.as_mut().unwrap().cores.clear();
        result.delay.as_mut().unwrap().cells.clear();
        result.switch = None;
        let lines: Vec<_> = result.parts.iter().map(|one| headline(&result, one)).collect();
        assert_eq!((lines[1].as_deref(), lines[2].as_deref()), (Some(ABSENT), Some(ABSENT)));
        assert_eq!(lines[3], None);
    }
}
