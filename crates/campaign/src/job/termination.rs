//! Termination escalation of a process, and the meaning of its end. Pure: steps are returned, and
//! the caller executes them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::order::JobEnd;

/// Time from the interrupt in which a process can write its results.
const WRITING: Duration = Duration::from_secs(10);
/// Time after the second signal.
const LEAVING: Duration = Duration::from_secs(3);
/// Exit statuses of a completed job: success, and a measurement outside its limits.
const DONE: [i32; 2] = [0, 1];
/// Offset that a shell adds to the number of a signal.
const BY_SIGNAL: i32 = 128;

/// Reason to terminate a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TerminationCause {
    /// It is a service, and all else is done.
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

/// Steps, and the time of each after the first.
const ESCALATION: [(EscalationStep, Duration); 3] = [
    (EscalationStep::Interrupt, Duration::ZERO),
    (EscalationStep::Terminate, WRITING),
    (EscalationStep::Kill, WRITING.saturating_add(LEAVING)),
];

/// Termination of one process.
#[derive(Debug, Default)]
pub(super) struct Terminator {
    begun: Option<(TerminationCause, Instant)>,
    steps_done: usize,
}

impl Terminator {
    /// Requests the termination for this reason; the first one counts.
    pub(super) fn end(&mut self, cause: TerminationCause, now: Instant) {
        self.begun.get_or_insert((cause, now));
    }

    /// Returns the next step if it is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<EscalationStep> {
        let (_, begun) = self.begun?;
        let (step, after) = *ESCALATION.get(self.steps_done)?;
        let is_due = now.saturating_duration_since(begun) >= after;
        self.steps_done += usize::from(is_due);
        is_due.then_some(step)
    }

    /// Interprets the end of the process. `last` is the last line of standard error; `lack` is the
    /// reason why a required result is missing. A service that ended before it was terminated did
    /// not fulfil its purpose.
    pub(super) fn ending(
        &self,
        is_service: bool,
        status: ExitStatus,
        last: Option<&str>,
        lack: Option<String>,
    ) -> JobEnd {
        let cause = self.begun.map(|(cause, _)| cause);
        let is_early = is_service && cause.is_none();
        let lack =
            lack.or_else(|| is_early.then(|| "it ended before it was terminated".to_owned()));
        match cause {
            Some(TerminationCause::TimedOut) => return JobEnd::TimedOut,
            Some(TerminationCause::Abandoned) => return JobEnd::Abandoned,
            Some(TerminationCause::Finished) | None => {}
        }
        let failed = |status, message| JobEnd::Failed { status, message };
        match (status.code(), status.signal()) {
            (Some(status), _) if DONE.contains(&status) => match lack {
                Some(lack) => failed(status, lack),
                None => JobEnd::Done { status },
            },
            (Some(status), _) => {
                let last = last.unwrap_or("it ended without an error message");
                failed(status, last.strip_prefix("horolog: ").unwrap_or(last).to_owned())
            }
            (None, Some(signal)) if cause == Some(TerminationCause::Finished) => failed(
                BY_SIGNAL + signal,
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
        let mut ender = Terminator::default();
        assert_eq!(ender.due(now), None);
        ender.end(TerminationCause::TimedOut, now);
        assert_eq!(ender.due(now), Some(EscalationStep::Interrupt));
        assert_eq!(ender.due(now + WRITING / 2), None);
        // A later cause begins nothing anew.
        ender.end(TerminationCause::Abandoned, now + WRITING);
        assert_eq!(ender.due(now + WRITING), Some(EscalationStep::Terminate));
        assert_eq!(ender.due(now + WRITING), None);
        assert_eq!(ender.due(now + WRITING * 9), Some(EscalationStep::Kill));
        assert_eq!(ender.due(now + WRITING * 9), None);
        assert_eq!(ender.ending(false, ExitStatus::from_raw(9), None, None), JobEnd::TimedOut);
    }

    #[test]
    fn ends_are_interpreted_by_status_and_cause() {
        let ender = Terminator::default();
        let ending = |status, last, lack: Option<&str>| {
            ender.ending(false, status, last, lack.map(ToOwned::to_owned))
        };
        assert_eq!(ending(exited(0), Some("x"), None), JobEnd::Done { status: 0 });
        assert_eq!(ending(exited(1), None, None), JobEnd::Done { status: 1 });
        let message = "no route".to_owned();
        let failed = JobEnd::Failed { status: 3, message };
        assert_eq!(ending(exited(3), Some("horolog: no route"), None), failed);
        let message = "none".to_owned();
        assert_eq!(ending(exited(0), None, Some("none")), JobEnd::Failed { status: 0, message });
        assert_eq!(ending(ExitStatus::from_raw(11), None, None), JobEnd::Signalled { signal: 11 });
        let mut finished = Terminator::default();
        finished.end(TerminationCause::Finished, Instant::now());
        assert_eq!(finished.ending(true, exited(0), None, None), JobEnd::Done { status: 0 });
        let killed = finished.ending(true, ExitStatus::from_raw(9), None, None);
        assert!(matches!(killed, JobEnd::Failed { status: 137, .. }), "{killed:?}");
        let early = Terminator::default().ending(true, exited(0), None, None);
        let message = "it ended before it was terminated".to_owned();
        assert_eq!(early, JobEnd::Failed { status: 0, message });
    }
}
