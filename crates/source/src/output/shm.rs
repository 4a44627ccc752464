//! Shared memory output in mode 1 of ntpd's SHM driver (type 28): the count changes before and
//! after a sample is written, so that readers detect torn samples.

use std::io;

use horolog_sys::sysv_shared_memory::SysvSharedMemory;
use horolog_time::{Span, Timestamp, Utc};

use super::OutputSample;
use crate::shm::{
    CLOCK_MICROSECONDS, CLOCK_NANOSECONDS, CLOCK_SECONDS, COUNT, KEY, LEAP, MODE, PRECISION,
    RECEIVE_MICROSECONDS, RECEIVE_NANOSECONDS, RECEIVE_SECONDS, VALID, WORDS, permissions,
};

/// Index of the word with the number of samples that the reader averages.
const SAMPLES_WORD: usize = 11;

/// Shared-memory segment of one unit of the SHM driver, to which samples are written.
#[derive(Debug)]
pub struct ShmOutput {
    memory: SysvSharedMemory<WORDS>,
}

impl ShmOutput {
    /// Attaches the unit, creating it if necessary. Only root may use units 0 and 1.
    ///
    /// # Errors
    ///
    /// If the segment belongs to another user, is writable by more users than it should be, or is
    /// shorter than a sample.
    pub fn open(unit: u8) -> io::Result<Self> {
        let memory = SysvSharedMemory::attach_own(KEY + i32::from(unit), permissions(unit))?;
        Ok(Self { memory })
    }

    /// Replaces the previous sample.
    pub fn write(&self, sample: &OutputSample) {
        let memory = &self.memory;
        let count = memory.load(COUNT);
        memory.store(MODE, 1);
        memory.store(VALID, 0);
        memory.store(COUNT, count.wrapping_add(1));
        self.store_time(
            CLOCK_SECONDS,
            CLOCK_MICROSECONDS,
            CLOCK_NANOSECONDS,
            sample.system + sample.offset,
        );
        self.store_time(RECEIVE_SECONDS, RECEIVE_MICROSECONDS, RECEIVE_NANOSECONDS, sample.system);
        memory.store(LEAP, (sample.leap as u8).into());
        memory.store(PRECISION, precision(sample.uncertainty).cast_unsigned());
        memory.store(SAMPLES_WORD, 0);
        memory.store(COUNT, count.wrapping_add(2));
        memory.store(VALID, 1);
    }

    fn store_time(&self, seconds: usize, micros: usize, nanos: usize, time: Timestamp<Utc>) {
        let (whole_seconds, nanoseconds) = time.to_timespec();
        self.memory.store(seconds, whole_seconds as u32);
        self.memory.store(seconds + 1, (whole_seconds >> 32) as u32);
        self.memory.store(micros, nanoseconds / 1_000);
        self.memory.store(nanos, nanoseconds);
    }
}

/// Returns log2 of the maximum error in seconds, rounded up, from -30 to 0.
fn precision(uncertainty: Span) -> i32 {
    let seconds = uncertainty.as_seconds().max(1e-9);
    seconds.log2().ceil().clamp(-30.0, 0.0) as i32
}

#[cfg(test)]
mod tests {
    use horolog_time::NS_PER_S;
    use horolog_wire::ntp::LeapIndicator;

    use super::*;
    use crate::shm::{ShmSample, parse_segment};

    fn unit() -> u8 {
        200 + (std::process::id() % 50) as u8
    }

    fn read(memory: &SysvSharedMemory<WORDS>) -> Option<ShmSample> {
        parse_segment(&std::array::from_fn(|index| memory.load(index)))
    }

    #[test]
    fn what_is_written_is_read_by_the_driver_s_rules() {
        let output = ShmOutput::open(unit()).unwrap();
        let reader =
            SysvSharedMemory::<WORDS>::attach(KEY + i32::from(unit()), permissions(unit()))
                .unwrap();
        reader.remove().unwrap();
        assert_eq!(read(&reader), None);
        let sample = OutputSample {
            system: Timestamp::from_ns(1_700_000_000 * NS_PER_S + 999_999_999),
            offset: Span::from_ns(-1_234_567),
            uncertainty: Span::from_ns(900),
            leap: LeapIndicator::Insert,
        };
        output.write(&sample);
        let first = read(&reader).unwrap();
        assert_eq!((first.true_time, first.system), (sample.system + sample.offset, sample.system));
        assert_eq!((first.leap, first.precision, first.count), (LeapIndicator::Insert, -20, 2));
        output.write(&sample);
        assert_eq!(read(&reader).unwrap().count, 4);
    }

    #[test]
    fn precisions_are_rounded_up_and_bounded() {
        assert_eq!(precision(Span::from_ms(500)), -1);
        assert_eq!(precision(Span::from_ms(501)), 0);
        assert_eq!(precision(Span::ZERO), -29);
        assert_eq!(precision(Span::from_ns(i64::MAX)), 0);
    }
}
