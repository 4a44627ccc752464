//! Served time in the PTP timescale and the PTP clock state, both derived from the clock page
//! alone.

use std::sync::Arc;

use horolog_io::{BatchPacket, HardwareTime};
use horolog_time::{Monotonic, NS_PER_S, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};
use horolog_wire::ptp::{PtpFlags, PtpTimestamp};

use crate::ClockPage;
use crate::hardware::{PhcConversions, TimestampSource};
use crate::ptp::{PtpClockState, accuracy};

/// Seconds from the era of NTP to that of PTP, modulo 2^32 (RFC 5905, section 6: 1900; IEEE
/// 1588-2019, clause 7.2.3: 1970).
const PTP_EPOCH_IN_NTP: u32 = 2_208_988_800;
/// Time since its last correction after which a source is in holdover. Daemons correct the clock
/// every 16 s to 64 s by a reference clock.
const HOLDOVER_AFTER: Span = Span::from_ns(300 * NS_PER_S);
/// Largest error bound of a reference clock ranked among primary ones: a receiver without a pulse
/// determines the second to within half a second, and its sentences provide no frequency.
const REFERENCE_OFF_MAX: Span = Span::from_ms(10);
/// Age from which a message is not answered: its receive time may be that of another.
const AGE_MAX: Span = Span::from_ns(NS_PER_S);
/// Largest error of a PHC that writes the time into Sync.
const PHC_ERROR_MAX: Span = Span::from_ns(1_000);
/// Largest lead of a timestamp over now, because the clocks are read one after the other.
const READING_ORDER: Span = Span::from_ns(20_000);

/// Clock classes (IEEE 1588-2019, table 4).
const CLASS_PRIMARY: u8 = 6;
const CLASS_PRIMARY_HOLDOVER: u8 = 7;
const CLASS_APPLICATION: u8 = 13;
const CLASS_DEFAULT: u8 = 248;

/// Accuracy code for unknown (table 5).
const ACCURACY_UNKNOWN: u8 = 0xfe;

/// Time sources (table 6).
const SOURCE_GNSS: u8 = 0x20;
const SOURCE_PTP: u8 = 0x40;
const SOURCE_NTP: u8 = 0x50;
const SOURCE_OTHER: u8 = 0x90;
const SOURCE_OSCILLATOR: u8 = 0xa0;

/// Returns the name of a time source in the status.
pub(super) const fn source_name(source: u8) -> &'static str {
    match source {
        SOURCE_GNSS => "gnss",
        SOURCE_PTP => "ptp",
        SOURCE_NTP => "ntp",
        SOURCE_OSCILLATOR => "internal_oscillator",
        _ => "other",
    }
}

/// Variance code for not computed (clause 7.6.3.3).
const VARIANCE_UNKNOWN: u16 = 0xffff;

/// Served time of a clock page, for a port.
pub(super) struct ServedTime<'a> {
    pub(super) page: &'a ClockPage,
    pub(super) conversions: &'a Arc<PhcConversions>,
    /// Clock class, if configured.
    pub(super) clock_class: Option<u8>,
}

impl ServedTime<'_> {
    /// Returns the served time at an instant on the timescale that [`ServedTime::state`] states;
    /// `None` if there is none.
    pub(super) fn at(&self, instant: Timestamp<Monotonic>) -> Option<PtpTimestamp> {
        ptp_at(self.page, instant)
    }

    /// Returns the receive or transmit time of a packet read by `now`, and its timestamp source;
    /// `None` if it is implausible.
    pub(super) fn ptp_timestamp<A>(
        &self,
        packet: &BatchPacket<'_, A>,
        now: Timestamp<Monotonic>,
    ) -> Option<(PtpTimestamp, TimestampSource)> {
        let (instant, by) = self.conversions.best_timestamp(packet, self.page, now)?;
        let age = now - instant;
        let is_believed = age >= -READING_ORDER && age <= AGE_MAX;
        self.at(instant).filter(|_| is_believed).map(|at| (at, by))
    }

    /// Returns true if the PHC of an interface shows the served time at `now`, to a microsecond.
    pub(super) fn is_phc_on_served_time(&self, interface: u32, now: Timestamp<Monotonic>) -> bool {
        let shown = self.at(now).and_then(|served| served.since(PtpTimestamp::ZERO));
        let at = shown.and_then(|ns| self.conversions.monotonic_of(HardwareTime { interface, ns }));
        at.is_some_and(|at| (at - now).as_ns().abs() <= PHC_ERROR_MAX.as_ns())
    }

    /// Returns the state of the clock at `now`.
    pub(super) fn state(&self, now: Timestamp<Monotonic>) -> PtpClockState {
        let page = self.page.at(now);
        let variables = page.variables;
        let synchronised = variables.leap != LeapIndicator::Unsynchronised
            && variables.stratum < STRATUM_UNSYNCHRONISED;
        let (class, time_source) = self.class(now);
        let least = if page.tai_minus_utc_s.is_some() { 0 } else { CLASS_APPLICATION };
        let mut flags = PtpFlags::default();
        let mut utc_offset = 0;
        // If TAI is unknown the timescale is arbitrary and implies nothing about UTC.
        if let Some(before_step) = page.tai_minus_utc_s {
            let leaping = match variables.leap {
                LeapIndicator::Insert => PtpFlags::LEAP_61,
                LeapIndicator::Delete => PtpFlags::LEAP_59,
                LeapIndicator::None | LeapIndicator::Unsynchronised => PtpFlags::default(),
            };
            flags = leaping.with(PtpFlags::PTP_TIMESCALE).with(PtpFlags::UTC_OFFSET_VALID);
            let stepped = now >= page.timebase.step_at;
            utc_offset = before_step - if stepped { (page.timebase.step >> 32) as i16 } else { 0 };
        }
        if time_source != SOURCE_OSCILLATOR && !self.is_rough() {
            flags = flags.with(PtpFlags::TIME_TRACEABLE).with(PtpFlags::FREQUENCY_TRACEABLE);
        }
        // The error of a free-running clock is unknown.
        let is_bounded = time_source != SOURCE_OSCILLATOR && page.distance > Span::ZERO;
        PtpClockState {
            clock_class: self.clock_class.map_or(class, |configured| configured.max(least)),
            accuracy: if is_bounded { accuracy(page.distance_recent) } else { ACCURACY_UNKNOWN },
            variance: VARIANCE_UNKNOWN,
            time_source,
            flags,
            utc_offset,
            usable: synchronised && now < page.timebase.expires,
        }
    }

    /// Returns true if the time is from a reference clock of low accuracy.
    fn is_rough(&self) -> bool {
        self.page.variables.stratum <= 1 && self.page.distance > REFERENCE_OFF_MAX
    }

    /// Returns the clock class that follows from the source, and the time source.
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

