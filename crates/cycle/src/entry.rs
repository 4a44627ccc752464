//! Record of one period, superstep or event of a task. It has a fixed size, so that a task
//! publishes it by writing a few words.

/// Number of 64-bit words of an encoded entry.
pub(crate) const ENTRY_WORDS: usize = 10;
/// Encoding of an absent node.
const NO_NODE: u16 = u16::MAX;

/// Subject of an entry: a period, a superstep, an event, or periods without a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeriodEntryKind {
    /// Complete period.
    Period,
    /// Superstep or pipeline stage with this index.
    Step(u8),
    /// Event that a polling server served.
    Event,
    /// One or more consecutive periods that were never released, so that no work was done.
    NotReleased,
}

/// Outcome of the work of a period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PeriodOutcome {
    /// Success.
    Success,
    /// Completion with a failure, such as a command's exit status other than 0.
    Failed,
    /// No completion: the work timed out or could not be started, or its process exited. Its times
    /// end when it was abandoned.
    Abandoned,
}

/// Outcome of a period, superstep or event. Times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeriodEntry {
    /// Subject of the entry.
    pub(crate) kind: PeriodEntryKind,
    /// Number of the period, from 0.
    pub(crate) period: u64,
    /// Release of the period on the node's monotonic clock, relative to the start of the run; 0 if
    /// it was never released.
    pub(crate) released_ns: i64,
    /// Start latency: from the release to the start of the period or step, or from an event's
    /// arrival to the start of its service.
    pub(crate) start_latency_ns: u64,
    /// Time from the start to the end of the work.
    pub(crate) execution_ns: u64,
    /// Computation, as elapsed (not CPU) time.
    pub(crate) compute_ns: u64,
    /// Sending, and the transit time of messages.
    pub(crate) communicate_ns: u64,
    /// Waiting for peers that were behind: for their messages, and at barriers.
    pub(crate) idle_ns: u64,
    /// Sending at barriers, and the transit time of the last arrival.
    pub(crate) barrier_ns: u64,
    /// Node that was waited for last.
    pub(crate) straggler: Option<u16>,
    /// Number of messages that did not arrive by the deadline of the exchange.
    pub(crate) missing: u16,
    /// True if the release had passed when the task began to wait for it.
    pub(crate) is_overrun: bool,
    /// True if a barrier was abandoned because a node did not arrive.
    pub(crate) is_broken: bool,
    /// Outcome of the work.
    pub(crate) end: PeriodOutcome,
    /// Number of events left for the next period; in an entry of [`PeriodEntryKind::NotReleased`],
    /// number of consecutive periods that were never released.
    pub(crate) backlog: u32,
    /// State of the task, as an index into the states that it lists.
    pub(crate) state: Option<u8>,
}

impl PeriodEntry {
    /// Returns an entry of this kind and period with all other values 0 or absent.
    #[must_use]
    pub(crate) const fn new(kind: PeriodEntryKind, period: u64) -> Self {
        Self {
            kind,
            period,
            released_ns: 0,
            start_latency_ns: 0,
            execution_ns: 0,
            compute_ns: 0,
            communicate_ns: 0,
            idle_ns: 0,
            barrier_ns: 0,
            straggler: None,
            missing: 0,
            is_overrun: false,
            is_broken: false,
            end: PeriodOutcome::Success,
            backlog: 0,
            state: None,
        }
    }

    /// Returns the response time: from the release to the end of the work.
    #[must_use]
    pub(crate) const fn response_ns(&self) -> u64 {
        self.start_latency_ns.saturating_add(self.execution_ns)
    }

    /// Returns true if the deadline was missed. Abandoned work always misses it.
    #[must_use]
    pub(crate) const fn is_missed(&self, deadline_ns: u64) -> bool {
        matches!(self.end, PeriodOutcome::Abandoned) || self.response_ns() > deadline_ns
    }

    /// Adds to a period the times of activities of one of its steps, and the step's straggler,
    /// missing messages, broken barrier and outcome.
    pub(crate) fn add(&mut self, step: &Self) {
        self.compute_ns += step.compute_ns;
        self.communicate_ns += step.communicate_ns;
        self.idle_ns += step.idle_ns;
        self.barrier_ns += step.barrier_ns;
        self.straggler = step.straggler.or(self.straggler);
        self.missing = self.missing.saturating_add(step.missing);
        self.is_broken |= step.is_broken;
        self.end = self.end.max(step.end);
    }

