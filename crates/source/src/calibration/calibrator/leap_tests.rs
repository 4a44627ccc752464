//! Leap seconds through a whole calibration: a kernel that makes them as it is told, and receivers
//! that speak of them. What is said of the time is never wrong by a second.

use horolog_sys::clock_steering::DeclaredClockStatus;
use horolog_time::leap::{LeapKind, LeapSecond};

use super::tests::{START, World};
use super::*;
use crate::calibration::config::tests::config;
use crate::pulse::replay::PulseReplay;
use crate::{CalibrationStatus, NextLeap, ReceiverLeapReport, ServerLeapSeconds};

/// A quarter of a minute before the end of a day.
fn before_midnight() -> World {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    let day = 86_400;
    world.second = day - (START.as_ns() / NS_PER_S).rem_euclid(day) - 15;
    world
}

#[test]
fn a_leap_second_that_is_taken_back_is_not_counted() {
    let mut world = before_midnight();
    world.leap = PendingLeap::Insert;
    world.run_for(10);
    world.leap = PendingLeap::None;
    world.run_for(30);
    assert!(world.report().is_ok(), "{:?}", world.status());
    assert_eq!(world.status().sentences.get("disagrees"), 0, "{:?}", world.status().sentences);
}

#[test]
fn a_leap_second_in_holdover_is_no_step_by_another_program() {
    let mut world = before_midnight();
    world.second -= 40;
    world.leap = PendingLeap::Insert;
    world.run_for(40);
    (0..15).for_each(|_| world.run(PulseReplay::default()));
    (world.leap, world.leapt) = (PendingLeap::None, Span::from_ns(-NS_PER_S));
    world.receiver_off_s = -1;
    for _ in 0..10 {
        assert!(world.report().is_ok(), "{:?}", world.status());
        world.run(PulseReplay::default());
    }
    world.run_for(10);
    let CalibrationStatus { state, pulses, sentences, .. } = world.status();
    assert_eq!((&*state, pulses.get("outlier"), sentences.get("disagrees")), ("locked", 0, 0));
}

