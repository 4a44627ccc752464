//! The queue in a directory of the test's own.

use std::os::unix::fs::PermissionsExt;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn queue() -> (tempfile::TempDir, JobQueue) {
    let directory = tempfile::tempdir().unwrap();
    let queue = JobQueue::default_directory(Some(directory.path().to_owned()), None).unwrap();
    (directory, queue)
}

fn job(id: u32, pid: u32) -> QueuedJob {
    let process = ProcessIdentity::from_pid(pid);
    let boot_id = "another".to_owned();
    QueuedJob {
        schema: JOB_SCHEMA.to_owned(),
        id,
        process: process.unwrap_or(ProcessIdentity { pid, start_ticks: 1, boot_id }),
        queued_at: "2026-01-02T03:04:05.678Z".to_owned(),
        first: "2026-01-02T21:00:00Z".to_owned(),
        every_ns: None,
        programs: vec![vec!["echo".to_owned(), "a\nb".to_owned()]],
        directory: "/".to_owned(),
        ended: None,
    }
}

#[test]
fn jobs_have_their_own_numbers_and_files_for_their_owner_only() {
    let (_directory, queue) = queue();
    assert_eq!(queue.list().unwrap(), []);
    let (first, _log) = queue.claim().unwrap();
    let (second, _log) = queue.claim().unwrap();
    assert_eq!((first.id, second.id), (1, 2));
    queue.write(&job(2, std::process::id())).unwrap();
    for path in [&first.file, &first.log, &second.file] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, FILE_MODE);
    }
    let mode = fs::metadata(&queue.directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, DIRECTORY_MODE);
    let standings: Vec<_> =
        queue.list().unwrap().into_iter().map(|entry| (entry.id, entry.state)).collect();
    assert_eq!(standings, [(1, JobState::Starting), (2, JobState::Waiting)]);
    assert_eq!(JobQueue::of_file(&second.file).unwrap().1, 2);
    let mut mark = queue.open_running_lock(2).unwrap();
    for (is_running, standing) in [(true, JobState::Running), (false, JobState::Waiting)] {
        mark.set(is_running);
        assert_eq!(queue.list().unwrap()[1].state, standing);
    }
    queue.finish(2, Some(0));
    assert_eq!(queue.list().unwrap().len(), 1, "an empty log goes with its job");
    assert!(matches!(queue.cancel(2), Err(JobQueueError::NoJob(2))));
}

#[test]
fn the_end_of_a_job_that_failed_or_wrote_output_is_stored() {
    let (_directory, queue) = queue();
    for (id, output, status) in [(1, "", Some(7)), (2, "said", Some(0)), (3, "", None)] {
        let (claim, mut log) = queue.claim().unwrap();
        queue.write(&job(id, std::process::id())).unwrap();
        log.write_all(output.as_bytes()).unwrap();
        queue.finish(claim.id, status);
        let entry = queue.list().unwrap().pop().unwrap();
        assert_eq!((entry.id, &entry.state), (id, &JobState::Ended));
        assert_eq!(entry.log.is_some(), !output.is_empty());
        let stored = entry.job.unwrap();
        let ended = stored.ended.clone().unwrap();
        assert_eq!((ended.status, ended.at.is_empty()), (status, false));
        assert_eq!(QueuedJob { ended: None, ..stored }, job(id, std::process::id()));
    }
    // Which this test survives: nobody is signalled.
    assert_eq!(queue.cancel(1).unwrap().state, JobState::Ended);
    assert_eq!(queue.list().unwrap().len(), 2);
}

#[test]
fn a_home_that_is_not_there_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("none");
    let queue = JobQueue::default_directory(None, Some(home.clone())).unwrap();
    assert!(matches!(queue.claim(), Err(JobQueueError::NoHome(_))));
    assert!(!home.exists() && queue.list().unwrap().is_empty());
    JobQueue::default_directory(None, Some(directory.path().to_owned())).unwrap().claim().unwrap();
}

#[test]
fn a_process_that_is_gone_or_another_one_is_no_job() {
    let (_directory, queue) = queue();
    let (claim, _log) = queue.claim().unwrap();
    let own = job(claim.id, std::process::id());
    let start_ticks = own.process.start_ticks - 1;
    let other = ProcessIdentity { start_ticks, ..own.process.clone() };
    queue.write(&QueuedJob { process: other, ..own }).unwrap();
    assert_eq!(queue.list().unwrap()[0].state, JobState::Lost);
    // Which this test survives: nobody is signalled.
    assert_eq!(queue.cancel(claim.id).unwrap().state, JobState::Lost);
    assert_eq!(queue.list().unwrap(), []);
}

#[test]
fn a_waiting_process_is_ended() {
    let (_directory, queue) = queue();
    let (claim, _log) = queue.claim().unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    queue.write(&job(claim.id, child.id())).unwrap();
    let waited = std::thread::spawn(move || child.wait().unwrap());
    assert_eq!(queue.cancel(claim.id).unwrap().state, JobState::Waiting);
    assert!(!waited.join().unwrap().success());
    assert_eq!(queue.list().unwrap(), []);
}

#[test]
fn a_file_that_is_no_job_is_reported_and_can_be_removed() {
    let (_directory, queue) = queue();
    let (first, _log) = queue.claim().unwrap();
    fs::write(&first.file, "{\"schema\":\"horolog.at-job/2\"").unwrap();
    fs::write(queue.directory.join("7.json"), job(8, 2).to_text()).unwrap();
    fs::create_dir(queue.directory.join("9.json")).unwrap();
    fs::write(queue.directory.join("10.log"), "said").unwrap();
    for strange in ["x.json", "0.json", "01.json", "+5.json", "12.txt", ".job-abc"] {
        fs::write(queue.directory.join(strange), "").unwrap();
    }
    let entries = queue.list().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [1, 7, 9, 10]);
    for entry in &entries[..3] {
        assert!(matches!(entry.state, JobState::Unreadable(_)), "{entry:?}");
    }
    assert_eq!(entries[3].state, JobState::Ended);
    queue.cancel(1).unwrap();
    queue.cancel(10).unwrap();
    assert_eq!(queue.list().unwrap().len(), 2);
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let (_directory, queue) = queue();
    fs::create_dir_all(&queue.directory).unwrap();
    fs::set_permissions(&queue.directory, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(queue.claim(), Err(JobQueueError::NotPrivate { mode: 0o777, .. })));
    assert!(matches!(JobQueue::default_directory(None, None), Err(JobQueueError::NoDirectory)));
    assert!(matches!(
        JobQueue::default_directory(Some("here".into()), None),
        Err(JobQueueError::NoDirectory)
    ));
}

proptest! {
    #[test]
    fn any_job_is_the_same_after_it_was_written_and_read(
        (id, pid, start_ticks, every_ns) in any::<(u32, u32, u64, Option<u64>)>(),
        [boot_id, first, directory] in any::<[String; 3]>(),
        programs in vec(vec(any::<String>(), 0..3), 0..3),
    ) {
        let process = ProcessIdentity { pid, start_ticks, boot_id };
        let job = QueuedJob { id, process, first, every_ns, programs, directory, ..job(1, 2) };
        prop_assert_eq!(QueuedJob::parse(job.to_text().as_bytes()).unwrap(), job);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), cut in 0..400_usize) {
        let _ = QueuedJob::parse(&bytes);
        let text = job(3, 2).to_text();
        let half = &text.as_bytes()[..cut.min(text.len() - 3)];
        prop_assert!(QueuedJob::parse(half).is_err());
    }
}
