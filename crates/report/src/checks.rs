//! Checks of a command, for a CI system that runs it with many others: one case for each limit, or
//! for each figure of a comparison, and one for the measurement itself. The verdict by cases
//! therefore agrees with the exit status.

use horolog_record::{
    COMPARE_SCHEMA, CompareResult, CompareVerdict, ComparedMetric, Finding, LimitResult, Severity,
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::findings::{grouped, severity_name, trial_label};
use crate::limits;
use crate::table::{self, TableStyle};

/// Result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandEnd {
    /// It completed its task, and nothing is wrong.
    Done,
    /// The measurement is not as required, for this reason.
    Failed(String),
    /// It could not measure, for this reason.
    Unmeasured(String),
}

/// Outcome of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CaseOutcome {
    Passed,
    /// The measurement is not as required.
    Failed,
    /// It was not measured, or not validly.
    Error,
    /// Nothing is known about it.
    Skipped,
}

/// Single check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) outcome: CaseOutcome,
    /// Measured value, or the reason of the outcome.
    pub(crate) detail: String,
}

/// Checks of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Checks {
    /// Command without its options.
    pub(crate) title: String,
    /// Common name of all commands of its kind, such as `horolog.load`.
    pub(crate) class: String,
    /// Start, RFC 3339, if there is a result.
    pub(crate) started: Option<String>,
    /// Duration of the run.
    pub(crate) seconds: f64,
    pub(crate) cases: Vec<Case>,
    pub(crate) findings: Vec<Finding>,
    /// Result as the command shows it.
    pub(crate) text: Option<String>,
}

impl Checks {
    /// Creates the checks of a command, from its words, its result and its end.
    #[must_use]
    pub fn of(
        command: &[String],
        result: Option<&Value>,
        ending: &CommandEnd,
        seconds: f64,
    ) -> Self {
        let empty = Value::Null;
        let fields = result.unwrap_or(&empty);
        let schema = fields["schema"].as_str();
        let class = schema.and_then(|schema| schema.split('/').next()).unwrap_or("horolog");
        let findings = Vec::<Finding>::deserialize(&fields["findings"]).unwrap_or_default();
        let mut cases = if schema == Some(COMPARE_SCHEMA) {
            compared(fields)
        } else {
            let limits = Vec::<LimitResult>::deserialize(&fields["limits"]).unwrap_or_default();
            limits.iter().map(of_limit).collect()
        };
        cases.push(measurement(ending, &findings, &cases));
        let style = TableStyle { colour: false, ..TableStyle::default() };
        Self {
            title: title(command),
            class: class.to_owned(),
            started: fields["started"].as_str().map(str::to_owned),
            seconds,
            cases,
            findings,
            text: result.and_then(|result| crate::table_of(result.clone(), &style).ok()),
        }
    }

    pub(crate) fn count(&self, outcome: &CaseOutcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == *outcome).count()
    }

    /// Returns a line for each finding, the worst first.
    pub(crate) fn finding_lines(&self) -> Vec<String> {
        let groups = grouped(&self.findings);
        let all =
            groups.iter().flat_map(|group| [group.first].into_iter().chain(group.others.clone()));
        all.map(|finding| {
            let trial = trial_label(finding).map_or_else(String::new, |trial| format!("{trial}: "));
            let (severity, message) = (severity_name(finding.severity), &finding.message);
            let line = format!("{severity}: {trial}{message}");
            match finding.advice.as_str() {
                "" => line,
                advice if message.ends_with(['.', '!', '?']) => format!("{line} {advice}"),
                advice => format!("{line}; {advice}"),
            }
        })
        .collect()
    }
}

/// Returns the program by its name alone, then the words before the first option.
fn title(command: &[String]) -> String {
    let words = command.iter().skip(1).take_while(|word| !word.starts_with('-'));
    ["horolog"].into_iter().chain(words.map(String::as_str)).collect::<Vec<_>>().join(" ")
}

fn of_limit(limit: &LimitResult) -> Case {
    let outcome = match (limit.failed, limit.value) {
        (false, _) => CaseOutcome::Passed,
        (true, Some(_)) => CaseOutcome::Failed,
        (true, None) => CaseOutcome::Error,
    };
    Case { name: limit.expression.clone(), outcome, detail: limits::measured(limit) }
}

fn compared(result: &Value) -> Vec<Case> {
    let Ok(result) = CompareResult::deserialize(result) else { return Vec::new() };
    let case = |figure: &ComparedMetric| {
        let (name, detail, verdict) = table::compared_figure(figure);
        let outcome = match verdict {
            _ if figure.informational => CaseOutcome::Skipped,
            CompareVerdict::Same | CompareVerdict::Better => CaseOutcome::Passed,
            CompareVerdict::Worse => CaseOutcome::Failed,
            CompareVerdict::Unclear | CompareVerdict::NotEnough => CaseOutcome::Skipped,
        };
        Case { name, outcome, detail }
    };
    result.metrics.iter().map(case).collect()
}

