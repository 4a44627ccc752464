//! Clock page: the system variables and the time base from which replies are made. The clock thread
//! updates it, the engines read it, and without updates it expires. This module contains the page,
//! the trait of its sinks, and the shared copy that the socket threads read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use horolog_time::leap::LeapSecondRepresentation;
use horolog_time::{
    Monotonic, NO_STEP, NOMINAL_RATE, NtpShort, NtpTimestamp, Span, Timebase, Timestamp, Utc,
};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

/// System variables of every reply (RFC 5905, sections 7.3 and 11.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemVariables {
    /// Leap indicator before the leap-second step of the time base; see [`ClockPage::leap_after`].
    pub leap: LeapIndicator,
    /// Stratum: 1 to 15, or 16 if unsynchronised; see [`Self::packet_stratum`].
    pub stratum: u8,
    /// Precision of the clock, in log2 seconds.
    pub precision: i8,
    /// Round-trip delay to the reference clock.
    pub root_delay: NtpShort,
    /// Dispersion to the reference clock.
    pub root_dispersion: NtpShort,
    /// Reference identifier.
    pub reference_id: [u8; 4],
    /// Reference timestamp: time of the last update of the clock; zero if it is not synchronised.
    pub reference: NtpTimestamp,
}

impl SystemVariables {
    /// Returns the stratum for a packet: 0 if unsynchronised (RFC 5905, section 7.3).
    #[must_use]
    #[inline]
    pub const fn packet_stratum(&self) -> u8 {
        if self.stratum < STRATUM_UNSYNCHRONISED { self.stratum } else { 0 }
    }
}

/// Clock page: system variables and the time base to which they apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockPage {
    /// System variables of the server.
    pub variables: SystemVariables,
    /// Time base: NTP time as a function of monotonic time, with its expiry.
    pub timebase: Timebase,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, by which the kernel's receive timestamps are
    /// converted to monotonic time.
    pub realtime_minus_monotonic: Span,
    /// Step that `CLOCK_REALTIME` may have made since this page was built, because the instant of
    /// the kernel's leap-second step is not known exactly. Zero outside a leap transition.
    pub realtime_step: Span,
    /// Leap indicator that applies after the leap-second step of the time base.
    pub leap_after: LeapIndicator,
    /// TAI minus UTC before the leap-second step of the time base, in seconds; `None` if unknown.
    pub tai_minus_utc_s: Option<i16>,
    /// Root distance of the served time: the error bound that root delay and root dispersion
    /// express in steps of 15 µs.
    pub root_distance: Span,
    /// Maximum of the root distance over the last one to two minutes. The distance grows until the
    /// next sample of a source and then falls; a ranking of clocks by it must not oscillate.
    pub root_distance_recent_max: Span,
}

impl ClockPage {
    /// Page of a synchronised server of stratum 1, valid until the monotonic clock shows 101 s, for
    /// tests.
    pub const SAMPLE: Self = Self {
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
        root_distance: Span::ZERO,
        root_distance_recent_max: Span::ZERO,
        leap_after: LeapIndicator::None,
    };

    /// Converts a kernel receive timestamp that was read by `now` to monotonic time.
    ///
    /// If the kernel may have stepped its clock in between, two instants a second apart are
    /// possible. The later one is returned unless it is ahead of `now`. It is correct for a packet
    /// that waited less than a second; for any other it may be a second late but never early, so
    /// that a client sees network delay instead.
    #[must_use]
    #[inline]
    pub fn monotonic_of(
        &self,
        instant: Timestamp<Utc>,
        now: Timestamp<Monotonic>,
    ) -> Timestamp<Monotonic> {
        let to_monotonic =
            |offset: Span| Timestamp::from_ns(instant.as_ns().saturating_sub(offset.as_ns()));
        let unstepped = to_monotonic(self.realtime_minus_monotonic);
        let stepped = to_monotonic(self.realtime_minus_monotonic + self.realtime_step);
        let (early, late) = (unstepped.min(stepped), unstepped.max(stepped));
        if late <= now { late } else { early }
    }

    /// Returns the page for a reply at `now`, with the leap indicator that applies then.
    #[must_use]
    #[inline]
    pub fn for_reply_at(mut self, now: Timestamp<Monotonic>) -> Self {
        if now >= self.timebase.step_at {
            self.variables.leap = self.leap_after;
        }
        self
    }

    fn to_words(self) -> [u64; PAGE_WORDS] {
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
            self.root_distance.as_ns().cast_unsigned(),
            self.root_distance_recent_max.as_ns().cast_unsigned(),
        ]
    }

    fn from_words(words: [u64; PAGE_WORDS]) -> Self {
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
            root_distance: Span::from_ns(distance.cast_signed()),
            root_distance_recent_max: Span::from_ns(distance_lately.cast_signed()),
        }
    }
}

/// Clock pages of both timelines, built from the same reading of the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockPages {
    /// Page of UTC with steps at leap seconds.
    pub stepped: ClockPage,
    /// Page of UTC with smeared leap seconds.
    pub smeared: ClockPage,
}

impl ClockPages {
    /// Returns the page of a timeline.
    #[must_use]
    pub const fn page(&self, timeline: LeapSecondRepresentation) -> &ClockPage {
        match timeline {
            LeapSecondRepresentation::Stepped => &self.stepped,
            LeapSecondRepresentation::Smeared => &self.smeared,
        }
    }

