//! Arbitrary bytes as the file of a job in the queue. Parsing never panics, an error is one line,
//! and a parsed job is unchanged after it was written and parsed again.
#![no_main]

use horolog_launch::QueuedJob;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match QueuedJob::parse(bytes) {
    Ok(job) => {
        assert_eq!(
            QueuedJob::parse(job.to_text().as_bytes()).expect("a written job is readable"),
            job
        );
        // The process of the file is only examined, never signalled.
        let _ = job.process.is_running();
    }
    Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
});