/// Returns the case of the measurement itself: it fails for reasons that no other case has.
fn measurement(ending: &CommandEnd, findings: &[Finding], others: &[Case]) -> Case {
    let is_explained =
        others.iter().any(|case| matches!(case.outcome, CaseOutcome::Failed | CaseOutcome::Error));
    let error = findings.iter().find(|finding| finding.severity == Severity::Error);
    let (outcome, detail) = match (ending, error) {
        (CommandEnd::Unmeasured(why), _) => (CaseOutcome::Error, why.clone()),
        (_, Some(finding)) => (CaseOutcome::Error, finding.message.clone()),
        (CommandEnd::Failed(why), None) if !is_explained => (CaseOutcome::Failed, why.clone()),
        _ => (CaseOutcome::Passed, "done".to_owned()),
    };
    Case { name: "measurement".to_owned(), outcome, detail }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

    fn command() -> Vec<String> {
        ["/usr/bin/horolog", "load", "ntp", "192.0.2.1", "--rate", "1k"].map(str::to_owned).to_vec()
    }

    fn outcomes(result: Option<&Value>, ending: &CommandEnd) -> Vec<CaseOutcome> {
        let checks = Checks::of(&command(), result, ending, 1.0);
        checks.cases.into_iter().map(|case| case.outcome).collect()
    }

    fn limit(failed: bool, value: Option<f64>) -> Value {
        json!({ "expression": "loss>1%", "unit": "ratio", "bound": 0.01, "value": value, "failed": failed })
    }

    /// Outcomes agree with the exit status, whatever caused it.
    #[test]
    fn cases_agree_with_the_exit_status() {
        let failed = CommandEnd::Failed("why".to_owned());
        let unmeasured = CommandEnd::Unmeasured("no route".to_owned());
        let of = |limits: &[Value]| json!({ "schema": "horolog.load/2", "limits": limits });
        let passed = of(&[limit(false, Some(0.0))]);
        let broken = of(&[limit(true, Some(0.5)), limit(true, None)]);
        assert_eq!(
            outcomes(Some(&passed), &CommandEnd::Done),
            [CaseOutcome::Passed, CaseOutcome::Passed]
        );
        assert_eq!(outcomes(Some(&passed), &failed), [CaseOutcome::Passed, CaseOutcome::Failed]);
        assert_eq!(
            outcomes(Some(&broken), &failed),
            [CaseOutcome::Failed, CaseOutcome::Error, CaseOutcome::Passed]
        );
        assert_eq!(outcomes(None, &unmeasured), [CaseOutcome::Error]);
        let mut with_finding = passed;
        let error =
            json!({ "code": "no-replies", "severity": "error", "message": "m", "advice": "a" });
        with_finding["findings"] = json!([error]);
        assert_eq!(
            outcomes(Some(&with_finding), &failed),
            [CaseOutcome::Passed, CaseOutcome::Error]
        );
    }

    #[test]
    fn a_comparison_has_a_case_for_each_figure() {
        let result = serde_json::to_value(fixture::compare()).unwrap();
        let ending = CommandEnd::Failed("worse".to_owned());
        let checks = Checks::of(&command(), Some(&result), &ending, 1.0);
        let expected = [
            CaseOutcome::Skipped,
            CaseOutcome::Failed,
            CaseOutcome::Skipped,
            CaseOutcome::Passed,
            // A metric of the measuring host, informational.
            CaseOutcome::Skipped,
            CaseOutcome::Failed,
            CaseOutcome::Passed,
            CaseOutcome::Passed,
            CaseOutcome::Passed,
        ];
        assert_eq!(
            checks.cases.iter().map(|case| case.outcome.clone()).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(checks.class, "horolog.compare");
        assert!(checks.cases[1].detail.contains("worse"), "{:?}", checks.cases[1]);
    }

    #[test]
    fn advice_is_separated_from_the_message() {
        let finding = |message: &str, advice: &str| json!({ "code": "trials-inconsistent", "severity": "note", "message": message, "advice": advice });
        let findings =
            [finding("it was noisy", "ask again"), finding("It was.", "Ask."), finding("so", "")];
        let result = json!({ "schema": "horolog.load/2", "findings": findings });
        let lines = Checks::of(&command(), Some(&result), &CommandEnd::Done, 1.0).finding_lines();
        assert_eq!(lines, ["note: it was noisy; ask again", "note: It was. Ask.", "note: so"]);
    }

    #[test]
    fn a_title_has_no_options() {
        let checks = Checks::of(&command(), None, &CommandEnd::Done, 0.0);
        assert_eq!((&*checks.title, &*checks.class), ("horolog load ntp 192.0.2.1", "horolog"));
    }
}
