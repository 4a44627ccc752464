//! Arbitrary bytes as a counter snapshot, as a query of one, and as the kernel's texts from which
//! it is made: parsing never panics, an error is one line, and a parsed snapshot or query is
//! unchanged after it was written and parsed again.
#![no_main]

use horolog_counters::{
    BearerToken, CounterQuery, CounterSnapshot, SoftnetCounts, UdpCounts, UdpSocketCounts,
    render_text,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match CounterSnapshot::parse(bytes) {
        Ok(snapshot) => {
            let _ = render_text(&snapshot);
            assert_eq!(CounterSnapshot::parse(snapshot.to_json().as_bytes()), Ok(snapshot));
        }
        Err(error) => assert!(!error.contains('\n'), "{error}"),
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(query) = CounterQuery::parse(text) {
        assert_eq!(CounterQuery::parse(&query.to_string()), Ok(query));
    }
    let _ = UdpCounts::parse_snmp(text);
    let _ = UdpCounts::parse_snmp6(text);
    let _ = SoftnetCounts::parse(text);
    let _ = UdpSocketCounts::parse_table(text);
    let _ = BearerToken::parse(text);
});
