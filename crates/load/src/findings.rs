//! Findings about a run, from its counts and properties. A finding about trials occurs once: it
//! describes the worst trial, and states the number of affected trials. Each trial is judged once,
//! when it ends.

mod all_trials;
#[cfg(test)]
mod tests;
mod time;
mod trials;

use horolog_record::{
    CapacitySearchResult, Finding, FindingCode, LoadEngineKind, Outage, OverloadResult,
    RequestMode, RequestSpacing, SearchEndReason, Severity, Trial,
};

use all_trials::TrialSums;

use crate::capture::CaptureSummary;
use crate::error;
use crate::mix::RequestMix;
use crate::remote_counters::RemoteCounterErrors;
use crate::request_kind::{RequestBehaviour, RequestKind};
use crate::request_tracker::TrialCounts;

/// A trial with the counts that its record does not contain.
#[derive(Clone, Copy, Debug)]
pub struct TrialWithCounts<'a> {
    /// Record of the trial.
    pub trial: &'a Trial,
    /// Requests in the schedule.
    pub planned: u64,
    /// Requests whose sending failed on this host.
    pub refused: u64,
    /// Replies that the local receive rings or sockets dropped.
    pub ring_dropped: u64,
    /// ICMP port-unreachable messages.
    pub port_closed: u64,
    /// Replies of a server that reports itself as unsynchronised.
    pub server_unsynchronised: u64,
}

impl<'a> TrialWithCounts<'a> {
    /// Combines a trial record and its counts.
    #[must_use]
    pub const fn new(trial: &'a Trial, counts: &TrialCounts) -> Self {
        Self {
            trial,
            planned: counts.planned,
            refused: counts.refused,
            ring_dropped: counts.ring_dropped,
            port_closed: counts.port_closed,
            server_unsynchronised: counts.server_unsynchronised,
        }
    }

    /// Returns the share of the planned requests that was sent: the smaller of the shares by rate
    /// and by number. With exponential spacing, the planned number differs slightly from rate ×
    /// duration.
    fn achieved_share(&self, spacing: RequestSpacing) -> f64 {
        let planned = match spacing {
            RequestSpacing::Constant => self.trial.intended_rate,
            RequestSpacing::Exponential => self.planned as f64 / self.trial.duration_s.max(1e-9),
        };
        // A rate computed from fewer than 100 requests is not meaningful.
        let by_rate = if self.planned < 100 { 1.0 } else { self.trial.achieved_rate / planned };
        by_rate.min(self.trial.sent as f64 / self.planned.max(1) as f64)
    }
}

/// Conditions of a run, which are the same for all its trials.
#[derive(Clone, Debug)]
pub struct RunConditions {
    /// Engine in use.
    pub engine: LoadEngineKind,
    /// Spacing of the requests.
    pub spacing: RequestSpacing,
    /// Requests of the run.
    pub requests: RequestMix,
    /// Command that adds the return route on the server; `None` if replies need no route.
    pub return_route: Option<String>,
    /// True if the server runs on this host.
    pub shared_host: bool,
    /// True if replies are not decrypted because the session lacks the server-to-client key.
    pub replies_unopened: bool,
    /// True if offsets of the server's transmit timestamps are measured.
    pub measures_offsets: bool,
}

impl RunConditions {
    /// Returns true if requests of this mode are sent.
    fn has_mode(&self, mode: RequestMode) -> bool {
        self.requests.kinds().any(|kind| kind.mode() == mode)
    }

    /// Returns the behaviour by which replies are explained: of a mix, that of the first requests
    /// with a fixed port (PTP) if there are any, otherwise that of the first.
    fn explaining_behaviour(&self) -> &dyn RequestBehaviour {
        let kinds = self.requests.kinds().map(RequestKind::behaviour);
        let with_fixed_port = kinds.clone().find(|behaviour| behaviour.fixed_port().is_some());
        with_fixed_port.unwrap_or_else(|| self.requests.parts()[0].request_kind.behaviour())
    }
}

