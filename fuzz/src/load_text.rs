//! Any text as a limit of a load and as a profile: reading it never panics, a complaint
//! is one line, and what can be read means the same when it is read again.
#![no_main]

use horolog_load::limit::LoadMetricLimit;
use horolog_load::profile_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    limit(text);
    match profile_file::parse(text, None) {
        Ok(course) => {
            assert!(course.interval_count() > 0 && course.rate_min() > 0.0);
            assert_eq!(course.phase_ends().last(), Some(&course.interval_count()));
        }
        Err(fault) => {
            let lines = 1 + text.matches('\n').count();
            assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault}");
            assert!(!fault.to_string().contains('\n'), "{fault}");
        }
    }
});

fn limit(text: &str) {
    match text.parse::<LoadMetricLimit>() {
        Ok(limit) => {
            assert_eq!(limit.text().parse(), Ok(limit.clone()));
            // Nothing was measured, which breaks any limit.
            assert!(limit.evaluate(&[], None).failed);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
