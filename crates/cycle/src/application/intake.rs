//! Classification of a node's incoming reports: whole, damaged, too old, or missing. Pure: it uses
//! only what was received, without knowledge of the injected faults.

use std::collections::BTreeSet;

use super::report::{ReportError, TestSourceReport};

/// Missing reports of a source that are remembered, in case they still arrive.
const MISSING_MAX: usize = 4_096;

/// Classification of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IntakeOutcome {
    /// Usable report, even if it is late.
    Whole {
        /// Its source.
        source: u16,
        /// True if it was older than allowed.
        is_late: bool,
        /// Its position in the sequence of its source.
        order: SequenceOrder,
    },
    /// End of a source's reports.
    End {
        /// The source.
        source: u16,
        /// Reports before it that are missing.
        lost: u64,
    },
    /// Damaged report, of the source whose socket received it.
    Damaged(Option<u16>),
    /// Not a report.
    Foreign,
}

/// Position of a report in its source's sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SequenceOrder {
    /// Follows the highest number so far, with this number of reports missing in between, mostly 0.
    After(u64),
    /// It had been counted as missing.
    Found,
    /// It is a duplicate, or too old to decide.
    Repeated,
}

/// Sources from the point of view of one node.
pub(super) struct Intake {
    sources: Vec<SourceTracker>,
}

struct SourceTracker {
    late_after_ns: u64,
    next: u64,
    missing: BTreeSet<u64>,
    /// Damaged reports whose numbers will be missing.
    damaged: u64,
}

impl Intake {
    /// Takes the greatest permitted age of each source's reports.
    pub(super) fn new(late_after_ns: impl IntoIterator<Item = u64>) -> Self {
        let known = |late_after_ns| SourceTracker {
            late_after_ns,
            next: 0,
            missing: BTreeSet::new(),
            damaged: 0,
        };
        Self { sources: late_after_ns.into_iter().map(known).collect() }
    }

    /// Classifies a datagram that the socket of a source received at an instant of
    /// `CLOCK_MONOTONIC`.
    pub(super) fn take(
        &mut self,
        from: Option<u16>,
        datagram: &[u8],
        now_ns: i64,
    ) -> IntakeOutcome {
        let report = match TestSourceReport::read(datagram) {
            Ok(report) => report,
            Err(ReportError::Damaged) => {
                let from = from.filter(|from| usize::from(*from) < self.sources.len());
                if let Some(from) = from {
                    self.sources[usize::from(from)].damaged += 1;
                }
                return IntakeOutcome::Damaged(from);
            }
            Err(ReportError::Foreign) => return IntakeOutcome::Foreign,
        };
        let source = report.source;
        let Some(known) = self.sources.get_mut(usize::from(source)) else {
            return IntakeOutcome::Foreign;
        };
        if report.is_end {
            let lost = if report.number > known.next { known.up_to(report.number) } else { 0 };
            return IntakeOutcome::End { source, lost };
        }
        let age_ns = now_ns.saturating_sub(report.due_ns).max(0).unsigned_abs();
        IntakeOutcome::Whole {
            source,
            is_late: age_ns > known.late_after_ns,
            order: known.order(report.number),
        }
    }
}

impl SourceTracker {
    fn order(&mut self, number: u64) -> SequenceOrder {
        if number < self.next {
            let was_missing = self.missing.remove(&number);
            return if was_missing { SequenceOrder::Found } else { SequenceOrder::Repeated };
        }
        let lost = self.up_to(number);
        self.next = number.saturating_add(1);
        SequenceOrder::After(lost)
    }

