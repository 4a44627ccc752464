//! Any bytes as a line of gpsd. Reading it never panics, and a sample's instants keep within what a
//! line can say.
#![no_main]

use horolog_source::GpsdLine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(GpsdLine::Sample { truth, system, .. }) = GpsdLine::parse(bytes) {
        let _ = (truth - system).as_seconds();
    }
});
