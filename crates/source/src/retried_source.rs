//! Time source whose device or host name is not available yet, as during boot: opening is retried
//! until it succeeds. Opening may block, so it happens in a thread of its own, one attempt at a
//! time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use horolog_discipline::{PlausibilityReason, PlausibilityRuleParameters};
use horolog_time::Span;

use crate::{
    ClockReadings, PollableTimeSource, SelectionState, SourceError, SourceEstimate, SourceSpec,
};

/// Polls between two attempts to open; polls are about a second apart.
const POLLS_BEFORE_RETRY: u32 = 5;

type SourceOpenResult = Result<Box<dyn PollableTimeSource>, SourceError>;
type SourceOpener = dyn Fn() -> SourceOpenResult + Send + Sync;

/// Time source that is opened with retries.
pub struct RetriedSource {
    name: String,
    open: Arc<SourceOpener>,
    basis: Option<PlausibilityRuleParameters>,
    state: RetriedSourceState,
}

enum RetriedSourceState {
    /// Error of the last attempt, and the polls until the next one.
    Waiting(SourceError, u32),
    /// Attempt in progress: error of the previous attempt, and receiver of the result.
    Opening(SourceError, Receiver<SourceOpenResult>),
    Open(Box<dyn PollableTimeSource>),
}

impl RetriedSource {
    /// Retries opening `spec` for a server with the listen addresses `server_addresses`; `fault` is
    /// the error of the first attempt.
    #[must_use]
    pub fn new(spec: &SourceSpec, server_addresses: &[SocketAddr], fault: SourceError) -> Self {
        let (own, name) = (server_addresses.to_vec(), spec.text.clone());
        let spec = spec.clone();
        Self::with_opener(name, fault, move || spec.open(&own))
    }

    fn with_opener(
        name: String,
        fault: SourceError,
        open: impl Fn() -> SourceOpenResult + Send + Sync + 'static,
    ) -> Self {
        let state = RetriedSourceState::Waiting(fault, POLLS_BEFORE_RETRY);
        Self { name, open: Arc::new(open), basis: None, state }
    }

    fn start_attempt(&self, fault: SourceError) -> RetriedSourceState {
        let (result, receiver) = mpsc::sync_channel(1);
        let open = Arc::clone(&self.open);
        // The receiver of the result may have ended meanwhile.
        let work = move || drop(result.send(open()));
        match thread::Builder::new().name("opening".into()).spawn(work) {
            Ok(_) => RetriedSourceState::Opening(fault, receiver),
            Err(_) => RetriedSourceState::Waiting(fault, POLLS_BEFORE_RETRY),
        }
    }
}

impl PollableTimeSource for RetriedSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let next = match &mut self.state {
            RetriedSourceState::Open(source) => return source.poll(readings),
            RetriedSourceState::Waiting(fault, 0) => {
                let fault = fault.clone();
                Some(self.start_attempt(fault))
            }
            RetriedSourceState::Waiting(_, polls) => {
                *polls -= 1;
                None
            }
            RetriedSourceState::Opening(fault, opened) => match opened.try_recv() {
                Ok(Ok(mut source)) => {
                    self.basis.into_iter().for_each(|basis| source.judge_by(basis));
                    Some(RetriedSourceState::Open(source))
                }
                Ok(Err(fault)) => Some(RetriedSourceState::Waiting(fault, POLLS_BEFORE_RETRY)),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    Some(RetriedSourceState::Waiting(fault.clone(), POLLS_BEFORE_RETRY))
                }
            },
        };
        if let Some(next) = next {
            self.state = next;
        }
        match &mut self.state {
            RetriedSourceState::Open(source) => source.poll(readings),
            RetriedSourceState::Waiting(fault, _) | RetriedSourceState::Opening(fault, _) => Err(
                SourceError::Unusable(format!("{fault}; retrying every {POLLS_BEFORE_RETRY} s")),
            ),
        }
    }

    fn selection_changed(&mut self, standing: SelectionState) {
        if let RetriedSourceState::Open(source) = &mut self.state {
            source.selection_changed(standing);
        }
    }

    fn judge_by(&mut self, basis: PlausibilityRuleParameters) {
        self.basis = Some(basis);
        if let RetriedSourceState::Open(source) = &mut self.state {
            source.judge_by(basis);
        }
    }

    fn vouch(&mut self, ahead: Span, support: PlausibilityReason) {
        if let RetriedSourceState::Open(source) = &mut self.state {
            source.vouch(ahead, support);
        }
    }

    fn unconfirmed_clock_setting(&self) -> Option<Span> {
        match &self.state {
            RetriedSourceState::Open(source) => source.unconfirmed_clock_setting(),
            _ => None,
        }
    }

    fn is_system_clock_mirror(&self) -> bool {
        matches!(&self.state, RetriedSourceState::Open(source) if source.is_system_clock_mirror())
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

    impl PollableTimeSource for Right {
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
        let open = move || -> SourceOpenResult {
            match attempts.fetch_add(1, Ordering::Relaxed) {
                0 => Err(SourceError::Unusable("still not there".into())),
                _ => Ok(Box::new(Right)),
            }
        };
        let mut late = RetriedSource::with_opener(
            "late".into(),
            SourceError::Unusable("not there".into()),
            open,
        );
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
