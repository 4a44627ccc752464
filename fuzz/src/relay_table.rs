//! Any text as the table file of a relay: reading it never panics, an error is one line,
//! and what was read is the same when it was written and read again, also as a table.
#![no_main]

use horolog_relay::{RoutingTable, RoutingTableSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match RoutingTableSpec::parse(text) {
        Ok(spec) => match RoutingTable::new(&spec, None) {
            Ok(table) => {
                assert_eq!(table.spec(), spec);
                assert_eq!(RoutingTableSpec::parse(&spec.to_toml()), Ok(spec));
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        },
        Err(fault) => {
            assert!((1..=1 + text.matches('\n').count()).contains(&fault.line), "{fault:?}");
            assert!(!fault.reason.contains('\n'), "{fault:?}");
        }
    }
});
