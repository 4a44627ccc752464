//! Live values of a running measurement, for the terminal view, the live page and the metrics. They
//! are held in ring buffers, so that memory does not grow with the run. None of these values is
//! part of a result.
//!
//! A "part" of a measurement is a trial, phase, row or run. A request in transit is neither
//! answered nor lost: snapshots state how many requests are unanswered, and only ended parts state
//! losses.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use serde::Serialize;

use crate::{Finding, LossLocation, NtsKeTrial, Percentiles, Trial};

/// Schema of the live page's data.
pub const LIVE_SCHEMA: &str = "horolog.live/2";

/// Largest number of stored snapshots: ten minutes at two per second.
pub const SNAPSHOTS_MAX: usize = 1_200;

/// Largest number of stored ended parts.
const ENDED_MAX: usize = 256;

/// Counts of a measurement so far; they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LiveCounts {
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout, only the first to each request.
    pub received: u64,
    /// Valid replies after the timeout.
    pub late: u64,
    /// Further valid replies to an answered request.
    pub duplicate: u64,
    /// NTP replies of `received` whose server reports that it is not synchronised.
    pub unsynchronised: u64,
    /// Invalid replies.
    pub invalid: u64,
    /// Requests that this host could not send.
    pub refused: u64,
    /// Replies dropped because this host's receive rings or sockets were full, as far as known so
    /// far.
    pub dropped: u64,
    /// Payload bytes transferred, if these are measured.
    pub bytes: u64,
}

impl LiveCounts {
    /// Returns the number of requests that are lost or in transit: `sent` minus `received`, or 0 if
    /// that is negative.
    #[must_use]
    pub const fn unanswered(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the difference of each count from an earlier one, at least 0.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
            late: self.late.saturating_sub(before.late),
            duplicate: self.duplicate.saturating_sub(before.duplicate),
            unsynchronised: self.unsynchronised.saturating_sub(before.unsynchronised),
            invalid: self.invalid.saturating_sub(before.invalid),
            refused: self.refused.saturating_sub(before.refused),
            dropped: self.dropped.saturating_sub(before.dropped),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }

    /// Adds the counts of another source.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.late += other.late;
        self.duplicate += other.duplicate;
        self.unsynchronised += other.unsynchronised;
        self.invalid += other.invalid;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.bytes += other.bytes;
    }
}

/// Part of a measurement (trial, phase, row or run) as planned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartPlan {
    /// Number of the part, from 0.
    pub index: usize,
    /// Planned number of parts; `None` if unknown.
    pub count: Option<usize>,
    /// Name of the part.
    pub name: String,
    /// Intended rate at this instant, in requests per second; `None` if each request waits for
    /// another.
    pub intended_rate: Option<f64>,
    /// Start of the part in seconds since its counts were 0: the phases of a load profile are
    /// counted together.
    pub begun_s: f64,
    /// Planned duration in seconds; `None` if a number of requests ends the part.
    pub duration_s: Option<f64>,
    /// True if bytes are measured rather than replies.
    pub is_transfer: bool,
}

impl PartPlan {
    /// Returns the progress of the part, `elapsed_s` seconds after its start.
    #[must_use]
    pub fn progress(&self, elapsed_s: f64) -> PartProgress {
        let Self { index, count, duration_s, .. } = *self;
        PartProgress { index, count, name: self.name.clone(), elapsed_s, duration_s }
    }
}

/// Progress of the current part of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartProgress {
    /// Number of the part, from 0.
    pub index: usize,
    /// Planned number of parts; `None` if unknown.
    #[serde(skip)]
    pub count: Option<usize>,
    /// Name of the part.
    pub name: String,
    /// Time since the start of the part, in seconds.
    pub elapsed_s: f64,
    /// Planned duration of the part in seconds; absent if a number of requests ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
}

/// State of a measurement at one instant: its progress, and the values of its kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot<V = RequestValues> {
    /// Time of the snapshot, in seconds since the start of the run.
    pub at_s: f64,
    /// Current part.
    pub part: PartProgress,
    /// Values of the kind of measurement.
    pub values: V,
}

