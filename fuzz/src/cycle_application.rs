//! Any text as a test file, and any bytes as a report: reading them never panics, an error
//! of a file is one line, and a report that is read is the same when it is written again.
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
    // No checksum of random bytes is right, so one that is goes the same way.
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
        Err(fault) => assert!(!fault.to_string().contains('\n'), "{fault}"),
    }
});
