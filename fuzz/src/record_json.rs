//! Any bytes as a result file. Reading it never panics; what can be read is the same when it was
//! written and read again, and every renderer takes it.
#![no_main]

use std::fmt::Debug;

use horolog_record::{AfterResult, LoadResult, PathUdpResult, QueryResult};
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
    if let Some(result) = read::<AfterResult>(bytes) {
        for dependency in &result.dependencies {
            let _ = table::after_line(dependency);
        }
    }
    if let Some(result) = read::<QueryResult>(bytes) {
        assert!(csv::query(&result).starts_with("server,"));
    }
    if let Some(result) = read::<PathUdpResult>(bytes) {
        assert!(STYLES.iter().all(|style| !table::path_udp(&result, style).contains("NaN")));
    }
    rendered(bytes, table::after, None);
    rendered(bytes, table::at, None);
    rendered(bytes, table::bench_cores, Some(html::bench_cores));
    rendered(bytes, table::bench_nts, None);
    rendered(bytes, table::clock, Some(html::clock));
    rendered(bytes, table::clock_compare, Some(html::clock_compare));
    rendered(bytes, table::demo, Some(html::demo));
    rendered(bytes, table::host_clock, Some(html::host_clock));
    rendered(bytes, table::host_delay, Some(html::host_delay));
    rendered(bytes, table::host_interrupt, Some(html::host_interrupt));
    rendered(bytes, table::host_nic, Some(html::host_nic));
    rendered(bytes, table::host_switch, Some(html::host_switch));
    rendered(bytes, table::host_timer, Some(html::host_timer));
    rendered(bytes, table::path_stall, Some(html::path_stall));
    rendered(bytes, table::path_tcp, Some(html::path_tcp));
    rendered(bytes, table::path_udp, Some(html::path_udp));
    rendered(bytes, table::query, Some(html::query));
});

/// A result as a table, and as a page where there is one.
fn rendered<T: DeserializeOwned + Serialize + PartialEq + Debug>(
    bytes: &[u8],
    table: fn(&T, &TableStyle) -> String,
    html: Option<fn(&T) -> String>,
) {
    let Some(result) = read::<T>(bytes) else { return };
    for style in &STYLES {
        let _ = table(&result, style);
    }
    if let Some(html) = html {
        page(&html(&result));
    }
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
        let _ = table::summary(result, style);
    }
    page(&html::load(result));
}

/// A page that is whole, and runs no script but the ones that every page has.
fn page(html: &str) {
    assert!(html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<script").count(), html.matches("</script").count());
}
