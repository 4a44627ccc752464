//! What a task says of one period, one superstep or one event: numbers of a fixed size, so that a
//! task hands them over by writing a few words.

/// Words of an entry.
pub(crate) const WORDS: usize = 10;
/// Stands for no node.
const NOBODY: u16 = u16::MAX;

/// What an entry is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A whole period.
    Period,
    /// One superstep of a period of several.
    Step(u8),
    /// One event that a polling server served.
    Event,
    /// A period that was never released, so that there was no work.
    Unreleased,
}

/// How the work of a period ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    /// Well.
    Well,
    /// Not well, but it ended: a command with another status than 0.
    Failed,
    /// Not at all: it took too long, or is gone. Its times are those of whoever gave it up.
    GivenUp,
}

/// What became of a period, of a part of it, or of an event. Times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// What it is of.
    pub(crate) part: Part,
    /// The period, counted from 0.
    pub(crate) cycle: u64,
    /// What the period was released by: an instant of the node's monotonic clock, counted from the
    /// one that it took for the beginning of the run. Nothing where it was never released.
    pub(crate) released_ns: i64,
    /// From the release to the task's first own instant, or for a step from the release to its
    /// beginning; for an event from when it came to when it was served.
    pub(crate) late_ns: u64,
    /// From there to the end of the work.
    pub(crate) spent_ns: u64,
    /// Computing, as it passes on the clock.
    pub(crate) compute_ns: u64,
    /// Sending, and being sent to: what messages took on their way.
    pub(crate) communicate_ns: u64,
    /// Waiting for others that were not as far: for their messages, and at barriers.
    pub(crate) idle_ns: u64,
    /// What barriers took once the last had arrived.
    pub(crate) barrier_ns: u64,
    /// The node that was waited for last, and was the last to arrive.
    pub(crate) awaited: Option<u16>,
    /// Messages that did not come in time.
    pub(crate) missing: u16,
    /// Whether its release was past when the task came to wait for it.
    pub(crate) is_overrun: bool,
    /// Whether a barrier was given up because somebody did not arrive.
    pub(crate) is_broken: bool,
    /// How the work ended.
    pub(crate) end: End,
    /// Events that were left for the next period; periods in a row that were never released.
    pub(crate) left: u32,
    /// The state that the task was in, by its place among those that it names.
    pub(crate) state: Option<u8>,
}

impl Entry {
    /// Of a period or step in which nothing has happened yet.
    #[must_use]
    pub(crate) const fn new(part: Part, cycle: u64) -> Self {
        Self {
            part,
            cycle,
            released_ns: 0,
            late_ns: 0,
            spent_ns: 0,
            compute_ns: 0,
            communicate_ns: 0,
            idle_ns: 0,
            barrier_ns: 0,
            awaited: None,
            missing: 0,
            is_overrun: false,
            is_broken: false,
            end: End::Well,
            left: 0,
            state: None,
        }
    }

    /// From the release to the end.
    #[must_use]
    pub(crate) const fn response_ns(&self) -> u64 {
        self.late_ns.saturating_add(self.spent_ns)
    }

    /// Whether the work was not done by its deadline: what is given up is not done at all.
    #[must_use]
    pub(crate) const fn is_missed(&self, deadline_ns: u64) -> bool {
        matches!(self.end, End::GivenUp) || self.response_ns() > deadline_ns
    }

    /// Adds what a step took to the period that it is of.
    pub(crate) fn add(&mut self, step: &Self) {
        self.compute_ns += step.compute_ns;
        self.communicate_ns += step.communicate_ns;
        self.idle_ns += step.idle_ns;
        self.barrier_ns += step.barrier_ns;
        self.awaited = step.awaited.or(self.awaited);
        self.missing = self.missing.saturating_add(step.missing);
        self.is_broken |= step.is_broken;
        self.end = self.end.max(step.end);
    }

    /// As words.
    #[must_use]
    pub(crate) const fn to_words(self) -> [u64; WORDS] {
        let (kind, step) = match self.part {
            Part::Period => (0, 0),
            Part::Step(step) => (1, step),
            Part::Event => (2, 0),
            Part::Unreleased => (3, 0),
        };
        let awaited = match self.awaited {
            Some(node) => node,
            None => NOBODY,
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
            self.late_ns,
            self.spent_ns,
            self.compute_ns,
            self.communicate_ns,
            self.idle_ns,
            self.barrier_ns,
            self.left as u64 | state << 32,
            self.released_ns.cast_unsigned(),
        ]
    }

    /// Reads words; `None` where they are none of an entry.
    #[must_use]
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Option<Self> {
        let small = words[0];
        let step = (small >> 8) as u8;
        let part = match (small as u8, step) {
            (0, 0) => Part::Period,
            (1, step) => Part::Step(step),
            (2, 0) => Part::Event,
            (3, 0) => Part::Unreleased,
            _ => return None,
        };
        let awaited = (small >> 32) as u16;
        let entry = Self {
            part,
            cycle: words[1],
            released_ns: words[9].cast_signed(),
            late_ns: words[2],
            spent_ns: words[3],
            compute_ns: words[4],
            communicate_ns: words[5],
            idle_ns: words[6],
            barrier_ns: words[7],
            awaited: (awaited != NOBODY).then_some(awaited),
            missing: (small >> 48) as u16,
            is_overrun: small >> 18 & 1 == 1,
            is_broken: small >> 16 & 1 == 1,
            end: match small >> 19 & 3 {
                0 => End::Well,
                1 => End::Failed,
                _ => End::GivenUp,
            },
            left: words[8] as u32,
            state: (words[8] >> 32).checked_sub(1).map(u8::try_from).transpose().ok()?,
        };
        // Bits that mean nothing are 0.
        (entry.to_words() == *words).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            Just(Part::Period),
            any::<u8>().prop_map(Part::Step),
            Just(Part::Event),
            Just(Part::Unreleased)
        ]
    }

    prop_compose! {
        fn entry()(
            part in part(),
            times in any::<[u64; 7]>(),
            awaited in proptest::option::of(0..NOBODY),
            (missing, left, released_ns) in any::<(u16, u32, i64)>(),
            state in proptest::option::of(any::<u8>()),
            (is_overrun, is_broken) in any::<(bool, bool)>(),
            end in prop_oneof![Just(End::Well), Just(End::Failed), Just(End::GivenUp)],
        ) -> Entry {
            let [cycle, late_ns, spent_ns, compute_ns, communicate_ns, idle_ns, barrier_ns]
                = times;
            Entry {
                part, cycle, released_ns, late_ns, spent_ns, compute_ns, communicate_ns, idle_ns,
                barrier_ns, awaited, missing, is_overrun, is_broken, end, left,
                state,
            }
        }
    }

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(entry in entry()) {
            prop_assert_eq!(Entry::from_words(&entry.to_words()), Some(entry));
        }

        #[test]
        fn whatever_is_read_is_written_the_same(words in any::<[u64; WORDS]>()) {
            if let Some(entry) = Entry::from_words(&words) {
                prop_assert_eq!(entry.to_words(), words);
            }
        }
    }
}
