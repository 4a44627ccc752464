//! The result of a comparison of two runs against its golden file, and any that the types allow.

use horolog_record::{
    COMPARE_SCHEMA, CompareResult, CompareVerdict, ComparedCondition, ComparedMetric,
    ComparedMetricKind, ComparedRun,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{COMPARE_VERDICTS, COMPARED_FIGURES};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, finding, host, number};

const COMPARISON: &str = include_str!("compare.json");

fn run() -> impl Strategy<Value = ComparedRun> {
    any::<[String; 3]>().prop_map(|[reference, schema, started]| ComparedRun {
        reference,
        schema,
        started,
    })
}

fn figure() -> impl Strategy<Value = ComparedMetric> {
    let named = (any::<String>(), chosen(COMPARED_FIGURES), chosen(COMPARE_VERDICTS));
    let figures = (number(), number(), option::of(number()), option::of(number()));
    let all = (named, figures, any::<bool>());
    all.prop_map(|((path, figure, verdict), (earlier, later, low, high), of_measurer)| {
        ComparedMetric {
            path,
            metric: figure,
            earlier: Some(earlier),
            later: Some(later),
            low,
            high,
            verdict,
            informational: of_measurer,
        }
    })
}

fn comparison() -> impl Strategy<Value = CompareResult> {
    let repeats = (vec(run(), 0..3), vec(run(), 0..3));
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), run(), run(), repeats);
    let limits = (number(), number());
    let unmatched = (vec(any::<String>(), 0..3), vec(any::<String>(), 0..3));
    let condition = any::<[String; 3]>().prop_map(|[path, earlier, later]| ComparedCondition {
        path,
        earlier,
        later,
    });
    let rest = (vec(figure(), 0..3), unmatched, vec(condition, 0..3), vec(finding(), 0..3));
    (facts, limits, rest).prop_map(|(facts, (threshold, confidence), rest)| {
        let (started, command, host, earlier, later, (earlier_repeats, later_repeats)) = facts;
        let (figures, (only_earlier, only_later), conditions, findings) = rest;
        CompareResult {
            schema: COMPARE_SCHEMA.to_owned(),
            started,
            command,
            host,
            earlier,
            later,
            earlier_repeats,
            later_repeats,
            threshold,
            confidence,
            metrics: figures,
            only_earlier,
            only_later,
            conditions,
            findings,
        }
    })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: CompareResult = read(COMPARISON);
    assert_eq!(written(&result), COMPARISON);
    assert_eq!(result.schema, COMPARE_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: CompareResult = read(COMPARISON);
    let [first, second, third] = &result.metrics[..] else { panic!("{result:?}") };
    assert_eq!((first.metric, first.verdict), (ComparedMetricKind::P999, CompareVerdict::Worse));
    assert_eq!((first.low, first.high), (Some(0.25), Some(0.5)));
    assert_eq!((second.metric, second.low), (ComparedMetricKind::Loss, None));
    assert_eq!((third.metric, third.informational), (ComparedMetricKind::P50, true));
    assert_eq!(result.later_repeats[0].reference, "last~1");
    assert_eq!(result.only_later, ["trials[intended_rate=30000].rtt_ns"]);
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(COMPARISON);
    with_unknown_fields(&mut file);
    let result: CompareResult = serde_json::from_value(file).unwrap();
    assert_eq!(written(&result), COMPARISON);
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(result in comparison()) {
        let text = written(&result);
        prop_assert_eq!(&read::<CompareResult>(&text), &result);
        prop_assert_eq!(new_names(&result, COMPARISON), Vec::<String>::new());
    }
}
