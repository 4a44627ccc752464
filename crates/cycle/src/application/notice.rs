//! What a node says beside its periods: what it noticed of others, and what it did wrong itself
//! because it was told to. Numbers of a fixed size, which go the way of the entries of periods.

use horolog_record::{CycleTestFaultKind as FaultKind, CycleTestNotice as Kind};

use super::plan::Fault;
use crate::entry::WORDS;

/// The first byte of the first word, which no entry of a period begins with.
const MARK: u64 = 0xa5;
/// Stands for no source and no node.
const NOBODY: u16 = u16::MAX;

/// What is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// Something was noticed of a source or of a node.
    Noticed(Kind, Option<u16>),
    /// A fault of the plan was injected.
    Injected(u16),
}

/// Something that is told of a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Notice {
    /// What.
    pub(crate) subject: Subject,
    /// The period in which it was.
    pub(crate) cycle: u64,
    /// When, in ns of `CLOCK_MONOTONIC`.
    pub(crate) at_ns: i64,
    /// How often.
    pub(crate) count: u32,
    /// How many of those that were told before are none after all.
    pub(crate) undone: u32,
}

impl Notice {
    /// As words.
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let (what, of) = match self.subject {
            Subject::Noticed(kind, of) => (1 + kind as u64, of.unwrap_or(NOBODY)),
            Subject::Injected(fault) => (0, fault),
        };
        let counts = u64::from(self.count) | u64::from(self.undone) << 32;
        let mut words = [0; WORDS];
        words[0] = MARK | what << 8 | u64::from(of) << 16;
        words[1] = self.cycle;
        words[2] = self.at_ns.cast_unsigned();
        words[3] = counts;
        words
    }

    /// Reads words; `None` where they are none of a notice.
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Option<Self> {
        if words[0] & 0xff != MARK {
            return None;
        }
        let of = (words[0] >> 16) as u16;
        let subject = match (words[0] >> 8 & 0xff) as usize {
            0 => Subject::Injected(of),
            what => Subject::Noticed(*Kind::ALL.get(what - 1)?, (of != NOBODY).then_some(of)),
        };
        let notice = Self {
            subject,
            cycle: words[1],
            at_ns: words[2].cast_signed(),
            count: words[3] as u32,
            undone: (words[3] >> 32) as u32,
        };
        // Bits that mean nothing are 0.
        (notice.to_words() == *words).then_some(notice)
    }
}

/// Whether a fault can be the cause of what was noticed of a source or node.
pub(super) fn explains(fault: &Fault, kind: Kind, of: Option<u16>) -> bool {
    let of_source = fault.source.is_none() || of.is_none() || fault.source == of;
    let of_node = fault.node.is_none() || of.is_none() || fault.node == of;
    match fault.kind {
        FaultKind::DataError => kind == Kind::DataError && of_source,
        FaultKind::Lost => kind == Kind::Lost && of_source,
        FaultKind::Late => kind == Kind::Late && of_source,
        FaultKind::LostMessage => kind == Kind::MessageMissing && of_node,
        FaultKind::LateMessage => kind == Kind::MessageLate && of_node,
        FaultKind::Stop | FaultKind::End => match kind {
            Kind::NodeSilent | Kind::MessageMissing | Kind::NodeAwaited => of_node,
            Kind::BarrierBroken | Kind::DeadlineMissed => true,
            _ => false,
        },
        FaultKind::Slow => match kind {
            Kind::NodeAwaited | Kind::MessageMissing => of_node,
            Kind::BarrierBroken | Kind::DeadlineMissed => true,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::Entry;

    #[test]
    fn kinds_are_in_the_order_of_their_numbers() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(
            kind in prop::sample::select(Kind::ALL.to_vec()),
            of in prop::option::of(0..NOBODY),
            is_injected in any::<bool>(),
            (cycle, at_ns, count, undone) in any::<(u64, i64, u32, u32)>(),
        ) {
            let subject = if is_injected {
                Subject::Injected(of.unwrap_or(7))
            } else {
                Subject::Noticed(kind, of)
            };
            let notice = Notice { subject, cycle, at_ns, count, undone };
            prop_assert_eq!(Notice::from_words(&notice.to_words()), Some(notice));
            prop_assert_eq!(Entry::from_words(&notice.to_words()), None);
        }

        #[test]
        fn whatever_is_read_is_written_the_same(words in any::<[u64; WORDS]>()) {
            if let Some(notice) = Notice::from_words(&words) {
                prop_assert_eq!(notice.to_words(), words);
            }
        }
    }
}
