//! What a measurement arranges for its process and threads, and what the record says of that.
//! Whatever is refused is stated and goes without; dropping [`Conditions`] takes all of it back.

mod error;

use std::fs;

use horolog_record::{Code, Finding, HostConditions, SchedulingPolicy, Severity, ThreadScheduling};
use horolog_sys::affinity::{self, Scheduling};
use horolog_sys::dma_latency::HeldLatency;
use horolog_sys::memory::LockedMemory;
use horolog_sys::thread_usage::timer_slack_ns;

pub use error::HostError;

const IDLE: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const IDLE_STATES: &str = "/sys/devices/system/cpu/cpu0/cpuidle";
/// `CPUIDLE_STATE_MAX` of the kernel.
const IDLE_STATES_MAX: u32 = 10;
const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

/// What to do where `SCHED_FIFO` was refused.
pub const REAL_TIME_ADVICE: &str =
    "Run as root, with CAP_SYS_NICE, or with an RLIMIT_RTPRIO that allows it.";

/// What holds while this lives.
#[derive(Debug)]
pub struct Conditions {
    _memory: Option<LockedMemory>,
    _latency: Option<HeldLatency>,
    record: HostConditions,
}

impl Conditions {
    /// Locks memory, and with `hold_awake` keeps the processors from sleeping deeply.
    #[must_use]
    pub fn arrange(hold_awake: bool) -> Self {
        let memory = LockedMemory::lock();
        let latency = hold_awake.then(|| HeldLatency::hold(0));
        let record = HostConditions {
            memory_locked: memory.is_ok(),
            memory_error: memory.as_ref().err().map(ToString::to_string),
            cpu_dma_latency_us: matches!(latency, Some(Ok(_))).then_some(0),
            cpu_dma_latency_error: latency
                .as_ref()
                .and_then(|held| held.as_ref().err())
                .map(ToString::to_string),
            idle_driver: line(IDLE).filter(|driver| driver != "none"),
            idle_states: idle_states(),
            real_time_runtime_us: line(RUNTIME).and_then(|text| text.parse().ok()),
            real_time_period_us: line(PERIOD).and_then(|text| text.parse().ok()),
        };
        Self { _memory: memory.ok(), _latency: latency.and_then(Result::ok), record }
    }

    /// What the record says of it.
    #[must_use]
    pub fn record(&self) -> HostConditions {
        self.record.clone()
    }
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn idle_states() -> Vec<String> {
    let name = |number| line(&format!("{IDLE_STATES}/state{number}/name"));
    (0..IDLE_STATES_MAX).map_while(name).collect()
}

/// Ties this thread to a core and has it scheduled in real time where a priority is given and that
/// is allowed.
///
/// # Errors
///
/// The core is not to be had.
pub fn settle(core: usize, priority: Option<u8>) -> Result<ThreadScheduling, HostError> {
    affinity::pin_to_core(core).map_err(|error| HostError::Thread { core, error })?;
    Ok(scheduled(priority))
}

/// The same without a core.
#[must_use]
pub fn scheduled(priority: Option<u8>) -> ThreadScheduling {
    let asked = priority.map(|priority| (priority, affinity::prefer_real_time(priority.into())));
    let ordinary = |error: Option<String>| ThreadScheduling {
        policy: SchedulingPolicy::Other,
        priority: 0,
        error,
        timer_slack_ns: timer_slack_ns().ok(),
    };
    match asked {
        Some((priority, Scheduling::RealTime)) => ThreadScheduling {
            policy: SchedulingPolicy::Fifo,
            priority,
            error: None,
            timer_slack_ns: None,
        },
        Some((_, Scheduling::Ordinary(error))) => ordinary(Some(error.to_string())),
        None => ordinary(None),
    }
}

/// The cores to measure on: those that are named, each once, or all that this process may run on.
///
/// # Errors
///
/// One of them is not to be had.
pub fn cores(named: &[usize]) -> Result<Vec<usize>, HostError> {
    let allowed = affinity::allowed_cores().map_err(HostError::Cores)?;
    let mut cores: Vec<usize> = Vec::new();
    for &core in if named.is_empty() { &allowed[..] } else { named } {
        if !allowed.contains(&core) {
            let allowed = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(HostError::NoSuchCore { core, allowed });
        }
        if !cores.contains(&core) {
            cores.push(core);
        }
    }
    Ok(cores)
}

/// The doubts that follow from what was refused.
#[must_use]
pub fn findings(conditions: &HostConditions, scheduling: &[&ThreadScheduling]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = scheduling.iter().find_map(|one| one.error.as_deref()) {
        findings.push(finding(
            Code::RealTimeRefused,
            Severity::Warning,
            format!("SCHED_FIFO was refused ({error}): the threads ran as ordinary ones."),
            REAL_TIME_ADVICE,
        ));
    }
    if let Some(error) = &conditions.memory_error {
        findings.push(finding(
            Code::MemoryUnlocked,
            Severity::Note,
            format!("Memory could not be locked ({error}): a page fault may be in a figure."),
            "Run as root, with CAP_IPC_LOCK, or with a larger RLIMIT_MEMLOCK.",
        ));
    }
    if let Some(error) = &conditions.cpu_dma_latency_error {
        findings.push(finding(
            Code::IdleStatesFree,
            Severity::Note,
            format!(
                "/dev/cpu_dma_latency could not be held ({error}): the time to leave an idle state \
                 may be in a figure."
            ),
            "Run as root, or leave the processors as they are with --leave-idle-states.",
        ));
    }
    findings
}

/// A finding that is about no trial.
#[must_use]
pub fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_cores_must_be_allowed_and_come_once() {
        let all = cores(&[]).unwrap();
        assert_eq!(cores(&[all[0], all[0]]).unwrap(), [all[0]]);
        let error = cores(&[8_191]).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("core 8191"), "{error}");
    }

    #[test]
    fn what_is_refused_is_a_finding() {
        let conditions = HostConditions {
            memory_error: Some("no".to_owned()),
            cpu_dma_latency_error: Some("no".to_owned()),
            ..HostConditions::default()
        };
        let refused = ThreadScheduling {
            policy: SchedulingPolicy::Other,
            priority: 0,
            error: Some("not permitted".to_owned()),
            timer_slack_ns: Some(50_000),
        };
        let codes: Vec<_> =
            findings(&conditions, &[&refused]).into_iter().map(|one| one.code).collect();
        let expected = [Code::RealTimeRefused, Code::MemoryUnlocked, Code::IdleStatesFree];
        assert_eq!(codes, expected);
        assert!(findings(&HostConditions::default(), &[]).is_empty());
    }

    #[test]
    fn an_ordinary_thread_says_its_slack() {
        std::thread::spawn(|| {
            let scheduling = settle(cores(&[]).unwrap()[0], None).unwrap();
            assert_eq!(scheduling.policy, SchedulingPolicy::Other);
            assert!(scheduling.timer_slack_ns.is_some() && scheduling.error.is_none());
        })
        .join()
        .unwrap();
    }
}
