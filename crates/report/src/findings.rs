//! Findings in order of severity. Similar ones are grouped, for example those of many trials; a
//! group contains all of its findings.

use horolog_record::{Finding, Severity};

/// Findings of one kind, severity and advice; never empty.
pub(crate) struct FindingGroup<'a> {
    /// First finding of the group, which is shown in full.
    pub(crate) first: &'a Finding,
    /// Other findings of the group.
    pub(crate) others: Vec<&'a Finding>,
}

/// Returns the findings in groups, the most severe first and otherwise in their own order.
pub(crate) fn grouped(findings: &[Finding]) -> Vec<FindingGroup<'_>> {
    let mut groups: Vec<FindingGroup<'_>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut FindingGroup<'_>| {
            let first = group.first;
            (first.code, first.severity, &first.advice)
                == (finding.code, finding.severity, &finding.advice)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.others.push(finding),
            None => groups.push(FindingGroup { first: finding, others: Vec::new() }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.first.severity));
    groups
}

/// Returns the name of a severity.
#[must_use]
pub const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// Returns `trial N` for a finding about one trial; texts number trials from 1.
pub(crate) fn trial_label(finding: &Finding) -> Option<String> {
    finding.trial.map(|index| format!("trial {}", index.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use horolog_record::FindingCode;

    use super::*;

    fn finding(code: FindingCode, severity: Severity, trial: usize) -> Finding {
        let (message, advice) = (format!("seen in {trial}"), "do something".to_owned());
        Finding { code, severity, message, advice, trial: Some(trial) }
    }

    #[test]
    fn the_worst_comes_first_and_repetitions_are_reported_once() {
        let findings = [
            finding(FindingCode::SharedMachine, Severity::Note, 0),
            finding(FindingCode::GeneratorBehind, Severity::Warning, 1),
            finding(FindingCode::NoReplies, Severity::Error, 2),
            finding(FindingCode::GeneratorBehind, Severity::Warning, 3),
        ];
        let groups = grouped(&findings);
        let codes: Vec<_> = groups.iter().map(|group| group.first.code).collect();
        assert_eq!(
            codes,
            [FindingCode::NoReplies, FindingCode::GeneratorBehind, FindingCode::SharedMachine]
        );
        assert_eq!(groups[1].others, [&findings[3]]);
        assert_eq!(trial_label(groups[0].first).unwrap(), "trial 3");
    }
}
