//! Findings of `host clock`, from its record. Pure.

use horolog_record::{Finding, FindingCode, HostClockResult, Severity, TickMode};

use crate::host::figures::format_time;

/// Exit latency from which an idle state is reported, in ns.
const DEEP_IDLE_EXIT_NS: u64 = 50_000;
/// Share of steal (time taken by the hypervisor) from which it is reported.
const STEAL_SHARE_MIN: f64 = 0.01;
/// Default timer slack of a thread, in ns.
const DEFAULT_SLACK_NS: u64 = 50_000;

/// Returns all findings, in no order.
pub(super) fn all_findings(
    result: &HostClockResult,
    was_stepped: bool,
    is_interrupted: bool,
) -> Vec<Finding> {
    let mut findings: Vec<_> = clock_findings(result, was_stepped).into_iter().collect();
    findings.extend(wakeup_findings(result));
    if is_interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            "The run was interrupted: rates are from a shorter time.".to_owned(),
            "",
        ));
    }
    findings
}

fn clock_findings(result: &HostClockResult, was_stepped: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(order) = result.cores.filter(|order| order.backwards > 0) {
        findings.push(finding(
            FindingCode::ClockBackwards,
            Severity::Error,
            format!(
                "CLOCK_MONOTONIC went back {} times between cores, by up to {} ns.",
                order.backwards, order.backwards_max_ns
            ),
            "Select another clocksource: write hpet or acpi_pm to \
             /sys/devices/system/clocksource/clocksource0/current_clocksource, and check dmesg for \
             the kernel's TSC messages.",
        ));
    }
    if was_stepped {
        findings.push(finding(
            FindingCode::ClockStepped,
            Severity::Warning,
            "The system clock was stepped during the run: rates of REALTIME and TAI include the \
             step."
                .to_owned(),
            "Find the program that steps it, then measure again.",
        ));
    }
    if result.kernel.is_some_and(|kernel| !kernel.synchronised) {
        findings.push(finding(
            FindingCode::ClockUnsynchronised,
            Severity::Note,
            "The kernel reports this clock as unsynchronised.".to_owned(),
            "Run chronyd or ntpd, or 'horolog serve --gnss'.",
        ));
    }
    if result.kernel.is_some_and(|kernel| kernel.tai_offset_s == 0) {
        findings.push(finding(
            FindingCode::TaiUnknown,
            Severity::Note,
            "The kernel's TAI offset is unset: its TAI equals UTC.".to_owned(),
            "chronyd sets it from a leap second list (leapsectz or leapseclist).",
        ));
    }
    let is_system_call = |name: &str| {
        result.clocks.iter().any(|clock| clock.name == name && clock.by_vdso == Some(false))
    };
    if is_system_call("MONOTONIC") || is_system_call("REALTIME") {
        let source = result.clocksource.current.as_deref().unwrap_or("unknown");
        findings.push(finding(
            FindingCode::ClockSlow,
            Severity::Warning,
            format!("Each reading of the clock is a system call (clocksource {source})."),
            "A clocksource readable from user space (tsc, kvm-clock) avoids it.",
        ));
    }
    findings
}

fn wakeup_findings(result: &HostClockResult) -> Vec<Finding> {
    let waking = &result.waking;
    let mut findings = Vec::new();
    let deep = waking.idle_states.iter().filter(|state| !state.disabled);
    if let Some(state) = deep.max_by_key(|state| state.exit_latency_ns)
        && state.exit_latency_ns >= DEEP_IDLE_EXIT_NS
    {
        findings.push(finding(
            FindingCode::DeepIdle,
            Severity::Note,
            format!(
                "An idle core may enter {}, with an exit latency of {}.",
                state.name,
                format_time(state.exit_latency_ns)
            ),
            "Keep /dev/cpu_dma_latency open with a latency limit, or boot with \
             intel_idle.max_cstate=1.",
        ));
    }
    if let Some(share) = waking.stolen_share.filter(|share| *share >= STEAL_SHARE_MIN) {
        findings.push(finding(
            FindingCode::OsNoise,
            Severity::Warning,
            format!("The hypervisor took {:.1}% of the cores' time during the run.", share * 100.0),
            "Other guests share these cores: use dedicated ones.",
        ));
    }
    if let Some(slack) = waking.timer_slack_ns.filter(|slack| *slack > DEFAULT_SLACK_NS) {
        findings.push(finding(
            FindingCode::TimerSlackLarge,
            Severity::Warning,
            format!(
                "Timers of this process may be {} late: it inherited that timer slack.",
                format_time(slack)
            ),
            "The parent process set PR_SET_TIMERSLACK (systemd: TimerSlackNSec=).",
        ));
    }
    if result.tick.mode == Some(TickMode::Periodic) && result.tick.high_resolution == Some(false) {
        findings.push(finding(
            FindingCode::CoarseTimers,
            Severity::Warning,
            "Timers expire only at ticks: this kernel has no high-resolution timers.".to_owned(),
            "Build it with CONFIG_HIGH_RES_TIMERS, or boot without highres=off.",
        ));
    }
    findings
}

pub(crate) fn finding(
    code: FindingCode,
    severity: Severity,
    message: String,
    advice: &str,
) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}
