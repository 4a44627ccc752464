//! What a capture holds, where that is not everything.

use horolog_record::{Code, Finding, Severity};

use super::finding;
use crate::capture::CaptureSummary;

pub(super) fn incomplete(capture: &CaptureSummary) -> Option<Finding> {
    let CaptureSummary { path, written, missed, left_out, one_in, fault } = capture;
    let mut lacks = Vec::new();
    if let Some(fault) = fault {
        lacks.push(format!("it ends early, because of: {fault}"));
    }
    if *missed > 0 {
        lacks.push(format!("{missed} more came faster than they could be read"));
    }
    if *left_out > 0 {
        lacks.push(format!("{left_out} more came when there were enough"));
    }
    let is_short = !lacks.is_empty();
    if *one_in > 1 {
        lacks.push(format!("at the highest rate one request in {one_in} was kept, with its reply"));
    }
    if lacks.is_empty() {
        return None;
    }
    let severity = if is_short { Severity::Warning } else { Severity::Note };
    let message = format!("{} holds {written} packets: {}", path.display(), lacks.join("; "));
    let advice = "counts are those of the result; a lower rate is kept whole, and --pcap-max takes \
                  more packets";
    Some(finding(Code::CaptureIncomplete, severity, message, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_lacking_is_told() {
        let whole = CaptureSummary { written: 9, one_in: 1, ..CaptureSummary::default() };
        assert_eq!(incomplete(&whole), None);
        let sampled = incomplete(&CaptureSummary { one_in: 8, ..whole.clone() }).unwrap();
        assert_eq!(sampled.severity, Severity::Note);
        assert!(sampled.message.contains("one request in 8"), "{}", sampled.message);
        let short = CaptureSummary { missed: 3, left_out: 4, ..whole };
        let short = incomplete(&short).unwrap();
        assert_eq!(short.severity, Severity::Warning);
        assert!(short.message.contains("3 more") && short.message.contains("4 more"));
    }
}
