//! Classification of the reports that a node receives: usable, damaged, late or missing. Pure: it
//! uses only what was received and does not know the injected faults.

use std::collections::BTreeSet;

use super::report::{ReportDatagramError, SimulatedReportHeader};

/// Largest number of missing reports remembered for each source, in case they still arrive.
const MISSING_MAX: usize = 4_096;

/// Class of a datagram that was received for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceivedReportClass {
    /// Usable report, possibly late.
    Usable {
        /// Source of the report.
        source: u16,
        /// True if it was older than the limit of its source.
        is_late: bool,
        /// Position in the sequence of its source.
        order: SequenceOrder,
    },
    /// End of a source's reports.
    EndOfSource {
        /// Source of the reports.
        source: u16,
        /// Number of its reports that are newly missing.
        lost: u64,
    },
    /// Damaged report, and the source from whose address it came, if known.
    Damaged(Option<u16>),
    /// Datagram that is not a report.
    Foreign,
}

/// Position of a report in its source's sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SequenceOrder {
    /// Follows the highest number so far, after this number of missing reports that no damaged
    /// report explains.
    NewHighest(u64),
    /// Report that was missing until now.
    Reordered,
    /// Duplicate, or too old to decide.
    Duplicate,
}

/// Classifier of the reports that one node receives, with the sequence state of each source.
pub(super) struct ReceivedReportClassifier {
    sources: Vec<SourceSequenceState>,
}

struct SourceSequenceState {
    late_after_ns: u64,
    next: u64,
    missing: BTreeSet<u64>,
    /// Number of damaged reports that explain later gaps in the sequence.
    damaged: u64,
}

impl ReceivedReportClassifier {
    /// Creates the classifier; `late_after_ns` holds the largest permitted age of each source's
    /// reports, in ns.
    pub(super) fn new(late_after_ns: impl IntoIterator<Item = u64>) -> Self {
        let tracker = |late_after_ns| SourceSequenceState {
            late_after_ns,
            next: 0,
            missing: BTreeSet::new(),
            damaged: 0,
        };
        Self { sources: late_after_ns.into_iter().map(tracker).collect() }
    }

    /// Classifies a datagram. `from` is the source from whose address it came, `now_ns` the time of
    /// reception in ns of `CLOCK_MONOTONIC`.
    pub(super) fn classify(
        &mut self,
        from: Option<u16>,
        datagram: &[u8],
        now_ns: i64,
    ) -> ReceivedReportClass {
        let report = match SimulatedReportHeader::parse(datagram) {
            Ok(report) => report,
            Err(ReportDatagramError::Damaged) => {
                let from = from.filter(|from| usize::from(*from) < self.sources.len());
                if let Some(from) = from {
                    self.sources[usize::from(from)].damaged += 1;
                }
                return ReceivedReportClass::Damaged(from);
            }
            Err(ReportDatagramError::Foreign) => return ReceivedReportClass::Foreign,
        };
        let source = report.source;
        let Some(tracker) = self.sources.get_mut(usize::from(source)) else {
            return ReceivedReportClass::Foreign;
        };
        if report.is_end {
            let lost =
                if report.number > tracker.next { tracker.advance_to(report.number) } else { 0 };
            return ReceivedReportClass::EndOfSource { source, lost };
        }
        let age_ns = now_ns.saturating_sub(report.due_ns).max(0).unsigned_abs();
        ReceivedReportClass::Usable {
            source,
            is_late: age_ns > tracker.late_after_ns,
            order: tracker.classify_number(report.number),
        }
    }
}

impl SourceSequenceState {
    fn classify_number(&mut self, number: u64) -> SequenceOrder {
        if number < self.next {
            let was_missing = self.missing.remove(&number);
            return if was_missing { SequenceOrder::Reordered } else { SequenceOrder::Duplicate };
        }
        let lost = self.advance_to(number);
        self.next = number.saturating_add(1);
        SequenceOrder::NewHighest(lost)
    }

    /// Advances to `number`. Returns the number of missing reports before it that no damaged report
    /// explains.
    fn advance_to(&mut self, number: u64) -> u64 {
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
        SimulatedReportHeader { is_end, source: 0, number, due_ns, sent_ns: due_ns }
            .write(&mut bytes);
        bytes
    }

