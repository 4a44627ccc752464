//! Time and state of the PTP clock, both derived from the clock page alone.

use std::sync::Arc;

use horolog_io::{BatchPacket, HardwareTimestamp, PacketTimestampSource, PhcConversions};
use horolog_source::ClockPage;
use horolog_time::{Monotonic, NS_PER_S, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};
use horolog_wire::ptp::{PtpFlags, PtpTimestamp};

use crate::clock_state::{PtpClockProperties, accuracy};

/// Seconds from the epoch of NTP to that of PTP, modulo 2^32 (RFC 5905, section 6: 1900; IEEE
/// 1588-2019, clause 7.2.3: 1970).
const PTP_EPOCH_IN_NTP: u32 = 2_208_988_800;
/// Time since the last update of the clock after which the clock is in holdover. Daemons correct
/// the clock by a reference clock every 16 s to 64 s.
const HOLDOVER_AFTER: Span = Span::from_ns(300 * NS_PER_S);
/// Largest error bound with which a clock gets a primary clock class. A receiver without a pulse is
/// worse: it determines the time to within half a second, and provides no frequency.
const PRIMARY_ERROR_MAX: Span = Span::from_ms(10);
/// Largest age of a receive or transmit timestamp; an older one may be wrong.
const AGE_MAX: Span = Span::from_ns(NS_PER_S);
/// Largest offset of a PHC from the served time at which one-step Sync messages are sent.
const PHC_ERROR_MAX: Span = Span::from_ns(1_000);
/// Largest lead of a timestamp over the present time, which occurs because the clocks are read one
/// after the other.
const CLOCK_READ_SKEW: Span = Span::from_ns(20_000);

/// Clock classes (IEEE 1588-2019, table 4), here and below: primary reference, its holdover,
/// application-specific, and default.
const CLASS_PRIMARY: u8 = 6;
const CLASS_PRIMARY_HOLDOVER: u8 = 7;
const CLASS_APPLICATION: u8 = 13;
const CLASS_DEFAULT: u8 = 248;

/// Clock accuracy code for "unknown" (IEEE 1588-2019, table 5).
const ACCURACY_UNKNOWN: u8 = 0xfe;

/// Time source codes (IEEE 1588-2019, table 6), here and below.
const SOURCE_GNSS: u8 = 0x20;
const SOURCE_PTP: u8 = 0x40;
const SOURCE_NTP: u8 = 0x50;
const SOURCE_OTHER: u8 = 0x90;
const SOURCE_OSCILLATOR: u8 = 0xa0;

/// Returns the name of a time source code for the status.
pub(super) const fn source_name(source: u8) -> &'static str {
    match source {
        SOURCE_GNSS => "gnss",
        SOURCE_PTP => "ptp",
        SOURCE_NTP => "ntp",
        SOURCE_OSCILLATOR => "internal_oscillator",
        _ => "other",
    }
}

/// Variance code for "not computed" (IEEE 1588-2019, clause 7.6.3.3).
const VARIANCE_UNKNOWN: u16 = 0xffff;

/// Served time of a PTP port: a clock page, and what its conversion to PTP needs.
pub(super) struct ServedTime<'a> {
    pub(super) page: &'a ClockPage,
    pub(super) conversions: &'a Arc<PhcConversions>,
    /// Configured clock class, if any.
    pub(super) clock_class: Option<u8>,
}

