//! The time by sentences alone.

use horolog_time::{Span, Timestamp};

use super::{Bench, Discard, START, at_ms};
use crate::{PulseLabellerSettings, SentenceRejectReason};

#[test]
fn sentences_alone_are_right_within_their_bound_however_late_they_begin() {
    for lag_ms in [0, 120, 700, 950, 1_100, 1_490] {
        let mut bench = Bench { lag_ms, ..Bench::new(PulseLabellerSettings::default()) };
        assert_eq!(bench.sentence(0), Err(SentenceRejectReason::NoPulse));
        assert_eq!(bench.labeller.coarse_time(at_ms(1_500)), None);
        (1..3).for_each(|second| bench.sentence(second).unwrap_err().discard());
        let coarse = bench.labeller.coarse_time(at_ms(3_500)).unwrap();
        assert_eq!(coarse.at, at_ms(2_000 + lag_ms));
        let truth = Timestamp::from_timespec(START + 2, lag_ms * 1_000_000);
        let error = coarse.utc - truth;
        assert!(error.as_ns().abs() <= coarse.error_bound.as_ns(), "{lag_ms}: {coarse:?}");
        assert_eq!(bench.labeller.coarse_time(at_ms(12_100 + lag_ms)), None, "too old");
    }
}

#[test]
fn sentences_alone_are_contradicted_by_many_only() {
    let mut bench = Bench::new(PulseLabellerSettings::default());
    (0..10).for_each(|second| bench.sentence(second).unwrap_err().discard());
    let off = |bench: &Bench, second: i64| {
        let at = at_ms(second * 1_000 + 500);
        let coarse = bench.labeller.coarse_time(at)?;
        let expected = Timestamp::from_timespec(START, 0) + (coarse.at - at_ms(0));
        Some((coarse.utc - expected).as_seconds().round() as i64)
    };
    assert_eq!(off(&bench, 9), Some(0));
    for second in 10..39 {
        let reject = bench.sentence_at(second + 100, second * 1_000 + 120).unwrap_err();
        assert!(
            matches!(reject, SentenceRejectReason::Disagrees(by) if by == Span::from_ms(100_000))
        );
        let is_young = second < 19;
        assert_eq!(off(&bench, second), is_young.then_some(0), "at {second}");
    }
    bench.sentence_at(139, 39_120).unwrap_err().discard();
    assert_eq!(off(&bench, 39), Some(100), "the thirtieth");
    // One sentence that is off in between changes nothing.
    bench.sentence_at(500, 40_120).unwrap_err().discard();
    bench.sentence_at(141, 41_120).unwrap_err().discard();
    assert_eq!(off(&bench, 41), Some(100));
}