/// Returns the time of a page at an instant: TAI if the page knows its offset to UTC, which then
/// has no step at a leap second; otherwise UTC.
#[must_use]
pub fn ptp_at(page: &ClockPage, instant: Timestamp<Monotonic>) -> Option<PtpTimestamp> {
    let served = page.timebase.ntp_at(instant)?;
    let stepped = instant >= page.timebase.step_at && page.tai_minus_utc_s.is_some();
    let unstepped = if stepped { page.timebase.step } else { 0 };
    let bits = served.to_bits().wrapping_add_signed(-unstepped);
    let offset_s = i64::from(page.tai_minus_utc_s.unwrap_or(0));
    Some(to_ptp(NtpTimestamp::from_bits(bits.wrapping_add_signed(offset_s << 32))))
}

/// Converts an instant to a PTP timestamp; of NTP's eras the one from 1970 to 2106.
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

    fn state(change: impl FnOnce(&mut ClockPage)) -> PtpClockState {
        let mut page = page();
        page.variables.reference = page.timebase.ntp_at_anchor;
        change(&mut page);
        ServedTime { page: &page, conversions: &Arc::default(), clock_class: None }.state(NOW)
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
    fn the_clock_state_follows_from_the_source() {
        let primary = state(|_| ());
        assert!(primary.usable);
        assert_eq!((primary.clock_class, primary.time_source), (6, SOURCE_GNSS));
        let expected = PtpFlags::PTP_TIMESCALE.with(PtpFlags::UTC_OFFSET_VALID);
        assert!(primary.flags.has(expected.with(PtpFlags::TIME_TRACEABLE)));
        let ntp = state(|page| page.variables.stratum = 2);
        assert_eq!((ntp.clock_class, ntp.time_source), (248, SOURCE_NTP));
        let own = state(|page| page.variables.reference_id = *b"LOCL");
        assert_eq!((own.clock_class, own.time_source), (248, SOURCE_OSCILLATOR));
        assert!(!own.flags.has(PtpFlags::TIME_TRACEABLE));
        let unknown = state(|page| page.tai_minus_utc_s = None);
        assert_eq!((unknown.clock_class, unknown.utc_offset), (13, 0));
        assert!(!unknown.flags.has(PtpFlags::PTP_TIMESCALE));
        let old = |page: &mut ClockPage| {
            let reference = page.variables.reference.wrapping_add(Span::from_ns(-301 * NS_PER_S));
            page.variables.reference = reference;
        };
        assert_eq!(state(old).clock_class, 7);
        assert!(!state(|page| page.variables.leap = LeapIndicator::Unsynchronised).usable);
        assert!(!state(|page| page.timebase.expires = NOW).usable);
    }

    #[test]
    fn a_receiver_without_a_pulse_is_no_primary_reference() {
        let at =
            |distance| state(|page| (page.distance, page.distance_recent) = (distance, distance));
        assert_eq!(at(Span::from_ms(10)).clock_class, 6);
        let coarse = at(Span::from_ms(500));
        assert_eq!((coarse.clock_class, coarse.time_source), (248, SOURCE_GNSS));
        assert_eq!(coarse.accuracy, 0x2f, "within a second");
        assert!(!coarse.flags.has(PtpFlags::TIME_TRACEABLE));
        assert!(!coarse.flags.has(PtpFlags::FREQUENCY_TRACEABLE));
        assert!(coarse.flags.has(PtpFlags::PTP_TIMESCALE));
    }

    #[test]
    fn the_offset_changes_with_the_step_and_the_leap_is_announced_before() {
        let leaping = |step_at| {
            state(|page| {
                page.variables.leap = LeapIndicator::Insert;
                page.timebase.step_at = step_at;
                page.timebase.step = -1 << 32;
            })
        };
        let before = leaping(NOW + Span::from_ns(1));
        assert_eq!((before.utc_offset, before.flags.has(PtpFlags::LEAP_61)), (37, true));
        let after = leaping(NOW);
        assert_eq!((after.utc_offset, after.flags.has(PtpFlags::LEAP_61)), (38, false));
    }

    #[test]
    fn accuracy_is_that_of_the_distance() {
        let lately = |page: &mut ClockPage| page.distance_recent = Span::from_ns(80);
        let near = |page: &mut ClockPage| {
            lately(page);
            page.distance = Span::from_ns(8);
        };
        assert_eq!(state(near).accuracy, 0x21, "the largest of the last minutes");
        let free = |page: &mut ClockPage| page.variables.reference_id = *b"LOCL";
        assert_eq!(state(free).accuracy, ACCURACY_UNKNOWN);
    }
}
