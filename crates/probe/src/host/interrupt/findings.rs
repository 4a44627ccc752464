//! Findings of `host interrupt`, from its record alone. Pure.

use horolog_conditions::{self as conditions, finding};
use horolog_record::{Finding, FindingCode, HostInterruptResult, OsNoise, Severity};

use super::handlers;
use crate::host::figures::{format_count, format_time};

/// Share of OS noise in a core's time from which it is reported.
const NOISE_SHARE_MIN: f64 = 0.01;

/// Returns all findings of an interrupt measurement, those on OS noise by its share.
pub(super) fn all_findings(result: &HostInterruptResult, is_interrupted: bool) -> Vec<Finding> {
    let scheduling: Vec<_> = result.handlers.iter().map(|one| &one.scheduling).collect();
    let mut findings = conditions::findings(&result.conditions, &scheduling);
    let mut reported = Vec::new();
    for handler in &result.handlers {
        let Some(error) = handler.error.as_deref().filter(|_| !reported.contains(&handler.kind))
        else {
            continue;
        };
        reported.push(handler.kind);
        findings.push(finding(
            FindingCode::HandlerUnavailable,
            Severity::Warning,
            format!("{} returned no values: {error}.", handlers::handler_name(handler.kind)),
            "The in-kernel handler requires root (or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON) and \
             Linux 6.4.",
        ));
    }
    let elsewhere: u64 = result.handlers.iter().map(|one| one.elsewhere).sum();
    if elsewhere > 0 {
        findings.push(finding(
            FindingCode::HandlerUnavailable,
            Severity::Note,
            format!(
                "{} of the kernel ran on another core than requested.",
                format_count(elsewhere, "handler")
            ),
            "Since Linux 6.7 a timer can be bound to a core.",
        ));
    }
    // Worst core first.
    let mut cores: Vec<_> = result.os_noise.iter().collect();
    cores.sort_by(|one, other| noise_share(other).total_cmp(&noise_share(one)));
    findings.extend(cores.into_iter().filter_map(noise_finding));
    if is_interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            "The run was interrupted.".to_owned(),
            "",
        ));
    }
    findings
}

/// Returns the share of OS noise in a core's time.
fn noise_share(core: &OsNoise) -> f64 {
    core.all.total_ns as f64 / core.duration_ns.max(1) as f64
}

/// Returns a finding with the cause if OS noise takes [`NOISE_SHARE_MIN`] of a core's time or more.
pub(crate) fn noise_finding(core: &OsNoise) -> Option<Finding> {
    if noise_share(core) < NOISE_SHARE_MIN {
        return None;
    }
    let share = |ns: u64| ns as f64 / core.duration_ns.max(1) as f64;
    let by_threads = core.by_threads.total_ns >= core.by_others.total_ns;
    let advice = if by_threads {
        "Find the threads on that core ('ps -eLo psr,cls,rtprio,comm'), and move them to others \
         (cpusets, isolcpus)."
    } else {
        "No thread ran: check interrupts (/proc/interrupts), steal on a virtual machine, and \
         system management interrupts."
    };
    Some(finding(
        FindingCode::OsNoise,
        Severity::Warning,
        format!(
            "Core {} was taken for {:.2}% of the time, {:.2}% by other threads and {:.2}% by \
             interrupts, system management or the host; the longest gap was {}.",
            core.core,
            share(core.all.total_ns) * 100.0,
            share(core.by_threads.total_ns) * 100.0,
            share(core.by_others.total_ns) * 100.0,
            format_time(core.all.max_ns)
        ),
        advice,
    ))
}

#[cfg(test)]
mod tests {
    use horolog_record::OsNoiseGapSummary;

    use super::*;

    fn core(by_threads_ns: u64, by_others_ns: u64) -> OsNoise {
        let part = |total_ns| OsNoiseGapSummary { gaps: 1, total_ns, max_ns: total_ns };
        OsNoise {
            core: 3,
            duration_ns: 1_000_000_000,
            turn_ns: 30,
            threshold_ns: 2_000,
            all: part(by_threads_ns + by_others_ns),
            by_threads: part(by_threads_ns),
            by_others: part(by_others_ns),
            gap_ns: None,
            longest: Vec::new(),
            run_delay_ns: None,
            steal_ns: None,
            interrupts: None,
            system_management: None,
        }
    }

    #[test]
    fn a_loss_that_matters_names_who_took_most() {
        assert_eq!(noise_finding(&core(4_000_000, 5_000_000)), None);
        let threads = noise_finding(&core(50_000_000, 1_000_000)).unwrap();
        assert!(threads.advice.contains("Find the threads"), "{threads:?}");
        assert!(threads.message.contains("Core 3 was taken for 5.10%"), "{threads:?}");
        let others = noise_finding(&core(0, 50_000_000)).unwrap();
        assert!(others.advice.contains("No thread ran"), "{others:?}");
    }
}
