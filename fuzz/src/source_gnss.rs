//! Any bytes as what comes over a receiver's line. Finding and reading sentences never panics, no
//! sentence is longer than one can be, and a whole sentence behind the noise is found and read.
#![no_main]

use horolog_source::{ParsedSentence, ReceiverLeapReport, SentenceFramer};
use horolog_time::{NS_PER_S, Timestamp};
use libfuzzer_sys::fuzz_target;

const WHOLE: &[u8] = b"$GPZDA,081253.00,27,02,2019,00,00*66\r\n";
/// 2019-02-27 08:12:53 UTC.
const NAMED: i64 = 1_551_255_173 * NS_PER_S;

fuzz_target!(|bytes: &[u8]| {
    let mut framer = SentenceFramer::default();
    let mut last = None;
    for (index, byte) in bytes.iter().chain(WHOLE).enumerate() {
        if let Some((text, began)) = framer.push_byte(*byte, Timestamp::from_ns(index as i64)) {
            assert!(text.is_ascii() && text.len() < bytes.len() + WHOLE.len());
            assert!(began.as_ns() < index as i64);
            last = ParsedSentence::parse(text);
            is_possible(ReceiverLeapReport::from_sentence(text));
        }
    }
    let sentence = last.expect("a kind that is known").expect("readable");
    assert_eq!(sentence.utc.as_ns(), NAMED);
    let counts = framer.counts();
    let all = counts.good + counts.damaged();
    assert!(all <= (bytes.len() + WHOLE.len()) as u64);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = ParsedSentence::parse(text);
        is_possible(ReceiverLeapReport::from_sentence(text));
    }
});

fn is_possible(report: Option<ReceiverLeapReport>) {
    assert!(report.is_none_or(|report| (30..=60).contains(&report.tai_minus_utc_s)));
}
