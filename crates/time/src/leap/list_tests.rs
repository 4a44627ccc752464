//! Tests of the list's parser: the data that the IERS published in July 2025 with its hash, lists
//! made for the test, and one list for each fault.

use core::fmt::Write;

use proptest::prelude::*;

use super::super::tests::MIDNIGHT_2017;
use super::*;

/// The numbers of the list of July 2025, and its hash. They are facts; the text around them in the
/// published list is left out.
pub(crate) const PUBLISHED: &str = "\
#$\t3960835200
#@\t3991593600
2272060800 10 # 1 Jan 1972\n2287785600 11\n2303683200 12\n2335219200 13\n2366755200 14
2398291200 15\n2429913600 16\n2461449600 17\n2492985600 18\n2524521600 19\n2571782400 20
2603318400 21\n2634854400 22\n2698012800 23\n2776982400 24\n2840140800 25\n2871676800 26
2918937600 27\n2950473600 28\n2982009600 29\n3029443200 30\n3076704000 31\n3124137600 32
3345062400 33\n3439756800 34\n3550089600 35\n3644697600 36\n3692217600\t37\t# 1 Jan 2017
#\n#h\t49db2447 571e5e1b 2f002a53 9c8da8e4 39b8e49e
";

/// A list with a right hash over these numbers.
fn written(updated: i64, expires: i64, entries: &[(i64, i32)]) -> String {
    let mut digits = format!("{updated}{expires}");
    let mut text = format!("#$ {updated}\n#@ {expires}\n# a comment\n");
    for (seconds, offset) in entries {
        let _ = write!(digits, "{seconds}{offset}");
        let _ = writeln!(text, "{seconds}  {offset} # since then");
    }
    text.push_str("#h");
    for word in Sha1::digest(digits).chunks(4) {
        let word = u32::from_be_bytes(word.try_into().unwrap());
        // Leading zeroes are left out by some publishers.
        let _ = write!(text, " {word:x}");
    }
    text + "\n"
}

fn fault(text: &str) -> (usize, LeapListErrorKind) {
    let error = LeapList::parse(text).unwrap_err();
    (error.line, error.fault)
}

#[test]
fn the_published_list_is_read() {
    let list = LeapList::parse(PUBLISHED).unwrap();
    assert_eq!(list.leaps().len(), 27);
    let last = LeapSecond { midnight: Timestamp::from_ns(MIDNIGHT_2017), kind: LeapKind::Insert };
    assert_eq!(list.leaps().last(), Some(&last));
    assert_eq!(list.updated(), Timestamp::from_timespec(1_751_846_400, 0));
    assert_eq!(list.expires(), Timestamp::from_timespec(1_782_604_800, 0));
}

#[test]
fn tai_is_ahead_by_the_leaps_that_were() {
    let list = LeapList::parse(PUBLISHED).unwrap();
    let last = *list.leaps().last().unwrap();
    let at = |span: Span, passing| list.tai_minus_utc_s(last.midnight + span, passing);
    assert_eq!(at(Span::ZERO, None), 37);
    assert_eq!(at(Span::from_ns(-1), None), 36);
    assert_eq!(at(Span::from_ms(4_000), Some(last)), 36, "before its step on this scale");
    assert_eq!(list.tai_minus_utc_s(Timestamp::from_ns(0), None), 10);
}

#[test]
fn any_changed_digit_is_found() {
    for (index, byte) in PUBLISHED.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit()) {
        if PUBLISHED[..index].rsplit('\n').next().is_some_and(|line| line.contains("# ")) {
            continue; // In a comment.
        }
        let mut changed = PUBLISHED.as_bytes().to_vec();
        changed[index] = if byte == b'9' { b'8' } else { byte + 1 };
        assert!(LeapList::parse(core::str::from_utf8(&changed).unwrap()).is_err(), "byte {index}");
    }
}