/// The leap second in the kernel, as `second_overflow` and `ntp_clear` of its ntp.c have it.
#[derive(Default)]
struct KernelLeap {
    state: KernelState,
    due: Option<i64>,
    steps: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum KernelState {
    #[default]
    Ok,
    Insert,
    InLeap,
    Wait,
}

impl KernelLeap {
    /// At the start of the second that its clock shows.
    fn second(&mut self, world: &mut World) {
        let (declared, steps) = {
            let done = world.control.0.lock().unwrap();
            (done.declared.map_or(PendingLeap::None, |declared| declared.leap), done.steps)
        };
        if steps != std::mem::replace(&mut self.steps, steps) {
            self.due = None;
        }
        let is_up = declared == PendingLeap::Insert;
        let seconds = (world.readings(0).realtime().as_ns() + NS_PER_S / 2).div_euclid(NS_PER_S);
        match (self.state, is_up) {
            (KernelState::Ok, true) => {
                self.state = KernelState::Insert;
                self.due = Some((seconds.div_euclid(86_400) + 1) * 86_400);
            }
            (KernelState::Insert | KernelState::Wait, false) => self.state = KernelState::Ok,
            (KernelState::Insert, true) if self.due == Some(seconds) => {
                self.state = KernelState::InLeap;
                world.leapt = world.leapt - Span::from_ns(NS_PER_S);
            }
            (KernelState::InLeap, _) => self.state = KernelState::Wait,
            _ => {}
        }
        let is_past = matches!(self.state, KernelState::InLeap | KernelState::Wait);
        world.leap = if is_past { PendingLeap::None } else { declared };
    }
}

/// The leap second at the end of the first day of a world.
fn leap() -> LeapSecond {
    LeapSecond::at_end_of_day(START, LeapKind::Insert)
}

/// A steered world so many seconds before the leap.
fn steered(before_s: i64, ahead: Span) -> World {
    let mut world = World::steered(ahead);
    world.second = (leap().midnight - START).as_ns() / NS_PER_S - before_s;
    world
}

/// Goes on for so many seconds, with the kernel's part and a receiver that leaps when UTC does.
fn run(world: &mut World, kernel: &mut KernelLeap, seconds: i64, leaps: bool) {
    for _ in 0..seconds {
        kernel.second(world);
        let is_after = START + Span::from_ns(world.second * NS_PER_S) >= leap().midnight;
        world.receiver_off_s = if leaps && is_after { -1 } else { 0 };
        world.run(world.pulse());
    }
}

fn list(next: Option<LeapSecond>) -> ServerLeapSeconds {
    ServerLeapSeconds { tai_minus_utc_s: Some(37), has_list: true, next }
}

fn declared(world: &World) -> DeclaredClockStatus {
    world.control.0.lock().unwrap().declared.unwrap()
}

fn is_undisturbed(world: &World) {
    let CalibrationStatus { state, steps, pulses, sentences, control_ended, .. } = world.status();
    // The first pulses may have stepped it.
    assert!(steps <= 1, "{steps}");
    assert_eq!((&*state, control_ended), ("locked", None));
    let wrong = [pulses.get("outlier"), pulses.get("jump"), sentences.get("disagrees")];
    assert_eq!(wrong, [0; 3], "{pulses:?} {sentences:?}");
}

#[test]
fn the_kernel_of_a_steered_clock_makes_the_listed_leap_second_once() {
    let (mut world, mut kernel) = (steered(90, Span::ZERO), KernelLeap::default());
    world.known = list(Some(leap()));
    run(&mut world, &mut kernel, 60, true);
    assert_eq!(declared(&world).leap, PendingLeap::Insert);
    assert_eq!(world.status().pending_leap.as_deref(), Some("insert 2027-01-15"));
    // What the server knows is as old as its last question to its sources.
    run(&mut world, &mut kernel, 33, true);
    world.known = ServerLeapSeconds { tai_minus_utc_s: Some(38), ..list(None) };
    run(&mut world, &mut kernel, 60, true);
    assert_eq!(world.leapt, Span::from_ns(-NS_PER_S));
    assert_eq!((declared(&world).leap, kernel.state), (PendingLeap::None, KernelState::Ok));
    assert_eq!(world.status().pending_leap, None);
    is_undisturbed(&world);
}

#[test]
fn a_leap_second_that_the_list_takes_back_is_taken_back() {
    let (mut world, mut kernel) = (steered(90, Span::ZERO), KernelLeap::default());
    world.known = list(Some(leap()));
    run(&mut world, &mut kernel, 60, false);
    assert_eq!(declared(&world).leap, PendingLeap::Insert);
    world.known = list(None);
    run(&mut world, &mut kernel, 3, false);
    assert_eq!(declared(&world).leap, PendingLeap::None);
    run(&mut world, &mut kernel, 80, false);
    assert_eq!(world.leapt, Span::ZERO);
    is_undisturbed(&world);
}

#[test]
fn a_foreign_leap_flag_stays_and_a_list_without_the_leap_clears_it() {
    for (known, expected) in
        [(ServerLeapSeconds::default(), PendingLeap::Insert), (list(None), PendingLeap::None)]
    {
        let mut world = steered(40_000, Span::ZERO);
        (world.leap, world.known) = (PendingLeap::Insert, known);
        world.run_for(30);
        assert_eq!(declared(&world).leap, expected);
    }
}

#[test]
fn after_a_step_the_flag_is_clear_until_the_kernel_has_observed_that() {
    let (mut world, mut kernel) = (steered(70, Span::from_ms(400)), KernelLeap::default());
    world.known = list(Some(leap()));
    let mut before_s = 70;
    while world.status().steps == 0 {
        run(&mut world, &mut kernel, 1, true);
        before_s -= 1;
    }
    assert_eq!(declared(&world).leap, PendingLeap::None);
    run(&mut world, &mut kernel, 5, true);
    assert_eq!(declared(&world).leap, PendingLeap::Insert);
    run(&mut world, &mut kernel, before_s, true);
    assert_eq!(world.leapt, Span::from_ns(-NS_PER_S), "the kernel has not lost it");
}

#[test]
fn a_leap_second_of_another_day_is_announced_and_not_declared() {
    let (mut world, mut kernel) = (steered(30 * 3_600, Span::ZERO), KernelLeap::default());
    world.known = list(Some(leap()));
    run(&mut world, &mut kernel, 40, false);
    assert_eq!(declared(&world).leap, PendingLeap::None);
    assert!(world.status().pending_leap.is_some());
}

#[test]
fn without_control_the_leap_is_announced_to_the_labeller_alone() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    world.second = (leap().midnight - START).as_ns() / NS_PER_S - 60;
    world.known = list(Some(leap()));
    world.run_for(60);
    // Whoever steers the clock sets it back without a word to the kernel.
    (world.leapt, world.receiver_off_s) = (Span::from_ns(-NS_PER_S), -1);
    world.run_for(60);
    assert!(world.control.0.lock().unwrap().declared.is_none());
    is_undisturbed(&world);
}

