//! Doubts about measurements that costs are taken from: another machine, doubts of their own, too
//! few values, lost messages.

use horolog_record::{Code, CyclePredictWorst as Worst, Finding, Host, SchedulingPolicy, Severity};

use super::{Measured, Source, is_serious, is_short};

/// What is doubtful of measurements for a prediction on this machine.
#[must_use]
pub fn doubts(sources: &[Source], here: &Host, worst: Worst) -> Vec<Finding> {
    let of = |source: &Source| {
        let kinds = [
            foreign(source, here),
            doubtful(source),
            ordinary(source),
            short(source, worst),
            lost(source),
        ];
        kinds.into_iter().flatten()
    };
    sources.iter().flat_map(of).collect()
}

/// The share of a core that the kernel leaves to real-time threads, by the measurements.
#[must_use]
pub fn real_time_share(sources: &[Source]) -> Option<f64> {
    let conditions = sources.iter().filter_map(|source| source.measured.conditions());
    let share = |runtime: u64, period: u64| runtime as f64 / period.max(1) as f64;
    let shares = conditions
        .filter_map(|one| Some(share(one.real_time_runtime_us?, one.real_time_period_us?)));
    shares.reduce(f64::min).filter(|share| *share < 1.0)
}

fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

fn foreign(source: &Source, here: &Host) -> Option<Finding> {
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
            Code::CostForeign,
            Severity::Warning,
            format!("{} was measured on another machine: {}.", source.name, other.join("; ")),
            "Measure on the machine that the tasks run on, or use --measure there.",
        )
    })
}

fn doubtful(source: &Source) -> Option<Finding> {
    let serious: Vec<&Finding> =
        source.measured.findings().iter().filter(|one| is_serious(one)).collect();
    let first = serious.first()?;
    let count = match serious.len() {
        1 => "a doubt".to_owned(),
        count => format!("{count} doubts, of which the first is"),
    };
    Some(finding(
        Code::CostDoubtful,
        Severity::Warning,
        format!("{} has {count}: {}", source.name, first.message),
        &first.advice,
    ))
}

/// Wake-ups of ordinary threads are later than those in real time.
fn ordinary(source: &Source) -> Option<Finding> {
    let Measured::Timer(timer) = &source.measured else { return None };
    let is_ordinary =
        timer.cores.iter().any(|core| core.scheduling.policy == SchedulingPolicy::Other);
    is_ordinary.then(|| {
        finding(
            Code::CostDoubtful,
            Severity::Note,
            format!("{} has wake-ups of ordinary threads, not in real time.", source.name),
            "Measure as root where tasks run in real time.",
        )
    })
}

fn short(source: &Source, worst: Worst) -> Option<Finding> {
    let (what, count) = match &source.measured {
        Measured::Timer(timer) => {
            let times = timer.cores.iter().filter_map(|core| core.latency_ns.as_ref());
            ("wake-ups", times.filter(|times| is_short(times, worst)).map(|one| one.count).min()?)
        }
        Measured::Path(path) => {
            let times = path.rows.iter().filter_map(|row| row.rtt_ns.as_ref());
            ("messages", times.filter(|times| is_short(times, worst)).map(|one| one.count).min()?)
        }
        _ => return None,
    };
    Some(finding(
        Code::FewSamples,
        Severity::Note,
        format!("{} has {count} {what}: few for {}.", source.name, worst.name()),
        "Measure longer: what is rare may not have been seen.",
    ))
}

fn lost(source: &Source) -> Option<Finding> {
    let Measured::Path(path) = &source.measured else { return None };
    let sum = |of: fn(&horolog_record::PathCounts) -> u64| {
        path.rows.iter().map(|row| of(&row.counts)).fold(0, u64::saturating_add)
    };
    let (lost, sent) = (sum(|counts| counts.lost), sum(|counts| counts.sent));
    (lost > 0).then(|| {
        finding(
            Code::CostDoubtful,
            Severity::Warning,
            format!("{}: {lost} of {sent} messages were lost; these have no latency.", source.name),
            "A task that waits for a lost message waits longer than any bound.",
        )
    })
}
