//! POSIX clocks and legacy time functions: resolution, cost of a reading, smallest step, and rate
//! against `CLOCK_MONOTONIC`.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use horolog_record::ClockFacts;
use horolog_sys::posix_clock::{PosixClockId, gettimeofday_ns, time_ns};

use super::tick;

/// Readings per batch, and number of batches, of whose costs the median is used.
const BATCH_READINGS: u32 = 2_000;
const BATCHES: usize = 9;
/// Readings after which the search for the smallest step ends if a step was found.
const STEP_READINGS: u32 = 50_000;
/// Longest search for a step of one clock.
const STEP_WATCH_MAX: Duration = Duration::from_millis(12);
/// Number of bracketed readings, of which the tightest is used.
const READING_PAIRS: usize = 16;

/// Facts of a clock, and the first reading for its rate.
pub(super) struct ObservedClock {
    facts: ClockFacts,
    clock: Option<PosixClockId>,
    first_reading: Option<PosixClockReading>,
}

/// Clock reading bracketed by two readings of `CLOCK_MONOTONIC`: their midpoint, the value, and the
/// error bound of the midpoint, all in ns.
#[derive(Clone, Copy, Debug)]
struct PosixClockReading {
    at: i64,
    value: i64,
    uncertainty: i64,
}

/// Name, function pointer and resolution in ns of a legacy time function.
type LegacyTimeFunction = (&'static str, fn() -> i64, u64);

/// Measures cost and step of all clocks, then takes the first readings for their rates.
pub(super) fn begin_observation(system_call_ns: Option<f64>) -> Vec<ObservedClock> {
    let mut all: Vec<_> =
        PosixClockId::ALL.into_iter().map(|clock| observe_clock(clock, system_call_ns)).collect();
    let older: [LegacyTimeFunction; 2] =
        [("gettimeofday()", gettimeofday_ns, 1_000), ("time()", time_ns, 1_000_000_000)];
    all.extend(older.map(|(name, read, resolution_ns)| {
        let cost_ns = reading_cost_ns(&|| Ok(read()));
        let facts = ClockFacts {
            resolution_ns: Some(resolution_ns),
            // A step of 1 s would take too long to observe.
            step_ns: (resolution_ns < 1_000_000).then(|| smallest_step(&|| Ok(read()))).flatten(),
            cost_ns,
            by_vdso: is_by_vdso(cost_ns, system_call_ns),
            ..empty_facts(name)
        };
        ObservedClock { facts, clock: None, first_reading: None }
    }));
    // Last, so that all rates cover the same time.
    for observed in &mut all {
        observed.first_reading = observed.clock.and_then(tightest_reading);
    }
    all
}

/// Returns the cost of a `clock_gettime` system call without vDSO, in ns; `None` if it fails.
pub(super) fn system_call_cost() -> Option<f64> {
    reading_cost_ns(&|| PosixClockId::MONOTONIC.now_by_system_call_ns())
}

/// Returns the facts of all clocks, with their rates since the first readings.
pub(super) fn clock_facts(observed: Vec<ObservedClock>) -> Vec<ClockFacts> {
    let ended = observed.into_iter().map(|one| {
        let now = one.clock.and_then(tightest_reading);
        let rate = one.first_reading.zip(now).and_then(|(begun, now)| rate_ppm(begun, now));
        ClockFacts {
            rate_ppm: rate.map(|rate| rate.0),
            rate_error_bound_ppm: rate.map(|rate| rate.1),
            ..one.facts
        }
    });
    ended.collect()
}

/// Returns the smallest observed steps of `CLOCK_REALTIME` and gettimeofday(2), in ns; `None` if
/// none was observed.
pub(crate) fn steps_of_system_clock() -> [Option<u64>; 2] {
    [smallest_step(&|| PosixClockId::REALTIME.now_ns()), smallest_step(&|| Ok(gettimeofday_ns()))]
}

fn empty_facts(name: &str) -> ClockFacts {
    ClockFacts {
        name: name.to_owned(),
        error: None,
        resolution_ns: None,
        step_ns: None,
        cost_ns: None,
        by_vdso: None,
        rate_ppm: None,
        rate_error_bound_ppm: None,
    }
}

fn observe_clock(clock: PosixClockId, system_call_ns: Option<f64>) -> ObservedClock {
    let read = || clock.now_ns();
    if let Err(error) = read() {
        let error = match error.raw_os_error() {
            // The kernel's error for alarm clocks on a host without a real-time clock.
            Some(EINVAL) => "not available on this host (it needs a real-time clock)".to_owned(),
            _ => error.to_string(),
        };
        let facts = ClockFacts { error: Some(error), ..empty_facts(clock.name) };
        return ObservedClock { facts, clock: None, first_reading: None };
    }
    let cost_ns = reading_cost_ns(&read);
    let facts = ClockFacts {
        resolution_ns: clock.resolution_ns().ok().and_then(|ns| u64::try_from(ns).ok()),
        step_ns: if clock.is_coarse() {
            tick::coarse_clock_step(clock)
        } else {
            smallest_step(&read)
        },
        cost_ns,
        by_vdso: is_by_vdso(cost_ns, system_call_ns),
        ..empty_facts(clock.name)
    };
    ObservedClock { facts, clock: (!clock.is_cpu_time()).then_some(clock), first_reading: None }
}

/// Error number of an invalid argument (errno(3)).
const EINVAL: i32 = 22;

/// Returns true if a reading costs less than 2/3 of a system call, so that it uses the vDSO; `None`
/// if a cost is unknown.
fn is_by_vdso(cost_ns: Option<f64>, system_call_ns: Option<f64>) -> Option<bool> {
    Some(cost_ns? * 1.5 < system_call_ns?)
}

fn reading_cost_ns(read: &dyn Fn() -> io::Result<i64>) -> Option<f64> {
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..BATCH_READINGS {
            black_box(read().ok()?);
        }
        batches.push(begun.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH_READINGS));
    }
    batches.sort_by(f64::total_cmp);
    batches.get(BATCHES / 2).copied()
}

