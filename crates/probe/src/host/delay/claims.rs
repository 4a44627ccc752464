//! Common claims about clocks and delays on Linux, each compared with the measurements on this
//! host. Pure: evidence in, verdicts with their values out.

mod of_functions;
mod of_time;

use horolog_record::{
    DelayClaimVerdict, Distribution, HostDelayResult, SchedulingPolicy, TestedDelayClaim,
    TimerSlackSetting, WaitFunction,
};

use super::evidence::DelayEvidence;
use crate::host::figures::time;

/// Returns all claims in the usual order.
pub(super) fn all(result: &HostDelayResult, evidence: &DelayEvidence) -> Vec<TestedDelayClaim> {
    let input = DelayClaimInput { result, evidence };
    let mut claims = of_time::all(&input);
    claims.extend(of_functions::all(&input));
    claims.extend(elsewhere());
    claims
}

/// Input of all claims.
struct DelayClaimInput<'a> {
    result: &'a HostDelayResult,
    evidence: &'a DelayEvidence,
}

impl DelayClaimInput<'_> {
    /// Returns the overshoot of a function at a delay, under sched-other and the default slack.
    fn overshoot(&self, kind: WaitFunction, requested_ns: u64) -> Option<&Distribution> {
        self.under(kind, requested_ns, TimerSlackSetting::Default)
    }

    fn under(
        &self,
        kind: WaitFunction,
        requested_ns: u64,
        slack: TimerSlackSetting,
    ) -> Option<&Distribution> {
        let setting = self
            .result
            .settings
            .iter()
            .position(|one| one.policy == SchedulingPolicy::Other && one.slack == slack)?;
        let cell = self.result.cells.iter().find(|cell| {
            (cell.function, cell.setting, cell.requested_ns) == (kind, setting, requested_ns)
        });
        cell?.overshoot_ns.as_ref()
    }
}

/// Builds a verdict with its value; `None` means not measured.
fn claim(id: &str, statement: &str, judged: Option<(bool, String)>) -> TestedDelayClaim {
    let (verdict, figure) = match judged {
        Some((true, figure)) => (DelayClaimVerdict::Holds, figure),
        Some((false, figure)) => (DelayClaimVerdict::Fails, figure),
        None => (DelayClaimVerdict::NotMeasured, "not measured in this run".to_owned()),
    };
    TestedDelayClaim {
        id: id.to_owned(),
        statement: statement.to_owned(),
        verdict,
        evidence: figure,
    }
}

/// Returns the claims that other commands show.
fn elsewhere() -> [TestedDelayClaim; 6] {
    let of = |(id, statement, command): (&str, &str, &str)| TestedDelayClaim {
        id: id.to_owned(),
        statement: statement.to_owned(),
        verdict: DelayClaimVerdict::Elsewhere,
        evidence: format!("see '{command}'"),
    };
    [
        (
            "delayed-ack-40-ms",
            "Small requests stall for about 40 ms: a delayed acknowledgement coincides with \
             Nagle's algorithm or with the congestion window.",
            "horolog path stall",
        ),
        (
            "delayed-ack-minimum",
            "The minimum delay of an acknowledgement is HZ/25 ticks, 40 ms; \
             net.ipv4.tcp_delack_min sets it where the kernel supports it.",
            "horolog path stall",
        ),
        (
            "quickack-once",
            "TCP_QUICKACK is not permanent: it must be set again after each receive.",
            "horolog path stall",
        ),
        (
            "nodelay-and-cork",
            "TCP_NODELAY sends small segments at once; TCP_CORK holds them back until it is \
             cleared or the connection is closed.",
            "horolog path stall",
        ),
        ("latency-by-size", "Latency increases with message size.", "horolog path tcp"),
        (
            "sleep-before-start",
            "A service that depends on another is delayed with 'sleep 180s', or 'at now+2min'.",
            "horolog after' and 'horolog at",
        ),
    ]
    .map(of)
}

#[cfg(test)]
mod tests;
