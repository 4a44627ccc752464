//! The decision table, case by case.

use super::*;

/// 2026-11-26
const BUILD: Timestamp<Utc> = Timestamp::from_ns(1_795_651_200 * NS_PER_S);
const DAYS: fn(i64) -> Span = |days| Span::from_ns(days * DAY.as_ns());
/// Monotonic clock at the judgement, and the day after the build ahead of it.
const NOW: Timestamp<Monotonic> = Timestamp::from_ns(100 * NS_PER_S);
const WEEKS: i64 = 1_024 * 7;

/// The span ahead of the monotonic clock of a time so many days after the build.
fn day(days: i64) -> Span {
    BUILD + DAYS(days) - Timestamp::from_ns(NOW.as_ns())
}

fn basis(saved: Option<i64>, rtc: Option<i64>) -> PlausibilityRuleParameters {
    let saved = saved.map(|days| BUILD + DAYS(days));
    PlausibilityRuleParameters {
        build: BUILD,
        saved,
        rtc: rtc.map(day),
        ..PlausibilityRuleParameters::default()
    }
}

/// The name of the reason, or that there is none.
fn judged(
    basis: PlausibilityRuleParameters,
    system: i64,
    others: &[i64],
    reported: i64,
) -> &'static str {
    let others: Vec<_> = others.iter().copied().map(day).collect();
    let evidence = PlausibilityEvidence { now: NOW, system: Some(day(system)), others: &others };
    let mut judge = PlausibilityJudge::new(basis);
    judge.judge(&evidence, day(reported)).map_or_else(ImplausibilityReason::name, |()| "plausible")
}

#[test]
fn a_time_is_judged_by_the_build_the_clocks_and_the_other_sources() {
    const OLD: i64 = -20_000;
    for (saved, rtc, system, others, reported, expected) in [
        // Nothing on this host can be right: the receiver's time is taken within the bounds.
        (None, None, OLD, &[][..], 400, "plausible"),
        (None, None, OLD, &[], -1, "before_build"),
        (None, None, OLD, &[], -17_126, "before_build"),
        (None, None, OLD, &[], 7_303, "plausible"),
        (None, None, OLD, &[], 7_306, "too_far"),
        (None, None, 9_000, &[], 400, "plausible"),
        (None, Some(OLD), OLD, &[], 400, "plausible"),
        // The system clock agrees to a day, or contradicts.
        (None, None, 5, &[], 5, "plausible"),
        (None, None, 5, &[], 4, "plausible"),
        (None, None, 5, &[], 8, "apart"),
        (None, None, 5, &[], 2, "apart"),
        // One of both clocks confirms; a clock that cannot be right does neither.
        (None, Some(8), 5, &[], 8, "plausible"),
        (None, Some(5), OLD, &[], 8, "apart"),
        (None, Some(5), 5, &[], 8, "apart"),
        (None, Some(OLD), 5, &[], 8, "apart"),
        // A clock before the time last saved is wrong; so may be a source.
        (Some(6), None, 4, &[], 400, "plausible"),
        (Some(6), Some(4), 4, &[], 400, "plausible"),
        (Some(6), Some(4), 7, &[], 400, "apart"),
        (Some(6), None, 4, &[], 3, "before_saved"),
        (Some(6), None, 7, &[], 3, "before_saved"),
        (Some(6), None, 4, &[3], 3, "plausible"),
        // The one that is up to a day behind it may be right.
        (Some(6), None, 5, &[], 400, "apart"),
        (Some(6), Some(5), OLD, &[], 400, "apart"),
        (Some(6), None, 5, &[], 5, "plausible"),
        // Another source confirms, and none confirms what cannot be.
        (None, None, 5, &[9], 8, "plausible"),
        (None, None, 5, &[5], 8, "apart"),
        (None, None, OLD, &[7_400], 7_400, "too_far"),
        (None, None, OLD, &[-9], -9, "before_build"),
        // Weeks that were miscounted, against whichever clock can be right.
        (None, None, 5, &[], 5 - WEEKS, "rollover"),
        (None, None, 5, &[], 5 + WEEKS, "rollover"),
        (None, None, 5, &[], 5 - 2 * WEEKS, "rollover"),
        (None, Some(5), OLD, &[], 5 + WEEKS, "rollover"),
        (None, None, 5, &[5 + WEEKS], 5 + WEEKS, "rollover"),
        (None, Some(5 + WEEKS), 5, &[], 5, "plausible"),
        (None, None, 5 - WEEKS, &[], 5, "plausible"),
    ] {
        let found = judged(basis(saved, rtc), system, others, reported);
        assert_eq!(found, expected, "{saved:?} {rtc:?} {system} {others:?} {reported}");
    }
}

#[test]
fn the_build_s_date_and_the_years_beyond_it_are_values() {
    let past = |build, years| PlausibilityRuleParameters {
        build: BUILD + DAYS(build),
        validity: PlausibilityRuleParameters::span_of_years(years),
        ..PlausibilityRuleParameters::default()
    };
    assert_eq!(judged(past(20_000, 20), 20_001, &[], 20_001), "plausible");
    assert_eq!(judged(past(20_000, 20), 0, &[], 5), "before_build");
    assert_eq!(judged(past(0, 1), -1, &[], 370), "too_far");
    assert_eq!(judged(past(0, u16::MAX), -1, &[], 40_000), "plausible");
}

