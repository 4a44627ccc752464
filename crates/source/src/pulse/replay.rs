//! Scripted pulses for tests, with their corruptions.

use std::collections::VecDeque;
use std::time::Duration;

use horolog_time::Span;

use super::{PulseEdge, PulseSource};
use crate::SourceError;

/// Next event of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReplayEvent {
    /// An edge.
    Edge(PulseEdge),
    /// Nothing, for one wait.
    Nothing,
    /// The device fails.
    Fails,
}

/// Device that replays a script.
#[derive(Clone, Default, Debug)]
pub(crate) struct Replay(VecDeque<ReplayEvent>);

impl Replay {
    pub(crate) fn new(events: impl IntoIterator<Item = ReplayEvent>) -> Self {
        Self(events.into_iter().collect())
    }

    /// Moves each n-th edge.
    pub(crate) fn disturbed(mut self, each: usize, by: Span) -> Self {
        for event in self.0.iter_mut().skip(each - 1).step_by(each) {
            if let ReplayEvent::Edge(edge) = event {
                (edge.realtime, edge.monotonic) = (edge.realtime + by, edge.monotonic + by);
            }
        }
        self
    }

    /// Leaves each n-th edge out.
    pub(crate) fn thinned(mut self, each: usize) -> Self {
        for event in self.0.iter_mut().skip(each - 1).step_by(each) {
            *event = ReplayEvent::Nothing;
        }
        self
    }
}

impl PulseSource for Replay {
    fn wait(&mut self, _: Duration) -> Result<Option<PulseEdge>, SourceError> {
        match self.0.pop_front() {
            Some(ReplayEvent::Edge(edge)) => Ok(Some(edge)),
            Some(ReplayEvent::Nothing) | None => Ok(None),
            Some(ReplayEvent::Fails) => Err(SourceError::NoData("the pulse device failed".into())),
        }
    }
}
