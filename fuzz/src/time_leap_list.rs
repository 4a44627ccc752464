//! Arbitrary text as a list of leap seconds. Parsing never panics, and a parsed list has its leap
//! seconds in order, at midnights, and returns each of them.
#![no_main]

use horolog_time::Timestamp;
use horolog_time::leap::{LeapList, LeapOutlook, LeapSources, SMEAR_DEFAULT, Smear};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let list = match LeapList::parse(text) {
        Ok(list) => list,
        Err(error) => {
            assert!(error.line <= text.lines().count());
            assert!(!error.to_string().contains('\n'));
            return;
        }
    };
    assert!(list.leaps().windows(2).all(|pair| pair[0].midnight < pair[1].midnight));
    let sources = LeapSources { list: Some(&list), kernel: None, kernel_should_know: true };
    for leap in list.leaps() {
        assert_eq!(leap.midnight.as_ns() % 86_400_000_000_000, 0);
        let before = Timestamp::from_ns(leap.step_instant().as_ns().saturating_sub(1));
        let next = LeapOutlook::new(&sources, before).next;
        assert!(next.is_none() || next == Some(*leap));
        assert_eq!(LeapOutlook::latest_past_leap(Some(&list), leap.midnight), Some(*leap));
        let _ = Smear { length: SMEAR_DEFAULT }.reading_at(leap, before);
    }
});
