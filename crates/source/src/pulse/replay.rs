//! Scripted pulses for tests, with their corruptions.

use std::collections::VecDeque;
use std::time::Duration;

use horolog_time::Span;

use super::{PulseEdge, PulseSource};
use crate::SourceError;

/// Next event of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PulseReplayEvent {
    /// An edge.
    Edge(PulseEdge),
    /// Nothing, for one wait.
    NoEdge,
    /// The device fails.
    Failure,
}

/// Device that replays a script.
#[derive(Clone, Default, Debug)]
pub(crate) struct PulseReplay(VecDeque<PulseReplayEvent>);

impl PulseReplay {
    pub(crate) fn new(events: impl IntoIterator<Item = PulseReplayEvent>) -> Self {
        Self(events.into_iter().collect())
    }

    /// Moves each n-th edge.
    pub(crate) fn disturbed(mut self, each: usize, by: Span) -> Self {
        for event in self.0.iter_mut().skip(each - 1).step_by(each) {
            if let PulseReplayEvent::Edge(edge) = event {
                (edge.realtime, edge.monotonic) = (edge.realtime + by, edge.monotonic + by);
            }
        }
        self
    }

    /// Leaves each n-th edge out.
    pub(crate) fn thinned(mut self, each: usize) -> Self {
        for event in self.0.iter_mut().skip(each - 1).step_by(each) {
            *event = PulseReplayEvent::NoEdge;
        }
        self
    }
}

impl PulseSource for PulseReplay {
    fn wait(&mut self, _: Duration) -> Result<Option<PulseEdge>, SourceError> {
        match self.0.pop_front() {
            Some(PulseReplayEvent::Edge(edge)) => Ok(Some(edge)),
            Some(PulseReplayEvent::NoEdge) | None => Ok(None),
            Some(PulseReplayEvent::Failure) => {
                Err(SourceError::NoData("the pulse device failed".into()))
            }
        }
    }
}
