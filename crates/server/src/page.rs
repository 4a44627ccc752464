//! Clock page: all data about the server and its clock in a reply, updated by the clock thread,
//! read by the engines, and expired if not updated. The module contains its value, the trait of its
//! receivers, and the copy in memory that the socket threads read. It reads no clock and decides
//! nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use horolog_time::leap::Timeline;
use horolog_time::{Monotonic, NtpShort, NtpTimestamp, Span, Timebase, Timestamp, Utc};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

/// System variables of every reply (RFC 5905, sections 7.3 and 11.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemVariables {
    /// Leap indicator, before the time base's step.
    pub leap: LeapIndicator,
    /// Stratum, 1 to 15, or 16 when unsynchronised; see [`Self::packet_stratum`].
    pub stratum: u8,
    /// Precision of the clock, log2 of seconds.
    pub precision: i8,
    /// Round-trip delay to the reference clock.
    pub root_delay: NtpShort,
    /// Dispersion to the reference clock.
    pub root_dispersion: NtpShort,
    /// Reference identifier.
    pub reference_id: [u8; 4],
    /// Time of the last setting or correction of the clock; zero if it is not synchronised.
    pub reference: NtpTimestamp,
}

impl SystemVariables {
    /// Returns the stratum as carried in a packet: 0 when unsynchronised (RFC 5905, section 7.3).
    #[must_use]
    pub const fn packet_stratum(&self) -> u8 {
        if self.stratum < STRATUM_UNSYNCHRONISED { self.stratum } else { 0 }
    }
}

