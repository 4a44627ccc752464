//! alarm(2), pause(2) and sleep(3) in a child process, because an alarm and its signal handler
//! belong to a whole process.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFlags, pause};
use rustix::io::{Errno, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};

use crate::affinity::{set_timer_slack_ns, try_real_time};
use crate::descriptor::{check, wait_for};

/// Number of `SIGALRM` signals handled in the child.
static ALARM_SIGNALS: AtomicU32 = AtomicU32::new(0);
/// Time to a pending alarm while another wait is measured, in seconds.
const PENDING_ALARM_S: u32 = 100;

/// Scheduling of the child process.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlarmChildScheduling {
    /// Timer slack in ns; inherited if `None`.
    pub slack_ns: Option<u32>,
    /// Priority under `SCHED_FIFO`; sched-other if `None`.
    pub real_time_priority: Option<i32>,
}

/// Effect of a wait function on a pending alarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingAlarmEffect {
    /// Signals `SIGALRM` received.
    pub signals: u32,
    /// Decrease of the remaining alarm time in seconds, rounded up.
    pub elapsed_s: u32,
}

/// Returns the time that alarm(2) for `seconds` and pause(2) take, in ns on `CLOCK_MONOTONIC`.
///
/// # Errors
///
/// If the child cannot be created, its scheduling is refused, or it does not end in time.
pub fn alarm_and_pause(seconds: u32, settings: AlarmChildScheduling) -> io::Result<u64> {
    let limit = Duration::from_secs(u64::from(seconds) + 5);
    let [took_ns] = run_in_child(limit, settings, || {
        let begun = now_ns();
        // SAFETY: a number in, a number out; the signal has a handler in this process.
        unsafe { libc::alarm(seconds) };
        // It returns when a handler has.
        pause();
        [now_ns().wrapping_sub(begun)]
    })?;
    Ok(took_ns)
}

/// Measures the effect of `wait` on a pending alarm. A wait function that uses alarms itself would
/// replace the alarm or cause its signal.
///
/// # Errors
///
/// Errors of [`alarm_and_pause`].
///
/// # Safety
///
/// `wait` runs in a forked child: it may make system calls, and neither allocate nor lock.
unsafe fn measure_alarm_interaction(wait: impl Fn()) -> io::Result<PendingAlarmEffect> {
    let [signals, left_s] =
        run_in_child(Duration::from_secs(10), AlarmChildScheduling::default(), || {
            // SAFETY: numbers alone; the signal has a handler in this process.
            unsafe { libc::alarm(PENDING_ALARM_S) };
            wait();
            // SAFETY: as above; the alarm is taken back.
            let left_s = unsafe { libc::alarm(0) };
            [u64::from(ALARM_SIGNALS.load(Ordering::Relaxed)), u64::from(left_s)]
        })?;
    let elapsed_s = PENDING_ALARM_S.saturating_sub(left_s as u32);
    Ok(PendingAlarmEffect { signals: signals as u32, elapsed_s })
}

/// Measures the effect of sleep(3) for one second on a pending alarm.
///
/// # Errors
///
/// Errors of [`alarm_and_pause`].
pub fn sleep_with_pending_alarm() -> io::Result<PendingAlarmEffect> {
    // SAFETY: one call that waits, in the C library a system call alone.
    unsafe {
        measure_alarm_interaction(|| {
            libc::sleep(1);
        })
    }
}

/// Measures the effect of usleep(3) for 20 ms on a pending alarm.
///
/// # Errors
///
/// Errors of [`alarm_and_pause`].
pub fn usleep_with_pending_alarm() -> io::Result<PendingAlarmEffect> {
    // SAFETY: as above.
    unsafe {
        measure_alarm_interaction(|| {
            libc::usleep(20_000);
        })
    }
}

