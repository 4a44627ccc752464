//! Arbitrary bytes as a sample of shared memory, as a datagram of a sample socket and as the text
//! of a source, a pulse and a receiver. Parsing never panics; a parsed datagram is unchanged after
//! it was written and parsed again.
#![no_main]

use horolog_source::{PulseSpec, SentenceInput, SockSample, SourceSpec, parse_segment};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut words = [0; 24];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes(chunk.try_into().expect("four bytes"));
    }
    if let Some(sample) = parse_segment(&words) {
        let _ = (sample.true_time - sample.system).as_seconds();
    }
    if let Some(sample) = SockSample::parse(bytes) {
        let again = SockSample::parse(&sample.emit()).expect("a written sample is readable");
        assert_eq!((again.pulse, again.leap), (sample.pulse, sample.leap));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(spec) = text.parse::<SourceSpec>() {
            assert_eq!(spec.text, text);
        }
        if let Ok(pulse) = text.parse::<PulseSpec>() {
            assert!(pulse.check().is_ok() && pulse.path().is_absolute());
        }
        if let Ok(SentenceInput::Serial(path, _)) = text.parse() {
            assert!(path.is_absolute());
        }
    }
});
