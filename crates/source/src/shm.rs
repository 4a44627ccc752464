//! Shared memory as a time source, in the layout of ntpd's SHM driver (type 28), which gpsd and
//! other programs fill: one sample at a time, a valid flag, and in mode 1 a count that changes
//! while the sample is written.

use std::sync::atomic::{Ordering, fence};

use horolog_sys::explain::explain;
use horolog_sys::sysv_shared_memory::SysvSharedMemory;
use horolog_time::{Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;

use crate::reference::{ReferenceClock, ReferenceClockSettings, precision_span};
use crate::{ClockReadings, PollableTimeSource, SourceError, SourceEstimate};

/// Size of the segment in 32-bit words: `struct shmTime` with a `time_t` of 64 bits.
pub(crate) const WORDS: usize = 24;
/// Key of unit 0: "NTP0".
pub(crate) const KEY: i32 = 0x4e54_5030;
/// Number of units, from 0, that only root may use.
const PRIVATE_UNITS: u8 = 2;
pub(crate) const MODE: usize = 0;
pub(crate) const COUNT: usize = 1;
pub(crate) const CLOCK_SECONDS: usize = 2;
pub(crate) const CLOCK_MICROSECONDS: usize = 4;
pub(crate) const RECEIVE_SECONDS: usize = 6;
pub(crate) const RECEIVE_MICROSECONDS: usize = 8;
pub(crate) const LEAP: usize = 9;
pub(crate) const PRECISION: usize = 10;
pub(crate) const VALID: usize = 12;
pub(crate) const CLOCK_NANOSECONDS: usize = 13;
pub(crate) const RECEIVE_NANOSECONDS: usize = 14;

/// Returns the access mode of a unit.
pub(crate) const fn permissions(unit: u8) -> u16 {
    if unit < PRIVATE_UNITS { 0o600 } else { 0o666 }
}

/// Sample as stored in the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmSample {
    /// Count of mode 1; if it changes while the sample is read, the sample is torn.
    pub count: u32,
    /// True time of the sample.
    pub true_time: Timestamp<Utc>,
    /// Reading of the system clock at `true_time`.
    pub system: Timestamp<Utc>,
    /// Leap indicator.
    pub leap: LeapIndicator,
    /// log2 of the error bound in seconds.
    pub precision: i32,
}

/// Parses a copy of the segment; `None` if it contains no valid sample.
#[must_use]
pub fn parse_segment(words: &[u32; 24]) -> Option<ShmSample> {
    let long = |at: usize| (u64::from(words[at]) | u64::from(words[at + 1]) << 32).cast_signed();
    let time = |seconds: usize, micros: usize, nanos: usize| {
        let (micros, nanos) = (words[micros], words[nanos]);
        // Writers without nanoseconds leave a value there that does not match the microseconds.
        let nanoseconds =
            if nanos / 1_000 == micros { nanos } else { micros.checked_mul(1_000)? };
        (nanoseconds < 1_000_000_000)
            .then(|| Timestamp::from_timespec(long(seconds), nanoseconds.into()))
    };
    if words[VALID] == 0 || words[MODE] > 1 {
        return None;
    }
    Some(ShmSample {
        count: words[COUNT],
        true_time: time(CLOCK_SECONDS, CLOCK_MICROSECONDS, CLOCK_NANOSECONDS)?,
        system: time(RECEIVE_SECONDS, RECEIVE_MICROSECONDS, RECEIVE_NANOSECONDS)?,
        leap: LeapIndicator::from_bits(words[LEAP] as u8),
        precision: words[PRECISION].cast_signed(),
    })
}

/// Time source that reads shared memory.
pub(crate) struct ShmSource {
    name: String,
    memory: SysvSharedMemory<WORDS>,
    clock: ReferenceClock,
}

impl ShmSource {
    pub(crate) fn open(
        name: String,
        unit: u8,
        claim: ReferenceClockSettings,
    ) -> Result<Self, SourceError> {
        let memory = SysvSharedMemory::attach(KEY + i32::from(unit), permissions(unit)).map_err(
            |error| {
                let why = explain(&error);
                SourceError::Unusable(format!("cannot attach its segment: {why}"))
            },
        )?;
        Ok(Self { name, memory, clock: ReferenceClock::new(claim) })
    }

