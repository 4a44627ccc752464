//! A day before a leap second to a day after it, simulated: a renewal is given readings of a system
//! clock that steps in time, late or never, and what its pages serve is held against the exact time
//! at every instant that a page could be asked for.

use std::path::Path;

use horolog_source::{Slew, SourceEstimate};
use horolog_sys::adjtimex::PendingLeap;
use horolog_time::leap;

use super::*;

/// 2017-01-01T00:00:00Z.
const MIDNIGHT: i64 = 1_483_228_800 * NS_PER_S;
const HOUR: i64 = 3_600 * NS_PER_S;
const MS: i64 = 1_000_000;
/// The monotonic instant at which a leap is due; not a whole second, as on any machine.
const DUE: i64 = 100 * HOUR + 123_456_789;

#[derive(Clone, Copy, Debug)]
struct World {
    kind: LeapKind,
    /// How long after the leap the kernel steps its clock.
    kernel_steps_after_ns: Option<i64>,
    kernel_armed: bool,
    listed: bool,
    trust: ClockTrust,
}

impl World {
    fn leap(&self) -> leap::LeapSecond {
        leap::LeapSecond { midnight: Timestamp::from_ns(MIDNIGHT), kind: self.kind }
    }

    /// The exact time on the scale before the leap.
    fn before_leap(&self, now: i64) -> i64 {
        self.leap().step_instant().as_ns() + now - DUE
    }

    /// The exact time.
    fn utc(&self, now: i64) -> i64 {
        self.before_leap(now) + if now >= DUE { self.leap().step().as_ns() } else { 0 }
    }

    /// The exact time of a smeared clock, counted in another way than the server does: the leap
    /// second is spread over what lies between noon and noon.
    fn smeared(&self, now: i64) -> i64 {
        let noon = MIDNIGHT - 12 * HOUR;
        let into = i128::from(self.before_leap(now) - noon);
        let (shown, lasts) = (24 * i128::from(HOUR), 24 * i128::from(HOUR) - self.step());
        let share = into.clamp(0, lasts) * shown / lasts;
        (i128::from(noon) + share + into.min(0) + (into - lasts).max(0)) as i64
    }

    fn step(&self) -> i128 {
        i128::from(self.leap().step().as_ns())
    }

    fn has_stepped(&self, now: i64) -> bool {
        self.kernel_steps_after_ns.is_some_and(|after| now >= DUE + after)
    }

    fn reading(&self, now: i64) -> SystemClockReading {
        let step = if self.has_stepped(now) { self.leap().step().as_ns() } else { 0 };
        // Readings are a little off and know it.
        let noise = now / MS % 7 - 3;
        let is_pending = self.kernel_armed && DUE - now <= 23 * HOUR && now < DUE + 20 * HOUR;
        let leap = match self.kind {
            _ if !is_pending => PendingLeap::None,
            LeapKind::Insert => PendingLeap::Insert,
            LeapKind::Delete => PendingLeap::Delete,
        };
        SystemClockReading {
            now: Timestamp::from_ns(now),
            offset: ClockOffset {
                offset: Span::from_ns(self.before_leap(now) - now + step + noise),
                uncertainty: Span::from_ns(20),
            },
            kernel: Some(KernelClockStatus {
                is_leap_second: false,
                synchronised: true,
                leap,
                maximum_error: Span::from_ms(1),
                estimated_error: Span::ZERO,
                tai_offset_s: 0,
                frequency_ppb: 0.0,
            }),
        }
    }

    fn renewal(&self, first: i64) -> ClockPageBuilder {
        let config = ServerConfig { stratum: 2, trust: self.trust, ..ServerConfig::default() };
        let name = match self.kind {
            LeapKind::Insert => "testdata/leap-seconds-2016.list",
            LeapKind::Delete => "testdata/leap-seconds-deleted.list",
        };
        // Cargo runs tests in the crate's directory.
        let file = self.listed.then(|| LeapFile::open(Path::new(name)).unwrap());
        ClockPageBuilder::new(&config, -24, &self.reading(first)).with_leap_file(file)
    }
}

