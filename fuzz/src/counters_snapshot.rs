//! Any bytes as a counter snapshot, as a request for one, and as the kernel's texts that it is made
//! of: read or refused without a panic; a refusal is one line, and what was read is written and
//! read again.
#![no_main]

use horolog_counters::{
    BearerToken, CounterQuery, CounterSnapshot, SoftnetCounts, UdpCounts, UdpSocketCounts,
    render_text,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match CounterSnapshot::parse(bytes) {
        Ok(page) => {
            let _ = render_text(&page);
            assert_eq!(CounterSnapshot::parse(page.to_json().as_bytes()), Ok(page));
        }
        Err(refusal) => assert!(!refusal.contains('\n'), "{refusal}"),
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
