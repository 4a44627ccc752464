//! Arbitrary text as a histogram. Decoding never panics and never uses more memory than a histogram
//! needs, and a decoded histogram has the same counts after it was encoded and decoded again.
//!
//! The text is base64 of a compressed stream, which random bytes practically never form. So the
//! first byte of an input selects the form of the rest: the text (`t`), the stream before
//! compression (`s`) or the counts in such a stream (`c`).
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

/// Allocator that records the peak of allocated memory.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Maximum memory in bytes; enough to decode any text and, for most of it, to build a text here.
const MEMORY_MAX: usize = 1 << 20;

/// Cookie of a compressed histogram, version 2 of the format.
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
/// Cookie of an uncompressed histogram, version 2 of the format.
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
    if let Some(summary) = summary {
        let percentiles = [summary.min, summary.p50, summary.p90, summary.p99, summary.p99_9];
        assert!(percentiles.is_sorted() && summary.p99_9 <= summary.p99_99);
        assert!(summary.p99_99 <= summary.max && summary.max <= MAX_VALUE);
        assert!(summary.mean.is_finite() && summary.stddev.is_finite());
    }
    let again = Histogram::decode(&histogram.encode()).expect("an encoded histogram is readable");
    assert_eq!(again, histogram);
}

/// Returns the text form of a stream, stored uncompressed in the zlib format.
fn text(stream: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
    let compressed = encoder.write_all(stream).and_then(|()| encoder.finish());
    let compressed = compressed.expect("writing to memory does not fail");
    let length = compressed.len() as u32;
    let head = [COMPRESSED_COOKIE, length].map(u32::to_be_bytes);
    STANDARD.encode([&head.concat(), compressed.as_slice()].concat())
}

/// Returns the stream of the given counts in the only supported layout.
fn stream(counts: &[u8]) -> Vec<u8> {
    let head = [COOKIE, counts.len() as u32, 0, 2].map(u32::to_be_bytes);
    let layout = [1, MAX_VALUE, 1.0_f64.to_bits()].map(u64::to_be_bytes);
    [head.as_flattened(), layout.as_flattened(), counts].concat()
}