    /// Reads the sample and marks it as consumed; `None` if there is none or it is torn.
    fn take_sample(&self) -> Option<ShmSample> {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.memory.load(index);
        }
        fence(Ordering::Acquire);
        let sample = parse_segment(&words)?;
        if words[MODE] == 1 && self.memory.load(COUNT) != sample.count {
            return None;
        }
        self.memory.store(VALID, 0);
        Some(sample)
    }
}

impl PollableTimeSource for ShmSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let Some(sample) = self.take_sample() else {
            return Err(SourceError::NoData("no new sample in its segment".into()));
        };
        if sample.leap == LeapIndicator::Unsynchronised {
            return Err(SourceError::Unusable("it reports that it is not synchronised".into()));
        }
        self.clock.set_leap(sample.leap);
        let uncertainty = precision_span(sample.precision);
        self.clock.push_sample(readings, sample.system, sample.true_time, uncertainty);
        report_or_refusal(&mut self.clock, readings)
    }
}

/// Returns the estimate of a clock after new samples, or the reason why they were refused.
pub(crate) fn report_or_refusal(
    clock: &mut ReferenceClock,
    readings: &ClockReadings,
) -> Result<Option<SourceEstimate>, SourceError> {
    match (clock.report(readings), clock.refusal()) {
        (None, Some(why)) => Err(SourceError::NoData(why.into())),
        (report, _) => Ok(report),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::tests::{CLAIM, readings};
    use horolog_time::Span;

    fn words(truth: Timestamp<Utc>, system: Timestamp<Utc>) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        let mut put = |at: usize, micros: usize, nanos: usize, time: Timestamp<Utc>| {
            let (seconds, nanoseconds) = time.to_timespec();
            (words[at], words[at + 1]) = (seconds as u32, (seconds >> 32) as u32);
            (words[micros], words[nanos]) = (nanoseconds / 1_000, nanoseconds);
        };
        put(CLOCK_SECONDS, CLOCK_MICROSECONDS, CLOCK_NANOSECONDS, truth);
        put(RECEIVE_SECONDS, RECEIVE_MICROSECONDS, RECEIVE_NANOSECONDS, system);
        words[PRECISION] = (-20i32).cast_unsigned();
        (words[MODE], words[COUNT], words[VALID]) = (1, 8, 1);
        words
    }

    #[test]
    fn a_segment_by_hand() {
        let (truth, system) =
            (Timestamp::from_ns(1_700_000_000_123_456_789), Timestamp::from_ns(-1));
        let sample = parse_segment(&words(truth, system)).unwrap();
        assert_eq!((sample.true_time, sample.system), (truth, system));
        assert_eq!((sample.count, sample.precision, sample.leap), (8, -20, LeapIndicator::None));
        let coarse = |change: fn(&mut [u32; WORDS])| {
            let mut words = words(truth, system);
            change(&mut words);
            parse_segment(&words)
        };
        let truth_us = Timestamp::from_ns(1_700_000_000_123_456_000);
        assert_eq!(coarse(|words| words[CLOCK_NANOSECONDS] = 0).unwrap().true_time, truth_us);
        assert_eq!(coarse(|words| words[VALID] = 0), None);
        assert_eq!(coarse(|words| words[MODE] = 2), None);
        assert_eq!(coarse(|words| words[CLOCK_MICROSECONDS] = 1_000_000), None);
        assert_eq!(coarse(|words| words[CLOCK_MICROSECONDS] = u32::MAX), None);
    }

    #[test]
    fn a_sample_is_taken_once() {
        let unit = 100 + (std::process::id() % 100) as u8;
        let mut shm = ShmSource::open("shm:0".into(), unit, CLAIM).unwrap();
        let feeder = SysvSharedMemory::<WORDS>::attach(KEY + i32::from(unit), 0o666).unwrap();
        feeder.remove().unwrap();
        assert!(matches!(shm.poll(&readings(900)), Err(SourceError::NoData(_))));
        let now = readings(1_000);
        let feed = words(now.realtime() + Span::from_ms(20), now.realtime());
        feed.iter().enumerate().for_each(|(index, word)| feeder.store(index, *word));
        let report = shm.poll(&now).unwrap().unwrap();
        assert_eq!(report.offset, Span::from_ns(20_000_500));
        assert!(matches!(shm.poll(&readings(2_000)), Err(SourceError::NoData(_))));
        feeder.store(LEAP, 3);
        feeder.store(VALID, 1);
        assert!(matches!(shm.poll(&readings(3_000)), Err(SourceError::Unusable(_))));
    }
}
