//! Measurement conditions of a process and its threads (locked memory, no deep idle states, pinned
//! real-time threads), and their record in the result. A refused condition is recorded, and the
//! measurement continues without it. Dropping [`HostConditionsGuard`] unlocks memory and permits
//! idle states again.

use std::{fs, io};

use horolog_record::{
    Finding, FindingCode, HostConditions, SchedulingPolicy, Severity, ThreadScheduling,
};
use horolog_sys::affinity::{self, RealTimeSchedulingOutcome};
use horolog_sys::dma_latency::DmaLatencyRequest;
use horolog_sys::explain::explain;
use horolog_sys::memory::LockedMemoryGuard;
use horolog_sys::thread_usage::timer_slack_ns;
use thiserror::Error;

const IDLE_DRIVER_FILE: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const IDLE_STATES_DIRECTORY: &str = "/sys/devices/system/cpu/cpu0/cpuidle";
/// `CPUIDLE_STATE_MAX` of the kernel.
const IDLE_STATES_MAX: u32 = 10;
const RT_RUNTIME_FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const RT_PERIOD_FILE: &str = "/proc/sys/kernel/sched_rt_period_us";

/// Advice if `SCHED_FIFO` was refused.
pub const REAL_TIME_ADVICE: &str =
    "Run as root, with CAP_SYS_NICE, or with an RLIMIT_RTPRIO that allows it.";

/// Host conditions that are in force during the lifetime of this value.
#[derive(Debug)]
pub struct HostConditionsGuard {
    _locked_memory: Option<LockedMemoryGuard>,
    _dma_latency: Option<DmaLatencyRequest>,
    record: HostConditions,
}

impl HostConditionsGuard {
    /// Locks memory and, with `hold_awake`, keeps all CPUs out of deep idle states
    /// (`/dev/cpu_dma_latency` at 0 µs).
    #[must_use]
    pub fn apply(hold_awake: bool) -> Self {
        let memory = LockedMemoryGuard::lock();
        let latency = hold_awake.then(|| DmaLatencyRequest::hold(0));
        let record = HostConditions {
            memory_locked: memory.is_ok(),
            memory_error: memory.as_ref().err().map(ToString::to_string),
            cpu_dma_latency_us: matches!(latency, Some(Ok(_))).then_some(0),
            cpu_dma_latency_error: latency
                .as_ref()
                .and_then(|held| held.as_ref().err())
                .map(ToString::to_string),
            idle_driver: first_line(IDLE_DRIVER_FILE).filter(|driver| driver != "none"),
            idle_states: idle_states(),
            real_time_runtime_us: first_line(RT_RUNTIME_FILE).and_then(|text| text.parse().ok()),
            real_time_period_us: first_line(RT_PERIOD_FILE).and_then(|text| text.parse().ok()),
        };
        Self { _locked_memory: memory.ok(), _dma_latency: latency.and_then(Result::ok), record }
    }

