//! How a clock page follows from one look at the system's clocks: pure, so that it is tested with
//! clocks that step, drift and lose their synchronisation.

use horolog_sys::adjtimex::{KernelClock, PendingLeap};
use horolog_sys::clock::ClockOffset;
use horolog_time::{Monotonic, NtpShort, NtpTimestamp, Span, Timebase, Timestamp, Utc};
use horolog_wire::ntp::{Leap, STRATUM_UNSYNCHRONISED};

use crate::{Page, ServerConfig, SystemVariables, Trust};

/// One look at the system's clocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Reading {
    /// When it was taken.
    pub(crate) now: Timestamp<Monotonic>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub(crate) offset: ClockOffset,
    /// What the kernel says of its clock; `None` when it does not answer.
    pub(crate) kernel: Option<KernelClock>,
}

/// Makes the pages of one server.
#[derive(Debug)]
pub(crate) struct Renewal {
    config: ServerConfig,
    precision: i8,
    start: Timestamp<Monotonic>,
    offset: ClockOffset,
}

impl Renewal {
    /// Starts with a first look; a test drift counts from there.
    pub(crate) fn new(config: &ServerConfig, precision: i8, first: &Reading) -> Self {
        Self { config: config.clone(), precision, start: first.now, offset: first.offset }
    }

    /// From the next page on, says what this configuration says. What is served on purpose, the
    /// precision and the page's life stay.
    pub(crate) fn reconfigure(&mut self, config: &ServerConfig) {
        adopt_reply_values(&mut self.config, config);
    }

    /// The page that follows from a look at the clocks.
    pub(crate) fn page(&mut self, reading: &Reading) -> Page {
        self.offset = follow(self.offset, reading.offset);
        let timebase = Timebase {
            anchor: reading.now,
            ntp_at_anchor: NtpTimestamp::from_utc(self.served_utc(reading.now)),
            rate: Timebase::rate_with_drift(self.config.test_drift_ppb),
            expires: reading.now + Span::from_ns(self.config.page_life.as_nanos() as i64),
        };
        Page {
            variables: self.variables(reading.kernel, timebase.ntp_at_anchor),
            timebase,
            realtime_minus_monotonic: self.offset.offset,
        }
    }

    fn served_utc(&self, now: Timestamp<Monotonic>) -> Timestamp<Utc> {
        let elapsed_ns = i128::from((now - self.start).as_ns());
        let drift_ns = elapsed_ns * i128::from(self.config.test_drift_ppb) / 1_000_000_000;
        let utc = Timestamp::from_ns(now.as_ns().saturating_add(self.offset.offset.as_ns()));
        utc + self.config.test_offset + Span::from_ns(drift_ns as i64)
    }

    fn variables(&self, kernel: Option<KernelClock>, anchor: NtpTimestamp) -> SystemVariables {
        let config = &self.config;
        let trusted = match config.trust {
            Trust::Local => true,
            Trust::Kernel => kernel.is_some_and(|kernel| kernel.synchronised),
        };
        let pending = kernel.map_or(Leap::None, |kernel| leap(kernel.leap));
        let leap = if trusted { config.leap.unwrap_or(pending) } else { Leap::Unsynchronised };
        let synchronised = leap != Leap::Unsynchronised;
        let dispersion = match config.trust {
            Trust::Local => Span::ZERO,
            Trust::Kernel => kernel.map_or(Span::from_ns(i64::MAX), |kernel| kernel.maximum_error),
        };
        SystemVariables {
            leap,
            stratum: if synchronised { config.stratum } else { STRATUM_UNSYNCHRONISED },
            precision: self.precision,
            root_delay: NtpShort::from_span(config.root_delay),
            root_dispersion: NtpShort::from_span(config.root_dispersion.unwrap_or(dispersion)),
            reference_id: if synchronised { config.reference_id() } else { [0; 4] },
            reference: if synchronised { anchor } else { NtpTimestamp::UNKNOWN },
        }
    }
}

/// Copies what replies say of the server, which a running server can change.
pub(crate) fn adopt_reply_values(config: &mut ServerConfig, new: &ServerConfig) {
    config.trust = new.trust;
    config.stratum = new.stratum;
    config.reference_id = new.reference_id;
    config.leap = new.leap;
    config.root_delay = new.root_delay;
    config.root_dispersion = new.root_dispersion;
}

fn leap(pending: PendingLeap) -> Leap {
    match pending {
        PendingLeap::None => Leap::None,
        PendingLeap::Insert => Leap::Insert,
        PendingLeap::Delete => Leap::Delete,
    }
}

