//! The result of a clock's simulation against its golden file, and any that the types allow.

use std::collections::BTreeMap;

use horolog_record::{
    CLOCK_SCHEMA, ClockBucket, ClockConditions, ClockCounts, ClockMethod, ClockMethodKind,
    ClockOscillator, ClockOutage, ClockResult,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::CLOCK_METHODS;
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::query::{allan, figures};
use crate::strategies::{chosen, finding, host, limit, number};

const CLOCK: &str = include_str!("clock.json");

fn clock_result() -> impl Strategy<Value = ClockResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host());
    let settings = (any::<[u64; 2]>(), oscillator(), conditions(), any::<bool>());
    let outcome = (option::of(any::<u64>()), vec(method(), 0..3), counts());
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, settings, outcome, judged).prop_map(|(facts, settings, outcome, judged)| {
        let (started, command, host) = facts;
        let ([seed, duration_s], oscillator, conditions, steered) = settings;
        let (locked_after_s, methods, counts) = outcome;
        let (limits, findings) = judged;
        ClockResult {
            schema: CLOCK_SCHEMA.to_owned(),
            started,
            command,
            host,
            seed,
            duration_s,
            oscillator,
            conditions,
            steered,
            locked_after_s,
            methods,
            counts,
            limits,
            findings,
        }
    })
}

fn oscillator() -> impl Strategy<Value = ClockOscillator> {
    let noises = [number(), number(), number(), number()];
    (any::<String>(), noises, [number(), number(), number()]).prop_map(
        |(name, noises, [ageing_ppb_per_day, temperature_ppb, temperature_period_s])| {
            let [frequency_ppb, white_fm_ppb, flicker_fm_ppb, random_walk_fm_ppb] = noises;
            ClockOscillator {
                name,
                frequency_ppb,
                white_fm_ppb,
                flicker_fm_ppb,
                random_walk_fm_ppb,
                ageing_ppb_per_day,
                temperature_ppb,
                temperature_period_s,
            }
        },
    )
}

fn conditions() -> impl Strategy<Value = ClockConditions> {
    let times = [number(), number(), number(), number(), number()];
    (times, any::<u32>(), [number(), number(), number()]).prop_map(
        |(times, pulses_per_second, [bad_sentences, false_pulses, missing_pulses])| {
            let [pulse_noise_ns, quantisation_ns, latency_ns, latency_tail, latency_tail_ns] =
                times;
            ClockConditions {
                pulse_noise_ns,
                quantisation_ns,
                latency_ns,
                latency_tail,
                latency_tail_ns,
                pulses_per_second,
                bad_sentences,
                false_pulses,
                missing_pulses,
            }
        },
    )
}

fn method() -> impl Strategy<Value = ClockMethod> {
    let parts = (vec(allan(), 0..3), vec(outage(), 0..3), vec(stretch(), 0..3));
    (chosen(CLOCK_METHODS), option::of(figures()), parts).prop_map(
        |(kind, error_ns, (allan, outages, series))| ClockMethod {
            kind,
            error_ns,
            allan,
            outages,
            series,
        },
    )
}

fn outage() -> impl Strategy<Value = ClockOutage> {
    (any::<[u64; 3]>(), option::of(any::<u64>())).prop_map(
        |([begin_s, length_s, error_max_ns], recovered_after_s)| ClockOutage {
            begin_s,
            length_s,
            error_max_ns,
            recovered_after_s,
        },
    )
}

fn stretch() -> impl Strategy<Value = ClockBucket> {
    (any::<u64>(), any::<[i64; 2]>()).prop_map(|(begin_s, [min_ns, max_ns])| ClockBucket {
        begin_s,
        min_ns,
        max_ns,
    })
}

fn counts() -> impl Strategy<Value = ClockCounts> {
    let named = || btree_map(any::<String>(), any::<u64>(), 0..3);
    ([named(), named(), named()], any::<[u64; 2]>()).prop_map(
        |([pulses, pulse_rejects, sentence_rejects], [wrong_labels, steps])| ClockCounts {
            pulses,
            pulse_rejects,
            sentence_rejects,
            wrong_labels,
            steps,
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: ClockResult = read(CLOCK);
    assert_eq!(written(&result), CLOCK);
    assert_eq!(result.schema, CLOCK_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: ClockResult = read(CLOCK);
    let kinds: Vec<_> = result.methods.iter().map(|method| method.kind).collect();
    assert_eq!(kinds, [ClockMethodKind::Servo, ClockMethodKind::SetAtPulse]);
    let outage = &result.methods[0].outages[0];
    assert_eq!((outage.begin_s, outage.length_s, outage.error_max_ns), (21_600, 3_600, 8_123));
    assert_eq!(result.counts.pulses, BTreeMap::from([("accepted".to_owned(), 82_000)]));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(CLOCK);
    // Counts are named by what was counted.
    let counts = file.as_object_mut().unwrap().remove("counts").unwrap();
    with_unknown_fields(&mut file);
    file.as_object_mut().unwrap().insert("counts".to_owned(), counts);
    assert_eq!(serde_json::from_value::<ClockResult>(file).unwrap(), read(CLOCK));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in clock_result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<ClockResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in clock_result()) {
        let new = new_names(&result, CLOCK);
        prop_assert!(new.iter().all(|name| name.starts_with(".counts.")), "{:?}", new);
    }
}
