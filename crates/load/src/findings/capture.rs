//! Findings about an incomplete capture.

use horolog_record::{Finding, FindingCode, Severity};

use super::finding;
use crate::capture::CaptureSummary;

pub(super) fn capture_incomplete(capture: &CaptureSummary) -> Option<Finding> {
    let CaptureSummary { path, written, missed, left_out, one_in, error: fault } = capture;
    let mut lacks = Vec::new();
    if let Some(fault) = fault {
        lacks.push(format!("it ends early: {fault}"));
    }
    if *missed > 0 {
        lacks.push(format!("{missed} more were dropped because the capture was too slow"));
    }
    if *left_out > 0 {
        lacks.push(format!("{left_out} more were omitted at the packet limit"));
    }
    let is_short = !lacks.is_empty();
    if *one_in > 1 {
        lacks.push(format!(
            "at the highest rate one request in {one_in} was captured, with its reply"
        ));
    }
    if lacks.is_empty() {
        return None;
    }
    let severity = if is_short { Severity::Warning } else { Severity::Note };
    let message = format!("{} contains {written} packets: {}", path.display(), lacks.join("; "));
    let advice = "the counts in the result are complete; lower the rate or raise --pcap-max for a \
                  complete capture";
    Some(finding(FindingCode::CaptureIncomplete, severity, message, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_incomplete_capture_is_reported() {
        let whole = CaptureSummary { written: 9, one_in: 1, ..CaptureSummary::default() };
        assert_eq!(capture_incomplete(&whole), None);
        let sampled = capture_incomplete(&CaptureSummary { one_in: 8, ..whole.clone() }).unwrap();
        assert_eq!(sampled.severity, Severity::Note);
        assert!(sampled.message.contains("one request in 8"), "{}", sampled.message);
        let short = CaptureSummary { missed: 3, left_out: 4, ..whole };
        let short = capture_incomplete(&short).unwrap();
        assert_eq!(short.severity, Severity::Warning);
        assert!(short.message.contains("3 more") && short.message.contains("4 more"));
    }
}
