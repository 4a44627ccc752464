//! The doubts about a run, from its counts alone. One finding for each kind: it names the worst
//! trial and says how many trials it is about, so that a long search does not repeat itself.

mod capture;
mod clients;
mod offsets;
#[cfg(test)]
mod tests;
mod time;
mod trials;

use horolog_record::{
    Code, Engine, Finding, Overload, SearchEnd, SearchResult, Severity, Silence, Spacing, Trial,
};

use crate::account::TrialCounts;
use crate::capture::CaptureSummary;
use crate::error;
use crate::page::PageDoubts;
use crate::ptp::PtpPlan;

/// A trial with what its record does not hold.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The record.
    pub trial: &'a Trial,
    /// Requests that the schedule held.
    pub planned: u64,
    /// Requests that the own sending path refused.
    pub refused: u64,
    /// Replies that the own receive rings or sockets dropped.
    pub ring_dropped: u64,
    /// ICMP messages that said that the port is closed.
    pub port_closed: u64,
    /// Replies of a server that says that it is not synchronised.
    pub server_unsynchronised: u64,
}

impl<'a> Observed<'a> {
    /// Puts a record and the counts that it was made from together.
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

    /// The rate really sent as a share of the rate that the schedule held. Random spacing holds
    /// a little more or less than was offered.
    fn achieved_share(&self, spacing: Spacing) -> f64 {
        let planned = match spacing {
            Spacing::Constant => self.trial.offered_rate,
            Spacing::Exponential => self.planned as f64 / self.trial.duration_s.max(1e-9),
        };
        // A handful of requests has no rate to speak of.
        let by_rate = if self.planned < 100 { 1.0 } else { self.trial.achieved_rate / planned };
        by_rate.min(self.trial.sent as f64 / self.planned.max(1) as f64)
    }
}

/// What is known of a run besides its trials.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Circumstances<'a> {
    /// The engine in use.
    pub engine: Engine,
    /// How requests were spaced.
    pub spacing: Spacing,
    /// Requests were in interleaved mode.
    pub interleaved: bool,
    /// How a PTP master was asked, where one was.
    pub ptp: Option<PtpPlan>,
    /// Where the server has to route replies to, where it has to: network and gateway.
    pub return_route: Option<(String, String)>,
    /// The server runs on this machine.
    pub shared_machine: bool,
    /// What the page of counters on the server's machine did not tell, where there is one.
    pub page: Option<&'a PageDoubts>,
    /// What has become of the capture, where there was one.
    pub capture: Option<&'a CaptureSummary>,
    /// The kernel says that this machine's clock is synchronised; `None` where it does not say.
    pub clock_synchronised: Option<bool>,
    /// Better engines that could not be used, and why.
    pub fallbacks: &'a [(Engine, String)],
    /// What the engine in use has to do without, and what that means.
    pub shortfall: Option<String>,
    /// The run was ended before it was through.
    pub interrupted: bool,
    /// The engine failed before the run was through, and why.
    pub failure: Option<&'a str>,
    /// Replies that should be authentic were not opened, for want of the server's key.
    pub unopened: bool,
    /// Offsets of the server's transmit timestamps were taken.
    pub offsets: bool,
    /// What a search found.
    pub search: Option<&'a SearchResult>,
    /// When the server was silent.
    pub silences: &'a [Silence],
    /// What an overload did.
    pub overload: Option<&'a Overload>,
}

/// All doubts about a run.
#[must_use]
pub fn all(trials: &[Observed<'_>], about: &Circumstances<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(trials::no_replies(trials, about));
    findings.extend(trials::no_monitor(trials, about));
    if findings.is_empty() {
        findings.extend(time::silent(trials, about.silences));
    }
    findings.extend(about.overload.and_then(time::not_recovered));
    findings.extend(trials::behind(trials, about));
    findings.extend(trials::late_requests(trials));
    findings.extend(trials::ring_overflow(trials));
    findings.extend(trials::invalid_replies(trials, about));
    findings.extend(trials::duplicate_replies(trials));
    findings.extend(trials::server_unsynchronised(trials, about));
    findings.extend(trials::denied(trials));
    findings.extend(trials::basic_replies(trials, about));
    findings.extend(trials::unexplained(trials, about));
    findings.extend(clients::uneven(trials));
    findings.extend(clients::hurt(trials));
    findings.extend(trials::few_samples(trials));
    findings.extend(offsets::unstamped(trials));
    findings.extend(offsets::out_of_range(trials));
    findings.extend(about.search.and_then(|search| noisy(trials, search)));
    findings.extend(about.search.and_then(unfinished));
    findings.extend(about.page.into_iter().flat_map(counters_unread));
    findings.extend(about.capture.and_then(capture::incomplete));
    findings.extend(circumstances(about));
    findings
}

fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

/// The trial with the largest measure above zero, and how many such trials there are.
fn worst<'a>(
    trials: &'a [Observed<'a>],
    measure: impl Fn(&Observed<'_>) -> f64,
) -> Option<(usize, &'a Observed<'a>, usize)> {
    let measured = |trial: &Observed<'_>| measure(trial);
    let count = trials.iter().filter(|trial| measured(trial) > 0.0).count();
    let (index, trial) =
        trials.iter().enumerate().max_by(|(_, a), (_, b)| measured(a).total_cmp(&measured(b)))?;
    (count > 0).then_some((index, trial, count))
}

