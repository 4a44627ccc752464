//! What can be said of a measurement while it runs: plain numbers, of which the terminal, the live
//! page and the metrics all show the same ones. They are kept in a ring, so that a run of any
//! length takes the same memory. Nothing here measures, and nothing of it goes into a result.
//!
//! What is counted so far is not what a result says: a request that is on its way is neither
//! answered nor lost, so looks say how many are unanswered, and only what has ended says what was
//! lost.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::{EstablishmentTrial, Finding, Percentiles, Place, Trial};

/// The schema of what a live page is fed with.
pub const LIVE_SCHEMA: &str = "horolog.live/1";

/// Looks that are kept: ten minutes at two a second.
pub const LOOKS_MAX: usize = 1_200;

/// Ended parts that are kept.
const ENDED_MAX: usize = 256;

/// What was counted so far. Nothing in it ever becomes less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LookCounts {
    /// Requests that left.
    pub sent: u64,
    /// Valid replies within the time allowed, each request's first one only.
    pub received: u64,
    /// Valid replies that came after it.
    pub late: u64,
    /// Further valid replies to an answered request.
    pub duplicate: u64,
    /// Replies that were not valid.
    pub invalid: u64,
    /// Requests that the own sending path refused.
    pub refused: u64,
    /// Replies that the own receive rings or sockets had no room for, as far as that is counted by
    /// then.
    pub dropped: u64,
    /// Bytes of payload that were carried, where those are what is measured.
    pub bytes: u64,
}

impl LookCounts {
    /// Requests that are lost or on their way.
    #[must_use]
    pub const fn unanswered(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// What was counted since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
            late: self.late.saturating_sub(before.late),
            duplicate: self.duplicate.saturating_sub(before.duplicate),
            invalid: self.invalid.saturating_sub(before.invalid),
            refused: self.refused.saturating_sub(before.refused),
            dropped: self.dropped.saturating_sub(before.dropped),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }

    /// Adds what was counted elsewhere.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.late += other.late;
        self.duplicate += other.duplicate;
        self.invalid += other.invalid;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.bytes += other.bytes;
    }
}

/// A trial, phase or row that is under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LookPart {
    /// Its number, from 0 on.
    pub index: usize,
    /// What it is called.
    pub name: String,
    /// How long it has been going on, in seconds.
    pub elapsed_s: f64,
    /// How long it is to go on; absent where a number of requests ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// What was counted in it.
    pub counts: LookCounts,
}

/// One look at a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Look {
    /// Seconds since the first one could be taken.
    pub at_s: f64,
    /// Requests per second that are planned at this instant; absent where each waits for another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_rate: Option<f64>,
    /// Requests that left per second since the last look at the same part.
    pub sent_rate: f64,
    /// Valid replies per second, likewise.
    pub received_rate: f64,
    /// Bytes per second, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_rate: Option<f64>,
    /// What is unanswered of what left since the last look, as a share from 0 to 1: in a steady
    /// state the share that is lost.
    pub unanswered_ratio: f64,
    /// All parts together.
    pub counts: LookCounts,
    /// The part that is under way.
    pub part: LookPart,
    /// What replies took, of the part so far or of its last interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
    /// From the intended to the real send instant, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Percentiles>,
}

/// A part that is over, as the result says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LookEnded {
    /// Its number, from 0 on.
    pub index: usize,
    /// What it is called.
    pub name: String,
    /// Requests per second that were planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_rate: Option<f64>,
    /// Requests per second that left.
    pub achieved_rate: f64,
    /// How long it went on, in seconds.
    pub duration_s: f64,
    /// Requests that left.
    pub sent: u64,
    /// Valid first replies in time.
    pub received: u64,
    /// Requests without one.
    pub lost: u64,
    /// Valid replies that came too late.
    pub late: u64,
    /// Replies that were not valid.
    pub invalid: u64,
    /// Bytes per second, where those are what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_rate: Option<f64>,
    /// Segments of TCP that were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<u64>,
    /// Where they were lost, as far as that is known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_at: BTreeMap<Place, u64>,
    /// What replies took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
}

impl LookEnded {
    /// A trial or phase of a load.
    #[must_use]
    pub fn of_trial(index: usize, trial: &Trial) -> Self {
        Self {
            index,
            name: trial.phase.clone().unwrap_or_default(),
            offered_rate: Some(trial.offered_rate),
            achieved_rate: trial.achieved_rate,
            duration_s: trial.duration_s,
            sent: trial.sent,
            received: trial.received,
            lost: trial.lost,
            late: trial.late,
            invalid: trial.invalid.values().sum(),
            lost_at: trial.lost_at.clone(),
            latency_ns: trial.rtt_ns.as_ref().map(Percentiles::of),
            ..Self::default()
        }
    }

    /// A trial of key establishments.
    #[must_use]
    pub fn of_establishments(index: usize, trial: &EstablishmentTrial) -> Self {
        Self {
            index,
            offered_rate: trial.offered_rate,
            achieved_rate: trial.achieved_rate,
            duration_s: trial.duration_s,
            sent: trial.sent,
            received: trial.received,
            lost: trial.lost,
            latency_ns: trial.handshake_ns.as_ref().map(Percentiles::of),
            ..Self::default()
        }
    }
}

/// The latest of many things, numbered from 0 on.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    most: usize,
    first: u64,
    kept: VecDeque<T>,
}

