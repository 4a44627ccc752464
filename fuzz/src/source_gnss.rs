//! Arbitrary bytes from the serial line of a receiver. Framing and parsing never panic, no sentence
//! exceeds the maximum length, and a valid sentence after the noise is found and parsed.
#![no_main]

use horolog_source::{ParsedSentence, ReceiverLeapReport, SentenceFramer};
use horolog_time::{NS_PER_S, Timestamp};
use libfuzzer_sys::fuzz_target;

const SENTENCE: &[u8] = b"$GPZDA,081253.00,27,02,2019,00,00*66\r\n";
/// Time of [`SENTENCE`]: 2019-02-27 08:12:53 UTC.
const SENTENCE_NS: i64 = 1_551_255_173 * NS_PER_S;

fuzz_target!(|bytes: &[u8]| {
    let mut framer = SentenceFramer::default();
    let mut last = None;
    for (index, byte) in bytes.iter().chain(SENTENCE).enumerate() {
        if let Some((text, began)) = framer.push_byte(*byte, Timestamp::from_ns(index as i64)) {
            assert!(text.is_ascii() && text.len() < bytes.len() + SENTENCE.len());
            assert!(began.as_ns() < index as i64);
            last = ParsedSentence::parse(text);
            assert_plausible(ReceiverLeapReport::from_sentence(text));
        }
    }
    let sentence = last.expect("a supported kind").expect("readable");
    assert_eq!(sentence.utc.as_ns(), SENTENCE_NS);
    let counts = framer.counts();
    let all = counts.good + counts.damaged();
    assert!(all <= (bytes.len() + SENTENCE.len()) as u64);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = ParsedSentence::parse(text);
        assert_plausible(ReceiverLeapReport::from_sentence(text));
    }
});

fn assert_plausible(report: Option<ReceiverLeapReport>) {
    assert!(report.is_none_or(|report| (30..=60).contains(&report.tai_minus_utc_s)));
}
