//! Pulses that a test wrote down beforehand: what comes is what was said, and corrupted as told.

use std::collections::VecDeque;
use std::time::Duration;

use horolog_time::Span;

use super::{PulseEdge, PulseSource};
use crate::Fault;

/// What comes next of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// An edge.
    Edge(PulseEdge),
    /// Nothing, for one wait.
    Nothing,
    /// The device fails.
    Fails,
}

/// A device that replays.
#[derive(Clone, Default, Debug)]
pub(crate) struct Replay(VecDeque<Event>);

impl Replay {
    pub(crate) fn new(events: impl IntoIterator<Item = Event>) -> Self {
        Self(events.into_iter().collect())
    }

    /// Moves each n-th edge.
    pub(crate) fn disturbed(mut self, each: usize, by: Span) -> Self {
        for event in self.0.iter_mut().skip(each - 1).step_by(each) {
            if let Event::Edge(edge) = event {
                (edge.realtime, edge.monotonic) = (edge.realtime + by, edge.monotonic + by);
            }
        }
        self
    }

    /// Leaves each n-th edge out.
    pub(crate) fn thinned(mut self, each: usize) -> Self {
        for event in self.0.iter_mut().skip(each - 1).step_by(each) {
            *event = Event::Nothing;
        }
        self
    }
}

impl PulseSource for Replay {
    fn wait(&mut self, _: Duration) -> Result<Option<PulseEdge>, Fault> {
        match self.0.pop_front() {
            Some(Event::Edge(edge)) => Ok(Some(edge)),
            Some(Event::Nothing) | None => Ok(None),
            Some(Event::Fails) => Err(Fault::Silent("the pulse's device has failed".into())),
        }
    }
}
