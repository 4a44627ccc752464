//! Record of one period, superstep or event of a task: numbers of a fixed size, so that a task
//! publishes it by writing a few words.

/// Words of an entry.
pub(crate) const WORDS: usize = 10;
/// Placeholder for no node.
const NO_NODE: u16 = u16::MAX;

/// Kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryKind {
    /// A whole period.
    Period,
    /// One superstep of a period of several.
    Step(u8),
    /// One event that a polling server served.
    Event,
    /// A period that was never released, so that there was no work.
    NotReleased,
}

/// End of the work of a period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PeriodEnd {
    /// Success.
    Well,
    /// Completion with a failure: a command with a status other than 0.
    Failed,
    /// No completion: the work took too long, or its process is gone. The times are those of the
    /// process that gave it up.
    Abandoned,
}

/// Outcome of a period, of a superstep of it, or of an event. Times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeriodEntry {
    /// Kind of the entry.
    pub(crate) part: EntryKind,
    /// The period, counted from 0.
    pub(crate) cycle: u64,
    /// Release of the period: an instant of the node's monotonic clock, counted from the one that
    /// the node took for the beginning of the run. 0 if it was never released.
    pub(crate) released_ns: i64,
    /// Time from the release to the task's first own instant, or for a step from the release to its
    /// beginning; for an event from its arrival to its service.
    pub(crate) start_latency_ns: u64,
    /// Time from there to the end of the work.
    pub(crate) execution_ns: u64,
    /// Computation, as elapsed time on the clock.
    pub(crate) compute_ns: u64,
    /// Sending and receiving: transit time of messages.
    pub(crate) communicate_ns: u64,
    /// Waiting for peers that were not as far: for their messages, and at barriers.
    pub(crate) idle_ns: u64,
    /// Duration of barriers after the last arrival.
    pub(crate) barrier_ns: u64,
    /// Node that was waited for last, and was the last to arrive.
    pub(crate) straggler: Option<u16>,
    /// Messages that did not arrive in time.
    pub(crate) missing: u16,
    /// True if the release was past when the task began to wait for it.
    pub(crate) is_overrun: bool,
    /// True if a barrier was abandoned because a node did not arrive.
    pub(crate) is_broken: bool,
    /// End of the work.
    pub(crate) end: PeriodEnd,
    /// Events that were left for the next period; periods in a row that were never released.
    pub(crate) backlog: u32,
    /// State of the task, as an index into the states that it names.
    pub(crate) state: Option<u8>,
}

impl PeriodEntry {
    /// Returns the entry of a period or step in which nothing has happened yet.
    #[must_use]
    pub(crate) const fn new(part: EntryKind, cycle: u64) -> Self {
        Self {
            part,
            cycle,
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
            end: PeriodEnd::Well,
            backlog: 0,
            state: None,
        }
    }

    /// Returns the time from the release to the end.
    #[must_use]
    pub(crate) const fn response_ns(&self) -> u64 {
        self.start_latency_ns.saturating_add(self.execution_ns)
    }

    /// Returns true if the work was not done by its deadline. Abandoned work is never done.
    #[must_use]
    pub(crate) const fn is_missed(&self, deadline_ns: u64) -> bool {
        matches!(self.end, PeriodEnd::Abandoned) || self.response_ns() > deadline_ns
    }

    /// Adds the times of a step to the period that contains it.
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
    pub(crate) const fn to_words(self) -> [u64; WORDS] {
        let (kind, step) = match self.part {
            EntryKind::Period => (0, 0),
            EntryKind::Step(step) => (1, step),
            EntryKind::Event => (2, 0),
            EntryKind::NotReleased => (3, 0),
        };
        let awaited = match self.straggler {
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
            | (awaited as u64) << 32
            | (self.missing as u64) << 48;
        [
            small,
            self.cycle,
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
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Option<Self> {
        let small = words[0];
        let step = (small >> 8) as u8;
        let part = match (small as u8, step) {
            (0, 0) => EntryKind::Period,
            (1, step) => EntryKind::Step(step),
            (2, 0) => EntryKind::Event,
            (3, 0) => EntryKind::NotReleased,
            _ => return None,
        };
        let awaited = (small >> 32) as u16;
        let entry = Self {
            part,
            cycle: words[1],
            released_ns: words[9].cast_signed(),
            start_latency_ns: words[2],
            execution_ns: words[3],
            compute_ns: words[4],
            communicate_ns: words[5],
            idle_ns: words[6],
            barrier_ns: words[7],
            straggler: (awaited != NO_NODE).then_some(awaited),
            missing: (small >> 48) as u16,
            is_overrun: small >> 18 & 1 == 1,
            is_broken: small >> 16 & 1 == 1,
            end: match small >> 19 & 3 {
                0 => PeriodEnd::Well,
                1 => PeriodEnd::Failed,
                _ => PeriodEnd::Abandoned,
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

    fn part() -> impl Strategy<Value = EntryKind> {
        prop_oneof![
            Just(EntryKind::Period),
            any::<u8>().prop_map(EntryKind::Step),
            Just(EntryKind::Event),
            Just(EntryKind::NotReleased)
        ]
    }

    prop_compose! {
        fn entry()(
            part in part(),
            times in any::<[u64; 7]>(),
            awaited in proptest::option::of(0..NO_NODE),
            (missing, left, released_ns) in any::<(u16, u32, i64)>(),
            state in proptest::option::of(any::<u8>()),
            (is_overrun, is_broken) in any::<(bool, bool)>(),
            end in prop_oneof![Just(PeriodEnd::Well), Just(PeriodEnd::Failed), Just(PeriodEnd::Abandoned)],
        ) -> PeriodEntry {
            let [cycle, late_ns, spent_ns, compute_ns, communicate_ns, idle_ns, barrier_ns]
                = times;
            PeriodEntry {
                part, cycle, released_ns, start_latency_ns: late_ns, execution_ns: spent_ns, compute_ns, communicate_ns, idle_ns,
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
        fn whatever_is_read_is_written_the_same(words in any::<[u64; WORDS]>()) {
            if let Some(entry) = PeriodEntry::from_words(&words) {
                prop_assert_eq!(entry.to_words(), words);
            }
        }
    }
}
