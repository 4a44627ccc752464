//! Findings in order of severity. Similar ones are grouped, for example those of many trials; a
//! group contains all of its findings.

use horolog_record::{DemoResult, Finding, Severity};

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

/// Returns the findings of a demonstration: its own, then those of its servers. A finding of
/// several servers is listed once, with the names of all.
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
            finding.message = format!("{message}; also: {}", others.join("; "));
        }
        finding
    }));
    all
}

/// Returns a server's finding as one of the whole demonstration: its message names the server and
/// the trial, and it has no trial index.
fn of_server(label: &str, finding: &Finding) -> Finding {
    let trial = trial_label(finding).map_or_else(String::new, |trial| format!(", {trial}"));
    Finding {
        message: format!("{label}{trial}: {}", finding.message),
        trial: None,
        ..finding.clone()
    }
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
    use crate::fixture;

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

    #[test]
    fn findings_about_servers_are_reported_once_with_their_labels() {
        let mut result = fixture::demo();
        result.findings = vec![finding(FindingCode::EngineFallback, Severity::Note, 0)];
        for candidate in &mut result.candidates {
            candidate.load.findings.clear();
        }
        let noisy = |trial| finding(FindingCode::TrialsInconsistent, Severity::Warning, trial);
        result.candidates[0].load.findings = vec![noisy(3), noisy(4)];
        result.candidates[2].load.findings = vec![noisy(5)];
        result.candidates[3].load.findings =
            vec![finding(FindingCode::NoReplies, Severity::Error, 0)];
        let labels: Vec<_> = result.candidates.iter().map(|one| one.label.as_str()).collect();
        let messages: Vec<_> = of_demo(&result).into_iter().map(|one| one.message).collect();
        let noisy = format!("{}, trial 4: seen in 3; also: {}", labels[0], labels[2]);
        let no_replies = format!("{}, trial 1: seen in 0", labels[3]);
        assert_eq!(messages, ["seen in 0", &*noisy, &*no_replies]);
    }
}
