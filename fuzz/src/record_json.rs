//! Arbitrary bytes as a result file. Parsing never panics; a parsed result is unchanged after it
//! was written and parsed again, and every renderer accepts it.
#![no_main]

use std::fmt::Debug;

use horolog_record::{AfterResult, CompareVerdict, LoadResult, PathUdpResult, QueryResult};
use horolog_report::table::{self, TableStyle};
use horolog_report::{
    ComparableResult, RenderableResult as _, ResultComparison, csv, parse_result, result_kinds,
    to_json,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Styles of unlimited width without colour, as in a file, and of the smallest width in colour.
const STYLES: [TableStyle; 2] =
    [TableStyle { colour: false, width: usize::MAX }, TableStyle { colour: true, width: 0 }];

fuzz_target!(|bytes: &[u8]| {
    if let Some(result) = read::<LoadResult>(bytes) {
        load(&result);
    }
    if let Some(result) = read::<AfterResult>(bytes) {
        for dependency in &result.dependencies {
            let _ = horolog_report::after_line(dependency);
        }
    }
    if let Some(result) = read::<QueryResult>(bytes) {
        assert!(csv::query(&result).starts_with("server,"));
    }
    if let Some(result) = read::<PathUdpResult>(bytes) {
        assert!(STYLES.iter().all(|style| !result.text(style).contains("NaN")));
    }
    if let Ok(result) = serde_json::from_slice::<Value>(bytes) {
        render_as_every_kind(result);
    }
});

/// Renders `result` as each kind of result, and compares it with itself.
fn render_as_every_kind(mut result: Value) {
    for kind in result_kinds() {
        if let Some(fields) = result.as_object_mut() {
            fields.insert("schema".to_owned(), Value::from(kind));
        }
        if let Ok(parsed) = parse_result(&result) {
            for style in &STYLES {
                let _ = parsed.text(style);
            }
            page(&parsed.page());
        }
        if let Ok(run) = ComparableResult::read(&result) {
            let runs = [run];
            let compared = ResultComparison::compare(&runs, &runs, 0.1);
            let is_worse = |verdict| verdict == CompareVerdict::Worse;
            let changed = compared.metrics.iter().find(|metric| is_worse(metric.verdict));
            assert_eq!(changed, None, "a result compared with itself is worse");
        }
    }
    assert!(csv::figures(1, "a", "b", &result).lines().all(|line| line.starts_with("1,a,")));
}

fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let result: T = serde_json::from_slice(bytes).ok()?;
    let again: T = serde_json::from_str(&to_json(&result)).expect("a written result is readable");
    assert_eq!(again, result);
    Some(result)
}

fn load(result: &LoadResult) {
    for style in &STYLES {
        let _ = table::header(result.mode, style);
        for trial in &result.trials {
            assert!(!table::row(trial, result.mode, style).contains("NaN"));
        }
        let _ = result.summary(style);
    }
    page(&result.page());
}

/// Checks that a page is complete and its script elements are closed.
fn page(html: &str) {
    assert!(html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<script").count(), html.matches("</script").count());
}
