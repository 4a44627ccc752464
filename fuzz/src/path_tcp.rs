//! Arbitrary bytes as a message of the path protocol, as facts, and as a captured frame: parsing
//! never panics, and a parsed message is unchanged when written.
#![no_main]

use horolog_probe::path::stall::TcpSegment;
use horolog_probe::path::tcp::protocol::{
    FACTS_MAX, FarEndReport, HELLO_LEN, REPORT_LEN, TcpHello, TcpWelcome, WELCOME_LEN,
    format_facts, parse_facts,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(first) = bytes.first_chunk::<HELLO_LEN>()
        && let Some(hello) = TcpHello::parse(first)
    {
        assert_eq!(&hello.emit(), first);
    }
    if let Some(first) = bytes.first_chunk::<WELCOME_LEN>()
        && let Some(welcome) = TcpWelcome::parse(first)
    {
        assert_eq!(&welcome.emit(), first);
        assert!(usize::from(welcome.facts_bytes) <= FACTS_MAX);
    }
    if let Some(first) = bytes.first_chunk::<REPORT_LEN>()
        && let Some(report) = FarEndReport::parse(first)
    {
        assert_eq!(&report.emit(), first);
    }
    let end = parse_facts(bytes);
    let text = format_facts(&end);
    assert!(text.len() <= FACTS_MAX && parse_facts(&text) == end);
    if let Some(segment) = TcpSegment::parse(bytes) {
        assert!(segment.payload_len <= u32::from(u16::MAX));
    }
});
