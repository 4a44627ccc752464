//! nanosleep(2) interrupted by periodic signals: total duration of a delay, by the strategy with
//! which the program resumes it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use horolog_record::{InterruptedDelay, InterruptedSleepStrategy};
use horolog_sys::clock::sleep_until;
use horolog_sys::delay::nanosleep_once;
use horolog_sys::wake_signal::{WakeSignalHandler, WakeTarget};
use horolog_time::Timestamp;

use super::cell::{now_ns, saturating_ns, thread_time_ns};

/// Requested delay of the interrupted sleep.
const DELAY: Duration = Duration::from_millis(60);
/// Interval of the signals.
const INTERVAL: Duration = Duration::from_millis(2);
/// Multiple of the requested delay after which it is abandoned; a delay that is restarted in full
/// may never end.
const DURATION_FACTOR_MAX: u64 = 3;

const STRATEGIES: [InterruptedSleepStrategy; 4] = [
    InterruptedSleepStrategy::None,
    InterruptedSleepStrategy::Remaining,
    InterruptedSleepStrategy::Absolute,
    InterruptedSleepStrategy::Again,
];

/// Measures all strategies, each under periodic signals; restores the signal handler.
pub(super) fn measure_strategies() -> io::Result<Vec<InterruptedDelay>> {
    STRATEGIES.into_iter().map(|resumption| under_signals(resumption, DELAY, INTERVAL)).collect()
}

fn under_signals(
    resumption: InterruptedSleepStrategy,
    delay: Duration,
    interval: Duration,
) -> io::Result<InterruptedDelay> {
    let interruption = WakeSignalHandler::install()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (announce, announced) = mpsc::channel();
        let is_over = &is_over;
        let sleeper = scope.spawn(move || {
            // If this fails, the receiver detects that the channel is closed.
            let _ = announce.send(WakeTarget::current()?);
            let outcome = wait(resumption, delay);
            is_over.store(true, Ordering::Release);
            outcome
        });
        if let Ok(waiter) = announced.recv() {
            while !is_over.load(Ordering::Acquire) {
                thread::sleep(interval);
                // Fails if the thread has ended meanwhile.
                let _ = interruption.send(waiter);
            }
        }
        let thread_failed = || Err(io::ErrorKind::Other.into());
        sleeper.join().unwrap_or_else(|_| thread_failed())
    })
}

fn wait(resumption: InterruptedSleepStrategy, delay: Duration) -> io::Result<InterruptedDelay> {
    let (begun, processor) = (now_ns(), thread_time_ns());
    let due = begun.saturating_add(saturating_ns(delay));
    let deadline = begun.saturating_add(saturating_ns(delay).saturating_mul(DURATION_FACTOR_MAX));
    let (mut calls, mut interruptions, mut remaining) = (0, 0, delay);
    let ended = loop {
        calls += 1;
        remaining = match resumption {
            InterruptedSleepStrategy::Absolute => remaining_after_sleep(due),
            _ => nanosleep_once(remaining)?,
        };
        if remaining.is_zero() {
            break true;
        }
        interruptions += 1;
        match resumption {
            InterruptedSleepStrategy::None => break true,
            InterruptedSleepStrategy::Again => remaining = delay,
            InterruptedSleepStrategy::Remaining | InterruptedSleepStrategy::Absolute => {}
        }
        if now_ns() > deadline {
            break false;
        }
    };
    Ok(InterruptedDelay {
        resumption,
        requested_ns: saturating_ns(delay),
        duration_ns: now_ns() - begun,
        ended,
        interruptions,
        calls,
        processor_ns: thread_time_ns().saturating_sub(processor),
    })
}

/// Sleeps until an absolute instant in ns; returns the remaining time if a signal ended the sleep,
/// else zero.
fn remaining_after_sleep(due: u64) -> Duration {
    sleep_until(Timestamp::from_ns(i64::try_from(due).unwrap_or(i64::MAX)));
    Duration::from_nanos(due.saturating_sub(now_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn outcome(resumption: InterruptedSleepStrategy) -> InterruptedDelay {
        under_signals(resumption, SHORT, Duration::from_millis(1)).unwrap()
    }

    #[test]
    fn an_abandoned_wait_is_early_and_a_resumed_one_is_not() {
        let not_resumed = outcome(InterruptedSleepStrategy::None);
        assert!(
            not_resumed.duration_ns < saturating_ns(SHORT) && not_resumed.interruptions == 1,
            "{not_resumed:?}"
        );
        for resumption in [InterruptedSleepStrategy::Remaining, InterruptedSleepStrategy::Absolute]
        {
            let resumed = outcome(resumption);
            assert!(resumed.duration_ns >= saturating_ns(SHORT) && resumed.ended, "{resumed:?}");
            assert!(resumed.interruptions > 1, "{resumed:?}");
            assert!(resumed.processor_ns < resumed.duration_ns / 2, "{resumed:?}");
        }
    }

    #[test]
    fn what_begins_again_at_each_signal_does_not_end() {
        let again = outcome(InterruptedSleepStrategy::Again);
        assert!(!again.ended && again.duration_ns > 2 * saturating_ns(SHORT), "{again:?}");
    }
}
