//! Latency from the expiry of a timer to the first clock reading in its handler. Expiries have
//! random intervals, so that they are not in phase with other timers of the host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use horolog_conditions as conditions;
use horolog_record::{Distribution, TimerHandlerKind, TimerHandlerLatency, TimerHandlerRepetition};
use horolog_stats::Histogram;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::expiry::{SignalTimer, TimerFd};

use horolog_time::{Clock, Monotonic, Span, SplitMix64, Timestamp};
use horolog_xdp::KernelTimerProgram;

use super::HostInterruptOptions;
use crate::host::MeasuringThreadError;

/// Returns the name of a handler kind, for progress and findings.
pub(super) const fn handler_name(kind: TimerHandlerKind) -> &'static str {
    match kind {
        TimerHandlerKind::Kernel => "bpf_timer",
        TimerHandlerKind::Signal => "signal",
        TimerHandlerKind::Timerfd => "timerfd",
    }
}

/// Timer whose handler latencies are measured.
trait MeasuredTimer {
    /// Runs `count` expiries, or fewer if `stop` is set. Returns the latencies in ns and the number
    /// of handlers that ran on another core, or the text of an error.
    fn run_repetition(&mut self, count: u64, stop: &AtomicBool)
    -> Result<(Histogram, u64), String>;
}

/// Measures all repetitions of one handler kind on one core, in the calling thread. An error of the
/// timer is stored in the record; one of the thread's settings is returned.
pub(super) fn measure(
    options: &HostInterruptOptions,
    core: usize,
    kind: TimerHandlerKind,
    stop: &AtomicBool,
) -> Result<TimerHandlerLatency, MeasuringThreadError> {
    let mut latency = TimerHandlerLatency {
        core,
        kind,
        scheduling: conditions::apply_to_thread(core, options.priority)?,
        repetitions: Vec::new(),
        delay_ns: None,
        elsewhere: 0,
        error: None,
    };
    let mut all = Histogram::new();
    match open_timer(kind, options.distance) {
        Err(error) => latency.error = Some(error),
        Ok(mut expiring) => {
            for _ in 0..options.repetitions {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match expiring.run_repetition(options.expiries, stop) {
                    Ok((histogram, elsewhere)) => {
                        latency.elsewhere += elsewhere;
                        latency.repetitions.extend(repetition_summary(&histogram));
                        all.merge(&histogram);
                    }
                    Err(error) => {
                        latency.error = Some(error);
                        break;
                    }
                }
            }
        }
    }
    latency.delay_ns = Distribution::from_histogram(&all);
    Ok(latency)
}

fn repetition_summary(histogram: &Histogram) -> Option<TimerHandlerRepetition> {
    let summary = histogram.summary()?;
    Some(TimerHandlerRepetition {
        count: summary.count,
        mean_ns: summary.mean,
        p99_ns: summary.p99,
        max_ns: summary.max,
    })
}

fn open_timer(
    kind: TimerHandlerKind,
    distance: (Duration, Duration),
) -> Result<Box<dyn MeasuredTimer>, String> {
    Ok(match kind {
        TimerHandlerKind::Kernel => {
            let timer = KernelTimerProgram::load().map_err(|error| error.to_string())?;
            Box::new(MeasuredKernelTimer { timer, distance })
        }
        TimerHandlerKind::Signal => {
            let timer = SignalTimer::new().map_err(|error| error.to_string())?;
            Box::new(MeasuredUserSpaceTimer::new(distance, move |due| timer.expire_at(due)))
        }
        TimerHandlerKind::Timerfd => {
            let timer = TimerFd::new().map_err(|error| error.to_string())?;
            Box::new(MeasuredUserSpaceTimer::new(distance, move |due| timer.expire_at(due)))
        }
    })
}

struct MeasuredKernelTimer {
    timer: KernelTimerProgram,
    distance: (Duration, Duration),
}

impl MeasuredTimer for MeasuredKernelTimer {
    fn run_repetition(
        &mut self,
        count: u64,
        stop: &AtomicBool,
    ) -> Result<(Histogram, u64), String> {
        let is_over = || stop.load(Ordering::Relaxed);
        let delays = self.timer.run(count, self.distance, &is_over);
        let delays = delays.map_err(|error| error.to_string())?;
        Ok((delays.delays.to_histogram(), delays.on_other_core))
    }
}

struct MeasuredUserSpaceTimer<E> {
    random: SplitMix64,
    distance: (Duration, Duration),
    expire_at: E,
}

impl<E: FnMut(Timestamp<Monotonic>) -> std::io::Result<Timestamp<Monotonic>>>
    MeasuredUserSpaceTimer<E>
{
    fn new(distance: (Duration, Duration), expire_at: E) -> Self {
        // Any seed will do; a different one for each run.
        let seed = ClockMonotonic.now().as_ns().unsigned_abs();
        Self { random: SplitMix64::new(seed), distance, expire_at }
    }
}

impl<E: FnMut(Timestamp<Monotonic>) -> std::io::Result<Timestamp<Monotonic>>> MeasuredTimer
    for MeasuredUserSpaceTimer<E>
{
    fn run_repetition(
        &mut self,
        count: u64,
        stop: &AtomicBool,
    ) -> Result<(Histogram, u64), String> {
        let mut delays = Histogram::new();
        let (least, most) = self.distance;
        let [least, most] = [least, most].map(|time| time.as_nanos() as i64);
        while delays.count() < count && !stop.load(Ordering::Relaxed) {
            let distance = least + (self.random.next_f64() * (most - least).max(0) as f64) as i64;
            let due = ClockMonotonic.now() + Span::from_ns(distance);
            match (self.expire_at)(due) {
                Ok(handled) => delays.record((handled - due).as_ns().max(0).unsigned_abs()),
                // Interrupted by a signal from outside: the latency is unknown.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok((delays, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler that is late by 700 ns each time, and once is not known.
    #[test]
    fn delays_count_from_their_expiry() {
        let calls = std::cell::Cell::new(0);
        let distance = (Duration::from_micros(10), Duration::from_micros(20));
        let mut expiring = MeasuredUserSpaceTimer::new(distance, |due| {
            calls.set(calls.get() + 1);
            let interrupted = Err(std::io::ErrorKind::Interrupted.into());
            if calls.get() == 3 { interrupted } else { Ok(due + Span::from_ns(700)) }
        });
        let (histogram, _) = expiring.run_repetition(5, &AtomicBool::new(false)).unwrap();
        assert_eq!(
            (histogram.count(), histogram.min(), histogram.max()),
            (5, Some(700), Some(700))
        );
        assert_eq!(calls.get(), 6);
    }

    #[test]
    fn an_error_is_returned_and_a_stop_is_obeyed() {
        let distance = (Duration::ZERO, Duration::ZERO);
        let mut broken = MeasuredUserSpaceTimer::new(distance, |_| {
            Err(std::io::ErrorKind::PermissionDenied.into())
        });
        assert!(broken.run_repetition(1, &AtomicBool::new(false)).is_err());
        let (histogram, _) = broken.run_repetition(1, &AtomicBool::new(true)).unwrap();
        assert!(histogram.is_empty() && repetition_summary(&histogram).is_none());
    }
}