impl<T> Ring<T> {
    /// An empty one that keeps so many, at least one.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most: if most == 0 { 1 } else { most }, first: 0, kept: VecDeque::new() }
    }

    /// Takes one more, and forgets the oldest where there is no room.
    pub fn push(&mut self, item: T) {
        if self.kept.len() >= self.most {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(item);
    }

    /// The number that the next one gets.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// Those that are kept from this number on, and the number of the first of them.
    #[must_use]
    pub fn since(&self, number: u64) -> (u64, impl ExactSizeIterator<Item = &T>) {
        let from = number.clamp(self.first, self.next());
        let skipped = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        (from, self.kept.range(skipped.min(self.kept.len())..))
    }

    /// The latest.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.kept.back()
    }
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookState {
    /// It goes on.
    Running,
    /// It is over.
    Ended,
}

/// All that is told of a measurement while it runs.
#[derive(Clone, Debug)]
pub struct Looks {
    /// What is measured, as commands are called: `load`, `path udp`.
    pub kind: &'static str,
    /// What is measured of what, in words.
    pub title: String,
    /// How far it is.
    pub state: LookState,
    /// What parts are called: trial, phase, row.
    pub part_is: &'static str,
    /// How many there are to be, where that is known.
    pub parts: Option<usize>,
    /// The latest looks.
    pub looks: Ring<Look>,
    /// The latest parts that are over.
    pub ended: Ring<LookEnded>,
    /// What was lost in all parts that are over.
    pub lost: u64,
    /// Where, as far as that is known.
    pub lost_at: BTreeMap<Place, u64>,
    /// Doubts so far.
    pub findings: Vec<Finding>,
}

/// A [`Looks`] as a live page takes it.
#[derive(Serialize)]
struct Told<'a> {
    schema: &'static str,
    kind: &'static str,
    title: &'a str,
    state: LookState,
    part_is: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<usize>,
    /// The number of the first of the looks.
    first: u64,
    /// What to ask for next.
    next: u64,
    looks: Vec<&'a Look>,
    ended: Vec<&'a LookEnded>,
    lost: u64,
    lost_at: &'a BTreeMap<Place, u64>,
    findings: &'a [Finding],
}

impl Looks {
    /// Of a measurement that is about to begin.
    #[must_use]
    pub const fn new(kind: &'static str, title: String, part_is: &'static str) -> Self {
        Self {
            kind,
            title,
            state: LookState::Running,
            part_is,
            parts: None,
            looks: Ring::new(LOOKS_MAX),
            ended: Ring::new(ENDED_MAX),
            lost: 0,
            lost_at: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    /// Takes a part that is over.
    pub fn end_part(&mut self, part: LookEnded) {
        self.lost += part.lost;
        for (place, lost) in &part.lost_at {
            *self.lost_at.entry(*place).or_default() += lost;
        }
        self.ended.push(part);
    }

    /// As a live page takes it, with the looks from a number on.
    #[must_use]
    pub fn to_json(&self, since: u64) -> String {
        let (first, looks) = self.looks.since(since);
        let told = Told {
            schema: LIVE_SCHEMA,
            kind: self.kind,
            title: &self.title,
            state: self.state,
            part_is: self.part_is,
            parts: self.parts,
            first,
            next: self.looks.next(),
            looks: looks.collect(),
            ended: self.ended.since(0).1.collect(),
            lost: self.lost,
            lost_at: &self.lost_at,
            findings: &self.findings,
        };
        // Numbers, texts and lists of them under string keys always serialise.
        serde_json::to_string(&told).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    proptest! {
        #[test]
        fn a_ring_keeps_the_latest_under_their_numbers(
            most in 0_usize..20, count in 0_u64..60, since in prop_oneof![0_u64..80, any::<u64>()],
        ) {
            let mut ring = Ring::new(most);
            (0..count).for_each(|number| ring.push(number));
            let (first, kept) = ring.since(since);
            let kept: Vec<u64> = kept.copied().collect();
            let expected: Vec<u64> =
                (count.saturating_sub(most.max(1) as u64)..count).filter(|n| *n >= since).collect();
            prop_assert_eq!(&kept, &expected);
            prop_assert_eq!(first + kept.len() as u64, ring.next());
            prop_assert_eq!(ring.next(), count);
            prop_assert_eq!(ring.last().copied(), count.checked_sub(1));
        }
    }

    #[test]
    fn what_is_told_begins_where_it_was_asked_to() {
        let mut looks = Looks::new("load", "a server".to_owned(), "trial");
        for sent in 0..3 {
            let counts = LookCounts { sent, ..LookCounts::default() };
            looks.looks.push(Look { counts, ..Look::default() });
        }
        let lost_at = BTreeMap::from([(Place::Server, 2)]);
        for index in 0..2 {
            let lost_at = lost_at.clone();
            looks.end_part(LookEnded { index, lost: 3, lost_at, ..LookEnded::default() });
        }
        let told: Value = serde_json::from_str(&looks.to_json(1)).unwrap();
        assert_eq!(
            (&told["schema"], &told["state"]),
            (&"horolog.live/1".into(), &"running".into())
        );
        assert_eq!((told["first"].as_u64(), told["next"].as_u64()), (Some(1), Some(3)));
        let sent: Vec<_> =
            told["looks"].as_array().unwrap().iter().map(|look| &look["counts"]["sent"]).collect();
        assert_eq!(sent, [1, 2]);
        assert_eq!((told["lost"].as_u64(), told["lost_at"]["server"].as_u64()), (Some(6), Some(4)));
        assert_eq!(told["ended"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_is_on_its_way_is_not_called_lost() {
        let counts = LookCounts { sent: 10, received: 7, ..LookCounts::default() };
        assert_eq!(counts.unanswered(), 3);
        // Counted one after the other, a reply may be there before its request.
        assert_eq!(LookCounts { sent: 1, received: 2, ..counts }.unanswered(), 0);
    }
}
