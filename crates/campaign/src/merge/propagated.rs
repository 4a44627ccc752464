//! Propagation of errors and warnings in the results of parts to the campaign's findings, with
//! their origin. Notes are not propagated. Equal findings of several parts of a role become one,
//! with the number of parts, and the total is limited to [`PROPAGATED_MAX`].

use horolog_record::{Finding, FindingCode, Severity};
use serde::Deserialize;
use serde_json::Value;

use super::{InstanceOutcome, cycles};
use crate::plan::Plan;
use crate::role::RoleKind;

/// Largest number of propagated findings.
const PROPAGATED_MAX: usize = 20;

/// Group of equal findings (same code, severity and advice) of the parts of one role.
struct PropagatedFindingGroup<'a> {
    part: &'a InstanceOutcome<'a>,
    first: Finding,
    /// Index among the findings of the same code and severity in the first part; 0 for findings on
    /// trials, which are grouped together.
    index_in_part: usize,
    /// Number of further findings of the group in the first part.
    repeats_in_part: usize,
    /// Number of other parts of the role with a finding of the group.
    other_parts: usize,
    last_part: &'a InstanceOutcome<'a>,
}

/// Returns the propagated findings of roles that affect the verdict, most severe first.
pub(super) fn propagate(plan: &Plan, parts: &[InstanceOutcome<'_>]) -> Vec<Finding> {
    let mut groups: Vec<PropagatedFindingGroup<'_>> = Vec::new();
    let is_judged = |part: &&InstanceOutcome<'_>| {
        plan.role(&part.placed.job.id.role).is_some_and(|role| role.affects_verdict)
    };
    for part in parts.iter().filter(is_judged) {
        let mut earlier: Vec<(FindingCode, Severity)> = Vec::new();
        for finding in part_findings(part) {
            let kind = (finding.code, finding.severity);
            let same_kind_before = earlier.iter().filter(|other| **other == kind).count();
            earlier.push(kind);
            add_to_groups(&mut groups, part, finding, same_kind_before);
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.first.severity));
    let left = groups.len().saturating_sub(PROPAGATED_MAX);
    groups.truncate(PROPAGATED_MAX);
    let mut findings: Vec<_> = groups.into_iter().map(|group| group.into_finding(parts)).collect();
    if let Some(last) = findings.last_mut().filter(|_| left > 0) {
        let message = &last.message;
        last.message = format!("{message} Parts have {left} more findings, listed with each part.");
    }
    findings
}

/// Returns the errors and warnings in the result of a part.
fn part_findings(part: &InstanceOutcome<'_>) -> Vec<Finding> {
    let findings = part.result().and_then(|result| result.get("findings"));
    let findings = findings.and_then(Value::as_array).into_iter().flatten();
    let read = findings.filter_map(|one| Finding::deserialize(one).ok());
    read.filter(|one| one.severity > Severity::Note).collect()
}

fn add_to_groups<'a>(
    groups: &mut Vec<PropagatedFindingGroup<'a>>,
    part: &'a InstanceOutcome<'a>,
    finding: Finding,
    same_kind_before: usize,
) {
    let index = if finding.trial.is_some() { 0 } else { same_kind_before };
    let is_same = |group: &&mut PropagatedFindingGroup<'_>| {
        let key_of = |finding: &Finding| (finding.code, finding.severity, finding.advice.clone());
        group.part.placed.job.id.role == part.placed.job.id.role
            && key_of(&group.first) == key_of(&finding)
            && group.index_in_part == index
    };
    let Some(group) = groups.iter_mut().find(is_same) else {
        groups.push(PropagatedFindingGroup {
            part,
            first: finding,
            index_in_part: index,
            repeats_in_part: 0,
            other_parts: 0,
            last_part: part,
        });
        return;
    };
    if group.part.placed.job.id == part.placed.job.id {
        group.repeats_in_part += 1;
    } else if group.last_part.placed.job.id != part.placed.job.id {
        group.other_parts += 1;
    }
    group.last_part = part;
}

