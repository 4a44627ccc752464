//! What a command checked, for a machine that runs it with many others: one case for each limit, or
//! for each figure of a comparison, and one for the measurement itself. So whoever counts cases
//! comes to the same verdict as who looks at the exit status.

use horolog_record::{
    COMPARE_SCHEMA, CompareResult, CompareVerdict, ComparedFigure, Finding, LimitResult, Severity,
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::findings::{grouped, severity_name, trial_label};
use crate::limits;
use crate::table::{self, TableStyle};

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It did what it was asked, and nothing is wrong.
    Done,
    /// What was measured is not what it should be, for this reason.
    Failed(String),
    /// It could not measure, for this reason.
    Unmeasured(String),
}

/// What became of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Passed,
    /// What was measured is not what it should be.
    Failed,
    /// It was not measured, or not so that it counts.
    Error,
    /// Nothing can be said of it.
    Skipped,
}

/// One thing that was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// What was measured, or why it is so.
    pub(crate) told: String,
}

/// What a command checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Checks {
    /// The command without its options.
    pub(crate) title: String,
    /// What all commands of its kind have in common, such as `horolog.load`.
    pub(crate) class: String,
    /// When it began, RFC 3339, where there is a result.
    pub(crate) started: Option<String>,
    /// For how long it ran.
    pub(crate) seconds: f64,
    pub(crate) cases: Vec<Case>,
    pub(crate) findings: Vec<Finding>,
    /// The result as the command shows it.
    pub(crate) text: Option<String>,
}

impl Checks {
    /// Those of a command, from its words, its result and how it ended.
    #[must_use]
    pub fn of(command: &[String], result: Option<&Value>, ending: &Ending, seconds: f64) -> Self {
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

    pub(crate) fn count(&self, outcome: &Outcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == *outcome).count()
    }

    /// A line for each finding, the worst first.
    pub(crate) fn finding_lines(&self) -> Vec<String> {
        let groups = grouped(&self.findings);
        let all =
            groups.iter().flat_map(|group| [group.first].into_iter().chain(group.others.clone()));
        all.map(|finding| {
            let trial = trial_label(finding).map_or_else(String::new, |trial| format!("{trial}: "));
            let (severity, message) = (severity_name(finding.severity), &finding.message);
            let told = format!("{severity}: {trial}{message}");
            match finding.advice.as_str() {
                "" => told,
                advice if message.ends_with(['.', '!', '?']) => format!("{told} {advice}"),
                advice => format!("{told}; {advice}"),
            }
        })
        .collect()
    }
}

/// The program by its name alone, then the words before the first option.
fn title(command: &[String]) -> String {
    let words = command.iter().skip(1).take_while(|word| !word.starts_with('-'));
    ["horolog"].into_iter().chain(words.map(String::as_str)).collect::<Vec<_>>().join(" ")
}

fn of_limit(limit: &LimitResult) -> Case {
    let outcome = match (limit.failed, limit.value) {
        (false, _) => Outcome::Passed,
        (true, Some(_)) => Outcome::Failed,
        (true, None) => Outcome::Error,
    };
    Case { name: limit.expression.clone(), outcome, told: limits::measured(limit) }
}

fn compared(result: &Value) -> Vec<Case> {
    let Ok(result) = CompareResult::deserialize(result) else { return Vec::new() };
    let case = |figure: &ComparedFigure| {
        let (name, told, verdict) = table::compared_figure(figure);
        let outcome = match verdict {
            _ if figure.of_measurer => Outcome::Skipped,
            CompareVerdict::Same | CompareVerdict::Better => Outcome::Passed,
            CompareVerdict::Worse => Outcome::Failed,
            CompareVerdict::Unclear | CompareVerdict::NotEnough => Outcome::Skipped,
        };
        Case { name, outcome, told }
    };
    result.figures.iter().map(case).collect()
}