    /// Encodes the entry as words.
    #[must_use]
    pub(crate) const fn to_words(self) -> [u64; ENTRY_WORDS] {
        let (kind, step) = match self.kind {
            PeriodEntryKind::Period => (0, 0),
            PeriodEntryKind::Step(step) => (1, step),
            PeriodEntryKind::Event => (2, 0),
            PeriodEntryKind::NotReleased => (3, 0),
        };
        let straggler = match self.straggler {
            Some(node) => node,
            None => NO_NODE,
        };
        let state = match self.state {
            Some(state) => state as u64 + 1,
            None => 0,
        };
        let small = kind
            | (step as u64) << 8
            | (self.is_broken as u64) << 16
            | (self.end as u64) << 19
            | (self.is_overrun as u64) << 18
            | (straggler as u64) << 32
            | (self.missing as u64) << 48;
        [
            small,
            self.period,
            self.start_latency_ns,
            self.execution_ns,
            self.compute_ns,
            self.communicate_ns,
            self.idle_ns,
            self.barrier_ns,
            self.backlog as u64 | state << 32,
            self.released_ns.cast_unsigned(),
        ]
    }

    /// Decodes words; `None` if they are not those of an entry.
    #[must_use]
    pub(crate) fn from_words(words: &[u64; ENTRY_WORDS]) -> Option<Self> {
        let small = words[0];
        let step = (small >> 8) as u8;
        let kind = match (small as u8, step) {
            (0, 0) => PeriodEntryKind::Period,
            (1, step) => PeriodEntryKind::Step(step),
            (2, 0) => PeriodEntryKind::Event,
            (3, 0) => PeriodEntryKind::NotReleased,
            _ => return None,
        };
        let straggler = (small >> 32) as u16;
        let entry = Self {
            kind,
            period: words[1],
            released_ns: words[9].cast_signed(),
            start_latency_ns: words[2],
            execution_ns: words[3],
            compute_ns: words[4],
            communicate_ns: words[5],
            idle_ns: words[6],
            barrier_ns: words[7],
            straggler: (straggler != NO_NODE).then_some(straggler),
            missing: (small >> 48) as u16,
            is_overrun: small >> 18 & 1 == 1,
            is_broken: small >> 16 & 1 == 1,
            end: match small >> 19 & 3 {
                0 => PeriodOutcome::Success,
                1 => PeriodOutcome::Failed,
                _ => PeriodOutcome::Abandoned,
            },
            backlog: words[8] as u32,
            state: (words[8] >> 32).checked_sub(1).map(u8::try_from).transpose().ok()?,
        };
        // Unused bits are 0.
        (entry.to_words() == *words).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part() -> impl Strategy<Value = PeriodEntryKind> {
        prop_oneof![
            Just(PeriodEntryKind::Period),
            any::<u8>().prop_map(PeriodEntryKind::Step),
            Just(PeriodEntryKind::Event),
            Just(PeriodEntryKind::NotReleased)
        ]
    }

    prop_compose! {
        fn entry()(
            kind in part(),
            times in any::<[u64; 7]>(),
            awaited in proptest::option::of(0..NO_NODE),
            (missing, left, released_ns) in any::<(u16, u32, i64)>(),
            state in proptest::option::of(any::<u8>()),
            (is_overrun, is_broken) in any::<(bool, bool)>(),
            end in prop_oneof![Just(PeriodOutcome::Success), Just(PeriodOutcome::Failed), Just(PeriodOutcome::Abandoned)],
        ) -> PeriodEntry {
            let [period, start_latency_ns, execution_ns, compute_ns, communicate_ns, idle_ns, barrier_ns]
                = times;
            PeriodEntry {
                kind, period, released_ns, start_latency_ns, execution_ns, compute_ns, communicate_ns, idle_ns,
                barrier_ns, straggler: awaited, missing, is_overrun, is_broken, end, backlog: left,
                state,
            }
        }
    }

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(entry in entry()) {
            prop_assert_eq!(PeriodEntry::from_words(&entry.to_words()), Some(entry));
        }

        #[test]
        fn whatever_is_read_is_written_the_same(words in any::<[u64; ENTRY_WORDS]>()) {
            if let Some(entry) = PeriodEntry::from_words(&words) {
                prop_assert_eq!(entry.to_words(), words);
            }
        }
    }
}
