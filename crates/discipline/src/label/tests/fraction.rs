//! Receivers that do not align their fixes to seconds.

use horolog_time::{NS_PER_S, Span, Timestamp};
use proptest::prelude::*;

use super::{Bench, START, at_ms};
use crate::{PulseLabellerSettings, Sentence, SentenceRejectReason};

impl Bench {
    /// A sentence that names an instant `lag_ms` before it comes.
    fn fraction(&mut self, named_ms: i64, lag_ms: i64) -> Result<(), SentenceRejectReason> {
        self.labeller.add_sentence(&Sentence {
            second: Timestamp::from_timespec(START, named_ms * 1_000_000),
            received: at_ms(named_ms + lag_ms),
            is_valid: true,
            is_leap_second: false,
        })
    }
}

#[test]
fn the_second_is_known_from_when_a_fraction_comes_and_the_pulse() {
    for (fraction_ms, lag_ms) in [(200, 100), (-1, 101), (-1, 940), (500, 600), (800, 940), (1, 0)]
    {
        let mut bench = Bench::new(PulseLabellerSettings::default());
        let (mut labelled, mut next) = (0, 0);
        for second in 0..40 {
            // A pulse may come between an instant and the sentence that names it.
            let sent = second * 1_000 + fraction_ms + lag_ms;
            while next * 1_000 <= sent {
                if let Ok(label) = bench.pulse(next * 1_000) {
                    assert_eq!(label, next, "{fraction_ms} ms, {lag_ms} ms late");
                    labelled += 1;
                }
                next += 1;
            }
            let _ = bench.fraction(second * 1_000 + fraction_ms, lag_ms);
        }
        assert!(labelled > 30, "{fraction_ms} ms, {lag_ms} ms late: {labelled}");
        assert!(!bench.labeller.is_disputed());
    }
}

#[test]
fn a_fraction_that_is_too_late_for_its_second_is_passed_over() {
    let mut bench = Bench::established();
    (11..=12).for_each(|second| assert_eq!(bench.pulse(second * 1_000), Ok(second)));
    let late = Err(SentenceRejectReason::Lag(Span::from_ms(970)));
    assert_eq!(bench.fraction(11_980, 970), late);
    assert_eq!(bench.fraction(12_400, 100), Ok(()));
    assert_eq!(
        bench.fraction(12_600, 100),
        Err(SentenceRejectReason::Repeated),
        "five in a second"
    );
}

#[test]
fn fractions_alone_name_the_time_within_its_bounds() {
    for (fraction_ms, lag_ms) in [(200, 100), (-1, 101), (999, 900)] {
        let mut bench = Bench::new(PulseLabellerSettings::default());
        for second in 0..10 {
            assert!(bench.fraction(second * 1_000 + fraction_ms, lag_ms).is_err(), "no pulse");
        }
        let at = 9_000 + fraction_ms + lag_ms;
        let coarse = bench.labeller.coarse_time(at_ms(at)).unwrap();
        let truth = Timestamp::from_timespec(START, coarse.at.as_ns());
        let off = (coarse.utc - truth).as_ns().abs();
        assert!(off <= coarse.error_bound.as_ns() && off < NS_PER_S, "{coarse:?}");
    }
}

proptest! {
    #[test]
    fn no_instant_is_too_far(second in any::<i64>(), at_s in 11i64..20) {
        let mut bench = Bench::established();
        let second = Timestamp::from_ns(second);
        let received = at_ms(at_s * 1_000 + 120);
        let sentence = Sentence { second, received, is_valid: true, is_leap_second: false };
        let _ = bench.labeller.add_sentence(&sentence);
        prop_assert_eq!(bench.pulse(at_s * 1_000 + 1_000), Ok(at_s + 1));
    }
}