/// A finding about the worst trial; `message` is completed with how many others there are.
fn about_worst(
    trials: &[Observed<'_>],
    measure: impl Fn(&Observed<'_>) -> f64,
    (code, severity): (Code, Severity),
    message: impl FnOnce(&Observed<'_>) -> String,
    advice: &str,
) -> Option<Finding> {
    let (index, trial, count) = worst(trials, measure)?;
    let mut message = message(trial);
    if count > 1 {
        message = format!("{message}; {count} trials are concerned, this one most");
    }
    Some(Finding { trial: Some(index), ..finding(code, severity, message, advice) })
}

/// Trials at one rate, some of which held the goal and some of which did not.
fn noisy(trials: &[Observed<'_>], search: &SearchResult) -> Option<Finding> {
    let lower = search.lower?;
    let at_lower = trials
        .iter()
        .map(|observed| observed.trial)
        .filter(|trial| (trial.offered_rate - lower).abs() <= lower * 1e-6);
    let ratios: Vec<_> = at_lower.map(Trial::loss_ratio).collect();
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let failed = ratios.iter().filter(|&&ratio| ratio > search.goal_loss_ratio).count();
    (failed > 0).then(|| {
        let message = format!(
            "of {} trials at the rate found, {failed} lost more than the goal, up to {:.3}%",
            ratios.len(),
            high * 100.0
        );
        let advice = "something disturbs server or generator now and then; the rate found held the \
                      goal more often than not";
        finding(Code::Noisy, Severity::Warning, message, advice)
    })
}

/// Why a search did not find the server's limit, where it did not.
pub(crate) fn unfinished(search: &SearchResult) -> Option<Finding> {
    let range = format!(
        "between {} and {}",
        search.lower.map_or("0".to_owned(), |rate| format!("{rate:.0}")),
        search.upper.map_or("no known".to_owned(), |rate| format!("{rate:.0}"))
    );
    match search.end {
        SearchEnd::BudgetSpent => Some(finding(
            Code::SearchUnfinished,
            Severity::Warning,
            format!("the search ended early: the rate lies {range} requests/s"),
            "give the search more time, or a smaller range of rates",
        )),
        SearchEnd::GeneratorLimit => Some(finding(
            Code::GeneratorLimit,
            Severity::Warning,
            "the generator could not send more; the server may well hold more".to_owned(),
            "use a faster engine, more cores or a second machine",
        )),
        SearchEnd::Converged | SearchEnd::CappedAtMax | SearchEnd::BelowMin => None,
    }
}

fn clock_unsynchronised(offsets: bool) -> Finding {
    let (severity, rest, advice) = if offsets {
        let advice = "read them as differences between trials, or against a server on this \
                      machine; synchronise this clock for more";
        (Severity::Warning, ", and the offsets are against this clock", advice)
    } else {
        let advice = "rates and round trips stand; do not compare its timestamps with other \
                      machines'";
        (Severity::Note, "", advice)
    };
    let message = format!("this machine's clock is not synchronised{rest}");
    finding(Code::ClockUnsynchronised, severity, message, advice)
}

/// What a page of counters did not tell.
fn counters_unread(page: &PageDoubts) -> Vec<Finding> {
    let failed = page.reason.as_ref().map(|reason| {
        let (failed, readings) = (page.failed, page.readings);
        finding(
            Code::CountersUnread,
            Severity::Warning,
            format!("{failed} of {readings} readings of the server's counters failed: {reason}"),
            "losses of the trials around them are assigned by what the generator knows alone",
        )
    });
    let unread = page.unread.iter().map(|what| {
        finding(
            Code::CountersUnread,
            Severity::Note,
            format!("the page of counters could not read {what}"),
            "losses that only these counters would explain stay unknown",
        )
    });
    failed.into_iter().chain(unread).collect()
}

fn circumstances(about: &Circumstances<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if about.shared_machine {
        findings.push(finding(
            Code::SharedMachine,
            Severity::Note,
            "generator and server share the processors of this machine".to_owned(),
            "compare figures from this machine only; the server alone would hold more",
        ));
    }
    if about.clock_synchronised == Some(false) {
        findings.push(clock_unsynchronised(about.offsets));
    }
    if about.unopened {
        findings.push(finding(
            Code::RepliesUnopened,
            Severity::Warning,
            "the server's NTS key is not known, so replies were judged by what stands in the \
             clear: fields, unique identifier, length"
                .to_owned(),
            "give the key S2C behind the cookie, or use --nts, to have them opened",
        ));
    }
    let refused = error::by_reason(about.fallbacks);
    if !refused.is_empty() {
        let each: Vec<_> =
            refused.iter().map(|(engines, reason)| format!("not {engines}: {reason}")).collect();
        findings.push(finding(
            Code::EngineFallback,
            Severity::Note,
            format!("engine '{}' is used and {}", about.engine.name(), each.join("; and ")),
            "a better engine sends and receives more, and disturbs the measurement less",
        ));
    }
    if let Some(shortfall) = &about.shortfall {
        findings.push(finding(
            Code::EngineFallback,
            Severity::Note,
            shortfall.clone(),
            "where this host forwards packets, drop them with a firewall rule",
        ));
    }
    if let Some(reason) = about.failure {
        findings.push(finding(
            Code::EngineFailed,
            Severity::Error,
            format!("the run ended early: {reason}"),
            "what is missing was not measured; what is there stands",
        ));
    }
    findings.extend(about.interrupted.then(interrupted));
    findings
}

/// The user ended the run.
pub(crate) fn interrupted() -> Finding {
    finding(
        Code::Interrupted,
        Severity::Warning,
        "the run was ended before it was through".to_owned(),
        "what is missing was not measured; let it end by itself",
    )
}
