//! Findings of a clock comparison, from its record and the kernel's clock state. Pure.

use horolog_record::{ClockCompareResult, Finding, FindingCode, Severity};
use horolog_sys::adjtimex::KernelClockStatus;

/// Returns the findings of a comparison, in no order; `kernel` is `None` if the kernel's clock
/// state cannot be read.
pub(super) fn all_findings(
    result: &ClockCompareResult,
    kernel: Option<KernelClockStatus>,
    is_interrupted: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(missed_readings(result));
    if !result.steps.is_empty() {
        findings.push(finding(
            FindingCode::ClockStepped,
            Severity::Warning,
            format!(
                "The system clock was stepped {} times during the run: drifts and deviations \
                 include the steps.",
                result.steps.len()
            ),
            "Find the program that steps it, then repeat the comparison.",
        ));
    }
    if kernel.is_some_and(|kernel| kernel.tai_offset_s == 0)
        && result.clocks.iter().any(|clock| clock.name == "tai")
    {
        findings.push(finding(
            FindingCode::TaiUnknown,
            Severity::Note,
            "The kernel's TAI offset is unset: its TAI equals UTC.".to_owned(),
            "chronyd sets it from a leap second list (leapsectz or leapseclist).",
        ));
    }
    if kernel.is_some_and(|kernel| !kernel.synchronised) {
        findings.push(finding(
            FindingCode::ClockUnsynchronised,
            Severity::Note,
            "This host's clock is not synchronised: offsets are relative to it and do not show \
             which clock is right."
                .to_owned(),
            "",
        ));
    }
    if is_interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            format!("The run was interrupted after {} readings of each clock.", result.count),
            "",
        ));
    }
    findings
}

fn missed_readings(result: &ClockCompareResult) -> Option<Finding> {
    let missed = result.clocks.iter().filter(|clock| clock.missed > 0);
    let texts: Vec<_> = missed
        .map(|clock| {
            let why = clock.error.as_deref().unwrap_or("no new reading");
            format!("{}: {} of {} ({why})", clock.name, clock.missed, result.count)
        })
        .collect();
    let has_unread_clock = result.clocks.iter().any(|clock| clock.samples.is_empty());
    let severity = if has_unread_clock { Severity::Error } else { Severity::Note };
    (!texts.is_empty() && result.count > 0).then(|| {
        finding(
            FindingCode::ClockUnreadable,
            severity,
            format!("Some readings were empty: {}.", texts.join("; ")),
            "A disconnected device or missing pulses yield no offset.",
        )
    })
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}