#[test]
fn the_receiver_s_word_counts_where_there_is_no_list() {
    let leap_report = ReceiverLeapReport { tai_minus_utc_s: 37, next: Some(NextLeap::At(leap())) };
    let send_reports = |world: &mut World, times| {
        (0..times).for_each(|_| world.calibrator.leap_report(&leap_report));
    };
    let (mut world, mut kernel) = (steered(90, Span::ZERO), KernelLeap::default());
    send_reports(&mut world, 9);
    run(&mut world, &mut kernel, 40, true);
    assert_eq!(world.status().tai_minus_utc_s, None);
    send_reports(&mut world, 10);
    run(&mut world, &mut kernel, 1, true);
    assert_eq!(world.status().tai_minus_utc_s, Some(37));
    assert_eq!(world.report().unwrap().tai_minus_utc_s, Some(37));
    run(&mut world, &mut kernel, 2, true);
    assert_eq!(
        (declared(&world).leap, declared(&world).tai_offset_s),
        (PendingLeap::Insert, Some(37))
    );
    world.tai_s = 37;
    run(&mut world, &mut kernel, 40, true);
    assert_eq!(declared(&world).tai_offset_s, None, "not near the leap");
    run(&mut world, &mut kernel, 20, true);
    assert_eq!(world.leapt, Span::from_ns(-NS_PER_S));
    assert_eq!(
        (world.status().tai_minus_utc_s, declared(&world).tai_offset_s),
        (Some(38), Some(38))
    );
    is_undisturbed(&world);
}

#[test]
fn a_receiver_that_contradicts_the_list_is_named_and_not_followed() {
    let leap_report = ReceiverLeapReport { tai_minus_utc_s: 36, next: Some(NextLeap::At(leap())) };
    let (mut world, mut kernel) = (steered(90, Span::ZERO), KernelLeap::default());
    (world.known, world.tai_s) = (list(None), 37);
    run(&mut world, &mut kernel, 40, false);
    (0..20).for_each(|_| world.calibrator.leap_report(&leap_report));
    run(&mut world, &mut kernel, 80, false);
    assert_eq!((world.leapt, declared(&world).tai_offset_s), (Span::ZERO, None));
    let status = world.status();
    assert_eq!((status.tai_minus_utc_s, status.pending_leap), (None, None));
    assert!(status.leap_rejection.unwrap().contains("36 s"));
    is_undisturbed(&world);
}

/// A world that is not steered, a minute before a leap second that a list has.
fn listed(kind: LeapKind, ahead: Span) -> World {
    let mut world = World::new(&config(Some("/dev/pps0")), ahead);
    let leap = LeapSecond { kind, ..leap() };
    world.second = (leap.step_instant() - START).as_ns() / NS_PER_S - 60;
    world.known = list(Some(leap));
    world
}

/// Goes on for so many seconds in each of which the time is said.
fn run_with_reports(world: &mut World, seconds: i64) {
    for _ in 0..seconds {
        world.run_for(1);
        assert!(world.report().is_ok(), "{}: {:?}", world.second, world.status());
    }
}

#[test]
fn a_clock_that_steps_late_or_ahead_of_time_is_never_a_second_off() {
    for kind in [LeapKind::Insert, LeapKind::Delete] {
        let step = LeapSecond { kind, ..leap() }.step();
        for late_s in 0..=4 {
            let mut world = listed(kind, Span::ZERO);
            world.run_for(60);
            world.receiver_off_s = step.as_ns() / NS_PER_S;
            run_with_reports(&mut world, late_s);
            world.leapt = step;
            run_with_reports(&mut world, 60);
            is_undisturbed(&world);
        }
    }
}

