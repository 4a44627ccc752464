//! Any bytes as what agents and controllers of campaigns send through a broker, and as what an
//! agent keeps on its disk: a part of a report, a report, an order, a file of the spool. Reading
//! never panics, and what can be read means the same when it was written and read again.
#![no_main]

use horolog_campaign::assignment::Assignment;
use horolog_campaign::report::{AgentReport, ReportFragment, ReportReassembly};
use horolog_campaign::spool::SpoolEntry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(part) = ReportFragment::parse(bytes) {
        let again = part.to_bytes();
        assert_eq!(ReportFragment::parse(&again).expect("what is written is read"), part);
        let mut assembly = ReportReassembly::default();
        let once = assembly.add_fragment("n1", &part).expect("one part is never too many");
        assert_eq!(assembly.add_fragment("n1", &part).expect("nor is it a second time"), once);
    }
    if let Ok(report) = AgentReport::unpack(bytes) {
        let packed = report.pack().expect("it was no larger before");
        assert_eq!(AgentReport::unpack(&packed).expect("what is packed is read"), report);
    }
    if let Ok(assignment) = Assignment::unpack(bytes) {
        assert_eq!(Assignment::unpack(&assignment.pack()).as_ref(), Ok(&assignment));
    }
    if let Ok(entry) = SpoolEntry::parse(bytes) {
        assert_eq!(SpoolEntry::parse(&entry.to_bytes()).as_ref(), Ok(&entry));
    }
});
