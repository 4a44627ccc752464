//! Next leap second according to the published list and the kernel, and the agreement of the two.
//! The caller issues warnings.

use super::{LeapList, LeapListValidity, LeapSecond, NS_PER_DAY};
use crate::{NS_PER_S, Span, Timestamp, Utc};

/// Time before a leap second from which it is announced. RFC 5905 (section 7.3) would allow the
/// whole month; a day is what the kernel's flag and the formats of reference clocks mean, and long
/// enough for a client that polls several servers at least every 36 hours.
pub const ANNOUNCEMENT_LEAD: Span = Span::from_ns(NS_PER_DAY);
/// Time before a leap second by which the kernel of a disciplined clock should have it pending.
const KERNEL_LEAD: Span = Span::from_ns(3_600 * NS_PER_S);

/// Sources of information about leap seconds.
#[derive(Clone, Copy, Debug)]
pub struct LeapSources<'a> {
    /// Published list, if there is one.
    pub list: Option<&'a LeapList>,
    /// Leap second that the kernel has pending.
    pub kernel: Option<LeapSecond>,
    /// True if the kernel's clock is disciplined, so that it should have the leap second pending.
    pub kernel_should_know: bool,
}

/// Contradiction between list and kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeapDisagreement {
    /// Leap second pending in the kernel that is not the next one of a list that has not expired.
    KernelOnly(LeapSecond),
    /// Leap second of the list within the next hour that the kernel of a disciplined clock does not
    /// have pending.
    ListOnly(LeapSecond),
    /// Leap second in both, inserted according to one and deleted according to the other.
    OppositeKind(LeapSecond),
}

/// Next leap second, and whether the list and the kernel agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeapOutlook {
    /// Next leap second: that of the list, or of the kernel if there is no list or it has expired.
    pub next: Option<LeapSecond>,
    /// Contradiction between list and kernel; the list is followed.
    pub disagreement: Option<LeapDisagreement>,
}

impl LeapOutlook {
    /// Determines the next leap second after `now`.
    #[must_use]
    pub fn new(sources: &LeapSources<'_>, now: Timestamp<Utc>) -> Self {
        let kernel = sources.kernel.filter(|leap| leap.step_instant() > now);
        let Some(list) =
            sources.list.filter(|list| list.validity(now) != LeapListValidity::Expired)
        else {
            return Self { next: kernel, disagreement: None };
        };
        let next = list.leaps().iter().find(|leap| leap.step_instant() > now).copied();
        let disagreement = match (next, kernel) {
            (Some(listed), Some(kernel_leap)) if listed == kernel_leap => None,
            (Some(listed), Some(kernel_leap)) if listed.midnight == kernel_leap.midnight => {
                Some(LeapDisagreement::OppositeKind(listed))
            }
            (_, Some(kernel_leap)) => Some(LeapDisagreement::KernelOnly(kernel_leap)),
            (Some(listed), None) => {
                let is_near = listed.step_instant() - now <= KERNEL_LEAD;
                (sources.kernel_should_know && is_near)
                    .then_some(LeapDisagreement::ListOnly(listed))
            }
            (None, None) => None,
        };
        Self { next, disagreement }
    }

    /// Returns the latest past leap second of the list at `now`, even if the list has expired.
    #[must_use]
    pub fn latest_past_leap(list: Option<&LeapList>, now: Timestamp<Utc>) -> Option<LeapSecond> {
        // At an inserted second its instant occurs twice; the leap counts as past from midnight on.
        let is_past = |leap: &&LeapSecond| leap.midnight <= now;
        list?.leaps().iter().rev().find(is_past).copied()
    }

    /// Returns the next leap second if it must be announced at `now`: within the day before it.
    /// Clients assume it at the end of the current day (IEEE 1588-2019, leap59 and leap61).
    #[must_use]
    pub fn announced(&self, now: Timestamp<Utc>) -> Option<LeapSecond> {
        self.next.filter(|leap| leap.midnight - now <= ANNOUNCEMENT_LEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LeapKind;
    use super::super::list::tests::PUBLISHED;
    use super::super::tests::MIDNIGHT_2017;
    use super::*;

    const LEAP: LeapSecond =
        LeapSecond { midnight: Timestamp::from_ns(MIDNIGHT_2017), kind: LeapKind::Insert };

    fn before_2017(seconds: i64) -> Timestamp<Utc> {
        Timestamp::from_ns(MIDNIGHT_2017 - seconds * NS_PER_S)
    }

    fn outlook(kernel: Option<LeapSecond>, now: Timestamp<Utc>) -> LeapOutlook {
        let list = LeapList::parse(PUBLISHED).unwrap();
        LeapOutlook::new(&LeapSources { list: Some(&list), kernel, kernel_should_know: true }, now)
    }

    #[test]
    fn the_list_determines_the_next_leap_second() {
        let both = outlook(Some(LEAP), before_2017(10));
        assert_eq!(both, LeapOutlook { next: Some(LEAP), disagreement: None });
        assert_eq!(both.announced(before_2017(86_400)), Some(LEAP));
        assert_eq!(both.announced(before_2017(86_401)), None);
        assert_eq!(outlook(None, before_2017(0)), LeapOutlook { next: None, disagreement: None });
        assert_eq!(outlook(None, before_2017(7_200)).disagreement, None);
    }

    #[test]
    fn disagreement_is_reported() {
        let alone = outlook(None, before_2017(3_600));
        let disagreement = Some(LeapDisagreement::ListOnly(LEAP));
        assert_eq!(alone, LeapOutlook { next: Some(LEAP), disagreement });
        let delete = LeapSecond { kind: LeapKind::Delete, ..LEAP };
        let other = outlook(Some(delete), before_2017(3_600));
        assert_eq!(
            other,
            LeapOutlook {
                next: Some(LEAP),
                disagreement: Some(LeapDisagreement::OppositeKind(LEAP))
            }
        );
        let later = before_2017(-90 * 86_400);
        let kernel_leap = LeapSecond::at_end_of_day(later, LeapKind::Insert);
        let disagreement = Some(LeapDisagreement::KernelOnly(kernel_leap));
        assert_eq!(outlook(Some(kernel_leap), later), LeapOutlook { next: None, disagreement });
    }

    #[test]
    fn an_expired_list_announces_nothing_but_knows_what_was() {
        let list = LeapList::parse(PUBLISHED).unwrap();
        let now = list.expires();
        let kernel_leap = LeapSecond::at_end_of_day(now, LeapKind::Insert);
        let outlook = outlook(Some(kernel_leap), now);
        assert_eq!(outlook, LeapOutlook { next: Some(kernel_leap), disagreement: None });
        assert_eq!(LeapOutlook::latest_past_leap(Some(&list), now), Some(LEAP));
        assert_eq!(
            LeapOutlook::latest_past_leap(Some(&list), before_2017(1)).unwrap().midnight.as_ns(),
            1_435_708_800 * NS_PER_S
        );
        assert_eq!(LeapOutlook::latest_past_leap(None, now), None);
    }
}