/// Who passes the leap second owes it until then, and the clock is ahead from then on.
#[test]
fn a_clock_that_never_steps_is_ahead_by_the_second_once_it_is_over() {
    for (kind, pulses) in [(LeapKind::Insert, 70), (LeapKind::Delete, 70), (LeapKind::Insert, 0)] {
        let mut world = listed(kind, Span::ZERO);
        let step = LeapSecond { kind, ..leap() }.step();
        world.run_for(60);
        world.receiver_off_s = step.as_ns() / NS_PER_S;
        run_with_reports(&mut world, 6);
        world.owed = -step;
        run_with_reports(&mut world, pulses);
        for _ in pulses..20 {
            world.run(PulseReplay::default());
            assert!(world.report().is_ok(), "{:?}", world.status());
        }
        let offset = world.report().unwrap().offset;
        assert!((offset - step).as_ns().abs() < 10_000_000, "{offset:?}");
        let CalibrationStatus { pulses, sentences, .. } = world.status();
        assert_eq!((pulses.get("outlier"), sentences.get("disagrees")), (0, 0), "{pulses:?}");
        // In the end it steps all the same, as somebody sets it.
        (world.leapt, world.owed) = (step, Span::ZERO);
        world.run_for(3);
        run_with_reports(&mut world, 10);
    }
}

#[test]
fn a_clock_that_is_off_by_seconds_does_not_pass_the_leap_second_by_itself() {
    for ahead_s in [20, -20] {
        let mut world = listed(LeapKind::Insert, Span::from_ns(ahead_s * NS_PER_S));
        let leap_report = ReceiverLeapReport { tai_minus_utc_s: 37, next: None };
        (0..10).for_each(|_| world.calibrator.leap_report(&leap_report));
        run_until_before_the_leap(&mut world);
        assert_eq!(world.status().tai_minus_utc_s, Some(37), "{ahead_s}");
        assert!(world.status().pending_leap.is_some());
        world.run_for(2);
        world.receiver_off_s = -1;
        world.known = ServerLeapSeconds { tai_minus_utc_s: Some(38), ..list(None) };
        world.run_for(6);
        world.owed = Span::from_ns(NS_PER_S);
        assert_eq!(world.status().tai_minus_utc_s, Some(38), "{ahead_s}");
        run_with_reports(&mut world, 60);
        assert_eq!(world.status().pending_leap, None);
    }
}

/// Up to two seconds before the leap second of a listed world.
fn run_until_before_the_leap(world: &mut World) {
    world.run_for(20);
    run_with_reports(world, 38);
}

#[test]
fn the_kernel_does_not_receive_the_previous_number_after_the_leap_second() {
    let leap_report = ReceiverLeapReport { tai_minus_utc_s: 37, next: Some(NextLeap::At(leap())) };
    let (mut world, mut kernel) = (steered(90, Span::ZERO), KernelLeap::default());
    world.tai_s = 37;
    run(&mut world, &mut kernel, 40, true);
    (0..10).for_each(|_| world.calibrator.leap_report(&leap_report));
    run(&mut world, &mut kernel, 51, true);
    world.tai_s = 38;
    run(&mut world, &mut kernel, 30, true);
    // The receiver is told by satellites some minutes later.
    let late = ReceiverLeapReport { next: None, ..leap_report };
    (0..20).for_each(|_| world.calibrator.leap_report(&late));
    run(&mut world, &mut kernel, 10, true);
    assert_eq!((world.status().tai_minus_utc_s, declared(&world).tai_offset_s), (Some(38), None));
    is_undisturbed(&world);
}

#[test]
fn a_majority_that_contradicts_takes_no_leap_second_back() {
    let (mut world, mut kernel) = (steered(600, Span::ZERO), KernelLeap::default());
    world.known = list(Some(leap()));
    run(&mut world, &mut kernel, 60, true);
    (0..3).for_each(|_| world.calibrator.selection_changed(crate::SelectionState::Falseticker));
    let now = declared(&world);
    assert_eq!((now.synchronised, now.leap), (false, PendingLeap::Insert));
}

#[test]
fn at_the_end_a_foreign_leap_flag_stays_and_our_own_is_cleared() {
    for (known, expected) in [
        (ServerLeapSeconds::default(), PendingLeap::Insert),
        (list(Some(leap())), PendingLeap::None),
    ] {
        let mut world = steered(40_000, Span::ZERO);
        (world.leap, world.known) = (PendingLeap::Insert, known);
        world.run_for(30);
        assert_eq!(declared(&world).leap, PendingLeap::Insert);
        let control = world.control.clone();
        drop(world);
        let left = control.0.lock().unwrap().declared.unwrap();
        assert_eq!((left.leap, left.synchronised), (expected, false));
    }
}