    /// Advances to `number`: returns the reports below it that did not arrive and that no damaged
    /// one accounts for.
    fn up_to(&mut self, number: u64) -> u64 {
        let gap = number.saturating_sub(self.next);
        let first = number.saturating_sub(MISSING_MAX as u64).max(self.next);
        self.missing.extend(first..number);
        while self.missing.len() > MISSING_MAX {
            self.missing.pop_first();
        }
        self.next = number;
        let explained = gap.min(self.damaged);
        self.damaged -= explained;
        gap - explained
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::application::report::HEADER_LEN;

    fn bytes(number: u64, due_ns: i64, is_end: bool) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + 8];
        TestSourceReport { is_end, source: 0, number, due_ns, sent_ns: due_ns }.write(&mut bytes);
        bytes
    }

    fn take(intake: &mut Intake, number: u64) -> IntakeOutcome {
        intake.take(Some(0), &bytes(number, 0, false), 50)
    }

    fn whole(order: SequenceOrder) -> IntakeOutcome {
        IntakeOutcome::Whole { source: 0, is_late: false, order }
    }

    #[test]
    fn gaps_are_lost_until_what_is_missing_comes() {
        let mut intake = Intake::new([100]);
        assert_eq!(take(&mut intake, 0), whole(SequenceOrder::After(0)));
        assert_eq!(take(&mut intake, 3), whole(SequenceOrder::After(2)));
        assert_eq!(take(&mut intake, 2), whole(SequenceOrder::Found));
        assert_eq!(take(&mut intake, 2), whole(SequenceOrder::Repeated));
        assert_eq!(take(&mut intake, 4), whole(SequenceOrder::After(0)));
        let end = intake.take(Some(0), &bytes(7, 0, true), 0);
        assert_eq!(end, IntakeOutcome::End { source: 0, lost: 2 });
    }

    #[test]
    fn a_damaged_report_is_not_lost_as_well() {
        let mut intake = Intake::new([100]);
        let mut damaged = bytes(0, 0, false);
        damaged[50] ^= 1;
        assert_eq!(intake.take(Some(0), &damaged, 0), IntakeOutcome::Damaged(Some(0)));
        assert_eq!(take(&mut intake, 2), whole(SequenceOrder::After(1)));
        // From nobody that is known, or of nobody.
        assert_eq!(intake.take(None, &damaged, 0), IntakeOutcome::Damaged(None));
        assert_eq!(intake.take(Some(9), &damaged, 0), IntakeOutcome::Damaged(None));
        assert_eq!(intake.take(Some(0), b"hello", 0), IntakeOutcome::Foreign);
        assert_eq!(Intake::new([]).take(None, &bytes(0, 0, false), 0), IntakeOutcome::Foreign);
    }

    #[test]
    fn what_is_too_old_is_late() {
        let mut intake = Intake::new([100]);
        let late = |taken| matches!(taken, IntakeOutcome::Whole { is_late: true, .. });
        assert!(!late(intake.take(Some(0), &bytes(0, 1_000, false), 1_100)));
        assert!(late(intake.take(Some(0), &bytes(1, 1_000, false), 1_101)));
    }

    #[test]
    fn numbers_far_ahead_do_not_fill_the_memory() {
        let mut intake = Intake::new([100]);
        assert_eq!(take(&mut intake, u64::MAX - 1), whole(SequenceOrder::After(u64::MAX - 1)));
        assert_eq!(intake.sources[0].missing.len(), MISSING_MAX);
        assert_eq!(take(&mut intake, 5), whole(SequenceOrder::Repeated));
    }

    proptest! {
        /// Whatever is lost, damaged or delayed of a hundred reports: what is noticed is what was
        /// done.
        #[test]
        fn what_is_noticed_is_what_was_done(fates in prop::collection::vec(0_u8..5, 100)) {
            let mut order: Vec<(u64, u64)> = (0..100).map(|number| (number * 10, number)).collect();
            for ((at, number), fate) in order.iter_mut().zip(&fates) {
                if *fate == 3 {
                    *at += 10 * (*number % 7) + 5;
                }
            }
            order.sort_unstable();
            let mut intake = Intake::new([1_000]);
            let (mut lost, mut damaged) = (0_i64, 0);
            for (_, number) in order {
                let mut bytes = bytes(number, 0, false);
                match fates[number as usize] {
                    1 => continue,
                    2 => bytes[45] ^= 4,
                    _ => {}
                }
                match intake.take(Some(0), &bytes, 0) {
                    IntakeOutcome::Whole { order: SequenceOrder::After(missing), .. } => lost += missing as i64,
                    IntakeOutcome::Whole { order: SequenceOrder::Found, .. } => lost -= 1,
                    IntakeOutcome::Damaged(Some(0)) => damaged += 1,
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            if let IntakeOutcome::End { lost: missing, .. } =
                intake.take(Some(0), &self::bytes(100, 0, true), 0)
            {
                lost += missing as i64;
            }
            let done = |kind| fates.iter().map(|fate| i64::from(*fate == kind)).sum::<i64>();
            prop_assert_eq!((lost, damaged), (done(1), done(2)));
        }
    }
}
