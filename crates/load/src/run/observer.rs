//! Interface of a run to its observer.

use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::{Finding, LiveSnapshot, LoadSeriesPoint, Trial};

/// Observer of a running load.
pub trait LoadObserver {
    /// Reports that a trial begins, at this rate in requests per second.
    fn trial_started(&mut self, _rate: f64, _duration: Duration) {}

    /// Reports a completed interval of a load profile.
    fn interval(&mut self, _point: &LoadSeriesPoint) {}

    /// Decides whether a trial or a profile continues; called several times a second. `Break` ends
    /// it early.
    fn flow(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Returns true if snapshots of running trials are wanted. They cost the generator little, but
    /// not nothing.
    fn wants_snapshots(&self) -> bool {
        false
    }

    /// Takes a snapshot of a running trial, twice a second, and one at its end.
    fn snapshot(&mut self, _snapshot: LiveSnapshot) {}

    /// Takes the findings so far, after each trial, if snapshots are wanted.
    fn findings(&mut self, _findings: Vec<Finding>) {}

    /// Reports a completed trial. `Break` ends the run; its trials so far are kept.
    fn trial_ended(&mut self, index: usize, trial: &Trial) -> ControlFlow<()>;
}
