//! Comparison of clocks of this host (kernel clocks, PHCs, PPS) with the system clock. All are read
//! one after the other in each slot of a time grid; no clock is set.

mod clock_stats;
mod findings;
mod name;
mod reader;

use std::io;
use std::time::Duration;

use horolog_record::{CLOCK_COMPARE_SCHEMA, ClockCompareResult, ClockSample, Host, rfc3339_now};
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic, sleep_until_unless};
use horolog_time::{Clock, TimeGrid};

use clock_stats::{ClockStats, OffsetOrigin, StepDetector};
use reader::ReadableClock;

pub use name::{ClockName, ClockNameError};
pub use reader::ClockOpenError;

/// Maximum number of stored readings per clock.
pub const COUNT_MAX: u64 = 1_000_000;

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct ClockCompareOptions {
    /// Clocks to compare.
    pub clocks: Vec<ClockName>,
    /// Interval between readings of a clock.
    pub interval: Duration,
    /// Number of readings of each clock.
    pub count: u64,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// Readings of all clocks in one slot, in the order of the options: `None` if a clock has no new
/// reading, such as no pulse since the last slot; an error if it cannot be read.
pub type SlotReadings = Vec<io::Result<Option<ClockSample>>>;

/// Clock comparison with its clocks open.
pub struct ClockCompareRun {
    options: ClockCompareOptions,
    clocks: Vec<Box<dyn ReadableClock>>,
}

impl ClockCompareRun {
    /// Opens all clocks.
    ///
    /// # Errors
    ///
    /// If a clock does not exist or cannot be used, or a PHC on TAI needs the kernel's TAI offset,
    /// which is unset.
    pub fn open(options: ClockCompareOptions) -> Result<Self, ClockOpenError> {
        let clocks = options.clocks.iter().map(reader::open_clock).collect::<Result<_, _>>()?;
        Ok(Self { options, clocks })
    }

    /// Returns the names of the clocks.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.options.clocks.iter().map(|name| name.text.as_str())
    }

    /// Returns the number of slots of the time grid.
    #[must_use]
    pub const fn slot_count(&self) -> u64 {
        self.options.count
    }

    /// Reads all clocks in each slot of the time grid and passes the readings to
    /// `receive_readings`, until `is_over` returns true or all slots are done. Returns the number
    /// of slots that were read.
    pub fn read_slots(
        &mut self,
        mut receive_readings: impl FnMut(u64, SlotReadings),
        is_over: &dyn Fn() -> bool,
    ) -> u64 {
        let mut origins: Vec<_> =
            self.clocks.iter().map(|clock| OffsetOrigin::new(clock.has_own_epoch())).collect();
        run_each_interval(self.options.interval, self.options.count, is_over, |slot| {
            let clocks = self.clocks.iter_mut().zip(&mut origins);
            let read = |(clock, origin): (&mut Box<dyn ReadableClock>, &mut OffsetOrigin)| {
                Ok(clock.read()?.map(|reading| origin.sample(slot, reading)))
            };
            receive_readings(slot, clocks.map(read).collect());
        })
    }

    /// Reads all clocks in each slot, until all slots are done or `is_over` returns true, and
    /// returns the result; calls `progress` after each slot with the number of slots read so far.
    pub fn run(mut self, progress: &dyn Fn(u64), is_over: &dyn Fn() -> bool) -> ClockCompareResult {
        let started = rfc3339_now();
        let mut stats: Vec<_> = self.clocks.iter().map(|_| ClockStats::default()).collect();
        let mut steps = StepDetector::default();
        let receive_readings = |slot, readings: SlotReadings| {
            steps.add_offset(slot, realtime_minus_monotonic());
            for (clock_stats, reading) in stats.iter_mut().zip(readings) {
                clock_stats.add_reading(reading);
            }
            progress(slot + 1);
        };
        let count = self.read_slots(receive_readings, is_over);
        let interval = self.options.interval;
        let clocks = stats.into_iter().zip(&self.options.clocks).zip(&self.clocks);
        let clocks = clocks.map(|((clock_stats, name), clock)| {
            clock_stats.result(name, clock.has_own_epoch(), count, interval)
        });
        let mut result = ClockCompareResult {
            schema: CLOCK_COMPARE_SCHEMA.to_owned(),
            started,
            clocks: clocks.collect(),
            command: self.options.command,
            host: Host::read(),
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            count,
            steps: steps.into_steps(),
            limits: Vec::new(),
            findings: Vec::new(),
        };
        let is_interrupted = count < self.options.count;
        result.findings = findings::all_findings(&result, kernel_clock().ok(), is_interrupted);
        result
    }
}

