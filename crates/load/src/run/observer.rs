//! Who follows a run while it goes on, and what is told to it.

use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::{Finding, Look, Point, Trial};

/// Who follows a run while it goes on.
pub trait Observer {
    /// A trial begins, at this rate in requests per second.
    fn begins(&mut self, _rate: f64, _duration: Duration) {}

    /// An interval of a course is over.
    fn interval(&mut self, _point: &Point) {}

    /// Whether a trial or a course is to go on; asked several times a second. Breaking ends it in
    /// its middle.
    fn flow(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Whether it wants looks at trials that run. They cost the generator little, and not nothing.
    fn looks(&self) -> bool {
        false
    }

    /// A look at a trial that runs, twice a second, and one when it is over.
    fn look(&mut self, _look: Look) {}

    /// The doubts so far, behind each trial, where looks are wanted.
    fn doubts(&mut self, _findings: Vec<Finding>) {}

    /// A trial is over. Breaking ends the run with the trials so far.
    fn ended(&mut self, index: usize, trial: &Trial) -> ControlFlow<()>;
}
