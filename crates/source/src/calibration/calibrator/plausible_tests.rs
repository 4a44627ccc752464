//! Receivers and clocks whose dates are wrong: what is served is right, and no clock is set wrong.

use horolog_discipline::{PlausibilityReason, is_within_a_day};

use super::tests::World;
use super::*;
use crate::calibration::config::tests::config;

const DAY_S: i64 = 86_400;
const YEAR_S: i64 = 31_557_600;

fn seconds(seconds: i64) -> Span {
    Span::from_ns(seconds * NS_PER_S)
}

#[test]
fn no_clock_is_set_by_a_wrong_date_and_the_right_one_heals_it() {
    for (off_s, reason) in [
        (53 * YEAR_S, "too_far"),
        (-47 * YEAR_S, "before_build"),
        (1_024 * 7 * DAY_S, "rollover"),
        (3 * DAY_S, "apart"),
    ] {
        let mut world = World::steered(Span::from_ms(3));
        world.receiver_off_s = off_s;
        world.run_for(20);
        let status = world.status();
        assert_eq!((status.steps, status.sentences.get(reason)), (0, 20), "{status:?}");
        assert!(world.report().is_err(), "{reason}");
        let claim = world.calibrator.unconfirmed_estimate(&world.readings(0));
        assert_eq!(claim.is_some(), reason == "apart");
        world.receiver_off_s = 0;
        world.run_for(20);
        assert!(world.report().is_ok(), "{reason}: {:?}", world.status());
        assert!(world.ahead(0).as_ns().abs() < 100_000, "{reason}: {:?}", world.ahead(0));
        assert!(world.calibrator.unconfirmed_estimate(&world.readings(0)).is_none());
    }
}

#[test]
fn a_clock_that_cannot_be_right_is_set() {
    for ahead_s in [-47 * YEAR_S, -2 * YEAR_S, 30 * YEAR_S] {
        let mut world = World::steered(seconds(ahead_s));
        world.run_for(60);
        assert_eq!(world.status().steps, 1, "{:?}", world.status());
        assert!(world.ahead(0).as_ns().abs() < 1_000, "{:?}", world.ahead(0));
    }
}

#[test]
fn a_clock_that_can_be_right_is_set_when_the_receiver_is_confirmed() {
    for pulse in [Some("/dev/pps0"), None] {
        let mut world = World::new(
            &CalibrationConfig { controls_clock: pulse.is_some(), ..config(pulse) },
            seconds(-3 * DAY_S),
        );
        world.run_for(20);
        assert_eq!(world.status().steps, 0);
        let readings = world.readings(0);
        let claim = world.calibrator.unconfirmed_estimate(&readings).unwrap();
        assert!((claim.offset - seconds(3 * DAY_S)).as_ns().abs() < NS_PER_S, "{claim:?}");
        assert!(world.reason().contains("neither is confirmed"), "{}", world.reason());
        world
            .calibrator
            .vouch(claim.offset + readings.realtime_minus_monotonic, PlausibilityReason::Confirmed);
        world.run_for(60);
        assert_eq!(world.status().steps, u64::from(pulse.is_some()), "{:?}", world.status());
        assert!(world.report().is_ok());
    }
}

#[test]
fn a_clock_that_was_set_by_a_time_that_nothing_confirmed_does_not_confirm_it() {
    let mut world = World::steered(seconds(-47 * YEAR_S));
    world.receiver_off_s = 9 * YEAR_S;
    for _ in 0..60 {
        world.feed(world.pulse());
        world.next();
    }
    assert_eq!(world.status().steps, 1, "{:?}", world.status());
    let set = world.calibrator.unconfirmed_clock_setting().unwrap();
    assert!(is_within_a_day(set, world.readings(0).realtime_minus_monotonic));
    let before = world.status().sentences.get("apart");
    world.receiver_off_s = 0;
    world.feed(world.pulse());
    assert_eq!(world.status().sentences.get("apart"), before, "{:?}", world.status());
    assert!(!is_within_a_day(world.calibrator.unconfirmed_clock_setting().unwrap(), set));
}

#[test]
fn what_was_counted_before_does_not_delay_a_time_that_is_confirmed() {
    for pulse in [Some("/dev/pps0"), None] {
        let mut world = World::new(&config(pulse), seconds(-3 * DAY_S));
        for second in 0..35 {
            world.receiver_off_s = if second < 30 { -3 * DAY_S } else { 0 };
            world.feed(world.pulse());
            world.next();
        }
        let readings = world.readings(0);
        let claim = world.calibrator.unconfirmed_estimate(&readings).unwrap();
        world
            .calibrator
            .vouch(claim.offset + readings.realtime_minus_monotonic, PlausibilityReason::Confirmed);
        world.run_for(20);
        let report = world.report().unwrap();
        assert!((report.offset - seconds(3 * DAY_S)).as_ns().abs() < NS_PER_S, "{report:?}");
    }
}

#[test]
fn a_clock_that_another_program_sets_wrong_does_not_make_the_receiver_implausible() {
    let mut world = World::new(&config(None), Span::ZERO);
    world.run_for(10);
    let readings = world.readings(0);
    world.calibrator.vouch(
        world.report().unwrap().offset + readings.realtime_minus_monotonic,
        PlausibilityReason::Confirmed,
    );
    world.set = seconds(100 * DAY_S);
    world.run_for(20);
    assert!(world.report().is_ok(), "{:?}", world.status());
    assert_eq!(world.status().sentences.get("apart"), 0);
}