/// The difference changes only when somebody sets the clock, so of two measurements that can both
/// be true the tighter one is kept: served time does not jitter with each measurement, and gets
/// better with time. Two that cannot both be true mean a step, and the new one holds.
fn follow(kept: ClockOffset, new: ClockOffset) -> ClockOffset {
    let apart = (new.offset - kept.offset).as_ns().unsigned_abs();
    let reach = (new.uncertainty + kept.uncertainty).as_ns().unsigned_abs();
    if apart <= reach && kept.uncertainty <= new.uncertainty { kept } else { new }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OFFSET_NS: i64 = 1_700_000_000_000_000_000;

    fn reading(now_ms: i64, offset_ns: i64, uncertainty_ns: i64) -> Reading {
        Reading {
            now: Timestamp::from_ns(now_ms * 1_000_000),
            offset: ClockOffset {
                offset: Span::from_ns(OFFSET_NS + offset_ns),
                uncertainty: Span::from_ns(uncertainty_ns),
            },
            kernel: Some(KernelClock {
                synchronised: true,
                leap: PendingLeap::Insert,
                maximum_error: Span::from_ms(250),
                estimated_error: Span::ZERO,
                tai_offset_s: 37,
                frequency_ppb: 0.0,
            }),
        }
    }

    fn renewal(change: impl FnOnce(&mut ServerConfig)) -> Renewal {
        let mut config = ServerConfig { stratum: 2, ..ServerConfig::default() };
        change(&mut config);
        Renewal::new(&config, -24, &reading(0, 0, 50))
    }

    /// Served time minus the system's, at the instant of the reading.
    fn error_ns(page: &Page, reading: &Reading) -> i64 {
        let utc = Timestamp::from_ns(reading.now.as_ns() + OFFSET_NS);
        page.timebase.ntp_at(reading.now).unwrap().since(NtpTimestamp::from_utc(utc)).as_ns()
    }

    #[test]
    fn a_synchronised_kernel_is_believed() {
        let page = renewal(|_| ()).page(&reading(10, 0, 50));
        let variables = page.variables;
        assert_eq!(
            (variables.leap, variables.stratum, variables.precision),
            (Leap::Insert, 2, -24)
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
        lost.kernel = lost.kernel.map(|kernel| KernelClock { synchronised: false, ..kernel });
        for lost in [lost, Reading { kernel: None, ..lost }] {
            let variables = renewal(|c| c.leap = Some(Leap::None)).page(&lost).variables;
            assert_eq!((variables.leap, variables.stratum), (Leap::Unsynchronised, 16));
            assert_eq!(variables.reference, NtpTimestamp::UNKNOWN);
            let local = renewal(|c| c.trust = Trust::Local).page(&lost).variables;
            assert_eq!((local.stratum, local.root_dispersion), (2, NtpShort::from_bits(0)));
            assert_ne!(local.leap, Leap::Unsynchronised);
        }
    }

    #[test]
    fn what_is_configured_wins_over_the_kernel() {
        let dispersion = Span::from_ms(1);
        let mut renewal = renewal(|c| {
            c.leap = Some(Leap::None);
            c.root_dispersion = Some(dispersion);
            c.root_delay = Span::from_ms(2);
            c.reference_id = Some(*b"GPS\0");
        });
        let variables = renewal.page(&reading(1, 0, 50)).variables;
        assert_eq!((variables.leap, &variables.reference_id), (Leap::None, b"GPS\0"));
        assert_eq!(variables.root_dispersion, NtpShort::from_span(dispersion));
        assert_eq!(variables.root_delay, NtpShort::from_span(Span::from_ms(2)));
        renewal.config.leap = Some(Leap::Unsynchronised);
        assert_eq!(renewal.page(&reading(1, 0, 50)).variables.stratum, 16);
    }

    #[test]
    fn test_offset_and_drift_move_the_served_time() {
        let mut renewal = renewal(|c| {
            c.test_offset = Span::from_ns(-7_000_000);
            c.test_drift_ppb = 2_000;
            c.page_life = Duration::from_millis(500);
        });
        let later = reading(10_000, 0, 50);
        let page = renewal.page(&later);
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
            assert_eq!(error_ns(&renewal.page(&noisy), &noisy), 0, "{noise_ns}");
        }
        let tighter = reading(200, 20, 30);
        assert_eq!(error_ns(&renewal.page(&tighter), &tighter), 20);
    }

    #[test]
    fn a_step_is_followed_at_once() {
        let mut renewal = renewal(|_| ());
        let stepped = reading(100, -3_000_000, 500);
        assert_eq!(error_ns(&renewal.page(&stepped), &stepped), -3_000_000);
    }
}
