//! Findings in the order in which they matter, with those that say the same of many trials told
//! once. Nothing is left out: a group keeps all of its members.

use horolog_record::{Finding, Severity};

/// Findings of one kind, severity and advice; never empty.
pub(crate) struct Group<'a> {
    /// The first of them, which is shown in full.
    pub(crate) first: &'a Finding,
    /// The others.
    pub(crate) others: Vec<&'a Finding>,
}

/// The findings in groups, the most severe first and otherwise in their own order.
pub(crate) fn grouped(findings: &[Finding]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Group<'_>| {
            let first = group.first;
            (first.code, first.severity, &first.advice)
                == (finding.code, finding.severity, &finding.advice)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.others.push(finding),
            None => groups.push(Group { first: finding, others: Vec::new() }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.first.severity));
    groups
}

/// A severity's name.
pub(crate) const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// `trial 4` where a finding is about one; trials are counted from 1 wherever a person reads them.
pub(crate) fn trial_label(finding: &Finding) -> Option<String> {
    finding.trial.map(|index| format!("trial {}", index.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use horolog_record::Code;

    use super::*;

    fn finding(code: Code, severity: Severity, trial: usize) -> Finding {
        let (message, advice) = (format!("seen in {trial}"), "do something".to_owned());
        Finding { code, severity, message, advice, trial: Some(trial) }
    }

    #[test]
    fn the_worst_comes_first_and_repetitions_are_told_once() {
        let findings = [
            finding(Code::SharedMachine, Severity::Note, 0),
            finding(Code::GeneratorBehind, Severity::Warning, 1),
            finding(Code::NoReplies, Severity::Error, 2),
            finding(Code::GeneratorBehind, Severity::Warning, 3),
        ];
        let groups = grouped(&findings);
        let codes: Vec<_> = groups.iter().map(|group| group.first.code).collect();
        assert_eq!(codes, [Code::NoReplies, Code::GeneratorBehind, Code::SharedMachine]);
        assert_eq!(groups[1].others, [&findings[3]]);
        assert_eq!(trial_label(groups[0].first).unwrap(), "trial 3");
    }
}