/// Whether what was measured counts: it fails for what no other case fails for.
fn measurement(ending: &Ending, findings: &[Finding], others: &[Case]) -> Case {
    let is_explained =
        others.iter().any(|case| matches!(case.outcome, Outcome::Failed | Outcome::Error));
    let error = findings.iter().find(|finding| finding.severity == Severity::Error);
    let (outcome, told) = match (ending, error) {
        (Ending::Unmeasured(why), _) => (Outcome::Error, why.clone()),
        (_, Some(finding)) => (Outcome::Error, finding.message.clone()),
        (Ending::Failed(why), None) if !is_explained => (Outcome::Failed, why.clone()),
        _ => (Outcome::Passed, "done".to_owned()),
    };
    Case { name: "measurement".to_owned(), outcome, told }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

    fn command() -> Vec<String> {
        ["/usr/bin/horolog", "load", "ntp", "192.0.2.1", "--rate", "1k"].map(str::to_owned).to_vec()
    }

    fn outcomes(result: Option<&Value>, ending: &Ending) -> Vec<Outcome> {
        let checks = Checks::of(&command(), result, ending, 1.0);
        checks.cases.into_iter().map(|case| case.outcome).collect()
    }

    fn limit(failed: bool, value: Option<f64>) -> Value {
        json!({ "expression": "loss>1%", "unit": "ratio", "bound": 0.01, "value": value, "failed": failed })
    }

    /// As the exit status has it, whatever it is for.
    #[test]
    fn the_cases_say_what_the_exit_status_says() {
        let failed = Ending::Failed("why".to_owned());
        let unmeasured = Ending::Unmeasured("no route".to_owned());
        let of = |limits: &[Value]| json!({ "schema": "horolog.load/1", "limits": limits });
        let kept = of(&[limit(false, Some(0.0))]);
        let broken = of(&[limit(true, Some(0.5)), limit(true, None)]);
        assert_eq!(outcomes(Some(&kept), &Ending::Done), [Outcome::Passed, Outcome::Passed]);
        assert_eq!(outcomes(Some(&kept), &failed), [Outcome::Passed, Outcome::Failed]);
        assert_eq!(
            outcomes(Some(&broken), &failed),
            [Outcome::Failed, Outcome::Error, Outcome::Passed]
        );
        assert_eq!(outcomes(None, &unmeasured), [Outcome::Error]);
        let mut doubtful = kept;
        let error =
            json!({ "code": "no-replies", "severity": "error", "message": "m", "advice": "a" });
        doubtful["findings"] = json!([error]);
        assert_eq!(outcomes(Some(&doubtful), &failed), [Outcome::Passed, Outcome::Error]);
    }

    #[test]
    fn a_comparison_has_a_case_for_each_figure() {
        let result = serde_json::to_value(fixture::compare()).unwrap();
        let ending = Ending::Failed("worse".to_owned());
        let checks = Checks::of(&command(), Some(&result), &ending, 1.0);
        let expected = [
            Outcome::Skipped,
            Outcome::Failed,
            Outcome::Skipped,
            Outcome::Passed,
            // Of whoever measured.
            Outcome::Skipped,
            Outcome::Failed,
            Outcome::Passed,
            Outcome::Passed,
            Outcome::Passed,
        ];
        assert_eq!(
            checks.cases.iter().map(|case| case.outcome.clone()).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(checks.class, "horolog.compare");
        assert!(checks.cases[1].told.contains("worse"), "{:?}", checks.cases[1]);
    }

    #[test]
    fn advice_is_told_apart_from_the_message() {
        let finding = |message: &str, advice: &str| json!({ "code": "noisy", "severity": "note", "message": message, "advice": advice });
        let findings =
            [finding("it was noisy", "ask again"), finding("It was.", "Ask."), finding("so", "")];
        let result = json!({ "schema": "horolog.load/1", "findings": findings });
        let lines = Checks::of(&command(), Some(&result), &Ending::Done, 1.0).finding_lines();
        assert_eq!(lines, ["note: it was noisy; ask again", "note: It was. Ask.", "note: so"]);
    }

    #[test]
    fn a_title_has_no_options() {
        let checks = Checks::of(&command(), None, &Ending::Done, 0.0);
        assert_eq!((&*checks.title, &*checks.class), ("horolog load ntp 192.0.2.1", "horolog"));
    }
}