impl PropagatedFindingGroup<'_> {
    fn into_finding(self, parts: &[InstanceOutcome<'_>]) -> Finding {
        let (job, agent) = (&self.part.placed.job.id, &self.part.placed.agent);
        let is_lead = self.part.placed.job.kind == RoleKind::CycleLead;
        let location =
            is_lead.then(|| cycles::location_text(self.part, parts, &self.first.message));
        let location = location.unwrap_or_default();
        let times = match self.repeats_in_part {
            0 => String::new(),
            more => format!(" Reported {} times.", more + 1),
        };
        let others = match self.other_parts {
            0 => String::new(),
            1 => format!(" Also reported by another part of role {}.", job.role),
            many => format!(" Also reported by {many} other parts of role {}.", job.role),
        };
        // Only some messages end with a full stop.
        let what = self.first.message.trim_end_matches('.');
        let message = format!("{job} on {agent}: {what}.{location}{times}{others}");
        Finding { message, ..self.first }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{PLAN, codes, load, merged, outcome, trial};
    use super::*;

    #[test]
    fn errors_of_parts_are_propagated() {
        let mut value = load(vec![trial(1e3, &[1])]);
        value["findings"] = json!([
            { "code": "no-replies", "severity": "error", "message": "Nothing.", "advice": "Look." },
            { "code": "few-samples", "severity": "note", "message": "Few.", "advice": "More." }
        ]);
        let result = merged(PLAN, vec![outcome("load.1", Some(value))]);
        let again: Vec<_> =
            result.findings.iter().filter(|one| one.code == FindingCode::NoReplies).collect();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].message, "load.1 on n2: Nothing.");
        assert!(!codes(&result).contains(&FindingCode::FewSamples));
        let unjudged = PLAN.replace("count = 3\n", "count = 3\naffects-verdict = false\n");
        let outcomes = result.parts[1].result.clone();
        let result = merged(&unjudged, vec![outcome("load.1", outcomes)]);
        assert!(!codes(&result).contains(&FindingCode::NoReplies));
    }

    #[test]
    fn findings_of_many_parts_are_grouped_and_limited() {
        let finding = |code: &str, severity: &str, message: &str| -> Value {
            json!({ "code": code, "severity": severity, "message": message, "advice": "" })
        };
        let propagated = |findings: [Vec<Value>; 3]| {
            let outcomes = (1..).zip(findings).map(|(number, findings)| {
                let mut value = load(vec![trial(1e3, &[1])]);
                value["findings"] = findings.into();
                outcome(&format!("load.{number}"), Some(value))
            });
            let outcomes = outcomes.chain([outcome("server.1", None)]).collect();
            let reported = merged(PLAN, outcomes).findings.into_iter();
            reported.map(|one| (one.severity, one.message)).collect::<Vec<_>>()
        };
        let behind = |trial: u32| {
            let mut finding = finding("generator-behind", "warning", &format!("Late {trial}."));
            finding["trial"] = json!(trial);
            finding
        };
        let no_replies = |what: &str| finding("no-replies", "error", what);
        let of_all = [
            vec![behind(1), behind(2), no_replies("A"), no_replies("B.")],
            vec![behind(3)],
            vec![behind(4), no_replies("C."), finding("few-samples", "note", "Few.")],
        ];
        let expected = [
            (Severity::Error, "load.1 on n2: A. Also reported by another part of role load."),
            (Severity::Error, "load.1 on n2: B."),
            (
                Severity::Warning,
                "load.1 on n2: Late 1. Reported 2 times. Also reported by 2 other parts of role \
                 load.",
            ),
        ];
        assert_eq!(
            propagated(of_all),
            expected.map(|(severity, text)| (severity, text.to_owned()))
        );
        let many = (0..25).map(|number| no_replies(&format!("{number}."))).collect();
        let reported = propagated([vec![behind(1)], many, Vec::new()]);
        assert_eq!(reported.len(), 20);
        assert_eq!(reported[0].1, "load.2 on n3: 0.");
        let last = "load.2 on n3: 19. Parts have 6 more findings, listed with each part.";
        assert_eq!(reported[19].1, last);
    }
}
