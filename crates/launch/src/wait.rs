//! Wait for conditions: checks run in threads, because they may hang; `poll_schedule` decides when
//! to check; a deadline or a signal ends the wait. Returns the outcome of each condition; the
//! caller runs a program afterwards.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{
    AFTER_SCHEMA, AfterDependencyResult, AfterOutcome, AfterResult, Host, rfc3339_now,
};

use crate::condition::{CheckResult, Condition};
use crate::poll_schedule::{Backoff, ConditionChange, ConditionCheckSchedule};
use crate::signals::{CaughtSignal, SignalWatcher};

/// Conditions to wait for, and options of the wait.
#[derive(Clone, Debug)]
pub struct ConditionWaitOptions {
    /// Conditions, all of which must hold.
    pub conditions: Vec<Condition>,
    /// Longest time to wait; `None` for no limit.
    pub deadline: Option<Duration>,
    /// Pauses between the checks of one condition.
    pub backoff: Backoff,
    /// Timeout of one check, as in [`Condition::check`].
    pub check_timeout: Duration,
    /// Command line, for the record.
    pub command: Vec<String>,
    /// Program to run afterwards, for the record.
    pub program: Vec<String>,
}

/// Event for the waiting thread.
enum ConditionWaitLoopEvent {
    Checked(usize, CheckResult),
    Signal(CaughtSignal),
}

/// Outcome of a wait.
#[derive(Clone, Debug)]
pub struct ConditionWaitOutcome {
    /// Result for the record and the report, with the outcome of each condition.
    pub result: AfterResult,
    /// Signal that ended the wait.
    pub signal: Option<CaughtSignal>,
}

struct ConditionWaiter {
    options: ConditionWaitOptions,
    conditions: Vec<Arc<Condition>>,
    schedule: ConditionCheckSchedule,
    start: Instant,
    to: Sender<ConditionWaitLoopEvent>,
    events: Receiver<ConditionWaitLoopEvent>,
}

/// Waits until all conditions hold, the deadline has passed or a signal is caught. Passes changes
/// to `report_change`. Checks that still hang at the end are abandoned: end the process soon.
///
/// # Errors
///
/// A thread cannot be created.
pub fn wait(
    options: ConditionWaitOptions,
    report_change: impl Fn(&AfterDependencyResult, ConditionChange),
) -> io::Result<ConditionWaitOutcome> {
    let (started, start) = (rfc3339_now(), Instant::now());
    let (to, events) = mpsc::channel();
    let _signals = SignalWatcher::watch(to.clone(), ConditionWaitLoopEvent::Signal)?;
    let conditions: Vec<_> = options.conditions.iter().cloned().map(Arc::new).collect();
    let due = conditions.iter().map(|condition| match **condition {
        Condition::Delay(time) => time,
        _ => Duration::ZERO,
    });
    let schedule = ConditionCheckSchedule::new(due, options.backoff);
    let mut waiter = ConditionWaiter { options, conditions, schedule, start, to, events };
    let (end, signal) = waiter.run(report_change)?;
    Ok(ConditionWaitOutcome { result: waiter.result(started, end), signal })
}

impl ConditionWaiter {
    fn run(
        &mut self,
        report_change: impl Fn(&AfterDependencyResult, ConditionChange),
    ) -> io::Result<(AfterOutcome, Option<CaughtSignal>)> {
        loop {
            let now = self.start.elapsed();
            if self.schedule.is_done(now) {
                return Ok((AfterOutcome::Held, None));
            }
            if self.options.deadline.is_some_and(|deadline| now >= deadline) {
                return Ok((AfterOutcome::Deadline, None));
            }
            for index in self.schedule.take_due(now) {
                self.start_check(index)?;
            }
            match self.events.recv_timeout(self.next_timeout()) {
                Ok(ConditionWaitLoopEvent::Checked(index, result)) => {
                    if let Some(change) =
                        self.schedule.record_check(index, self.start.elapsed(), result)
                    {
                        report_change(&self.dependency(index), change);
                    }
                }
                Ok(ConditionWaitLoopEvent::Signal(caught)) => {
                    return Ok((AfterOutcome::Interrupted, Some(caught)));
                }
                // This thread holds a sender itself, so the channel is never closed.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Returns the longest wait for an event: until the next check or the deadline, at most an
    /// hour.
    fn next_timeout(&self) -> Duration {
        let until = [self.schedule.next_due(), self.options.deadline].into_iter().flatten().min();
        let until = until.unwrap_or(Duration::MAX).saturating_sub(self.start.elapsed());
        until.min(Duration::from_hours(1))
    }

    /// Checks a condition in a thread of its own.
    fn start_check(&self, index: usize) -> io::Result<()> {
        let (condition, to) = (Arc::clone(&self.conditions[index]), self.to.clone());
        let (start, timeout) = (self.start, self.options.check_timeout);
        let check = move || {
            let result = condition.check(start.elapsed(), timeout);
            // The receiver is gone if the wait is over.
            let _ = to.send(ConditionWaitLoopEvent::Checked(index, result));
        };
        thread::Builder::new().name("condition-check".into()).spawn(check).map(drop)
    }

    fn dependency(&self, index: usize) -> AfterDependencyResult {
        let (condition, state) = (&self.conditions[index], &self.schedule.conditions()[index]);
        AfterDependencyResult {
            kind: condition.kind(),
            target: condition.target(),
            held: state.held_since.is_some(),
            satisfied_after_ns: state.held_since.map(saturating_ns),
            tries: state.tries,
            lost: state.lost,
            last_check: state.detail.clone(),
        }
    }

    fn result(self, started: String, end: AfterOutcome) -> AfterResult {
        AfterResult {
            schema: AFTER_SCHEMA.to_owned(),
            started,
            host: Host::read(),
            deadline_ns: self.options.deadline.map(saturating_ns),
            waited_ns: saturating_ns(self.start.elapsed()),
            end,
            dependencies: (0..self.conditions.len()).map(|index| self.dependency(index)).collect(),
            command: self.options.command,
            program: self.options.program,
            findings: Vec::new(),
        }
    }
}

fn saturating_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
