//! Tests of what pages say of a clock that drifts, steps and loses its synchronisation.

use std::time::Duration;

use horolog_sys::adjtimex::PendingLeap;

use super::*;

const OFFSET_NS: i64 = 1_700_000_000_000_000_000;

fn reading(now_ms: i64, offset_ns: i64, uncertainty_ns: i64) -> SystemClockReading {
    SystemClockReading {
        now: Timestamp::from_ns(now_ms * 1_000_000),
        offset: ClockOffset {
            offset: Span::from_ns(OFFSET_NS + offset_ns),
            uncertainty: Span::from_ns(uncertainty_ns),
        },
        kernel: Some(KernelClockStatus {
            is_leap_second: false,
            synchronised: true,
            leap: PendingLeap::Insert,
            maximum_error: Span::from_ms(250),
            estimated_error: Span::ZERO,
            tai_offset_s: 37,
            frequency_ppb: 0.0,
        }),
    }
}

fn renewal(change: impl FnOnce(&mut ServerConfig)) -> ClockPageBuilder {
    let mut config = ServerConfig { stratum: 2, ..ServerConfig::default() };
    change(&mut config);
    ClockPageBuilder::new(&config, -24, &reading(0, 0, 50))
}

/// Served time minus the system's, at the instant of the reading.
fn error_ns(page: &ClockPage, reading: &SystemClockReading) -> i64 {
    let utc = Timestamp::from_ns(reading.now.as_ns() + OFFSET_NS);
    page.timebase.ntp_at(reading.now).unwrap().since(NtpTimestamp::from_utc(utc)).as_ns()
}

#[test]
fn a_synchronised_kernel_is_believed() {
    let page = renewal(|_| ()).pages(&reading(10, 0, 50)).stepped;
    let variables = page.variables;
    assert_eq!(
        (variables.leap, variables.stratum, variables.precision),
        (LeapIndicator::Insert, 2, -24)
    );
    assert_eq!(variables.root_dispersion, NtpShort::from_span(Span::from_ms(250)));
    assert_eq!(variables.reference_id, [127, 127, 1, 1]);
    assert_eq!(variables.reference, page.timebase.ntp_at_anchor);
    assert_eq!(page.timebase.expires - page.timebase.anchor, Span::from_ms(1_000));
    assert_eq!(error_ns(&page, &reading(10, 0, 50)), 0);
}

#[test]
fn an_unsynchronised_kernel_means_leap_3_and_stratum_16() {
    let mut lost = reading(10, 0, 50);
    lost.kernel = lost.kernel.map(|kernel| KernelClockStatus { synchronised: false, ..kernel });
    for lost in [lost, SystemClockReading { kernel: None, ..lost }] {
        let variables =
            renewal(|c| c.leap = Some(LeapIndicator::None)).pages(&lost).stepped.variables;
        assert_eq!((variables.leap, variables.stratum), (LeapIndicator::Unsynchronised, 16));
        assert_eq!(variables.reference, NtpTimestamp::UNKNOWN);
        let local = renewal(|c| c.trust = ClockTrust::Local).pages(&lost).stepped.variables;
        assert_eq!((local.stratum, local.root_dispersion), (2, NtpShort::from_bits(0)));
        assert_ne!(local.leap, LeapIndicator::Unsynchronised);
    }
}

#[test]
fn what_is_configured_wins_over_the_kernel() {
    let dispersion = Span::from_ms(1);
    let mut renewal = renewal(|c| {
        c.leap = Some(LeapIndicator::None);
        c.root_dispersion = Some(dispersion);
        c.root_delay = Span::from_ms(2);
        c.reference_id = Some(*b"GPS\0");
    });
    let variables = renewal.pages(&reading(1, 0, 50)).stepped.variables;
    assert_eq!((variables.leap, &variables.reference_id), (LeapIndicator::None, b"GPS\0"));
    assert_eq!(variables.root_dispersion, NtpShort::from_span(dispersion));
    assert_eq!(variables.root_delay, NtpShort::from_span(Span::from_ms(2)));
    renewal.config.leap = Some(LeapIndicator::Unsynchronised);
    assert_eq!(renewal.pages(&reading(1, 0, 50)).stepped.variables.stratum, 16);
}

#[test]
fn test_offset_and_drift_move_the_served_time() {
    let mut renewal = renewal(|c| {
        c.test_offset = Span::from_ns(-7_000_000);
        c.test_drift_ppb = 2_000;
        c.page_life = Duration::from_millis(500);
    });
    let later = reading(10_000, 0, 50);
    let page = renewal.pages(&later).stepped;
    assert!((error_ns(&page, &later) + 7_000_000 - 20_000).abs() <= 1);
    let between = Timestamp::from_ns(later.now.as_ns() + 400_000_000);
    let gained = page.timebase.ntp_at(between).unwrap().since(page.timebase.ntp_at_anchor);
    assert!((gained.as_ns() - 400_000_800).abs() <= 1, "{gained:?}");
    assert_eq!(page.realtime_minus_monotonic, Span::from_ns(OFFSET_NS));
}

#[test]
fn measurement_noise_does_not_move_the_served_time() {
    let mut renewal = renewal(|_| ());
    for (noise_ns, uncertainty_ns) in [(40, 60), (-90, 100), (50, 50)] {
        let noisy = reading(100, noise_ns, uncertainty_ns);
        assert_eq!(error_ns(&renewal.pages(&noisy).stepped, &noisy), 0, "{noise_ns}");
    }
    let tighter = reading(200, 20, 30);
    assert_eq!(error_ns(&renewal.pages(&tighter).stepped, &tighter), 20);
}

#[test]
fn a_step_is_followed_at_once() {
    let mut renewal = renewal(|_| ());
    let stepped = reading(100, -3_000_000, 500);
    assert_eq!(error_ns(&renewal.pages(&stepped).stepped, &stepped), -3_000_000);
}
