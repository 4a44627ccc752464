//! Compares other clocks of this machine with the system clock: the kernel's own, PTP hardware
//! clocks, pulses. All are read one after the other at each place of a time grid; nothing is set.

mod account;
mod findings;
mod name;
mod reader;

use std::io;
use std::time::Duration;

use horolog_record::{CLOCK_COMPARE_SCHEMA, ClockCompareResult, ClockSample, Host, rfc3339_now};
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use account::{Account, Origin, Steps};
use reader::Readable;

pub use name::{ClockName, ClockNameError};
pub use reader::ClockError;

/// Readings of a clock that are kept at most.
pub const COUNT_MAX: u64 = 1_000_000;
/// A sleep is no longer, so that a run that is to end does.
const NAP: Span = Span::from_ms(100);

/// What to compare, and how.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The clocks.
    pub clocks: Vec<ClockName>,
    /// Time from one reading to the next.
    pub interval: Duration,
    /// Readings of each clock.
    pub count: u64,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// The readings of all clocks at one place, in the order in which they were asked for; `None` where
/// a clock had nothing new.
pub type Readings = Vec<io::Result<Option<ClockSample>>>;

/// Opened clocks.
pub struct Comparison {
    options: CompareOptions,
    clocks: Vec<Box<dyn Readable>>,
}

impl Comparison {
    /// Opens all clocks.
    ///
    /// # Errors
    ///
    /// When one is not there, or is of no use.
    pub fn open(options: CompareOptions) -> Result<Self, ClockError> {
        let clocks = options.clocks.iter().map(reader::open).collect::<Result<_, _>>()?;
        Ok(Self { options, clocks })
    }

    /// The names of the clocks.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.options.clocks.iter().map(|name| name.text.as_str())
    }

    /// Places of the time grid.
    #[must_use]
    pub const fn places(&self) -> u64 {
        self.options.count
    }

    /// Reads all clocks at each place of the time grid and keeps nothing of it, until all readings
    /// are taken or the run is to end. How many places there were.
    pub fn watch(
        &mut self,
        mut tell: impl FnMut(u64, Readings),
        is_over: &dyn Fn() -> bool,
    ) -> u64 {
        let mut origins: Vec<_> =
            self.clocks.iter().map(|clock| Origin::new(clock.has_own_epoch())).collect();
        each_interval(self.options.interval, self.options.count, is_over, |place| {
            let clocks = self.clocks.iter_mut().zip(&mut origins);
            let read = |(clock, origin): (&mut Box<dyn Readable>, &mut Origin)| {
                Ok(clock.read()?.map(|reading| origin.sample(place, reading)))
            };
            tell(place, clocks.map(read).collect());
        })
    }

    /// The same, with what it comes to.
    pub fn run(mut self, progress: &dyn Fn(u64), is_over: &dyn Fn() -> bool) -> ClockCompareResult {
        let started = rfc3339_now();
        let mut accounts: Vec<_> = self.clocks.iter().map(|_| Account::default()).collect();
        let mut steps = Steps::default();
        let tell = |place, readings: Readings| {
            steps.take(place, realtime_minus_monotonic());
            for (account, reading) in accounts.iter_mut().zip(readings) {
                account.take(reading);
            }
            progress(place + 1);
        };
        let count = self.watch(tell, is_over);
        let interval = self.options.interval;
        let clocks = accounts.into_iter().zip(&self.options.clocks).zip(&self.clocks);
        let clocks = clocks.map(|((account, name), clock)| {
            account.result(name, clock.has_own_epoch(), count, interval)
        });
        let mut result = ClockCompareResult {
            schema: CLOCK_COMPARE_SCHEMA.to_owned(),
            started,
            clocks: clocks.collect(),
            command: self.options.command,
            host: Host::read(),
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            count,
            steps: steps.found(),
            limits: Vec::new(),
            findings: Vec::new(),
        };
        let is_interrupted = count < self.options.count;
        result.findings = findings::all(&result, kernel_clock().ok(), is_interrupted);
        result
    }
}

