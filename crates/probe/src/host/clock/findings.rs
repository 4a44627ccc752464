//! The doubts about a host's clocks, from their record. Pure.

use horolog_record::{Code, Finding, HostClockResult, Severity, TickMode};

use crate::host::figures::time;

/// Idle states that take longer to leave are told.
const DEEP_NS: u64 = 50_000;
/// Stolen time from which it is told.
const STOLEN_MIN: f64 = 0.01;
/// The slack that a thread has where nobody set another.
const SLACK_NS: u64 = 50_000;

/// All doubts, in no order.
pub(super) fn all(result: &HostClockResult, was_set: bool, is_interrupted: bool) -> Vec<Finding> {
    let mut findings: Vec<_> = of_clocks(result, was_set).into_iter().collect();
    findings.extend(of_waking(result));
    if is_interrupted {
        findings.push(finding(
            Code::Interrupted,
            Severity::Note,
            "The run was ended before it was through: rates are of a shorter time.".to_owned(),
            "",
        ));
    }
    findings
}

fn of_clocks(result: &HostClockResult, was_set: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(order) = result.cores.filter(|order| order.backwards > 0) {
        findings.push(finding(
            Code::ClockBackwards,
            Severity::Error,
            format!(
                "CLOCK_MONOTONIC went back {} times from one core to another, by up to {} ns.",
                order.backwards, order.backwards_max_ns
            ),
            "Take another clocksource: write hpet or acpi_pm to \
             /sys/devices/system/clocksource/clocksource0/current_clocksource, and see dmesg for \
             what the kernel says of the TSC.",
        ));
    }
    if was_set {
        findings.push(finding(
            Code::ClockStepped,
            Severity::Warning,
            "The system clock was set in the run: rates of REALTIME and TAI have the step in them."
                .to_owned(),
            "See which program sets it, and look again.",
        ));
    }
    if result.kernel.is_some_and(|kernel| !kernel.synchronised) {
        findings.push(finding(
            Code::ClockUnsynchronised,
            Severity::Note,
            "The kernel says that nobody keeps this clock right.".to_owned(),
            "Run chronyd or ntpd, or 'horolog serve --gnss'.",
        ));
    }
    if result.kernel.is_some_and(|kernel| kernel.tai_offset_s == 0) {
        findings.push(finding(
            Code::TaiUnknown,
            Severity::Note,
            "The kernel does not know TAI minus UTC: its TAI is UTC.".to_owned(),
            "chronyd sets it with a leap second list (leapsectz or leapseclist).",
        ));
    }
    let slow = |name: &str| {
        result.clocks.iter().any(|clock| clock.name == name && clock.by_vdso == Some(false))
    };
    if slow("MONOTONIC") || slow("REALTIME") {
        let source = result.clocksource.current.as_deref().unwrap_or("unknown");
        findings.push(finding(
            Code::ClockSlow,
            Severity::Warning,
            format!("Each reading of the clock is a system call (clocksource {source})."),
            "A clocksource that programs can read themselves (tsc, kvm-clock) makes it cheap.",
        ));
    }
    findings
}

fn of_waking(result: &HostClockResult) -> Vec<Finding> {
    let waking = &result.waking;
    let mut findings = Vec::new();
    let deep = waking.idle_states.iter().filter(|state| !state.disabled);
    if let Some(state) = deep.max_by_key(|state| state.exit_latency_ns)
        && state.exit_latency_ns >= DEEP_NS
    {
        findings.push(finding(
            Code::DeepIdle,
            Severity::Note,
            format!(
                "An idle core may be in {}, which takes {} to leave.",
                state.name,
                time(state.exit_latency_ns)
            ),
            "Keep /dev/cpu_dma_latency open with a bound in it, or boot with \
             intel_idle.max_cstate=1.",
        ));
    }
    if let Some(share) = waking.stolen_share.filter(|share| *share >= STOLEN_MIN) {
        findings.push(finding(
            Code::TimeStolen,
            Severity::Warning,
            format!("The hypervisor took {:.1}% of the cores' time in the run.", share * 100.0),
            "Its other guests share these cores: take dedicated ones.",
        ));
    }
    if let Some(slack) = waking.timer_slack_ns.filter(|slack| *slack > SLACK_NS) {
        findings.push(finding(
            Code::SlackWide,
            Severity::Warning,
            format!(
                "Timers of this process may be {} late: that much slack was inherited.",
                time(slack)
            ),
            "Whoever started it set PR_SET_TIMERSLACK (systemd: TimerSlackNSec=).",
        ));
    }
    if result.tick.mode == Some(TickMode::Periodic) && result.tick.high_resolution == Some(false) {
        findings.push(finding(
            Code::CoarseTimers,
            Severity::Warning,
            "Timers expire at ticks alone: this kernel has no high-resolution timers.".to_owned(),
            "Build it with CONFIG_HIGH_RES_TIMERS, or boot without highres=off.",
        ));
    }
    findings
}

pub(crate) fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}
