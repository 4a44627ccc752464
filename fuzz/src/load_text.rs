//! Any text as a limit of a load: reading it never panics, a complaint is one line, and what can be
//! read means the same when it is read again.
#![no_main]

use horolog_load::limit::Limit;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match text.parse::<Limit>() {
        Ok(limit) => {
            assert_eq!(limit.text().parse(), Ok(limit.clone()));
            // Nothing was measured, which breaks any limit.
            assert!(limit.judge(&[], None).failed);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