/// Returns the smallest forward step between consecutive readings, in ns; `None` if a reading fails
/// or no step occurs within [`STEP_WATCH_MAX`].
fn smallest_step(read: &dyn Fn() -> io::Result<i64>) -> Option<u64> {
    let begun = Instant::now();
    let mut smallest: Option<u64> = None;
    let mut last = read().ok()?;
    for count in 0_u32.. {
        let now = read().ok()?;
        if let Ok(step @ 1..) = u64::try_from(now - last) {
            smallest = Some(smallest.map_or(step, |smallest| smallest.min(step)));
        }
        last = now;
        let is_enough = count >= STEP_READINGS && smallest.is_some();
        if is_enough || (count % 64 == 0 && begun.elapsed() > STEP_WATCH_MAX) {
            break;
        }
    }
    smallest
}

/// Returns the tightest of several bracketed readings; of a coarse clock, a reading at one of its
/// steps. `None` if the clock cannot be read, or the coarse clock does not step in time.
fn tightest_reading(clock: PosixClockId) -> Option<PosixClockReading> {
    if clock.is_coarse() {
        return reading_at_step(clock);
    }
    let readings = (0..READING_PAIRS).filter_map(|_| read_between(clock));
    readings.min_by_key(|reading| reading.uncertainty)
}

fn read_between(clock: PosixClockId) -> Option<PosixClockReading> {
    let before = PosixClockId::MONOTONIC.now_ns().ok()?;
    let shown = clock.now_ns().ok()?;
    let width = PosixClockId::MONOTONIC.now_ns().ok()? - before;
    Some(PosixClockReading { at: before + width / 2, value: shown, uncertainty: width / 2 + 1 })
}

fn reading_at_step(clock: PosixClockId) -> Option<PosixClockReading> {
    let begun = Instant::now();
    let mut last = read_between(clock)?;
    while begun.elapsed() < STEP_WATCH_MAX {
        let now = read_between(clock)?;
        if now.value != last.value {
            let apart = now.at - last.at;
            return Some(PosixClockReading { uncertainty: apart + now.uncertainty, ..now });
        }
        last = now;
    }
    None
}

/// Returns the clock's rate against `CLOCK_MONOTONIC` and its error bound, both in ppm; `None` if
/// no time passed between the readings.
fn rate_ppm(begun: PosixClockReading, now: PosixClockReading) -> Option<(f64, f64)> {
    let elapsed = now.at.checked_sub(begun.at).filter(|ns| *ns > 0)? as f64;
    let gained = (now.value - begun.value) as f64 - elapsed;
    let uncertainty = (begun.uncertainty + now.uncertainty) as f64;
    Some((gained / elapsed * 1e6, uncertainty / elapsed * 1e6))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_smallest_step_of_a_simulated_clock_is_found() {
        let now = Cell::new(0);
        let read = || {
            // Moves by 70 at every third reading, by 40 at every hundredth.
            let count = now.get() % 1_000_000 + 1;
            let step = if count % 100 == 0 { 40 } else { 70 * i64::from(count % 3 == 0) };
            now.set(now.get() + 1 + step * 1_000_000);
            Ok(now.get() / 1_000_000)
        };
        assert_eq!(smallest_step(&read), Some(40));
        assert_eq!(smallest_step(&|| Ok(7)), None);
    }

    #[test]
    fn a_clock_that_gains_has_its_rate() {
        let begun = PosixClockReading { at: 1_000, value: 50, uncertainty: 20 };
        let now = PosixClockReading { at: 1_000_001_000, value: 1_000_100_050, uncertainty: 30 };
        let (ppm, uncertainty) = rate_ppm(begun, now).unwrap();
        assert!(
            (ppm - 100.0).abs() < 1e-6 && (uncertainty - 0.05).abs() < 1e-6,
            "{ppm} {uncertainty}"
        );
        assert!(rate_ppm(now, now).is_none());
    }

    #[test]
    fn a_reading_that_costs_as_much_as_a_call_is_one() {
        assert_eq!(is_by_vdso(Some(25.0), Some(120.0)), Some(true));
        assert_eq!(is_by_vdso(Some(110.0), Some(120.0)), Some(false));
        assert_eq!(is_by_vdso(None, Some(120.0)), None);
    }

    #[test]
    fn all_clocks_of_this_host_are_reported() {
        let watched = begin_observation(system_call_cost());
        std::thread::sleep(Duration::from_millis(20));
        let facts = clock_facts(watched);
        assert_eq!(facts.len(), PosixClockId::ALL.len() + 2);
        let of = |name: &str| facts.iter().find(|one| one.name == name).unwrap();
        let monotonic = of("MONOTONIC");
        assert!(
            monotonic.cost_ns.unwrap() > 0.0 && monotonic.rate_ppm == Some(0.0) || {
                monotonic.rate_ppm.unwrap().abs() <= monotonic.rate_error_bound_ppm.unwrap()
            }
        );
        assert!(of("MONOTONIC_COARSE").step_ns > monotonic.step_ns, "{facts:?}");
        assert_eq!(of("PROCESS_CPUTIME_ID").rate_ppm, None);
        assert_eq!(of("gettimeofday()").step_ns.map(|step| step % 1_000), Some(0));
    }
}