impl ServedTime<'_> {
    /// Returns the PTP time at an instant, on the timescale stated by [`ServedTime::clock_state`];
    /// `None` if the page has expired.
    pub(super) fn ptp_time_at(&self, instant: Timestamp<Monotonic>) -> Option<PtpTimestamp> {
        ptp_time_of_page(self.page, instant)
    }

    /// Returns the receive or transmit time of a packet that was read by `now`, and its source;
    /// `None` if it is unknown or implausible.
    pub(super) fn ptp_timestamp<A>(
        &self,
        packet: &BatchPacket<'_, A>,
        now: Timestamp<Monotonic>,
    ) -> Option<(PtpTimestamp, PacketTimestampSource)> {
        let (instant, by) = self
            .conversions
            .best_timestamp(packet, |instant| self.page.monotonic_of(instant, now))?;
        let age = now - instant;
        let is_plausible = age >= -CLOCK_READ_SKEW && age <= AGE_MAX;
        self.ptp_time_at(instant).filter(|_| is_plausible).map(|at| (at, by))
    }

    /// Returns true if the PHC of an interface is within [`PHC_ERROR_MAX`] of the served time at
    /// `now`.
    pub(super) fn is_phc_on_served_time(&self, interface: u32, now: Timestamp<Monotonic>) -> bool {
        let shown = self.ptp_time_at(now).and_then(|served| served.ns_since(PtpTimestamp::ZERO));
        let at =
            shown.and_then(|ns| self.conversions.monotonic_of(HardwareTimestamp { interface, ns }));
        at.is_some_and(|at| (at - now).as_ns().abs() <= PHC_ERROR_MAX.as_ns())
    }

    /// Returns the PTP data of the clock at `now`.
    pub(super) fn clock_state(&self, now: Timestamp<Monotonic>) -> PtpClockProperties {
        let page = self.page.for_reply_at(now);
        let variables = page.variables;
        let synchronised = variables.leap != LeapIndicator::Unsynchronised
            && variables.stratum < STRATUM_UNSYNCHRONISED;
        let (class, time_source) = self.class_and_source(now);
        let least = if page.tai_minus_utc_s.is_some() { 0 } else { CLASS_APPLICATION };
        let mut flags = PtpFlags::default();
        let mut utc_offset = 0;
        // Without TAI the timescale is arbitrary, and its offset to UTC is undefined.
        if let Some(before_step) = page.tai_minus_utc_s {
            let leaping = match variables.leap {
                LeapIndicator::Insert => PtpFlags::LEAP_61,
                LeapIndicator::Delete => PtpFlags::LEAP_59,
                LeapIndicator::None | LeapIndicator::Unsynchronised => PtpFlags::default(),
            };
            flags = leaping.union(PtpFlags::PTP_TIMESCALE).union(PtpFlags::UTC_OFFSET_VALID);
            let stepped = now >= page.timebase.step_at;
            utc_offset = before_step - if stepped { (page.timebase.step >> 32) as i16 } else { 0 };
        }
        if time_source != SOURCE_OSCILLATOR && !self.has_low_accuracy() {
            flags = flags.union(PtpFlags::TIME_TRACEABLE).union(PtpFlags::FREQUENCY_TRACEABLE);
        }
        // The error bound of a free-running clock is unknown.
        let is_bounded = time_source != SOURCE_OSCILLATOR && page.root_distance > Span::ZERO;
        PtpClockProperties {
            clock_class: self.clock_class.map_or(class, |configured| configured.max(least)),
            accuracy: if is_bounded {
                accuracy(page.root_distance_recent_max)
            } else {
                ACCURACY_UNKNOWN
            },
            variance: VARIANCE_UNKNOWN,
            time_source,
            flags,
            utc_offset,
            usable: synchronised && now < page.timebase.expires,
        }
    }

    /// Returns true if the clock is at stratum 1, but its error bound exceeds that of primary
    /// clocks.
    fn has_low_accuracy(&self) -> bool {
        self.page.variables.stratum <= 1 && self.page.root_distance > PRIMARY_ERROR_MAX
    }

    /// Returns the clock class and the time source code that follow from the reference identifier,
    /// stratum and error bound of the page.
    fn class_and_source(&self, now: Timestamp<Monotonic>) -> (u8, u8) {
        let variables = self.page.variables;
        let time_source = match (&variables.reference_id, variables.stratum) {
            (b"GPS\0" | b"GNSS" | b"PPS\0" | b"GAL\0" | b"GLON" | b"BDS\0", 1) => SOURCE_GNSS,
            (b"PTP\0" | b"PHC\0", 1) => SOURCE_PTP,
            (b"LOCL" | [127, 127, ..], _) => SOURCE_OSCILLATOR,
            (_, 1) => SOURCE_OTHER,
            _ => SOURCE_NTP,
        };
        if variables.stratum > 1 || time_source == SOURCE_OSCILLATOR || self.has_low_accuracy() {
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

/// Returns the PTP time of a page at an instant; `None` if the page has expired. It is TAI, without
/// a step at leap seconds, if the page has TAI minus UTC; otherwise UTC.
#[must_use]
pub fn ptp_time_of_page(page: &ClockPage, instant: Timestamp<Monotonic>) -> Option<PtpTimestamp> {
    let served = page.timebase.ntp_at(instant)?;
    let stepped = instant >= page.timebase.step_at && page.tai_minus_utc_s.is_some();
    let unstepped = if stepped { page.timebase.step } else { 0 };
    let bits = served.to_bits().wrapping_add_signed(-unstepped);
    let offset_s = i64::from(page.tai_minus_utc_s.unwrap_or(0));
    Some(to_ptp(NtpTimestamp::from_bits(bits.wrapping_add_signed(offset_s << 32))))
}

/// Converts an NTP timestamp of the years 1970 to 2106 to PTP seconds and nanoseconds.
fn to_ptp(ntp: NtpTimestamp) -> PtpTimestamp {
    let bits = ntp.to_bits();
    let seconds = ((bits >> 32) as u32).wrapping_sub(PTP_EPOCH_IN_NTP);
    let nanoseconds = ((bits & 0xffff_ffff) * NS_PER_S as u64) >> 32;
    PtpTimestamp::new(u64::from(seconds), nanoseconds as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp<Monotonic> = Timestamp::from_ns(100_200_000_000);

    fn state(change: impl FnOnce(&mut ClockPage)) -> PtpClockProperties {
        let mut page = ClockPage::SAMPLE;
        page.variables.reference = page.timebase.ntp_at_anchor;
        change(&mut page);
        ServedTime { page: &page, conversions: &Arc::default(), clock_class: None }.clock_state(NOW)
    }

    #[test]
    fn the_time_is_tai_and_goes_on_through_a_leap() {
        let mut page = ClockPage::SAMPLE;
        let before = ptp_time_of_page(&page, NOW).unwrap();
        let utc = page.timebase.ntp_at(NOW).unwrap().to_utc(Timestamp::from_ns(0));
        assert_eq!(i128::from(before.seconds()), i128::from(utc.to_timespec().0) + 37);
        for step in [-1_i64, 1] {
            page.timebase.step_at = NOW - Span::from_ns(7);
            page.timebase.step = step << 32;
            assert_eq!(ptp_time_of_page(&page, NOW), Some(before));
        }
        page.tai_minus_utc_s = None;
        let utc = ptp_time_of_page(&page, NOW).unwrap();
        assert_eq!(before.ns_since(utc), Some(36 * NS_PER_S), "UTC, with the second deleted");
        assert_eq!(ptp_time_of_page(&page, page.timebase.expires), None);
    }

    #[test]
    fn the_clock_state_follows_from_the_source() {
        let primary = state(|_| ());
        assert!(primary.usable);
        assert_eq!((primary.clock_class, primary.time_source), (6, SOURCE_GNSS));
        let expected = PtpFlags::PTP_TIMESCALE.union(PtpFlags::UTC_OFFSET_VALID);
        assert!(primary.flags.contains(expected.union(PtpFlags::TIME_TRACEABLE)));
        let ntp = state(|page| page.variables.stratum = 2);
        assert_eq!((ntp.clock_class, ntp.time_source), (248, SOURCE_NTP));
        let own = state(|page| page.variables.reference_id = *b"LOCL");
        assert_eq!((own.clock_class, own.time_source), (248, SOURCE_OSCILLATOR));
        assert!(!own.flags.contains(PtpFlags::TIME_TRACEABLE));
        let unknown = state(|page| page.tai_minus_utc_s = None);
        assert_eq!((unknown.clock_class, unknown.utc_offset), (13, 0));
        assert!(!unknown.flags.contains(PtpFlags::PTP_TIMESCALE));
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
        let at = |distance| {
            state(|page| (page.root_distance, page.root_distance_recent_max) = (distance, distance))
        };
        assert_eq!(at(Span::from_ms(10)).clock_class, 6);
        let coarse = at(Span::from_ms(500));
        assert_eq!((coarse.clock_class, coarse.time_source), (248, SOURCE_GNSS));
        assert_eq!(coarse.accuracy, 0x2f, "within a second");
        assert!(!coarse.flags.contains(PtpFlags::TIME_TRACEABLE));
        assert!(!coarse.flags.contains(PtpFlags::FREQUENCY_TRACEABLE));
        assert!(coarse.flags.contains(PtpFlags::PTP_TIMESCALE));
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
        assert_eq!((before.utc_offset, before.flags.contains(PtpFlags::LEAP_61)), (37, true));
        let after = leaping(NOW);
        assert_eq!((after.utc_offset, after.flags.contains(PtpFlags::LEAP_61)), (38, false));
    }

    #[test]
    fn accuracy_is_that_of_the_distance() {
        let lately = |page: &mut ClockPage| page.root_distance_recent_max = Span::from_ns(80);
        let near = |page: &mut ClockPage| {
            lately(page);
            page.root_distance = Span::from_ns(8);
        };
        assert_eq!(state(near).accuracy, 0x21, "the largest of the last minutes");
        let free = |page: &mut ClockPage| page.variables.reference_id = *b"LOCL";
        assert_eq!(state(free).accuracy, ACCURACY_UNKNOWN);
    }
}
