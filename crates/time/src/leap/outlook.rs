//! Which leap second is next: what the list says, what the kernel says, and whether they agree. It
//! decides; who warns of what it found is the caller.

use super::{Leap, LeapList, NS_PER_DAY, Validity};
use crate::{NS_PER_S, Span, Timestamp, Utc};

/// How long before a leap second it is announced. RFC 5905 (section 7.3) would allow the whole
/// month; a day is what the kernel's own flag stands for, what the reference clocks' formats give,
/// and long enough for a client that polls every 36 hours at most to be told by one of several
/// servers.
pub const ANNOUNCED_AHEAD: Span = Span::from_ns(NS_PER_DAY);
/// By how long before the leap a disciplined kernel knows of it.
const KERNEL_KNOWS: Span = Span::from_ns(3_600 * NS_PER_S);

/// Who speaks of leap seconds.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// A list of them.
    pub list: Option<&'a LeapList>,
    /// The one that the kernel was told of.
    pub kernel: Option<Leap>,
    /// Whether the kernel should know: something disciplines its clock.
    pub kernel_should_know: bool,
}

/// How list and kernel disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discord {
    /// The kernel was told of a leap second that a list which has not expired does not have.
    KernelOnly(Leap),
    /// The list has one within the hour of which the kernel was not told.
    ListOnly(Leap),
    /// Both have one, the one to insert, the other to delete.
    Kind(Leap),
}

/// What is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outlook {
    /// The next leap second. A list that has not expired decides, else the kernel.
    pub next: Option<Leap>,
    /// How the two disagree; the list is followed then.
    pub discord: Option<Discord>,
}

impl Outlook {
    /// What comes after `now`, where the leap seconds of the list up to `now` are past.
    #[must_use]
    pub fn new(sources: &Sources<'_>, now: Timestamp<Utc>) -> Self {
        let kernel = sources.kernel.filter(|leap| leap.instant() > now);
        let Some(list) = sources.list.filter(|list| list.validity(now) != Validity::Expired) else {
            return Self { next: kernel, discord: None };
        };
        let next = list.leaps().iter().find(|leap| leap.instant() > now).copied();
        let discord = match (next, kernel) {
            (Some(listed), Some(told)) if listed == told => None,
            (Some(listed), Some(told)) if listed.midnight == told.midnight => {
                Some(Discord::Kind(listed))
            }
            (_, Some(told)) => Some(Discord::KernelOnly(told)),
            (Some(listed), None) => {
                let is_near = listed.instant() - now <= KERNEL_KNOWS;
                (sources.kernel_should_know && is_near).then_some(Discord::ListOnly(listed))
            }
            (None, None) => None,
        };
        Self { next, discord }
    }

    /// The latest leap second of the list that is past at `now`, expired or not.
    #[must_use]
    pub fn latest(list: Option<&LeapList>, now: Timestamp<Utc>) -> Option<Leap> {
        // After an inserted second its instant comes once more; it counts as past from then on.
        let is_past = |leap: &&Leap| leap.midnight <= now;
        list?.leaps().iter().rev().find(is_past).copied()
    }

    /// The next leap second, if it is to be announced at `now`: on its own day and not before. Who
    /// is told takes it for one at the end of the day (IEEE 1588-2019, leap59 and leap61).
    #[must_use]
    pub fn announced(&self, now: Timestamp<Utc>) -> Option<Leap> {
        self.next.filter(|leap| leap.midnight - now <= ANNOUNCED_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LeapKind;
    use super::super::list::tests::PUBLISHED;
    use super::super::tests::MIDNIGHT_2017;
    use super::*;

    const LEAP: Leap = Leap { midnight: Timestamp::from_ns(MIDNIGHT_2017), kind: LeapKind::Insert };

    fn before_2017(seconds: i64) -> Timestamp<Utc> {
        Timestamp::from_ns(MIDNIGHT_2017 - seconds * NS_PER_S)
    }

    fn outlook(kernel: Option<Leap>, now: Timestamp<Utc>) -> Outlook {
        let list = LeapList::parse(PUBLISHED).unwrap();
        Outlook::new(&Sources { list: Some(&list), kernel, kernel_should_know: true }, now)
    }

    #[test]
    fn the_list_says_what_is_next() {
        let both = outlook(Some(LEAP), before_2017(10));
        assert_eq!(both, Outlook { next: Some(LEAP), discord: None });
        assert_eq!(both.announced(before_2017(86_400)), Some(LEAP));
        assert_eq!(both.announced(before_2017(86_401)), None);
        assert_eq!(outlook(None, before_2017(0)), Outlook { next: None, discord: None });
        assert_eq!(outlook(None, before_2017(7_200)).discord, None);
    }

    #[test]
    fn disagreement_is_told() {
        let alone = outlook(None, before_2017(3_600));
        let discord = Some(Discord::ListOnly(LEAP));
        assert_eq!(alone, Outlook { next: Some(LEAP), discord });
        let delete = Leap { kind: LeapKind::Delete, ..LEAP };
        let other = outlook(Some(delete), before_2017(3_600));
        assert_eq!(other, Outlook { next: Some(LEAP), discord: Some(Discord::Kind(LEAP)) });
        let later = before_2017(-90 * 86_400);
        let told = Leap::at_end_of_day(later, LeapKind::Insert);
        let discord = Some(Discord::KernelOnly(told));
        assert_eq!(outlook(Some(told), later), Outlook { next: None, discord });
    }

    #[test]
    fn an_expired_list_announces_nothing_but_knows_what_was() {
        let list = LeapList::parse(PUBLISHED).unwrap();
        let now = list.expires();
        let told = Leap::at_end_of_day(now, LeapKind::Insert);
        let outlook = outlook(Some(told), now);
        assert_eq!(outlook, Outlook { next: Some(told), discord: None });
        assert_eq!(Outlook::latest(Some(&list), now), Some(LEAP));
        assert_eq!(
            Outlook::latest(Some(&list), before_2017(1)).unwrap().midnight.as_ns(),
            1_435_708_800 * NS_PER_S
        );
        assert_eq!(Outlook::latest(None, now), None);
    }
}
