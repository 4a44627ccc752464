//! Preparations against latency in a run: a real-time priority and locked memory. Whatever is
//! refused becomes a finding, and the run continues without it.

use std::io;
use std::time::Duration;

use horolog_record::{AtScheduling, Finding, FindingCode, Severity};
use horolog_sys::affinity::{SchedulingParameters, nice};
use horolog_sys::capability::{Capabilities, Capability};
use horolog_sys::memory::LockedMemoryGuard;
use horolog_sys::spawn::{DefaultScheduling, StartPriority};

use super::TimedRunOptions;

/// `SCHED_FIFO` priority of programs at their start: above most computing tasks, and below the
/// kernel's own threads at 50 and more.
const START_PRIORITY: i32 = 40;

/// Preparations in effect while instants are waited for.
#[derive(Debug)]
pub(super) struct LatencyPreparations {
    scheduling: AtScheduling,
    default_scheduling: DefaultScheduling,
    start_priority: Option<StartPriority>,
    head_start: Option<Duration>,
    memory: Option<LockedMemoryGuard>,
    memory_locked: bool,
    findings: Vec<Finding>,
}

impl LatencyPreparations {
    /// Sets a real-time priority for this thread, which the threads that start programs inherit,
    /// unless it has one already, and locks memory, both as far as permitted.
    pub(super) fn apply(options: &TimedRunOptions) -> io::Result<Self> {
        let default_scheduling = DefaultScheduling::current()?;
        let priority = start_priority(default_scheduling, options.head_start);
        let (scheduling, priority, refused) = if default_scheduling.policy().is_real_time() {
            (AtScheduling::RealTime, None, None)
        } else {
            match SchedulingParameters::fifo(START_PRIORITY, false).apply() {
                Ok(()) => (AtScheduling::RealTime, Some(priority), None),
                Err(error) => (AtScheduling::Ordinary, None, Some(error)),
            }
        };
        let keeps_priority = priority.is_some_and(|priority| priority.keeps_priority)
            && !options.programs.is_empty();
        let memory = LockedMemoryGuard::lock_present();
        let unlocked = memory.as_ref().err().map(memory_not_locked);
        Ok(Self {
            scheduling,
            default_scheduling,
            start_priority: priority,
            head_start: keeps_priority.then_some(options.head_start),
            memory_locked: memory.is_ok(),
            memory: memory.ok(),
            findings: refused.as_ref().map(real_time_refused).into_iter().chain(unlocked).collect(),
        })
    }

    /// Returns the scheduling of this thread before the preparations, which is the default of
    /// programs.
    pub(super) const fn default_scheduling(&self) -> DefaultScheduling {
        self.default_scheduling
    }

    pub(super) const fn scheduling(&self) -> AtScheduling {
        self.scheduling
    }

    /// Returns the priority with which programs are started at an instant; `None` if this thread
    /// was real-time already, or if a real-time priority was refused.
    pub(super) const fn start_priority(&self) -> Option<StartPriority> {
        self.start_priority
    }

    /// Returns the time for which programs keep the start priority; `None` if they do not.
    pub(super) const fn head_start(&self) -> Option<Duration> {
        self.head_start
    }

    pub(super) const fn memory_locked(&self) -> bool {
        self.memory_locked
    }

    /// Returns the findings on refused preparations.
    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Locks the present memory of this process again, unless locking has failed before.
    pub(super) fn lock_memory(&mut self) {
        if self.memory_locked && self.memory.is_none() {
            self.memory = LockedMemoryGuard::lock_present().ok();
            self.memory_locked = self.memory.is_some();
        }
    }

    /// Unlocks the memory until the next instant is near.
    pub(super) fn unlock_memory(&mut self) {
        self.memory = None;
    }
}

/// Returns the start priority of a program. To lower the program's priority later means to change
/// another process, which needs `CAP_SYS_NICE`. Children of the program have default scheduling, so
/// the priority is kept only if this process's own scheduling is the default too.
fn start_priority(default_scheduling: DefaultScheduling, head_start: Duration) -> StartPriority {
    let can_lower_priority =
        Capabilities::effective().is_ok_and(|all| all.has(Capability::SysNice));
    let is_default = default_scheduling.policy().is_default() && nice().is_ok_and(|nice| nice == 0);
    StartPriority {
        priority: START_PRIORITY,
        keeps_priority: can_lower_priority && is_default && !head_start.is_zero(),
    }
}

fn real_time_refused(error: &io::Error) -> Finding {
    Finding {
        code: FindingCode::RealTimeRefused,
        severity: Severity::Warning,
        message: format!(
            "SCHED_FIFO was refused ({error}): on a busy host other processes may delay the start \
             by some milliseconds."
        ),
        advice: "Run as root, with CAP_SYS_NICE, or with an RLIMIT_RTPRIO that allows it."
            .to_owned(),
        trial: None,
    }
}

fn memory_not_locked(error: &io::Error) -> Finding {
    Finding {
        code: FindingCode::MemoryNotLocked,
        severity: Severity::Note,
        message: format!(
            "Memory could not be locked ({error}): under memory pressure, a page may have to be \
             read back."
        ),
        advice: "Run as root, with CAP_IPC_LOCK, or with a larger RLIMIT_MEMLOCK.".to_owned(),
        trial: None,
    }
}
