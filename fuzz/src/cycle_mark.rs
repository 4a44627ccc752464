//! Arbitrary bytes as a mark of a task's program, and as a command to it: parsing never panics, and
//! a parsed mark or command is unchanged after it was written and parsed again.
#![no_main]

use horolog_cycle::mark::{ProgramCommand, ProgramMark};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(mark) = ProgramMark::parse(bytes) {
        let line = mark.to_string();
        assert!(!line.contains('\n'), "{line:?}");
        assert_eq!(ProgramMark::parse(line.as_bytes()), Some(mark));
    }
    if let Some(command) = ProgramCommand::parse(bytes) {
        assert_eq!(ProgramCommand::parse(command.to_string().as_bytes()), Some(command));
    }
});
