//! The served time as PTP counts it, and what is said of the clock: both from the clock page alone.

use std::sync::Arc;

use horolog_io::{HardwareTime, Packet};
use horolog_time::{Monotonic, NS_PER_S, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{Leap, STRATUM_UNSYNCHRONISED};
use horolog_wire::ptp::{Flags, PtpTimestamp};

use crate::Page;
use crate::hardware::{By, Conversions};
use crate::ptp::{ClockState, accuracy};

/// Seconds from the era of NTP to that of PTP, modulo 2^32 (RFC 5905, section 6: 1900; IEEE
/// 1588-2019, clause 7.2.3: 1970).
const PTP_EPOCH_IN_NTP: u32 = 2_208_988_800;
/// A source that was last corrected longer ago is in holdover. Daemons correct the clock every 16 s
/// to 64 s by a reference clock.
const HOLDOVER_AFTER: Span = Span::from_ns(300 * NS_PER_S);
/// A reference clock that may be off by more is none to be ranked among primary ones: a receiver
/// without a pulse tells the second to half of it, and its sentences no frequency at all.
const REFERENCE_OFF_MAX: Span = Span::from_ms(10);
/// A message that has waited longer is not answered: its time of arrival may be another's.
const AGE_MAX: Span = Span::from_ns(NS_PER_S);
/// How far the clock of a card may be off that writes the time into Sync.
const CARD_OFF_MAX: Span = Span::from_ns(1_000);
/// How far a timestamp may seem to lie ahead of now, for the clocks are read one after the other.
const READING_ORDER: Span = Span::from_ns(20_000);

/// Clock classes (IEEE 1588-2019, table 4).
const CLASS_PRIMARY: u8 = 6;
const CLASS_PRIMARY_HOLDOVER: u8 = 7;
const CLASS_APPLICATION: u8 = 13;
const CLASS_DEFAULT: u8 = 248;

/// The accuracy that nobody knows (table 5).
const ACCURACY_UNKNOWN: u8 = 0xfe;

/// Sources of time (table 6).
const SOURCE_GNSS: u8 = 0x20;
const SOURCE_PTP: u8 = 0x40;
const SOURCE_NTP: u8 = 0x50;
const SOURCE_OTHER: u8 = 0x90;
const SOURCE_OSCILLATOR: u8 = 0xa0;

/// What the status calls a source of time.
pub(super) const fn source_name(source: u8) -> &'static str {
    match source {
        SOURCE_GNSS => "gnss",
        SOURCE_PTP => "ptp",
        SOURCE_NTP => "ntp",
        SOURCE_OSCILLATOR => "internal_oscillator",
        _ => "other",
    }
}

/// The stability that nobody has computed (clause 7.6.3.3).
const VARIANCE_UNKNOWN: u16 = 0xffff;

/// What a page says, to a port.
pub(super) struct Served<'a> {
    pub(super) page: &'a Page,
    pub(super) conversions: &'a Arc<Conversions>,
    /// Where the clock class is given.
    pub(super) clock_class: Option<u8>,
}