/// Values of a measurement that sends requests or bytes, in a [`Snapshot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RequestValues {
    /// Intended rate at this instant, in requests per second; absent if each request waits for
    /// another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intended_rate: Option<f64>,
    /// Requests sent per second since the last snapshot of the same part; in the final snapshot of
    /// a part, since its start.
    pub sent_rate: f64,
    /// Valid replies per second, over the same time as `sent_rate`.
    pub received_rate: f64,
    /// Bytes per second, over the same time as `sent_rate`; absent if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_rate: Option<f64>,
    /// Ratio of unanswered requests to those sent, over the same time as `sent_rate`, from 0 to 1;
    /// equal to the loss ratio in a steady state.
    pub unanswered_ratio: f64,
    /// Counts of all parts.
    pub counts: LiveCounts,
    /// Counts of the current part.
    #[serde(skip)]
    pub part_counts: LiveCounts,
    /// Latency of replies in ns, of the part so far or of its latest interval; absent without
    /// replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
    /// Send lateness in ns (actual minus intended send time), over the same time as `latency_ns`;
    /// absent if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Percentiles>,
}

/// Observer of a running measurement. `P` is the record of an ended part, `E` an event that only
/// this kind of measurement has, and `V` the values of its snapshots.
pub trait RunObserver<P = LivePartSummary, E = (), V = RequestValues> {
    /// Returns true if snapshots are wanted. They cost the measurement little, but not nothing.
    fn wants_snapshots(&self) -> bool {
        false
    }

    /// Takes a snapshot: twice a second, and at the end of each part.
    fn snapshot(&mut self, _snapshot: Snapshot<V>) {}

    /// Reports that a part begins.
    fn part_started(&mut self, _plan: &PartPlan) {}

    /// Reports a completed part.
    fn part_ended(&mut self, _index: usize, _part: &P) {}

    /// Takes the findings so far, after each part, if snapshots are wanted.
    fn findings(&mut self, _findings: Vec<Finding>) {}

    /// Takes an event.
    fn event(&mut self, _event: &E) {}

    /// Decides whether the run continues; called several times a second and after each part.
    /// `Break` ends the run early, with the results so far.
    fn flow(&self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Observer that ignores everything.
impl<P, E, V> RunObserver<P, E, V> for () {}

/// Summary of an ended part, as in the result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LivePartSummary {
    /// Number of the part, from 0.
    pub index: usize,
    /// Name of the part.
    pub name: String,
    /// Intended rate, in requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intended_rate: Option<f64>,
    /// Achieved rate, in requests per second.
    pub achieved_rate: f64,
    /// Duration, in seconds.
    pub duration_s: f64,
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout, only the first to each request.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Valid replies after the timeout.
    pub late: u64,
    /// Invalid replies.
    pub invalid: u64,
    /// Bytes per second, if these were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_rate: Option<f64>,
    /// Retransmitted TCP segments; absent if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<u64>,
    /// Losses by location, as far as known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_at: BTreeMap<LossLocation, u64>,
    /// Latency of replies, in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
}

impl LivePartSummary {
    /// Returns the summary of a trial or phase of a load.
    #[must_use]
    pub fn from_trial(index: usize, trial: &Trial) -> Self {
        Self {
            index,
            name: trial.phase.clone().unwrap_or_default(),
            intended_rate: Some(trial.intended_rate),
            achieved_rate: trial.achieved_rate,
            duration_s: trial.duration_s,
            sent: trial.sent,
            received: trial.received,
            lost: trial.lost,
            late: trial.late,
            invalid: trial.invalid.values().sum(),
            lost_at: trial.lost_at.clone(),
            latency_ns: trial.rtt_ns.as_ref().map(Percentiles::from_distribution),
            ..Self::default()
        }
    }

