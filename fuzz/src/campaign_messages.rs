//! Any bytes as what agents and controllers of campaigns send through a broker, and as what an
//! agent keeps on its disk: a part of a report, a report, an order, a file of the spool. Reading
//! never panics, and what can be read means the same when it was written and read again.
#![no_main]

use horolog_campaign::instruction::Instruction;
use horolog_campaign::message::{Assembly, Part, Report};
use horolog_campaign::spool::Entry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(part) = Part::parse(bytes) {
        let again = part.to_bytes();
        assert_eq!(Part::parse(&again).expect("what is written is read"), part);
        let mut assembly = Assembly::default();
        let once = assembly.take("n1", &part).expect("one part is never too many");
        assert_eq!(assembly.take("n1", &part).expect("nor is it a second time"), once);
    }
    if let Ok(report) = Report::unpack(bytes) {
        let packed = report.pack().expect("it was no larger before");
        assert_eq!(Report::unpack(&packed).expect("what is packed is read"), report);
    }
    if let Ok(instruction) = Instruction::unpack(bytes) {
        assert_eq!(Instruction::unpack(&instruction.pack()).as_ref(), Ok(&instruction));
    }
    if let Ok(entry) = Entry::parse(bytes) {
        assert_eq!(Entry::parse(&entry.to_bytes()).as_ref(), Ok(&entry));
    }
});
