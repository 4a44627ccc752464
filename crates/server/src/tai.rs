//! TAI minus UTC while a server runs: what it was told, what the list of leap seconds says, what a
//! receiver was told by satellites, or what the kernel was told, in this order. Pure; it remembers
//! numbers of others, who may change them late after a leap second, or never.

use horolog_time::leap::{Leap, LeapList};
use horolog_time::{Timestamp, Utc};

/// What the offset is looked up by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaiTerms<'a> {
    /// The offset that the server was told, which held at its start, in seconds.
    pub(crate) told_s: Option<i16>,
    /// The list of leap seconds, if it has not expired.
    pub(crate) list: Option<&'a LeapList>,
    /// The number of the source that is followed, where it has one.
    pub(crate) heard_s: Option<i32>,
    /// The kernel's number; 0 where it was never told one.
    pub(crate) kernel_s: i32,
    /// The time served, on the scale before a leap that is being passed.
    pub(crate) utc: Timestamp<Utc>,
    /// The leap that is being passed.
    pub(crate) passing: Option<Leap>,
    /// Leap seconds that were passed wholly since the start, deleted ones negative.
    pub(crate) passed_s: i32,
}

/// A number as it was when so many leaps had been passed.
#[derive(Clone, Copy, Debug)]
struct Noted {
    offset_s: i32,
    passed_s: i32,
}

impl Noted {
    /// What it has become by the leaps that were passed since.
    const fn now_s(self, terms: &TaiTerms<'_>) -> i32 {
        self.offset_s + terms.passed_s - self.passed_s
    }
}

/// A number of somebody who is told of leaps late, or never.
#[derive(Clone, Copy, Default, Debug)]
struct Followed(Option<Noted>);

impl Followed {
    fn at(&mut self, said_s: Option<i32>, terms: &TaiTerms<'_>) -> Option<i32> {
        // Around a leap nobody knows whether a number is that before it or after it, and one that
        // was right before is a leap behind until its owner is told.
        let is_news = |said_s: &i32| {
            self.0.is_none_or(|noted| {
                let known = [noted.offset_s, noted.now_s(terms)];
                terms.passing.is_none() && !known.contains(said_s)
            })
        };
        if let Some(offset_s) = said_s.filter(is_news) {
            self.0 = Some(Noted { offset_s, passed_s: terms.passed_s });
        }
        self.0.map(|noted| noted.now_s(terms))
    }
}

/// Follows the offset.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TaiMinusUtc {
    kernel: Followed,
    heard: Followed,
    /// The list's number, which goes on when the list has expired: it is right of what was.
    listed: Option<Noted>,
    /// What holds now by what was told or by the list.
    known_s: Option<i32>,
}

impl TaiMinusUtc {
    /// The offset before the step of a leap that is being passed, in seconds; `None` where nobody
    /// knows it.
    pub(crate) fn at(&mut self, terms: &TaiTerms<'_>) -> Option<i16> {
        let kernel_s = self.kernel.at(Some(terms.kernel_s).filter(|s| *s != 0), terms);
        let heard_s = self.heard.at(terms.heard_s, terms);
        let told_s = terms.told_s.map(|told_s| i32::from(told_s) + terms.passed_s);
        if let Some(list) = terms.list {
            let offset_s = list.tai_minus_utc_s(terms.utc, terms.passing);
            self.listed = Some(Noted { offset_s, passed_s: terms.passed_s });
        }
        self.known_s = told_s.or(self.listed.map(|noted| noted.now_s(terms)));
        let offset_s = self.known_s.or(heard_s).or(kernel_s);
        offset_s.and_then(|offset_s| offset_s.try_into().ok())
    }

    /// The same at the last call, as it was told or by the list; `None` where others say it.
    pub(crate) const fn known_s(&self) -> Option<i32> {
        self.known_s
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::leap::LeapKind;

    use super::*;

    fn terms() -> TaiTerms<'static> {
        TaiTerms {
            told_s: None,
            list: None,
            heard_s: None,
            kernel_s: 0,
            utc: Timestamp::from_ns(0),
            passing: None,
            passed_s: 0,
        }
    }

    fn leap() -> Leap {
        Leap::at_end_of_day(Timestamp::from_ns(0), LeapKind::Insert)
    }

    #[test]
    fn where_nobody_knows_it_there_is_none() {
        let mut tai = TaiMinusUtc::default();
        assert_eq!(tai.at(&terms()), None);
        assert_eq!(tai.at(&TaiTerms { told_s: Some(37), ..terms() }), Some(37));
        assert_eq!(tai.at(&TaiTerms { kernel_s: 36, ..terms() }), Some(36), "told late");
    }

    #[test]
    fn what_was_told_goes_before_the_kernel_and_on_with_the_leaps() {
        let mut tai = TaiMinusUtc::default();
        let told = TaiTerms { told_s: Some(37), kernel_s: 35, ..terms() };
        assert_eq!(tai.at(&told), Some(37));
        assert_eq!(tai.at(&TaiTerms { passed_s: 1, ..told }), Some(38));
    }

    #[test]
    fn the_kernel_counts_whether_it_is_told_of_the_leap_or_not() {
        for after_s in [37, 38] {
            let mut tai = TaiMinusUtc::default();
            let before = TaiTerms { kernel_s: 37, ..terms() };
            assert_eq!(tai.at(&before), Some(37));
            let passing = TaiTerms { passing: Some(leap()), kernel_s: after_s, ..before };
            assert_eq!(tai.at(&passing), Some(37), "its step is on the page");
            let after = TaiTerms { passed_s: 1, kernel_s: after_s, ..before };
            assert_eq!(tai.at(&after), Some(38), "{after_s}");
        }
    }

    #[test]
    fn a_receiver_goes_before_the_kernel_and_behind_the_rest() {
        let mut tai = TaiMinusUtc::default();
        let heard = TaiTerms { heard_s: Some(37), kernel_s: 35, ..terms() };
        assert_eq!((tai.at(&heard), tai.known_s()), (Some(37), None));
        assert_eq!(tai.at(&TaiTerms { heard_s: None, ..heard }), Some(37), "another is followed");
        for heard_s in [Some(37), Some(38)] {
            let after = TaiTerms { heard_s, passed_s: 1, ..heard };
            assert_eq!(tai.at(&after), Some(38), "told of the leap late");
        }
        let told = TaiTerms { told_s: Some(36), ..heard };
        let mut tai = TaiMinusUtc::default();
        assert_eq!((tai.at(&told), tai.known_s()), (Some(36), Some(36)));
        let listed = Some(Noted { offset_s: 36, passed_s: 0 });
        let mut tai = TaiMinusUtc { listed, ..TaiMinusUtc::default() };
        assert_eq!(tai.at(&heard), Some(36));
    }

    #[test]
    fn a_list_that_expires_was_right() {
        let listed = Some(Noted { offset_s: 37, passed_s: 0 });
        let mut tai = TaiMinusUtc { listed, ..TaiMinusUtc::default() };
        assert_eq!(tai.at(&TaiTerms { kernel_s: 35, ..terms() }), Some(37));
        assert_eq!(tai.at(&TaiTerms { passed_s: 1, ..terms() }), Some(38));
    }

    #[test]
    fn a_number_that_a_daemon_corrects_is_taken_over() {
        let mut tai = TaiMinusUtc::default();
        for (kernel_s, expected) in [(35, 35), (37, 37), (0, 37)] {
            assert_eq!(tai.at(&TaiTerms { kernel_s, ..terms() }), Some(expected));
        }
    }
}