    /// Returns the conditions as recorded in the result.
    #[must_use]
    pub fn record(&self) -> HostConditions {
        self.record.clone()
    }
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn idle_states() -> Vec<String> {
    let name = |number| first_line(&format!("{IDLE_STATES_DIRECTORY}/state{number}/name"));
    (0..IDLE_STATES_MAX).map_while(name).collect()
}

/// Pins this thread to a core and, if a priority is passed and permitted, schedules it under
/// `SCHED_FIFO`.
///
/// # Errors
///
/// The thread cannot be pinned to the core.
pub fn apply_to_thread(
    core: usize,
    priority: Option<u8>,
) -> Result<ThreadScheduling, MeasuringThreadError> {
    affinity::pin_to_core(core).map_err(|error| MeasuringThreadError::Thread { core, error })?;
    Ok(schedule_thread(priority))
}

/// Schedules this thread under `SCHED_FIFO` if a priority is passed and permitted, without pinning
/// it.
#[must_use]
pub fn schedule_thread(priority: Option<u8>) -> ThreadScheduling {
    let attempt = priority.map(|priority| (priority, affinity::try_real_time(priority.into())));
    let sched_other = |error: Option<String>| ThreadScheduling {
        policy: SchedulingPolicy::Other,
        priority: 0,
        error,
        timer_slack_ns: timer_slack_ns().ok(),
    };
    match attempt {
        Some((priority, RealTimeSchedulingOutcome::RealTime)) => ThreadScheduling {
            policy: SchedulingPolicy::Fifo,
            priority,
            error: None,
            timer_slack_ns: None,
        },
        Some((_, RealTimeSchedulingOutcome::Unchanged(error))) => {
            sched_other(Some(error.to_string()))
        }
        None => sched_other(None),
    }
}

/// Returns the cores to measure on: the named ones without duplicates, or all that this process may
/// run on.
///
/// # Errors
///
/// A named core is not available.
pub fn select_cores(named: &[usize]) -> Result<Vec<usize>, MeasuringThreadError> {
    let allowed = affinity::allowed_cores().map_err(MeasuringThreadError::Cores)?;
    let mut cores: Vec<usize> = Vec::new();
    for &core in if named.is_empty() { &allowed[..] } else { named } {
        if !allowed.contains(&core) {
            let allowed = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(MeasuringThreadError::NoSuchCore { core, allowed });
        }
        if !cores.contains(&core) {
            cores.push(core);
        }
    }
    Ok(cores)
}

/// Returns the findings on refused conditions.
#[must_use]
pub fn findings(conditions: &HostConditions, scheduling: &[&ThreadScheduling]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = scheduling.iter().find_map(|one| one.error.as_deref()) {
        findings.push(finding(
            FindingCode::RealTimeRefused,
            Severity::Warning,
            format!("SCHED_FIFO was refused ({error}): the threads ran under SCHED_OTHER."),
            REAL_TIME_ADVICE,
        ));
    }
    if let Some(error) = &conditions.memory_error {
        findings.push(finding(
            FindingCode::MemoryNotLocked,
            Severity::Note,
            format!("Memory could not be locked ({error}): values may include page faults."),
            "Run as root, with CAP_IPC_LOCK, or with a larger RLIMIT_MEMLOCK.",
        ));
    }
    if let Some(error) = &conditions.cpu_dma_latency_error {
        findings.push(finding(
            FindingCode::IdleStatesNotHeld,
            Severity::Note,
            format!(
                "/dev/cpu_dma_latency could not be held ({error}): values may include the exit \
                 latency of idle states."
            ),
            "Run as root, or permit idle states with --allow-idle-states.",
        ));
    }
    findings
}

/// Creates a finding that refers to no trial.
#[must_use]
pub fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

/// Reason why measuring threads cannot start on their cores.
#[derive(Debug, Error)]
pub enum MeasuringThreadError {
    /// Core that this process may not run on.
    #[error("core {core} is not available: this process may run on {allowed}; choose one of these")]
    NoSuchCore {
        /// Core number.
        core: usize,
        /// List of the allowed cores.
        allowed: String,
    },
    /// Thread that could not be started or pinned to its core.
    #[error("cannot start a measuring thread on core {core}: {why}", why = explain(.error))]
    Thread {
        /// Core number.
        core: usize,
        /// Error of the system.
        error: io::Error,
    },
    /// Failure to read the cores that this process may run on.
    #[error("cannot read which cores this process may run on: {why}", why = explain(.0))]
    Cores(io::Error),
}

impl MeasuringThreadError {
    /// Returns true if the request was invalid, as opposed to a feature that the host lacks.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::NoSuchCore { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_cores_must_be_allowed_and_come_once() {
        let all = select_cores(&[]).unwrap();
        assert_eq!(select_cores(&[all[0], all[0]]).unwrap(), [all[0]]);
        let error = select_cores(&[8_191]).unwrap_err();
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
        let expected = [
            FindingCode::RealTimeRefused,
            FindingCode::MemoryNotLocked,
            FindingCode::IdleStatesNotHeld,
        ];
        assert_eq!(codes, expected);
        assert!(findings(&HostConditions::default(), &[]).is_empty());
    }

    #[test]
    fn a_sched_other_thread_reports_its_timer_slack() {
        std::thread::spawn(|| {
            let scheduling = apply_to_thread(select_cores(&[]).unwrap()[0], None).unwrap();
            assert_eq!(scheduling.policy, SchedulingPolicy::Other);
            assert!(scheduling.timer_slack_ns.is_some() && scheduling.error.is_none());
        })
        .join()
        .unwrap();
    }
}