    /// Returns the summary of a trial of NTS-KE exchanges.
    #[must_use]
    pub fn from_nts_ke_trial(index: usize, trial: &NtsKeTrial) -> Self {
        Self {
            index,
            intended_rate: trial.intended_rate,
            achieved_rate: trial.achieved_rate,
            duration_s: trial.duration_s,
            sent: trial.sent,
            received: trial.received,
            lost: trial.lost,
            latency_ns: trial.handshake_ns.as_ref().map(Percentiles::from_distribution),
            ..Self::default()
        }
    }
}

/// Ring buffer of the latest items, which are numbered from 0.
#[derive(Clone, Debug)]
pub struct RecentItems<T> {
    capacity: usize,
    first: u64,
    items: VecDeque<T>,
}

impl<T> RecentItems<T> {
    /// Creates an empty ring that stores up to `capacity` items, at least one.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity: if capacity == 0 { 1 } else { capacity },
            first: 0,
            items: VecDeque::new(),
        }
    }

    /// Adds an item, and discards the oldest if there is no room.
    pub fn push(&mut self, item: T) {
        if self.items.len() >= self.capacity {
            self.items.pop_front();
            self.first += 1;
        }
        self.items.push_back(item);
    }

    /// Returns the number of the next item.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Returns the number of the first item from `number` on that is still stored (of the next item
    /// if there is none), and an iterator over the items from there on.
    #[must_use]
    pub fn since(&self, number: u64) -> (u64, impl ExactSizeIterator<Item = &T>) {
        let from = number.clamp(self.first, self.next());
        let skipped = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        (from, self.items.range(skipped.min(self.items.len())..))
    }

    /// Returns the latest item; `None` if the buffer is empty.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.items.back()
    }
}

/// State of a run that live views show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveRunStatus {
    /// Measurement in progress.
    Running,
    /// Completed measurement.
    Ended,
}

/// All live values of a measurement.
#[derive(Clone, Debug)]
pub struct LiveRun<V = RequestValues> {
    /// Command that measures, such as `load` or `path udp`.
    pub kind: &'static str,
    /// Description of the measurement and its target; empty if its kind says enough.
    pub title: String,
    /// State of the measurement.
    pub state: LiveRunStatus,
    /// Kind of parts, such as `trial` or `row`; empty if their names say enough.
    pub part_kind: &'static str,
    /// State in words before the first snapshot.
    pub initial_state: String,
    /// Latest snapshots.
    pub snapshots: RecentItems<Snapshot<V>>,
    /// Latest ended parts.
    pub ended: RecentItems<LivePartSummary>,
    /// Sum of the losses of all ended parts.
    pub lost: u64,
    /// Losses of all ended parts by location, as far as known.
    pub lost_at: BTreeMap<LossLocation, u64>,
    /// Findings so far.
    pub findings: Vec<Finding>,
}

/// JSON of a [`LiveRun`] for the live page.
#[derive(Serialize)]
struct LivePayload<'a> {
    schema: &'static str,
    kind: &'static str,
    title: &'a str,
    state: LiveRunStatus,
    part_kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<usize>,
    /// Number of the first snapshot.
    first: u64,
    /// Number to request next.
    next: u64,
    snapshots: Vec<SnapshotPayload<'a>>,
    ended: Vec<&'a LivePartSummary>,
    lost: u64,
    lost_at: &'a BTreeMap<LossLocation, u64>,
    findings: &'a [Finding],
}

/// JSON of a [`Snapshot`].
#[derive(Serialize)]
struct SnapshotPayload<'a> {
    at_s: f64,
    #[serde(flatten)]
    values: &'a RequestValues,
    part: PartPayload<'a>,
}

/// JSON of the current part of a [`Snapshot`].
#[derive(Serialize)]
struct PartPayload<'a> {
    #[serde(flatten)]
    progress: &'a PartProgress,
    counts: &'a LiveCounts,
}

impl<'a> From<&'a Snapshot> for SnapshotPayload<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        let Snapshot { at_s, part, values } = snapshot;
        Self {
            at_s: *at_s,
            part: PartPayload { progress: part, counts: &values.part_counts },
            values,
        }
    }
}

