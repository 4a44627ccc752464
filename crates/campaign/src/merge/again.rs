//! What parts doubt of their own results, said again for the campaign: errors and warnings, as
//! grave as they are there, and by whom. Notes stay in their parts. What several parts of a role
//! say is said once, with how many they are, and there is a bound to all of it.

use horolog_record::{Code, Finding, Severity};
use serde::Deserialize;
use serde_json::Value;

use super::{Part, cycles};
use crate::plan::Plan;
use crate::role::RoleKind;

/// Findings that are said again, at most.
const AGAIN_MAX: usize = 20;

/// A finding of one part, with those of others that say the same.
struct Group<'a> {
    part: &'a Part<'a>,
    first: Finding,
    /// Which one of its kind it is in its part. Those about trials are told together.
    place: usize,
    /// More of its kind in the same part.
    more: usize,
    /// Other parts of the role that say so too.
    others: usize,
    last: &'a Part<'a>,
}

/// The findings of parts whose roles are judged, the gravest first.
pub(super) fn again(plan: &Plan, parts: &[Part<'_>]) -> Vec<Finding> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let is_judged =
        |part: &&Part<'_>| plan.role(&part.placed.job.id.role).is_some_and(|role| role.judged);
    for part in parts.iter().filter(is_judged) {
        let mut seen: Vec<(Code, Severity)> = Vec::new();
        for finding in of(part) {
            let kind = (finding.code, finding.severity);
            let before = seen.iter().filter(|other| **other == kind).count();
            seen.push(kind);
            add(&mut groups, part, finding, before);
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.first.severity));
    let left = groups.len().saturating_sub(AGAIN_MAX);
    groups.truncate(AGAIN_MAX);
    let mut told: Vec<_> = groups.into_iter().map(|group| group.told(parts)).collect();
    if let Some(last) = told.last_mut().filter(|_| left > 0) {
        let message = &last.message;
        last.message = format!("{message} Parts have {left} more findings, which stand with them.");
    }
    told
}

/// Errors and warnings of a part's own result.
fn of(part: &Part<'_>) -> Vec<Finding> {
    let findings = part.result().and_then(|result| result.get("findings"));
    let findings = findings.and_then(Value::as_array).into_iter().flatten();
    let read = findings.filter_map(|one| Finding::deserialize(one).ok());
    read.filter(|one| one.severity > Severity::Note).collect()
}

fn add<'a>(groups: &mut Vec<Group<'a>>, part: &'a Part<'a>, finding: Finding, before: usize) {
    let place = if finding.trial.is_some() { 0 } else { before };
    let is_same = |group: &&mut Group<'_>| {
        let of = |finding: &Finding| (finding.code, finding.severity, finding.advice.clone());
        group.part.placed.job.id.role == part.placed.job.id.role
            && of(&group.first) == of(&finding)
            && group.place == place
    };
    let Some(group) = groups.iter_mut().find(is_same) else {
        groups.push(Group { part, first: finding, place, more: 0, others: 0, last: part });
        return;
    };
    if group.part.placed.job.id == part.placed.job.id {
        group.more += 1;
    } else if group.last.placed.job.id != part.placed.job.id {
        group.others += 1;
    }
    group.last = part;
}

impl Group<'_> {
    fn told(self, parts: &[Part<'_>]) -> Finding {
        let (job, agent) = (&self.part.placed.job.id, &self.part.placed.agent);
        let is_lead = self.part.placed.job.kind == RoleKind::CycleLead;
        let place = is_lead.then(|| cycles::whereabouts(self.part, parts, &self.first.message));
        let place = place.unwrap_or_default();
        let times = match self.more {
            0 => String::new(),
            more => format!(" It says so {} times.", more + 1),
        };
        let others = match self.others {
            0 => String::new(),
            1 => format!(" So does another part of role {}.", job.role),
            many => format!(" So do {many} other parts of role {}.", job.role),
        };
        // Some end with a full stop, others do not.
        let what = self.first.message.trim_end_matches('.');
        let message = format!("{job} on {agent}: {what}.{place}{times}{others}");
        Finding { message, ..self.first }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{PLAN, codes, load, merged, outcome, trial};
    use super::*;

    #[test]
    fn errors_of_parts_are_said_again() {
        let mut value = load(vec![trial(1e3, &[1])]);
        value["findings"] = json!([
            { "code": "no-replies", "severity": "error", "message": "Nothing.", "advice": "Look." },
            { "code": "few-samples", "severity": "note", "message": "Few.", "advice": "More." }
        ]);
        let result = merged(PLAN, vec![outcome("load.1", Some(value))]);
        let again: Vec<_> =
            result.findings.iter().filter(|one| one.code == Code::NoReplies).collect();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].message, "load.1 on n2: Nothing.");
        assert!(!codes(&result).contains(&Code::FewSamples));
        let unjudged = PLAN.replace("count = 3\n", "count = 3\njudged = false\n");
        let outcomes = result.parts[1].result.clone();
        let result = merged(&unjudged, vec![outcome("load.1", outcomes)]);
        assert!(!codes(&result).contains(&Code::NoReplies));
    }

    #[test]
    fn what_many_parts_doubt_is_said_once_and_what_is_said_has_an_end() {
        let finding = |code: &str, severity: &str, message: &str| -> Value {
            json!({ "code": code, "severity": severity, "message": message, "advice": "" })
        };
        let told = |findings: [Vec<Value>; 3]| {
            let outcomes = (1..).zip(findings).map(|(number, findings)| {
                let mut value = load(vec![trial(1e3, &[1])]);
                value["findings"] = findings.into();
                outcome(&format!("load.{number}"), Some(value))
            });
            let outcomes = outcomes.chain([outcome("server.1", None)]).collect();
            let told = merged(PLAN, outcomes).findings.into_iter();
            told.map(|one| (one.severity, one.message)).collect::<Vec<_>>()
        };
        let behind = |trial: u32| {
            let mut finding = finding("generator-behind", "warning", &format!("Late {trial}."));
            finding["trial"] = json!(trial);
            finding
        };
        let silent = |what: &str| finding("no-replies", "error", what);
        let of_all = [
            vec![behind(1), behind(2), silent("A"), silent("B.")],
            vec![behind(3)],
            vec![behind(4), silent("C."), finding("few-samples", "note", "Few.")],
        ];
        let expected = [
            (Severity::Error, "load.1 on n2: A. So does another part of role load."),
            (Severity::Error, "load.1 on n2: B."),
            (
                Severity::Warning,
                "load.1 on n2: Late 1. It says so 2 times. So do 2 other parts of role load.",
            ),
        ];
        assert_eq!(told(of_all), expected.map(|(severity, text)| (severity, text.to_owned())));
        let many = (0..25).map(|number| silent(&format!("{number}."))).collect();
        let told = told([vec![behind(1)], many, Vec::new()]);
        assert_eq!(told.len(), 20);
        assert_eq!(told[0].1, "load.2 on n3: 0.");
        let last = "load.2 on n3: 19. Parts have 6 more findings, which stand with them.";
        assert_eq!(told[19].1, last);
    }
}
