//! What is arranged for a run, so that it is not late: a real-time priority and locked memory.
//! Whatever is refused is stated and goes without.

use std::io;
use std::time::Duration;

use horolog_record::{AtScheduling, Code, Finding, Severity};
use horolog_sys::affinity::{Policy, nice};
use horolog_sys::capability::{Capabilities, Capability};
use horolog_sys::memory::LockedMemory;
use horolog_sys::start::{Rush, Usual};

use super::StrikeOptions;

/// Above most that computes, below what the kernel itself has at 50 and more.
const PRIORITY: i32 = 40;

/// What holds while instants are waited for.
#[derive(Debug)]
pub(super) struct Conditions {
    scheduling: AtScheduling,
    usual: Usual,
    rush: Option<Rush>,
    head_start: Option<Duration>,
    memory: Option<LockedMemory>,
    memory_locked: bool,
    findings: Vec<Finding>,
}

impl Conditions {
    /// Gives this thread a real-time priority, which those that start programs inherit, and locks
    /// memory, as far as that is allowed.
    pub(super) fn arrange(options: &StrikeOptions) -> io::Result<Self> {
        let usual = Usual::current()?;
        let rush = rush(usual, options.head_start);
        let (scheduling, rush, refused) = if usual.policy().is_real_time() {
            (AtScheduling::RealTime, None, None)
        } else {
            match Policy::fifo(PRIORITY, false).take() {
                Ok(()) => (AtScheduling::RealTime, Some(rush), None),
                Err(error) => (AtScheduling::Ordinary, None, Some(error)),
            }
        };
        let keeps = rush.is_some_and(|rush| rush.keep) && !options.programs.is_empty();
        let memory = LockedMemory::lock_present();
        let unlocked = memory.as_ref().err().map(unlocked);
        Ok(Self {
            scheduling,
            usual,
            rush,
            head_start: keeps.then_some(options.head_start),
            memory_locked: memory.is_ok(),
            memory: memory.ok(),
            findings: refused.as_ref().map(refused_real_time).into_iter().chain(unlocked).collect(),
        })
    }

    /// How programs are to run.
    pub(super) const fn usual(&self) -> Usual {
        self.usual
    }

    pub(super) const fn scheduling(&self) -> AtScheduling {
        self.scheduling
    }

    /// What programs are started with at an instant.
    pub(super) const fn rush(&self) -> Option<Rush> {
        self.rush
    }

    /// How long they keep it, if they do.
    pub(super) const fn head_start(&self) -> Option<Duration> {
        self.head_start
    }

    pub(super) const fn memory_locked(&self) -> bool {
        self.memory_locked
    }

    /// What was refused.
    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// An instant is near: what is in memory stays there.
    pub(super) fn hold(&mut self) {
        if self.memory_locked && self.memory.is_none() {
            self.memory = LockedMemory::lock_present().ok();
            self.memory_locked = self.memory.is_some();
        }
    }

    /// The next instant is far: memory may go.
    pub(super) fn rest(&mut self) {
        self.memory = None;
    }
}

/// A program's priority is another process's, which only `CAP_SYS_NICE` takes from it in any case.
/// What the program starts while it has it is scheduled as everything is by default, and so must be
/// what this process starts.
fn rush(usual: Usual, head_start: Duration) -> Rush {
    let may_take = Capabilities::effective().is_ok_and(|all| all.has(Capability::SysNice));
    let is_default = usual.policy().is_default() && nice().is_ok_and(|nice| nice == 0);
    Rush { priority: PRIORITY, keep: may_take && is_default && !head_start.is_zero() }
}

fn refused_real_time(error: &io::Error) -> Finding {
    Finding {
        code: Code::RealTimeRefused,
        severity: Severity::Warning,
        message: format!(
            "SCHED_FIFO was refused ({error}): on a busy machine others go first for some \
             milliseconds."
        ),
        advice: "Run as root, with CAP_SYS_NICE, or with an RLIMIT_RTPRIO that allows it."
            .to_owned(),
        trial: None,
    }
}

fn unlocked(error: &io::Error) -> Finding {
    Finding {
        code: Code::MemoryUnlocked,
        severity: Severity::Note,
        message: format!(
            "Memory could not be locked ({error}): where it is short, a page may have to be read \
             back."
        ),
        advice: "Run as root, with CAP_IPC_LOCK, or with a larger RLIMIT_MEMLOCK.".to_owned(),
        trial: None,
    }
}
