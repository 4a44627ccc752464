//! Any bytes as a result file. Reading it never panics; what can be read is the same when it was
//! written and read again, and every renderer takes it.
#![no_main]

use std::fmt::Debug;

use horolog_record::{
    ClockCompareResult, DemoResult, LoadResult, PathStallResult, PathTcpResult, PathUdpResult,
    QueryResult,
};
use horolog_report::table::{self, TableStyle};
use horolog_report::{csv, html, to_json};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Everything, as in a file, and as little as is ever shown, in colour.
const STYLES: [TableStyle; 2] =
    [TableStyle { colour: false, width: usize::MAX }, TableStyle { colour: true, width: 0 }];

fuzz_target!(|bytes: &[u8]| {
    if let Some(result) = read::<LoadResult>(bytes) {
        load(&result);
    }
    if let Some(result) = read::<DemoResult>(bytes) {
        demo(&result);
    }
    if let Some(result) = read::<QueryResult>(bytes) {
        query(&result);
    }
    if let Some(result) = read::<ClockCompareResult>(bytes) {
        compare(&result);
    }
    if let Some(result) = read::<PathUdpResult>(bytes) {
        path(&result);
    }
    if let Some(result) = read::<PathTcpResult>(bytes) {
        for style in &STYLES {
            let _ = table::path_tcp(&result, style);
        }
        page(&html::path_tcp(&result));
    }
    if let Some(result) = read::<PathStallResult>(bytes) {
        for style in &STYLES {
            let _ = table::path_stall(&result, style);
        }
        page(&html::path_stall(&result));
    }
});

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
        let _ = table::summary(result, style);
    }
    page(&html::load(result));
}

fn demo(result: &DemoResult) {
    for style in &STYLES {
        let _ = table::demo(result, style);
    }
    page(&html::demo(result));
}

fn query(result: &QueryResult) {
    for style in &STYLES {
        let _ = table::query(result, style);
    }
    assert!(csv::query(result).starts_with("server,"));
    page(&html::query(result));
}

fn compare(result: &ClockCompareResult) {
    for style in &STYLES {
        let _ = table::clock_compare(result, style);
    }
    page(&html::clock_compare(result));
}

fn path(result: &PathUdpResult) {
    for style in &STYLES {
        assert!(!table::path_udp(result, style).contains("NaN"));
    }
    page(&html::path_udp(result));
}

/// A page that is whole, and runs no script but the ones that every page has.
fn page(html: &str) {
    assert!(html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<script").count(), html.matches("</script").count());
}