/// Calls `each` with the number of each slot of a time grid that starts now, until `count` slots
/// are done or `is_over` returns true. Returns the number of slots done.
pub fn run_each_interval(
    interval: Duration,
    count: u64,
    is_over: &dyn Fn() -> bool,
    mut each: impl FnMut(u64),
) -> u64 {
    let grid = TimeGrid { start: ClockMonotonic.now(), interval: interval.into() };
    for slot in 0..count {
        if !sleep_until_unless(grid.instant(slot), is_over) {
            return slot;
        }
        each(slot);
    }
    count
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use horolog_record::{ComparedClockKind, FindingCode};

    use super::reader::OffsetReading;
    use super::*;

    /// A clock that the system clock gains on by 1 ppm, which fails at every tenth reading.
    struct Simulated(i64);

    impl ReadableClock for Simulated {
        fn read(&mut self) -> io::Result<Option<OffsetReading>> {
            self.0 += 1;
            if self.0 % 10 == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let at_ns = self.0 * 1_000_000;
            Ok(Some(OffsetReading { at_ns, offset_ns: 500 + self.0, uncertainty_ns: Some(40) }))
        }
    }

    fn options(clocks: &[&str], count: u64) -> ClockCompareOptions {
        ClockCompareOptions {
            clocks: clocks.iter().map(|name| name.parse().unwrap()).collect(),
            interval: Duration::from_millis(1),
            count,
            command: Vec::new(),
        }
    }

    #[test]
    fn a_device_is_described_by_its_readings() {
        let clocks: Vec<Box<dyn ReadableClock>> = vec![Box::new(Simulated(0))];
        let comparison = ClockCompareRun { options: options(&["/dev/ptp0"], 40), clocks };
        let reported = Cell::new(0);
        let result = comparison.run(&|done| reported.set(done), &|| false);
        let clock = &result.clocks[0];
        assert_eq!(
            (clock.kind, clock.missed, reported.get(), result.count),
            (ComparedClockKind::Phc, 4, 40, 40)
        );
        let (offset, drift) = (clock.offset_ns.unwrap(), clock.drift.unwrap());
        assert_eq!((offset.count, offset.min, offset.max), (36, 501, 539));
        assert!((drift.ppm - 1.0).abs() < 1e-6, "{drift:?}");
        assert!(clock.allan.iter().all(|point| point.deviation < 1e-12), "{:?}", clock.allan);
        assert!(!clock.allan.is_empty() && clock.error_bound_ns.unwrap().max == 40);
        let unread =
            result.findings.iter().find(|finding| finding.code == FindingCode::ClockUnreadable);
        assert!(unread.unwrap().message.contains("/dev/ptp0: 4 of 40"), "{unread:?}");
    }

    #[test]
    fn the_kernels_own_clocks_are_compared() {
        let comparison = ClockCompareRun::open(options(&["raw", "monotonic", "tai"], 20)).unwrap();
        let result = comparison.run(&|_| (), &|| false);
        let offsets = result.clocks.iter().map(|clock| clock.offset_ns.unwrap().count);
        assert_eq!(offsets.collect::<Vec<_>>(), [20; 3]);
        assert_eq!(result.clocks[0].samples[0].offset_ns, 0, "its epoch is its own");
        assert!(result.clocks.iter().all(|clock| clock.drift.is_some()));
    }

    #[test]
    fn an_interrupted_run_returns_its_readings() {
        let comparison = ClockCompareRun::open(options(&["tai"], 1_000)).unwrap();
        let taken = Cell::new(0);
        let result = comparison.run(&|done| taken.set(done), &|| taken.get() == 3);
        assert_eq!((result.count, result.clocks[0].samples.len()), (3, 3));
        assert!(result.findings.iter().any(|finding| finding.code == FindingCode::Interrupted));
    }
}
