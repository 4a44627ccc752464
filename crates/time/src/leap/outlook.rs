//! Outlook on the next leap second: from the list, from the kernel, and their agreement. It
//! decides; the caller issues warnings.

use super::{LeapList, LeapListValidity, LeapSecond, NS_PER_DAY};
use crate::{NS_PER_S, Span, Timestamp, Utc};

/// Time before a leap second from which it is announced. RFC 5905 (section 7.3) would allow the
/// whole month; a day is the meaning of the kernel's own flag and of the reference clocks' formats,
/// and long enough for a client that polls at most every 36 hours to be informed by one of several
/// servers.
pub const ANNOUNCED_AHEAD: Span = Span::from_ns(NS_PER_DAY);
/// Time before the leap from which a disciplined kernel knows of it.
const KERNEL_KNOWS: Span = Span::from_ns(3_600 * NS_PER_S);

/// Sources of leap seconds.
#[derive(Clone, Copy, Debug)]
pub struct LeapSources<'a> {
    /// Published list.
    pub list: Option<&'a LeapList>,
    /// Leap second announced to the kernel.
    pub kernel: Option<LeapSecond>,
    /// True if the kernel should know: its clock is disciplined.
    pub kernel_should_know: bool,
}

/// Disagreement of list and kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeapDisagreement {
    /// Leap second that the kernel announces and that is missing from a list that has not expired.
    KernelOnly(LeapSecond),
    /// Leap second of the list within the hour that the kernel does not announce.
    ListOnly(LeapSecond),
    /// Leap second in both, inserted in one and deleted in the other.
    Kind(LeapSecond),
}

/// Outlook on coming leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outlook {
    /// Next leap second. A list that has not expired takes precedence over the kernel.
    pub next: Option<LeapSecond>,
    /// Disagreement of the two, in which case the list is followed.
    pub discord: Option<LeapDisagreement>,
}

impl Outlook {
    /// Returns the outlook after `now`, at which the leap seconds of the list up to `now` are past.
    #[must_use]
    pub fn new(sources: &LeapSources<'_>, now: Timestamp<Utc>) -> Self {
        let kernel = sources.kernel.filter(|leap| leap.instant() > now);
        let Some(list) =
            sources.list.filter(|list| list.validity(now) != LeapListValidity::Expired)
        else {
            return Self { next: kernel, discord: None };
        };
        let next = list.leaps().iter().find(|leap| leap.instant() > now).copied();
        let discord = match (next, kernel) {
            (Some(listed), Some(kernel_leap)) if listed == kernel_leap => None,
            (Some(listed), Some(kernel_leap)) if listed.midnight == kernel_leap.midnight => {
                Some(LeapDisagreement::Kind(listed))
            }
            (_, Some(kernel_leap)) => Some(LeapDisagreement::KernelOnly(kernel_leap)),
            (Some(listed), None) => {
                let is_near = listed.instant() - now <= KERNEL_KNOWS;
                (sources.kernel_should_know && is_near)
                    .then_some(LeapDisagreement::ListOnly(listed))
            }
            (None, None) => None,
        };
        Self { next, discord }
    }

    /// Returns the latest leap second of the list that is past at `now`, expired or not.
    #[must_use]
    pub fn latest(list: Option<&LeapList>, now: Timestamp<Utc>) -> Option<LeapSecond> {
        // After an inserted second its instant recurs; it counts as past from then on.
        let is_past = |leap: &&LeapSecond| leap.midnight <= now;
        list?.leaps().iter().rev().find(is_past).copied()
    }

    /// Returns the next leap second, if it must be announced at `now`: on its own day and not
    /// before. Clients assume one at the end of the day (IEEE 1588-2019, leap59 and leap61).
    #[must_use]
    pub fn announced(&self, now: Timestamp<Utc>) -> Option<LeapSecond> {
        self.next.filter(|leap| leap.midnight - now <= ANNOUNCED_AHEAD)
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

    fn outlook(kernel: Option<LeapSecond>, now: Timestamp<Utc>) -> Outlook {
        let list = LeapList::parse(PUBLISHED).unwrap();
        Outlook::new(&LeapSources { list: Some(&list), kernel, kernel_should_know: true }, now)
    }

    #[test]
    fn the_list_determines_the_next_leap_second() {
        let both = outlook(Some(LEAP), before_2017(10));
        assert_eq!(both, Outlook { next: Some(LEAP), discord: None });
        assert_eq!(both.announced(before_2017(86_400)), Some(LEAP));
        assert_eq!(both.announced(before_2017(86_401)), None);
        assert_eq!(outlook(None, before_2017(0)), Outlook { next: None, discord: None });
        assert_eq!(outlook(None, before_2017(7_200)).discord, None);
    }

    #[test]
    fn disagreement_is_reported() {
        let alone = outlook(None, before_2017(3_600));
        let discord = Some(LeapDisagreement::ListOnly(LEAP));
        assert_eq!(alone, Outlook { next: Some(LEAP), discord });
        let delete = LeapSecond { kind: LeapKind::Delete, ..LEAP };
        let other = outlook(Some(delete), before_2017(3_600));
        assert_eq!(
            other,
            Outlook { next: Some(LEAP), discord: Some(LeapDisagreement::Kind(LEAP)) }
        );
        let later = before_2017(-90 * 86_400);
        let kernel_leap = LeapSecond::at_end_of_day(later, LeapKind::Insert);
        let discord = Some(LeapDisagreement::KernelOnly(kernel_leap));
        assert_eq!(outlook(Some(kernel_leap), later), Outlook { next: None, discord });
    }

    #[test]
    fn an_expired_list_announces_nothing_but_knows_what_was() {
        let list = LeapList::parse(PUBLISHED).unwrap();
        let now = list.expires();
        let kernel_leap = LeapSecond::at_end_of_day(now, LeapKind::Insert);
        let outlook = outlook(Some(kernel_leap), now);
        assert_eq!(outlook, Outlook { next: Some(kernel_leap), discord: None });
        assert_eq!(Outlook::latest(Some(&list), now), Some(LEAP));
        assert_eq!(
            Outlook::latest(Some(&list), before_2017(1)).unwrap().midnight.as_ns(),
            1_435_708_800 * NS_PER_S
        );
        assert_eq!(Outlook::latest(None, now), None);
    }
}
