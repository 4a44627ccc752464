//! The labeller against a receiver whose faults are made one by one.

use super::*;
use crate::{ImplausibilityReason, Sentence, SentenceRejectReason};
use horolog_time::leap::LeapKind;
use proptest::prelude::*;

mod coarse;
mod fraction;

/// A second in 2027, as most of these tests begin at.
const START: i64 = 1_800_000_000;
/// 2028-07-01T00:00:00Z, before which a leap second may be inserted.
const MIDNIGHT: i64 = 1_845_936_000;
const ROLLOVER_S: i64 = 1_024 * 7 * 86_400;

fn at_ms(ms: i64) -> Timestamp<Monotonic> {
    Timestamp::from_ns(ms * 1_000_000)
}

/// A receiver and a line: the second `START + n` begins at `n` seconds of the monotonic clock.
struct Bench {
    labeller: PulseLabeller,
    sequence: u64,
    start: i64,
    lag_ms: i64,
}

impl Bench {
    fn new(settings: PulseLabellerSettings) -> Self {
        Self { labeller: PulseLabeller::new(settings), sequence: 0, start: START, lag_ms: 120 }
    }

    fn pulse(&mut self, ms: i64) -> Result<i64, PulseRejectReason> {
        self.sequence += 1;
        let realtime = Timestamp::from_timespec(self.start, ms * 1_000_000);
        let pulse = Pulse { monotonic: at_ms(ms), realtime, sequence: self.sequence };
        let labelled = self.labeller.label_pulse(&pulse)?;
        assert_eq!(labelled.pulse, pulse);
        Ok(labelled.second().as_ns() / NS_PER_S - self.start)
    }

    fn sentence_at(&mut self, names: i64, ms: i64) -> Result<(), SentenceRejectReason> {
        self.labeller.add_sentence(&Sentence {
            second: Timestamp::from_timespec(self.start + names, 0),
            received: at_ms(ms),
            is_valid: true,
            is_leap_second: false,
        })
    }

    fn sentence(&mut self, second: i64) -> Result<(), SentenceRejectReason> {
        self.sentence_at(second, second * 1_000 + self.lag_ms)
    }

    /// Seconds with a pulse and a sentence each.
    fn run(&mut self, seconds: impl Iterator<Item = i64>) {
        for second in seconds {
            let _ = self.pulse(second * 1_000);
            let _ = self.sentence(second);
        }
    }

    fn established() -> Self {
        let mut bench = Self::new(PulseLabellerSettings::default());
        bench.run(0..10);
        assert_eq!(bench.pulse(10_000), Ok(10));
        bench.sentence(10).unwrap();
        bench
    }
}

/// Section 2.2.3 of the paper: the value that was read last belongs to the pulse before, so 1 is
/// added to it. A labeller that takes the last sentence for this pulse's is a second late.
#[test]
fn a_sentence_names_the_second_of_the_pulse_before_it() {
    let mut bench = Bench::new(PulseLabellerSettings::default());
    let mut named = None;
    for second in 0..10 {
        if let Ok(label) = bench.pulse(second * 1_000) {
            assert_eq!(label, named.unwrap() + 1);
            assert_eq!(label, second);
        }
        let _ = bench.sentence(second);
        named = Some(second);
    }
    assert!(bench.labeller.is_established());
}

#[test]
fn it_takes_three_in_a_row_to_establish_a_second() {
    let mut bench = Bench::new(PulseLabellerSettings::default());
    bench.run(0..3);
    assert_eq!(bench.pulse(3_000), Err(PulseRejectReason::NoSecond));
    // The first pulses had none before them to be regular by: this is the second vote.
    assert_eq!(bench.sentence(3), Ok(()));
    assert_eq!(bench.pulse(4_000), Err(PulseRejectReason::NoSecond));
    assert_eq!(bench.sentence_at(1_000, 4_120), Ok(()), "it may be right: nothing is known yet");
    assert_eq!(bench.pulse(5_000), Err(PulseRejectReason::NoSecond));
    for second in 5..8 {
        assert_eq!(bench.sentence(second), Ok(()));
        let expected = if second < 7 { Err(PulseRejectReason::NoSecond) } else { Ok(8) };
        assert_eq!(bench.pulse((second + 1) * 1_000), expected);
    }
}