/// Monotonic instants of readings: each 100 ms near the leap and near the ends of the smear, far
/// apart elsewhere.
fn instants() -> Vec<i64> {
    let near = |centre: i64| (-80..80).map(move |n| centre + n * 100 * MS + 3);
    let mut all: Vec<i64> = (-150..150).map(|n| DUE + n * HOUR / 6 + 9).collect();
    all.extend([-12 * HOUR, 0, 12 * HOUR].into_iter().flat_map(|away| near(DUE + away)));
    all.sort_unstable();
    all
}

fn served(page: &ClockPage, now: i64, near: i64) -> Option<i64> {
    let ntp = page.timebase.ntp_at(Timestamp::from_ns(now))?;
    Some(ntp.to_utc(Timestamp::from_ns(near)).as_ns())
}

/// What is asked of one page: as it is made, later, and on both sides of the leap, as near
/// as the readings are true.
fn probe_instants(made: i64, next: i64) -> Vec<i64> {
    let until = next.min(made + 900 * MS);
    let mut instants = vec![made, made + 1, i64::midpoint(made, until), until];
    instants.extend(
        [DUE - 10, DUE + 10].into_iter().filter(|at| (made - 900 * MS..until).contains(at)),
    );
    instants.sort_unstable();
    instants
}

fn passes(world: World) {
    let instants = instants();
    let mut renewal = world.renewal(instants[0]);
    let mut last_smeared = 0;
    for pair in instants.windows(2) {
        let pages = renewal.pages(&world.reading(pair[0]));
        let passed = match world.kind {
            _ if pair[0] < DUE => 0,
            LeapKind::Insert => 1,
            LeapKind::Delete => -1,
        };
        assert_eq!(renewal.leap_transition.leaps_s(), passed, "{world:?} {}", pair[0] - DUE);
        for now in probe_instants(pair[0], pair[1]) {
            let at = format!("{world:?} {} ns after the leap", now - DUE);
            let stepped = served(&pages.stepped, now, world.utc(now)).unwrap();
            assert!((stepped - world.utc(now)).abs() <= 5, "{at}: {stepped}");
            let page = pages.stepped.for_reply_at(Timestamp::from_ns(now));
            // From the beginning of its day on, which a deleted second leaves a second earlier.
            let day = MIDNIGHT - 24 * HOUR;
            let begun = world.leap().step_instant().as_ns() - day;
            let known_ahead = if world.listed { begun } else { 23 * HOUR };
            let announced = DUE - pair[0] <= known_ahead && now < DUE;
            let expected = match world.kind {
                _ if !announced => LeapIndicator::None,
                LeapKind::Insert => LeapIndicator::Insert,
                LeapKind::Delete => LeapIndicator::Delete,
            };
            assert_eq!((page.variables.leap, page.variables.stratum), (expected, 2), "{at}");
            let transmit = page.timebase.ntp_at(Timestamp::from_ns(now)).unwrap();
            let ahead = page.variables.reference.since(transmit);
            assert!(now < pair[0] || ahead <= Span::ZERO, "{at}: the reference lies ahead");
            if world.listed {
                let smeared = served(&pages.smeared, now, world.smeared(now)).unwrap();
                let error = smeared - world.smeared(now);
                assert!(error.abs() <= 1_250 + 5, "{at}: smeared {error}");
                assert_eq!(
                    pages.smeared.for_reply_at(Timestamp::from_ns(now)).variables.leap,
                    LeapIndicator::None
                );
                if now >= pair[0] {
                    assert!(smeared >= last_smeared - 1_250, "{at}: smeared time runs back");
                    last_smeared = smeared;
                }
            }
        }
        check_receive_timestamps(&world, &pages.stepped, pair[0], pair[1].min(pair[0] + 900 * MS));
    }
    let notices = renewal.take_notices();
    let expected =
        usize::from(world.listed && !world.kernel_armed && world.trust == ClockTrust::Kernel);
    assert_eq!(notices.len(), expected, "{world:?} {notices:?}");
}