#[test]
fn a_plausible_time_goes_on_when_the_system_clock_is_set_wrong() {
    let mut judge = PlausibilityJudge::new(basis(None, None));
    let mut at = |system, reported| {
        judge.judge(
            &PlausibilityEvidence { now: NOW, system: Some(day(system)), others: &[] },
            day(reported),
        )
    };
    assert_eq!(at(5, 5), Ok(()));
    assert_eq!(at(900, 5), Ok(()), "the clock was set, the source was not");
    assert_eq!(at(5, 8).unwrap_err().name(), "apart");
    assert_eq!(at(5, 5), Ok(()), "the right date heals it");
    for step in 1..=9 {
        assert_eq!(at(900, 5), Ok(()), "{step}");
    }
    let mut near = |hours: i64| {
        let ahead = day(5) + Span::from_ns(hours * 3_600 * NS_PER_S);
        judge.judge(&PlausibilityEvidence { now: NOW, system: None, others: &[] }, ahead)
    };
    assert_eq!([near(12), near(24)], [Ok(()); 2]);
    let reason = near(25).unwrap_err();
    assert!(reason.to_string().contains("its own earlier time"), "no creeping away: {reason}");
    assert_eq!(near(24 * WEEKS), Err(ImplausibilityReason::Rollover(1)));
}

#[test]
fn a_time_that_nothing_confirmed_goes_on_and_contradicts_no_other() {
    for system in [Some(day(-20_000)), None] {
        let mut judge = PlausibilityJudge::new(basis(None, None));
        let mut at = |system, others: &[Span], reported| {
            let judged =
                judge.judge(&PlausibilityEvidence { now: NOW, system, others }, day(reported));
            judged.map(|()| judge.support().unwrap())
        };
        assert_eq!(at(system, &[], 3_000), Ok(PlausibilityReason::Unopposed), "the wrong date");
        assert_eq!(at(system, &[], 3_001), Ok(PlausibilityReason::Unopposed));
        assert_eq!(
            at(system, &[], 5),
            Ok(PlausibilityReason::Unopposed),
            "the right date heals it"
        );
        assert_eq!(at(Some(day(900)), &[], 5), Ok(PlausibilityReason::Unopposed), "it goes on");
        assert_eq!(at(system, &[day(5)], 5), Ok(PlausibilityReason::Confirmed));
        assert_eq!(at(system, &[], 5), Ok(PlausibilityReason::Continued));
        assert_eq!(at(system, &[], 3_000).unwrap_err().name(), "apart");
    }
}

#[test]
fn the_operator_accepts_the_implausible_time_and_nothing_else() {
    let evidence = PlausibilityEvidence { now: NOW, system: Some(day(5)), others: &[] };
    let mut judge = PlausibilityJudge::new(basis(None, None));
    judge.accept_unconfirmed();
    assert!(judge.judge(&evidence, day(8)).is_err(), "accepted before it was said");
    judge.accept_unconfirmed();
    assert_eq!(judge.judge(&evidence, day(8)), Ok(()));
    assert!(judge.is_accepted(day(8)) && !judge.is_accepted(day(80)));
    assert!(judge.judge(&evidence, day(80)).is_err());
    for never in [5 + WEEKS, -9, 9_000] {
        assert!(judge.judge(&evidence, day(never)).is_err());
        judge.accept_unconfirmed();
        assert!(judge.judge(&evidence, day(never)).is_err(), "{never}");
    }
    let mut other = PlausibilityJudge::new(basis(None, None));
    other.accept_judged_time(day(8), PlausibilityReason::Confirmed);
    assert_eq!(other.judge(&evidence, day(8)), Ok(()), "confirmed elsewhere");
}

#[test]
fn reasons_name_both_dates() {
    let reported = |day_number| {
        basis(None, None).judge(
            &PlausibilityEvidence { now: NOW, system: Some(day(5)), others: &[] },
            day(day_number),
            None,
        )
    };
    let text = |days| reported(days).unwrap_err().to_string();
    assert_eq!(
        text(8),
        "reported time is 2026-12-04, the system clock reports 2026-12-01, and neither is confirmed"
    );
    assert_eq!(
        text(-17_126).split(", the build").next().unwrap(),
        "reported time 1980-01-06 is before 2026-11-26"
    );
    assert!(text(-17_126).contains("--plausible-from"));
    assert!(text(19_400).starts_with("reported time 2080-01-07 is after 2046-11-25"));
    assert!(text(5 - WEEKS).starts_with("reported time is 1024 weeks behind, the error of a GPS"));
    assert!(text(5 + 2 * WEEKS).starts_with("reported time is 2 times 1024 weeks ahead"));
}

#[test]
fn extremes_do_not_overflow() {
    let ends = [i64::MIN, i64::MAX].map(Span::from_ns);
    for (system, reported) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let now = Timestamp::from_ns(i64::MAX);
        let evidence = PlausibilityEvidence { now, system: Some(ends[system]), others: &ends };
        assert!(PlausibilityJudge::default().judge(&evidence, ends[reported]).is_err());
    }
}
