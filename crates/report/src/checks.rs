//! Checks of a command for a CI system: one case per limit, or per metric of a comparison, and one
//! for the measurement itself. They fail exactly if the command exits with a failure status.

use horolog_record::{
    COMPARE_SCHEMA, CompareVerdict, ComparedMetric, Finding, LimitResult, RunsCompareResult,
    Severity,
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::findings::{grouped, severity_name, trial_label};
use crate::kinds::compared_figure;
use crate::limits;
use crate::table::TableStyle;

/// Outcome of a command: requirements met, not met, or nothing measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandOutcome {
    /// The measurement completed and meets all requirements.
    Done,
    /// The measurement is not as required, for this reason.
    Failed(String),
    /// The measurement could not be made, for the stated reason.
    Unmeasured(String),
}

/// Outcome of a check, with the four states of `JUnit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CaseOutcome {
    Passed,
    /// The measured value does not meet the requirement.
    Failed,
    /// No valid value was measured.
    Error,
    /// The case was not decided.
    Skipped,
}

/// Single case: a requirement and its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CheckCase {
    pub(crate) name: String,
    pub(crate) outcome: CaseOutcome,
    /// Measured value, or the reason of the outcome.
    pub(crate) detail: String,
}

/// Checks of one command, with its findings and its result as text.
#[derive(Clone, PartialEq, Debug)]
pub struct CommandChecks {
    /// Command without its options, as title of the checks.
    pub(crate) title: String,
    /// Class name common to all commands of this kind, such as `horolog.load`.
    pub(crate) class: String,
    /// Start time, RFC 3339; `None` without a result.
    pub(crate) started: Option<String>,
    /// Duration of the run, in seconds.
    pub(crate) seconds: f64,
    pub(crate) cases: Vec<CheckCase>,
    pub(crate) findings: Vec<Finding>,
    /// Result as the command shows it.
    pub(crate) text: Option<String>,
}

impl CommandChecks {
    /// Creates the checks of a command from its command line, its result and its outcome.
    #[must_use]
    pub fn of(
        command: &[String],
        result: Option<&Value>,
        ending: &CommandOutcome,
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
            text: result.and_then(|result| Some(crate::parse_result(result).ok()?.text(&style))),
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

/// Returns `horolog` and the words of the command line between its first word and the first option.
fn title(command: &[String]) -> String {
    let words = command.iter().skip(1).take_while(|word| !word.starts_with('-'));
    ["horolog"].into_iter().chain(words.map(String::as_str)).collect::<Vec<_>>().join(" ")
}

fn of_limit(limit: &LimitResult) -> CheckCase {
    let outcome = match (limit.failed, limit.value) {
        (false, _) => CaseOutcome::Passed,
        (true, Some(_)) => CaseOutcome::Failed,
        (true, None) => CaseOutcome::Error,
    };
    CheckCase { name: limit.expression.clone(), outcome, detail: limits::measured(limit) }
}

fn compared(result: &Value) -> Vec<CheckCase> {
    let Ok(result) = RunsCompareResult::deserialize(result) else { return Vec::new() };
    let case = |figure: &ComparedMetric| {
        let (name, detail, verdict) = compared_figure(figure);
        let outcome = match verdict {
            _ if figure.informational => CaseOutcome::Skipped,
            CompareVerdict::Same | CompareVerdict::Better => CaseOutcome::Passed,
            CompareVerdict::Worse => CaseOutcome::Failed,
            CompareVerdict::Unclear | CompareVerdict::NotEnough => CaseOutcome::Skipped,
        };
        CheckCase { name, outcome, detail }
    };
    result.metrics.iter().map(case).collect()
}

/// Returns the case of the measurement itself: an error if it could not be made or a finding is an
/// error, and a failure only for reasons that no other case states.
fn measurement(ending: &CommandOutcome, findings: &[Finding], others: &[CheckCase]) -> CheckCase {
    let is_explained =
        others.iter().any(|case| matches!(case.outcome, CaseOutcome::Failed | CaseOutcome::Error));
    let error = findings.iter().find(|finding| finding.severity == Severity::Error);
    let (outcome, detail) = match (ending, error) {
        (CommandOutcome::Unmeasured(why), _) => (CaseOutcome::Error, why.clone()),
        (_, Some(finding)) => (CaseOutcome::Error, finding.message.clone()),
        (CommandOutcome::Failed(why), None) if !is_explained => (CaseOutcome::Failed, why.clone()),
        _ => (CaseOutcome::Passed, "done".to_owned()),
    };
    CheckCase { name: "measurement".to_owned(), outcome, detail }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

    fn command() -> Vec<String> {
        ["/usr/bin/horolog", "load", "ntp", "192.0.2.1", "--rate", "1k"].map(str::to_owned).to_vec()
    }

    fn outcomes(result: Option<&Value>, ending: &CommandOutcome) -> Vec<CaseOutcome> {
        let checks = CommandChecks::of(&command(), result, ending, 1.0);
        checks.cases.into_iter().map(|case| case.outcome).collect()
    }

    fn limit(failed: bool, value: Option<f64>) -> Value {
        json!({ "expression": "loss>1%", "unit": "ratio", "bound": 0.01, "value": value, "failed": failed })
    }

    /// Outcomes agree with the exit status, whatever caused it.
    #[test]
    fn cases_agree_with_the_exit_status() {
        let failed = CommandOutcome::Failed("why".to_owned());
        let unmeasured = CommandOutcome::Unmeasured("no route".to_owned());
        let of = |limits: &[Value]| json!({ "schema": "horolog.load/2", "limits": limits });
        let passed = of(&[limit(false, Some(0.0))]);
        let broken = of(&[limit(true, Some(0.5)), limit(true, None)]);
        assert_eq!(
            outcomes(Some(&passed), &CommandOutcome::Done),
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
        let result = serde_json::to_value(fixture::sample::<RunsCompareResult>("compare")).unwrap();
        let ending = CommandOutcome::Failed("worse".to_owned());
        let checks = CommandChecks::of(&command(), Some(&result), &ending, 1.0);
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
        let lines = CommandChecks::of(&command(), Some(&result), &CommandOutcome::Done, 1.0)
            .finding_lines();
        assert_eq!(lines, ["note: it was noisy; ask again", "note: It was. Ask.", "note: so"]);
    }

    #[test]
    fn a_title_has_no_options() {
        let checks = CommandChecks::of(&command(), None, &CommandOutcome::Done, 0.0);
        assert_eq!((&*checks.title, &*checks.class), ("horolog load ntp 192.0.2.1", "horolog"));
    }
}
