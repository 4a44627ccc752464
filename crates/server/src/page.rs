//! The clock page: everything that a reply says about the server and its clock, renewed by the
//! clock thread, read by whoever answers, expired when it was not renewed. Here stand its value,
//! the trait of those who receive it, and the copy in memory that the socket threads read.
//! It reads no clock and decides nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use horolog_time::{Monotonic, NtpShort, NtpTimestamp, Span, Timebase, Timestamp, Utc};
use horolog_wire::ntp::Leap;

/// What a server says of itself in every reply (RFC 5905, sections 7.3 and 11.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemVariables {
    /// Leap indicator.
    pub leap: Leap,
    /// Stratum, 1 to 15, or 16 when unsynchronised.
    pub stratum: u8,
    /// Precision of the clock, log2 of seconds.
    pub precision: i8,
    /// Round-trip delay to the reference clock.
    pub root_delay: NtpShort,
    /// Dispersion to the reference clock.
    pub root_dispersion: NtpShort,
    /// Reference identifier.
    pub reference_id: [u8; 4],
    /// When the clock was last set or corrected; zero when it is not synchronised.
    pub reference: NtpTimestamp,
}

/// System variables and a time base that belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// What the server says of itself.
    pub variables: SystemVariables,
    /// How monotonic instants become NTP time, and until when.
    pub timebase: Timebase,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`: takes the kernel's receive timestamps to the
    /// scale that the time base starts from.
    pub realtime_minus_monotonic: Span,
}

impl Page {
    /// The monotonic instant of a kernel receive timestamp.
    #[must_use]
    pub fn monotonic_of(&self, instant: Timestamp<Utc>) -> Timestamp<Monotonic> {
        Timestamp::from_ns(instant.as_ns().saturating_sub(self.realtime_minus_monotonic.as_ns()))
    }

    fn to_words(self) -> [u64; WORDS] {
        let Self { variables, timebase, realtime_minus_monotonic } = self;
        let bytes = [
            variables.leap as u8,
            variables.stratum,
            variables.precision.cast_unsigned(),
            0,
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
        ]
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let [bytes, root, reference, anchor, ntp_at_anchor, rate, expires, offset] = words;
        let [leap, stratum, precision, _, reference_id @ ..] = bytes.to_be_bytes();
        Self {
            variables: SystemVariables {
                leap: Leap::from_bits(leap),
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
            },
            realtime_minus_monotonic: Span::from_ns(offset.cast_signed()),
        }
    }
}

/// Somebody who serves time from pages.
pub trait PageSink: Send {
    /// Serve from this page from now on. An error leaves the page before it in force, which then
    /// expires; the clock thread counts the error and goes on.
    fn publish(&mut self, page: &Page) -> io::Result<()>;
}

const WORDS: usize = 8;

/// Two slots and the number of pages published: page `n` stands in slot `n % 2`. The writer only
/// ever touches the slot that is not current, so a writer that is stopped in the middle leaves a
/// whole page readable, which a plain sequence lock would not.
#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    published: AtomicU64,
    slots: [[AtomicU64; WORDS]; 2],
}

/// Makes a page that one thread writes and any number of threads read, without locks.
#[must_use]
pub fn shared(first: &Page) -> (PageWriter, PageReader) {
    let words = first.to_words();
    let slot = || words.map(AtomicU64::new);
    let shared = Arc::new(Shared { published: AtomicU64::new(0), slots: [slot(), slot()] });
    (PageWriter(Arc::clone(&shared)), PageReader(shared))
}

/// The writing end of a shared page; there is only one.
#[derive(Debug)]
pub struct PageWriter(Arc<Shared>);

impl PageSink for PageWriter {
    fn publish(&mut self, page: &Page) -> io::Result<()> {
        let next = self.0.published.load(Ordering::Relaxed) + 1;
        // A reader that sees a word of page `next` in the slot that it took for page `next - 2`
        // must also see that page `next - 1` is out. This fence and the reader's make it so.
        fence(Ordering::Release);
        for (word, value) in self.0.slots[next as usize % 2].iter().zip(page.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.0.published.store(next, Ordering::Release);
        Ok(())
    }
}

/// A reading end of a shared page.
#[derive(Clone, Debug)]
pub struct PageReader(Arc<Shared>);

impl PageReader {
    /// The newest page. Tries again only when a page was published while it was reading.
    #[must_use]
    pub fn read(&self) -> Page {
        loop {
            let before = self.0.published.load(Ordering::Acquire);
            let words =
                self.0.slots[before as usize % 2].each_ref().map(|w| w.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.0.published.load(Ordering::Relaxed) == before {
                return Page::from_words(words);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    use horolog_time::NOMINAL_RATE;
    use proptest::prelude::*;

    use super::*;

    /// A page of a synchronised stratum 1 server, good from 99 s to 101 s.
    pub(crate) fn page() -> Page {
        Page {
            variables: SystemVariables {
                leap: Leap::None,
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
            },
            realtime_minus_monotonic: Span::from_ns(1_700_000_000_000_000_000),
        }
    }

    /// A page whose every field follows from `n`, so that a mix of two is recognised.
    fn numbered(n: u64) -> Page {
        Page::from_words([
            n << 40 & 0x00ff_ff00_0000_0000 | n & 0xffff_ffff,
            n,
            n,
            n,
            n,
            n & 0xffff_ffff,
            n,
            n,
        ])
    }

    #[test]
    fn readers_never_see_a_mix_of_two_pages() {
        let (mut writer, reader) = shared(&numbered(0));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
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
                .collect();
            // Long enough that readers are interrupted in the middle of a read many times over.
            let end = Instant::now() + Duration::from_millis(500);
            let mut n = 0;
            while n % 1_000 != 0 || Instant::now() < end {
                n += 1;
                writer.publish(&numbered(n)).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
            assert_eq!(reader.read(), numbered(n));
        });
    }

    #[test]
    fn a_receive_timestamp_is_taken_to_the_monotonic_scale() {
        let page = page();
        let wire = Timestamp::from_ns(1_700_000_100_500_000_000);
        assert_eq!(page.monotonic_of(wire), Timestamp::from_ns(100_500_000_000));
    }

    proptest! {
        #[test]
        fn a_page_survives_its_words(words: [u64; WORDS]) {
            let page = Page::from_words(words);
            prop_assert_eq!(Page::from_words(page.to_words()), page);
        }
    }
}
