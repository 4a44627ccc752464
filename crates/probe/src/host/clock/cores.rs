//! Monotonicity of `CLOCK_MONOTONIC` across cores: one thread per core reads it, and no reading may
//! be earlier than one that another core had published before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use horolog_record::CoreMonotonicity;
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::posix_clock::PosixClockId;

/// Maximum number of compared cores, which all contend for one atomic word.
const CORES_MAX: usize = 64;
/// Number of low bits of the shared word that hold the index of the reading core; the others hold
/// the reading in ns.
const CORE_BITS: u32 = 7;

/// Counts of one core's readings: those preceded by one of another core, and those earlier than the
/// latest published one, with the largest difference.
#[derive(Clone, Copy, Debug, Default)]
struct CoreMonotonicityCounts {
    handoffs: u64,
    backwards: u64,
    backwards_max_ns: u64,
}

/// Compares readings of up to [`CORES_MAX`] cores during `time`; `None` if fewer than two cores are
/// available, or the clock cannot be read.
pub(super) fn compare_cores(time: Duration) -> Option<CoreMonotonicity> {
    let mut cores = allowed_cores().ok()?;
    cores.truncate(CORES_MAX);
    if cores.len() < 2 {
        return None;
    }
    // Readings count from 1 s before now, so that they fit beside the core index; one that is
    // earlier counts as 0.
    let base = PosixClockId::MONOTONIC.now_ns().ok()? - 1_000_000_000;
    let read = || Some(u64::try_from(PosixClockId::MONOTONIC.now_ns().ok()? - base).unwrap_or(0));
    let (latest, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let per_core: Vec<_> = thread::scope(|scope| {
        let start_reader = |(index, core): (usize, &usize)| {
            let (core, latest, is_over) = (*core, &latest, &is_over);
            scope.spawn(move || {
                pin_to_core(core).ok().map(|()| read_on_core(index as u64, latest, is_over, &read))
            })
        };
        let threads: Vec<_> = cores.iter().enumerate().map(start_reader).collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    let total = |of: fn(&CoreMonotonicityCounts) -> u64| per_core.iter().map(of).sum();
    (per_core.len() > 1).then(|| CoreMonotonicity {
        cores: per_core.len(),
        handoffs: total(|readings| readings.handoffs),
        backwards: total(|readings| readings.backwards),
        backwards_max_ns: per_core
            .iter()
            .map(|readings| readings.backwards_max_ns)
            .max()
            .unwrap_or(0),
    })
}

fn read_on_core(
    index: u64,
    latest: &AtomicU64,
    is_over: &AtomicBool,
    read: &dyn Fn() -> Option<u64>,
) -> CoreMonotonicityCounts {
    let mut readings = CoreMonotonicityCounts::default();
    while !is_over.load(Ordering::Relaxed) {
        // A published reading was taken before the next one of this thread.
        let before = latest.load(Ordering::SeqCst);
        let Some(now) = read() else { break };
        let (earlier, last_core) = (before >> CORE_BITS, before & ((1 << CORE_BITS) - 1));
        if last_core != index {
            readings.handoffs += 1;
        }
        if now < earlier {
            readings.backwards += 1;
            readings.backwards_max_ns = readings.backwards_max_ns.max(earlier - now);
        } else {
            latest.fetch_max(now << CORE_BITS | index, Ordering::SeqCst);
        }
    }
    readings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_on_one_core_is_caught() {
        let (latest, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let ahead = |ns: u64| {
            let read = move || PosixClockId::MONOTONIC.now_ns().ok().map(|now| now as u64 + ns);
            let (latest, is_over) = (&latest, &is_over);
            move |index| read_on_core(index, latest, is_over, &read)
        };
        let (first, second) = (ahead(1_000_000_000), ahead(0));
        let per_core = thread::scope(|scope| {
            let threads = [scope.spawn(move || first(0)), scope.spawn(move || second(1))];
            thread::sleep(Duration::from_millis(30));
            is_over.store(true, Ordering::Relaxed);
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(per_core[0].backwards, 0);
        assert!(
            per_core[1].backwards > 0 && per_core[1].backwards_max_ns > 900_000_000,
            "{per_core:?}"
        );
    }

    #[test]
    fn what_the_kernel_calls_monotonic_is() {
        if let Some(order) = compare_cores(Duration::from_millis(20)) {
            assert!(order.cores > 1 && order.backwards == 0, "{order:?}");
        }
    }
}
