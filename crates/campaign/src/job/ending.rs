//! How a process is ended, step by step, and what its end means. Pure: what is due is said, and
//! somebody else does it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::order::Ending;

/// How long a process has, from being interrupted, to write what it has measured.
const WRITING: Duration = Duration::from_secs(10);
/// How long it has after it was asked to end once more.
const LEAVING: Duration = Duration::from_secs(3);
/// Exit statuses with which what was to be done was done: all well, and what was measured is not
/// what it should be.
const DONE: [i32; 2] = [0, 1];
/// What a shell adds to the number of a signal.
const BY_SIGNAL: i32 = 128;

/// Why a process is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// It is a service, and all else is done.
    Finished,
    /// Its time is over.
    TimedOut,
    /// The campaign is given up.
    Abandoned,
}

/// What is done to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blow {
    /// `SIGINT`, at which measurements write what they have.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
}

/// The blows and when they are due after the first.
const BLOWS: [(Blow, Duration); 3] = [
    (Blow::Interrupt, Duration::ZERO),
    (Blow::Terminate, WRITING),
    (Blow::Kill, WRITING.saturating_add(LEAVING)),
];

/// The course of ending one process.
#[derive(Debug, Default)]
pub(super) struct Ender {
    begun: Option<(Cause, Instant)>,
    dealt: usize,
}

impl Ender {
    /// There is this cause to end it; the first one counts.
    pub(super) fn end(&mut self, cause: Cause, now: Instant) {
        self.begun.get_or_insert((cause, now));
    }

    /// What is due and was not dealt yet.
    pub(super) fn due(&mut self, now: Instant) -> Option<Blow> {
        let (_, begun) = self.begun?;
        let (blow, after) = *BLOWS.get(self.dealt)?;
        let is_due = now.saturating_duration_since(begun) >= after;
        self.dealt += usize::from(is_due);
        is_due.then_some(blow)
    }

    /// What its end means. `last` is what it said last on standard error; `lack` is why there is no
    /// result where there should be one.
    /// A service that ended before it was told to did not do what it was there for.
    pub(super) fn ending(
        &self,
        is_service: bool,
        status: ExitStatus,
        last: Option<&str>,
        lack: Option<String>,
    ) -> Ending {
        let cause = self.begun.map(|(cause, _)| cause);
        let is_early = is_service && cause.is_none();
        let lack = lack.or_else(|| is_early.then(|| "it ended before it was told to".to_owned()));
        match cause {
            Some(Cause::TimedOut) => return Ending::TimedOut,
            Some(Cause::Abandoned) => return Ending::Abandoned,
            Some(Cause::Finished) | None => {}
        }
        let failed = |status, message| Ending::Failed { status, message };
        match (status.code(), status.signal()) {
            (Some(status), _) if DONE.contains(&status) => match lack {
                Some(lack) => failed(status, lack),
                None => Ending::Done { status },
            },
            (Some(status), _) => {
                let last = last.unwrap_or("it ended without a word");
                failed(status, last.strip_prefix("horolog: ").unwrap_or(last).to_owned())
            }
            (None, Some(signal)) if cause == Some(Cause::Finished) => {
                failed(BY_SIGNAL + signal, "it did not end by itself when it was told to".into())
            }
            (None, signal) => Ending::Signalled { signal: signal.unwrap_or(0) },
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
    fn a_process_is_asked_before_it_is_killed() {
        let now = Instant::now();
        let mut ender = Ender::default();
        assert_eq!(ender.due(now), None);
        ender.end(Cause::TimedOut, now);
        assert_eq!(ender.due(now), Some(Blow::Interrupt));
        assert_eq!(ender.due(now + WRITING / 2), None);
        // A later cause begins nothing anew.
        ender.end(Cause::Abandoned, now + WRITING);
        assert_eq!(ender.due(now + WRITING), Some(Blow::Terminate));
        assert_eq!(ender.due(now + WRITING), None);
        assert_eq!(ender.due(now + WRITING * 9), Some(Blow::Kill));
        assert_eq!(ender.due(now + WRITING * 9), None);
        assert_eq!(ender.ending(false, ExitStatus::from_raw(9), None, None), Ending::TimedOut);
    }

    #[test]
    fn ends_mean_what_they_say() {
        let ender = Ender::default();
        let ending = |status, last, lack: Option<&str>| {
            ender.ending(false, status, last, lack.map(ToOwned::to_owned))
        };
        assert_eq!(ending(exited(0), Some("x"), None), Ending::Done { status: 0 });
        assert_eq!(ending(exited(1), None, None), Ending::Done { status: 1 });
        let message = "no route".to_owned();
        let failed = Ending::Failed { status: 3, message };
        assert_eq!(ending(exited(3), Some("horolog: no route"), None), failed);
        let message = "none".to_owned();
        assert_eq!(ending(exited(0), None, Some("none")), Ending::Failed { status: 0, message });
        assert_eq!(ending(ExitStatus::from_raw(11), None, None), Ending::Signalled { signal: 11 });
        let mut told = Ender::default();
        told.end(Cause::Finished, Instant::now());
        assert_eq!(told.ending(true, exited(0), None, None), Ending::Done { status: 0 });
        let killed = told.ending(true, ExitStatus::from_raw(9), None, None);
        assert!(matches!(killed, Ending::Failed { status: 137, .. }), "{killed:?}");
        let early = Ender::default().ending(true, exited(0), None, None);
        let message = "it ended before it was told to".to_owned();
        assert_eq!(early, Ending::Failed { status: 0, message });
    }
}
