//! Any bytes as a result file. Reading it never panics; what can be read is the same when it was
//! written and read again, and every renderer takes it.
#![no_main]

use std::fmt::Debug;

use horolog_record::{
    AfterResult, CompareVerdict, LoadResult, PathUdpResult, QueryResult, ResultComparison,
};
use horolog_report::table::{self, TableStyle};
use horolog_report::{RenderableResult as _, csv, page_of, result_kinds, table_of, to_json};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Everything, as in a file, and as little as is ever shown, in colour.
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
        of_any_kind(result);
    }
});

/// As what each kind of result would be, where it can be that; and what is done with any.
fn of_any_kind(mut result: Value) {
    for kind in result_kinds() {
        if let Some(fields) = result.as_object_mut() {
            fields.insert("schema".to_owned(), Value::from(kind));
        }
        for style in &STYLES {
            let _ = table_of(result.clone(), style);
        }
        if let Ok(html) = page_of(&result) {
            page(&html);
        }
    }
    let compared = ResultComparison::compare(&[&result], &[&result], 0.1);
    let changed = compared.metrics.iter().find(|metric| metric.verdict == CompareVerdict::Worse);
    assert_eq!(changed, None, "a result is no worse than itself");
    assert!(csv::figures(1, "a", "b", &result).lines().all(|line| line.starts_with("1,a,")));
}

fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let result: T = serde_json::from_slice(bytes).ok()?;
    let again: T = serde_json::from_str(&to_json(&result)).expect("what is written can be read");
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

/// A page that is whole, and runs no script but the ones that every page has.
fn page(html: &str) {
    assert!(html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<script").count(), html.matches("</script").count());
}
