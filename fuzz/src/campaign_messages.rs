//! Arbitrary bytes as messages of agents and controllers through a broker, and as files on an
//! agent's disk: a fragment of a report, a report, an order, a file of the spool. Parsing never
//! panics, and a parsed message is unchanged after it was written and parsed again.
#![no_main]

use horolog_campaign::assignment::Assignment;
use horolog_campaign::report::{AgentReport, ReportFragment, ReportReassembly};
use horolog_campaign::spool::SpoolEntry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(part) = ReportFragment::parse(bytes) {
        let again = part.to_bytes();
        assert_eq!(ReportFragment::parse(&again).expect("a written fragment is readable"), part);
        let mut assembly = ReportReassembly::default();
        let once = assembly.add_fragment("n1", &part).expect("one fragment is within the limits");
        assert_eq!(assembly.add_fragment("n1", &part).expect("a duplicate is accepted"), once);
    }
    if let Ok(report) = AgentReport::unpack(bytes) {
        let packed = report.pack().expect("the report is within the size limit");
        assert_eq!(AgentReport::unpack(&packed).expect("a packed report is readable"), report);
    }
    if let Ok(assignment) = Assignment::unpack(bytes) {
        assert_eq!(Assignment::unpack(&assignment.pack()).as_ref(), Ok(&assignment));
    }
    if let Ok(entry) = SpoolEntry::parse(bytes) {
        assert_eq!(SpoolEntry::parse(&entry.to_bytes()).as_ref(), Ok(&entry));
    }
});
