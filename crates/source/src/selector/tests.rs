//! Sources that say what a test gives them, and what is made of it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::*;
use crate::report::tests::report;

type Script = Arc<Mutex<Result<Option<SourceEstimate>, SourceError>>>;

type Judged = Arc<Mutex<Vec<SelectionState>>>;

/// Offset to which an unconfirmed time set the clock.
type SetTo = Arc<Mutex<Option<Span>>>;

/// 2027-01-15
const SYSTEM: Span = Span::from_ns(1_800_000_000 * NS_PER_S);
const DAY_NS: i64 = 86_400 * NS_PER_S;

/// The first of them mirrors the system clock.
struct Scripted(&'static str, Script, Judged, SetTo);

impl PollableTimeSource for Scripted {
    fn name(&self) -> &str {
        self.0
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let result = self.1.lock().unwrap().clone();
        result
            .map(|report| report.map(|report| SourceEstimate { at: readings.monotonic, ..report }))
    }

    fn selection_changed(&mut self, standing: SelectionState) {
        self.2.lock().unwrap().push(standing);
    }

    fn unconfirmed_clock_setting(&self) -> Option<Span> {
        *self.3.lock().unwrap()
    }

    fn is_system_clock_mirror(&self) -> bool {
        self.0 == "a"
    }
}

struct Bench {
    panel: SourceSelector,
    scripts: Vec<Script>,
    judged: Judged,
    set_to: SetTo,
    now: Rc<Cell<i64>>,
    /// The system clock ahead of the monotonic one.
    system: Cell<Span>,
}

impl Bench {
    fn new(offsets: &[i64]) -> Self {
        let script = |&offset: &i64| Arc::new(Mutex::new(Ok(Some(report(offset, 1_000)))));
        let scripts: Vec<Script> = offsets.iter().map(script).collect();
        let (judged, set_to) = (Judged::default(), SetTo::default());
        let source = |(name, script): (&'static str, &Script)| -> Box<dyn PollableTimeSource> {
            Box::new(Scripted(name, Arc::clone(script), Arc::clone(&judged), Arc::clone(&set_to)))
        };
        let sources = ["a", "b", "c"].into_iter().zip(&scripts).map(source).collect();
        let panel = SourceSelector::new(sources, PlausibilityRuleParameters::default());
        let system = Cell::new(SYSTEM);
        Self { panel, scripts, judged, set_to, now: Rc::default(), system }
    }

    fn set_result(&self, index: usize, result: Result<Option<SourceEstimate>, SourceError>) {
        *self.scripts[index].lock().unwrap() = result;
    }

    /// The next second.
    fn round(&mut self) -> SelectorPollOutcome {
        self.now.set(self.now.get() + NS_PER_S);
        let monotonic = Timestamp::from_ns(self.now.get());
        let realtime_minus_monotonic = self.system.get();
        self.panel.poll(|| ClockReadings {
            monotonic,
            realtime_minus_monotonic,
            kernel: None,
            leaps_s: 0,
            leaps: crate::ServerLeapSeconds::default(),
        })
    }
}

fn standings(round: &SelectorPollOutcome) -> Vec<SelectionState> {
    round.states.iter().map(|state| state.state).collect()
}

#[test]
fn a_source_is_not_reported_unresponsive_before_its_first_report_timeout() {
    let mut bench = Bench::new(&[0]);
    bench.set_result(0, Ok(None));
    for _ in 0..12 {
        let round = bench.round();
        assert_eq!(
            (standings(&round), round.notices),
            (vec![SelectionState::Unresponsive], vec![])
        );
    }
    let notices = bench.round().notices;
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(notices[0].contains("does not respond") && notices[1].contains("is available yet"));
    assert_eq!(bench.round().notices, [""; 0]);
    // What is wrong from the start is said at once.
    let mut bench = Bench::new(&[0]);
    bench.set_result(0, Err(SourceError::NoData("no answer".into())));
    assert_eq!(bench.round().notices.len(), 2);
}

#[test]
fn the_system_clock_is_ahead_where_it_is_to_be_set_back() {
    let round = Bench::new(&[-250]).round();
    assert_eq!(round.states[0].offset_ns, Some(250));
    let at = Timestamp::from_ns(0);
    let claim_text = |offset, uncertainty| {
        offset_text(&SourceEstimate { at, ..report(offset, uncertainty) }, at)
    };
    let coarse = claim_text(449_628_575, 500_010_357);
    assert_eq!(coarse, "the system clock is ahead by -0.45 s (±0.50 s)");
    assert!(claim_text(-1_234, 96).contains("by +0.000001234 s (±0.000000096 s)"));
}

#[test]
fn a_liar_is_named_once() {
    let mut bench = Bench::new(&[0, 100, 5_000_000]);
    let round = bench.round();
    let expected =
        [SelectionState::Selected, SelectionState::Truechimer, SelectionState::Falseticker];
    assert_eq!(standings(&round), expected);
    assert_eq!(*bench.judged.lock().unwrap(), expected, "each is told");
    assert_eq!(round.notices.len(), 2, "{:?}", round.notices);
    assert!(round.notices[1].contains("source c is a falseticker"), "{:?}", round.notices);
    assert_eq!(bench.round().notices, [""; 0]);
}

#[test]
fn a_time_is_confirmed_by_another_source_with_the_same_time() {
    let year = 31_557_600 * NS_PER_S;
    let of_both = SYSTEM + Span::from_ns(year);
    let mut bench = Bench::new(&[year, year + 100]);
    assert_eq!(bench.round().confirmed, Some(of_both));
    assert_eq!(Bench::new(&[year]).round().confirmed, None);
    assert_eq!(Bench::new(&[year, 0]).round().confirmed, None);
    bench.panel.members.truncate(1);
    bench.set_result(0, Ok(Some(report(0, 1_000))));
    let mirror = Scripted("a", Arc::clone(&bench.scripts[0]), Judged::default(), SetTo::default());
    let mirror = SourceSelector::new(vec![Box::new(mirror)], PlausibilityRuleParameters::default());
    bench.panel.members.extend(mirror.members);
    let round = bench.round();
    assert_eq!(standings(&round), [SelectionState::Selected, SelectionState::Truechimer]);
    assert_eq!(round.confirmed, None, "both repeat the system clock");
}

#[test]
fn an_implausible_time_has_no_vote_and_is_counted_by_reason() {
    let years = |years: i64| years * 31_557_600 * NS_PER_S;
    for (ahead_ns, reason) in [
        (years(53), "too_far"),
        (-years(47), "before_build"),
        (1_024 * 7 * DAY_NS, "rollover"),
        (-1_024 * 7 * DAY_NS, "rollover"),
    ] {
        let mut bench = Bench::new(&[0, ahead_ns]);
        let round = bench.round();
        assert_eq!(
            standings(&round),
            [SelectionState::Selected, SelectionState::Unusable],
            "{reason}"
        );
        bench.round();
        let state = &bench.round().states[1];
        assert_eq!(state.rejected.get(reason), 3, "{state:?}");
        let mut bench = Bench::new(&[ahead_ns]);
        assert_eq!(bench.round().selected, None, "{reason}");
        bench.panel.accept();
        assert_eq!(bench.round().selected, None, "{reason} cannot be accepted");
        bench.set_result(0, Ok(Some(report(0, 1_000))));
        assert!(bench.round().selected.is_some(), "the right date heals it");
    }
}

#[test]
fn an_implausible_time_is_served_when_another_source_or_the_operator_confirms_it() {
    let mut bench = Bench::new(&[3 * DAY_NS]);
    let round = bench.round();
    assert_eq!((round.selected, standings(&round)[0]), (None, SelectionState::Unusable));
    let (first_notice, pid) = (&round.notices[0], std::process::id());
    assert!(first_notice.ends_with(&format!("confirm it with: kill -HUP {pid}")), "{first_notice}");
    assert!(first_notice.contains("the system clock reports 2027-01-15"), "{first_notice}");
    assert_eq!(round.states[0].rejected.get("apart"), 1);
    assert_eq!(bench.round().notices, [""; 0], "said once");
    bench.panel.accept();
    let round = bench.round();
    let notice = "the operator accepted the time of a, which reports 2027-01-18";
    assert_eq!(round.notices[0], notice, "which one");
    assert_eq!(round.confirmed, Some(SYSTEM + Span::from_ns(3 * DAY_NS)));
    assert!(round.selected.is_some());
    bench.system.set(SYSTEM + Span::from_ns(90 * DAY_NS));
    bench.set_result(0, Ok(Some(report(-87 * DAY_NS, 1_000))));
    assert!(bench.round().selected.is_some(), "it goes on when the system clock is set");

    let confirmed = Bench::new(&[3 * DAY_NS, 3 * DAY_NS + 100]).round();
    assert!(confirmed.selected.is_some() && confirmed.states[0].rejected.is_empty());
    let mut contradicted = Bench::new(&[3 * DAY_NS, 0]);
    let round = contradicted.round();
    assert_eq!(standings(&round), [SelectionState::Undecided; 2], "it contradicts all the same");
    let mut outvoted = Bench::new(&[0, 3 * DAY_NS, 100]);
    assert_eq!(standings(&outvoted.round())[1], SelectionState::Falseticker);
}

#[test]
fn a_report_shows_what_confirms_it() {
    let word = |round: &SelectorPollOutcome| {
        let report = round.selected.unwrap();
        (report.is_unconfirmed, report.host_clock)
    };
    let mut bench = Bench::new(&[0, 100]);
    assert_eq!(word(&bench.round()), (false, None), "a mirror");
    bench.set_result(0, Err(SourceError::Unusable("gone".into())));
    assert_eq!(word(&bench.round()), (false, Some(SYSTEM)));
    // A system clock that cannot be right.
    let years = -9_000 * DAY_NS;
    let mut bench = Bench::new(&[0, -years]);
    bench.system.set(SYSTEM + Span::from_ns(years));
    assert_eq!(word(&bench.round()), (true, None));
    bench.set_result(1, Ok(Some(report(-years + 2_000 * DAY_NS, 1_000))));
    assert_eq!(word(&bench.round()), (true, None), "it may say another time");
    // What it has set the system clock to confirms it no more, and nor does a mirror of that.
    *bench.set_to.lock().unwrap() = Some(SYSTEM);
    bench.system.set(SYSTEM);
    bench.set_result(0, Ok(Some(report(0, 1_000))));
    bench.set_result(1, Ok(Some(report(0, 1_000))));
    assert_eq!(word(&bench.round()), (true, None));
    *bench.set_to.lock().unwrap() = None;
    assert!(!word(&bench.round()).0);
}

#[test]
fn two_that_disagree_are_both_named_once_and_nothing_is_selected() {
    let mut bench = Bench::new(&[0, 5_000_000]);
    let round = bench.round();
    assert_eq!(round.selected, None);
    assert_eq!(round.notices.len(), 1, "{:?}", round.notices);
    let first_notice = &round.notices[0];
    assert!(
        first_notice.contains("a reports that the system clock")
            && first_notice.contains("b reports"),
        "{first_notice}"
    );
    assert_eq!(bench.round().notices, [""; 0]);
    bench.set_result(1, Ok(Some(report(0, 1_000))));
    assert!(bench.round().selected.is_some());
    bench.set_result(1, Ok(Some(report(5_000_000, 1_000))));
    assert_eq!(bench.round().notices.len(), 1, "said again when it comes again");
}

#[test]
fn an_unresponsive_source_is_dropped_when_stale_and_an_unsynchronised_one_at_once() {
    let mut bench = Bench::new(&[0, 100]);
    bench.round();
    bench.set_result(0, Err(SourceError::NoData("no answer".into())));
    for _ in 0..8 {
        assert_ne!(standings(&bench.round())[0], SelectionState::Unresponsive);
    }
    let round = bench.round();
    assert_eq!(standings(&round), [SelectionState::Unresponsive, SelectionState::Selected]);
    assert_eq!(round.states[0].reason.as_deref(), Some("no answer"));
    bench.set_result(
        1,
        Ok(Some(SourceEstimate { leap: LeapIndicator::Unsynchronised, ..report(0, 1) })),
    );
    let round = bench.round();
    assert_eq!((round.selected, standings(&round)[1]), (None, SelectionState::Unusable));
    assert!(round.notices.last().is_some_and(|text| text.starts_with("no time source")));
    assert_eq!(bench.round().notices, [""; 0]);
}
