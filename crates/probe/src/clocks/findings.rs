//! The doubts about a comparison, from its record and what the kernel says of its clock. Pure.

use horolog_record::{ClockCompareResult, Code, Finding, Severity};
use horolog_sys::adjtimex::KernelClock;

/// All doubts, in no order.
pub(super) fn all(
    result: &ClockCompareResult,
    kernel: Option<KernelClock>,
    is_interrupted: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(unread(result));
    if !result.steps.is_empty() {
        findings.push(finding(
            Code::ClockStepped,
            Severity::Warning,
            format!(
                "The system clock was set {} times in the run: drifts and deviations have its steps \
                 in them.",
                result.steps.len()
            ),
            "See which program sets it, and compare again.",
        ));
    }
    if kernel.is_some_and(|kernel| kernel.tai_offset_s == 0)
        && result.clocks.iter().any(|clock| clock.name == "tai")
    {
        findings.push(finding(
            Code::TaiUnknown,
            Severity::Note,
            "The kernel does not know TAI minus UTC: its TAI is UTC.".to_owned(),
            "chronyd sets it with a leap second list (leapsectz or leapseclist).",
        ));
    }
    if kernel.is_some_and(|kernel| !kernel.synchronised) {
        findings.push(finding(
            Code::ClockUnsynchronised,
            Severity::Note,
            "This machine's clock is not synchronised: offsets say how far it is from other clocks, \
             not which of them is right."
                .to_owned(),
            "",
        ));
    }
    if is_interrupted {
        findings.push(finding(
            Code::Interrupted,
            Severity::Note,
            format!("The run was ended after {} readings of each clock.", result.count),
            "",
        ));
    }
    findings
}

fn unread(result: &ClockCompareResult) -> Option<Finding> {
    let missed = result.clocks.iter().filter(|clock| clock.missed > 0);
    let told: Vec<_> = missed
        .map(|clock| {
            let why = clock.error.as_deref().unwrap_or("nothing new to read");
            format!("{}: {} of {} ({why})", clock.name, clock.missed, result.count)
        })
        .collect();
    let none_at_all = result.clocks.iter().any(|clock| clock.samples.is_empty());
    let severity = if none_at_all { Severity::Error } else { Severity::Note };
    (!told.is_empty() && result.count > 0).then(|| {
        finding(
            Code::ClockUnread,
            severity,
            format!("Some readings had nothing to tell: {}.", told.join("; ")),
            "A device that is pulled out, or pulses that do not come, have no offset.",
        )
    })
}

fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}
