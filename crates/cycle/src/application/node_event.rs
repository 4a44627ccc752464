//! Events that a node publishes with its periods: detections about sources and peers, and
//! injections of its own faults. They have a fixed size and go through the ring of the period
//! entries.

use horolog_record::{CycleTestDetectionKind as Kind, CycleTestFaultKind as FaultKind};

use super::plan::FaultSpec;
use crate::entry::ENTRY_WORDS;

/// Lowest byte of the first word, which no period entry has.
const EVENT_MARKER: u64 = 0xa5;
/// Encoding of an absent source or node.
const NO_ID: u16 = u16::MAX;

/// Detection or injection that an event reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeFaultEventKind {
    /// Detection of this kind, about this source or node if known.
    Detected(Kind, Option<u16>),
    /// Injection of the fault with this index in the plan.
    Injected(u16),
}

/// Fault event of a node in a period: a detection or an injection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeFaultEvent {
    /// Detection or injection that the event reports.
    pub(crate) kind: NodeFaultEventKind,
    /// Number of the period, from 0.
    pub(crate) period: u64,
    /// Time of the event, in ns of `CLOCK_MONOTONIC`.
    pub(crate) at_ns: i64,
    /// Number of occurrences.
    pub(crate) count: u32,
    /// Number of earlier occurrences that are retracted.
    pub(crate) retracted: u32,
}

impl NodeFaultEvent {
    /// Encodes the event as words.
    pub(crate) fn to_words(self) -> [u64; ENTRY_WORDS] {
        let (code, of) = match self.kind {
            NodeFaultEventKind::Detected(kind, of) => (1 + kind as u64, of.unwrap_or(NO_ID)),
            NodeFaultEventKind::Injected(fault) => (0, fault),
        };
        let counts = u64::from(self.count) | u64::from(self.retracted) << 32;
        let mut words = [0; ENTRY_WORDS];
        words[0] = EVENT_MARKER | code << 8 | u64::from(of) << 16;
        words[1] = self.period;
        words[2] = self.at_ns.cast_unsigned();
        words[3] = counts;
        words
    }

    /// Decodes words; `None` if they are not those of an event.
    pub(crate) fn from_words(words: &[u64; ENTRY_WORDS]) -> Option<Self> {
        if words[0] & 0xff != EVENT_MARKER {
            return None;
        }
        let of = (words[0] >> 16) as u16;
        let event_kind = match (words[0] >> 8 & 0xff) as usize {
            0 => NodeFaultEventKind::Injected(of),
            what => {
                NodeFaultEventKind::Detected(*Kind::ALL.get(what - 1)?, (of != NO_ID).then_some(of))
            }
        };
        let event = Self {
            kind: event_kind,
            period: words[1],
            at_ns: words[2].cast_signed(),
            count: words[3] as u32,
            retracted: (words[3] >> 32) as u32,
        };
        // Unused bits are 0.
        (event.to_words() == *words).then_some(event)
    }
}

/// Returns true if a fault can be the cause of a detection about a source or node.
pub(super) fn can_explain(fault: &FaultSpec, kind: Kind, of: Option<u16>) -> bool {
    let is_same_source = fault.source.is_none() || of.is_none() || fault.source == of;
    let is_same_node = fault.node.is_none() || of.is_none() || fault.node == of;
    match fault.kind {
        FaultKind::DataError => kind == Kind::DataError && is_same_source,
        FaultKind::Lost => kind == Kind::Lost && is_same_source,
        FaultKind::Late => kind == Kind::Late && is_same_source,
        FaultKind::LostMessage => kind == Kind::MessageMissing && is_same_node,
        FaultKind::LateMessage => kind == Kind::MessageLate && is_same_node,
        FaultKind::Stop | FaultKind::End => match kind {
            Kind::NodeTimeout | Kind::MessageMissing | Kind::StragglerNode => is_same_node,
            Kind::BarrierBroken | Kind::DeadlineMissed => true,
            _ => false,
        },
        FaultKind::Slow => match kind {
            Kind::StragglerNode | Kind::MessageMissing => is_same_node,
            Kind::BarrierBroken | Kind::DeadlineMissed => true,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::PeriodEntry;

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
            of in prop::option::of(0..NO_ID),
            is_injected in any::<bool>(),
            (period, at_ns, count, retracted) in any::<(u64, i64, u32, u32)>(),
        ) {
            let kind = if is_injected {
                NodeFaultEventKind::Injected(of.unwrap_or(7))
            } else {
                NodeFaultEventKind::Detected(kind, of)
            };
            let notice = NodeFaultEvent { kind, period, at_ns, count, retracted };
            prop_assert_eq!(NodeFaultEvent::from_words(&notice.to_words()), Some(notice));
            prop_assert_eq!(PeriodEntry::from_words(&notice.to_words()), None);
        }

        #[test]
        fn whatever_is_read_is_written_the_same(words in any::<[u64; ENTRY_WORDS]>()) {
            if let Some(notice) = NodeFaultEvent::from_words(&words) {
                prop_assert_eq!(notice.to_words(), words);
            }
        }
    }
}
