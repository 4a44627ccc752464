//! Any text as a histogram. Reading it never panics and never takes more memory than a histogram
//! needs, and what can be read has the same counts when it was written and read again.
//!
//! The text is base64 of a compressed stream, which chance does not find its way into. So the first
//! byte of an input says what the rest of it is: the text (`t`), the stream before it is compressed
//! (`s`) or the counts in such a stream (`c`).
#![no_main]

use std::alloc::System;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cap::Cap;
use flate2::{Compression, write::ZlibEncoder};
use horolog_stats::Histogram;
use horolog_stats::buckets::MAX_VALUE;
use libfuzzer_sys::fuzz_target;

/// Knows the most that was ever taken at a time.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Enough to unpack and read any text and, most of it, to put one together here.
const MEMORY_MAX: usize = 1 << 20;

/// The cookies of the format's V2, compressed and not.
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const COOKIE: u32 = 0x1c84_9313;

fuzz_target!(|bytes: &[u8]| {
    match bytes {
        [b't', text @ ..] => {
            if let Ok(text) = str::from_utf8(text) {
                check(text);
            }
        }
        [b's', stream @ ..] => check(&text(stream)),
        [b'c', counts @ ..] => check(&text(&stream(counts))),
        _ => {}
    }
});

fn check(text: &str) {
    let decoded = Histogram::decode(text);
    assert!(MEMORY.max_allocated() <= MEMORY_MAX, "{} bytes", MEMORY.max_allocated());
    let Ok(histogram) = decoded else { return };

    let summary = histogram.summary();
    assert_eq!(summary.is_none(), histogram.is_empty());
    if let Some(figures) = summary {
        let rising = [figures.min, figures.p50, figures.p90, figures.p99, figures.p99_9];
        assert!(rising.is_sorted() && figures.p99_9 <= figures.p99_99);
        assert!(figures.p99_99 <= figures.max && figures.max <= MAX_VALUE);
        assert!(figures.mean.is_finite() && figures.stddev.is_finite());
    }
    let again = Histogram::decode(&histogram.encode()).expect("what is written can be read");
    assert_eq!(again, histogram);
}

/// The text form of a stream. The compressor's store level keeps what it is given as it is.
fn text(stream: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
    let compressed = encoder.write_all(stream).and_then(|()| encoder.finish());
    let compressed = compressed.expect("writing to memory does not fail");
    let length = compressed.len() as u32;
    let head = [COMPRESSED_COOKIE, length].map(u32::to_be_bytes);
    STANDARD.encode([&head.concat(), compressed.as_slice()].concat())
}

/// The stream that holds these counts in the one layout that is read.
fn stream(counts: &[u8]) -> Vec<u8> {
    let head = [COOKIE, counts.len() as u32, 0, 2].map(u32::to_be_bytes);
    let layout = [1, MAX_VALUE, 1.0_f64.to_bits()].map(u64::to_be_bytes);
    [head.as_flattened(), layout.as_flattened(), counts].concat()
}
