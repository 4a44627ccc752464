//! Findings about the measurements from which costs are taken: another host, serious findings of
//! their own, too few values, lost messages.

use horolog_record::{
    CyclePredictPercentile as Worst, Finding, FindingCode, Host, SchedulingPolicy, Severity,
};

use super::{CostInput, CostSourceResult, has_few_values, is_serious};

/// Returns the findings about the measurements used for a prediction on the host `here`.
#[must_use]
pub fn source_findings(sources: &[CostInput], here: &Host, worst: Worst) -> Vec<Finding> {
    let of = |source: &CostInput| {
        let kinds = [
            other_host_finding(source, here),
            uncertain_finding(source),
            sched_other_finding(source),
            few_samples_finding(source, worst),
            lost_messages_finding(source),
        ];
        kinds.into_iter().flatten()
    };
    sources.iter().flat_map(of).collect()
}

/// Returns the smallest share of a core that the kernel permits to real-time threads, according to
/// the measurements; `None` if there is no limit or none is known.
#[must_use]
pub fn real_time_share(sources: &[CostInput]) -> Option<f64> {
    let conditions = sources.iter().filter_map(|source| source.measured.conditions());
    let share = |runtime: u64, period: u64| runtime as f64 / period.max(1) as f64;
    let shares = conditions
        .filter_map(|one| Some(share(one.real_time_runtime_us?, one.real_time_period_us?)));
    shares.reduce(f64::min).filter(|share| *share < 1.0)
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

fn other_host_finding(source: &CostInput, here: &Host) -> Option<Finding> {
    let there = source.measured.host();
    let shown = |text: Option<&String>| text.map_or("not known", String::as_str).to_owned();
    let facts = [
        ("kernel", shown(there.kernel.as_ref()), shown(here.kernel.as_ref())),
        ("processor", shown(there.cpu.as_ref()), shown(here.cpu.as_ref())),
        ("cores", there.cores.to_string(), here.cores.to_string()),
    ];
    let other: Vec<String> = facts
        .into_iter()
        .filter(|(_, there, here)| there != here)
        .map(|(what, there, here)| format!("{what} {there}, not {here}"))
        .collect();
    (!other.is_empty()).then(|| {
        finding(
            FindingCode::CostFromOtherMachine,
            Severity::Warning,
            format!("{} was measured on another host: {}.", source.name, other.join("; ")),
            "Measure on the host that runs the tasks, or use --measure there.",
        )
    })
}

fn uncertain_finding(source: &CostInput) -> Option<Finding> {
    let serious: Vec<&Finding> =
        source.measured.findings().iter().filter(|one| is_serious(one)).collect();
    let first = serious.first()?;
    let count = match serious.len() {
        1 => "a finding".to_owned(),
        count => format!("{count} findings, the first of which is"),
    };
    Some(finding(
        FindingCode::CostUncertain,
        Severity::Warning,
        format!("{} has {count}: {}", source.name, first.message),
        &first.advice,
    ))
}

/// Returns the finding that wake-ups were measured with sched-other threads, whose latency is
/// larger than that of real-time threads.
fn sched_other_finding(source: &CostInput) -> Option<Finding> {
    let CostSourceResult::Timer(timer) = &source.measured else { return None };
    let is_ordinary =
        timer.cores.iter().any(|core| core.scheduling.policy == SchedulingPolicy::Other);
    is_ordinary.then(|| {
        finding(
            FindingCode::CostUncertain,
            Severity::Note,
            format!("{} has wake-ups of sched-other threads, not of real-time ones.", source.name),
            "Measure as root if tasks run in real time.",
        )
    })
}

fn few_samples_finding(source: &CostInput, worst: Worst) -> Option<Finding> {
    let (what, count) = match &source.measured {
        CostSourceResult::Timer(timer) => {
            let times = timer.cores.iter().filter_map(|core| core.latency_ns.as_ref());
            (
                "wake-ups",
                times.filter(|times| has_few_values(times, worst)).map(|one| one.count).min()?,
            )
        }
        CostSourceResult::Path(path) => {
            let times = path.rows.iter().filter_map(|row| row.rtt_ns.as_ref());
            (
                "messages",
                times.filter(|times| has_few_values(times, worst)).map(|one| one.count).min()?,
            )
        }
        _ => return None,
    };
    Some(finding(
        FindingCode::FewSamples,
        Severity::Note,
        format!("{} has {count} {what}: too few for {}.", source.name, worst.name()),
        "Measure longer: rare values may not have been observed.",
    ))
}

fn lost_messages_finding(source: &CostInput) -> Option<Finding> {
    let CostSourceResult::Path(path) = &source.measured else { return None };
    let sum = |of: fn(&horolog_record::PathRequestCounts) -> u64| {
        path.rows.iter().map(|row| of(&row.counts)).fold(0, u64::saturating_add)
    };
    let (lost, sent) = (sum(|counts| counts.lost), sum(|counts| counts.sent));
    (lost > 0).then(|| {
        finding(
            FindingCode::CostUncertain,
            Severity::Warning,
            format!("{}: {lost} of {sent} messages were lost; these have no latency.", source.name),
            "A task that waits for a lost message waits longer than any bound.",
        )
    })
}
