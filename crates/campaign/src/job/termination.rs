//! Termination escalation of a process, and interpretation of its exit status. Pure: the caller
//! sends the signals.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::order::JobEnd;

/// Time from SIGINT to SIGTERM, in which a process can write its results.
const RESULT_GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Time from SIGTERM to SIGKILL.
const TERM_GRACE_PERIOD: Duration = Duration::from_secs(3);
/// Exit statuses of a completed job: success, and a measurement outside its limits.
const DONE_STATUSES: [i32; 2] = [0, 1];
/// Offset of the exit status that a shell reports for a signal.
const SIGNAL_STATUS_BASE: i32 = 128;

/// Reason to terminate a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TerminationCause {
    /// The process is a service, and all other jobs have ended.
    Finished,
    /// The deadline has passed.
    TimedOut,
    /// The campaign is abandoned.
    Abandoned,
}

/// Step of the termination escalation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EscalationStep {
    /// `SIGINT`, on which measurements write their results so far.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
}

/// Steps, each with its time after the request for termination.
const ESCALATION: [(EscalationStep, Duration); 3] = [
    (EscalationStep::Interrupt, Duration::ZERO),
    (EscalationStep::Terminate, RESULT_GRACE_PERIOD),
    (EscalationStep::Kill, RESULT_GRACE_PERIOD.saturating_add(TERM_GRACE_PERIOD)),
];

/// Termination escalation of one process, with its progress.
#[derive(Debug, Default)]
pub(super) struct TerminationEscalation {
    requested: Option<(TerminationCause, Instant)>,
    steps_done: usize,
}

impl TerminationEscalation {
    /// Requests the termination; later requests have no effect.
    pub(super) fn request_termination(&mut self, cause: TerminationCause, now: Instant) {
        self.requested.get_or_insert((cause, now));
    }

    /// Returns the next step if its time has come; each step is returned once.
    pub(super) fn next_due_step(&mut self, now: Instant) -> Option<EscalationStep> {
        let (_, begun) = self.requested?;
        let (step, after) = *ESCALATION.get(self.steps_done)?;
        let is_due = now.saturating_duration_since(begun) >= after;
        self.steps_done += usize::from(is_due);
        is_due.then_some(step)
    }

    /// Interprets the end of the process. `last_line` is the last line of standard error;
    /// `result_error` is the reason why a required result is missing. A service that ended before
    /// its termination was requested has failed.
    pub(super) fn job_end(
        &self,
        is_service: bool,
        status: ExitStatus,
        last_line: Option<&str>,
        result_error: Option<String>,
    ) -> JobEnd {
        let cause = self.requested.map(|(cause, _)| cause);
        let is_early = is_service && cause.is_none();
        let result_error = result_error
            .or_else(|| is_early.then(|| "it ended before it was terminated".to_owned()));
        match cause {
            Some(TerminationCause::TimedOut) => return JobEnd::TimedOut,
            Some(TerminationCause::Abandoned) => return JobEnd::Abandoned,
            Some(TerminationCause::Finished) | None => {}
        }
        let failed = |status, message| JobEnd::Failed { status, message };
        match (status.code(), status.signal()) {
            (Some(status), _) if DONE_STATUSES.contains(&status) => match result_error {
                Some(lack) => failed(status, lack),
                None => JobEnd::Done { status },
            },
            (Some(status), _) => {
                let last = last_line.unwrap_or("it ended without an error message");
                failed(status, last.strip_prefix("horolog: ").unwrap_or(last).to_owned())
            }
            (None, Some(signal)) if cause == Some(TerminationCause::Finished) => failed(
                SIGNAL_STATUS_BASE + signal,
                "it did not exit on request and was terminated by a signal".into(),
            ),
            (None, signal) => JobEnd::Signalled { signal: signal.unwrap_or(0) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn a_process_is_interrupted_before_it_is_killed() {
        let now = Instant::now();
        let mut ender = TerminationEscalation::default();
        assert_eq!(ender.next_due_step(now), None);
        ender.request_termination(TerminationCause::TimedOut, now);
        assert_eq!(ender.next_due_step(now), Some(EscalationStep::Interrupt));
        assert_eq!(ender.next_due_step(now + RESULT_GRACE_PERIOD / 2), None);
        // A later cause begins nothing anew.
        ender.request_termination(TerminationCause::Abandoned, now + RESULT_GRACE_PERIOD);
        assert_eq!(ender.next_due_step(now + RESULT_GRACE_PERIOD), Some(EscalationStep::Terminate));
        assert_eq!(ender.next_due_step(now + RESULT_GRACE_PERIOD), None);
        assert_eq!(ender.next_due_step(now + RESULT_GRACE_PERIOD * 9), Some(EscalationStep::Kill));
        assert_eq!(ender.next_due_step(now + RESULT_GRACE_PERIOD * 9), None);
        assert_eq!(ender.job_end(false, ExitStatus::from_raw(9), None, None), JobEnd::TimedOut);
    }

    #[test]
    fn ends_are_interpreted_by_status_and_cause() {
        let ender = TerminationEscalation::default();
        let ending = |status, last, lack: Option<&str>| {
            ender.job_end(false, status, last, lack.map(ToOwned::to_owned))
        };
        assert_eq!(ending(exited(0), Some("x"), None), JobEnd::Done { status: 0 });
        assert_eq!(ending(exited(1), None, None), JobEnd::Done { status: 1 });
        let message = "no route".to_owned();
        let failed = JobEnd::Failed { status: 3, message };
        assert_eq!(ending(exited(3), Some("horolog: no route"), None), failed);
        let message = "none".to_owned();
        assert_eq!(ending(exited(0), None, Some("none")), JobEnd::Failed { status: 0, message });
        assert_eq!(ending(ExitStatus::from_raw(11), None, None), JobEnd::Signalled { signal: 11 });
        let mut finished = TerminationEscalation::default();
        finished.request_termination(TerminationCause::Finished, Instant::now());
        assert_eq!(finished.job_end(true, exited(0), None, None), JobEnd::Done { status: 0 });
        let killed = finished.job_end(true, ExitStatus::from_raw(9), None, None);
        assert!(matches!(killed, JobEnd::Failed { status: 137, .. }), "{killed:?}");
        let early = TerminationEscalation::default().job_end(true, exited(0), None, None);
        let message = "it ended before it was terminated".to_owned();
        assert_eq!(early, JobEnd::Failed { status: 0, message });
    }
}
