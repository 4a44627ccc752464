//! Progress of an experiment (`bench`, `demo`, `relay tree`) on standard error.

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use horolog_experiment::ExperimentObserver;
use horolog_record::PartPlan;

use crate::output::{self, ProgressLine};

/// Observer that shows the present activity on a progress line, prints notes, and ends the
/// experiment early on Ctrl-C.
#[derive(Default)]
pub(crate) struct ExperimentProgress {
    /// Progress line of the present measurement.
    line: Mutex<Option<ProgressLine>>,
}

impl ExperimentProgress {
    fn line(&self) -> MutexGuard<'_, Option<ProgressLine>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExperimentObserver for ExperimentProgress {
    fn measurement_started(&self, name: String) {
        *self.line() = Some(ProgressLine::with_prefix(name));
    }

    fn activity(&self, text: &str) {
        if let Some(line) = &*self.line() {
            line.set_message(text);
        }
    }

    fn trial_started(&self, plan: &PartPlan) {
        if let Some(line) = &*self.line() {
            line.show_trial(plan);
        }
    }

    fn measurement_ended(&self) {
        if let Some(line) = self.line().take() {
            line.finish();
        }
    }

    fn note(&self, line: &str) {
        output::print_note(&format!("horolog: {line}"));
    }

    fn flow(&self) -> ControlFlow<()> {
        output::check_stop_request()
    }
}
