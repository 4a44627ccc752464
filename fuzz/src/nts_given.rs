//! Any text as a session that is handed over. Reading it never panics, and what was understood has
//! a cookie and keys of the one length that there is.
#![no_main]

use horolog_nts::GivenSession;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(session) = GivenSession::parse(text) {
        assert!(!session.cookie().is_empty());
        assert_eq!((session.keys().c2s().len(), session.keys().s2c().len()), (32, 32));
        assert_eq!(session.opens(), text.matches(',').count() == 2);
    }
});
