//! Properties of this host's clocks. They are read for a few seconds; nothing is set, and no
//! privilege is needed, though root sees more.

mod cores;
mod devices;
mod findings;
mod machine;
pub(crate) mod posix;
pub(crate) mod tick;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use horolog_record::{
    HOST_CLOCK_SCHEMA, Host, HostClockResult, KernelDiscipline, LeapState, rfc3339_now,
};
use horolog_sys::adjtimex::{KernelClockStatus, PendingLeap, kernel_clock};
use horolog_sys::clock::realtime_minus_monotonic;

pub(crate) use findings::finding;

/// Longest sleep between two checks of whether the run is to end.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Maximum duration of the comparison across cores.
const CORE_COMPARISON_TIME: Duration = Duration::from_millis(150);

/// Options of a clock measurement.
#[derive(Clone, Debug)]
pub struct HostClockOptions {
    /// Time for which rates are measured.
    pub time: Duration,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Measures the clocks. If `is_over` returns true early, rates are measured over a shorter time.
pub fn measure(options: HostClockOptions, is_over: &dyn Fn() -> bool) -> HostClockResult {
    let started = rfc3339_now();
    let root = Path::new("/");
    let clocksource = machine::clocksource(root);
    let tick = tick::measure_tick();
    let system_call_ns = posix::system_call_cost();
    let before = total_and_steal_ticks();
    let offset = realtime_minus_monotonic();
    let observed_clocks = posix::begin_observation(system_call_ns);
    let begun = Instant::now();
    let cores = cores::compare_cores(CORE_COMPARISON_TIME.min(options.time));
    let (rtcs, phcs) = (devices::read_rtcs(root), devices::read_phcs(root));
    while begun.elapsed() < options.time && !is_over() {
        std::thread::sleep(SLEEP_MAX.min(options.time.saturating_sub(begun.elapsed())));
    }
    let was_stepped = !offset.agrees(realtime_minus_monotonic());
    let observed_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let clocks = posix::clock_facts(observed_clocks);
    let mut waking = machine::wakeup_facts(root, &clocksource);
    waking.stolen_share = before.zip(total_and_steal_ticks()).and_then(steal_share);
    let mut result = HostClockResult {
        schema: HOST_CLOCK_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        tick,
        clocksource,
        clocks,
        system_call_ns,
        observed_ns,
        cores,
        rtcs,
        phcs,
        kernel: kernel_clock().ok().map(kernel_discipline),
        waking,
        findings: Vec::new(),
    };
    let is_interrupted = begun.elapsed() < options.time;
    result.findings = findings::all_findings(&result, was_stepped, is_interrupted);
    result
}

fn total_and_steal_ticks() -> Option<(u64, u64)> {
    machine::total_and_steal_ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// Returns the share of steal between two readings of total and steal ticks; `None` if no tick
/// passed.
fn steal_share((before, after): ((u64, u64), (u64, u64))) -> Option<f64> {
    let all = after.0.checked_sub(before.0).filter(|all| *all > 0)?;
    Some(after.1.saturating_sub(before.1) as f64 / all as f64)
}

fn kernel_discipline(clock: KernelClockStatus) -> KernelDiscipline {
    KernelDiscipline {
        synchronised: clock.synchronised,
        leap: match clock.leap {
            _ if !clock.synchronised => LeapState::Unsynchronised,
            PendingLeap::None => LeapState::None,
            PendingLeap::Insert => LeapState::Insert,
            PendingLeap::Delete => LeapState::Delete,
        },
        frequency_ppb: clock.frequency_ppb,
        maximum_error_ns: clock.maximum_error.as_ns(),
        estimated_error_ns: clock.estimated_error.as_ns(),
        tai_offset_s: clock.tai_offset_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_lasts_as_long_as_requested_and_ends_if_interrupted() {
        let options =
            HostClockOptions { time: Duration::from_millis(60), command: vec!["x".into()] };
        let result = measure(options.clone(), &|| false);
        assert!(result.observed_ns >= 60_000_000 && !result.clocks.is_empty(), "{result:?}");
        let hurried = HostClockOptions { time: Duration::from_mins(10), ..options };
        let result = measure(hurried, &|| true);
        let codes: Vec<_> = result.findings.iter().map(|finding| finding.code).collect();
        assert!(codes.contains(&horolog_record::FindingCode::Interrupted), "{codes:?}");
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        assert_eq!(steal_share(((100, 2), (300, 12))), Some(0.05));
        assert_eq!(steal_share(((100, 2), (100, 2))), None);
    }
}