/// Values of a run so far, other than those of single trials, from which findings are made.
#[derive(Clone, Debug)]
pub struct RunFindingInputs<'a> {
    /// Errors of the remote counters; `None` without remote counters.
    pub remote_counter_errors: Option<&'a RemoteCounterErrors>,
    /// Summary of the capture; `None` without a capture.
    pub capture: Option<&'a CaptureSummary>,
    /// The kernel's report whether this host's clock is synchronised; `None` if unknown.
    pub clock_synchronised: Option<bool>,
    /// Better engines that could not be used, each with the reason.
    pub fallbacks: &'a [(LoadEngineKind, String)],
    /// Message on an unavailable feature of the engine in use, and its effect.
    pub missing_feature: Option<String>,
    /// True if the run was ended before it was complete.
    pub interrupted: bool,
    /// Error of the engine that ended the run early.
    pub failure: Option<&'a str>,
    /// Result of a search.
    pub search: Option<&'a CapacitySearchResult>,
    /// Outages of the server.
    pub outages: &'a [Outage],
    /// Result of an overload test.
    pub overload: Option<&'a OverloadResult>,
}

/// Finding about one trial, with the measure by which the worst trial is selected, above 0.
#[derive(Debug)]
struct TrialFinding {
    measure: f64,
    finding: Finding,
}

/// Returns a finding about one trial if its measure is positive.
fn trial_finding(
    measure: f64,
    (code, severity): (FindingCode, Severity),
    message: impl FnOnce() -> String,
    advice: &str,
) -> Option<TrialFinding> {
    let finding = || finding(code, severity, message(), advice);
    (measure > 0.0).then(|| TrialFinding { measure, finding: finding() })
}

/// Finding of one kind about the worst trial so far, and the number of affected trials.
#[derive(Debug, Default)]
struct WorstTrialFinding {
    worst: Option<TrialFinding>,
    count: usize,
}

impl WorstTrialFinding {
    /// Adds the finding about trial `index`, if there is one.
    fn add(&mut self, index: usize, found: Option<TrialFinding>) {
        let Some(mut found) = found else { return };
        self.count += 1;
        if self.worst.as_ref().is_none_or(|worst| found.measure >= worst.measure) {
            found.finding.trial = Some(index);
            self.worst = Some(found);
        }
    }

    /// Returns the finding. The number of affected trials is appended to its message if there are
    /// several.
    fn finding(&self) -> Option<Finding> {
        let mut finding = self.worst.as_ref()?.finding.clone();
        if self.count > 1 {
            let count = self.count;
            finding.message =
                format!("{}; {count} trials are affected, this one most", finding.message);
        }
        Some(finding)
    }
}

/// Number of kinds of findings about single trials.
const TRIAL_FINDINGS: usize = 15;

/// Findings about the trials of a run so far.
#[derive(Debug, Default)]
pub struct TrialFindings {
    sums: TrialSums,
    /// Findings by kind, in the order of the result.
    worst: [WorstTrialFinding; TRIAL_FINDINGS],
}

impl TrialFindings {
    /// Judges the next trial of a run.
    pub fn add(&mut self, observed: &TrialWithCounts<'_>, conditions: &RunConditions) {
        let found: [_; TRIAL_FINDINGS] = [
            trials::generator_behind(observed, conditions),
            trials::late_requests(observed),
            trials::ring_overflow(observed),
            trials::invalid_replies(observed, conditions),
            trials::kiss_of_death(observed),
            trials::duplicate_replies(observed),
            trials::server_unsynchronised(observed, conditions),
            trials::unicast_denied(observed),
            trials::basic_replies(observed, conditions, &self.sums),
            trials::losses_unattributed(observed, conditions),
            trials::unanswered_clients(observed),
            trials::compliant_loss(observed),
            trials::few_samples(observed),
            trials::missing_timestamps(observed),
            trials::offsets_out_of_range(observed),
        ];
        let index = self.sums.received.len();
        for (worst, found) in self.worst.iter_mut().zip(found) {
            worst.add(index, found);
        }
        self.sums.add(observed);
    }

    /// Returns all findings about a run with these trials, which were added before. Outages are
    /// omitted if no request was answered as intended.
    #[must_use]
    pub fn run_findings(
        &self,
        trials: &[Trial],
        conditions: &RunConditions,
        inputs: &RunFindingInputs<'_>,
    ) -> Vec<Finding> {
        let received = &self.sums.received[..];
        let mut findings = Vec::new();
        findings.extend(all_trials::no_replies(&self.sums, conditions));
        findings.extend(all_trials::monitor_unsupported(&self.sums, conditions));
        if findings.is_empty() {
            findings.extend(time::longest_outage(received, inputs.outages));
        }
        findings.extend(inputs.overload.and_then(|one| time::not_recovered(received, one)));
        findings.extend(self.trial_findings(conditions));
        findings.extend(inputs.search.and_then(|search| inconsistent_trials(trials, search)));
        findings.extend(inputs.search.and_then(search_unfinished));
        findings.extend(inputs.remote_counter_errors.into_iter().flat_map(counters_unread));
        findings.extend(inputs.capture.and_then(capture_incomplete));
        findings.extend(environment_findings(conditions, inputs));
        findings
    }

