//! CPU affinity and scheduling of this thread: cores, nice value, real-time policies, timer slack.

use std::io;
use std::num::NonZeroU64;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{current_timer_slack, set_current_timer_slack};

use crate::descriptor::check;

/// 64-bit words of a set of cores, for 8,192 cores: the most that Linux can be built for.
const WORDS: usize = 128;

/// Set of cores in the kernel's layout; the C library's `cpu_set_t` ends at 1,024 cores.
type CoreSet = [u64; WORDS];

/// Returns the cores that this thread may run on, in order.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let mut set: CoreSet = [0; WORDS];
    // SAFETY: the set and its size; 0 is this thread. The kernel writes no more than the size, and
    // a `cpu_set_t` is the same array of words, only shorter.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr().cast()) })?;
    Ok((0..WORDS * 64).filter(|core| set[core / 64] >> (core % 64) & 1 == 1).collect())
}

/// Pins this thread to one core.
///
/// # Errors
///
/// `InvalidInput` if the core does not exist or is not allowed to this process.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut set: CoreSet = [0; WORDS];
    *set.get_mut(core / 64).ok_or(io::ErrorKind::InvalidInput)? = 1 << (core % 64);
    // SAFETY: the set and its size, only read; 0 is this thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) }).map(drop)
}

/// Pins a program to one core, with all of its threads. Its start fails if the core does not exist
/// or is not allowed to this process.
pub fn pin_command_to_core(command: &mut Command, core: usize) -> &mut Command {
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed;
    // it makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || pin_to_core(core)) }
}

/// Increases the nice value of this thread by `steps`, up to 19, so that other threads have
/// precedence: each step divides its scheduling weight by 1.25 (sched(7)).
pub fn increase_nice(steps: u8) -> io::Result<()> {
    let increased = (nice()? + i32::from(steps)).min(19);
    Ok(setpriority_process(None, increased)?)
}

/// Returns this thread's nice value, -20 to 19.
pub fn nice() -> io::Result<i32> {
    Ok(getpriority_process(None)?)
}

/// Result of a request for real-time scheduling.
#[derive(Debug)]
pub enum RealTimeSchedulingOutcome {
    /// Real-time (`SCHED_FIFO`): precedes all sched-other threads.
    RealTime,
    /// Unchanged, for this reason: usually a lack of `CAP_SYS_NICE`.
    Unchanged(io::Error),
}

/// Requests `SCHED_FIFO` for this thread at `priority` (1 to 99), and leaves its scheduling
/// unchanged if that is not allowed. A real-time thread must sleep now and then, because the kernel
/// throttles one that spins (`sched_rt_runtime_us`).
#[must_use = "says whether real-time scheduling was allowed"]
pub fn try_real_time(priority: i32) -> RealTimeSchedulingOutcome {
    match set_policy(libc::SCHED_FIFO, priority) {
        Ok(()) => RealTimeSchedulingOutcome::RealTime,
        Err(error) => RealTimeSchedulingOutcome::Unchanged(error),
    }
}

/// Makes a real-time thread sched-other again.
pub fn set_sched_other() -> io::Result<()> {
    set_policy(libc::SCHED_OTHER, 0)
}

fn set_policy(policy: i32, priority: i32) -> io::Result<()> {
    // Threads and processes started by this one are sched-other again.
    SchedulingParameters { number: policy | libc::SCHED_RESET_ON_FORK, priority }.set(0)
}

/// Scheduling policy of a thread with its real-time priority and reset-on-fork flag (sched(7)). The
/// nice value is separate and not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedulingParameters {
    number: libc::c_int,
    priority: libc::c_int,
}

impl SchedulingParameters {
    /// Returns the policy of this thread.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn current() -> io::Result<Self> {
        // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
        let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: numbers only; 0 is this thread.
        let number = check(unsafe { libc::sched_getscheduler(0) })?;
        // SAFETY: one structure that outlives the call; 0 is this thread.
        check(unsafe { libc::sched_getparam(0, &raw mut parameters) })?;
        Ok(Self { number, priority: parameters.sched_priority })
    }

    /// Returns `SCHED_FIFO` at `priority`; children inherit it unless `reset_on_fork`.
    #[must_use]
    pub const fn fifo(priority: libc::c_int, reset_on_fork: bool) -> Self {
        let flag = if reset_on_fork { libc::SCHED_RESET_ON_FORK } else { 0 };
        Self { number: libc::SCHED_FIFO | flag, priority }
    }

    /// Returns `SCHED_RR` at `priority`; children inherit it unless `reset_on_fork`.
    #[must_use]
    pub const fn round_robin(priority: libc::c_int, reset_on_fork: bool) -> Self {
        let flag = if reset_on_fork { libc::SCHED_RESET_ON_FORK } else { 0 };
        Self { number: libc::SCHED_RR | flag, priority }
    }

    /// Returns the policy without its reset-on-fork flag.
    pub(crate) const fn without_reset(self) -> Self {
        Self { number: self.number & !libc::SCHED_RESET_ON_FORK, priority: self.priority }
    }

    /// Returns true for a policy that precedes all sched-other threads.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        let number = self.number & !libc::SCHED_RESET_ON_FORK;
        matches!(number, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
    }

    /// Returns true for the default policy (`SCHED_OTHER`).
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.number & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER
    }

    /// Applies the policy to this thread.
    ///
    /// # Errors
    ///
    /// `EPERM` if this thread may not have the policy.
    pub fn apply(self) -> io::Result<()> {
        self.set(0)
    }

    /// Applies the policy to the thread with this ID, 0 for the calling thread. Neither allocates
    /// nor locks.
    pub(crate) fn set(self, thread: libc::pid_t) -> io::Result<()> {
        // SAFETY: a plain C structure of numbers, for which all bytes zero is valid; it has further
        // members in some C libraries.
        let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
        parameters.sched_priority = self.priority;
        // SAFETY: one structure that outlives the call, and numbers.
        check(unsafe { libc::sched_setscheduler(thread, self.number, &raw const parameters) })
            .map(drop)
    }
}