    fn take(intake: &mut ReceivedReportClassifier, number: u64) -> ReceivedReportClass {
        intake.classify(Some(0), &bytes(number, 0, false), 50)
    }

    fn whole(order: SequenceOrder) -> ReceivedReportClass {
        ReceivedReportClass::Usable { source: 0, is_late: false, order }
    }

    #[test]
    fn gaps_are_lost_until_what_is_missing_comes() {
        let mut intake = ReceivedReportClassifier::new([100]);
        assert_eq!(take(&mut intake, 0), whole(SequenceOrder::NewHighest(0)));
        assert_eq!(take(&mut intake, 3), whole(SequenceOrder::NewHighest(2)));
        assert_eq!(take(&mut intake, 2), whole(SequenceOrder::Reordered));
        assert_eq!(take(&mut intake, 2), whole(SequenceOrder::Duplicate));
        assert_eq!(take(&mut intake, 4), whole(SequenceOrder::NewHighest(0)));
        let end = intake.classify(Some(0), &bytes(7, 0, true), 0);
        assert_eq!(end, ReceivedReportClass::EndOfSource { source: 0, lost: 2 });
    }

    #[test]
    fn a_damaged_report_is_not_lost_as_well() {
        let mut intake = ReceivedReportClassifier::new([100]);
        let mut damaged = bytes(0, 0, false);
        damaged[50] ^= 1;
        assert_eq!(intake.classify(Some(0), &damaged, 0), ReceivedReportClass::Damaged(Some(0)));
        assert_eq!(take(&mut intake, 2), whole(SequenceOrder::NewHighest(1)));
        // From nobody that is known, or of nobody.
        assert_eq!(intake.classify(None, &damaged, 0), ReceivedReportClass::Damaged(None));
        assert_eq!(intake.classify(Some(9), &damaged, 0), ReceivedReportClass::Damaged(None));
        assert_eq!(intake.classify(Some(0), b"hello", 0), ReceivedReportClass::Foreign);
        assert_eq!(
            ReceivedReportClassifier::new([]).classify(None, &bytes(0, 0, false), 0),
            ReceivedReportClass::Foreign
        );
    }

    #[test]
    fn what_is_too_old_is_late() {
        let mut intake = ReceivedReportClassifier::new([100]);
        let late = |taken| matches!(taken, ReceivedReportClass::Usable { is_late: true, .. });
        assert!(!late(intake.classify(Some(0), &bytes(0, 1_000, false), 1_100)));
        assert!(late(intake.classify(Some(0), &bytes(1, 1_000, false), 1_101)));
    }

    #[test]
    fn numbers_far_ahead_do_not_fill_the_memory() {
        let mut intake = ReceivedReportClassifier::new([100]);
        assert_eq!(take(&mut intake, u64::MAX - 1), whole(SequenceOrder::NewHighest(u64::MAX - 1)));
        assert_eq!(intake.sources[0].missing.len(), MISSING_MAX);
        assert_eq!(take(&mut intake, 5), whole(SequenceOrder::Duplicate));
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
            let mut intake = ReceivedReportClassifier::new([1_000]);
            let (mut lost, mut damaged) = (0_i64, 0);
            for (_, number) in order {
                let mut bytes = bytes(number, 0, false);
                match fates[number as usize] {
                    1 => continue,
                    2 => bytes[45] ^= 4,
                    _ => {}
                }
                match intake.classify(Some(0), &bytes, 0) {
                    ReceivedReportClass::Usable { order: SequenceOrder::NewHighest(missing), .. } => lost += missing as i64,
                    ReceivedReportClass::Usable { order: SequenceOrder::Reordered, .. } => lost -= 1,
                    ReceivedReportClass::Damaged(Some(0)) => damaged += 1,
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            if let ReceivedReportClass::EndOfSource { lost: missing, .. } =
                intake.classify(Some(0), &self::bytes(100, 0, true), 0)
            {
                lost += missing as i64;
            }
            let done = |kind| fates.iter().map(|fate| i64::from(*fate == kind)).sum::<i64>();
            prop_assert_eq!((lost, damaged), (done(1), done(2)));
        }
    }
}