impl Served<'_> {
    /// The served time at an instant on the scale that [`Served::state`] names; `None` where there
    /// is none.
    pub(super) fn at(&self, instant: Timestamp<Monotonic>) -> Option<PtpTimestamp> {
        ptp_at(self.page, instant)
    }

    /// When a packet that was read by `now` came in or left, and by whose clock that was taken;
    /// `None` where that cannot be.
    pub(super) fn stamp<A>(
        &self,
        packet: &Packet<'_, A>,
        now: Timestamp<Monotonic>,
    ) -> Option<(PtpTimestamp, By)> {
        let (instant, by) = self.conversions.stamp_of(packet, self.page, now)?;
        let age = now - instant;
        let is_believed = age >= -READING_ORDER && age <= AGE_MAX;
        self.at(instant).filter(|_| is_believed).map(|at| (at, by))
    }

    /// Whether the clock of an interface's card shows the served time at `now`, to a microsecond.
    pub(super) fn is_shown_by_card(&self, interface: u32, now: Timestamp<Monotonic>) -> bool {
        let shown = self.at(now).and_then(|served| served.since(PtpTimestamp::ZERO));
        let at = shown.and_then(|ns| self.conversions.monotonic_of(HardwareTime { interface, ns }));
        at.is_some_and(|at| (at - now).as_ns().abs() <= CARD_OFF_MAX.as_ns())
    }

    /// What is said of the clock at `now`.
    pub(super) fn state(&self, now: Timestamp<Monotonic>) -> ClockState {
        let page = self.page.at(now);
        let variables = page.variables;
        let synchronised =
            variables.leap != Leap::Unsynchronised && variables.stratum < STRATUM_UNSYNCHRONISED;
        let (class, time_source) = self.class(now);
        let least = if page.tai_minus_utc_s.is_some() { 0 } else { CLASS_APPLICATION };
        let mut flags = Flags::default();
        let mut utc_offset = 0;
        // Where nobody knows TAI the scale is arbitrary, and nothing is said of UTC by it.
        if let Some(before_step) = page.tai_minus_utc_s {
            let leaping = match variables.leap {
                Leap::Insert => Flags::LEAP_61,
                Leap::Delete => Flags::LEAP_59,
                Leap::None | Leap::Unsynchronised => Flags::default(),
            };
            flags = leaping.with(Flags::PTP_TIMESCALE).with(Flags::UTC_OFFSET_VALID);
            let stepped = now >= page.timebase.step_at;
            utc_offset = before_step - if stepped { (page.timebase.step >> 32) as i16 } else { 0 };
        }
        if time_source != SOURCE_OSCILLATOR && !self.is_rough() {
            flags = flags.with(Flags::TIME_TRACEABLE).with(Flags::FREQUENCY_TRACEABLE);
        }
        // Nobody has said how far a clock is off that runs free.
        let is_bounded = time_source != SOURCE_OSCILLATOR && page.distance > Span::ZERO;
        ClockState {
            clock_class: self.clock_class.map_or(class, |given| given.max(least)),
            accuracy: if is_bounded { accuracy(page.distance_lately) } else { ACCURACY_UNKNOWN },
            variance: VARIANCE_UNKNOWN,
            time_source,
            flags,
            utc_offset,
            usable: synchronised && now < page.timebase.expires,
        }
    }

    /// Whether the time is from a reference clock that tells it only roughly.
    fn is_rough(&self) -> bool {
        self.page.variables.stratum <= 1 && self.page.distance > REFERENCE_OFF_MAX
    }

    /// The class that follows from the source, and what the source is.
    fn class(&self, now: Timestamp<Monotonic>) -> (u8, u8) {
        let variables = self.page.variables;
        let time_source = match (&variables.reference_id, variables.stratum) {
            (b"GPS\0" | b"GNSS" | b"PPS\0" | b"GAL\0" | b"GLON" | b"BDS\0", 1) => SOURCE_GNSS,
            (b"PTP\0" | b"PHC\0", 1) => SOURCE_PTP,
            (b"LOCL" | [127, 127, ..], _) => SOURCE_OSCILLATOR,
            (_, 1) => SOURCE_OTHER,
            _ => SOURCE_NTP,
        };
        if variables.stratum > 1 || time_source == SOURCE_OSCILLATOR || self.is_rough() {
            return (CLASS_DEFAULT, time_source);
        }
        if self.page.tai_minus_utc_s.is_none() {
            return (CLASS_APPLICATION, time_source);
        }
        let corrected = self.page.timebase.ntp_at(now);
        let since = corrected.map(|served| served.since(variables.reference));
        let holds_over = since.is_none_or(|since| since > HOLDOVER_AFTER);
        (if holds_over { CLASS_PRIMARY_HOLDOVER } else { CLASS_PRIMARY }, time_source)
    }
}

/// The time of a page at an instant: TAI where the page knows its offset to UTC, which then has no
/// step at a leap second; UTC where it does not.
#[must_use]
pub fn ptp_at(page: &Page, instant: Timestamp<Monotonic>) -> Option<PtpTimestamp> {
    let served = page.timebase.ntp_at(instant)?;
    let stepped = instant >= page.timebase.step_at && page.tai_minus_utc_s.is_some();
    let unstepped = if stepped { page.timebase.step } else { 0 };
    let bits = served.to_bits().wrapping_add_signed(-unstepped);
    let offset_s = i64::from(page.tai_minus_utc_s.unwrap_or(0));
    Some(to_ptp(NtpTimestamp::from_bits(bits.wrapping_add_signed(offset_s << 32))))
}