/// Reservation of a thread under `SCHED_DEADLINE`, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadlineReservation {
    /// CPU time in each period.
    pub runtime_ns: u64,
    /// Relative deadline, counted from the beginning of the period.
    pub deadline_ns: u64,
    /// Length of the period.
    pub period_ns: u64,
}

/// Applies a deadline reservation to this thread (`sched_setattr(2)`; Linux,
/// `Documentation/scheduler/sched-deadline.rst`). Its children are sched-other.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_NICE`, or for a thread that may not run on all cores; `EBUSY` if the
/// cores have no more bandwidth; `EINVAL` if the times are out of order or too short.
pub fn apply_reservation(reservation: DeadlineReservation) -> io::Result<()> {
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_DEADLINE as u32,
        flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        runtime: reservation.runtime_ns,
        deadline: reservation.deadline_ns,
        period: reservation.period_ns,
        ..SchedulingAttributes::default()
    };
    // SAFETY: a structure of numbers that contains its size, only read; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) }
        as libc::c_int;
    check(result).map(drop)
}

/// `struct sched_attr` of the kernel, version 0.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Sets the timer slack of this thread: the time in ns, at least 1, by which the kernel may delay
/// wake-ups to coalesce them. The default is 50,000; real-time threads have none
/// (`PR_SET_TIMERSLACK` in prctl(2)).
pub fn set_timer_slack_ns(slack_ns: u32) -> io::Result<()> {
    // Zero would mean the default.
    Ok(set_current_timer_slack(NonZeroU64::new(slack_ns.max(1).into()))?)
}

/// Returns the timer slack of this thread, in nanoseconds.
pub fn timer_slack_ns() -> io::Result<u32> {
    Ok(current_timer_slack()? as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In threads of their own, since the settings stay.
    fn in_a_thread(test: fn()) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_pinned_thread_has_one_core() {
        in_a_thread(|| {
            let last = *allowed_cores().unwrap().last().unwrap();
            pin_to_core(last).unwrap();
            assert_eq!(allowed_cores().unwrap(), [last]);
        });
    }

    #[test]
    fn a_program_is_pinned_to_its_core() {
        let last = *allowed_cores().unwrap().last().unwrap();
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        let output = pin_command_to_core(&mut command, last).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.split_whitespace().last(), Some(&*last.to_string()), "{text}");
        assert!(pin_command_to_core(&mut Command::new("true"), usize::MAX).status().is_err());
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        in_a_thread(|| {
            for core in [WORDS * 64 - 1, WORDS * 64, usize::MAX] {
                assert_eq!(pin_to_core(core).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
        });
    }

    #[test]
    fn a_thread_that_stands_back_has_a_nice_value() {
        in_a_thread(|| {
            increase_nice(3).unwrap();
            assert_eq!(nice().unwrap(), 3);
        });
    }

    #[test]
    fn a_policy_is_read_and_restored() {
        in_a_thread(|| {
            let usual = SchedulingParameters::current().unwrap();
            assert!(usual.is_default() && !usual.is_real_time());
            assert!(
                SchedulingParameters::fifo(1, false).is_real_time()
                    && SchedulingParameters::fifo(1, true).is_real_time()
            );
            increase_nice(12).unwrap();
            let batch = SchedulingParameters { number: libc::SCHED_BATCH, priority: 0 };
            batch.apply().unwrap();
            assert_eq!(SchedulingParameters::current().unwrap(), batch);
            usual.apply().unwrap();
            assert_eq!(SchedulingParameters::current().unwrap(), usual);
            assert_eq!(nice().unwrap(), 12);
        });
    }

    #[test]
    fn an_impossible_reservation_is_refused() {
        in_a_thread(|| {
            let longer_than_its_period = DeadlineReservation {
                runtime_ns: 2_000_000,
                deadline_ns: 2_000_000,
                period_ns: 1_000_000,
            };
            let error = apply_reservation(longer_than_its_period).unwrap_err();
            // The kernel checks the times before the privileges.
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        });
    }

    #[test]
    fn an_impossible_priority_leaves_the_thread_ordinary() {
        in_a_thread(|| {
            assert!(matches!(try_real_time(1_000), RealTimeSchedulingOutcome::Unchanged(_)));
            set_timer_slack_ns(1).unwrap();
            assert_eq!(timer_slack_ns().unwrap(), 1);
            set_sched_other().unwrap();
        });
    }
}