/// Beyond the next pulse, ahead of its own, twice, not at all, wrong by a second or by years: one
/// sentence changes nothing.
#[test]
fn a_sentence_that_is_late_early_double_or_wrong_moves_nothing() {
    let second = |seconds| SentenceRejectReason::Disagrees(Span::from_ns(seconds * NS_PER_S));
    let mut bench = Bench::new(PulseLabellerSettings::default());
    bench.run(0..10);
    bench.pulse(10_000).unwrap();
    let wrong = [
        (10, 11_100, second(-1)),
        (12, 11_900, second(1)),
        (11, 11_980, SentenceRejectReason::Lag(Span::from_ms(980))),
        (12, 11_120, second(1)),
        (10, 11_130, second(-1)),
        (11 + 86_400 * 800, 11_120, second(86_400 * 800)),
        (11 - 86_400 * 1_000, 11_120, second(-86_400 * 1_000)),
    ];
    bench.pulse(11_000).unwrap();
    for (names, ms, reject) in wrong {
        let mut bench = Bench {
            labeller: bench.labeller.clone(),
            ..Bench::new(PulseLabellerSettings::default())
        };
        bench.sequence = 100;
        assert_eq!(bench.sentence_at(names, ms), Err(reject));
        assert_eq!(bench.pulse(12_000), Ok(12), "{reject}");
        assert_eq!(
            bench.sentence(12),
            if names == 12 { Err(SentenceRejectReason::Repeated) } else { Ok(()) }
        );
        assert_eq!(bench.pulse(13_000), Ok(13));
    }
    assert_eq!(bench.sentence(11), Ok(()));
    assert_eq!(bench.sentence_at(11, 11_300), Err(SentenceRejectReason::Repeated));
    assert_eq!(bench.pulse(12_000), Ok(12));
}

#[test]
fn weeks_that_a_receiver_has_miscounted_are_named_so() {
    let mut bench = Bench::established();
    for times in [-1, 1, 2] {
        let reject = bench.sentence_at(11 + times * ROLLOVER_S, 11_120);
        assert_eq!(
            reject,
            Err(SentenceRejectReason::Implausible(ImplausibilityReason::Rollover(times)))
        );
    }
}

/// However long a receiver says so.
#[test]
fn a_receiver_that_stays_off_by_1024_weeks_never_moves_the_count() {
    let mut bench = Bench::established();
    for second in 11..200 {
        assert_eq!(bench.pulse(second * 1_000), Ok(second));
        assert!(bench.sentence_at(second + ROLLOVER_S, second * 1_000 + 120).is_err());
    }
}

#[test]
fn void_sentences_are_passed_over() {
    let mut bench = Bench::established();
    let second = Timestamp::from_timespec(START + 11, 0);
    let void = Sentence { second, received: at_ms(11_120), is_valid: false, is_leap_second: false };
    assert_eq!(bench.labeller.add_sentence(&void), Err(SentenceRejectReason::Void));
}

#[test]
fn another_second_for_long_is_disputed_and_then_taken() {
    let mut bench = Bench::established();
    let mut labels = Vec::new();
    for second in 11..60 {
        labels.push(bench.pulse(second * 1_000));
        let _ = bench.sentence_at(second + 1, second * 1_000 + 120);
    }
    // Three sentences raise the dispute, thirty end it.
    assert_eq!(labels[..3], [Ok(11), Ok(12), Ok(13)]);
    assert!(
        labels[3..30].iter().all(|label| *label == Err(PulseRejectReason::Disputed)),
        "{labels:?}"
    );
    assert_eq!(labels[30], Ok(42));
    assert_eq!(labels.last(), Some(&Ok(60)));
}

#[test]
fn a_dispute_is_over_when_sentences_agree_again() {
    let mut bench = Bench::established();
    for second in 11..30 {
        let _ = bench.pulse(second * 1_000);
        let _ = bench.sentence_at(second + 1, second * 1_000 + 120);
    }
    assert_eq!(bench.pulse(30_000), Err(PulseRejectReason::Disputed));
    bench.sentence_at(30, 30_110).unwrap_err(); // twice
    bench.pulse(31_000).unwrap_err();
    bench.sentence(31).unwrap();
    assert_eq!(bench.pulse(32_000), Ok(32));
}