/// Does something at each of so many places of a time grid, the first of which is now, unless the
/// run is to end before. How many places there were.
pub fn each_interval(
    interval: Duration,
    count: u64,
    is_over: &dyn Fn() -> bool,
    mut each: impl FnMut(u64),
) -> u64 {
    let interval = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
    let begun = MonotonicClock.now();
    for place in 0..count {
        let elapsed = interval.saturating_mul(i64::try_from(place).unwrap_or(i64::MAX));
        if !sleep_unless(begun + Span::from_ns(elapsed), is_over) {
            return place;
        }
        each(place);
    }
    count
}

/// Sleeps until then; false where the run is to end first.
fn sleep_unless(due: Timestamp<Monotonic>, is_over: &dyn Fn() -> bool) -> bool {
    loop {
        if is_over() {
            return false;
        }
        let now = MonotonicClock.now();
        if now >= due {
            return true;
        }
        sleep_until(due.min(now + NAP));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use horolog_record::{Code, ComparedKind};

    use super::reader::Reading;
    use super::*;

    /// A clock that the system clock gains on by 1 ppm, which fails at every tenth reading.
    struct Simulated(i64);

    impl Readable for Simulated {
        fn read(&mut self) -> io::Result<Option<Reading>> {
            self.0 += 1;
            if self.0 % 10 == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let at_ns = self.0 * 1_000_000;
            Ok(Some(Reading { at_ns, offset_ns: 500 + self.0, doubt_ns: Some(40) }))
        }
    }

    fn options(clocks: &[&str], count: u64) -> CompareOptions {
        CompareOptions {
            clocks: clocks.iter().map(|name| name.parse().unwrap()).collect(),
            interval: Duration::from_millis(1),
            count,
            command: Vec::new(),
        }
    }

    #[test]
    fn a_device_is_described_by_its_readings() {
        let clocks: Vec<Box<dyn Readable>> = vec![Box::new(Simulated(0))];
        let comparison = Comparison { options: options(&["/dev/ptp0"], 40), clocks };
        let told = Cell::new(0);
        let result = comparison.run(&|done| told.set(done), &|| false);
        let clock = &result.clocks[0];
        assert_eq!(
            (clock.kind, clock.missed, told.get(), result.count),
            (ComparedKind::Phc, 4, 40, 40)
        );
        let (offset, drift) = (clock.offset_ns.unwrap(), clock.drift.unwrap());
        assert_eq!((offset.count, offset.min, offset.max), (36, 501, 539));
        assert!((drift.ppm - 1.0).abs() < 1e-6, "{drift:?}");
        assert!(clock.allan.iter().all(|point| point.deviation < 1e-12), "{:?}", clock.allan);
        assert!(!clock.allan.is_empty() && clock.doubt_ns.unwrap().max == 40);
        let unread = result.findings.iter().find(|finding| finding.code == Code::ClockUnread);
        assert!(unread.unwrap().message.contains("/dev/ptp0: 4 of 40"), "{unread:?}");
    }

    #[test]
    fn the_kernels_own_clocks_are_compared() {
        let comparison = Comparison::open(options(&["raw", "monotonic", "tai"], 20)).unwrap();
        let result = comparison.run(&|_| (), &|| false);
        let offsets = result.clocks.iter().map(|clock| clock.offset_ns.unwrap().count);
        assert_eq!(offsets.collect::<Vec<_>>(), [20; 3]);
        assert_eq!(result.clocks[0].samples[0].offset_ns, 0, "its epoch is its own");
        assert!(result.clocks.iter().all(|clock| clock.drift.is_some()));
    }

    #[test]
    fn a_run_that_is_ended_tells_what_it_has() {
        let comparison = Comparison::open(options(&["tai"], 1_000)).unwrap();
        let taken = Cell::new(0);
        let result = comparison.run(&|done| taken.set(done), &|| taken.get() == 3);
        assert_eq!((result.count, result.clocks[0].samples.len()), (3, 3));
        assert!(result.findings.iter().any(|finding| finding.code == Code::Interrupted));
    }
}
