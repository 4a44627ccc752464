//! Common claims about clocks and delays on Linux, each tested against the measurements on this
//! host. Pure.

mod of_functions;
mod of_time;

use horolog_record::{
    DelayClaimVerdict, Distribution, HostDelayResult, SchedulingPolicy, TestedDelayClaim,
    TimerSlackSetting, WaitFunction,
};

use super::evidence::DelayEvidence;
use crate::host::figures::format_time;

/// Returns all tested claims, in display order.
pub(super) fn all_claims(
    result: &HostDelayResult,
    evidence: &DelayEvidence,
) -> Vec<TestedDelayClaim> {
    let input = DelayClaimInput { result, evidence };
    let mut claims = of_time::time_claims(&input);
    claims.extend(of_functions::function_claims(&input));
    claims.extend(claims_elsewhere());
    claims
}

/// Measurements by which the claims are tested.
struct DelayClaimInput<'a> {
    result: &'a HostDelayResult,
    evidence: &'a DelayEvidence,
}

impl DelayClaimInput<'_> {
    /// Returns the overshoot of a function at a delay, with `SCHED_OTHER` and the default timer
    /// slack; `None` if not measured.
    fn overshoot(&self, kind: WaitFunction, requested_ns: u64) -> Option<&Distribution> {
        self.overshoot_with_slack(kind, requested_ns, TimerSlackSetting::Default)
    }

    fn overshoot_with_slack(
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

/// Builds a tested claim. `outcome` is whether it holds, with the evidence; `None` means not
/// measured.
fn tested_claim(id: &str, statement: &str, outcome: Option<(bool, String)>) -> TestedDelayClaim {
    let (verdict, evidence) = match outcome {
        Some((true, figure)) => (DelayClaimVerdict::Holds, figure),
        Some((false, figure)) => (DelayClaimVerdict::Fails, figure),
        None => (DelayClaimVerdict::NotMeasured, "not measured in this run".to_owned()),
    };
    TestedDelayClaim { id: id.to_owned(), statement: statement.to_owned(), verdict, evidence }
}

/// Returns the claims that other commands test.
fn claims_elsewhere() -> [TestedDelayClaim; 6] {
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
