//! Arbitrary text as a test file, and arbitrary bytes as a report: parsing never panics, an error
//! of a file is one line, and a parsed report is unchanged when written.
#![no_main]

use horolog_cycle::application::ApplicationTestPlan;
use horolog_cycle::application::report::{HEADER_LEN, SimulatedReportHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = SimulatedReportHeader::parse(bytes) {
        let mut again = bytes.to_vec();
        again[..HEADER_LEN].fill(0);
        report.write(&mut again);
        assert_eq!(again, bytes);
    }
    // Random bytes have no valid checksum, so this report gets one and is parsed.
    if bytes.len() >= HEADER_LEN {
        let report =
            SimulatedReportHeader { is_end: false, source: 1, number: 2, due_ns: 3, sent_ns: 4 };
        let mut written = bytes.to_vec();
        report.write(&mut written);
        assert_eq!(SimulatedReportHeader::parse(&written), Ok(report));
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    match ApplicationTestPlan::parse(text) {
        Ok(plan) => {
            assert!(plan.period_count() > 0);
            assert_eq!(plan.clone().with_nodes(plan.nodes), Ok(plan));
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