extern "C" fn count_signal(_: libc::c_int) {
    ALARM_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Runs `work` in a forked child with a handler for `SIGALRM`, and returns its numbers. The child
/// may only make system calls, because another thread may hold any lock at the fork.
fn run_in_child<const N: usize>(
    limit: Duration,
    settings: AlarmChildScheduling,
    work: impl FnOnce() -> [u64; N],
) -> io::Result<[u64; N]> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child runs the code of the branch below, which makes system calls and touches
    // nothing that another thread may have left half changed, and ends without destructors.
    let child = check(unsafe { libc::fork() })?;
    let Some(child) = Pid::from_raw(child) else {
        let numbers = prepare_child(settings).map(|()| work());
        // Fails only if the parent has stopped reading.
        for number in numbers.iter().flatten() {
            let _ = write(&writer, &number.to_ne_bytes());
        }
        // SAFETY: the end of this process, without running anything else in it.
        unsafe { libc::_exit(numbers.is_err().into()) }
    };
    drop(writer);
    let numbers = read_numbers(reader, limit);
    // A child that nothing else waits for; one that has ended is not harmed.
    let _ = kill_process(child, Signal::KILL);
    while matches!(waitpid(Some(child), WaitOptions::empty()), Err(Errno::INTR)) {}
    numbers
}

/// Sets up scheduling and signal handler of the child, by system calls only.
fn prepare_child(settings: AlarmChildScheduling) -> io::Result<()> {
    // It dies with the thread that made it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let handler: extern "C" fn(libc::c_int) = count_signal;
    // SAFETY: a plain C structure, for which all bytes zero is valid: no flag, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler touches an atomic alone; the set is initialised before it is used.
    unsafe {
        check(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()))?;
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
    ALARM_SIGNALS.store(0, Ordering::Relaxed);
    if let Some(slack_ns) = settings.slack_ns {
        set_timer_slack_ns(slack_ns)?;
    }
    match settings.real_time_priority.map(try_real_time) {
        Some(crate::affinity::RealTimeSchedulingOutcome::Unchanged(error)) => Err(error),
        _ => Ok(()),
    }
}

fn read_numbers<const N: usize>(reader: OwnedFd, limit: Duration) -> io::Result<[u64; N]> {
    let begun = Instant::now();
    // A signal ends a wait early.
    while !wait_for(reader.as_fd(), PollFlags::IN, limit.saturating_sub(begun.elapsed()))? {
        if begun.elapsed() >= limit {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    let mut numbers = [0; N];
    let mut file = File::from(reader);
    for number in &mut numbers {
        let mut bytes = [0; size_of::<u64>()];
        // The child ended without numbers because its scheduling was refused.
        file.read_exact(&mut bytes)
            .map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
        *number = u64::from_ne_bytes(bytes);
    }
    Ok(numbers)
}

fn now_ns() -> u64 {
    let time = crate::clock::read(libc::CLOCK_MONOTONIC);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_ends_a_pause_after_its_second() {
        let took_ns = alarm_and_pause(1, AlarmChildScheduling::default()).unwrap();
        assert!((1_000_000_000..5_000_000_000).contains(&took_ns), "{took_ns}");
    }

    #[test]
    fn what_is_no_wait_of_alarms_leaves_one_alone() {
        let interaction = usleep_with_pending_alarm().unwrap();
        assert!(interaction.signals == 0 && interaction.elapsed_s <= 2, "{interaction:?}");
    }

    #[test]
    fn a_wait_of_alarms_is_distinguished_from_others() {
        // SAFETY: system calls alone.
        let interaction = unsafe {
            measure_alarm_interaction(|| {
                libc::alarm(1);
                libc::pause();
            })
        };
        assert_eq!(
            interaction.unwrap(),
            PendingAlarmEffect { signals: 1, elapsed_s: PENDING_ALARM_S }
        );
    }

    #[test]
    fn an_impossible_priority_is_refused() {
        let settings = AlarmChildScheduling {
            real_time_priority: Some(1_000),
            ..AlarmChildScheduling::default()
        };
        let error = alarm_and_pause(1, settings).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
