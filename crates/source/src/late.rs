//! Source whose device or name is not available yet, as while a machine starts: opening is retried
//! until it succeeds. Opening may block, so it happens in a thread of its own, and only one at a
//! time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use horolog_discipline::{Plausibility, Support};
use horolog_time::Span;

use crate::{ClockReadings, SelectionState, SourceError, SourceEstimate, SourceSpec, TimeSource};

/// Polls between two attempts, which is about as many seconds.
const RETRY_POLLS: u32 = 5;

type Opened = Result<Box<dyn TimeSource>, SourceError>;
type SourceOpener = dyn Fn() -> Opened + Send + Sync;

/// Source, open or not.
pub struct LateSource {
    name: String,
    open: Arc<SourceOpener>,
    basis: Option<Plausibility>,
    state: LateSourceState,
}

enum LateSourceState {
    /// Reason for which it could not be opened, and polls until the next attempt.
    Waiting(SourceError, u32),
    /// Attempt in progress, and the error of the previous one.
    Opening(SourceError, Receiver<Opened>),
    Open(Box<dyn TimeSource>),
}

impl LateSource {
    /// Retries opening `spec` for a server that listens at `own`; `fault` is the error of the first
    /// attempt.
    #[must_use]
    pub fn new(spec: &SourceSpec, own: &[SocketAddr], fault: SourceError) -> Self {
        let (own, name) = (own.to_vec(), spec.text.clone());
        let spec = spec.clone();
        Self::with(name, fault, move || spec.open(&own))
    }

    fn with(
        name: String,
        fault: SourceError,
        open: impl Fn() -> Opened + Send + Sync + 'static,
    ) -> Self {
        let state = LateSourceState::Waiting(fault, RETRY_POLLS);
        Self { name, open: Arc::new(open), basis: None, state }
    }

    fn attempt(&self, fault: SourceError) -> LateSourceState {
        let (result, opened) = mpsc::sync_channel(1);
        let open = Arc::clone(&self.open);
        // The receiver of the result may have ended meanwhile.
        let work = move || drop(result.send(open()));
        match thread::Builder::new().name("opening".into()).spawn(work) {
            Ok(_) => LateSourceState::Opening(fault, opened),
            Err(_) => LateSourceState::Waiting(fault, RETRY_POLLS),
        }
    }
}

impl TimeSource for LateSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let next = match &mut self.state {
            LateSourceState::Open(source) => return source.poll(readings),
            LateSourceState::Waiting(fault, 0) => {
                let fault = fault.clone();
                Some(self.attempt(fault))
            }
            LateSourceState::Waiting(_, polls) => {
                *polls -= 1;
                None
            }
            LateSourceState::Opening(fault, opened) => match opened.try_recv() {
                Ok(Ok(mut source)) => {
                    self.basis.into_iter().for_each(|basis| source.judge_by(basis));
                    Some(LateSourceState::Open(source))
                }
                Ok(Err(fault)) => Some(LateSourceState::Waiting(fault, RETRY_POLLS)),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    Some(LateSourceState::Waiting(fault.clone(), RETRY_POLLS))
                }
            },
        };
        if let Some(next) = next {
            self.state = next;
        }
        match &mut self.state {
            LateSourceState::Open(source) => source.poll(readings),
            LateSourceState::Waiting(fault, _) | LateSourceState::Opening(fault, _) => {
                Err(SourceError::Unusable(format!("{fault}; retrying every {RETRY_POLLS} s")))
            }
        }
    }

    fn selection_changed(&mut self, standing: SelectionState) {
        if let LateSourceState::Open(source) = &mut self.state {
            source.selection_changed(standing);
        }
    }

    fn judge_by(&mut self, basis: Plausibility) {
        self.basis = Some(basis);
        if let LateSourceState::Open(source) = &mut self.state {
            source.judge_by(basis);
        }
    }

    fn vouch(&mut self, ahead: Span, support: Support) {
        if let LateSourceState::Open(source) = &mut self.state {
            source.vouch(ahead, support);
        }
    }

    fn set_unconfirmed(&self) -> Option<Span> {
        match &self.state {
            LateSourceState::Open(source) => source.set_unconfirmed(),
            _ => None,
        }
    }

    fn is_mirror(&self) -> bool {
        matches!(&self.state, LateSourceState::Open(source) if source.is_mirror())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::reference::tests::readings;
    use crate::report::tests::report;

    struct Right;

    impl TimeSource for Right {
        fn name(&self) -> &'static str {
            "right"
        }

        fn poll(&mut self, _: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
            Ok(Some(report(0, 1)))
        }
    }

    #[test]
    fn a_source_is_opened_when_it_comes() {
        let attempts = AtomicU32::new(0);
        let open = move || -> Opened {
            match attempts.fetch_add(1, Ordering::Relaxed) {
                0 => Err(SourceError::Unusable("still not there".into())),
                _ => Ok(Box::new(Right)),
            }
        };
        let mut late =
            LateSource::with("late".into(), SourceError::Unusable("not there".into()), open);
        let (began, mut faults) = (Instant::now(), Vec::new());
        let estimate = loop {
            match late.poll(&readings(0)) {
                Ok(estimate) => break estimate,
                Err(fault) => faults.push(fault.to_string()),
            }
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(estimate, Some(report(0, 1)));
        faults.dedup();
        let line = |what: &str| format!("{what}; retrying every 5 s");
        assert_eq!(faults, [line("not there"), line("still not there")]);
    }
}
