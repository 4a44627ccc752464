//! Findings about behaviour over time: outages of a server, and an incomplete recovery from an
//! overload.

use horolog_record::{Finding, FindingCode, Outage, OverloadResult, Severity};

use super::finding;

/// Reports the longest outage and the number of outages. `received` are the replies of each trial.
pub(super) fn longest_outage(received: &[u64], outages: &[Outage]) -> Option<Finding> {
    let duration_s = |outage: &Outage| outage.to_s - outage.from_s;
    let longest = outages.iter().max_by(|a, b| duration_s(a).total_cmp(&duration_s(b)))?;
    let Outage { trial, from_s, to_s, .. } = *longest;
    let after = match (longest.ended, longest.recovery_ms) {
        (true, Some(ms)) => format!("recovery took {ms:.0} ms"),
        (true, None) => "replies resumed then".to_owned(),
        (false, _) if received.iter().skip(trial + 1).any(|received| *received > 0) => {
            "replies resumed in a later trial".to_owned()
        }
        (false, _) => "replies did not resume".to_owned(),
    };
    let mut message = format!(
        "the server sent no reply for {:.3} s, from {from_s:.3} s to {to_s:.3} s after the start; \
         {after}",
        duration_s(longest)
    );
    if outages.len() > 1 {
        message = format!("{message}; the longest of {} outages", outages.len());
    }
    let advice = "the server was down, restarting, unreachable or rate-limiting: see its log; \
                  losses and latencies of this period do not show its speed";
    let outage_finding = finding(FindingCode::ServerOutage, Severity::Warning, message, advice);
    Some(Finding { trial: Some(trial), ..outage_finding })
}

/// Reports a server that did not recover from an overload test. The three phases of the test are
/// the last trials of a run, whose replies are in `received`. A server without replies in the first
/// phase is not reported here: other findings report it.
pub(super) fn not_recovered(received: &[u64], overload: &OverloadResult) -> Option<Finding> {
    let base = received.len().checked_sub(3).and_then(|base| received.get(base));
    if overload.recovery_ms.is_some() || base == Some(&0) {
        return None;
    }
    let message = format!(
        "after {:.1} s at {:.0} requests/s the server did not return to its loss and round trip at \
         {:.0} requests/s",
        overload.overload_s, overload.overload_rate, overload.base_rate
    );
    let advice = "see the time series for the course of the recovery; lengthen it with -t, or look \
                  for a queue that does not drain";
    Some(finding(FindingCode::NotRecovered, Severity::Warning, message, advice))
}
