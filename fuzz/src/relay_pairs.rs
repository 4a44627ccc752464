//! Arbitrary text as a file of delays between pairs: parsing never panics, an error is one line,
//! and the tree built from it has all nodes within the limit of the degree.
#![no_main]

use horolog_relay::tree::{PairDelays, ProcessingTime, compact_tree};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [degree, bytes @ ..] = bytes else { return };
    let Ok(text) = str::from_utf8(bytes) else { return };
    match PairDelays::parse(text) {
        Ok(pairs) => {
            let degree_max = 1 + usize::from(*degree) % 8;
            let processing = ProcessingTime { first_ns: 20e3, next_ns: 6e3 };
            match compact_tree(&pairs, 0, degree_max, processing) {
                Ok(tree) => {
                    assert_eq!(tree.nodes().len(), pairs.names().len());
                    assert!(tree.degree_max() <= degree_max);
                    assert_eq!(tree.nodes()[0].name, pairs.names()[0]);
                    assert!(tree.nodes().iter().all(|node| node.delay_ns.is_finite()));
                }
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
        }
        Err(error) => {
            assert!((1..=1 + text.matches('\n').count()).contains(&error.line), "{error:?}");
            assert!(!error.reason.contains('\n'), "{error:?}");
        }
    }
});