impl<V> LiveRun<V> {
    /// Creates the values of a measurement that is about to begin.
    #[must_use]
    pub fn new(kind: &'static str, title: String, part_kind: &'static str) -> Self {
        Self {
            kind,
            title,
            state: LiveRunStatus::Running,
            part_kind,
            initial_state: "no counts yet".to_owned(),
            snapshots: RecentItems::new(SNAPSHOTS_MAX),
            ended: RecentItems::new(ENDED_MAX),
            lost: 0,
            lost_at: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    /// Adds an ended part and its losses.
    pub fn end_part(&mut self, part: LivePartSummary) {
        self.lost += part.lost;
        for (location, lost) in &part.lost_at {
            *self.lost_at.entry(*location).or_default() += lost;
        }
        self.ended.push(part);
    }
}

impl LiveRun {
    /// Returns the JSON for a live page, with the stored snapshots from the number `since` on and
    /// all stored ended parts.
    #[must_use]
    pub fn to_json(&self, since: u64) -> String {
        let (first, snapshots) = self.snapshots.since(since);
        let payload = LivePayload {
            schema: LIVE_SCHEMA,
            kind: self.kind,
            title: &self.title,
            state: self.state,
            part_kind: self.part_kind,
            parts: self.snapshots.last().and_then(|snapshot| snapshot.part.count),
            first,
            next: self.snapshots.next(),
            snapshots: snapshots.map(SnapshotPayload::from).collect(),
            ended: self.ended.since(0).1.collect(),
            lost: self.lost,
            lost_at: &self.lost_at,
            findings: &self.findings,
        };
        // Serialisation cannot fail: the values are numbers, texts and lists under string keys.
        serde_json::to_string(&payload).unwrap_or_default()
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
            let mut ring = RecentItems::new(most);
            (0..count).for_each(|number| ring.push(number));
            let (first, retained) = ring.since(since);
            let retained: Vec<u64> = retained.copied().collect();
            let expected: Vec<u64> =
                (count.saturating_sub(most.max(1) as u64)..count).filter(|n| *n >= since).collect();
            prop_assert_eq!(&retained, &expected);
            prop_assert_eq!(first + retained.len() as u64, ring.next());
            prop_assert_eq!(ring.next(), count);
            prop_assert_eq!(ring.last().copied(), count.checked_sub(1));
        }
    }

    #[test]
    fn the_payload_begins_at_the_requested_number() {
        let mut run = LiveRun::new("load", "a server".to_owned(), "trial");
        for sent in 0..3 {
            let counts = LiveCounts { sent, ..LiveCounts::default() };
            let values = RequestValues { counts, part_counts: counts, ..RequestValues::default() };
            run.snapshots.push(Snapshot { values, ..Snapshot::default() });
        }
        let lost_at = BTreeMap::from([(LossLocation::Server, 2)]);
        for index in 0..2 {
            let lost_at = lost_at.clone();
            run.end_part(LivePartSummary { index, lost: 3, lost_at, ..LivePartSummary::default() });
        }
        let payload: Value = serde_json::from_str(&run.to_json(1)).unwrap();
        assert_eq!(
            (&payload["schema"], &payload["state"]),
            (&"horolog.live/2".into(), &"running".into())
        );
        assert_eq!((payload["first"].as_u64(), payload["next"].as_u64()), (Some(1), Some(3)));
        let sent: Vec<_> = payload["snapshots"]
            .as_array()
            .unwrap()
            .iter()
            .map(|snapshot| &snapshot["counts"]["sent"])
            .collect();
        assert_eq!(sent, [1, 2]);
        assert_eq!(payload["snapshots"][1]["part"]["counts"]["sent"].as_u64(), Some(2));
        assert_eq!(
            (payload["lost"].as_u64(), payload["lost_at"]["server"].as_u64()),
            (Some(6), Some(4))
        );
        assert_eq!(payload["ended"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_is_on_its_way_is_not_called_lost() {
        let counts = LiveCounts { sent: 10, received: 7, ..LiveCounts::default() };
        assert_eq!(counts.unanswered(), 3);
        // Counted one after the other, a reply may be there before its request.
        assert_eq!(LiveCounts { sent: 1, received: 2, ..counts }.unanswered(), 0);
    }
}
