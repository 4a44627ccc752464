//! Load profiles in simulated time: the counts of each interval with delayed, missing and invalid
//! replies.

use super::*;
use crate::load_profile::{LoadPhase, LoadProfile};
use crate::outage::Outage;

const INTERVAL: Duration = Duration::from_millis(50);

/// Returns the counts of each interval of a profile.
pub(super) fn run<P: LaneDevice>(
    scene: &mut SimulatedLane<P>,
    phases: Vec<LoadPhase>,
) -> Vec<TrialCounts> {
    let profile = LoadProfile::new(INTERVAL, phases).unwrap();
    let now: Timestamp<Monotonic> = scene.clock.now();
    let start = now + Span::from_ms(1);
    let interval = Span::from_ns(INTERVAL.as_nanos() as i64);
    let plan = TrackerConfig {
        rate: profile.rate_max(),
        interval: Some(interval),
        fairness: true,
        ..scene.tracker_config(start)
    };
    let lane = LaneTrial {
        tracker: RequestTracker::open(&plan, std::mem::take(&mut scene.carried)).unwrap(),
        device: &mut scene.port,
        clock: &TickingClock(Arc::clone(&scene.clock)),
        schedule: LaneSchedule::with_profile(start, &profile, RequestSpacing::Constant, (0, 1), 1)
            .unwrap(),
        end: start + Span::from_ns(profile.duration().as_nanos() as i64),
        timeout: TIMEOUT,
        realtime_ahead: Span::ZERO,
        interval: Some((start + interval, interval)),
        stop: &AtomicBool::new(false),
        publisher: None,
    };
    let mut intervals = Vec::new();
    scene.carried = lane
        .run(&mut |(number, counts)| {
            assert_eq!(number, intervals.len() as u64, "in their order");
            intervals.push(*counts);
        })
        .unwrap();
    intervals
}

pub(super) fn phase(rate: f64, ms: u64) -> LoadPhase {
    LoadPhase::constant("phase", rate, Duration::from_millis(ms))
}

#[test]
fn every_request_stands_in_its_own_interval() {
    // Replies take half an interval, so half of them come in the next one.
    fn slow(_: u64, reply: Header) -> Vec<(Span, Header)> {
        vec![(Span::from_ms(25), reply)]
    }
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), slow);
    let intervals = run(&mut scene, vec![phase(20_000.0, 200), phase(2_000.0, 100)]);
    let counts: Vec<_> = intervals.iter().map(|one| (one.sent, one.received)).collect();
    assert_eq!(
        counts,
        [(1000, 1000), (1000, 1000), (1000, 1000), (1000, 1000), (100, 100), (100, 100)]
    );
    assert!(intervals.iter().all(|one| one.rtt.count() == one.received && one.planned == 0));
    let clients: Vec<_> =
        intervals[5].clients.iter().map(|one| (one.requests, one.answered)).collect();
    assert_eq!(clients.len(), CLIENTS as usize);
    assert!(clients.iter().all(|(requests, answered)| requests == answered), "{clients:?}");
    assert_eq!(clients.iter().map(|(requests, _)| requests).sum::<u32>(), 4200);
    assert!(intervals[5].outages.as_ref().is_some_and(Vec::is_empty));
}

#[test]
fn a_server_that_dies_midway_has_an_outage_of_that_length() {
    fn mortal(n: u64, reply: Header) -> Vec<(Span, Header)> {
        if (3000..6000).contains(&n) { vec![] } else { vec![(Span::ZERO, reply)] }
    }
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), mortal);
    let intervals = run(&mut scene, vec![phase(20_000.0, 400)]);
    let lost: Vec<_> = intervals.iter().map(TrialCounts::lost).collect();
    assert_eq!(lost, [0, 0, 0, 1000, 1000, 1000, 0, 0]);
    let outages = intervals[7].outages.clone().unwrap();
    let [Outage { from, to, ended: true }] = outages[..] else { panic!("{outages:?}") };
    assert_eq!(((from.as_ns() + 25_000) / 50_000, (to.as_ns() + 25_000) / 50_000), (2999, 6000));
}

#[test]
fn a_server_that_answers_without_a_valid_reply_has_no_outage() {
    fn kiss(n: u64, reply: Header) -> Vec<(Span, Header)> {
        let kiss = Header { stratum: 0, reference_id: *b"RATE", ..reply };
        vec![(Span::ZERO, if (3000..6000).contains(&n) { kiss } else { reply })]
    }
    let intervals = run(
        &mut SimulatedLane::with_frames(FaultInjectionPlan::default(), kiss),
        vec![phase(20_000.0, 400)],
    );
    let lost: Vec<_> = intervals.iter().map(TrialCounts::lost).collect();
    assert_eq!(lost, [0, 0, 0, 1000, 1000, 1000, 0, 0]);
    assert_eq!(intervals[7].outages, Some(Vec::new()));
}

#[test]
fn a_sender_that_falls_behind_does_not_carry_it_into_the_next_phase() {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    scene.path().send_cost = Span::from_ns(20_000);
    let intervals = run(&mut scene, vec![phase(200_000.0, 100), phase(1_000.0, 100)]);
    let sent = |selected: &[TrialCounts]| selected.iter().map(|one| one.sent).sum::<u64>();
    let left_out: u64 = intervals.iter().map(|one| one.planned).sum();
    assert_eq!(sent(&intervals) + left_out, 20_100);
    assert!((4_000..6_000).contains(&sent(&intervals[..2])), "{}", sent(&intervals[..2]));
    assert_eq!(sent(&intervals[2..]), 100);
    let late = intervals[3].lateness.max().unwrap();
    assert!(late < 1_000_000, "{late} ns late in the last interval");
}
