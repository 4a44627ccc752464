//! The doubts that time gives rise to: a server that was silent for a while, or that did not come
//! back to what it was.

use horolog_record::{Code, Finding, Overload, Severity, Silence};

use super::{Observed, finding};

/// Tells of the longest silence, and how many there were.
pub(super) fn silent(trials: &[Observed<'_>], silences: &[Silence]) -> Option<Finding> {
    let lasted = |silence: &Silence| silence.to_s - silence.from_s;
    let longest = silences.iter().max_by(|a, b| lasted(a).total_cmp(&lasted(b)))?;
    let Silence { trial, from_s, to_s, .. } = *longest;
    let after = match (longest.ended, longest.recovery_ms) {
        (true, Some(ms)) => format!("{ms:.0} ms later all was as before"),
        (true, None) => "then it answered again".to_owned(),
        (false, _) if trial + 1 < trials.len() && answered_later(trials, trial) => {
            "it answered again in a later trial".to_owned()
        }
        (false, _) => "it did not answer again".to_owned(),
    };
    let mut message = format!(
        "the server answered nothing for {:.3} s, from {from_s:.3} s to {to_s:.3} s after the \
         beginning; {after}",
        lasted(longest)
    );
    if silences.len() > 1 {
        message = format!("{message}; the longest of {} such times", silences.len());
    }
    let advice = "it died, was restarted or was cut off, or it limits its clients: see its log; \
                  losses and latencies of this time are of that, not of its speed";
    let silent = finding(Code::ServerSilent, Severity::Warning, message, advice);
    Some(Finding { trial: Some(trial), ..silent })
}

fn answered_later(trials: &[Observed<'_>], trial: usize) -> bool {
    trials[trial + 1..].iter().any(|observed| observed.trial.received > 0)
}

pub(super) fn not_recovered(overload: &Overload) -> Option<Finding> {
    if overload.recovery_ms.is_some() {
        return None;
    }
    let message = format!(
        "after {:.1} s at {:.0} requests/s the server did not come back to the loss and round trip \
         that it had at {:.0} before",
        overload.overload_s, overload.overload_rate, overload.base_rate
    );
    let advice = "see the series for how it went on; give it longer with -t, or look for a queue \
                  that does not empty";
    Some(finding(Code::NotRecovered, Severity::Warning, message, advice))
}