/// A packet's receive timestamp comes from the system clock, whatever that does, up to 900 ms late.
fn check_receive_timestamps(world: &World, page: &ClockPage, made: i64, until: i64) {
    for now in [made, until] {
        for age in [0, MS, 90 * MS, 500 * MS, 900 * MS] {
            let received = now - age;
            let system = world.reading(received).offset.offset.as_ns() + received;
            let found = page.monotonic_of(Timestamp::from_ns(system), Timestamp::from_ns(now + 20));
            let error = found.as_ns() - received;
            assert!(error.abs() <= 20, "{world:?} {} old {age}: {error}", now - DUE);
        }
    }
}

#[test]
fn a_leap_is_passed_whenever_the_kernel_steps() {
    for kind in [LeapKind::Insert, LeapKind::Delete] {
        for after in [Some(0), Some(4 * MS), Some(370 * MS), Some(1_500 * MS)] {
            for (kernel_armed, listed) in [(true, false), (true, true), (false, true)] {
                // A daemon that steps the clock itself is given half a second.
                if !kernel_armed && after > Some(400 * MS) {
                    continue;
                }
                let trust = ClockTrust::Kernel;
                passes(World { kind, kernel_steps_after_ns: after, kernel_armed, listed, trust });
            }
        }
    }
}

#[test]
fn a_free_clock_that_never_steps_serves_right_on() {
    for kind in [LeapKind::Insert, LeapKind::Delete] {
        for kernel_steps_after_ns in [None, Some(HOUR + 5 * HOUR / 7)] {
            let trust = ClockTrust::Local;
            let world =
                World { kind, kernel_steps_after_ns, kernel_armed: false, listed: true, trust };
            passes(world);
        }
    }
}

#[test]
fn a_disciplined_clock_that_does_not_step_is_not_believed_for_an_hour() {
    for kind in [LeapKind::Insert, LeapKind::Delete] {
        let world = World {
            kind,
            kernel_steps_after_ns: None,
            kernel_armed: false,
            listed: true,
            trust: ClockTrust::Kernel,
        };
        let mut renewal = world.renewal(DUE - HOUR / 2);
        for pair in instants().windows(2).filter(|pair| pair[0] >= DUE - HOUR / 2) {
            let pages = renewal.pages(&world.reading(pair[0]));
            let since = pair[0] - DUE;
            let is_uncertain = (500 * MS..HOUR + HOUR / 6).contains(&since);
            if !(HOUR..=HOUR + HOUR / 5).contains(&since) {
                for page in [pages.stepped, pages.smeared] {
                    let stratum = if is_uncertain { 16 } else { 2 };
                    assert_eq!(page.variables.stratum, stratum, "{world:?} {since}");
                }
            }
            // By then the daemon has slewed the second away: the system clock is followed.
            let expected = world.reading(pair[0]).offset.offset.as_ns() + pair[0];
            if since > HOUR + HOUR / 5 {
                let stepped = served(&pages.stepped, pair[0], expected).unwrap();
                assert!((stepped - expected).abs() <= 10, "{world:?} {since}");
            }
        }
        let notices = renewal.take_notices();
        assert!(notices.contains(&LeapNotice::DidNotStep), "{notices:?}");
    }
}

