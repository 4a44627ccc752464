//! Leap seconds under a source that measures the clock: what it has learnt of a second that the
//! clock did not make, and what it alone knows of one that is to come.

use super::*;

/// A source that says the time by itself, and how far the clock is off by it.
fn selected_reading(
    now: i64,
    offset: Span,
    next_leap: Option<leap::LeapSecond>,
) -> SourceSelectionOutcome {
    SourceSelectionOutcome::Selected(SourceEstimate {
        at: Timestamp::from_ns(now),
        offset,
        frequency_ppb: 0,
        slew: Slew::default(),
        uncertainty: Span::from_ns(100),
        leap: LeapIndicator::None,
        tai_minus_utc_s: None,
        next_leap,
        stratum: 1,
        reference_id: *b"PPS\0",
        reference: Timestamp::from_ns(MIDNIGHT - HOUR),
        root_delay: Span::ZERO,
        root_dispersion: Span::ZERO,
        is_unconfirmed: false,
        host_clock: None,
    })
}

/// What the source says is off by the step of a leap second from when it has learnt it to when it
/// has seen the clock step; meanwhile and in the end the time served is right. Gives the times
/// after the leap at which nothing was claimed.
fn follows(world: World, learns: i64, sees: Option<i64>) -> Vec<i64> {
    let mut renewal = world.renewal(DUE - 20 * NS_PER_S);
    let mut unsynchronised_at = Vec::new();
    for tenth in -200..900 {
        let now = DUE + tenth * 100 * MS + 3;
        let knows = now >= DUE + learns && sees.is_none_or(|sees| now < DUE + sees);
        let offset = if knows { world.leap().step() } else { Span::ZERO };
        let next_leap = (!world.listed && !world.kernel_armed && now < DUE).then(|| world.leap());
        renewal.source_reading = selected_reading(now, offset, next_leap);
        let page = renewal.pages(&world.reading(now)).stepped;
        for instant in probe_instants(now, now + 100 * MS) {
            let stepped = served(&page, instant, world.utc(instant)).unwrap();
            assert!((stepped - world.utc(instant)).abs() <= 5, "{world:?} {}", instant - DUE);
        }
        if page.for_reply_at(Timestamp::from_ns(now)).variables.leap
            == LeapIndicator::Unsynchronised
        {
            unsynchronised_at.push(now - DUE);
        }
    }
    unsynchronised_at
}

#[test]
fn a_second_that_a_source_has_learnt_is_not_owed_as_well() {
    for kind in [LeapKind::Insert, LeapKind::Delete] {
        for trust in [ClockTrust::Kernel, ClockTrust::Local] {
            let world = World {
                kind,
                kernel_steps_after_ns: None,
                kernel_armed: false,
                listed: true,
                trust,
            };
            // Behind the passing, as a calibration does, and in it.
            let unsynchronised_at = follows(world, 6_500 * MS, None);
            assert_eq!(
                unsynchronised_at.is_empty(),
                trust == ClockTrust::Local,
                "{unsynchronised_at:?}"
            );
            assert!(unsynchronised_at.iter().all(|since| (500 * MS..6_600 * MS).contains(since)));
            assert_eq!(follows(world, 300 * MS, None), [0; 0]);
        }
    }
}

#[test]
fn a_clock_that_steps_late_under_a_source_that_has_learnt_the_second() {
    for kind in [LeapKind::Insert, LeapKind::Delete] {
        for (steps, sees) in [(1_500, 2_200), (4_000, 6_300), (0, 700)] {
            let kernel_steps_after_ns = Some(steps * MS);
            let trust = ClockTrust::Kernel;
            let world =
                World { kind, kernel_steps_after_ns, kernel_armed: true, listed: true, trust };
            assert_eq!(follows(world, 300 * MS, Some(sees * MS)), [0; 0]);
        }
    }
}

/// Neither a list nor the kernel knows of it.
#[test]
fn a_leap_second_that_the_receiver_alone_knows_of_is_passed() {
    for kind in [LeapKind::Insert, LeapKind::Delete] {
        for (steps, learns) in [(None, 6_500), (Some(0), 90_000), (Some(300), 90_000)] {
            let kernel_steps_after_ns = steps.map(|ms: i64| ms * MS);
            let (kernel_armed, listed, trust) = (false, false, ClockTrust::Kernel);
            let world = World { kind, kernel_steps_after_ns, kernel_armed, listed, trust };
            let unsynchronised_at = follows(world, learns * MS, None);
            assert_eq!(
                unsynchronised_at.is_empty(),
                steps.is_some(),
                "{world:?} {unsynchronised_at:?}"
            );
        }
    }
}

/// Its instant comes once more, and by the clock alone that is not known from the first time.
#[test]
fn a_server_that_starts_in_the_leap_second_does_not_pass_it_again() {
    let world = World {
        kind: LeapKind::Insert,
        kernel_steps_after_ns: Some(0),
        kernel_armed: true,
        listed: true,
        trust: ClockTrust::Kernel,
    };
    let reading = |now: i64| {
        let reading = world.reading(now);
        let is_leap_second = (0..NS_PER_S).contains(&(now - DUE));
        let kernel = reading.kernel.map(|kernel| KernelClockStatus {
            is_leap_second,
            leap: PendingLeap::None,
            ..kernel
        });
        SystemClockReading { kernel, ..reading }
    };
    for started in [1, 400 * MS, 990 * MS, NS_PER_S, 3 * NS_PER_S] {
        let file = world.renewal(DUE).leap_file;
        let config = ServerConfig { stratum: 2, trust: world.trust, ..ServerConfig::default() };
        let mut renewal =
            ClockPageBuilder::new(&config, -24, &reading(DUE + started)).with_leap_file(file);
        for tenth in 0..80 {
            let now = DUE + started + tenth * 100 * MS;
            let page = renewal.pages(&reading(now)).stepped;
            assert_eq!(
                (page.variables.stratum, page.variables.leap),
                (2, LeapIndicator::None),
                "{started}"
            );
            for instant in [now, now + 99 * MS, now + 899 * MS] {
                let stepped = served(&page, instant, world.utc(instant)).unwrap();
                assert!((stepped - world.utc(instant)).abs() <= 5, "{started} {}", instant - DUE);
            }
        }
    }
}

/// What was said before somebody set the clock was said of the clock as it was.
#[test]
fn a_word_from_before_a_step_of_the_clock_is_not_taken_for_one_from_behind_it() {
    let world = World {
        kind: LeapKind::Insert,
        kernel_steps_after_ns: None,
        kernel_armed: false,
        listed: false,
        trust: ClockTrust::Kernel,
    };
    for set in [Span::from_ms(-50), Span::from_ms(-1_000), Span::from_ms(7), Span::from_ms(40_000)]
    {
        let mut renewal = world.renewal(DUE - HOUR);
        for tenth in 0..40 {
            let now = DUE - HOUR + tenth * 100 * MS;
            // Sources are asked once a second; the clock is set in between to what is right.
            let polled_at = now - tenth % 10 * 100 * MS;
            renewal.source_reading =
                selected_reading(polled_at, if tenth < 20 { set } else { Span::ZERO }, None);
            let mut reading = world.reading(now);
            let moved = if tenth < 15 { Span::ZERO } else { set };
            reading.offset.offset = reading.offset.offset - set + moved;
            let page = renewal.pages(&reading).stepped;
            let stepped = served(&page, now, world.utc(now)).unwrap();
            assert!((stepped - world.utc(now)).abs() <= 10, "{set:?} {tenth}");
        }
    }
}
