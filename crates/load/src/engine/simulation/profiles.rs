//! Load profiles in simulated time: the counts of each interval, for all behaviours of the server
//! and the network at its ends.

use super::*;
use crate::load_profile::{LoadPhase, LoadProfile};
use crate::outage::Outage;

const INTERVAL: Duration = Duration::from_millis(50);

/// Returns the counts of each interval of a profile.
pub(super) fn run<P: LanePort>(scene: &mut Scene<P>, phases: Vec<LoadPhase>) -> Vec<TrialCounts> {
    let course = LoadProfile::new(INTERVAL, phases).unwrap();
    let now: Timestamp<Monotonic> = scene.clock.now();
    let start = now + Span::from_ms(1);
    let interval = Span::from_ns(INTERVAL.as_nanos() as i64);
    let plan = TrackerConfig {
        rate: course.highest(),
        interval: Some(interval),
        fairness: true,
        ..scene.account(start)
    };
    let lane = LaneTrial {
        account: RequestTracker::open(&plan, std::mem::take(&mut scene.carried)).unwrap(),
        port: &mut scene.port,
        clock: &TickingClock(Arc::clone(&scene.clock)),
        schedule: LaneSchedule::with_profile(start, &course, Spacing::Constant, (0, 1), 1).unwrap(),
        end: start + Span::from_ns(course.duration().as_nanos() as i64),
        timeout: TIMEOUT,
        realtime_ahead: Span::ZERO,
        interval: Some((start + interval, interval)),
        stop: &AtomicBool::new(false),
        publisher: None,
    };
    let mut books = Vec::new();
    scene.carried = lane
        .run(&mut |(number, book)| {
            assert_eq!(number, books.len() as u64, "in their order");
            books.push(*book);
        })
        .unwrap();
    books
}

pub(super) fn phase(rate: f64, ms: u64) -> LoadPhase {
    LoadPhase::steady("phase", rate, Duration::from_millis(ms))
}

#[test]
fn every_request_stands_in_its_own_interval() {
    // Replies take half an interval, so half of them come in the next one.
    fn slow(_: u64, reply: Header) -> Vec<(Span, Header)> {
        vec![(Span::from_ms(25), reply)]
    }
    let mut scene = Scene::frames(FaultPlan::default(), slow);
    let books = run(&mut scene, vec![phase(20_000.0, 200), phase(2_000.0, 100)]);
    let counts: Vec<_> = books.iter().map(|one| (one.sent, one.received)).collect();
    assert_eq!(
        counts,
        [(1000, 1000), (1000, 1000), (1000, 1000), (1000, 1000), (100, 100), (100, 100)]
    );
    assert!(books.iter().all(|one| one.rtt.count() == one.received && one.planned == 0));
    let asked: Vec<_> =
        books[5].clients.iter().map(|one| (one.count_request, one.answered)).collect();
    assert_eq!(asked.len(), CLIENTS as usize);
    assert!(asked.iter().all(|(asked, answered)| asked == answered), "{asked:?}");
    assert_eq!(asked.iter().map(|(asked, _)| asked).sum::<u32>(), 4200);
    assert!(books[5].outages.as_ref().is_some_and(Vec::is_empty));
}

#[test]
fn a_server_that_dies_in_the_middle_is_silent_for_as_long() {
    fn mortal(n: u64, reply: Header) -> Vec<(Span, Header)> {
        if (3000..6000).contains(&n) { vec![] } else { vec![(Span::ZERO, reply)] }
    }
    let mut scene = Scene::frames(FaultPlan::default(), mortal);
    let books = run(&mut scene, vec![phase(20_000.0, 400)]);
    let lost: Vec<_> = books.iter().map(TrialCounts::lost).collect();
    assert_eq!(lost, [0, 0, 0, 1000, 1000, 1000, 0, 0]);
    let silences = books[7].outages.clone().unwrap();
    let [Outage { from, to, ended: true }] = silences[..] else { panic!("{silences:?}") };
    assert_eq!(((from.as_ns() + 25_000) / 50_000, (to.as_ns() + 25_000) / 50_000), (2999, 6000));
}

#[test]
fn a_server_that_answers_without_a_valid_reply_is_not_silent() {
    fn kiss(n: u64, reply: Header) -> Vec<(Span, Header)> {
        let kiss = Header { stratum: 0, reference_id: *b"RATE", ..reply };
        vec![(Span::ZERO, if (3000..6000).contains(&n) { kiss } else { reply })]
    }
    let books = run(&mut Scene::frames(FaultPlan::default(), kiss), vec![phase(20_000.0, 400)]);
    let lost: Vec<_> = books.iter().map(TrialCounts::lost).collect();
    assert_eq!(lost, [0, 0, 0, 1000, 1000, 1000, 0, 0]);
    assert_eq!(books[7].outages, Some(Vec::new()));
}

#[test]
fn a_sender_that_falls_behind_does_not_carry_it_into_the_next_phase() {
    let mut scene = Scene::frames(FaultPlan::default(), answer);
    scene.world().send_cost = Span::from_ns(20_000);
    let books = run(&mut scene, vec![phase(200_000.0, 100), phase(1_000.0, 100)]);
    let sent = |books: &[TrialCounts]| books.iter().map(|one| one.sent).sum::<u64>();
    let left_out: u64 = books.iter().map(|one| one.planned).sum();
    assert_eq!(sent(&books) + left_out, 20_100);
    assert!((4_000..6_000).contains(&sent(&books[..2])), "{}", sent(&books[..2]));
    assert_eq!(sent(&books[2..]), 100);
    let late = books[3].lateness.max().unwrap();
    assert!(late < 1_000_000, "{late} ns late in the last interval");
}
