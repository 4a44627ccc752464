//! Findings in the order in which they matter, with those that say the same of many trials told
//! once. Nothing is left out: a group keeps all of its members.

use horolog_record::{DemoResult, Finding, Severity};

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

/// Those of a demonstration: its own, then what is doubtful about its servers. What is said of
/// several servers is said once, of the first, with the names of the others.
pub(crate) fn of_demo(result: &DemoResult) -> Vec<Finding> {
    let mut all = result.findings.clone();
    let mut kinds: Vec<(Finding, Vec<&str>)> = Vec::new();
    let is_own = |finding: &&Finding| {
        result
            .findings
            .iter()
            .any(|own| (own.code, &own.message) == (finding.code, &finding.message))
    };
    for candidate in &result.candidates {
        for finding in candidate.load.findings.iter().filter(|finding| !is_own(finding)) {
            let is_same = |(kind, _): &&mut (Finding, Vec<&str>)| {
                (kind.code, kind.severity) == (finding.code, finding.severity)
            };
            match kinds.iter_mut().find(is_same) {
                Some((_, servers)) if servers.contains(&candidate.label.as_str()) => {}
                Some((_, servers)) => servers.push(&candidate.label),
                None => kinds.push((of_server(&candidate.label, finding), vec![&candidate.label])),
            }
        }
    }
    all.extend(kinds.into_iter().map(|(mut finding, servers)| {
        let others = &servers[1..];
        if !others.is_empty() {
            let message = finding.message.trim_end_matches('.');
            finding.message = format!("{message}; the like of: {}", others.join("; "));
        }
        finding
    }));
    all
}

/// As a finding of the whole: trials are counted within each server.
fn of_server(label: &str, finding: &Finding) -> Finding {
    let trial = trial_label(finding).map_or_else(String::new, |trial| format!(", {trial}"));
    Finding {
        message: format!("{label}{trial}: {}", finding.message),
        trial: None,
        ..finding.clone()
    }
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
    use crate::fixture;

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

    #[test]
    fn what_is_doubtful_about_servers_is_said_once_and_of_whom() {
        let mut result = fixture::demo();
        result.findings = vec![finding(Code::EngineFallback, Severity::Note, 0)];
        for candidate in &mut result.candidates {
            candidate.load.findings.clear();
        }
        let noisy = |trial| finding(Code::Noisy, Severity::Warning, trial);
        result.candidates[0].load.findings = vec![noisy(3), noisy(4)];
        result.candidates[2].load.findings = vec![noisy(5)];
        result.candidates[3].load.findings = vec![finding(Code::NoReplies, Severity::Error, 0)];
        let labels: Vec<_> = result.candidates.iter().map(|one| one.label.as_str()).collect();
        let messages: Vec<_> = of_demo(&result).into_iter().map(|one| one.message).collect();
        let noisy = format!("{}, trial 4: seen in 3; the like of: {}", labels[0], labels[2]);
        let silent = format!("{}, trial 1: seen in 0", labels[3]);
        assert_eq!(messages, ["seen in 0", &*noisy, &*silent]);
    }
}
