//! What this host's clocks are and do. They are read for a few seconds; nothing is set, and nothing
//! here needs privilege, though root is told more.

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
use horolog_sys::adjtimex::{KernelClock, PendingLeap, kernel_clock};
use horolog_sys::clock::realtime_minus_monotonic;

pub(crate) use findings::finding;

/// A sleep is no longer, so that a run that is to end does.
const NAP: Duration = Duration::from_millis(50);
/// How long cores read in turn.
const CORES_TIME: Duration = Duration::from_millis(150);

/// How to look at the clocks.
#[derive(Clone, Debug)]
pub struct HostClockOptions {
    /// For how long their rates are watched.
    pub time: Duration,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// Looks at the clocks; a run that is over early has watched their rates for less.
pub fn look(options: HostClockOptions, is_over: &dyn Fn() -> bool) -> HostClockResult {
    let started = rfc3339_now();
    let root = Path::new("/");
    let clocksource = machine::clocksource(root);
    let tick = tick::look();
    let system_call_ns = posix::system_call_cost();
    let before = processor_time();
    let offset = realtime_minus_monotonic();
    let watched = posix::begin(system_call_ns);
    let begun = Instant::now();
    let cores = cores::compare(CORES_TIME.min(options.time));
    let (rtcs, phcs) = (devices::rtcs(root), devices::phcs(root));
    while begun.elapsed() < options.time && !is_over() {
        std::thread::sleep(NAP.min(options.time.saturating_sub(begun.elapsed())));
    }
    let was_set = !offset.agrees(realtime_minus_monotonic());
    let watched_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let clocks = posix::end(watched);
    let mut waking = machine::waking(root, &clocksource);
    waking.stolen_share = before.zip(processor_time()).and_then(stolen);
    let mut result = HostClockResult {
        schema: HOST_CLOCK_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        tick,
        clocksource,
        clocks,
        system_call_ns,
        watched_ns,
        cores,
        rtcs,
        phcs,
        kernel: kernel_clock().ok().map(discipline),
        waking,
        findings: Vec::new(),
    };
    let is_interrupted = begun.elapsed() < options.time;
    result.findings = findings::all(&result, was_set, is_interrupted);
    result
}

fn processor_time() -> Option<(u64, u64)> {
    machine::processor_time(&fs::read_to_string("/proc/stat").ok()?)
}

/// The share that was taken between two looks.
fn stolen((before, after): ((u64, u64), (u64, u64))) -> Option<f64> {
    let all = after.0.checked_sub(before.0).filter(|all| *all > 0)?;
    Some(after.1.saturating_sub(before.1) as f64 / all as f64)
}

fn discipline(clock: KernelClock) -> KernelDiscipline {
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
    fn a_look_is_as_long_as_it_is_to_be_and_ends_when_it_is_to() {
        let options =
            HostClockOptions { time: Duration::from_millis(60), command: vec!["x".into()] };
        let result = look(options.clone(), &|| false);
        assert!(result.watched_ns >= 60_000_000 && !result.clocks.is_empty(), "{result:?}");
        let hurried = HostClockOptions { time: Duration::from_mins(10), ..options };
        let result = look(hurried, &|| true);
        let codes: Vec<_> = result.findings.iter().map(|finding| finding.code).collect();
        assert!(codes.contains(&horolog_record::Code::Interrupted), "{codes:?}");
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        assert_eq!(stolen(((100, 2), (300, 12))), Some(0.05));
        assert_eq!(stolen(((100, 2), (100, 2))), None);
    }
}