/// The same instant in PTP's numbers; of NTP's eras the one from 1970 to 2106.
fn to_ptp(ntp: NtpTimestamp) -> PtpTimestamp {
    let bits = ntp.to_bits();
    let seconds = ((bits >> 32) as u32).wrapping_sub(PTP_EPOCH_IN_NTP);
    let nanoseconds = ((bits & 0xffff_ffff) * NS_PER_S as u64) >> 32;
    PtpTimestamp::new(u64::from(seconds), nanoseconds as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::page;

    const NOW: Timestamp<Monotonic> = Timestamp::from_ns(100_200_000_000);

    fn state(change: impl FnOnce(&mut Page)) -> ClockState {
        let mut page = page();
        page.variables.reference = page.timebase.ntp_at_anchor;
        change(&mut page);
        Served { page: &page, conversions: &Arc::default(), clock_class: None }.state(NOW)
    }

    #[test]
    fn the_time_is_tai_and_goes_on_through_a_leap() {
        let mut page = page();
        let before = ptp_at(&page, NOW).unwrap();
        let utc = page.timebase.ntp_at(NOW).unwrap().to_utc(Timestamp::from_ns(0));
        assert_eq!(i128::from(before.seconds()), i128::from(utc.to_timespec().0) + 37);
        for step in [-1_i64, 1] {
            page.timebase.step_at = NOW - Span::from_ns(7);
            page.timebase.step = step << 32;
            assert_eq!(ptp_at(&page, NOW), Some(before));
        }
        page.tai_minus_utc_s = None;
        let utc = ptp_at(&page, NOW).unwrap();
        assert_eq!(before.since(utc), Some(36 * NS_PER_S), "UTC, with the second deleted");
        assert_eq!(ptp_at(&page, page.timebase.expires), None);
    }

    #[test]
    fn what_is_said_follows_from_the_source() {
        let primary = state(|_| ());
        assert!(primary.usable);
        assert_eq!((primary.clock_class, primary.time_source), (6, SOURCE_GNSS));
        let expected = Flags::PTP_TIMESCALE.with(Flags::UTC_OFFSET_VALID);
        assert!(primary.flags.has(expected.with(Flags::TIME_TRACEABLE)));
        let ntp = state(|page| page.variables.stratum = 2);
        assert_eq!((ntp.clock_class, ntp.time_source), (248, SOURCE_NTP));
        let own = state(|page| page.variables.reference_id = *b"LOCL");
        assert_eq!((own.clock_class, own.time_source), (248, SOURCE_OSCILLATOR));
        assert!(!own.flags.has(Flags::TIME_TRACEABLE));
        let unknown = state(|page| page.tai_minus_utc_s = None);
        assert_eq!((unknown.clock_class, unknown.utc_offset), (13, 0));
        assert!(!unknown.flags.has(Flags::PTP_TIMESCALE));
        let old = |page: &mut Page| {
            let reference = page.variables.reference.wrapping_add(Span::from_ns(-301 * NS_PER_S));
            page.variables.reference = reference;
        };
        assert_eq!(state(old).clock_class, 7);
        assert!(!state(|page| page.variables.leap = Leap::Unsynchronised).usable);
        assert!(!state(|page| page.timebase.expires = NOW).usable);
    }

    #[test]
    fn a_receiver_without_a_pulse_is_no_primary_reference() {
        let at =
            |distance| state(|page| (page.distance, page.distance_lately) = (distance, distance));
        assert_eq!(at(Span::from_ms(10)).clock_class, 6);
        let coarse = at(Span::from_ms(500));
        assert_eq!((coarse.clock_class, coarse.time_source), (248, SOURCE_GNSS));
        assert_eq!(coarse.accuracy, 0x2f, "within a second");
        assert!(!coarse.flags.has(Flags::TIME_TRACEABLE));
        assert!(!coarse.flags.has(Flags::FREQUENCY_TRACEABLE));
        assert!(coarse.flags.has(Flags::PTP_TIMESCALE));
    }

    #[test]
    fn the_offset_changes_with_the_step_and_the_leap_is_announced_before() {
        let leaping = |step_at| {
            state(|page| {
                page.variables.leap = Leap::Insert;
                page.timebase.step_at = step_at;
                page.timebase.step = -1 << 32;
            })
        };
        let before = leaping(NOW + Span::from_ns(1));
        assert_eq!((before.utc_offset, before.flags.has(Flags::LEAP_61)), (37, true));
        let after = leaping(NOW);
        assert_eq!((after.utc_offset, after.flags.has(Flags::LEAP_61)), (38, false));
    }

    #[test]
    fn accuracy_is_that_of_the_distance() {
        let lately = |page: &mut Page| page.distance_lately = Span::from_ns(80);
        let near = |page: &mut Page| {
            lately(page);
            page.distance = Span::from_ns(8);
        };
        assert_eq!(state(near).accuracy, 0x21, "the largest of the last minutes");
        let free = |page: &mut Page| page.variables.reference_id = *b"LOCL";
        assert_eq!(state(free).accuracy, ACCURACY_UNKNOWN);
    }
}