#[test]
fn pulses_between_seconds_have_no_label() {
    let mut bench = Bench::established();
    assert_eq!(bench.pulse(10_370), Err(PulseRejectReason::OffGrid(Span::from_ms(370))));
    assert_eq!(bench.pulse(10_990), Err(PulseRejectReason::OffGrid(Span::from_ms(-10))));
    assert_eq!(bench.pulse(11_000), Ok(11));
    assert_eq!(bench.pulse(11_001), Err(PulseRejectReason::OffGrid(Span::from_ms(1))), "double");
    assert_eq!(bench.pulse(12_000), Ok(12));
}

#[test]
fn an_edge_that_is_read_twice_or_runs_back_is_named() {
    let mut bench = Bench::established();
    let pulse =
        |ms, sequence| Pulse { monotonic: at_ms(ms), realtime: Timestamp::from_ns(0), sequence };
    assert!(bench.labeller.label_pulse(&pulse(11_000, 70)).is_ok());
    assert_eq!(bench.labeller.label_pulse(&pulse(11_000, 70)), Err(PulseRejectReason::Repeated));
    assert_eq!(bench.labeller.label_pulse(&pulse(10_500, 71)), Err(PulseRejectReason::Backwards));
    assert!(bench.labeller.label_pulse(&pulse(12_000, 72)).is_ok());
}

/// As when the clock is stepped while an edge's timestamp is converted.
#[test]
fn one_pulse_from_the_future_costs_a_few_seconds_at_most() {
    for ahead in [2_000, 500, 60_000, 3_600_000] {
        let mut bench = Bench::established();
        let _ = bench.pulse(11_000 + ahead);
        for second in 12..22 {
            let label = bench.pulse(second * 1_000);
            assert!(label.is_err() || label == Ok(second), "{ahead} {label:?}");
            let _ = bench.sentence(second);
        }
        assert_eq!(bench.pulse(22_000), Ok(22), "{ahead}");
    }
}

#[test]
fn more_than_one_pulse_a_second_is_never_labelled_from_the_start() {
    for (hertz, distance) in [(2, 500), (5, 200)] {
        let mut bench = Bench::new(PulseLabellerSettings::default());
        for ms in (0..20_000).step_by(distance) {
            let label = bench.pulse(ms);
            let expected =
                if ms > 4_000 { PulseRejectReason::Rate(hertz) } else { label.unwrap_err() };
            assert_eq!(label, Err(expected), "{ms}");
            if ms % 1_000 == 0 {
                let reject = bench.sentence_at(ms / 1_000, ms + 20);
                let expected = Err(SentenceRejectReason::Pulse(PulseRejectReason::Rate(hertz)));
                assert!(ms <= 4_000 || reject == expected, "{reject:?}");
            }
        }
    }
}

#[test]
fn a_known_second_survives_more_pulses_and_names_them() {
    let mut bench = Bench::established();
    for second in 11..20 {
        assert_eq!(bench.pulse(second * 1_000), Ok(second));
        let between = bench.pulse(second * 1_000 + 500).unwrap_err();
        let off = PulseRejectReason::OffGrid(Span::from_ms(-500));
        assert_eq!(between, if second < 13 { off } else { PulseRejectReason::Rate(2) });
    }
}

#[test]
fn pulses_alone_are_counted_on_for_a_bounded_time() {
    let mut bench = Bench::established();
    for second in 11..=3_610 {
        assert_eq!(bench.pulse(second * 1_000), Ok(second));
    }
    assert_eq!(bench.pulse(3_611_000), Err(PulseRejectReason::Unconfirmed));
    bench.sentence(3_611).unwrap();
    assert_eq!(bench.pulse(3_612_000), Ok(3_612));
}

#[test]
fn missing_pulses_are_counted_over_and_a_long_gap_begins_anew() {
    let mut bench = Bench::established();
    assert_eq!(bench.pulse(15_000), Ok(15));
    // After more than 10 s two others have to stand behind it.
    assert_eq!(bench.pulse(115_000), Err(PulseRejectReason::AfterGap));
    assert_eq!(bench.pulse(116_000), Err(PulseRejectReason::AfterGap));
    assert_eq!(bench.pulse(117_000), Ok(117));
    bench.sentence(117).unwrap();
    assert_eq!(bench.pulse(3_718_000), Err(PulseRejectReason::NoSecond));
    bench.run(3_719..3_723);
    assert_eq!(bench.pulse(3_723_000), Ok(3_723));
}

