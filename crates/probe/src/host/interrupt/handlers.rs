//! Latency from a timer's expiry to the first clock reading in a handler. Expiries are at random
//! intervals, so that none is in step with another timer of the host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use horolog_conditions as conditions;
use horolog_record::{Distribution, TimerHandlerKind, TimerHandlerLatency, TimerHandlerRepetition};
use horolog_stats::{Histogram, Recorder};
use horolog_sys::clock::MonotonicClock;
use horolog_sys::expiry::{SignalTimer, TimerFd};

use horolog_time::{Clock, Monotonic, Span, SplitMix64, Timestamp};
use horolog_xdp::KernelTimerProgram;

use super::InterruptOptions;
use crate::host::HostError;

/// Returns the name of a kind in progress and findings.
pub(super) const fn name(kind: TimerHandlerKind) -> &'static str {
    match kind {
        TimerHandlerKind::Kernel => "bpf_timer",
        TimerHandlerKind::Signal => "signal",
        TimerHandlerKind::Timerfd => "timerfd",
    }
}

/// Timer that expires repeatedly and returns the latency of each handler.
trait HandlerTimer {
    /// Runs `count` expiries, or fewer if the run is to end. Returns the latencies, and the number
    /// of handlers that ran on another core.
    fn repetition(&mut self, count: u64, stop: &AtomicBool) -> Result<(Histogram, u64), String>;
}

/// Measures all repetitions of a kind on one core, in the calling thread.
pub(super) fn measure(
    options: &InterruptOptions,
    core: usize,
    kind: TimerHandlerKind,
    stop: &AtomicBool,
) -> Result<TimerHandlerLatency, HostError> {
    let mut delay = TimerHandlerLatency {
        core,
        kind,
        scheduling: conditions::apply_to_thread(core, options.priority)?,
        repetitions: Vec::new(),
        delay_ns: None,
        elsewhere: 0,
        error: None,
    };
    let mut all = Histogram::new();
    match expiring(kind, options.distance) {
        Err(error) => delay.error = Some(error),
        Ok(mut expiring) => {
            for _ in 0..options.repetitions {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match expiring.repetition(options.expiries, stop) {
                    Ok((histogram, elsewhere)) => {
                        delay.elsewhere += elsewhere;
                        delay.repetitions.extend(figures(&histogram));
                        // Fails only for more values than can be counted in years.
                        let _ = all.merge(&histogram);
                    }
                    Err(error) => {
                        delay.error = Some(error);
                        break;
                    }
                }
            }
        }
    }
    delay.delay_ns = Distribution::from_histogram(&all);
    Ok(delay)
}

fn figures(histogram: &Histogram) -> Option<TimerHandlerRepetition> {
    let summary = histogram.summary()?;
    Some(TimerHandlerRepetition {
        count: summary.count,
        mean_ns: summary.mean,
        p99_ns: summary.p99,
        max_ns: summary.max,
    })
}

fn expiring(
    kind: TimerHandlerKind,
    distance: (Duration, Duration),
) -> Result<Box<dyn HandlerTimer>, String> {
    Ok(match kind {
        TimerHandlerKind::Kernel => {
            let timer = KernelTimerProgram::load().map_err(|error| error.to_string())?;
            Box::new(InKernel { timer, distance })
        }
        TimerHandlerKind::Signal => {
            let timer = SignalTimer::new().map_err(|error| error.to_string())?;
            Box::new(InUserSpace::new(distance, move |due| timer.expire_at(due)))
        }
        TimerHandlerKind::Timerfd => {
            let timer = TimerFd::new().map_err(|error| error.to_string())?;
            Box::new(InUserSpace::new(distance, move |due| timer.expire_at(due)))
        }
    })
}

struct InKernel {
    timer: KernelTimerProgram,
    distance: (Duration, Duration),
}

impl HandlerTimer for InKernel {
    fn repetition(&mut self, count: u64, stop: &AtomicBool) -> Result<(Histogram, u64), String> {
        let is_over = || stop.load(Ordering::Relaxed);
        let delays = self.timer.run(count, self.distance, &is_over);
        let delays = delays.map_err(|error| error.to_string())?;
        let raw = &delays.delays;
        let recorder = Recorder::from_raw(&raw.buckets, raw.sum.into(), raw.min, raw.max);
        let recorder = recorder.map_err(|error| error.to_string())?;
        Ok((recorder.to_histogram(), delays.on_other_core))
    }
}

struct InUserSpace<E> {
    random: SplitMix64,
    distance: (Duration, Duration),
    expire_at: E,
}

impl<E: FnMut(Timestamp<Monotonic>) -> std::io::Result<Timestamp<Monotonic>>> InUserSpace<E> {
    fn new(distance: (Duration, Duration), expire_at: E) -> Self {
        // The start is arbitrary, as long as it is in step with nothing.
        let seed = MonotonicClock.now().as_ns().unsigned_abs();
        Self { random: SplitMix64::new(seed), distance, expire_at }
    }
}

impl<E: FnMut(Timestamp<Monotonic>) -> std::io::Result<Timestamp<Monotonic>>> HandlerTimer
    for InUserSpace<E>
{
    fn repetition(&mut self, count: u64, stop: &AtomicBool) -> Result<(Histogram, u64), String> {
        let mut delays = Recorder::new();
        let (least, most) = self.distance;
        let [least, most] = [least, most].map(|time| time.as_nanos() as i64);
        while delays.count() < count && !stop.load(Ordering::Relaxed) {
            let distance = least + (self.random.next_f64() * (most - least).max(0) as f64) as i64;
            let due = MonotonicClock.now() + Span::from_ns(distance);
            match (self.expire_at)(due) {
                Ok(noticed) => delays.record((noticed - due).as_ns().max(0).unsigned_abs()),
                // A signal from outside: this expiry is unknown.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok((delays.to_histogram(), 0))
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
        let mut expiring = InUserSpace::new(distance, |due| {
            calls.set(calls.get() + 1);
            let interrupted = Err(std::io::ErrorKind::Interrupted.into());
            if calls.get() == 3 { interrupted } else { Ok(due + Span::from_ns(700)) }
        });
        let (histogram, _) = expiring.repetition(5, &AtomicBool::new(false)).unwrap();
        assert_eq!(
            (histogram.count(), histogram.min(), histogram.max()),
            (5, Some(700), Some(700))
        );
        assert_eq!(calls.get(), 6);
    }

    #[test]
    fn an_error_is_returned_and_a_stop_is_obeyed() {
        let distance = (Duration::ZERO, Duration::ZERO);
        let mut broken =
            InUserSpace::new(distance, |_| Err(std::io::ErrorKind::PermissionDenied.into()));
        assert!(broken.repetition(1, &AtomicBool::new(false)).is_err());
        let (histogram, _) = broken.repetition(1, &AtomicBool::new(true)).unwrap();
        assert!(histogram.is_empty() && figures(&histogram).is_none());
    }
}
