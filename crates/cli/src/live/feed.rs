//! What a measurement hands to those who look on: the latest looks, behind a lock that is held for
//! as long as it takes to read or add one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_probe::path::Onlooker;
use horolog_record::{Finding, Look, LookEnded, LookState, Looks};

use super::{View, lay};
use crate::failure::Failure;

/// The looks of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct Feed(Arc<Mutex<Looks>>);

impl Feed {
    pub(crate) fn new(looks: Looks) -> Self {
        Self(Arc::new(Mutex::new(looks)))
    }

    /// What there is so far.
    pub(crate) fn read(&self) -> MutexGuard<'_, Looks> {
        // Whole between any two of its own operations.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The looks of so many rows of a path to a far end.
    pub(crate) fn of_rows(kind: &'static str, target: String, rows: usize) -> Self {
        let looks = Looks::new(kind, target, "row");
        Self::new(Looks { parts: Some(rows), ..looks })
    }

    /// Shows them on the terminal.
    pub(crate) fn view(&self) -> Result<View, Failure> {
        let seen = self.clone();
        View::start(move |columns| lay(&seen.read(), columns))
    }

    pub(crate) fn look(&self, look: Look) {
        self.read().looks.push(look);
    }

    pub(crate) fn ended(&self, part: LookEnded) {
        self.read().end_part(part);
    }

    pub(crate) fn doubts(&self, findings: Vec<Finding>) {
        self.read().findings = findings;
    }

    /// It is over, with these doubts.
    pub(crate) fn over(&self, findings: &[Finding]) {
        let mut looks = self.read();
        looks.state = LookState::Ended;
        looks.findings = findings.to_vec();
    }
}

impl Onlooker for Feed {
    fn look(&self, look: Look) {
        self.read().looks.push(look);
    }

    fn ended(&self, row: LookEnded) {
        self.read().end_part(row);
    }
}
