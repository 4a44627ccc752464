//! Arbitrary text as a limit of a load and as a load profile: parsing never panics, an error is one
//! line, and a parsed limit is unchanged after it was written and parsed again.
#![no_main]

use horolog_load::limit::LoadMetricLimit;
use horolog_load::profile_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    limit(text);
    match profile_file::parse(text, None) {
        Ok(profile) => {
            assert!(profile.interval_count() > 0 && profile.rate_min() > 0.0);
            assert_eq!(profile.phase_ends().last(), Some(&profile.interval_count()));
        }
        Err(error) => {
            let lines = 1 + text.matches('\n').count();
            assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
});

fn limit(text: &str) {
    match text.parse::<LoadMetricLimit>() {
        Ok(limit) => {
            assert_eq!(limit.text().parse(), Ok(limit.clone()));
            // Without a measurement every limit fails.
            assert!(limit.evaluate(&[], None).failed);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