#[test]
fn each_fault_is_named_with_its_line() {
    let numbers = "seconds and TAI minus UTC";
    assert_eq!(fault("2272060800"), (1, LeapListErrorKind::Numbers(numbers)));
    assert_eq!(fault("\n2272060800 +10"), (2, LeapListErrorKind::Numbers(numbers)));
    assert_eq!(fault("2272060800 10 11"), (1, LeapListErrorKind::Numbers(numbers)));
    assert_eq!(fault("#$ x"), (1, LeapListErrorKind::Numbers("the seconds of the last change")));
    assert_eq!(fault("#@"), (1, LeapListErrorKind::Numbers("the seconds of the expiry")));
    assert_eq!(fault("#h 1 2 3 4"), (1, LeapListErrorKind::Numbers("five hexadecimal words")));
    assert_eq!(fault("#$ 99999999999999999"), (1, LeapListErrorKind::Instant));
    assert_eq!(fault("#$ 1\n#$ 1"), (2, LeapListErrorKind::Duplicate("#$")));
    assert_eq!(fault("2272060801 10"), (1, LeapListErrorKind::Order));
    assert_eq!(fault("2272060800 10\n2271974400 11"), (2, LeapListErrorKind::Order));
    assert_eq!(fault("2272060800 10\n2287785600 12"), (2, LeapListErrorKind::Change));
    assert_eq!(fault("2272060800 99999999999"), (1, LeapListErrorKind::Change));
    assert_eq!(fault("#$ 1\n#@ 2\n2272060800 10\n"), (3, LeapListErrorKind::Missing("#h")));
    assert_eq!(fault("#@ 2\n#h 1 2 3 4 5"), (2, LeapListErrorKind::Missing("#$")));
    assert_eq!(fault("#$ 2\n#h 1 2 3 4 5"), (2, LeapListErrorKind::Missing("#@")));
    assert_eq!(fault("#$ 1\n#h 1 2 3 4 5\n#@ 2").1, LeapListErrorKind::Missing("seconds TAI-UTC"));
    assert_eq!(fault("#$ 1\n#@ 2\n#h 1 2 3 4 5\n2272060800 10"), (3, LeapListErrorKind::Hash));
    assert_eq!(fault(&"#\n".repeat(LIST_BYTES_MAX)).1, LeapListErrorKind::TooLong);
    assert_eq!(fault(""), (0, LeapListErrorKind::Missing("#h")));
}

#[test]
fn validity_follows_the_expiry() {
    let list = LeapList::parse(PUBLISHED).unwrap();
    let at = |days: i64| list.validity(list.expires() + Span::from_ns(days * NS_PER_DAY));
    assert_eq!(at(-29), LeapListValidity::Valid);
    assert_eq!((at(-28), at(-1)), (LeapListValidity::ExpiresSoon, LeapListValidity::ExpiresSoon));
    assert_eq!((at(0), at(400)), (LeapListValidity::Expired, LeapListValidity::Expired));
}

proptest! {
    #[test]
    fn a_list_with_a_right_hash_is_read(
        updated in 0..4_000_000_000i64,
        expires in 0..4_000_000_000i64,
        gaps in proptest::collection::vec((1..2_000i64, any::<bool>()), 1..40),
    ) {
        let (mut day, mut offset) = (26_297, 30);
        let mut entries = Vec::new();
        for (gap, insert) in gaps {
            day += gap;
            offset += if insert { 1 } else { -1 };
            // The hash knows digits only, so a list has no negative numbers.
            prop_assume!(offset >= 0);
            entries.push((day * 86_400, offset));
        }
        let list = LeapList::parse(&written(updated, expires, &entries)).unwrap();
        prop_assert_eq!(list.leaps().len(), entries.len() - 1);
        for (leap, pair) in list.leaps().iter().zip(entries.windows(2)) {
            prop_assert_eq!(Ok(leap.midnight), from_ntp_seconds(pair[1].0));
            prop_assert_eq!(leap.kind == LeapKind::Insert, pair[1].1 > pair[0].1);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text: String) {
        let _ = LeapList::parse(&text);
    }
}