#[test]
fn sentences_confirm_the_count_while_pulses_are_missing() {
    let mut bench = Bench::established();
    for second in 11..900 {
        assert_eq!(bench.sentence(second), Ok(()));
    }
}

trait Discard: Sized {
    fn discard(self) {}
}

impl Discard for SentenceRejectReason {}

fn leap_bench(announced: Option<LeapKind>) -> Bench {
    let mut bench = Bench::new(PulseLabellerSettings::default());
    bench.start = MIDNIGHT - 20;
    let midnight = Timestamp::from_timespec(MIDNIGHT, 0);
    bench.labeller.announce_leap(announced.map(|kind| LeapSecond { midnight, kind }));
    bench.run(0..19);
    bench
}

#[test]
fn an_announced_leap_second_has_no_label_and_shifts_those_behind_it() {
    let mut bench = leap_bench(Some(LeapKind::Insert));
    assert_eq!(bench.pulse(19_000), Ok(19));
    assert_eq!(bench.sentence(19), Ok(()));
    assert_eq!(bench.pulse(20_000), Err(PulseRejectReason::LeapSecond));
    let leap = Sentence {
        second: Timestamp::from_timespec(MIDNIGHT - 1, 0),
        received: at_ms(20_120),
        is_valid: true,
        is_leap_second: true,
    };
    assert_eq!(bench.labeller.add_sentence(&leap), Err(SentenceRejectReason::LeapSecond));
    for second in 21..30 {
        // Whoever announces may be behind: the leap does not come twice.
        let midnight = Timestamp::from_timespec(MIDNIGHT, 0);
        bench.labeller.announce_leap(Some(LeapSecond { midnight, kind: LeapKind::Insert }));
        assert_eq!(bench.pulse(second * 1_000), Ok(second - 1));
        assert_eq!(bench.sentence_at(second - 1, second * 1_000 + 120), Ok(()));
    }
}

#[test]
fn a_deleted_second_is_passed_over() {
    let mut bench = leap_bench(Some(LeapKind::Delete));
    for second in 19..25 {
        assert_eq!(bench.pulse(second * 1_000), Ok(second + 1));
        assert_eq!(bench.sentence_at(second + 1, second * 1_000 + 120), Ok(()));
    }
}

#[test]
fn an_unannounced_leap_second_is_learnt_from_the_sentences() {
    let mut bench = leap_bench(None);
    let _ = bench.pulse(19_000);
    bench.sentence(19).unwrap();
    let _ = bench.pulse(20_000);
    let leap = Sentence {
        second: Timestamp::from_timespec(MIDNIGHT - 1, 0),
        received: at_ms(20_120),
        is_valid: true,
        is_leap_second: true,
    };
    bench.labeller.add_sentence(&leap).unwrap_err().discard();
    for second in 21..24 {
        let _ = bench.pulse(second * 1_000);
        bench.sentence_at(second - 1, second * 1_000 + 120).unwrap_err().discard();
    }
    assert_eq!(bench.pulse(24_000), Ok(23));
}

/// A receiver that rounds up names a second 60 in any minute; a second that is one less is news for
/// as long as any other all the same.
#[test]
fn a_second_60_that_ends_no_day_or_changes_nothing_makes_no_leap_easier() {
    for start in [MIDNIGHT - 20, MIDNIGHT - 3_620] {
        let mut bench = Bench::new(PulseLabellerSettings::default());
        bench.start = start;
        bench.run(0..20);
        let leap = Sentence {
            second: Timestamp::from_timespec(start + 19, 0),
            received: at_ms(19_620),
            is_valid: true,
            is_leap_second: true,
        };
        assert_eq!(bench.labeller.add_sentence(&leap), Err(SentenceRejectReason::LeapSecond));
        bench.run(20..30);
        for second in 30..40 {
            let _ = bench.pulse(second * 1_000);
            bench.sentence_at(second - 1, second * 1_000 + 120).unwrap_err().discard();
        }
        assert_eq!(bench.pulse(40_000), Err(PulseRejectReason::Disputed), "{start}");
    }
}