    fn to_words(self) -> [[u64; PAGE_WORDS]; 2] {
        LeapSecondRepresentation::ALL.map(|timeline| self.page(timeline).to_words())
    }
}

/// Sink of clock pages: an engine that serves time from them, or a task that runs at each update.
pub trait ClockPageSink: Send {
    /// Replaces the previous pages. After an error these may stay in force until they expire; the
    /// clock thread counts the error and continues.
    fn publish(&mut self, pages: &ClockPages) -> io::Result<()>;
}

const PAGE_WORDS: usize = 14;
/// Value for an unknown TAI minus UTC.
const TAI_UNKNOWN: u64 = 1 << 32;

/// Two slots of pages, and the number of publications, of which number `n` is in slot `n % 2`. The
/// writer changes only the slot that is not current, so that a writer stopped half-way leaves
/// complete pages to readers, unlike a plain sequence lock.
#[derive(Debug)]
#[repr(align(128))]
struct ClockPageSlots {
    published: AtomicU64,
    slots: [[[AtomicU64; PAGE_WORDS]; 2]; 2],
}

/// Creates shared pages, written by one thread and read by any number of threads without locks.
/// Returns the only writer, and a reader of the stepped timeline.
#[must_use]
pub fn shared_pages(first: &ClockPages) -> (ClockPageWriter, ClockPageReader) {
    let words = first.to_words();
    let slot = || words.map(|page| page.map(AtomicU64::new));
    let shared = Arc::new(ClockPageSlots { published: AtomicU64::new(0), slots: [slot(), slot()] });
    (
        ClockPageWriter(Arc::clone(&shared)),
        ClockPageReader { shared, timeline: LeapSecondRepresentation::Stepped },
    )
}

/// Only writer of the pages that [`shared_pages`] creates.
#[derive(Debug)]
pub struct ClockPageWriter(Arc<ClockPageSlots>);

impl ClockPageSink for ClockPageWriter {
    fn publish(&mut self, pages: &ClockPages) -> io::Result<()> {
        let next = self.0.published.load(Ordering::Relaxed) + 1;
        // A reader that finds a word of publication `next` in the slot of publication `next - 2`
        // must also find that `next - 1` was published, and so retry. This fence and the reader's
        // ensure that.
        fence(Ordering::Release);
        let slot = self.0.slots[next as usize % 2].iter().flatten();
        for (word, value) in slot.zip(pages.to_words().into_iter().flatten()) {
            word.store(value, Ordering::Relaxed);
        }
        self.0.published.store(next, Ordering::Release);
        Ok(())
    }
}

/// Reader of the shared pages of one timeline.
#[derive(Clone, Debug)]
pub struct ClockPageReader {
    shared: Arc<ClockPageSlots>,
    timeline: LeapSecondRepresentation,
}

impl ClockPageReader {
    /// Returns a reader of the same pages for this timeline.
    #[must_use]
    #[inline]
    pub fn with_timeline(&self, timeline: LeapSecondRepresentation) -> Self {
        Self { shared: Arc::clone(&self.shared), timeline }
    }

    /// Returns the current page. It retries only if pages are published during the read.
    #[must_use]
    #[inline]
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
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

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
    fn pair(n: u64) -> ClockPages {
        ClockPages { stepped: numbered(n), smeared: numbered(n + (1 << 20)) }
    }

    #[test]
    fn readers_never_see_a_mix_of_two_pages() {
        let (mut writer, reader) = shared_pages(&pair(0));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = [
                LeapSecondRepresentation::Stepped,
                LeapSecondRepresentation::Smeared,
                LeapSecondRepresentation::Stepped,
            ]
            .map(|timeline| {
                let (reader, stop) = (reader.with_timeline(timeline), &stop);
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
            assert_eq!(
                reader.with_timeline(LeapSecondRepresentation::Smeared).read(),
                pair(n).smeared
            );
        });
    }

    #[test]
    fn a_receive_timestamp_is_taken_to_the_monotonic_scale() {
        let page = ClockPage::SAMPLE;
        let wire = Timestamp::from_ns(1_700_000_100_500_000_000);
        let now = Timestamp::from_ns(100_600_000_000);
        assert_eq!(page.monotonic_of(wire, now), Timestamp::from_ns(100_500_000_000));
    }

    #[test]
    fn a_receive_timestamp_is_right_whether_the_kernel_has_stepped_or_not() {
        let now = Timestamp::from_ns(100_600_000_000);
        for step in [-1_000_000_000, 1_000_000_000] {
            let page = ClockPage { realtime_step: Span::from_ns(step), ..ClockPage::SAMPLE };
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
        let mut page = ClockPage::SAMPLE;
        page.variables.leap = LeapIndicator::Insert;
        page.timebase.step_at = Timestamp::from_ns(100_500_000_000);
        assert_eq!(
            page.for_reply_at(Timestamp::from_ns(100_499_999_999)).variables.leap,
            LeapIndicator::Insert
        );
        assert_eq!(page.for_reply_at(page.timebase.step_at).variables.leap, LeapIndicator::None);
    }

    proptest! {
        #[test]
        fn a_page_survives_its_words(words: [u64; PAGE_WORDS]) {
            let page = ClockPage::from_words(words);
            prop_assert_eq!(ClockPage::from_words(page.to_words()), page);
        }
    }
}