    /// Returns the finding of each kind about the worst trial. Too few requests for interleaved
    /// mode explain its absence.
    fn trial_findings(&self, conditions: &RunConditions) -> Vec<Finding> {
        let few_requests = all_trials::few_interleaved_requests(&self.sums, conditions);
        let is_explained = few_requests.is_some();
        let worst = self.worst.iter().filter_map(WorstTrialFinding::finding);
        let other =
            worst.filter(|one| !is_explained || one.code != FindingCode::InterleavedNotUsed);
        let mut findings: Vec<_> = few_requests.into_iter().chain(other).collect();
        for finding in &mut findings {
            if finding.code == FindingCode::KissOfDeath {
                finding.advice = all_trials::kiss_of_death_advice(&self.sums);
            }
        }
        findings
    }
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

/// Reports a search in which trials at the lower bound had inconsistent outcomes.
fn inconsistent_trials(trials: &[Trial], search: &CapacitySearchResult) -> Option<Finding> {
    let lower = search.lower?;
    let at_lower =
        trials.iter().filter(|trial| (trial.intended_rate - lower).abs() <= lower * 1e-6);
    let ratios: Vec<_> = at_lower.map(Trial::loss_ratio).collect();
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let failed = ratios.iter().filter(|&&ratio| ratio > search.goal_loss_ratio).count();
    (failed > 0).then(|| {
        let message = format!(
            "of {} trials at the highest rate found, {failed} exceeded the loss goal, with up to \
             {:.3}%",
            ratios.len(),
            high * 100.0
        );
        let advice = "server or generator is disturbed intermittently; most trials at this rate \
                      met the goal";
        finding(FindingCode::TrialsInconsistent, Severity::Warning, message, advice)
    })
}

/// Reports a search that ended before it found the server's limit, with the reason.
pub(crate) fn search_unfinished(search: &CapacitySearchResult) -> Option<Finding> {
    let range = format!(
        "between {} and {}",
        search.lower.map_or("0".to_owned(), |rate| format!("{rate:.0}")),
        search.upper.map_or("an unknown upper bound".to_owned(), |rate| format!("{rate:.0}"))
    );
    match search.end {
        SearchEndReason::BudgetSpent => Some(finding(
            FindingCode::SearchUnfinished,
            Severity::Warning,
            format!("the search ended early: the highest rate is {range} requests/s"),
            "allow a longer search, or a smaller range of rates",
        )),
        SearchEndReason::GeneratorLimit => Some(finding(
            FindingCode::GeneratorLimit,
            Severity::Warning,
            "the generator reached its maximum rate; the server may sustain more".to_owned(),
            "use a faster engine, more cores or a second generator",
        )),
        SearchEndReason::Converged | SearchEndReason::CappedAtMax | SearchEndReason::BelowMin => {
            None
        }
    }
}

fn clock_unsynchronised(offsets: bool) -> Finding {
    let (severity, rest, advice) = if offsets {
        let advice = "compare offsets between trials, or with a server on this host; for absolute \
                      offsets, synchronise this clock";
        (Severity::Warning, ", which offsets are measured against", advice)
    } else {
        let advice = "rates and round trips are unaffected; do not compare timestamps with those \
                      of other hosts";
        (Severity::Note, "", advice)
    };
    let message = format!("this host's clock is not synchronised{rest}");
    finding(FindingCode::ClockUnsynchronised, severity, message, advice)
}

/// Returns findings about remote counters that could not be read.
fn counters_unread(errors: &RemoteCounterErrors) -> Vec<Finding> {
    let failed = errors.reason.as_ref().map(|reason| {
        let (failed, readings) = (errors.failed, errors.readings);
        finding(
            FindingCode::CountersUnavailable,
            Severity::Warning,
            format!("{failed} of {readings} readings of the server's counters failed: {reason}"),
            "losses of adjacent trials are attributed by the generator's counters only",
        )
    });
    let unread = errors.unavailable.iter().map(|what| {
        finding(
            FindingCode::CountersUnavailable,
            Severity::Note,
            format!("the counter snapshot does not contain {what}"),
            "losses that only these counters would explain remain unattributed",
        )
    });
    failed.into_iter().chain(unread).collect()
}

fn environment_findings(conditions: &RunConditions, inputs: &RunFindingInputs<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if conditions.shared_host {
        findings.push(finding(
            FindingCode::SharedMachine,
            Severity::Note,
            "generator and server share the CPUs of this host".to_owned(),
            "compare with results of this host only; a server on its own host would sustain more",
        ));
    }
    if inputs.clock_synchronised == Some(false) {
        findings.push(clock_unsynchronised(conditions.measures_offsets));
    }
    if conditions.replies_unopened {
        findings.push(finding(
            FindingCode::RepliesNotDecrypted,
            Severity::Warning,
            "the server's NTS key is unknown, so replies were verified by their unencrypted parts \
             only: fields, unique identifier, length"
                .to_owned(),
            "add the S2C key after the cookie, or use NTS-KE, to have replies authenticated",
        ));
    }
    let refused = error::group_by_reason(inputs.fallbacks);
    if !refused.is_empty() {
        let each: Vec<_> =
            refused.iter().map(|(engines, reason)| format!("not {engines}: {reason}")).collect();
        findings.push(finding(
            FindingCode::EngineFallback,
            Severity::Note,
            format!("engine '{}' is used, {}", conditions.engine.name(), each.join("; and ")),
            "a faster engine sends and receives more, and disturbs the measurement less",
        ));
    }
    if let Some(shortfall) = &inputs.missing_feature {
        findings.push(finding(
            FindingCode::EngineFallback,
            Severity::Note,
            shortfall.clone(),
            "if this host forwards packets, drop the replies with a firewall rule",
        ));
    }
    if let Some(reason) = inputs.failure {
        findings.push(finding(
            FindingCode::EngineFailed,
            Severity::Error,
            format!("the run ended early: {reason}"),
            "values measured until then are valid; the rest is missing",
        ));
    }
    findings.extend(inputs.interrupted.then(run_interrupted));
    findings
}

/// Returns the finding that the user ended the run.
pub(crate) fn run_interrupted() -> Finding {
    finding(
        FindingCode::Interrupted,
        Severity::Warning,
        "the run was interrupted".to_owned(),
        "values measured until then are valid; run again to completion for the rest",
    )
}

pub(super) fn capture_incomplete(capture: &CaptureSummary) -> Option<Finding> {
    let CaptureSummary { path, written, missed, left_out, one_in, error: fault } = capture;
    let mut lacks = Vec::new();
    if let Some(fault) = fault {
        lacks.push(format!("it ends early: {fault}"));
    }
    if *missed > 0 {
        lacks.push(format!("{missed} more were dropped because the capture was too slow"));
    }
    if *left_out > 0 {
        lacks.push(format!("{left_out} more were omitted at the packet limit"));
    }
    let is_short = !lacks.is_empty();
    if *one_in > 1 {
        lacks.push(format!(
            "at the highest rate one request in {one_in} was captured, with its reply"
        ));
    }
    if lacks.is_empty() {
        return None;
    }
    let severity = if is_short { Severity::Warning } else { Severity::Note };
    let message = format!("{} contains {written} packets: {}", path.display(), lacks.join("; "));
    let advice = "the counts in the result are complete; lower the rate or raise --pcap-max for a \
                  complete capture";
    Some(finding(FindingCode::CaptureIncomplete, severity, message, advice))
}

#[cfg(test)]
mod capture_tests {
    use super::*;

    #[test]
    fn only_an_incomplete_capture_is_reported() {
        let whole = CaptureSummary { written: 9, one_in: 1, ..CaptureSummary::default() };
        assert_eq!(capture_incomplete(&whole), None);
        let sampled = capture_incomplete(&CaptureSummary { one_in: 8, ..whole.clone() }).unwrap();
        assert_eq!(sampled.severity, Severity::Note);
        assert!(sampled.message.contains("one request in 8"), "{}", sampled.message);
        let short = CaptureSummary { missed: 3, left_out: 4, ..whole };
        let short = capture_incomplete(&short).unwrap();
        assert_eq!(short.severity, Severity::Warning);
        assert!(short.message.contains("3 more") && short.message.contains("4 more"));
    }
}
