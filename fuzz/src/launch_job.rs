//! Any bytes as the file of a job in the queue. Reading it never panics, an error is one line,
//! and a job that was read is the same when it was written and read again.
#![no_main]

use horolog_launch::QueuedJob;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match QueuedJob::parse(bytes) {
    Ok(job) => {
        assert_eq!(
            QueuedJob::parse(job.to_text().as_bytes()).expect("what is written is read"),
            job
        );
        // Whoever it names is looked at and not touched.
        let _ = job.process.is_running();
    }
    Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
});
