//! Arbitrary text as the table file of a relay: parsing never panics, an error is one line, and a
//! parsed specification is unchanged after it was written and parsed again, or made into a table.
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
        Err(error) => {
            assert!((1..=1 + text.matches('\n').count()).contains(&error.line), "{error:?}");
            assert!(!error.reason.contains('\n'), "{error:?}");
        }
    }
});