#[test]
fn a_served_time_moved_by_a_test_passes_its_own_leap() {
    let world = World {
        kind: LeapKind::Insert,
        kernel_steps_after_ns: None,
        kernel_armed: false,
        listed: true,
        trust: ClockTrust::Local,
    };
    // The system is ten years ahead, and its kernel has a leap second of its own pending.
    let ahead = 87_600 * HOUR;
    let mut renewal = world.renewal(DUE - 10 * NS_PER_S);
    renewal.config.test_offset = Span::from_ns(-ahead);
    renewal.config.leap_seconds.smear = std::time::Duration::from_secs(2_000);
    for tenth in -99..99 {
        let now = DUE + tenth * 100 * MS;
        let mut reading = world.reading(now);
        reading.offset.offset = reading.offset.offset + Span::from_ns(ahead);
        reading.kernel =
            reading.kernel.map(|k| KernelClockStatus { leap: PendingLeap::Delete, ..k });
        let pages = renewal.pages(&reading);
        let stepped = served(&pages.stepped, now, world.utc(now)).unwrap();
        assert!((stepped - world.utc(now)).abs() <= 10, "{tenth}");
        let leap = pages.stepped.for_reply_at(reading.now).variables.leap;
        assert_eq!(leap, if now < DUE { LeapIndicator::Insert } else { LeapIndicator::None });
        // In the middle of a smear half of the second is gone, and the identifier says so.
        let behind = world.before_leap(now) - served(&pages.smeared, now, world.utc(now)).unwrap();
        assert!((behind - 500 * MS).abs() < 6 * MS, "{tenth}: {behind}");
        let [first, ..] = pages.smeared.variables.reference_id;
        assert_eq!(first, 254);
    }
}

#[test]
fn a_smeared_system_clock_is_served_as_it_is() {
    let world = World {
        kind: LeapKind::Insert,
        kernel_steps_after_ns: None,
        kernel_armed: true,
        listed: true,
        trust: ClockTrust::Kernel,
    };
    let mut renewal = world.renewal(DUE - HOUR);
    renewal.config.leap_seconds.system = SystemLeapBehaviour::Smears;
    for now in instants().into_iter().filter(|now| *now >= DUE - HOUR) {
        let pages = renewal.pages(&world.reading(now));
        assert_eq!(
            (pages.stepped, pages.stepped.variables.leap),
            (pages.smeared, LeapIndicator::None)
        );
        let stepped = served(&pages.stepped, now, world.before_leap(now)).unwrap();
        assert!((stepped - world.before_leap(now)).abs() <= 5);
    }
}

#[test]
fn a_clock_that_is_set_by_years_passes_no_leap() {
    let world = World {
        kind: LeapKind::Insert,
        kernel_steps_after_ns: Some(0),
        kernel_armed: false,
        listed: true,
        trust: ClockTrust::Kernel,
    };
    let mut renewal = world.renewal(DUE - HOUR);
    renewal.pages(&world.reading(DUE - HOUR));
    for years in [1, -1, 2] {
        let mut reading = world.reading(DUE - HOUR + 100 * MS);
        reading.offset.offset = reading.offset.offset + Span::from_ns(years * 8_766 * HOUR);
        let page = renewal.pages(&reading).stepped;
        let expected = reading.offset.offset.as_ns() + reading.now.as_ns();
        assert_eq!(served(&page, reading.now.as_ns(), expected), Some(expected), "{years}");
        assert_eq!(
            (page.timebase.step_at, page.variables.leap),
            (NO_STEP, LeapIndicator::Unsynchronised)
        );
    }
}

#[test]
fn the_sources_receive_the_leaps_of_the_list() {
    let world = World {
        kind: LeapKind::Insert,
        kernel_steps_after_ns: Some(0),
        kernel_armed: true,
        listed: true,
        trust: ClockTrust::Kernel,
    };
    let known = |world: &World, ends: i64| {
        let mut renewal = world.renewal(DUE - HOUR);
        let instants = (0..).map(|n| DUE - HOUR + n * 500 * MS);
        for now in instants.take_while(|now| *now <= ends) {
            renewal.pages(&world.reading(now));
        }
        renewal.known_leaps
    };
    let before = known(&world, DUE - HOUR / 2);
    assert_eq!((before.tai_minus_utc_s, before.has_list), (Some(36), true));
    assert_eq!(before.next, Some(world.leap()));
    let after = known(&world, DUE + 10 * NS_PER_S);
    assert_eq!((after.tai_minus_utc_s, after.next), (Some(37), None));
    // The kernel's word is no list: who steers the clock has told it to the kernel.
    let unlisted = World { listed: false, ..world };
    assert_eq!(known(&unlisted, DUE - HOUR / 2), horolog_source::ServerLeapSeconds::default());
}

#[path = "leap_word_tests.rs"]
mod word_tests;