#[test]
fn the_wrong_edge_is_detected_by_the_width() {
    let mut bench = Bench::new(PulseLabellerSettings::default());
    for second in 0..5 {
        // 100 ms long, and the falling edge is taken: the rising one comes 900 ms later.
        let _ = bench.pulse(second * 1_000 + 100);
        bench.labeller.add_opposite_edge(at_ms((second + 1) * 1_000));
        let _ = bench.sentence(second);
    }
    assert_eq!(bench.pulse(5_100), Err(PulseRejectReason::Polarity(Span::from_ms(900))));
    let wide = PulseLabellerSettings {
        width: Some(Span::from_ms(800)),
        ..PulseLabellerSettings::default()
    };
    let mut bench = Bench::new(wide);
    for second in 0..8 {
        let _ = bench.pulse(second * 1_000);
        bench.labeller.add_opposite_edge(at_ms(second * 1_000 + 800));
        let _ = bench.sentence(second);
    }
    assert_eq!(bench.pulse(8_000), Ok(8), "a wide pulse that is known to be one");
}

/// A sentence that comes before the edge that ends its pulse seems to come very late.
#[test]
fn the_wrong_edge_is_detected_by_sentences_before_it() {
    let mut bench = Bench::new(PulseLabellerSettings::default());
    bench.lag_ms = 80;
    for second in 0..20 {
        assert!(bench.pulse(second * 1_000 + 100).is_err());
        let reject = bench.sentence(second).unwrap_err();
        assert!(second < 4 || reject == SentenceRejectReason::Lag(Span::from_ms(980)), "{reject}");
    }
}

#[test]
fn the_way_of_the_edge_is_taken_off() {
    let delay = Span::from_ns(73);
    let mut bench = Bench::new(PulseLabellerSettings { delay, ..PulseLabellerSettings::default() });
    bench.run(0..10);
    let realtime = Timestamp::from_timespec(START + 10, 173);
    let pulse = Pulse { monotonic: at_ms(10_000), realtime, sequence: 99 };
    let labelled = bench.labeller.label_pulse(&pulse).unwrap();
    assert_eq!(labelled.offset(), Span::from_ns(100));
    assert_eq!(labelled.second(), Timestamp::from_timespec(START + 10, 0));
}

proptest! {
    /// Whatever comes beside them, no label is wrong while most sentences are right.
    #[test]
    fn no_noise_gives_a_wrong_label(
        noise in prop::collection::vec((0_i64..999, 0_u8..10, -3_i64..3, 1_i64..999), 10..200),
    ) {
        let mut bench = Bench::established();
        for (second, (ms, what, wrong, lag)) in noise.into_iter().enumerate() {
            let second = 11 + second as i64;
            if let Ok(label) = bench.pulse(second * 1_000) {
                prop_assert_eq!(label, second);
            }
            if what == 0
                && let Ok(label) = bench.pulse(second * 1_000 + ms)
            {
                prop_assert_eq!(label, second + (ms + 500) / 1_000);
            }
            let named = if second % 3 == 0 { second + wrong } else { second };
            let _ = bench.sentence_at(named, second * 1_000 + lag);
        }
    }
}

proptest! {
    /// Whatever a device says, nothing overflows.
    #[test]
    fn no_input_is_too_much(
        events in prop::collection::vec((any::<i64>(), any::<i64>(), 0_u8..6), 0..60),
    ) {
        let mut labeller = PulseLabeller::new(PulseLabellerSettings::default());
        let mut now = 0_i64;
        for (sequence, (elapsed, instant, kind)) in (0_u64..).zip(events) {
            let step = if kind < 2 { elapsed & i64::MAX } else { NS_PER_S };
            now = now.saturating_add(step);
            let at = Timestamp::from_ns(now);
            let instant = Timestamp::from_ns(instant / NS_PER_S * NS_PER_S);
            if kind % 2 == 0 {
                let pulse = Pulse { monotonic: at, realtime: instant, sequence };
                let _ = labeller.label_pulse(&pulse).map(|labelled| labelled.second());
            } else {
                let (is_valid, is_leap_second) = (kind != 5, kind == 1);
                let _ = labeller.add_sentence(&Sentence {
                    second: instant,
                    received: at,
                    is_valid,
                    is_leap_second,
                });
            }
            labeller.add_opposite_edge(Timestamp::from_ns(elapsed));
            let _ = labeller.coarse_time(at);
        }
    }
}