/// System variables and the time base that belongs to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockPage {
    /// System variables of the server.
    pub variables: SystemVariables,
    /// Conversion of monotonic instants to NTP time, and its expiry.
    pub timebase: Timebase,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`: converts the kernel's receive timestamps to the
    /// scale from which the time base starts.
    pub realtime_minus_monotonic: Span,
    /// Step that `CLOCK_REALTIME` may or may not have made since that measurement: around a leap
    /// second the exact instant of the kernel's step is unknown. Zero otherwise.
    pub realtime_step: Span,
    /// Leap indicator from the time base's step on.
    pub leap_after: LeapIndicator,
    /// TAI minus UTC before the time base's step, in seconds; `None` if unknown.
    pub tai_minus_utc_s: Option<i16>,
    /// Half the width of the interval of true time according to the source: the value that root
    /// delay and root dispersion express in steps of 15 µs.
    pub distance: Span,
    /// Maximum of this distance in the last one to two minutes: the distance grows until the next
    /// sample of a source and then falls, and rankings of clocks must not oscillate with it.
    pub distance_recent: Span,
}

impl ClockPage {
    /// Returns the monotonic instant of a kernel receive timestamp that was read by `now`.
    ///
    /// If the kernel may have stepped its clock in between, two instants a second apart are
    /// possible, and the later one that is not ahead of `now` is used: it is the true one for every
    /// packet that waited less than a second. For one that waited longer it may be up to a second
    /// late, but never early, so that a client attributes the difference to network delay.
    #[must_use]
    pub fn monotonic_of(
        &self,
        instant: Timestamp<Utc>,
        now: Timestamp<Monotonic>,
    ) -> Timestamp<Monotonic> {
        let read =
            |offset: Span| Timestamp::from_ns(instant.as_ns().saturating_sub(offset.as_ns()));
        let unstepped = read(self.realtime_minus_monotonic);
        let stepped = read(self.realtime_minus_monotonic + self.realtime_step);
        let (early, late) = (unstepped.min(stepped), unstepped.max(stepped));
        if late <= now { late } else { early }
    }

    /// Returns the page to use for a reply made at `now`, with the leap indicator valid then.
    #[must_use]
    pub fn at(mut self, now: Timestamp<Monotonic>) -> Self {
        if now >= self.timebase.step_at {
            self.variables.leap = self.leap_after;
        }
        self
    }

    fn to_words(self) -> [u64; WORDS] {
        let Self { variables, timebase, realtime_minus_monotonic, .. } = self;
        let bytes = [
            variables.leap as u8,
            variables.stratum,
            variables.precision.cast_unsigned(),
            self.leap_after as u8,
            variables.reference_id[0],
            variables.reference_id[1],
            variables.reference_id[2],
            variables.reference_id[3],
        ];
        let root = u64::from(variables.root_delay.to_bits()) << 32;
        [
            u64::from_be_bytes(bytes),
            root | u64::from(variables.root_dispersion.to_bits()),
            variables.reference.to_bits(),
            timebase.anchor.as_ns().cast_unsigned(),
            timebase.ntp_at_anchor.to_bits(),
            u64::from(timebase.rate),
            timebase.expires.as_ns().cast_unsigned(),
            realtime_minus_monotonic.as_ns().cast_unsigned(),
            timebase.step_at.as_ns().cast_unsigned(),
            timebase.step.cast_unsigned(),
            self.realtime_step.as_ns().cast_unsigned(),
            self.tai_minus_utc_s.map_or(TAI_UNKNOWN, |offset| i64::from(offset).cast_unsigned()),
            self.distance.as_ns().cast_unsigned(),
            self.distance_recent.as_ns().cast_unsigned(),
        ]
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let [bytes, root, reference, anchor, ntp_at_anchor, rate, expires, ..] = words;
        let [.., offset, step_at, step, realtime_step, tai, distance, distance_lately] = words;
        let [leap, stratum, precision, leap_after, reference_id @ ..] = bytes.to_be_bytes();
        Self {
            variables: SystemVariables {
                leap: LeapIndicator::from_bits(leap),
                stratum,
                precision: precision.cast_signed(),
                root_delay: NtpShort::from_bits((root >> 32) as u32),
                root_dispersion: NtpShort::from_bits(root as u32),
                reference_id,
                reference: NtpTimestamp::from_bits(reference),
            },
            timebase: Timebase {
                anchor: Timestamp::from_ns(anchor.cast_signed()),
                ntp_at_anchor: NtpTimestamp::from_bits(ntp_at_anchor),
                rate: rate as u32,
                expires: Timestamp::from_ns(expires.cast_signed()),
                step_at: Timestamp::from_ns(step_at.cast_signed()),
                step: step.cast_signed(),
            },
            realtime_minus_monotonic: Span::from_ns(offset.cast_signed()),
            realtime_step: Span::from_ns(realtime_step.cast_signed()),
            leap_after: LeapIndicator::from_bits(leap_after),
            tai_minus_utc_s: (tai != TAI_UNKNOWN).then_some(tai as i16),
            distance: Span::from_ns(distance.cast_signed()),
            distance_recent: Span::from_ns(distance_lately.cast_signed()),
        }
    }
}

/// Pages of both timelines, built from one reading of the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// Page of UTC with its leap seconds.
    pub stepped: ClockPage,
    /// Page of UTC with its leap seconds smeared.
    pub smeared: ClockPage,
}

impl Pages {
    /// Returns the page of one timeline.
    #[must_use]
    pub const fn of(&self, timeline: Timeline) -> &ClockPage {
        match timeline {
            Timeline::Stepped => &self.stepped,
            Timeline::Smeared => &self.smeared,
        }
    }

    fn to_words(self) -> [[u64; WORDS]; 2] {
        Timeline::ALL.map(|timeline| self.of(timeline).to_words())
    }
}

/// Receiver of clock pages, from which it serves time.
pub trait PageSink: Send {
    /// Serves from these pages from now on. An error leaves the previous ones in force, which then
    /// expire; the clock thread counts the error and continues.
    fn publish(&mut self, pages: &Pages) -> io::Result<()>;
}

const WORDS: usize = 14;
/// Placeholder of an unknown offset.
const TAI_UNKNOWN: u64 = 1 << 32;

/// Two slots, each with a page for either timeline, and the number of pages published: page `n` is
/// in slot `n % 2`. The writer only modifies the slot that is not current, so a writer that is
/// stopped in the middle leaves a complete page readable, which a plain sequence lock would not.
#[derive(Debug)]
#[repr(align(128))]
struct PageSlots {
    published: AtomicU64,
    slots: [[[AtomicU64; WORDS]; 2]; 2],
}

/// Creates pages that one thread writes and any number of threads read, without locks. The reader
/// is one of the stepped timeline.
#[must_use]
pub fn shared(first: &Pages) -> (PageWriter, PageReader) {
    let words = first.to_words();
    let slot = || words.map(|page| page.map(AtomicU64::new));
    let shared = Arc::new(PageSlots { published: AtomicU64::new(0), slots: [slot(), slot()] });
    (PageWriter(Arc::clone(&shared)), PageReader { shared, timeline: Timeline::Stepped })
}

/// Writing end of the shared pages; there is only one.
#[derive(Debug)]
pub struct PageWriter(Arc<PageSlots>);

impl PageSink for PageWriter {
    fn publish(&mut self, pages: &Pages) -> io::Result<()> {
        let next = self.0.published.load(Ordering::Relaxed) + 1;
        // A reader that sees a word of page `next` in the slot that it took for page `next - 2`
        // must also see that page `next - 1` is published. This fence and the reader's ensure that.
        fence(Ordering::Release);
        let slot = self.0.slots[next as usize % 2].iter().flatten();
        for (word, value) in slot.zip(pages.to_words().into_iter().flatten()) {
            word.store(value, Ordering::Relaxed);
        }
        self.0.published.store(next, Ordering::Release);
        Ok(())
    }
}

/// Reading end of the shared pages of one timeline.
#[derive(Clone, Debug)]
pub struct PageReader {
    shared: Arc<PageSlots>,
    timeline: Timeline,
}

impl PageReader {
    /// Returns a reader of this timeline.
    #[must_use]
    pub fn of(&self, timeline: Timeline) -> Self {
        Self { shared: Arc::clone(&self.shared), timeline }
    }

    /// Returns the newest page. Retries only if a page was published during the read.
    #[must_use]
    pub fn read(&self) -> ClockPage {
        loop {
            let before = self.shared.published.load(Ordering::Acquire);
            let page = &self.shared.slots[before as usize % 2][self.timeline as usize];
            let words = page.each_ref().map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.shared.published.load(Ordering::Relaxed) == before {
                return ClockPage::from_words(words);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    use horolog_time::{NO_STEP, NOMINAL_RATE};
    use proptest::prelude::*;

    use super::*;

    /// A page of a synchronised stratum 1 server, good from 99 s to 101 s.
    pub(crate) fn page() -> ClockPage {
        ClockPage {
            variables: SystemVariables {
                leap: LeapIndicator::None,
                stratum: 1,
                precision: -25,
                root_delay: NtpShort::from_bits(0x10),
                root_dispersion: NtpShort::from_bits(0x20),
                reference_id: *b"PPS\0",
                reference: NtpTimestamp::from_bits(0xe000_0000_0000_0000),
            },
            timebase: Timebase {
                anchor: Timestamp::from_ns(100_000_000_000),
                ntp_at_anchor: NtpTimestamp::from_bits(0xe000_0000_1000_0000),
                rate: NOMINAL_RATE,
                expires: Timestamp::from_ns(101_000_000_000),
                step_at: NO_STEP,
                step: 0,
            },
            realtime_minus_monotonic: Span::from_ns(1_700_000_000_000_000_000),
            realtime_step: Span::ZERO,
            tai_minus_utc_s: Some(37),
            distance: Span::ZERO,
            distance_recent: Span::ZERO,
            leap_after: LeapIndicator::None,
        }
    }

    /// The same page on both timelines.
    pub(crate) fn both(page: ClockPage) -> Pages {
        Pages { stepped: page, smeared: page }
    }

    /// A page whose every field follows from `n`, so that a mix of two is recognised.
    fn numbered(n: u64) -> ClockPage {
        ClockPage::from_words([
            n << 40 & 0x00ff_ff00_0000_0000 | n & 0xffff_ffff,
            n,
            n,
            n,
            n,
            n & 0xffff_ffff,
            n,
            n,
            n,
            n,
            n,
            n & 0x7fff,
            n,
            n,
        ])
    }

    /// Pages of both timelines that are told apart, too.
    fn pair(n: u64) -> Pages {
        Pages { stepped: numbered(n), smeared: numbered(n + (1 << 20)) }
    }

    #[test]
    fn readers_never_see_a_mix_of_two_pages() {
        let (mut writer, reader) = shared(&pair(0));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = [Timeline::Stepped, Timeline::Smeared, Timeline::Stepped]
                .map(|timeline| {
                    let (reader, stop) = (reader.of(timeline), &stop);
                    scope.spawn(move || {
                        let mut last = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let page = reader.read();
                            let n = page.timebase.anchor.as_ns().cast_unsigned();
                            assert_eq!(page, numbered(n));
                            assert!(n >= last, "a page older than one already seen");
                            last = n;
                        }
                        last
                    })
                })
                .into();
            // Long enough that readers are interrupted in the middle of a read many times over.
            let end = Instant::now() + Duration::from_millis(500);
            let mut n = 0;
            while n % 1_000 != 0 || Instant::now() < end {
                n += 1;
                writer.publish(&pair(n)).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
            assert_eq!(reader.read(), pair(n).stepped);
            assert_eq!(reader.of(Timeline::Smeared).read(), pair(n).smeared);
        });
    }

    #[test]
    fn a_receive_timestamp_is_taken_to_the_monotonic_scale() {
        let page = page();
        let wire = Timestamp::from_ns(1_700_000_100_500_000_000);
        let now = Timestamp::from_ns(100_600_000_000);
        assert_eq!(page.monotonic_of(wire, now), Timestamp::from_ns(100_500_000_000));
    }

    #[test]
    fn a_receive_timestamp_is_right_whether_the_kernel_has_stepped_or_not() {
        let now = Timestamp::from_ns(100_600_000_000);
        for step in [-1_000_000_000, 1_000_000_000] {
            let page = ClockPage { realtime_step: Span::from_ns(step), ..page() };
            for age in [0, 1, 300_000_000, 999_999_999] {
                let received = now - Span::from_ns(age);
                let wire = 1_700_000_000_000_000_000 + received.as_ns();
                for wire in [wire, wire + step] {
                    let wire = Timestamp::from_ns(wire);
                    assert_eq!(page.monotonic_of(wire, now), received, "{step} {age}");
                }
            }
        }
    }

    #[test]
    fn the_leap_indicator_changes_with_the_step() {
        let mut page = page();
        page.variables.leap = LeapIndicator::Insert;
        page.timebase.step_at = Timestamp::from_ns(100_500_000_000);
        assert_eq!(
            page.at(Timestamp::from_ns(100_499_999_999)).variables.leap,
            LeapIndicator::Insert
        );
        assert_eq!(page.at(page.timebase.step_at).variables.leap, LeapIndicator::None);
    }

    proptest! {
        #[test]
        fn a_page_survives_its_words(words: [u64; WORDS]) {
            let page = ClockPage::from_words(words);
            prop_assert_eq!(ClockPage::from_words(page.to_words()), page);
        }
    }
}
