//! Arbitrary text as a tree file: parsing never panics, an error is one line, a parsed tree is
//! unchanged after it was written and parsed again, and its mean delay does not exceed its maximum
//! delay.
#![no_main]

use horolog_relay::tree::{TreeDelays, TreeFile, replacement_gain, tree_delays};
use libfuzzer_sys::fuzz_target;

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn engine_delays(file: &TreeFile) -> Vec<TreeDelays> {
    file.engines.iter().map(|engine| tree_delays(&file.tree, engine)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let file = match TreeFile::parse(text) {
        Ok(file) => file,
        Err(error) => {
            assert!((1..=1 + text.matches('\n').count()).contains(&error.line), "{error:?}");
            assert!(!error.reason.contains('\n'), "{error:?}");
            return;
        }
    };
    let again = TreeFile::parse(&file.to_toml()).expect("a written tree is readable");
    assert_eq!(again.tree.nodes().len(), file.tree.nodes().len());
    for (old, new) in file.tree.nodes().iter().zip(again.tree.nodes()) {
        assert_eq!(
            (&old.name, old.parent, old.child_index),
            (&new.name, new.parent, new.child_index)
        );
    }
    for (old, new) in engine_delays(&file).iter().zip(engine_delays(&again)) {
        assert!(is_close(old.tree_ns, new.tree_ns) && is_close(old.mean_ns, new.mean_ns));
        assert!(old.mean_ns <= old.tree_ns * (1.0 + 1e-9));
    }
    if let [before, after] = &file.engines[..] {
        let replacement_gain = replacement_gain(&file.tree, before, after);
        assert!(replacement_gain.tree_ns.is_finite() && replacement_gain.mean_ns.is_finite());
    }
});
