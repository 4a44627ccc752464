//! PTP hardware clock as a time source, on TAI as set by `ptp4l`, or on UTC. Opening fails if the
//! device is missing.

use std::io;
use std::path::Path;

use horolog_sys::explain::explain;
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::{NS_PER_S, Span, Timestamp};

use crate::reference::{ReferenceClock, ReferenceClockSettings};
use crate::shm::report_or_refusal;
use crate::tai_offset::TaiOffsetChecker;
use crate::{ClockReadings, PollableTimeSource, SourceError, SourceEstimate};

/// Timescale of a PTP hardware clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PhcSourceTimescale {
    /// TAI, with TAI minus UTC in seconds at the start; `None` for the kernel's value.
    Tai(Option<i32>),
    /// UTC.
    Utc,
}

/// PTP hardware clock that is read between two readings of the system clock.
pub(crate) trait ReadablePhc: Send {
    fn read(&mut self) -> io::Result<PhcReading>;
}

impl ReadablePhc for PhcDevice {
    fn read(&mut self) -> io::Result<PhcReading> {
        Self::read(self)
    }
}

/// Time source that reads a PTP hardware clock.
pub(crate) struct PhcSource<P> {
    name: String,
    phc: P,
    /// TAI minus UTC, if the clock is on TAI.
    tai: Option<TaiOffsetChecker>,
    /// Timescale of the clock minus UTC at the last reading.
    phc_minus_utc: Span,
    claim: ReferenceClockSettings,
    clock: ReferenceClock,
}

impl PhcSource<PhcDevice> {
    pub(crate) fn open(
        name: String,
        path: &Path,
        scale: PhcSourceTimescale,
        claim: ReferenceClockSettings,
    ) -> Result<Self, SourceError> {
        let failed = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "no such clock (ethtool -T lists them)",
                io::ErrorKind::PermissionDenied => "permission denied for this user",
                _ => "not a PTP clock",
            };
            SourceError::Unusable(format!("{}: {hint}: {}", path.display(), explain(&error)))
        };
        let phc = PhcDevice::open(path).map_err(failed)?;
        Ok(Self::new(name, phc, scale, claim))
    }
}

impl<P: ReadablePhc> PhcSource<P> {
    fn new(name: String, phc: P, scale: PhcSourceTimescale, claim: ReferenceClockSettings) -> Self {
        let tai = match scale {
            PhcSourceTimescale::Tai(configured_s) => Some(TaiOffsetChecker::new(configured_s)),
            PhcSourceTimescale::Utc => None,
        };
        Self { name, phc, tai, phc_minus_utc: Span::ZERO, claim, clock: ReferenceClock::new(claim) }
    }
}

impl<P: ReadablePhc> PollableTimeSource for PhcSource<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let ahead_s = self.tai.as_mut().map_or(Ok(0), |tai| tai.offset_s(readings))?;
        let ahead = Span::from_ns(i64::from(ahead_s) * NS_PER_S);
        if ahead != self.phc_minus_utc {
            // Earlier samples are on another timescale.
            (self.phc_minus_utc, self.clock) = (ahead, ReferenceClock::new(self.claim));
        }
        let reading = self.phc.read().map_err(|error| {
            SourceError::NoData(format!("cannot read the clock: {}", explain(&error)))
        })?;
        let half = (reading.after - reading.before).as_ns() / 2;
        let middle = reading.before + Span::from_ns(half);
        let true_time = Timestamp::from_ns(reading.phc_ns) - ahead;
        self.clock.push_sample(readings, middle, true_time, Span::from_ns(half + 1));
        report_or_refusal(&mut self.clock, readings)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::reference::tests::{CLAIM, kernel, readings};

    /// Clock with a configurable offset from the simulated system clock.
    #[derive(Clone)]
    struct Simulated {
        ahead_ns: Arc<AtomicI64>,
        now: Arc<Mutex<ClockReadings>>,
    }

    impl ReadablePhc for Simulated {
        fn read(&mut self) -> io::Result<PhcReading> {
            let now = self.now.lock().unwrap().realtime();
            let ahead_ns = self.ahead_ns.load(Ordering::Relaxed);
            if ahead_ns == i64::MAX {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(PhcReading {
                before: now - Span::from_ns(300),
                phc_ns: now.as_ns() + ahead_ns,
                after: now + Span::from_ns(300),
            })
        }
    }

    fn source(scale: PhcSourceTimescale) -> (PhcSource<Simulated>, Simulated) {
        let phc = Simulated { ahead_ns: Arc::default(), now: Arc::new(Mutex::new(readings(0))) };
        (PhcSource::new("phc:/dev/ptp0".into(), phc.clone(), scale, CLAIM), phc)
    }

    #[test]
    fn a_free_running_system_clock_is_measured_against_tai() {
        let (mut source, phc) = source(PhcSourceTimescale::Tai(Some(37)));
        let mut last = None;
        for second in 1..=40 {
            // The system clock loses 20 us each second.
            let drift_ns = second * 20_000;
            phc.ahead_ns.store(37 * NS_PER_S + drift_ns, Ordering::Relaxed);
            let now = readings(second * 1_000);
            *phc.now.lock().unwrap() = now;
            last = source.poll(&now).unwrap();
        }
        let report = last.unwrap();
        assert_eq!((report.offset, report.frequency_ppb), (Span::from_ns(800_500), 20_000));
        assert!(report.uncertainty < Span::from_ns(400), "{report:?}");
        phc.ahead_ns.store(i64::MAX, Ordering::Relaxed);
        assert!(matches!(source.poll(&readings(41_000)), Err(SourceError::NoData(_))));
    }

    #[test]
    fn tai_takes_an_offset_and_utc_none() {
        assert!(matches!(
            source(PhcSourceTimescale::Tai(None)).0.poll(&readings(0)),
            Err(SourceError::Unusable(_))
        ));
        assert!(source(PhcSourceTimescale::Utc).0.poll(&readings(0)).unwrap().is_some());
    }

    #[test]
    fn at_a_leap_the_time_goes_on_or_ends_but_is_not_a_second_wrong() {
        for kernel_follows in [true, false] {
            let (mut source, phc) = source(PhcSourceTimescale::Tai(Some(37)));
            for second in 1..=20_i32 {
                let passed = i32::from(second > 10);
                // The system clock makes the leap, whether the kernel's number shows it or not.
                let mut now = readings(i64::from(second) * 1_000);
                let stepped = Span::from_ns(i64::from(passed) * NS_PER_S);
                now.realtime_minus_monotonic = now.realtime_minus_monotonic - stepped;
                now.kernel = Some(kernel(37 + if kernel_follows { passed } else { 0 }));
                now.leaps_s = passed;
                phc.ahead_ns.store(i64::from(37 + passed) * NS_PER_S, Ordering::Relaxed);
                *phc.now.lock().unwrap() = now;
                match source.poll(&now) {
                    Ok(Some(report)) => assert_eq!(report.offset, CLAIM.offset, "{second}"),
                    other => {
                        assert!(!kernel_follows && passed == 1, "{second}: {other:?}");
                        assert!(
                            matches!(other, Err(SourceError::NoData(_))),
                            "{second}: {other:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let path = Path::new("/dev/there-is-none");
        let Err(fault) = PhcSource::open("phc".into(), path, PhcSourceTimescale::Utc, CLAIM) else {
            panic!("opened");
        };
        assert!(fault.to_string().contains("/dev/there-is-none: no such clock"), "{fault}");
        assert!(!fault.to_string().contains("os error"), "{fault}");
    }
}
