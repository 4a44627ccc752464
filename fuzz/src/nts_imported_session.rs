//! Arbitrary text as an imported session. Parsing never panics, and a parsed session has a cookie
//! and keys of the only valid length.
#![no_main]

use horolog_nts::ImportedSession;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(session) = ImportedSession::parse(text) {
        assert!(!session.cookie().is_empty());
        assert_eq!((session.keys().c2s().len(), session.keys().s2c().len()), (32, 32));
        assert_eq!(session.can_open_replies(), text.matches(',').count() == 2);
    }
});
