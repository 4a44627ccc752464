//! Observer of an experiment, and the observer of the loads in it.

use std::ops::ControlFlow;

use horolog_record::{LoadSeriesPoint, PartPlan, RunObserver, Trial};

/// Receives the progress of an experiment, and ends it early. Threads share it.
pub trait ExperimentObserver: Sync {
    /// Reports that a measurement begins. Its name, empty or with a colon and a space at the end,
    /// precedes the activities until [`Self::measurement_ended`].
    fn measurement_started(&self, name: String);

    /// Reports the present activity, in words.
    fn activity(&self, text: &str);

    /// Reports a trial of a load as the present activity.
    fn trial_started(&self, plan: &PartPlan);

    /// Reports that the measurement has ended.
    fn measurement_ended(&self);

    /// Takes a line on a completed measurement, or on one that is left out.
    fn note(&self, line: &str);

    /// Decides whether the experiment continues. `Break` ends it early, with the results so far.
    fn flow(&self) -> ControlFlow<()>;
}

/// Observer of a load that reports its trials as activities of an experiment.
pub(crate) struct LoadTrialObserver<'a> {
    experiment: &'a dyn ExperimentObserver,
    /// True if the end was requested: it takes effect at the end of a trial.
    is_stopped: bool,
}

impl<'a> LoadTrialObserver<'a> {
    pub(crate) fn new(experiment: &'a dyn ExperimentObserver) -> Self {
        Self { experiment, is_stopped: false }
    }
}

impl RunObserver<Trial, LoadSeriesPoint> for LoadTrialObserver<'_> {
    fn part_started(&mut self, plan: &PartPlan) {
        self.experiment.trial_started(plan);
    }

    fn part_ended(&mut self, _: usize, _: &Trial) {
        self.is_stopped = self.experiment.flow().is_break();
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
